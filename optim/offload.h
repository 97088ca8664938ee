/* SPDX-License-Identifier: MIT
 *
 * States on the host (Ren et al. 2021, "ZeRO-Offload"): masters and moments of a device's parameters lie in pinned host
 * memory, and the host updates them with the CPU backend's kernels.
 *
 *     device   gradients --down--+                        +--up--> weights
 *     host                       v                        |
 *              two buffers: [gradient, weight] -> rule: master, moments in place -> [weight]
 *
 * Gradients or weights that lie on the host, too, are used where they are: nothing of them comes down or goes up here.
 *
 * A piece is up to HS_OFFLOAD_PIECE elements of one span.  While the host updates one piece, the next one's gradient
 * comes down and the one before goes up.  The decisions of the step (norm, clipping, skip) are the device's, as without
 * offload, and the host waits for them.  Of a skipped step nothing is moved, but where a strategy steps back.
 *
 * The bits are those of the same step on the device: kernels/ops/update_rule.h is the arithmetic of both.
 */
#ifndef HS_OPTIM_OFFLOAD_H
#define HS_OPTIM_OFFLOAD_H

#include "optim/update.h"

enum { HS_OFFLOAD_PIECE = 1 << 20, HS_OFFLOAD_BUFFERS = 2 };

typedef struct HsOffloadBuffer {
    unsigned char *gradient, *weight; /* pinned; f32 of a piece each, or less */
    HsEvent *arrived, *sent;
    bool in_use; /* `sent` was recorded in this update */
} HsOffloadBuffer;

typedef struct HsOffload {
    HsDevice *device;
    HsOffloadLevel level;
    HsDevice memory; /* the host */
    HsContext host;  /* the CPU backend on it */
    HsStream *down, *up;
    HsEvent *decided;
    HsOffloadBuffer buffers[HS_OFFLOAD_BUFFERS];
    HsArena pinned; /* of buffers and of what follows */
    HsStepScalars *scalars;
    HsStepState *state;
} HsOffload;

/* What a step moves: bytes down to the host and up again, and what all of them read and write in the host's memory. */
typedef struct HsOffloadTraffic {
    double down, up, host;
} HsOffloadTraffic;

/* errors: HS_ECONFIG for spans with a rule for whole matrices, HS_EUNSUPPORTED where the processor has no
 * fused multiply-add, as its bits would be others, HS_ENOMEM */
HsStatus hs_offload_create(HsDevice *device, const HsOptimizerConfig *config, const HsSpan *spans, int count,
                           HsOffload **offload);
void hs_offload_destroy(HsOffload *offload); /* NULL: nothing */

/* From gradients and the decisions of hs_optimizer_update to weights; the spans' gradients are 0 afterwards. */
HsStatus hs_offload_update(HsOffload *offload, const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans,
                           int count);
/* weight = round(master), wherever there is a master. */
HsStatus hs_offload_round_weights(HsOffload *offload, HsContext *context, const HsSpan *spans, int count);

/* Between two updates: the host's context, and of a piece (of up to HS_DERIVED_PIECE elements, where a span derives what is
 * evaluated) f32 and room for its weights.  All that was started on the context's stream is done. */
HsStatus hs_offload_lend(HsOffload *offload, HsContext *context, HsContext **host, void **wide, void **weight);

/* Of the update.  What passes before it brings and takes is hs_offload_pass_traffic's. */
HsOffloadTraffic hs_offload_traffic(HsOffloadLevel level, const HsSpan *spans, int count);
/* Of `passes` micro-batches, each of which reads `weight_bytes` of weights; parts: of the sums of gradients. */
HsOffloadTraffic hs_offload_pass_traffic(HsOffloadLevel level, const HsSpan *spans, int count, double passes,
                                         double parts, double weight_bytes);

#endif
