/* SPDX-License-Identifier: MIT
 *
 * Cases of gates from the first features of a row, and of values of tokens that are added to those of attention.
 */
#include "kernels/checks/checks.h"
#include "runtime/selftest/trial.h"

#include <math.h>

/* gate: rows N, columns C, depth K, heads G; alpha: the factor; x in dtype, w in other */
#define GATED(in, result, weight, n, c, k, g, times, ...)                                 \
    {                                                                                     \
        in, result, weight, n, c, k, .heads = { .heads = g }, .alpha = times, __VA_ARGS__ \
    }
#define GATE(n, c, k, g)                                               \
    GATED(HS_F32, HS_F32, HS_F32, n, c, k, g, 2, .options = 0),        \
        GATED(HS_BF16, HS_F32, HS_BF16, n, c, k, g, 2, .options = 0),  \
        GATED(HS_F16, HS_F32, HS_F16, n, c, k, g, 1, .options = 0),    \
        GATED(HS_BF16, HS_F32, HS_F32, n, c, k, g, 3, .options = 0),   \
        GATED(HS_F32, HS_F32, HS_F16, n, c, k, g, 0.3f, .options = 0), \
        GATED(HS_BF16, HS_F32, HS_BF16, n, c, k, g, 1, .options = HS_CASE_UNALIGNED)

/* Fewer and more gates and features than a warp has lanes, than a vector has, than a block has threads. */
#define GATE_SIZES(ROW)                                                                           \
    ROW(1, 1, 1, 1), ROW(3, 5, 2, 3), ROW(17, 24, 24, 1), ROW(65, 96, 12, 6), ROW(40, 64, 32, 4), \
        ROW(33, 130, 33, 33), ROW(70, 80, 64, 32), ROW(18, 300, 100, 70), ROW(300, 17, 16, 2)

static const HsCase gate_cases[] = { GATE_SIZES(GATE) };

static HsTensor rows_of(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_2d(NULL, dtype, trial->config->rows, trial->config->columns);
}

static HsTensor weight_of(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_2d(NULL, dtype, trial->config->heads.heads, trial->config->depth);
}

static HsTensor gates_of(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, HS_F32, trial->config->rows, trial->config->heads.heads);
}

/* The first features of all rows. */
static double bytes_of_features(const HsTrial *trial, HsDtype dtype)
{
    return (double)trial->config->rows * (double)trial->config->depth * (double)hs_dtype_bytes(dtype);
}

enum { X, W, GATES };

static void declare_gate(HsTrial *trial)
{
    trial->operands[X] = hs_input("x", 1.0, rows_of(trial, trial->config->dtype));
    trial->operands[W] = hs_input("w", 0.5, weight_of(trial, trial->config->other));
    trial->operands[GATES] = hs_output("gate", gates_of(trial));
}

static HsStatus call_gate(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_gate_forward(context,
                              &(HsGateArgs){ .factor = trial->config->alpha, .x = t[X], .w = t[W], .gate = t[GATES] });
}

/* The logit is a sum of K products, off by e.  With s = 1 / (1 + exp(-z)), s (1 - s) is larger by exp(e) at most
 * within e of z: s moves by s (1 - s) e exp(e).  Next to the exponential, the sum rounds once, a reciprocal is off by
 * 3 roundings (kernels/base/tolerance.h), and the products with it and with the factor round. */
static void bound_gate(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t features = config->depth, heads = config->heads.heads;
    const double factor = (double)config->alpha;
    for (int64_t i = 0; i < config->rows * heads; i++) {
        const double *x = hs_initial(trial, X) + i / heads * config->columns;
        const double *w = hs_initial(trial, W) + i % heads * features;
        double size = 0.0;
        for (int64_t k = 0; k < features; k++)
            size += fabs(x[k] * w[k]);
        const double off = hs_gamma(features) * size, s = hs_exact(trial, GATES)[i] / factor;
        const double passed = s * (1.0 - s) * off * exp(off);
        trial->operands[GATES].error[i] = factor * (passed + hs_gamma(HS_FUNCTION_ROUNDINGS + 6) * (s + passed));
    }
}

static double bytes_gate(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    return bytes_of_features(trial, trial->config->dtype) + hs_operand_bytes(&trial->operands[W]) +
           hs_operand_bytes(&trial->operands[GATES]);
}

static const HsCase gate_timed[] = {
    GATED(HS_BF16, HS_F32, HS_BF16, 4096, 768, 32, 6, 2, .options = 0),
    GATED(HS_F32, HS_F32, HS_F32, 4096, 768, 32, 6, 2, .options = 0),
    GATED(HS_F16, HS_F32, HS_F16, 4096, 768, 32, 6, 2, .options = 0),
};

const HsOpTest hs_op_test_gate_forward = {
    .cases = gate_cases,
    .case_count = HS_COUNT_OF(gate_cases),
    .timed = gate_timed,
    .timed_count = HS_COUNT_OF(gate_timed),
    .few_bytes = true,
    .bytes = bytes_gate,
    .declare = declare_gate,
    .bound = bound_gate,
    .call = call_gate,
};

/* gate_backward: dx in out; gradient: dx is wanted, accumulate: it adds; sums: dw is wanted, like w, or with `master`
 * in f32. */
#define GATE_BACKWARD(n, c, k, g)                                                                                      \
    GATED(HS_F32, HS_F32, HS_F32, n, c, k, g, 2, .sums = true, .options = HS_CASE_GRADIENT),                           \
        GATED(HS_BF16, HS_BF16, HS_BF16, n, c, k, g, 2, .sums = true,                                                  \
              .options = HS_CASE_GRADIENT | HS_CASE_ACCUMULATE),                                                       \
        GATED(HS_F16, HS_F16, HS_F16, n, c, k, g, 1, .sums = true, .options = HS_CASE_GRADIENT | HS_CASE_MASTER),      \
        GATED(HS_BF16, HS_F32, HS_F32, n, c, k, g, 3, .sums = true, .options = HS_CASE_GRADIENT | HS_CASE_ACCUMULATE), \
        GATED(HS_F32, HS_BF16, HS_F16, n, c, k, g, 0.3f, .sums = true, .options = HS_CASE_UNALIGNED),                  \
        GATED(HS_BF16, HS_BF16, HS_BF16, n, c, k, g, 1, .options = HS_CASE_GRADIENT),                                  \
        GATED(HS_BF16, HS_F16, HS_BF16, n, c, k, g, 1, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED)

/* The last ones: several tiles of rows. */
static const HsCase gate_backward_cases[] = { GATE_SIZES(GATE_BACKWARD), GATE_BACKWARD(700, 20, 12, 2),
                                              GATE_BACKWARD(8300, 4, 3, 1) };

enum { B_DGATE, B_GATE, B_X, B_W, B_DX, B_DW };

static void declare_gate_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
    const HsTensor dx = rows_of(trial, config->out);
    operands[B_DGATE] = hs_input("dgate", 1.0, gates_of(trial));
    /* between a fifth and nine tenths of the factor */
    operands[B_GATE] = hs_filled(hs_input("gate", 0.45 * (double)config->alpha, gates_of(trial)), HS_FILL_POSITIVE);
    operands[B_W] = hs_input("w", 0.5, weight_of(trial, config->other));
    if (config->sums) {
        operands[B_X] = hs_input("x", 1.0, rows_of(trial, config->dtype));
        operands[B_DW] =
            hs_updated("dw", 1.0, weight_of(trial, hs_case_has(trial, HS_CASE_MASTER) ? HS_F32 : config->other));
    }
    if (hs_case_has(trial, HS_CASE_GRADIENT))
        operands[B_DX] = hs_case_has(trial, HS_CASE_ACCUMULATE) ? hs_updated("dx", 1.0, dx) : hs_output("dx", dx);
}

static HsStatus call_gate_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_gate_backward(context, &(HsGateBackwardArgs){ .factor = trial->config->alpha,
                                                               .dgate = t[B_DGATE],
                                                               .gate = t[B_GATE],
                                                               .x = t[B_X],
                                                               .w = t[B_W],
                                                               .accumulate = hs_case_has(trial, HS_CASE_ACCUMULATE),
                                                               .dx = t[B_DX],
                                                               .dw = t[B_DW] });
}

/* How large da = dgate gate (1 - gate / factor) is with both terms of the difference added, and by how much it is off:
 * the factor's reciprocal and the product with it, the difference, two products. */
typedef struct LogitGradient {
    double size, error;
} LogitGradient;

static LogitGradient logit_gradient(const HsTrial *trial, int64_t at)
{
    const double gate = hs_initial(trial, B_GATE)[at];
    const double size = fabs(hs_initial(trial, B_DGATE)[at]) * gate * (1.0 + gate / (double)trial->config->alpha);
    return (LogitGradient){ size, hs_gamma(5) * size };
}

/* A sum over G gates. */
static void bound_features(HsTrial *trial, int64_t n)
{
    const HsCase *config = trial->config;
    const int64_t features = config->depth, heads = config->heads.heads;
    const bool accumulates = hs_case_has(trial, HS_CASE_ACCUMULATE);
    HsTrialOperand *const dx = &trial->operands[B_DX];
    for (int64_t k = 0; k < features; k++) {
        double size = accumulates ? fabs(dx->initial[n * config->columns + k]) : 0.0, passed = 0.0;
        for (int64_t g = 0; g < heads; g++) {
            const LogitGradient da = logit_gradient(trial, n * heads + g);
            const double w = fabs(hs_initial(trial, B_W)[g * features + k]);
            size += (da.size + da.error) * w;
            passed += da.error * w;
        }
        dx->error[n * config->columns + k] = passed + hs_gamma(heads + 1) * size;
    }
}

/* A sum over N rows. */
static void bound_weight(HsTrial *trial, int64_t g)
{
    const HsCase *config = trial->config;
    const int64_t features = config->depth, heads = config->heads.heads;
    HsTrialOperand *const dw = &trial->operands[B_DW];
    for (int64_t k = 0; k < features; k++) {
        double size = fabs(dw->initial[g * features + k]), passed = 0.0;
        for (int64_t n = 0; n < config->rows; n++) {
            const LogitGradient da = logit_gradient(trial, n * heads + g);
            const double x = fabs(hs_initial(trial, B_X)[n * config->columns + k]);
            size += (da.size + da.error) * x;
            passed += da.error * x;
        }
        dw->error[g * features + k] = passed + hs_gamma(config->rows + 1) * size;
    }
}

static void bound_gate_backward(HsTrial *trial)
{
    for (int64_t n = 0; hs_operand_present(trial, B_DX) && n < trial->config->rows; n++)
        bound_features(trial, n);
    for (int64_t g = 0; hs_operand_present(trial, B_DW) && g < trial->config->heads.heads; g++)
        bound_weight(trial, g);
}

static double bytes_gate_backward(const HsTrial *trial, const HsContext *context)
{
    const HsCase *config = trial->config;
    (void)context;
    double bytes = hs_operand_bytes(&trial->operands[B_DGATE]) + hs_operand_bytes(&trial->operands[B_GATE]) +
                   hs_operand_bytes(&trial->operands[B_W]);
    if (hs_operand_present(trial, B_DW))
        bytes += bytes_of_features(trial, config->dtype) + hs_operand_bytes(&trial->operands[B_DW]);
    if (hs_operand_present(trial, B_DX))
        bytes += hs_case_has(trial, HS_CASE_ACCUMULATE) ? 2.0 * bytes_of_features(trial, config->out)
                                                        : hs_operand_bytes(&trial->operands[B_DX]);
    return bytes;
}

#define TIMED_BACKWARD(type)                                   \
    GATED(type, type, type, 4096, 768, 32, 6, 2, .sums = true, \
          .options = HS_CASE_GRADIENT | HS_CASE_ACCUMULATE | HS_CASE_MASTER)
static const HsCase gate_backward_timed[] = { TIMED_BACKWARD(HS_BF16), TIMED_BACKWARD(HS_F32), TIMED_BACKWARD(HS_F16) };

const HsOpTest hs_op_test_gate_backward = {
    .cases = gate_backward_cases,
    .case_count = HS_COUNT_OF(gate_backward_cases),
    .timed = gate_backward_timed,
    .timed_count = HS_COUNT_OF(gate_backward_timed),
    .few_bytes = true,
    .bytes = bytes_gate_backward,
    .declare = declare_gate_backward,
    .bound = bound_gate_backward,
    .call = call_gate_backward,
};

/* add_values: depth V; then batch, sequence length, heads, kv heads, head dimension.  x and y in dtype, the table in
 * other. */
#define ADD_VALUES(v, ...)                                                                                \
    { HS_F32, HS_F32, HS_F32, .depth = v, .heads = { __VA_ARGS__ } },                                     \
        { HS_BF16, HS_BF16, HS_BF16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_IN_PLACE }, \
        { HS_F16, HS_F16, HS_F16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_IN_PLACE },    \
        { HS_BF16, HS_BF16, HS_BF16, .depth = v, .heads = { __VA_ARGS__ } },                              \
        { HS_BF16, HS_BF16, HS_F32, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_IN_PLACE },  \
    {                                                                                                     \
        HS_F32, HS_F32, HS_BF16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_UNALIGNED       \
    }
#define ADD_VALUES_SIZES(ROW)                                                                                    \
    ROW(1, 1, 1, 1, 1, 1), ROW(5, 2, 3, 4, 2, 8), ROW(30, 1, 17, 6, 3, 16), ROW(3, 3, 7, 3, 1, 63),              \
        ROW(300, 1, 65, 2, 2, 64), ROW(9, 2, 33, 7, 7, 128), ROW(40, 1, 5, 2, 1, 256), ROW(11, 1, 19, 3, 3, 20), \
        ROW(70, 1, 18, 5, 1, 249)

static const HsCase add_values_cases[] = { ADD_VALUES_SIZES(ADD_VALUES) };

static HsTensor projection(const HsTrial *trial, HsDtype dtype)
{
    const HsHeads *heads = &trial->config->heads;
    return hs_tensor_2d(NULL, dtype, hs_heads_rows(heads), hs_heads_columns(heads));
}

static int64_t value_width(const HsTrial *trial)
{
    return trial->config->heads.kv_heads * trial->config->heads.head_dim;
}

/* Where element c of row n's values stands. */
static int64_t value_at(const HsTrial *trial, int64_t n, int64_t c)
{
    return (n + 1) * hs_heads_columns(&trial->config->heads) - value_width(trial) + c;
}

static HsTrialOperand tokens_of(const HsTrial *trial)
{
    return hs_filled(hs_input("tokens", (double)trial->config->depth,
                              hs_tensor_1d(NULL, HS_I32, hs_heads_rows(&trial->config->heads))),
                     HS_FILL_INDEX);
}

static HsTensor table_of(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, trial->config->other, trial->config->depth, value_width(trial));
}

static HsTensor head_gates(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, HS_F32, hs_heads_rows(&trial->config->heads), trial->config->heads.kv_heads);
}

enum { V_TOKENS, V_TABLE, V_GATE, V_X, V_Y };

static int added(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_IN_PLACE) ? V_X : V_Y;
}

static void declare_add_values(HsTrial *trial)
{
    const HsTensor x = projection(trial, trial->config->dtype);
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    trial->operands[V_TOKENS] = tokens_of(trial);
    trial->operands[V_TABLE] = hs_input("table", 1.0, table_of(trial));
    trial->operands[V_GATE] = hs_input("gate", 1.0, head_gates(trial));
    trial->operands[V_X] = in_place ? hs_updated("x", 1.0, x) : hs_input("x", 1.0, x);
    if (!in_place)
        trial->operands[V_Y] = hs_output("y", x);
}

static HsStatus call_add_values(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_add_values_forward(context, &(HsAddValuesArgs){ .heads = trial->config->heads,
                                                                 .tokens = t[V_TOKENS],
                                                                 .table = t[V_TABLE],
                                                                 .gate = t[V_GATE],
                                                                 .x = t[V_X],
                                                                 .y = t[added(trial)] });
}

/* A product and a sum; the other heads are copies. */
static void bound_add_values(HsTrial *trial)
{
    const HsHeads *heads = &trial->config->heads;
    const int32_t *tokens = trial->operands[V_TOKENS].exact.data;
    for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
        const double *values = hs_initial(trial, V_TABLE) + tokens[n] * value_width(trial);
        for (int64_t c = 0; c < value_width(trial); c++) {
            const double gate = hs_initial(trial, V_GATE)[n * heads->kv_heads + c / heads->head_dim];
            const int64_t at = value_at(trial, n, c);
            trial->operands[added(trial)].error[at] =
                hs_gamma(2) * (fabs(hs_initial(trial, V_X)[at]) + fabs(gate * values[c]));
        }
    }
}

/* Value heads of all rows, and the table's rows that tokens may name. */
static double bytes_of_values(const HsTrial *trial, HsDtype dtype)
{
    return (double)hs_heads_rows(&trial->config->heads) * (double)value_width(trial) * (double)hs_dtype_bytes(dtype);
}

static double bytes_of_table(const HsTrial *trial)
{
    const int64_t rows = hs_heads_rows(&trial->config->heads);
    const int64_t named = rows < trial->config->depth ? rows : trial->config->depth;
    return (double)named * (double)value_width(trial) * (double)hs_dtype_bytes(trial->config->other);
}

static double bytes_add_values(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const double moved = hs_case_has(trial, HS_CASE_IN_PLACE)
                             ? 2.0 * bytes_of_values(trial, trial->config->dtype)
                             : hs_operand_bytes(&trial->operands[V_X]) + hs_operand_bytes(&trial->operands[V_Y]);
    return hs_operand_bytes(&trial->operands[V_TOKENS]) + hs_operand_bytes(&trial->operands[V_GATE]) +
           bytes_of_table(trial) + moved;
}

static const HsCase add_values_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
    { HS_F32, HS_F32, HS_F32, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
    { HS_F16, HS_F16, HS_F16, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_IN_PLACE },
};

const HsOpTest hs_op_test_add_values_forward = {
    .cases = add_values_cases,
    .case_count = HS_COUNT_OF(add_values_cases),
    .timed = add_values_timed,
    .timed_count = HS_COUNT_OF(add_values_timed),
    .bytes = bytes_add_values,
    .declare = declare_add_values,
    .bound = bound_add_values,
    .call = call_add_values,
};

/* add_values_backward: dy in dtype, drows in out, the table in other; gradient: drows are wanted. */
#define ADD_VALUES_BACKWARD(v, ...)                                                                                   \
    { HS_F32, HS_F32, HS_F32, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_GRADIENT },                    \
        { HS_BF16, HS_BF16, HS_BF16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_GRADIENT },             \
        { HS_F16, HS_F16, HS_F16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_GRADIENT },                \
        { HS_BF16, HS_F32, HS_BF16, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_GRADIENT },              \
        { HS_BF16, HS_BF16, HS_BF16, .depth = v, .heads = { __VA_ARGS__ }, .options = 0 },                            \
    {                                                                                                                 \
        HS_F16, HS_F16, HS_F32, .depth = v, .heads = { __VA_ARGS__ }, .options = HS_CASE_GRADIENT | HS_CASE_UNALIGNED \
    }

static const HsCase add_values_backward_cases[] = { ADD_VALUES_SIZES(ADD_VALUES_BACKWARD) };

enum { W_TOKENS, W_TABLE, W_GATE, W_DY, W_DROWS, W_DGATE };

static void declare_add_values_backward(HsTrial *trial)
{
    trial->operands[W_TOKENS] = tokens_of(trial);
    trial->operands[W_TABLE] = hs_input("table", 1.0, table_of(trial));
    trial->operands[W_GATE] = hs_input("gate", 1.0, head_gates(trial));
    trial->operands[W_DY] = hs_input("dy", 1.0, projection(trial, trial->config->dtype));
    if (hs_case_has(trial, HS_CASE_GRADIENT))
        trial->operands[W_DROWS] = hs_output(
            "drows", hs_tensor_2d(NULL, trial->config->out, hs_heads_rows(&trial->config->heads), value_width(trial)));
    trial->operands[W_DGATE] = hs_output("dgate", head_gates(trial));
}

static HsStatus call_add_values_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_add_values_backward(context, &(HsAddValuesBackwardArgs){ .heads = trial->config->heads,
                                                                          .tokens = t[W_TOKENS],
                                                                          .table = t[W_TABLE],
                                                                          .gate = t[W_GATE],
                                                                          .dy = t[W_DY],
                                                                          .drows = t[W_DROWS],
                                                                          .dgate = t[W_DGATE] });
}

/* A product; a sum of D products. */
static void bound_add_values_backward(HsTrial *trial)
{
    const HsHeads *heads = &trial->config->heads;
    const int32_t *tokens = trial->operands[W_TOKENS].exact.data;
    for (int64_t n = 0; n < hs_heads_rows(heads); n++) {
        const double *values = hs_initial(trial, W_TABLE) + tokens[n] * value_width(trial);
        for (int64_t c = 0; c < value_width(trial); c++) {
            const int64_t head = n * heads->kv_heads + c / heads->head_dim;
            const double dv = fabs(hs_initial(trial, W_DY)[value_at(trial, n, c)]);
            if (hs_operand_present(trial, W_DROWS))
                trial->operands[W_DROWS].error[n * value_width(trial) + c] =
                    hs_gamma(1) * fabs(hs_initial(trial, W_GATE)[head]) * dv;
            trial->operands[W_DGATE].error[head] += hs_gamma(heads->head_dim) * dv * fabs(values[c]);
        }
    }
}

static double bytes_add_values_backward(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const double drows = hs_operand_present(trial, W_DROWS) ? hs_operand_bytes(&trial->operands[W_DROWS]) : 0.0;
    return hs_operand_bytes(&trial->operands[W_TOKENS]) + hs_operand_bytes(&trial->operands[W_GATE]) +
           hs_operand_bytes(&trial->operands[W_DGATE]) + bytes_of_table(trial) +
           bytes_of_values(trial, trial->config->dtype) + drows;
}

static const HsCase add_values_backward_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_GRADIENT },
    { HS_F32, HS_F32, HS_F32, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_GRADIENT },
    { HS_F16, HS_F16, HS_F16, .depth = 50304, .heads = { 4, 1024, 12, 4, 64 }, .options = HS_CASE_GRADIENT },
};

const HsOpTest hs_op_test_add_values_backward = {
    .cases = add_values_backward_cases,
    .case_count = HS_COUNT_OF(add_values_backward_cases),
    .timed = add_values_backward_timed,
    .timed_count = HS_COUNT_OF(add_values_backward_timed),
    .bytes = bytes_add_values_backward,
    .declare = declare_add_values_backward,
    .bound = bound_add_values_backward,
    .call = call_add_values_backward,
};
