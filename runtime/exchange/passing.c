/* SPDX-License-Identifier: MIT */
#include "runtime/exchange/passing.h"

#include <stdlib.h>

#include "runtime/model/layer.h"

/* A group's visit: from its first gradient to its last. */
static void note(HsPassing *passing, int parameter, int action)
{
    const int group = passing->groups.group_of[parameter];
    if (group < 0)
        return;
    for (int v = 0; v < passing->visit_count; v++)
        if (passing->visits[v].group == group) {
            passing->visits[v].last_action = action;
            return;
        }
    passing->visits[passing->visit_count++] =
        (HsVisit){ .group = group, .first_action = action, .last_action = action };
}

static void find_visits(HsPassing *passing, const HsProgram *program)
{
    const HsModel *model = passing->model;
    for (int a = 0; a < program->action_count; a++) {
        const HsNode *node = &model->nodes[program->actions[a].node];
        if (program->actions[a].kind != HS_ACTION_BACKWARD && !node->layer->turns)
            continue;
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            if (node->params[i] != HS_NONE)
                note(passing, node->params[i], a);
    }
}

static unsigned char *memory_of(const HsPassing *passing, const HsVisit *visit)
{
    return hs_arena_at(&passing->memory, visit->offset);
}

/* --- exchange --- */

HsStatus hs_passing_before(const HsPassing *passing, HsContext *context, int action)
{
    HsDevice *device = context->device;
    for (int v = 0; v < passing->visit_count; v++) {
        const HsVisit *visit = &passing->visits[v];
        if (visit->first_action != action)
            continue;
        for (int before = 0; passing->side->stream && before < v; before++) /* its memory may be reused here */
            if (passing->visits[before].to < visit->from)
                HS_TRY(device->stream_wait(device, context->stream, passing->summed[before]));
        HS_TRY(device->fill_zero(device, context->stream, memory_of(passing, visit),
                                 passing->groups.groups[visit->group].bytes));
    }
    return HS_OK;
}

/* Adds the sum's own range to what the spans with states here have from earlier micro-batches. */
static HsStatus keep_own(const HsPassing *passing, const HsVisit *visit, HsContext *context)
{
    const HsParamGroups *groups = &passing->groups;
    const HsDtype dtype = groups->groups[visit->group].dtype;
    for (int i = passing->share->first; i < passing->share->first + passing->share->count; i++) {
        const HsSpan *span = &passing->share->all[i];
        if (groups->group_of[span->parameter] != visit->group)
            continue;
        unsigned char *passed = memory_of(passing, visit) + groups->offset_of[span->parameter] +
                                (size_t)span->first * hs_dtype_bytes(dtype);
        const HsCombineArgs args = { .x = hs_tensor_1d(passed, dtype, span->count),
                                     .y = hs_tensor_1d(span->gradient.data, dtype, span->count),
                                     .alpha = 1,
                                     .beta = 1 };
        HS_TRY(hs_op_combine(context, &args));
    }
    return HS_OK;
}

HsStatus hs_passing_after(const HsPassing *passing, HsContext *context, int action)
{
    const HsParamGroups *groups = &passing->groups;
    for (int v = 0; v < passing->visit_count; v++) {
        const HsVisit *visit = &passing->visits[v];
        if (visit->last_action != action)
            continue;
        HsContext side;
        HS_TRY(hs_side_stream_follow(passing->side, context, &side));
        hs_param_groups_start(groups, visit->group);
        if (groups->comm->size > 1)
            HS_TRY(hs_comm_reduce_scatter(groups->comm, side.stream, memory_of(passing, visit), groups->starts,
                                          groups->groups[visit->group].dtype));
        HS_TRY(keep_own(passing, visit, &side));
        if (passing->side->stream)
            HS_TRY(context->device->event_record(context->device, passing->summed[v], side.stream));
    }
    return HS_OK;
}

HsStatus hs_passing_join(const HsPassing *passing, HsContext *context)
{
    for (int v = 0; passing->side->stream && v < passing->visit_count; v++)
        HS_TRY(context->device->stream_wait(context->device, context->stream, passing->summed[v]));
    return HS_OK;
}

/* --- memory --- */

/* The model's gradients, as groups pass. */
static void point_to_groups(HsPassing *passing)
{
    for (int p = 0; p < passing->model->param_count; p++)
        for (int v = 0; v < passing->visit_count; v++)
            if (passing->visits[v].group == passing->groups.group_of[p]) {
                unsigned char *memory = memory_of(passing, &passing->visits[v]);
                passing->model->params[p].gradient.data = memory ? memory + passing->groups.offset_of[p] : NULL;
            }
}

/* The spans' gradients: of the own ones what stays, of the others none. */
static void point_to_own(HsPassing *passing)
{
    size_t offset = 0;
    for (int i = 0; i < passing->share->all_count; i++) {
        HsSpan *span = &passing->share->all[i];
        const bool own = i >= passing->share->first && i < passing->share->first + passing->share->count;
        span->gradient.data = own ? hs_arena_at(&passing->own, offset) : NULL;
        offset += own ? hs_size_align(hs_tensor_bytes(&span->gradient), HS_ARENA_ALIGNMENT) : 0;
    }
}

static HsStatus create_events(HsPassing *passing, const HsContext *context)
{
    if (!passing->side->stream)
        return HS_OK;
    passing->device = context->device;
    passing->summed = calloc((size_t)passing->visit_count + 1, sizeof(HsEvent *));
    if (!passing->summed)
        return hs_fail(HS_ENOMEM, "no memory for %d events", passing->visit_count);
    for (int v = 0; v < passing->visit_count; v++)
        HS_TRY(context->device->event_create(context->device, &passing->summed[v]));
    return HS_OK;
}

HsStatus hs_passing_create(HsModel *model, const HsProgram *program, const HsShards *shards, const HsSpanShare *share,
                           const HsSideStream *side, bool on_host, HsContext *context, HsPassing *passing)
{
    *passing = (HsPassing){ .model = model, .share = share, .side = side, .on_host = on_host };
    HS_TRY(hs_param_groups_create(model, shards, HS_SPAN_GRADIENT, &passing->groups));
    passing->visits = calloc((size_t)passing->groups.count + 1, sizeof *passing->visits);
    if (!passing->visits)
        return hs_fail(HS_ENOMEM, "no memory to list the gradients of %d parameters", model->param_count);
    find_visits(passing, program);
    hs_visits_order(passing->visits, passing->visit_count, false, !context->device->host_accessible);
    HS_TRY(create_events(passing, context));
    hs_arena_init(&passing->memory, context->device, HS_MEMORY_GRADIENTS);
    hs_arena_init_at(&passing->own, context->device, HS_MEMORY_GRADIENTS, on_host);
    hs_arena_reserve(&passing->memory, hs_visits_place(&passing->groups, passing->visits, passing->visit_count));
    for (int i = share->first; i < share->first + share->count; i++)
        hs_arena_reserve(&passing->own, hs_tensor_bytes(&share->all[i].gradient));
    HS_TRY(hs_arena_commit(&passing->memory));
    if (passing->own.used > 0)
        HS_TRY(hs_arena_commit(&passing->own));
    point_to_groups(passing);
    point_to_own(passing);
    return HS_OK;
}

void hs_passing_destroy(HsPassing *passing)
{
    if (passing->memory.device)
        hs_arena_deinit(&passing->memory);
    if (passing->own.device)
        hs_arena_deinit(&passing->own);
    for (int v = 0; passing->summed && v < passing->visit_count; v++)
        if (passing->summed[v])
            passing->device->event_destroy(passing->device, passing->summed[v]);
    free((void *)passing->summed);
    hs_param_groups_destroy(&passing->groups);
    free(passing->visits);
    *passing = (HsPassing){ 0 };
}

HsStatus hs_passing_lend(HsPassing *passing, HsContext *context, HsArena *gradients)
{
    HsModel *model = passing->model;
    hs_arena_init_at(gradients, context->device, HS_MEMORY_GRADIENTS, passing->on_host);
    for (int p = 0; p < model->param_count; p++)
        if (passing->groups.group_of[p] >= 0)
            hs_arena_reserve(gradients, hs_tensor_bytes(&model->params[p].gradient));
    HS_TRY(hs_arena_commit(gradients));
    size_t offset = 0;
    for (int p = 0; p < model->param_count; p++)
        if (passing->groups.group_of[p] >= 0) {
            model->params[p].gradient.data = hs_arena_at(gradients, offset);
            offset += hs_size_align(hs_tensor_bytes(&model->params[p].gradient), HS_ARENA_ALIGNMENT);
        }
    for (int i = 0; i < passing->share->all_count; i++) {
        HsSpan *span = &passing->share->all[i];
        unsigned char *whole = model->params[span->parameter].gradient.data;
        span->gradient.data = whole ? whole + (size_t)span->first * hs_dtype_bytes(span->gradient.dtype) : NULL;
    }
    return HS_OK;
}

void hs_passing_take_back(HsPassing *passing, HsArena *gradients)
{
    if (gradients->device)
        hs_arena_deinit(gradients);
    *gradients = (HsArena){ 0 };
    point_to_groups(passing);
    point_to_own(passing);
}
