/* SPDX-License-Identifier: MIT
 *
 * Charts that compare settings: points with names, and bars made of parts.  Boxes, axes and colours are html_chart.c's,
 * places of names html_names.c's.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html_chart.h"

enum { WIDTH = HS_CHART_WIDTH, HEIGHT = HS_CHART_HEIGHT, LEFT = HS_CHART_LEFT, RIGHT = HS_CHART_RIGHT };
enum { TOP = HS_CHART_TOP, BOTTOM = HS_CHART_BOTTOM, COLOURS = HS_CHART_COLOURS };
enum { POINTS_MOST = 64 };
enum { BAR_ROW = 30, BAR_LEFT = 230, BAR_RIGHT = 650 };
#define CHARACTER 7.0  /* a name cut to its room must fit it, and names have more wide letters than figures */
#define SLIVER    5e-4 /* a part of less than this of the longest bar cannot be seen */

/* ---- points ---- */

static bool is_drawn(const HsChartPoint *point)
{
    return isfinite(point->x) && isfinite(point->y);
}

static void write_point(FILE *stream, const HsChartPoint *point, int index, double x, double y, const HsChartBox *name)
{
    char first[HS_HTML_FIGURE_BYTES], second[HS_HTML_FIGURE_BYTES];
    fputs("<g><title>", stream);
    hs_html_text(stream, point->name);
    fprintf(stream, ": %s, %s</title>", hs_html_figure(point->x, first), hs_html_figure(point->y, second));
    hs_chart_write_name(stream, name, x, y, point->name);
    fprintf(stream, "<circle class=\"f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%d\"/>", index % COLOURS, x, y, HS_CHART_RADIUS);
    fputs("</g>\n", stream);
}

void hs_html_points(FILE *stream, const HsPointChart *chart)
{
    const HsChartPoint *points = chart->points;
    const int count = chart->count < POINTS_MOST ? chart->count : POINTS_MOST;
    HsChartTaken taken = { .count = 0 };
    double high_x = 0, high_y = 0;
    for (int i = 0; i < count; i++) {
        if (!is_drawn(&points[i]))
            continue;
        high_x = fmax(high_x, points[i].x);
        high_y = fmax(high_y, points[i].y);
    }
    const HsAxis x = hs_axis_make(0, high_x > 0 ? high_x : 1, true), y = hs_axis_make(0, high_y > 0 ? high_y : 1, true);
    hs_chart_begin(stream, chart->title, HEIGHT, "points");
    hs_axis_write(stream, &x, &y, chart->x_label, chart->y_label);
    for (int i = 0; i < count; i++) {
        const double at_x = hs_axis_place(&x, points[i].x, LEFT, WIDTH - RIGHT);
        const double at_y = hs_axis_place(&y, points[i].y, HEIGHT - BOTTOM, TOP);
        if (is_drawn(&points[i]))
            hs_chart_take_point(&taken, at_x, at_y);
    }
    for (int i = 0; i < count; i++) {
        if (!is_drawn(&points[i]))
            continue;
        const double at_x = hs_axis_place(&x, points[i].x, LEFT, WIDTH - RIGHT);
        const double at_y = hs_axis_place(&y, points[i].y, HEIGHT - BOTTOM, TOP);
        const HsChartBox name = hs_chart_place_name(&taken, at_x, at_y, points[i].name);
        write_point(stream, &points[i], i, at_x, at_y, &name);
    }
    fputs("</svg></div>\n</figure>\n", stream);
}

/* ---- bars of parts ---- */

/* Eight colours, then the same ones paler. */
static void write_fill(FILE *stream, int part)
{
    fprintf(stream, "class=\"f%d\"%s", part % COLOURS, part >= COLOURS ? " fill-opacity=\"0.45\"" : "");
}

static double part_of(const HsStackedBars *bars, int row, int part)
{
    const double value = bars->values[row * bars->part_count + part];
    return value > 0 && isfinite(value) ? value : 0;
}

static double sum_of(const HsStackedBars *bars, int row)
{
    double sum = 0;
    for (int part = 0; part < bars->part_count; part++)
        sum += part_of(bars, row, part);
    return sum;
}

static void write_bar(FILE *stream, const HsStackedBars *bars, const HsAxis *axis, int row)
{
    char figure[HS_HTML_FIGURE_BYTES];
    const double top = BAR_ROW * row;
    double from = 0;
    fprintf(stream, "<text class=\"strong\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", BAR_LEFT - 10, top + 19);
    hs_chart_cut(stream, bars->names[row], (BAR_LEFT - 14) * HS_CHART_CHARACTER / CHARACTER);
    fputs("</text>", stream);
    for (int part = 0; part < bars->part_count; part++) {
        const double value = part_of(bars, row, part);
        if (value == 0)
            continue;
        const double left = hs_axis_place(axis, from, BAR_LEFT, BAR_RIGHT);
        from += value;
        fputs("<rect ", stream);
        write_fill(stream, part);
        fprintf(stream, " x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\"><title>", left, top + 7,
                hs_axis_place(axis, from, BAR_LEFT, BAR_RIGHT) - left);
        hs_html_text(stream, bars->names[row]);
        fputs(", ", stream);
        hs_html_text(stream, bars->parts[part]);
        fprintf(stream, ": %s ", hs_html_figure(value, figure));
        hs_html_text(stream, bars->unit);
        fputs("</title></rect>", stream);
    }
    fprintf(stream, "<text class=\"strong\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s ", WIDTH - 4, top + 19,
            from > 0 ? hs_html_figure(from, figure) : "\u2013");
    if (from > 0)
        hs_html_text(stream, bars->unit);
    fputs("</text>\n", stream);
}

static bool is_seen(const HsStackedBars *bars, int part, double least)
{
    for (int row = 0; row < bars->rows; row++)
        if (part_of(bars, row, part) > least)
            return true;
    return false;
}

void hs_html_stacked_bars(FILE *stream, const HsStackedBars *bars)
{
    double high = 0;
    for (int row = 0; row < bars->rows; row++)
        high = fmax(high, sum_of(bars, row));
    const HsAxis axis = hs_axis_make(0, high > 0 ? high : 1, false);
    hs_chart_begin(stream, bars->title, BAR_ROW * bars->rows + 4, "bar chart of parts");
    for (int row = 0; row < bars->rows; row++)
        write_bar(stream, bars, &axis, row);
    fprintf(stream, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"2\" y2=\"%d\"/>\n", BAR_LEFT, BAR_LEFT,
            BAR_ROW * bars->rows + 2);
    fputs("</svg></div>\n<ul class=\"legend\">\n", stream);
    for (int part = 0; part < bars->part_count; part++) {
        if (!is_seen(bars, part, SLIVER * high))
            continue;
        fputs("<li><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><rect ", stream);
        write_fill(stream, part);
        fputs(" x=\"6\" y=\"0\" width=\"10\" height=\"10\" rx=\"2\"/></svg>", stream);
        hs_html_text(stream, bars->parts[part]);
        fputs("</li>\n", stream);
    }
    fputs("</ul>\n</figure>\n", stream);
}
