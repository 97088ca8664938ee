/* SPDX-License-Identifier: MIT
 *
 * compare.html of a search: the best combination's lines, the table of all by rung, and what each key's values led to.
 *
 * Values compare where all of them were trained alike, at the first rung: bars are the lowest loss of any combination
 * with the value.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/study/grid_results.h"

enum { PAIRED_AXES = 3, NAME_BYTES = 96 };

static void begin_section(FILE *stream, const char *title, const char *text)
{
    fprintf(stream, "<section>\n<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

static void write_lines(FILE *stream, const char *text)
{
    fputs("<div class=\"scroll\"><pre>", stream);
    hs_html_text(stream, text);
    fputs("</pre></div>\n", stream);
}

static HsStatus write_best(const HsGridResults *results, FILE *stream)
{
    char *yaml = NULL, *overrides = NULL, figure[HS_HTML_FIGURE_BYTES];
    if (!results->best) {
        begin_section(stream, "No best combination", "Every combination diverged.");
        fputs("</section>\n", stream);
        return HS_OK;
    }
    HS_TRY(hs_grid_best_yaml(results, &yaml));
    const HsStatus status = hs_grid_best_overrides(results, &overrides);
    if (status == HS_OK) {
        const int best = results->order[0];
        begin_section(stream, "Best combination", "Lines for the configuration, and the same for a command line.");
        fprintf(stream, "<dl class=\"figures\"><div><dt>%s, nats a token</dt><dd class=\"value\">%s</dd></div></dl>\n",
                results->criterion,
                hs_html_figure(hs_grid_mean(results, best, hs_grid_reached(results, best)), figure));
        write_lines(stream, yaml);
        write_lines(stream, overrides);
        fputs("</section>\n", stream);
    }
    free(yaml);
    free(overrides);
    return status;
}

/* --- the table --- */

static void write_loss(const HsGridResults *results, int combination, int rung, FILE *stream)
{
    char mean_text[HS_HTML_FIGURE_BYTES], spread_text[HS_HTML_FIGURE_BYTES];
    const double mean = hs_grid_mean(results, combination, rung), spread = hs_grid_spread(results, combination, rung);
    fprintf(stream, "<td>%s", isinf(mean) ? "diverged" : hs_html_figure(mean, mean_text));
    if (!isnan(spread))
        fprintf(stream, " <span class=\"soft\">\u00b1 %s</span>", hs_html_figure(spread, spread_text));
    fputs("</td>", stream);
}

static void write_row(const HsGridResults *results, int rank, FILE *stream)
{
    const int combination = results->order[rank], reached = hs_grid_reached(results, combination);
    const bool best = rank == 0 && results->best;
    fputs("<tr><th scope=\"row\">", stream);
    hs_html_text(stream, results->variants->items[combination].label);
    fputs("</th>", stream);
    for (int rung = 0; rung < results->rungs; rung++)
        write_loss(results, combination, rung, stream);
    if (best)
        fputs("<td><strong>best</strong></td>", stream);
    else if (reached < results->rungs - 1)
        fprintf(stream, "<td>dropped at rung %d</td>", reached + 1);
    else
        fputs("<td></td>", stream);
    fputs("</tr>\n", stream);
}

static void write_table(const HsGridResults *results, FILE *stream)
{
    char name[32];
    fprintf(stream,
            "<section>\n<h2>Combinations</h2>\n<p class=\"soft\">Best first. A column is a rung of successive halving: "
            "runs of that part of the full length, of which about one in %lld goes on%s. %s in nats a token, lower is "
            "better. Trained: %.3g runs of full length a seed, where the whole grid is %d.</p>\n",
            (long long)results->eta, results->rungs == 1 ? " (here there is one rung: the whole grid)" : "",
            results->criterion[0] == 'r' ? "Retained loss" : "Validation loss", hs_grid_cost(results),
            results->variants->count);
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"table of combinations\">\n<table>\n"
          "<thead><tr><th scope=\"col\">combination</th>",
          stream);
    for (int rung = 0; rung < results->rungs; rung++)
        fprintf(stream, "<th scope=\"col\">%s length</th>", hs_grid_rung_name(results, rung, name));
    fputs("<th scope=\"col\"></th></tr></thead>\n<tbody>\n", stream);
    for (int rank = 0; rank < results->variants->count; rank++)
        write_row(results, rank, stream);
    fputs("</tbody>\n</table>\n</div>\n</section>\n", stream);
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

/* An axis's values as names, the best combination's marked. */
typedef struct Names {
    char (*texts)[NAME_BYTES];
    const char **names;
} Names;

static void free_names(Names *names)
{
    free(names->texts);
    free(names->names);
}

static HsStatus make_names(const HsGridResults *results, int axis, Names *names)
{
    const HsStringList *values = &results->variants->axes[axis].values;
    const size_t count = (size_t)values->count;
    *names = (Names){ malloc(count * sizeof *names->texts), malloc(count * sizeof *names->names) };
    if (!names->texts || !names->names) {
        free_names(names);
        return hs_fail(HS_ENOMEM, "no memory to draw %zu values", count);
    }
    for (int i = 0; i < values->count; i++) {
        const bool best = results->best && hs_variants_value(results->variants, results->order[0], axis) == i;
        snprintf(names->texts[i], NAME_BYTES, "%.80s%s", values->items[i], best ? " (best)" : "");
        names->names[i] = names->texts[i];
    }
    return HS_OK;
}

static HsStatus draw_axis(const HsGridResults *results, int axis, FILE *stream)
{
    const HsVariantAxis *own = &results->variants->axes[axis];
    Names names;
    HS_TRY(make_names(results, axis, &names));
    double *values = malloc((size_t)own->values.count * sizeof *values);
    char title[160];
    int count = 0;
    for (int i = 0; values && i < own->values.count; i++) {
        const double loss = lowest(results, axis, i, axis, i);
        if (isnan(loss)) /* an empty bar would read as zero */
            continue;
        values[count] = loss;
        names.names[count++] = names.texts[i];
    }
    snprintf(title, sizeof title, "%.100s: lower is better", own->key);
    if (count > 0)
        hs_html_bar_chart(stream, title, "nats a token", names.names, values, NULL, count);
    free_names(&names);
    const bool made = values != NULL;
    free(values);
    return made ? HS_OK : hs_fail(HS_ENOMEM, "no memory to draw %d values", own->values.count);
}

static HsStatus draw_pair(const HsGridResults *results, int down, int across, FILE *stream)
{
    const HsVariantAxis *rows = &results->variants->axes[down], *columns = &results->variants->axes[across];
    Names row_names, column_names;
    HS_TRY(make_names(results, down, &row_names));
    HsStatus status = make_names(results, across, &column_names);
    if (status != HS_OK) {
        free_names(&row_names);
        return status;
    }
    double *values = malloc((size_t)rows->values.count * (size_t)columns->values.count * sizeof *values);
    char title[256];
    snprintf(title, sizeof title, "%.100s (rows) and %.100s (columns): lower is better", rows->key, columns->key);
    for (int i = 0; values && i < rows->values.count; i++)
        for (int k = 0; k < columns->values.count; k++)
            values[i * columns->values.count + k] = lowest(results, down, i, across, k);
    if (values)
        hs_html_heat_map(stream, &(HsHeatMap){ title, row_names.names, column_names.names, values, rows->values.count,
                                               columns->values.count, -1, NAN, NAN });
    else
        status = hs_fail(HS_ENOMEM, "no memory to draw a map of losses");
    free(values);
    free_names(&row_names);
    free_names(&column_names);
    return status;
}

static HsStatus write_values(const HsGridResults *results, FILE *stream)
{
    char name[32], text[320];
    const HsVariants *variants = results->variants;
    snprintf(text, sizeof text,
             "Lowest loss of any combination with the value, at %s length, which all of them were trained for. Values "
             "that always diverged are left out.",
             hs_grid_rung_name(results, 0, name));
    begin_section(stream, "Values", text);
    for (int i = 0; i < variants->axis_count; i++)
        if (variants->axes[i].values.count > 1)
            HS_TRY(draw_axis(results, i, stream));
    for (int down = 0; down < variants->axis_count && down < PAIRED_AXES; down++)
        for (int across = down + 1; across < variants->axis_count && across < PAIRED_AXES; across++)
            if (variants->axes[down].values.count > 1 && variants->axes[across].values.count > 1)
                HS_TRY(draw_pair(results, down, across, stream));
    fputs("</section>\n", stream);
    return HS_OK;
}

static HsStatus write_body(FILE *stream, const void *user)
{
    const HsGridResults *results = user;
    fputs("<h1>", stream);
    hs_html_text(stream, results->title);
    fprintf(stream, "</h1>\n<p class=\"soft\">Grid search: %d combinations, %lld seed%s.</p>\n",
            results->variants->count, (long long)results->seeds, results->seeds == 1 ? "" : "s");
    HS_TRY(write_best(results, stream));
    write_table(results, stream);
    return write_values(results, stream);
}

HsStatus hs_grid_write_html(const char *path, const HsGridResults *results)
{
    return hs_html_write(path, results->title, write_body, results);
}
