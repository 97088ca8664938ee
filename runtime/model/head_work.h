/* SPDX-License-Identifier: MIT
 *
 * What the head does in addition to the loss, for strategies that compare logits: they exist nowhere else.
 *     keeping    the K largest logits of each row are written down, to be matched when the row is replayed (DER++);
 *                a row without a target is never matched: where the head leaves it out, zeros stand for its logits
 *     matching   replayed rows are pulled towards the logits that were kept of them
 *     a teacher  new rows (LwF), replayed ones (generative replay) or both are pulled towards what another model says of the
 *                same text; its logits are made chunk by chunk next to the model's own, from the last hidden rows that
 *                it left in device memory
 */
#ifndef HS_RUNTIME_MODEL_HEAD_WORK_H
#define HS_RUNTIME_MODEL_HEAD_WORK_H

#include "runtime/model/model.h"

/* Device memory, by row of the micro-batch. */
typedef struct HsHeadWork {
    int64_t kept;                /* K; 0: no logits are kept or matched */
    float weight, target_weight; /* of match_logits */
    const int32_t *replayed;     /* [N]: 1: a row that is replayed */
    const float *kept_value;     /* [N,K] of replayed rows */
    const int32_t *kept_index;
    float *top_value; /* [N,K] out; of a row that the head leaves out (head_rows.c) all 0 */
    int32_t *top_index;
    HsTeaching fresh, again; /* of distill */
    HsTensor teacher_hidden; /* [N,C]; absent: there is no teacher */
    const HsParam *teacher_head;
    const HsAttributes *teacher_attributes; /* of its head */
    void *terms;                            /* [N] out, of the losses' dtype: what the two add to the loss */
} HsHeadWork;

/* Before programs are made: room for the gradient of a chunk next to its logits, for `kept` logits a row, and for a
 * teacher's. */
void hs_model_expect_head_work(HsModel *model, int64_t kept, bool teacher);

#endif
