/* SPDX-License-Identifier: MIT
 *
 * What is drawn in a chart, measured in its SVG: names of points do not stand over each other, and an axis of shares
 * has the numbers that the shares have.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "runtime/pages/html_chart.h"
#include "tests/support/page.h"

/* Twelve points at one place, each with a name: as many boxes, of a line's height, none over another or a point. */
Test(charts, names_of_points_do_not_overlap)
{
    enum { NAMES = 12 };
    const double x = 300, y = 150;
    HsChartTaken taken = { .count = 0 };
    HsChartBox boxes[NAMES + 1] = { { x - 5, x + 5, y - 5, y + 5 } };
    hs_chart_take_point(&taken, x, y);
    for (int i = 1; i <= NAMES; i++) {
        boxes[i] = hs_chart_place_name(&taken, x, y, "a name");
        cr_expect_float_eq(boxes[i].bottom - boxes[i].top, 14, 1e-9);
        for (int j = 0; j < i; j++)
            cr_expect(boxes[i].left >= boxes[j].right || boxes[i].right <= boxes[j].left ||
                          boxes[i].top >= boxes[j].bottom || boxes[i].bottom <= boxes[j].top,
                      "names %d and %d overlap", i, j);
    }
}

/* Ones and twos, 3 to 1: 75% and 25%.  A fifth of the largest is 15%, so the axis has ticks of 20%. */
Test(charts, the_axis_of_shares_is_in_per_cent)
{
    HsHistogram histogram = { 0 };
    for (int i = 0; i < 3; i++)
        hs_histogram_add_value(&histogram, 1.0);
    hs_histogram_add_value(&histogram, 2.0);
    const HsExponentSeries series = { .name = "x", .histogram = &histogram };
    char *page = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&page, &bytes);
    hs_html_exponents(stream, &(HsExponentChart){ .title = "shares", .series = &series, .count = 1 });
    fclose(stream);
    static const char *const ticks[] = { ">0%</text>", ">20%</text>", ">40%</text>", ">60%</text>", ">80%</text>" };
    PAGE_EXPECT_HELD(page, ticks);
    cr_expect_null(strstr(page, ">100%</text>"));
    free(page);
}
