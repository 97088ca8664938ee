/* SPDX-License-Identifier: MIT
 *
 * Shape and dtype rules of the gradient statistics and of the update rules.
 */
#include "kernels/checks.h"

#include <inttypes.h>
#include <stdio.h>

HsStatus hs_check_grad_stats(const HsGradStatsArgs *args)
{
    if (args->count < 0 || (args->count > 0 && args->tensors == NULL))
        return hs_fail(HS_EINVAL, "grad_stats: tensors is missing, expected %d of them", args->count);
    for (int i = 0; i < args->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor %d", i);
        HS_TRY(hs_rule_count("grad_stats", name, HS_DTYPES_ACT, &args->tensors[i], hs_tensor_count(&args->tensors[i])));
    }
    return HS_OK;
}

/* Where the exact parameter lives: in the master, or in the weight itself. */
static HsStatus check_parameter(const char *op, const HsTensor *grad, const HsTensor *master, const HsTensor *weight)
{
    const int64_t count = hs_tensor_count(weight);
    HS_TRY(hs_rule_count(op, "weight", HS_DTYPES_ACT, weight, count));
    HS_TRY(hs_rule_count(op, "grad", HS_DTYPES_ACT, grad, count));
    if (hs_tensor_present(master))
        return hs_rule_count(op, "master", HS_DTYPES_WIDE, master, count);
    if (weight->dtype == HS_F16)
        return hs_fail(HS_ESHAPE, "%s: an f16 weight needs a master (stochastic rounding is for bf16)", op);
    return HS_OK;
}

HsStatus hs_check_adamw(const HsAdamWArgs *args)
{
    HS_TRY(check_parameter("adamw", &args->grad, &args->master, &args->weight));
    HS_TRY(hs_rule_count("adamw", "m", HS_DTYPES_WIDE, &args->m, hs_tensor_count(&args->weight)));
    return hs_rule_count("adamw", "v", HS_DTYPES_WIDE, &args->v, hs_tensor_count(&args->weight));
}

HsStatus hs_check_sgd(const HsSgdArgs *args)
{
    HS_TRY(check_parameter("sgd", &args->grad, &args->master, &args->weight));
    if (args->momentum != 0.0f || hs_tensor_present(&args->buffer))
        return hs_rule_count("sgd", "buffer", HS_DTYPES_WIDE, &args->buffer, hs_tensor_count(&args->weight));
    return HS_OK;
}
