/* SPDX-License-Identifier: MIT
 *
 * What the casts of a mode below 16 bits did: by role of the tensors, at the end and over training.
 */
#include <math.h>
#include <stddef.h>

#include "runtime/pages/html.h"
#include "runtime/pages/report_internal.h"

/* A share for people: what is not zero never reads as zero. */
static void write_share(FILE *stream, double share)
{
    if (share == 0)
        fputs("0", stream);
    else if (share < 1e-6)
        fputs("under 0.0001%", stream);
    else
        fprintf(stream, "%.*f%%", share < 1e-3 ? 4 : 2, 100 * share);
}

static void write_share_cell(FILE *stream, double share)
{
    fputs("<td>", stream);
    write_share(stream, share);
    fputs("</td>", stream);
}

static double member(const HsJson *role, const char *key)
{
    const HsJson *found = hs_json_get(role, key);
    return found && !hs_json_is_null(found) ? hs_json_number(found) : NAN;
}

static void write_real(FILE *stream, double value)
{
    if (isnan(value))
        fputs("<td>\u2013</td>", stream);
    else
        fprintf(stream, "<td>%.3g</td>", value);
}

static void write_row(FILE *stream, const HsJson *role)
{
    const double lowest = member(role, "scale_lowest"), highest = member(role, "scale_highest");
    const char *layer = hs_json_string(hs_json_get(role, "layer"));
    fputs("<tr><th scope=\"row\">", stream);
    hs_html_text(stream, hs_json_string(hs_json_get(role, "role")));
    fputs("</th>", stream);
    write_real(stream, member(role, "amax"));
    if (isnan(lowest) || isnan(highest))
        fputs("<td>of blocks</td>", stream);
    else
        fprintf(stream, "<td>%.3g to %.3g</td>", lowest, highest);
    write_share_cell(stream, member(role, "saturated"));
    write_share_cell(stream, member(role, "zeroed"));
    fputs("<td>", stream);
    hs_html_text(stream, layer ? layer : "\u2013");
    if (layer) {
        fputs("<div class=\"soft\" style=\"font-size:.82em\">", stream);
        write_share(stream, member(role, "layer_lost"));
        fputs("</div>", stream);
    }
    fputs("</td></tr>\n", stream);
}

static void write_table(const HsReport *report, FILE *stream)
{
    static const char *const titles[] = { "largest magnitude", "scales", "saturated", "zeroed", "most lost in" };
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"casts by role\">\n<table>\n<thead><tr>"
          "<th scope=\"col\">tensors</th>",
          stream);
    for (size_t i = 0; i < sizeof titles / sizeof *titles; i++)
        fprintf(stream, "<th scope=\"col\">%s</th>", titles[i]);
    fputs("</tr></thead>\n<tbody>\n", stream);
    const HsJson *role = hs_json_first(hs_json_get(report->scales, "roles"));
    for (; role; role = hs_json_next(role))
        write_row(stream, role);
    fputs("</tbody>\n</table>\n</div>\n", stream);
}

HsStatus hs_report_write_scales(const HsReport *report, FILE *stream)
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
        return HS_OK;
    hs_report_begin_section(
        stream, "What the casts did",
        "Operands of the products in codes: x, what a layer reads; its weight; dy, what its backward reads. Saturated: "
        "beyond the format's largest number after scaling. Zeroed: not 0 before, 0 after. The table is of the last "
        "recorded step; the layer is the one where the largest share was lost.");
    write_table(report, stream);
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        HsChartSeries series[HS_SCALING_ROLES];
        for (int role = 0; role < report->role_count; role++) {
            const HsReportSeries *points =
                (const HsReportSeries *)(const void *)((const char *)&report->roles[role] + charts[i].offset);
            series[role] = (HsChartSeries){ report->roles[role].name, points->x, points->y, points->count };
        }
        hs_html_line_chart(stream, charts[i].title, "optimizer step", charts[i].unit, series, report->role_count, NULL,
                           0);
    }
    hs_report_end_section(stream);
    return HS_OK;
}
