/* SPDX-License-Identifier: MIT
 *
 * The curvature of a whole matrix W [rows, columns] as a Kronecker product (Martens & Grosse 2015, "Optimizing neural
 * networks with Kronecker-factored approximate curvature", eq. 3): with y = W x, over tokens,
 *     F = E[(dy dy^T) (x) (x x^T)]  ~  left (x) right,   left = E[dy dy^T] [rows, rows],  right = E[x x^T] [columns, columns]
 * so that the penalty's gradient at distance D is  left D right.  Both are kept as diagonal blocks.  What is as wide as
 * the vocabulary is kept as a diagonal:
 *     a table's rows as they are looked up:  left = the share of tokens that name each row,  right = E[dx dx^T]
 *     the head:                              left = diag E[dz^2],                            right = E[h h^T]
 * A tied table is both, and its curvature their sum.
 */
#ifndef HS_OPTIM_CONTINUAL_FACTORS_H
#define HS_OPTIM_CONTINUAL_FACTORS_H

#include "kernels/base/tensor.h"

/* A symmetric matrix [size, size] of diagonal blocks, one after another in `values`; each is block wide, the last one
 * perhaps narrower.  block 1: a diagonal.  size 0: absent. */
typedef struct HsFactor {
    HsTensor values; /* f32, one axis */
    int64_t size, block;
} HsFactor;

typedef struct HsFactorPair {
    HsFactor left, right; /* both or neither */
} HsFactorPair;

/* What a matrix does in the network: it multiplies, its rows are looked up, or both. */
typedef enum HsFactorUse { HS_FACTOR_PRODUCT, HS_FACTOR_LOOKUP, HS_FACTOR_USES } HsFactorUse;

typedef struct HsSpanFactors {
    HsFactorPair use[HS_FACTOR_USES];
} HsSpanFactors;

static inline bool hs_factor_present(const HsFactor *factor)
{
    return factor->size > 0;
}

static inline int64_t hs_factor_block_count(const HsFactor *factor)
{
    return (factor->size + factor->block - 1) / factor->block;
}

/* Rows (and columns) of the block that begins at row `first`, a multiple of `block`. */
static inline int64_t hs_factor_width(const HsFactor *factor, int64_t first)
{
    return factor->size - first < factor->block ? factor->size - first : factor->block;
}

static inline HsTensor hs_factor_at(const HsFactor *factor, int64_t first)
{
    const int64_t width = hs_factor_width(factor, first);
    return hs_tensor_2d(factor->values.data ? (float *)factor->values.data + first * factor->block : NULL, HS_F32,
                        width, width);
}

/* Elements that are kept. */
static inline int64_t hs_factor_count(int64_t size, int64_t block)
{
    const int64_t rest = size % block;
    return size / block * block * block + rest * rest;
}

#endif
