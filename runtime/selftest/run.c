/* SPDX-License-Identifier: MIT
 *
 * Every case of every operation on one backend, and a line of print each.
 */
#include <inttypes.h>

#include "runtime/selftest/selftest.h"

/* The rate, and its share of what the device can do. */
static void print_timing(const HsOpTiming *timing, FILE *out)
{
    if (timing->bound == HS_BOUND_LATENCY) {
        fprintf(out, "  %8.2f us     ", timing->seconds * 1e6);
        return;
    }
    fprintf(out, "  %8.1f %s", timing->rate * 1e-9, timing->bound == HS_BOUND_PRODUCTS ? "GFLOP/s" : "GB/s   ");
    if (timing->limit > 0.0)
        fprintf(out, "  %3.0f%% of %.0f", 100.0 * timing->rate / timing->limit, timing->limit * 1e-9);
}

static void print_report(const HsOpReport *report, bool hashes, FILE *out)
{
    char described[HS_COMPLAINT_BYTES];
    fprintf(out, "%-20s %4d cases  worst error %8.3g of tolerance  %s", report->name, report->cases, report->worst,
            report->failures ? "FAILED" : "ok    ");
    if (hashes)
        fprintf(out, "  %016" PRIx64, report->hash);
    for (int i = 0; i < report->timing_count; i++)
        print_timing(&report->timings[i], out);
    fprintf(out, "\n");
    for (int i = 0; i < report->failures && i < HS_COMPLAINTS_KEPT; i++)
        fprintf(out, "    %s\n      %s\n", hs_case_describe(report->complaints[i].config, described, sizeof described),
                report->complaints[i].text);
    if (report->failures > HS_COMPLAINTS_KEPT)
        fprintf(out, "    and %d more\n", report->failures - HS_COMPLAINTS_KEPT);
    fflush(out);
}

HsStatus hs_selftest_run(HsContext *context, const HsSelftestOptions *options, FILE *out, int *failures)
{
    const HsCaseChoice choice = { .pairs = options->pairs, .match = options->match };
    int first = 0, end = hs_selftest_count(), cases = 0;
    *failures = 0;
    if (options->op) {
        HS_TRY(hs_selftest_find(options->op, &first));
        end = first + 1;
    }
    const HsSpeedPlan plan = hs_speed_plan(context, false);
    HsRoofline roofline = { 0 };
    if (options->with_speed)
        hs_roofline_measure(context, &roofline);
    for (int op = first; op < end; op++) {
        HsOpReport report;
        HS_TRY(hs_selftest_check_all(context, 1, op, choice, &report));
        if (options->match && report.cases == 0)
            continue;
        cases += report.cases;
        if (options->with_speed)
            HS_TRY(hs_selftest_time(context, op, &roofline, &plan, 1, &report));
        print_report(&report, options->hashes, out);
        *failures += report.failures;
    }
    if (cases == 0)
        return hs_fail(
            HS_EINVAL,
            "selftest: no case has `%.60s` in its description, as failures print it: \"bf16 -> f32, rows 3\"",
            options->match);
    return HS_OK;
}
