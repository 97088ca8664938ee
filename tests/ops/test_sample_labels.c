/* SPDX-License-Identifier: MIT
 *
 * Labels drawn from softmax(logits): their distribution, and what must not depend on how a batch is split.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { ROWS = 20000, CLASSES = 7 };

/* Probabilities from a half to a hundredth; the last label has none at all. */
static const double weights[CLASSES + 1] = { 0.5, 0.01, 0.2, 0.04, 0.1, 0.05, 0.1, 0.0 };

static float *make_logits(void)
{
    float *logits = malloc(ROWS * (CLASSES + 1) * sizeof *logits);
    cr_assert_not_null(logits);
    for (int row = 0; row < ROWS; row++)
        for (int v = 0; v <= CLASSES; v++) /* a row's own constant cancels */
            logits[row * (CLASSES + 1) + v] = (float)(log(weights[v]) + row % 50);
    return logits;
}

static void sample_capped(const HsBackend *backend, float *logits, float cap, int rows, int64_t first, int32_t *targets)
{
    HsContext context = { .backend = backend, .threads = 3 };
    RUN(hs_op_sample_labels(&context,
                            &(HsSampleLabelsArgs){ .rng = { .seed = 21, .step = 4, .site = 9, .row_offset = first },
                                                   .logits = hs_tensor_2d(logits, HS_F32, rows, CLASSES + 1),
                                                   .cap = cap,
                                                   .targets = hs_tensor_1d(targets, HS_I32, rows) }));
}

static void sample(const HsBackend *backend, float *logits, int rows, int64_t first, int32_t *targets)
{
    sample_capped(backend, logits, 0.0f, rows, first, targets);
}

/* Pearson's statistic; for 6 degrees of freedom P(X > x) = e^(-x/2) (1 + x/2 + (x/2)^2 / 2). */
static void check_distribution(const HsBackend *backend)
{
    static int32_t targets[ROWS];
    float *logits = make_logits();
    memset(targets, 0, sizeof targets);
    for (int row = 0; row < ROWS; row += 10)
        targets[row] = -1;
    sample(backend, logits, ROWS, 0, targets);
    double counts[CLASSES + 1] = { 0 }, statistic = 0.0;
    const double drawn = ROWS - ROWS / 10;
    for (int row = 0; row < ROWS; row++) {
        cr_assert_eq(targets[row] == -1, row % 10 == 0, "row %d: an ignored target must stay one", row);
        cr_assert_leq(targets[row], CLASSES);
        if (targets[row] >= 0)
            counts[targets[row]]++;
    }
    for (int v = 0; v < CLASSES; v++) {
        const double expected = weights[v] * drawn;
        statistic += (counts[v] - expected) * (counts[v] - expected) / expected;
    }
    const double half = statistic / 2.0, probability = exp(-half) * (1.0 + half + half * half / 2.0);
    cr_expect_gt(probability, 1e-4, "chi square %g", statistic);
    cr_expect_eq(counts[CLASSES], 0.0, "a label of probability 0 was drawn");
    free(logits);
}

Test(sample_labels, reference_distribution)
{
    check_distribution(hs_backend_ref());
}

Test(sample_labels, cpu_distribution)
{
    const HsBackend *backend;
    RUN(hs_backend_cpu(&backend));
    check_distribution(backend);
}

Test(sample_labels, a_split_batch_draws_the_same)
{
    const HsBackend *backends[2] = { hs_backend_ref() };
    RUN(hs_backend_cpu(&backends[1]));
    enum { WHOLE = 64, FIRST = 23 };
    float *logits = make_logits();
    for (int b = 0; b < 2; b++) {
        int32_t whole[WHOLE] = { 0 }, parts[WHOLE] = { 0 };
        sample(backends[b], logits, WHOLE, 100, whole);
        sample(backends[b], logits, FIRST, 100, parts);
        sample(backends[b], logits + FIRST * (CLASSES + 1), WHOLE - FIRST, 100 + FIRST, parts + FIRST);
        cr_expect_eq(memcmp(whole, parts, sizeof whole), 0);
    }
    free(logits);
}

/* Of numbers with a cap the labels are those of the capped logits; without one they are others. */
Test(sample_labels, a_cap_is_taken_of_the_logits)
{
    const HsBackend *backends[2] = { hs_backend_ref() };
    RUN(hs_backend_cpu(&backends[1]));
    enum { SOME = 400 };
    static float stored[SOME * (CLASSES + 1)], logits[SOME * (CLASSES + 1)];
    for (int i = 0; i < SOME * (CLASSES + 1); i++) {
        stored[i] = (float)(i * 37 % 101) / 10.0f - 5.0f;
        logits[i] = 2.0f * tanhf(stored[i] / 2.0f);
    }
    for (int b = 0; b < 2; b++) {
        int32_t capped[SOME] = { 0 }, expected[SOME] = { 0 }, plain[SOME] = { 0 };
        sample_capped(backends[b], stored, 2.0f, SOME, 0, capped);
        sample(backends[b], logits, SOME, 0, expected);
        sample(backends[b], stored, SOME, 0, plain);
        cr_expect_eq(memcmp(capped, expected, sizeof capped), 0);
        cr_expect_neq(memcmp(capped, plain, sizeof capped), 0);
    }
}
