/* SPDX-License-Identifier: MIT
 *
 * QK-norm: root-mean-square norm of every q and k head (Zhang & Sennrich 2019, eq. 4), v copied.  For one head of width
 * D, with xhat = x rstd and g = weight * dy:
 *     rstd = 1 / sqrt(mean(x^2) + eps)    y = weight * xhat    dx = rstd (g - xhat mean(g * xhat))
 *     dweight += sum over rows and heads of dy * xhat
 * Weight gradients: one partial sum for each block of rows, in scratch, then the blocks in order (kernels/cpu/cpu.h).
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

enum { MOST_VECTORS = HS_MAX_HEAD_DIM / HS_LANES };

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

/* One head of x at `x`, its result at `y`; returns rstd.  `whole`: the width is a multiple of HS_LANES, a constant
 * where this is inlined. */
HS_SIMD float normalize_head(HsDtype in, HsDtype out, const void *x, void *y, int64_t at, const float *weight,
                             int64_t width, bool whole, float epsilon)
{
    HsF32x16 squares = { 0 };
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const HsF32x16 value = hs_simd_load_part(in, x, at + d, whole ? HS_LANES : width - d);
        squares += value * value;
    }
    const float rstd = 1.0f / sqrtf(hs_simd_sum(squares) / (float)width + epsilon);
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = whole ? HS_LANES : width - d;
        const HsF32x16 value = hs_simd_load_part(in, x, at + d, left);
        hs_simd_store_part(out, y, at + d, hs_simd_load_part(HS_F32, weight, d, left) * (value * rstd), left);
    }
    return rstd;
}

HS_SIMD void normalize_heads(HsDtype in, HsDtype out, const HsHeadNormArgs *args, int64_t row, bool whole)
{
    const HsHeads heads = args->heads;
    const int64_t width = heads.head_dim, normed = heads.heads + heads.kv_heads, at = row * hs_heads_columns(&heads);
    const float *q_weight = args->q_weight.data, *k_weight = args->k_weight.data, epsilon = args->epsilon;
    const void *x = args->x.data;
    void *y = args->y.data;
    float *rstd = (float *)args->rstd.data + row * normed;
    for (int64_t head = 0; head < normed; head++)
        rstd[head] = normalize_head(in, out, x, y, at + head * width, head < heads.heads ? q_weight : k_weight, width,
                                    whole, epsilon);
}

static void normalize_row(const HsHeadNormArgs *args, int64_t row)
{
    const bool whole = args->heads.head_dim % HS_LANES == 0;
#define NORMALIZE(in, out) normalize_heads(in, out, args, row, true)
    if (whole)
        HS_FOR_DTYPES(args->x.dtype, args->y.dtype, NORMALIZE);
    else
        normalize_heads(args->x.dtype, args->y.dtype, args, row, false);
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

/* Partial sums of a block of rows: dq_weight, then dk_weight, whole vectors. */
typedef struct Partial {
    HsF32x16 dweight[2][MOST_VECTORS];
} Partial;

size_t HS_ISA_NAME(hs_cpu_head_norm_backward_workspace)(const HsContext *context, const HsHeadNormBackwardArgs *args)
{
    (void)context;
    const int64_t rows = hs_heads_rows(&args->heads);
    return (size_t)hs_cpu_block_count(rows, hs_cpu_partial_rows(rows)) * sizeof(Partial);
}

/* One head: dy and x at `at` of their tensors; its share of dweight is added to `dweight`. */
HS_SIMD void differentiate_head(HsDtype in, HsDtype out, const HsHeadNormBackwardArgs *args, int64_t at,
                                const float *weight, float rstd, bool whole, HsF32x16 *dweight)
{
    const int64_t width = args->heads.head_dim;
    const void *dy_data = args->dy.data, *x = args->x.data;
    void *dx = args->dx.data;
    HsF32x16 products = { 0 };
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = whole ? HS_LANES : width - d;
        const HsF32x16 dy = hs_simd_load_part(in, dy_data, at + d, left);
        const HsF32x16 normal = hs_simd_load_part(in, x, at + d, left) * rstd;
        dweight[d / HS_LANES] += dy * normal;
        products += hs_simd_load_part(HS_F32, weight, d, left) * dy * normal;
    }
    const float mean = hs_simd_sum(products) / (float)width;
    for (int64_t d = 0; d < width; d += HS_LANES) {
        const int64_t left = whole ? HS_LANES : width - d;
        const HsF32x16 dy = hs_simd_load_part(in, dy_data, at + d, left);
        const HsF32x16 normal = hs_simd_load_part(in, x, at + d, left) * rstd;
        hs_simd_store_part(out, dx, at + d, (hs_simd_load_part(HS_F32, weight, d, left) * dy - normal * mean) * rstd,
                           left);
    }
}

HS_SIMD void differentiate_heads(HsDtype in, HsDtype out, const HsHeadNormBackwardArgs *in_memory, int64_t row,
                                 bool whole, Partial *partial)
{
    const HsHeadNormBackwardArgs args = *in_memory; /* so that its pointers may stay in registers */
    const HsHeads *heads = &args.heads;
    const int64_t width = heads->head_dim, normed = heads->heads + heads->kv_heads;
    for (int64_t head = 0; head < normed; head++) {
        const bool is_key = head >= heads->heads;
        differentiate_head(in, out, &args, row * hs_heads_columns(heads) + head * width,
                           is_key ? args.k_weight.data : args.q_weight.data,
                           ((const float *)args.rstd.data)[row * normed + head], whole, partial->dweight[is_key]);
    }
}

static void differentiate_row(const HsHeadNormBackwardArgs *args, int64_t row, Partial *partial)
{
    const bool whole = args->heads.head_dim % HS_LANES == 0;
#define DIFFERENTIATE(in, out) differentiate_heads(in, out, args, row, true, partial)
    if (whole)
        HS_FOR_DTYPES(args->dy.dtype, args->dx.dtype, DIFFERENTIATE);
    else
        differentiate_heads(args->dy.dtype, args->dx.dtype, args, row, false, partial);
#undef DIFFERENTIATE
    copy_values(&args->heads, row, &args->dy, &args->dx);
}

HsStatus HS_ISA_NAME(hs_cpu_head_norm_backward)(HsContext *context, const HsHeadNormBackwardArgs *args)
{
    const HsTensor *const tensors[] = { &args->dy,   &args->x,  &args->q_weight,  &args->k_weight,
                                        &args->rstd, &args->dx, &args->dq_weight, &args->dk_weight };
    HS_TRY(hs_attention_refuse_f64("head_norm_backward", tensors, 8));
    const int64_t rows = hs_heads_rows(&args->heads), width = args->heads.head_dim;
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    Partial *partials = context->workspace;

#pragma omp parallel for num_threads(hs_cpu_threads(context, blocks)) schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const HsRowBlock block = hs_cpu_block(rows, block_rows, b);
        partials[b] = (Partial){ 0 };
        for (int64_t row = block.begin; row < block.end; row++)
            differentiate_row(args, row, &partials[b]);
    }
    const HsTensor *const dweights[2] = { &args->dq_weight, &args->dk_weight };
    for (int i = 0; i < 2; i++) {
        for (int64_t d = 0; d < width && hs_tensor_present(dweights[i]); d += HS_LANES) {
            HsF32x16 sum = hs_simd_load_part(HS_F32, dweights[i]->data, d, width - d);
            for (int64_t b = 0; b < blocks; b++)
                sum += partials[b].dweight[i][d / HS_LANES];
            hs_simd_store_part(HS_F32, dweights[i]->data, d, sum, width - d);
        }
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->dx);
    return HS_OK;
}
