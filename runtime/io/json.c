/* SPDX-License-Identifier: MIT
 *
 * JSON on top of cJSON.  The library is lenient where files must not be (control characters count as blanks, "01" is a
 * number, \u0000 ends a string early) and prints numbers that do not read back; so text passes json_scan.c before cJSON
 * sees it, and is written here.  An HsJson is a cJSON node.
 */
#include "runtime/io/json.h"
#include "runtime/io/files.h"
#include "runtime/io/json_scan.h"
#include "runtime/io/utf8.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Our bits in cJSON's type: a setter ran out of memory, the tree must not be written; hs_json_new_float made it. */
enum { INCOMPLETE = 1 << 16, FLOAT = 1 << 17 };

#define MAX_EXACT_INTEGER 9007199254740992.0 /* 2^53: beyond it doubles skip integers */

static cJSON *node_of(HsJson *node)
{
    return (cJSON *)node;
}

static const cJSON *view_of(const HsJson *node)
{
    return (const cJSON *)node;
}

/* cJSON says only that it gave up.  Whether memory is why, its own allocations tell. */
static _Thread_local bool memory_ran_out;

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    memory_ran_out = memory_ran_out || !memory;
    return memory;
}

static void install_allocator(void)
{
    cJSON_Hooks hooks = { .malloc_fn = allocate, .free_fn = free };
    cJSON_InitHooks(&hooks);
}

/* Where the text has a number that is not finite, `written` gets one that strtod reads as infinite: reading it as any
 * other would be silent.  Returns the bytes written, or without `written` only where byte `until` of it came from. */
static size_t rewrite_nonfinite(const char *text, size_t length, char *written, size_t until)
{
    static const char infinite[] = "1e999";
    size_t used = 0;
    bool quoted = false;
    for (size_t at = 0; at < length;) {
        const char *name = NULL;
        size_t taken = 1;
        for (int i = 0; !quoted && !name && hs_json_nonfinite[i]; i++)
            if (length - at >= strlen(hs_json_nonfinite[i]) &&
                memcmp(text + at, hs_json_nonfinite[i], strlen(hs_json_nonfinite[i])) == 0)
                name = hs_json_nonfinite[i];
        if (name)
            taken = strlen(name);
        else if (quoted && text[at] == '\\')
            taken = 2;
        else if (text[at] == '"')
            quoted = !quoted;
        const size_t made = name ? sizeof infinite - 1 : taken;
        if (!written && used + made > until)
            return at;
        if (written)
            memcpy(written + used, name ? infinite : text + at, made);
        used += made;
        at += taken;
    }
    return written ? used : length;
}

static HsStatus parse(const char *name, const char *text, size_t length, bool python, HsJson **root)
{
    *root = NULL;
    size_t offset = 0, nonfinite = 0;
    HS_TRY(hs_check_fetched(name, text, length));
    const char *wrong = hs_json_scan(text, length, python ? &nonfinite : NULL, &offset);
    if (wrong)
        return hs_fail(HS_EFORMAT, "%s: byte %zu: not JSON: %s", name, offset, wrong);

    /* A copy with a final NUL: cJSON before 1.7.18 may look one byte past the length it was given. */
    size_t copied = length;
    char *copy = malloc(length + 2 * nonfinite + 1);
    if (!copy)
        return hs_fail(HS_ENOMEM, "%s: no memory for %zu bytes of JSON", name, length);
    if (length && nonfinite == 0)
        memcpy(copy, text, length);
    if (nonfinite > 0)
        copied = rewrite_nonfinite(text, length, copy, 0);
    copy[copied] = '\0';
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    pthread_once(&installed, install_allocator);
    memory_ran_out = false;
    const char *end = copy;
    cJSON *tree = cJSON_ParseWithLengthOpts(copy, copied + 1, &end, 1);
    offset = (size_t)(end - copy);
    free(copy); /* strings of the tree are its own */
    if (!tree && memory_ran_out)
        return hs_fail(HS_ENOMEM, "%s: no memory for the tree of its %zu bytes of JSON", name, length);
    if (!tree && nonfinite > 0)
        offset = rewrite_nonfinite(text, length, NULL, offset);
    if (!tree)
        return hs_fail(HS_EFORMAT, "%s: byte %zu: not JSON", name, offset < length ? offset : length);
    *root = (HsJson *)tree;
    return HS_OK;
}

HsStatus hs_json_parse(const char *name, const char *text, size_t length, HsJson **root)
{
    return parse(name, text, length, false, root);
}

HsStatus hs_json_parse_python(const char *name, const char *text, size_t length, HsJson **root)
{
    return parse(name, text, length, true, root);
}

HsStatus hs_json_read_python(const char *path, size_t limit, HsJson **root)
{
    char *text = NULL;
    size_t length = 0;
    *root = NULL;
    HS_TRY(hs_read_file(path, limit, &text, &length));
    const HsStatus status = hs_json_parse_python(path, text, length, root);
    free(text);
    return status;
}

void hs_json_destroy(HsJson *root)
{
    cJSON_Delete(node_of(root));
}

/* ---- how numbers are written ---- */

/* The next number of a text that is known to be JSON, names of Python's included; *at behind it. */
static const char *next_number(const char **at, const char *end, size_t *size)
{
    const char *next = *at;
    for (; next < end && !memchr("-0123456789NI", *next, 13); next++)
        if (*next == '"')
            for (next++; next < end && *next != '"'; next++)
                next += *next == '\\';
    *at = next;
    while (*at < end && !memchr(",]} \t\r\n", **at, 7))
        ++*at;
    *size = (size_t)(*at - next);
    return next;
}

/* The tree has its numbers in the text's order.  valuestring is free in a number, and cJSON frees and copies it. */
static bool keep_spelling(cJSON *node, const char **at, const char *end)
{
    if (cJSON_IsNumber(node)) {
        size_t size;
        const char *const number = next_number(at, end, &size);
        free(node->valuestring);
        node->valuestring = strndup(number, size);
        return node->valuestring != NULL;
    }
    for (cJSON *child = node->child; child; child = child->next)
        if (!keep_spelling(child, at, end))
            return false;
    return true;
}

HsStatus hs_json_keep_spelling(HsJson *root, const char *text, size_t length)
{
    return keep_spelling(node_of(root), &text, text + length)
               ? HS_OK
               : hs_fail(HS_ENOMEM, "no memory for the numbers of %zu bytes of JSON", length);
}

const char *hs_json_spelling(const HsJson *number)
{
    return hs_json_is_number(number) ? view_of(number)->valuestring : NULL;
}

/* ---- reading ---- */

const HsJson *hs_json_get(const HsJson *object, const char *key)
{
    const cJSON *found = NULL;
    if (hs_json_is_object(object))
        for (const cJSON *member = view_of(object)->child; member; member = member->next)
            if (strcmp(member->string, key) == 0)
                found = member;
    return (const HsJson *)found;
}

int hs_json_count(const HsJson *node)
{
    return node ? cJSON_GetArraySize(view_of(node)) : 0;
}

const HsJson *hs_json_first(const HsJson *node)
{
    return node ? (const HsJson *)view_of(node)->child : NULL;
}

const HsJson *hs_json_next(const HsJson *node)
{
    return node ? (const HsJson *)view_of(node)->next : NULL;
}

const char *hs_json_key(const HsJson *node)
{
    return node ? view_of(node)->string : NULL;
}

bool hs_json_is_null(const HsJson *node)
{
    return cJSON_IsNull(view_of(node));
}

bool hs_json_is_object(const HsJson *node)
{
    return cJSON_IsObject(view_of(node));
}

bool hs_json_is_array(const HsJson *node)
{
    return cJSON_IsArray(view_of(node));
}

bool hs_json_is_string(const HsJson *node)
{
    return cJSON_IsString(view_of(node));
}

bool hs_json_is_number(const HsJson *node)
{
    return cJSON_IsNumber(view_of(node));
}

bool hs_json_is_true(const HsJson *node)
{
    return cJSON_IsTrue(view_of(node));
}

bool hs_json_is_bool(const HsJson *node)
{
    return cJSON_IsBool(view_of(node));
}

const char *hs_json_string(const HsJson *node)
{
    return hs_json_is_string(node) ? view_of(node)->valuestring : NULL;
}

double hs_json_number(const HsJson *node)
{
    return hs_json_is_number(node) ? view_of(node)->valuedouble : (double)NAN;
}

bool hs_json_is_last(const HsJson *object, const HsJson *member)
{
    return hs_json_get(object, hs_json_key(member)) == member;
}

static HsStatus need(const char *name, const HsJson *object, const char *key, const HsJson **member)
{
    *member = hs_json_get(object, key);
    return *member ? HS_OK : hs_fail(HS_EFORMAT, "%s: member `%s` is missing", name, key);
}

/* A decimal string, whole and in range: how integers beyond 2^53 are kept. */
static bool integer_from_string(const char *text, int64_t *value)
{
    if (!text || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return false; /* strtoll would skip blanks and take a plus sign */
    char *end = NULL;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *value = parsed;
    return errno == 0 && *end == '\0' && end != text;
}

HsStatus hs_json_need_integer(const char *name, const HsJson *object, const char *key, int64_t *value)
{
    const HsJson *member = NULL;
    HS_TRY(need(name, object, key, &member));
    double number = hs_json_number(member);
    if (fabs(number) <= MAX_EXACT_INTEGER && floor(number) == number) {
        *value = (int64_t)number;
        return HS_OK;
    }
    if (integer_from_string(hs_json_string(member), value))
        return HS_OK;
    return hs_fail(HS_EFORMAT, "%s: member `%s` must be an integer", name, key);
}

HsStatus hs_json_need_range(const char *name, const HsJson *object, const char *key, int64_t least, int64_t most,
                            int64_t *value)
{
    HS_TRY(hs_json_need_integer(name, object, key, value));
    if (*value >= least && *value <= most)
        return HS_OK;
    return hs_fail(HS_EFORMAT, "%s: member `%s` is %" PRId64 ", which is not in %" PRId64 " to %" PRId64, name, key,
                   *value, least, most);
}

HsStatus hs_json_need_real(const char *name, const HsJson *object, const char *key, double *value)
{
    const HsJson *member = NULL;
    HS_TRY(need(name, object, key, &member));
    if (!isfinite(hs_json_number(member))) /* 1e999 reads as infinity */
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be a finite number", name, key);
    *value = hs_json_number(member);
    return HS_OK;
}

HsStatus hs_json_need_string(const char *name, const HsJson *object, const char *key, const char **value)
{
    const HsJson *member = NULL;
    HS_TRY(need(name, object, key, &member));
    if (!hs_json_is_string(member))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be a string", name, key);
    *value = hs_json_string(member);
    return HS_OK;
}

/* ---- building ---- */

HsJson *hs_json_copy(const HsJson *node)
{
    return (HsJson *)cJSON_Duplicate(view_of(node), 1);
}

HsJson *hs_json_object(void)
{
    return (HsJson *)cJSON_CreateObject();
}

HsJson *hs_json_array(void)
{
    return (HsJson *)cJSON_CreateArray();
}

HsJson *hs_json_new_string(const char *value)
{
    return (HsJson *)cJSON_CreateString(value);
}

HsJson *hs_json_new_text(const char *bytes, size_t length)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    enum { REPLACEMENT_BYTES = sizeof replacement - 1 };
    char *text = length < SIZE_MAX / REPLACEMENT_BYTES ? malloc(length * REPLACEMENT_BYTES + 1) : NULL;
    size_t used = 0;
    if (!text)
        return NULL; /* the tree that takes it remembers */
    for (size_t at = 0; at < length;) {
        const size_t size = bytes[at] != '\0' ? hs_utf8_decode(bytes + at, length - at, NULL) : 0;
        memcpy(text + used, size > 0 ? bytes + at : replacement, size > 0 ? size : REPLACEMENT_BYTES);
        used += size > 0 ? size : REPLACEMENT_BYTES;
        at += size > 0 ? size : 1;
    }
    text[used] = '\0';
    HsJson *node = hs_json_new_string(text);
    free(text);
    return node;
}

HsJson *hs_json_new_integer(int64_t value)
{
    if (fabs((double)value) <= MAX_EXACT_INTEGER && (int64_t)(double)value == value)
        return (HsJson *)cJSON_CreateNumber((double)value);
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    return hs_json_new_string(digits);
}

HsJson *hs_json_new_real(double value)
{
    return (HsJson *)(isfinite(value) ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

HsJson *hs_json_new_float(double value)
{
    HsJson *const node = hs_json_new_real(value);
    if (node)
        node_of(node)->type |= FLOAT;
    return node;
}

/* Setters return nothing so that building reads like a list; a lost member is remembered in its parent instead. */
void hs_json_set(HsJson *object, const char *key, HsJson *value)
{
    if (object && !(value && cJSON_AddItemToObject(node_of(object), key, node_of(value)))) {
        node_of(object)->type |= INCOMPLETE;
        cJSON_Delete(node_of(value));
    }
}

HsJson *hs_json_take(HsJson *object, const char *key)
{
    cJSON *const last = node_of((HsJson *)(uintptr_t)hs_json_get(object, key));
    if (!last)
        return NULL;
    cJSON_DetachItemViaPointer(node_of(object), last);
    while (hs_json_get(object, key)) /* earlier ones of the same key stand for nothing */
        cJSON_DeleteItemFromObjectCaseSensitive(node_of(object), key);
    return (HsJson *)last;
}

void hs_json_replace(HsJson *object, const char *key, HsJson *value)
{
    hs_json_destroy(hs_json_take(object, key));
    if (object)
        hs_json_set(object, key, value);
    else /* memory ran out before: what it was to be part of remembers */
        hs_json_destroy(value);
}

HsJson *hs_json_member(HsJson *object, const char *key)
{
    return (HsJson *)(uintptr_t)hs_json_get(object, key);
}

void hs_json_append(HsJson *array, HsJson *value)
{
    if (array && !(value && cJSON_AddItemToArray(node_of(array), node_of(value)))) {
        node_of(array)->type |= INCOMPLETE;
        cJSON_Delete(node_of(value));
    }
}

void hs_json_set_string(HsJson *object, const char *key, const char *value)
{
    hs_json_set(object, key, hs_json_new_string(value));
}

void hs_json_set_real(HsJson *object, const char *key, double value)
{
    hs_json_set(object, key, hs_json_new_real(value));
}

void hs_json_set_integer(HsJson *object, const char *key, int64_t value)
{
    hs_json_set(object, key, hs_json_new_integer(value));
}

HsJson *hs_json_new_bool(bool value)
{
    return (HsJson *)cJSON_CreateBool(value);
}

HsJson *hs_json_new_null(void)
{
    return (HsJson *)cJSON_CreateNull();
}

void hs_json_set_bool(HsJson *object, const char *key, bool value)
{
    hs_json_set(object, key, hs_json_new_bool(value));
}

/* ---- writing ---- */

typedef struct Writer {
    char *bytes;
    size_t used, capacity;
    bool pretty, failed;
} Writer;

static void put_bytes(Writer *writer, const char *bytes, size_t count)
{
    if (writer->failed)
        return;
    if (writer->used + count + 1 > writer->capacity) {
        size_t capacity = 2 * (writer->used + count + 64);
        char *larger = realloc(writer->bytes, capacity);
        if (!larger) {
            writer->failed = true;
            return;
        }
        writer->bytes = larger;
        writer->capacity = capacity;
    }
    memcpy(writer->bytes + writer->used, bytes, count);
    writer->used += count;
    writer->bytes[writer->used] = '\0';
}

static void put_text(Writer *writer, const char *text)
{
    put_bytes(writer, text, strlen(text));
}

static void put_string(Writer *writer, const char *text)
{
    static const char letters[0x20] = { ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
    put_text(writer, "\"");
    for (const char *rest = text; *rest; rest++) {
        unsigned char byte = (unsigned char)*rest;
        char escape[8] = { '\\', (char)byte, '\0' };
        if (byte < 0x20 && letters[byte])
            escape[1] = letters[byte];
        else if (byte < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", byte);
        else if (byte != '"' && byte != '\\')
            memmove(escape, escape + 1, 2);
        put_text(writer, escape);
    }
    put_text(writer, "\"");
}

void hs_json_format_real(double value, char text[HS_JSON_NUMBER_BYTES])
{
    if (!isfinite(value)) {
        strcpy(text, "null");
        return;
    }
    /* The fewest significant digits that read back as the same double; 17 always do. */
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, HS_JSON_NUMBER_BYTES, "%.*g", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* Integers in plain digits: 200, not 2e+02. */
    if (floor(value) == value && fabs(value) <= MAX_EXACT_INTEGER)
        snprintf(text, HS_JSON_NUMBER_BYTES, "%.0f", value);
}

static void put_break(Writer *writer, int depth)
{
    if (!writer->pretty)
        return;
    put_text(writer, "\n");
    for (int i = 0; i < depth; i++)
        put_text(writer, "  ");
}

static void put_node(Writer *writer, const cJSON *node, int depth)
{
    bool object = cJSON_IsObject(node);
    if (node->type & INCOMPLETE)
        writer->failed = true;
    if (object || cJSON_IsArray(node)) {
        put_text(writer, object ? "{" : "[");
        for (const cJSON *child = node->child; child; child = child->next) {
            put_break(writer, depth + 1);
            if (object) {
                put_string(writer, child->string);
                put_text(writer, writer->pretty ? ": " : ":");
            }
            put_node(writer, child, depth + 1);
            put_text(writer, child->next ? "," : "");
        }
        if (node->child)
            put_break(writer, depth);
        put_text(writer, object ? "}" : "]");
    } else if (cJSON_IsString(node)) {
        put_string(writer, node->valuestring);
    } else if (cJSON_IsNumber(node)) {
        char digits[HS_JSON_NUMBER_BYTES];
        hs_json_format_real(node->valuedouble, digits);
        put_text(writer, digits);
        if (node->type & FLOAT && strspn(digits, "-0123456789") == strlen(digits))
            put_text(writer, ".0");
    } else {
        put_text(writer, cJSON_IsTrue(node) ? "true" : cJSON_IsFalse(node) ? "false" : "null");
    }
}

char *hs_json_write(const HsJson *root, bool pretty)
{
    if (!root)
        return NULL;
    Writer writer = { .pretty = pretty };
    put_node(&writer, view_of(root), 0);
    if (writer.failed) {
        free(writer.bytes);
        return NULL;
    }
    return writer.bytes;
}
