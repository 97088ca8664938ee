/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4), rows in
 * parallel. A row is read twice for its statistics (mean first, so that a common offset does not cancel) and once for
 * its result; from the second time on it lies in the first-level cache. dweight and dbias are sums over rows: one
 * partial sum per block of rows, blocks cut by shape, added in their order.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { ROW_CHUNK = 8 };

#define FOR_LANES(i, left, width) for (int64_t i = 0, left = (width); left > 0; i += HS_LANES, left -= HS_LANES)

/* Lanes beyond `left` set to zero: x - mean is not 0 there, though x was loaded as 0. */
HS_SIMD HsF32x16 first_lanes(HsF32x16 v, int64_t left)
{
    static const HsI32x16 lane = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return left >= HS_LANES ? v : hs_simd_select(lane < (int32_t)left, v, hs_simd_splat(0.0f));
}

HS_SIMD void forward_row(const HsNormArgs *args, HsDtype in, HsDtype out, int64_t row)
{
    const int64_t width = args->x.shape[1], at = row * width;
    float mean = 0.0f;
    HsF32x16 sum = hs_simd_splat(0.0f);
    if (args->kind == HS_NORM_LAYER) {
        FOR_LANES(i, left, width)
        sum += hs_simd_load_part(in, args->x.data, at + i, left);
        mean = hs_simd_sum(sum) / (float)width;
        sum = hs_simd_splat(0.0f);
    }
    FOR_LANES(i, left, width)
    {
        HsF32x16 centred = first_lanes(hs_simd_load_part(in, args->x.data, at + i, left) - mean, left);
        sum += centred * centred;
    }
    const float rstd = 1.0f / sqrtf(hs_simd_sum(sum) / (float)width + args->epsilon);
    const bool biased = hs_tensor_present(&args->bias);
    FOR_LANES(i, left, width)
    {
        HsF32x16 y = (hs_simd_load_part(in, args->x.data, at + i, left) - mean) * rstd *
                     hs_simd_load_part(HS_F32, args->weight.data, i, left);
        if (biased)
            y += hs_simd_load_part(HS_F32, args->bias.data, i, left);
        hs_simd_store_part(out, args->y.data, at + i, y, left);
    }
    ((float *)args->rstd.data)[row] = rstd;
    if (hs_tensor_present(&args->mean))
        ((float *)args->mean.data)[row] = mean;
}

HsStatus HS_ISA_NAME(hs_cpu_norm_forward)(HsContext *context, const HsNormArgs *args)
{
    const int64_t rows = args->x.shape[0], blocks = hs_cpu_block_count(rows, ROW_CHUNK);
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, ROW_CHUNK, block);
        for (int64_t row = range.begin; row < range.end; row++) {
            if (in == HS_F32 && out == HS_BF16) /* the residual stream's case, without branches inside */
                forward_row(args, HS_F32, HS_BF16, row);
            else if (in == HS_F32 && out == HS_F32)
                forward_row(args, HS_F32, HS_F32, row);
            else
                forward_row(args, in, out, row);
        }
    }
    return HS_OK;
}

/* Partial sums of block b: dweight at [2b], dbias at [2b + 1], each a row of `width` floats. */
static float *partial(float *workspace, int64_t block, int64_t which, int64_t width)
{
    return workspace + (2 * block + which) * (int64_t)(hs_cpu_align((size_t)width * sizeof(float)) / sizeof(float));
}

size_t HS_ISA_NAME(hs_cpu_norm_backward_workspace)(const HsContext *context, const HsNormBackwardArgs *args)
{
    (void)context;
    const int64_t blocks = hs_cpu_block_count(args->x.shape[0], hs_cpu_partial_rows(args->x.shape[0]));
    return (size_t)(2 * blocks) * hs_cpu_align((size_t)args->x.shape[1] * sizeof(float));
}

/* g = weight dy;  dx [+]= rstd (g - mean(g) - xhat mean(g xhat));  rms without mean(g) */
HS_SIMD void backward_row(const HsNormBackwardArgs *args, HsDtype gradient, HsDtype stream, int64_t row, float *dweight,
                          float *dbias)
{
    const int64_t width = args->x.shape[1], at = row * width;
    const bool layer = args->kind == HS_NORM_LAYER;
    const float rstd = ((const float *)args->rstd.data)[row];
    const float mean = layer ? ((const float *)args->mean.data)[row] : 0.0f;
    HsF32x16 sum_g = hs_simd_splat(0.0f), sum_g_xhat = hs_simd_splat(0.0f);
    FOR_LANES(i, left, width)
    {
        HsF32x16 dy = hs_simd_load_part(gradient, args->dy.data, at + i, left);
        HsF32x16 xhat = (hs_simd_load_part(stream, args->x.data, at + i, left) - mean) * rstd;
        HsF32x16 g = dy * hs_simd_load_part(HS_F32, args->weight.data, i, left);
        sum_g += g;
        sum_g_xhat += g * xhat; /* lanes beyond the row: g is 0 */
        hs_simd_store_part(HS_F32, dweight, i, hs_simd_load_part(HS_F32, dweight, i, left) + dy * xhat, left);
        hs_simd_store_part(HS_F32, dbias, i, hs_simd_load_part(HS_F32, dbias, i, left) + dy, left);
    }
    const float mean_g = layer ? hs_simd_sum(sum_g) / (float)width : 0.0f;
    const float mean_g_xhat = hs_simd_sum(sum_g_xhat) / (float)width;
    FOR_LANES(i, left, width)
    {
        HsF32x16 xhat = (hs_simd_load_part(stream, args->x.data, at + i, left) - mean) * rstd;
        HsF32x16 g = hs_simd_load_part(gradient, args->dy.data, at + i, left) *
                     hs_simd_load_part(HS_F32, args->weight.data, i, left);
        HsF32x16 dx = rstd * (g - mean_g - xhat * mean_g_xhat);
        if (args->accumulate)
            dx += hs_simd_load_part(args->dx.dtype, args->dx.data, at + i, left);
        hs_simd_store_part(args->dx.dtype, args->dx.data, at + i, dx, left);
    }
}

static void add_partials(float *workspace, int64_t blocks, int64_t which, int64_t width, const HsTensor *total)
{
    FOR_LANES(i, left, width)
    {
        HsF32x16 sum = hs_simd_splat(0.0f);
        for (int64_t block = 0; block < blocks; block++)
            sum += hs_simd_load_part(HS_F32, partial(workspace, block, which, width), i, left);
        sum += hs_simd_load_part(HS_F32, total->data, i, left);
        hs_simd_store_part(HS_F32, total->data, i, sum, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_norm_backward)(HsContext *context, const HsNormBackwardArgs *args)
{
    const int64_t rows = args->x.shape[0], width = args->x.shape[1];
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    const HsDtype gradient = args->dy.dtype, stream = args->x.dtype;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, block_rows, block);
        float *dweight = partial(context->workspace, block, 0, width);
        float *dbias = partial(context->workspace, block, 1, width);
        memset(dweight, 0, (size_t)width * sizeof(float));
        memset(dbias, 0, (size_t)width * sizeof(float));
        for (int64_t row = range.begin; row < range.end; row++) {
            if (gradient == HS_BF16 && stream == HS_F32)
                backward_row(args, HS_BF16, HS_F32, row, dweight, dbias);
            else if (gradient == HS_F32 && stream == HS_F32)
                backward_row(args, HS_F32, HS_F32, row, dweight, dbias);
            else
                backward_row(args, gradient, stream, row, dweight, dbias);
        }
    }
    add_partials(context->workspace, blocks, 0, width, &args->dweight);
    if (hs_tensor_present(&args->dbias))
        add_partials(context->workspace, blocks, 1, width, &args->dbias);
    return HS_OK;
}

size_t HS_ISA_NAME(hs_cpu_bias_backward_workspace)(const HsContext *context, const HsBiasBackwardArgs *args)
{
    (void)context;
    const int64_t blocks = hs_cpu_block_count(args->dy.shape[0], hs_cpu_partial_rows(args->dy.shape[0]));
    return (size_t)(2 * blocks) * hs_cpu_align((size_t)args->dy.shape[1] * sizeof(float));
}

/* dbias += sum over rows of dy, by the same partial sums */
HsStatus HS_ISA_NAME(hs_cpu_bias_backward)(HsContext *context, const HsBiasBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0], width = args->dy.shape[1];
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, block_rows, block);
        float *sum = partial(context->workspace, block, 0, width);
        memset(sum, 0, (size_t)width * sizeof(float));
        for (int64_t row = range.begin; row < range.end; row++)
            FOR_LANES(i, left, width)
        hs_simd_store_part(HS_F32, sum, i,
                           hs_simd_load_part(HS_F32, sum, i, left) +
                               hs_simd_load_part(args->dy.dtype, args->dy.data, row * width + i, left),
                           left);
    }
    add_partials(context->workspace, blocks, 0, width, &args->dbias);
    return HS_OK;
}
