/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/buckets.h"

#include <stdlib.h>

#include "runtime/model/layer.h"

/* The last action that adds to the parameter's gradient. */
static int last_action(const HsProgram *program, int parameter)
{
    const HsModel *model = program->model;
    for (int a = program->action_count - 1; a >= 0; a--) {
        const HsNode *node = &model->nodes[program->actions[a].node];
        if (program->actions[a].kind != HS_ACTION_BACKWARD && !node->layer->turns)
            continue;
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            if (node->params[i] == parameter)
                return a;
    }
    return program->action_count - 1;
}

/* Neighbours of one block. */
static void find(HsBuckets *buckets, const HsProgram *program)
{
    int block = -1;
    for (int w = 0; w < buckets->shards->whole_count; w++) {
        const int parameter = buckets->shards->whole[w].parameter;
        const int own_block = hs_param_block(program->model, parameter), ready = last_action(program, parameter);
        HsBucket *last = buckets->count > 0 ? &buckets->items[buckets->count - 1] : NULL;
        if (!last || own_block < 0 || own_block != block) {
            last = &buckets->items[buckets->count++];
            *last = (HsBucket){ .first = w };
        }
        last->count++;
        last->ready = ready > last->ready ? ready : last->ready;
        block = own_block;
    }
}

HsStatus hs_buckets_create(const HsProgram *program, const HsShards *shards, HsPartialSums *sums, HsComm *comm,
                           HsContext *context, HsBuckets *buckets)
{
    HsDevice *device = context->device;
    *buckets = (HsBuckets){ .shards = shards, .sums = sums, .comm = comm };
    buckets->items = calloc((size_t)shards->whole_count + 1, sizeof *buckets->items);
    if (!buckets->items)
        return hs_fail(HS_ENOMEM, "no memory to list the gradients of %d parameters", shards->whole_count);
    find(buckets, program);
    if (context->dry_run)
        return HS_OK;
    buckets->device = device;
    HS_TRY(hs_side_stream_create(context, &buckets->side));
    return device->event_create(device, &buckets->done);
}

void hs_buckets_destroy(HsBuckets *buckets)
{
    HsDevice *device = buckets->device;
    if (device)
        hs_side_stream_destroy(device, &buckets->side);
    if (device && buckets->done)
        device->event_destroy(device, buckets->done);
    free(buckets->items);
    *buckets = (HsBuckets){ 0 };
}

/* On the sums' stream, behind what the compute stream has done so far. */
static HsStatus sum(const HsBuckets *buckets, HsContext *context, const HsBucket *bucket)
{
    HsContext side;
    HS_TRY(hs_side_stream_follow(&buckets->side, context, &side));
    HS_TRY(hs_partial_sums_add_some(buckets->sums, &side, buckets->sums->parts - 1, bucket->first, bucket->count));
    return hs_shards_reduce(buckets->shards, buckets->comm, &side, bucket->first, bucket->count);
}

HsStatus hs_buckets_after(const HsBuckets *buckets, HsContext *context, int action)
{
    for (int i = 0; buckets->open && i < buckets->count; i++)
        if (buckets->items[i].ready == action)
            HS_TRY(sum(buckets, context, &buckets->items[i]));
    return HS_OK;
}

HsStatus hs_buckets_join(HsBuckets *buckets, HsContext *context)
{
    HsDevice *device = context->device;
    buckets->open = false;
    if (!buckets->side.stream)
        return HS_OK;
    HS_TRY(device->event_record(device, buckets->done, buckets->side.stream));
    return device->stream_wait(device, context->stream, buckets->done);
}
