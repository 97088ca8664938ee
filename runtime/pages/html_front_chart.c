/* SPDX-License-Identifier: MIT
 *
 * A scatter of marks with whiskers, and lines through those on a front.  Colours beyond the eighth are the first ones,
 * paler.
 */
#include <math.h>

#include "runtime/pages/html_chart.h"

enum { WIDTH = HS_CHART_WIDTH, HEIGHT = HS_CHART_HEIGHT, LEFT = HS_CHART_LEFT, RIGHT = HS_CHART_RIGHT };
enum { TOP = HS_CHART_TOP, BOTTOM = HS_CHART_BOTTOM, COLOURS = HS_CHART_COLOURS, SHAPES = 3, LINES = 2 };

typedef struct Axes {
    HsAxis x, y;
} Axes;

static double at_x(const Axes *axes, double value)
{
    return hs_axis_place(&axes->x, value, LEFT, WIDTH - RIGHT);
}

static double at_y(const Axes *axes, double value)
{
    return hs_axis_place(&axes->y, value, HEIGHT - BOTTOM, TOP);
}

static bool is_drawn(const HsFrontMark *mark)
{
    return isfinite(mark->x) && isfinite(mark->y);
}

static double reach_of(double spread)
{
    return isfinite(spread) ? spread : 0;
}

static Axes make_axes(const HsFrontChart *chart)
{
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
    for (int i = 0; i < chart->count; i++) {
        const HsFrontMark *mark = &chart->marks[i];
        if (!is_drawn(mark))
            continue;
        low_x = fmin(low_x, mark->x - reach_of(mark->x_spread));
        high_x = fmax(high_x, mark->x + reach_of(mark->x_spread));
        low_y = fmin(low_y, mark->y - reach_of(mark->y_spread));
        high_y = fmax(high_y, mark->y + reach_of(mark->y_spread));
    }
    return (Axes){ hs_axis_make(low_x, high_x, true), hs_axis_make(low_y, high_y, true) };
}

/* --- marks --- */

static void write_shape(FILE *stream, HsMarkShape shape, int colour, double x, double y, double size)
{
    const char *const paler = colour >= COLOURS ? " fill-opacity=\"0.45\"" : "";
    colour %= COLOURS;
    switch (shape) {
    case HS_MARK_CIRCLE:
        fprintf(stream, "<circle class=\"f%d\"%s cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"/>", colour, paler, x, y, size);
        return;
    case HS_MARK_SQUARE:
        fprintf(stream, "<rect class=\"f%d\"%s x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", colour, paler,
                x - size, y - size, 2 * size, 2 * size);
        return;
    case HS_MARK_DIAMOND:
        fprintf(stream, "<path class=\"f%d\"%s d=\"M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fZ\"/>", colour, paler,
                x - size, y, x, y - size, x + size, y, x, y + size);
        return;
    }
}

static void write_mark(FILE *stream, const Axes *axes, const HsFrontMark *mark, HsChartTaken *taken)
{
    char first[HS_HTML_FIGURE_BYTES], second[HS_HTML_FIGURE_BYTES];
    const double x = at_x(axes, mark->x), y = at_y(axes, mark->y);
    fputs("<g><title>", stream);
    hs_html_text(stream, mark->name);
    fprintf(stream, ": %s, %s</title>", hs_html_figure(mark->x, first), hs_html_figure(mark->y, second));
    if (isfinite(mark->x_spread))
        fprintf(stream, "<path class=\"whisker\" d=\"M%.1f %.1fH%.1f\"/>", at_x(axes, mark->x - mark->x_spread), y,
                at_x(axes, mark->x + mark->x_spread));
    if (isfinite(mark->y_spread))
        fprintf(stream, "<path class=\"whisker\" d=\"M%.1f %.1fV%.1f\"/>", x, at_y(axes, mark->y - mark->y_spread),
                at_y(axes, mark->y + mark->y_spread));
    if (mark->named) {
        const HsChartBox box = hs_chart_place_name(taken, x, y, mark->name);
        hs_chart_write_name(stream, &box, x, y, mark->name);
    }
    write_shape(stream, mark->shape, mark->colour, x, y, HS_CHART_RADIUS);
    fputs("</g>\n", stream);
}

static void write_line(FILE *stream, const Axes *axes, const HsFrontChart *chart, int line)
{
    if (chart->line_count[line] < 2)
        return;
    fprintf(stream, "<path class=\"curve axis%s\" d=\"", line > 0 ? " second" : "");
    for (int i = 0; i < chart->line_count[line]; i++) {
        const HsFrontMark *mark = &chart->marks[chart->line[line][i]];
        fprintf(stream, "%c%.1f %.1f", i > 0 ? 'L' : 'M', at_x(axes, mark->x), at_y(axes, mark->y));
    }
    fputs("\"/>\n", stream);
}

/* --- the legend --- */

static void write_entry(FILE *stream, HsMarkShape shape, int colour, const char *name)
{
    fputs("<li><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\">", stream);
    write_shape(stream, shape, colour, 11, 5, 4.5);
    fputs("</svg>", stream);
    hs_html_text(stream, name);
    fputs("</li>\n", stream);
}

static void write_legend(FILE *stream, const HsFrontChart *chart)
{
    fputs("<ul class=\"legend\">\n", stream);
    for (int i = 0; i < chart->series_count; i++)
        write_entry(stream, HS_MARK_CIRCLE, i, chart->series[i]);
    for (int i = 0; i < SHAPES; i++)
        if (chart->shapes[i])
            write_entry(stream, (HsMarkShape)i, COLOURS - 1, chart->shapes[i]);
    for (int i = 0; i < LINES; i++) {
        if (chart->line_count[i] < 2)
            continue;
        fprintf(
            stream,
            "<li><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"curve axis%s\" d=\"M0 5L22 5\"/></svg>",
            i > 0 ? " second" : "");
        hs_html_text(stream, chart->line_names[i]);
        fputs("</li>\n", stream);
    }
    fputs("</ul>\n", stream);
}

void hs_html_front(FILE *stream, const HsFrontChart *chart)
{
    HsChartTaken taken = { .count = 0 };
    const Axes axes = make_axes(chart);
    hs_chart_begin(stream, chart->title, HEIGHT, "points");
    hs_axis_write(stream, &axes.x, &axes.y, chart->x_label, chart->y_label);
    for (int i = 0; i < LINES; i++)
        write_line(stream, &axes, chart, i);
    for (int i = 0; i < chart->count; i++)
        if (is_drawn(&chart->marks[i]))
            hs_chart_take_point(&taken, at_x(&axes, chart->marks[i].x), at_y(&axes, chart->marks[i].y));
    for (int pass = 0; pass < 2; pass++) /* those with names over the others */
        for (int i = 0; i < chart->count; i++)
            if (is_drawn(&chart->marks[i]) && chart->marks[i].named == (pass == 1))
                write_mark(stream, &axes, &chart->marks[i], &taken);
    fputs("</svg></div>\n", stream);
    write_legend(stream, chart);
    fputs("</figure>\n", stream);
}
