/* SPDX-License-Identifier: MIT
 *
 * What APOLLO's steps are made of (Zhu et al. 2024, arXiv 2412.05270): random matrices that nothing keeps, and a factor
 * for each channel of a gradient.
 */
#include "kernels/ref/ref.h"

static int bits_set(uint32_t word)
{
    int count = 0;
    for (; word != 0; word &= word - 1) /* without its lowest one */
        count++;
    return count;
}

HsStatus hs_ref_random_matrix(HsContext *context, const HsRandomMatrixArgs *args)
{
    (void)context;
    const HsRng rng = { .seed = args->rng.seed,
                        .step = hs_rng_step(&args->rng) / args->interval,
                        .site = args->rng.site };
    for (int64_t i = 0; i < hs_tensor_count(&args->y); i++)
        hs_ref_store(&args->y, i, bits_set(hs_rng_draw(&rng, (uint64_t)i / 4).word[i % 4]) - 16);
    return HS_OK;
}

static void store_moments(const HsChannelFactorsArgs *args, int64_t i, double m, double v)
{
    if (args->m.dtype != HS_BF16) {
        hs_ref_store(&args->m, i, m);
        hs_ref_store(&args->v, i, v);
        return;
    }
    ((uint16_t *)args->m.data)[i] = hs_bf16_encode_stochastic((float)m, hs_ref_random_bits(&args->rng, (uint64_t)i));
    ((uint16_t *)args->v.data)[i] =
        hs_bf16_encode_stochastic((float)v, hs_ref_random_lower_bits(&args->rng, (uint64_t)i));
}

/* Sums of squares of a channel. */
typedef struct Squares {
    double t, r, g;
} Squares;

static double ratio(const Squares *squares)
{
    return squares->r > 0.0 ? sqrt(squares->t) / sqrt(squares->r) : 0.0;
}

/* Adam on the channel, and what it and the gradient measure. */
static Squares measure(const HsChannelFactorsArgs *args, int64_t channel)
{
    const int64_t depth = args->r.shape[0], channels = args->r.shape[1];
    const double beta1 = (double)args->beta1, beta2 = (double)args->beta2;
    Squares squares = { 0 };
    for (int64_t k = 0; k < depth; k++) {
        const int64_t i = k * channels + channel;
        const double r = hs_ref_load(&args->r, i);
        const double m = beta1 * hs_ref_load(&args->m, i) + (1.0 - beta1) * r;
        const double v = beta2 * hs_ref_load(&args->v, i) + (1.0 - beta2) * r * r;
        const double t = m / (double)args->scalars->bias_correction1 /
                         (sqrt(v / (double)args->scalars->bias_correction2) + (double)args->epsilon);
        store_moments(args, i, m, v);
        squares.t += t * t;
        squares.r += r * r;
    }
    const int64_t columns = hs_tensor_present(&args->g) ? args->g.shape[1] : 0;
    const int64_t length = columns == 0 ? 0 : args->of_columns ? args->g.shape[0] : columns;
    for (int64_t i = 0; i < length; i++) {
        const double g = hs_ref_load(&args->g, args->of_columns ? i * columns + channel : channel * columns + i);
        squares.g += g * g;
    }
    return squares;
}

HsStatus hs_ref_channel_factors(HsContext *context, const HsChannelFactorsArgs *args)
{
    (void)context;
    const int64_t channels = args->r.shape[1];
    Squares all = { 0 };
    double moved = 0.0; /* |f g|^2 */
    for (int64_t channel = 0; channel < channels; channel++) {
        const Squares squares = args->scalars->skip ? (Squares){ 0 } : measure(args, channel);
        const double f = args->scalars->skip ? 0.0 : ratio(&squares);
        hs_ref_store(&args->factors, channel, (double)args->scale * f);
        moved += f * f * squares.g;
        all = (Squares){ all.t + squares.t, all.r + squares.r, all.g + squares.g };
    }
    if (args->scalars->skip)
        return HS_OK;
    const double of_all = ratio(&all);
    double limit = 1.0;
    if (hs_tensor_present(&args->g)) {
        const double norm = sqrt(args->whole ? of_all * of_all * all.g : moved);
        const double most = (double)args->growth * hs_ref_load(&args->norm, 0);
        if (most > 0.0 && norm > most)
            limit = most / norm;
        hs_ref_store(&args->norm, 0, limit * norm);
    }
    for (int64_t channel = 0; channel < channels; channel++) {
        const double f = args->whole ? (double)args->scale * of_all : hs_ref_load(&args->factors, channel);
        hs_ref_store(&args->factors, channel, limit * f);
    }
    return HS_OK;
}
