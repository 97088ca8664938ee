/* SPDX-License-Identifier: MIT
 *
 * Cases of the operations on single elements: gates and dropout.
 */
#include "runtime/selftest/bounds.h"

/* rows, columns; dtype -> out, the gradient's dtype in `other` */
#define GATED(n, c, function)                                                                                          \
    { HS_F32, HS_F32, HS_F32, n, c, .epilogue = function }, { HS_BF16, HS_BF16, HS_BF16, n, c, .epilogue = function }, \
        { HS_F16, HS_F16, HS_F16, n, c, .epilogue = function },                                                        \
        { HS_F32, HS_BF16, HS_BF16, n, c, .epilogue = function },                                                      \
    {                                                                                                                  \
        HS_BF16, HS_F32, HS_F32, n, c, .epilogue = function                                                            \
    }
#define GATED_SIZES(function)                                                                                 \
    GATED(1, 1, function), GATED(2, 3, function), GATED(7, 17, function), GATED(17, 63, function),            \
        GATED(64, 64, function), GATED(65, 127, function), GATED(3, 129, function), GATED(128, 33, function), \
        GATED(2, 8, function), GATED(9, 20, function), GATED(5, 1032, function), GATED(3, 2731, function)

static const HsCase gated_cases[] = { GATED_SIZES(HS_EPILOGUE_SWIGLU), GATED_SIZES(HS_EPILOGUE_GEGLU) };

static HsTensor matrix(const HsTrial *trial, HsDtype dtype, int64_t widths)
{
    return hs_tensor_2d(NULL, dtype, trial->config->rows, widths * trial->config->columns);
}

static int64_t element_count(const HsTrial *trial)
{
    return trial->config->rows * trial->config->columns;
}

enum { X, Y };

static const HsCase swiglu_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, 4096, 2048, .epilogue = HS_EPILOGUE_SWIGLU },
    { HS_F32, HS_F32, HS_F32, 4096, 2048, .epilogue = HS_EPILOGUE_SWIGLU },
    { HS_F16, HS_F16, HS_F16, 4096, 2048, .epilogue = HS_EPILOGUE_SWIGLU },
};

static HsActivation gate_of(const HsTrial *trial)
{
    return hs_epilogue_activation(trial->config->epilogue);
}

static void declare_swiglu(HsTrial *trial)
{
    trial->operands[X] = hs_input("x", 2.0, matrix(trial, trial->config->dtype, 2));
    trial->operands[Y] = hs_output("y", matrix(trial, trial->config->out, 1));
    hs_trial_ask_amax(trial, Y);
}

static HsStatus call_swiglu(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_swiglu_forward(context, &(HsUnaryArgs){ gate_of(trial), t[X], t[Y] });
}

static void bound_swiglu(HsTrial *trial)
{
    const int64_t width = trial->config->columns;
    for (int64_t i = 0; i < element_count(trial); i++) {
        const int64_t gate_at = i / width * 2 * width + i % width;
        const double gate = fabs(hs_initial(trial, X)[gate_at]), up = fabs(hs_initial(trial, X)[gate_at + width]);
        trial->operands[Y].error[i] = hs_bound_gated(gate_of(trial), gate, 0.0, up, 0.0, fabs(hs_exact(trial, Y)[i]));
    }
}

const HsOpTest hs_op_test_swiglu_forward = {
    .cases = gated_cases,
    .case_count = HS_COUNT_OF(gated_cases),
    .timed = swiglu_timed,
    .timed_count = HS_COUNT_OF(swiglu_timed),
    .declare = declare_swiglu,
    .bound = bound_swiglu,
    .call = call_swiglu,
};

enum { B_DY, B_X, B_DX };

static void declare_swiglu_backward(HsTrial *trial)
{
    trial->operands[B_DY] = hs_input("dy", 1.0, matrix(trial, trial->config->other, 1));
    trial->operands[B_X] = hs_input("x", 2.0, matrix(trial, trial->config->dtype, 2));
    trial->operands[B_DX] = hs_output("dx", matrix(trial, trial->config->out, 2));
    hs_trial_ask_amax(trial, B_DX);
}

static void bound_swiglu_backward(HsTrial *trial)
{
    const int64_t width = trial->config->columns;
    for (int64_t i = 0; i < element_count(trial); i++) {
        const int64_t gate_at = i / width * 2 * width + i % width, up_at = gate_at + width;
        const HsGateBound bound = hs_bound_gate(gate_of(trial), hs_initial(trial, B_X)[gate_at]);
        const double up = fabs(hs_initial(trial, B_X)[up_at]), dy = fabs(hs_initial(trial, B_DY)[i]);
        trial->operands[B_DX].error[gate_at] = dy * up * bound.slope_error;
        trial->operands[B_DX].error[up_at] = dy * bound.value_error;
    }
}

static HsStatus call_swiglu_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_swiglu_backward(context, &(HsUnaryBackwardArgs){ gate_of(trial), t[B_DY], t[B_X], t[B_DX] });
}

const HsOpTest hs_op_test_swiglu_backward = {
    .cases = gated_cases,
    .case_count = HS_COUNT_OF(gated_cases),
    .timed = swiglu_timed,
    .timed_count = HS_COUNT_OF(swiglu_timed),
    .declare = declare_swiglu_backward,
    .bound = bound_swiglu_backward,
    .call = call_swiglu_backward,
};

/* dropout: x in dtype, residual in other, y in out */
#define DROPOUT(n, c, p)                                                                                           \
    { HS_F32, HS_F32, HS_F32, n, c, .dropout = p }, { HS_BF16, HS_BF16, HS_BF16, n, c, .dropout = p, .start = 3 }, \
        { HS_F16, HS_F16, HS_F16, n, c, .dropout = p },                                                            \
    {                                                                                                              \
        HS_F32, HS_F32, HS_F32, n, c, .dropout = p, .options = HS_CASE_IN_PLACE                                    \
    }

#define WITH_RESIDUAL(n, c, p)                                                                \
    { HS_BF16, HS_F32, HS_F32, n, c, .dropout = p, .start = 5, .options = HS_CASE_RESIDUAL }, \
        { HS_F16, HS_F32, HS_F32, n, c, .dropout = p, .options = HS_CASE_RESIDUAL },          \
        { HS_BF16, HS_BF16, HS_BF16, n, c, .dropout = p, .options = HS_CASE_RESIDUAL },       \
    {                                                                                         \
        HS_F32, HS_F32, HS_F32, n, c, .dropout = p, .options = HS_CASE_RESIDUAL               \
    }

#define DROPOUT_SIZES(ROW)                                                                                        \
    ROW(1, 1, 0.5f), ROW(2, 3, 0.1f), ROW(7, 17, 0.9f), ROW(17, 63, 0.2f), ROW(64, 64, 0.1f), ROW(65, 129, 0.3f), \
        ROW(3, 65, 0.0f), ROW(5, 1031, 0.4f), ROW(9, 1000, 0.1f)

static const HsCase dropout_cases[] = { DROPOUT_SIZES(DROPOUT), DROPOUT_SIZES(WITH_RESIDUAL) };
static const HsCase dropout_backward_cases[] = { DROPOUT_SIZES(DROPOUT) };

enum { D_X, D_RESIDUAL, D_Y };

static int dropout_output(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_IN_PLACE) ? D_X : D_Y;
}

static void declare_dropout(HsTrial *trial)
{
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    const HsTensor x = matrix(trial, trial->config->dtype, 1);
    trial->operands[D_X] = in_place ? hs_updated("x", 1.0, x) : hs_input("x", 1.0, x);
    if (hs_case_has(trial, HS_CASE_RESIDUAL))
        trial->operands[D_RESIDUAL] = hs_input("residual", 1.0, matrix(trial, trial->config->other, 1));
    if (!in_place)
        trial->operands[D_Y] = hs_output("y", matrix(trial, trial->config->out, 1));
    hs_trial_ask_amax(trial, dropout_output(trial));
}

static HsDropoutArgs dropout_args(const HsTrial *trial, const HsTensor *t)
{
    return (HsDropoutArgs){ .probability = trial->config->dropout,
                            .rng = { trial->seed, 11, 5, trial->config->start, NULL },
                            .x = t[D_X],
                            .residual = t[D_RESIDUAL],
                            .y = t[dropout_output(trial)] };
}

static HsStatus call_dropout(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsDropoutArgs args = dropout_args(trial, t);
    return hs_op_dropout_forward(context, &args);
}

static HsStatus call_dropout_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const HsDropoutArgs args = dropout_args(trial, t);
    return hs_op_dropout_backward(context, &args);
}

/* 1 - p, its reciprocal, the product, the addition.  A wrong mask is off by whole elements. */
static void bound_dropout(HsTrial *trial)
{
    const double factor = 1.0 / (1.0 - (double)trial->config->dropout);
    for (int64_t i = 0; i < element_count(trial); i++) {
        double magnitude = factor * fabs(hs_initial(trial, D_X)[i]);
        if (hs_operand_present(trial, D_RESIDUAL))
            magnitude += fabs(hs_initial(trial, D_RESIDUAL)[i]);
        trial->operands[dropout_output(trial)].error[i] = hs_gamma(4) * magnitude;
    }
}

static const HsCase dropout_timed[] = {
    { HS_BF16, HS_F32, HS_F32, 4096, 768, .dropout = 0.1f, .options = HS_CASE_RESIDUAL },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .dropout = 0.1f, .options = HS_CASE_RESIDUAL },
    { HS_F16, HS_F32, HS_F32, 4096, 768, .dropout = 0.1f, .options = HS_CASE_RESIDUAL },
};

const HsOpTest hs_op_test_dropout_forward = {
    .cases = dropout_cases,
    .case_count = HS_COUNT_OF(dropout_cases),
    .timed = dropout_timed,
    .timed_count = HS_COUNT_OF(dropout_timed),
    .declare = declare_dropout,
    .bound = bound_dropout,
    .call = call_dropout,
};

static const HsCase dropout_backward_timed[] = {
    { HS_F32, HS_BF16, HS_BF16, 4096, 768, .dropout = 0.1f },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .dropout = 0.1f },
    { HS_F16, HS_F16, HS_F16, 4096, 768, .dropout = 0.1f },
};

const HsOpTest hs_op_test_dropout_backward = {
    .cases = dropout_backward_cases,
    .case_count = HS_COUNT_OF(dropout_backward_cases),
    .timed = dropout_backward_timed,
    .timed_count = HS_COUNT_OF(dropout_backward_timed),
    .declare = declare_dropout,
    .bound = bound_dropout,
    .call = call_dropout_backward,
};
