/* SPDX-License-Identifier: MIT
 *
 * JSON Lines: one object, one document a line.
 *
 *     {"text": "..."}                          every token is a target
 *     {"prompt": "...", "completion": "..."}   only the completion's tokens, and the end-of-text after it, are targets
 *     {"messages": [...]}                      a conversation, and its other forms: chat_document.c
 */
#include "runtime/data/source/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/io/utf8.h"

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

/* How many blanks there are from `at` on. */
static size_t blanks(const char *text, size_t length, size_t at)
{
    size_t end = at;
    while (end < length && is_blank(text[end]))
        end++;
    return end - at;
}

HsStatus hs_jsonl_explain(HsStatus status, const char *place, const char *text, size_t length, bool last)
{
    const size_t begin = blanks(text, length, 0);
    size_t end = begin;
    if (text[begin] == '[')
        return hs_fail(HS_EFORMAT,
                       "%s: a list begins here, and a line of JSON Lines holds one object: if the file is one list of "
                       "documents, set the task's format: json, or name it .json",
                       place);
    if (text[begin] == '<')
        return hs_fail(
            HS_EFORMAT,
            "%s: HTML or XML begins here, not JSON: if a web page was saved in place of the file, fetch the file "
            "itself",
            place);
    if (text[begin] != '{')
        return status;
    const size_t key = begin + 1 + blanks(text, length, begin + 1);
    if (key < length && text[key] == '\'')
        return hs_fail(
            HS_EFORMAT,
            "%s: column %zu: a single quote, but JSON has double ones: write Python's objects with json.dumps, "
            "not with str",
            place, key + 1);
    const bool ended = hs_json_element_end(text, length, &end);
    if (!ended && last)
        return hs_fail(HS_EFORMAT, "%s: the file ends within the object that begins here: it is cut off; copy it again",
                       place);
    if (!ended)
        return hs_fail(HS_EFORMAT,
                       "%s: the object that begins here does not end on its line, and a line of JSON Lines holds one "
                       "object: write each on one line (jq -c . FILE)",
                       place);
    end += blanks(text, length, end);
    if (end < length && text[end] == ',')
        return hs_fail(HS_EFORMAT,
                       "%s: column %zu: a comma behind the object, and lines of JSON Lines have none: take it off, or "
                       "make the file one list ([...]) and set the task's format: json",
                       place, end + 1);
    if (end < length && (text[end] == '{' || text[end] == '['))
        return hs_fail(
            HS_EFORMAT,
            "%s: column %zu: a second value begins, and a line of JSON Lines holds one object: write each on "
            "one line (jq -c . FILE)",
            place, end + 1);
    return status;
}

/* A CR outside of strings is a blank; where no line ends in LF it is the end of one, as for readers of Python's. */
static char line_end_of(const HsSourceText *text)
{
    if (text->line_end != '\0')
        return text->line_end;
    return text->size > 0 && !memchr(text->bytes, '\n', text->size) ? '\r' : '\n';
}

HsStatus hs_jsonl_parse(const HsSourceText *source, const HsSourceOptions *options, HsCorpus *corpus)
{
    const char *const bytes = source->bytes, line_end = line_end_of(source);
    const size_t size = source->size;
    int64_t line = source->line - 1;
    char place[512];
    for (size_t start = source->first ? hs_utf8_mark_bytes(bytes, size) : 0; start < size;) {
        const char *text = bytes + start;
        const char *newline = memchr(text, line_end, size - start);
        size_t length = newline ? (size_t)(newline - text) : size - start;
        start += length + 1;
        line++;
        if (blanks(text, length, 0) == length)
            continue;
        snprintf(place, sizeof place, "%s:%" PRId64, source->name, line);
        HsStatus status = hs_document_parse_json(place, text, length, line, "a line", false, options, corpus);
        if (status == HS_EFORMAT) {
            const bool last = source->last && (start >= size || start + blanks(bytes, size, start) == size);
            status = hs_jsonl_explain(status, place, text, length, last);
        }
        HS_TRY(status);
    }
    return HS_OK;
}

void hs_jsonl_cut(HsSourceText *text, HsSourceCut *cut)
{
    if (text->line_end == '\0' && !memchr(text->bytes, '\n', text->size))
        return; /* lines end in CR if none of them ends in LF, which all of them say */
    text->line_end = '\n';
    const char *const end = memrchr(text->bytes, '\n', text->size);
    cut->size = end ? (size_t)(end - text->bytes) + 1 : 0;
    for (const char *at = text->bytes; at < text->bytes + cut->size; cut->lines++)
        at = (const char *)memchr(at, '\n', (size_t)(text->bytes + cut->size - at)) + 1;
}
