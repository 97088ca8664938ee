/* SPDX-License-Identifier: MIT
 *
 * The Fisher's source around its formulas: sampled labels give the exact Fisher in the mean, draws are a function of
 * seed and task, the loss scale cancels and falls on overflow, backends agree, and errors name what to do.
 */
#include "tests/support/fisher_bench.h"

#include <math.h>

#include "kernels/base/tolerance.h"

/* --- sampling --- */

static bool mean_is(const double mean[SPANS], const double error[SPANS], const double sums[SPANS], int count)
{
    bool all = true;
    for (int s = 0; s < count; s++)
        all = all && fabs(mean[s] - sums[s]) <= 5 * error[s];
    return all;
}

/* Per tensor, the mean over many seeds within five standard errors of the exact Fisher: a correct estimator fails for
 * one of 20 tensors with probability 1e-5, and the seeds are fixed.  The same test must tell another Fisher from it. */
Test(fisher, sampled_is_unbiased)
{
    enum { SEEDS = 3000 };
    FisherBench bench;
    TinySpec spec = fisher_base;
    spec.mode = "fp32";
    fisher_bench_create(&bench, spec, 3);
    double sums[SPANS], mean[SPANS] = { 0 }, squares[SPANS] = { 0 }, error[SPANS], exact[SPANS], empirical[SPANS];
    double *f = doubles(bench.elements);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        HsFisher fisher = fisher_make(&bench, HS_FISHER_SAMPLED, seed / 2, 1.0f);
        fisher.task = (uint32_t)(seed % 2);
        fisher_collect(&bench, &fisher, f);
        sum_tensors(&bench, f, sums);
        for (int s = 0; s < bench.span_count; s++) {
            mean[s] += sums[s] / SEEDS;
            squares[s] += sums[s] * sums[s] / SEEDS;
        }
    }
    free(f);
    sum_tensors(&bench, f = fisher_of(&bench, HS_FISHER_EXACT, 0, 1.0f), exact);
    free(f);
    sum_tensors(&bench, f = fisher_of(&bench, HS_FISHER_EMPIRICAL, 0, 1.0f), empirical);
    free(f);
    for (int s = 0; s < bench.span_count; s++) {
        error[s] = sqrt((squares[s] - mean[s] * mean[s]) / (SEEDS - 1));
        cr_expect(fabs(mean[s] - exact[s]) <= 5 * error[s], "%s: mean %g, exact %g, standard error %g",
                  bench.spans[s].name, mean[s], exact[s], error[s]);
        cr_expect(error[s] < 0.05 * exact[s], "%s: standard error %g of %g proves little", bench.spans[s].name,
                  error[s], exact[s]);
    }
    cr_expect(!mean_is(mean, error, empirical, bench.span_count), "this test cannot tell the empirical Fisher");
    tiny_destroy(&bench.tiny);
}

static bool same(const double *a, const double *b, int64_t count)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

Test(fisher, draws_are_a_function_of_seed_and_task)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 3);
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
        bool draws = e == HS_FISHER_SAMPLED;
        double *f = fisher_of(&bench, (HsFisherEstimator)e, 1, 1.0f), *again = doubles(bench.elements);
        HsFisher fisher = fisher_make(&bench, (HsFisherEstimator)e, 1, 1.0f);
        fisher_collect(&bench, &fisher, again);
        cr_expect(same(f, again, bench.elements));
        fisher.task = 4;
        fisher_collect(&bench, &fisher, again);
        cr_expect(same(f, again, bench.elements) == !draws);
        fisher = fisher_make(&bench, (HsFisherEstimator)e, 2, 1.0f);
        fisher_collect(&bench, &fisher, again);
        cr_expect(same(f, again, bench.elements) == !draws);
        free(f);
        free(again);
    }
    tiny_destroy(&bench.tiny);
}

/* Micro-batches of the same text get their own labels: else their gradients would be correlated. */
Test(fisher, micro_batches_draw_apart)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 4);
    memset(bench.tokens, 0, sizeof bench.tokens);
    bench.dataset.train.loss_mask = NULL;
    HsFisher fisher = fisher_make(&bench, HS_FISHER_SAMPLED, 1, 1.0f);
    TINY_OK(hs_fisher_init(&fisher));
    size_t bytes = bench.tiny.model.gradients.capacity;
    unsigned char *first = malloc(bytes);
    cr_assert(first);
    HsFisherSample sample;
    TINY_OK(hs_fisher_next(&fisher, &sample));
    memcpy(first, bench.tiny.model.gradients.base, bytes);
    tiny_clear_gradients(&bench.tiny);
    TINY_OK(hs_fisher_next(&fisher, &sample));
    cr_expect(!sample.end && memcmp(first, bench.tiny.model.gradients.base, bytes) != 0);
    free(first);
    hs_fisher_deinit(&fisher);
    tiny_destroy(&bench.tiny);
}

/* --- formats and scales --- */

/* Two computations of one Fisher with stored values that were rounded apart: forward and backward of a block store
 * about twenty tensors each, so every gradient has some 40 roundings behind it, and its square twice as many. */
static void assert_sums_agree(const FisherBench *bench, const double *f, const double *g, HsDtype dtype,
                              const char *what)
{
    double a[SPANS], b[SPANS];
    sum_tensors(bench, f, a);
    sum_tensors(bench, g, b);
    for (int s = 0; s < bench->span_count; s++) {
        double bound = hs_tolerance(80, 0, dtype, HS_F32, b[s], b[s]);
        cr_expect(a[s] > 0 && fabs(a[s] - b[s]) <= bound, "%s, %s: %g against %g, bound %g", what, bench->spans[s].name,
                  a[s], b[s], bound);
    }
}

/* A group that goes through the model in parts draws the labels that it draws at once, and is squared once: the
 * micro-batch may change in mid-run.  f64 throughout, so that a cross term left out would show at its full size. */
Test(fisher, a_group_in_parts_is_the_same)
{
    FisherBench at_once, in_parts;
    TinySpec spec = fisher_base;
    spec.batch = 2 * B;
    fisher_bench_create(&at_once, spec, 7);
    fisher_bench_create(&in_parts, fisher_base, 7);
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
        double *f = doubles(at_once.elements), *g = doubles(in_parts.elements);
        HsFisher whole = fisher_make(&at_once, (HsFisherEstimator)e, 1, 1.0f);
        HsFisher parts = fisher_make(&in_parts, (HsFisherEstimator)e, 1, 1.0f);
        whole.group = parts.group = 2 * B;
        cr_expect_eq(fisher_collect(&at_once, &whole, f), fisher_collect(&in_parts, &parts, g));
        for (int64_t i = 0; i < at_once.elements; i++) {
            double bound = hs_tolerance(200, 0, HS_F64, HS_F64, f[i], f[i]) + 1e-25;
            cr_assert(fabs(f[i] - g[i]) <= bound, "estimator %d, element %lld: %g against %g, bound %g", e,
                      (long long)i, f[i], g[i], bound);
        }
        free(f);
        free(g);
    }
    tiny_destroy(&at_once.tiny);
    tiny_destroy(&in_parts.tiny);
}

Test(fisher, the_loss_scale_cancels)
{
    FisherBench bench;
    TinySpec spec = fisher_base;
    spec.mode = "fp16";
    fisher_bench_create(&bench, spec, 3);
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
        double *low = fisher_of(&bench, (HsFisherEstimator)e, 1, 1024.0f);
        double *high = fisher_of(&bench, (HsFisherEstimator)e, 1, 65536.0f);
        assert_sums_agree(&bench, high, low, HS_F16, "65536 and 1024");
        /* no gradient of the head fits: (p - 1) 2^24 */
        double *f = doubles(bench.elements);
        HsFisher fisher = fisher_make(&bench, (HsFisherEstimator)e, 1, 0x1p24f);
        fisher_collect(&bench, &fisher, f);
        cr_expect(fisher.loss_scale < 0x1p18f && fisher.loss_scale > 1024.0f, "halved to %g",
                  (double)fisher.loss_scale);
        assert_sums_agree(&bench, f, low, HS_F16, "2^24 and 1024");
        free(low);
        free(high);
        free(f);
    }
    tiny_destroy(&bench.tiny);
}

Test(fisher, what_no_scale_mends_is_an_error)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 3);
    ((double *)bench.spans[2].weight.data)[0] = NAN;
    HsFisher fisher = fisher_make(&bench, HS_FISHER_SAMPLED, 1, 65536.0f);
    HsFisherSample sample;
    TINY_OK(hs_fisher_init(&fisher));
    cr_expect_eq(hs_fisher_next(&fisher, &sample), HS_ENUMERIC);
    cr_expect(strstr(hs_error_message(), "task 3") && strstr(hs_error_message(), bench.spans[0].name), "%s",
              hs_error_message());
    cr_expect(fisher.loss_scale == 0x1p-10f);
    for (size_t i = 0; i < bench.tiny.model.gradients.capacity; i++)
        cr_assert_eq(bench.tiny.model.gradients.base[i], 0);
    hs_fisher_deinit(&fisher);
    tiny_destroy(&bench.tiny);
}

/* The optimized kernels: the same Fisher within the format's rounding, whatever the number of threads. */
Test(fisher, cpu_agrees_with_ref)
{
    const char *const modes[] = { "fp32", "bf16", "fp16" };
    for (int m = 0; m < 3; m++) {
        FisherBench ref, cpu, threads;
        TinySpec spec = fisher_base;
        spec.mode = modes[m];
        fisher_bench_create(&ref, spec, 3);
        TINY_OK(hs_backend_cpu(&spec.backend));
        fisher_bench_create(&cpu, spec, 3);
        spec.threads = 3;
        fisher_bench_create(&threads, spec, 3);
        for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
            double *expected = fisher_of(&ref, (HsFisherEstimator)e, 1, 1024.0f);
            double *f = fisher_of(&cpu, (HsFisherEstimator)e, 1, 1024.0f);
            double *g = fisher_of(&threads, (HsFisherEstimator)e, 1, 1024.0f);
            cr_expect(same(f, g, cpu.elements), "%s: threads", modes[m]);
            if (e != HS_FISHER_SAMPLED) /* a label may fall on the other side of a rounded probability */
                assert_sums_agree(&cpu, f, expected, cpu.tiny.model.precision.activation, modes[m]);
            free(expected);
            free(f);
            free(g);
        }
        tiny_destroy(&ref.tiny);
        tiny_destroy(&cpu.tiny);
        tiny_destroy(&threads.tiny);
    }
}

/* --- the contract's edges --- */

Test(fisher, passes_and_names)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 3);
    const struct {
        const char *name;
        int64_t most, of_one; /* passes of everything; of one sequence, rounded up to a micro-batch of two */
    } expected[] = {
        { "sampled", 2, 1 }, { "exact", 3 * T * V, 2 * T * V }, { "empirical", 3, 2 }, { "batched", 2, 1 }
    };
    double *f = doubles(bench.elements);
    for (size_t e = 0; e < 4; e++) {
        HsFisherEstimator estimator;
        TINY_OK(hs_fisher_estimator_find(expected[e].name, &estimator));
        HsFisher fisher = fisher_make(&bench, estimator, 1, 1.0f);
        int64_t most = hs_fisher_passes(&fisher, V), made = fisher_collect(&bench, &fisher, f);
        cr_expect_eq(most, expected[e].most);
        /* ignored targets take no pass in exact */
        cr_expect(estimator == HS_FISHER_EXACT ? made < most && made % V == 0 : made == most);
        fisher.samples = 1;
        cr_expect_eq(hs_fisher_passes(&fisher, V), expected[e].of_one);
    }
    free(f);
    HsFisherEstimator estimator;
    cr_expect_eq(hs_fisher_estimator_find("true", &estimator), HS_ECONFIG);
    tiny_destroy(&bench.tiny);
}

Test(fisher, a_task_without_targets_is_an_error)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 3);
    memset(bench.loss_mask, 0, sizeof bench.loss_mask);
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
        HsFisher fisher = fisher_make(&bench, (HsFisherEstimator)e, 1, 1.0f);
        HsFisherSample sample;
        TINY_OK(hs_fisher_init(&fisher));
        cr_expect_eq(hs_fisher_next(&fisher, &sample), HS_ECONFIG);
        cr_expect(strstr(hs_error_message(), "ewc.fisher_samples"));
        hs_fisher_deinit(&fisher);
    }
    tiny_destroy(&bench.tiny);
}

/* An excluded tensor's gradient is not squared, so nothing else would clear it. */
Test(fisher, excluded_gradients_are_clear)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, 3);
    bench.spans[0].excluded = true;
    HsFisher fisher = fisher_make(&bench, HS_FISHER_EMPIRICAL, 1, 1.0f);
    HsFisherSample sample;
    TINY_OK(hs_fisher_init(&fisher));
    TINY_OK(hs_fisher_next(&fisher, &sample));
    const double *gradient = bench.spans[0].gradient.data;
    for (int64_t i = 0; i < hs_tensor_count(&bench.spans[0].gradient); i++)
        cr_assert(gradient[i] == 0);
    hs_fisher_deinit(&fisher);
    tiny_destroy(&bench.tiny);
}
