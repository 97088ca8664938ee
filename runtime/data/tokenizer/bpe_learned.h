/* SPDX-License-Identifier: MIT
 *
 * What training has learned so far: tokens and the merges that made them, to be written as tokenizer.json.
 * Private to tokenizer_train.c and bpe_learned.c.
 */
#ifndef HS_RUNTIME_DATA_TOKENIZER_BPE_LEARNED_H
#define HS_RUNTIME_DATA_TOKENIZER_BPE_LEARNED_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/data/tokenizer/map.h"

/* Two merges may make the same token ("ab" + "c", "a" + "bc"): there can be more merges than tokens. */
typedef struct HsBpeLearned {
    HsMap tokens; /* bytes -> id; entry i is token i: the 256 bytes in GPT-2's order, then as they were learned */
    int32_t (*merges)[2];
    size_t merge_count, merge_capacity;
    int32_t byte_ids[256];
    const char *const *special; /* texts of further tokens, the last ids; borrowed */
    int special_count;
} HsBpeLearned;

HsStatus hs_bpe_learned_init(HsBpeLearned *learned);
/* Note a merge -> the token it makes, which may exist already. */
HsStatus hs_bpe_learned_add(HsBpeLearned *learned, int32_t left, int32_t right, int32_t *id);
static inline int32_t hs_bpe_learned_count(const HsBpeLearned *learned)
{
    return (int32_t)learned->tokens.count;
}
/* Order of two tokens' bytes: negative, zero, positive. */
int hs_bpe_learned_compare(const HsBpeLearned *learned, int32_t a, int32_t b);
/* Each special token's text is UTF-8, there once, and no token's already.  errors: HS_ECONFIG */
HsStatus hs_bpe_learned_check_special(const HsBpeLearned *learned);
/* tokenizer.json with these tokens, then <|endoftext|>, then the special ones. */
HsStatus hs_bpe_learned_write(const HsBpeLearned *learned, const char *path);
void hs_bpe_learned_deinit(HsBpeLearned *learned);

#endif
