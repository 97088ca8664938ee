/* SPDX-License-Identifier: MIT
 *
 * Figures of a bench from its measurements.
 *
 * Speeds are percentiles over steps, not a mean: one step that the machine was away for would move a mean.  Losses and
 * distances are means over the last tenth: batches differ more from each other than modes do.
 */
#include "runtime/study/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    const double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

double hs_bench_percentile(double *values, int64_t count, double share)
{
    if (count == 0)
        return NAN;
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    const double place = share * (double)(count - 1);
    const int64_t below = (int64_t)floor(place), above = below + 1 < count ? below + 1 : below;
    return values[below] + (place - (double)below) * (values[above] - values[below]);
}

double hs_bench_distance(const HsBenchRun *run, const HsBenchRun *reference, int64_t step)
{
    if (step >= run->steps || step >= reference->steps)
        return NAN;
    const double own = run->losses[step], other = reference->losses[step];
    return other != 0 ? fabs(own - other) / fabs(other) : NAN; /* NAN of a NAN */
}

/* Where the last tenth of a run begins, at least its last step. */
static int64_t last_tenth(int64_t steps)
{
    const int64_t tenth = (steps + 9) / 10;
    return steps - tenth;
}

typedef struct Mean {
    double sum;
    int64_t count;
} Mean;

static void add(Mean *mean, double value)
{
    if (isnan(value))
        return;
    mean->sum += value;
    mean->count++;
}

static double value_of(const Mean *mean)
{
    return mean->count > 0 ? mean->sum / (double)mean->count : NAN;
}

/* Each run measured it when it began; a busy machine measures too little, none too much. */
static double peak_of(const HsBenchResults *results, const HsBenchRun *run)
{
    double peak = run->peak_flops;
    for (int i = 0; i < results->count; i++)
        if (strcmp(results->runs[i].precision, run->precision) == 0)
            peak = fmax(peak, results->runs[i].peak_flops);
    return peak;
}

static void find_speed(const HsBenchResults *results, const HsBenchRun *run, HsBenchFigures *figures)
{
    const double peak = peak_of(results, run);
    double *rates = malloc((size_t)(run->steps + 1) * sizeof *rates);
    for (int64_t i = 0; rates && i < run->steps; i++)
        if (run->seconds[i] > 0) /* false for NAN */
            rates[figures->timed_steps++] = (double)run->tokens_per_step / run->seconds[i];
    figures->tokens_per_second = hs_bench_percentile(rates, figures->timed_steps, 0.5);
    figures->tokens_per_second_p10 = hs_bench_percentile(rates, figures->timed_steps, 0.1);
    figures->tokens_per_second_p90 = hs_bench_percentile(rates, figures->timed_steps, 0.9);
    figures->peak_share = peak > 0 ? figures->tokens_per_second * run->flops_per_token / peak : NAN;
    free(rates);
}

static void find_distance(const HsBenchRun *run, const HsBenchRun *reference, HsBenchFigures *figures)
{
    Mean last = { 0 };
    for (int64_t i = 0; i < run->steps; i++) {
        const double distance = hs_bench_distance(run, reference, i);
        if (i >= last_tenth(run->steps))
            add(&last, distance);
        if (isnan(distance) || distance <= figures->distance_most)
            continue;
        figures->distance_most = distance;
        figures->distance_step = i + 1;
    }
    figures->distance_final = value_of(&last);
    figures->distance_most = figures->distance_step > 0 ? figures->distance_most : NAN;
}

HsBenchFigures hs_bench_figures(const HsBenchResults *results, int index)
{
    const HsBenchRun *run = &results->runs[index];
    HsBenchFigures figures = { .distance_most = -1 };
    Mean last = { 0 };
    find_speed(results, run, &figures);
    for (int64_t i = last_tenth(run->steps); i < run->steps; i++)
        add(&last, run->losses[i]);
    figures.training_loss = value_of(&last);
    find_distance(run, &results->runs[results->reference], &figures);
    return figures;
}

int hs_bench_find_reference(const HsBenchResults *results)
{
    for (int i = 0; i < results->count; i++)
        if (strcmp(results->runs[i].precision, "fp32") == 0)
            return i;
    return 0;
}

HsBenchLoss hs_bench_loss(const HsHistogram *histogram, HsDtype format)
{
    /* What the format cannot hold cannot be in it: `vanished` is what a wider buffer of the same layer would lose. */
    const HsFormatLoss loss = hs_histogram_loss(histogram, format, 0);
    return (HsBenchLoss){ loss.zero + loss.vanished, loss.subnormal, loss.overflow };
}

static const HsScalingFigures *casts_of(const HsBenchRun *run, int role)
{
    for (int i = 0; i < run->cast_count; i++)
        if (strcmp(run->casts[i].role, hs_scaling_role_name(role)) == 0)
            return &run->casts[i];
    return NULL;
}

double hs_bench_zeroed(const HsBenchRun *run, int role)
{
    const HsScalingFigures *casts = casts_of(run, role);
    return casts ? 100 * casts->zeroed : NAN;
}

double hs_bench_saturated(const HsBenchRun *run, int role)
{
    const HsScalingFigures *casts = casts_of(run, role);
    return casts ? 100 * casts->saturated : NAN;
}
