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

static HsF32x16 load(const HsTensor *x, int64_t at, int64_t d, int64_t width)
{
    return hs_simd_load_part(x->dtype, x->data, at + d, width - d);
}

static void copy_values(const HsHeads *heads, int64_t row, const HsTensor *from, const HsTensor *to)
{
    const int64_t at = row * hs_heads_columns(heads) + hs_value_column(heads, 0);
    const int64_t width = heads->kv_heads * heads->head_dim;
    for (int64_t c = 0; c < width; c += HS_LANES)
        hs_simd_store_part(to->dtype, to->data, at + c, load(from, at, c, width), width - c);
}

static void normalize_row(const HsHeadNormArgs *args, int64_t row)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, normed = heads->heads + heads->kv_heads;
    for (int64_t head = 0; head < normed; head++) {
        const int64_t at = row * hs_heads_columns(heads) + head * width;
        const HsTensor *weight = head < heads->heads ? &args->q_weight : &args->k_weight;
        HsF32x16 squares = { 0 };
        for (int64_t d = 0; d < width; d += HS_LANES) {
            const HsF32x16 x = load(&args->x, at, d, width);
            squares += x * x;
        }
        const float rstd = 1.0f / sqrtf(hs_simd_sum(squares) / (float)width + args->epsilon);
        for (int64_t d = 0; d < width; d += HS_LANES)
            hs_simd_store_part(args->y.dtype, args->y.data, at + d,
                               load(weight, 0, d, width) * (load(&args->x, at, d, width) * rstd), width - d);
        ((float *)args->rstd.data)[row * normed + head] = rstd;
    }
    copy_values(heads, row, &args->x, &args->y);
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

static void differentiate_row(const HsHeadNormBackwardArgs *args, int64_t row, Partial *partial)
{
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, normed = heads->heads + heads->kv_heads;
    for (int64_t head = 0; head < normed; head++) {
        const int64_t at = row * hs_heads_columns(heads) + head * width;
        const bool is_key = head >= heads->heads;
        const HsTensor *weight = is_key ? &args->k_weight : &args->q_weight;
        const float rstd = ((const float *)args->rstd.data)[row * normed + head];
        HsF32x16 products = { 0 };
        for (int64_t d = 0; d < width; d += HS_LANES) {
            const HsF32x16 dy = load(&args->dy, at, d, width), normal = load(&args->x, at, d, width) * rstd;
            partial->dweight[is_key][d / HS_LANES] += dy * normal;
            products += load(weight, 0, d, width) * dy * normal;
        }
        const float mean = hs_simd_sum(products) / (float)width;
        for (int64_t d = 0; d < width; d += HS_LANES) {
            const HsF32x16 dy = load(&args->dy, at, d, width), normal = load(&args->x, at, d, width) * rstd;
            hs_simd_store_part(args->dx.dtype, args->dx.data, at + d,
                               (load(weight, 0, d, width) * dy - normal * mean) * rstd, width - d);
        }
    }
    copy_values(heads, row, &args->dy, &args->dx);
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
        for (int64_t d = 0; d < width; d += HS_LANES) {
            HsF32x16 sum = load(dweights[i], 0, d, width);
            for (int64_t b = 0; b < blocks; b++)
                sum += partials[b].dweight[i][d / HS_LANES];
            hs_simd_store_part(HS_F32, dweights[i]->data, d, sum, width - d);
        }
    }
    return HS_OK;
}
