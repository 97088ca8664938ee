/* SPDX-License-Identifier: MIT
 *
 * See utf8.h.
 */
#include "runtime/io/utf8.h"

#include <string.h>

#include <stdbool.h>

size_t hs_utf8_decode(const char *text, size_t length, uint32_t *code_point)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (length == 0)
        return 0;
    unsigned char lead = bytes[0];
    if (lead < 0x80) {
        if (code_point)
            *code_point = lead;
        return 1;
    }
    /* C0 and C1 could only begin overlong forms; above F4 nothing is assigned. */
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (size > length)
        return 0;
    uint32_t value = lead & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((bytes[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (bytes[i] & 0x3Fu);
    }
    static const uint32_t smallest[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    bool surrogate = value >= 0xD800 && value < 0xE000;
    if (value < smallest[size] || value > 0x10FFFF || surrogate)
        return 0;
    if (code_point)
        *code_point = value;
    return size;
}

size_t hs_utf8_encode(uint32_t code_point, char bytes[HS_UTF8_MAX_BYTES])
{
    if (code_point < 0x80) {
        bytes[0] = (char)code_point;
        return 1;
    }
    size_t size = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--) {
        bytes[i] = (char)(0x80 | (code_point & 0x3F));
        code_point >>= 6;
    }
    static const unsigned lead[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    bytes[0] = (char)(lead[size] | code_point);
    return size;
}

size_t hs_utf8_mark_bytes(const char *text, size_t length)
{
    return length >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

size_t hs_utf8_valid_prefix(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        uint64_t word; /* most text is ASCII: eight bytes in one go */
        if (length - at >= sizeof word) {
            memcpy(&word, text + at, sizeof word);
            if (!(word & UINT64_C(0x8080808080808080))) {
                at += sizeof word;
                continue;
            }
        }
        const size_t size = hs_utf8_decode(text + at, length - at, NULL);
        if (size == 0)
            break;
        at += size;
    }
    return at;
}
