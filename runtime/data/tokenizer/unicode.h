/* SPDX-License-Identifier: MIT
 *
 * Unicode for tokenizers: normalization forms, lower case, and characters that are newer than PCRE2's tables.
 *
 * The reference is the library that writes tokenizer.json; its parts know different versions of Unicode:
 *
 *   normalization forms    Unicode 9    later characters pass unchanged and stop reordering (hs_unicode_is_young)
 *   expressions            Unicode 16   PCRE2 10.42 has 14; the rest is in a table of stand-ins
 *   lower case, digits     Unicode 17   utf8proc 2.8 has 15; the rest is in a table
 *   punctuation            about 8      what came later is not punctuation (HS_NOT_PUNCTUATION)
 *
 * Why utf8proc and not ICU: the four forms and case mapping are all that is needed, its API and name do not change with
 * every version of Unicode, and a trainer built with it starts where no ICU of the same version is.  Expressions stay
 * with PCRE2: its compiled code is several times faster than ICU's interpreter.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_UNICODE_H
#define HS_RUNTIME_DATA_TOKENIZER_UNICODE_H

#include <stdbool.h>

#include "runtime/data/tokenizer/bytes.h"

typedef enum HsUnicodeForm { HS_NFC, HS_NFD, HS_NFKC, HS_NFKD } HsUnicodeForm;

/* Append text[length] in the form (UAX #15) to out.  The text is UTF-8.  Time is linear, also for a long run of
 * combining marks.  errors: HS_ENOMEM */
HsStatus hs_unicode_normalize(HsUnicodeForm form, const char *text, size_t length, HsBytes *out);

/* The lower case of one character, without context -> one or two characters; returns how many. */
int hs_unicode_lower(uint32_t character, uint32_t lower[2]);

/* Whether the normalization forms' tables (Unicode 9) do not have the character, though it would be active in them. */
bool hs_unicode_is_young(uint32_t character);

/* The character that stands for `character` where an expression is matched: itself, or, when it came after Unicode 14,
 * one of the same category and the same number of bytes that is older. */
uint32_t hs_unicode_stand_in(uint32_t character);

/* A copy of text[length] (UTF-8) with stand-ins, of the same length; *copy NULL when nothing needs one.  The caller
 * frees.  errors: HS_ENOMEM */
HsStatus hs_unicode_stand_ins(const char *text, size_t length, char **copy);

/* White space: Unicode's property. */
bool hs_unicode_is_space(uint32_t character);

/* Inside a class of an expression: letters, marks, decimal digits, connectors, and what joins them. */
#define HS_WORD_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

/* Digits that came with Unicode 17. */
#define HS_NEW_DIGITS "\\x{11DE0}-\\x{11DE9}\\x{16FF4}-\\x{16FF6}"

/* Characters of category P that the library does not take for punctuation: those after about Unicode 8. */
extern const char hs_not_punctuation[];

#endif
