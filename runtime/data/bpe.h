/* SPDX-License-Identifier: MIT
 *
 * Byte-level BPE as loaded: what bpe_load.c fills and tokenizer_bpe.c applies.
 */
#ifndef HS_RUNTIME_DATA_BPE_H
#define HS_RUNTIME_DATA_BPE_H

#include "runtime/data/map.h"
#include "runtime/data/pretokenize.h"
#include "runtime/data/tokenizer_kind.h"

typedef struct HsBpeToken {
    size_t offset, length; /* in the pool */
    bool used;             /* ids may have holes */
} HsBpeToken;

/* A text that is one token wherever it stands, found before pre-tokenizing. */
typedef struct HsBpeAdded {
    int32_t id;
    bool normalized; /* looked for in a second pass, after those that are not */
} HsBpeAdded;

typedef struct HsBpe {
    char *source; /* the tokenizer.json, byte for byte */
    size_t source_length;
    HsBpeToken *tokens; /* [vocabulary] */
    size_t token_capacity;
    char *pool; /* bytes of all tokens */
    size_t pool_used, pool_capacity;
    int32_t byte_tokens[256];
    HsMap merges;    /* {left id, right id} -> rank */
    int32_t *merged; /* [rank] the token that the pair becomes */
    size_t merge_count;
    bool ignore_merges; /* a whole piece in the vocabulary is that token */
    HsMap whole_pieces; /* bytes -> id; filled when ignore_merges */
    HsBpeAdded *added;  /* longest first */
    size_t added_count, added_capacity;
    bool added_starts[2][256]; /* [normalized]: some added token begins with the byte */
    HsPretokenizer *pretokenizer;
} HsBpe;

/* Fill tokenizer->state from a parsed tokenizer.json. */
HsStatus hs_bpe_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text, size_t length);
void hs_bpe_destroy(HsTokenizer *tokenizer);

static inline const char *hs_bpe_token_bytes(const HsBpe *bpe, int32_t id, size_t *length)
{
    *length = bpe->tokens[id].length;
    return bpe->pool + bpe->tokens[id].offset;
}

#endif
