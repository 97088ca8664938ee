/* SPDX-License-Identifier: MIT
 *
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 */
#ifndef HS_RUNTIME_IO_UTF8_H
#define HS_RUNTIME_IO_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { HS_UTF8_MAX_BYTES = 4 };

/* The character at the start of `text`: its length in bytes (1 to 4) and, unless NULL, its code point.
 * 0 when the bytes there are no character, or length is 0. */
size_t hs_utf8_decode(const char *text, size_t length, uint32_t *code_point);

/* Write a code point below 0x110000; returns how many bytes. */
size_t hs_utf8_encode(uint32_t code_point, char bytes[HS_UTF8_MAX_BYTES]);

/* How many bytes a byte order mark takes at the start: 3 or 0.  JSON, CSV and YAML do not count it as content. */
size_t hs_utf8_mark_bytes(const char *text, size_t length);

/* How many bytes at the start are whole characters. */
size_t hs_utf8_valid_prefix(const char *text, size_t length);

#endif
