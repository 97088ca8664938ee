/* SPDX-License-Identifier: MIT
 *
 * A JSON file that is a list of documents:  [ {"text": "..."}, {"prompt": "...", "completion": "..."}, "text", ... ]
 *
 * The list is never a tree in memory: each element is found by its brackets and quotes, parsed by itself, added and
 * freed.  So memory is that of the file and of its largest element.  This file looks at what stands between elements;
 * what an element holds is judged by the strict parser (runtime/io/json.h).
 */
#include "runtime/data/source/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/io/utf8.h"

typedef struct List {
    const char *name, *bytes;
    size_t size, at;
    int64_t line; /* of `at`, from 1 */
} List;

/* Moves on to `to`, and counts the lines on the way. */
static void advance(List *list, size_t to)
{
    for (; list->at < to; list->at++)
        list->line += list->bytes[list->at] == '\n';
}

/* The next byte that is no blank; '\0' at the end of the file (and where a zero byte is). */
static char next_byte(List *list)
{
    size_t to = list->at;
    while (to < list->size && memchr(" \t\r\n", list->bytes[to], 4))
        to++;
    advance(list, to);
    return to < list->size ? list->bytes[to] : '\0';
}

/* Past the string that begins at `at`; beyond the size when it does not end. */
static size_t skip_string(const char *bytes, size_t size, size_t at)
{
    for (at++; at < size && bytes[at] != '"'; at++)
        at += bytes[at] == '\\';
    return at < size ? at + 1 : size + 1;
}

bool hs_json_element_end(const char *bytes, size_t size, size_t *end)
{
    size_t depth = 0, at = *end;
    bool ended = false;
    while (at < size && !ended) {
        const char byte = bytes[at];
        if (byte == '"') {
            at = skip_string(bytes, size, at);
            ended = depth == 0 && at <= size;
            continue;
        }
        if (depth == 0 && (byte == ',' || byte == ']' || byte == '}'))
            break;
        depth += byte == '{' || byte == '[';
        at++;
        ended = (byte == '}' || byte == ']') && --depth == 0;
    }
    *end = at < size ? at : size;
    return ended || (depth == 0 && at <= size);
}

static HsStatus fail_here(const List *list, const char *what)
{
    if (list->at == list->size)
        return hs_fail(HS_EFORMAT, "%s:%" PRId64 ": the file ends within the list: it is cut off; copy it again",
                       list->name, list->line);
    return hs_fail(HS_EFORMAT, "%s:%" PRId64 ": byte %zu: not JSON: %s is expected here", list->name, list->line,
                   list->at, what);
}

static HsStatus parse_elements(List *list, const HsSourceOptions *options, HsCorpus *corpus)
{
    char place[512];
    for (int64_t element = 1; next_byte(list) != ']' || element > 1; element++) {
        size_t end = list->at;
        if (!hs_json_element_end(list->bytes, list->size, &end) || end == list->at || end == list->size) {
            advance(list, end);
            return fail_here(list, "an element");
        }
        snprintf(place, sizeof place, "%s:%" PRId64 ": element %" PRId64, list->name, list->line, element);
        HS_TRY(hs_document_parse_json(place, list->bytes + list->at, end - list->at, list->line, "an element", true,
                                      options, corpus));
        advance(list, end);
        char byte = next_byte(list);
        if (byte == ']')
            break;
        if (byte != ',')
            return fail_here(list, "a comma or the list's end");
        advance(list, list->at + 1);
    }
    advance(list, list->at + 1);
    next_byte(list);
    return list->at == list->size ? HS_OK : fail_here(list, "nothing behind the list");
}

HsStatus hs_json_list_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                            HsCorpus *corpus)
{
    List list = { .name = name, .bytes = bytes, .size = size, .at = hs_utf8_mark_bytes(bytes, size), .line = 1 };
    char first = next_byte(&list);
    if (list.at == size)
        return HS_OK; /* an empty file is no document */
    if (first != '[')
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ": a .json file must be a list of documents, [{\"%s\": \"...\"}, ...]; if it has "
                       "one object a line, set the task's format: jsonl, else convert it or leave it out",
                       name, list.line, options->text_field);
    advance(&list, list.at + 1);
    return parse_elements(&list, options, corpus);
}
