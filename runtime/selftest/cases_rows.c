/* SPDX-License-Identifier: MIT
 *
 * Cases of rows that are gathered and scattered: every bit is where it belongs.
 */
#include "runtime/selftest/bounds.h"

/* rows: those that are named; columns; depth: how many rows more the other matrix has */
#define ROWS(n, c, m)                                                                                       \
    { HS_F32, HS_F32, HS_F32, n, c, m, .options = 0 }, { HS_BF16, HS_BF16, HS_F32, n, c, m, .options = 0 }, \
        { HS_F16, HS_F16, HS_F32, n, c, m, .options = HS_CASE_UNALIGNED },                                  \
    {                                                                                                       \
        HS_I32, HS_I32, HS_F32, n, c, m, .options = 0                                                       \
    }
static const HsCase rows_cases[] = { ROWS(1, 1, 0),    ROWS(3, 2, 4),      ROWS(17, 16, 0),   ROWS(64, 33, 1),
                                     ROWS(9, 768, 30), ROWS(40, 1100, 50), ROWS(500, 1, 500), ROWS(3, 5003, 2) };

static const HsCase rows_timed[] = {
    { HS_BF16, HS_BF16, HS_F32, 1024, 768, 3072, .options = 0 },
};

enum { X, LIST, Y };

static int64_t other_rows(const HsCase *config)
{
    return config->rows + config->depth;
}

static HsTrialOperand values_of(const char *name, HsRole role, const HsCase *config, int64_t rows)
{
    HsTrialOperand operand = hs_input(name, 1.0, hs_tensor_2d(NULL, config->dtype, rows, config->columns));
    operand.role = role;
    if (config->dtype == HS_I32) {
        operand.fill = HS_FILL_INDEX;
        operand.scale = 1e6;
    }
    operand.exact_bits = role != HS_ROLE_INPUT;
    return operand;
}

static HsTrialOperand list_of(const HsCase *config)
{
    return hs_filled(hs_input("rows", (double)other_rows(config), hs_tensor_1d(NULL, HS_I32, config->rows)),
                     HS_FILL_TARGET);
}

static void declare_gather(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[X] = values_of("x", HS_ROLE_INPUT, config, other_rows(config));
    trial->operands[LIST] = list_of(config);
    trial->operands[Y] = values_of("y", HS_ROLE_OUTPUT, config, config->rows);
}

static void declare_scatter(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[X] = values_of("x", HS_ROLE_INPUT, config, config->rows);
    trial->operands[LIST] = list_of(config);
    trial->operands[Y] = values_of("y", HS_ROLE_BOTH, config, other_rows(config));
}

/* Each row once, from the last to the first; some are none. */
static HsStatus name_once(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    int32_t *rows = trial->operands[LIST].image;
    for (int64_t n = 0; n < trial->config->rows; n++)
        rows[n] = rows[n] < 0 ? -1 : (int32_t)(other_rows(trial->config) - 1 - n);
    return HS_OK;
}

static HsMoveRowsArgs args_of(const HsTensor *t)
{
    return (HsMoveRowsArgs){ .x = t[X], .rows = t[LIST], .y = t[Y] };
}

static HsStatus call_gather(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    const HsMoveRowsArgs args = args_of(t);
    return hs_op_gather_rows(context, &args);
}

static HsStatus call_scatter(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    const HsMoveRowsArgs args = args_of(t);
    return hs_op_scatter_rows(context, &args);
}

static double bytes_of_move(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const HsCase *config = trial->config;
    const double row = (double)config->columns * (double)hs_dtype_bytes(config->dtype);
    return (double)config->rows * (2.0 * row + sizeof(int32_t));
}

const HsOpTest hs_op_test_gather_rows = {
    .cases = rows_cases,
    .case_count = HS_COUNT_OF(rows_cases),
    .timed = rows_timed,
    .timed_count = HS_COUNT_OF(rows_timed),
    .declare = declare_gather,
    .call = call_gather,
    .bytes = bytes_of_move,
};

const HsOpTest hs_op_test_scatter_rows = {
    .cases = rows_cases,
    .case_count = HS_COUNT_OF(rows_cases),
    .timed = rows_timed,
    .timed_count = HS_COUNT_OF(rows_timed),
    .declare = declare_scatter,
    .prepare = name_once,
    .call = call_scatter,
    .bytes = bytes_of_move,
};
