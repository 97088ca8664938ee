/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/weight_stream.h"

#include <stdlib.h>

#include "runtime/model/layer.h"

/* --- what is there when --- */

static bool reads(const HsParamGroups *groups, const HsNode *node, int group)
{
    for (int i = 0; i < HS_NODE_PARAMS; i++)
        if (node->params[i] != HS_NONE && groups->group_of[node->params[i]] == group)
            return true;
    return false;
}

/* Between two actions of a group nothing happens elsewhere: it stays. */
static bool stays(const HsProgram *program, const HsParamGroup *group, int from, int to)
{
    for (int a = from + 1; a < to; a++)
        if (group->block < 0 || program->model->nodes[program->actions[a].node].block != group->block)
            return false;
    return true;
}

static HsStatus create_events(HsWeightVisits *visits, const HsContext *context)
{
    if (!visits->stream->side->stream)
        return HS_OK;
    visits->there = calloc((size_t)visits->count + 1, sizeof(HsEvent *));
    if (!visits->there)
        return hs_fail(HS_ENOMEM, "no memory for %d events", visits->count);
    for (int v = 0; v < visits->count; v++)
        HS_TRY(context->device->event_create(context->device, &visits->there[v]));
    return HS_OK;
}

void hs_weight_visits_destroy(HsWeightVisits *visits)
{
    HsDevice *device = visits->there ? visits->stream->own.device : NULL;
    for (int v = 0; device && v < visits->count; v++)
        if (visits->there[v])
            device->event_destroy(device, visits->there[v]);
    free((void *)visits->there);
    free(visits->items);
    *visits = (HsWeightVisits){ 0 };
}

HsStatus hs_weight_visits_find(const HsWeightStream *stream, const HsProgram *program, const HsContext *context,
                               HsWeightVisits *visits, size_t *bytes)
{
    const HsParamGroups *groups = &stream->groups;
    *visits = (HsWeightVisits){ .stream = stream };
    visits->items = calloc((size_t)program->action_count * HS_NODE_PARAMS + 1, sizeof *visits->items);
    if (!visits->items)
        return hs_fail(HS_ENOMEM, "no memory to list the weights of %d actions", program->action_count);
    for (int g = 0; g < groups->count; g++) {
        HsVisit *last = NULL;
        for (int a = 0; a < program->action_count; a++) {
            if (!reads(groups, &program->model->nodes[program->actions[a].node], g))
                continue;
            if (last && stays(program, &groups->groups[g], last->last_action, a)) {
                last->last_action = a;
                continue;
            }
            last = &visits->items[visits->count++];
            *last = (HsVisit){ .group = g, .first_action = a, .last_action = a };
        }
    }
    hs_visits_order(visits->items, visits->count, !context->device->host_accessible, false);
    *bytes = hs_visits_place(groups, visits->items, visits->count);
    return create_events(visits, context);
}

/* --- bringing them --- */

/* The own spans' weights to their places among the group's. */
static HsStatus copy_own(const HsWeightStream *stream, HsContext *context, int group, unsigned char *memory)
{
    const HsParamGroups *groups = &stream->groups;
    HsDevice *device = context->device;
    for (int i = stream->share->first; i < stream->share->first + stream->share->count; i++) {
        const HsSpan *span = &stream->share->all[i];
        if (groups->group_of[span->parameter] != group)
            continue;
        unsigned char *to =
            memory + groups->offset_of[span->parameter] + (size_t)span->first * hs_dtype_bytes(span->weight.dtype);
        HS_TRY(device->copy(device, context->stream, to, span->weight.data, hs_tensor_bytes(&span->weight)));
    }
    return HS_OK;
}

static void point_to(const HsWeightStream *stream, int group, unsigned char *memory)
{
    for (int p = 0; p < stream->model->param_count; p++)
        if (stream->groups.group_of[p] == group)
            stream->model->params[p].stored.values.data = memory + stream->groups.offset_of[p];
}

static HsStatus bring(const HsWeightStream *stream, HsContext *context, int group, unsigned char *memory)
{
    const HsParamGroups *groups = &stream->groups;
    HS_TRY(copy_own(stream, context, group, memory));
    if (groups->comm->size > 1) {
        hs_param_groups_start(groups, group);
        HS_TRY(hs_comm_all_gather(groups->comm, context->stream, memory, groups->starts, groups->groups[group].dtype));
    }
    return HS_OK;
}

/* Starts moving the weights of visits up to the `last`-th, in order; their memory is free by now. */
static HsStatus ask(HsWeightVisits *visits, HsContext *context, int last)
{
    const HsWeightStream *stream = visits->stream;
    for (; visits->asked <= last && visits->asked < visits->count; visits->asked++) {
        const HsVisit *visit = &visits->items[visits->asked];
        HsContext side;
        HS_TRY(hs_side_stream_follow(stream->side, context, &side));
        HS_TRY(bring(stream, &side, visit->group, hs_arena_at(&stream->memory, visit->offset)));
        if (visits->there)
            HS_TRY(context->device->event_record(context->device, visits->there[visits->asked], side.stream));
    }
    return HS_OK;
}

HsStatus hs_weight_visits_before(HsWeightVisits *visits, HsContext *context, int action)
{
    const HsWeightStream *stream = visits->stream;
    if (action == 0)
        visits->asked = 0;
    for (int v = 0; v < visits->count; v++) {
        const HsVisit *visit = &visits->items[v];
        if (visit->first_action != action)
            continue;
        HS_TRY(ask(visits, context, visits->there ? v + 1 : v));
        if (visits->there)
            HS_TRY(context->device->stream_wait(context->device, context->stream, visits->there[v]));
        point_to(stream, visit->group, hs_arena_at(&stream->memory, visit->offset));
    }
    return HS_OK;
}

/* --- memory --- */

static void forget(const HsWeightStream *stream)
{
    for (int p = 0; p < stream->model->param_count; p++)
        if (stream->groups.group_of[p] >= 0)
            stream->model->params[p].stored.values.data = NULL;
}

HsStatus hs_weight_stream_create(HsModel *model, const HsShards *shards, const HsSpanShare *share,
                                 const HsSideStream *side, bool on_host, HsContext *context, HsWeightStream *stream)
{
    *stream = (HsWeightStream){ .model = model, .share = share, .side = side };
    HS_TRY(hs_param_groups_create(model, shards, HS_SPAN_WEIGHT, &stream->groups));
    hs_arena_init_at(&stream->own, context->device, HS_MEMORY_WEIGHTS, on_host);
    hs_arena_init(&stream->memory, context->device, HS_MEMORY_WEIGHTS);
    for (int i = share->first; i < share->first + share->count; i++)
        hs_arena_reserve(&stream->own, hs_tensor_bytes(&share->all[i].weight));
    if (stream->own.used > 0)
        HS_TRY(hs_arena_commit(&stream->own));
    size_t offset = 0;
    for (int i = 0; i < share->all_count; i++) {
        HsSpan *span = &share->all[i];
        const bool own = i >= share->first && i < share->first + share->count;
        span->weight.data = own ? hs_arena_at(&stream->own, offset) : NULL;
        offset += own ? hs_size_align(hs_tensor_bytes(&span->weight), HS_ARENA_ALIGNMENT) : 0;
    }
    return HS_OK;
}

HsStatus hs_weight_stream_commit(HsWeightStream *stream, size_t bytes)
{
    hs_arena_reserve(&stream->memory, bytes);
    return hs_arena_commit(&stream->memory);
}

void hs_weight_stream_destroy(HsWeightStream *stream)
{
    if (stream->own.device)
        hs_arena_deinit(&stream->own);
    if (stream->memory.device)
        hs_arena_deinit(&stream->memory);
    hs_param_groups_destroy(&stream->groups);
    *stream = (HsWeightStream){ 0 };
}

/* A parameter's spans lie one behind the other. */
static void point_to_own(const HsWeightStream *stream)
{
    for (int i = 0; i < stream->share->all_count; i++) {
        const HsSpan *span = &stream->share->all[i];
        if (span->first == 0)
            stream->model->params[span->parameter].stored.values.data = span->weight.data;
    }
}

HsStatus hs_weight_stream_lend(HsWeightStream *stream, HsContext *context, HsArena *weights)
{
    const HsParamGroups *groups = &stream->groups;
    hs_arena_init(weights, context->device, HS_MEMORY_WEIGHTS);
    if (stream->own.on_host && groups->comm->size == 1) {
        point_to_own(stream);
        return HS_OK;
    }
    for (int g = 0; g < groups->count; g++)
        hs_arena_reserve(weights, groups->groups[g].bytes);
    HS_TRY(hs_arena_commit(weights));
    if (context->dry_run)
        return HS_OK;
    size_t offset = 0;
    for (int g = 0; g < groups->count; g++) {
        HS_TRY(bring(stream, context, g, hs_arena_at(weights, offset)));
        point_to(stream, g, hs_arena_at(weights, offset));
        offset += hs_size_align(groups->groups[g].bytes, HS_ARENA_ALIGNMENT);
    }
    return HS_OK;
}

void hs_weight_stream_take_back(HsWeightStream *stream, HsArena *weights)
{
    if (weights->device)
        hs_arena_deinit(weights);
    *weights = (HsArena){ 0 };
    forget(stream);
}
