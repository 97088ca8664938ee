/* SPDX-License-Identifier: MIT
 *
 * Pieces of a self-contained page: head with the style sheet (light and dark by the reader's preference), escaped text,
 * tables, and SVG charts.  Used by report_page.c, compare_page.c and bench_page.c.
 */
#ifndef HS_RUNTIME_PAGES_HTML_H
#define HS_RUNTIME_PAGES_HTML_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"

/* A whole page: what `body` writes between begin and end, under a temporary name first, then renamed.  Nothing is left
 * of a page that failed.  errors: HS_EIO naming the file, HS_ENOMEM, and what `body` returns */
typedef HsStatus (*HsHtmlBody)(FILE *stream, const void *user);
HsStatus hs_html_write(const char *path, const char *title, HsHtmlBody body, const void *user);

/* Doctype, title, style; opens <main>.  end closes it. */
void hs_html_begin(FILE *stream, const char *title);
void hs_html_end(FILE *stream);
/* Text with & < > " and ' escaped; control characters, which no page may hold, become a replacement mark. */
void hs_html_text(FILE *stream, const char *text);
/* A number for people, the same everywhere on a page: 3 decimals, fewer when large; NAN is a dash. */
enum { HS_HTML_FIGURE_BYTES = 32 };
const char *hs_html_figure(double value, char text[HS_HTML_FIGURE_BYTES]);
const char *hs_html_bytes(double bytes, char text[HS_HTML_FIGURE_BYTES]); /* "12.3 MiB"; 0 and NAN are a dash */

typedef struct HsChartSeries {
    const char *name;
    const double *x, *y; /* NAN: a gap */
    int64_t count;
} HsChartSeries;

typedef struct HsChartMark { /* a vertical line with a label: a task boundary */
    double x;
    const char *label;
} HsChartMark;

/* Lines over x with axes, grid, legend and marks.  More than 600 points a series are thinned to minimum and maximum per
 * column, so that spikes stay. */
void hs_html_line_chart(FILE *stream, const char *title, const char *x_label, const char *y_label,
                        const HsChartSeries *series, int series_count, const HsChartMark *marks, int mark_count);
/* Horizontal bars with value labels; spread (may be NULL) draws +- whiskers. */
void hs_html_bar_chart(FILE *stream, const char *title, const char *unit, const char *const *names,
                       const double *values, const double *spread, int count);
typedef struct HsHeatMap {
    const char *title;
    const char *const *row_names, *const *column_names;
    const double *values; /* [rows, columns] */
    int rows, columns, diagonal;
    double low, high;
} HsHeatMap;

/* rows x columns of numbers as coloured cells with the figure in each (NAN: empty), low values calm, high ones warm;
 * the figure's colour keeps contrast in light and dark.  The cells (diagonal, 0), (diagonal + 1, 1), ... are outlined;
 * -1: none.  low above high turns the colours round, for figures of which the highest are the good ones.  All heat maps that share low and high (both NAN: their own range) share their colours. */
void hs_html_heat_map(FILE *stream, const HsHeatMap *map);

typedef struct HsChartPoint {
    const char *name;
    double x, y; /* a point with a NAN is left out */
} HsChartPoint;

/* Points with their names beside them, axes from zero. */
void hs_html_scatter_chart(FILE *stream, const char *title, const char *x_label, const char *y_label,
                           const HsChartPoint *points, int count);

typedef enum HsMarkShape { HS_MARK_CIRCLE, HS_MARK_SQUARE, HS_MARK_DIAMOND } HsMarkShape;

typedef struct HsFrontMark {
    const char *name;
    double x, y;               /* a mark with a NAN is left out */
    double x_spread, y_spread; /* NAN: no whiskers */
    int colour;                /* index of the chart's series */
    HsMarkShape shape;
    bool named; /* its name stands next to it; else it shows under the pointer */
} HsFrontMark;

typedef struct HsFrontChart {
    const char *title, *x_label, *y_label;
    const HsFrontMark *marks;
    int count;
    const char *const *series; /* [series_count], for the legend */
    int series_count;
    const char *shapes[3]; /* what each shape means; NULL: not in the legend */
    /* two lines through marks, by index in their order; the second one is dashed */
    const int *line[2];
    int line_count[2];
    const char *line_names[2];
} HsFrontChart;

/* Marks with whiskers and lines through some of them, axes around the marks and not from zero: pages of fronts. */
void hs_html_front_chart(FILE *stream, const HsFrontChart *chart);

typedef struct HsStackedBars {
    const char *title, *unit;
    const char *const *names; /* [rows] */
    const char *const *parts; /* [parts] */
    const double *values;     /* [rows, parts], none negative; NAN counts as none */
    int rows, part_count;
} HsStackedBars;

/* Horizontal bars of parts from zero, their sums at the end.  A part too small to be seen in any is not in the legend.
 */
void hs_html_stacked_chart(FILE *stream, const HsStackedBars *bars);

#endif
