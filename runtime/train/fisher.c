/* SPDX-License-Identifier: MIT
 *
 * The estimators of fisher.h.  Each pass leaves  S sum_{n in group} g_n  in the spans, S the loss scale; what the
 * caller then adds is  weight (multiplier gradient)^2  with multiplier 1/S, so that squares are of unscaled gradients.
 * Martens 2020 ("New insights and perspectives on the natural gradient method") distinguishes the
 * model's Fisher from the "empirical" one; Kunstner et al. 2019 show what the second loses.
 *
 * Everything is a function of (seed, task, weights): windows are indices of the first epoch, labels are drawn with a
 * key made of seed and task, by group and row.  A pass that overflowed and is done again draws the same labels.
 */
#include "runtime/train/fisher.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/exchange/reduce.h"

/* The draws' purpose, in the last counter word as elsewhere. */
enum { SITE_FISHER = 0x46495348 };
/* A sum of gradients that overflows here is no matter of scaling any more. */
static const float smallest_loss_scale = 0x1p-10f;

/* --- which sequences --- */

static int64_t round_up(int64_t count, int64_t multiple)
{
    return (count + multiple - 1) / multiple * multiple;
}

/* Of a stream, what has passed. */
static int64_t available(const HsFisher *fisher)
{
    return fisher->stream ? fisher->stream_end : hs_dataset_windows(fisher->dataset);
}

/* An epoch has no more than its windows: beyond them nothing is taken twice. */
static int64_t sequence_count(const HsFisher *fisher)
{
    int64_t windows = available(fisher);
    int64_t wanted = fisher->samples < windows ? round_up(fisher->samples, fisher->group) : windows;
    return wanted < windows ? wanted : windows;
}

static int64_t group_count(const HsFisher *fisher)
{
    return round_up(sequence_count(fisher), fisher->group) / fisher->group;
}

/* Sample index k * windows / count, without overflow: whole steps, then the rest.  Of a stream the latest ones. */
static int64_t sample_index(const HsFisher *fisher, int64_t sequence)
{
    int64_t windows = available(fisher), count = sequence_count(fisher);
    if (fisher->stream)
        return windows - count + sequence;
    return sequence * (windows / count) + sequence * (windows % count) / count;
}

static HsStatus load_sample(const HsFisher *fisher, int64_t sequence, int32_t *tokens, int32_t *targets)
{
    const int64_t index = sample_index(fisher, sequence);
    if (fisher->stream)
        return fisher->stream->sample(fisher->stream->user, index, tokens, targets);
    return hs_dataset_sample(fisher->dataset, index, tokens, targets);
}

static void ignore(int32_t *targets, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        targets[i] = -1;
}

static int64_t count_targets(const int32_t *targets, int64_t count)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < count; i++)
        counted += targets[i] >= 0;
    return counted;
}

/* A group is full: rows beyond the last sequence repeat it with every target ignored. */
static int64_t load_group(HsFisher *fisher, int64_t group)
{
    int64_t length = fisher->program->sequence_length, sequences = sequence_count(fisher);
    for (int64_t row = 0; row < fisher->group; row++) {
        int64_t sequence = group * fisher->group + row;
        int32_t *targets = fisher->targets + row * length;
        HS_TRY(load_sample(fisher, sequence < sequences ? sequence : sequences - 1, fisher->tokens + row * length,
                           targets));
        if (sequence >= sequences)
            ignore(targets, length);
    }
    return count_targets(fisher->targets, fisher->group * length);
}

/* One sequence in every row; its true targets go to `labels`, and so far no row has any. */
static int64_t load_sequence(HsFisher *fisher, int64_t sequence)
{
    const HsProgram *program = fisher->program;
    int64_t length = program->sequence_length;
    HS_TRY(load_sample(fisher, sequence, fisher->tokens, fisher->labels));
    for (int64_t row = 1; row < program->batch; row++)
        memcpy(fisher->tokens + row * length, fisher->tokens, (size_t)length * sizeof *fisher->tokens);
    ignore(fisher->targets, program->batch * length);
    return count_targets(fisher->labels, length);
}

/* --- one pass --- */

static HsStatus clear_gradients(const HsFisher *fisher, bool excluded_only)
{
    HsDevice *device = fisher->context->device;
    for (int i = 0; i < fisher->span_count; i++) {
        const HsSpan *span = &fisher->spans[i];
        if (span->excluded || !excluded_only)
            HS_TRY(device->fill_zero(device, fisher->context->stream, span->gradient.data,
                                     hs_tensor_bytes(&span->gradient)));
    }
    return HS_OK;
}

/* *span: the first one with a non-finite gradient that would be squared, -1 if there is none. */
static HsStatus find_nonfinite(HsFisher *fisher, int *span)
{
    HsDevice *device = fisher->context->device;
    const HsGradStatsArgs args = { .tensors = fisher->gradients,
                                   .count = fisher->span_count,
                                   .sum_squares = fisher->sum_squares,
                                   .nonfinite = fisher->nonfinite };
    HS_TRY(hs_op_grad_stats(fisher->context, &args));
    HS_TRY(device->copy(device, fisher->context->stream, fisher->host_nonfinite, fisher->nonfinite,
                        (size_t)fisher->span_count * sizeof *fisher->nonfinite));
    HS_TRY(device->stream_sync(device, fisher->context->stream));
    *span = -1;
    for (int i = fisher->span_count - 1; i >= 0; i--) {
        if (fisher->host_nonfinite[i] > 0 && !fisher->spans[i].excluded)
            *span = i;
    }
    return HS_OK;
}

/* Forward and backward of the first `rows` that are loaded, as many at a time as the program takes. */
static HsStatus probe_rows(HsFisher *fisher, bool sample_labels, int64_t rows)
{
    HsStatus status = HS_OK;
    fisher->program->factors = fisher->factors ? &fisher->pass : NULL;
    for (int64_t row = 0; row < rows && status == HS_OK; row += fisher->program->batch) {
        const int64_t offset = row * fisher->program->sequence_length;
        double loss_sum;
        status = hs_program_probe(fisher->program, fisher->context, fisher->tokens + offset, fisher->targets + offset,
                                  sample_labels, fisher->label_seed, (uint32_t)fisher->next, offset, fisher->loss_scale,
                                  &loss_sum, NULL);
    }
    fisher->program->factors = NULL;
    fisher->pass_rows = (double)(rows * fisher->program->sequence_length);
    return status;
}

/* The same again with half the loss scale until every gradient is finite; with factors, which hold what overflowed, it
 * is the caller's to begin anew. */
static HsStatus probe(HsFisher *fisher, bool sample_labels, int64_t rows)
{
    for (;;) {
        int span;
        HS_TRY(probe_rows(fisher, sample_labels, rows));
        HS_TRY(find_nonfinite(fisher, &span));
        if (span < 0)
            return clear_gradients(fisher, true);
        HS_TRY(clear_gradients(fisher, false));
        if (fisher->loss_scale <= smallest_loss_scale)
            return hs_fail(HS_ENUMERIC,
                           "task %" PRIu32 ": the Fisher's gradient of %s is not finite even at loss scale %g; "
                           "use precision.mode bf16 or fp32, or look for non-finite weights with trainer inspect",
                           fisher->task, fisher->spans[span].name, (double)fisher->loss_scale);
        fisher->loss_scale /= 2;
        fisher->overflowed = fisher->factors != NULL;
        if (fisher->overflowed)
            return HS_OK;
    }
}

static int64_t passes_of_groups(const HsFisher *fisher, int64_t vocabulary)
{
    (void)vocabulary;
    return group_count(fisher) * (fisher->group / fisher->program->batch);
}

static int64_t passes_of_sequences(const HsFisher *fisher, int64_t vocabulary)
{
    (void)vocabulary;
    return sequence_count(fisher);
}

static int64_t passes_of_labels(const HsFisher *fisher, int64_t vocabulary)
{
    return sequence_count(fisher) * fisher->program->sequence_length * vocabulary;
}

static HsStatus next_sampled(HsFisher *fisher, HsFisherSample *sample);
static HsStatus next_exact(HsFisher *fisher, HsFisherSample *sample);
static HsStatus next_empirical(HsFisher *fisher, HsFisherSample *sample);
static HsStatus next_batched(HsFisher *fisher, HsFisherSample *sample);

/* One row per estimator; its index is HsFisherEstimator. */
static const struct {
    const char *name;
    HsStatus (*next)(HsFisher *fisher, HsFisherSample *sample);
    int64_t (*passes)(const HsFisher *fisher, int64_t vocabulary);
    int64_t (*items)(const HsFisher *fisher); /* that are divided among virtual ranks */
} estimators[] = {
    [HS_FISHER_SAMPLED] = { "sampled", next_sampled, passes_of_groups, group_count },
    [HS_FISHER_EXACT] = { "exact", next_exact, passes_of_labels, sequence_count },
    [HS_FISHER_EMPIRICAL] = { "empirical", next_empirical, passes_of_sequences, sequence_count },
    [HS_FISHER_BATCHED] = { "batched", next_batched, passes_of_groups, group_count },
};

/* Items of a part: [first of `part`, first of the next). */
static int64_t first_item(const HsFisher *fisher, int64_t part)
{
    const int64_t items = estimators[fisher->estimator].items(fisher), count = fisher->ranks.count;
    const int64_t index = fisher->ranks.first + part;
    return index * (items / count) + index * (items % count) / count;
}

static void begin_part(HsFisher *fisher, int64_t part)
{
    fisher->part = part;
    fisher->next_position = fisher->next_label = 0;
    fisher->next = part < fisher->ranks.own ? first_item(fisher, part) : INT64_MAX;
    if (!fisher->factors)
        fisher->loss_scale = fisher->first_loss_scale;
}

static void begin_again(HsFisher *fisher)
{
    fisher->overflowed = false;
    fisher->counted = 0;
    begin_part(fisher, 0);
}

/* Something is left of the part. */
static bool more(const HsFisher *fisher)
{
    return fisher->part < fisher->ranks.own && fisher->next < first_item(fisher, fisher->part + 1);
}

HsStatus hs_fisher_sum_part(void *user, double *numbers, int count)
{
    HsFisher *fisher = user;
    const HsVirtualRanks *ranks = &fisher->ranks;
    HsStream *stream = fisher->context->stream;
    assert(count <= HS_FISHER_NUMBERS);
    for (int i = 0; i < count; i++) {
        fisher->numbers[(ranks->first + fisher->part) * HS_FISHER_NUMBERS + i] = numbers[i];
        numbers[i] = 0;
    }
    HS_TRY(hs_partial_sums_add(&fisher->partial, fisher->context, fisher->part));
    begin_part(fisher, fisher->part + 1);
    if (fisher->part < ranks->own)
        return HS_OK;
    HS_TRY(hs_reduce_tensors(fisher->comm, stream, fisher->sums, fisher->sum_count));
    HS_TRY(hs_share_entries(fisher->comm, stream, fisher->numbers, (size_t)ranks->count * HS_FISHER_NUMBERS));
    for (int64_t part = 0; part < ranks->count; part++)
        for (int i = 0; i < count; i++)
            numbers[i] += fisher->numbers[part * HS_FISHER_NUMBERS + i];
    return HS_OK;
}

static HsStatus deliver(HsFisher *fisher, HsFisherSample *sample, double weight, double count)
{
    if (fisher->overflowed) {
        begin_again(fisher);
        *sample = (HsFisherSample){ .restart = true };
        return HS_OK;
    }
    fisher->counted += count;
    *sample = (HsFisherSample){
        .multiplier = 1.0f / fisher->loss_scale,
        .weight = (float)weight,
        .count = count,
        .rows = fisher->pass_rows,
    };
    return HS_OK;
}

/* Where one process had to halve the loss scale further than others, these begin again with its. */
static HsStatus agree_on_scale(HsFisher *fisher, bool *restart)
{
    *restart = false;
    while (fisher->comm->size > 1 && fisher->factors) {
        const int64_t halvings = (int64_t)lrintf(log2f(fisher->first_loss_scale / fisher->loss_scale));
        int64_t extremes[] = { halvings, -halvings };
        HS_TRY(hs_comm_all_reduce(fisher->comm, fisher->context->stream, extremes, 2, HS_I64, HS_COMM_MAX));
        if (extremes[0] == -extremes[1])
            return HS_OK;
        if (halvings < extremes[0]) {
            fisher->loss_scale = ldexpf(fisher->first_loss_scale, -(int)extremes[0]);
            *restart = true;
            return HS_OK;
        }
    }
    return HS_OK;
}

/* A task with all targets ignored would have a penalty of 0, unnoticed. */
static HsStatus finish(HsFisher *fisher, HsFisherSample *sample)
{
    const bool last = fisher->part == fisher->ranks.own - 1;
    if (fisher->ranks.count > 1 && fisher->part < fisher->ranks.own) {
        bool restart = false;
        if (last)
            HS_TRY(agree_on_scale(fisher, &restart));
        if (restart)
            begin_again(fisher);
        *sample = (HsFisherSample){ .part = !restart, .restart = restart };
        return HS_OK;
    }
    *sample = (HsFisherSample){ .end = true };
    HS_TRY(hs_comm_all_reduce(fisher->comm, fisher->context->stream, &fisher->counted, 1, HS_F64, HS_COMM_SUM));
    if (fisher->counted > 0)
        return HS_OK;
    return hs_fail(HS_ECONFIG,
                   "task %" PRIu32 ": none of the %" PRId64 " sequences taken for its Fisher has a target that "
                   "counts; raise ewc.fisher_samples",
                   fisher->task, sequence_count(fisher));
}

/* --- the estimators --- */

static HsStatus next_sampled(HsFisher *fisher, HsFisherSample *sample)
{
    for (; more(fisher); fisher->next++) {
        int64_t counted = load_group(fisher, fisher->next);
        if (counted == 0)
            continue;
        HS_TRY(probe(fisher, true, fisher->group));
        fisher->next++;
        return deliver(fisher, sample, 1.0, (double)counted);
    }
    return finish(fisher, sample);
}

/* (1/n sum g)^2 = 1/n^2 (sum g)^2, and each group counts once in the mean. */
static HsStatus next_batched(HsFisher *fisher, HsFisherSample *sample)
{
    for (; more(fisher); fisher->next++) {
        double counted = (double)load_group(fisher, fisher->next);
        if (counted == 0)
            continue;
        HS_TRY(probe(fisher, false, fisher->group));
        fisher->next++;
        return deliver(fisher, sample, 1.0 / (counted * counted), 1.0);
    }
    return finish(fisher, sample);
}

static HsStatus next_empirical(HsFisher *fisher, HsFisherSample *sample)
{
    for (; more(fisher); fisher->next++) {
        int64_t counted = load_sequence(fisher, fisher->next);
        if (counted == 0)
            continue;
        memcpy(fisher->targets, fisher->labels, (size_t)fisher->program->sequence_length * sizeof *fisher->targets);
        HS_TRY(probe(fisher, false, fisher->program->batch));
        fisher->next++;
        return deliver(fisher, sample, 1.0, (double)counted);
    }
    return finish(fisher, sample);
}

/* One label of one token; its probability comes out of the same pass, p(v) = exp(-loss). */
static HsStatus probe_label(HsFisher *fisher, HsFisherSample *sample)
{
    int64_t position = fisher->next_position;
    fisher->targets[position] = (int32_t)fisher->next_label;
    HS_TRY(probe(fisher, false, fisher->program->batch));
    bool last = ++fisher->next_label == fisher->program->model->vocabulary;
    if (last) {
        fisher->next_label = 0;
        fisher->next_position++;
    }
    return deliver(fisher, sample, exp(-hs_program_row_loss(fisher->program, position)), last ? 1.0 : 0.0);
}

static HsStatus next_exact(HsFisher *fisher, HsFisherSample *sample)
{
    for (; more(fisher); fisher->next++) {
        load_sequence(fisher, fisher->next);
        for (; fisher->next_position < fisher->program->sequence_length; fisher->next_position++) {
            if (fisher->labels[fisher->next_position] >= 0)
                return probe_label(fisher, sample);
        }
        fisher->next_position = 0;
    }
    return finish(fisher, sample);
}

HsStatus hs_fisher_estimator_find(const char *name, HsFisherEstimator *estimator)
{
    for (size_t i = 0; i < sizeof estimators / sizeof estimators[0]; i++) {
        if (strcmp(estimators[i].name, name) == 0) {
            *estimator = (HsFisherEstimator)i;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "ewc.estimator: there is no estimator %s; take sampled, exact, empirical or batched",
                   name);
}

HsStatus hs_fisher_next(void *fisher, HsFisherSample *sample)
{
    HsFisher *source = fisher;
    if (!source->prepared && source->prepare)
        HS_TRY(source->prepare(source->user));
    source->prepared = true;
    return estimators[source->estimator].next(source, sample);
}

int64_t hs_fisher_passes(const HsFisher *fisher, int64_t vocabulary)
{
    return estimators[fisher->estimator].passes(fisher, vocabulary);
}

/* --- storage --- */

/* | sums of squares, counts | ones | scratch of the factors | workspace |; bytes alone where base is NULL. */
static size_t lay_out(HsFisher *fisher, size_t scratch_bytes, unsigned char *base)
{
    const int64_t rows = fisher->program->batch * fisher->program->sequence_length;
    const size_t spans = (size_t)fisher->span_count;
    size_t offsets[4] = { 0 };
    const size_t bytes[4] = { spans * (sizeof(double) + sizeof(int64_t)), fisher->factors ? (size_t)rows * 4 : 0,
                              scratch_bytes, fisher->factors ? fisher->pass.workspace_bytes : 0 };
    for (int i = 1; i < 4; i++)
        offsets[i] = offsets[i - 1] + hs_size_align(bytes[i - 1], HS_ARENA_ALIGNMENT);
    if (base) {
        fisher->sum_squares = (double *)(void *)base;
        fisher->nonfinite = (int64_t *)(fisher->sum_squares + spans);
        fisher->pass.ones.data = base + offsets[1];
        fisher->pass.scratch = base + offsets[2];
        fisher->pass.workspace = base + offsets[3];
    }
    return fisher->factors ? offsets[3] + bytes[3] : bytes[0];
}

/* Which parameters have factors, and what adding to them needs. */
static HsStatus plan_pass(HsFisher *fisher, size_t *scratch_bytes)
{
    const int64_t rows = fisher->program->batch * fisher->program->sequence_length;
    *scratch_bytes = 0;
    fisher->pass = (HsFactorPass){ .ones = hs_tensor_2d(NULL, HS_F32, rows, 1) };
    if (!fisher->factors)
        return HS_OK;
    fisher->pass.params = calloc((size_t)fisher->program->model->param_count, sizeof *fisher->pass.params);
    if (!fisher->pass.params)
        return hs_fail(HS_ENOMEM, "fisher: no memory to list the factors of %d tensors", fisher->span_count);
    for (int i = 0; i < fisher->span_count; i++) {
        const size_t bytes = hs_factor_scratch_bytes(&fisher->factors[i], rows);
        if (hs_factor_present(&fisher->factors[i].use[HS_FACTOR_PRODUCT].right) ||
            hs_factor_present(&fisher->factors[i].use[HS_FACTOR_LOOKUP].right))
            fisher->pass.params[fisher->spans[i].parameter] = &fisher->factors[i];
        *scratch_bytes = bytes > *scratch_bytes ? bytes : *scratch_bytes;
    }
    fisher->program->factors = &fisher->pass;
    HsStatus status = hs_program_probe_workspace(fisher->program, fisher->context, &fisher->pass.workspace_bytes);
    fisher->program->factors = NULL;
    return status;
}

HsStatus hs_fisher_device_bytes(const HsFisher *fisher, size_t *bytes)
{
    HsFisher copy = *fisher;
    size_t scratch_bytes;
    HsStatus status = plan_pass(&copy, &scratch_bytes);
    *bytes = lay_out(&copy, scratch_bytes, NULL);
    free(copy.pass.params);
    return status;
}

static HsStatus fill_ones(const HsFisher *fisher)
{
    HsDevice *device = fisher->context->device;
    const size_t bytes = hs_tensor_bytes(&fisher->pass.ones);
    float *ones = malloc(bytes);
    if (!ones)
        return hs_fail(HS_ENOMEM, "fisher: no memory for %zu bytes", bytes);
    for (int64_t i = 0; i < fisher->pass.ones.shape[0]; i++)
        ones[i] = 1.0f;
    HsStatus status = device->copy(device, fisher->context->stream, fisher->pass.ones.data, ones, bytes);
    if (status == HS_OK)
        status = device->stream_sync(device, fisher->context->stream);
    free(ones);
    return status;
}

static HsStatus allocate(HsFisher *fisher)
{
    HsDevice *device = fisher->context->device;
    size_t spans = (size_t)fisher->span_count, length = (size_t)fisher->program->sequence_length;
    size_t rows = (size_t)fisher->group * length, scratch_bytes;
    /* tokens, targets and labels in one block */
    fisher->tokens = malloc((2 * rows + length) * sizeof *fisher->tokens);
    fisher->gradients = malloc(spans * sizeof *fisher->gradients);
    fisher->host_nonfinite = malloc(spans * sizeof *fisher->host_nonfinite);
    fisher->numbers = calloc((size_t)fisher->ranks.count * HS_FISHER_NUMBERS, sizeof *fisher->numbers);
    if (fisher->tokens == NULL || fisher->gradients == NULL || fisher->host_nonfinite == NULL || !fisher->numbers)
        return hs_fail(HS_ENOMEM, "fisher: no memory for groups of %zu tokens", rows);
    fisher->targets = fisher->tokens + rows;
    fisher->labels = fisher->targets + rows;
    HS_TRY(plan_pass(fisher, &scratch_bytes));
    fisher->block_bytes = lay_out(fisher, scratch_bytes, NULL);
    HsStatus status = hs_memory_alloc(device, HS_MEMORY_STATISTICS, fisher->block_bytes, &fisher->block);
    if (status != HS_OK)
        return hs_error_prefix(status, "fisher: statistics of %zu tensors", spans);
    lay_out(fisher, scratch_bytes, fisher->block);
    HS_TRY(hs_partial_sums_init(&fisher->partial, device, HS_MEMORY_STATISTICS, fisher->on_host, fisher->sums,
                                fisher->sum_count, fisher->ranks.own));
    return fisher->factors ? fill_ones(fisher) : HS_OK;
}

HsStatus hs_fisher_init(HsFisher *fisher)
{
    assert(fisher->program->training && fisher->program->sequence_length == fisher->dataset->sequence_length);
    assert(fisher->group % fisher->program->batch == 0);
    assert(fisher->samples > 0 && fisher->span_count > 0 && fisher->loss_scale > 0);
    const uint32_t counter[4] = { fisher->task, 0, 0, SITE_FISHER };
    HsPhilox bits = hs_philox(fisher->seed, counter);
    fisher->label_seed = (uint64_t)bits.word[1] << 32 | bits.word[0];
    if (fisher->ranks.count == 0) { /* one process, one part */
        fisher->ranks = (HsVirtualRanks){ .count = 1, .own = 1 };
        fisher->comm = hs_comm_alone();
    }
    fisher->first_loss_scale = fisher->loss_scale;
    fisher->prepared = false;
    fisher->numbers = NULL;
    fisher->partial = (HsPartialSums){ 0 };
    begin_again(fisher);
    fisher->tokens = NULL;
    fisher->gradients = NULL;
    fisher->host_nonfinite = NULL;
    fisher->block = NULL;
    fisher->pass = (HsFactorPass){ 0 };

    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, allocate(fisher), failed);
    for (int i = 0; i < fisher->span_count; i++)
        fisher->gradients[i] = fisher->spans[i].gradient;
    HS_TRY_GOTO(status, clear_gradients(fisher, false), failed);
    return HS_OK;
failed:
    hs_fisher_deinit(fisher);
    return status;
}

void hs_fisher_deinit(HsFisher *fisher)
{
    hs_memory_release(fisher->context->device, HS_MEMORY_STATISTICS, fisher->block_bytes, fisher->block);
    hs_partial_sums_deinit(&fisher->partial);
    free(fisher->numbers);
    free(fisher->pass.params);
    free(fisher->host_nonfinite);
    free(fisher->gradients);
    free(fisher->tokens);
    fisher->tokens = NULL;
    fisher->gradients = NULL;
    fisher->host_nonfinite = NULL;
    fisher->block = NULL;
    fisher->numbers = NULL;
    fisher->pass.params = NULL;
}
