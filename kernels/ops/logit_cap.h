/* SPDX-License-Identifier: MIT
 *
 * Capped logits (Gemma Team 2024, section 2):  z = c tanh u,  u = x / c,  and their derivative by x,  1 - tanh^2 u.
 * With e = exp(-2 |u|), which is at most 1,
 *     tanh |u| = (1 - e) / (1 + e),     1 - tanh^2 u = 4 e / (1 + e)^2
 * of which the second cancels nowhere, and the first near 0 alone: there it is a series.  So z keeps its relative
 * accuracy however large the cap is, and a saturated logit its small gradient.
 */
#ifndef HS_KERNELS_OPS_LOGIT_CAP_H
#define HS_KERNELS_OPS_LOGIT_CAP_H

#include <math.h>

/* tanh u = u + u s P(s), s = u^2, for |u| below HS_TANH_NEAR: a minimax fit, off by at most 9e-9 of itself, for vectors
 * and kernels. */
#define HS_TANH_NEAR 0.625f
#define HS_TANH_SERIES(s)                                                                                \
    (((((s) * -0x1.75e188p-8f + 0x1.52268cp-6f) * (s) + -0x1.b83c58p-5f) * (s) + 0x1.110726p-3f) * (s) + \
     -0x1.555532p-2f)

/* In f32; cap 0: none. */
static inline float hs_cap_logit(float x, float cap)
{
    return cap > 0.0f ? cap * tanhf(x / cap) : x;
}

static inline float hs_cap_slope(float x, float cap)
{
    if (!(cap > 0.0f))
        return 1.0f;
    const float e = expf(-2.0f * fabsf(x / cap)), share = 1.0f / (1.0f + e);
    return 4.0f * e * share * share;
}

#endif
