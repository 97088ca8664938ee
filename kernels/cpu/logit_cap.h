/* SPDX-License-Identifier: MIT
 *
 * Sixteen capped logits and their derivatives (kernels/ops/logit_cap.h), below 12 and 16 + 4 |x / c| units of 2^-24.
 */
#ifndef HS_KERNELS_CPU_LOGIT_CAP_H
#define HS_KERNELS_CPU_LOGIT_CAP_H

#include "kernels/cpu/simd.h"
#include "kernels/ops/logit_cap.h"

typedef struct HsCappedLogits {
    HsF32x16 logit, slope;
} HsCappedLogits;

/* capped: whether there is a cap, a constant where this is called, so that the other case costs nothing. */
HS_SIMD HsCappedLogits hs_simd_cap(bool capped, HsF32x16 x, float cap)
{
    if (!capped)
        return (HsCappedLogits){ x, hs_simd_splat(1.0f) };
    const HsI32x16 magnitude = hs_simd_splat_i32(0x7FFFFFFF);
    const HsF32x16 u = x * (1.0f / cap), square = u * u, size = (HsF32x16)((HsI32x16)u & magnitude);
    const HsF32x16 e = hs_simd_exp(-2.0f * size), share = 1.0f / (1.0f + e);
    const HsF32x16 far = (HsF32x16)((HsI32x16)((1.0f - e) * share) | ((HsI32x16)u & ~magnitude));
    const HsF32x16 near = u + u * square * HS_TANH_SERIES(square);
    const HsI32x16 is_near = hs_simd_less(size, hs_simd_splat(HS_TANH_NEAR));
    return (HsCappedLogits){ cap * hs_simd_select(is_near, near, far), 4.0f * e * share * share };
}

/* One: the largest number's logit is the largest logit. */
HS_SIMD float hs_simd_cap_one(bool capped, float x, float cap)
{
    return capped ? hs_cap_logit(x, cap) : x;
}

#endif
