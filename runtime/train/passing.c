/* SPDX-License-Identifier: MIT */
#include "runtime/train/passing.h"

#include <stdlib.h>

#include "runtime/model/layer.h"

/* --- groups and their times --- */

static int find_group(HsPassing *passing, const HsNode *node, int parameter)
{
    const HsDtype dtype = passing->model->params[parameter].gradient.dtype;
    const int alone = node->block < 0 ? parameter : -1;
    for (int g = 0; g < passing->group_count; g++) {
        const HsPassingGroup *group = &passing->groups[g];
        if (group->parameter == alone && (alone >= 0 || (group->block == node->block && group->dtype == dtype)))
            return g;
    }
    passing->groups[passing->group_count] =
        (HsPassingGroup){ .block = node->block, .dtype = dtype, .parameter = alone, .first_action = INT32_MAX };
    return passing->group_count++;
}

static void note(HsPassing *passing, const HsNode *node, int parameter, int action)
{
    const HsTensor *gradient = &passing->model->params[parameter].gradient;
    if (!hs_tensor_present(gradient))
        return;
    if (passing->group_of[parameter] < 0)
        passing->group_of[parameter] = find_group(passing, node, parameter);
    HsPassingGroup *group = &passing->groups[passing->group_of[parameter]];
    group->first_action = action < group->first_action ? action : group->first_action;
    group->last_action = action > group->last_action ? action : group->last_action;
}

static void find_times(HsPassing *passing, const HsProgram *program)
{
    const HsModel *model = passing->model;
    for (int a = 0; a < program->action_count; a++) {
        const HsNode *node = &model->nodes[program->actions[a].node];
        if (program->actions[a].kind != HS_ACTION_BACKWARD && !node->layer->turns)
            continue;
        for (int i = 0; i < HS_NODE_PARAMS; i++)
            if (node->params[i] != HS_NONE)
                note(passing, node, node->params[i], a);
    }
    for (int p = 0; p < model->param_count; p++)
        if (passing->group_of[p] >= 0) {
            HsPassingGroup *group = &passing->groups[passing->group_of[p]];
            passing->offset_of[p] = group->bytes;
            group->bytes += hs_size_align(hs_tensor_bytes(&model->params[p].gradient), HS_ARENA_ALIGNMENT);
        }
}

static bool overlap(const HsPassingGroup *a, const HsPassingGroup *b)
{
    return a->first_action <= b->last_action && b->first_action <= a->last_action;
}

/* Each at the lowest offset that no group of its time has. */
static size_t place_groups(HsPassing *passing)
{
    size_t end = 0;
    for (int g = 0; g < passing->group_count; g++) {
        HsPassingGroup *group = &passing->groups[g];
        for (int other = 0; other < g;) {
            const HsPassingGroup *there = &passing->groups[other];
            const bool meets =
                group->offset < there->offset + there->bytes && there->offset < group->offset + group->bytes;
            if (overlap(group, there) && meets) {
                group->offset = there->offset + there->bytes;
                other = 0; /* those that were passed may be met now */
            } else {
                other++;
            }
        }
        end = group->offset + group->bytes > end ? group->offset + group->bytes : end;
    }
    return end;
}

/* --- exchange --- */

static unsigned char *memory_of(const HsPassing *passing, const HsPassingGroup *group)
{
    return hs_arena_at(&passing->memory, group->offset);
}

static HsStatus before_action(void *user, HsContext *context, int action)
{
    const HsPassing *passing = user;
    HsDevice *device = context->device;
    for (int g = 0; g < passing->group_count; g++) {
        const HsPassingGroup *group = &passing->groups[g];
        if (group->first_action == action)
            HS_TRY(device->fill_zero(device, context->stream, memory_of(passing, group), group->bytes));
    }
    return HS_OK;
}

/* Where in the group's memory each process's gradients begin, in elements.  Its parameters lie in their order. */
static void find_starts(const HsPassing *passing, int g)
{
    const HsShards *shards = passing->shards;
    const HsPassingGroup *group = &passing->groups[g];
    const size_t element = hs_dtype_bytes(group->dtype);
    for (int r = 0; r <= passing->comm->size; r++) {
        size_t at = 0;
        for (int w = 0; w < shards->whole_count; w++) {
            const int parameter = shards->whole[w].parameter;
            const int64_t start = shards->starts[w * (passing->comm->size + 1) + r];
            if (passing->group_of[parameter] == g && start > 0)
                at = start == shards->whole[w].count
                         ? passing->offset_of[parameter] + hs_size_align((size_t)start * element, HS_ARENA_ALIGNMENT)
                         : passing->offset_of[parameter] + (size_t)start * element;
        }
        passing->starts[r] = at / element;
    }
}

/* The sum's own range, onto what the spans whose states are here have by earlier micro-batches. */
static HsStatus keep_own(const HsPassing *passing, int g, HsContext *context)
{
    const HsPassingGroup *group = &passing->groups[g];
    for (int i = passing->share->first; i < passing->share->first + passing->share->count; i++) {
        const HsSpan *span = &passing->share->all[i];
        if (passing->group_of[span->parameter] != g)
            continue;
        HsTensor passed = hs_tensor_1d(memory_of(passing, group) + passing->offset_of[span->parameter] +
                                           (size_t)span->first * hs_dtype_bytes(group->dtype),
                                       group->dtype, span->count);
        const HsCombineArgs args = {
            .x = passed, .y = hs_tensor_1d(span->gradient.data, group->dtype, span->count), .alpha = 1, .beta = 1
        };
        HS_TRY(hs_op_combine(context, &args));
    }
    return HS_OK;
}

static HsStatus after_action(void *user, HsContext *context, int action)
{
    const HsPassing *passing = user;
    for (int g = 0; g < passing->group_count; g++) {
        const HsPassingGroup *group = &passing->groups[g];
        if (group->last_action != action)
            continue;
        find_starts(passing, g);
        if (passing->comm->size > 1)
            HS_TRY(hs_comm_reduce_scatter(passing->comm, context->stream, memory_of(passing, group), passing->starts,
                                          group->dtype));
        HS_TRY(keep_own(passing, g, context));
    }
    return HS_OK;
}

/* --- memory --- */

/* The model's gradients, as groups pass. */
static void point_to_groups(HsPassing *passing)
{
    for (int p = 0; p < passing->model->param_count; p++)
        if (passing->group_of[p] >= 0) {
            unsigned char *memory = memory_of(passing, &passing->groups[passing->group_of[p]]);
            passing->model->params[p].gradient.data = memory ? memory + passing->offset_of[p] : NULL;
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

HsStatus hs_passing_create(HsModel *model, const HsProgram *program, const HsShards *shards, const HsSpanShare *share,
                           HsContext *context, HsPassing *passing)
{
    HsComm *comm = shards->comm ? shards->comm : hs_comm_alone();
    const size_t params = (size_t)model->param_count;
    *passing = (HsPassing){ .model = model, .shards = shards, .comm = comm, .share = share };
    passing->exchange = (HsProgramExchange){ before_action, after_action, passing };
    passing->groups = calloc(params + 1, sizeof *passing->groups);
    passing->group_of = malloc((params + 1) * sizeof *passing->group_of);
    passing->offset_of = calloc(params + 1, sizeof *passing->offset_of);
    passing->starts = calloc((size_t)comm->size + 1, sizeof *passing->starts);
    if (!passing->groups || !passing->group_of || !passing->offset_of || !passing->starts)
        return hs_fail(HS_ENOMEM, "no memory to list the gradients of %d parameters", model->param_count);
    for (size_t p = 0; p < params; p++)
        passing->group_of[p] = -1;
    find_times(passing, program);
    hs_arena_init(&passing->memory, context->device, HS_MEMORY_GRADIENTS);
    hs_arena_init(&passing->own, context->device, HS_MEMORY_GRADIENTS);
    hs_arena_reserve(&passing->memory, place_groups(passing));
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
    free(passing->groups);
    free(passing->group_of);
    free(passing->offset_of);
    free(passing->starts);
    *passing = (HsPassing){ 0 };
}

HsStatus hs_passing_lend(HsPassing *passing, HsContext *context, HsArena *gradients)
{
    HsModel *model = passing->model;
    hs_arena_init(gradients, context->device, HS_MEMORY_GRADIENTS);
    for (int p = 0; p < model->param_count; p++)
        if (passing->group_of[p] >= 0)
            hs_arena_reserve(gradients, hs_tensor_bytes(&model->params[p].gradient));
    HS_TRY(hs_arena_commit(gradients));
    size_t offset = 0;
    for (int p = 0; p < model->param_count; p++)
        if (passing->group_of[p] >= 0) {
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
