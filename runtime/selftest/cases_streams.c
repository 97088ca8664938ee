/* SPDX-License-Identifier: MIT
 *
 * Cases of streams that are blended by learned numbers, and of the token before that is mixed in.
 */
#include "kernels/checks/checks.h"
#include "runtime/selftest/trial.h"

#include <math.h>

/* Numbers of a vector, and which one of them. */
enum { NUMBERS = 5, AT = 3 };

static HsTensor matrix(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_2d(NULL, dtype, trial->config->rows, trial->config->columns);
}

static HsTensor numbers(void)
{
    return hs_tensor_1d(NULL, HS_F32, NUMBERS);
}

static int64_t element_count(const HsTrial *trial)
{
    return trial->config->rows * trial->config->columns;
}

static float sign_of(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_INVERSE) ? -1.0f : 1.0f;
}

/* Magnitudes of a and b, at these operands; an absent a is 1. */
static double size_of(const HsTrial *trial, int operand)
{
    return hs_operand_present(trial, operand) ? fabs(hs_initial(trial, operand)[AT]) : 1.0;
}

/* Of the vectors one element moves: what is said of all of them, less the others. */
static double bytes_besides(const HsTrial *trial, const int *vectors, int count)
{
    double bytes = 0.0;
    for (int i = 0; i < count; i++)
        if (hs_operand_present(trial, vectors[i]))
            bytes += hs_operand_bytes(&trial->operands[vectors[i]]) * (NUMBERS - 1) / NUMBERS;
    return hs_trial_bytes(trial) - bytes;
}

/* blend: rows, columns; unweighted: without a; inverse: the sign is -1. */
#define BLEND(n, c)                                                                                            \
    { HS_F32, HS_F32, HS_F32, n, c, .options = 0 }, { HS_BF16, HS_BF16, HS_F32, n, c, .options = 0 },          \
        { HS_F16, HS_F16, HS_F32, n, c, .options = HS_CASE_INVERSE },                                          \
        { HS_F32, HS_F32, HS_F32, n, c, .options = HS_CASE_UNALIGNED | HS_CASE_IN_PLACE },                     \
        { HS_BF16, HS_BF16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_INVERSE | HS_CASE_IN_PLACE }, \
        { HS_BF16, HS_BF16, HS_F32, n, c, .options = HS_CASE_UNALIGNED | HS_CASE_INVERSE },                    \
    {                                                                                                          \
        HS_F16, HS_F16, HS_F32, n, c, .unweighted = true, .options = HS_CASE_IN_PLACE                          \
    }
static const HsCase blend_cases[] = { BLEND(1, 1),   BLEND(2, 3),   BLEND(17, 16),  BLEND(9, 63),
                                      BLEND(64, 64), BLEND(3, 129), BLEND(5, 1031), BLEND(130, 200) };

enum { X, Z, A, B, Y };

static int blended(const HsTrial *trial)
{
    return hs_case_has(trial, HS_CASE_IN_PLACE) ? X : Y;
}

static void declare_blend(HsTrial *trial)
{
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    const HsTensor x = matrix(trial, trial->config->dtype);
    trial->operands[X] = in_place ? hs_updated("x", 1.0, x) : hs_input("x", 1.0, x);
    trial->operands[Z] = hs_input("z", 1.0, x);
    if (!trial->config->unweighted)
        trial->operands[A] = hs_input("a", 1.0, numbers());
    trial->operands[B] = hs_input("b", 1.0, numbers());
    if (!in_place)
        trial->operands[Y] = hs_output("y", x);
}

static HsStatus call_blend(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_blend_forward(
        context,
        &(HsBlendArgs){
            .at = AT, .sign = sign_of(trial), .a = t[A], .b = t[B], .x = t[X], .z = t[Z], .y = t[blended(trial)] });
}

/* Two products and their sum; the sign rounds nothing. */
static void bound_blend(HsTrial *trial)
{
    for (int64_t i = 0; i < element_count(trial); i++)
        trial->operands[blended(trial)].error[i] = hs_gamma(2) * (size_of(trial, A) * fabs(hs_initial(trial, X)[i]) +
                                                                  size_of(trial, B) * fabs(hs_initial(trial, Z)[i]));
}

static double bytes_blend(const HsTrial *trial, const HsContext *context)
{
    static const int vectors[] = { A, B };
    (void)context;
    return bytes_besides(trial, vectors, HS_COUNT_OF(vectors));
}

static const HsCase blend_timed[] = {
    { HS_BF16, HS_BF16, HS_F32, 4096, 768, .options = 0 },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .options = 0 },
    { HS_F16, HS_F16, HS_F32, 4096, 768, .options = 0 },
};

const HsOpTest hs_op_test_blend_forward = {
    .cases = blend_cases,
    .case_count = HS_COUNT_OF(blend_cases),
    .timed = blend_timed,
    .timed_count = HS_COUNT_OF(blend_timed),
    .bytes = bytes_blend,
    .declare = declare_blend,
    .bound = bound_blend,
    .call = call_blend,
};

/* blend_backward: x and z in dtype, dy in other, dx and dz in out.  sums: da and db; gradient: dx and dz; skip: dz is
 * not wanted; accumulate: dx adds; addend: dz adds; in place: dx is dy. */
#define BACKWARD(in, out, gradient, n, c, ...)          \
    {                                                   \
        in, out, gradient, n, c, .options = __VA_ARGS__ \
    }
#define BLEND_BACKWARD(n, c)                                                                                           \
    BACKWARD(HS_F32, HS_F32, HS_F32, n, c, HS_CASE_GRADIENT, .sums = true),                                            \
        BACKWARD(HS_BF16, HS_BF16, HS_BF16, n, c, HS_CASE_GRADIENT | HS_CASE_ACCUMULATE, .sums = true),                \
        BACKWARD(HS_F16, HS_F16, HS_F16, n, c, HS_CASE_GRADIENT | HS_CASE_ADDEND | HS_CASE_INVERSE | HS_CASE_IN_PLACE, \
                 .sums = true),                                                                                        \
        BACKWARD(HS_BF16, HS_F32, HS_F32, n, c, HS_CASE_GRADIENT | HS_CASE_ACCUMULATE | HS_CASE_ADDEND, .sums = true), \
        BACKWARD(HS_F32, HS_BF16, HS_F16, n, c, HS_CASE_GRADIENT | HS_CASE_INVERSE, .sums = true),                     \
        BACKWARD(HS_BF16, HS_BF16, HS_BF16, n, c, HS_CASE_INVERSE, .sums = true),                                      \
        BACKWARD(HS_F32, HS_F32, HS_F32, n, c, HS_CASE_GRADIENT | HS_CASE_IN_PLACE),                                   \
        BACKWARD(HS_BF16, HS_BF16, HS_BF16, n, c, HS_CASE_GRADIENT | HS_CASE_SKIP | HS_CASE_ACCUMULATE,                \
                 .unweighted = true),                                                                                  \
        BACKWARD(HS_F16, HS_F16, HS_F16, n, c,                                                                         \
                 HS_CASE_GRADIENT | HS_CASE_INVERSE | HS_CASE_ADDEND | HS_CASE_UNALIGNED, .sums = true,                \
                 .unweighted = true)
/* The last ones: several rows a block of the GPU's sums. */
static const HsCase blend_backward_cases[] = {
    BLEND_BACKWARD(1, 1),    BLEND_BACKWARD(2, 3),    BLEND_BACKWARD(17, 16),
    BLEND_BACKWARD(33, 63),  BLEND_BACKWARD(65, 128), BLEND_BACKWARD(40, 1100),
    BLEND_BACKWARD(700, 33), BLEND_BACKWARD(9000, 3), BLEND_BACKWARD(8200, 8),
};

enum { B_DY, B_X, B_Z, B_A, B_B, B_DX, B_DZ, B_DA, B_DB };

static void declare_blend_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    HsTrialOperand *operands = trial->operands;
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE), weighted = !config->unweighted;
    const HsTensor dy = matrix(trial, config->other), stream = matrix(trial, config->dtype);
    const HsTensor result = matrix(trial, config->out);
    operands[B_DY] = in_place ? hs_updated("dy", 1.0, dy) : hs_input("dy", 1.0, dy);
    if (weighted)
        operands[B_A] = hs_input("a", 1.0, numbers());
    operands[B_B] = hs_input("b", 1.0, numbers());
    if (config->sums && weighted) {
        operands[B_X] = hs_input("x", 1.0, stream);
        operands[B_DA] = hs_updated("da", 1.0, numbers());
    }
    if (config->sums) {
        operands[B_Z] = hs_input("z", 1.0, stream);
        operands[B_DB] = hs_updated("db", 1.0, numbers());
    }
    if (!hs_case_has(trial, HS_CASE_GRADIENT))
        return;
    if (!in_place)
        operands[B_DX] =
            hs_case_has(trial, HS_CASE_ACCUMULATE) ? hs_updated("dx", 1.0, result) : hs_output("dx", result);
    if (!hs_case_has(trial, HS_CASE_SKIP))
        operands[B_DZ] = hs_case_has(trial, HS_CASE_ADDEND) ? hs_updated("dz", 1.0, result) : hs_output("dz", result);
}

static HsStatus call_blend_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_blend_backward(context,
                                &(HsBlendBackwardArgs){ .at = AT,
                                                        .sign = sign_of(trial),
                                                        .a = t[B_A],
                                                        .b = t[B_B],
                                                        .dy = t[B_DY],
                                                        .x = t[B_X],
                                                        .z = t[B_Z],
                                                        .accumulate_x = hs_case_has(trial, HS_CASE_ACCUMULATE),
                                                        .accumulate_z = hs_case_has(trial, HS_CASE_ADDEND),
                                                        .dx = t[hs_case_has(trial, HS_CASE_IN_PLACE) ? B_DY : B_DX],
                                                        .dz = t[B_DZ],
                                                        .da = t[B_DA],
                                                        .db = t[B_DB] });
}

/* A product, and a sum where there is something to add to. */
static void bound_scaled(HsTrial *trial, int gradient, int number, bool accumulates)
{
    HsTrialOperand *const result = &trial->operands[gradient];
    for (int64_t i = 0; hs_operand_present(trial, gradient) && i < element_count(trial); i++) {
        const double before = accumulates ? fabs(result->initial[i]) : 0.0;
        result->error[i] = hs_gamma(2) * (size_of(trial, number) * fabs(hs_initial(trial, B_DY)[i]) + before);
    }
}

/* A sum of products, in any order, and of what was there. */
static void bound_number(HsTrial *trial, int total, int stream)
{
    if (!hs_operand_present(trial, total))
        return;
    double magnitude = fabs(hs_initial(trial, total)[AT]);
    for (int64_t i = 0; i < element_count(trial); i++)
        magnitude += fabs(hs_initial(trial, B_DY)[i] * hs_initial(trial, stream)[i]);
    trial->operands[total].error[AT] = hs_gamma(element_count(trial) + 2) * magnitude;
}

static void bound_blend_backward(HsTrial *trial)
{
    const bool in_place = hs_case_has(trial, HS_CASE_IN_PLACE);
    if (hs_case_has(trial, HS_CASE_GRADIENT))
        bound_scaled(trial, in_place ? B_DY : B_DX, B_A, hs_case_has(trial, HS_CASE_ACCUMULATE));
    bound_scaled(trial, B_DZ, B_B, hs_case_has(trial, HS_CASE_ADDEND));
    bound_number(trial, B_DA, B_X);
    bound_number(trial, B_DB, B_Z);
}

static double bytes_blend_backward(const HsTrial *trial, const HsContext *context)
{
    static const int vectors[] = { B_A, B_B, B_DA, B_DB };
    (void)context;
    return bytes_besides(trial, vectors, HS_COUNT_OF(vectors));
}

static const HsCase blend_backward_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, 4096, 768, .sums = true, .options = HS_CASE_GRADIENT | HS_CASE_ADDEND },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .sums = true, .options = HS_CASE_GRADIENT | HS_CASE_ADDEND },
    { HS_F16, HS_F16, HS_F16, 4096, 768, .sums = true, .options = HS_CASE_GRADIENT | HS_CASE_ADDEND },
};

const HsOpTest hs_op_test_blend_backward = {
    .cases = blend_backward_cases,
    .case_count = HS_COUNT_OF(blend_backward_cases),
    .timed = blend_backward_timed,
    .timed_count = HS_COUNT_OF(blend_backward_timed),
    .bytes = bytes_blend_backward,
    .declare = declare_blend_backward,
    .bound = bound_blend_backward,
    .call = call_blend_backward,
};

/* smear: rows N, sequence length T, columns C; pre: with what stands before each sequence. */
#define IN_SEQUENCES(in, out, gradient, n, t, c, ...)                                      \
    {                                                                                      \
        in, out, gradient, n, c, .heads = { .sequence_length = t }, .options = __VA_ARGS__ \
    }
#define SMEAR(n, t, c)                                                                                              \
    IN_SEQUENCES(HS_F32, HS_F32, HS_F32, n, t, c, 0), IN_SEQUENCES(HS_BF16, HS_BF16, HS_F32, n, t, c, HS_CASE_PRE), \
        IN_SEQUENCES(HS_F16, HS_F16, HS_F32, n, t, c, 0, .documents = true),                                        \
        IN_SEQUENCES(HS_BF16, HS_BF16, HS_F32, n, t, c, HS_CASE_UNALIGNED, .documents = true),                      \
        IN_SEQUENCES(HS_F32, HS_F32, HS_F32, n, t, c, HS_CASE_PRE | HS_CASE_UNALIGNED),                             \
        IN_SEQUENCES(HS_BF16, HS_BF16, HS_F32, n, t, c, 0)
static const HsCase smear_cases[] = { SMEAR(1, 1, 1),    SMEAR(6, 3, 7),    SMEAR(12, 1, 16),  SMEAR(34, 17, 63),
                                      SMEAR(65, 65, 64), SMEAR(130, 65, 8), SMEAR(21, 7, 129), SMEAR(9, 9, 1032) };

enum { S_X, S_BEFORE, S_GATE, S_STRENGTH, S_STARTS, S_Y };

static HsTensor gates(const HsTrial *trial)
{
    return hs_tensor_2d(NULL, HS_F32, trial->config->rows, 1);
}

static void declare_smear(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t sequences = config->rows / config->heads.sequence_length;
    trial->operands[S_X] = hs_input("x", 1.0, matrix(trial, config->dtype));
    if (hs_case_has(trial, HS_CASE_PRE))
        trial->operands[S_BEFORE] =
            hs_input("before", 1.0, hs_tensor_2d(NULL, config->dtype, sequences, config->columns));
    trial->operands[S_GATE] = hs_input("gate", 1.0, gates(trial));
    trial->operands[S_STRENGTH] = hs_input("strength", 1.0, hs_tensor_1d(NULL, HS_F32, 1));
    trial->operands[S_STARTS] = hs_starts_operand(trial, config->rows);
    trial->operands[S_Y] = hs_output("y", matrix(trial, config->dtype));
}

static HsStatus prepare_smear(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (trial->config->documents)
        hs_trial_draw_starts(trial, S_STARTS);
    return HS_OK;
}

static HsStatus call_smear(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_smear_forward(context, &(HsSmearArgs){ .sequence_length = trial->config->heads.sequence_length,
                                                        .starts = t[S_STARTS],
                                                        .before = t[S_BEFORE],
                                                        .x = t[S_X],
                                                        .gate = t[S_GATE],
                                                        .strength = t[S_STRENGTH],
                                                        .y = t[S_Y] });
}

/* Whether row n begins its document or sequence. */
static bool begins(const HsTrial *trial, int starts, int64_t n)
{
    return n % trial->config->heads.sequence_length == hs_start_of(&trial->operands[starts].exact, n);
}

/* The two factors' product, that with the row before, and the sum; what begins is a copy. */
static void bound_smear(HsTrial *trial)
{
    const int64_t columns = trial->config->columns;
    const double strength = fabs(hs_initial(trial, S_STRENGTH)[0]);
    for (int64_t i = 0; i < element_count(trial); i++) {
        const int64_t n = i / columns, sequence = n / trial->config->heads.sequence_length;
        const double *previous = hs_initial(trial, S_X) + i - columns;
        if (begins(trial, S_STARTS, n) && !hs_operand_present(trial, S_BEFORE))
            continue;
        if (begins(trial, S_STARTS, n))
            previous = hs_initial(trial, S_BEFORE) + sequence * columns + i % columns;
        const double added = strength * fabs(hs_initial(trial, S_GATE)[n] * *previous);
        trial->operands[S_Y].error[i] = hs_gamma(3) * (fabs(hs_initial(trial, S_X)[i]) + added);
    }
}

static const HsCase smear_timed[] = {
    { HS_BF16, HS_BF16, HS_F32, 4096, 768, .heads = { .sequence_length = 1024 }, .options = 0 },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .heads = { .sequence_length = 1024 }, .options = 0 },
    { HS_F16, HS_F16, HS_F32, 4096, 768, .heads = { .sequence_length = 1024 }, .options = 0 },
};

const HsOpTest hs_op_test_smear_forward = {
    .cases = smear_cases,
    .case_count = HS_COUNT_OF(smear_cases),
    .timed = smear_timed,
    .timed_count = HS_COUNT_OF(smear_timed),
    .declare = declare_smear,
    .prepare = prepare_smear,
    .bound = bound_smear,
    .call = call_smear,
};

/* smear_backward: x in dtype, dy in other, dx in out; sums: dstrength. */
#define SMEAR_BACKWARD(n, t, c)                                                               \
    IN_SEQUENCES(HS_F32, HS_F32, HS_F32, n, t, c, 0, .sums = true),                           \
        IN_SEQUENCES(HS_BF16, HS_BF16, HS_BF16, n, t, c, 0, .sums = true, .documents = true), \
        IN_SEQUENCES(HS_F16, HS_F16, HS_F16, n, t, c, 0, .documents = true),                  \
        IN_SEQUENCES(HS_BF16, HS_F32, HS_F32, n, t, c, 0, .sums = true, .documents = true),   \
        IN_SEQUENCES(HS_BF16, HS_BF16, HS_F32, n, t, c, 0),                                   \
        IN_SEQUENCES(HS_F16, HS_F16, HS_F16, n, t, c, HS_CASE_UNALIGNED, .sums = true)
static const HsCase smear_backward_cases[] = {
    SMEAR_BACKWARD(1, 1, 1),     SMEAR_BACKWARD(6, 3, 7),       SMEAR_BACKWARD(12, 1, 16),  SMEAR_BACKWARD(34, 17, 63),
    SMEAR_BACKWARD(65, 65, 64),  SMEAR_BACKWARD(130, 65, 8),    SMEAR_BACKWARD(21, 7, 129), SMEAR_BACKWARD(9, 9, 1032),
    SMEAR_BACKWARD(700, 50, 24), SMEAR_BACKWARD(9000, 1000, 3),
};

enum { T_DY, T_X, T_GATE, T_STRENGTH, T_STARTS, T_DX, T_DGATE, T_DSTRENGTH };

static void declare_smear_backward(HsTrial *trial)
{
    const HsCase *config = trial->config;
    trial->operands[T_DY] = hs_input("dy", 1.0, matrix(trial, config->other));
    trial->operands[T_X] = hs_input("x", 1.0, matrix(trial, config->dtype));
    trial->operands[T_GATE] = hs_input("gate", 1.0, gates(trial));
    trial->operands[T_STRENGTH] = hs_input("strength", 1.0, hs_tensor_1d(NULL, HS_F32, 1));
    trial->operands[T_STARTS] = hs_starts_operand(trial, config->rows);
    trial->operands[T_DX] = hs_output("dx", matrix(trial, config->out));
    trial->operands[T_DGATE] = hs_output("dgate", gates(trial));
    if (config->sums)
        trial->operands[T_DSTRENGTH] = hs_updated("dstrength", 1.0, hs_tensor_1d(NULL, HS_F32, 1));
}

static HsStatus prepare_smear_backward(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    if (trial->config->documents)
        hs_trial_draw_starts(trial, T_STARTS);
    return HS_OK;
}

static HsStatus call_smear_backward(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_smear_backward(context,
                                &(HsSmearBackwardArgs){ .sequence_length = trial->config->heads.sequence_length,
                                                        .starts = t[T_STARTS],
                                                        .dy = t[T_DY],
                                                        .x = t[T_X],
                                                        .gate = t[T_GATE],
                                                        .strength = t[T_STRENGTH],
                                                        .dx = t[T_DX],
                                                        .dgate = t[T_DGATE],
                                                        .dstrength = t[T_DSTRENGTH] });
}

/* dx as forward's; a row's sum of C products, once more multiplied; and the sum of those over N rows. */
static void bound_smear_backward(HsTrial *trial)
{
    const int64_t rows = trial->config->rows, columns = trial->config->columns;
    const double strength = fabs(hs_initial(trial, T_STRENGTH)[0]), *gate = hs_initial(trial, T_GATE);
    double total = trial->config->sums ? fabs(hs_initial(trial, T_DSTRENGTH)[0]) : 0.0;
    for (int64_t n = 0; n < rows; n++) {
        const bool first = begins(trial, T_STARTS, n), followed = n + 1 < rows && !begins(trial, T_STARTS, n + 1);
        double products = 0.0;
        for (int64_t i = n * columns; i < (n + 1) * columns; i++) {
            const double *dy = hs_initial(trial, T_DY) + i;
            products += first ? 0.0 : fabs(*dy * hs_initial(trial, T_X)[i - columns]);
            if (followed)
                trial->operands[T_DX].error[i] = hs_gamma(3) * (fabs(*dy) + strength * fabs(gate[n + 1] * dy[columns]));
        }
        trial->operands[T_DGATE].error[n] = hs_gamma(columns + 1) * strength * products;
        total += fabs(gate[n]) * products;
    }
    if (trial->config->sums)
        trial->operands[T_DSTRENGTH].error[0] = hs_gamma(columns + rows + 2) * total;
}

static const HsCase smear_backward_timed[] = {
    { HS_BF16, HS_BF16, HS_BF16, 4096, 768, .heads = { .sequence_length = 1024 }, .sums = true },
    { HS_F32, HS_F32, HS_F32, 4096, 768, .heads = { .sequence_length = 1024 }, .sums = true },
    { HS_F16, HS_F16, HS_F16, 4096, 768, .heads = { .sequence_length = 1024 }, .sums = true },
};

const HsOpTest hs_op_test_smear_backward = {
    .cases = smear_backward_cases,
    .case_count = HS_COUNT_OF(smear_backward_cases),
    .timed = smear_backward_timed,
    .timed_count = HS_COUNT_OF(smear_backward_timed),
    .declare = declare_smear_backward,
    .prepare = prepare_smear_backward,
    .bound = bound_smear_backward,
    .call = call_smear_backward,
};
