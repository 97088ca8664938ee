/* SPDX-License-Identifier: MIT
 *
 * compare.html: the table of strategies, bars of what was forgotten and retained, what each strategy costs, and the
 * mean matrix of each, all matrices in one range of colours, so that they compare by eye.
 */
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/study/compare_page.h"

typedef struct Page {
    const char *title;
    const HsCompareFigures *figures; /* [count], one a strategy */
    int count;
} Page;

static void begin_section(FILE *stream, const char *title, const char *text)
{
    fprintf(stream, "<section>\n<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

static void end_section(FILE *stream)
{
    fputs("</section>\n", stream);
}

/* ---- the table ---- */

static void write_title(FILE *stream, const char *name)
{
    fputs("<th scope=\"col\">", stream);
    for (; *name; name++)
        fputc(*name == '_' ? ' ' : *name, stream);
    fputs("</th>", stream);
}

static void write_figure(FILE *stream, const HsCompareFigure *figure, bool bytes)
{
    char mean[HS_HTML_FIGURE_BYTES], spread[HS_HTML_FIGURE_BYTES];
    fprintf(stream, "<td>%s", bytes ? hs_html_bytes(figure->mean, mean) : hs_html_figure(figure->mean, mean));
    if (!isnan(figure->spread) && !bytes) /* memory is planned: it has none */
        fprintf(stream, " <span class=\"soft\">\u00b1 %s</span>", hs_html_figure(figure->spread, spread));
    fputs("</td>", stream);
}

/* A rare figure has no column where no run knows it. */
static bool has_column(const HsCompareFigures *all, int count, int member)
{
    bool known = !hs_matrix_members[member].rare;
    for (int row = 0; row < count; row++)
        known = known || !isnan(all[row].members[member].mean);
    return known;
}

HsStatus hs_compare_write_table(const HsCompareFigures *all, int count, FILE *stream)
{
    begin_section(stream, "Strategies",
                  "Means over the finished runs, \u00b1 the sample standard deviation over seeds. "
                  "Losses are held-out, in nats a token.");
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table of strategies\">\n<table>\n"
          "<thead><tr><th scope=\"col\">strategy</th><th scope=\"col\">runs</th>",
          stream);
    for (int i = 0; i < hs_matrix_member_count; i++)
        if (has_column(all, count, i))
            write_title(stream, hs_matrix_members[i].name);
    fputs("<th scope=\"col\">tokens/s</th><th scope=\"col\">memory</th></tr></thead>\n<tbody>\n", stream);
    for (int row = 0; row < count; row++) {
        const HsCompareFigures *figures = &all[row];
        fputs("<tr><th scope=\"row\">", stream);
        hs_html_text(stream, figures->name);
        fprintf(stream, "</th><td>%d of %d</td>", figures->finished, figures->runs);
        for (int i = 0; i < hs_matrix_member_count; i++)
            if (hs_compare_none(figures, i))
                fputs("<td>none</td>", stream);
            else if (has_column(all, count, i))
                write_figure(stream, &figures->members[i], false);
        write_figure(stream, &figures->tokens_per_second, false);
        write_figure(stream, &figures->memory_bytes, true);
        fputs("</tr>\n", stream);
    }
    fputs("</tbody>\n</table>\n</div>\n<dl class=\"figures\" style=\"margin-top:18px\">\n", stream);
    for (int i = 0; i < hs_matrix_member_count; i++) {
        if (!has_column(all, count, i))
            continue;
        fputs("<div><dt>", stream);
        for (const char *at = hs_matrix_members[i].name; *at; at++)
            fputc(*at == '_' ? ' ' : *at, stream);
        fputs("</dt><dd>", stream);
        hs_html_text(stream, hs_matrix_members[i].doc);
        fputs("</dd></div>\n", stream);
    }
    fputs("</dl>\n", stream);
    end_section(stream);
    return HS_OK;
}

/* ---- bars ---- */

typedef struct Bars {
    const char **names;
    double *values, *spreads;
    int count;
} Bars;

static HsStatus make_bars(Bars *bars, int room)
{
    size_t count = (size_t)room;
    *bars = (Bars){ malloc(count * sizeof *bars->names), malloc(count * sizeof *bars->values),
                    malloc(count * sizeof *bars->spreads), 0 };
    bool made = bars->names && bars->values && bars->spreads;
    return made ? HS_OK : hs_fail(HS_ENOMEM, "no memory to draw %d bars", room);
}

static void free_bars(Bars *bars)
{
    free(bars->names);
    free(bars->values);
    free(bars->spreads);
}

/* Strategies that do not know the figure have no bar: an empty one would read as zero. */
static void add_bar(Bars *bars, const char *name, double value, double spread)
{
    if (!isfinite(value))
        return;
    bars->names[bars->count] = name;
    bars->values[bars->count] = value;
    bars->spreads[bars->count++] = spread;
}

static void draw_bars(Bars *bars, const char *title, const char *unit, FILE *stream)
{
    if (bars->count > 0)
        hs_html_bar_chart(stream, title, unit, bars->names, bars->values, bars->spreads, bars->count);
    bars->count = 0;
}

static HsStatus write_losses(const Page *page, FILE *stream)
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
    Bars bars;
    HsStatus status = make_bars(&bars, page->count);
    if (status == HS_OK) {
        begin_section(stream, "Forgetting and learning",
                      "A good strategy keeps the first two low without raising the third: what is protected from "
                      "change also learns less. Whiskers are one standard deviation over seeds.");
        for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
            for (int row = 0; row < page->count; row++) {
                const HsCompareFigure *figure = &page->figures[row].members[charts[i].offset / sizeof(double)];
                add_bar(&bars, page->figures[row].name, figure->mean, figure->spread);
            }
            draw_bars(&bars, charts[i].title, charts[i].unit, stream);
        }
        end_section(stream);
    }
    free_bars(&bars);
    return status;
}

static HsStatus write_costs(const Page *page, FILE *stream)
{
    const struct {
        const char *title;
        size_t offset;
    } charts[] = {
        { "Time a token, above none", offsetof(HsCompareFigures, time_overhead) },
        { "Memory, above none", offsetof(HsCompareFigures, memory_overhead) },
    };
    Bars bars;
    HsStatus status = make_bars(&bars, page->count);
    bool begun = false;
    for (size_t i = 0; i < sizeof charts / sizeof *charts && status == HS_OK; i++) {
        for (int row = 0; row < page->count; row++) {
            const char *place = (const char *)&page->figures[row] + charts[i].offset;
            add_bar(&bars, page->figures[row].name, 100 * *(const double *)(const void *)place, NAN);
        }
        if (bars.count > 0 && !begun) {
            begun = true;
            begin_section(stream, "What it costs",
                          "Against the strategy none, from measured tokens a second and "
                          "planned memory.");
        }
        draw_bars(&bars, charts[i].title, "%", stream);
    }
    if (begun)
        end_section(stream);
    free_bars(&bars);
    return status;
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
static HsStatus write_matrix(const HsCompareFigures *figures, double low, double high, FILE *stream)
{
    const HsMatrix *matrix = &figures->mean;
    size_t tasks = (size_t)matrix->tasks;
    char title[128];
    const char **columns = malloc(tasks * sizeof *columns), **rows = malloc(tasks * sizeof *rows);
    char(*names)[80] = malloc(tasks * sizeof *names);
    HsStatus status = HS_OK;
    if (!columns || !rows || !names) {
        status = hs_fail(HS_ENOMEM, "no memory to draw a matrix of %d tasks", matrix->tasks);
        goto done;
    }
    for (size_t i = 0; i < tasks; i++) {
        snprintf(names[i], sizeof names[i], "after %.63s", matrix->names[i]);
        rows[i] = names[i];
        columns[i] = matrix->names[i];
    }
    int first = 0;
    while (first < matrix->tasks - 1 && !isfinite(*hs_matrix_at(matrix, first, first)))
        first++;
    snprintf(title, sizeof title, "%.100s", figures->name);
    hs_html_heat_map(stream, &(HsHeatMap){ title, rows + first, columns, hs_matrix_at(matrix, first, 0),
                                           matrix->tasks - first, matrix->tasks, first == 0 ? 0 : -1, low, high });
done:
    free(names);
    free(rows);
    free(columns);
    return status;
}

static HsStatus write_matrices(const Page *page, FILE *stream)
{
    double low = INFINITY, high = -INFINITY;
    for (int row = 0; row < page->count; row++)
        widen(&page->figures[row].mean, &low, &high);
    if (low > high) /* no matrix at all */
        return HS_OK;
    begin_section(stream, "Loss by task",
                  "Mean over seeds: held-out loss on each task (column) after training on each task (row). One range "
                  "of colours for all; the outlined cells are the task just trained.");
    for (int row = 0; row < page->count; row++) {
        if (page->figures[row].mean.tasks > 0)
            HS_TRY(write_matrix(&page->figures[row], low, high, stream));
    }
    end_section(stream);
    return HS_OK;
}

/* ---- the page ---- */

static HsStatus write_body(FILE *stream, const void *user)
{
    const Page *page = user;
    fputs("<h1>", stream);
    hs_html_text(stream, page->title);
    fputs("</h1>\n<p class=\"soft\">Continual learning: strategies side by side.</p>\n", stream);
    HS_TRY(hs_compare_write_table(page->figures, page->count, stream));
    HS_TRY(write_losses(page, stream));
    HS_TRY(write_costs(page, stream));
    return write_matrices(page, stream);
}

HsStatus hs_compare_write_html(const char *path, const char *title, const HsCompareRow *rows, int count)
{
    HsCompareFigures *figures = NULL;
    HS_TRY(hs_compare_figures(rows, count, &figures));
    HsStatus status = hs_html_write(path, title, write_body, &(Page){ title, figures, count });
    hs_compare_figures_free(figures, count);
    return status;
}
