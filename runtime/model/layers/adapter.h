/* SPDX-License-Identifier: MIT
 *
 * The low-rank branch of a linear layer (adapter.c): params[2] is A, params[3] is B, saved[0] is u.
 */
#ifndef HS_RUNTIME_MODEL_LAYERS_ADAPTER_H
#define HS_RUNTIME_MODEL_LAYERS_ADAPTER_H

#include "runtime/model/layer.h"

/* Scratch of a linear layer. */
enum {
    HS_SCRATCH_DY,       /* backward: dy in the products' format */
    HS_SCRATCH_BRANCH,   /* [rows, out], backward [rows, in]: what the branch adds */
    HS_SCRATCH_DROPPED,  /* [rows, in] */
    HS_SCRATCH_SPREAD,   /* [out, blocks rank]: B along the diagonal */
    HS_SCRATCH_P,        /* [rows, blocks rank] */
    HS_SCRATCH_GRADIENT, /* [out, blocks rank]: of the spread B */
    HS_SCRATCH_NARROW,   /* [out, rank]: of one block of it */
    /* In codes: of x or dy, of dy's transpose, and of x's where forward has kept none. */
    HS_SCRATCH_ALONG,
    HS_SCRATCH_ACROSS,
    HS_SCRATCH_X_CODES
};

/* operand: format of the products' operands */
void hs_adapter_scratch(const HsNode *node, int64_t rows, HsDtype operand, bool backward,
                        HsTensor scratch[HS_NODE_SCRATCH]);

/* B of several parts, laid out along the diagonal of `spread` [out, blocks rank], of B's format. */
HsStatus hs_adapter_spread(HsContext *context, const HsAdapterShape *shape, HsTensor stored, HsTensor spread);

/* branch: scratch, to be added to x w^T */
HsStatus hs_adapter_forward(const HsLayerCall *call, const HsNode *node, HsTensor *branch);

/* dy in the products' format.  wanted: x has a gradient, and *branch is to be added to dy w; else it is absent. */
HsStatus hs_adapter_backward(const HsLayerCall *call, const HsNode *node, HsTensor dy, bool wanted, HsTensor *branch);

#endif
