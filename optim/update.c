/* SPDX-License-Identifier: MIT
 *
 * One optimizer step: statistics of the gradients, then the decisions (kernels/ops/step_rule.h), then the update rule
 * on each span, all on the device.  The host says beforehand what the step may need, and hears afterwards what it did.
 */
#include "optim/update.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optim/offload.h"
#include "optim/rules.h"

/* What the device block begins with, in this order. */
enum { ALIGNMENT_BYTES = 64 };
static const size_t record_bytes[] = { sizeof(HsStepScalars), HS_STEP_ROWS * sizeof(float), sizeof(HsStepInput),
                                       sizeof(HsStepState), sizeof(HsStepOutcome) };
enum { RECORDS = sizeof record_bytes / sizeof record_bytes[0] };

/* A span that a rule updates by separate operations. */
typedef struct HsWholeUpdate {
    const HsSpan *span;
    const HsUpdateRule *rule;
    size_t scratch_bytes;
} HsWholeUpdate;

/* Of the arrays only those of the rules that a run has are ever touched, and cost memory. */
static bool create_lists(HsOptimizer *optimizer, size_t spans)
{
    optimizer->gradients = malloc(spans * sizeof *optimizer->gradients);
    optimizer->list.adamw = malloc(spans * sizeof *optimizer->list.adamw);
    optimizer->list.adamw8bit = malloc(spans * sizeof *optimizer->list.adamw8bit);
    optimizer->list.sgd = malloc(spans * sizeof *optimizer->list.sgd);
    optimizer->wholes = malloc(spans * sizeof *optimizer->wholes);
    return optimizer->gradients && optimizer->list.adamw && optimizer->list.adamw8bit && optimizer->list.sgd &&
           optimizer->wholes;
}

HsStatus hs_optimizer_init(HsOptimizer *optimizer, HsDevice *device, const HsOptimizerConfig *config,
                           const HsSchedule *schedule, const HsScalerConfig *scaler, int span_count)
{
    *optimizer = (HsOptimizer){ .config = *config,
                                .schedule = *schedule,
                                .scaling = *scaler,
                                .span_count = span_count,
                                .device = device,
                                .learning_rate_scale = 1.0 };
    HS_TRY(hs_rule_check_setting("weight_decay", config->weight_decay, INFINITY));
    HS_TRY(hs_rule_check_setting("clip_norm", config->clip_norm, INFINITY));
    HS_TRY(hs_rule_check_setting("average_decay", config->average_decay, 1));
    HS_TRY(hs_rule_get(config->kind)->check(config));
    HS_TRY(hs_scaler_init(scaler, &optimizer->counters));

    /* One device block, each record 64-byte aligned:
     * | scalars | gradient scales | input | state | outcome | sums of squares | counts of non-finite elements | */
    optimizer->first = config->share ? config->share->first : 0;
    optimizer->all_count = config->share ? config->share->all_count : span_count;
    const size_t spans = (size_t)optimizer->all_count, statistics = spans * (sizeof(double) + sizeof(int64_t));
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

    if (create_lists(optimizer, spans > 0 ? spans : 1))
        return HS_OK;
    hs_optimizer_deinit(optimizer);
    return hs_fail(HS_ENOMEM, "optimizer: no memory for the list of %d tensors", span_count);
}

void hs_optimizer_deinit(HsOptimizer *optimizer)
{
    if (optimizer->scalars)
        hs_memory_release(optimizer->device, HS_MEMORY_STATISTICS, optimizer->block_bytes, optimizer->scalars);
    HsArena *const arenas[] = { &optimizer->masters, &optimizer->states };
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++)
        if (arenas[i]->device)
            hs_arena_deinit(arenas[i]);
    hs_offload_destroy(optimizer->offload);
    free(optimizer->gradients);
    free(optimizer->list.adamw);
    free(optimizer->list.adamw8bit);
    free(optimizer->list.sgd);
    free(optimizer->wholes);
    optimizer->offload = NULL;
    optimizer->scalars = NULL;
    optimizer->gradients = NULL;
    optimizer->wholes = NULL;
    optimizer->list = (HsUpdateListArgs){ 0 };
}

/* --- what the rules keep --- */

static HsTensor master_of(const HsSpan *span, HsDtype master)
{
    HsTensor tensor = span->weight;
    tensor.dtype = master;
    return hs_dtype_bytes(master) > hs_dtype_bytes(span->weight.dtype) ? tensor : (HsTensor){ 0 };
}

static HsTensor state_of(const HsOptimizer *optimizer, const HsSpan *span, int index)
{
    const HsRuleState *state = hs_rule_state(&optimizer->config, span, index);
    HsTensor tensor = state->shape(&optimizer->config, span);
    tensor.dtype = state->is_moment ? optimizer->config.moments : state->dtype;
    return tensor;
}

/* Shapes, with the offset that becomes a pointer when the memory is there. */
static void reserve(HsArena *arena, HsTensor *tensor)
{
    if (hs_tensor_present(tensor))
        tensor->data = (void *)(uintptr_t)hs_arena_reserve(arena, hs_tensor_bytes(tensor));
}

static void place(const HsArena *arena, HsTensor *tensor)
{
    if (hs_tensor_present(tensor))
        tensor->data = hs_arena_at(arena, (size_t)(uintptr_t)tensor->data);
}

/* Of one parameter. */
static void reserve_spans(HsOptimizer *optimizer, HsSpan *spans, int count, HsDtype master)
{
    const HsOptimizerConfig *config = &optimizer->config;
    for (int i = 0; i < count; i++) {
        spans[i].master = master_of(&spans[i], master);
        reserve(&optimizer->masters, &spans[i].master);
    }
    for (int s = 0; s < hs_optimizer_state_count(config, spans); s++)
        for (int i = 0; i < count; i++) {
            spans[i].state[s] = state_of(optimizer, &spans[i], s);
            reserve(&optimizer->states, &spans[i].state[s]);
        }
}

HsStatus hs_optimizer_commit(HsOptimizer *optimizer, HsSpan *spans, int count, HsDtype master)
{
    const char *disk = optimizer->config.disk;
    const bool offload = optimizer->config.offload != HS_OFFLOAD_NONE;
    hs_arena_init_at(&optimizer->masters, optimizer->device, HS_MEMORY_MASTERS, offload);
    hs_arena_init_at(&optimizer->states, optimizer->device, HS_MEMORY_MOMENTS, offload);
    if (disk)
        hs_arena_init_in(&optimizer->states, optimizer->device, disk);
    if (disk && optimizer->config.masters_on_disk)
        hs_arena_init_in(&optimizer->masters, optimizer->device, disk);
    if (offload)
        HS_TRY(hs_offload_create(optimizer->device, &optimizer->config, spans, count, &optimizer->offload));
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && spans[end].parameter == spans[i].parameter;)
            end++;
        if (spans[i].group)
            HS_TRY(hs_rule_get(spans[i].group->kind)->check(&optimizer->config));
        reserve_spans(optimizer, spans + i, end - i, master);
        const bool bare = !hs_tensor_present(&spans[i].master) && spans[i].weight.dtype != HS_F32;
        if (offload && bare && optimizer->config.average_decay > 0)
            return hs_fail(HS_ECONFIG,
                           "memory.offload: averages are made on the host from f32, and %s has no master: set "
                           "average.decay to 0, memory.offload to none, or precision.master_weights to true",
                           spans[i].name);
    }
    HsArena *const arenas[] = { &optimizer->masters, &optimizer->states };
    for (size_t i = 0; i < sizeof arenas / sizeof arenas[0]; i++)
        if (arenas[i]->used > 0)
            HS_TRY(hs_arena_commit(arenas[i]));
    for (int i = 0; i < count; i++) {
        place(&optimizer->masters, &spans[i].master);
        for (int s = 0; s < HS_SPAN_STATES; s++)
            place(&optimizer->states, &spans[i].state[s]);
    }
    return HS_OK;
}

void hs_optimizer_view(const HsOptimizer *optimizer, const HsSpan *own, HsDtype master, HsSpan *whole)
{
    whole->master = master_of(whole, master);
    whole->master.data = own ? own->master.data : NULL;
    for (int s = 0; s < hs_optimizer_state_count(&optimizer->config, whole); s++) {
        whole->state[s] = state_of(optimizer, whole, s);
        whole->state[s].data = own ? own->state[s].data : NULL;
    }
}

HsStatus hs_optimizer_round_weights(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    if (optimizer->offload)
        return hs_offload_round_weights(optimizer->offload, context, spans, count);
    for (int i = 0; i < count; i++)
        if (hs_tensor_present(&spans[i].master))
            HS_TRY(hs_op_convert(context, &(HsConvertArgs){ .x = spans[i].master, .y = spans[i].weight }));
    return HS_OK;
}

/* The host's counters and loss scale, which checkpoints and task boundaries change, become the device's. */
static HsStatus publish(const HsOptimizer *optimizer, HsContext *context)
{
    const HsStepState state = {
        .counters = optimizer->counters,
        .attempt = (uint32_t)(optimizer->counters.applied_steps + optimizer->counters.skipped_steps),
    };
    return optimizer->device->copy(optimizer->device, context->stream, optimizer->state, &state, sizeof state);
}

HsStatus hs_optimizer_announce(HsOptimizer *optimizer, HsContext *context, int64_t counted, int64_t reference_counted,
                               HsStepInput *input)
{
    assert(optimizer->in_flight < HS_STEPS_AHEAD);
    *input =
        (HsStepInput){ .first_schedule_step = optimizer->counters.schedule_steps,
                       .counted = { [HS_ROWS_TRAINED] = (float)(counted > 0 ? counted : 1),
                                    [HS_ROWS_REFERENCE] = (float)(reference_counted > 0 ? reference_counted : 1) } };
    /* Each step under way may turn out applied or skipped. */
    for (int i = 0; i <= optimizer->in_flight; i++) {
        const int64_t step = optimizer->counters.schedule_steps + i;
        input->learning_rates[i] = optimizer->learning_rate_scale * hs_schedule_rate(&optimizer->schedule, step);
        input->momenta[i] = hs_muon_momentum(&optimizer->config.muon, &optimizer->schedule, step);
    }
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

HsStatus hs_span_share_values(const HsSpanShare *share, HsStream *stream, double *values, int kinds)
{
    return share->comm ? hs_comm_all_reduce(share->comm, stream, values, (size_t)kinds * (size_t)share->all_count,
                                            HS_F64, HS_COMM_SUM)
                       : HS_OK;
}

/* Each span's own, then those of the others: a sum in which all but one are 0 is exact. */
static HsStatus measure_gradients(const HsOptimizer *optimizer, HsContext *context, const HsGradStatsArgs *own)
{
    HsComm *comm = optimizer->config.share ? optimizer->config.share->comm : NULL;
    const size_t all = (size_t)optimizer->all_count;
    HsDevice *device = optimizer->device;
    if (!comm || context->dry_run)
        return hs_op_grad_stats(context, own);
    HS_TRY(device->fill_zero(device, context->stream, optimizer->sum_squares, all * sizeof *optimizer->sum_squares));
    HS_TRY(device->fill_zero(device, context->stream, optimizer->nonfinite, all * sizeof *optimizer->nonfinite));
    if (own->count > 0)
        HS_TRY(hs_op_grad_stats(context, own));
    HS_TRY(hs_comm_all_reduce(comm, context->stream, optimizer->sum_squares, all, HS_F64, HS_COMM_SUM));
    return hs_comm_all_reduce(comm, context->stream, optimizer->nonfinite, all, HS_I64, HS_COMM_SUM);
}

/* Norm and non-finite elements of the gradients, and what follows from them. */
static HsStatus prepare(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans)
{
    for (int i = 0; i < optimizer->span_count; i++)
        optimizer->gradients[i] = spans[i].gradient;
    const HsGradStatsArgs statistics = { .tensors = optimizer->gradients,
                                         .count = optimizer->span_count,
                                         .sum_squares = optimizer->sum_squares + optimizer->first,
                                         .nonfinite = optimizer->nonfinite + optimizer->first };
    HS_TRY(measure_gradients(optimizer, context, &statistics));
    const HsOptimizerConfig *config = &optimizer->config;
    const HsPrepareStepArgs args = { .sum_squares = optimizer->sum_squares,
                                     .nonfinite = optimizer->nonfinite,
                                     .count = optimizer->all_count,
                                     .input = optimizer->input,
                                     .beta1 = config->beta1,
                                     .beta2 = config->beta2,
                                     .clip_norm = config->clip_norm,
                                     .average_decay = config->average_decay,
                                     .scaling = hs_scaler_rule(&optimizer->scaling),
                                     .state = optimizer->state,
                                     .scalars = optimizer->scalars,
                                     .outcome = optimizer->outcome };
    return hs_op_prepare_step(context, &args);
}

static int by_size(const void *a, const void *b)
{
    const size_t left = ((const HsWholeUpdate *)a)->scratch_bytes, right = ((const HsWholeUpdate *)b)->scratch_bytes;
    return (left < right) - (left > right);
}

static HsStatus update_whole(void *data, HsContext *context, void *scratch, int index)
{
    const HsOptimizer *optimizer = data;
    const HsWholeUpdate *whole = &optimizer->wholes[index];
    const HsUpdateArgs update = hs_rule_update(optimizer, whole->span);
    const HsStatus status = whole->rule->apply(optimizer, context, whole->span, &update, scratch);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "optimizer, tensor %s", whole->span->name);
}

/* Those that stand in the list are updated together, after the others. */
static HsStatus update_spans(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    HsUpdateListArgs *list = &optimizer->list;
    int wholes = 0;
    list->adamw_count = list->adamw8bit_count = list->sgd_count = 0;
    for (int i = 0; i < count; i++) {
        const HsUpdateRule *rule = hs_rule_get(hs_optimizer_kind_of(&optimizer->config, &spans[i]));
        if (rule->append) {
            const HsUpdateArgs update = hs_rule_update(optimizer, &spans[i]);
            rule->append(optimizer, &spans[i], &update, list);
        } else {
            optimizer->wholes[wholes++] =
                (HsWholeUpdate){ &spans[i], rule, rule->scratch_bytes(&optimizer->config, &spans[i]) };
        }
    }
    qsort(optimizer->wholes, (size_t)wholes, sizeof *optimizer->wholes, by_size);
    if (wholes > 0)
        HS_TRY(hs_at_once(context, "matrices", wholes, optimizer->wholes[0].scratch_bytes, update_whole, optimizer));
    const HsStatus status = hs_op_update_list(context, list);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "optimizer");
}

HsStatus hs_optimizer_update(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    if (count != optimizer->span_count)
        return hs_fail(HS_EINVAL, "optimizer: made for %d tensors, called with %d", optimizer->span_count, count);
    HS_TRY(prepare(optimizer, context, spans));
    if (optimizer->offload)
        return hs_offload_update(optimizer->offload, optimizer, context, spans, count);
    return update_spans(optimizer, context, spans, count);
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
    optimizer->counters = outcome->state.counters;
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

/* With an offload, weights that are f32 may be the device's, and all else is the host's. */
static HsStatus begin_average(const HsOptimizer *optimizer, HsContext *context, const HsSpan *span,
                              const HsTensor *average)
{
    const HsTensor *p = hs_tensor_present(&span->master) ? &span->master : &span->weight;
    HsDevice *device = optimizer->device;
    if (p->dtype == HS_F32)
        return device->copy(device, context->stream, average->data, p->data, hs_tensor_bytes(p));
    return hs_op_convert(context, &(HsConvertArgs){ .x = *p, .y = *average });
}

HsStatus hs_optimizer_begin_averages(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    for (int i = 0; i < count; i++) {
        const HsTensor *average = hs_optimizer_average(&optimizer->config, &spans[i]);
        if (average)
            HS_TRY(begin_average(optimizer, context, &spans[i], average));
    }
    return HS_OK;
}

HsStatus hs_optimizer_reset_state(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count)
{
    HsDevice *device = optimizer->device;
    assert(optimizer->in_flight == 0);
    HS_TRY(hs_schedule_free_settle(optimizer, context, spans, count));
    for (int i = 0; i < count; i++) {
        const HsTensor *average = hs_optimizer_average(&optimizer->config, &spans[i]);
        for (int s = 0; s < hs_optimizer_state_count(&optimizer->config, &spans[i]); s++) {
            const HsTensor *state = &spans[i].state[s];
            if (state == average) /* the first step makes it the parameter */
                continue;
            if (optimizer->config.disk) /* the host's alone */
                memset(state->data, 0, hs_tensor_bytes(state));
            else
                HS_TRY(device->fill_zero(device, context->stream, state->data, hs_tensor_bytes(state)));
        }
    }
    optimizer->counters.moment_steps = 0;
    optimizer->counters.largest_rate = optimizer->counters.rate_squares = 0;
    return HS_OK;
}
