/* SPDX-License-Identifier: MIT
 *
 * Regular expressions of pre-tokenizers.  Private to pretokenize*.c.
 */
#ifndef HS_RUNTIME_DATA_PRETOKENIZE_PATTERN_H
#define HS_RUNTIME_DATA_PRETOKENIZE_PATTERN_H

#include "kernels/base/status.h"

/* White space is Unicode's property: PCRE2's own \s also takes U+180E. */
#define HS_SPACE     "\\p{White_Space}"
#define HS_NOT_SPACE "\\P{White_Space}"

/* GPT-2's: contractions, words, numbers and the rest, each with the one space before it; spaces. */
#define HS_PATTERN_GPT2                                                          \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" HS_SPACE "\\p{L}\\p{N}]+" \
    "|" HS_SPACE "+(?!" HS_NOT_SPACE ")|" HS_SPACE "+"

/* Text that Unicode's normalization form C might change: characters whose quick-check property NFC_QC is No or Maybe
 * (Unicode 14, UAX #15), and two marks in a row, which might stand in another order. */
extern const char hs_pattern_not_nfc[];
#define HS_PATTERN_NOT_NFC hs_pattern_not_nfc

/* An expression written for Oniguruma -> the same for PCRE2 (caller frees), or HS_EUNSUPPORTED naming the construct. */
HsStatus hs_pattern_translate(const char *name, const char *pattern, char **translated);

#endif
