/* SPDX-License-Identifier: MIT
 *
 * What the shape and dtype rules of this folder are written with.  Rules look at shapes and dtypes, never at data: a
 * dry run passes NULL pointers.  Every message names the operation, the tensor, what it is and what was expected:
 *     matmul: bias is [128], expected [256]
 * HS_ESHAPE is for tensors; HS_EINVAL for attributes out of range (a dropout of 1.5).
 */
#ifndef HS_KERNELS_CHECKS_CHECKS_H
#define HS_KERNELS_CHECKS_CHECKS_H

#include "kernels/ops/backend.h"
#include "kernels/ops/operands.h"

/* The largest head that an attention kernel must serve. */
enum { HS_MAX_HEAD_DIM = 256 };

/* A tensor's place in an operation. */
typedef struct HsRule {
    const char *op;
    const char *tensor;
    unsigned dtypes;
    int rank;
    int64_t shape[HS_MAX_RANK]; /* 0: any positive extent */
} HsRule;

/* The tensor must be present, of an allowed dtype, with this rank and these extents, none of them empty. */
HsStatus hs_rule(const HsRule *rule, const HsTensor *tensor);
/* What the operation's rows demand of its arguments. */
HsStatus hs_check_operands(const char *op, const HsOperandTable *table, const void *args);
/* For elementwise operations, where only the count matters. */
HsStatus hs_rule_count(const char *op, const char *name, unsigned dtypes, const HsTensor *tensor, int64_t count);
/* Both tensors have one dtype. */
HsStatus hs_rule_same_dtype(const char *op, const char *name, const HsTensor *tensor, const char *other_name,
                            const HsTensor *other);
/* Positive sizes, heads a multiple of kv_heads, head_dim in 1..HS_MAX_HEAD_DIM. */
HsStatus hs_rule_heads(const char *op, const HsHeads *heads);
/* A weight that an operation writes, and its master: an f16 weight needs one, a bf16 weight is else rounded
 * stochastically. */
HsStatus hs_rule_parameter(const char *op, const HsTensor *master, const HsTensor *weight);
/* Probability in [0, 1). */
HsStatus hs_rule_probability(const char *op, float probability);
/* A cap of scores or logits, or 0; name: "the cap". */
HsStatus hs_rule_cap(const char *op, const char *name, float cap);

/* What may be left in codes (hs_cast_apart); OK without codes. */
HsStatus hs_rule_cast(const char *op, const char *name, const HsTensor *result, const HsCodes *codes);

/* For messages. */
extern const char *const hs_scale_names[HS_SCALE_GRANULARITIES];

/* For a backend's refusals of matmul.  Of the first: every policy but as it is and tf32.  Of the second: operands of two
 * dtypes as well. */
HsStatus hs_refuse_policy(const HsContext *context, const HsMatmulArgs *args);
HsStatus hs_refuse_mixed_product(const HsContext *context, const HsMatmulArgs *args);

/* Rows and columns of the packed projection [q heads | k heads | v heads]. */
static inline int64_t hs_heads_rows(const HsHeads *heads)
{
    return heads->batch * heads->sequence_length;
}

static inline int64_t hs_heads_columns(const HsHeads *heads)
{
    return (heads->heads + 2 * heads->kv_heads) * heads->head_dim;
}

/* Where in its sequence the document of row `row` begins. */
static inline int64_t hs_start_of(const HsTensor *starts, int64_t row)
{
    return hs_tensor_present(starts) ? ((const int32_t *)starts->data)[row] : 0;
}

/* The first key that a query sees, at `position` of its sequence; it does not fall from one query to the next. */
static inline int64_t hs_first_seen(const HsScoreRule *rule, int64_t row, int64_t position)
{
    const int64_t start = hs_start_of(&rule->starts, row), nearest = position - rule->window + 1;
    return rule->window > 0 && nearest > start ? nearest : start;
}

#endif
