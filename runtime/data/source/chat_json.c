/* SPDX-License-Identifier: MIT
 *
 * See chat_json.h.  Integers keep their digits, of which Python forgets none; other numbers pass through a double, and
 * are written with the fewest digits that read back as it (repr).
 */
#include "runtime/data/source/chat_json.h"

#include <math.h>
#include <stdio.h>

enum { REAL_BYTES = 40, MOST_DIGITS = 17 };

static HsStatus put(HsBytes *out, const char *text)
{
    return hs_bytes_append(out, text, strlen(text));
}

HsStatus hs_chat_put_json_string(const char *text, size_t length, HsBytes *out)
{
    static const char letters[0x20] = { ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
    HS_TRY(put(out, "\""));
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = (unsigned char)text[i];
        char escape[8] = { '\\', (char)byte, '\0' };
        if (byte >= 0x20 && byte != '"' && byte != '\\') {
            HS_TRY(hs_bytes_append(out, text + i, 1));
            continue;
        }
        if (byte < 0x20 && letters[byte])
            escape[1] = letters[byte];
        else if (byte < 0x20)
            snprintf(escape, sizeof escape, "\\u%04x", byte);
        HS_TRY(put(out, escape));
    }
    return put(out, "\"");
}

/* d.ddde+XX with the fewest digits that read back.  The nearest of n digits may miss a power of two (its
 * neighbour below is half as far as the one above), where the next one up hits. */
static void shortest(double value, char text[REAL_BYTES])
{
    for (int digits = 1; digits <= MOST_DIGITS; digits++) {
        snprintf(text, REAL_BYTES, "%.*e", digits - 1, value);
        if (strtod(text, NULL) == value)
            return;
        char *const last = strchr(text, 'e') - 1;
        if (*last < '9' && digits < MOST_DIGITS) {
            ++*last;
            if (strtod(text, NULL) == value)
                return;
        }
    }
}

/* Digits around the point for 1e-4 <= |value| < 1e16, else an exponent of two digits at least. */
static HsStatus put_real(double value, HsBytes *out)
{
    char text[REAL_BYTES], plain[REAL_BYTES];
    if (!isfinite(value))
        return put(out, isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    shortest(value, text);
    char *const mark = strchr(text, 'e');
    const int exponent = atoi(mark + 1);
    const char *const point = strchr(text, '.');
    const int digits = point ? (int)(mark - point) - 1 : 0;
    if (exponent < -4 || exponent >= 16)
        return put(out, text);
    snprintf(plain, sizeof plain, "%.*f", digits > exponent ? digits - exponent : 1, value);
    return put(out, plain);
}

static HsStatus put_number(const HsJson *node, HsBytes *out)
{
    const char *const spelling = hs_json_spelling(node);
    if (!spelling)
        return put_real(hs_json_number(node), out);
    if (strpbrk(spelling, "NI")) /* NaN, Infinity, -Infinity */
        return put(out, spelling);
    if (strpbrk(spelling, ".eE"))
        return put_real(hs_json_number(node), out);
    return put(out, strcmp(spelling, "-0") == 0 ? "0" : spelling);
}

static HsStatus put_break(int indent, int depth, HsBytes *out)
{
    HS_TRY(put(out, "\n"));
    for (int i = 0; i < indent * depth; i++)
        HS_TRY(put(out, " "));
    return HS_OK;
}

/* ---- members ---- */

typedef struct Member {
    const HsJson *node;
    const HsJson *value; /* NULL: an earlier member has the key */
    int at;
} Member;

static int by_key(const void *left, const void *right)
{
    const Member *const a = left, *const b = right;
    const int order = strcmp(hs_json_key(a->node), hs_json_key(b->node));
    return order ? order : a->at - b->at;
}

static int by_place(const void *left, const void *right)
{
    return ((const Member *)left)->at - ((const Member *)right)->at;
}

/* By sorting: an object of a hostile row may have a great many members. */
static void settle_doubled(Member *members, int count)
{
    qsort(members, (size_t)count, sizeof *members, by_key);
    for (int first = 0, next; first < count; first = next) {
        for (next = first + 1; next < count; next++)
            if (strcmp(hs_json_key(members[first].node), hs_json_key(members[next].node)) != 0)
                break;
        members[first].value = members[next - 1].node;
    }
    qsort(members, (size_t)count, sizeof *members, by_place);
}

static HsStatus put_node(const HsJson *node, int indent, int depth, HsBytes *out);

static HsStatus put_members(const HsJson *node, int indent, int depth, HsBytes *out)
{
    const bool object = hs_json_is_object(node);
    const int count = hs_json_count(node);
    int written = 0;
    Member *members = calloc((size_t)count, sizeof *members);
    if (!members)
        return hs_fail(HS_ENOMEM, "no memory for %d members of JSON", count);
    const HsJson *child = hs_json_first(node);
    for (int i = 0; i < count; i++, child = hs_json_next(child))
        members[i] = (Member){ child, object ? NULL : child, i };
    if (object)
        settle_doubled(members, count);
    HsStatus status = put(out, object ? "{" : "[");
    for (int i = 0; status == HS_OK && i < count; i++) {
        if (!members[i].value)
            continue;
        if (written++ > 0)
            status = put(out, indent ? "," : ", ");
        if (status == HS_OK && indent)
            status = put_break(indent, depth + 1, out);
        const char *const key = object ? hs_json_key(members[i].node) : NULL;
        if (status == HS_OK && key)
            status = hs_chat_put_json_string(key, strlen(key), out);
        if (status == HS_OK && key)
            status = put(out, ": ");
        if (status == HS_OK)
            status = put_node(members[i].value, indent, depth + 1, out);
    }
    free(members);
    if (status == HS_OK && indent)
        status = put_break(indent, depth, out);
    return status == HS_OK ? put(out, object ? "}" : "]") : status;
}

static HsStatus put_node(const HsJson *node, int indent, int depth, HsBytes *out)
{
    const char *const text = hs_json_string(node);
    if (text)
        return hs_chat_put_json_string(text, strlen(text), out);
    if (hs_json_is_number(node))
        return put_number(node, out);
    if (hs_json_is_bool(node))
        return put(out, hs_json_is_true(node) ? "true" : "false");
    if (hs_json_is_null(node))
        return put(out, "null");
    if (hs_json_count(node) == 0)
        return put(out, hs_json_is_object(node) ? "{}" : "[]");
    return put_members(node, indent, depth, out);
}

HsStatus hs_chat_put_json(const HsJson *node, int indent, HsBytes *out)
{
    return put_node(node, indent, 0, out);
}
