/* SPDX-License-Identifier: MIT
 *
 * compare.html of a search: the best combination's lines, the table of all by rung, and what each key's values led to.
 *
 * Values compare where all of them were trained alike, at the first rung: bars are the lowest loss of any combination
 * with the value.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/pages/html_text.h"
#include "runtime/pages/page.h"
#include "runtime/study/grid_results.h"

enum { PAIRED_AXES = 3 };

static HsStatus add_best(const HsGridResults *results, HsPage *page)
{
    char *yaml = NULL, *overrides = NULL, figure[HS_HTML_FIGURE_BYTES];
    if (!results->best) {
        hs_page_section(page, "No best combination", "Every combination diverged.");
        return HS_OK;
    }
    HS_TRY(hs_grid_best_yaml(results, &yaml));
    const HsStatus status = hs_grid_best_overrides(results, &overrides);
    if (status == HS_OK) {
        const int best = results->order[0];
        hs_page_section(page, "Best combination", "Lines for the configuration, and the same for a command line.");
        hs_page_figures(page);
        hs_page_figure(page, hs_page_print(page, "%s, nats a token", results->criterion),
                       hs_html_figure(hs_grid_mean(results, best, hs_grid_reached(results, best)), figure), NULL);
        hs_page_code(page, yaml);
        hs_page_code(page, overrides);
    }
    free(yaml);
    free(overrides);
    return status;
}

/* --- the table --- */

static void add_loss(const HsGridResults *results, int combination, int rung, HsPage *page)
{
    const double mean = hs_grid_mean(results, combination, rung);
    if (isinf(mean))
        hs_page_cell(page, "diverged");
    else
        hs_page_mean(page, mean, hs_grid_spread(results, combination, rung));
}

static void add_row(const HsGridResults *results, int rank, HsPage *page)
{
    const int combination = results->order[rank], reached = hs_grid_reached(results, combination);
    hs_page_row(page, results->variants->items[combination].label);
    for (int rung = 0; rung < results->rungs; rung++)
        add_loss(results, combination, rung, page);
    if (rank == 0 && results->best)
        hs_page_cell(page, "best");
    else if (reached < results->rungs - 1)
        hs_page_cell(page, "dropped at rung %d", reached + 1);
    else
        hs_page_cell(page, "%s", "");
}

static void add_table(const HsGridResults *results, HsPage *page)
{
    char name[32];
    hs_page_section(page, "Combinations",
                    "Best first. A column is a rung of successive halving: runs of that part of the full length, of "
                    "which about one in %lld continues%s. %s in nats a token, lower is better. Trained: %.3g runs of "
                    "full length a seed, where the whole grid is %d.",
                    (long long)results->eta, results->rungs == 1 ? " (here there is one rung: the whole grid)" : "",
                    results->criterion[0] == 'r' ? "Retained loss" : "Validation loss", hs_grid_cost(results),
                    results->variants->count);
    hs_page_table(page, "table of combinations");
    hs_page_columns(page, (const char *const[]){ "combination" }, 1);
    for (int rung = 0; rung < results->rungs; rung++)
        hs_page_columns(
            page, (const char *const[]){ hs_page_print(page, "%s length", hs_grid_rung_name(results, rung, name)) }, 1);
    hs_page_columns(page, (const char *const[]){ "" }, 1);
    for (int rank = 0; rank < results->variants->count; rank++)
        add_row(results, rank, page);
}

/* --- values --- */

/* The lowest loss of the first rung among combinations with these values; NAN: all diverged. */
static double lowest(const HsGridResults *results, int axis, int value, int other_axis, int other_value)
{
    double loss = NAN;
    for (int i = 0; i < results->variants->count; i++) {
        const double own = hs_grid_mean(results, i, 0);
        if (hs_variants_value(results->variants, i, axis) == value &&
            hs_variants_value(results->variants, i, other_axis) == other_value && isfinite(own))
            loss = fmin(loss, own);
    }
    return loss;
}

/* An axis's values as names, the best combination's marked; NULL: no memory */
static const char **names_of(const HsGridResults *results, int axis, HsPage *page)
{
    const HsStringList *values = &results->variants->axes[axis].values;
    const char **names = hs_page_room(page, (size_t)values->count, sizeof *names);
    for (int i = 0; names && i < values->count; i++) {
        const bool best = results->best && hs_variants_value(results->variants, results->order[0], axis) == i;
        names[i] = hs_page_print(page, "%.80s%s", values->items[i], best ? " (best)" : "");
    }
    return names;
}

static void add_axis(const HsGridResults *results, int axis, HsPage *page)
{
    const HsVariantAxis *own = &results->variants->axes[axis];
    const char **names = names_of(results, axis, page);
    double *values = hs_page_room(page, (size_t)own->values.count, sizeof *values);
    int count = 0;
    for (int i = 0; names && values && i < own->values.count; i++) {
        const double loss = lowest(results, axis, i, axis, i);
        if (isnan(loss)) /* an empty bar would read as zero */
            continue;
        values[count] = loss;
        names[count++] = names[i];
    }
    if (count > 0)
        hs_page_bars(page, &(HsBarChart){ hs_page_print(page, "%.100s: lower is better", own->key), "nats a token",
                                          names, values, NULL, count });
}

static void add_pair(const HsGridResults *results, int down, int across, HsPage *page)
{
    const HsVariantAxis *rows = &results->variants->axes[down], *columns = &results->variants->axes[across];
    const int width = columns->values.count;
    double *values = hs_page_room(page, (size_t)rows->values.count * (size_t)width, sizeof *values);
    for (int i = 0; values && i < rows->values.count; i++)
        for (int k = 0; k < width; k++)
            values[i * width + k] = lowest(results, down, i, across, k);
    hs_page_heat_map(page, &(HsHeatMap){ hs_page_print(page, "%.100s (rows) and %.100s (columns): lower is better",
                                                       rows->key, columns->key),
                                         names_of(results, down, page), names_of(results, across, page), values,
                                         rows->values.count, width, -1, NAN, NAN });
}

static void add_values(const HsGridResults *results, HsPage *page)
{
    char name[32];
    const HsVariants *variants = results->variants;
    hs_page_section(page, "Values",
                    "Lowest loss of any combination with the value, at %s length, which all of them were trained for. "
                    "Values that always diverged are left out.",
                    hs_grid_rung_name(results, 0, name));
    for (int i = 0; i < variants->axis_count; i++)
        if (variants->axes[i].values.count > 1)
            add_axis(results, i, page);
    for (int down = 0; down < variants->axis_count && down < PAIRED_AXES; down++)
        for (int across = down + 1; across < variants->axis_count && across < PAIRED_AXES; across++)
            if (variants->axes[down].values.count > 1 && variants->axes[across].values.count > 1)
                add_pair(results, down, across, page);
}

static HsStatus fill(HsPage *page, const void *user)
{
    const HsGridResults *results = user;
    hs_page_heading(page, results->title, "Grid search: %d combinations, %lld seed%s.", results->variants->count,
                    (long long)results->seeds, results->seeds == 1 ? "" : "s");
    HS_TRY(add_best(results, page));
    add_table(results, page);
    add_values(results, page);
    return HS_OK;
}

HsStatus hs_grid_write_html(const char *path, const HsGridResults *results)
{
    return hs_page_write(path, results->title, fill, results);
}
