/* SPDX-License-Identifier: MIT
 *
 * QK-norm: root-mean-square norm of every q and k head (Zhang & Sennrich 2019, eq. 4), or of all q features at once and
 * all k features at once; v copied.  For one stretch of width D, with xhat = x rstd and g = weight * dy:
 *     rstd = 1 / sqrt(mean(x^2) + eps)    y = weight * xhat    dx = rstd (g - xhat mean(g * xhat))
 *     dweight += sum over rows and stretches of dy * xhat
 * Weight gradients: one partial sum for each block of rows, in scratch, then the blocks in order (kernels/cpu/cpu.h).
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

/* What is normed of a row with one weight: `count` stretches of `width` columns, one behind the other; first the queries',
 * then, where those end, the keys'. */
typedef struct Stretches {
    int64_t count, width;
} Stretches;

enum { QUERIES, KEYS, KINDS };

static Stretches stretches_of(const HsHeads *heads, bool whole, int kind)
{
    const int64_t count = kind == QUERIES ? heads->heads : heads->kv_heads;
    return whole ? (Stretches){ 1, count * heads->head_dim } : (Stretches){ count, heads->head_dim };
}

/* Vectors that hold one stretch. */
static int64_t vectors_of(Stretches stretches)
{
    return (stretches.width + HS_LANES - 1) / HS_LANES;
}

static bool are_whole_vectors(const HsHeads *heads, bool whole)
{
    return stretches_of(heads, whole, QUERIES).width % HS_LANES == 0 &&
           stretches_of(heads, whole, KEYS).width % HS_LANES == 0;
}

static void copy_values(const HsHeads *heads, int64_t row, const HsTensor *from, const HsTensor *to)
{
    const int64_t at = row * hs_heads_columns(heads) + hs_value_column(heads, 0);
    const int64_t end = at + heads->kv_heads * heads->head_dim;
    const void *source = from->data;
    void *target = to->data;
#define COPY(in, out) \
    HS_FOR_VECTORS(i, left, at, end, hs_simd_store_part(out, target, i, hs_simd_load_part(in, source, i, left), left))
    HS_FOR_DTYPES(from->dtype, to->dtype, COPY);
#undef COPY
}

/* One stretch of x from `at` on, and of y; returns rstd.  `full`: the width is a multiple of HS_LANES, a constant where
 * this is inlined. */
HS_SIMD float normalize_stretch(HsDtype in, HsDtype out, const void *x, void *y, int64_t at, HsSimdFactors weight,
                                int64_t width, bool full, float epsilon)
{
    HsF32Parts squares = { 0 };
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const HsF32x16 value = hs_simd_load_part(in, x, at + d, full ? HS_LANES : width - d);
        hs_simd_accumulate(&squares, value * value);
    }
    const float rstd = 1.0f / sqrtf(hs_simd_sum(squares.whole) / (float)width + epsilon);
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = full ? HS_LANES : width - d;
        const HsF32x16 value = hs_simd_load_part(in, x, at + d, left);
        hs_simd_store_part(out, y, at + d, hs_simd_load_factors(weight, d, left) * (value * rstd), left);
    }
    return rstd;
}

HS_SIMD void normalize_stretches(HsDtype in, HsDtype out, const HsHeadNormArgs *args, int64_t row, bool full)
{
    const HsHeads heads = args->heads;
    const Stretches kinds[KINDS] = { stretches_of(&heads, args->whole, QUERIES),
                                     stretches_of(&heads, args->whole, KEYS) };
    const HsSimdFactors weights[KINDS] = { hs_simd_factors(&args->q_weight), hs_simd_factors(&args->k_weight) };
    const float epsilon = args->epsilon;
    const void *x = args->x.data;
    void *y = args->y.data;
    float *rstd = (float *)args->rstd.data + row * (kinds[QUERIES].count + kinds[KEYS].count);
    int64_t at = row * hs_heads_columns(&heads);
    for (int kind = 0; kind < KINDS; kind++)
        for (int64_t i = 0; i < kinds[kind].count; i++, at += kinds[kind].width)
            *rstd++ = normalize_stretch(in, out, x, y, at, weights[kind], kinds[kind].width, full, epsilon);
}

static void normalize_row(const HsHeadNormArgs *args, int64_t row)
{
#define NORMALIZE(in, out) normalize_stretches(in, out, args, row, true)
    if (are_whole_vectors(&args->heads, args->whole))
        HS_FOR_DTYPES(args->x.dtype, args->y.dtype, NORMALIZE);
    else
        normalize_stretches(args->x.dtype, args->y.dtype, args, row, false);
#undef NORMALIZE
    copy_values(&args->heads, row, &args->x, &args->y);
}

HsStatus HS_ISA_NAME(hs_cpu_head_norm_forward)(HsContext *context, const HsHeadNormArgs *args)
{
    const HsTensor *const tensors[] = { &args->x, &args->q_weight, &args->k_weight, &args->y, &args->rstd };
    HS_TRY(hs_attention_refuse_f64("head_norm_forward", tensors, 5));
    const int64_t rows = hs_heads_rows(&args->heads);
#pragma omp parallel for num_threads(hs_cpu_threads(context, rows)) schedule(static)
    for (int64_t row = 0; row < rows; row++)
        normalize_row(args, row);
    return HS_OK;
}

/* Partial sums of a block of rows: dq_weight's vectors, then dk_weight's. */
static int64_t partial_vectors(const HsHeadNormBackwardArgs *args)
{
    return vectors_of(stretches_of(&args->heads, args->whole, QUERIES)) +
           vectors_of(stretches_of(&args->heads, args->whole, KEYS));
}

size_t HS_ISA_NAME(hs_cpu_head_norm_backward_workspace)(const HsContext *context, const HsHeadNormBackwardArgs *args)
{
    (void)context;
    const int64_t rows = hs_heads_rows(&args->heads);
    return (size_t)(hs_cpu_block_count(rows, hs_cpu_partial_rows(rows)) * partial_vectors(args)) * sizeof(HsF32Parts);
}

/* One stretch: dy and x at `at` of their tensors; its share of dweight is added to `dweight`. */
HS_SIMD void differentiate_stretch(HsDtype gradient, HsDtype in, HsDtype out, const HsHeadNormBackwardArgs *args,
                                   int64_t at, int64_t width, HsSimdFactors weight, float rstd, bool full,
                                   HsF32Parts *dweight)
{
    const void *dy_data = args->dy.data, *x = args->x.data;
    void *dx = args->dx.data;
    HsF32Parts products = { 0 };
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = full ? HS_LANES : width - d;
        const HsF32x16 dy = hs_simd_load_part(gradient, dy_data, at + d, left);
        const HsF32x16 normal = hs_simd_load_part(in, x, at + d, left) * rstd;
        hs_simd_accumulate(&dweight[d / HS_LANES], dy * normal);
        hs_simd_accumulate(&products, hs_simd_load_factors(weight, d, left) * dy * normal);
    }
    const float mean = hs_simd_sum(products.whole) / (float)width;
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = full ? HS_LANES : width - d;
        const HsF32x16 dy = hs_simd_load_part(gradient, dy_data, at + d, left);
        const HsF32x16 normal = hs_simd_load_part(in, x, at + d, left) * rstd;
        hs_simd_store_part(out, dx, at + d, (hs_simd_load_factors(weight, d, left) * dy - normal * mean) * rstd, left);
    }
}

HS_SIMD void differentiate_stretches(HsDtype gradient, HsDtype in, HsDtype out, const HsHeadNormBackwardArgs *in_memory,
                                     int64_t row, bool full, HsF32Parts *partial)
{
    const HsHeadNormBackwardArgs args = *in_memory; /* so that its pointers may stay in registers */
    const HsSimdFactors weights[KINDS] = { hs_simd_factors(&args.q_weight), hs_simd_factors(&args.k_weight) };
    const Stretches kinds[KINDS] = { stretches_of(&args.heads, args.whole, QUERIES),
                                     stretches_of(&args.heads, args.whole, KEYS) };
    const float *rstd = (const float *)args.rstd.data + row * (kinds[QUERIES].count + kinds[KEYS].count);
    int64_t at = row * hs_heads_columns(&args.heads);
    for (int kind = 0; kind < KINDS; kind++) {
        const Stretches stretches = kinds[kind];
        const HsSimdFactors weight = weights[kind];
        for (int64_t i = 0; i < stretches.count; i++, at += stretches.width)
            differentiate_stretch(gradient, in, out, &args, at, stretches.width, weight, *rstd++, full, partial);
        partial += vectors_of(stretches);
    }
}

static void differentiate_row(const HsHeadNormBackwardArgs *args, int64_t row, HsF32Parts *partial)
{
#define DIFFERENTIATE(in, out) differentiate_stretches(in, in, out, args, row, true, partial)
    if (are_whole_vectors(&args->heads, args->whole) && args->dy.dtype == args->x.dtype)
        HS_FOR_DTYPES(args->dy.dtype, args->dx.dtype, DIFFERENTIATE);
    else
        differentiate_stretches(args->dy.dtype, args->x.dtype, args->dx.dtype, args, row, false, partial);
#undef DIFFERENTIATE
    copy_values(&args->heads, row, &args->dy, &args->dx);
}

HsStatus HS_ISA_NAME(hs_cpu_head_norm_backward)(HsContext *context, const HsHeadNormBackwardArgs *args)
{
    const HsTensor *const tensors[] = { &args->dy,   &args->x,  &args->q_weight,  &args->k_weight,
                                        &args->rstd, &args->dx, &args->dq_weight, &args->dk_weight };
    HS_TRY(hs_attention_refuse_f64("head_norm_backward", tensors, 8));
    const int64_t rows = hs_heads_rows(&args->heads), vectors = partial_vectors(args);
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    HsF32Parts *partials = context->workspace;

#pragma omp parallel for num_threads(hs_cpu_threads(context, blocks)) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const HsRowBlock block = hs_cpu_block(rows, block_rows, b);
        memset(partials + b * vectors, 0, (size_t)vectors * sizeof *partials);
        for (int64_t row = block.begin; row < block.end; row++)
            differentiate_row(args, row, partials + b * vectors);
    }
    const HsTensor *const dweights[KINDS] = { &args->dq_weight, &args->dk_weight };
    for (int kind = 0; kind < KINDS; kind++) {
        const Stretches stretches = stretches_of(&args->heads, args->whole, kind);
        for (int64_t d = 0; d < stretches.width && hs_tensor_present(dweights[kind]); d += HS_LANES) {
            HsF32x16 sum = hs_simd_load_part(HS_F32, dweights[kind]->data, d, stretches.width - d);
            for (int64_t b = 0; b < blocks; b++)
                sum += partials[b * vectors + d / HS_LANES].whole;
            hs_simd_store_part(HS_F32, dweights[kind]->data, d, sum, stretches.width - d);
        }
        partials += vectors_of(stretches);
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->dx);
    return HS_OK;
}
