/* SPDX-License-Identifier: MIT
 *
 * The rows of the precision table, and how a configuration picks and trims one.
 */
#include "runtime/model/precision.h"

#include <stdio.h>
#include <string.h>

/* Autocast's formats around a 16-bit one. */
#define HALF_FORMATS(half)                                                                                          \
    .weight = half, .vector = HS_F32, .activation = half, .residual = HS_F32, .statistic = HS_F32, .logit = HS_F32, \
    .logit_gradient = half, .master = HS_F32, .gradient = HS_F32

/* 16-bit modes contradict use_amp: false, so that it is set with them. */
#define AMP "use_amp=true"

/* Both 16-bit modes have one shape; only the format and its need for loss scaling differ. */
#define HALF_MODE(mode_name, half, scaled, words)                                                              \
    {                                                                                                          \
        .name = mode_name, .doc = words, .settings = { "precision.mode=" mode_name, AMP }, HALF_FORMATS(half), \
        .loss_scaling = scaled                                                                                 \
    }

/* bf16 with linear layers in codes: `numbers` are x and w, `gradients` dy. */
#define CODE_MODE(mode_name, recipe, numbers, gradients, scale, words, ...)                                         \
    {                                                                                                               \
        .name = mode_name, .doc = words, .settings = { "precision.mode=fp8", "precision.fp8.recipe=" recipe, AMP }, \
        HALF_FORMATS(HS_BF16), .scaling = {                                                                         \
            .name = recipe,                                                                                         \
            .forward = { numbers, numbers, scale },                                                                 \
            .dgrad = { gradients, numbers, scale },                                                                 \
            .wgrad = { gradients, numbers, scale },                                                                 \
            __VA_ARGS__                                                                                             \
        }                                                                                                           \
    }

/* One dtype everywhere; `policy`: how products round it. */
#define UNIFORM_MODE(mode_name, wide, policy, words)                                                            \
    {                                                                                                           \
        .name = mode_name, .doc = words, .settings = { "precision.mode=" mode_name }, .forward = policy,        \
        .dgrad = policy, .wgrad = policy, .weight = wide, .vector = wide, .activation = wide, .residual = wide, \
        .statistic = wide, .logit = wide, .logit_gradient = wide, .master = wide, .gradient = wide,             \
        .loss_scaling = false                                                                                   \
    }

static const HsPrecision modes[] = {
    UNIFORM_MODE("fp32", HS_F32, HS_POLICY_AS_IS, "everything in 32 bits"),
    /* fp32's range with 10 bits of mantissa, in products only: sums, norms and the rest are fp32's. */
    UNIFORM_MODE("tf32", HS_F32, HS_POLICY_TF32, "fp32 with products on a GPU's tensor cores"),
    HALF_MODE("bf16", HS_BF16, false, "products and activations in bf16"),
    HALF_MODE("fp16", HS_F16, true, "products and activations in fp16, with loss scaling"),
    /* precision.mode fp8, by recipe: Micikevicius et al. 2022 (the first two), DeepSeek-AI 2024, section 3.3, OCP
     * Microscaling Formats 1.0, NVIDIA 2025, "Pretraining Large Language Models with NVFP4", section 4. */
    CODE_MODE("fp8", "current", HS_E4M3, HS_E5M2, HS_SCALE_TENSOR,
              "bf16 with the blocks' products in FP8, each tensor scaled by itself", .delayed = false),
    CODE_MODE("fp8-delayed", "delayed", HS_E4M3, HS_E5M2, HS_SCALE_TENSOR,
              "... by the largest magnitudes of earlier steps", .delayed = true),
    CODE_MODE("fp8-block", "block", HS_E4M3, HS_E4M3, HS_SCALE_BLOCK, "... in blocks of 128, of weights 128 x 128",
              .square_weights = true),
    CODE_MODE("mxfp8", "mxfp8", HS_E4M3, HS_E4M3, HS_SCALE_MX, "... in blocks of 32", .delayed = false),
    CODE_MODE("nvfp4", "nvfp4", HS_E2M1, HS_E2M1, HS_SCALE_NV, "... in 4 bits, blocks of 16 and the tensor",
              .square_weights = true, .stochastic_gradients = true, .rotates = true),
    /* Gradient checks only: the ref backend computes it. */
    UNIFORM_MODE("fp64", HS_F64, HS_POLICY_AS_IS, NULL),
};
enum { MODES = sizeof modes / sizeof *modes };

const HsPrecision *hs_precision_choice(int i)
{
    return i < MODES && modes[i].doc ? &modes[i] : NULL;
}

const HsPrecision *hs_precision_find(const char *mode)
{
    for (int i = 0; i < MODES; i++) {
        if (strcmp(modes[i].name, mode) == 0)
            return &modes[i];
    }
    return NULL;
}

static const HsPrecision *find_recipe(const char *recipe)
{
    for (int i = 0; i < MODES; i++) {
        if (modes[i].scaling.name && strcmp(modes[i].scaling.name, recipe) == 0)
            return &modes[i];
    }
    return NULL;
}

/* The row of the configuration's recipe, with what its keys say. */
static HsStatus resolve_codes(const HsConfig *config, const HsProducts *products, HsPrecision *precision)
{
    const char *const recipe = config->precision_fp8.recipe;
    const HsPrecision *const row = find_recipe(recipe);
    if (row == NULL)
        return hs_fail(HS_ECONFIG, "precision.fp8.recipe: there is no recipe %s", recipe);
    *precision = *row;
    if (hs_is(config->kernels.matmul, "cublaslt"))
        return hs_fail(HS_ECONFIG, "kernels.matmul: cublaslt does not serve precision.mode fp8: set it to native");
    HsScalingRecipe *const scaling = &precision->scaling;
    const bool of_tensor = scaling->forward.granularity == HS_SCALE_TENSOR;
    if (config->precision_fp8.power_of_two && (!of_tensor || scaling->delayed))
        return hs_fail(HS_ECONFIG,
                       "precision.fp8.power_of_two is for recipe current only, but the recipe is %s: leave it out",
                       recipe);
    scaling->turns_codes = of_tensor && products->turns_codes;
    scaling->power_of_two = config->precision_fp8.power_of_two;
    scaling->history = scaling->delayed ? config->precision_fp8.history : 0;
    scaling->most_recent = hs_is(config->precision_fp8.amax, "most_recent");
    scaling->margin = (float)config->precision_fp8.margin;
    if (of_tensor && hs_is(config->precision_fp8.format, "e4m3"))
        scaling->dgrad.a = scaling->wgrad.a = HS_E4M3;
    return HS_OK;
}

static bool can_multiply(const HsProducts *products, HsProductPolicy policy)
{
    return (!hs_format_rounds(policy.a) || products->rounds_to[policy.a]) &&
           (!hs_format_rounds(policy.b) || products->rounds_to[policy.b]);
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
        return hs_fail(HS_ECONFIG, "precision.mode: there is no mode %s; take one of auto, %s", mode,
                       HS_WORDS_LISTED(HS_PRECISION_MODES));
    bool mixed = hs_dtype_bytes(row->weight) < hs_dtype_bytes(row->master);
    if (mixed && !config->training.use_amp)
        return hs_fail(HS_ECONFIG, "precision.mode is %s but use_amp is false: remove one of the two", mode);
    if (!can_multiply(&products, row->forward) || !can_multiply(&products, row->dgrad) ||
        !can_multiply(&products, row->wgrad))
        return hs_fail(HS_ECONFIG,
                       "precision.mode: %s needs a GPU with tensor cores for it; this device has no such "
                       "cores: set precision.mode: fp32",
                       mode);
    *precision = *row;
    if (hs_precision_codes(row))
        HS_TRY(resolve_codes(config, &products, precision));

    if (hs_is(config->precision.gradients, "compute"))
        precision->gradient = row->weight;
    if (hs_is(config->precision.logits, "compute"))
        precision->logit = row->logit_gradient;
    if (hs_is(config->precision.residual, "compute"))
        precision->residual = row->activation;
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
    const HsScaleGranularity granularity = precision->scaling.forward.granularity;
    const bool fp8 = granularity == HS_SCALE_TENSOR || granularity == HS_SCALE_BLOCK;
    if (hs_precision_codes(precision))
        snprintf(why, why_size, "%s, %s: %s; exact numbers, multiplied in %s", precision->name, precision->scaling.name,
                 reason, fp8 ? "FP8 on GPUs of 8.9, 9.0 and 12.0, else in bf16" : "bf16: for accuracy, not for speed");
    else
        snprintf(why, why_size, "%s: %s", mode, reason);
    return HS_OK;
}
