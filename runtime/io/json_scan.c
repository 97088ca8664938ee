/* SPDX-License-Identifier: MIT
 *
 * A strict look at the bytes of a JSON text (RFC 8259): tokens, UTF-8 and nesting.  Constant memory, one pass.  What
 * stands where ("," or ":") is left to the parser behind it.  Python's json module also writes and reads NaN, Infinity
 * and -Infinity: they are an error with their name, or counted where the caller asks for them.
 */
#include "runtime/io/json_scan.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum {
    MAX_DEPTH = 256,       /* the parser recurses: well below its own limit and any stack */
    MAX_NUMBER_LENGTH = 63 /* the parser's number buffer */
};

typedef struct Scan {
    const unsigned char *text;
    size_t length, at;
    size_t *nonfinite; /* counts NaN, Infinity and -Infinity; NULL: they are an error */
} Scan;

const char *const hs_json_nonfinite[] = { "NaN", "Infinity", "-Infinity", NULL };

/* The name of Python's for a number that is not finite at `at`; NULL: none. */
static const char *nonfinite_at(const Scan *scan, size_t at)
{
    for (int i = 0; hs_json_nonfinite[i]; i++) {
        const size_t length = strlen(hs_json_nonfinite[i]);
        if (scan->length - at >= length && memcmp(scan->text + at, hs_json_nonfinite[i], length) == 0)
            return hs_json_nonfinite[i];
    }
    return NULL;
}

static int hex_digit(unsigned char byte)
{
    return byte >= '0' && byte <= '9'   ? byte - '0'
           : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
           : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                        : -1;
}

/* The code unit of the escape \\uXXXX at `at`; -1: there is no such escape. */
static int32_t unit_at(const Scan *scan, size_t at)
{
    int32_t unit = 0;
    if (at > scan->length || scan->length - at < 6 || scan->text[at] != '\\' || scan->text[at + 1] != 'u')
        return -1;
    for (size_t i = 2; i < 6; i++) {
        const int digit = hex_digit(scan->text[at + i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static bool is_digit_at(const Scan *scan, size_t at)
{
    return at < scan->length && scan->text[at] >= '0' && scan->text[at] <= '9';
}

/* Bytes of the UTF-8 sequence at `at`, 0 when it is malformed (overlong, surrogate, above U+10FFFF, cut off). */
static size_t utf8_length(const Scan *scan, size_t at)
{
    /* Smallest code point of each length: anything below it is an overlong form. */
    static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
    unsigned char lead = scan->text[at];
    size_t length = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (length == 1)
        return 1;
    if (lead < 0xc0 || lead > 0xf7 || scan->length - at < length)
        return 0;
    uint32_t code = lead & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        unsigned char next = scan->text[at + i];
        if ((next & 0xc0) != 0x80)
            return 0;
        code = (code << 6) | (next & 0x3fu);
    }
    bool surrogate = code >= 0xd800 && code <= 0xdfff;
    return code < smallest[length] || surrogate || code > 0x10ffff ? 0 : length;
}

/* From the opening quote to past the closing one; returns what is wrong, NULL when nothing is. */
static const char *scan_string(Scan *scan)
{
    scan->at++;
    while (scan->at < scan->length) {
        unsigned char byte = scan->text[scan->at];
        if (byte == '"') {
            scan->at++;
            return NULL;
        }
        if (byte < 0x20)
            return "control character in a string";
        if (byte == '\\') {
            const int32_t unit = unit_at(scan, scan->at);
            const bool high = unit >= 0xd800 && unit <= 0xdbff;
            const int32_t low = high ? unit_at(scan, scan->at + 6) : -1;
            if (unit == 0)
                return "U+0000 in a string";
            if ((high && !(low >= 0xdc00 && low <= 0xdfff)) || (unit >= 0xdc00 && unit <= 0xdfff))
                return "half of a surrogate pair in a string, which is no character";
            scan->at += high ? 12 : 2; /* cJSON judges other escapes itself */
            continue;
        }
        size_t length = utf8_length(scan, scan->at);
        if (length == 0)
            return "malformed UTF-8";
        scan->at += length;
    }
    scan->at = scan->length;
    return "string without an end";
}

/* -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)? */
static const char *scan_number(Scan *scan)
{
    size_t start = scan->at, at = start;
    if (scan->text[at] == '-')
        at++;
    if (!is_digit_at(scan, at))
        return "not a number";
    bool leading_zero = scan->text[at] == '0';
    for (at++; is_digit_at(scan, at); at++) {
        if (leading_zero)
            return "number with a leading zero";
    }
    if (at < scan->length && scan->text[at] == '.') {
        if (!is_digit_at(scan, ++at))
            return "number without digits after the point";
        while (is_digit_at(scan, at))
            at++;
    }
    if (at < scan->length && (scan->text[at] == 'e' || scan->text[at] == 'E')) {
        at++;
        if (at < scan->length && (scan->text[at] == '+' || scan->text[at] == '-'))
            at++;
        if (!is_digit_at(scan, at))
            return "number without digits in its exponent";
        while (is_digit_at(scan, at))
            at++;
    }
    if (at - start > MAX_NUMBER_LENGTH)
        return "number of more than 63 characters";
    scan->at = at;
    return NULL;
}

/* What is wrong at scan->at; NULL when the tokens are well formed (their order is cJSON's business). */
static const char *scan_text(Scan *scan)
{
    int depth = 0;
    while (scan->at < scan->length) {
        unsigned char byte = scan->text[scan->at];
        const char *wrong = NULL;
        const char *nonfinite = byte == 'N' || byte == 'I' || byte == '-' ? nonfinite_at(scan, scan->at) : NULL;
        if (nonfinite && !scan->nonfinite)
            return *nonfinite == 'N' ? "NaN, which Python writes and JSON does not have"
                                     : "Infinity, which Python writes and JSON does not have";
        if (nonfinite) {
            ++*scan->nonfinite;
            scan->at += strlen(nonfinite);
        } else if (byte == '"') {
            wrong = scan_string(scan);
        } else if (byte == '-' || is_digit_at(scan, scan->at)) {
            wrong = scan_number(scan);
        } else if (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') {
            wrong = "control character";
        } else {
            depth += (byte == '{' || byte == '[') - (byte == '}' || byte == ']');
            if (depth > MAX_DEPTH)
                return "nested deeper than 256";
            scan->at++;
        }
        if (wrong)
            return wrong;
    }
    return NULL;
}

const char *hs_json_scan(const char *text, size_t length, size_t *nonfinite, size_t *offset)
{
    Scan scan = { (const unsigned char *)text, length, 0, nonfinite };
    const bool marked = length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    const char *wrong = marked ? "a byte order mark in front" : scan_text(&scan);
    *offset = scan.at;
    return wrong;
}
