/* SPDX-License-Identifier: MIT
 *
 * How fast an operation runs, and what share that is of what the device can do.
 *
 * A device with its own clock is timed by that: several calls between two events, so that neither the host's way to the
 * device nor its clock is in the figure.  Cases bound by memory are enlarged, for one that fits a cache says nothing.
 */
#include "runtime/selftest/speed.h"

#include <math.h>
#include <string.h>

#include "kernels/base/clock.h"

/* On the host no more runs than this: moments that decay for a thousand become subnormal, which costs. */
enum { RUNS = 100, QUEUED_RUNS = 10, TINY_CALLS = 100, QUICK_SHRINK = 16 };

/* Several times the last-level cache of a processor's group of cores, or of a GPU. */
static const size_t uncached_bytes = (size_t)256 << 20;

const char *hs_bound_name(HsBound bound)
{
    static const char *const names[HS_BOUND_COUNT] = { "memory", "products", "latency" };
    return names[bound];
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void hs_roofline_measure(HsContext *context, HsRoofline *roofline)
{
    static const HsDtype products[] = { HS_F32, HS_BF16, HS_F16 };
    const HsBackend *backend = context->backend;
    for (int i = 0; i < HS_COUNT_OF(products) && backend->peak_flops; i++) {
        double *peak = &roofline->flops[products[i]];
        *peak = larger(*peak, backend->peak_flops(context, products[i], (HsProductPolicy){ 0 }));
    }
    if (backend->peak_bytes)
        roofline->bytes = larger(roofline->bytes, backend->peak_bytes(context, HS_UNCACHED_BYTES));
}

HsSpeedPlan hs_speed_plan(const HsContext *context, bool quick)
{
    if (quick || context->backend == hs_backend_ref())
        return (HsSpeedPlan){ .shrink = QUICK_SHRINK, .seconds = 0.02 };
    return (HsSpeedPlan){ .least_bytes = uncached_bytes, .shrink = 1, .seconds = 0.5 };
}

typedef HsStatus (*Call)(HsTrial *trial, HsContext *context, const HsTensor *tensors);

static HsStatus call_timed(HsTrial *trial, HsContext *context)
{
    const Call call = trial->test->timed_call ? trial->test->timed_call : trial->test->call;
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        tensors[i] = trial->operands[i].tensor;
    return call(trial, context, tensors);
}

/* The larger of the times that products and memory need at least; without a peak to compare with, what has products is
 * taken to be bound by them. */
static HsBound bound_of(HsDtype dtype, double flops, double bytes, const HsRoofline *roofline)
{
    if (flops == 0.0)
        return HS_BOUND_MEMORY;
    const double peak = roofline->flops[dtype];
    const bool known = peak > 0.0 && roofline->bytes > 0.0;
    return known && flops / peak < bytes / roofline->bytes ? HS_BOUND_MEMORY : HS_BOUND_PRODUCTS;
}

void hs_speed_judge(HsOpTiming *timing, const HsRoofline *roofline)
{
    if (timing->bound != HS_BOUND_LATENCY)
        timing->bound = bound_of(timing->config.dtype, timing->flops, timing->bytes, roofline);
    const bool products = timing->bound == HS_BOUND_PRODUCTS;
    timing->rate = (products ? timing->flops : timing->bytes) / timing->seconds;
    timing->limit = timing->bound == HS_BOUND_LATENCY ? 0.0
                    : products                        ? roofline->flops[timing->config.dtype]
                                                      : roofline->bytes;
}

double hs_speed_bytes(const HsTrial *trial, const HsContext *context)
{
    return trial->test->bytes ? trial->test->bytes(trial, context) : hs_trial_bytes(trial);
}

/* What the operands hold, of which a call may touch a part only. */
static double footprint(const HsTrial *trial)
{
    double bytes = 0.0;
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        if (hs_operand_present(trial, i))
            bytes += (double)hs_tensor_bytes(&trial->operands[i].tensor);
    return bytes;
}

/* *size divided by as much of `factor` as leaves `least`; returns what is left of the factor. */
static int divide(int64_t *size, int factor, int64_t least)
{
    while (factor > 1 && *size / 2 >= least) {
        *size /= 2;
        factor /= 2;
    }
    return factor;
}

/* Fewer batches and then shorter sequences; or fewer rows, but whole sequences. */
static void shrink_case(HsCase *config, int factor)
{
    HsHeads *heads = &config->heads;
    if (heads->batch > 0)
        divide(&heads->sequence_length, divide(&heads->batch, factor, 1), 1);
    else
        divide(&config->rows, factor, heads->sequence_length > 0 ? heads->sequence_length : 1);
}

/* A shape's dry run: no memory is touched. */
static HsStatus describe(const HsOpTest *test, const HsCase *config, const HsContext *given, double *flops,
                         double *bytes, double *held)
{
    HsContext context = *given;
    HsTrial trial = { .test = test, .config = config };
    test->declare(&trial);
    context.dry_run = true;
    context.flops = 0.0;
    HS_TRY(call_timed(&trial, &context));
    *flops = context.flops;
    *bytes = hs_speed_bytes(&trial, given);
    const double operands = footprint(&trial);
    *held = operands < *bytes ? operands : *bytes;
    return HS_OK;
}

HsStatus hs_speed_case(const HsOpTest *test, const HsCase *config, const HsSpeedPlan *plan, const HsRoofline *roofline,
                       const HsContext *context, HsCase *timed)
{
    *timed = *config;
    if (test->few_bytes)
        return HS_OK;
    if (plan->shrink > 1)
        shrink_case(timed, plan->shrink);
    int64_t *size = timed->heads.batch > 0 ? &timed->heads.batch : timed->rows > 1 ? &timed->rows : &timed->columns;
    for (;; *size *= 2) {
        double flops, bytes, held;
        HS_TRY(describe(test, timed, context, &flops, &bytes, &held));
        if (held >= (double)plan->least_bytes || bound_of(timed->dtype, flops, bytes, roofline) != HS_BOUND_MEMORY)
            return HS_OK;
    }
}

/* What takes less time than reading the clock is called many times between two readings. */
static HsStatus time_on_host(HsTrial *trial, HsContext *context, double *seconds)
{
    const int calls = trial->test->few_bytes ? TINY_CALLS : 1;
    const double start = hs_clock_s();
    for (int i = 0; i < calls; i++)
        HS_TRY(call_timed(trial, context));
    *seconds = (hs_clock_s() - start) / calls;
    return HS_OK;
}

static HsStatus time_between(HsTrial *trial, HsContext *context, HsEvent *begun, HsEvent *ended, double *seconds)
{
    HsDevice *device = context->device;
    double milliseconds = 0.0;
    HS_TRY(device->event_record(device, begun, context->stream));
    for (int i = 0; i < QUEUED_RUNS; i++)
        HS_TRY(call_timed(trial, context));
    HS_TRY(device->event_record(device, ended, context->stream));
    HS_TRY(device->event_elapsed_ms(device, begun, ended, &milliseconds));
    *seconds = milliseconds * 1e-3 / QUEUED_RUNS;
    return HS_OK;
}

static HsStatus time_on_device(HsTrial *trial, HsContext *context, double *seconds)
{
    HsDevice *device = context->device;
    HsEvent *begun = NULL, *ended = NULL;
    HsStatus status = device->event_create(device, &begun);
    if (status == HS_OK)
        status = device->event_create(device, &ended);
    if (status == HS_OK)
        status = time_between(trial, context, begun, ended, seconds);
    if (begun)
        device->event_destroy(device, begun);
    if (ended)
        device->event_destroy(device, ended);
    return status;
}

/* The shortest of the runs that fit the time: the others were disturbed. */
static HsStatus shortest_run(HsTrial *trial, HsContext *context, double allowed, double *shortest)
{
    const bool on_host = context->device->host_accessible;
    double total = 0.0;
    *shortest = HUGE_VAL;
    for (int run = 0; run < RUNS && total < allowed; run++) {
        double seconds = 0.0;
        HS_TRY(on_host ? time_on_host(trial, context, &seconds) : time_on_device(trial, context, &seconds));
        total += seconds * (on_host ? 1 : QUEUED_RUNS);
        *shortest = seconds < *shortest ? seconds : *shortest;
    }
    return HS_OK;
}

HsStatus hs_speed_measure(HsTrial *trial, HsContext *context, const HsRoofline *roofline, double seconds,
                          HsOpTiming *timing)
{
    timing->flops = context->flops;
    timing->bytes = hs_speed_bytes(trial, context);
    HS_TRY(hs_trial_upload(trial, context));
    HS_TRY(call_timed(trial, context)); /* brings memory and code in, and packs */
    HS_TRY(context->device->stream_sync(context->device, context->stream));
    HS_TRY(shortest_run(trial, context, seconds, &timing->seconds));
    timing->bound = trial->test->few_bytes ? HS_BOUND_LATENCY : HS_BOUND_MEMORY;
    hs_speed_judge(timing, roofline);
    return HS_OK;
}
