/* SPDX-License-Identifier: MIT
 *
 * train.freeze: what stays trainable has the very gradient that it has in a model without frozen parameters, whatever is
 * frozen and whatever is recomputed; what is frozen has none; and nothing is done below the lowest trainable parameter.
 */
#include "tests/support/tiny_model.h"

static char *patterns[] = { NULL, NULL };

static TinySpec spec_of(const char *family, const char *mode, HsRecompute policy, const char *first, const char *second)
{
    patterns[0] = (char *)(uintptr_t)first;
    patterns[1] = (char *)(uintptr_t)second;
    return (TinySpec){ .family = family,
                       .mode = mode,
                       .layers = 3,
                       .heads = 2,
                       .width = 12,
                       .vocabulary = 19,
                       .batch = 2,
                       .length = 6,
                       .bias = strcmp(family, "gpt2") == 0,
                       .qk_norm = strcmp(family, "llama") == 0,
                       .dropout = 0.1,
                       .policy = policy,
                       .freeze = { .count = first ? second ? 2 : 1 : 0, .items = patterns } };
}

static void compare(const char *family, const char *mode, HsRecompute policy, const char *first, const char *second)
{
    TinyModel whole, frozen;
    tiny_create(&whole, spec_of(family, mode, policy, NULL, NULL));
    tiny_create(&frozen, spec_of(family, mode, policy, first, second));
    const double loss = tiny_train(&whole, 1);
    cr_expect_eq(loss, tiny_train(&frozen, 1), "%s, %s: another loss", family, first);
    int trained = 0;
    for (int p = 0; p < whole.model.param_count; p++) {
        const HsParam *a = &whole.model.params[p], *b = &frozen.model.params[p];
        trained += b->trainable;
        cr_expect_eq(a->passes_gradient, hs_param_multiplies(a) || a->role == HS_PARAM_VECTOR, "%s", a->name);
        cr_expect_eq(hs_tensor_present(&b->gradient), b->trainable, "%s", b->name);
        if (b->trainable)
            cr_expect(memcmp(a->gradient.data, b->gradient.data, hs_tensor_bytes(&a->gradient)) == 0,
                      "%s, %s, policy %d, frozen %s: the gradient of %s differs", family, mode, policy, first, b->name);
    }
    cr_expect(trained > 0 && trained < whole.model.param_count, "%s: %d trained", first, trained);
    cr_expect(frozen.train.backward_flops <= whole.train.backward_flops, "%s", first);
    tiny_destroy(&whole);
    tiny_destroy(&frozen);
}

Test(freeze, gradients_of_the_rest_keep_their_bits)
{
    static const char *const frozen[][2] = {
        { "embedding", NULL }, { "head", NULL },          { "matrix", NULL },       { "vector", NULL },
        { "norm", NULL },      { "matrix", "embedding" }, { "*.0.*", "embedding" }, { "*.1.*", NULL },
        { "*.[12].*", NULL },  { "*norm*", "*mlp*" },     { "*attn*", NULL },
    };
    static const HsRecompute policies[] = { HS_RECOMPUTE_NONE, HS_RECOMPUTE_MLP, HS_RECOMPUTE_BLOCK };
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++)
        for (int k = 0; k < 3; k++)
            for (int family = 0; family < 2; family++) {
                if (family == 0 && strcmp(frozen[i][0], "*norm*") == 0)
                    continue; /* GPT-2 calls them ln */
                compare(family ? "llama" : "gpt2", i % 2 ? "bf16" : "fp32", policies[k], frozen[i][0], frozen[i][1]);
            }
}

/* With everything but the head frozen, backward is the head's weight gradient alone: no action below. */
Test(freeze, nothing_is_done_below_the_lowest_trainable_parameter)
{
    TinyModel tiny;
    static char *all[] = { NULL, NULL, NULL };
    all[0] = (char *)(uintptr_t) "matrix", all[1] = (char *)(uintptr_t) "vector",
    all[2] = (char *)(uintptr_t) "embedding";
    TinySpec spec = spec_of("gpt2", "fp32", HS_RECOMPUTE_BLOCK, NULL, NULL);
    spec.freeze = (HsStringList){ .count = 3, .items = all };
    tiny_create(&tiny, spec);
    int backward = 0;
    for (int a = 0; a < tiny.train.action_count; a++)
        backward += tiny.train.actions[a].kind != HS_ACTION_FORWARD;
    cr_expect_eq(backward, 1, "%d actions other than forward", backward);
    cr_expect_eq(hs_model_trainable_count(&tiny.model), 12 * 19);
    for (int b = 0; b < tiny.train.buffer_count; b++)
        cr_expect(!tiny.train.buffers[b].gradient, "a gradient of %s",
                  tiny.model.slots[tiny.train.buffers[b].slot].name);
    /* Nor is a copy kept that only dy w would read. */
    for (int p = 0; p < tiny.model.param_count; p++)
        cr_expect(!tiny.model.params[p].passes_gradient, "%s", tiny.model.params[p].name);
    tiny_destroy(&tiny);
}

Test(freeze, refusals)
{
    TinySpec spec = spec_of("gpt2", "fp32", HS_RECOMPUTE_NONE, "*", NULL);
    HsConfig config;
    HsModel model;
    tiny_config(&spec, &config);
    cr_expect_eq(hs_model_create(&config, hs_precision_find("fp32"), 19, &model), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "every parameter"), "%s", hs_error_message());
    patterns[0] = (char *)(uintptr_t) "*.c_atn.weight";
    cr_expect_eq(hs_model_create(&config, hs_precision_find("fp32"), 19, &model), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "`*.c_atn.weight`"), "%s", hs_error_message());
    cr_expect_not_null(strstr(hs_error_message(), "transformer.h.0.attn.c_attn.weight"), "%s", hs_error_message());
    cr_expect_null(strstr(hs_error_message(), "transformer.h.1"), "each place of a block once: %s", hs_error_message());
}
