/* SPDX-License-Identifier: MIT
 *
 * The charts of pages, and what they have in common: the box, figures, axes.  Private to html*.c.
 */
#ifndef HS_RUNTIME_PAGES_HTML_CHART_H
#define HS_RUNTIME_PAGES_HTML_CHART_H

#include <stdbool.h>
#include <stdio.h>

#include "runtime/pages/html_text.h"
#include "runtime/pages/page.h"

enum { HS_CHART_WIDTH = 760, HS_CHART_HEIGHT = 300, HS_CHART_LEFT = 58, HS_CHART_RIGHT = 16 };
enum { HS_CHART_TOP = 28, HS_CHART_BOTTOM = 44, HS_CHART_COLOURS = 8 };
#define HS_CHART_CHARACTER 6.6 /* about the width of one, of the 12-unit font: for cutting labels to their room */

typedef struct HsAxis {
    double low, high, step; /* of the ticks: 1, 2 or 5 times a power of ten */
} HsAxis;

/* widen: up to the ticks around. */
HsAxis hs_axis_make(double low, double high, bool widen);
/* Where a value lies between `from` and `to`, the axis's ends. */
double hs_axis_place(const HsAxis *axis, double value, double from, double to);
/* Tick `index`, counted from 0; false beyond the last. */
bool hs_axis_tick(const HsAxis *axis, int index, double *tick);
const char *hs_axis_text(const HsAxis *axis, double value, char text[HS_HTML_FIGURE_BYTES]);
/* Both axes of a chart that fills the box, with grid and labels. */
void hs_axis_write(FILE *stream, const HsAxis *x, const HsAxis *y, const char *x_label, const char *y_label);

/* Where names of points may stand: boxes that are taken, of points from the beginning, of names as they are placed. */
enum { HS_CHART_BOXES = 512, HS_CHART_RADIUS = 5, HS_CHART_LABEL = 300 };
typedef struct HsChartBox {
    double left, right, top, bottom;
} HsChartBox;
typedef struct HsChartTaken {
    HsChartBox boxes[HS_CHART_BOXES];
    int count;
} HsChartTaken;
void hs_chart_take_point(HsChartTaken *taken, double x, double y);
/* A name next to (x, y): to the right, or where that is taken to the left, or some rows up or down; the first free place
 * in a fixed order, so that equal figures make equal pages.  Where nothing is free it stands over others. */
HsChartBox hs_chart_place_name(HsChartTaken *taken, double x, double y, const char *name);
/* The name in its box, and a thin line to a point that it does not stand next to. */
void hs_chart_write_name(FILE *stream, const HsChartBox *box, double x, double y, const char *name);

/* Opens figure and svg; `what`: "line chart", for screen readers. */
void hs_chart_begin(FILE *stream, const char *title, double height, const char *what);
/* At most `width` units of a text, the cut marked. */
void hs_chart_cut(FILE *stream, const char *text, double width);

/* ---- the charts ---- */

/* html_chart.c */
void hs_html_lines(FILE *stream, const HsLineChart *chart);
void hs_html_bars(FILE *stream, const HsBarChart *chart);
/* html_bench_charts.c */
void hs_html_stacked_bars(FILE *stream, const HsStackedBars *chart);
void hs_html_points(FILE *stream, const HsPointChart *chart);
/* html_front_chart.c */
void hs_html_front(FILE *stream, const HsFrontChart *chart);
/* html_exponents.c */
void hs_html_exponents(FILE *stream, const HsExponentChart *chart);

#endif
