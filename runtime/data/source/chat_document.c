/* SPDX-License-Identifier: MIT
 *
 * Conversations in JSON, known by their fields, to pieces of the corpus:
 *
 *     {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
 *     {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}    (ShareGPT)
 *     {"instruction": "...", "input": "...", "output": "..."}                                    (Alpaca)
 *
 * Each may have a `system` text and `tools` (chat_calls.h).  A content is a string, or a list of parts of text, which
 * are joined.  What cannot be rendered as written (tools where the template has none, other parts, thoughts, a history
 * next to the instruction) is an error, not left out.
 * Marks on messages (chat_marks.c) say which of them the loss counts; without any it counts the assistant's.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/config/chat_template.h"
#include "runtime/data/source/chat.h"
#include "runtime/data/source/chat_calls.h"
#include "runtime/data/source/chat_json.h"
#include "runtime/data/source/chat_marks.h"
#include "runtime/data/source/chat_template.h"

typedef struct Conversation {
    HsChatMessage *messages;
    size_t count, capacity;
    char **owned; /* texts that are joined from several */
    size_t owned_count, owned_capacity;
    HsJson **parsed; /* from texts */
    size_t parsed_count, parsed_capacity;
    HsChatTools tools;
    const HsChatTemplate *made_by; /* NULL: not known, or not asked */
} Conversation;

const char *hs_chat_form(const HsJson *object)
{
    if (hs_chat_is_there(hs_json_get(object, "messages")))
        return "messages";
    if (hs_chat_is_there(hs_json_get(object, "conversations")))
        return "conversations";
    return hs_chat_is_there(hs_json_get(object, "instruction")) && hs_chat_is_there(hs_json_get(object, "output"))
               ? "instruction"
               : NULL;
}

static HsStatus add_message(Conversation *conversation, HsChatRole role, const char *text, size_t length, bool counted)
{
    HS_TRY(hs_array_grow(&conversation->messages, sizeof *conversation->messages, conversation->count + 1,
                         &conversation->capacity));
    conversation->messages[conversation->count++] =
        (HsChatMessage){ .role = role, .text = text, .length = length, .counted = counted };
    return HS_OK;
}

static HsStatus keep_parsed(Conversation *conversation, HsJson *parsed)
{
    const HsStatus status = parsed ? hs_array_grow(&conversation->parsed, sizeof(HsJson *),
                                                   conversation->parsed_count + 1, &conversation->parsed_capacity)
                                   : HS_OK;
    if (status != HS_OK)
        hs_json_destroy(parsed);
    else if (parsed)
        conversation->parsed[conversation->parsed_count++] = parsed;
    return status;
}

/* function_call is ShareGPT's, of an assistant's message with the call as its text, and observation its result. */
static HsStatus find_role(const char *place, const char *name, HsChatRole *role)
{
    static const struct {
        const char *name;
        HsChatRole role;
    } names[] = { { "system", HS_CHAT_SYSTEM },       { "user", HS_CHAT_USER },
                  { "human", HS_CHAT_USER },          { "gpt", HS_CHAT_ASSISTANT },
                  { "assistant", HS_CHAT_ASSISTANT }, { "function_call", HS_CHAT_ASSISTANT },
                  { "tool", HS_CHAT_TOOL },           { "ipython", HS_CHAT_TOOL },
                  { "observation", HS_CHAT_TOOL } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0) {
            *role = names[i].role;
            return HS_OK;
        }
    return hs_fail(HS_EFORMAT,
                   "%s: `%.40s` is no role that templates have here: system, user (human), assistant (gpt) or tool",
                   place, name);
}

/* `bytes`, which the conversation owns from here on, as a text that stays where it is. */
static HsStatus keep(Conversation *conversation, HsBytes *bytes, const char **text)
{
    HsStatus status = hs_bytes_append(bytes, "", 1);
    if (status == HS_OK)
        status = hs_array_grow(&conversation->owned, sizeof *conversation->owned, conversation->owned_count + 1,
                               &conversation->owned_capacity);
    if (status != HS_OK) {
        hs_bytes_deinit(bytes);
        return status;
    }
    conversation->owned[conversation->owned_count++] = bytes->items;
    *text = bytes->items;
    return HS_OK;
}

/* {"type": "text", "text": "..."}, where the type may be left out. */
static HsStatus read_part(const char *place, const HsJson *part, HsBytes *joined)
{
    const HsJson *type = hs_json_get(part, "type");
    const char *const kind = hs_json_string(type), *const text = hs_json_string(hs_json_get(part, "text"));
    if (type && (!kind || strcmp(kind, "text") != 0))
        return hs_fail(HS_EFORMAT, "%s: a part of type `%.40s` is not supported: only text is", place,
                       kind ? kind : "?");
    if (!text)
        return hs_fail(HS_EFORMAT, "%s: a part of a content must be {\"type\": \"text\", \"text\": \"...\"}", place);
    return hs_bytes_append(joined, text, strlen(text));
}

/* One behind the other, as the templates that take several have them. */
static HsStatus join_parts(const char *place, const char *key, const HsJson *list, Conversation *conversation,
                           const char **text)
{
    HsBytes joined = { 0 };
    HsStatus status = HS_OK;
    char where[700];
    int index = 0;
    for (const HsJson *part = hs_json_first(list); status == HS_OK && part; part = hs_json_next(part), index++) {
        snprintf(where, sizeof where, "%s: %s[%d]", place, key, index);
        status = read_part(where, part, &joined);
    }
    if (status == HS_OK)
        return keep(conversation, &joined, text);
    hs_bytes_deinit(&joined);
    return status;
}

/* The string at one of two keys; of a content also its parts (conversation NULL: it cannot have any). */
static HsStatus need_text(const char *place, const HsJson *object, const char *key, const char *other,
                          Conversation *conversation, const char **text)
{
    const HsJson *node = hs_json_get(object, key);
    const char *const named = node || !hs_json_get(object, other) ? key : other;
    node = hs_json_get(object, named);
    if (!node)
        return hs_fail(HS_EFORMAT, "%s: `%s` is missing", place, key);
    if (conversation && hs_json_is_array(node))
        return join_parts(place, named, node, conversation, text);
    *text = hs_json_string(node);
    if (!*text)
        return hs_fail(HS_EFORMAT, "%s: `%s` %s", place, named,
                       hs_json_is_null(node) ? "is null: a message without a text cannot be rendered"
                                             : "must be a string");
    return HS_OK;
}

/* Of a message: its text, its calls, or the JSON that is a tool's result. */
static HsStatus read_content(const char *place, const HsJson *node, const char *role_name, bool share,
                             Conversation *conversation, HsChatMessage *message)
{
    const char *const key = share ? "value" : "content", *const other = share ? "content" : "value";
    const HsJson *const content = hs_json_get(node, hs_json_get(node, key) ? key : other);
    const HsJson *const calls = hs_json_get(node, "tool_calls");
    const char *text = "";
    if (message->role == HS_CHAT_TOOL)
        HS_TRY(hs_chat_check_result(place, role_name, conversation->made_by));
    if (!hs_chat_is_nothing(calls)) {
        if (message->role != HS_CHAT_ASSISTANT)
            return hs_fail(HS_EFORMAT, "%s: `tool_calls` of a message that is not the assistant's: leave it out",
                           place);
        HS_TRY(hs_chat_read_calls(place, calls, conversation->made_by));
        message->calls = calls;
    }
    if (message->role == HS_CHAT_TOOL && hs_chat_takes_value(content, conversation->made_by))
        message->value = content;
    else if (!message->calls || hs_chat_is_there(content)) /* a result's parts would be written as Python lists them */
        HS_TRY(need_text(place, node, key, other, message->role == HS_CHAT_TOOL ? NULL : conversation, &text));
    if (strcmp(role_name, "function_call") == 0) {
        HsJson *parsed;
        const HsStatus status = hs_chat_parse_calls(place, text, conversation->made_by, &parsed);
        HS_TRY(keep_parsed(conversation, parsed));
        HS_TRY(status);
        message->calls = parsed;
        text = "";
    }
    message->text = text;
    message->length = strlen(text);
    return HS_OK;
}

static HsStatus read_message(const char *place, const HsJson *node, bool share, Conversation *conversation)
{
    const char *role_name;
    HsChatMessage message = { 0 };
    if (!hs_json_is_object(node))
        return hs_fail(HS_EFORMAT, "%s: must be an object such as %s", place,
                       share ? "{\"from\": \"human\", \"value\": \"...\"}"
                             : "{\"role\": \"user\", \"content\": \"...\"}");
    HS_TRY(hs_chat_refuse_message(place, node));
    HS_TRY(need_text(place, node, share ? "from" : "role", share ? "role" : "from", NULL, &role_name));
    HS_TRY(find_role(place, role_name, &message.role));
    HS_TRY(read_content(place, node, role_name, share, conversation, &message));
    HS_TRY(hs_chat_read_marks(place, node, message.role, &message.counted));
    HS_TRY(add_message(conversation, message.role, message.text, message.length, message.counted));
    conversation->messages[conversation->count - 1] = message;
    return HS_OK;
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

/* What the instruction is about stands below it: under its own heading where the template has headings. */
static HsStatus read_alpaca(const char *place, const HsJson *object, const HsSourceOptions *options,
                            Conversation *conversation)
{
    const char *instruction, *output, *input = "", *asked;
    const HsJson *about = hs_json_get(object, "input");
    const bool headings = options->chat_template && strcmp(options->chat_template, "alpaca") == 0;
    const char *const between = headings ? "\n\n### Input:\n" : "\n";
    HsBytes joined = { 0 };
    HS_TRY(need_text(place, object, "instruction", "instruction", NULL, &instruction));
    HS_TRY(need_text(place, object, "output", "output", NULL, &output));
    if (hs_chat_is_there(about))
        HS_TRY(need_text(place, object, "input", "input", NULL, &input));
    if (!hs_chat_is_nothing(hs_json_get(object, "history")))
        return hs_fail(HS_EFORMAT, "%s: `history` is not read: write the conversation as `messages`", place);
    HsStatus status = hs_bytes_append(&joined, instruction, strlen(instruction));
    if (status == HS_OK && input[0])
        status = hs_bytes_append(&joined, between, strlen(between));
    if (status == HS_OK)
        status = hs_bytes_append(&joined, input, strlen(input));
    if (status != HS_OK) {
        hs_bytes_deinit(&joined);
        return status;
    }
    HS_TRY(keep(conversation, &joined, &asked));
    HS_TRY(add_message(conversation, HS_CHAT_USER, asked, strlen(asked), false));
    return add_message(conversation, HS_CHAT_ASSISTANT, output, strlen(output), true);
}

/* The text `system` of the whole, in front of the messages.  Where they begin with a system message too, one of the two
 * would be lost. */
static HsStatus check_system(const char *place, const char *form, const Conversation *conversation)
{
    if (conversation->count > 1 && conversation->messages[1].role == HS_CHAT_SYSTEM)
        return hs_fail(HS_EFORMAT, "%s: has `system`, and %s[0] is a system message, too: leave one of them out", place,
                       form);
    return HS_OK;
}

static HsStatus read_conversation(const char *place, const HsJson *object, const HsSourceOptions *options,
                                  Conversation *conversation)
{
    const char *const form = hs_chat_form(object);
    const bool has_system = !hs_chat_is_nothing(hs_json_get(object, "system"));
    const char *system;
    bool answered = false;
    HsJson *parsed;
    HS_TRY(hs_chat_refuse_conversation(place, object));
    const HsStatus status = hs_chat_read_tools(place, object, conversation->made_by, &parsed, &conversation->tools);
    HS_TRY(keep_parsed(conversation, parsed));
    HS_TRY(status);
    if (has_system) {
        HS_TRY(need_text(place, object, "system", "system", conversation, &system));
        HS_TRY(add_message(conversation, HS_CHAT_SYSTEM, system, strlen(system), false));
    }
    if (strcmp(form, "instruction") == 0)
        HS_TRY(read_alpaca(place, object, options, conversation));
    else
        HS_TRY(read_list(place, form, hs_json_get(object, form), conversation));
    if (has_system)
        HS_TRY(check_system(place, form, conversation));
    for (size_t i = 0; i < conversation->count; i++)
        answered |= conversation->messages[i].role == HS_CHAT_ASSISTANT || conversation->messages[i].counted;
    if (answered && hs_chat_is_preference(object) &&
        conversation->messages[conversation->count - 1].role != HS_CHAT_ASSISTANT)
        return hs_chat_refuse_preference(place);
    return answered ? HS_OK
                    : hs_fail(HS_EFORMAT,
                              "%s: no message is the assistant's, so there is nothing to learn: leave the document out",
                              place);
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

static void count_oddities(const Conversation *conversation, HsCorpus *corpus)
{
    corpus->unrendered_contents +=
        hs_chat_leaves_out_system(conversation->made_by, conversation->messages, (int64_t)conversation->count);
    for (size_t i = 0; i < conversation->count; i++) {
        const HsChatMessage *const message = &conversation->messages[i];
        if (!message->calls)
            continue;
        corpus->unrendered_contents += message->length > 0 && !conversation->made_by->tools->keeps_content;
        corpus->quoted_arguments += hs_chat_quoted_arguments(message);
    }
}

static HsStatus add_rendered(const char *place, const Conversation *conversation, int64_t line,
                             const HsSourceOptions *options, HsCorpus *corpus)
{
    const HsChatTemplate *made_by = conversation->made_by;
    HsChatTokens tokens = { "", "" };
    HsChatText text = { 0 };
    if (!made_by)
        return hs_chat_template_explain(place, options->tokenizer_path ? options->tokenizer_path : "");
    if (options->tokenizer)
        hs_chat_tokens_read(options->tokenizer, &tokens);
    HsStatus status = hs_chat_render(made_by, &tokens, &conversation->tools, conversation->messages,
                                     (int64_t)conversation->count, false, &text);
    if (status != HS_OK)
        status = hs_error_prefix(status, "%s", place);
    size_t at = 0;
    for (size_t i = 0; status == HS_OK && i < text.counted_count; i++) {
        status = add_piece(corpus, &text, at, text.counted[i].begin, false, line);
        at = text.counted[i].end;
        if (status == HS_OK)
            status = add_piece(corpus, &text, text.counted[i].begin, at, true, line);
    }
    if (status == HS_OK)
        status = add_piece(corpus, &text, at, text.text.count, false, line);
    hs_chat_text_deinit(&text);
    if (status == HS_OK)
        count_oddities(conversation, corpus);
    return status;
}

static HsStatus add_json(const HsJson *node, int64_t line, HsCorpus *corpus)
{
    HsBytes json = { 0 };
    HsStatus status = hs_chat_put_json(node, 0, &json);
    if (status == HS_OK)
        status = hs_corpus_add_text(corpus, json.items, json.count, true, true, line, NAN);
    hs_bytes_deinit(&json);
    return status;
}

/* Without a template: texts as they are, and what a template would write as JSON. */
static HsStatus add_contents(const Conversation *conversation, int64_t line, HsCorpus *corpus)
{
    for (const HsJson *tool = hs_json_first(conversation->tools.list); tool; tool = hs_json_next(tool))
        HS_TRY(add_json(tool, line, corpus));
    for (size_t i = 0; i < conversation->count; i++) {
        const HsChatMessage *const message = &conversation->messages[i];
        if (message->calls)
            HS_TRY(add_json(message->calls, line, corpus));
        if (message->value)
            HS_TRY(add_json(message->value, line, corpus));
        else if (!message->calls || message->length > 0)
            HS_TRY(hs_corpus_add_text(corpus, message->text, message->length, true, true, line, NAN));
    }
    return HS_OK;
}

HsStatus hs_chat_document_add(const char *place, const HsJson *object, int64_t line, const HsSourceOptions *options,
                              HsCorpus *corpus)
{
    Conversation conversation = { .made_by =
                                      options->contents_only ? NULL : hs_chat_template_get(options->chat_template) };
    HsStatus status = read_conversation(place, object, options, &conversation);
    if (status == HS_OK)
        status = options->contents_only ? add_contents(&conversation, line, corpus)
                                        : add_rendered(place, &conversation, line, options, corpus);
    for (size_t i = 0; i < conversation.parsed_count; i++)
        hs_json_destroy(conversation.parsed[i]);
    free(conversation.parsed);
    for (size_t i = 0; i < conversation.owned_count; i++)
        free(conversation.owned[i]);
    free(conversation.owned);
    free(conversation.messages);
    return status;
}
