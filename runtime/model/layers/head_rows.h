/* SPDX-License-Identifier: MIT
 *
 * The rows that the head runs on (head_rows.c): private to the files of the head.
 */
#ifndef HS_RUNTIME_MODEL_LAYERS_HEAD_ROWS_H
#define HS_RUNTIME_MODEL_LAYERS_HEAD_ROWS_H

#include "runtime/model/layer.h"

/* Scratch of the head. */
enum {
    HS_HEAD_LOGITS,  /* [chunk, V] */
    HS_HEAD_DLOGITS, /* [chunk, V], where it cannot take the logits' memory */
    HS_HEAD_TEACHER, /* [chunk, V]: a teacher's logits */
    HS_HEAD_HIDDEN,  /* [chunk, C]: rows with a target, one behind the other; then their gradient */
    HS_HEAD_TARGETS, /* [chunk], and what comes of them */
    HS_HEAD_LOSSES,
    HS_HEAD_TABLES, /* and behind it: the rows of what strategies ask for (head_distill.c) */
};

/* Some rows: those that follow each other in the micro-batch from `first` on; or, where there is a list, those that it
 * names from place `first` on, in scratch.  Backward alone has gradients. */
typedef struct HsHeadChunk {
    HsTensor list; /* [size] i32 */
    int64_t first, size;
    HsTensor hidden, targets, losses, dhidden, logits, dlogits;
} HsHeadChunk;

/* Whether rows are left out in this call. */
bool hs_head_leaves_out(const HsLayerCall *call, const HsNode *node);

/* Rows of a chunk that holds `count` of them, of which at most `room` fit: some more, without a target, make the number
 * one of a few (hs_head_rows_step). */
int64_t hs_head_rows_padded(int64_t chunk, int64_t count, int64_t room);
int64_t hs_head_rows_step(int64_t chunk);

/* The rows of x that the list names, one behind the other; where it names none, 0, or -1 of integers.
 * x, y [rows, columns] or [rows] */
HsStatus hs_head_rows_gather(const HsLayerCall *call, HsTensor list, HsTensor x, HsTensor y);
/* Back to their rows; y's other rows stay. */
HsStatus hs_head_rows_scatter(const HsLayerCall *call, HsTensor list, HsTensor x, HsTensor y);
HsStatus hs_head_rows_clear(const HsLayerCall *call, HsTensor x);

/* What strategies ask of the head (head_distill.c) in addition to the loss, of a chunk of backward. */
HsStatus hs_head_distill(const HsLayerCall *call, const HsNode *node, const HsHeadChunk *chunk);
/* The scratch that it needs where rows are gathered, for chunks of `rows`. */
void hs_head_distill_scratch(const HsNode *node, HsDtype loss, int64_t rows, HsTensor scratch[HS_NODE_SCRATCH]);
/* What it leaves of rows that are left out: no term, no logits. */
HsStatus hs_head_distill_nothing(const HsLayerCall *call);

#endif
