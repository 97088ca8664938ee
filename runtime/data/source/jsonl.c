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

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r", line[i]) || line[i] == '\0')
            return false;
    return true;
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
        HS_TRY(hs_document_parse_json(place, text, length, line, "a line", false, options, corpus));
    }
    return HS_OK;
}
