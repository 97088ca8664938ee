/* SPDX-License-Identifier: MIT
 *
 * The numbers of a backward pass, layer by layer: a micro-batch is run once more, and every gradient that an action
 * leaves (of activations, of weights) enters a histogram as it is stored, loss scale and all.  For pages and lessons;
 * slow, changes no parameter.
 *
 * A gradient counts once, when nothing is left to be added to it, in the row of the node that adds last in backward:
 * the gradient of a branch's input in that branch's row, a tied matrix's in the embedding's.
 */
#ifndef HS_RUNTIME_ENGINE_GRADIENT_HISTOGRAMS_H
#define HS_RUNTIME_ENGINE_GRADIENT_HISTOGRAMS_H

#include "runtime/engine/histogram.h"
#include "runtime/engine/program.h"

typedef struct HsSurveyRow {
    char name[64]; /* "embedding", "block 3, attention", "block 3, mlp", "final norm", "head"; blocks from 0 */
    HsHistogram activations, weights; /* gradients of; the embedding reads no activation, a tied head owns no weight */
} HsSurveyRow;

typedef struct HsSurvey {
    int row_count;
    HsSurveyRow *rows;                /* in the order of the model */
    HsHistogram activations, weights; /* of all rows */
    HsDtype activation_format;        /* what most activation gradients are stored in */
} HsSurvey;

/* Arguments as hs_program_train's.  Gradients are clear before and after.  The caller owns the survey.
 * errors: HS_ENOMEM, and what the actions return; then there is nothing to deinit */
HsStatus hs_program_gradient_histograms(HsProgram *program, HsContext *context, const int32_t *tokens,
                                        const int32_t *targets, uint64_t seed, uint32_t step, int64_t row_offset,
                                        float gradient_scale, HsSurvey *survey);
void hs_survey_deinit(HsSurvey *survey);

#endif
