/* SPDX-License-Identifier: MIT
 *
 * Cases of a step's scalars.  Records travel as 32-bit words.  Every backend has the same body
 * (kernels/ops/step_rule.h), but a device's own pow, sqrt and division may end in other last bits: words of
 * floating-point fields may differ by a few.
 */
#include "runtime/selftest/bounds.h"

#include <string.h>

enum { SUM_SQUARES, NONFINITE, INPUT, STATE, SCALARS, OUTCOME, GRADIENT_SCALES = SCALARS };

/* A pow good to 2 units in the last place of double, then quotients and differences: far below this, in double; in
 * float a different neighbour at most. */
enum { WORDS_APART = 16 };

/* rows: tensors; start: clean or broken steps before */
#define STEP(n, more)                                                                             \
    { HS_F32, HS_F32, HS_F32, .rows = n, .options = (more) },                                     \
        { HS_F32, HS_F32, HS_F32, .rows = n, .start = 1, .options = (more) },                     \
        { HS_F32, HS_F32, HS_F32, .rows = n, .options = (more) | HS_CASE_NONFINITE },             \
        { HS_F32, HS_F32, HS_F32, .rows = n, .start = 1, .options = (more) | HS_CASE_NONFINITE }, \
    {                                                                                             \
        HS_F32, HS_F32, HS_F32, .rows = n, .start = 2, .options = (more) | HS_CASE_NONFINITE      \
    }

static const HsCase prepare_cases[] = { STEP(1, 0),   STEP(3, HS_CASE_SKIP), STEP(17, 0), STEP(255, 0),
                                        STEP(256, 0), STEP(257, 0),          STEP(700, 0) };
static const HsCase begin_cases[] = { STEP(1, 0) };

static HsTensor words(size_t bytes)
{
    return hs_tensor_1d(NULL, HS_I32, (int64_t)(bytes / sizeof(int32_t)));
}

static void declare_records(HsTrial *trial)
{
    HsTrialOperand *operands = trial->operands;
    operands[INPUT] = hs_filled(hs_input("input", 0.0, words(sizeof(HsStepInput))), HS_FILL_ZERO);
    operands[STATE] = hs_filled(hs_updated("state", 0.0, words(sizeof(HsStepState))), HS_FILL_ZERO);
}

static void declare_prepare(HsTrial *trial)
{
    const int64_t tensors = trial->config->rows;
    HsTrialOperand *operands = trial->operands;
    declare_records(trial);
    operands[SUM_SQUARES] =
        hs_filled(hs_input("sum_squares", 1e6, hs_tensor_1d(NULL, HS_F64, tensors)), HS_FILL_POSITIVE);
    operands[NONFINITE] = hs_filled(hs_input("nonfinite", 0.0, words((size_t)tensors * sizeof(int64_t))), HS_FILL_ZERO);
    operands[SCALARS] = hs_output("scalars", words(sizeof(HsStepScalars)));
    operands[OUTCOME] = hs_output("outcome", words(sizeof(HsStepOutcome)));
}

static void declare_begin(HsTrial *trial)
{
    declare_records(trial);
    trial->operands[GRADIENT_SCALES] = hs_output("gradient_scales", hs_tensor_1d(NULL, HS_F32, HS_STEP_ROWS));
    trial->operands[GRADIENT_SCALES].as_is = true;
}

/* start: 0 far from any limit; 1 the next clean step grows the scale, the next overflow lowers it; 2 it is at its
 * floor already. */
static HsStatus prepare_records(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    const int64_t start = trial->config->start;
    const HsStepInput input = { .learning_rates = { 1e-3, 2e-3, 3e-3, 4e-3 },
                                .momenta = { 0.85, 0.9, 0.95, 0.97 },
                                .first_schedule_step = 40,
                                .counted = { 1021.0f, 77.0f } };
    const HsStepState state = { .counters = { .applied_steps = 51,
                                              .skipped_steps = 3,
                                              .schedule_steps = 41,
                                              .moment_steps = 21,
                                              .scaler_tracker = start == 1 ? 99 : 5,
                                              .scaler_hysteresis = start == 0 ? 2 : 1,
                                              .loss_scale = start == 2 ? 1.0f : 1024.0f },
                                .halted = hs_case_has(trial, HS_CASE_SKIP),
                                .attempt = 54 };
    memcpy(trial->operands[INPUT].image, &input, sizeof input);
    memcpy(trial->operands[STATE].image, &state, sizeof state);
    if (hs_operand_present(trial, NONFINITE) && hs_case_has(trial, HS_CASE_NONFINITE))
        ((int64_t *)trial->operands[NONFINITE].image)[trial->config->rows / 2] = 3;
    return HS_OK;
}

static HsStatus call_prepare(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsPrepareStepArgs args = { .sum_squares = t[SUM_SQUARES].data,
                                     .nonfinite = t[NONFINITE].data,
                                     .count = (int)trial->config->rows,
                                     .input = t[INPUT].data,
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .clip_norm = 1.0,
                                     .average_decay = 0.9,
                                     .scaling = { .dynamic = true,
                                                  .growth_factor = 2.0,
                                                  .backoff_factor = 0.5,
                                                  .min_scale = 1.0,
                                                  .max_scale = 1e30,
                                                  .growth_interval = 100,
                                                  .hysteresis = 2 },
                                     .state = t[STATE].data,
                                     .scalars = t[SCALARS].data,
                                     .outcome = t[OUTCOME].data };
    return hs_op_prepare_step(context, &args);
}

static HsStatus call_begin(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_begin_step(context, &(HsBeginStepArgs){ .input = t[INPUT].data,
                                                         .state = t[STATE].data,
                                                         .gradient_scales = t[GRADIENT_SCALES].data });
}

/* Counts, verdicts and the loss scale must be the reference's; a computed number may end otherwise.  Of a double the lower
 * word is the end. */
static bool accepts_near(const HsTrial *trial, int operand, int64_t element, double value)
{
    const int32_t expected = ((const int32_t *)trial->operands[operand].exact.data)[element];
    const size_t at = (size_t)element * sizeof(int32_t);
    static const size_t of_state[] = { offsetof(HsStepState, counters.largest_rate),
                                       offsetof(HsStepState, counters.rate_squares) };
    static const size_t of_outcome[] = { offsetof(HsStepOutcome, gradient_norm),
                                         offsetof(HsStepOutcome, clip_coefficient),
                                         offsetof(HsStepOutcome, learning_rate),
                                         offsetof(HsStepOutcome, state.counters.largest_rate),
                                         offsetof(HsStepOutcome, state.counters.rate_squares) };
    const size_t *const places = operand == STATE ? of_state : of_outcome;
    const size_t count = operand == STATE ? HS_COUNT_OF(of_state) : operand == OUTCOME ? HS_COUNT_OF(of_outcome) : 0;
    bool computed = operand == SCALARS && at < offsetof(HsStepScalars, skip);
    for (size_t i = 0; i < count; i++)
        computed = computed || at == places[i];
    return computed && fabs(value - (double)expected) <= WORDS_APART;
}

static const HsCase prepare_timed[] = {
    { HS_F32, HS_F32, HS_F32, .rows = 148 },
};

const HsOpTest hs_op_test_prepare_step = {
    .cases = prepare_cases,
    .case_count = HS_COUNT_OF(prepare_cases),
    .timed = prepare_timed,
    .timed_count = HS_COUNT_OF(prepare_timed),
    .few_bytes = true,
    .declare = declare_prepare,
    .prepare = prepare_records,
    .call = call_prepare,
    .accepts = accepts_near,
};

/* One quotient. */
static void bound_begin(HsTrial *trial)
{
    for (int64_t i = 0; i < 2; i++)
        trial->operands[GRADIENT_SCALES].error[i] =
            hs_gamma(1) * (double)((const float *)trial->operands[GRADIENT_SCALES].exact.data)[i];
}

static const HsCase begin_timed[] = {
    { HS_F32, HS_F32, HS_F32, .rows = 1 },
};

const HsOpTest hs_op_test_begin_step = {
    .cases = begin_cases,
    .case_count = HS_COUNT_OF(begin_cases),
    .timed = begin_timed,
    .timed_count = HS_COUNT_OF(begin_timed),
    .few_bytes = true,
    .declare = declare_begin,
    .prepare = prepare_records,
    .bound = bound_begin,
    .call = call_begin,
};
