/* SPDX-License-Identifier: MIT
 *
 * Gradient statistics and the update rules: one pass over memory each.  AdamW reads gradient, moments and master and
 * writes moments, master, weight and the cleared gradient: 28 to 34 bytes a parameter, nothing twice.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

enum { CHUNK = 16384, SMALL = 16384 };

#define FOR_LANES(i, left, begin, end) \
    for (int64_t i = (begin), left = (end) - (begin); left > 0; i += HS_LANES, left -= HS_LANES)

static inline int threads_for(const HsContext *context, int64_t elements)
{
    return elements <= SMALL ? 1 : hs_cpu_threads(context, hs_cpu_block_count(elements, CHUNK));
}

/* Sum of squares in double, lanes apart, and the count of elements whose exponent bits are all ones. */
static void chunk_stats(const HsTensor *tensor, HsRowBlock range, double *sum_squares, int64_t *nonfinite)
{
    HsF64x8 low = { 0 }, high = { 0 };
    int64_t found = 0;
    FOR_LANES(i, left, range.begin, range.end)
    {
        HsF32x16 g = hs_simd_load_part(tensor->dtype, tensor->data, i, left);
        HsI32x16 bad = ((HsI32x16)g & 0x7F800000) == 0x7F800000;
        found += hs_simd_count(bad);
        g = hs_simd_select(bad, hs_simd_splat(0.0f), g);
        HsF64x8 a = __builtin_convertvector(__builtin_shufflevector(g, g, 0, 1, 2, 3, 4, 5, 6, 7), HsF64x8);
        HsF64x8 b = __builtin_convertvector(__builtin_shufflevector(g, g, 8, 9, 10, 11, 12, 13, 14, 15), HsF64x8);
        low += a * a;
        high += b * b;
    }
    low += high;
    *sum_squares = ((low[0] + low[4]) + (low[1] + low[5])) + ((low[2] + low[6]) + (low[3] + low[7]));
    *nonfinite = found;
}

/* At most PARTS parts per tensor, so that their sums fit on the stack. */
HsStatus HS_ISA_NAME(hs_cpu_grad_stats)(HsContext *context, const HsGradStatsArgs *args)
{
    enum { PARTS = 256 };
    for (int t = 0; t < args->count; t++) {
        const int64_t count = hs_tensor_count(&args->tensors[t]);
        int64_t size = hs_cpu_block_count(count, PARTS);
        size = size < CHUNK ? CHUNK : hs_cpu_block_count(size, HS_LANES) * HS_LANES;
        const int64_t parts = hs_cpu_block_count(count, size);
        double sums[PARTS];
        int64_t counts[PARTS];
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
        for (int64_t part = 0; part < parts; part++)
            chunk_stats(&args->tensors[t], hs_cpu_block(count, size, part), &sums[part], &counts[part]);
        args->sum_squares[t] = 0;
        args->nonfinite[t] = 0;
        for (int64_t part = 0; part < parts; part++) {
            args->sum_squares[t] += sums[part];
            args->nonfinite[t] += counts[part];
        }
    }
    return HS_OK;
}

static void clear(const HsTensor *tensor, HsRowBlock range)
{
    const size_t bytes = tensor->dtype == HS_F32 ? 4 : 2;
    memset((unsigned char *)tensor->data + (size_t)range.begin * bytes, 0, (size_t)(range.end - range.begin) * bytes);
}

/* p to where it is kept, and its copy.  Without a master a bf16 weight is rounded stochastically (ref's rule: element e
 * takes the upper half of word[e % 4] of draw e / 4); `word` keeps the draws of 64 elements between calls. */
HS_SIMD void store_parameter(const HsTensor *master, const HsTensor *weight, HsDtype copy, const HsRng *rng,
                             uint32_t word[64], int64_t i, HsF32x16 p, int64_t left)
{
    if (hs_tensor_present(master)) {
        hs_simd_store_part(HS_F32, master->data, i, p, left);
        hs_simd_store_part(copy, weight->data, i, p, left);
    } else if (copy == HS_BF16) {
        if (i % 64 == 0) /* chunks begin at multiples of 64 */
            hs_simd_draw64(rng, (uint64_t)i / 4, word);
        hs_simd_store_part_stochastic(weight->data, i, p, word + i % 64, left);
    } else {
        hs_simd_store_part(copy, weight->data, i, p, left);
    }
}

HS_SIMD HsF32x16 load_parameter(const HsTensor *master, const HsTensor *weight, HsDtype copy, int64_t i, int64_t left)
{
    return hs_tensor_present(master) ? hs_simd_load_part(HS_F32, master->data, i, left)
                                     : hs_simd_load_part(copy, weight->data, i, left);
}

/* p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps) */
HS_SIMD void adamw_chunk(const HsAdamWArgs *args, HsDtype gradient, HsDtype copy, HsRowBlock range)
{
    const HsStepScalars *scalars = args->scalars;
    const float rate = scalars->learning_rate * args->learning_rate_scale;
    const float keep = 1.0f - rate * args->weight_decay;
    const float step = rate / scalars->bias_correction1, correction = 1.0f / scalars->bias_correction2;
    const float beta1 = args->beta1, beta2 = args->beta2, multiplier = scalars->gradient_multiplier;
    uint32_t word[64];
    FOR_LANES(i, left, range.begin, range.end)
    {
        HsF32x16 g = hs_simd_load_part(gradient, args->grad.data, i, left) * multiplier;
        HsF32x16 m = hs_simd_load_part(HS_F32, args->m.data, i, left) * beta1 + g * (1.0f - beta1);
        HsF32x16 v = hs_simd_load_part(HS_F32, args->v.data, i, left) * beta2 + g * g * (1.0f - beta2);
        HsF32x16 p = load_parameter(&args->master, &args->weight, copy, i, left) * keep;
        p -= m * step / (hs_simd_sqrt(v * correction) + args->epsilon);
        hs_simd_store_part(HS_F32, args->m.data, i, m, left);
        hs_simd_store_part(HS_F32, args->v.data, i, v, left);
        hs_simd_store_part(gradient, args->grad.data, i, hs_simd_splat(0.0f), left);
        store_parameter(&args->master, &args->weight, copy, &args->rng, word, i, p, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_adamw)(HsContext *context, const HsAdamWArgs *args)
{
    const int64_t count = hs_tensor_count(&args->weight);
    const HsDtype gradient = args->grad.dtype, copy = args->weight.dtype;
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, CHUNK, block);
        if (args->scalars->skip)
            clear(&args->grad, range);
        else if (gradient == HS_F32 && copy == HS_BF16)
            adamw_chunk(args, HS_F32, HS_BF16, range);
        else if (gradient == HS_F32 && copy == HS_F32)
            adamw_chunk(args, HS_F32, HS_F32, range);
        else
            adamw_chunk(args, gradient, copy, range);
    }
    return HS_OK;
}

/* d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
static void sgd_chunk(const HsSgdArgs *args, HsRowBlock range)
{
    const float rate = args->scalars->learning_rate * args->learning_rate_scale;
    const float multiplier = args->scalars->gradient_multiplier;
    uint32_t word[64];
    FOR_LANES(i, left, range.begin, range.end)
    {
        HsF32x16 p = load_parameter(&args->master, &args->weight, args->weight.dtype, i, left);
        HsF32x16 descent = hs_simd_load_part(args->grad.dtype, args->grad.data, i, left) * multiplier;
        descent += p * args->weight_decay;
        HsF32x16 direction = descent;
        if (hs_tensor_present(&args->buffer)) {
            HsF32x16 buffer = hs_simd_load_part(HS_F32, args->buffer.data, i, left) * args->momentum + descent;
            hs_simd_store_part(HS_F32, args->buffer.data, i, buffer, left);
            direction = args->nesterov ? descent + buffer * args->momentum : buffer;
        }
        hs_simd_store_part(args->grad.dtype, args->grad.data, i, hs_simd_splat(0.0f), left);
        store_parameter(&args->master, &args->weight, args->weight.dtype, &args->rng, word, i, p - direction * rate,
                        left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_sgd)(HsContext *context, const HsSgdArgs *args)
{
    const int64_t count = hs_tensor_count(&args->weight);
#pragma omp parallel for schedule(static) num_threads(threads_for(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, CHUNK, block);
        if (args->scalars->skip)
            clear(&args->grad, range);
        else
            sgd_chunk(args, range);
    }
    return HS_OK;
}
