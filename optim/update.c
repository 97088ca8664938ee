/* SPDX-License-Identifier: MIT
 *
 * One optimizer step: statistics of the gradients, then the decisions (kernels/step_rule.h), then the update rule on
 * each span, all on the device.  The host says beforehand what the step may need, and hears afterwards what it did.
 */
#include "optim/update.h"

#include <assert.h>
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
        .tail = span->tail,
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
        .tail = span->tail,
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

/* What the device block begins with, in this order. */
enum { ALIGNMENT_BYTES = 64 };
static const size_t record_bytes[] = { sizeof(HsStepScalars), 2 * sizeof(float), sizeof(HsStepInput),
                                       sizeof(HsStepState), sizeof(HsStepOutcome) };
enum { RECORDS = sizeof record_bytes / sizeof record_bytes[0] };

HsStatus hs_optimizer_init(HsOptimizer *optimizer, HsDevice *device, const HsOptimizerConfig *config,
                           const HsSchedule *schedule, const HsScalerConfig *scaler, int span_count)
{
    *optimizer = (HsOptimizer){
        .config = *config, .schedule = *schedule, .span_count = span_count, .device = device, .learning_rate_scale = 1.0
    };
    HS_TRY(check_config(config));
    HS_TRY(hs_scaler_init(&optimizer->scaler, scaler));

    /* One device block, each record 64-byte aligned:
     * | scalars | gradient scales | input | state | outcome | sums of squares | counts of non-finite elements | */
    const size_t spans = (size_t)span_count, statistics = spans * (sizeof(double) + sizeof(int64_t));
    size_t offsets[RECORDS + 1] = { 0 };
    for (int i = 0; i < RECORDS; i++)
        offsets[i + 1] = offsets[i] + (record_bytes[i] + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
    void *block = NULL;
    optimizer->block_bytes = offsets[RECORDS] + statistics;
    HS_TRY(hs_memory_alloc(device, HS_MEMORY_STATISTICS, optimizer->block_bytes, &block));
    unsigned char *bytes = block;
    optimizer->scalars = block;
    optimizer->gradient_scales = (float *)(bytes + offsets[1]);
    optimizer->input = (HsStepInput *)(bytes + offsets[2]);
    optimizer->state = (HsStepState *)(bytes + offsets[3]);
    optimizer->outcome = (HsStepOutcome *)(bytes + offsets[4]);
    optimizer->sum_squares = (double *)(bytes + offsets[RECORDS]);
    optimizer->nonfinite = (int64_t *)(optimizer->sum_squares + spans);

    optimizer->gradients = malloc((spans > 0 ? spans : 1) * sizeof *optimizer->gradients);
    if (!optimizer->gradients) {
        hs_optimizer_deinit(optimizer);
        return hs_fail(HS_ENOMEM, "optimizer: no memory for the list of %d tensors", span_count);
    }
    return HS_OK;
}

void hs_optimizer_deinit(HsOptimizer *optimizer)
{
    if (optimizer->scalars)
        hs_memory_release(optimizer->device, HS_MEMORY_STATISTICS, optimizer->block_bytes, optimizer->scalars);
    free(optimizer->gradients);
    optimizer->scalars = NULL;
    optimizer->gradients = NULL;
}

/* The host's counters and loss scale, which checkpoints and task boundaries change, become the device's. */
static HsStatus publish(const HsOptimizer *optimizer, HsContext *context)
{
    const HsStepState state = {
        .applied_steps = optimizer->applied_steps,
        .skipped_steps = optimizer->skipped_steps,
        .schedule_steps = optimizer->schedule_steps,
        .moment_steps = optimizer->moment_steps,
        .scaler_tracker = optimizer->scaler.tracker,
        .scaler_hysteresis = optimizer->scaler.hysteresis_left,
        .loss_scale = optimizer->scaler.scale,
        .attempt = (uint32_t)(optimizer->applied_steps + optimizer->skipped_steps),
    };
    return optimizer->device->copy(optimizer->device, context->stream, optimizer->state, &state, sizeof state);
}

HsStatus hs_optimizer_announce(HsOptimizer *optimizer, HsContext *context, int64_t counted, int64_t reference_counted,
                               HsStepInput *input)
{
    assert(optimizer->in_flight < HS_STEPS_AHEAD);
    *input = (HsStepInput){ .first_schedule_step = optimizer->schedule_steps,
                            .counted = (float)(counted > 0 ? counted : 1),
                            .reference_counted = (float)(reference_counted > 0 ? reference_counted : 1) };
    /* Each step under way may turn out applied or skipped. */
    for (int i = 0; i <= optimizer->in_flight; i++)
        input->learning_rates[i] =
            optimizer->learning_rate_scale * hs_schedule_rate(&optimizer->schedule, optimizer->schedule_steps + i);
    if (optimizer->in_flight++ > 0)
        return HS_OK;
    return publish(optimizer, context);
}

HsStatus hs_optimizer_begin(HsOptimizer *optimizer, HsContext *context)
{
    const HsBeginStepArgs args = { .input = optimizer->input,
                                   .state = optimizer->state,
                                   .gradient_scales = optimizer->gradient_scales };
    return hs_op_begin_step(context, &args);
}

/* Norm and non-finite elements of the gradients, and what follows from them. */
static HsStatus prepare(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans)
{
    for (int i = 0; i < optimizer->span_count; i++)
        optimizer->gradients[i] = spans[i].gradient;
    const HsGradStatsArgs statistics = { .tensors = optimizer->gradients,
                                         .count = optimizer->span_count,
                                         .sum_squares = optimizer->sum_squares,
                                         .nonfinite = optimizer->nonfinite };
    HS_TRY(hs_op_grad_stats(context, &statistics));
    const HsOptimizerConfig *config = &optimizer->config;
    const HsPrepareStepArgs args = { .sum_squares = optimizer->sum_squares,
                                     .nonfinite = optimizer->nonfinite,
                                     .count = optimizer->span_count,
                                     .input = optimizer->input,
                                     .beta1 = config->beta1,
                                     .beta2 = config->beta2,
                                     .clip_norm = config->clip_norm,
                                     .scaling = hs_scaler_rule(&optimizer->scaler.config),
                                     .state = optimizer->state,
                                     .scalars = optimizer->scalars,
                                     .outcome = optimizer->outcome };
    return hs_op_prepare_step(context, &args);
}

HsStatus hs_optimizer_update(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    if (count != optimizer->span_count)
        return hs_fail(HS_EINVAL, "optimizer: made for %d tensors, called with %d", optimizer->span_count, count);
    HS_TRY(prepare(optimizer, context, spans));
    for (int i = 0; i < count; i++) {
        const HsRng rng = { .seed = optimizer->config.seed,
                            .site = (uint32_t)i,
                            .step_counter = &optimizer->state->update_step };
        HsStatus status = rules[optimizer->config.kind].apply(optimizer, context, &spans[i], &rng);
        if (status != HS_OK)
            return hs_error_prefix(status, "optimizer, tensor %s", spans[i].name);
    }
    return HS_OK;
}

void hs_optimizer_collect(HsOptimizer *optimizer, const HsStepOutcome *outcome, HsStepReport *report)
{
    assert(optimizer->in_flight > 0);
    optimizer->in_flight--;
    *report = (HsStepReport){
        .verdict = (HsScalerVerdict)outcome->verdict,
        .gradient_norm = outcome->gradient_norm,
        .clip_coefficient = outcome->clip_coefficient,
        .learning_rate = outcome->learning_rate,
        .loss_scale = outcome->loss_scale,
        .first_nonfinite = (int)outcome->first_nonfinite,
        .nonfinite_elements = outcome->nonfinite_elements,
    };
    optimizer->applied_steps = outcome->state.applied_steps;
    optimizer->skipped_steps = outcome->state.skipped_steps;
    optimizer->schedule_steps = outcome->state.schedule_steps;
    optimizer->moment_steps = outcome->state.moment_steps;
    optimizer->scaler.scale = outcome->state.loss_scale;
    optimizer->scaler.tracker = outcome->state.scaler_tracker;
    optimizer->scaler.hysteresis_left = outcome->state.scaler_hysteresis;
}

HsStatus hs_optimizer_step(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count,
                           HsStepReport *report)
{
    if (count != optimizer->span_count)
        return hs_fail(HS_EINVAL, "optimizer: made for %d tensors, called with %d", optimizer->span_count, count);
    HsDevice *device = optimizer->device;
    HsStepInput input;
    HsStepOutcome outcome;
    HS_TRY(hs_optimizer_announce(optimizer, context, 1, 1, &input));
    HS_TRY(device->copy(device, context->stream, optimizer->input, &input, sizeof input));
    HS_TRY(hs_optimizer_update(optimizer, context, spans, count));
    HS_TRY(device->copy(device, context->stream, &outcome, optimizer->outcome, sizeof outcome));
    HS_TRY(device->stream_sync(device, context->stream));
    hs_optimizer_collect(optimizer, &outcome, report);
    return HS_OK;
}

HsStatus hs_optimizer_reset_state(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    HsDevice *device = optimizer->device;
    assert(optimizer->in_flight == 0);
    for (int i = 0; i < count; i++)
        for (int s = 0; s < hs_optimizer_state_count(&optimizer->config); s++)
            HS_TRY(device->fill_zero(device, context->stream, spans[i].state[s].data,
                                     hs_tensor_bytes(&spans[i].state[s])));
    optimizer->moment_steps = 0;
    return HS_OK;
}
