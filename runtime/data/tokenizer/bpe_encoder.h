/* SPDX-License-Identifier: MIT
 *
 * What encoding by BPE needs besides the tables: bpe.c encodes texts, bpe_parts.c parts of them.  Private to bpe*.c.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_BPE_ENCODER_H
#define HS_RUNTIME_DATA_TOKENIZER_BPE_ENCODER_H

#include "runtime/data/tokenizer/bpe.h"

typedef struct HsBpeSymbol {
    int32_t token;
    int32_t previous, next; /* -1: none */
} HsBpeSymbol;

typedef struct HsBpeCandidate {
    int64_t rank;
    int32_t at;          /* the left symbol */
    int32_t left, right; /* tokens when it was found */
} HsBpeCandidate;

/* One thread's scratch. */
typedef struct HsBpeEncoder {
    const HsBpe *bpe;
    HsTokens *tokens; /* where they go; of the call at hand */
    HsMatcher *matcher;
    HsBytes normalized;
    HsBpeSymbol *symbols;
    size_t symbol_count, symbol_capacity;
    HsBpeCandidate *heap;
    size_t heap_count, heap_capacity;
    HsMap cache;     /* piece -> its tokens, or their place in cached */
    HsTokens cached; /* rows of tokens that are too long for a value of the cache */
    int token_bits;  /* that an id needs */
} HsBpeEncoder;

/* Appends a whole text's tokens, all or none. */
HsStatus hs_bpe_encode_text(HsBpeEncoder *encoder, const char *text, size_t length, HsTokens *tokens);
/* HsPieceFunction; context: an HsBpeEncoder. */
HsStatus hs_bpe_encode_piece(void *context, const char *piece, size_t length);
HsStatus hs_bpe_emit(HsBpeEncoder *encoder, const HsBpeAdded *added);
/* A text between two added tokens as given: normalized, cut, merged.  at_start: nothing stands in front of it; begins:
 * it is no rest of one. */
HsStatus hs_bpe_encode_run(HsBpeEncoder *encoder, const char *text, size_t length, bool at_start, bool begins);

/* bpe_joints.c: tokenizers that do not cut a text, and merge no token across some pairs of characters. */
bool hs_bpe_cuts_at_joints(const HsBpe *bpe);
HsStatus hs_bpe_encode_joint_part(HsBpeEncoder *encoder, const HsTextPart *part, size_t *used);

bool hs_bpe_takes_parts(const HsTokenizer *tokenizer);
HsStatus hs_bpe_encode_part(void *scratch, const HsTextPart *part, HsTokens *tokens, size_t *used);

#endif
