/* SPDX-License-Identifier: MIT
 *
 * What APOLLO's steps are made of.  A block of channels is a few vectors wide and goes down all rows of r, so that sums
 * stay in the first cache; blocks are cut by shape alone, and what they measure is added up in their order.
 */
#include <math.h>

#include "kernels/cpu/isa/update_rule.h"

/* Counts of pairs, of fours, of bytes; the product adds the bytes up in the upper one. */
HS_SIMD HsF32x16 bits_set_less_half(const uint32_t word[HS_LANES])
{
    HsU32x16 bits;
    memcpy(&bits, word, sizeof bits);
    bits -= bits >> 1 & 0x55555555u;
    bits = (bits & 0x33333333u) + (bits >> 2 & 0x33333333u);
    bits = (bits + (bits >> 4)) & 0x0F0F0F0Fu;
    return hs_simd_from_i32((HsI32x16)(bits * 0x01010101u >> 24) - 16);
}

HsStatus HS_ISA_NAME(hs_cpu_random_matrix)(HsContext *context, const HsRandomMatrixArgs *args)
{
    const HsRng rng = { .seed = args->rng.seed,
                        .step = hs_rng_step(&args->rng) / args->interval,
                        .site = args->rng.site };
    const int64_t count = hs_tensor_count(&args->y);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, HS_CPU_CHUNK, block);
        uint32_t word[64];
        HS_FOR_LANES(i, left, range.begin, range.end)
        {
            if (i % 64 == 0) /* chunks begin at multiples of 64 */
                hs_simd_draw64(&rng, (uint64_t)i / 4, word);
            hs_simd_store_part(HS_F32, args->y.data, i, bits_set_less_half(word + i % 64), left);
        }
    }
    return HS_OK;
}

enum { MOST_BLOCKS = 64, GRAIN = 64 };

/* Sums of squares, and of f^2 g^2 where each channel has its own f. */
typedef struct Squares {
    double t, r, g, moved;
} Squares;

typedef struct Channels {
    HsF32Parts t[GRAIN / HS_LANES], r[GRAIN / HS_LANES], g[GRAIN / HS_LANES];
} Channels;

/* One row of r, from channel `begin` on. */
HS_SIMD void move_moments(const HsChannelFactorsArgs *args, HsDtype moments, int64_t row, HsRowBlock range,
                          Channels *squares)
{
    const float correction1 = 1.0f / args->scalars->bias_correction1,
                correction2 = 1.0f / args->scalars->bias_correction2;
    const float beta1 = args->beta1, beta2 = args->beta2;
    const int64_t first = row * args->r.shape[1] + range.begin;
    uint32_t word[64 + 4 * HS_DRAW_LANES], lower[HS_LANES];
    const uint32_t *draws = moments == HS_BF16 ? hs_simd_draw_elements(&args->rng, (uint64_t)first, word) : NULL;
    HS_FOR_LANES(j, left, 0, range.end - range.begin)
    {
        const HsF32x16 r = hs_simd_load_part(HS_F32, args->r.data, first + j, left);
        const HsF32x16 m = HS_RULE_ADAMW_M(hs_simd_fma, hs_simd_load_part(moments, args->m.data, first + j, left), r,
                                           beta1, 1.0f - beta1);
        const HsF32x16 v = HS_RULE_ADAMW_V(hs_simd_fma, hs_simd_load_part(moments, args->v.data, first + j, left), r,
                                           beta2, 1.0f - beta2);
        const HsF32x16 t = m * correction1 / (hs_simd_sqrt(v * correction2) + args->epsilon);
        /* without epsilon 0 / 0 behind the end */
        hs_simd_accumulate(&squares->t[j / HS_LANES], hs_simd_keep_first(t * t, left));
        hs_simd_accumulate(&squares->r[j / HS_LANES], r * r);
        if (moments == HS_BF16) {
            HsU32x16 bits;
            memcpy(&bits, draws + j, sizeof bits);
            bits <<= 16;
            memcpy(lower, &bits, sizeof bits);
            hs_simd_store_part_stochastic(args->m.data, first + j, m, draws + j, left);
            hs_simd_store_part_stochastic(args->v.data, first + j, v, lower, left);
        } else {
            hs_simd_store_part(HS_F32, args->m.data, first + j, m, left);
            hs_simd_store_part(HS_F32, args->v.data, first + j, v, left);
        }
    }
}

/* What the gradient has in these channels. */
static void measure_gradient(const HsTensor *g, bool of_columns, HsRowBlock range, float squares[GRAIN])
{
    const int64_t rows = g->shape[0], columns = g->shape[1];
    HsF32Parts sums[GRAIN / HS_LANES] = { 0 };
    for (int64_t row = 0; of_columns && row < rows; row++)
        HS_FOR_LANES(j, left, 0, range.end - range.begin)
        {
            const HsF32x16 x = hs_simd_load_part(HS_F32, g->data, row * columns + range.begin + j, left);
            hs_simd_accumulate(&sums[j / HS_LANES], x * x);
        }
    memcpy(squares, sums, sizeof sums);
    for (int64_t row = range.begin; !of_columns && row < range.end; row++) {
        HsF32Parts sum = { 0 };
        HS_FOR_LANES(i, left, 0, columns)
        {
            const HsF32x16 x = hs_simd_load_part(HS_F32, g->data, row * columns + i, left);
            hs_simd_accumulate(&sum, x * x);
        }
        squares[row - range.begin] = hs_simd_sum(sum.whole);
    }
}

/* At most GRAIN channels: their moments, and f in place of the factors. */
static void measure_channels(const HsChannelFactorsArgs *args, HsRowBlock range, Squares *all)
{
    Channels squares = { 0 };
    float t[GRAIN], r[GRAIN], g[GRAIN] = { 0 }, *factors = args->factors.data;
    for (int64_t row = 0; row < args->r.shape[0]; row++) {
        if (args->m.dtype == HS_BF16)
            move_moments(args, HS_BF16, row, range, &squares);
        else
            move_moments(args, HS_F32, row, range, &squares);
    }
    memcpy(t, squares.t, sizeof t);
    memcpy(r, squares.r, sizeof r);
    if (hs_tensor_present(&args->g))
        measure_gradient(&args->g, args->of_columns, range, g);
    for (int64_t j = 0; j < range.end - range.begin; j++) {
        const float f = r[j] > 0.0f ? sqrtf(t[j]) / sqrtf(r[j]) : 0.0f;
        factors[range.begin + j] = f;
        all->t += (double)t[j];
        all->r += (double)r[j];
        all->g += (double)g[j];
        all->moved += (double)f * (double)f * (double)g[j];
    }
}

/* From f, or from what all of it measured, to the factors. */
static void limit_factors(const HsChannelFactorsArgs *args, const Squares *all)
{
    float *factors = args->factors.data;
    const double f = all->r > 0.0 ? sqrt(all->t / all->r) : 0.0;
    double limit = (double)args->scale;
    if (hs_tensor_present(&args->g)) {
        float *norm = args->norm.data;
        const double now = sqrt(args->whole ? f * f * all->g : all->moved), most = (double)args->growth * (double)*norm;
        const double share = most > 0.0 && now > most ? most / now : 1.0;
        *norm = (float)(share * now);
        limit *= share;
    }
    for (int64_t j = 0; j < args->factors.shape[0]; j++)
        factors[j] = (float)(limit * (args->whole ? f : (double)factors[j]));
}

HsStatus HS_ISA_NAME(hs_cpu_channel_factors)(HsContext *context, const HsChannelFactorsArgs *args)
{
    const int64_t channels = args->r.shape[1], grains = hs_cpu_block_count(channels, GRAIN);
    const int64_t length = GRAIN * hs_cpu_block_count(grains, MOST_BLOCKS),
                  blocks = hs_cpu_block_count(channels, length);
    Squares squares[MOST_BLOCKS] = { { 0 } }, all = { 0 };
    if (args->scalars->skip) {
        hs_cpu_clear(&args->factors, (HsRowBlock){ 0, channels });
        return HS_OK;
    }
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, blocks))
    for (int64_t block = 0; block < blocks; block++) {
        const HsRowBlock range = hs_cpu_block(channels, length, block);
        for (int64_t first = range.begin; first < range.end; first += GRAIN)
            measure_channels(args, (HsRowBlock){ first, first + GRAIN < range.end ? first + GRAIN : range.end },
                             &squares[block]);
    }
    for (int64_t block = 0; block < blocks; block++)
        all = (Squares){ all.t + squares[block].t, all.r + squares[block].r, all.g + squares[block].g,
                         all.moved + squares[block].moved };
    limit_factors(args, &all);
    return HS_OK;
}
