/* SPDX-License-Identifier: MIT
 *
 * The bench on a terminal: one table with a row a mode (speed, memory, losses), then tables with a column a mode (split
 * of a step's time, memory by use, gradients by layer), as many modes next to each other as a line has room for.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html_text.h"
#include "runtime/record/progress.h"
#include "runtime/study/bench.h"

enum { LINE = 100, NAME_LEAST = 14, NAME_MOST = 32, COLUMN_LEAST = 11, CELL_BYTES = 48 };

static int label_width(const HsBenchResults *results)
{
    int width = NAME_LEAST;
    for (int i = 0; i < results->count; i++) {
        int length = (int)strlen(results->runs[i].mode->label) + 2;
        width = length > width ? length : width;
    }
    return width < NAME_MOST ? width : NAME_MOST;
}

/* --- a row a mode --- */

typedef struct Row {
    const HsBenchRun *run;
    HsBenchFigures figures;
} Row;

/* A dash for what is not known; `format` takes a double. */
static void format_real(const char *format, double value, char cell[CELL_BYTES])
{
    if (isnan(value))
        snprintf(cell, CELL_BYTES, "-");
    else
        snprintf(cell, CELL_BYTES, format, value);
}

static void format_speed(const Row *row, char cell[CELL_BYTES])
{
    if (isnan(row->figures.tokens_per_second))
        snprintf(cell, CELL_BYTES, "-");
    else
        hs_progress_format_count(row->figures.tokens_per_second, cell, CELL_BYTES);
}

static void format_spread(const Row *row, char cell[CELL_BYTES])
{
    char low[CELL_BYTES / 3], high[CELL_BYTES / 3];
    if (isnan(row->figures.tokens_per_second)) {
        snprintf(cell, CELL_BYTES, "-");
        return;
    }
    hs_progress_format_count(row->figures.tokens_per_second_p10, low, sizeof low);
    hs_progress_format_count(row->figures.tokens_per_second_p90, high, sizeof high);
    snprintf(cell, CELL_BYTES, "%s..%s", low, high);
}

static void format_peak(const Row *row, char cell[CELL_BYTES])
{
    format_real("%.0f%%", 100 * row->figures.peak_share, cell);
}

static void format_memory(const Row *row, char cell[CELL_BYTES])
{
    char text[HS_HTML_FIGURE_BYTES];
    const size_t bytes = hs_memory_sum(row->run->peak);
    snprintf(cell, CELL_BYTES, "%s", bytes > 0 ? hs_html_bytes((double)bytes, text) : "-");
}

static void format_planned(const Row *row, char cell[CELL_BYTES])
{
    char text[HS_HTML_FIGURE_BYTES];
    const size_t bytes = hs_memory_sum(row->run->planned);
    snprintf(cell, CELL_BYTES, "%s", bytes > 0 ? hs_html_bytes((double)bytes, text) : "-");
}

static void format_training(const Row *row, char cell[CELL_BYTES])
{
    format_real("%.4f", row->figures.training_loss, cell);
}

static void format_validation(const Row *row, char cell[CELL_BYTES])
{
    format_real("%.4f", row->run->finished ? row->run->validation_loss : NAN, cell);
}

/* 0: the same losses, bit by bit. */
static void format_most(const Row *row, char cell[CELL_BYTES])
{
    format_real(row->figures.distance_most == 0 ? "%g" : "%.1e", row->figures.distance_most, cell);
}

static void format_final(const Row *row, char cell[CELL_BYTES])
{
    format_real(row->figures.distance_final == 0 ? "%g" : "%.1e", row->figures.distance_final, cell);
}

static void format_skipped(const Row *row, char cell[CELL_BYTES])
{
    snprintf(cell, CELL_BYTES, "%lld+%lld", (long long)row->run->applied_steps, (long long)row->run->skipped_steps);
}

static const struct {
    const char *title;
    int width;
    void (*format)(const Row *row, char cell[CELL_BYTES]);
} columns[] = {
    { "tokens/s", 9, format_speed },    { "p10..p90", 15, format_spread }, { "peak", 6, format_peak },
    { "memory", 11, format_memory },    { "planned", 11, format_planned }, { "train", 8, format_training },
    { "valid.", 8, format_validation }, { "farthest", 9, format_most },    { "at end", 9, format_final },
    { "steps", 8, format_skipped },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_modes(const HsBenchResults *results, int name, FILE *stream)
{
    fprintf(stream, "%-*s", name, "mode");
    for (int i = 0; i < COLUMNS; i++)
        fprintf(stream, "%*s", columns[i].width, columns[i].title);
    fputc('\n', stream);
    for (int index = 0; index < results->count; index++) {
        const Row row = { &results->runs[index], hs_bench_figures(results, index) };
        fprintf(stream, "%-*.*s", name, name - 1, row.run->mode->label);
        for (int i = 0; i < COLUMNS; i++) {
            char cell[CELL_BYTES];
            columns[i].format(&row, cell);
            fprintf(stream, "%*s", columns[i].width, cell);
        }
        fputc('\n', stream);
    }
    fprintf(stream,
            "\ntokens/s: median, slow and fast tenth of the steps; peak: share of the products' measured peak; losses "
            "in\nnats a token, train: mean of the last tenth; farthest, at end: relative distance of the loss curve "
            "from\n%s%s; steps: applied+skipped\n",
            results->runs[results->reference].mode->name,
            strcmp(results->runs[results->reference].precision, "fp32") == 0 ? "" : " (the first: none is fp32's)");
}

/* --- a column a mode --- */

typedef struct Grid {
    const char *title;
    int rows;
    const char *(*name)(const HsBenchResults *results, int row);
    double (*value)(const HsBenchRun *run, int row); /* NAN or 0: a dash */
    const char *format;
    double least; /* a row is left out where no value is larger */
} Grid;

static bool row_is_used(const HsBenchResults *results, const Grid *grid, int row)
{
    for (int i = 0; i < results->count; i++) {
        const double value = grid->value(&results->runs[i], row);
        if (value > grid->least) /* false for NAN */
            return true;
    }
    return false;
}

static void print_some(const HsBenchResults *results, const Grid *grid, int name, int first, int count, FILE *stream)
{
    int widths[HS_BENCH_MODES];
    fprintf(stream, "\n%-*s", name, grid->title);
    for (int i = first; i < first + count; i++) {
        const int length = (int)strlen(results->runs[i].mode->label) + 2;
        widths[i] = length > COLUMN_LEAST ? length < NAME_MOST ? length : NAME_MOST : COLUMN_LEAST;
        fprintf(stream, "%*.*s", widths[i], widths[i] - 1, results->runs[i].mode->label);
    }
    fputc('\n', stream);
    for (int row = 0; row < grid->rows; row++) {
        if (!row_is_used(results, grid, row))
            continue;
        fprintf(stream, "%-*.*s", name, name - 1, grid->name(results, row));
        for (int i = first; i < first + count; i++) {
            char cell[CELL_BYTES];
            const double value = grid->value(&results->runs[i], row);
            format_real(grid->format, value == 0 ? NAN : value, cell);
            fprintf(stream, "%*s", widths[i], cell);
        }
        fputc('\n', stream);
    }
}

static void print_grid(const HsBenchResults *results, const Grid *grid, FILE *stream)
{
    enum { NAME = 26 };
    bool used = false;
    for (int row = 0; row < grid->rows; row++)
        used = used || row_is_used(results, grid, row);
    for (int first = 0; used && first < results->count;) {
        int count = 0, width = NAME;
        while (first + count < results->count && count < HS_BENCH_MODES) {
            const int length = (int)strlen(results->runs[first + count].mode->label) + 2;
            width += length > COLUMN_LEAST ? length < NAME_MOST ? length : NAME_MOST : COLUMN_LEAST;
            if (width > LINE && count > 0)
                break;
            count++;
        }
        print_some(results, grid, NAME, first, count, stream);
        first += count;
    }
}

static const char *part_name(const HsBenchResults *results, int row)
{
    (void)results;
    return hs_step_part_name((HsStepPart)row);
}

static double part_ms(const HsBenchRun *run, int row)
{
    return run->finished ? 1e3 * run->parts[row] : NAN;
}

static const char *memory_name(const HsBenchResults *results, int row)
{
    (void)results;
    return hs_memory_row((HsMemoryCategory)row)->name;
}

static double memory_mebibytes(const HsBenchRun *run, int row)
{
    return (double)run->peak[row] / (1024.0 * 1024.0);
}

/* The run with the most layers names the rows. */
static const HsBenchRun *deepest(const HsBenchResults *results)
{
    const HsBenchRun *found = &results->runs[0];
    for (int i = 1; i < results->count; i++)
        found = results->runs[i].survey.row_count > found->survey.row_count ? &results->runs[i] : found;
    return found;
}

static const char *layer_name(const HsBenchResults *results, int row)
{
    return deepest(results)->survey.rows[row].name;
}

static double underflow(const HsBenchRun *run, int row)
{
    const HsSurvey *survey = &run->survey;
    if (row >= survey->row_count || survey->rows[row].activations.elements == 0)
        return NAN;
    const HsBenchLoss loss = hs_bench_loss(&survey->rows[row].activations, survey->activation_format);
    return 100 * (loss.zero + loss.subnormal);
}

static double overflow(const HsBenchRun *run, int row)
{
    const HsSurvey *survey = &run->survey;
    if (row >= survey->row_count)
        return NAN;
    return 100 * hs_bench_loss(&survey->rows[row].activations, survey->activation_format).overflow;
}

static const char *role_name(const HsBenchResults *results, int role)
{
    (void)results;
    return hs_scaling_role_name(role);
}

void hs_bench_print(const HsBenchResults *results, FILE *stream)
{
    const int layers = deepest(results)->survey.row_count;
    const Grid grids[] = {
        { "a step's time (ms)", HS_PART_COUNT, part_name, part_ms, "%.3f", 5e-4 },
        { "memory at most (MiB)", HS_MEMORY_COUNT, memory_name, memory_mebibytes, "%.3f", 0 },
        { "underflow of gradients (%)", layers, layer_name, underflow, "%.3f", 0 },
        { "overflow of gradients (%)", layers, layer_name, overflow, "%.3f", 0 },
        { "zeroed by casts (%)", HS_SCALING_ROLES, role_name, hs_bench_zeroed, "%.4f", 0 },
        { "saturated by casts (%)", HS_SCALING_ROLES, role_name, hs_bench_saturated, "%.4f", 0 },
    };
    print_modes(results, label_width(results), stream);
    if (results->emulated)
        fputs("the device is emulated: its times mean nothing\n", stream);
    if (!results->interleaved)
        fputs("modes ran one after another, as together they do not fit the device: a machine that changed its speed "
              "in between changed theirs\n",
              stream);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        print_grid(results, &grids[i], stream);
    if (layers > 0)
        fputs("underflow: zero or subnormal in the format that the mode stores gradients of activations in, loss scale "
              "and all\n",
              stream);
    for (int i = 0; i < results->count; i++)
        if (results->runs[i].failure[0])
            fprintf(stream, "%s ended after %lld steps: %s\n", results->runs[i].mode->name,
                    (long long)results->runs[i].steps, results->runs[i].failure);
}
