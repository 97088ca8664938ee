/* SPDX-License-Identifier: MIT
 *
 * Cases of the largest logit's index: the result is exact.  `depth` distinct logits make ties in every row; others hold
 * infinities and NaNs; `start` columns at the end are padding, which no index may name.
 */
#include "runtime/selftest/trial.h"

/* rows, columns, padding */
#define ARGMAX(n, v, padding)                               \
    { HS_F32, HS_I32, HS_F32, n, v, .start = (padding) },   \
    {                                                       \
        HS_F32, HS_I32, HS_F32, n, v, 3, .start = (padding) \
    }

static const HsCase argmax_cases[] = {
    ARGMAX(3, 1, 0),
    ARGMAX(50, 2, 1),
    ARGMAX(90, 7, 0),
    ARGMAX(17, 17, 5),
    ARGMAX(63, 63, 0),
    ARGMAX(65, 64, 3),
    ARGMAX(64, 65, 0),
    ARGMAX(9, 511, 500),
    ARGMAX(9, 513, 1),
    ARGMAX(7, 1025, 0),
    ARGMAX(40, 5003, 11),
    ARGMAX(3, 60001, 1),
    { HS_F32, HS_I32, HS_F32, 9, 260, .options = HS_CASE_UNALIGNED },
    { HS_F32, HS_I32, HS_F32, 33, 77, .options = HS_CASE_NONFINITE },
    { HS_F32, HS_I32, HS_F32, 500, 2, .options = HS_CASE_NONFINITE },
};

enum { LOGITS, INDEX };

static void declare(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
    operands[LOGITS] = hs_input("logits", 3.0, hs_tensor_2d(NULL, HS_F32, config->rows, config->columns));
    if (config->depth > 0)
        operands[LOGITS] = hs_filled(hs_input("logits", (double)config->depth, operands[LOGITS].tensor), HS_FILL_INDEX);
    if (hs_case_has(trial, HS_CASE_NONFINITE))
        operands[LOGITS].fill = HS_FILL_BROKEN;
    operands[INDEX] = hs_output("index", hs_tensor_1d(NULL, HS_I32, config->rows));
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsCase *config = trial->config;
    return hs_op_argmax(
        context, &(HsArgmaxArgs){ .logits = t[LOGITS], .count = config->columns - config->start, .index = t[INDEX] });
}

static const HsCase argmax_timed[] = {
    { HS_F32, HS_I32, HS_F32, 512, 50304, .options = 0 },
};

const HsOpTest hs_op_test_argmax = {
    .cases = argmax_cases,
    .case_count = HS_COUNT_OF(argmax_cases),
    .timed = argmax_timed,
    .timed_count = HS_COUNT_OF(argmax_timed),
    .declare = declare,
    .call = call,
};
