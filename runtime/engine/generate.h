/* SPDX-License-Identifier: MIT
 *
 * Text from a model: prompt in, one token at a time out.
 */
#ifndef HS_RUNTIME_ENGINE_GENERATE_H
#define HS_RUNTIME_ENGINE_GENERATE_H

#include <stdio.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/engine/decode.h"

/* What is to be continued, and how. */
typedef struct HsGeneration {
    const char *prompt; /* may be empty: then the text starts from end-of-text, or a newline where there is none */
    size_t prompt_length;
    int64_t tokens; /* to add at most; less where end-of-text comes before */
    HsSampling sampling;
} HsGeneration;

/* Writes prompt and continuation to `out` as they come (NULL: does not), and appends the continuation's tokens to
 * `added` (may be NULL).  Longer texts than the model has positions go on from the latest half of them. errors: the
 * tokenizer's for the prompt, HS_ENOMEM */
HsStatus hs_generate_text(HsModel *model, HsContext *context, const HsTokenizer *tokenizer,
                          const HsGeneration *generation, FILE *out, HsTokens *added);

#endif
