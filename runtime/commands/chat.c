/* SPDX-License-Identifier: MIT
 *
 * A conversation with a model: each turn renders all that was said, with the frame of the answer that is to come.  What
 * the model has read of it already is in its cache (hs_generator_run).
 */
#include "runtime/commands/chat.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/config/chat_template.h"
#include "runtime/data/source/chat.h"
#include "runtime/io/utf8.h"

/* Of a conversation: what longer ones cost is reading them once more. */
enum { USUAL_LENGTH = 2048 };

struct HsChat {
    HsLoadedModel *loaded;
    HsGeneration generation;
    HsGenerator *generator;
    const HsChatTemplate *made_by;
    HsChatTokens tokens;
    HsChatMessage *messages; /* each owns its text */
    size_t count, capacity;
    bool has_system, warned;
};

static HsStatus say(HsChat *chat, HsChatRole role, const char *text, size_t length)
{
    HS_TRY(hs_array_grow(&chat->messages, sizeof *chat->messages, chat->count + 1, &chat->capacity));
    char *kept = malloc(length + 1);
    if (!kept)
        return hs_fail(HS_ENOMEM, "no memory for a message of %zu bytes", length);
    if (length > 0)
        memcpy(kept, text, length);
    chat->messages[chat->count++] = (HsChatMessage){ .role = role, .text = kept, .length = length };
    return HS_OK;
}

static void forget(HsChat *chat, size_t count)
{
    while (chat->count > count)
        free((char *)(uintptr_t)chat->messages[--chat->count].text);
}

void hs_chat_restart(HsChat *chat)
{
    forget(chat, chat->has_system);
}

HsStatus hs_chat_create(HsLoadedModel *loaded, const HsGeneration *generation, const char *system, HsChat **chat)
{
    const HsConfig *config = &loaded->config;
    const HsChatTemplate *made_by = hs_chat_template_get(config->tokenizer.chat_template);
    int32_t end;
    *chat = NULL;
    if (!made_by)
        return hs_chat_template_explain("--chat", config->tokenizer.path);
    HS_TRY(hs_chat_end_token(made_by, loaded->tokenizer, &end));
    *chat = calloc(1, sizeof **chat);
    if (!*chat)
        return hs_fail(HS_ENOMEM, "no memory for a conversation");
    **chat = (HsChat){ .loaded = loaded, .generation = *generation, .made_by = made_by };
    hs_chat_tokens_read(loaded->tokenizer, &(*chat)->tokens);
    HsStatus status = hs_generator_create(&loaded->model, &loaded->engine.context, loaded->tokenizer, USUAL_LENGTH,
                                          &(*chat)->generator);
    if (status == HS_OK && system)
        status = say(*chat, HS_CHAT_SYSTEM, system, strlen(system));
    (*chat)->has_system = system != NULL;
    return status;
}

void hs_chat_destroy(HsChat *chat)
{
    if (!chat)
        return;
    forget(chat, 0);
    free(chat->messages);
    hs_generator_destroy(chat->generator);
    free(chat);
}

/* All that was said, as the model reads it. */
static HsStatus encode(HsChat *chat, HsTokens *tokens)
{
    HsChatText text = { 0 };
    HsStatus status =
        hs_chat_render(chat->made_by, &chat->tokens, NULL, chat->messages, (int64_t)chat->count, true, &text);
    if (status == HS_OK)
        status = hs_tokenizer_encode(chat->loaded->tokenizer, text.text.items, text.text.count, tokens);
    hs_chat_text_deinit(&text);
    const int64_t positions = chat->loaded->model.max_positions;
    if (status != HS_OK || chat->warned)
        return status;
    chat->warned = hs_generate_warn_length(&chat->loaded->model, &chat->loaded->config, tokens->count);
    if (!chat->warned && positions > 0 && tokens->count + chat->generation.tokens > positions) {
        hs_warn("the conversation and its next answer may be longer than the %lld positions that the model has: the "
                "earliest is forgotten first",
                (long long)positions);
        chat->warned = true;
    }
    return status;
}

static HsStatus keep_answer(HsChat *chat, const HsTokens *answer, int64_t first)
{
    HsBytes text = { 0 };
    HsStatus status = HS_OK;
    for (int64_t i = first; status == HS_OK && i < answer->count; i++) {
        size_t length;
        const char *const bytes = hs_tokenizer_bytes(chat->loaded->tokenizer, answer->items[i], &length);
        status = hs_bytes_append(&text, bytes, length);
    }
    if (status == HS_OK)
        status = say(chat, HS_CHAT_ASSISTANT, text.items, text.count);
    hs_bytes_deinit(&text);
    return status;
}

HsStatus hs_chat_answer(HsChat *chat, const char *said, size_t length, uint64_t seed, FILE *out, HsTokens *added)
{
    HsTokens prompt = { 0 }, own = { 0 }, *answer = added ? added : &own;
    const int64_t first = answer->count;
    chat->generation.sampling.seed = seed;
    HsStatus status = say(chat, HS_CHAT_USER, said, length);
    if (status == HS_OK)
        status = encode(chat, &prompt);
    if (status == HS_OK)
        status = hs_generator_run(chat->generator, &prompt, &chat->generation, out, answer);
    if (status == HS_OK && out)
        fputc('\n', out);
    if (status == HS_OK)
        status = keep_answer(chat, answer, first);
    hs_tokens_deinit(&prompt);
    hs_tokens_deinit(&own);
    return status;
}

HsStatus hs_chat_talk(HsChat *chat, FILE *in, FILE *out, bool prompts, uint64_t (*seed_of)(uint64_t seed, int64_t turn))
{
    const uint64_t seed = chat->generation.sampling.seed;
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    HsStatus status = HS_OK;
    for (int64_t turn = 0; status == HS_OK;) {
        if (prompts)
            fputs("> ", out);
        fflush(out);
        length = getline(&line, &room, in);
        if (length < 0)
            break;
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r'))
            length--;
        /* A file that is given as the input may begin with one. */
        const size_t mark = turn == 0 ? hs_utf8_mark_bytes(line, (size_t)length) : 0;
        if ((size_t)length == mark)
            continue;
        status = hs_chat_answer(chat, line + mark, (size_t)length - mark, seed_of(seed, turn++), out, NULL);
        fflush(out);
    }
    if (prompts)
        fputc('\n', out);
    free(line);
    return status;
}
