/* SPDX-License-Identifier: MIT
 *
 * Tokens to text: tokenizer.json's `decoder`.  ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, and Sequence.
 *
 *   tokens as the vocabulary writes them -> step 1 -> step 2 ... -> joined
 *
 * Bytes that are no UTF-8 are kept, where the library that writes the file puts U+FFFD: so any text comes back as it
 * was.  A file without a decoder gives its tokens one after another, ByteLevel vocabularies through the byte map.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_DETOKENIZE_H
#define HS_RUNTIME_DATA_TOKENIZER_DETOKENIZE_H

#include "runtime/data/tokenizer/pattern.h"

typedef struct HsDetokenizer HsDetokenizer;

/* A list of strings: string i ends at ends[i], where the next begins. */
typedef struct HsStrings {
    HsBytes bytes;
    size_t *ends;
    size_t count, capacity;
} HsStrings;
HsStatus hs_strings_append(HsStrings *strings, const char *text, size_t length);
void hs_strings_deinit(HsStrings *strings);

/* From the member of a tokenizer.json (may be NULL).  byte_level: the vocabulary is written in the byte map. */
HsStatus hs_detokenizer_create(const char *name, const HsJson *node, bool byte_level, HsDetokenizer **detokenizer);
void hs_detokenizer_destroy(HsDetokenizer *detokenizer);

/* Whether a text is its tokens' bytes one after another: nothing happens at its ends. */
bool hs_detokenizer_is_joining(const HsDetokenizer *detokenizer);

/* All tokens of a text -> *text, its count 1 or 0.  errors: a pattern's, HS_ENOMEM */
HsStatus hs_detokenizer_run(const HsDetokenizer *detokenizer, HsMatcher *matcher, HsStrings *text);
/* One token as it reads in the middle of a text. */
HsStatus hs_detokenizer_run_middle(const HsDetokenizer *detokenizer, HsMatcher *matcher, HsStrings *text);

#endif
