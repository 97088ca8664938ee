/* SPDX-License-Identifier: MIT
 *
 * Charts as inline SVG.  Coordinates are those of a box 760 units wide, which the page scales; a narrow screen scrolls
 * it instead of shrinking the text away.  Legends and titles are text of the page, which wraps.
 *
 * Curves of more than POINTS_DRAWN points are cut into equal runs, of each of which the lowest and the highest point
 * are drawn, in their order: a spike of one step stays visible, which a mean would hide.
 */
#include "runtime/pages/html_chart.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "runtime/io/utf8.h"

enum { WIDTH = HS_CHART_WIDTH, HEIGHT = HS_CHART_HEIGHT, LEFT = HS_CHART_LEFT, RIGHT = HS_CHART_RIGHT };
enum { TOP = HS_CHART_TOP, BOTTOM = HS_CHART_BOTTOM, COLOURS = HS_CHART_COLOURS };
enum { POINTS_DRAWN = 600, DOTS_DRAWN = 40, HITS_DRAWN = 80, TICKS = 6 };
#define RANGE_MOST      1e300 /* so that a difference of two is finite */
#define CHARACTER_WIDTH HS_CHART_CHARACTER

void hs_chart_cut(FILE *stream, const char *text, double width)
{
    size_t room = width > CHARACTER_WIDTH ? (size_t)(width / CHARACTER_WIDTH) : 1, length = strlen(text);
    size_t used = 0, characters = 0, cut = 0;
    char part[256];
    while (used < length && characters <= room) {
        size_t bytes = hs_utf8_decode(text + used, length - used, NULL);
        bytes = bytes > 0 ? bytes : 1;
        characters++;
        if (characters < room)
            cut = used + bytes; /* what stays if there is more than room for */
        used += bytes;
    }
    bool whole = used == length && characters <= room;
    size_t shown = whole ? length : cut;
    snprintf(part, sizeof part, "%.*s", (int)(shown < sizeof part ? shown : sizeof part - 1), text);
    hs_html_text(stream, part);
    if (!whole)
        fputs("\u2026", stream);
}

void hs_chart_begin(FILE *stream, const char *title, double height, const char *what)
{
    fputs("<figure>\n<figcaption>", stream);
    hs_html_text(stream, title);
    fprintf(stream,
            "</figcaption>\n<div class=\"scroll\"><svg viewBox=\"0 0 %d %.0f\" role=\"img\" "
            "aria-label=\"%s: ",
            WIDTH, height, what);
    hs_html_text(stream, title);
    fputs("\">\n", stream);
}

/* ---- axes ---- */

/* The range widened to whole ticks. */
HsAxis hs_axis_make(double low, double high, bool widen)
{
    low = fmax(low, -RANGE_MOST);
    high = fmin(high, RANGE_MOST);
    if (!(low < high)) { /* one value, or none */
        double middle = isfinite(low) ? low : 0, half = fmax(fabs(middle) * 0.1, 1e-6);
        low = isfinite(low) && low >= 0 ? fmax(middle - half, 0) : middle - half;
        high = middle + half;
    }
    double raw = (high - low) / TICKS, power = pow(10, floor(log10(raw))), ratio = raw / power;
    HsAxis axis = { low, high, power * (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10) };
    if (widen) {
        axis.low = floor(low / axis.step) * axis.step;
        axis.high = ceil(high / axis.step) * axis.step;
    }
    return axis;
}

double hs_axis_place(const HsAxis *axis, double value, double from, double to)
{
    return from + (value - axis->low) / (axis->high - axis->low) * (to - from);
}

/* Counted, not added up: at 1e18 a step of 1 would add nothing and the ticks would never end. */
bool hs_axis_tick(const HsAxis *axis, int index, double *tick)
{
    *tick = (ceil(axis->low / axis->step - 1e-9) + index) * axis->step;
    return index <= 2 * TICKS && *tick <= axis->high + 1e-9 * axis->step;
}

const char *hs_axis_text(const HsAxis *axis, double value, char text[HS_HTML_FIGURE_BYTES])
{
    int decimals = (int)fmax(0, -floor(log10(axis->step) + 1e-9));
    value = fabs(value) < 1e-9 * axis->step ? 0 : value; /* no "-0" */
    bool plain = decimals <= 5 && fabs(value) < 1e9;
    snprintf(text, HS_HTML_FIGURE_BYTES, plain ? "%.*f" : "%.*e", plain ? decimals : 1, value);
    return text;
}

void hs_axis_write(FILE *stream, const HsAxis *x, const HsAxis *y, const char *x_label, const char *y_label)
{
    char text[HS_HTML_FIGURE_BYTES];
    double tick;
    for (int i = 0; hs_axis_tick(y, i, &tick); i++) {
        double at = hs_axis_place(y, tick, HEIGHT - BOTTOM, TOP);
        fprintf(stream,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, at, at, LEFT - 8, at + 4, hs_axis_text(y, tick, text));
    }
    for (int i = 0; hs_axis_tick(x, i, &tick); i++) {
        double at = hs_axis_place(x, tick, LEFT, WIDTH - RIGHT);
        fprintf(stream,
                "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                at, at, HEIGHT - BOTTOM, HEIGHT - BOTTOM + 4, at, HEIGHT - BOTTOM + 18, hs_axis_text(x, tick, text));
    }
    fprintf(stream, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>\n", LEFT, WIDTH - RIGHT,
            HEIGHT - BOTTOM, HEIGHT - BOTTOM);
    fprintf(stream, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    hs_html_text(stream, x_label);
    fputs("</text>\n<text x=\"8\" y=\"14\">", stream);
    hs_html_text(stream, y_label);
    fputs("</text>\n", stream);
}

static void write_marks(FILE *stream, const HsAxis *x, const HsChartMark *marks, int count)
{
    for (int i = 0; i < count; i++) {
        if (marks[i].x < x->low || marks[i].x > x->high)
            continue;
        double at = hs_axis_place(x, marks[i].x, LEFT, WIDTH - RIGHT);
        double end =
            i + 1 < count ? hs_axis_place(x, fmin(marks[i + 1].x, x->high), LEFT, WIDTH - RIGHT) : WIDTH - RIGHT;
        fprintf(stream, "<g><title>from step %.0f: ", marks[i].x);
        hs_html_text(stream, marks[i].label);
        fprintf(stream, "</title><line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", at, at, TOP,
                HEIGHT - BOTTOM);
        if (end - at > 3 * CHARACTER_WIDTH) { /* else the hover text must do */
            fprintf(stream, "<text class=\"strong\" x=\"%.1f\" y=\"%d\">", at + 4, TOP + 11);
            hs_chart_cut(stream, marks[i].label, end - at - 8);
            fputs("</text>", stream);
        }
        fputs("</g>\n", stream);
    }
}

/* ---- curves ---- */

typedef struct Pen {
    FILE *stream;
    const HsAxis *x, *y;
    bool down; /* the last point was drawn: a line leads on from it */
} Pen;

static void draw_point(Pen *pen, double x, double y)
{
    if (!isfinite(y)) {
        pen->down = false;
        return;
    }
    fprintf(pen->stream, "%s%.1f %.1f", pen->down ? "L" : "M", hs_axis_place(pen->x, x, LEFT, WIDTH - RIGHT),
            hs_axis_place(pen->y, y, HEIGHT - BOTTOM, TOP));
    pen->down = true;
}

/* The lowest and highest of points [first, end), in their order; a gap when there is none. */
static void draw_run(Pen *pen, const HsChartSeries *series, int64_t first, int64_t end)
{
    int64_t lowest = -1, highest = -1;
    for (int64_t i = first; i < end; i++) {
        if (!isfinite(series->y[i]))
            continue;
        lowest = lowest < 0 || series->y[i] < series->y[lowest] ? i : lowest;
        highest = highest < 0 || series->y[i] > series->y[highest] ? i : highest;
    }
    if (lowest < 0) {
        pen->down = false;
        return;
    }
    int64_t sooner = lowest < highest ? lowest : highest, later = lowest < highest ? highest : lowest;
    draw_point(pen, series->x[sooner], series->y[sooner]);
    if (later != sooner)
        draw_point(pen, series->x[later], series->y[later]);
}

static void write_curve(FILE *stream, const HsChartSeries *series, int index, const HsAxis *x, const HsAxis *y)
{
    Pen pen = { stream, x, y, false };
    int colour = index % COLOURS;
    fprintf(stream, "<path class=\"curve s%d%s\" d=\"", colour, index >= COLOURS ? " second" : "");
    if (series->count <= POINTS_DRAWN) {
        for (int64_t i = 0; i < series->count; i++)
            draw_point(&pen, series->x[i], series->y[i]);
    } else {
        int64_t run = (series->count + POINTS_DRAWN / 2 - 1) / (POINTS_DRAWN / 2);
        for (int64_t first = 0; first < series->count; first += run)
            draw_run(&pen, series, first, first + run < series->count ? first + run : series->count);
    }
    fputs("\"/>\n", stream);
    /* Something to point at: every point of a short curve, some of a long one. */
    int64_t stride = (series->count + HITS_DRAWN - 1) / HITS_DRAWN;
    bool dots = series->count <= DOTS_DRAWN;
    char class[8] = "hit";
    if (dots)
        snprintf(class, sizeof class, "f%d", colour);
    for (int64_t i = 0; i < series->count; i += stride) {
        char figure[HS_HTML_FIGURE_BYTES];
        if (!isfinite(series->y[i]))
            continue;
        fprintf(stream, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>", class,
                hs_axis_place(x, series->x[i], LEFT, WIDTH - RIGHT),
                hs_axis_place(y, series->y[i], HEIGHT - BOTTOM, TOP), dots ? "3" : "6");
        hs_html_text(stream, series->name);
        fprintf(stream, ", %.0f: %s</title></circle>\n", series->x[i], hs_html_figure(series->y[i], figure));
    }
}

static void write_legend(FILE *stream, const HsChartSeries *series, int count)
{
    fputs("<ul class=\"legend\">\n", stream);
    for (int i = 0; i < count; i++) {
        fprintf(stream,
                "<li><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"curve s%d%s\" d=\"M0 5L22 5\"/>"
                "</svg>",
                i % COLOURS, i >= COLOURS ? " second" : "");
        hs_html_text(stream, series[i].name);
        fputs("</li>\n", stream);
    }
    fputs("</ul>\n", stream);
}

void hs_html_lines(FILE *stream, const HsLineChart *chart)
{
    const HsChartSeries *series = chart->series;
    const HsChartMark *marks = chart->marks;
    const int series_count = chart->series_count, mark_count = chart->mark_count;
    double low_x = INFINITY, high_x = -INFINITY, low_y = INFINITY, high_y = -INFINITY;
    for (int i = 0; i < series_count; i++) {
        for (int64_t j = 0; j < series[i].count; j++) {
            if (!isfinite(series[i].y[j]))
                continue;
            low_x = fmin(low_x, series[i].x[j]);
            high_x = fmax(high_x, series[i].x[j]);
            low_y = fmin(low_y, series[i].y[j]);
            high_y = fmax(high_y, series[i].y[j]);
        }
    }
    for (int i = 0; i < mark_count; i++) /* a task's start belongs to its curve */
        low_x = fmin(low_x, marks[i].x);
    HsAxis x = hs_axis_make(low_x, high_x, false), y = hs_axis_make(low_y, high_y, true);
    hs_chart_begin(stream, chart->title, HEIGHT, "line chart");
    hs_axis_write(stream, &x, &y, chart->x_label, chart->y_label);
    write_marks(stream, &x, marks, mark_count);
    for (int i = 0; i < series_count; i++)
        write_curve(stream, &series[i], i, &x, &y);
    fputs("</svg></div>\n", stream);
    write_legend(stream, series, series_count);
    fputs("</figure>\n", stream);
}

/* ---- bars ---- */

enum { BAR_ROW = 30, BAR_LEFT = 190, BAR_RIGHT = 590 };

static void write_bar(FILE *stream, const HsAxis *axis, int row, const char *name, double value, double spread,
                      const char *unit)
{
    double top = BAR_ROW * row, zero = hs_axis_place(axis, 0, BAR_LEFT, BAR_RIGHT);
    char figure[HS_HTML_FIGURE_BYTES], deviation[HS_HTML_FIGURE_BYTES];
    hs_html_figure(value, figure);
    fputs("<g><title>", stream);
    hs_html_text(stream, name);
    fprintf(stream, ": %s</title><text class=\"strong\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", figure,
            BAR_LEFT - 10, top + 19);
    hs_chart_cut(stream, name, BAR_LEFT - 14);
    fputs("</text>", stream);
    if (isfinite(value)) {
        double end = hs_axis_place(axis, value, BAR_LEFT, BAR_RIGHT);
        fprintf(stream, "<rect class=\"f0\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"16\" rx=\"2\"/>",
                fmin(zero, end), top + 7, fmax(fabs(end - zero), 1));
    }
    bool spreads = isfinite(value) && isfinite(spread);
    if (spreads) {
        double from = hs_axis_place(axis, value - spread, BAR_LEFT, BAR_RIGHT);
        double to = hs_axis_place(axis, value + spread, BAR_LEFT, BAR_RIGHT);
        fprintf(stream, "<path class=\"whisker\" d=\"M%.1f %.1fV%.1fM%.1f %.1fH%.1fM%.1f %.1fV%.1f\"/>", from, top + 10,
                top + 20, from, top + 15, to, to, top + 10, top + 20);
    }
    fprintf(stream, "<text class=\"strong\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s", WIDTH - 4, top + 19, figure);
    if (spreads)
        fprintf(stream, " \u00b1 %s", hs_html_figure(spread, deviation));
    if (isfinite(value) && unit[0]) {
        fputc(' ', stream);
        hs_html_text(stream, unit);
    }
    fputs("</text></g>\n", stream);
}

void hs_html_bars(FILE *stream, const HsBarChart *chart)
{
    const double *values = chart->values, *spreads = chart->spreads;
    const int count = chart->count;
    double low = 0, high = 0; /* bars begin at zero */
    for (int i = 0; i < count; i++) {
        double reach = spreads && isfinite(spreads[i]) ? spreads[i] : 0;
        if (isfinite(values[i])) {
            low = fmin(low, values[i] - reach);
            high = fmax(high, values[i] + reach);
        }
    }
    if (low == high)
        high = 1;
    HsAxis axis = hs_axis_make(low, high, false);
    hs_chart_begin(stream, chart->title, BAR_ROW * count + 4, "bar chart");
    for (int i = 0; i < count; i++)
        write_bar(stream, &axis, i, chart->names[i], values[i], spreads ? spreads[i] : NAN, chart->unit);
    double zero = hs_axis_place(&axis, 0, BAR_LEFT, BAR_RIGHT);
    fprintf(stream, "<line class=\"axis\" x1=\"%.1f\" x2=\"%.1f\" y1=\"2\" y2=\"%d\"/>\n", zero, zero,
            BAR_ROW * count + 2);
    fputs("</svg></div>\n</figure>\n", stream);
}
