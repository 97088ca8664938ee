/* SPDX-License-Identifier: MIT
 *
 * Operations that read and write each element once: swiglu, dropout, convert.  All are bound by memory; the
 * arithmetic is in f32 with one rounding at the store.
 *
 * Each operation says what it does to one vector, with its dtypes and its number of lanes as arguments; the loops
 * around it make them constants (HS_FOR_DTYPES, HS_FOR_VECTORS), so that no vector asks what it is.  Pointers are taken
 * out of the arguments first: a store might change those, for all that the compiler knows.
 *
 * Work is cut in chunks of a fixed number of elements.  Small tensors stay on the calling thread: starting a team costs
 * more than the work.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/activation.h"
#include "kernels/cpu/simd_random.h"

enum { CHUNK = 4096, SMALL = 8192 };

static inline int threads_for(const HsContext *context, int64_t elements)
{
    return elements <= SMALL ? 1 : hs_cpu_threads(context, hs_cpu_block_count(elements, CHUNK));
}

/* Row of x = [gate | up] at `at`, row of y at `to`. */
HS_SIMD void swiglu_vector(HsActivation f, HsDtype in, HsDtype out, const void *x, void *y, int64_t at, int64_t up_at,
                           int64_t to, int64_t left)
{
    HsF32x16 gate = hs_simd_load_part(in, x, at, left), up = hs_simd_load_part(in, x, up_at, left);
    hs_simd_store_part(out, y, to, activate(f, gate) * up, left);
}

HS_SIMD void swiglu_row(HsActivation f, const HsUnaryArgs *args, int64_t width, int64_t row)
{
    const void *x = args->x.data;
    void *y = args->y.data;
    const int64_t at = row * 2 * width, to = row * width;
#define SWIGLU(in, out) \
    HS_FOR_VECTORS(i, left, 0, width, swiglu_vector(f, in, out, x, y, at + i, at + width + i, to + i, left))
    HS_FOR_DTYPES(args->x.dtype, args->y.dtype, SWIGLU);
#undef SWIGLU
}

static void silu_row(const HsUnaryArgs *args, int64_t width, int64_t row)
{
    swiglu_row(HS_ACTIVATION_SILU, args, width, row);
}

static void gelu_row(const HsUnaryArgs *args, int64_t width, int64_t row)
{
    swiglu_row(HS_ACTIVATION_GELU, args, width, row);
}

/* f(gate) * up, x row = [gate | up] (Shazeer 2020, section 2) */
HsStatus HS_ISA_NAME(hs_cpu_swiglu_forward)(HsContext *context, const HsUnaryArgs *args)
{
    const int64_t rows = args->y.shape[0], width = args->y.shape[1];
    void (*const one_row)(const HsUnaryArgs *, int64_t, int64_t) =
        args->gate == HS_ACTIVATION_SILU ? silu_row : gelu_row;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, rows *width))
    for (int64_t row = 0; row < rows; row++)
        one_row(args, width, row);
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->y);
    return HS_OK;
}

HS_SIMD void swiglu_backward_vector(HsActivation f, HsDtype gradient, HsDtype in, HsDtype out,
                                    const HsUnaryBackwardArgs *args, int64_t at, int64_t width, int64_t from,
                                    int64_t left)
{
    HsF32x16 slope, gate = hs_simd_load_part(in, args->x.data, at, left);
    HsF32x16 up = hs_simd_load_part(in, args->x.data, at + width, left);
    HsF32x16 dy = hs_simd_load_part(gradient, args->dy.data, from, left);
    const HsF32x16 value = activate_with_slope(f, gate, &slope);
    hs_simd_store_part(out, args->dx.data, at, dy * up * slope, left);
    hs_simd_store_part(out, args->dx.data, at + width, dy * value, left);
}

HS_SIMD void swiglu_backward_row(HsActivation f, const HsUnaryBackwardArgs *in_memory, int64_t width, int64_t row)
{
    const HsUnaryBackwardArgs args = *in_memory; /* so that its pointers may stay in registers */
    const int64_t at = row * 2 * width, from = row * width;
    const HsDtype in = args.x.dtype;
#define SWIGLU(gradient, out)                                                                                         \
    do {                                                                                                              \
        if (in == (gradient))                                                                                         \
            HS_FOR_VECTORS(i, left, 0, width,                                                                         \
                           swiglu_backward_vector(f, gradient, gradient, out, &args, at + i, width, from + i, left)); \
        else                                                                                                          \
            HS_FOR_VECTORS(i, left, 0, width,                                                                         \
                           swiglu_backward_vector(f, gradient, in, out, &args, at + i, width, from + i, left));       \
    } while (0)
    HS_FOR_DTYPES(args.dy.dtype, args.dx.dtype, SWIGLU);
#undef SWIGLU
}

static void silu_backward_row(const HsUnaryBackwardArgs *args, int64_t width, int64_t row)
{
    swiglu_backward_row(HS_ACTIVATION_SILU, args, width, row);
}

static void gelu_backward_row(const HsUnaryBackwardArgs *args, int64_t width, int64_t row)
{
    swiglu_backward_row(HS_ACTIVATION_GELU, args, width, row);
}

HsStatus HS_ISA_NAME(hs_cpu_swiglu_backward)(HsContext *context, const HsUnaryBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0], width = args->dy.shape[1];
    void (*const one_row)(const HsUnaryBackwardArgs *, int64_t, int64_t) =
        args->gate == HS_ACTIVATION_SILU ? silu_backward_row : gelu_backward_row;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, rows *width))
    for (int64_t row = 0; row < rows; row++)
        one_row(args, width, row);
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->dx);
    return HS_OK;
}

/* y = residual + mask(x) / (1 - p).  A dropped element is 0 even where x is infinite: select, do not multiply. */
HS_SIMD void dropout_vector(HsDtype in, HsDtype stream, HsDtype out, const HsDropoutArgs *args, bool residual,
                            float scale, uint32_t threshold, const uint32_t *word, int64_t i, int64_t left)
{
    HsI32x16 random; /* compared as unsigned: the sign bit of both flipped */
    memcpy(&random, word, sizeof random);
    const HsI32x16 dropped =
        hs_simd_greater_i32(hs_simd_splat_i32((int32_t)(threshold ^ 0x80000000u)), random ^ INT32_MIN);
    const HsF32x16 x = hs_simd_load_part(in, args->x.data, i, left);
    HsF32x16 y = hs_simd_select(dropped, hs_simd_splat(0.0f), x * scale);
    if (residual)
        y += hs_simd_load_part(stream, args->residual.data, i, left);
    hs_simd_store_part(out, args->y.data, i, y, left);
}

HS_SIMD void dropout_pair(HsDtype in, HsDtype stream, HsDtype out, const HsDropoutArgs *args, bool residual,
                          HsRowBlock range)
{
    const float scale = 1.0f / (1.0f - args->probability);
    /* uniform = 2^-24 floor(word / 256) is at least p just where word is at least 256 ceil(2^24 p) */
    const uint32_t threshold = (uint32_t)ceilf(args->probability * 0x1p24f) << 8;
    const uint64_t offset = (uint64_t)(args->rng.row_offset * args->x.shape[1]);
    uint32_t words[64 + 4 * HS_DRAW_LANES] = { 0 };
    for (int64_t begin = range.begin; begin < range.end; begin += 64) {
        const int64_t end = begin + 64 < range.end ? begin + 64 : range.end;
        const uint32_t *word = hs_simd_draw_elements(&args->rng, offset + (uint64_t)begin, words);
        HS_FOR_VECTORS(i, left, begin, end,
                       dropout_vector(in, stream, out, args, residual, scale, threshold, word + (i - begin), i, left));
    }
}

/* The mask's element index counts from the effective batch's start. */
void HS_ISA_NAME(hs_cpu_dropout_elements)(const HsDropoutArgs *in_memory, HsRowBlock range)
{
    const HsDropoutArgs args = *in_memory; /* so that its pointers may stay in registers */
    const bool residual = hs_tensor_present(&args.residual);
    const HsDtype stream = args.residual.dtype;
#define DROPOUT(in, out)                                       \
    do {                                                       \
        if (!residual)                                         \
            dropout_pair(in, out, out, &args, false, range);   \
        else if (stream == (out))                              \
            dropout_pair(in, out, out, &args, true, range);    \
        else                                                   \
            dropout_pair(in, stream, out, &args, true, range); \
    } while (0)
    HS_FOR_DTYPES(args.x.dtype, args.y.dtype, DROPOUT);
#undef DROPOUT
}

HsStatus HS_ISA_NAME(hs_cpu_dropout_forward)(HsContext *context, const HsDropoutArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++)
        HS_ISA_NAME(hs_cpu_dropout_elements)(args, hs_cpu_block(count, CHUNK, block));
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->y);
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
    const void *x = args->x.data;
    void *y = args->y.data;
    if (!args->stochastic) {
#define CONVERT(in, out)                            \
    HS_FOR_VECTORS(i, left, range.begin, range.end, \
                   hs_simd_store_part(out, y, i, hs_simd_load_part(in, x, i, left), left))
        HS_FOR_DTYPES(args->x.dtype, args->y.dtype, CONVERT);
#undef CONVERT
        return;
    }
    uint32_t word[64];
    for (int64_t begin = range.begin; begin < range.end; begin += 64) { /* CHUNK is a multiple of 64 */
        const int64_t end = begin + 64 < range.end ? begin + 64 : range.end;
        hs_simd_draw64(&args->rng, (uint64_t)begin / 4, word);
        HS_FOR_VECTORS(
            i, left, begin, end,
            hs_simd_store_part_stochastic(y, i, hs_simd_load_part(HS_F32, x, i, left), word + (i - begin), left));
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
