/* SPDX-License-Identifier: MIT
 *
 * The scalars of an optimizer step; kernels/ops/step_rule.h is the specification and the body of every backend.
 */
#include "kernels/ops/step_rule.h"
#include "kernels/ref/ref.h"

HsStatus hs_ref_begin_step(HsContext *context, const HsBeginStepArgs *args)
{
    (void)context;
    hs_step_begin(args);
    return HS_OK;
}

HsStatus hs_ref_prepare_step(HsContext *context, const HsPrepareStepArgs *args)
{
    (void)context;
    hs_step_prepare_all(args);
    return HS_OK;
}
