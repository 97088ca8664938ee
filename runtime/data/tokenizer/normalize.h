/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's `normalizer`: NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, and Sequence of them.
 * Bytes that are not UTF-8 pass unchanged.  Any other is HS_EUNSUPPORTED by name.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_NORMALIZE_H
#define HS_RUNTIME_DATA_TOKENIZER_NORMALIZE_H

#include "runtime/data/tokenizer/pattern.h"

typedef struct HsNormalizer HsNormalizer;

/* From the member of a tokenizer.json; absent or null: *normalizer NULL, which changes nothing.  name: the file. */
HsStatus hs_normalizer_create(const char *name, const HsJson *node, HsNormalizer **normalizer);
void hs_normalizer_destroy(HsNormalizer *normalizer);

/* text[length] normalized -> *out; its earlier content is dropped.  normalizer is not NULL.  begins: false: the text is
 * the rest of one, and nothing is put in front of it.  errors: HS_ENOMEM, a pattern's */
HsStatus hs_normalizer_apply(const HsNormalizer *normalizer, HsMatcher *matcher, const char *text, size_t length,
                             bool begins, HsBytes *out);

/* Whether lines can be normalized one by one: NFC alone, under which no character becomes a line feed, or part of one. */
bool hs_normalizer_keeps_lines(const HsNormalizer *normalizer);
/* Whether it puts something in front and replaces single characters, and does no more. */
bool hs_normalizer_is_by_character(const HsNormalizer *normalizer);
/* What such a one makes of a character of *length bytes; *length: of that. */
const char *hs_normalizer_character(const HsNormalizer *normalizer, const char *character, size_t *length);

#endif
