/* SPDX-License-Identifier: MIT
 *
 * Unicode for tokenizers: stand-ins against utf8proc's categories, normalization against Hangul's arithmetic and by
 * hand.  The `tokenizers` library's own view of every character is compared in tests/tokenizers.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "runtime/data/tokenizer/unicode.h"

enum { LAST = 0x10FFFF, CHANGED = 0x1171E }; /* CHANGED: category Mn until Unicode 15, Mc since 16 */

Test(unicode, stand_ins_have_the_category_and_size_of_what_they_stand_for)
{
    int replaced = 0;
    for (uint32_t character = 0; character <= LAST; character++) {
        uint32_t stand_in = hs_unicode_stand_in(character);
        char a[HS_UTF8_MAX_BYTES], b[HS_UTF8_MAX_BYTES];
        if (stand_in == character)
            continue;
        replaced++;
        cr_expect_eq(hs_utf8_encode(character, a), hs_utf8_encode(stand_in, b), "U+%04X", (unsigned)character);
        utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
        cr_expect(character == CHANGED || category == UTF8PROC_CATEGORY_CN ||
                      category == utf8proc_category((utf8proc_int32_t)stand_in),
                  "U+%04X", (unsigned)character);
        cr_expect_eq(hs_unicode_stand_in(stand_in), stand_in);
    }
    cr_expect_eq(replaced, 4489 + 627 + 5185 + 1); /* Unicode 15, 15.1, 16; CHANGED */
}

/* Normalize UTF-8 and compare. */
static void expect_form(HsUnicodeForm form, const char *text, const char *expected)
{
    HsBytes out = { 0 };
    cr_assert_eq(hs_unicode_normalize(form, text, strlen(text), &out), HS_OK);
    cr_expect(out.count == strlen(expected) && memcmp(out.items, expected, out.count) == 0, "form %d of `%s`: `%.*s`",
              form, text, (int)out.count, out.items);
    hs_bytes_deinit(&out);
}

Test(unicode, forms_by_hand)
{
    expect_form(HS_NFC, "cafe\xCC\x81", "caf\xC3\xA9");
    expect_form(HS_NFD, "caf\xC3\xA9", "cafe\xCC\x81");
    expect_form(HS_NFC, "\xE2\x84\xAB", "\xC3\x85");     /* angstrom sign */
    expect_form(HS_NFC, "\xEF\xAC\x81", "\xEF\xAC\x81"); /* a ligature is no canonical composition */
    expect_form(HS_NFKC, "\xEF\xAC\x81\xE2\x91\xA0", "fi1");
    expect_form(HS_NFKD,
                "\xC2\xA0"
                "a\xC2\xBD",
                " a1\xE2\x81\x84"
                "2");
    expect_form(HS_NFD, "a\xCC\x81\xCC\xA3", "a\xCC\xA3\xCC\x81"); /* below (220) before above (230) */
    expect_form(HS_NFC, "a\xCC\x81\xCC\xA3", "\xE1\xBA\xA1\xCC\x81");
    expect_form(HS_NFC, "\xE0\xA5\x98", "\xE0\xA4\x95\xE0\xA4\xBC"); /* excluded from composition */
    /* Unicode 10's U+0D3C (class 9) is younger than the tables: nothing moves across it. */
    expect_form(HS_NFD, "a\xCC\x81\xE0\xB4\xBC\xCC\xA3", "a\xCC\x81\xE0\xB4\xBC\xCC\xA3");
}

/* The standard's arithmetic (Unicode 3.12): syllable = 0xAC00 + (lead * 21 + vowel) * 28 + trail. */
Test(unicode, hangul_by_arithmetic)
{
    for (uint32_t index = 0; index < 11172; index += 7) {
        HsBytes whole = { 0 }, parts = { 0 };
        hs_bytes_append_character(&whole, 0xAC00 + index);
        hs_bytes_append_character(&parts, 0x1100 + index / 588);
        hs_bytes_append_character(&parts, 0x1161 + index % 588 / 28);
        if (index % 28 > 0)
            hs_bytes_append_character(&parts, 0x11A7 + index % 28);
        hs_bytes_append(&whole, "", 1);
        hs_bytes_append(&parts, "", 1);
        expect_form(HS_NFC, parts.items, whole.items);
        expect_form(HS_NFD, whole.items, parts.items);
        hs_bytes_deinit(&whole);
        hs_bytes_deinit(&parts);
    }
}

Test(unicode, lower_case)
{
    static const uint32_t pairs[][2] = { { 'A', 'a' },       { 'z', 'z' },         { 0xC9, 0xE9 },
                                         { 0x1E9E, 0xDF },   { 0x3A3, 0x3C3 },     { 0x10D50, 0x10D70 },
                                         { 0x1C89, 0x1C8A }, { 0xA7CB, 0x264 },    { 0xA7CC, 0xA7CD },
                                         { 0xA7CD, 0xA7CD }, { 0x16EB8, 0x16ED3 }, { 0x16EB9, 0x16EB9 } };
    uint32_t lower[2];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        cr_expect_eq(hs_unicode_lower(pairs[i][0], lower), 1);
        cr_expect_eq(lower[0], pairs[i][1], "U+%04X", (unsigned)pairs[i][0]);
    }
    cr_expect_eq(hs_unicode_lower(0x130, lower), 2);
    cr_expect(lower[0] == 'i' && lower[1] == 0x307);
}
