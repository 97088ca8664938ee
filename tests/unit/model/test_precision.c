/* SPDX-License-Identifier: MIT
 *
 * Which precision row a configuration gets, and which combinations are refused.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/model/precision.h"

static HsConfig make_config(const char *mode, bool use_amp, const char *gradients, bool masters)
{
    HsConfig config;
    memset(&config, 0, sizeof config);
    config.training.use_amp = use_amp;
    config.precision.mode = (char *)(uintptr_t)mode;
    config.precision.gradients = (char *)(uintptr_t)gradients;
    config.precision.logits = config.precision.residual = (char *)(uintptr_t) "f32";
    config.precision.master_weights = masters;
    return config;
}

Test(precision, rows_follow_the_configuration)
{
    const HsProducts none = { .bf16 = false }, only_f16 = { .f16 = true };
    const HsProducts gpu = { .bf16 = true, .rounds_to[HS_TF32] = true };
    const HsProducts only_tf32 = { .rounds_to[HS_TF32] = true };
    const struct {
        const char *mode;
        bool use_amp;
        HsProducts products;
        const char *gradients;
        bool masters;
        const char *name;
        HsDtype weight, gradient, master, residual;
    } cases[] = {
        { "auto", true, gpu, "fp32", true, "bf16", HS_BF16, HS_F32, HS_F32, HS_F32 },
        { "auto", true, only_f16, "fp32", true, "fp16", HS_F16, HS_F32, HS_F32, HS_F32 },
        { "auto", true, none, "fp32", true, "fp32", HS_F32, HS_F32, HS_F32, HS_F32 },
        { "auto", false, gpu, "fp32", true, "fp32", HS_F32, HS_F32, HS_F32, HS_F32 },
        { "tf32", false, only_tf32, "fp32", true, "tf32", HS_F32, HS_F32, HS_F32, HS_F32 },
        { "fp32", false, gpu, "compute", false, "fp32", HS_F32, HS_F32, HS_F32, HS_F32 },
        { "bf16", true, none, "compute", true, "bf16", HS_BF16, HS_BF16, HS_F32, HS_F32 },
        { "bf16", true, gpu, "fp32", false, "bf16", HS_BF16, HS_F32, HS_BF16, HS_F32 },
        { "fp16", true, gpu, "compute", true, "fp16", HS_F16, HS_F16, HS_F32, HS_F32 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        HsConfig config = make_config(cases[i].mode, cases[i].use_amp, cases[i].gradients, cases[i].masters);
        HsPrecision precision;
        char why[128];
        cr_assert_eq(hs_precision_resolve(&config, cases[i].products, &precision, why, sizeof why), HS_OK);
        cr_assert_str_eq(precision.name, cases[i].name);
        cr_assert(precision.weight == cases[i].weight && precision.gradient == cases[i].gradient &&
                      precision.master == cases[i].master && precision.residual == cases[i].residual,
                  "case %zu", i);
        cr_assert_eq(strncmp(why, cases[i].name, strlen(cases[i].name)), 0, "%s", why);
        config.precision.residual = (char *)(uintptr_t) "compute";
        cr_assert_eq(hs_precision_resolve(&config, cases[i].products, &precision, why, sizeof why), HS_OK);
        cr_assert_eq(precision.residual, cases[i].weight, "case %zu", i);
    }
}

/* The words that the configuration takes have rows. */
Test(precision, every_word_has_a_row)
{
    static const char *const modes[] = HS_WORD_ARRAY(HS_PRECISION_MODES);
    static char *const recipes[] = HS_WORD_ARRAY(HS_FP8_RECIPES);
    const HsProducts gpu = { .bf16 = true, .rounds_to[HS_TF32] = true };
    HsPrecision precision;
    char why[128];
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        cr_expect_not_null(hs_precision_find(modes[i]), "%s", modes[i]);
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        HsConfig config = make_config("fp8", true, "fp32", true);
        config.precision_fp8.recipe = recipes[i];
        config.precision_fp8.format = config.precision_fp8.amax = config.kernels.matmul = recipes[i];
        HsProducts products = gpu;
        for (size_t o = 0; o < sizeof products.rounds_to / sizeof *products.rounds_to; o++)
            products.rounds_to[o] = true;
        cr_expect_eq(hs_precision_resolve(&config, products, &precision, why, sizeof why), HS_OK, "%s: %s", recipes[i],
                     hs_error_message());
    }
}

Test(precision, impossible_combinations_are_refused)
{
    const HsConfig cases[] = {
        make_config("bf16", false, "fp32", true), /* a 16-bit mode without use_amp */
        make_config("fp16", true, "fp32", false), /* fp16 has no stochastic rounding */
        make_config("auto", true, "fp32", false), /* auto falls to fp32 here */
        make_config("fp8x", true, "fp32", true),  make_config("tf32", true, "fp32", true), /* no such products here */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        HsPrecision precision;
        char why[128];
        cr_assert_eq(hs_precision_resolve(&cases[i], (HsProducts){ 0 }, &precision, why, sizeof why), HS_ECONFIG,
                     "case %zu", i);
    }
}

Test(precision, only_fp16_needs_loss_scaling)
{
    cr_assert(hs_precision_find("fp16")->loss_scaling);
    cr_assert_not(hs_precision_find("bf16")->loss_scaling);
    cr_assert_not(hs_precision_find("fp32")->loss_scaling);
    cr_assert_null(hs_precision_find("fp12"));
}

/* Layers take it from the table: no dtype distinguishes tf32 from fp32. */
Test(precision, tf32_marks_every_product_and_nothing_else)
{
    const HsPrecision *coarse = hs_precision_find("tf32"), *exact = hs_precision_find("fp32");
    cr_assert(hs_policy_is_tf32(coarse->forward) && hs_policy_is_tf32(coarse->dgrad) &&
              hs_policy_is_tf32(coarse->wgrad));
    cr_assert_not(hs_policy_rounds(exact->forward) || hs_policy_rounds(exact->dgrad) || hs_policy_rounds(exact->wgrad));
    cr_assert(coarse->weight == exact->weight && coarse->activation == exact->activation &&
              coarse->gradient == exact->gradient);
}
