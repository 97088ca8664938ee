/* SPDX-License-Identifier: MIT
 *
 * Memory is planned, not discovered.  From the table of nodes comes a straight schedule of actions
 *     forward 0..n, then upward: [forward again of a dropped range], backward n..0
 * and from the schedule the lifetime of every value; from the lifetimes, offsets in one activation arena.
 *
 *     action:   F0  F1  F2  H  R1  B2  B1  B0        F forward, H head with loss, R forward again, B backward
 *     slot 1:       [======]                         dropped by the policy after its last forward reader
 *     slot 1':                  [==========]         the recomputed instance, may lie elsewhere
 */
#ifndef HS_RUNTIME_ENGINE_PROGRAM_H
#define HS_RUNTIME_ENGINE_PROGRAM_H

#include "runtime/config/kinds.h"
#include "runtime/model/head_work.h"
#include "runtime/model/target_rows.h"

#define HS_RECOMPUTE(identifier, word) HS_RECOMPUTE_##identifier,
typedef enum HsRecompute { HS_RECOMPUTE_POLICIES(HS_RECOMPUTE) } HsRecompute;

typedef enum HsActionKind { HS_ACTION_FORWARD, HS_ACTION_RECOMPUTE, HS_ACTION_BACKWARD } HsActionKind;

/* One call of a layer, with the buffer (index into program->buffers) of everything it touches; HS_NONE: not touched.
 * Backward sees only those values that its layer declares, so that lifetimes cannot be wrong unnoticed. */
typedef struct HsAction {
    HsActionKind kind;
    int node;
    int inputs[HS_NODE_INPUTS], outputs[HS_NODE_OUTPUTS], saved[HS_NODE_SAVED], scratch[HS_NODE_SCRATCH];
    int d_inputs[HS_NODE_INPUTS], d_outputs[HS_NODE_OUTPUTS];
    int made[HS_NODE_MADE], taken[HS_NODE_MADE];
    bool accumulate[HS_NODE_INPUTS]; /* d_inputs[i] holds another consumer's share already */
    bool accumulate_sum;             /* ... d_outputs[0] of a layer that carries a sum */
    bool has_sum;                    /* such a layer's forward again: outputs[0] is there, inputs are not read */
    double flops;
} HsAction;

typedef struct HsBuffer {
    int slot;                      /* HS_NONE: scratch of one action, or sums that one leaves to another */
    bool gradient;                 /* the slot's */
    int first_action, last_action; /* lifetime, inclusive */
    HsTensor tensor;               /* shape and dtype; data stays NULL */
    size_t bytes, offset;
} HsBuffer;

/* Called around each action of a training pass: what has to be there, and what is ready. */
typedef struct HsProgramExchange {
    HsStatus (*before)(void *user, HsContext *context, int action);
    HsStatus (*after)(void *user, HsContext *context, int action);
    void *user;
} HsProgramExchange;

typedef struct HsProgram {
    HsModel *model;
    int64_t batch, sequence_length; /* of a micro-batch */
    int64_t length_grain;           /* a pass may end earlier, at a multiple of it; 0: none does (program_lengths.c) */
    bool training;
    HsAction *actions;
    int action_count;
    HsBuffer *buffers;
    int buffer_count;
    size_t activation_bytes;                               /* size of the activation arena */
    size_t kept_bytes;                                     /* alive between forward and backward, at most */
    size_t workspace_bytes;                                /* largest operation's scratch */
    size_t head_bytes;                                     /* logits chunk and its gradient */
    double forward_flops, backward_flops, recompute_flops; /* per micro-batch */
    HsArena activations, workspace;
    const HsProgramExchange *exchange;  /* NULL: none */
    bool guest;                         /* the arenas are another program's */
    const struct HsFactorPass *factors; /* probes add factors of curvature (runtime/model/layer.h); NULL: none */
    int tokens_buffer, targets_buffer, losses_buffer, scale_buffer; /* scale: the device scalar gradient_scale */
    int rows_buffer;   /* [B*T] i32: rows with a target (runtime/model/target_rows.h), where the program lists them */
    int starts_buffer; /* [B*T] i32 (hs_op_document_starts); HS_NONE: a sequence is one document */
    void *host_losses; /* [B*T], where losses arrive */
    int32_t *host_rows;
} HsProgram;

/* Builds the schedule, dry-runs every action (shape errors surface here) and assigns offsets.  Allocates no tensors. */
HsStatus hs_program_create(HsModel *model, HsContext *context, int64_t batch, int64_t sequence_length, bool training,
                           HsRecompute policy, int64_t recompute_every, HsProgram *program);
/* Allocate the arenas.  context->workspace is this program's while it runs, and what it was before afterwards. */
HsStatus hs_program_commit(HsProgram *program, HsContext *context);
/* `guest` runs only while `program` does not, and can use its memory: before its commit, its arenas are made large
 * enough for both; after it, the guest is committed in them. */
void hs_program_make_room(HsProgram *program, const HsProgram *guest);
HsStatus hs_program_commit_in(HsProgram *guest, const HsContext *context, const HsProgram *program);
void hs_program_destroy(HsProgram *program);
/* live_bytes [action_count]: what of the buffers is alive at each action; never more than activation_bytes. */
void hs_program_live_bytes(const HsProgram *program, size_t *live_bytes);

/* One micro-batch forward and backward: gradients are accumulated into the parameters.
 *   tokens, targets [B*T] i32 on the host (-1: ignored); where model->documents, here and below, a token that begins a
 *   document inside its sequence comes as its complement (hs_op_document_starts);  gradient_scale = loss scale / counted targets of the whole
 *   effective batch;  row_offset: first token row (sequence index * T) of this micro-batch in the effective batch.
 *   loss_sum: sum of the counted targets' losses (nats), summed in double in row order. */
HsStatus hs_program_train(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                          uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale, double *loss_sum);

/* What the queued form reads and writes: device memory. */
typedef struct HsProgramFeed {
    const int32_t *tokens, *targets; /* [B*T] */
    uint64_t seed;
    const uint32_t *step_counter; /* the optimizer step that random numbers belong to */
    const float *gradient_scale;
    int64_t row_offset;
    void *losses;                /* [B*T] of the precision's statistic dtype; NULL: not wanted */
    const HsHeadWork *head_work; /* of these rows; NULL: the loss alone.  The model expects it. */
    int64_t *left_out;           /* added to: tokens of padding that the pass left out; NULL: not wanted */
    HsTargetRows target_rows;    /* its number of rows is the one thing that a recording fixes */
} HsProgramFeed;

/* hs_program_train without the host: work is enqueued, nothing is waited for, and from one step to the next with as many
 * target_rows nothing changes but the feed's memory, so that it can be recorded and replayed. */
HsStatus hs_program_train_queued(HsProgram *program, HsContext *context, const HsProgramFeed *feed);

/* Forward and backward as hs_program_train, but dropout and z-loss off: the gradient of -log p alone, in the model that
 * evaluation sees, added to the parameters'.  gradient_scale multiplies the sum over counted targets.
 * sample_labels: targets that are not -1 are drawn from the model's own distribution (hs_op_sample_labels, keyed by
 * seed, step and row) before the loss.  row_losses (host, [B*T]) may be NULL. */
HsStatus hs_program_probe(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                          bool sample_labels, uint64_t seed, uint32_t step, int64_t row_offset, float gradient_scale,
                          double *loss_sum, float *row_losses);

/* Forward without the head, dropout off: the last hidden rows of `tokens` [B*T] (device memory) into `hidden` [B*T,C], of
 * the format of the model's.  Work is enqueued, nothing is waited for. */
HsStatus hs_program_encode(const HsProgram *program, HsContext *context, const int32_t *tokens, HsTensor hidden);

/* What the operations of a probe need of a workspace, those of program->factors included. */
HsStatus hs_program_probe_workspace(const HsProgram *program, const HsContext *context, size_t *bytes);

/* Forward only, dropout off: loss_sum, and per-row losses if row_losses (host, [B*T]) is given. */
HsStatus hs_program_evaluate(HsProgram *program, HsContext *context, const int32_t *tokens, const int32_t *targets,
                             double *loss_sum, float *row_losses);

/* Greedy decoding's choice at every position, given the tokens before it: predicted[b T + t] is the likeliest token
 * after tokens[b T .. b T + t], of the first `vocabulary` ones; ties: the lowest (hs_op_argmax).  `batch` sequences of
 * `length` tokens, in any shape that hs_program_fits; tokens, predicted: host [batch, length]. */
HsStatus hs_program_predict(HsProgram *program, HsContext *context, int64_t batch, int64_t length, int64_t vocabulary,
                            const int32_t *tokens, int32_t *predicted);
/* Whether an evaluation program has memory for `batch` sequences of `length` tokens.  Its own shape always fits. */
bool hs_program_fits(const HsProgram *program, const HsContext *context, int64_t batch, int64_t length);

/* The loss (nats; 0 for an ignored target) of one row of the latest micro-batch; row b T + t is position t of sequence
 * b. */
double hs_program_row_loss(const HsProgram *program, int64_t row);

/* After a step with non-finite gradients: run the micro-batch again, looking at every weight, then at every value and
 * gradient after every action; writes e.g. "block.2.attention.out (forward, attention)", or "" if all is finite.  Slow;
 * changes no parameter and clears gradients. */
HsStatus hs_program_find_nonfinite(HsProgram *program, HsContext *context, const int32_t *tokens,
                                   const int32_t *targets, uint64_t seed, uint32_t step, int64_t row_offset,
                                   float gradient_scale, char *where, size_t where_size);

HsStatus hs_recompute_find(const char *name, HsRecompute *policy);
const char *hs_recompute_name(HsRecompute policy);

#endif
