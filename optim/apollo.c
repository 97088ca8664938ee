/* SPDX-License-Identifier: MIT
 *
 * APOLLO (Zhu et al. 2024, "APOLLO: SGD-like memory, AdamW-level performance", arXiv 2412.05270, algorithm 1): a matrix
 * moves against its gradient, each channel of which is scaled as much as Adam would scale it.  How much that is, a random
 * projection of few rows says, which is all that Adam's moments are kept of.
 *
 *     R = P G  (P G^T of a tall one),  P [rank, shorter side];  R~ = adam(R), with bias corrections
 *     f_j = |R~_j| / |R_j| of each channel j, the longer side's index; `tensor`: |R~| / |R| of all
 *     G~ = G diag(f);  where |G~| is more than growth_limit times that of the step before: G~ becomes as large as that
 *     p -= lr (wd p + scale G~)
 *
 * R's moments are [rank, longer side]; they stay when the projection changes.  A stack of queries, keys and values is one
 * matrix.  The paper's P is normal with variance 1/rank; here it is random_matrix's, sums of 32 coins, divided by
 * sqrt(8 rank): the same mean and variance, a kurtosis of 2.94 for 3, and the same bits on every backend.  It projects a
 * vector as random signs do that vector repeated 32 times, and so keeps lengths as well as normal numbers (Achlioptas
 * 2003, "Database-friendly random projections", theorem 1.1).  It is a function of seed, parameter and steps applied, and
 * is made again in each step: nothing keeps it.
 *
 * The authors' program limits the norm before the bias correction, and here it is limited behind it, as the paper's
 * algorithm has Adam first.
 *
 * Scratch:  | G f32 | P f32 | R f32 | factors |
 */
#include <math.h>

#include "kernels/base/size.h"
#include "optim/rules.h"

/* Draws of projections are others than those of stochastic rounding, which have the same sites and steps. */
static const uint64_t stream = 0x41504F4C4C4F0000u;
static const double variance = 8; /* random_matrix's */

static int64_t shorter_side(const HsSpan *span)
{
    const int64_t rows = span->weight.shape[0], columns = span->weight.shape[1];
    return rows < columns ? rows : columns;
}

static int64_t longer_side(const HsSpan *span)
{
    const int64_t rows = span->weight.shape[0], columns = span->weight.shape[1];
    return rows < columns ? columns : rows;
}

/* Channels are columns; of square ones they are rows. */
static bool is_wide(const HsSpan *span)
{
    return span->weight.shape[0] < span->weight.shape[1];
}

bool hs_apollo_serves(const HsOptimizerConfig *config, const HsSpan *span)
{
    return span->part_count > 0 && shorter_side(span) > config->apollo.rank;
}

bool hs_apollo_limits(const HsOptimizerConfig *config)
{
    return config->apollo.growth_limit > 0;
}

HsStatus hs_apollo_check(const HsOptimizerConfig *config)
{
    const HsApolloConfig *apollo = &config->apollo;
    HS_TRY(hs_rule_check_adam(config));
    if (apollo->rank < 1 || apollo->interval < 1 || apollo->interval > UINT32_MAX)
        return hs_fail(HS_ECONFIG, "optimizer: apollo.rank and apollo.interval must be at least 1 (got %lld and %lld)",
                       (long long)apollo->rank, (long long)apollo->interval);
    if (!(apollo->scale > 0))
        return hs_fail(HS_ECONFIG, "optimizer: apollo.scale must be above 0 (got %g)", apollo->scale);
    if (apollo->growth_limit != 0 && !(apollo->growth_limit >= 1))
        return hs_fail(HS_ECONFIG, "optimizer: apollo.growth_limit must be 0, for none, or at least 1 (got %g)",
                       apollo->growth_limit);
    return HS_OK;
}

HsTensor hs_apollo_moment(const HsOptimizerConfig *config, const HsSpan *span)
{
    return hs_tensor_2d(NULL, HS_F32, config->apollo.rank, longer_side(span));
}

/* Tensors of the scratch; data NULL as long as base is. */
typedef struct Scratch {
    HsTensor gradient, projection, projected, factors;
    size_t bytes;
} Scratch;

static void append(size_t *used, unsigned char *base, HsTensor *tensor)
{
    tensor->data = base ? base + *used : NULL;
    *used = hs_size_add(*used, hs_size_align(hs_tensor_bytes(tensor), HS_ARENA_ALIGNMENT));
}

static Scratch lay_out(const HsApolloConfig *apollo, const HsSpan *span, unsigned char *base)
{
    const int64_t longer = longer_side(span);
    Scratch scratch = { .gradient = hs_tensor_2d(NULL, HS_F32, span->weight.shape[0], span->weight.shape[1]),
                        .projection = hs_tensor_2d(NULL, HS_F32, apollo->rank, shorter_side(span)),
                        .projected = hs_tensor_2d(NULL, HS_F32, apollo->rank, longer),
                        .factors = hs_tensor_1d(NULL, HS_F32, longer) };
    append(&scratch.bytes, base, &scratch.gradient);
    append(&scratch.bytes, base, &scratch.projection);
    append(&scratch.bytes, base, &scratch.projected);
    append(&scratch.bytes, base, &scratch.factors);
    return scratch;
}

size_t hs_apollo_scratch_bytes(const HsOptimizerConfig *config, const HsSpan *span)
{
    return lay_out(&config->apollo, span, NULL).bytes;
}

static HsStatus project(HsContext *context, const HsApolloConfig *apollo, const HsSpan *span, const HsRng *rng,
                        const Scratch *scratch)
{
    HsRandomMatrixArgs random = { .rng = *rng, .interval = (uint32_t)apollo->interval, .y = scratch->projection };
    random.rng.seed ^= stream;
    HS_TRY(hs_op_random_matrix(context, &random));
    return hs_op_matmul(context, &(HsMatmulArgs){ .a.values = scratch->projection,
                                                  .b.values = scratch->gradient,
                                                  .transpose_b = !is_wide(span),
                                                  .alpha = (float)(1 / sqrt(variance * (double)apollo->rank)),
                                                  .policy = apollo->policy,
                                                  .c = scratch->projected });
}

HsStatus hs_apollo_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                         const HsUpdateArgs *update, void *memory)
{
    const HsOptimizerConfig *config = &optimizer->config;
    const HsApolloConfig *apollo = &config->apollo;
    const Scratch scratch = lay_out(apollo, span, memory);
    const bool limits = hs_apollo_limits(config);
    HS_TRY(hs_op_momentum(context, &(HsMomentumArgs){ .update = *update, .direction = scratch.gradient }));
    HS_TRY(project(context, apollo, span, &update->rng, &scratch));
    const HsChannelFactorsArgs factors = { .scalars = update->scalars,
                                           .beta1 = (float)config->beta1,
                                           .beta2 = (float)config->beta2,
                                           .epsilon = (float)config->epsilon,
                                           .scale = (float)apollo->scale,
                                           .growth = (float)apollo->growth_limit,
                                           .whole = apollo->granularity == HS_APOLLO_TENSOR,
                                           .of_columns = is_wide(span),
                                           .rng = update->rng,
                                           .r = scratch.projected,
                                           .m = span->state[0],
                                           .v = span->state[1],
                                           .g = limits ? scratch.gradient : (HsTensor){ 0 },
                                           .norm = limits ? span->state[2] : (HsTensor){ 0 },
                                           .factors = scratch.factors };
    HS_TRY(hs_op_channel_factors(context, &factors));
    return hs_op_descend(context, &(HsDescendArgs){ .update = *update,
                                                    .of_columns = is_wide(span),
                                                    .direction = scratch.gradient,
                                                    .factors = scratch.factors });
}
