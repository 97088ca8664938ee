/* SPDX-License-Identifier: MIT
 *
 * Every case of every operation on one backend, and a line of report each.
 */
#include "runtime/selftest/selftest.h"

#include <string.h>
#include <math.h>

#include "runtime/selftest/speed.h"

#define OP_ROW(name, Args, formula) { #name, &hs_op_test_##name },
static const struct {
    const char *name;
    const HsOpTest *test;
} op_rows[] = { HS_OPS(OP_ROW) };

enum { COMPLAINTS_SHOWN = 3 };

/* The caller's context with a workspace of our own, of the size that this trial needs. */
static HsStatus context_for(HsTrial *trial, const HsContext *given, HsContext *context)
{
    *context = *given;
    context->workspace = NULL;
    context->workspace_bytes = context->workspace_needed = 0;
    context->flops = 0.0;
    context->dry_run = true;
    HsTensor shapes[HS_TRIAL_OPERANDS] = { 0 };
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        shapes[i] = trial->operands[i].tensor;
    HS_TRY(trial->test->call(trial, context, shapes));
    context->dry_run = false;
    if (context->workspace_needed > 0)
        HS_TRY(context->device->alloc(context->device, context->workspace_needed, &context->workspace));
    context->workspace_bytes = context->workspace_needed;
    return HS_OK;
}

static void release_workspace(HsContext *context)
{
    if (context->workspace)
        context->device->release(context->device, context->workspace);
}

/* A seed for each case: operations and cases don't share random numbers. */
static uint64_t seed_of(int op, int index)
{
    return (uint64_t)(op + 1) << 32 | (uint32_t)index;
}

/* The rate, and its share of what the device can do. */
static HsStatus print_speed(const HsTrial *trial, HsContext *context, HsSpeedLimits *limits, double seconds, FILE *out)
{
    const bool arithmetic = context->flops > 0.0;
    const double rate = (arithmetic ? context->flops : hs_trial_bytes(trial)) / seconds;
    double limit = 0.0;
    HS_TRY(hs_speed_limit(limits, context, arithmetic, trial->config->dtype, &limit));
    fprintf(out, "  %8.1f %s", rate * 1e-9, arithmetic ? "GFLOP/s" : "GB/s   ");
    if (limit > 0.0)
        fprintf(out, "  %3.0f%% of %.0f", 100.0 * rate / limit, limit * 1e-9);
    return HS_OK;
}

static HsStatus report_speed(int op, HsContext *given, HsSpeedLimits *limits, FILE *out)
{
    HsTrial trial;
    HsContext context = { 0 };
    double seconds = 0.0;
    const HsCase timed = hs_speed_case(op_rows[op].test, given->device);
    HsStatus status =
        hs_trial_create(&trial, op_rows[op].name, op_rows[op].test, &timed, seed_of(op, -1), given->device, false);
    if (status == HS_OK)
        status = context_for(&trial, given, &context);
    if (status == HS_OK)
        status = hs_speed_measure(&trial, &context, &seconds);
    if (status == HS_OK)
        status = print_speed(&trial, &context, limits, seconds, out);
    release_workspace(&context);
    hs_trial_destroy(&trial, given);
    return status;
}

/* One case.  A backend that refuses it fails it; only a trial that cannot be made ends the run. */
static HsStatus run_case(int op, int index, HsContext *given, double *worst, char complaint[256])
{
    const HsOpTest *test = op_rows[op].test;
    HsTrial trial;
    HsContext context = { 0 };
    HsStatus status =
        hs_trial_create(&trial, op_rows[op].name, test, &test->cases[index], seed_of(op, index), given->device, true);
    if (status == HS_OK)
        status = context_for(&trial, given, &context);
    if (status == HS_OK) {
        if (hs_trial_compare(&trial, &context) != HS_OK) {
            trial.worst = HUGE_VAL;
            snprintf(trial.complaint, sizeof trial.complaint, "%s", hs_error_message());
        }
        if (trial.worst > *worst)
            *worst = trial.worst;
        memcpy(complaint, trial.complaint, sizeof trial.complaint);
    }
    release_workspace(&context);
    hs_trial_destroy(&trial, given);
    return status;
}

/* limits: NULL: no speed is wanted. */
static HsStatus run_op(int op, HsContext *context, HsSpeedLimits *limits, FILE *out, int *failures)
{
    enum { TEXT = 256 };
    const HsOpTest *test = op_rows[op].test;
    char complaints[COMPLAINTS_SHOWN][TEXT], described[TEXT];
    int shown[COMPLAINTS_SHOWN], failed = 0;
    double worst = 0.0;
    for (int i = 0; i < test->case_count; i++) {
        char complaint[TEXT];
        HS_TRY(run_case(op, i, context, &worst, complaint));
        if (complaint[0] == 0)
            continue;
        if (failed < COMPLAINTS_SHOWN) {
            memcpy(complaints[failed], complaint, TEXT);
            shown[failed] = i;
        }
        failed++;
    }
    fprintf(out, "%-20s %4d cases  worst error %8.3g of tolerance  %s", op_rows[op].name, test->case_count, worst,
            failed ? "FAILED" : "ok    ");
    if (limits)
        HS_TRY(report_speed(op, context, limits, out));
    fprintf(out, "\n");
    for (int i = 0; i < failed && i < COMPLAINTS_SHOWN; i++)
        fprintf(out, "    %s\n      %s\n", hs_case_describe(&test->cases[shown[i]], described, TEXT), complaints[i]);
    if (failed > COMPLAINTS_SHOWN)
        fprintf(out, "    and %d more\n", failed - COMPLAINTS_SHOWN);
    fflush(out);
    *failures += failed;
    return HS_OK;
}

HsStatus hs_selftest_run(HsContext *context, const char *only_op, bool with_speed, FILE *out, int *failures)
{
    HsSpeedLimits limits = { 0 };
    *failures = 0;
    if (only_op && hs_op_formula(only_op) == NULL)
        return hs_fail(HS_EINVAL, "selftest: no operation is called '%s'; kernels/ops.h lists them", only_op);
    for (int op = 0; op < HS_COUNT_OF(op_rows); op++) {
        if (only_op == NULL || strcmp(only_op, op_rows[op].name) == 0)
            HS_TRY(run_op(op, context, with_speed ? &limits : NULL, out, failures));
    }
    return HS_OK;
}
