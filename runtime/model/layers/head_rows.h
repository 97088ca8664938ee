/* SPDX-License-Identifier: MIT
 *
 * The rows of a micro-batch that the head runs on (head_rows.c).
 */
#ifndef HS_RUNTIME_MODEL_LAYERS_HEAD_ROWS_H
#define HS_RUNTIME_MODEL_LAYERS_HEAD_ROWS_H

#include "runtime/model/layer.h"

/* Scratch of the head. */
enum {
    HS_HEAD_LOGITS,         /* [chunk, V] */
    HS_HEAD_DLOGITS,        /* [chunk, V], where it cannot take the logits' memory */
    HS_HEAD_TEACHER,        /* [chunk, V]: a teacher's logits */
    HS_HEAD_HIDDEN,         /* [chunk, C]: rows with a target, one behind the other, and the next two likewise */
    HS_HEAD_TARGETS,        /* [chunk] */
    HS_HEAD_TEACHER_HIDDEN, /* [chunk, C] */
};

typedef struct HsHeadRows {
    const int32_t *targets; /* of the micro-batch; NULL: all rows, in place */
    int64_t total, counted; /* rows of the micro-batch; those that the head runs on */
} HsHeadRows;

/* Rows that follow each other in the micro-batch as they do in a chunk. */
typedef struct HsRowRun {
    int64_t place, row, count; /* the first one's place in the chunk, and in the micro-batch */
} HsRowRun;

HsHeadRows hs_head_rows(const HsLayerCall *call, const HsNode *node);

/* Rows of a chunk that holds `count` of them, of which at most `room` fit: some more, without a target, make the number
 * one of a few (hs_head_rows_step). */
int64_t hs_head_rows_padded(int64_t chunk, int64_t count, int64_t room);
int64_t hs_head_rows_step(int64_t chunk);

/* Before the first call for a chunk of `count` rows, *run holds in `row` a row at or before the chunk's first, and 0 in
 * the others; false: there is none left, and run->row is behind the chunk's last. */
bool hs_head_rows_next(const HsHeadRows *rows, int64_t count, HsRowRun *run);

/* The chunk's rows of x, one behind the other, and bytes `fill` in the rest of `gathered`; returns *run as
 * hs_head_rows_next leaves it.  run: where the chunk begins. */
HsRowRun hs_head_rows_gather(const HsHeadRows *rows, HsTensor x, int64_t count, HsRowRun run, int fill,
                             HsTensor gathered);

/* Rows that stand one behind the other at the beginning of x go where they belong; the others become zeros. */
void hs_head_rows_spread(const HsHeadRows *rows, HsTensor x);

/* What strategies ask of the head (head_distill.c).  Of a chunk: a teacher's logits, as many rows as the chunk has. */
HsStatus hs_head_teach(const HsLayerCall *call, const HsHeadRows *rows, int64_t count, HsRowRun begin, int64_t size);
/* Of a run: the rest.  logits, dlogits: its rows in the chunk; targets: in the micro-batch. */
HsStatus hs_head_distill(const HsLayerCall *call, HsTensor logits, HsTensor targets, HsTensor dlogits,
                         const HsRowRun *run);
/* What the two leave of a row that is left out: no term, no logits. */
void hs_head_distill_nothing(const HsLayerCall *call, int64_t rows);

#endif
