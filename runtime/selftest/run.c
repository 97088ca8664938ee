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

static HsStatus force(const void *arguments, HsContext *context, int index)
{
    const HsSelftestOptions *const options = arguments;
    const HsForcedKernels *const forced = &options->forced[index];
    return options->tuner->force(context->device, forced->kernels, forced->slices);
}

static void print_forced(const HsForcedKernels *forced, FILE *out)
{
    fprintf(out, "products: forced to %s, slices: ", forced->kernels ? forced->kernels : "no kernel");
    if (forced->slices)
        fprintf(out, "%d\n", forced->slices);
    else
        fprintf(out, "as the model finds best\n");
}

/* One operation, by each choice of kernels that is forced, or as it is chosen without. */
static HsStatus run_op(HsContext *context, const HsSelftestOptions *options, const HsRoofline *roofline, int op,
                       FILE *out, int *cases, int *failures)
{
    const HsSpeedPlan plan = hs_speed_plan(context, false);
    HsContext contexts[HS_MOST_FORCED];
    HsOpReport reports[HS_MOST_FORCED];
    const int count = options->forced_count > 0 ? options->forced_count : 1;
    HsCaseChoice choice = { .pairs = options->pairs, .match = options->match };
    if (options->forced_count > 0) {
        choice.prepare = force;
        choice.arguments = options;
    }
    for (int i = 0; i < count; i++)
        contexts[i] = *context;
    HS_TRY(hs_selftest_check_all(contexts, count, op, choice, reports));
    if (options->match && reports[0].cases == 0)
        return HS_OK;
    for (int i = 0; i < count; i++) {
        if (options->forced_count > 0) {
            print_forced(&options->forced[i], out);
            HS_TRY(force(options, context, i));
        }
        if (options->with_speed)
            HS_TRY(hs_selftest_time(context, op, roofline, &plan, 1, &reports[i]));
        print_report(&reports[i], options->hashes, out);
        *cases += reports[i].cases;
        *failures += reports[i].failures;
    }
    return HS_OK;
}

HsStatus hs_selftest_run(HsContext *context, const HsSelftestOptions *options, FILE *out, int *failures)
{
    int first = 0, end = hs_selftest_count(), cases = 0;
    *failures = 0;
    if (options->op) {
        HS_TRY(hs_selftest_find(options->op, &first));
        end = first + 1;
    }
    HsRoofline roofline = { 0 };
    if (options->with_speed)
        hs_roofline_measure(context, &roofline);
    for (int op = first; op < end; op++)
        HS_TRY(run_op(context, options, &roofline, op, out, &cases, failures));
    if (cases == 0)
        return hs_fail(
            HS_EINVAL,
            "selftest: no case has `%.60s` in its description, as failures print it: \"bf16 -> f32, rows 3\"",
            options->match);
    return HS_OK;
}
