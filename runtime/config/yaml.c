/* SPDX-License-Identifier: MIT
 *
 * libyaml's events -> the tree of yaml.h.
 * The builder keeps its own stack (no recursion), so that a hostile file can exhaust neither stack nor patience.
 */
#include "runtime/config/yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yaml.h>

#include "runtime/io/utf8.h"

enum { YAML_MAX_DEPTH = 8, YAML_MESSAGE_BYTES = 768 };

HsStatus hs_yaml_fail(const char *name, int line, int column, const char *format, ...)
{
    char message[YAML_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    for (char *c = message; *c; c++) /* a key may hold anything; a message is one line */
        if ((unsigned char)*c < 0x20 || *c == 0x7F)
            *c = ' ';
    if (!name)
        return hs_fail(HS_ECONFIG, "command line: %s", message);
    if (line == 0) /* a value from elsewhere: `name` says where */
        return hs_fail(HS_ECONFIG, "%s: %s", name, message);
    return hs_fail(HS_ECONFIG, "%s:%d:%d: %s", name, line, column, message);
}

bool hs_yaml_is_null(const HsYaml *node)
{
    return node->kind == HS_YAML_SCALAR && node->plain &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}

/* Depth is limited, so that plain recursion is safe here. */
void hs_yaml_destroy(HsYaml *root)
{
    if (!root)
        return;
    HsYaml *child = root->first;
    while (child) {
        HsYaml *next = child->next;
        hs_yaml_destroy(child);
        child = next;
    }
    free(root->key);
    free(root->text);
    free(root);
}

static int mark_line(const yaml_mark_t *mark)
{
    return (int)mark->line + 1;
}

static int mark_column(const yaml_mark_t *mark)
{
    return (int)mark->column + 1;
}

/* What the builder knows between two events. */
typedef struct Builder {
    const char *name;
    HsYaml *root;
    HsYaml *open[YAML_MAX_DEPTH]; /* lists and maps not yet closed, outermost first */
    int depth;
    char *key; /* read, waiting for its value */
    int key_line, key_column;
    int documents;
} Builder;

static HsStatus event_fail(const Builder *builder, const yaml_event_t *event, const char *message)
{
    return hs_yaml_fail(builder->name, mark_line(&event->start_mark), mark_column(&event->start_mark), "%s", message);
}

/* Features that are easily misread: refused, each with what to write instead. */
static HsStatus check_refused(const Builder *builder, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_ALIAS_EVENT:
        return event_fail(builder, event, "aliases (*name) are not supported; write the value out");
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        return event_fail(builder, event, "anchors (&name) are not supported; write the value out where it is needed");
    if (tag)
        return event_fail(builder, event,
                          "tags (!name) are not supported; remove this one, as the key determines the type");
    return HS_OK;
}

/* A scalar in key position is kept until its value comes. */
static HsStatus take_key(Builder *builder, const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT)
        return event_fail(builder, event, "a key must be a word, not a list or a map");
    const char *text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length)
        return event_fail(builder, event, "a key must not contain a NUL character");
    if (strcmp(text, "<<") == 0 && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return event_fail(builder, event, "merge keys (<<) are not supported; write the keys out");
    builder->key = strdup(text);
    builder->key_line = mark_line(&event->start_mark);
    builder->key_column = mark_column(&event->start_mark);
    return builder->key ? HS_OK : hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
}

/* A value: hang a node under the innermost open collection (or make it the root). */
static HsStatus add_node(Builder *builder, const yaml_event_t *event, HsYamlKind kind)
{
    HsYaml *node = calloc(1, sizeof *node);
    if (!node)
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    node->kind = kind;
    node->line = builder->key ? builder->key_line : mark_line(&event->start_mark);
    node->column = builder->key ? builder->key_column : mark_column(&event->start_mark);
    node->key = builder->key;
    builder->key = NULL;
    HsYaml *parent = builder->depth > 0 ? builder->open[builder->depth - 1] : NULL;
    if (!parent) {
        builder->root = node;
    } else {
        if (parent->last)
            parent->last->next = node;
        else
            parent->first = node;
        parent->last = node;
        parent->count++;
    }
    if (kind == HS_YAML_SCALAR) {
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
            return event_fail(builder, event, "a text must not contain a NUL character");
        node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->text = strdup((const char *)event->data.scalar.value);
        return node->text ? HS_OK : hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    }
    if (builder->depth == YAML_MAX_DEPTH)
        return event_fail(builder, event, "nested too deeply for a configuration");
    builder->open[builder->depth++] = node;
    return HS_OK;
}

static HsStatus take_event(Builder *builder, const yaml_event_t *event)
{
    HS_TRY(check_refused(builder, event));
    const HsYaml *parent = builder->depth > 0 ? builder->open[builder->depth - 1] : NULL;
    bool wants_key = parent && parent->kind == HS_YAML_MAP && !builder->key;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (builder->documents++ > 0)
            return event_fail(builder, event, "only one document (---) is read from a file");
        return HS_OK;
    case YAML_SCALAR_EVENT:
        return wants_key ? take_key(builder, event) : add_node(builder, event, HS_YAML_SCALAR);
    case YAML_SEQUENCE_START_EVENT:
        return wants_key ? take_key(builder, event) : add_node(builder, event, HS_YAML_LIST);
    case YAML_MAPPING_START_EVENT:
        return wants_key ? take_key(builder, event) : add_node(builder, event, HS_YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        builder->depth--;
        return HS_OK;
    default:
        return HS_OK;
    }
}

/* libyaml's own complaint, with the context it gives ("while parsing a block mapping"). */
/* Whether a line, counted from 0, is indented by a tab. */
static bool has_tab(const char *text, size_t length, size_t line)
{
    const char *at = text, *const end = text + length;
    for (; line > 0 && at < end; at++)
        line -= *at == '\n';
    while (at < end && *at == ' ')
        at++;
    return at < end && *at == '\t';
}

/* What is most likely to be done: *.log is an alias to YAML, @home begins with a sign that is kept for later, and a tab
 * indents nothing. */
static const char *mend_of(const char *problem, const char *context, bool tab)
{
    const bool no_token = strstr(problem, "cannot start any token") != NULL;
    if (no_token && tab)
        return "; indent by blanks, not by tabs";
    return no_token || strstr(context, "alias") || strstr(context, "anchor")
               ? "; a text that begins with a sign stands in quotes: \"*.log\""
               : "";
}

static HsStatus parser_fail(const char *name, const yaml_parser_t *parser, const char *text, size_t length)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    const yaml_mark_t *mark = parser->error == YAML_READER_ERROR ? &parser->mark : &parser->problem_mark;
    const char *context = parser->context ? parser->context : "";
    const char *problem = parser->problem ? parser->problem : "unreadable";
    return hs_yaml_fail(name, mark_line(mark), mark_column(mark), "not valid YAML: %s%s%s%s", problem,
                        *context ? " " : "", context, mend_of(problem, context, has_tab(text, length, mark->line)));
}

HsStatus hs_yaml_parse(const char *name, const char *text, size_t length, HsYaml **root)
{
    *root = NULL;
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    /* A byte order mark (editors on Windows write one) is no part of the text; libyaml counts it as a column. */
    const size_t skipped = hs_utf8_mark_bytes(text, length);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text + skipped, length - skipped);

    Builder builder = { .name = name };
    HsStatus status = HS_OK;
    for (bool ended = false; status == HS_OK && !ended;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            status = parser_fail(name, &parser, text + skipped, length - skipped);
            break;
        }
        ended = event.type == YAML_STREAM_END_EVENT;
        status = take_event(&builder, &event);
        yaml_event_delete(&event);
    }
    free(builder.key);
    yaml_parser_delete(&parser);
    if (status != HS_OK) {
        hs_yaml_destroy(builder.root);
        return status;
    }
    *root = builder.root;
    return HS_OK;
}

HsStatus hs_yaml_parse_value(const char *text, HsYaml **value)
{
    *value = NULL;
    if (text[0] != '\0' && strchr("\"'[{", text[0]))
        return hs_yaml_parse(NULL, text, strlen(text), value);
    HsYaml *node = calloc(1, sizeof *node);
    char *copy = strdup(text);
    if (!node || !copy) {
        free(node);
        free(copy);
        return hs_fail(HS_ENOMEM, "out of memory while reading the configuration");
    }
    node->kind = HS_YAML_SCALAR;
    node->text = copy;
    node->plain = text[0] != '\0'; /* "key=" gives an empty text, not a missing value */
    *value = node;
    return HS_OK;
}
