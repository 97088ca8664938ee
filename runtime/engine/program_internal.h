/* SPDX-License-Identifier: MIT
 *
 * What the files of the program and its executor share; private to them.
 */
#ifndef HS_RUNTIME_ENGINE_PROGRAM_INTERNAL_H
#define HS_RUNTIME_ENGINE_PROGRAM_INTERNAL_H

#include "runtime/engine/program.h"
#include "runtime/model/layer.h"

/* program_schedule.c: fills the actions (kind and node only).  *turn: where forward becomes backward. */
HsStatus hs_program_schedule(HsProgram *program, HsRecompute policy, int64_t recompute_every, int *turn);
/* The slots that backward of the node reads; returns how many. */
enum { HS_NODE_SLOTS = HS_NODE_INPUTS + HS_NODE_OUTPUTS + HS_NODE_SAVED };
int hs_node_backward_slots(const HsModel *model, const HsNode *node, int slots[HS_NODE_SLOTS]);
/* Bit i: its backward reads inputs[i]. */
unsigned hs_node_reads_inputs(const HsModel *model, const HsNode *node);
/* Whether forward writes saved[i], or outputs[i]: codes only where the program keeps them, or where they are left for a node
 * that reads nothing else. */
bool hs_node_saves(const HsModel *model, const HsNode *node, int i);
bool hs_node_writes(const HsModel *model, const HsNode *node, int i);

/* program_offsets.c: offsets in one arena so that buffers alive at once never overlap; sets activation_bytes. */
HsStatus hs_program_place(HsProgram *program);

/* execute.c: how one run of actions differs from another. */
typedef struct HsExecution {
    bool training;      /* dropout and z-loss on */
    bool sample_labels; /* the head replaces targets by labels drawn from the model */
    int64_t predict;    /* the head replaces targets by the likeliest of that many tokens; 0: it does not */
    int64_t batch, sequence_length, position_start;
    uint64_t seed;
    uint32_t step;
    int64_t row_offset;
    const uint32_t *step_counter;  /* device memory, added to step; NULL: 0 */
    const float *gradient_scale;   /* device scalar; NULL: the program's own */
    const HsKeyValueCache *caches; /* per node of the model; NULL: not decoding */
    bool without_head;             /* the last action is left out */
    bool stores_all;               /* values are looked at: none is left out for its codes */
    const HsHeadWork *head_work;   /* NULL: the loss alone */
    HsTargetRows target_rows;      /* all 0: the head runs on all rows */
} HsExecution;

/* Forward and backward of a whole micro-batch. */
static inline HsExecution hs_execution_of_training(const HsProgram *program, uint64_t seed, uint32_t step,
                                                   int64_t row_offset)
{
    return (HsExecution){ .training = true,
                          .batch = program->batch,
                          .sequence_length = program->sequence_length,
                          .seed = seed,
                          .step = step,
                          .row_offset = row_offset };
}

/* Called after each action that ran, by its index.  *enough: the walk ends here, without an error. */
typedef HsStatus (*HsAfterAction)(void *user, int action, bool *enough);
/* Every action in turn, in the program's scratch.  Between two of them context->stop_asked is asked.
 * after_action may be NULL.  errors: HS_EINTERRUPTED, and what actions and after_action return */
HsStatus hs_program_run(const HsProgram *program, HsContext *context, const HsExecution *execution,
                        HsAfterAction after_action, void *user);

/* While a program runs, the context's scratch is the program's: enter returns what it was, leave gives it back. */
typedef struct HsProgramWorkspace {
    void *data;
    size_t bytes;
} HsProgramWorkspace;
HsProgramWorkspace hs_program_enter(const HsProgram *program, HsContext *context);
void hs_program_leave(HsContext *context, HsProgramWorkspace outer);

/* The tensor in a buffer: `rows` may be fewer than planned (decoding). */
HsTensor hs_program_tensor(const HsProgram *program, int buffer, int64_t rows);
HsStatus hs_execute_action(const HsProgram *program, HsContext *context, const HsAction *action,
                           const HsExecution *execution);
/* The same for the layer's forward, whatever the action's kind. */
HsStatus hs_execute_forward(const HsProgram *program, HsContext *context, const HsAction *action,
                            const HsExecution *execution);
HsStatus hs_program_load_inputs(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                const int32_t *targets, int64_t rows);
/* The same for whole sequences, and where their documents start. */
HsStatus hs_program_load_sequences(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                   const int32_t *targets, int64_t batch, int64_t length);
/* Lists the rows with a target of a micro-batch that was loaded, of the first `length` of each sequence.
 * targets [B*T] on the host */
HsStatus hs_program_list_targets(const HsProgram *program, HsContext *context, const int32_t *targets, int64_t length,
                                 HsTargetRows *rows);

/* Both for a whole micro-batch, and the scale of gradients. */
HsStatus hs_program_load_training(const HsProgram *program, HsContext *context, const int32_t *tokens,
                                  const int32_t *targets, float gradient_scale, HsTargetRows *rows);

/* program_lengths.c: passes that end before T.  Lengths are multiples of this; 0: none does. */
int64_t hs_program_length_grain(const HsModel *model, const HsDevice *device, int64_t sequence_length);
/* Behind which no sequence of the program's micro-batch has a target. */
int64_t hs_program_needed_length(const HsProgram *program, const int32_t *targets);
/* The first `length` elements of sequences of `most` -> values [sequences * length]; and back, the rest 0. */
HsStatus hs_sequences_load(HsContext *context, HsTensor values, const int32_t *from, int64_t length, int64_t most);
HsStatus hs_sequences_take(HsContext *context, HsTensor losses, void *to, int64_t length, int64_t most);

/* execute_nonfinite.c: zero every parameter's gradient. */
HsStatus hs_program_clear_gradients(const HsProgram *program, HsContext *context);

#endif
