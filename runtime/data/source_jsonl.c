/* SPDX-License-Identifier: MIT
 *
 * JSON Lines: one object, one document a line.
 *
 *     {"text": "..."}                          every token is a target
 *     {"prompt": "...", "completion": "..."}   only the completion's tokens, and the end-of-text after it, are targets
 *
 * Prompt and completion are separate pieces and are tokenized apart, so that no token straddles the border at which
 * the loss begins.
 */
#include "runtime/data/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/json.h"

/* Is the escape \u0000 in the line?  A string that ends early inside would lose text without a word. */
static bool has_escaped_zero(const char *line, size_t length)
{
    for (size_t i = 0; i + 1 < length; i++) {
        if (line[i] != '\\')
            continue;
        if (length - i >= 6 && memcmp(line + i, "\\u0000", 6) == 0)
            return true;
        i++; /* the escaped character, which may be a backslash itself */
    }
    return false;
}

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == '\0')
            return false;
    return true;
}

/* The string at `key`, NULL when the key is not there. */
static HsStatus get_string(const char *place, const HsJson *object, const char *key, const char **value)
{
    const HsJson *node = hs_json_get(object, key);
    *value = NULL;
    if (!node)
        return HS_OK;
    if (!hs_json_is_string(node))
        return hs_fail(HS_EFORMAT, "%s: `%s` must be a string", place, key);
    *value = hs_json_string(node);
    return HS_OK;
}

static HsStatus add_object(const char *place, const HsJson *object, int64_t line, const HsSourceOptions *options,
                           HsCorpus *corpus)
{
    const char *text, *prompt, *completion;
    if (!hs_json_is_object(object))
        return hs_fail(HS_EFORMAT, "%s: a line must be an object such as {\"%s\": \"...\"}", place,
                       options->text_field);
    HS_TRY(get_string(place, object, options->text_field, &text));
    HS_TRY(get_string(place, object, options->prompt_field, &prompt));
    HS_TRY(get_string(place, object, options->completion_field, &completion));
    if (text && prompt && completion)
        return hs_fail(HS_EFORMAT,
                       "%s: has `%s` and also `%s` and `%s`; leave one out, or name other fields with the task's "
                       "text_field, prompt_field and completion_field",
                       place, options->text_field, options->prompt_field, options->completion_field);
    if (text)
        return text[0] ? hs_corpus_add_text(corpus, text, strlen(text), true, true, line, NAN) : HS_OK;
    if (!prompt || !completion)
        return hs_fail(HS_EFORMAT,
                       "%s: has neither `%s` nor both `%s` and `%s`; name the fields with the task's text_field, or "
                       "prompt_field and completion_field",
                       place, options->text_field, options->prompt_field, options->completion_field);
    if (!prompt[0] && !completion[0])
        return HS_OK;
    HS_TRY(hs_corpus_add_text(corpus, prompt, strlen(prompt), false, false, line, NAN));
    return hs_corpus_add_text(corpus, completion, strlen(completion), true, true, line, NAN);
}

HsStatus hs_jsonl_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                        HsCorpus *corpus)
{
    int64_t line = 0;
    char place[512];
    for (size_t start = 0; start < size;) {
        const char *text = bytes + start;
        const char *newline = memchr(text, '\n', size - start);
        size_t length = newline ? (size_t)(newline - text) : size - start;
        start += length + 1;
        line++;
        if (is_blank(text, length))
            continue;
        snprintf(place, sizeof place, "%s:%" PRId64, name, line);
        const char *zero = memchr(text, 0, length);
        if (zero)
            return hs_fail(HS_EFORMAT, "%s: byte %zu: a zero byte, so this is not JSON", place, (size_t)(zero - text));
        if (has_escaped_zero(text, length))
            return hs_fail(HS_EFORMAT, "%s: has the escape \\u0000, which text for training must not have", place);
        HsJson *object = NULL;
        HS_TRY(hs_json_parse(place, text, length, &object));
        HsStatus status = add_object(place, object, line, options, corpus);
        hs_json_destroy(object);
        HS_TRY(status);
    }
    return HS_OK;
}
