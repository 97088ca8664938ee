/* SPDX-License-Identifier: MIT
 *
 * See pretokenize_ascii.h.  Each function follows its expression alternative by alternative; a run is followed to the
 * first character that is not part of it, which must be there and be ASCII too.
 */
#include "runtime/data/tokenizer/pretokenize_ascii.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "runtime/data/tokenizer/tokenizer.h"

/* Of a character: \p{L}, \p{N}, [\r\n], the rest of \s, what is none of these, what is not ASCII. */
enum { LETTER = 1, DIGIT = 2, LINE_END = 4, BLANK = 8, OTHER = 16, BEYOND = 32, SPACE = LINE_END | BLANK };

#define X4(kind)  kind, kind, kind, kind
#define X16(kind) X4(kind), X4(kind), X4(kind), X4(kind)
static const uint8_t kinds[256] = {
    X4(OTHER),   X4(OTHER),   OTHER,       BLANK,       LINE_END,    BLANK,       BLANK,       LINE_END,
    OTHER,       OTHER,       X16(OTHER),                                                     /* 0x00 */
    BLANK,       OTHER,       OTHER,       OTHER,       X4(OTHER),   X4(OTHER),   X4(OTHER),  /* 0x20 */
    X4(DIGIT),   X4(DIGIT),   DIGIT,       DIGIT,       OTHER,       OTHER,       X4(OTHER),  /* 0x30 */
    OTHER,       LETTER,      LETTER,      LETTER,      X4(LETTER),  X4(LETTER),  X4(LETTER), /* 0x40 */
    X4(LETTER),  X4(LETTER),  LETTER,      LETTER,      LETTER,      OTHER,       X4(OTHER),  /* 0x50 */
    OTHER,       LETTER,      LETTER,      LETTER,      X4(LETTER),  X4(LETTER),  X4(LETTER), /* 0x60 */
    X4(LETTER),  X4(LETTER),  LETTER,      LETTER,      LETTER,      OTHER,       X4(OTHER),  /* 0x70 */
    X16(BEYOND), X16(BEYOND), X16(BEYOND), X16(BEYOND), X16(BEYOND), X16(BEYOND), X16(BEYOND), X16(BEYOND),
};

/* What stands behind the text is not known either. */
static unsigned kind_at(const char *text, size_t length, size_t at)
{
    return at < length ? kinds[(unsigned char)text[at]] : BEYOND;
}

/* The end of a run of the kinds; 0: it is not known. */
static size_t run_end(const char *text, size_t length, size_t at, unsigned run)
{
    while (at < length && (kinds[(unsigned char)text[at]] & run))
        at++;
    return kind_at(text, length, at) == BEYOND ? 0 : at;
}

/* 's 't 're 've 'm 'll 'd behind an apostrophe: how many letters; -1: it is not known. */
static int contraction(const char *text, size_t length, size_t at, bool any_case)
{
    if (length - at < 2 || (text[at] & 0x80) || (text[at + 1] & 0x80))
        return -1;
    const char lower = any_case ? 0x20 : 0; /* makes no letter of another character of these */
    const char first = (char)(text[at] | lower), second = (char)(text[at + 1] | lower);
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return 1;
    const bool both = ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
    return both ? 2 : 0;
}

/* \s+(?!\S)|\s+ : the last one of several is left to what follows. */
static size_t spaces_end(size_t from, size_t end)
{
    return end > from + 1 ? end - 1 : end;
}

size_t hs_ascii_match_gpt2(const char *text, size_t length, size_t from)
{
    if (text[from] == '\'') {
        const int letters = contraction(text, length, from + 1, false);
        if (letters != 0)
            return letters > 0 ? from + 1 + (size_t)letters : 0;
    }
    const size_t begin = text[from] == ' ' ? from + 1 : from;
    const unsigned kind = kind_at(text, length, begin);
    if (kind & (LETTER | DIGIT | OTHER))
        return run_end(text, length, begin, kind);
    const size_t end = kind & SPACE ? run_end(text, length, begin, SPACE) : 0;
    return end > 0 ? spaces_end(from, end) : 0;
}

/* Llama 3's and Qwen's, which differ in how many digits make a piece. */
static size_t match_lines(const char *text, size_t length, size_t from, size_t most_digits)
{
    const unsigned first = kinds[(unsigned char)text[from]];
    if (text[from] == '\'') {
        const int letters = contraction(text, length, from + 1, true);
        if (letters != 0)
            return letters > 0 ? from + 1 + (size_t)letters : 0;
    }
    if (first & LETTER)
        return run_end(text, length, from, LETTER);
    if (first & DIGIT) {
        size_t end = from + 1;
        while (end < from + most_digits && kind_at(text, length, end) == DIGIT)
            end++;
        return end < from + most_digits && kind_at(text, length, end) == BEYOND ? 0 : end;
    }
    const unsigned second = kind_at(text, length, from + 1);
    if (first == BEYOND || second == BEYOND)
        return 0;
    if (first != LINE_END && second == LETTER)
        return run_end(text, length, from + 1, LETTER);
    if (first == OTHER || (text[from] == ' ' && second == OTHER)) {
        const size_t end = run_end(text, length, from + 1, OTHER);
        return end > 0 ? run_end(text, length, end, LINE_END) : 0;
    }
    const size_t end = run_end(text, length, from, SPACE);
    size_t line = end;
    while (line > from && kinds[(unsigned char)text[line - 1]] != LINE_END)
        line--;
    return line > from || end == 0 ? line : spaces_end(from, end);
}

static size_t match_llama3(const char *text, size_t length, size_t from)
{
    return match_lines(text, length, from, 3);
}

static size_t match_qwen(const char *text, size_t length, size_t from)
{
    return match_lines(text, length, from, 1);
}

HsAsciiMatch *hs_ascii_match_find(const char *expression)
{
    static const struct {
        const char *expression;
        HsAsciiMatch *match;
    } known[] = {
        { "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", hs_ascii_match_gpt2 },
        { HS_QWEN_EXPRESSION, match_qwen },
        { "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
          "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
          match_llama3 },
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].expression, expression) == 0)
            return known[i].match;
    return NULL;
}
