/* SPDX-License-Identifier: MIT
 *
 * What an operation costs, from its arguments alone: work that no implementation can avoid, so that a measured time can
 * be compared with the least that a machine's peaks allow (the roofline of Williams, Waterman & Patterson 2009).
 *
 *   flops   of products and attention, a multiply-add as two; 0 for what is bound by moving memory
 *   bytes   every operand read once, every result written once, what is updated both
 *
 * Where the bytes depend on the data or on the backend:
 *   - of an embedding's table as many rows as tokens may name, each once, however often it is named;
 *   - a packed operand counts as the weight itself, as padding is the backend's own affair;
 *   - what attention's tiles read again, and a backend's workspace, are not counted.
 */
#ifndef HS_KERNELS_OPS_COST_H
#define HS_KERNELS_OPS_COST_H

#include "kernels/ops/ops.h"

typedef struct HsOpCost {
    double flops, bytes;
    double predicted_s;     /* by the backend's own model; 0: it has none for this operation */
    HsDtype dtype;          /* of the operands of the products that the flops are; any, where flops is 0 */
    HsProductPolicy policy; /* to what they may be rounded */
    const char *transposes; /* of a and b of a matmul: "nt" forward, "nn" dgrad, "tn" wgrad, "tt"; else NULL */
} HsOpCost;

/* The cost of a call that passed the checks; reads shapes, never data: HsOpCost hs_cost_matmul(const HsMatmulArgs *),
 * ... */
#define HS_COST_PROTOTYPE(name, Args, formula) HsOpCost hs_cost_##name(const Args *args);
HS_OPS(HS_COST_PROTOTYPE)

/* The flops alone, which dry runs add up; NULL: none are counted. */
#define HS_FLOPS_MEMBER(name, Args, formula) double (*name)(const Args *args);
typedef struct HsFlopsTable {
    HS_OPS(HS_FLOPS_MEMBER)
} HsFlopsTable;
extern const HsFlopsTable hs_flops_table;

#endif
