/* SPDX-License-Identifier: MIT
 *
 * The order of actions.  Without recomputation: forward 0..n-1, then backward n-1..0, with the head's node once, at the
 * turn.  A policy drops the outputs of marked nodes in every N-th block.  Just before the first backward action that
 * reads a dropped value of a block, the block's marked nodes are run again, but only those with outputs that backward,
 * or another node that is run again, will read.  Nodes are pure, so what they make again is what was dropped, bit for
 * bit (Chen et al. 2016 chose segments of the same kind).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program_internal.h"

static const char *const policy_names[] = HS_WORD_ARRAY(HS_RECOMPUTE_POLICIES);
static const unsigned policy_groups[] = {
    [HS_RECOMPUTE_NONE] = 0,
    [HS_RECOMPUTE_ATTENTION] = HS_GROUP_ATTENTION,
    [HS_RECOMPUTE_MLP] = HS_GROUP_MLP,
    [HS_RECOMPUTE_BLOCK] = HS_GROUP_BLOCK,
};

HsStatus hs_recompute_find(const char *name, HsRecompute *policy)
{
    for (size_t i = 0; i < sizeof policy_names / sizeof *policy_names; i++) {
        if (strcmp(policy_names[i], name) == 0) {
            *policy = (HsRecompute)i;
            return HS_OK;
        }
    }
    return hs_fail(HS_ECONFIG, "memory.recompute: there is no policy %s; take one of %s", name,
                   HS_WORDS_LISTED(HS_RECOMPUTE_POLICIES));
}

const char *hs_recompute_name(HsRecompute policy)
{
    return policy_names[policy];
}

static int append_read(const int *places, int count, unsigned read, int *slots, int used)
{
    for (int i = 0; i < count; i++)
        if ((read >> i & 1u) && places[i] != HS_NONE)
            slots[used++] = places[i];
    return used;
}

unsigned hs_node_reads_inputs(const HsModel *model, const HsNode *node)
{
    const HsLayer *layer = node->layer;
    bool trained = false; /* a matrix that multiplies those inputs */
    for (int i = 0; i < HS_NODE_PARAMS; i++)
        if (node->params[i] != HS_NONE && (layer->weights >> i & 1u))
            trained = trained || model->params[node->params[i]].trainable;
    return layer->reads_inputs & ~(trained && !node->keeps_codes ? 0u : layer->reads_for_weight) &
           ~(node->takes_x_codes ? 0u : 1u << HS_INPUT_CODES);
}

bool hs_node_saves(const HsModel *model, const HsNode *node, int i)
{
    const int slot = node->saved[i];
    return slot != HS_NONE &&
           (!hs_format_rounds(model->slots[slot].format) || (node->keeps_codes && !node->takes_x_codes));
}

bool hs_node_writes(const HsModel *model, const HsNode *node, int i)
{
    const int slot = node->outputs[i];
    return slot != HS_NONE && (!hs_format_rounds(model->slots[slot].format) || node->leaves_codes);
}

int hs_node_backward_slots(const HsModel *model, const HsNode *node, int slots[HS_NODE_SLOTS])
{
    const HsLayer *layer = node->layer;
    if (!node->trains)
        return 0;
    int used = append_read(node->inputs, HS_NODE_INPUTS, hs_node_reads_inputs(model, node), slots, 0);
    used = append_read(node->outputs, HS_NODE_OUTPUTS, layer->reads_outputs, slots, used);
    unsigned saved = 0;
    for (int i = 0; i < HS_NODE_SAVED; i++)
        saved |= hs_node_saves(model, node, i) ? 1u << i : 0u;
    return append_read(node->saved, HS_NODE_SAVED, layer->reads_saved & saved, slots, used);
}

static bool node_makes(const HsNode *node, const bool *wanted)
{
    bool makes = false;
    for (int i = 0; i < HS_NODE_OUTPUTS; i++)
        makes = makes || (node->outputs[i] != HS_NONE && wanted[node->outputs[i]]);
    for (int i = 0; i < HS_NODE_SAVED; i++)
        makes = makes || (node->saved[i] != HS_NONE && wanted[node->saved[i]]);
    return makes;
}

typedef struct Schedule {
    HsProgram *program;
    bool *dropped; /* per slot: thrown away after forward */
    bool *needed;  /* per slot: dropped, and must be made again */
    bool *again;   /* per node: run again */
} Schedule;

static HsAction *append(HsProgram *program, HsActionKind kind, int node)
{
    HsAction *action = &program->actions[program->action_count++];
    *action = (HsAction){ .kind = kind, .node = node };
    return action;
}

static void mark_dropped(Schedule *schedule, unsigned group, int64_t every)
{
    const HsModel *model = schedule->program->model;
    for (int slot = 0; slot < model->slot_count; slot++) {
        const HsSlot *info = &model->slots[slot];
        schedule->dropped[slot] = (info->group & group) && info->block >= 0 && info->block % every == 0;
    }
}

/* A sum that was not dropped: what else the node makes is made of it. */
static bool has_sum(const Schedule *schedule, const HsNode *node)
{
    return node->layer->carries_sum && !schedule->needed[node->outputs[0]];
}

/* Backward's reads, closed under the inputs of the nodes that make them. */
static void mark_needed(Schedule *schedule)
{
    const HsModel *model = schedule->program->model;
    for (int s = 0; s < model->node_count; s++) {
        int read[HS_NODE_SLOTS];
        for (int i = 0, count = hs_node_backward_slots(model, &model->nodes[s], read); i < count; i++)
            schedule->needed[read[i]] = schedule->needed[read[i]] || schedule->dropped[read[i]];
    }
    for (int s = model->node_count - 1; s >= 0; s--) {
        const HsNode *node = &model->nodes[s];
        schedule->again[s] = node_makes(node, schedule->needed);
        if (schedule->again[s] && node->layer->carries_sum && schedule->dropped[node->outputs[0]])
            schedule->needed[node->outputs[0]] = true;
        for (int i = 0; schedule->again[s] && !has_sum(schedule, node) && i < HS_NODE_INPUTS; i++) {
            if (node->inputs[i] != HS_NONE && schedule->dropped[node->inputs[i]])
                schedule->needed[node->inputs[i]] = true;
        }
    }
}

/* Does backward of this node read something that is to be made again? */
static bool reads_needed(const Schedule *schedule, const HsNode *node)
{
    int read[HS_NODE_SLOTS];
    for (int i = 0, count = hs_node_backward_slots(schedule->program->model, node, read); i < count; i++)
        if (schedule->needed[read[i]])
            return true;
    return false;
}

/* A block's nodes stand together: `node` is one of them. */
static void append_again(Schedule *schedule, int node)
{
    const HsModel *model = schedule->program->model;
    const int block = model->nodes[node].block;
    int first = node;
    while (first > 0 && model->nodes[first - 1].block == block)
        first--;
    for (int s = first; s < model->node_count && model->nodes[s].block == block; s++)
        if (schedule->again[s])
            append(schedule->program, HS_ACTION_RECOMPUTE, s)->has_sum = has_sum(schedule, &model->nodes[s]);
}

static void append_backward(Schedule *schedule)
{
    HsProgram *program = schedule->program;
    const HsModel *model = program->model;
    int remade_block = HS_NONE;
    for (int s = model->node_count - 1; s >= 0; s--) {
        const HsNode *node = &model->nodes[s];
        if (!node->trains) /* nothing below it is trainable */
            continue;
        if (node->block >= 0 && node->block != remade_block && reads_needed(schedule, node)) {
            remade_block = node->block;
            append_again(schedule, s);
        }
        append(program, HS_ACTION_BACKWARD, s);
    }
}

/* Codes of x are kept in place of x, which is twice as large, but where x is there for another node's backward or is made
 * again anyway.  readers: room for a number a slot. */
static void choose_codes(Schedule *schedule, int *readers)
{
    const HsModel *model = schedule->program->model;
    for (int s = 0; s < model->node_count; s++) {
        HsNode *const node = &model->nodes[s];
        node->keeps_codes = node->leaves_codes = node->takes_x_codes = false;
        node->takes_dy_codes =
            schedule->program->training && node->taken[HS_MADE_CODES] != HS_NONE && !model->looks_at_inputs;
    }
    for (int s = 0; s < model->node_count; s++) {
        int read[HS_NODE_SLOTS];
        for (int i = 0, count = hs_node_backward_slots(model, &model->nodes[s], read); i < count; i++)
            readers[read[i]]++;
    }
    for (int s = 0; s < model->node_count && schedule->program->training; s++) {
        HsNode *node = &model->nodes[s];
        node->keeps_codes = hs_node_coded(node) && node->trains && model->params[node->params[0]].trainable &&
                            !model->looks_at_inputs && node->attributes.adapter.rank == 0 &&
                            !schedule->dropped[node->inputs[0]] && readers[node->inputs[0]] == 1;
        node->takes_x_codes = node->keeps_codes && node->inputs[HS_INPUT_CODES] != HS_NONE;
        if (node->takes_x_codes)
            model->nodes[model->slots[node->inputs[HS_INPUT_CODES]].producer].leaves_codes = true;
    }
}

HsStatus hs_program_schedule(HsProgram *program, HsRecompute policy, int64_t recompute_every, int *turn)
{
    const HsModel *model = program->model;
    size_t steps = (size_t)model->node_count, slots = (size_t)model->slot_count;
    assert(model->loss_node == model->node_count - 1);
    bool *marks = calloc(2 * slots + steps, sizeof *marks);
    int *readers = calloc(slots, sizeof *readers);
    program->actions = calloc(3 * steps, sizeof *program->actions);
    if (marks == NULL || readers == NULL || program->actions == NULL) {
        free(marks);
        free(readers);
        return hs_fail(HS_ENOMEM, "program: no memory for a schedule of %zu actions", steps);
    }
    Schedule schedule = { .program = program, .dropped = marks, .needed = marks + slots, .again = marks + 2 * slots };
    for (int s = 0; s < model->node_count; s++) {
        if (!program->training || !model->nodes[s].layer->turns)
            append(program, HS_ACTION_FORWARD, s);
    }
    *turn = program->action_count;
    if (program->training)
        mark_dropped(&schedule, policy_groups[policy], recompute_every);
    choose_codes(&schedule, readers);
    if (program->training) {
        mark_needed(&schedule);
        append_backward(&schedule);
    }
    free(marks);
    free(readers);
    return HS_OK;
}
