/* SPDX-License-Identifier: MIT
 *
 * compare.html: the table of strategies, bars of what was forgotten and retained, what each strategy costs, and the
 * mean matrix of each, all matrices in one range of colours, so that they compare by eye.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "runtime/pages/html_text.h"
#include "runtime/study/compare_page.h"

typedef struct Page {
    const char *title;
    const HsCompareFigures *figures; /* [count], one a strategy */
    int count;
} Page;

/* ---- the table ---- */

/* A rare figure has no column where no run knows it. */
static bool has_column(const HsCompareFigures *all, int count, int member)
{
    bool known = !hs_matrix_members[member].rare;
    for (int row = 0; row < count; row++)
        known = known || !isnan(all[row].members[member].mean);
    return known;
}

void hs_compare_add_table(const HsCompareFigures *all, int count, HsPage *page)
{
    char text[HS_HTML_FIGURE_BYTES];
    hs_page_section(page, "Strategies",
                    "Means over the finished runs, \u00b1 the sample standard deviation over seeds. Losses are "
                    "held-out, in nats a token.");
    hs_page_table(page, "table of strategies");
    hs_page_columns(page, (const char *const[]){ "strategy", "runs" }, 2);
    for (int i = 0; i < hs_matrix_member_count; i++)
        if (has_column(all, count, i))
            hs_page_columns(page, (const char *const[]){ hs_page_words(page, hs_matrix_members[i].name) }, 1);
    hs_page_columns(page, (const char *const[]){ "tokens/s", "memory" }, 2);
    for (int row = 0; row < count; row++) {
        const HsCompareFigures *figures = &all[row];
        hs_page_row(page, figures->name);
        hs_page_cell(page, "%d of %d", figures->finished, figures->runs);
        for (int i = 0; i < hs_matrix_member_count; i++)
            if (hs_compare_none(figures, i))
                hs_page_cell(page, "none");
            else if (has_column(all, count, i))
                hs_page_mean(page, figures->members[i].mean, figures->members[i].spread);
        hs_page_mean(page, figures->tokens_per_second.mean, figures->tokens_per_second.spread);
        hs_page_cell(page, "%s", hs_html_bytes(figures->memory_bytes.mean, text));
    }
    hs_page_figures(page);
    for (int i = 0; i < hs_matrix_member_count; i++)
        if (has_column(all, count, i))
            hs_page_figure(page, hs_page_words(page, hs_matrix_members[i].name), NULL, hs_matrix_members[i].doc);
}

/* ---- bars ---- */

/* Of each strategy, by its row; strategies that do not know the figure have no bar: an empty one would read as zero. */
typedef HsCompareFigure (*Figure)(const HsCompareFigures *figures, size_t offset);

static void add_bars(const Page *own, const char *title, const char *unit, Figure figure, size_t offset, HsPage *page)
{
    const size_t room = (size_t)own->count;
    const char **names = hs_page_room(page, room, sizeof *names);
    double *values = hs_page_room(page, room, sizeof *values), *spreads = hs_page_room(page, room, sizeof *spreads);
    HsBarChart bars = { .title = title, .unit = unit, .names = names, .values = values, .spreads = spreads };
    for (int row = 0; names && values && spreads && row < own->count; row++) {
        const HsCompareFigure found = figure(&own->figures[row], offset);
        if (!isfinite(found.mean))
            continue;
        names[bars.count] = own->figures[row].name;
        values[bars.count] = found.mean;
        spreads[bars.count++] = found.spread;
    }
    if (bars.count > 0)
        hs_page_bars(page, &bars);
}

static HsCompareFigure member_of(const HsCompareFigures *figures, size_t offset)
{
    return figures->members[offset / sizeof(double)];
}

static HsCompareFigure overhead_of(const HsCompareFigures *figures, size_t offset)
{
    const double *share = (const void *)((const char *)figures + offset);
    return (HsCompareFigure){ 100 * *share, NAN, 1 };
}

static void add_losses(const Page *own, HsPage *page)
{
    static const struct {
        const char *title, *unit;
        size_t offset;
    } charts[] = {
        { "Forgetting: lower is better", "nats", offsetof(HsMatrixSummary, forgetting) },
        { "Retained: mean loss on all tasks at the end, lower is better", "nats a token",
          offsetof(HsMatrixSummary, retained) },
        { "Learned: mean loss on each task right after it, lower is better", "nats a token",
          offsetof(HsMatrixSummary, learned) },
        { "Exact completions of prompts of the training text at the end: higher is better", "share",
          offsetof(HsMatrixSummary, accuracy_seen) },
        { "Exact completions of other prompts at the end: higher is better", "share",
          offsetof(HsMatrixSummary, accuracy_unseen) },
    };
    hs_page_section(page, "Forgetting and learning",
                    "A good strategy keeps the first two low without raising the third: what is protected from change "
                    "also learns less. Whiskers are one standard deviation over seeds.");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        add_bars(own, charts[i].title, charts[i].unit, member_of, charts[i].offset, page);
}

static void add_costs(const Page *own, HsPage *page)
{
    bool known = false;
    for (int row = 0; row < own->count; row++)
        known = known || isfinite(own->figures[row].time_overhead) || isfinite(own->figures[row].memory_overhead);
    if (!known)
        return;
    hs_page_section(page, "What it costs",
                    "Against the strategy none, from measured tokens a second and planned memory.");
    add_bars(own, "Time a token, above none", "%", overhead_of, offsetof(HsCompareFigures, time_overhead), page);
    add_bars(own, "Memory, above none", "%", overhead_of, offsetof(HsCompareFigures, memory_overhead), page);
}

/* ---- matrices ---- */

static void widen(const HsMatrix *matrix, double *low, double *high)
{
    for (int i = 0; i < matrix->tasks * matrix->tasks; i++) {
        if (isfinite(matrix->loss[i])) {
            *low = fmin(*low, matrix->loss[i]);
            *high = fmax(*high, matrix->loss[i]);
        }
    }
}

/* Rows from the first that is known: a joint run has only the last. */
static void add_matrix(const HsCompareFigures *figures, double low, double high, HsPage *page)
{
    const HsMatrix *matrix = &figures->mean;
    const size_t tasks = (size_t)matrix->tasks;
    const char **columns = hs_page_room(page, tasks, sizeof *columns), **rows = hs_page_room(page, tasks, sizeof *rows);
    int first = 0;
    if (!columns || !rows)
        return;
    for (size_t i = 0; i < tasks; i++) {
        columns[i] = matrix->names[i];
        rows[i] = hs_page_print(page, "after %.63s", matrix->names[i]);
    }
    while (first < matrix->tasks - 1 && !isfinite(*hs_matrix_at(matrix, first, first)))
        first++;
    hs_page_heat_map(page, &(HsHeatMap){ figures->name, rows + first, columns, hs_matrix_at(matrix, first, 0),
                                         matrix->tasks - first, matrix->tasks, first == 0 ? 0 : -1, low, high });
}

static void add_matrices(const Page *own, HsPage *page)
{
    double low = INFINITY, high = -INFINITY;
    for (int row = 0; row < own->count; row++)
        widen(&own->figures[row].mean, &low, &high);
    if (low > high) /* no matrix at all */
        return;
    hs_page_section(page, "Loss by task",
                    "Mean over seeds: held-out loss on each task (column) after training on each task (row). One range "
                    "of colours for all; the outlined cells are the task just trained.");
    for (int row = 0; row < own->count; row++)
        if (own->figures[row].mean.tasks > 0)
            add_matrix(&own->figures[row], low, high, page);
}

/* ---- the page ---- */

static HsStatus fill(HsPage *page, const void *user)
{
    const Page *own = user;
    hs_page_heading(page, own->title, "Continual learning: strategies side by side.");
    hs_compare_add_table(own->figures, own->count, page);
    add_losses(own, page);
    add_costs(own, page);
    add_matrices(own, page);
    return HS_OK;
}

HsStatus hs_compare_write_html(const char *path, const char *title, const HsCompareRow *rows, int count)
{
    HsCompareFigures *figures = NULL;
    HS_TRY(hs_compare_figures(rows, count, &figures));
    const HsStatus status = hs_page_write(path, title, fill, &(Page){ title, figures, count });
    hs_compare_figures_free(figures, count);
    return status;
}
