/* SPDX-License-Identifier: MIT
 *
 * What the casts of a mode below 16 bits did: by role of the tensors, at the end and over training.
 */
#include <math.h>
#include <stddef.h>

#include "runtime/pages/report_internal.h"

/* A share for people: what is not zero never reads as zero. */
static const char *share_text(HsPage *page, double share)
{
    if (share == 0)
        return "0";
    return share < 1e-6 ? "under 0.0001%" : hs_page_print(page, "%.*f%%", share < 1e-3 ? 4 : 2, 100 * share);
}

static double member(const HsJson *role, const char *key)
{
    const HsJson *found = hs_json_get(role, key);
    return found && !hs_json_is_null(found) ? hs_json_number(found) : NAN;
}

static void add_row(HsPage *page, const HsJson *role)
{
    const double lowest = member(role, "scale_lowest"), highest = member(role, "scale_highest");
    const char *layer = hs_json_string(hs_json_get(role, "layer"));
    hs_page_row(page, hs_json_string(hs_json_get(role, "role")));
    hs_page_real(page, "%.3g", member(role, "amax"));
    if (isnan(lowest) || isnan(highest))
        hs_page_cell(page, "of blocks");
    else
        hs_page_cell(page, "%.3g to %.3g", lowest, highest);
    hs_page_cell(page, "%s", share_text(page, member(role, "saturated")));
    hs_page_cell(page, "%s", share_text(page, member(role, "zeroed")));
    hs_page_cell(page, "%s", layer ? layer : "\u2013");
    if (layer)
        hs_page_below(page, "%s", share_text(page, member(role, "layer_lost")));
}

static void add_table(const HsReport *report, HsPage *page)
{
    static const char *const titles[] = { "tensors", "largest magnitude", "scales", "saturated",
                                          "zeroed",  "most lost in" };
    hs_page_table(page, "casts by role");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    const HsJson *role = hs_json_first(hs_json_get(report->scales, "roles"));
    for (; role; role = hs_json_next(role))
        add_row(page, role);
}

void hs_report_add_scales(const HsReport *report, HsPage *page)
{
    static const struct {
        const char *title, *unit;
        size_t offset; /* of the series in HsReportRole */
    } charts[] = {
        { "Zeroed by the cast", "% of the elements", offsetof(HsReportRole, zeroed) },
        { "Saturated by the cast", "% of the elements", offsetof(HsReportRole, saturated) },
        { "Largest magnitude before the cast", "power of two", offsetof(HsReportRole, exponent) },
    };
    if (hs_json_count(hs_json_get(report->scales, "roles")) == 0)
        return;
    hs_page_section(
        page, "What the casts did",
        "Operands of the products in codes: x, what a layer reads; its weight; dy, what its backward reads. Saturated: "
        "beyond the format's largest number after scaling. Zeroed: not 0 before, 0 after. The table is of the last "
        "recorded step; the layer is the one where the largest share was lost.");
    add_table(report, page);
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        HsChartSeries series[HS_SCALING_ROLES];
        for (int role = 0; role < report->role_count; role++) {
            const HsReportSeries *points =
                (const HsReportSeries *)(const void *)((const char *)&report->roles[role] + charts[i].offset);
            series[role] = hs_report_curve(report->roles[role].name, points);
        }
        hs_page_lines(page, &(HsLineChart){ .title = charts[i].title,
                                            .x_label = "optimizer step",
                                            .y_label = charts[i].unit,
                                            .series = series,
                                            .series_count = report->role_count });
    }
}
