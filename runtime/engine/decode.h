/* SPDX-License-Identifier: MIT
 *
 * Generation: the same table of nodes, run on new tokens only, with a key/value cache per attention node.
 */
#ifndef HS_RUNTIME_ENGINE_DECODE_H
#define HS_RUNTIME_ENGINE_DECODE_H

#include "runtime/model/model.h"

typedef struct HsDecoder HsDecoder;

/* batch: sequences that are fed side by side.  max_tokens: the longest one, prompt included (at most max_positions when
 * the model has learned positions). */
HsStatus hs_decoder_create(HsModel *model, HsContext *context, int64_t batch, int64_t max_tokens, HsDecoder **decoder);
void hs_decoder_destroy(HsDecoder *decoder);
void hs_decoder_reset(HsDecoder *decoder);
/* As if only the first `tokens` of those that it was fed had been, which are no more; or none, where a layer with a window
 * does not keep what they need.  Returns how many. */
int64_t hs_decoder_rewind(HsDecoder *decoder, int64_t tokens);
/* Feed `count` tokens at the current position; logits [V] f32 of the last one, capped where the model caps them (host,
 * borrowed until the next call).
 * Several sequences take one token each: tokens [batch], count is the batch, logits [batch,V]. */
HsStatus hs_decoder_feed(HsDecoder *decoder, HsContext *context, const int32_t *tokens, int64_t count,
                         const float **logits);

typedef struct HsSampling {
    double temperature; /* 0: the likeliest token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all (nucleus, Holtzman et al. 2020) */
    uint64_t seed;
} HsSampling;

/* A token from logits [vocabulary]; draw `index` of the seed.  vocabulary: the tokenizer's (padding rows never drawn).
 * scratch [2 * vocabulary].  Temperature first, then top_k, then top_p of what is left; ties are cut in token order. */
int32_t hs_sample(const HsSampling *sampling, const float *logits, int64_t vocabulary, uint64_t index, float *scratch);

#endif
