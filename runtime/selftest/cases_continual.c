/* SPDX-License-Identifier: MIT
 *
 * Cases of continual learning's operations on single elements: combination, ranges of columns, accumulated squares,
 * consolidation, interpolation.
 */
#include "runtime/selftest/bounds.h"

static HsTensor vector(const HsTrial *trial, HsDtype dtype)
{
    return hs_tensor_1d(NULL, dtype, trial->config->columns);
}

/* combine: x in dtype, y in out; accumulate: beta is not 0 */
#define COMBINE(n)                                                                       \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_F32, HS_F32, .columns = n }, \
        { HS_F32, HS_F16, HS_F32, .columns = n, .options = HS_CASE_ACCUMULATE },         \
        { HS_BF16, HS_BF16, HS_F32, .columns = n, .options = HS_CASE_ACCUMULATE },       \
    {                                                                                    \
        HS_F32, HS_F32, HS_F32, .columns = n, .options = HS_CASE_ACCUMULATE              \
    }

static const HsCase combine_cases[] = { COMBINE(1),  COMBINE(3),   COMBINE(17),   COMBINE(64),
                                        COMBINE(65), COMBINE(129), COMBINE(5000), COMBINE(20000) };

enum { X, Y };

static const float alpha = -1.7f, beta = 0.3f;

static void declare_combine(HsTrial *trial)
{
    trial->operands[X] = hs_input("x", 1.0, vector(trial, trial->config->dtype));
    trial->operands[Y] = hs_case_has(trial, HS_CASE_ACCUMULATE)
                             ? hs_updated("y", 1.0, vector(trial, trial->config->out))
                             : hs_filled(hs_output("y", vector(trial, trial->config->out)), HS_FILL_BROKEN);
}

static HsStatus call_combine(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    const float kept = hs_case_has(trial, HS_CASE_ACCUMULATE) ? beta : 0.0f;
    return hs_op_combine(context, &(HsCombineArgs){ .x = t[X], .y = t[Y], .alpha = alpha, .beta = kept });
}

/* A product each, and the sum, which a 16-bit output rounds once more. */
static void bound_combine(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns; i++) {
        double size = fabs((double)alpha * hs_initial(trial, X)[i]);
        if (hs_case_has(trial, HS_CASE_ACCUMULATE))
            size += fabs((double)beta * hs_initial(trial, Y)[i]);
        trial->operands[Y].error[i] = hs_gamma(2) * size;
    }
}

static const HsCase combine_timed[] = {
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072, .options = HS_CASE_ACCUMULATE },
};

const HsOpTest hs_op_test_combine = {
    .cases = combine_cases,
    .case_count = HS_COUNT_OF(combine_cases),
    .timed = combine_timed,
    .timed_count = HS_COUNT_OF(combine_timed),
    .declare = declare_combine,
    .bound = bound_combine,
    .call = call_combine,
};

/* copy_columns: x [rows, depth] in dtype from `start` on, y [rows, columns + 3] in out from 2 on */
#define COPY(n, c, m, first)                                                                                    \
    { HS_F32, HS_F32, HS_F32, n, c, m, .start = first }, { HS_BF16, HS_BF16, HS_F32, n, c, m, .start = first }, \
        { HS_F32, HS_F32, HS_F32, n, c, m, .start = first, .options = HS_CASE_ANCHOR },                         \
        { HS_F16, HS_F32, HS_F32, n, c, m, .start = first, .options = HS_CASE_ANCHOR | HS_CASE_SCALE },         \
    {                                                                                                           \
        HS_F32, HS_F16, HS_F32, n, c, m, .start = first, .options = HS_CASE_SCALE                               \
    }
static const HsCase copy_cases[] = { COPY(1, 1, 1, 0),      COPY(3, 2, 7, 5),    COPY(17, 16, 48, 16),
                                     COPY(9, 65, 130, 64),  COPY(64, 64, 64, 0), COPY(33, 129, 300, 7),
                                     COPY(1000, 17, 40, 20) };

enum { COPY_X, COPY_MINUS, COPY_SCALE, COPY_Y };
enum { COPY_TO = 2, COPY_MARGIN = 3 };

static void declare_copy(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t width = config->columns + COPY_MARGIN;
    trial->operands[COPY_X] = hs_input("x", 1.0, hs_tensor_2d(NULL, config->dtype, config->rows, config->depth));
    if (hs_case_has(trial, HS_CASE_ANCHOR))
        trial->operands[COPY_MINUS] = hs_input("minus", 1.0, hs_tensor_2d(NULL, HS_F32, config->rows, config->depth));
    if (hs_case_has(trial, HS_CASE_SCALE))
        trial->operands[COPY_SCALE] = hs_input("scale", 1.0, hs_tensor_1d(NULL, HS_F32, config->rows));
    trial->operands[COPY_Y] = hs_updated("y", 1.0, hs_tensor_2d(NULL, config->out, config->rows, width));
}

static HsStatus call_copy(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_copy_columns(context, &(HsCopyColumnsArgs){ .x = t[COPY_X],
                                                             .minus = t[COPY_MINUS],
                                                             .scale = t[COPY_SCALE],
                                                             .from = trial->config->start,
                                                             .to = COPY_TO,
                                                             .columns = trial->config->columns,
                                                             .y = t[COPY_Y] });
}

/* A difference, and a product. */
static void bound_copy(HsTrial *trial)
{
    const HsCase *config = trial->config;
    const int64_t width = config->columns + COPY_MARGIN;
    for (int64_t n = 0; n < config->rows; n++)
        for (int64_t c = 0; c < config->columns; c++)
            trial->operands[COPY_Y].error[n * width + COPY_TO + c] =
                hs_gamma(2) * fabs(hs_exact(trial, COPY_Y)[n * width + COPY_TO + c]);
}

static double bytes_copy(const HsTrial *trial, const HsContext *context)
{
    (void)context;
    const HsCase *config = trial->config;
    size_t element = hs_dtype_bytes(config->dtype) + hs_dtype_bytes(config->out);
    element += hs_operand_present(trial, COPY_MINUS) ? sizeof(float) : 0;
    const double row = (double)config->columns * (double)element;
    return (double)config->rows * (row + (hs_operand_present(trial, COPY_SCALE) ? sizeof(float) : 0));
}

static const HsCase copy_timed[] = {
    { HS_F32, HS_F32, HS_F32, 768, 256, 3072, .start = 512, .options = HS_CASE_ANCHOR },
};

const HsOpTest hs_op_test_copy_columns = {
    .cases = copy_cases,
    .case_count = HS_COUNT_OF(copy_cases),
    .timed = copy_timed,
    .timed_count = HS_COUNT_OF(copy_timed),
    .declare = declare_copy,
    .bound = bound_copy,
    .call = call_copy,
    .bytes = bytes_copy,
};

/* One tensor in dtype, the others in f32. */
#define DTYPES(n, more)                                               \
    { HS_F32, HS_F32, HS_F32, .columns = n, .options = (more) },      \
        { HS_BF16, HS_F32, HS_F32, .columns = n, .options = (more) }, \
    {                                                                 \
        HS_F16, HS_F32, HS_F32, .columns = n, .options = (more)       \
    }
#define SIZES(more)                                                                                            \
    DTYPES(1, more), DTYPES(3, more), DTYPES(17, more), DTYPES(64, more), DTYPES(65, more), DTYPES(129, more), \
        DTYPES(5000, more), DTYPES(20000, more)

static const HsCase element_cases[] = { SIZES(0), DTYPES(64, HS_CASE_UNALIGNED) };

enum { GRAD, ACCUMULATOR };

static const float multiplier = 0.37f, square_weight = 12.0f;

static void declare_square(HsTrial *trial)
{
    trial->operands[GRAD] = hs_updated("grad", 1.0, vector(trial, trial->config->dtype));
    trial->operands[GRAD].exact_bits = true; /* zero */
    trial->operands[ACCUMULATOR] = hs_filled(hs_updated("accumulator", 1.0, vector(trial, HS_F32)), HS_FILL_POSITIVE);
}

static HsStatus call_square(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_square_accumulate(context, &(HsSquareAccumulateArgs){ .grad = t[GRAD],
                                                                       .accumulator = t[ACCUMULATOR],
                                                                       .multiplier = multiplier,
                                                                       .weight = square_weight });
}

/* The unscaled gradient counts twice in its square; the square, the weight; the sum's rounding is the output's. */
static void bound_square(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns; i++) {
        const double g = hs_initial(trial, GRAD)[i] * (double)multiplier;
        trial->operands[ACCUMULATOR].error[i] = hs_gamma(4) * (double)square_weight * g * g;
    }
}

static const HsCase parameter_timed[] = { { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072 } };
static const HsCase square_timed[] = {
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072 },
    { HS_BF16, HS_F32, HS_F32, .columns = 768 * 3072 },
    { HS_F16, HS_F32, HS_F32, .columns = 768 * 3072 },
};

const HsOpTest hs_op_test_square_accumulate = {
    .cases = element_cases,
    .case_count = HS_COUNT_OF(element_cases),
    .timed = square_timed,
    .timed_count = HS_COUNT_OF(square_timed),
    .declare = declare_square,
    .bound = bound_square,
    .call = call_square,
};

/* In place: fresh is the anchor's memory. */
static const HsCase consolidate_cases[] = { SIZES(0), SIZES(HS_CASE_IN_PLACE), SIZES(HS_CASE_MERGE),
                                            DTYPES(64, HS_CASE_UNALIGNED),
                                            DTYPES(5001, HS_CASE_MERGE | HS_CASE_UNALIGNED) };

enum { FRESH, IMPORTANCE, ANCHOR, PARAMETER, OFFSET };

static const float decay = 0.9f, scale = 3.3f;

static void declare_consolidate(HsTrial *trial)
{
    if (!hs_case_has(trial, HS_CASE_IN_PLACE)) {
        trial->operands[FRESH] = hs_filled(hs_updated("fresh", 1.0, vector(trial, HS_F32)), HS_FILL_POSITIVE);
        trial->operands[FRESH].exact_bits = true; /* zero */
    }
    trial->operands[IMPORTANCE] = hs_filled(hs_updated("importance", 1.0, vector(trial, HS_F32)), HS_FILL_POSITIVE);
    trial->operands[ANCHOR] = hs_updated("anchor", 1.0, vector(trial, HS_F32));
    trial->operands[ANCHOR].exact_bits = !hs_case_has(trial, HS_CASE_MERGE); /* a copy */
    /* In place it is read as what is fresh. */
    trial->operands[ANCHOR].overwritten = !hs_case_has(trial, HS_CASE_MERGE) && !hs_case_has(trial, HS_CASE_IN_PLACE);
    trial->operands[PARAMETER] = hs_input("parameter", 1.0, vector(trial, trial->config->dtype));
    if (hs_case_has(trial, HS_CASE_MERGE))
        trial->operands[OFFSET] = hs_updated("offset", 1.0, hs_tensor_1d(NULL, HS_F64, 1));
}

/* Every third importance is zero, and every other fresh one: all four meetings of a zero with another number. */
static HsStatus prepare_consolidate(HsTrial *trial, HsContext *reference)
{
    (void)reference;
    for (int64_t i = 0; i < trial->config->columns && hs_case_has(trial, HS_CASE_MERGE); i++) {
        if (i % 3 == 0)
            ((float *)trial->operands[IMPORTANCE].image)[i] = 0.0f;
        if (i % 2 == 0)
            ((float *)trial->operands[FRESH].image)[i] = 0.0f;
    }
    return HS_OK;
}

static HsStatus call_consolidate(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_consolidate(context,
                             &(HsConsolidateArgs){ .fresh = t[hs_case_has(trial, HS_CASE_IN_PLACE) ? ANCHOR : FRESH],
                                                   .importance = t[IMPORTANCE],
                                                   .anchor = t[ANCHOR],
                                                   .parameter = t[PARAMETER],
                                                   .decay = decay,
                                                   .scale = scale,
                                                   .merge = hs_case_has(trial, HS_CASE_MERGE),
                                                   .offset = t[OFFSET].data });
}

/* Merge, all of F and N being positive: N takes a rounding, F + N two, their quotient four in all; distance and product
 * two more.  The offset's terms: F times the quotient 5, distance twice and its square 3, the product 1. */
static void bound_consolidate(HsTrial *trial)
{
    const bool merge = hs_case_has(trial, HS_CASE_MERGE);
    const int fresh = hs_case_has(trial, HS_CASE_IN_PLACE) ? ANCHOR : FRESH;
    double offset = 0.0;
    for (int64_t i = 0; i < trial->config->columns; i++) {
        const double added = (double)scale * hs_initial(trial, fresh)[i], old = hs_initial(trial, IMPORTANCE)[i];
        trial->operands[IMPORTANCE].error[i] = hs_gamma(1) * (fabs(added) + (merge ? 0.0 : (double)decay * old));
        if (!merge || old == 0.0)
            continue;
        const double distance = fabs(hs_initial(trial, PARAMETER)[i] - hs_initial(trial, ANCHOR)[i]);
        const double share = added / (old + added);
        trial->operands[ANCHOR].error[i] = hs_gamma(6) * share * distance;
        offset += old * share * distance * distance;
    }
    if (merge)
        trial->operands[OFFSET].error[0] =
            hs_gamma(9) * offset +
            hs_bound_double_sum(trial->config->columns + 1, offset + fabs(hs_initial(trial, OFFSET)[0]));
}

const HsOpTest hs_op_test_consolidate = {
    .cases = consolidate_cases,
    .case_count = HS_COUNT_OF(consolidate_cases),
    .timed = parameter_timed,
    .timed_count = HS_COUNT_OF(parameter_timed),
    .declare = declare_consolidate,
    .prepare = prepare_consolidate,
    .bound = bound_consolidate,
    .call = call_consolidate,
};

enum { PATH = FRESH };

static const float damping = 0.1f;

static void declare_path(HsTrial *trial)
{
    declare_consolidate(trial);
    trial->operands[PATH] = hs_updated("path", 1.0, vector(trial, HS_F32)); /* of both signs: some are clipped */
    trial->operands[PATH].exact_bits = true;
    trial->operands[ANCHOR].overwritten = false; /* the way from it to the parameter is read */
}

static HsStatus call_path(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    (void)trial;
    return hs_op_consolidate_path(context, &(HsConsolidatePathArgs){ .path = t[PATH],
                                                                     .importance = t[IMPORTANCE],
                                                                     .anchor = t[ANCHOR],
                                                                     .parameter = t[PARAMETER],
                                                                     .damping = damping });
}

/* distance (twice), its square, the damping, the quotient; the maximum passes errors on as they are. */
static void bound_path(HsTrial *trial)
{
    for (int64_t i = 0; i < trial->config->columns; i++) {
        const double distance = hs_initial(trial, PARAMETER)[i] - hs_initial(trial, ANCHOR)[i];
        trial->operands[IMPORTANCE].error[i] =
            hs_gamma(5) * fabs(hs_initial(trial, PATH)[i]) / (distance * distance + (double)damping);
    }
}

const HsOpTest hs_op_test_consolidate_path = {
    .cases = element_cases,
    .case_count = HS_COUNT_OF(element_cases),
    .timed = parameter_timed,
    .timed_count = HS_COUNT_OF(parameter_timed),
    .declare = declare_path,
    .bound = bound_path,
    .call = call_path,
};

/* interpolate: weight in dtype, with and without a master */
#define INTERPOLATE(n)                                                                    \
    { HS_F32, HS_F32, HS_F32, .columns = n }, { HS_BF16, HS_BF16, HS_F32, .columns = n }, \
        { HS_F32, HS_F32, HS_F32, .columns = n, .options = HS_CASE_MASTER },              \
        { HS_BF16, HS_BF16, HS_F32, .columns = n, .options = HS_CASE_MASTER },            \
    {                                                                                     \
        HS_F16, HS_F16, HS_F32, .columns = n, .options = HS_CASE_MASTER                   \
    }

static const HsCase interpolate_cases[] = {
    INTERPOLATE(1),    INTERPOLATE(3),     INTERPOLATE(17),
    INTERPOLATE(64),   INTERPOLATE(65),    INTERPOLATE(129),
    INTERPOLATE(5000), INTERPOLATE(20000), { HS_BF16, HS_BF16, HS_F32, .columns = 64, .options = HS_CASE_UNALIGNED }
};

enum { I_ANCHOR, I_MASTER, I_WEIGHT };

static const float rate = 0.3f;

static void declare_interpolate(HsTrial *trial)
{
    trial->operands[I_ANCHOR] = hs_input("anchor", 1.0, vector(trial, HS_F32));
    trial->operands[I_WEIGHT] = hs_updated("weight", 1.0, vector(trial, trial->config->dtype));
    trial->operands[I_WEIGHT].overwritten = hs_case_has(trial, HS_CASE_MASTER);
    if (hs_case_has(trial, HS_CASE_MASTER))
        trial->operands[I_MASTER] = hs_updated("master", 1.0, vector(trial, HS_F32));
    trial->operands[I_WEIGHT].one_sided = trial->config->dtype == HS_BF16 && !hs_case_has(trial, HS_CASE_MASTER);
}

static HsStatus call_interpolate(HsTrial *trial, HsContext *context, const HsTensor *t)
{
    return hs_op_interpolate(context, &(HsInterpolateArgs){ .anchor = t[I_ANCHOR],
                                                            .master = t[I_MASTER],
                                                            .weight = t[I_WEIGHT],
                                                            .rate = rate,
                                                            .rng = { .seed = trial->seed, .step = 9, .site = 4 } });
}

/* Difference and product, then the sum, which a 16-bit weight rounds once more. */
static void bound_interpolate(HsTrial *trial)
{
    const int kept = hs_case_has(trial, HS_CASE_MASTER) ? I_MASTER : I_WEIGHT;
    for (int64_t i = 0; i < trial->config->columns; i++) {
        const double distance = fabs(hs_initial(trial, kept)[i] - hs_initial(trial, I_ANCHOR)[i]);
        const double error = hs_gamma(2) * (double)rate * distance + hs_gamma(1) * fabs(hs_exact(trial, kept)[i]);
        hs_bound_parameter(trial, I_WEIGHT, I_MASTER, i, error);
    }
}

static const HsCase interpolate_timed[] = {
    { HS_BF16, HS_BF16, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
    { HS_F32, HS_F32, HS_F32, .columns = 768 * 3072 },
    { HS_F16, HS_F16, HS_F32, .columns = 768 * 3072, .options = HS_CASE_MASTER },
};

const HsOpTest hs_op_test_interpolate = {
    .cases = interpolate_cases,
    .case_count = HS_COUNT_OF(interpolate_cases),
    .timed = interpolate_timed,
    .timed_count = HS_COUNT_OF(interpolate_timed),
    .declare = declare_interpolate,
    .bound = bound_interpolate,
    .call = call_interpolate,
};
