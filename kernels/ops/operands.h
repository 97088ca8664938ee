/* SPDX-License-Identifier: MIT
 *
 * The operands of every operation, one row each: what the checks (kernels/checks) demand of them and which bytes the
 * cost (kernels/ops/cost.h) counts comes from here.  The argument structs of ops.h say what an operand means.
 *
 * Shapes are written as the comments of ops.h have them: one extent an axis, with a space between, each a letter that
 * names a dimension, with a factor before it or "/2" behind it:
 *     "N C"    the first operand that names a dimension decides it, the later ones must agree
 *     "N 2F"   twice
 *     "1"      one element
 *     ""       any shape; all such operands of a call have the same number of elements
 * Where the arguments begin with HsHeads, these dimensions are decided by it: B batch, R = B T rows, H heads, G of keys,
 * S = H + G of query and key, D, and the rows' widths: W = (H + 2 G) D, O = H D, K = G D.
 * What depends on the arguments' choices is a small function that the row points to.
 */
#ifndef HS_KERNELS_OPS_OPERANDS_H
#define HS_KERNELS_OPS_OPERANDS_H

#include "kernels/ops/ops.h"

/* Sets of dtypes, one bit each.  f64 stands wherever f32 does: only ref computes in it, for gradient checks. */
#define HS_DTYPE_BIT(dtype) (1u << (dtype))
enum {
    HS_DTYPES_WIDE = HS_DTYPE_BIT(HS_F32) | HS_DTYPE_BIT(HS_F64),
    HS_DTYPES_ACT = HS_DTYPES_WIDE | HS_DTYPE_BIT(HS_BF16) | HS_DTYPE_BIT(HS_F16),
    HS_DTYPES_MOMENT = HS_DTYPES_WIDE | HS_DTYPE_BIT(HS_BF16),
    HS_DTYPES_16 = HS_DTYPE_BIT(HS_F64) | HS_DTYPE_BIT(HS_BF16) | HS_DTYPE_BIT(HS_F16),
    HS_DTYPES_INDEX = HS_DTYPE_BIT(HS_I32),
    HS_DTYPES_ANY = HS_DTYPES_ACT | HS_DTYPES_INDEX
};

typedef enum HsOperandUse {
    HS_READ,
    HS_WRITTEN,
    HS_UPDATED /* read and written */
} HsOperandUse;

typedef struct HsOperandRow HsOperandRow;
struct HsOperandRow {
    const char *name; /* the member's */
    size_t at;        /* of the HsTensor in the arguments; of an array, of the pointer to its first */
    HsOperandUse use;
    unsigned dtypes;
    const char *shape;
    bool optional;    /* absent where its rank is 0 */
    bool finds;       /* what is stored is looked at for the tensor's amax, where that is asked for */
    const char *like; /* an operand above with the same dtype; NULL: any of dtypes */
    /* The row as these arguments want it; NULL: as it is. */
    void (*adapt)(const void *args, HsOperandRow *row);
    /* The bytes that move; NULL: all of the tensor, an updated one's twice. */
    double (*bytes)(const void *args, const HsTensor *tensor);
};

enum { HS_MOST_OPERANDS = 12 };

typedef struct HsOperandTable {
    bool heads;  /* the arguments begin with HsHeads */
    bool arrays; /* operands are arrays of tensors, `count_at` their length, an int */
    size_t count_at;
    HsOperandRow rows[HS_MOST_OPERANDS + 1]; /* in the order of the checks; one without a name ends them */
} HsOperandTable;

/* By operation.  Operations on scalars alone, and the update rules, with operands that follow from options (update.c of
 * kernels/checks), have no rows. */
#define HS_OPERANDS_MEMBER(name, Args, formula) HsOperandTable name;
typedef struct HsOperands {
    HS_OPS(HS_OPERANDS_MEMBER)
} HsOperands;
extern const HsOperands hs_operands;

/* Tensor `index` of an operand: 0 where it is no array. */
static inline const HsTensor *hs_operand_of(const HsOperandTable *table, const HsOperandRow *row, const void *args,
                                            int index)
{
    const void *const member = (const char *)args + row->at;
    if (!table->arrays)
        return (const HsTensor *)member;
    const HsTensor *const first = *(const HsTensor *const *)member;
    return first ? &first[index] : NULL;
}

/* How many tensors each operand of a call has. */
static inline int hs_operand_count(const HsOperandTable *table, const void *args)
{
    return table->arrays ? *(const int *)(const void *)((const char *)args + table->count_at) : 1;
}

#endif
