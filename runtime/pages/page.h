/* SPDX-License-Identifier: MIT
 *
 * A page as a list of blocks: sections, and in them facts, figures, tables and charts.  What fills a page names its
 * blocks in order; html.c prints them.
 *
 *     static HsStatus fill(HsPage *page, const void *user)
 *     {
 *         hs_page_heading(page, "Losses", "of two runs");
 *         hs_page_section(page, "Table", "In nats a token.");
 *         hs_page_table(page, "losses by run");
 *         hs_page_columns(page, (const char *const[]){ "run", "loss" }, 2);
 *         hs_page_row(page, "first");
 *         hs_page_cell(page, "%.3f", 1.5);
 *         return HS_OK;
 *     }
 *
 * What is printed by a format, and the arrays of series, points and values of a chart, are copied.  Other strings, the
 * points of a curve and histograms are borrowed until the page is written.  All text is escaped where it is printed.
 * A page that ran out of memory takes no more blocks, and hs_page_write says so.
 */
#ifndef HS_RUNTIME_PAGES_PAGE_H
#define HS_RUNTIME_PAGES_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"
#include "runtime/engine/histogram.h"

#define HS_PAGE_FORMAT(at) __attribute__((format(printf, at, at + 1)))

typedef struct HsPage HsPage;
typedef HsStatus (*HsPageFill)(HsPage *page, const void *user);

/* A whole page, self-contained, without scripts, under a temporary name first, then renamed.  Nothing is left of a page
 * that failed.  errors: HS_EIO naming the file, HS_ENOMEM, and what `fill` returns */
HsStatus hs_page_write(const char *path, const char *title, HsPageFill fill, const void *user);
/* The same page on a stream.  errors: HS_ENOMEM, and what `fill` returns */
HsStatus hs_page_print_on(FILE *stream, const char *title, HsPageFill fill, const void *user);

/* Zeroed memory of the page; NULL where there is none. */
void *hs_page_room(HsPage *page, size_t count, size_t bytes);
const char *hs_page_print(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);
/* A name of the code's as words: '_' is a space. */
const char *hs_page_words(HsPage *page, const char *name);

/* ---- text ---- */

/* The title of all, and what it is of. */
void hs_page_heading(HsPage *page, const char *title, const char *format, ...) HS_PAGE_FORMAT(3);
/* All blocks until the next section are in it. */
void hs_page_section(HsPage *page, const char *title, const char *format, ...) HS_PAGE_FORMAT(3);
/* One without a text; title NULL: without that too */
void hs_page_bare_section(HsPage *page, const char *title);
/* All blocks until the next section are folded under a line that opens them. */
void hs_page_fold(HsPage *page, const char *title);
void hs_page_paragraph(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);
void hs_page_code(HsPage *page, const char *text);
void hs_page_list(HsPage *page);
void hs_page_item(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);

/* Names and their values, small.  A fact of no text is left out. */
void hs_page_facts(HsPage *page);
void hs_page_fact(HsPage *page, const char *name, const char *format, ...) HS_PAGE_FORMAT(3);
/* Names and their values, large, with what they mean.  value, doc NULL: without */
void hs_page_figures(HsPage *page);
void hs_page_figure(HsPage *page, const char *name, const char *value, const char *doc);

/* ---- tables ---- */

/* label: for screen readers. */
void hs_page_table(HsPage *page, const char *label);
/* One of texts; their line ends stay and are seen. */
void hs_page_table_of_texts(HsPage *page, const char *label);
/* Titles of columns, those of the rows' names among them; repeated calls add to them. */
void hs_page_columns(HsPage *page, const char *const *titles, int count);
/* A title over the next `count` columns. */
void hs_page_column_group(HsPage *page, const char *title, int count);
void hs_page_row(HsPage *page, const char *name);
/* The next cell of the row. */
void hs_page_cell(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);
/* value by `format`, which takes a double; a dash where it is not finite. */
void hs_page_real(HsPage *page, const char *format, double value);
/* A figure as the page has them, and softly behind it +- the spread; spread NAN: not known */
void hs_page_mean(HsPage *page, double mean, double spread);
/* Softly behind the text of the latest cell or row's name; and in a line below it. */
void hs_page_behind(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);
void hs_page_below(HsPage *page, const char *format, ...) HS_PAGE_FORMAT(2);

/* ---- charts ---- */

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
typedef struct HsLineChart {
    const char *title, *x_label, *y_label;
    const HsChartSeries *series; /* [series_count] */
    int series_count;
    const HsChartMark *marks; /* [mark_count], in the order of x */
    int mark_count;
} HsLineChart;
void hs_page_lines(HsPage *page, const HsLineChart *chart);

/* Horizontal bars with value labels. */
typedef struct HsBarChart {
    const char *title, *unit;
    const char *const *names; /* [count] */
    const double *values;     /* [count] */
    const double *spreads;    /* [count], +- whiskers; NAN: none.  NULL: none at all */
    int count;
} HsBarChart;
void hs_page_bars(HsPage *page, const HsBarChart *chart);

/* Horizontal bars of parts from zero, their sums at the end.  A part too small to be seen in any is not in the legend.
 */
typedef struct HsStackedBars {
    const char *title, *unit;
    const char *const *names; /* [rows] */
    const char *const *parts; /* [part_count] */
    const double *values;     /* [rows, part_count], none negative; NAN counts as none */
    int rows, part_count;
} HsStackedBars;
void hs_page_stacked_bars(HsPage *page, const HsStackedBars *chart);

/* rows x columns of numbers as coloured cells with the figure in each (NAN: empty), low values calm, high ones warm;
 * the figure's colour keeps contrast in light and dark.  Heat maps of equal `low` and `high` share their colours. */
typedef struct HsHeatMap {
    const char *title;
    const char *const *row_names, *const *column_names;
    const double *values; /* [rows, columns] */
    int rows, columns;
    int diagonal;     /* the cells (diagonal, 0), (diagonal + 1, 1), ... are outlined; -1: none */
    double low, high; /* both NAN: the range of the values.  low above high turns the colours round, for figures of
                         which the highest are the good ones */
} HsHeatMap;
void hs_page_heat_map(HsPage *page, const HsHeatMap *map);

typedef struct HsChartPoint {
    const char *name;
    double x, y; /* a point with a NAN is left out */
} HsChartPoint;

/* Points with their names next to them, axes from zero. */
typedef struct HsPointChart {
    const char *title, *x_label, *y_label;
    const HsChartPoint *points; /* [count] */
    int count;
} HsPointChart;
void hs_page_points(HsPage *page, const HsPointChart *chart);

typedef enum HsMarkShape { HS_MARK_CIRCLE, HS_MARK_SQUARE, HS_MARK_DIAMOND } HsMarkShape;

typedef struct HsFrontMark {
    const char *name;
    double x, y;               /* a mark with a NAN is left out */
    double x_spread, y_spread; /* NAN: no whiskers */
    int colour;                /* index of the chart's series */
    HsMarkShape shape;
    bool named; /* its name stands next to it; else it shows under the pointer */
} HsFrontMark;

/* Marks with whiskers and lines through some of them, axes around the marks and not from zero. */
typedef struct HsFrontChart {
    const char *title, *x_label, *y_label;
    const HsFrontMark *marks; /* [count] */
    int count;
    const char *const *series; /* [series_count], for the legend */
    int series_count;
    const char *shapes[3]; /* what each shape means; NULL: not in the legend */
    /* two lines through marks, by index in their order; the second one is dashed */
    const int *line[2];
    int line_count[2];
    const char *line_names[2];
} HsFrontChart;
void hs_page_front(HsPage *page, const HsFrontChart *chart);

typedef struct HsExponentSeries {
    const char *name;
    const HsHistogram *histogram;
    int shift; /* drawn as if multiplied by 2^shift: minus the loss scale's exponent shows gradients as they would be
                  without it; 0: as they are */
} HsExponentSeries;

/* How numbers spread over binary exponents, with the ranges of the 16-bit formats and of FP8 drawn in: for each series a
 * line of steps, the share of all its elements (zeros and those that are not finite too) in each binade.  Zeros have no
 * exponent: the legend names their share.  Up to 8 series keep their own colours. */
typedef struct HsExponentChart {
    const char *title;
    const HsExponentSeries *series; /* [count] */
    int count;
} HsExponentChart;
void hs_page_exponents(HsPage *page, const HsExponentChart *chart);

#endif
