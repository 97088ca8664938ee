/* SPDX-License-Identifier: MIT
 *
 * The one way in which all chat templates render.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/chat_template.h"

#include <stdlib.h>
#include <string.h>

void hs_chat_text_deinit(HsChatText *text)
{
    hs_bytes_deinit(&text->text);
    free(text->counted);
    *text = (HsChatText){ 0 };
}

static HsStatus put(HsChatText *text, const char *more)
{
    return hs_bytes_append(&text->text, more, strlen(more));
}

/* What is rendered, and where to. */
typedef struct Rendering {
    const HsChatTemplate *made_by;
    const HsChatTokens *tokens;
    const HsChatTools *tools; /* NULL: none are put */
    bool is_quiet;            /* answers without thoughts, by the header's mode */
    HsChatText *text;
} Rendering;

/* What stands around a message's content, inside of its frame; NULL: nothing. */
typedef struct Extras {
    const char *environment, *start;
    const HsChatToolsText *tools_before, *tools_after;
    const HsChatMessage *system; /* which has no frame */
} Extras;

static HsStatus count_span(HsChatText *text, size_t begin)
{
    if (text->text.count == begin)
        return HS_OK;
    HS_TRY(hs_array_grow(&text->counted, sizeof *text->counted, text->counted_count + 1, &text->counted_capacity));
    text->counted[text->counted_count++] = (struct HsChatSpan){ begin, text->text.count };
    return HS_OK;
}

/* The loss counts no text of tools, so a message that counts does so on both sides of it. */
static HsStatus put_tools(const Rendering *rendering, const HsChatToolsText *around, bool counted, size_t *begin)
{
    HsChatText *const text = rendering->text;
    if (!around)
        return HS_OK;
    if (counted)
        HS_TRY(count_span(text, *begin));
    HS_TRY(hs_chat_put_tools(around, rendering->made_by->tools->indent, rendering->tools->list, &text->text));
    *begin = text->text.count;
    return HS_OK;
}

static HsStatus put_content(const Rendering *rendering, const HsChatMessage *message)
{
    const HsChatTemplate *const made_by = rendering->made_by;
    const char *content = message->text;
    size_t length = message->length;
    if (message->calls)
        return hs_chat_put_calls(made_by->tools, message, &rendering->text->text);
    hs_chat_trim(made_by->trims[message->role], &content, &length);
    return hs_bytes_append(&rendering->text->text, content, length);
}

/* What stands before a message's content; of an answer, what it comes after. */
static HsStatus put_before(const Rendering *rendering, HsChatRole role)
{
    HS_TRY(put(rendering->text, rendering->made_by->before[role]));
    return role == HS_CHAT_ASSISTANT && rendering->is_quiet
               ? put(rendering->text, rendering->made_by->header->quiet_start)
               : HS_OK;
}

/* A system message in front of the content of another. */
static HsStatus put_system(const Rendering *rendering, const HsChatMessage *system)
{
    HsChatText *const text = rendering->text;
    const size_t begin = text->text.count;
    HS_TRY(put_content(rendering, system));
    if (system->counted)
        HS_TRY(count_span(text, begin));
    return put(text, rendering->made_by->system_behind);
}

static HsStatus put_message(const Rendering *rendering, const HsChatMessage *message, const Extras *extras)
{
    const HsChatTemplate *const made_by = rendering->made_by;
    HsChatText *const text = rendering->text;
    const char *const end = made_by->end[message->role];
    HS_TRY(put_before(rendering, message->role));
    if (extras->system)
        HS_TRY(put_system(rendering, extras->system));
    size_t begin = text->text.count;
    if (message->role == HS_CHAT_ASSISTANT && made_by->answer_start)
        HS_TRY(put(text, made_by->answer_start));
    HS_TRY(put(text, extras->environment ? extras->environment : ""));
    HS_TRY(put(text, extras->start ? extras->start : ""));
    HS_TRY(put_tools(rendering, extras->tools_before, message->counted, &begin));
    HS_TRY(put_content(rendering, message));
    HS_TRY(put_tools(rendering, extras->tools_after, message->counted, &begin));
    HS_TRY(put(text, end ? end : rendering->tokens->end));
    if (message->counted)
        HS_TRY(count_span(text, begin));
    return put(text, made_by->after[message->role]);
}

/* Where results follow one another, some templates open and close one frame for all. */
static HsStatus put_result(const Rendering *rendering, const HsChatMessage *message, bool opens, bool closes)
{
    const HsChatToolForm *const form = rendering->made_by->tools;
    HsChatText *const text = rendering->text;
    HS_TRY(put(text, opens ? form->result_open : ""));
    HS_TRY(put(text, form->result_before));
    const size_t begin = text->text.count;
    HS_TRY(hs_chat_put_result(form, message, &text->text));
    HS_TRY(put(text, form->result_after));
    HS_TRY(put(text, closes ? form->result_close : ""));
    if (message->counted)
        HS_TRY(count_span(text, begin));
    return put(text, closes ? form->result_behind : "");
}

/* What the first system message has around its content, one that the template adds included. */
static Extras of_system(const Rendering *rendering)
{
    const HsChatToolForm *const form = rendering->tools ? rendering->made_by->tools : NULL;
    Extras extras = { .start = rendering->made_by->system_start };
    if (form) {
        extras.environment = form->environment;
        extras.tools_before = rendering->tools->in_system ? form->system_start : NULL;
        extras.tools_after = form->system_end;
    }
    return extras;
}

/* The same of the first message behind it. */
static Extras of_first(const Rendering *rendering)
{
    const bool has_tools = rendering->tools && !rendering->tools->in_system;
    return (Extras){ .tools_before = has_tools ? rendering->made_by->tools->user_start : NULL };
}

/* In place of the first system message, or where there is none. */
static HsStatus put_header(const Rendering *rendering, const HsChatMessage *system)
{
    const HsChatTemplate *const made_by = rendering->made_by;
    HsChatText *const text = rendering->text;
    bool overridden;
    HS_TRY(put(text, made_by->before[HS_CHAT_SYSTEM]));
    const size_t begin = text->text.count;
    HS_TRY(hs_chat_put_header(made_by->header, system, &text->text, &overridden));
    HS_TRY(put(text, overridden ? made_by->end[HS_CHAT_SYSTEM] : ""));
    if (system && system->counted)
        HS_TRY(count_span(text, begin));
    return put(text, overridden ? made_by->after[HS_CHAT_SYSTEM] : "");
}

static HsStatus check_turns(const HsChatTemplate *made_by, const HsChatMessage *messages, int64_t count)
{
    const int64_t first = count > 0 && messages[0].role == HS_CHAT_SYSTEM;
    for (int64_t i = first; made_by->in_turns && i < count; i++)
        if (messages[i].role != ((i - first) % 2 == 0 ? HS_CHAT_USER : HS_CHAT_ASSISTANT))
            return hs_fail(HS_EFORMAT,
                           "message %lld: the template %s has user and assistant in turns, after one system message "
                           "at most",
                           (long long)i + 1, made_by->name);
    return HS_OK;
}

/* What a system message must be for the template, which would leave it out, or is dated without one. */
static HsStatus check_system(const HsChatTemplate *made_by, const HsChatMessage *messages, int64_t count)
{
    const bool has_system = count > 0 && messages[0].role == HS_CHAT_SYSTEM;
    if (made_by->is_dated && !has_system)
        return hs_fail(HS_EFORMAT,
                       "the template %s is published with a system message of the day on which it is rendered, so that "
                       "no run could be repeated: begin the conversation with one (generate --chat: --system)",
                       made_by->name);
    if (made_by->system_place == HS_CHAT_SYSTEM_FIRST && has_system && count == 1)
        return hs_fail(HS_EFORMAT,
                       "message 1: the template %s puts the system message into the user's first, and there is none",
                       made_by->name);
    for (int64_t i = made_by->system_place == HS_CHAT_SYSTEM_HAS_HEADER; i < count; i++)
        if (messages[i].role == HS_CHAT_SYSTEM &&
            (made_by->system_place == HS_CHAT_SYSTEM_REFUSED || made_by->system_place == HS_CHAT_SYSTEM_HAS_HEADER))
            return hs_fail(HS_EFORMAT,
                           "message %lld: the template %s has no system message%s: write its text into the user's",
                           (long long)i + 1, made_by->name, made_by->header ? " but the first" : "");
    return HS_OK;
}

/* The message that a system message without a frame is put into; count: none. */
static int64_t carrier(const HsChatTemplate *made_by, const HsChatMessage *messages, int64_t count)
{
    if (made_by->system_place == HS_CHAT_SYSTEM_LAST && messages[count - 1].role == HS_CHAT_USER)
        return count - 1;
    return made_by->system_place == HS_CHAT_SYSTEM_FIRST ? 1 : count;
}

const char *hs_chat_left_out(const HsChatTemplate *made_by)
{
    if (made_by->system_place == HS_CHAT_SYSTEM_LAST)
        return "system messages of conversations that do not end with the user's message";
    return made_by->tools && !made_by->tools->keeps_content ? "messages that call a tool and have a content too" : "";
}

bool hs_chat_leaves_out_system(const HsChatTemplate *made_by, const HsChatMessage *messages, int64_t count)
{
    return made_by->system_place == HS_CHAT_SYSTEM_LAST && messages[0].role == HS_CHAT_SYSTEM &&
           carrier(made_by, messages, count) == count;
}

/* A system message that comes first and has no frame: itself, if it is not put into another. */
static HsStatus put_unframed(const Rendering *rendering, const HsChatMessage *messages, int64_t count)
{
    const HsChatTemplate *const made_by = rendering->made_by;
    const bool has_system = count > 0 && messages[0].role == HS_CHAT_SYSTEM;
    const int64_t carries = has_system ? carrier(made_by, messages, count) : count;
    if (made_by->header)
        HS_TRY(put_header(rendering, has_system ? messages : NULL));
    for (int64_t i = has_system; i < count; i++)
        HS_TRY(put_message(rendering, &messages[i], &(const Extras){ .system = i == carries ? messages : NULL }));
    return HS_OK;
}

static HsStatus put_messages(const Rendering *rendering, const HsChatMessage *messages, int64_t count)
{
    const HsChatTemplate *const made_by = rendering->made_by;
    const bool has_system = count > 0 && messages[0].role == HS_CHAT_SYSTEM;
    const Extras system = of_system(rendering), first = of_first(rendering), none = { 0 };
    if (made_by->system_place != HS_CHAT_SYSTEM_FRAMED)
        return put_unframed(rendering, messages, count);
    if (!has_system && made_by->system) {
        const HsChatMessage message = { .role = HS_CHAT_SYSTEM,
                                        .text = made_by->system,
                                        .length = strlen(made_by->system) };
        HS_TRY(put_message(rendering, &message, &system));
    }
    if (first.tools_before && (count == has_system || messages[has_system].role != HS_CHAT_USER))
        return hs_fail(HS_EFORMAT,
                       "message %d: the template %s puts the tools into the first message, which must be the user's",
                       has_system + 1, made_by->name);
    for (int64_t i = 0; i < count; i++) {
        const bool follows = made_by->tools && made_by->tools->joins_results && i > 0,
                   leads = made_by->tools && made_by->tools->joins_results && i + 1 < count;
        if (made_by->omits_empty_system && messages[i].role == HS_CHAT_SYSTEM && messages[i].length == 0)
            continue;
        if (messages[i].role == HS_CHAT_TOOL)
            HS_TRY(put_result(rendering, &messages[i], !(follows && messages[i - 1].role == HS_CHAT_TOOL),
                              !(leads && messages[i + 1].role == HS_CHAT_TOOL)));
        else
            HS_TRY(put_message(rendering, &messages[i],
                               i == 0 && has_system ? &system
                               : i == has_system    ? &first
                                                    : &none));
    }
    return HS_OK;
}

HsStatus hs_chat_render(const HsChatTemplate *made_by, const HsChatTokens *tokens, const HsChatTools *tools,
                        const HsChatMessage *messages, int64_t count, bool answer_next, HsChatText *text)
{
    const bool given =
        tools && tools->list && made_by->tools && (made_by->tools->puts_none || hs_json_count(tools->list) > 0);
    const HsChatMessage *const system = count > 0 && messages[0].role == HS_CHAT_SYSTEM ? messages : NULL;
    const Rendering rendering = { .made_by = made_by,
                                  .tokens = tokens,
                                  .tools = given ? tools : NULL,
                                  .is_quiet = made_by->header && hs_chat_header_is_quiet(made_by->header, system),
                                  .text = text };
    HS_TRY(check_system(made_by, messages, count));
    HS_TRY(check_turns(made_by, messages, count));
    HS_TRY(put(text, made_by->begin ? made_by->begin : tokens->begin));
    HS_TRY(put_messages(&rendering, messages, count));
    if (answer_next)
        return put_before(&rendering, HS_CHAT_ASSISTANT);
    return put(text, made_by->close ? made_by->close : "");
}

/* ---- tokens ---- */

static void read_text(const HsTokenizer *tokenizer, int32_t token, char text[HS_CHAT_TOKEN_BYTES])
{
    size_t length = 0;
    const char *const bytes = hs_tokenizer_bytes(tokenizer, token, &length);
    snprintf(text, HS_CHAT_TOKEN_BYTES, "%.*s", length < HS_CHAT_TOKEN_BYTES ? (int)length : 0, bytes);
}

void hs_chat_tokens_read(const HsTokenizer *tokenizer, HsChatTokens *tokens)
{
    read_text(tokenizer, hs_tokenizer_begin_of_text(tokenizer), tokens->begin);
    read_text(tokenizer, hs_tokenizer_end_of_text(tokenizer), tokens->end);
}

/* The one token that the text becomes; -1: it becomes several, or none. */
static HsStatus token_of(const HsTokenizer *tokenizer, const char *text, int32_t *token)
{
    HsTokens tokens = { 0 };
    size_t length = 0;
    *token = -1;
    HsStatus status = text[0] ? hs_tokenizer_encode(tokenizer, text, strlen(text), &tokens) : HS_OK;
    if (status == HS_EFORMAT) /* has not even the characters */
        status = HS_OK;
    else if (status == HS_OK && tokens.count == 1) {
        const char *const bytes = hs_tokenizer_bytes(tokenizer, tokens.items[0], &length);
        if (length == strlen(text) && memcmp(bytes, text, length) == 0)
            *token = tokens.items[0];
    }
    hs_tokens_deinit(&tokens);
    return status;
}

HsStatus hs_chat_end_token(const HsChatTemplate *made_by, const HsTokenizer *tokenizer, int32_t *end)
{
    char missing[256] = "", options[256] = "";
    HsChatTokens own;
    hs_chat_tokens_read(tokenizer, &own);
    const char *const last = made_by->end[HS_CHAT_ASSISTANT] ? made_by->end[HS_CHAT_ASSISTANT] : own.end;
    for (const char *const *text = made_by->tokens; *text; text++) {
        int32_t token;
        HS_TRY(token_of(tokenizer, *text, &token));
        if (token >= 0)
            continue;
        const size_t named = strlen(missing), given = strlen(options);
        snprintf(missing + named, sizeof missing - named, "%s%s", named > 0 ? ", " : "", *text);
        snprintf(options + given, sizeof options - given, " --special '%s'", *text);
    }
    if (missing[0])
        return hs_fail(
            HS_ECONFIG,
            "tokenizer.chat_template: %s writes the tokens %s, which this tokenizer (kind %s) does not have: "
            "take the one of a model that was made for it, or learn one that has them: trainer tokenizer "
            "train%s SOURCE",
            made_by->name, missing, hs_tokenizer_kind(tokenizer), options);
    HS_TRY(token_of(tokenizer, last, end));
    if (*end < 0)
        return hs_fail(HS_ECONFIG,
                       "tokenizer.chat_template: %s ends an answer with the end-of-text token, which this tokenizer "
                       "(kind %s) %s: name the token that ends a document as tokenizer.end_of_text, or learn a "
                       "tokenizer: trainer tokenizer train SOURCE",
                       made_by->name, hs_tokenizer_kind(tokenizer),
                       last[0] ? "does not find in text" : "does not have");
    return HS_OK;
}

/* ---- borders ---- */

int64_t hs_chat_piece_count(const HsPiece *pieces, int64_t most)
{
    int64_t count = 1;
    while (count < most && !pieces[count - 1].ends_document)
        count++;
    return count;
}

/* Bytes of the tokens from `first` on; *same: whether they are those of the text. */
static size_t length_of(const HsTokenizer *tokenizer, const HsTokens *tokens, int64_t first, const char *text,
                        size_t text_length, bool *same)
{
    size_t length = 0, size;
    *same = true;
    for (int64_t i = first; i < tokens->count; i++, length += size) {
        const char *const bytes = hs_tokenizer_bytes(tokenizer, tokens->items[i], &size);
        *same = *same && length + size <= text_length && memcmp(bytes, text + length, size) == 0;
    }
    *same = *same && length == text_length;
    return length;
}

/* Where byte `border` of the text stands among the bytes that the tokens read as.  Where these are other bytes (a
 * normalizer, a space in front), what is in front of the border is tokenized by itself: it reads as long. */
static HsStatus place_border(HsTokenizerSession *session, const char *text, size_t border, bool same, size_t *place)
{
    const HsTokenizer *tokenizer = hs_tokenizer_session_of(session);
    HsTokens before = { 0 };
    *place = border;
    if (same)
        return HS_OK;
    HsStatus status = hs_tokenizer_session_encode(session, text, border, &before);
    if (status == HS_OK)
        *place = length_of(tokenizer, &before, 0, text, border, &same);
    hs_tokens_deinit(&before);
    return status;
}

HsStatus hs_chat_encode(HsTokenizerSession *session, const char *corpus_text, const HsPiece *pieces, int64_t count,
                        HsTokens *tokens, int64_t *starts)
{
    const HsTokenizer *tokenizer = hs_tokenizer_session_of(session);
    const char *const text = corpus_text + pieces[0].start;
    const size_t whole = pieces[count - 1].start + pieces[count - 1].length - pieces[0].start;
    const int64_t first = tokens->count;
    bool same;
    HS_TRY(hs_tokenizer_session_encode(session, text, whole, tokens));
    length_of(tokenizer, tokens, first, text, whole, &same);
    starts[0] = first;
    int64_t at = first;
    size_t begin = 0; /* of token `at` */
    for (int64_t i = 1; i < count; i++) {
        size_t place, size;
        HS_TRY(place_border(session, text, pieces[i].start - pieces[0].start, same, &place));
        for (; at < tokens->count; at++, begin += size) {
            (void)hs_tokenizer_bytes(tokenizer, tokens->items[at], &size);
            if (begin >= place || (pieces[i].counted && begin + size > place))
                break;
        }
        starts[i] = at;
    }
    return HS_OK;
}
