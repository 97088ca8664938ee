/* SPDX-License-Identifier: MIT
 *
 * Marks of messages, as other trainers' data have them:
 *
 *     "weight": 0 | 1                     of OpenAI and Mistral, and ShareGPT's: of the assistant's messages
 *     "train": true | false               axolotl's, of any message; "training" and "loss" say the same
 *
 * A message without a mark counts where it is the assistant's.
 */
#include "runtime/data/source/chat_marks.h"

#include <string.h>

typedef struct Refused {
    const char *key, *why;
} Refused;

#define OLD_TOOLS "is not read: write it as `tools`: [{\"type\": \"function\", \"function\": {...}}, ...]"
#define OLD_CALLS "is not read: write it as `tool_calls`: [{\"type\": \"function\", \"function\": {...}}]"
#define NO_THINKS "no template here has a place for thoughts: write them into the content, or leave them out"
#define ONLY_TEXT "only text is learned: leave it out"
#define BY_WEIGHT "is not read: mark whole messages, by `weight` (0 or 1) or `train` (true or false)"

static const Refused of_message[] = {
    { "function_call", OLD_CALLS },
    { "reasoning_content", NO_THINKS },
    { "reasoning", NO_THINKS },
    { "thinking", NO_THINKS },
    { "refusal", "write it as the content" },
    { "images", ONLY_TEXT },
    { "image", ONLY_TEXT },
    { "audio", ONLY_TEXT },
    { "audios", ONLY_TEXT },
    { "videos", ONLY_TEXT },
    { "train_detail", BY_WEIGHT },
    { "training_detail", BY_WEIGHT },
    { "mask", BY_WEIGHT },
    { "loss_mask", BY_WEIGHT },
    { "loss_weight", BY_WEIGHT },
    { "loss_scale", BY_WEIGHT },
};

static const Refused of_whole[] = {
    { "functions", OLD_TOOLS },
    { "images", ONLY_TEXT },
    { "videos", ONLY_TEXT },
    { "audios", ONLY_TEXT },
};

bool hs_chat_is_there(const HsJson *node)
{
    return node && !hs_json_is_null(node);
}

bool hs_chat_is_nothing(const HsJson *node)
{
    const char *const text = hs_json_string(node);
    if (text)
        return text[0] == '\0' || strcmp(text, "[]") == 0; /* a list that is written as a text */
    return !hs_chat_is_there(node) || ((hs_json_is_array(node) || hs_json_is_object(node)) && hs_json_count(node) == 0);
}

static HsStatus refuse(const char *place, const HsJson *object, const Refused *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!hs_chat_is_nothing(hs_json_get(object, rows[i].key)))
            return hs_fail(HS_EFORMAT, "%s: `%s`: %s", place, rows[i].key, rows[i].why);
    return HS_OK;
}

HsStatus hs_chat_refuse_message(const char *place, const HsJson *message)
{
    return refuse(place, message, of_message, sizeof of_message / sizeof *of_message);
}

HsStatus hs_chat_refuse_conversation(const char *place, const HsJson *object)
{
    return refuse(place, object, of_whole, sizeof of_whole / sizeof *of_whole);
}

bool hs_chat_is_preference(const HsJson *object)
{
    return hs_chat_is_there(hs_json_get(object, "chosen")) && hs_chat_is_there(hs_json_get(object, "rejected"));
}

HsStatus hs_chat_refuse_preference(const char *place)
{
    return hs_fail(HS_EFORMAT,
                   "%s: `chosen` and `rejected`: preferences are not learned from: write the answer to learn as the "
                   "last message, or as `completion` of a `prompt`",
                   place);
}

/* One mark: *given where it is there.  Numbers 0 and 1 and the words of JSON say the same. */
static HsStatus read_mark(const char *place, const HsJson *message, const char *key, bool number, bool *given,
                          bool *value)
{
    const HsJson *node = hs_json_get(message, key);
    const double found = hs_json_is_bool(node) ? hs_json_is_true(node) : hs_json_number(node);
    *given = hs_chat_is_there(node);
    *value = found == 1;
    if (!*given || found == 0 || found == 1)
        return HS_OK;
    if (hs_json_is_number(node))
        return hs_fail(HS_EFORMAT, "%s: `%s` is %g: a message is counted whole or not at all: %s", place, key, found,
                       number ? "0 or 1" : "true or false");
    return hs_fail(HS_EFORMAT, "%s: `%s` must be %s", place, key, number ? "0 or 1" : "true or false");
}

HsStatus hs_chat_read_marks(const char *place, const HsJson *message, HsChatRole role, bool *counted)
{
    static const char *const keys[] = { "weight", "train", "training", "loss" };
    const char *by = NULL;
    *counted = role == HS_CHAT_ASSISTANT;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const bool is_weight = i == 0;
        bool given, value;
        HS_TRY(read_mark(place, message, keys[i], is_weight, &given, &value));
        if (!given)
            continue;
        if (is_weight && value && role != HS_CHAT_ASSISTANT)
            return hs_fail(HS_EFORMAT,
                           "%s: `weight` 1 of a message that is not the assistant's: leave it out, or write `train`: "
                           "true for the loss to count it",
                           place);
        if (by && value != *counted)
            return hs_fail(HS_EFORMAT, "%s: `%s` and `%s` contradict each other: leave one out", place, by, keys[i]);
        by = keys[i];
        *counted = value;
    }
    return HS_OK;
}
