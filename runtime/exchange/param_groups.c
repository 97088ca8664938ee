/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/param_groups.h"

#include <stdlib.h>

#include "kernels/base/arena.h"

HsTensor hs_param_groups_tensor(const HsParamGroups *groups, int parameter)
{
    const HsParam *param = &groups->model->params[parameter];
    return groups->which == HS_SPAN_GRADIENT ? param->gradient : param->stored.values;
}

int hs_param_block(const HsModel *model, int parameter)
{
    int block = -2;
    for (int n = 0; n < model->node_count; n++)
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            if (model->nodes[n].params[i] == parameter)
                block = block == -2 || block == model->nodes[n].block ? model->nodes[n].block : -1;
    return block == -2 ? -1 : block;
}

static int find_group(HsParamGroups *groups, int parameter)
{
    const HsParamGroup wanted = { .block = hs_param_block(groups->model, parameter),
                                  .dtype = hs_param_groups_tensor(groups, parameter).dtype };
    const int alone = wanted.block < 0 ? parameter : -1;
    for (int g = 0; g < groups->count; g++) {
        const HsParamGroup *group = &groups->groups[g];
        if (group->parameter == alone && group->block == wanted.block && group->dtype == wanted.dtype)
            return g;
    }
    groups->groups[groups->count] = wanted;
    groups->groups[groups->count].parameter = alone;
    return groups->count++;
}

HsStatus hs_param_groups_create(const HsModel *model, const HsShards *shards, HsSpanTensor which, HsParamGroups *groups)
{
    HsComm *comm = shards->comm ? shards->comm : hs_comm_alone();
    const size_t params = (size_t)model->param_count;
    *groups = (HsParamGroups){ .model = model, .shards = shards, .comm = comm, .which = which };
    groups->groups = calloc(params + 1, sizeof *groups->groups);
    groups->group_of = calloc(params + 1, sizeof *groups->group_of);
    groups->offset_of = calloc(params + 1, sizeof *groups->offset_of);
    groups->starts = calloc((size_t)comm->size + 1, sizeof *groups->starts);
    if (!groups->groups || !groups->group_of || !groups->offset_of || !groups->starts)
        return hs_fail(HS_ENOMEM, "no memory to group %d parameters", model->param_count);
    for (int p = 0; p < model->param_count; p++) {
        groups->group_of[p] = -1;
        if (!model->params[p].trainable)
            continue;
        const HsTensor tensor = hs_param_groups_tensor(groups, p);
        const int g = groups->group_of[p] = find_group(groups, p);
        groups->offset_of[p] = groups->groups[g].bytes;
        groups->groups[g].bytes += hs_size_align(hs_tensor_bytes(&tensor), HS_ARENA_ALIGNMENT);
    }
    return HS_OK;
}

void hs_param_groups_destroy(HsParamGroups *groups)
{
    free(groups->groups);
    free(groups->group_of);
    free(groups->offset_of);
    free(groups->starts);
    *groups = (HsParamGroups){ 0 };
}

void hs_param_groups_start(const HsParamGroups *groups, int g)
{
    const HsShards *shards = groups->shards;
    const size_t element = hs_dtype_bytes(groups->groups[g].dtype);
    const int size = groups->comm->size;
    for (int r = 0; r <= size; r++) {
        size_t at = 0;
        for (int w = 0; w < shards->whole_count; w++) {
            const int parameter = shards->whole[w].parameter;
            const int64_t start = shards->starts[w * (size + 1) + r];
            const size_t bytes = (size_t)start * element;
            if (groups->group_of[parameter] == g && start > 0)
                at = groups->offset_of[parameter] +
                     (start == shards->whole[w].count ? hs_size_align(bytes, HS_ARENA_ALIGNMENT) : bytes);
        }
        groups->starts[r] = at / element;
    }
}

HsStatus hs_side_stream_create(HsContext *context, HsSideStream *side)
{
    HsDevice *device = context->device;
    *side = (HsSideStream){ 0 };
    if (context->dry_run || device->host_accessible)
        return HS_OK;
    HS_TRY(device->stream_create(device, &side->stream));
    return device->event_create(device, &side->reached);
}

void hs_side_stream_destroy(HsDevice *device, HsSideStream *side)
{
    if (side->stream)
        device->stream_destroy(device, side->stream);
    if (side->reached)
        device->event_destroy(device, side->reached);
    *side = (HsSideStream){ 0 };
}

HsStatus hs_side_stream_follow(const HsSideStream *side, HsContext *context, HsContext *own)
{
    HsDevice *device = context->device;
    *own = *context;
    if (!side->stream)
        return HS_OK;
    own->stream = side->stream;
    own->workspace = NULL; /* the computing stream's */
    own->workspace_bytes = 0;
    HS_TRY(device->event_record(device, side->reached, context->stream));
    return device->stream_wait(device, side->stream, side->reached);
}

static int by_first_action(const void *a, const void *b)
{
    const HsVisit *left = a, *right = b;
    return left->first_action != right->first_action ? (left->first_action > right->first_action ? 1 : -1)
                                                     : left->group - right->group;
}

void hs_visits_order(HsVisit *visits, int count, bool ahead, bool behind)
{
    qsort(visits, (size_t)count, sizeof *visits, by_first_action);
    for (int v = 0; v < count; v++) {
        visits[v].from = ahead && v > 0 ? visits[v - 1].first_action : visits[v].first_action;
        visits[v].to = visits[v].last_action;
        if (behind && v + 1 < count && visits[v + 1].last_action > visits[v].to)
            visits[v].to = visits[v + 1].last_action;
    }
}

static bool overlap(const HsVisit *a, const HsVisit *b)
{
    return a->from <= b->to && b->from <= a->to;
}

/* Each at the lowest offset that no visit of its time has. */
size_t hs_visits_place(const HsParamGroups *groups, HsVisit *visits, int count)
{
    size_t end = 0;
    for (int v = 0; v < count; v++) {
        HsVisit *visit = &visits[v];
        const size_t bytes = groups->groups[visit->group].bytes;
        visit->offset = 0;
        for (int other = 0; other < v;) {
            const HsVisit *there = &visits[other];
            const size_t there_end = there->offset + groups->groups[there->group].bytes;
            if (overlap(visit, there) && visit->offset < there_end && there->offset < visit->offset + bytes) {
                visit->offset = there_end;
                other = 0; /* those that were passed may be met now */
            } else {
                other++;
            }
        }
        end = visit->offset + bytes > end ? visit->offset + bytes : end;
    }
    return end;
}
