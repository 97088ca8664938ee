/* SPDX-License-Identifier: MIT
 *
 * The charts of bench.html, a section a question: do the modes learn the same, what do they cost, what becomes of their
 * gradients, what do casts into codes lose.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/pages/html_exponents.h"
#include "runtime/study/bench.h"

static void begin_section(FILE *stream, const char *title, const char *text)
{
    fprintf(stream, "<section>\n<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

static void end_section(FILE *stream)
{
    fputs("</section>\n", stream);
}

/* Room for `count` reals, each NAN. */
static HsStatus make_reals(size_t count, double **reals)
{
    *reals = malloc((count > 0 ? count : 1) * sizeof **reals);
    if (!*reals)
        return hs_fail(HS_ENOMEM, "no memory to draw %zu figures", count);
    for (size_t i = 0; i < count; i++)
        (*reals)[i] = NAN;
    return HS_OK;
}

/* ---- losses ---- */

static void draw_curves(const HsBenchResults *results, const double *x, double *distances, FILE *stream)
{
    HsChartSeries losses[HS_BENCH_MODES] = { 0 }, curves[HS_BENCH_MODES] = { 0 };
    const HsBenchRun *reference = &results->runs[results->reference];
    int count = 0;
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        losses[i] = (HsChartSeries){ run->mode->name, x, run->losses, run->steps };
        if (run == reference) /* at no distance from itself */
            continue;
        double *own = distances + (size_t)count * (size_t)results->steps;
        for (int64_t step = 0; step < run->steps; step++)
            own[step] = 100 * hs_bench_distance(run, reference, step);
        curves[count++] = (HsChartSeries){ run->mode->name, x, own, run->steps };
    }
    hs_html_line_chart(stream, "Training loss of each step", "step", "nats a token", losses, results->count, NULL, 0);
    if (count > 0)
        hs_html_line_chart(stream, "Relative distance from the reference's loss", "step", "%", curves, count, NULL, 0);
}

static HsStatus write_losses(const HsBenchResults *results, FILE *stream)
{
    const size_t steps = (size_t)results->steps;
    double *x = NULL, *distances = NULL;
    HsStatus status = make_reals(steps, &x);
    if (status == HS_OK)
        status = make_reals(steps * (size_t)results->count, &distances);
    if (status == HS_OK) {
        for (size_t i = 0; i < steps; i++)
            x[i] = (double)(i + 1);
        begin_section(
            stream, "Do they learn the same?",
            "Step by step every mode sees the same batch, so that curves differ by arithmetic alone. "
            "Distances grow by themselves: a rounding at one step is a slightly different model at the next.");
        draw_curves(results, x, distances, stream);
        end_section(stream);
    }
    free(x);
    free(distances);
    return status;
}

/* ---- costs ---- */

static void draw_points(const HsBenchResults *results, FILE *stream)
{
    HsChartPoint points[HS_BENCH_MODES];
    for (int i = 0; i < results->count; i++)
        points[i] = (HsChartPoint){ results->runs[i].mode->name,
                                    (double)hs_memory_sum(results->runs[i].peak) / (1024.0 * 1024.0),
                                    hs_bench_figures(results, i).tokens_per_second };
    hs_html_scatter_chart(stream, "Speed against memory: up and to the left is better", "memory at most, MiB",
                          "tokens a second", points, results->count);
}

/* Bars of `count` parts; value(run, part) in the unit. */
static HsStatus draw_bars(const HsBenchResults *results, const char *title, const char *unit, int count,
                          const char *(*name)(int part), double (*value)(const HsBenchRun *run, int part), FILE *stream)
{
    enum { PARTS_MOST = (int)HS_MEMORY_COUNT + (int)HS_PART_COUNT };
    const char *names[HS_BENCH_MODES], *parts[PARTS_MOST];
    double *values;
    HS_TRY(make_reals((size_t)(results->count * count), &values));
    for (int part = 0; part < count; part++)
        parts[part] = name(part);
    for (int i = 0; i < results->count; i++) {
        names[i] = results->runs[i].mode->name;
        for (int part = 0; part < count; part++)
            values[i * count + part] = value(&results->runs[i], part);
    }
    hs_html_stacked_chart(stream, &(HsStackedBars){ title, unit, names, parts, values, results->count, count });
    free(values);
    return HS_OK;
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

static HsStatus write_costs(const HsBenchResults *results, FILE *stream)
{
    begin_section(
        stream, "What do they cost?",
        "Memory is what training allocated at most. Times of a step are of a few steps that were watched after "
        "the last one, the quickest of several tries; watching takes a little itself.");
    draw_points(results, stream);
    HS_TRY(draw_bars(results, "Memory by what it is for", "MiB", HS_MEMORY_COUNT, memory_name, memory_value, stream));
    HS_TRY(draw_bars(results, "Time of a step", "ms", HS_PART_COUNT, part_name, part_value, stream));
    end_section(stream);
    return HS_OK;
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

static HsStatus draw_layers(const Layers *layers, FILE *stream)
{
    const HsSurvey *survey = layers->survey;
    double *values = NULL, high = 0;
    const char **rows = malloc((size_t)survey->row_count * sizeof *rows);
    HsStatus status = make_reals((size_t)(survey->row_count * layers->count), &values);
    int used = 0;
    if (!rows)
        status = hs_fail(HS_ENOMEM, "no memory to draw %d layers", survey->row_count);
    for (int row = 0; row < survey->row_count && status == HS_OK; row++) {
        if (survey->rows[row].activations.elements == 0)
            continue;
        for (int i = 0; i < layers->count; i++) {
            const double value = values[used * layers->count + i] = layers->value(layers->user, row, i);
            high = isfinite(value) ? fmax(high, value) : high;
        }
        rows[used++] = survey->rows[row].name;
    }
    if (status == HS_OK && used > 0 && (high > 0 || !layers->optional)) {
        fputs("<figure>\n", stream);
        hs_html_heat_map(stream, &(HsHeatMap){ layers->title, rows, layers->columns, values, used, layers->count, -1, 0,
                                               high > 0 ? high : 1 });
        fputs("</figure>\n", stream);
    }
    free(values);
    free(rows);
    return status;
}

static HsStatus draw_modes(const HsBenchResults *results, const char *title,
                           double (*value)(const void *user, int row, int column), bool optional, FILE *stream)
{
    Layers layers = { .title = title,
                      .survey = &deepest(results)->survey,
                      .count = results->count,
                      .value = value,
                      .user = results,
                      .optional = optional };
    for (int i = 0; i < results->count; i++)
        layers.columns[i] = results->runs[i].mode->name;
    return draw_layers(&layers, stream);
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
static HsStatus draw_formats(const HsBenchRun *run, FILE *stream)
{
    Layers layers = { .title = "Of fp32's gradients, what another format would lose or blunt, %: vanished or subnormal "
                               "(scaled: each layer up to the format's largest)",
                      .survey = &run->survey,
                      .count = NARROW_FORMATS,
                      .value = lost_in_format,
                      .user = &run->survey };
    for (int i = 0; i < NARROW_FORMATS; i++)
        layers.columns[i] = narrow_formats[i].name;
    return draw_layers(&layers, stream);
}

/* One curve for each precision, as its first mode stores it. */
static void draw_exponents(const HsBenchResults *results, bool weights, FILE *stream)
{
    HsExponentSeries series[HS_BENCH_MODES];
    char names[HS_BENCH_MODES][HS_BENCH_NAME_BYTES];
    int count = 0;
    for (int i = 0; i < results->count; i++) {
        const HsBenchRun *run = &results->runs[i];
        bool first = run->survey.row_count > 0;
        for (int k = 0; k < i && first; k++)
            first = results->runs[k].survey.row_count == 0 || strcmp(results->runs[k].precision, run->precision) != 0;
        if (!first)
            continue;
        if (run->loss_scale == 1)
            snprintf(names[count], sizeof names[count], "%s", run->precision);
        else
            snprintf(names[count], sizeof names[count], "%s, times %g", run->precision, run->loss_scale);
        series[count] =
            (HsExponentSeries){ names[count], weights ? &run->survey.weights : &run->survey.activations, 0 };
        count++;
    }
    if (count > 0)
        hs_html_exponent_chart(stream, weights ? "Gradients of weights" : "Gradients of activations", series, count);
}

static HsStatus write_gradients(const HsBenchResults *results, FILE *stream)
{
    const HsBenchRun *reference = &results->runs[results->reference];
    if (deepest(results)->survey.row_count == 0)
        return HS_OK;
    begin_section(stream, "What becomes of their gradients?",
                  "One batch after the last step, as each mode stores it, loss scale and all. Gradients of activations "
                  "are stored in the mode's own format: what lies left of its range is zero, and between that and its "
                  "normal numbers keeps fewer bits. What is zero in fp32 too (masked, dropped) is no loss.");
    draw_exponents(results, false, stream);
    draw_exponents(results, true, stream);
    HS_TRY(draw_modes(results, "Underflow of activations' gradients, %: zero or subnormal as stored", underflow, false,
                      stream));
    HS_TRY(draw_modes(results, "Overflow of activations' gradients, %", overflow, true, stream));
    if (reference->survey.row_count > 0 && strcmp(reference->precision, "fp32") == 0)
        HS_TRY(draw_formats(reference, stream));
    end_section(stream);
    return HS_OK;
}

/* ---- casts ---- */

/* A column for each mode that casts, a row for each role that one of them has. */
static void draw_casts(const HsBenchResults *results, const char *title,
                       double (*share)(const HsBenchRun *run, int role), FILE *stream)
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
    fputs("<figure>\n", stream);
    hs_html_heat_map(stream, &(HsHeatMap){ title, rows, columns, values, used, modes, -1, 0, high > 0 ? high : 1 });
    fputs("</figure>\n", stream);
}

static void write_casts(const HsBenchResults *results, FILE *stream)
{
    bool any = false;
    for (int i = 0; i < results->count; i++)
        any = any || results->runs[i].cast_count > 0;
    if (!any)
        return;
    begin_section(
        stream, "What do casts into codes lose?",
        "Of the last step, by what was cast: x, what a layer reads; its weight; dy, what its backward reads. "
        "Zeroed: not 0 before the cast, 0 after. Saturated: beyond the format's largest number after scaling.");
    draw_casts(results, "Zeroed, %", hs_bench_zeroed, stream);
    draw_casts(results, "Saturated, %", hs_bench_saturated, stream);
    end_section(stream);
}

HsStatus hs_bench_write_charts(const HsBenchResults *results, FILE *stream)
{
    HS_TRY(write_losses(results, stream));
    HS_TRY(write_costs(results, stream));
    HS_TRY(write_gradients(results, stream));
    write_casts(results, stream);
    return HS_OK;
}
