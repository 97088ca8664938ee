/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out.
 */
#ifndef HS_RUNTIME_ENGINE_GENERATE_H
#define HS_RUNTIME_ENGINE_GENERATE_H

#include <stdio.h>

#include "runtime/config/config.h"
#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/engine/decode.h"

/* What is to be continued, and how. */
typedef struct HsGeneration {
    const char *prompt; /* may be empty: then the text starts from what the tokenizer puts in front of a text, else from
                           end-of-text, or a newline where there is none */
    size_t prompt_length;
    int64_t tokens; /* to add at most; less where a token that ends comes before */
    HsSampling sampling;
    const int32_t *stops; /* tokens that end besides end-of-text */
    int64_t stop_count;
    bool stops_alone;  /* end-of-text is a token like others, unless it is one of them */
    int32_t *ended_by; /* NULL, or where the token is written that ended the text, which is not part of it; -1: none */
} HsGeneration;

/* What generates, and keeps what the model has read: a prompt that begins as the last text did is not read again. */
typedef struct HsGenerator HsGenerator;
/* room: tokens that its cache is made for at first; a longer text needs another, and is read anew. */
HsStatus hs_generator_create(HsModel *model, HsContext *context, const HsTokenizer *tokenizer, int64_t room,
                             HsGenerator **generator);
void hs_generator_destroy(HsGenerator *generator);
/* Continues `prompt` (at least one token), not the generation's own: writes the continuation to `out` as it comes (NULL:
 * does not), and appends its tokens to `added` (may be NULL).  Longer texts than the model has positions continue from
 * the latest half of them.  Where only a part of the prompt was read anew, sums run in another order than for the
 * whole: the same up to rounding.  errors: HS_ENOMEM */
HsStatus hs_generator_run(HsGenerator *generator, const HsTokens *prompt, const HsGeneration *generation, FILE *out,
                          HsTokens *added);
/* Tokens of the last prompt that were there already. */
int64_t hs_generator_reused(const HsGenerator *generator);

/* One line of warning where a prompt has more tokens than the model sees (learned positions), or was made for (rotary
 * ones: model.max_positions, else max_length); true: there is one. */
bool hs_generate_warn_length(const HsModel *model, const HsConfig *config, int64_t tokens);
/* The tokens of the generation's prompt, as hs_generate_text makes them. */
HsStatus hs_generate_count_prompt(const HsTokenizer *tokenizer, const HsGeneration *generation, int64_t *tokens);

/* Writes prompt and continuation to `out` (NULL: does not), and appends the continuation's tokens to `added` (may be
 * NULL).  errors: the tokenizer's for the prompt, HS_ENOMEM */
HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer,
                          const HsGeneration *generation, FILE *out, HsTokens *added);

#endif
