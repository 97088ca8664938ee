/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4), rows in
 * parallel. A row is read twice for its statistics (mean first, so that a common offset does not cancel) and once for
 * its result; from the second time on it lies in the first-level cache.  dweight and dbias are sums over rows: one
 * partial sum per block of rows, blocks cut by shape, added in their order.
 * So is dx_sums: to the bit what bias_backward makes of dx.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

/* FINISHED_ROWS: of dx, 16 KiB at a width of 1024, that are gone through again while a cache holds them. */
enum { ROW_CHUNK = 8, FINISHED_ROWS = 4 };

/* for each group of lanes of a row: index i, lane count `left`, which a constant `whole` (the width is a multiple of
 * HS_LANES) makes the constant HS_LANES */
#define FOR_LANES(i, left, whole, width)                                  \
    for (int64_t i = 0, left = (whole) ? HS_LANES : (width); i < (width); \
         i += HS_LANES, left = (whole) ? HS_LANES : (width)-i)

/* plus: whether the addend, of dtype `stream`, is added; a constant where this is inlined. */
HS_SIMD void forward_row(const HsNormArgs *args, HsDtype in, HsDtype out, bool plus, HsDtype stream, bool whole,
                         int64_t row)
{
    const HsSimdFactors weight = hs_simd_factors(&args->weight);
    const int64_t width = args->x.shape[1], at = row * width;
    float mean = 0.0f;
    HsF32Parts sum = { 0 };
    if (args->kind == HS_NORM_LAYER) {
        FOR_LANES(i, left, whole, width)
        hs_simd_accumulate(&sum, hs_simd_load_part(in, args->x.data, at + i, left));
        mean = hs_simd_sum(sum.whole) / (float)width;
        sum = (HsF32Parts){ 0 };
    }
    FOR_LANES(i, left, whole, width)
    {
        /* lanes beyond the row: x - mean is not 0 there, though x was loaded as 0 */
        HsF32x16 centred = hs_simd_keep_first(hs_simd_load_part(in, args->x.data, at + i, left) - mean, left);
        hs_simd_accumulate(&sum, centred * centred);
    }
    const float rstd = 1.0f / sqrtf(hs_simd_sum(sum.whole) / (float)width + args->epsilon);
    const bool biased = hs_tensor_present(&args->bias);
    FOR_LANES(i, left, whole, width)
    {
        HsF32x16 y =
            (hs_simd_load_part(in, args->x.data, at + i, left) - mean) * rstd * hs_simd_load_factors(weight, i, left);
        if (biased)
            y += hs_simd_load_part(HS_F32, args->bias.data, i, left);
        if (plus)
            y += hs_simd_load_part(stream, args->addend.data, at + i, left);
        hs_simd_store_part(out, args->y.data, at + i, y, left);
    }
    ((float *)args->rstd.data)[row] = rstd;
    if (hs_tensor_present(&args->mean))
        ((float *)args->mean.data)[row] = mean;
}

/* The rows of x that a branch is added to: dropout_forward's own loop, while a cache holds them. */
static void sum_rows(const HsNormArgs *args, HsRowBlock range)
{
    const int64_t width = args->x.shape[1];
    const HsDropoutArgs sum = {
        .probability = args->probability, .rng = args->rng, .x = args->branch, .residual = args->residual, .y = args->x
    };
    if (hs_tensor_present(&args->branch))
        HS_ISA_NAME(hs_cpu_dropout_elements)(&sum, (HsRowBlock){ range.begin * width, range.end * width });
}

/* With constants for what training has: a stream of the branch's format, or of f32. */
static void forward_and_add(const HsNormArgs *args, int64_t row)
{
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#define FORWARD(in, out) forward_row(args, in, out, true, out, true, row)
    if (args->x.shape[1] % HS_LANES != 0 || args->addend.dtype != out)
        forward_row(args, in, out, true, args->addend.dtype, false, row);
    else if (in == HS_F16 && out == HS_F32)
        FORWARD(HS_F16, HS_F32);
    else
        HS_FOR_DTYPES(in, out, FORWARD);
#undef FORWARD
}

static void forward_alone(const HsNormArgs *args, int64_t row)
{
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#define FORWARD(in, out) forward_row(args, in, out, false, out, true, row)
    if (args->x.shape[1] % HS_LANES == 0)
        HS_FOR_DTYPES(in, out, FORWARD);
    else
        forward_row(args, in, out, false, out, false, row);
#undef FORWARD
}

HsStatus HS_ISA_NAME(hs_cpu_norm_forward)(HsContext *context, const HsNormArgs *args)
{
    const int64_t rows = args->x.shape[0], blocks = hs_cpu_block_count(rows, ROW_CHUNK);
    const bool plus = hs_tensor_present(&args->addend);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, ROW_CHUNK, block);
        sum_rows(args, range);
        for (int64_t row = range.begin; row < range.end; row++) {
            if (plus)
                forward_and_add(args, row);
            else
                forward_alone(args, row);
        }
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->y);
    return HS_ISA_NAME(hs_cpu_cast)(context, &args->y, &args->cast);
}

size_t HS_ISA_NAME(hs_cpu_norm_forward_workspace)(const HsContext *context, const HsNormArgs *args)
{
    return HS_ISA_NAME(hs_cpu_cast_workspace)(context, &args->cast);
}

/* Partial sums of block b, each a row of `width` floats: dweight's first, dbias's, dx_sums'. */
enum { PARTIALS = 3 };
static float *partial(float *workspace, int64_t block, int64_t which, int64_t width)
{
    const int64_t row = (int64_t)(hs_cpu_align((size_t)width * sizeof(float)) / sizeof(float));
    return workspace + (PARTIALS * block + which) * row;
}

size_t HS_ISA_NAME(hs_cpu_norm_backward_workspace)(const HsContext *context, const HsNormBackwardArgs *args)
{
    const int64_t blocks = hs_cpu_block_count(args->x.shape[0], hs_cpu_partial_rows(args->x.shape[0]));
    const size_t bytes = (size_t)(PARTIALS * blocks) * hs_cpu_align((size_t)args->x.shape[1] * sizeof(float));
    const size_t after = HS_ISA_NAME(hs_cpu_cast_workspace)(context, &args->cast);
    return after > bytes ? after : bytes;
}

/* g = weight dy;  dx [+]= rstd (g - mean(g) - xhat mean(g xhat));  rms without mean(g) */
HS_SIMD void backward_row(const HsNormBackwardArgs *args, HsDtype gradient, HsDtype stream, HsDtype out, bool whole,
                          int64_t row, float *dweight, float *dbias)
{
    const HsSimdFactors weight = hs_simd_factors(&args->weight);
    const int64_t width = args->x.shape[1], at = row * width;
    const bool layer = args->kind == HS_NORM_LAYER;
    const float rstd = ((const float *)args->rstd.data)[row];
    const float mean = layer ? ((const float *)args->mean.data)[row] : 0.0f;
    HsF32Parts sum_g = { 0 }, sum_g_xhat = { 0 };
    FOR_LANES(i, left, whole, width)
    {
        HsF32x16 dy = hs_simd_load_part(gradient, args->dy.data, at + i, left);
        HsF32x16 xhat = (hs_simd_load_part(stream, args->x.data, at + i, left) - mean) * rstd;
        HsF32x16 g = dy * hs_simd_load_factors(weight, i, left);
        hs_simd_accumulate(&sum_g, g);
        hs_simd_accumulate(&sum_g_xhat, g * xhat); /* lanes beyond the row: g is 0 */
        hs_simd_store_part(HS_F32, dweight, i, hs_simd_load_part(HS_F32, dweight, i, left) + dy * xhat, left);
        hs_simd_store_part(HS_F32, dbias, i, hs_simd_load_part(HS_F32, dbias, i, left) + dy, left);
    }
    const float mean_g = layer ? hs_simd_sum(sum_g.whole) / (float)width : 0.0f;
    const float mean_g_xhat = hs_simd_sum(sum_g_xhat.whole) / (float)width;
    FOR_LANES(i, left, whole, width)
    {
        HsF32x16 xhat = (hs_simd_load_part(stream, args->x.data, at + i, left) - mean) * rstd;
        HsF32x16 g = hs_simd_load_part(gradient, args->dy.data, at + i, left) * hs_simd_load_factors(weight, i, left);
        HsF32x16 dx = rstd * (g - mean_g - xhat * mean_g_xhat);
        if (args->accumulate)
            dx += hs_simd_load_part(out, args->dx.data, at + i, left);
        hs_simd_store_part(out, args->dx.data, at + i, dx, left);
    }
}

static void add_partials(float *workspace, int64_t blocks, int64_t which, int64_t width, const HsTensor *total)
{
    FOR_LANES(i, left, false, width)
    {
        HsF32x16 sum = hs_simd_splat(0.0f);
        for (int64_t block = 0; block < blocks; block++)
            sum += hs_simd_load_part(HS_F32, partial(workspace, block, which, width), i, left);
        sum += hs_simd_load_part(HS_F32, total->data, i, left);
        hs_simd_store_part(HS_F32, total->data, i, sum, left);
    }
}

/* sum[i] += four rows of dy, one after the other: the sums pass through the cache once in four rows. */
HS_SIMD void add_row_vector(HsDtype dtype, const void *dy, int64_t at, int64_t width, int rows, float *sum, int64_t i,
                            int64_t left)
{
    HsF32x16 total = hs_simd_load_part(HS_F32, sum, i, left);
    for (int row = 0; row < rows; row++)
        total += hs_simd_load_part(dtype, dy, at + row * width + i, left);
    hs_simd_store_part(HS_F32, sum, i, total, left);
}

HS_SIMD void add_rows(HsDtype dtype, const void *dy, HsRowBlock range, int64_t width, float *sum)
{
    int64_t row = range.begin;
    for (; row + 4 <= range.end; row += 4)
        HS_FOR_VECTORS(i, left, 0, width, add_row_vector(dtype, dy, row * width, width, 4, sum, i, left));
    for (; row < range.end; row++)
        HS_FOR_VECTORS(i, left, 0, width, add_row_vector(dtype, dy, row * width, width, 1, sum, i, left));
}

/* What is wanted of dx while the first-level cache holds these rows: the own loops of convert, bias_backward and
 * dropout_backward. */
static void finish_rows(const HsNormBackwardArgs *args, HsRowBlock range, float *sums)
{
    const int64_t width = args->dx.shape[1];
    const void *dx = args->dx.data;
    void *rounded = args->dx_rounded.data;
#define ROUND(out)                                                \
    HS_FOR_VECTORS(i, left, range.begin *width, range.end *width, \
                   hs_simd_store_part(out, rounded, i, hs_simd_load_part(HS_F32, dx, i, left), left))
    if (hs_tensor_present(&args->dx_rounded) && args->dx_rounded.dtype == HS_BF16)
        ROUND(HS_BF16);
    else if (hs_tensor_present(&args->dx_rounded))
        ROUND(HS_F16);
#undef ROUND
    if (hs_tensor_present(&args->dx_sums))
        add_rows(HS_F32, dx, range, width, sums);
    const HsDropoutArgs mask = {
        .probability = args->probability, .rng = args->rng, .x = args->dx, .y = args->dx_masked
    };
    if (hs_tensor_present(&args->dx_masked))
        HS_ISA_NAME(hs_cpu_dropout_elements)(&mask, (HsRowBlock){ range.begin * width, range.end * width });
}

HsStatus HS_ISA_NAME(hs_cpu_norm_backward)(HsContext *context, const HsNormBackwardArgs *args)
{
    const int64_t rows = args->x.shape[0], width = args->x.shape[1];
    const int64_t block_rows = hs_cpu_partial_rows(rows), blocks = hs_cpu_block_count(rows, block_rows);
    const HsDtype gradient = args->dy.dtype, stream = args->x.dtype, out = args->dx.dtype;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(rows, block_rows, block);
        float *dweight = partial(context->workspace, block, 0, width);
        float *dbias = partial(context->workspace, block, 1, width);
        float *sums = partial(context->workspace, block, 2, width);
        memset(dweight, 0, (size_t)width * sizeof(float));
        memset(dbias, 0, (size_t)width * sizeof(float));
        memset(sums, 0, (size_t)width * sizeof(float));
        for (int64_t row = range.begin; row < range.end; row++) {
#define BACKWARD(gradient, stream) backward_row(args, gradient, stream, stream, true, row, dweight, dbias)
            if (width % HS_LANES == 0 && out == stream && gradient == HS_F32 && stream == HS_F16)
                BACKWARD(HS_F32, HS_F16); /* of a branch, from the stream that its norm was added to */
            else if (width % HS_LANES == 0 && out == stream)
                HS_FOR_DTYPES(gradient, stream, BACKWARD);
            else
                backward_row(args, gradient, stream, out, false, row, dweight, dbias);
#undef BACKWARD
            const int64_t done = row + 1 - range.begin;
            if (done % FINISHED_ROWS == 0)
                finish_rows(args, (HsRowBlock){ row + 1 - FINISHED_ROWS, row + 1 }, sums);
            else if (row + 1 == range.end)
                finish_rows(args, (HsRowBlock){ row + 1 - done % FINISHED_ROWS, row + 1 }, sums);
        }
    }
    if (hs_tensor_present(&args->dweight))
        add_partials(context->workspace, blocks, 0, width, &args->dweight);
    if (hs_tensor_present(&args->dbias))
        add_partials(context->workspace, blocks, 1, width, &args->dbias);
    if (hs_tensor_present(&args->dx_sums))
        add_partials(context->workspace, blocks, 2, width, &args->dx_sums);
    HS_ISA_NAME(hs_cpu_find_amax)(context, hs_norm_handed_on(args));
    return HS_ISA_NAME(hs_cpu_cast)(context, &args->dx_rounded, &args->cast);
}

size_t HS_ISA_NAME(hs_cpu_bias_backward_workspace)(const HsContext *context, const HsBiasBackwardArgs *args)
{
    (void)context;
    const int64_t blocks = hs_cpu_block_count(args->dy.shape[0], hs_cpu_partial_rows(args->dy.shape[0]));
    return (size_t)(PARTIALS * blocks) * hs_cpu_align((size_t)args->dy.shape[1] * sizeof(float));
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
        if (args->dy.dtype == HS_F32)
            add_rows(HS_F32, args->dy.data, range, width, sum);
        else if (args->dy.dtype == HS_BF16)
            add_rows(HS_BF16, args->dy.data, range, width, sum);
        else
            add_rows(HS_F16, args->dy.data, range, width, sum);
    }
    add_partials(context->workspace, blocks, 0, width, &args->dbias);
    return HS_OK;
}
