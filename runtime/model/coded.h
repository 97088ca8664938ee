/* SPDX-License-Identifier: MIT
 *
 * Linear layers that multiply codes below 16 bits (precision.mode: fp8): which they are, the memory of their
 * weights' codes and of their scalings, and when these change.
 *
 *     weight 16-bit --cast, once a step--> codes of w for x w^T, codes of w^T for dy w, or one for both
 *
 * Where the scale of x or dy follows from its largest magnitude, the operation that makes it leaves that on its way out,
 * so that the cast reads it once:
 *
 *     norm, attention, an activation --x, amax--> cast --codes--> x w^T
 *     norm, rope, QK-norm, attention, an activation's gradient --dy, amax--> cast --codes--> dy w, dy^T x
 */
#ifndef HS_RUNTIME_MODEL_CODED_H
#define HS_RUNTIME_MODEL_CODED_H

#include "runtime/model/builder.h"

/* Marks the layers that precision.fp8.keep does not name, and gives each its scalings and its place for codes of x.
 * errors: HS_ECONFIG for a pattern that names no layer. */
HsStatus hs_model_mark_coded(HsBuilder *builder);

/* Memory of a committed model: codes stand with the packed copies. */
void hs_coded_reserve(HsModel *model, bool training);
void hs_coded_place(HsModel *model, bool training);
/* The scalings' first values.  errors: the device's */
HsStatus hs_coded_begin(HsModel *model, HsContext *context);

/* What of delayed scaling's state no tensor has; in host memory, [scalings.count]. */
typedef struct HsDelayedScales {
    float *kept;
    int32_t *recorded; /* steps in each history */
} HsDelayedScales;
HsStatus hs_delayed_scales_read(const HsModel *model, HsContext *context, HsDelayedScales *scales);
/* errors: HS_EFORMAT for what no run can have written */
HsStatus hs_delayed_scales_write(HsModel *model, HsContext *context, const HsDelayedScales *scales);
void hs_delayed_scales_free(HsDelayedScales *scales);

/* Whether a weight's packed copies are replaced by codes. */
bool hs_param_coded(const HsParam *param);

#endif
