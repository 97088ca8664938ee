/* SPDX-License-Identifier: MIT
 *
 * Predicted times of attention, besides matmul_model.cuh's of products, and the GPUs that both are printed for.
 *
 * A score of attention (a query against a key it may see) costs one multiprocessor
 *
 *     products  P = max(products * head_dim / (rate * peak), shared * head_dim / 128)
 *                                                            multiply-adds on the tensor cores; or bytes of shared memory
 *     softmax   S = passes / 16 + other / 128                exp2 on 16 special function units, the rest on 128 lanes
 *     clocks    = max(P, S) + (1 - OVERLAP) * min(P, S)
 *
 * shared: what wgmma reads there, what threads write and copies move.  Backward, a step of 128 queries by 128 keys at
 * width 64: 48 KiB for S, 48 dP, 32 dV, 32 dK, 64 dQ, 64 written, 64 copied; at width 128 a step of 64 queries 368 KiB.
 * That is 2,816 and 2,944 clocks, where products at their rate take 2,844.
 *
 * With two products forward and, backward, five (S, dP, dQ, dK, dV); kernels apart for dQ and for dK and dV make S, dP
 * and the exponentials twice: seven products, two passes.  rate is the share of the peak that products by themselves
 * reach, OVERLAP how much of the shorter part hides behind the longer: about half, where two blocks share a
 * multiprocessor, or two warpgroups take turns within a tile.  A simulation of backward's products, exponentials and
 * waits on ideal tensor cores and lanes says 0.57 for consumers that meet in each step and 1 for those that may be a step
 * apart; 0.5 leaves room for latencies.  One H200 took 507 us for GPT-2's backward (bench/results/nvidia-h200/blocks.md), where
 * 0.5 says 317 and 0 says 395: the rest waits, for what is not known.  Other work is counted in instructions a score:
 * scale and subtract, maximum, sum, half a conversion; backward scale and subtract, the gradient's subtract and multiply,
 * a conversion.
 * Causal tiles on the diagonal are computed whole, but for what a way leaves out.  The kernels take
 *
 *     seconds = max((LAUNCH_CLOCKS * launches + clocks * scores / multiprocessors + start + end) / clock,
 *                   bytes / bandwidth) + bytes of passes apart / bandwidth
 *
 * start: a tile's or ticket's clocks before its products flow, once for each that a multiprocessor has.  end: what the
 * last of them takes while other multiprocessors have none, a share of the longest.  Passes apart read dout and out for
 * delta, and put f32 sums of dq in order.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_PREDICTED_CUH
#define HS_KERNELS_CUDA_PRODUCT_PREDICTED_CUH

#include <stdio.h>

#include "kernels/cuda/product/matmul_model.cuh"

namespace HS_CUDA_NAMESPACE
{

/* A causal attention of as many queries as keys. */
struct AttentionShape {
    const char *name;
    int64_t batch, length, heads, head_dim;
};

/* A way to compute it. */
struct AttentionWay {
    const char *name;
    bool backward, wgmma;
    int products, passes;           /* a score; backward: of both kernels */
    double shared;                  /* bytes of shared memory a score and feature; 0: not counted */
    double other;                   /* instructions a score */
    int product_tile, softmax_tile; /* queries by keys on the diagonal */
    double overlap;
    int rows;          /* of a tile or ticket, and ... */
    double start, end; /* ... its clocks without products; the share of the longest that others wait for */
    int launches;
    double bytes_apart; /* an element of q */
};

/* The kernels of 16 bits. */
const AttentionWay &attention_way(bool backward, bool wgmma);
double attention_seconds(const AttentionShape &shape, const AttentionWay &way, const DeviceLimits &limits);
/* 4 T^2/2 H D a sequence forward, two and a half times that backward: what is usually quoted. */
double attention_flops(const AttentionShape &shape, bool backward);

/* A section of the page (predicted_fp8.cu), where tensor cores multiply FP8. */
void write_fp8(FILE *out, const DeviceLimits &limits);

HsStatus write_predicted(FILE *out);

} // namespace HS_CUDA_NAMESPACE

#endif
