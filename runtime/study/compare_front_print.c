/* SPDX-License-Identifier: MIT
 *
 * The front for a terminal: a plot of letters, a row a point under its letter, and a sentence for each point that is
 * dominated.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html_text.h"
#include "runtime/record/progress.h"
#include "runtime/study/compare_front_figures.h"

enum { PLOT_COLUMNS = 72, PLOT_ROWS = 20, LETTERS = 52, CELL_BYTES = 64, NAME_LEAST = 10 };

/* a to z, A to Z, then all alike. */
static char letter_of(int index)
{
    return index >= LETTERS ? '*' : index < 26 ? (char)('a' + index) : (char)('A' + index - 26);
}

/* --- the plot --- */

typedef struct Plot {
    char cells[PLOT_ROWS][PLOT_COLUMNS + 1];
    double low_x, high_x, low_y, high_y;
} Plot;

static bool is_drawn(const HsFrontPoint *point)
{
    return !point->reference && isfinite(point->learned) && isfinite(point->forgotten);
}

/* Where a value lies among `cells`. */
static int place(double value, double low, double high, int cells)
{
    const double share = high > low ? (value - low) / (high - low) : 0.5;
    return (int)lround(share * (cells - 1));
}

/* Points of the front last: where two share a cell, the front's letter is seen. */
static void fill_plot(const HsFront *front, Plot *plot)
{
    memset(plot->cells, ' ', sizeof plot->cells);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < front->count; i++) {
            const HsFrontPoint *point = &front->points[i];
            if (!is_drawn(point) || (point->dominated_by < 0) != (pass == 1))
                continue;
            const int column = place(point->forgotten, plot->low_x, plot->high_x, PLOT_COLUMNS);
            const int row = PLOT_ROWS - 1 - place(point->learned, plot->low_y, plot->high_y, PLOT_ROWS);
            plot->cells[row][column] = letter_of(i);
        }
    for (int row = 0; row < PLOT_ROWS; row++)
        plot->cells[row][PLOT_COLUMNS] = '\0';
}

static void print_plot(const HsFront *front, FILE *stream)
{
    Plot plot = { .low_x = INFINITY, .high_x = -INFINITY, .low_y = INFINITY, .high_y = -INFINITY };
    for (int i = 0; i < front->count; i++) {
        if (!is_drawn(&front->points[i]))
            continue;
        plot.low_x = fmin(plot.low_x, front->points[i].forgotten);
        plot.high_x = fmax(plot.high_x, front->points[i].forgotten);
        plot.low_y = fmin(plot.low_y, front->points[i].learned);
        plot.high_y = fmax(plot.high_y, front->points[i].learned);
    }
    if (plot.low_x > plot.high_x) {
        fputs("no point has figures: no run of a stream finished\n\n", stream);
        return;
    }
    fill_plot(front, &plot);
    fputs("learned (up: worse) against forgotten (right: worse), nats; the front is at the lower left\n\n", stream);
    for (int row = 0; row < PLOT_ROWS; row++) {
        if (row == 0 || row == PLOT_ROWS - 1)
            fprintf(stream, "%9.3f |%s\n", row == 0 ? plot.high_y : plot.low_y, plot.cells[row]);
        else
            fprintf(stream, "%9s |%s\n", "", plot.cells[row]);
    }
    fprintf(stream, "%9s +", "");
    for (int i = 0; i < PLOT_COLUMNS; i++)
        fputc('-', stream);
    fprintf(stream, "\n%9s  %-10.3f%*.3f\n\n", "", plot.low_x, PLOT_COLUMNS - 10, plot.high_x);
}

/* --- the table --- */

static void format_figure(const HsCompareFigure *figure, char cell[CELL_BYTES])
{
    if (isnan(figure->mean))
        snprintf(cell, CELL_BYTES, "-");
    else if (isnan(figure->spread))
        snprintf(cell, CELL_BYTES, "%.3f", figure->mean);
    else
        snprintf(cell, CELL_BYTES, "%.3f +-%.3f", figure->mean, figure->spread);
}

static void format_member(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    format_figure(&row->figures->members[offset / sizeof(double)], cell);
}

static void format_forgotten(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    const HsCompareFigure *helped = &row->figures->members[offsetof(HsMatrixSummary, bwt) / sizeof(double)];
    (void)offset;
    if (row->price.all_text)
        snprintf(cell, CELL_BYTES, "none");
    else
        format_figure(&(HsCompareFigure){ -helped->mean, helped->spread, helped->count }, cell);
}

static void format_share(double share, const char *format, char cell[CELL_BYTES])
{
    if (isfinite(share))
        snprintf(cell, CELL_BYTES, format, 100 * share);
    else
        snprintf(cell, CELL_BYTES, "-");
}

static void format_closed(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    format_share(row->closed, "%.0f%%", cell);
}

static void format_memory(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    char bytes[HS_HTML_FIGURE_BYTES];
    (void)offset;
    const double mean = row->figures->memory_bytes.mean;
    snprintf(cell, CELL_BYTES, "%s", mean > 0 ? hs_html_bytes(mean, bytes) : "-");
}

static void format_more_memory(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    format_share(row->figures->memory_overhead, "%+.0f%%", cell);
}

static void format_time(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    format_share(row->figures->time_overhead, "%+.0f%%", cell);
}

static void format_seconds(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    const double seconds = row->figures->seconds.mean;
    if (isfinite(seconds))
        snprintf(cell, CELL_BYTES, seconds < 100 ? "%.1f" : "%.0f", seconds);
    else
        snprintf(cell, CELL_BYTES, "-");
}

static void format_trainable(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    if (row->price.trainable > 0)
        hs_progress_format_count((double)row->price.trainable, cell, CELL_BYTES);
    else
        snprintf(cell, CELL_BYTES, "-");
}

static void format_text(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    char text[HS_FRONT_LINE_BYTES];
    (void)offset;
    snprintf(cell, CELL_BYTES, "%.63s", hs_front_text_kept(row, text));
}

static void format_numbers(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES])
{
    (void)offset;
    if (isfinite(row->numbers))
        snprintf(cell, CELL_BYTES, "%.1f", row->numbers);
    else
        snprintf(cell, CELL_BYTES, "-");
}

static const struct {
    const char *title;
    int narrow, wide; /* wide: with a spread over seeds */
    void (*format)(const HsFrontRow *row, size_t offset, char cell[CELL_BYTES]);
    size_t offset; /* in HsMatrixSummary */
} columns[] = {
    { "learned", 9, 16, format_member, offsetof(HsMatrixSummary, learned) },
    { "forgotten", 11, 16, format_forgotten, 0 },
    { "retained", 10, 16, format_member, offsetof(HsMatrixSummary, retained) },
    { "closed", 8, 8, format_closed, 0 },
    { "text kept", 14, 14, format_text, 0 },
    { "numbers", 9, 9, format_numbers, 0 },
    { "memory", 11, 11, format_memory, 0 },
    { "+memory", 9, 9, format_more_memory, 0 },
    { "+time", 8, 8, format_time, 0 },
    { "seconds", 9, 9, format_seconds, 0 },
    { "trainable", 11, 11, format_trainable, 0 },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_table(const HsFront *front, FILE *stream)
{
    int name = NAME_LEAST;
    bool spread = false;
    for (int i = 0; i < front->count; i++) {
        const int length = (int)strlen(front->rows[i].name);
        name = length > name ? length : name;
        spread = spread || isfinite(front->rows[i].learned_spread);
    }
    fprintf(stream, "  %-*s", name, "point");
    for (int i = 0; i < COLUMNS; i++)
        fprintf(stream, "%*s", spread ? columns[i].wide : columns[i].narrow, columns[i].title);
    fputc('\n', stream);
    for (int row = 0; row < front->count; row++) {
        char cell[CELL_BYTES], place_text[HS_FRONT_LINE_BYTES];
        fprintf(stream, "%c %-*s", letter_of(row), name, front->rows[row].name);
        for (int i = 0; i < COLUMNS; i++) {
            columns[i].format(&front->rows[row], columns[i].offset, cell);
            fprintf(stream, "%*s", spread ? columns[i].wide : columns[i].narrow, cell);
        }
        fprintf(stream, "  %s\n", hs_front_place(front, row, place_text));
    }
    fputs("\nlearned, forgotten, retained: nats a token, lower is better; closed: share of the distance from none to "
          "joint\ntext kept: sequences of earlier text at most, and their share of the training text; numbers: kept a "
          "trained parameter\n+memory, +time (a token): against none; seconds of a run; trainable: parameters that are "
          "trained\n",
          stream);
    if (!spread)
        fputs("one run a point: seeds may differ by more than points that lie close together (--seeds 3)\n", stream);
}

/* --- the fronts --- */

static void print_order(const HsFront *front, bool without_text, const char *title, int *order, FILE *stream)
{
    const int count = hs_front_order(front->points, front->count, without_text, order);
    fputs(title, stream);
    for (int i = 0; i < count; i++)
        fprintf(stream, "%s%s", i > 0 ? ", " : " ", front->rows[order[i]].name);
    fputs(count > 0 ? "\n" : " none\n", stream);
}

HsStatus hs_front_print(const HsFront *front, FILE *stream)
{
    char text[HS_FRONT_LINE_BYTES];
    int *order = malloc((size_t)front->count * sizeof *order);
    if (!order)
        return hs_fail(HS_ENOMEM, "no memory for a front of %d points", front->count);
    print_plot(front, stream);
    print_table(front, stream);
    fputs(
        "\nA point is dominated where another one is not worse in learned, forgotten and text kept (a sample or none), "
        "and better in one.\nMemory and time do not count.\n",
        stream);
    print_order(front, false, "the front, from what forgets least to what learns best:", order, stream);
    print_order(front, true, "the front of what keeps no text:", order, stream);
    fputc('\n', stream);
    for (int i = 0; i < front->count; i++)
        if (hs_front_sentence(front, i, text)[0])
            fprintf(stream, "%s\n", text);
    for (int i = 0; i < front->count; i++)
        if (front->figures[i].finished < front->figures[i].runs)
            fprintf(stream, "%s: %d of %d runs finished; only those count\n", front->rows[i].name,
                    front->figures[i].finished, front->figures[i].runs);
    free(order);
    return HS_OK;
}
