/* SPDX-License-Identifier: MIT
 *
 * What the casts of a step into codes below 16 bits did to the numbers (precision.mode: fp8), for people: by role of
 * the tensors, over all linear layers in codes.
 */
#ifndef HS_RUNTIME_MODEL_CODED_FIGURES_H
#define HS_RUNTIME_MODEL_CODED_FIGURES_H

#include "runtime/model/model.h"

enum { HS_SCALING_LAYER_BYTES = 64 };

typedef struct HsScalingFigures {
    const char *role;       /* "x", "weight", "dy", "x rotated", "dy rotated" */
    double amax;            /* the largest magnitude before the cast; NAN: not finite */
    double lowest, highest; /* scales of layers, what amax was multiplied by; NAN: the recipe's are of blocks */
    /* Shares of all elements, 0 to 1: beyond the format's largest number after scaling; not 0, with a code that is. */
    double saturated, zeroed;
    char layer[HS_SCALING_LAYER_BYTES]; /* where the largest share was lost; "": nowhere was any */
    double layer_lost;                  /* saturated and zeroed, of that layer's elements */
} HsScalingFigures;

/* "x", ...: of a HsScalingRole. */
const char *hs_scaling_role_name(int role);
/* Of the latest step, of all processes, each of which calls it; waits for the device.  count 0: no step yet, or a model without codes.  Roles of
 * which nothing was cast are left out.  errors: HS_ENOMEM, the device's */
HsStatus hs_scaling_figures(const HsModel *model, HsContext *context, HsComm *comm,
                            HsScalingFigures figures[HS_SCALING_ROLES], int *count);

#endif
