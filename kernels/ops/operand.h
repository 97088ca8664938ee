/* SPDX-License-Identifier: MIT
 *
 * An operand of a matrix product: a matrix, and the form in which its numbers lie.
 */
#ifndef HS_KERNELS_OPS_OPERAND_H
#define HS_KERNELS_OPS_OPERAND_H

#include "kernels/base/tensor.h"
#include "kernels/ops/codes.h"
#include "kernels/ops/nf4.h"

/* A weight in the backend's own layout, made by pack_weight; which product it serves is fixed by k, n and transposed.
 */
typedef struct HsPacked {
    void *data;    /* hs_backend packed_bytes() bytes, 64-byte aligned; NULL: not packed */
    HsDtype dtype; /* of the source weight */
    int64_t k, n;
} HsPacked;

typedef enum HsLayout {
    HS_LAYOUT_ROWS = 0, /* values.data */
    HS_LAYOUT_PACKED,   /* of a product's right operand */
    HS_LAYOUT_CODES,    /* less than 16 bits, with scales */
    HS_LAYOUT_NF4       /* four bits; of a product's right operand */
} HsLayout;

/* Zero but for `values`: rows. */
typedef struct HsOperand {
    HsTensor values; /* shape as stored, and the dtype of each number in the product; `data` of rows and packed alone */
    HsLayout layout;
    union {
        HsPacked packed;
        HsCodes codes;
        HsQuantized nf4;
    };
} HsOperand;

static inline HsOperand hs_operand(HsTensor values)
{
    HsOperand operand = { values, HS_LAYOUT_ROWS, { { NULL, HS_F32, 0, 0 } } };
    return operand;
}

/* Packed, where there is a copy of it: packed NULL, or without data, leaves rows. */
static inline HsOperand hs_operand_packed(HsTensor values, const HsPacked *packed)
{
    HsOperand operand = hs_operand(values);
    if (packed && packed->data) {
        operand.layout = HS_LAYOUT_PACKED;
        operand.packed = *packed;
    }
    return operand;
}

/* [rows, depth] bf16, in which code times block scale is exact. */
static inline HsOperand hs_operand_codes(HsCodes codes)
{
    HsOperand operand = hs_operand(hs_tensor_2d(NULL, HS_BF16, codes.rows, codes.depth));
    operand.layout = HS_LAYOUT_CODES;
    operand.codes = codes;
    return operand;
}

/* shape: of the matrix; each decoded element is rounded to its dtype. */
static inline HsOperand hs_operand_nf4(HsTensor shape, HsQuantized nf4)
{
    HsOperand operand = hs_operand(shape);
    operand.values.data = NULL;
    operand.layout = HS_LAYOUT_NF4;
    operand.nf4 = nf4;
    return operand;
}

/* NULL where it has another layout. */
static inline const HsPacked *hs_packed_of(const HsOperand *operand)
{
    return operand->layout == HS_LAYOUT_PACKED ? &operand->packed : NULL;
}
static inline const HsCodes *hs_codes_of(const HsOperand *operand)
{
    return operand->layout == HS_LAYOUT_CODES ? &operand->codes : NULL;
}
static inline const HsQuantized *hs_nf4_of(const HsOperand *operand)
{
    return operand->layout == HS_LAYOUT_NF4 ? &operand->nf4 : NULL;
}

#endif
