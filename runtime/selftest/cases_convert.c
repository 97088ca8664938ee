/* SPDX-License-Identifier: MIT
 *
 * Cases of conversion, which must match the reference bit for bit.
 */
#include "runtime/selftest/trial.h"

#define PAIRS(n)                                                                                          \
    { HS_F32, HS_BF16, HS_F32, 1, n, .options = 0 }, { HS_F32, HS_F16, HS_F32, 1, n, .options = 0 },      \
        { HS_BF16, HS_F32, HS_F32, 1, n, .options = 0 }, { HS_F16, HS_F32, HS_F32, 1, n, .options = 0 },  \
        { HS_BF16, HS_F16, HS_F32, 1, n, .options = 0 }, { HS_F16, HS_BF16, HS_F32, 1, n, .options = 0 }, \
        { HS_F32, HS_F32, HS_F32, 1, n, .options = 0 }, { HS_BF16, HS_BF16, HS_F32, 1, n, .options = 0 }, \
    {                                                                                                     \
        HS_F16, HS_F16, HS_F32, 1, n, .options = 0                                                        \
    }

#define STOCHASTIC(n)                                                \
    {                                                                \
        HS_F32, HS_BF16, HS_F32, 1, n, .options = HS_CASE_STOCHASTIC \
    }

static const HsCase convert_cases[] = {
    PAIRS(1),      PAIRS(2),      PAIRS(3),       PAIRS(7),         PAIRS(17),   PAIRS(63),
    PAIRS(64),     PAIRS(65),     PAIRS(127),     PAIRS(129),       PAIRS(1025), PAIRS(5000),
    STOCHASTIC(1), STOCHASTIC(7), STOCHASTIC(65), STOCHASTIC(5000), PAIRS(4103), STOCHASTIC(4099),
};

enum { X, Y };

/* The dtypes stay as they are for the reference too: its own rounding is the specification.  The scale makes f16 reach
 * subnormals, and some elements infinity. */
static void declare_convert(HsTrial *trial)
{
    const int64_t count = trial->config->columns;
    trial->operands[X] = hs_input("x", count % 2 ? 1e-5 : 3e4, hs_tensor_1d(NULL, trial->config->dtype, count));
    trial->operands[Y] = hs_output("y", hs_tensor_1d(NULL, trial->config->out, count));
    trial->operands[X].as_is = trial->operands[Y].as_is = true;
    trial->operands[Y].exact_bits = true;
}

static HsStatus call_convert(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_convert(context, &(HsConvertArgs){ .x = t[X],
                                                    .y = t[Y],
                                                    .stochastic = hs_case_has(trial, HS_CASE_STOCHASTIC),
                                                    .rng = { .seed = trial->seed, .step = 3, .site = 1 } });
}

static const HsCase convert_timed[] = {
    { HS_F32, HS_BF16, HS_F32, 1, 4096 * 768, .options = 0 },
    { HS_F32, HS_F16, HS_F32, 1, 4096 * 768, .options = 0 },
    { HS_BF16, HS_F32, HS_F32, 1, 4096 * 768, .options = 0 },
};

const HsOpTest hs_op_test_convert = {
    .cases = convert_cases,
    .case_count = HS_COUNT_OF(convert_cases),
    .timed = convert_timed,
    .timed_count = HS_COUNT_OF(convert_timed),
    .declare = declare_convert,
    .call = call_convert,
};
