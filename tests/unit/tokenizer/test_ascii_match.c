/* SPDX-License-Identifier: MIT
 *
 * What is matched without PCRE2 is what PCRE2 matches: at every place of random texts, however they end, and whether
 * more follows or not.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/tokenizer/pattern.h"
#include "runtime/data/tokenizer/pretokenize_ascii.h"
#include "runtime/data/tokenizer/tokenizer.h"

#define LLAMA3                                                                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

enum { TEXTS = 300, PARTS = 48, ROOM = 16 * PARTS };

/* What makes a difference to some alternative; others: any ASCII character, and rarely one that is not. */
static const char *const parts[] = { "'s",   "'t",  "'re",  "'ve",   "'m",   "'ll",  "'d", "'S",  "'RE",
                                     "'Ve",  "'lL", "'r",   "'",     " ",    " ",    "  ", "   ", "\n",
                                     "\r\n", "\t",  "\v",   "\f",    "\x1F", "word", "Z",  "a",   "1",
                                     "22",   "333", "4444", "55555", ".",    "...",  "!?", "_",   "\x7F" };
static const char *const beyond[] = { "\xC3\xA9", "\xC5\xBF", "\xC2\xA0",         "\xC2\x85",    "\xE3\x80\x80",
                                      "\xD9\xA3", "\xCC\x81", "\xF0\x9F\x98\x80", "\xE2\x84\xAA" };

static uint32_t throws;

static uint32_t throw(uint32_t sides)
{
    const uint32_t counter[4] = { throws++, 0, 0, 3 };
    return hs_philox(11, counter).word[0] % sides;
}

static size_t make_text(char *text, bool ascii)
{
    size_t length = 0;
    for (int i = 0; i < PARTS; i++) {
        const uint32_t kind = throw(16);
        const char one[2] = { (char)(1 + throw(127)), '\0' };
        const char *part = kind < 3              ? one
                           : kind == 3 && !ascii ? beyond[throw(sizeof beyond / sizeof *beyond)]
                                                 : parts[throw(sizeof parts / sizeof *parts)];
        memcpy(text + length, part, strlen(part));
        length += strlen(part);
    }
    return length;
}

/* Every place of text[length]; returns how many had an answer. */
static int compare(HsAsciiMatch *match, const HsPattern *pattern, HsMatcher *matcher, const char *text, size_t length)
{
    int answers = 0;
    for (size_t from = 0; from < length; from++) {
        size_t truth;
        bool is_match, decided;
        if (((unsigned char)text[from] & 0xC0) == 0x80)
            continue;
        const size_t end = match(text, length, from);
        if (end == 0)
            continue;
        answers++;
        cr_assert_eq(hs_matcher_next(matcher, pattern, text, length, from, &truth, &is_match), HS_OK);
        cr_assert(is_match && truth == end, "place %zu of `%.*s`: %zu, and PCRE2 %zu", from, (int)length, text, end,
                  truth);
        cr_assert_eq(hs_matcher_next_open(matcher, pattern, text, length, from, &truth, &decided), HS_OK);
        cr_assert(decided && truth == end, "place %zu of `%.*s`, open: %zu, and PCRE2 %zu", from, (int)length, text,
                  end, decided ? truth : 0);
    }
    return answers;
}

static void check(const char *expression)
{
    HsAsciiMatch *match = hs_ascii_match_find(expression);
    HsPatternBudget *budget;
    HsMatcher *matcher;
    HsPattern *pattern;
    char *translated, text[ROOM];
    cr_assert_not_null(match);
    cr_assert_eq(hs_pattern_translate("here", expression, &translated), HS_OK);
    cr_assert_eq(hs_pattern_create("here", translated, &pattern), HS_OK);
    cr_assert_eq(hs_pattern_budget_create("here", &budget), HS_OK);
    cr_assert_eq(hs_matcher_create(budget, (size_t)1 << 24, &matcher), HS_OK);
    for (int i = 0; i < TEXTS; i++) {
        const bool ascii = i % 2 == 0;
        const size_t length = make_text(text, ascii);
        size_t cut = 1 + throw((uint32_t)length - 1); /* not inside a character */
        while (cut < length && ((unsigned char)text[cut] & 0xC0) == 0x80)
            cut++;
        const int answers = compare(match, pattern, matcher, text, length);
        (void)compare(match, pattern, matcher, text, cut);
        /* In ASCII only the last pieces lack an answer. */
        cr_expect(!ascii || answers > (int)length / 2, "%d answers in %zu bytes", answers, length);
    }
    hs_matcher_destroy(matcher);
    hs_pattern_destroy(pattern);
    hs_pattern_budget_destroy(budget);
    free(translated);
}

Test(ascii_match, gpt2)
{
    check(GPT2);
}

Test(ascii_match, llama3)
{
    check(LLAMA3);
}

Test(ascii_match, qwen)
{
    check(HS_QWEN_EXPRESSION);
}

Test(ascii_match, other_expressions_are_left_to_pcre2)
{
    cr_expect_null(hs_ascii_match_find("\\w+"));
    cr_expect_null(hs_ascii_match_find(GPT2 "|x"));
}

/* Every pair of ASCII characters, followed by a letter and a space. */
Test(ascii_match, all_of_ascii)
{
    HsPatternBudget *budget;
    HsMatcher *matcher;
    HsPattern *pattern;
    cr_assert_eq(hs_pattern_create("here", HS_PATTERN_GPT2, &pattern), HS_OK);
    cr_assert_eq(hs_pattern_budget_create("here", &budget), HS_OK);
    cr_assert_eq(hs_matcher_create(budget, (size_t)1 << 24, &matcher), HS_OK);
    for (int first = 0; first < 128; first++)
        for (int second = 0; second < 128; second++) {
            const char text[] = { (char)first, (char)second, 'e', ' ', 'x' };
            cr_expect(compare(hs_ascii_match_gpt2, pattern, matcher, text, sizeof text) >= 2);
        }
    hs_matcher_destroy(matcher);
    hs_pattern_destroy(pattern);
    hs_pattern_budget_destroy(budget);
}
