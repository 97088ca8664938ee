/* SPDX-License-Identifier: MIT
 *
 * A linear layer's products of codes (linear.c): what is cast, and where it lies; and what other layers cast for it.
 */
#ifndef HS_RUNTIME_MODEL_LAYERS_CODED_H
#define HS_RUNTIME_MODEL_LAYERS_CODED_H

#include "runtime/model/layers/adapter.h"

/* columns: of dy */
void hs_coded_scratch(const HsNode *node, int64_t rows, int64_t columns, bool backward,
                      HsTensor scratch[HS_NODE_SCRATCH]);

/* Where the scale is known and a place for codes is there, those that a product or a norm leaves for another layer in place of
 * its result, which has that shape; else absent (runtime/model/casts.h). */
HsCodes hs_coded_result(const HsLayerCall *call, const HsNode *node, bool backward, const HsTensor *result);

/* Casts x, and its transpose where the program keeps that for backward and x's codes do not serve as it; the product is of
 * codes then. */
HsStatus hs_coded_forward(const HsLayerCall *call, const HsNode *node, HsMatmulArgs *product);

typedef struct HsCodedGradient {
    HsCodes dy;
    HsCodes dy_across, x; /* of the weight's gradient: across both, or both as they lie (HsScalingRecipe.turns_codes) */
} HsCodedGradient;

/* Casts dy, and x where forward's codes were not kept.  data, weight: which of the two products follow. */
HsStatus hs_coded_backward(const HsLayerCall *call, const HsNode *node, HsTensor dy, bool data, bool weight,
                           HsCodedGradient *codes);
/* dw = (dy^T) (x^T)^T and dx = dy (w^T)^T of codes. */
void hs_coded_weight_gradient(const HsLayerCall *call, const HsCodedGradient *codes, HsMatmulArgs *product);
void hs_coded_data_gradient(const HsLayerCall *call, const HsCodedGradient *codes, HsMatmulArgs *product);

#endif
