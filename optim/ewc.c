/* SPDX-License-Identifier: MIT
 *
 * Elastic weight consolidation (Kirkpatrick et al. 2017, eq. 3): importance is the diagonal Fisher information,
 *     F_task = 1/count sum over groups of tokens  weight (multiplier grad)^2,
 * made comparable between tasks and models by one factor a task (a tensor, for l2):
 *     none 1;  max 1 / max F;  mean 1 / mean F;  l2 1 / |F of the tensor|
 *
 *   online    F = gamma F + F_task, one anchor at the latest task's end (Schwarz et al. 2018)
 *   separate  a quadratic for each task, held as their sum, which is a quadratic again (Huszar 2018): F = sum F_t, the
 *             anchor their weighted mean, and a constant (`offset`), so that value and gradient are those of the sum
 *
 * Memory: online squares gather where the anchor is: the old one is not needed any more once a task is over, and the
 * new one is written over them element by element.  Separate merges old and new, and needs a place for each.
 */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "optim/continual_internal.h"

int hs_ewc_tensors(const HsContinualConfig *config)
{
    return config->ewc.separate ? 3 : 2;
}

/* Squares of one group's gradients; excluded spans only have theirs cleared, as the next group adds to them. */
static HsStatus add_sample(HsContinual *continual, HsContext *context, const HsFamily *fresh,
                           const HsFisherSample *sample)
{
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *gradient = &continual->spans[i].gradient;
        if (!hs_tensor_present(&fresh->tensors[i])) {
            HS_TRY(device->fill_zero(device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
            continue;
        }
        const HsSquareAccumulateArgs args = { .grad = *gradient,
                                              .accumulator = fresh->tensors[i],
                                              .multiplier = sample->multiplier,
                                              .weight = sample->weight };
        HsStatus status = hs_op_square_accumulate(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "Fisher, tensor %s", continual->spans[i].name);
    }
    return HS_OK;
}

/* All of the source's groups: the sums of squares in `fresh`, the denominator in `count`. */
static HsStatus gather(HsContinual *continual, HsContext *context, const HsFamily *fresh, HsFisherSource *source,
                       double *count)
{
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *tensor = &fresh->tensors[i];
        if (hs_tensor_present(tensor))
            HS_TRY(device->fill_zero(device, context->stream, tensor->data, hs_tensor_bytes(tensor)));
    }
    *count = 0;
    for (;;) {
        HsFisherSample sample = { 0 };
        HS_TRY(source->next(source->user, &sample));
        if (sample.end)
            return HS_OK;
        HS_TRY(add_sample(continual, context, fresh, &sample));
        *count += sample.count;
    }
}

/* What the sums are multiplied by.  Where they are divided by their own size the denominator cancels. */
static double scale_of(HsNormalize normalize, double count, const HsFamilyStats *stats, double sum_squares)
{
    switch (normalize) {
    case HS_NORMALIZE_NONE:
        return 1.0 / count;
    case HS_NORMALIZE_MAX:
        return 1.0 / stats->maximum;
    case HS_NORMALIZE_MEAN:
        return (double)stats->elements / stats->sum;
    case HS_NORMALIZE_L2: /* a tensor that had next to no gradient stays without importance */
        return sqrt(sum_squares) < (double)FLT_MIN ? 0.0 : 1.0 / sqrt(sum_squares);
    }
    assert(!"an unknown normalization");
    return 0.0;
}

/* A penalty that is zero everywhere, or a factor that f32 cannot hold, is found here and not in a forgotten task. */
static HsStatus check_fisher(int task, double count, const HsFamilyStats *stats)
{
    if (!(count > 0) || !isfinite(count))
        return hs_fail(HS_ENUMERIC,
                       "ewc: after task %d (the first is 0) no token was counted for the Fisher information: raise "
                       "ewc.fisher_samples, or look for a task whose targets are all ignored",
                       task);
    /* The mean's factor is the largest of a whole Fisher's: where f32 holds it, it holds the others. */
    if (!isfinite((float)((double)stats->elements / stats->sum)))
        return hs_fail(HS_ENUMERIC,
                       "ewc: after task %d (the first is 0) the Fisher information is 0 in every parameter, so that "
                       "nothing would be protected: the gradients of its samples are 0 (likely underflow: set "
                       "precision.loss_scale dynamic, or precision.mode bf16), or its targets are all ignored",
                       task);
    return HS_OK;
}

static HsStatus consolidate(HsContinual *continual, HsContext *context, const HsFamily *fresh, double count,
                            const HsFamilyStats *stats)
{
    const bool separate = continual->config.ewc.separate;
    const double *sum_squares = continual->host_values + 2 * stats->tensors;
    for (int i = 0, t = 0; i < continual->span_count; i++) {
        if (!hs_tensor_present(&fresh->tensors[i]))
            continue;
        const double scale = scale_of(continual->config.ewc.normalize, count, stats, sum_squares[t++]);
        const HsConsolidateArgs args = { .fresh = fresh->tensors[i],
                                         .importance = continual->importance.tensors[i],
                                         .anchor = continual->anchor.tensors[i],
                                         .parameter = hs_span_parameter(&continual->spans[i]),
                                         .decay = (float)continual->config.ewc.gamma,
                                         .scale = (float)scale,
                                         .merge = separate,
                                         .offset = separate ? continual->device_offset : NULL };
        HsStatus status = hs_op_consolidate(context, &args);
        if (status != HS_OK)
            return hs_error_prefix(status, "ewc, tensor %s", continual->spans[i].name);
    }
    return HS_OK;
}

HsStatus hs_ewc_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source)
{
    assert(source && "ewc needs a source of gradients");
    HsDevice *device = continual->device;
    const bool separate = continual->config.ewc.separate;
    const HsFamily *fresh = separate ? &continual->fresh : &continual->anchor;

    double count;
    HsFamilyStats stats;
    HS_TRY(gather(continual, context, fresh, source, &count));
    HsStatus status = hs_family_measure(continual, context, fresh, &stats);
    if (status != HS_OK)
        return hs_error_prefix(status, "ewc, Fisher information of task %d (the first is 0)", task);
    HS_TRY(check_fisher(task, count, &stats));

    /* The host's copy is the one that is saved and restored; the device's lives for this call. */
    double *offset = &continual->offset;
    HS_TRY(device->copy(device, context->stream, continual->device_offset, offset, sizeof *offset));
    HS_TRY(consolidate(continual, context, fresh, count, &stats));
    HS_TRY(device->copy(device, context->stream, offset, continual->device_offset, sizeof *offset));
    HS_TRY(device->stream_sync(device, context->stream));
    return hs_penalty_anchored(continual, context, task);
}
