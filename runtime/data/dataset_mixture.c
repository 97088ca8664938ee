/* SPDX-License-Identifier: MIT
 *
 * A task whose sources are mixed: a dataset of datasets, one a source, each with its own training and validation, and a
 * mixture that says which of them a sample comes from (mixture.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "kernels/base/rng.h"
#include "runtime/data/dataset_build.h"
#include "runtime/data/mixture.h"

bool hs_dataset_is_masked(const HsDataset *dataset)
{
    bool masked = hs_stream_is_masked(&dataset->train);
    for (int i = 0; i < dataset->part_count; i++)
        masked |= hs_dataset_is_masked(&dataset->parts[i]);
    return masked;
}

/* The tokens that a sample is of: where documents have their own rows, fewer than a window. */
static double tokens_a_sample(const HsDataset *part)
{
    double tokens = 0;
    if (!part->train.rows)
        return (double)part->sequence_length;
    for (int64_t i = 0; i < part->train.row_count; i++)
        tokens += (double)part->train.rows[i].count;
    return tokens / (double)hs_dataset_windows(part);
}

/* Weights of samples, out of the task's, which are of tokens. */
static void weigh(const HsTaskConfig *task, const HsDataset *parts, double *weights)
{
    const double power = task->temperature > 0 ? 1 / task->temperature : 1;
    if (!hs_task_weights(task, weights))
        for (int i = 0; i < task->train.count; i++)
            weights[i] = pow((double)parts[i].train.count, power);
    for (int i = 0; i < task->train.count; i++)
        weights[i] /= tokens_a_sample(&parts[i]);
}

static HsStatus make_mixture(const HsTaskConfig *task, HsDataset *dataset)
{
    const size_t count = (size_t)dataset->part_count, phases = 1 + (size_t)task->weight_changes.count;
    double *weights = calloc(phases * count, sizeof *weights);
    int64_t *steps = calloc(phases, sizeof *steps), windows[HS_MIXTURE_MOST];
    HsStatus status = weights && steps ? HS_OK : hs_fail(HS_ENOMEM, "no memory to mix %zu sources", count);
    for (size_t i = 0; i < count; i++)
        windows[i] = hs_dataset_windows(&dataset->parts[i]);
    if (status == HS_OK)
        weigh(task, dataset->parts, weights);
    for (size_t phase = 1; status == HS_OK && phase < phases; phase++) {
        status = hs_task_weight_change(task, (int)phase - 1, &steps[phase], weights + phase * count);
        for (size_t i = 0; i < count; i++)
            weights[phase * count + i] /= tokens_a_sample(&dataset->parts[i]);
    }
    const HsMixtureOptions options = { .count = dataset->part_count,
                                       .windows = windows,
                                       .phases = (int)phases,
                                       .steps = steps,
                                       .weights = weights,
                                       .exhausted = hs_is(task->exhausted, "drop")   ? HS_EXHAUSTED_DROP
                                                    : hs_is(task->exhausted, "stop") ? HS_EXHAUSTED_STOP
                                                                                     : HS_EXHAUSTED_REPEAT };
    if (status == HS_OK)
        status = hs_mixture_create(&options, &dataset->mixture);
    if (status == HS_OK)
        status = hs_mixture_epoch(dataset->mixture, &dataset->train_windows);
    free(weights);
    free(steps);
    return status;
}

/* Counts, and the floors' means by tokens. */
static void add_up(HsDataset *dataset)
{
    HsStreamTokens *sums[] = { &dataset->train, &dataset->validation };
    for (int k = 0; k < 2; k++) {
        double nats = 0;
        for (int i = 0; i < dataset->part_count; i++) {
            const HsStreamTokens *own = k == 0 ? &dataset->parts[i].train : &dataset->parts[i].validation;
            sums[k]->count += own->count;
            sums[k]->documents += own->documents;
            nats += own->entropy_floor * (double)own->count;
        }
        sums[k]->entropy_floor = nats / (double)sums[k]->count;
    }
}

/* Each source's items behind the other's, as many of each as of all are wanted by its share of them. */
static HsStatus join_items(HsDataset *dataset, int set, int64_t wanted)
{
    HsItemSet *all = &dataset->items[set];
    int64_t there = 0;
    for (int i = 0; i < dataset->part_count; i++)
        there += dataset->parts[i].items[set].count;
    if (there == 0)
        return HS_OK;
    all->items = calloc((size_t)there, sizeof *all->items);
    if (!all->items)
        return hs_fail(HS_ENOMEM, "no memory for prompts");
    for (int i = 0; i < dataset->part_count; i++) {
        const HsItemSet *own = &dataset->parts[i].items[set];
        const int64_t taken = there <= wanted ? own->count : (own->count * wanted + there - 1) / there;
        for (int64_t k = 0; k < taken && all->count < wanted; k++) {
            HsItem item = own->items[k * own->count / taken];
            const int64_t length = item.prompt + item.completion;
            HS_TRY(hs_tokens_reserve(&all->tokens, length));
            memcpy(all->tokens.items + all->tokens.count, own->tokens.items + item.start,
                   (size_t)length * sizeof(int32_t));
            item.start = all->tokens.count;
            all->tokens.count += length;
            all->items[all->count++] = item;
        }
    }
    return HS_OK;
}

HsStatus hs_dataset_mix(const HsConfig *config, const HsTaskConfig *task, HsDataset *parts, int count,
                        HsDataset *dataset)
{
    dataset->tokenizer = parts->tokenizer;
    dataset->parts = calloc((size_t)count, sizeof *parts);
    if (!dataset->parts)
        return hs_fail(HS_ENOMEM, "no memory to mix %d sources", count);
    memcpy(dataset->parts, parts, (size_t)count * sizeof *parts);
    memset(parts, 0, (size_t)count * sizeof *parts);
    dataset->part_count = count;
    for (int i = 0; i < count; i++) { /* their streams lie in their own shards */
        HsDataset *part = &dataset->parts[i];
        if (part->train.shards)
            part->train.shards = &part->shards[0];
        if (part->validation.shards)
            part->validation.shards = part->shards[1].count > 0 ? &part->shards[1] : &part->shards[0];
    }
    add_up(dataset);
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        HS_TRY(join_items(dataset, set, config->evaluation.items));
    return make_mixture(task, dataset);
}

HsStatus hs_dataset_set_rows(HsDataset *dataset, double rows)
{
    if (dataset->group > 0)
        dataset->group = rows > 1 ? (int64_t)(rows + 0.5) : 1;
    if (!dataset->parts)
        return HS_OK;
    hs_mixture_set_rows(dataset->mixture, rows);
    return hs_mixture_epoch(dataset->mixture, &dataset->train_windows);
}

HsStatus hs_dataset_source_use(const HsDataset *dataset, int64_t samples, HsSourceUse *use)
{
    int64_t taken[HS_MIXTURE_MOST];
    HS_TRY(hs_mixture_taken(dataset->mixture, samples, taken));
    for (int i = 0; i < dataset->part_count; i++)
        use[i] = (HsSourceUse){ .share = samples > 0 ? (double)taken[i] / (double)samples : 0,
                                .epochs = (double)taken[i] / (double)hs_dataset_windows(&dataset->parts[i]) };
    return HS_OK;
}
