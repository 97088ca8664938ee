/* SPDX-License-Identifier: MIT
 *
 * The expressions by which most tokenizers cut text, matched without PCRE2 where the text is ASCII.
 *
 * Exact: an answer is PCRE2's, and where the match cannot be told from ASCII inside the text there is no answer.  So it
 * does not matter what follows the text, either.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_ASCII_H
#define HS_RUNTIME_DATA_TOKENIZER_PRETOKENIZE_ASCII_H

#include <stddef.h>

/* Where the match that begins at `from` ends; 0: ask PCRE2.  from < length */
typedef size_t HsAsciiMatch(const char *text, size_t length, size_t from);

/* For an expression as a tokenizer.json writes it; NULL: there is none. */
HsAsciiMatch *hs_ascii_match_find(const char *expression);
/* For HS_PATTERN_GPT2. */
HsAsciiMatch hs_ascii_match_gpt2;

#endif
