/* SPDX-License-Identifier: MIT
 *
 * Conversations in JSON, known by their fields, to pieces of the corpus:
 *
 *     {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
 *     {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}    (ShareGPT)
 *     {"instruction": "...", "input": "...", "output": "..."}                                    (Alpaca)
 *
 * The last two may have a `system` text.  What cannot be rendered as written (tools, parts of other kinds, a history
 * beside the instruction) is an error, not left out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/chat_template.h"
#include "runtime/data/source/chat.h"

typedef struct Conversation {
    HsChatMessage *messages;
    size_t count, capacity;
    HsBytes joined; /* instruction and input */
} Conversation;

static bool is_there(const HsJson *node)
{
    return node && !hs_json_is_null(node);
}

/* NULL, null, and what is empty. */
static bool is_nothing(const HsJson *node)
{
    const char *const text = hs_json_string(node);
    return !is_there(node) || (text ? text[0] == '\0' : hs_json_is_array(node) && hs_json_count(node) == 0);
}

const char *hs_chat_form(const HsJson *object)
{
    if (is_there(hs_json_get(object, "messages")))
        return "messages";
    if (is_there(hs_json_get(object, "conversations")))
        return "conversations";
    return is_there(hs_json_get(object, "instruction")) && is_there(hs_json_get(object, "output")) ? "instruction"
                                                                                                   : NULL;
}

static HsStatus add_message(Conversation *conversation, HsChatRole role, const char *text, size_t length)
{
    HS_TRY(hs_array_grow(&conversation->messages, sizeof *conversation->messages, conversation->count + 1,
                         &conversation->capacity));
    conversation->messages[conversation->count++] = (HsChatMessage){ role, text, length };
    return HS_OK;
}

static HsStatus find_role(const char *place, const char *name, HsChatRole *role)
{
    static const struct {
        const char *name;
        HsChatRole role;
    } names[] = { { "system", HS_CHAT_SYSTEM },
                  { "user", HS_CHAT_USER },
                  { "human", HS_CHAT_USER },
                  { "gpt", HS_CHAT_ASSISTANT },
                  { "assistant", HS_CHAT_ASSISTANT } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *role = names[i].role;
            return HS_OK;
        }
    return hs_fail(HS_EFORMAT,
                   "%s: `%.40s` is no role that templates have here: system, user (human) or assistant (gpt)", place,
                   name);
}

/* The string at one of two keys. */
static HsStatus need_text(const char *place, const HsJson *object, const char *key, const char *other,
                          const char **text)
{
    const HsJson *node = hs_json_get(object, key);
    const char *const named = node || !hs_json_get(object, other) ? key : other;
    node = hs_json_get(object, named);
    if (!node)
        return hs_fail(HS_EFORMAT, "%s: `%s` is missing", place, key);
    *text = hs_json_string(node);
    const bool several = strcmp(key, "content") == 0 || strcmp(key, "value") == 0;
    if (!*text)
        return hs_fail(HS_EFORMAT, "%s: `%s` must be a string%s", place, named,
                       several && hs_json_is_array(node) ? "; contents of several parts are not supported" : "");
    return HS_OK;
}

static HsStatus read_message(const char *place, const HsJson *node, bool share, Conversation *conversation)
{
    static const char *const refused[] = { "tool_calls", "function_call" };
    const char *role_name, *content;
    HsChatRole role = HS_CHAT_USER;
    if (!hs_json_is_object(node))
        return hs_fail(HS_EFORMAT, "%s: must be an object such as %s", place,
                       share ? "{\"from\": \"human\", \"value\": \"...\"}"
                             : "{\"role\": \"user\", \"content\": \"...\"}");
    HS_TRY(need_text(place, node, share ? "from" : "role", share ? "role" : "from", &role_name));
    HS_TRY(need_text(place, node, share ? "value" : "content", share ? "content" : "value", &content));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!is_nothing(hs_json_get(node, refused[i])))
            return hs_fail(HS_EFORMAT, "%s: `%s`: calls of tools are not supported", place, refused[i]);
    HS_TRY(find_role(place, role_name, &role));
    return add_message(conversation, role, content, strlen(content));
}

static HsStatus read_list(const char *place, const char *form, const HsJson *list, Conversation *conversation)
{
    char where[640];
    int64_t index = 0;
    if (!hs_json_is_array(list) || hs_json_count(list) == 0)
        return hs_fail(HS_EFORMAT, "%s: `%s` must be a list of messages that is not empty", place, form);
    for (const HsJson *node = hs_json_first(list); node; node = hs_json_next(node), index++) {
        snprintf(where, sizeof where, "%s: %s[%" PRId64 "]", place, form, index);
        HS_TRY(read_message(where, node, strcmp(form, "conversations") == 0, conversation));
    }
    return HS_OK;
}

/* What the instruction is about stands below it: under a heading of its own where the template has headings. */
static HsStatus read_alpaca(const char *place, const HsJson *object, const HsSourceOptions *options,
                            Conversation *conversation)
{
    const char *instruction, *output, *input = "";
    const HsJson *about = hs_json_get(object, "input");
    const bool headings = options->chat_template && strcmp(options->chat_template, "alpaca") == 0;
    HsBytes *joined = &conversation->joined;
    HS_TRY(need_text(place, object, "instruction", "instruction", &instruction));
    HS_TRY(need_text(place, object, "output", "output", &output));
    if (is_there(about))
        HS_TRY(need_text(place, object, "input", "input", &input));
    if (!is_nothing(hs_json_get(object, "history")))
        return hs_fail(HS_EFORMAT, "%s: `history` is not read: write the conversation as `messages`", place);
    HS_TRY(hs_bytes_append(joined, instruction, strlen(instruction)));
    if (input[0]) {
        const char *const between = headings ? "\n\n### Input:\n" : "\n";
        HS_TRY(hs_bytes_append(joined, between, strlen(between)));
        HS_TRY(hs_bytes_append(joined, input, strlen(input)));
    }
    HS_TRY(add_message(conversation, HS_CHAT_USER, joined->items, joined->count));
    return add_message(conversation, HS_CHAT_ASSISTANT, output, strlen(output));
}

static HsStatus read_conversation(const char *place, const HsJson *object, const HsSourceOptions *options,
                                  Conversation *conversation)
{
    const char *const form = hs_chat_form(object);
    const char *system;
    bool answered = false;
    if (strcmp(form, "messages") != 0 && !is_nothing(hs_json_get(object, "system"))) {
        HS_TRY(need_text(place, object, "system", "system", &system));
        HS_TRY(add_message(conversation, HS_CHAT_SYSTEM, system, strlen(system)));
    }
    if (strcmp(form, "instruction") == 0)
        HS_TRY(read_alpaca(place, object, options, conversation));
    else
        HS_TRY(read_list(place, form, hs_json_get(object, form), conversation));
    for (size_t i = 0; i < conversation->count; i++)
        answered |= conversation->messages[i].role == HS_CHAT_ASSISTANT;
    return answered ? HS_OK
                    : hs_fail(HS_EFORMAT, "%s: no message is the assistant's, so there is nothing to learn", place);
}

static HsStatus add_piece(HsCorpus *corpus, const HsChatText *text, size_t begin, size_t end, bool counted,
                          int64_t line)
{
    if (begin == end)
        return HS_OK;
    HS_TRY(
        hs_corpus_add_text(corpus, text->text.items + begin, end - begin, counted, end == text->text.count, line, NAN));
    corpus->pieces[corpus->piece_count - 1].chat = true;
    return HS_OK;
}

static HsStatus add_rendered(const char *place, const Conversation *conversation, int64_t line,
                             const HsSourceOptions *options, HsCorpus *corpus)
{
    const HsChatTemplate *made_by = hs_chat_template_get(options->chat_template);
    HsChatTokens tokens = { "", "" };
    HsChatText text = { 0 };
    if (!made_by)
        return hs_chat_template_explain(place, options->tokenizer_path ? options->tokenizer_path : "");
    if (options->tokenizer)
        hs_chat_tokens_read(options->tokenizer, &tokens);
    HsStatus status =
        hs_chat_render(made_by, &tokens, conversation->messages, (int64_t)conversation->count, false, &text);
    if (status != HS_OK)
        status = hs_error_prefix(status, "%s", place);
    size_t at = 0;
    for (size_t i = 0; status == HS_OK && i < text.answer_count; i++) {
        status = add_piece(corpus, &text, at, text.answers[i].begin, false, line);
        at = text.answers[i].end;
        if (status == HS_OK)
            status = add_piece(corpus, &text, text.answers[i].begin, at, true, line);
    }
    if (status == HS_OK)
        status = add_piece(corpus, &text, at, text.text.count, false, line);
    hs_chat_text_deinit(&text);
    return status;
}

HsStatus hs_chat_document_add(const char *place, const HsJson *object, int64_t line, const HsSourceOptions *options,
                              HsCorpus *corpus)
{
    Conversation conversation = { 0 };
    HsStatus status = read_conversation(place, object, options, &conversation);
    for (size_t i = 0; status == HS_OK && options->contents_only && i < conversation.count; i++)
        status = hs_corpus_add_text(corpus, conversation.messages[i].text, conversation.messages[i].length, true, true,
                                    line, NAN);
    if (status == HS_OK && !options->contents_only)
        status = add_rendered(place, &conversation, line, options, corpus);
    free(conversation.messages);
    hs_bytes_deinit(&conversation.joined);
    return status;
}
