/* SPDX-License-Identifier: MIT
 *
 * A uniform sample of every sequence seen so far, in host memory (Vitter 1985, algorithm R).
 *   item n (counting from 1) takes slot n-1 while there is room, then slot j = rand[0, n) if j < capacity
 * Every draw is Philox of (seed, counter), so that the age is the whole state of the generator.
 *
 *   tokens [capacity, T+1]  u16 where the vocabulary allows, else i32: x and the last target
 *   mask   [capacity, ceil(T/8)]  bit t: target t counts; only where some task masks targets
 *   task   [capacity] i32   which task an item came from
 *   marks  [capacity, ceil(T/8)]  bit t: token t begins a document; only where sequences hold several
 * and, where logits are kept (hs_reservoir_keep_logits), the K largest of each token's row, which come after the item:
 *   kept_index [capacity, T K]  u16 where the vocabulary allows, else i32; all bits set: there is none
 *   kept_value [capacity, T K]  f16
 */
#ifndef HS_OPTIM_CONTINUAL_RESERVOIR_H
#define HS_OPTIM_CONTINUAL_RESERVOIR_H

#include <stdbool.h>

#include "kernels/base/status.h"
#include "kernels/base/tensor.h"

typedef struct HsReservoir {
    int64_t capacity, sequence_length;
    int64_t seen;  /* items offered so far: the age */
    int64_t count; /* items held: min(seen, capacity) */
    uint64_t seed;
    HsTensor tokens, mask, task; /* host; mask absent when nothing is masked */
    HsTensor marks;              /* absent where a sequence is one document */
    int64_t kept;                /* K; 0: no logits */
    HsTensor kept_index, kept_value;
} HsReservoir;

/* Host bytes that init allocates. */
size_t hs_reservoir_bytes(int64_t capacity, int64_t sequence_length, int64_t vocabulary, bool masked);
/* errors: HS_ENOMEM naming the bytes and replay.buffer_size */
HsStatus hs_reservoir_init(HsReservoir *reservoir, int64_t capacity, int64_t sequence_length, int64_t vocabulary,
                           bool masked, uint64_t seed);
void hs_reservoir_deinit(HsReservoir *reservoir);

/* Every target of the items held counts, as in a reservoir without a mask: for items that came from one. */
void hs_reservoir_count_all(HsReservoir *reservoir);

/* Host bytes of the marks of documents' first tokens, which come as complements (hs_op_document_starts); and their
 * memory, after init. */
size_t hs_reservoir_mark_bytes(int64_t capacity, int64_t sequence_length);
HsStatus hs_reservoir_keep_marks(HsReservoir *reservoir);

/* Host bytes of K logits a token, with indices below `vocabulary`; and their memory, after init.
 * errors: HS_ENOMEM naming der.top_k */
size_t hs_reservoir_logit_bytes(int64_t capacity, int64_t sequence_length, int64_t vocabulary, int64_t kept);
HsStatus hs_reservoir_keep_logits(HsReservoir *reservoir, int64_t kept, int64_t vocabulary);

/* Offer a sequence: tokens [T], targets [T] (-1: ignored, remembered in the mask).  Returns the slot that it took,
 * without logits so far; -1: none. */
int64_t hs_reservoir_add(HsReservoir *reservoir, const int32_t *tokens, const int32_t *targets, int task);
/* No item is held any more, and the age is 0 again. */
void hs_reservoir_clear(HsReservoir *reservoir);

enum { HS_RESERVOIR_ANY_TASK = 0x7fffffff };
/* The slot of draw number `draw`, uniform with replacement among the items of tasks below `before_task`
 * (HS_RESERVOIR_ANY_TASK: all); -1 when there is none. */
int64_t hs_reservoir_draw(const HsReservoir *reservoir, uint64_t draw, int before_task);
/* The sequence of a slot, as it was offered; a masked last target comes back as -1. */
void hs_reservoir_read(const HsReservoir *reservoir, int64_t slot, int32_t *tokens, int32_t *targets);
/* The logits of a slot's item: value, index [T,K]; index -1: there is none.  What is not finite is not kept, what f16
 * cannot hold is cut to its largest number. */
void hs_reservoir_write_logits(HsReservoir *reservoir, int64_t slot, const float *value, const int32_t *index);
void hs_reservoir_read_logits(const HsReservoir *reservoir, int64_t slot, float *value, int32_t *index);

#endif
