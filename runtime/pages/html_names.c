/* SPDX-License-Identifier: MIT
 *
 * Places of the names in charts of points.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/html_chart.h"

enum { LABEL_HEIGHT = 14, GAP = 5 };
#define CHARACTER 7.0 /* a name cut to its room must fit it, and names have more wide letters than figures */

static void take(HsChartTaken *taken, const HsChartBox *box)
{
    if (taken->count < HS_CHART_BOXES)
        taken->boxes[taken->count++] = *box;
}

void hs_chart_take_point(HsChartTaken *taken, double x, double y)
{
    take(taken, &(HsChartBox){ x - HS_CHART_RADIUS, x + HS_CHART_RADIUS, y - HS_CHART_RADIUS, y + HS_CHART_RADIUS });
}

static bool is_free(const HsChartTaken *taken, const HsChartBox *box)
{
    if (box->left < HS_CHART_LEFT || box->right > HS_CHART_WIDTH - 2 || box->top < 0 ||
        box->bottom > HS_CHART_HEIGHT - HS_CHART_BOTTOM)
        return false;
    for (int i = 0; i < taken->count; i++) {
        const HsChartBox *other = &taken->boxes[i];
        if (box->left < other->right && other->left < box->right && box->top < other->bottom &&
            other->top < box->bottom)
            return false;
    }
    return true;
}

HsChartBox hs_chart_place_name(HsChartTaken *taken, double x, double y, const char *name)
{
    const double width = fmin(CHARACTER * (double)strlen(name), HS_CHART_LABEL);
    const double right = x + HS_CHART_RADIUS + GAP, left = x - HS_CHART_RADIUS - GAP - width;
    HsChartBox box = { 0 };
    bool placed = false;
    for (int shift = 0; shift <= HS_CHART_HEIGHT && !placed; shift += 2) {
        for (int side = 0; side < 4 && !placed; side++) {
            const double at = side % 2 == 0 ? right : left, middle = side < 2 ? y + shift : y - shift;
            box = (HsChartBox){ at, at + width, middle - LABEL_HEIGHT / 2, middle + LABEL_HEIGHT / 2 };
            placed = is_free(taken, &box);
        }
    }
    if (!placed)
        box = (HsChartBox){ right, right + width, y - LABEL_HEIGHT / 2, y + LABEL_HEIGHT / 2 };
    take(taken, &box);
    return box;
}

void hs_chart_write_name(FILE *stream, const HsChartBox *box, double x, double y, const char *name)
{
    const bool left = box->right < x;
    const double anchor = left ? box->right : box->left, middle = (box->top + box->bottom) / 2;
    if (fabs(middle - y) > LABEL_HEIGHT / 2)
        fprintf(stream, "<line class=\"axis\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x, y,
                anchor + (left ? 2 : -2), middle);
    fprintf(stream, "<text class=\"strong\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", anchor, middle + 4,
            left ? "end" : "start");
    hs_chart_cut(stream, name, HS_CHART_LABEL);
    fputs("</text>", stream);
}
