/* SPDX-License-Identifier: MIT
 *
 * One operation on one backend: every case compared, the timed cases timed.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/hash.h"
#include "runtime/selftest/pairs.h"
#include "runtime/selftest/selftest.h"

#define OP_ROW(name, Args, formula) { #name, &hs_op_test_##name },
static const struct {
    const char *name;
    const HsOpTest *test;
} op_rows[] = { HS_OPS(OP_ROW) };

int hs_selftest_count(void)
{
    return HS_COUNT_OF(op_rows);
}

const char *hs_selftest_name(int op)
{
    return op_rows[op].name;
}

HsStatus hs_selftest_find(const char *name, int *op)
{
    for (*op = 0; *op < HS_COUNT_OF(op_rows); ++*op)
        if (strcmp(name, op_rows[*op].name) == 0)
            return HS_OK;
    return hs_fail(HS_EINVAL, "selftest: no operation is called '%s'; kernels/ops/ops.h lists them", name);
}

/* The caller's context with a workspace of our own, of the size that this trial needs. */
static HsStatus context_for(HsTrial *trial, const HsContext *given, HsContext *context, bool for_timing)
{
    const HsOpTest *test = trial->test;
    *context = *given;
    context->workspace = NULL;
    context->workspace_bytes = context->workspace_needed = 0;
    context->flops = 0.0;
    context->dry_run = true;
    HsTensor shapes[HS_TRIAL_OPERANDS] = { 0 };
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        shapes[i] = trial->operands[i].tensor;
    hs_trial_place_amax(trial, shapes);
    HS_TRY(for_timing && test->timed_call ? test->timed_call(trial, context, shapes)
                                          : test->call(trial, context, shapes));
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

static void count_case(const HsTrial *trial, HsOpReport *report)
{
    report->cases++;
    report->hash = trial->hash;
    if (trial->worst > report->worst)
        report->worst = trial->worst;
    if (trial->complaint[0] == 0)
        return;
    if (report->failures < HS_COMPLAINTS_KEPT) {
        HsComplaint *const kept = &report->complaints[report->failures];
        kept->config = trial->config;
        snprintf(kept->text, sizeof kept->text, "%s", trial->complaint);
    }
    report->failures++;
}

/* One case on one backend.  A backend that refuses it fails it; memory that runs out says nothing about the backend and ends
 * the run. */
static HsStatus run_case(HsTrial *trial, HsContext *given, HsOpReport *report)
{
    HsContext context = { 0 };
    HsStatus status = context_for(trial, given, &context, false);
    hs_trial_begin(trial, &context);
    if (status == HS_OK) {
        trial->hash = report->hash;
        const HsStatus compared = hs_trial_compare(trial, &context);
        if (compared == HS_ENOMEM)
            status = compared;
        if (compared != HS_OK) {
            trial->worst = HUGE_VAL;
            snprintf(trial->complaint, sizeof trial->complaint, "%s", hs_error_message());
        }
        count_case(trial, report);
    }
    release_workspace(&context);
    return status;
}

static bool is_wanted(const HsCaseChoice *choice, const HsCase *config)
{
    char described[HS_COMPLAINT_BYTES];
    if (choice->match && !strstr(hs_case_describe(config, described, sizeof described), choice->match))
        return false;
    return choice->wanted == NULL || choice->wanted(config);
}

/* keep [case_count] */
static HsStatus choose_cases(const HsOpTest *test, const HsCaseChoice *choice, bool *keep)
{
    for (int i = 0; i < test->case_count; i++)
        keep[i] = is_wanted(choice, &test->cases[i]);
    return choice->pairs ? hs_pairs_cover(test->cases, test->case_count, keep) : HS_OK;
}

HsStatus hs_selftest_check_all(HsContext *contexts, int count, int op, HsCaseChoice choice, HsOpReport *reports)
{
    const HsOpTest *const test = op_rows[op].test;
    for (int i = 0; i < count; i++)
        reports[i] = (HsOpReport){ .name = op_rows[op].name, .hash = HS_HASH_START };
    bool *const keep = calloc((size_t)test->case_count + 1, sizeof *keep);
    HsStatus status = keep ? choose_cases(test, &choice, keep) : hs_fail(HS_ENOMEM, "selftest: no memory");
    for (int index = 0; index < test->case_count && status == HS_OK; index++) {
        HsTrial trial;
        if (!keep[index])
            continue;
        status = hs_trial_create(&trial, op_rows[op].name, test, &test->cases[index], seed_of(op, index),
                                 contexts->device, false);
        for (int i = 0; i < count && status == HS_OK; i++) {
            if (choice.prepare)
                status = choice.prepare(choice.arguments, &contexts[i], i);
            if (status == HS_OK)
                status = run_case(&trial, &contexts[i], &reports[i]);
        }
        hs_trial_destroy(&trial, contexts);
    }
    free(keep);
    return status;
}

static HsStatus time_case(HsContext *given, int op, const HsRoofline *roofline, double seconds, HsOpTiming *timing)
{
    HsTrial trial;
    HsContext context = { 0 };
    HsStatus status = hs_trial_create(&trial, op_rows[op].name, op_rows[op].test, &timing->config, seed_of(op, -1),
                                      given->device, true);
    if (status == HS_OK)
        status = context_for(&trial, given, &context, true);
    if (status == HS_OK)
        status = hs_speed_measure(&trial, &context, roofline, seconds, timing);
    release_workspace(&context);
    hs_trial_destroy(&trial, given);
    return status;
}

/* Whether this backend has anything to do in the case: some don't pack. */
static bool has_work(const HsOpTest *test, const HsCase *config, const HsContext *context)
{
    HsTrial trial = { .test = test, .config = config };
    test->declare(&trial);
    return hs_speed_bytes(&trial, context) > 0.0;
}

HsStatus hs_selftest_time(HsContext *context, int op, const HsRoofline *roofline, const HsSpeedPlan *plan, int most,
                          HsOpReport *report)
{
    const HsOpTest *test = op_rows[op].test;
    for (int i = 0; i < test->timed_count && report->timing_count < most; i++) {
        if (!has_work(test, &test->timed[i], context))
            continue;
        assert(report->timing_count < HS_OP_TIMINGS);
        HsOpTiming *timing = &report->timings[report->timing_count];
        HS_TRY(hs_speed_case(test, &test->timed[i], plan, roofline, context, &timing->config));
        HS_TRY(time_case(context, op, roofline, plan->seconds, timing));
        report->timing_count++;
    }
    return HS_OK;
}
