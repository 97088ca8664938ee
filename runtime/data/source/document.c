/* SPDX-License-Identifier: MIT
 *
 * One document of a file that has fields: what JSON Lines, JSON lists and CSV have in common.
 *
 *     text                    every token is a target
 *     prompt and completion   only the completion's tokens, and the end-of-text after it, are targets
 *     a conversation          only the assistant's messages with their end tokens are targets (chat_document.c); JSON
 *
 * Prompt and completion are separate pieces and are tokenized apart, so that no token straddles the border at which
 * the loss begins.
 */
#include "runtime/data/source/source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/data/source/chat.h"
#include "runtime/data/source/chat_calls.h"
#include "runtime/data/source/chat_marks.h"
#include "runtime/io/json.h"

HsStatus hs_document_check_fields(const char *place, bool text, bool prompt, bool completion,
                                  const HsSourceOptions *options)
{
    if (text && prompt && completion)
        return hs_fail(HS_EFORMAT,
                       "%s: has `%s` and also `%s` and `%s`; leave one out, or name other fields with the task's "
                       "text_field, prompt_field and completion_field",
                       place, options->text_field, options->prompt_field, options->completion_field);
    if (!text && !(prompt && completion))
        return hs_fail(HS_EFORMAT,
                       "%s: has neither `%s` nor both `%s` and `%s`; name the fields with the task's text_field, or "
                       "prompt_field and completion_field",
                       place, options->text_field, options->prompt_field, options->completion_field);
    return HS_OK;
}

HsStatus hs_document_add(const HsDocument *document, int64_t line, HsCorpus *corpus)
{
    const HsField *text = &document->text, *prompt = &document->prompt, *completion = &document->completion;
    if (text->bytes)
        return text->length > 0 ? hs_corpus_add_text(corpus, text->bytes, text->length, true, true, line, NAN) : HS_OK;
    if (prompt->length == 0 && completion->length == 0)
        return HS_OK;
    HS_TRY(hs_corpus_add_text(corpus, prompt->bytes, prompt->length, false, false, line, NAN));
    return hs_corpus_add_text(corpus, completion->bytes, completion->length, true, true, line, NAN);
}

/* ---- JSON ---- */

/* Of the escape \uXXXX at the start of `text`; -1: it is none. */
static int code_unit(const char *text, size_t length)
{
    int unit = 0;
    if (length < 6 || text[0] != '\\' || text[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char *const digits = "0123456789abcdef", *digit = strchr(digits, tolower((unsigned char)text[i]));
        if (!digit || !*digit)
            return -1;
        unit = 16 * unit + (int)(digit - digits);
    }
    return unit;
}

/* Escapes that stand for no text: U+0000, at which a string would end early, and halves of surrogate pairs, which no
 * UTF-8 can hold.  Python writes and reads both. */
static HsStatus check_escapes(const char *place, const char *text, size_t length)
{
    const char *const end = text + length;
    for (const char *at = text; (at = memchr(at, '\\', (size_t)(end - at))) != NULL && at + 1 < end;) {
        const int unit = code_unit(at, (size_t)(end - at));
        if (unit == 0)
            return hs_fail(HS_EFORMAT,
                           "%s: has the escape \\u0000, which text for training must not have: remove it, or leave the "
                           "document out",
                           place);
        if (unit < 0xD800 || unit > 0xDFFF) {
            at += 2; /* the escaped character may be a backslash itself */
            continue;
        }
        const int second = code_unit(at + 6, (size_t)(end - at - 6));
        if (unit < 0xDC00 && second >= 0xDC00 && second <= 0xDFFF) {
            at += 12;
            continue;
        }
        int lines = 0;
        const char *line = text;
        for (const char *newline; (newline = memchr(line, '\n', (size_t)(at - line))) != NULL; line = newline + 1)
            lines++;
        char where[64] = "";
        if (lines > 0)
            snprintf(where, sizeof where, "its line %d, ", lines + 1);
        return hs_fail(HS_EFORMAT,
                       "%s: %scolumn %zu: the escape %.6s is one half of a surrogate pair without the other, which is "
                       "no character: repair the text, or leave the document out",
                       place, where, (size_t)(at - line) + 1, at);
    }
    return HS_OK;
}

/* The string at `key`; no bytes when the key is not there. */
static HsStatus get_field(const char *place, const HsJson *object, const char *key, HsField *field)
{
    const HsJson *node = hs_json_get(object, key);
    *field = (HsField){ 0 };
    if (!node)
        return HS_OK;
    if (!hs_json_is_string(node))
        return hs_fail(HS_EFORMAT, "%s: `%s` must be a string%s", place, key,
                       hs_json_is_array(node) ? "; write a conversation as one list, `messages`" : "");
    *field = (HsField){ hs_json_string(node), strlen(hs_json_string(node)) };
    return HS_OK;
}

static HsStatus add_value(const char *place, const HsJson *value, int64_t line, const char *kind, bool strings,
                          const HsSourceOptions *options, HsCorpus *corpus)
{
    HsDocument document = { 0 };
    const char *string = strings ? hs_json_string(value) : NULL;
    if (string) {
        document.text = (HsField){ string, strlen(string) };
        return hs_document_add(&document, line, corpus);
    }
    if (!hs_json_is_object(value))
        return hs_fail(HS_EFORMAT, "%s: %s must be %san object such as {\"%s\": \"...\"}", place, kind,
                       strings ? "a string or " : "", options->text_field);
    if (hs_chat_is_preference(value) && !hs_json_get(value, options->text_field) &&
        !hs_json_get(value, options->completion_field) && !hs_chat_form(value))
        return hs_chat_refuse_preference(place);
    HS_TRY(get_field(place, value, options->text_field, &document.text));
    HS_TRY(get_field(place, value, options->prompt_field, &document.prompt));
    HS_TRY(get_field(place, value, options->completion_field, &document.completion));
    const char *const form = hs_chat_form(value);
    const bool pair = document.prompt.bytes && document.completion.bytes;
    if (form && (document.text.bytes || pair))
        return hs_fail(HS_EFORMAT, "%s: has `%s` and also `%s`: leave one out, or name another field as the task's %s",
                       place, form, pair ? options->completion_field : options->text_field,
                       pair ? "completion_field" : "text_field");
    if (form)
        return hs_chat_document_add(place, value, line, options, corpus);
    HS_TRY(hs_document_check_fields(place, document.text.bytes, document.prompt.bytes, document.completion.bytes,
                                    options));
    return hs_document_add(&document, line, corpus);
}

HsStatus hs_document_parse_json(const char *place, const char *text, size_t length, int64_t line, const char *kind,
                                bool strings, const HsSourceOptions *options, HsCorpus *corpus)
{
    const char *zero = memchr(text, 0, length);
    if (zero)
        return hs_fail(HS_EFORMAT, "%s: byte %zu: a zero byte, so this is not JSON", place, (size_t)(zero - text));
    HS_TRY(check_escapes(place, text, length));
    HsJson *value = NULL;
    HS_TRY(hs_json_parse_python(place, text, length, &value));
    HsStatus status = hs_chat_has_json(value) ? hs_json_keep_spelling(value, text, length) : HS_OK;
    if (status == HS_OK)
        status = add_value(place, value, line, kind, strings, options, corpus);
    hs_json_destroy(value);
    return status;
}
