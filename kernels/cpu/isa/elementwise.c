/* SPDX-License-Identifier: MIT
 *
 * Operations that read and write each element once: gelu, swiglu, dropout, convert, add, and the row copies of the
 * embedding.  All are bound by memory; the arithmetic is in f32 with one rounding at the store.
 *
 * Work is cut in chunks of a fixed number of elements.  Small tensors stay on the calling thread: starting a team costs
 * more than the work.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { CHUNK = 4096, SMALL = 8192 };

static inline int threads_for(const HsContext *context, int64_t elements)
{
    return elements <= SMALL ? 1 : hs_cpu_threads(context, hs_cpu_block_count(elements, CHUNK));
}

/* for each group of lanes of a chunk: index i, lane count `left` */
#define FOR_LANES(i, left, begin, end) \
    for (int64_t i = (begin), left = (end) - (begin); left > 0; i += HS_LANES, left -= HS_LANES)

HsStatus HS_ISA_NAME(hs_cpu_gelu_forward)(HsContext *context, const HsUnaryArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, CHUNK, block);
        FOR_LANES(i, left, range.begin, range.end)
        hs_simd_store_part(out, args->y.data, i, hs_simd_gelu(hs_simd_load_part(in, args->x.data, i, left)), left);
    }
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_gelu_backward)(HsContext *context, const HsUnaryBackwardArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    const HsDtype gradient = args->dy.dtype, in = args->x.dtype, out = args->dx.dtype;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, CHUNK, block);
        FOR_LANES(i, left, range.begin, range.end)
        {
            HsF32x16 dy = hs_simd_load_part(gradient, args->dy.data, i, left);
            HsF32x16 x = hs_simd_load_part(in, args->x.data, i, left);
            hs_simd_store_part(out, args->dx.data, i, dy * hs_simd_gelu_derivative(x), left);
        }
    }
    return HS_OK;
}

/* silu(gate) * up, x row = [gate | up] (Shazeer 2020, section 2) */
HsStatus HS_ISA_NAME(hs_cpu_swiglu_forward)(HsContext *context, const HsUnaryArgs *args)
{
    const int64_t rows = args->y.shape[0], width = args->y.shape[1];
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, rows *width))
    for (int64_t row = 0; row < rows; row++) {
        FOR_LANES(i, left, 0, width)
        {
            HsF32x16 complement, gate = hs_simd_load_part(in, args->x.data, row * 2 * width + i, left);
            HsF32x16 up = hs_simd_load_part(in, args->x.data, row * 2 * width + width + i, left);
            hs_simd_store_part(out, args->y.data, row * width + i, gate * hs_simd_sigmoid(gate, &complement) * up,
                               left);
        }
    }
    return HS_OK;
}

/* silu'(g) = s (1 + g (1 - s)) */
HsStatus HS_ISA_NAME(hs_cpu_swiglu_backward)(HsContext *context, const HsUnaryBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0], width = args->dy.shape[1];
    const HsDtype gradient = args->dy.dtype, in = args->x.dtype, out = args->dx.dtype;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, rows *width))
    for (int64_t row = 0; row < rows; row++) {
        FOR_LANES(i, left, 0, width)
        {
            const int64_t at = row * 2 * width + i;
            HsF32x16 complement, gate = hs_simd_load_part(in, args->x.data, at, left);
            HsF32x16 up = hs_simd_load_part(in, args->x.data, at + width, left);
            HsF32x16 dy = hs_simd_load_part(gradient, args->dy.data, row * width + i, left);
            HsF32x16 s = hs_simd_sigmoid(gate, &complement);
            hs_simd_store_part(out, args->dx.data, at, dy * up * (s * (1.0f + gate * complement)), left);
            hs_simd_store_part(out, args->dx.data, at + width, dy * (gate * s), left);
        }
    }
    return HS_OK;
}

/* One chunk of y = residual + mask(x) / (1 - p).  The mask's element index counts from the effective batch's start. */
static void dropout_chunk(const HsDropoutArgs *args, HsRowBlock range)
{
    const float scale = 1.0f / (1.0f - args->probability);
    const uint64_t offset = (uint64_t)(args->rng.row_offset * args->x.shape[1]);
    const bool residual = hs_tensor_present(&args->residual);
    float keep[64];
    for (int64_t begin = range.begin; begin < range.end; begin += 64) {
        const int64_t end = begin + 64 < range.end ? begin + 64 : range.end;
        hs_simd_keep_row(&args->rng, args->probability, offset + (uint64_t)begin, end - begin, keep);
        FOR_LANES(i, left, begin, end)
        {
            HsF32x16 kept = hs_simd_load_part(HS_F32, keep, i - begin, left);
            HsF32x16 x = hs_simd_load_part(args->x.dtype, args->x.data, i, left);
            /* A dropped element is 0 even where x is infinite: select, do not multiply. */
            HsF32x16 y = hs_simd_select(kept != 0.0f, x * scale, hs_simd_splat(0.0f));
            if (residual)
                y += hs_simd_load_part(args->residual.dtype, args->residual.data, i, left);
            hs_simd_store_part(args->y.dtype, args->y.data, i, y, left);
        }
    }
}

HsStatus HS_ISA_NAME(hs_cpu_dropout_forward)(HsContext *context, const HsDropoutArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++)
        dropout_chunk(args, hs_cpu_block(count, CHUNK, block));
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_dropout_backward)(HsContext *context, const HsDropoutArgs *args)
{
    HsDropoutArgs without_residual = *args;
    without_residual.residual.rank = 0;
    return HS_ISA_NAME(hs_cpu_dropout_forward)(context, &without_residual);
}

static void convert_chunk(const HsConvertArgs *args, HsRowBlock range)
{
    if (!args->stochastic) {
        FOR_LANES(i, left, range.begin, range.end)
        hs_simd_store_part(args->y.dtype, args->y.data, i, hs_simd_load_part(args->x.dtype, args->x.data, i, left),
                           left);
        return;
    }
    uint32_t word[64];
    FOR_LANES(i, left, range.begin, range.end)
    {
        if (i % 64 == 0) /* CHUNK is a multiple of 64 */
            hs_simd_draw64(&args->rng, (uint64_t)i / 4, word);
        hs_simd_store_part_stochastic(args->y.data, i, hs_simd_load_part(HS_F32, args->x.data, i, left), word + i % 64,
                                      left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_convert)(HsContext *context, const HsConvertArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++)
        convert_chunk(args, hs_cpu_block(count, CHUNK, block));
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_add)(HsContext *context, const HsAddArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, CHUNK, block);
        FOR_LANES(i, left, range.begin, range.end)
        {
            HsF32x16 sum = hs_simd_load_part(args->y.dtype, args->y.data, i, left) +
                           hs_simd_load_part(args->x.dtype, args->x.data, i, left);
            hs_simd_store_part(args->y.dtype, args->y.data, i, sum, left);
        }
    }
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_embedding_forward)(HsContext *context, const HsEmbeddingArgs *args)
{
    const int64_t rows = args->y.shape[0], width = args->y.shape[1];
    const bool positions = hs_tensor_present(&args->position_table);
    const int32_t *tokens = args->tokens.data;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, rows *width))
    for (int64_t row = 0; row < rows; row++) {
        const int64_t position = args->position_start + row % args->sequence_length;
        FOR_LANES(i, left, 0, width)
        {
            HsF32x16 y =
                hs_simd_load_part(args->token_table.dtype, args->token_table.data, tokens[row] * width + i, left);
            if (positions)
                y += hs_simd_load_part(args->position_table.dtype, args->position_table.data, position * width + i,
                                       left);
            hs_simd_store_part(args->y.dtype, args->y.data, row * width + i, y, left);
        }
    }
    return HS_OK;
}
