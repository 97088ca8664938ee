/* SPDX-License-Identifier: MIT
 *
 * In which formats the operands of a product are multiplied, and how they are scaled then, by a row of the precision
 * table.  Of tf32 it is a permission, which a backend that multiplies f32 in full precision may leave untaken.  What is
 * below 16 bits comes in codes (kernels/ops/codes.h), of just these formats.
 */
#ifndef HS_KERNELS_OPS_PRODUCT_POLICY_H
#define HS_KERNELS_OPS_PRODUCT_POLICY_H

#include <stdbool.h>

#include "kernels/base/dtype.h"

/* One scale for how many elements of an operand (kernels/ops/codes.h). */
typedef enum HsScaleGranularity {
    HS_SCALE_NONE = 0,
    HS_SCALE_TENSOR,
    HS_SCALE_BLOCK, /* 128 neighbours along k; of weights 128 x 128 */
    HS_SCALE_MX,    /* 32 neighbours along k */
    HS_SCALE_NV,    /* 16 neighbours along k, of weights 16 x 16; and one a tensor */
    HS_SCALE_GRANULARITIES
} HsScaleGranularity;

/* What each operand is rounded to.  f32, the widest and 0, leaves it as it is: all zero, both are multiplied as they are. */
typedef struct HsProductPolicy {
    HsDtype a, b;
    HsScaleGranularity granularity;
} HsProductPolicy;

/* Initializers. */
#define HS_POLICY_AS_IS               \
    {                                 \
        HS_F32, HS_F32, HS_SCALE_NONE \
    }
#define HS_POLICY_TF32                  \
    {                                   \
        HS_TF32, HS_TF32, HS_SCALE_NONE \
    }

static inline bool hs_format_rounds(HsDtype format)
{
    return format != HS_F32;
}

static inline bool hs_policy_rounds(HsProductPolicy policy)
{
    return hs_format_rounds(policy.a) || hs_format_rounds(policy.b);
}

static inline bool hs_policy_is_tf32(HsProductPolicy policy)
{
    return policy.a == HS_TF32 && policy.b == HS_TF32 && policy.granularity == HS_SCALE_NONE;
}

#endif
