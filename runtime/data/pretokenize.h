/* SPDX-License-Identifier: MIT
 *
 * Text to pieces, before byte-level BPE merges within each: tokenizer.json's `normalizer` and `pre_tokenizer`.
 *
 *   text -> runs of valid UTF-8 | runs of other bytes -> stage 1 -> stage 2 ... -> pieces
 *
 * A stage cuts what it is given at the matches of a regular expression; matches and what lies between are both kept.
 * Pieces in order make up the text again (with add_prefix_space, a space may be put before some).
 * Bytes that are not UTF-8 become pieces of their own and pass through unchanged.
 * Anything in the file that would be done differently here than there is HS_EUNSUPPORTED by name.
 */
#ifndef HS_RUNTIME_DATA_PRETOKENIZE_H
#define HS_RUNTIME_DATA_PRETOKENIZE_H

#include "runtime/json.h"

typedef struct HsPretokenizer HsPretokenizer;

/* From the members of a tokenizer.json (either may be NULL).  name: the file, for messages. */
HsStatus hs_pretokenizer_create(const char *name, const HsJson *normalizer, const HsJson *pre_tokenizer,
                                HsPretokenizer **pretokenizer);
/* GPT-2's, without a file. */
HsStatus hs_pretokenizer_create_gpt2(HsPretokenizer **pretokenizer);
void hs_pretokenizer_destroy(HsPretokenizer *pretokenizer);

typedef HsStatus HsPieceFunction(void *context, const char *piece, size_t length);

/* Hand every piece to `take`, in order; stops at its first failure.  May be called from several threads. */
HsStatus hs_pretokenizer_split(const HsPretokenizer *pretokenizer, const char *text, size_t length,
                               HsPieceFunction *take, void *context);

#endif
