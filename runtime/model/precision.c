/* SPDX-License-Identifier: MIT
 *
 * The rows of the precision table, and how a configuration picks and trims one.
 */
#include "runtime/model/precision.h"

#include <stdio.h>
#include <string.h>

/* Both 16-bit modes have one shape; only the format and its need for loss scaling differ. */
#define HALF_MODE(mode_name, half, scaled)                                                                  \
    {                                                                                                       \
        .name = mode_name, .weight = half, .vector = HS_F32, .activation = half, .residual = HS_F32,        \
        .statistic = HS_F32, .logit = HS_F32, .logit_gradient = half, .master = HS_F32, .gradient = HS_F32, \
        .loss_scaling = scaled                                                                              \
    }

/* One dtype everywhere; `policy`: how products round it. */
#define UNIFORM_MODE(mode_name, wide, policy)                                                                   \
    {                                                                                                           \
        .name = mode_name, .forward = policy, .dgrad = policy, .wgrad = policy, .weight = wide, .vector = wide, \
        .activation = wide, .residual = wide, .statistic = wide, .logit = wide, .logit_gradient = wide,         \
        .master = wide, .gradient = wide, .loss_scaling = false                                                 \
    }

static const HsPrecision modes[] = {
    UNIFORM_MODE("fp32", HS_F32, HS_POLICY_AS_IS),
    /* fp32's range with 10 bits of mantissa, in products only: sums, norms and the rest are fp32's. */
    UNIFORM_MODE("tf32", HS_F32, HS_POLICY_TF32),
    HALF_MODE("bf16", HS_BF16, false),
    HALF_MODE("fp16", HS_F16, true),
    /* Gradient checks only: the ref backend computes it, no configuration can choose it. */
    UNIFORM_MODE("fp64", HS_F64, HS_POLICY_AS_IS),
};

const HsPrecision *hs_precision_find(const char *mode)
{
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(modes[i].name, mode) == 0)
            return &modes[i];
    }
    return NULL;
}

static bool can_multiply(const HsProducts *products, HsProductPolicy policy)
{
    return (policy.a == HS_OPERAND_AS_IS || products->rounds_to[policy.a]) &&
           (policy.b == HS_OPERAND_AS_IS || products->rounds_to[policy.b]);
}

HsStatus hs_precision_resolve(const HsConfig *config, HsProducts products, HsPrecision *precision, char *why,
                              size_t why_size)
{
    const char *mode = config->precision.mode;
    const char *reason = "precision.mode asks for it";
    bool automatic = strcmp(mode, "auto") == 0;
    if (automatic) {
        const bool amp = config->training.use_amp;
        mode = amp && products.bf16 ? "bf16" : amp && products.f16 ? "fp16" : "fp32";
        reason = !amp            ? "use_amp is false"
                 : products.bf16 ? "use_amp is true and this device multiplies bf16 in hardware"
                 : products.f16
                     ? "use_amp is true and this device has no bf16 products"
                     : "use_amp is true, but this device multiplies no 16-bit format in hardware, and would be "
                       "slower in one";
    }
    const HsPrecision *row = hs_precision_find(mode);
    if (row == NULL)
        return hs_fail(HS_ECONFIG, "precision.mode: there is no mode %s; take fp32, tf32, bf16, fp16 or auto", mode);
    bool mixed = hs_dtype_bytes(row->weight) < hs_dtype_bytes(row->master);
    if (mixed && !config->training.use_amp)
        return hs_fail(HS_ECONFIG, "precision.mode is %s but use_amp is false: remove one of the two", mode);
    if (!can_multiply(&products, row->forward) || !can_multiply(&products, row->dgrad) ||
        !can_multiply(&products, row->wgrad))
        return hs_fail(HS_ECONFIG,
                       "precision.mode: %s needs a GPU, whose tensor cores multiply it; this device has no such "
                       "products: set precision.mode: fp32",
                       mode);
    *precision = *row;

    if (strcmp(config->precision.gradients, "compute") == 0)
        precision->gradient = row->weight;
    if (strcmp(config->precision.logits, "compute") == 0)
        precision->logit = row->logit_gradient;
    if (automatic && !mixed && config->training.use_amp && !config->precision.master_weights)
        return hs_fail(HS_ECONFIG,
                       "precision.master_weights: false needs bf16, but the mode is %s (auto: %s): set "
                       "precision.mode: bf16, or keep the masters",
                       mode, reason);
    if (mixed && !config->precision.master_weights) {
        /* Stochastic rounding adds random bits below bf16's last one; fp16's subnormals would need another rule. */
        if (row->loss_scaling)
            return hs_fail(
                HS_ECONFIG,
                "precision.master_weights: false needs bf16 (stochastic rounding), but the mode is %s%s: set "
                "precision.mode: bf16, or keep the masters",
                mode, automatic ? " (auto)" : "");
        precision->master = row->weight;
    }
    snprintf(why, why_size, "%s: %s", mode, reason);
    return HS_OK;
}
