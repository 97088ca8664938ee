/* SPDX-License-Identifier: MIT
 *
 * How fast an operation runs, on one larger case, and what share that is of what the device can do, measured in the
 * same run: the peak of its products where arithmetic counts, else the rate at which it copies memory.
 *
 * A device with its own clock is timed by that: several calls between two events, so that neither the host's way to the
 * device nor its clock is in the figure.  Its cases are enlarged, for one that fits its caches says nothing.
 */
#include "runtime/selftest/speed.h"

#include <math.h>

#include "kernels/base/clock.h"

enum { RUNS = 1000, QUEUED_RUNS = 10, OWN_MEMORY_FACTOR = 8 };
static const double speed_seconds = 0.2;
static const size_t copied_bytes = (size_t)128 << 20;

HsCase hs_speed_case(const HsOpTest *test, const HsDevice *device)
{
    HsCase enlarged = test->speed;
    if (device->host_accessible)
        return enlarged;
    int64_t *size = enlarged.heads.batch > 0 ? &enlarged.heads.batch
                    : enlarged.rows > 1      ? &enlarged.rows
                                             : &enlarged.columns;
    *size *= OWN_MEMORY_FACTOR;
    return enlarged;
}

/* What is timed: `run` enqueues it once. */
typedef struct Work {
    HsContext *context;
    HsStatus (*run)(void *user, HsContext *context);
    void *user;
} Work;

static HsStatus time_on_host(const Work *work, double *seconds)
{
    HsDevice *device = work->context->device;
    const double start = hs_clock_s();
    HS_TRY(work->run(work->user, work->context));
    HS_TRY(device->stream_sync(device, work->context->stream));
    *seconds = hs_clock_s() - start;
    return HS_OK;
}

static HsStatus time_between(const Work *work, HsEvent *begun, HsEvent *ended, double *seconds)
{
    HsDevice *device = work->context->device;
    HsStream *stream = work->context->stream;
    double milliseconds = 0.0;
    HS_TRY(device->event_record(device, begun, stream));
    for (int i = 0; i < QUEUED_RUNS; i++)
        HS_TRY(work->run(work->user, work->context));
    HS_TRY(device->event_record(device, ended, stream));
    HS_TRY(device->event_elapsed_ms(device, begun, ended, &milliseconds));
    *seconds = milliseconds * 1e-3 / QUEUED_RUNS;
    return HS_OK;
}

static HsStatus time_on_device(const Work *work, double *seconds)
{
    HsDevice *device = work->context->device;
    HsEvent *begun = NULL, *ended = NULL;
    HsStatus status = device->event_create(device, &begun);
    if (status == HS_OK)
        status = device->event_create(device, &ended);
    if (status == HS_OK)
        status = time_between(work, begun, ended, seconds);
    if (begun)
        device->event_destroy(device, begun);
    if (ended)
        device->event_destroy(device, ended);
    return status;
}

/* The shortest of the runs that fit the time: the others were disturbed. */
static HsStatus measure(const Work *work, double *shortest)
{
    double total = 0.0;
    *shortest = HUGE_VAL;
    HS_TRY(work->run(work->user, work->context)); /* brings memory and code in */
    for (int run = 0; run < RUNS && total < speed_seconds; run++) {
        double seconds = 0.0;
        HS_TRY(work->context->device->host_accessible ? time_on_host(work, &seconds) : time_on_device(work, &seconds));
        total += seconds * (work->context->device->host_accessible ? 1 : QUEUED_RUNS);
        *shortest = seconds < *shortest ? seconds : *shortest;
    }
    return HS_OK;
}

static HsStatus run_trial(void *user, HsContext *context)
{
    HsTrial *trial = user;
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++)
        tensors[i] = trial->operands[i].tensor;
    return trial->test->call(trial, context, tensors);
}

HsStatus hs_speed_measure(HsTrial *trial, HsContext *context, double *seconds)
{
    HS_TRY(hs_trial_upload(trial, context));
    HS_TRY(hs_trial_call(trial, context)); /* packs */
    return measure(&(Work){ context, run_trial, trial }, seconds);
}

/* Half of the bytes are the source. */
static HsStatus run_copy(void *user, HsContext *context)
{
    unsigned char *block = user;
    const size_t half = copied_bytes / 2;
    return context->device->copy(context->device, context->stream, block + half, block, half);
}

static HsStatus measure_copies(HsContext *context, double *bytes_per_second)
{
    HsDevice *device = context->device;
    void *block = NULL;
    double seconds = 0.0;
    HS_TRY(device->alloc(device, copied_bytes, &block));
    HsStatus status = device->fill_zero(device, context->stream, block, copied_bytes);
    if (status == HS_OK)
        status = measure(&(Work){ context, run_copy, block }, &seconds);
    device->release(device, block);
    *bytes_per_second = (double)copied_bytes / seconds;
    return status;
}

HsStatus hs_speed_limit(HsSpeedLimits *limits, HsContext *context, bool arithmetic, HsDtype dtype, double *rate)
{
    if (arithmetic && !limits->knows_flops[dtype]) {
        limits->knows_flops[dtype] = true;
        limits->flops[dtype] = context->backend->peak_flops ? context->backend->peak_flops(context, dtype, false) : 0.0;
    }
    /* Cases are not enlarged on the host, whose caches would make its memory look slow. */
    if (!arithmetic && limits->bytes == 0.0 && !context->device->host_accessible)
        HS_TRY(measure_copies(context, &limits->bytes));
    *rate = arithmetic ? limits->flops[dtype] : limits->bytes;
    return HS_OK;
}
