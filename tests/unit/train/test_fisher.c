/* SPDX-License-Identifier: MIT
 *
 * The Fisher's estimators against an enumeration that knows nothing of backward passes: for every parameter, token and
 * label the derivative of log p by central differences, in double.  From that table follow exact, empirical and batched
 * by their formulas.
 */
#include "tests/support/fisher_bench.h"

#include <math.h>

#include "kernels/base/tolerance.h"

typedef struct Table {
    int64_t rows;      /* sequences * T */
    int32_t *targets;  /* [rows] */
    double *p;         /* [rows, V] */
    double *slope;     /* [elements, rows, V] of -log p */
    double *tolerance; /* the same */
} Table;

/* -log p of every row and label, one label in all rows at a time. */
static void all_losses(FisherBench *bench, const int32_t *tokens, int64_t rows, double *losses)
{
    int32_t targets[B * T];
    for (int64_t first = 0; first < rows; first += B * T) {
        for (int32_t v = 0; v < V; v++) {
            double sum;
            for (int i = 0; i < B * T; i++)
                targets[i] = v;
            TINY_OK(
                hs_program_evaluate(&bench->tiny.evaluate, &bench->tiny.context, tokens + first, targets, &sum, NULL));
            for (int64_t i = 0; i < B * T && first + i < rows; i++)
                losses[(first + i) * V + v] = hs_program_row_loss(&bench->tiny.evaluate, i);
        }
    }
}

/* Central differences at 2^-9 and half of that, extrapolated: tests/support/differences.h, for many functions at once.
 */
static void differentiate(FisherBench *bench, const int32_t *tokens, double *x, int64_t rows, double *slope,
                          double *bound)
{
    const double h = 0x1p-9, original = *x;
    /* of one loss: a few thousand additions of terms that a loss of at most 20 nats is made of */
    const double rounding = hs_tolerance(4096, 0, HS_F64, HS_F64, 20, 20);
    double *above = doubles(2 * rows * V), *below = above + rows * V;
    for (int half = 0; half < 2; half++) {
        const double step = half ? h / 2 : h;
        *x = original + step;
        all_losses(bench, tokens, rows, above);
        *x = original - step;
        all_losses(bench, tokens, rows, below);
        for (int64_t i = 0; i < rows * V; i++) {
            double estimate = (above[i] - below[i]) / (2 * step);
            if (half) {
                bound[i] = fabs(estimate - slope[i]) + 4 * rounding / h;
                estimate = (4 * estimate - slope[i]) / 3;
            }
            slope[i] = estimate;
        }
    }
    *x = original;
    free(above);
}

/* indices: the samples that the Fisher must have used. */
static Table enumerate(FisherBench *bench, const int64_t *indices, int64_t sequences)
{
    Table table = { .rows = sequences * T };
    int64_t entries = table.rows * V;
    int32_t *tokens = calloc((size_t)(table.rows + B * T), sizeof *tokens);
    table.targets = calloc((size_t)table.rows, sizeof *table.targets);
    table.p = doubles(entries);
    table.slope = doubles(bench->elements * entries);
    table.tolerance = doubles(bench->elements * entries);
    cr_assert(tokens && table.targets);
    for (int64_t s = 0; s < sequences; s++)
        hs_dataset_sample(&bench->dataset, indices[s], tokens + s * T, table.targets + s * T);
    all_losses(bench, tokens, table.rows, table.p);
    for (int64_t i = 0; i < entries; i++)
        table.p[i] = exp(-table.p[i]);
    int64_t at = 0;
    for (int s = 0; s < bench->span_count; s++) {
        double *weight = bench->spans[s].weight.data;
        for (int64_t i = 0; i < hs_tensor_count(&bench->spans[s].weight); i++, at++)
            differentiate(bench, tokens, &weight[i], table.rows, table.slope + at * entries,
                          table.tolerance + at * entries);
    }
    free(tokens);
    return table;
}

static void destroy_table(Table *table)
{
    free(table->targets);
    free(table->p);
    free(table->slope);
    free(table->tolerance);
}

/* Sum over groups of `rows_per_group` rows of (sum of g_n)^2, each divided by n^2 if `means`; *bound: its error's. */
static double grouped(const Table *table, int64_t element, int64_t rows_per_group, bool means, double *bound)
{
    double total = 0, groups = 0, counted = 0;
    *bound = 0;
    for (int64_t first = 0; first < table->rows; first += rows_per_group) {
        double sum = 0, error = 0, n = 0;
        for (int64_t row = first; row < first + rows_per_group && row < table->rows; row++) {
            if (table->targets[row] < 0)
                continue;
            int64_t entry = (element * table->rows + row) * V + table->targets[row];
            sum += table->slope[entry];
            error += table->tolerance[entry];
            n++;
        }
        double divisor = means ? n * n : 1;
        total += sum * sum / divisor;
        *bound += (2 * fabs(sum) * error + error * error) / divisor;
        groups++;
        counted += n;
    }
    double denominator = means ? groups : counted;
    *bound /= denominator;
    return total / denominator;
}

static double summed_over_labels(const Table *table, int64_t element, double *bound)
{
    double total = 0, counted = 0;
    *bound = 0;
    for (int64_t row = 0; row < table->rows; row++) {
        for (int64_t v = 0; v < V && table->targets[row] >= 0; v++) {
            int64_t entry = (element * table->rows + row) * V + v;
            double p = table->p[row * V + v], slope = table->slope[entry], error = table->tolerance[entry];
            total += p * slope * slope;
            *bound += p * (2 * fabs(slope) * error + error * error);
        }
        counted += table->targets[row] >= 0;
    }
    *bound /= counted;
    return total / counted;
}

/* Weights are passed on in float: one rounding of each term. */
static void assert_close(const double *f, int64_t element, double expected, double bound, const char *what)
{
    bound += hs_tolerance(2, 1, HS_F32, HS_F64, expected, expected);
    cr_assert(fabs(f[element] - expected) <= bound, "%s, element %lld: %.12g, enumerated %.12g, bound %g", what,
              (long long)element, f[element], expected, bound);
}

static void check_against_enumeration(int64_t windows, int64_t samples, const int64_t *indices, int64_t sequences)
{
    FisherBench bench;
    fisher_bench_create(&bench, fisher_base, windows);
    Table table = enumerate(&bench, indices, sequences);
    double *results[4], total = 0, total_bound = 0;
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++) {
        results[e] = doubles(bench.elements);
        HsFisher fisher = fisher_make(&bench, (HsFisherEstimator)e, 1, 4.0f);
        fisher.samples = samples;
        fisher_collect(&bench, &fisher, results[e]);
    }
    for (int64_t i = 0; i < bench.elements; i++) {
        double bound, expected = summed_over_labels(&table, i, &bound);
        total += expected;
        total_bound += bound;
        assert_close(results[HS_FISHER_EXACT], i, expected, bound, "exact");
        expected = grouped(&table, i, T, false, &bound);
        assert_close(results[HS_FISHER_EMPIRICAL], i, expected, bound, "empirical");
        expected = grouped(&table, i, B * T, true, &bound);
        assert_close(results[HS_FISHER_BATCHED], i, expected, bound, "batched");
    }
    cr_assert(total_bound < 1e-3 * total, "the bounds would let anything pass: %g of %g", total_bound, total);
    for (int e = HS_FISHER_SAMPLED; e <= HS_FISHER_BATCHED; e++)
        free(results[e]);
    destroy_table(&table);
    tiny_destroy(&bench.tiny);
}

/* Three windows for micro-batches of two: the last row is unused. */
Test(fisher, a_whole_epoch_against_enumeration)
{
    check_against_enumeration(3, 1000, (const int64_t[]){ 0, 1, 2 }, 3);
}

/* Three sequences asked for, rounded up to four, spread over ten windows. */
Test(fisher, spread_samples_against_enumeration)
{
    check_against_enumeration(10, 3, (const int64_t[]){ 0, 2, 5, 7 }, 4);
}
