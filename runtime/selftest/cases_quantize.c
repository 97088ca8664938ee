/* SPDX-License-Identifier: MIT
 *
 * Cases of casts below 16 bits and of their scales: codes, scales and counts are the reference's, bit for bit.
 */
#include <math.h>

#include "runtime/selftest/coded.h"

enum { X, ALONG, ALONG_SCALES, ACROSS, ACROSS_SCALES, SCALING, TURNED_SCALING, AMAX };

/* What options mean here. */
enum {
    IS_ALONG = HS_CASE_TRANSPOSE_B,
    IS_ACROSS = HS_CASE_TRANSPOSE_A,
    IN_SQUARES = HS_CASE_LAYER,
    ROTATED = HS_CASE_INVERSE,
    RECORDED = HS_CASE_ACCUMULATE,
    POWER_OF_TWO = HS_CASE_SCALE,
    KEPT = HS_CASE_MOMENTUM,
    LATEST = HS_CASE_NESTEROV,
    FOUND = HS_CASE_MERGE,
    BOTH = IS_ALONG | IS_ACROSS
};

#define CAST(type, m, n, format, scale, more)                                                       \
    {                                                                                               \
        type, type, type, m, n, 0, .start = 5, .policy = { format, format, scale }, .options = more \
    }
#define TENSOR(m, n)                                                                                \
    CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED),                                 \
        CAST(HS_BF16, m, n, HS_E5M2, HS_SCALE_TENSOR, BOTH | RECORDED),                             \
        CAST(HS_F32, m, n, HS_E4M3, HS_SCALE_TENSOR, IS_ALONG | POWER_OF_TWO),                      \
        CAST(HS_F16, m, n, HS_E5M2, HS_SCALE_TENSOR, IS_ACROSS | RECORDED),                         \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED | KEPT),                      \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, IS_ACROSS | LATEST),                          \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED | HS_CASE_NONFINITE),         \
        CAST(HS_BF16, m, n, HS_E5M2, HS_SCALE_TENSOR, BOTH | RECORDED | HS_CASE_STOCHASTIC),        \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED | FOUND),                     \
        CAST(HS_F16, m, n, HS_E5M2, HS_SCALE_TENSOR, IS_ACROSS | FOUND | POWER_OF_TWO),             \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED | FOUND | HS_CASE_NONFINITE), \
        CAST(HS_BF16, m, n, HS_E4M3, HS_SCALE_TENSOR, IS_ALONG | RECORDED | HS_CASE_UNALIGNED)
#define BLOCKS(m, n, scale)                                                                         \
    CAST(HS_BF16, m, n, HS_E4M3, scale, BOTH | RECORDED), CAST(HS_F32, m, n, HS_E5M2, scale, BOTH), \
        CAST(HS_BF16, m, n, HS_E4M3, scale, BOTH | IN_SQUARES | RECORDED),                          \
        CAST(HS_F16, m, n, HS_E4M3, scale, IS_ACROSS | RECORDED),                                   \
        CAST(HS_BF16, m, n, HS_E4M3, scale, BOTH | RECORDED | HS_CASE_NONFINITE)
#define NV(m, n)                                                                                   \
    CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, BOTH | RECORDED),                                    \
        CAST(HS_F32, m, n, HS_E2M1, HS_SCALE_NV, BOTH | IN_SQUARES),                               \
        CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, BOTH | RECORDED | ROTATED | HS_CASE_STOCHASTIC), \
        CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, IS_ACROSS | ROTATED),                            \
        CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, BOTH | RECORDED | ROTATED | FOUND),              \
        CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, IS_ACROSS | ROTATED | FOUND),                    \
        CAST(HS_F32, m, n, HS_E2M1, HS_SCALE_NV, BOTH | IN_SQUARES | FOUND),                       \
        CAST(HS_BF16, m, n, HS_E2M1, HS_SCALE_NV, BOTH | RECORDED | HS_CASE_NONFINITE)
#define SIZES(m, n) TENSOR(m, n), BLOCKS(m, n, HS_SCALE_BLOCK), BLOCKS(m, n, HS_SCALE_MX), NV(m, n)

static const HsCase quantize_cases[] = {
    SIZES(1, 1), SIZES(3, 17), SIZES(16, 16), SIZES(65, 63), SIZES(64, 136), SIZES(130, 264), SIZES(257, 96),
};

static HsCodes shape_of(const HsTrial *trial, bool across)
{
    const HsCase *config = trial->config;
    const int64_t rows = config->rows, columns = config->columns;
    return (HsCodes){
        config->policy.a, config->policy.granularity, across ? columns : rows, across ? rows : columns, NULL, NULL, NULL
    };
}

static void declare_side(HsTrial *trial, bool across)
{
    const HsCodes codes = shape_of(trial, across);
    const int64_t blocks = codes.rows * hs_codes_blocks(&codes);
    HsTrialOperand *const operands = trial->operands + (across ? ACROSS : ALONG);
    operands[0] =
        hs_output(across ? "across" : "along", hs_tensor_1d(NULL, HS_U8, codes.rows * hs_codes_row_bytes(&codes)));
    if (blocks > 0)
        operands[1] = hs_output(across ? "across's scales" : "along's scales", hs_tensor_1d(NULL, HS_U8, blocks));
}

static void declare(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *const operands = trial->operands;
    operands[X] =
        hs_input("x", config->rows % 2 ? 1.0 : 3e-4, hs_tensor_2d(NULL, config->dtype, config->rows, config->columns));
    operands[X].as_is = true;
    if (hs_case_has(trial, HS_CASE_NONFINITE))
        operands[X].fill = HS_FILL_BROKEN;
    if (hs_case_has(trial, IS_ALONG))
        declare_side(trial, false);
    if (hs_case_has(trial, IS_ACROSS))
        declare_side(trial, true);
    if (hs_case_has(trial, FOUND)) {
        operands[AMAX] = hs_filled(hs_input("amax", 1.0, hs_tensor_1d(NULL, HS_F32, 1)), HS_FILL_ZERO);
        operands[AMAX].as_is = true;
    }
    for (int i = SCALING; i <= TURNED_SCALING; i++) {
        operands[i] = hs_filled(hs_updated("scaling", 0.0, hs_tensor_1d(NULL, HS_U8, sizeof(HsScaling))), HS_FILL_ZERO);
        operands[i].parameter = true;
    }
}

/* Records that something was kept in. */
static HsStatus prepare(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (hs_case_has(trial, FOUND))
        *(float *)trial->operands[AMAX].image =
            hs_largest_magnitude(&trial->operands[X].tensor, trial->operands[X].image, 0.0f);
    for (int i = SCALING; i <= TURNED_SCALING; i++)
        *(HsScaling *)trial->operands[i].image = hs_case_scaling(300.0f);
    return HS_OK;
}

static HsCodes side_of(const HsTrial *trial, const HsTensor *t, bool across)
{
    HsCodes codes = shape_of(trial, across);
    const int at = across ? ACROSS : ALONG;
    codes.data = t[at].data;
    codes.block_scales = t[at + 1].data;
    codes.scaling = t[across && hs_case_has(trial, ROTATED) ? TURNED_SCALING : SCALING].data;
    return codes;
}

static HsStatus call(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    HsQuantizeArgs args = {
        .x = t[X],
        .squares = hs_case_has(trial, IN_SQUARES),
        .source = hs_case_has(trial, KEPT)     ? HS_SCALE_KEPT
                  : hs_case_has(trial, LATEST) ? HS_SCALE_LATEST
                                               : HS_SCALE_OWN,
        .power_of_two = hs_case_has(trial, POWER_OF_TWO),
        .records = hs_case_has(trial, RECORDED),
        .rotates = hs_case_has(trial, ROTATED),
        .stochastic = hs_case_has(trial, HS_CASE_STOCHASTIC),
        .rng = { .seed = trial->seed, .step = 2, .site = 9, .row_offset = trial->config->start },
    };
    args.x.amax = t[AMAX].data;
    if (hs_case_has(trial, IS_ALONG))
        args.along = side_of(trial, t, false);
    if (hs_case_has(trial, IS_ACROSS))
        args.across = side_of(trial, t, true);
    return hs_op_quantize(context, &args);
}

/* Scales that the call makes itself need the numbers read once before. */
static double bytes(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const HsScaleGranularity scale = trial->config->policy.granularity;
    const bool found = hs_case_has(trial, FOUND) && !hs_case_has(trial, ROTATED);
    const bool twice = hs_scale_is_of_tensor(scale) && !hs_case_has(trial, KEPT | LATEST) && !found;
    return hs_trial_bytes(trial) + (twice ? hs_operand_bytes(&trial->operands[X]) : 0.0);
}

static const HsCase quantize_timed[] = {
    CAST(HS_BF16, 4096, 768, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED),
    CAST(HS_BF16, 4096, 3072, HS_E5M2, HS_SCALE_TENSOR, BOTH | RECORDED | KEPT),
    CAST(HS_BF16, 4096, 3072, HS_E4M3, HS_SCALE_TENSOR, BOTH | RECORDED | FOUND),
    CAST(HS_BF16, 4096, 3072, HS_E4M3, HS_SCALE_BLOCK, BOTH | RECORDED),
    CAST(HS_BF16, 4096, 3072, HS_E4M3, HS_SCALE_MX, BOTH | RECORDED),
    CAST(HS_BF16, 4096, 3072, HS_E2M1, HS_SCALE_NV, BOTH | RECORDED),
};

const HsOpTest hs_op_test_quantize = {
    .cases = quantize_cases,
    .case_count = HS_COUNT_OF(quantize_cases),
    .timed = quantize_timed,
    .timed_count = HS_COUNT_OF(quantize_timed),
    .declare = declare,
    .prepare = prepare,
    .bytes = bytes,
    .call = call,
};

/* --- from step to step --- */

enum { SCALINGS, REPORT, HISTORY, MAXIMA };
enum { HAS_HISTORY = HS_CASE_MOMENTUM, NEWEST = HS_CASE_NESTEROV, AGREED = HS_CASE_MERGE, GATHERS = HS_CASE_SKIP };

/* rows: scalings; columns: entries of a history; alpha: the margin */
#define ROLL(n, length, more)                                                \
    {                                                                        \
        HS_F32, HS_F32, HS_F32, n, length, 0, .alpha = 1.0f, .options = more \
    }

static const HsCase roll_cases[] = {
    ROLL(1, 1, HAS_HISTORY),
    ROLL(1, 1, 0),
    ROLL(7, 3, HAS_HISTORY),
    ROLL(7, 3, HAS_HISTORY | NEWEST),
    ROLL(48, 1024, HAS_HISTORY),
    ROLL(5, 40, HAS_HISTORY),
    ROLL(48, 40, HAS_HISTORY | AGREED),
    ROLL(300, 3, AGREED | GATHERS),
};

static void declare_roll(HsTrial *trial)
{
    const int64_t count = trial->config->rows, words = count * (int64_t)(sizeof(HsScaling) / sizeof(int32_t));
    trial->operands[SCALINGS] = hs_filled(hs_updated("scalings", 0.0, hs_tensor_1d(NULL, HS_I32, words)), HS_FILL_ZERO);
    if (hs_case_has(trial, AGREED)) {
        trial->operands[MAXIMA] =
            hs_filled(hs_updated("maxima", 2.0, hs_tensor_1d(NULL, HS_F32, count)), HS_FILL_POSITIVE);
        trial->operands[MAXIMA].as_is = true;
    }
    if (hs_case_has(trial, GATHERS))
        return;
    trial->operands[REPORT] = hs_output("report", hs_tensor_1d(NULL, HS_I32, words));
    if (!hs_case_has(trial, HAS_HISTORY))
        return;
    trial->operands[HISTORY] = hs_filled(
        hs_updated("history", 3.0, hs_tensor_2d(NULL, HS_F32, count, trial->config->columns)), HS_FILL_POSITIVE);
    trial->operands[HISTORY].as_is = true;
}

/* Some were not used in this step, some met what is not finite; histories are filled to different lengths. */
static HsStatus prepare_roll(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    HsScaling *const scalings = trial->operands[SCALINGS].image;
    for (int64_t i = 0; i < trial->config->rows; i++)
        scalings[i] = (HsScaling){ .scale = 2.0f,
                                   .inverse = 0.5f,
                                   .kept = 3.0f,
                                   .largest = i % 2 ? 448.0f : 57344.0f,
                                   .amax = i % 5 == 3   ? 0.0f
                                           : i % 5 == 4 ? INFINITY
                                                        : 0.5f + (float)(i * 37 % 11),
                                   .recorded = (uint32_t)(i * 29 % 60),
                                   .elements = (uint64_t)i,
                                   .saturated = 1,
                                   .zeroed = 2 };
    float *const maxima = trial->operands[MAXIMA].image;
    for (int64_t i = 0; i < trial->config->rows && hs_case_has(trial, AGREED); i++)
        maxima[i] = i % 7 == 6 ? INFINITY : i % 7 == 5 ? 0.0f : maxima[i];
    return HS_OK;
}

static HsStatus call_roll(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_roll_scales(context, &(HsRollScalesArgs){ .scalings = t[SCALINGS].data,
                                                           .report = t[REPORT].data,
                                                           .count = trial->config->rows,
                                                           .history = t[HISTORY],
                                                           .maxima = t[MAXIMA],
                                                           .gathers = hs_case_has(trial, GATHERS),
                                                           .most_recent = hs_case_has(trial, NEWEST),
                                                           .margin = trial->config->alpha });
}

static const HsCase roll_timed[] = { ROLL(144, 1024, HAS_HISTORY) };

const HsOpTest hs_op_test_roll_scales = {
    .cases = roll_cases,
    .case_count = HS_COUNT_OF(roll_cases),
    .timed = roll_timed,
    .timed_count = HS_COUNT_OF(roll_timed),
    .few_bytes = true,
    .declare = declare_roll,
    .prepare = prepare_roll,
    .call = call_roll,
};
