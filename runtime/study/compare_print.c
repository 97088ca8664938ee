/* SPDX-License-Identifier: MIT
 *
 * The comparison as a text table: a row a strategy, columns in order of importance, so that a narrow terminal loses the
 * spreads first and the last columns next.
 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/pages/html_text.h"
#include "runtime/record/progress.h"
#include "runtime/study/compare_page.h"

enum { NAME_LEAST = 16, NAME_MOST = 64, COLUMNS_LEAST = 40, CELL_BYTES = 64 };

static void format_loss(const HsCompareFigure *figure, bool spread, char cell[CELL_BYTES])
{
    if (isnan(figure->mean))
        snprintf(cell, CELL_BYTES, "-");
    else if (spread && !isnan(figure->spread))
        snprintf(cell, CELL_BYTES, "%.3f +-%.3f", figure->mean, figure->spread);
    else
        snprintf(cell, CELL_BYTES, "%.3f", figure->mean);
}

static void format_overhead(double overhead, char cell[CELL_BYTES])
{
    if (isnan(overhead))
        snprintf(cell, CELL_BYTES, "-");
    else
        snprintf(cell, CELL_BYTES, "%+.0f%%", 100 * overhead);
}

static void format_member(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES])
{
    const int member = (int)(offset / sizeof(double));
    if (hs_compare_none(row, member))
        snprintf(cell, CELL_BYTES, "none");
    else
        format_loss(&row->members[member], spread, cell);
}

static void format_speed(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES])
{
    (void)offset;
    (void)spread;
    if (isnan(row->tokens_per_second.mean))
        snprintf(cell, CELL_BYTES, "-");
    else
        hs_progress_format_count(row->tokens_per_second.mean, cell, CELL_BYTES);
}

static void format_memory(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES])
{
    char bytes[HS_HTML_FIGURE_BYTES];
    (void)offset;
    (void)spread;
    bool known = !isnan(row->memory_bytes.mean);
    snprintf(cell, CELL_BYTES, "%s", known ? hs_html_bytes(row->memory_bytes.mean, bytes) : "-");
}

static void format_time_overhead(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES])
{
    (void)offset;
    (void)spread;
    format_overhead(row->time_overhead, cell);
}

static void format_memory_overhead(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES])
{
    (void)offset;
    (void)spread;
    format_overhead(row->memory_overhead, cell);
}

/* The first columns of losses can carry a spread: `wide` is their width with it. */
static const struct {
    const char *title;
    int narrow, wide;
    void (*format)(const HsCompareFigures *row, size_t offset, bool spread, char cell[CELL_BYTES]);
    size_t offset; /* in HsMatrixSummary */
} columns_table[] = {
    { "retained", 10, 18, format_member, offsetof(HsMatrixSummary, retained) },
    { "forgetting", 12, 18, format_member, offsetof(HsMatrixSummary, forgetting) },
    { "learned", 10, 18, format_member, offsetof(HsMatrixSummary, learned) },
    { "exact", 8, 16, format_member, offsetof(HsMatrixSummary, accuracy_seen) },
    { "over joint", 12, 18, format_member, offsetof(HsMatrixSummary, excess_over_joint) },
    { "tokens/s", 10, 10, format_speed, 0 },
    { "+time", 8, 8, format_time_overhead, 0 },
    { "memory", 11, 11, format_memory, 0 },
    { "+memory", 9, 9, format_memory_overhead, 0 },
};
enum { COLUMN_COUNT = sizeof columns_table / sizeof *columns_table };

/* Room for the longest name; in a narrow terminal names are cut before figures are. */
static int name_width(const HsCompareFigures *figures, int count, int columns)
{
    int width = NAME_LEAST, most = columns - COLUMNS_LEAST;
    for (int row = 0; row < count; row++) {
        int length = (int)strlen(figures[row].name) + 2;
        width = length > width ? length : width;
    }
    most = most < NAME_LEAST ? NAME_LEAST : most > NAME_MOST ? NAME_MOST : most;
    return width < most ? width : most;
}

/* How many of the columns fit next to the name. */
static int fitting(int room, int name, bool spread)
{
    int used = name, count = 0;
    while (count < COLUMN_COUNT) {
        used += spread ? columns_table[count].wide : columns_table[count].narrow;
        if (used > room)
            break;
        count++;
    }
    return count;
}

HsStatus hs_compare_print(const HsCompareRow *rows, int count, int columns, FILE *stream)
{
    HsCompareFigures *figures = NULL;
    HS_TRY(hs_compare_figures(rows, count, &figures));
    columns = columns < COLUMNS_LEAST ? COLUMNS_LEAST : columns;
    int name = name_width(figures, count, columns);
    bool spread = fitting(columns, name, true) == COLUMN_COUNT, repeated = false;
    int shown = fitting(columns, name, spread);
    fprintf(stream, "%-*s", name, "strategy");
    for (int i = 0; i < shown; i++)
        fprintf(stream, "%*s", spread ? columns_table[i].wide : columns_table[i].narrow, columns_table[i].title);
    fputc('\n', stream);
    for (int row = 0; row < count; row++) {
        fprintf(stream, "%-*.*s", name, name - 1, figures[row].name);
        repeated = repeated || figures[row].finished > 1;
        for (int i = 0; i < shown; i++) {
            char cell[CELL_BYTES];
            columns_table[i].format(&figures[row], columns_table[i].offset, spread, cell);
            fprintf(stream, "%*s", spread ? columns_table[i].wide : columns_table[i].narrow, cell);
        }
        fputc('\n', stream);
    }
    fprintf(stream, "\nlosses in nats a token, lower is better%s\n",
            !repeated ? ""
            : spread  ? ", mean +- standard deviation over seeds"
                      : ", means over seeds");
    fputs("exact: share of exact completions, higher is better\n+time (a token), +memory: against none\n", stream);
    for (int row = 0; row < count; row++) {
        if (figures[row].finished < figures[row].runs)
            fprintf(stream, "%s: %d of %d runs finished; only those count\n", figures[row].name, figures[row].finished,
                    figures[row].runs);
    }
    hs_compare_figures_free(figures, count);
    return HS_OK;
}
