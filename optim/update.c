/* SPDX-License-Identifier: MIT
 *
 * One optimizer step; the order is in update.h and is the order of the lines of hs_optimizer_step.
 *
 * Gradients arrive multiplied by the loss scale S and are never rewritten to take it out: the update rule multiplies
 * each element once by  gradient_multiplier = clip coefficient / S,  so unscaling costs no pass over memory and adds
 * no rounding of its own.  S is a power of two in practice, so the division is exact.
 */
#include "optim/update.h"

#include <math.h>
#include <stdlib.h>

/* A rule's row: its names for the state, and how it is called on one span. */
typedef struct RuleRow {
    const char *state_names[2];
    int (*state_count)(const HsOptimizerConfig *config);
    HsStatus (*apply)(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsRng *rng);
} RuleRow;

static int adamw_state_count(const HsOptimizerConfig *config)
{
    (void)config;
    return 2;
}

static int sgd_state_count(const HsOptimizerConfig *config)
{
    return config->momentum != 0 ? 1 : 0;
}

/* Biases, norm weights and other vectors are not decayed: the span says so. */
static float weight_decay_of(const HsOptimizer *optimizer, const HsSpan *span)
{
    return span->decay ? (float)optimizer->config.weight_decay : 0.0f;
}

static HsStatus adamw_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsRng *rng)
{
    const HsAdamWArgs args = {
        .scalars = optimizer->scalars,
        .beta1 = (float)optimizer->config.beta1,
        .beta2 = (float)optimizer->config.beta2,
        .epsilon = (float)optimizer->config.epsilon,
        .weight_decay = weight_decay_of(optimizer, span),
        .learning_rate_scale = span->learning_rate_scale,
        .rng = *rng,
        .grad = span->gradient,
        .m = span->state[0],
        .v = span->state[1],
        .master = span->master,
        .weight = span->weight,
        .protection = span->protection,
    };
    return hs_op_adamw(context, &args);
}

static HsStatus sgd_apply(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span, const HsRng *rng)
{
    const HsSgdArgs args = {
        .scalars = optimizer->scalars,
        .momentum = (float)optimizer->config.momentum,
        .weight_decay = weight_decay_of(optimizer, span),
        .learning_rate_scale = span->learning_rate_scale,
        .nesterov = optimizer->config.nesterov,
        .rng = *rng,
        .grad = span->gradient,
        .buffer = span->state[0],
        .master = span->master,
        .weight = span->weight,
        .protection = span->protection,
    };
    return hs_op_sgd(context, &args);
}

static const RuleRow rules[] = {
    [HS_OPTIMIZER_ADAMW] = { { "m", "v" }, adamw_state_count, adamw_apply },
    [HS_OPTIMIZER_SGD] = { { "momentum", NULL }, sgd_state_count, sgd_apply },
};

int hs_optimizer_state_count(const HsOptimizerConfig *config)
{
    return rules[config->kind].state_count(config);
}

const char *hs_optimizer_state_name(const HsOptimizerConfig *config, int index)
{
    return rules[config->kind].state_names[index];
}

static HsStatus check_config(const HsOptimizerConfig *config)
{
    const struct {
        const char *name;
        double value, limit; /* need 0 <= value < limit */
    } bounds[] = {
        { "beta1", config->beta1, 1 },
        { "beta2", config->beta2, 1 },
        { "epsilon", config->epsilon, INFINITY },
        { "momentum", config->momentum, 1 },
        { "weight_decay", config->weight_decay, INFINITY },
        { "clip_norm", config->clip_norm, INFINITY },
    };
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++)
        if (!(bounds[i].value >= 0 && bounds[i].value < bounds[i].limit))
            return hs_fail(HS_ECONFIG, "optimizer: %s must be at least 0 and less than %g (got %g)", bounds[i].name,
                           bounds[i].limit, bounds[i].value);
    return HS_OK;
}

/* Host memory: the list of gradient tensors, then room for the statistics that come back from the device. */
static double *host_sum_squares(const HsOptimizer *optimizer)
{
    return (double *)(optimizer->gradients + optimizer->span_count);
}

static int64_t *host_nonfinite(const HsOptimizer *optimizer)
{
    return (int64_t *)(host_sum_squares(optimizer) + optimizer->span_count);
}

HsStatus hs_optimizer_init(HsOptimizer *optimizer, HsDevice *device, const HsOptimizerConfig *config,
                           const HsSchedule *schedule, const HsScalerConfig *scaler, int span_count)
{
    *optimizer = (HsOptimizer){
        .config = *config, .schedule = *schedule, .span_count = span_count, .device = device, .learning_rate_scale = 1.0
    };
    HS_TRY(check_config(config));
    HS_TRY(hs_scaler_init(&optimizer->scaler, scaler));

    /* One device block: | scalars | sums of squares | counts of non-finite elements |, each 64-byte aligned or packed.
     */
    const size_t scalars_bytes = 64, spans = (size_t)span_count;
    void *block = NULL;
    HsStatus status = device->alloc(device, scalars_bytes + spans * (sizeof(double) + sizeof(int64_t)), &block);
    if (status != HS_OK)
        return hs_error_prefix(status, "optimizer scalars");
    optimizer->scalars = block;
    optimizer->sum_squares = (double *)((unsigned char *)block + scalars_bytes);
    optimizer->nonfinite = (int64_t *)(optimizer->sum_squares + spans);

    const size_t host_bytes = spans * (sizeof(HsTensor) + sizeof(double) + sizeof(int64_t));
    optimizer->gradients = malloc(host_bytes > 0 ? host_bytes : 1);
    if (!optimizer->gradients) {
        hs_optimizer_deinit(optimizer);
        return hs_fail(HS_ENOMEM, "optimizer: %zu bytes for the statistics of %d tensors", host_bytes, span_count);
    }
    return HS_OK;
}

void hs_optimizer_deinit(HsOptimizer *optimizer)
{
    if (optimizer->scalars)
        optimizer->device->release(optimizer->device, optimizer->scalars);
    free(optimizer->gradients);
    optimizer->scalars = NULL;
    optimizer->sum_squares = NULL;
    optimizer->nonfinite = NULL;
    optimizer->gradients = NULL;
}

/* Norm and non-finite elements of the gradients, into the report.  The sum is taken in span order on the host, so it
 * does not depend on how a device schedules its work. */
static HsStatus measure(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, HsStepReport *report)
{
    HsDevice *device = optimizer->device;
    const size_t count = (size_t)optimizer->span_count;
    for (size_t i = 0; i < count; i++)
        optimizer->gradients[i] = spans[i].gradient;
    const HsGradStatsArgs args = { .tensors = optimizer->gradients,
                                   .count = optimizer->span_count,
                                   .sum_squares = optimizer->sum_squares,
                                   .nonfinite = optimizer->nonfinite };
    HS_TRY(hs_op_grad_stats(context, &args));
    /* The step's only wait for the device: whether to apply it is the host's decision. */
    double *sums = host_sum_squares(optimizer);
    int64_t *nonfinite = host_nonfinite(optimizer);
    HS_TRY(device->copy(device, context->stream, sums, optimizer->sum_squares, count * sizeof *sums));
    HS_TRY(device->copy(device, context->stream, nonfinite, optimizer->nonfinite, count * sizeof *nonfinite));
    HS_TRY(device->stream_sync(device, context->stream));

    double total = 0;
    report->first_nonfinite = -1;
    report->nonfinite_elements = 0;
    for (int i = 0; i < optimizer->span_count; i++) {
        total += sums[i];
        report->nonfinite_elements += nonfinite[i];
        if (nonfinite[i] > 0 && report->first_nonfinite < 0)
            report->first_nonfinite = i;
    }
    report->gradient_norm = report->nonfinite_elements > 0 ? INFINITY : sqrt(total) / (double)report->loss_scale;
    return HS_OK;
}

HsStatus hs_optimizer_step(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count,
                           HsStepReport *report)
{
    if (count != optimizer->span_count)
        return hs_fail(HS_EINVAL, "optimizer: made for %d tensors, called with %d", optimizer->span_count, count);
    const HsOptimizerConfig *config = &optimizer->config;
    HsDevice *device = optimizer->device;

    *report = (HsStepReport){ .loss_scale = optimizer->scaler.scale };
    HS_TRY(measure(optimizer, context, spans, report));
    report->verdict = hs_scaler_update(&optimizer->scaler, report->nonfinite_elements > 0);
    const bool apply = report->verdict == HS_SCALER_APPLY;

    /* The norm is that of the true gradients, so the limit means the same at every loss scale. */
    report->clip_coefficient = 1.0;
    if (config->clip_norm > 0 && apply)
        report->clip_coefficient = fmin(1.0, config->clip_norm / (report->gradient_norm + 1e-6));
    /* Counted in applied steps: a skipped one advances neither the schedule nor the bias correction. */
    report->learning_rate =
        optimizer->learning_rate_scale * hs_schedule_rate(&optimizer->schedule, optimizer->schedule_steps);
    const double step = (double)(optimizer->moment_steps + 1);
    const HsStepScalars scalars = {
        .learning_rate = (float)report->learning_rate,
        .gradient_multiplier = (float)(report->clip_coefficient / (double)report->loss_scale),
        .bias_correction1 = (float)(1.0 - pow(config->beta1, step)),
        .bias_correction2 = (float)(1.0 - pow(config->beta2, step)),
        .unscale = (float)(1.0 / (double)report->loss_scale),
        .skip = !apply,
    };
    HS_TRY(device->copy(device, context->stream, optimizer->scalars, &scalars, sizeof scalars));

    for (int i = 0; i < count; i++) {
        const HsRng rng = { .seed = config->seed, .step = (uint32_t)optimizer->applied_steps, .site = (uint32_t)i };
        HsStatus status = rules[config->kind].apply(optimizer, context, &spans[i], &rng);
        if (status != HS_OK)
            return hs_error_prefix(status, "optimizer, tensor %s", spans[i].name);
    }
    if (!apply) {
        optimizer->skipped_steps++;
        return HS_OK;
    }
    optimizer->applied_steps++;
    optimizer->schedule_steps++;
    optimizer->moment_steps++;
    return HS_OK;
}

HsStatus hs_optimizer_reset_state(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    HsDevice *device = optimizer->device;
    for (int i = 0; i < count; i++)
        for (int s = 0; s < hs_optimizer_state_count(&optimizer->config); s++)
            HS_TRY(device->fill_zero(device, context->stream, spans[i].state[s].data,
                                     hs_tensor_bytes(&spans[i].state[s])));
    optimizer->moment_steps = 0;
    return HS_OK;
}
