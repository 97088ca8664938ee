/* SPDX-License-Identifier: MIT
 *
 * What a cast into codes below 16 bits would make of a matrix, on the host: for inspecting checkpoints.
 */
#ifndef HS_RUNTIME_ENGINE_CAST_LOSS_H
#define HS_RUNTIME_ENGINE_CAST_LOSS_H

#include <stdint.h>

#include "kernels/ops/product_policy.h"

typedef struct HsCastLoss {
    int64_t elements, saturated, zeroed; /* as HsScaling counts them */
    double error_squares, squares;       /* sums of (x - what its code stands for)^2 and of x^2 */
} HsCastLoss;

/* How weights are cast by a recipe: format, and what one scale covers. */
typedef struct HsCastRule {
    HsDtype format;
    HsScaleGranularity granularity;
    bool squares; /* blocks are squares, as many rows as columns */
} HsCastRule;

/* Adds what the cast of values [rows, depth], all finite, would do.  amax: the largest magnitude of the whole tensor, of
 * which they may be a part: whole blocks. */
void hs_cast_loss_add(const HsCastRule *rule, const float *values, int64_t rows, int64_t depth, float amax,
                      HsCastLoss *loss);
/* The root of error_squares / squares: 0 nothing was lost, 1 all; 0 of zeros. */
double hs_cast_loss_error(const HsCastLoss *loss);

#endif
