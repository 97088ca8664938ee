/* SPDX-License-Identifier: MIT
 *
 * White space as the programs of templates take it off, which is as Python does.
 */
#include "runtime/data/source/chat_template.h"

#include "runtime/data/tokenizer/unicode.h"

/* What Python's str.strip() takes off: Unicode's white space, and the four separators of ASCII. */
static bool is_blank(uint32_t character)
{
    return hs_unicode_is_space(character) || (character >= 0x1C && character <= 0x1F);
}

static void strip_start(const char **text, size_t *length)
{
    uint32_t character;
    size_t size;
    while (*length > 0 && (size = hs_utf8_decode(*text, *length, &character)) > 0 && is_blank(character)) {
        *text += size;
        *length -= size;
    }
}

void hs_chat_strip_end(const char *text, size_t *length)
{
    uint32_t character;
    while (*length > 0) {
        size_t begin = *length - 1;
        while (begin > 0 && *length - begin < HS_UTF8_MAX_BYTES && ((unsigned char)text[begin] & 0xC0) == 0x80)
            begin--;
        if (hs_utf8_decode(text + begin, *length - begin, &character) != *length - begin || !is_blank(character))
            return;
        *length = begin;
    }
}

void hs_chat_trim(HsChatTrim trim, const char **text, size_t *length)
{
    if (trim == HS_CHAT_TRIM_BLANKS) {
        strip_start(text, length);
        hs_chat_strip_end(*text, length);
    }
    for (; trim == HS_CHAT_TRIM_LINES && *length > 0 && **text == '\n'; ++*text)
        --*length;
}
