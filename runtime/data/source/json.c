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
    size_t offset;   /* of the first byte in the file */
    int64_t line;    /* of `at`, from 1 */
    int64_t element; /* the next one, from 1 */
    bool last;       /* the file ends where the bytes end */
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
                   list->offset + list->at, what);
}

static HsStatus parse_elements(List *list, const HsSourceOptions *options, HsCorpus *corpus)
{
    char place[512];
    for (; next_byte(list) != ']' || list->element > 1; list->element++) {
        size_t end = list->at;
        if (list->at == list->size && !list->last)
            return HS_OK; /* behind a comma: more elements follow */
        if (!hs_json_element_end(list->bytes, list->size, &end) || end == list->at || end == list->size) {
            advance(list, end);
            return fail_here(list, "an element");
        }
        snprintf(place, sizeof place, "%s:%" PRId64 ": element %" PRId64, list->name, list->line, list->element);
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

static List list_of(const HsSourceText *text)
{
    return (List){ .name = text->name,
                   .bytes = text->bytes,
                   .size = text->size,
                   .at = text->first ? hs_utf8_mark_bytes(text->bytes, text->size) : 0,
                   .offset = text->offset,
                   .line = text->line,
                   .element = text->record,
                   .last = text->last };
}

HsStatus hs_json_list_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    List list = list_of(text);
    char first = text->first ? next_byte(&list) : '[';
    if (text->first && list.at == list.size)
        return HS_OK; /* an empty file is no document */
    if (first != '[')
        return hs_fail(HS_EFORMAT,
                       "%s:%" PRId64 ": a .json file must be a list of documents, [{\"%s\": \"...\"}, ...]; if it has "
                       "one object a line, set the task's format: jsonl, else convert it or leave it out",
                       list.name, list.line, options->text_field);
    if (text->first)
        advance(&list, list.at + 1);
    return parse_elements(&list, options, corpus);
}

/* Behind the comma of the last element that is whole. */
void hs_json_list_cut(HsSourceText *text, HsSourceCut *cut)
{
    List list = list_of(text);
    const char first = text->first ? next_byte(&list) : '[';
    if (first != '[') { /* is refused */
        cut->size = list.at < list.size ? list.size : 0;
        return;
    }
    if (text->first)
        advance(&list, list.at + 1);
    for (;;) {
        (void)next_byte(&list);
        size_t end = list.at;
        if (list.at == list.size || !hs_json_element_end(list.bytes, list.size, &end) || end == list.at)
            return;
        advance(&list, end);
        if (next_byte(&list) != ',')
            return;
        advance(&list, list.at + 1);
        *cut = (HsSourceCut){ list.at, list.line - text->line, cut->records + 1 };
    }
}
