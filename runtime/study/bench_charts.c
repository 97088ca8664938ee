/* SPDX-License-Identifier: MIT
 *
 * The charts of bench.html, a section a question: do the modes learn the same, what do they cost, what becomes of their
 * gradients, what do casts into codes lose.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/page.h"
#include "runtime/study/bench.h"

/* Room for `count` reals, each NAN; NULL: no memory */
static double *make_reals(HsPage *page, size_t count)
{
    double *reals = hs_page_room(page, count, sizeof *reals);
    for (size_t i = 0; reals && i < count; i++)
        reals[i] = NAN;
    return reals;
}

/* ---- losses ---- */

static void add_losses(const HsBenchResults *results, HsPage *page)
{
    const size_t steps = (size_t)results->steps;
    HsChartSeries losses[HS_BENCH_MODES] = { 0 }, curves[HS_BENCH_MODES] = { 0 };
    const HsBenchRun *reference = &results->runs[results->reference];
    double *x = make_reals(page, steps), *distances = make_reals(page, steps * (size_t)results->count);
    int count = 0;
    if (!x || !distances)
        return;
    for (size_t i = 0; i < steps; i++)
        x[i] = (double)(i + 1);
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        losses[i] = (HsChartSeries){ run->mode->name, x, run->losses, run->steps };
        if (run == reference) /* at no distance from itself */
            continue;
        double *own = distances + (size_t)count * steps;
        for (int64_t step = 0; step < run->steps; step++)
            own[step] = 100 * hs_bench_distance(run, reference, step);
        curves[count++] = (HsChartSeries){ run->mode->name, x, own, run->steps };
    }
    hs_page_section(page, "Do they learn the same?",
                    "Step by step every mode sees the same batch, so that curves differ by arithmetic alone. Distances "
                    "grow by themselves: a rounding at one step is a slightly different model at the next.");
    hs_page_lines(
        page, &(HsLineChart){ "Training loss of each step", "step", "nats a token", losses, results->count, NULL, 0 });
    if (count > 0)
        hs_page_lines(
            page, &(HsLineChart){ "Relative distance from the reference's loss", "step", "%", curves, count, NULL, 0 });
}

/* ---- costs ---- */

static void add_points(const HsBenchResults *results, HsPage *page)
{
    HsChartPoint points[HS_BENCH_MODES];
    for (int i = 0; i < results->count; i++)
        points[i] = (HsChartPoint){ results->runs[i].mode->name,
                                    (double)hs_memory_sum(results->runs[i].peak) / (1024.0 * 1024.0),
                                    hs_bench_figures(results, i).tokens_per_second };
    hs_page_points(page, &(HsPointChart){ "Speed against memory: up and to the left is better", "memory at most, MiB",
                                          "tokens a second", points, results->count });
}

/* Bars of `count` parts; value(run, part) in the unit. */
static void add_bars(const HsBenchResults *results, const char *title, const char *unit, int count,
                     const char *(*name)(int part), double (*value)(const HsBenchRun *run, int part), HsPage *page)
{
    enum { PARTS_MOST = (int)HS_MEMORY_COUNT + (int)HS_PART_COUNT };
    const char *names[HS_BENCH_MODES], *parts[PARTS_MOST];
    double values[HS_BENCH_MODES * PARTS_MOST];
    for (int part = 0; part < count; part++)
        parts[part] = name(part);
    for (int i = 0; i < results->count; i++) {
        names[i] = results->runs[i].mode->name;
        for (int part = 0; part < count; part++)
            values[i * count + part] = value(&results->runs[i], part);
    }
    hs_page_stacked_bars(page, &(HsStackedBars){ title, unit, names, parts, values, results->count, count });
}

static const char *memory_name(int part)
{
    return hs_memory_row((HsMemoryCategory)part)->name;
}

static double memory_value(const HsBenchRun *run, int part)
{
    return (double)run->peak[part] / (1024.0 * 1024.0);
}

static const char *part_name(int part)
{
    return hs_step_part_name((HsStepPart)part);
}

static double part_value(const HsBenchRun *run, int part)
{
    return run->finished ? 1e3 * run->parts[part] : NAN;
}

static void add_costs(const HsBenchResults *results, HsPage *page)
{
    hs_page_section(page, "What do they cost?",
                    "Memory is what training allocated at most. Times of a step are of a few steps that were watched "
                    "after the last one, the quickest of several tries; watching takes a little itself.");
    add_points(results, page);
    add_bars(results, "Memory by what it is for", "MiB", HS_MEMORY_COUNT, memory_name, memory_value, page);
    add_bars(results, "Time of a step", "ms", HS_PART_COUNT, part_name, part_value, page);
}

/* ---- gradients ---- */

static bool has_activations(const HsBenchRun *run, int row)
{
    return row < run->survey.row_count && run->survey.rows[row].activations.elements > 0;
}

static HsBenchLoss loss_of(const HsBenchRun *run, int row)
{
    return hs_bench_loss(&run->survey.rows[row].activations, run->survey.activation_format);
}

/* Of a layer of a run, in percent; NAN: the run has no such layer. */
static double underflow(const void *user, int row, int column)
{
    const HsBenchRun *run = &((const HsBenchResults *)user)->runs[column];
    if (!has_activations(run, row))
        return NAN;
    const HsBenchLoss loss = loss_of(run, row);
    return 100 * (loss.zero + loss.subnormal);
}

static double overflow(const void *user, int row, int column)
{
    const HsBenchRun *run = &((const HsBenchResults *)user)->runs[column];
    return has_activations(run, row) ? 100 * loss_of(run, row).overflow : NAN;
}

static const HsBenchRun *deepest(const HsBenchResults *results)
{
    const HsBenchRun *found = &results->runs[0];
    for (int i = 1; i < results->count; i++)
        found = results->runs[i].survey.row_count > found->survey.row_count ? &results->runs[i] : found;
    return found;
}

/* A heat map with a row for each layer that has gradients of activations. */
typedef struct Layers {
    const char *title;
    const HsSurvey *survey; /* names the rows */
    const char *columns[HS_BENCH_MODES];
    int count;
    double (*value)(const void *user, int row, int column); /* percent */
    const void *user;
    bool optional; /* not drawn when all is zero */
} Layers;

static void add_layers(const Layers *layers, HsPage *page)
{
    const HsSurvey *survey = layers->survey;
    const char **rows = hs_page_room(page, (size_t)survey->row_count, sizeof *rows);
    double *values = make_reals(page, (size_t)(survey->row_count * layers->count)), high = 0;
    int used = 0;
    for (int row = 0; rows && values && row < survey->row_count; row++) {
        if (survey->rows[row].activations.elements == 0)
            continue;
        for (int i = 0; i < layers->count; i++) {
            const double value = values[used * layers->count + i] = layers->value(layers->user, row, i);
            high = isfinite(value) ? fmax(high, value) : high;
        }
        rows[used++] = survey->rows[row].name;
    }
    if (used > 0 && (high > 0 || !layers->optional))
        hs_page_heat_map(page, &(HsHeatMap){ layers->title, rows, layers->columns, values, used, layers->count, -1, 0,
                                             high > 0 ? high : 1 });
}

static void add_modes(const HsBenchResults *results, const char *title,
                      double (*value)(const void *user, int row, int column), bool optional, HsPage *page)
{
    Layers layers = { .title = title,
                      .survey = &deepest(results)->survey,
                      .count = results->count,
                      .value = value,
                      .user = results,
                      .optional = optional };
    for (int i = 0; i < results->count; i++)
        layers.columns[i] = results->runs[i].mode->name;
    add_layers(&layers, page);
}

static const struct {
    const char *name;
    HsDtype format;
    int shift;
    bool fits; /* shifted so that the layer's largest gradient is in the format's last binade */
} narrow_formats[] = {
    { "fp16", HS_F16, 0, false },  { "fp16, times 65536", HS_F16, 16, false }, { "bf16", HS_BF16, 0, false },
    { "e5m2", HS_E5M2, 0, false }, { "e5m2, scaled", HS_E5M2, 0, true },       { "e4m3, scaled", HS_E4M3, 0, true },
};
enum { NARROW_FORMATS = sizeof narrow_formats / sizeof *narrow_formats };

static double lost_in_format(const void *user, int row, int column)
{
    const HsSurvey *survey = user;
    const HsHistogram *histogram = &survey->rows[row].activations;
    const HsDtype format = narrow_formats[column].format;
    int shift = narrow_formats[column].shift, highest = HS_HISTOGRAM_GROUPS - 1;
    while (highest > 0 && histogram->groups[highest] == 0)
        highest--;
    if (narrow_formats[column].fits)
        shift = ilogb(hs_dtype_info(format)->max) - hs_histogram_exponent(highest);
    const HsFormatLoss loss = hs_histogram_loss(histogram, format, shift);
    return 100 * (loss.vanished + loss.subnormal);
}

/* What narrower formats would make of gradients that were computed in f32.  Scaled: by a power of two for each layer. */
static void add_formats(const HsBenchRun *run, HsPage *page)
{
    Layers layers = { .title = "Of fp32's gradients, what another format would lose or blunt, %: vanished or subnormal "
                               "(scaled: each layer up to the format's largest)",
                      .survey = &run->survey,
                      .count = NARROW_FORMATS,
                      .value = lost_in_format,
                      .user = &run->survey };
    for (int i = 0; i < NARROW_FORMATS; i++)
        layers.columns[i] = narrow_formats[i].name;
    add_layers(&layers, page);
}

/* One curve for each precision, as its first mode stores it. */
static void add_exponents(const HsBenchResults *results, bool weights, HsPage *page)
{
    HsExponentSeries series[HS_BENCH_MODES];
    int count = 0;
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        bool first = run->survey.row_count > 0;
        for (int k = 0; k < i && first; k++)
            first = results->runs[k].survey.row_count == 0 || strcmp(results->runs[k].precision, run->precision) != 0;
        if (!first)
            continue;
        const char *const name = run->loss_scale == 1
                                     ? run->precision
                                     : hs_page_print(page, "%s, times %g", run->precision, run->loss_scale);
        series[count++] = (HsExponentSeries){ name, weights ? &run->survey.weights : &run->survey.activations, 0 };
    }
    if (count > 0)
        hs_page_exponents(
            page, &(HsExponentChart){ weights ? "Gradients of weights" : "Gradients of activations", series, count });
}

static void add_gradients(const HsBenchResults *results, HsPage *page)
{
    const HsBenchRun *reference = &results->runs[results->reference];
    if (deepest(results)->survey.row_count == 0)
        return;
    hs_page_section(page, "What becomes of their gradients?",
                    "One batch after the last step, as each mode stores it, loss scale and all. Gradients of "
                    "activations are stored in the mode's own format: what lies left of its range is zero, and between "
                    "that and its normal numbers keeps fewer bits. What is zero in fp32 too (masked, dropped) is no "
                    "loss.");
    add_exponents(results, false, page);
    add_exponents(results, true, page);
    add_modes(results, "Underflow of activations' gradients, %: zero or subnormal as stored", underflow, false, page);
    add_modes(results, "Overflow of activations' gradients, %", overflow, true, page);
    if (reference->survey.row_count > 0 && strcmp(reference->precision, "fp32") == 0)
        add_formats(reference, page);
}

/* ---- casts ---- */

/* A column for each mode that casts, a row for each role that one of them has. */
static void add_cast_map(const HsBenchResults *results, const char *title,
                         double (*share)(const HsBenchRun *run, int role), HsPage *page)
{
    double values[HS_SCALING_ROLES * HS_BENCH_MODES], high = 0;
    const char *rows[HS_SCALING_ROLES], *columns[HS_BENCH_MODES];
    int used = 0, modes = 0, of_mode[HS_BENCH_MODES];
    for (int i = 0; i < results->count; i++)
        if (results->runs[i].cast_count > 0) {
            columns[modes] = results->runs[i].mode->name;
            of_mode[modes++] = i;
        }
    for (int role = 0; role < HS_SCALING_ROLES; role++) {
        bool any = false;
        for (int i = 0; i < modes; i++) {
            const double value = values[used * modes + i] = share(&results->runs[of_mode[i]], role);
            any = any || !isnan(value);
            high = fmax(high, value); /* which leaves a NAN out */
        }
        rows[used] = hs_scaling_role_name(role);
        used += any;
    }
    hs_page_heat_map(page, &(HsHeatMap){ title, rows, columns, values, used, modes, -1, 0, high > 0 ? high : 1 });
}

static void add_casts(const HsBenchResults *results, HsPage *page)
{
    bool any = false;
    for (int i = 0; i < results->count; i++)
        any = any || results->runs[i].cast_count > 0;
    if (!any)
        return;
    hs_page_section(
        page, "What do casts into codes lose?",
        "Of the last step, by what was cast: x, what a layer reads; its weight; dy, what its backward "
        "reads. Zeroed: not 0 before the cast, 0 after. Saturated: beyond the format's largest number after "
        "scaling.");
    add_cast_map(results, "Zeroed, %", hs_bench_zeroed, page);
    add_cast_map(results, "Saturated, %", hs_bench_saturated, page);
}

void hs_bench_add_charts(const HsBenchResults *results, HsPage *page)
{
    add_losses(results, page);
    add_costs(results, page);
    add_gradients(results, page);
    add_casts(results, page);
}
