/* SPDX-License-Identifier: MIT
 *
 * The scalars of an optimizer step (kernels/ops/step_rule.h): too little to be worth a thread or a vector.
 */
#include "kernels/cpu/cpu.h"
#include "kernels/ops/step_rule.h"

HsStatus HS_ISA_NAME(hs_cpu_begin_step)(HsContext *context, const HsBeginStepArgs *args)
{
    (void)context;
    hs_step_begin(args);
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_prepare_step)(HsContext *context, const HsPrepareStepArgs *args)
{
    (void)context;
    hs_step_prepare_all(args);
    return HS_OK;
}
