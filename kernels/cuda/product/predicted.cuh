/* SPDX-License-Identifier: MIT
 *
 * Predicted times of attention, beside matmul_model.cuh's of products, and the GPUs that both are printed for.
 *
 * A score of attention (a query against a key it may see) costs one multiprocessor
 *
 *     products  P = products * head_dim / (rate * peak)      multiply-adds on the tensor cores
 *     softmax   S = passes / 16 + other / 128                exp2 on 16 special function units, the rest on 128 lanes
 *     clocks    = max(P, S) + (1 - OVERLAP) * min(P, S)
 *
 * with two products forward and, backward, five (S, dP, dQ, dK, dV); kernels apart for dQ and for dK and dV make S, dP
 * and the exponentials twice: seven products, two passes.  rate is the share of the peak that products by themselves
 * reach, OVERLAP how much of the shorter part hides behind the longer: two warpgroups in turns hide about half.  Other
 * work is counted in instructions a score: scale and subtract, maximum, sum, half a conversion; backward scale and
 * subtract, the gradient's subtract and multiply, a conversion.  Causal tiles on the diagonal are computed whole.  The
 * kernel takes
 *
 *     seconds = max((LAUNCH_CLOCKS + clocks * scores / multiprocessors) / clock, bytes / bandwidth)
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
    int products, passes; /* a score; backward: of both kernels */
    double other;         /* instructions a score */
    int tile;             /* queries by keys on the diagonal */
};

/* The kernels of 16 bits. */
const AttentionWay &attention_way(bool backward, bool wgmma);
double attention_seconds(const AttentionShape &shape, const AttentionWay &way, const DeviceLimits &limits);
/* 4 T^2/2 H D a sequence forward, two and a half times that backward: what is usually quoted. */
double attention_flops(const AttentionShape &shape, bool backward);

HsStatus write_predicted(FILE *out);

} // namespace HS_CUDA_NAMESPACE

#endif
