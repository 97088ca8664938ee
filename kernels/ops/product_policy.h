/* SPDX-License-Identifier: MIT
 *
 * In which formats the operands of a product are multiplied, and how they are scaled then, by a row of the precision
 * table.  Of tf32 it is a permission, which a backend that multiplies f32 in full precision may leave untaken.  What is
 * below 16 bits comes in codes (kernels/ops/codes.h), of just these formats.
 */
#ifndef HS_KERNELS_OPS_PRODUCT_POLICY_H
#define HS_KERNELS_OPS_PRODUCT_POLICY_H

#include <stdbool.h>

typedef enum HsOperandFormat {
    HS_OPERAND_AS_IS = 0, /* the tensor's own dtype */
    HS_OPERAND_TF32,      /* f32 with 10 bits of mantissa */
    HS_OPERAND_E4M3,
    HS_OPERAND_E5M2,
    HS_OPERAND_E2M1,
    HS_OPERAND_FORMATS
} HsOperandFormat;

/* One scale for how many elements of an operand (kernels/ops/codes.h). */
typedef enum HsScaleGranularity {
    HS_SCALE_NONE = 0,
    HS_SCALE_TENSOR,
    HS_SCALE_BLOCK, /* 128 neighbours along k; of weights 128 x 128 */
    HS_SCALE_MX,    /* 32 neighbours along k */
    HS_SCALE_NV,    /* 16 neighbours along k, of weights 16 x 16; and one a tensor */
    HS_SCALE_GRANULARITIES
} HsScaleGranularity;

/* All zero: operands are multiplied as they are. */
typedef struct HsProductPolicy {
    HsOperandFormat a, b;
    HsScaleGranularity granularity;
} HsProductPolicy;

/* Initializers. */
#define HS_POLICY_AS_IS                                   \
    {                                                     \
        HS_OPERAND_AS_IS, HS_OPERAND_AS_IS, HS_SCALE_NONE \
    }
#define HS_POLICY_TF32                                  \
    {                                                   \
        HS_OPERAND_TF32, HS_OPERAND_TF32, HS_SCALE_NONE \
    }

static inline bool hs_policy_rounds(HsProductPolicy policy)
{
    return policy.a != HS_OPERAND_AS_IS || policy.b != HS_OPERAND_AS_IS;
}

static inline bool hs_policy_is_tf32(HsProductPolicy policy)
{
    return policy.a == HS_OPERAND_TF32 && policy.b == HS_OPERAND_TF32 && policy.granularity == HS_SCALE_NONE;
}

#endif
