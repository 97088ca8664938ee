/* SPDX-License-Identifier: MIT
 *
 * A tiny model with a tiny data set, and what a consumer of Fisher gradients does with them, in double on the host.
 */
#ifndef HS_TESTS_SUPPORT_FISHER_BENCH_H
#define HS_TESTS_SUPPORT_FISHER_BENCH_H

#include "tests/support/tiny_model.h"

#include "runtime/train/fisher.h"

enum { V = 7, T = 5, B = 2, SPANS = 32 };

static const TinySpec fisher_base = {
    .family = "gpt2",
    .mode = "fp64",
    .layers = 1,
    .heads = 2,
    .width = 8,
    .vocabulary = V,
    .batch = B,
    .length = T,
    .bias = true,
    .dropout = 0.3, /* neither of the two may be seen */
    .z_loss = 0.05,
};

typedef struct FisherBench {
    TinyModel tiny;
    HsDataset dataset;
    int32_t tokens[64];
    uint8_t loss_mask[64];
    HsSpan spans[SPANS];
    int span_count;
    int64_t elements; /* of all spans */
} FisherBench;

/* A stream with `windows` windows; every fourth token is no target. */
static inline void fisher_bench_create(FisherBench *bench, TinySpec spec, int64_t windows)
{
    memset(bench, 0, sizeof *bench);
    tiny_create(&bench->tiny, spec);
    cr_assert(bench->tiny.model.param_count <= SPANS);
    bench->span_count = hs_model_spans(&bench->tiny.model, bench->spans);
    for (int s = 0; s < bench->span_count; s++)
        bench->elements += hs_tensor_count(&bench->spans[s].gradient);
    const HsRng rng = { .seed = 31 };
    int64_t count = (windows + 1) * T + 2;
    cr_assert(count <= 64);
    for (int64_t i = 0; i < count; i++) {
        bench->tokens[i] = (int32_t)(hs_rng_draw(&rng, (uint64_t)i).word[0] % V);
        bench->loss_mask[i] = i % 4 != 2;
    }
    bench->dataset = (HsDataset){
        .train = { .count = count, .tokens = bench->tokens, .loss_mask = bench->loss_mask },
        .sequence_length = T,
        .seed = 3,
    };
    cr_assert_eq(hs_dataset_windows(&bench->dataset), windows);
}

static inline HsFisher fisher_make(FisherBench *bench, HsFisherEstimator estimator, uint64_t seed, float loss_scale)
{
    return (HsFisher){ .estimator = estimator,
                       .program = &bench->tiny.train,
                       .context = &bench->tiny.context,
                       .dataset = &bench->dataset,
                       .spans = bench->spans,
                       .span_count = bench->span_count,
                       .samples = 1000,
                       .group = bench->tiny.train.batch,
                       .seed = seed,
                       .task = 3,
                       .loss_scale = loss_scale };
}

/* What the consumer of a source does, in double: F [elements]; returns the number of passes. */
static inline int64_t fisher_collect(FisherBench *bench, HsFisher *fisher, double *f)
{
    double count = 0;
    int64_t passes = 0;
    memset(f, 0, (size_t)bench->elements * sizeof *f);
    memset(bench->tiny.model.gradients.base, 0x3f, bench->tiny.model.gradients.capacity); /* left by earlier work */
    TINY_OK(hs_fisher_init(fisher));
    for (;; passes++) {
        HsFisherSample sample;
        TINY_OK(hs_fisher_next(fisher, &sample));
        if (sample.end)
            break;
        int64_t at = 0;
        for (int s = 0; s < bench->span_count; s++) {
            HsTensor *gradient = &bench->spans[s].gradient;
            for (int64_t i = 0; i < hs_tensor_count(gradient); i++, at++) {
                double g = (double)sample.multiplier * hs_dtype_load(gradient->dtype, gradient->data, i);
                f[at] += (double)sample.weight * g * g;
            }
            memset(gradient->data, 0, hs_tensor_bytes(gradient));
        }
        count += sample.count;
    }
    for (int64_t i = 0; i < bench->elements; i++)
        f[i] /= count;
    hs_fisher_deinit(fisher);
    return passes;
}

static inline double *doubles(int64_t count)
{
    double *values = calloc((size_t)count, sizeof *values);
    cr_assert(values);
    return values;
}

static inline double *fisher_of(FisherBench *bench, HsFisherEstimator estimator, uint64_t seed, float loss_scale)
{
    double *f = doubles(bench->elements);
    HsFisher fisher = fisher_make(bench, estimator, seed, loss_scale);
    fisher_collect(bench, &fisher, f);
    return f;
}

/* Sums over each tensor. */
static inline void sum_tensors(const FisherBench *bench, const double *f, double sums[SPANS])
{
    for (int s = 0; s < bench->span_count; s++) {
        sums[s] = 0;
        for (int64_t i = 0; i < hs_tensor_count(&bench->spans[s].gradient); i++)
            sums[s] += *f++;
    }
}

#endif
