/* SPDX-License-Identifier: MIT
 *
 * Largest magnitudes that operations leave of what they make (runtime/model/coded.h): every scale that follows from one
 * follows from it, every gradient has the very bits that it has where casts look for themselves, whatever is recomputed,
 * adapted or dropped, in evaluation too, and when micro-batches add up.
 */
#include "tests/support/tiny_model.h"

typedef struct Variant {
    const char *family, *mode;
    double dropout;
    HsRecompute policy;
    int64_t rank;
} Variant;

static TinySpec spec_of(const Variant *variant)
{
    static char *targets[] = { (char *)(uintptr_t) "all-linear" };
    TinySpec spec = { .family = variant->family,
                      .mode = variant->mode,
                      .layers = 2,
                      .heads = 4,
                      .kv_heads = strcmp(variant->family, "llama") == 0 ? 2 : 0,
                      .width = 32,
                      .vocabulary = 19,
                      .batch = 3,
                      .length = 7,
                      .bias = strcmp(variant->family, "gpt2") == 0,
                      .qk_norm = strcmp(variant->family, "llama") == 0 && variant->rank > 0,
                      .dropout = variant->dropout,
                      .policy = variant->policy };
    if (variant->rank > 0) {
        spec.adapter.rank = variant->rank;
        spec.adapter.alpha = 4;
        spec.adapter.targets = (HsStringList){ .count = 1, .items = targets };
    }
    return spec;
}

/* Casts look for themselves. */
static void forget_slots(TinyModel *tiny)
{
    for (int i = 0; i < tiny->model.slot_count; i++)
        tiny->model.slots[i].amax = tiny->model.slots[i].gradient_amax = false;
}

static int result_of(const HsNode *node)
{
    return node->outputs[node->attributes.epilogue == HS_EPILOGUE_NONE ? 0 : 1];
}

/* What was found of one micro-batch is what its casts have recorded: of x and dy of every layer in codes. */
static void expect_all_found(const TinyModel *tiny, const char *what)
{
    const HsModel *const model = &tiny->model;
    const float *const found = model->scalings.found.data;
    int coded = 0, cast_backward = 0;
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *const node = &model->nodes[n];
        if (!hs_node_coded(node))
            continue;
        const int x = node->inputs[0], rounded = node->taken[HS_MADE_ROUNDED], result = result_of(node);
        const bool sought = rounded == HS_NONE ? model->slots[result].gradient_amax : model->slots[rounded].amax;
        const float found_dy = found[rounded == HS_NONE ? model->slot_count + result : rounded];
        const bool cast = hs_model_scaling(model, node, HS_SCALING_DY)->elements > 0;
        coded++;
        cast_backward += cast ? 1 : 0;
        cr_expect(model->slots[x].amax, "%s: x of %s is not looked at", what, node->name);
        cr_expect_eq(sought, cast, "%s: whether dy of %s is looked at", what, node->name);
        cr_expect_eq(found[x], hs_model_scaling(model, node, HS_SCALING_X)->amax, "%s: x of %s", what, node->name);
        cr_expect_eq(found_dy, hs_model_scaling(model, node, HS_SCALING_DY)->amax, "%s: dy of %s", what, node->name);
        cr_expect_gt(found[x], 0.0f);
        cr_expect_eq(found_dy > 0.0f, cast);
    }
    cr_expect_eq(coded, 2 * 4);
    /* Adapters leave the first layer nothing to do: its matrix is frozen, and nothing below it trains. */
    cr_expect_eq(cast_backward, tiny->spec.adapter.rank > 0 ? 7 : 8);
}

static void expect_equal_scalings(const TinyModel *a, const TinyModel *b, const char *what)
{
    const HsModelScalings *const one = &a->model.scalings, *const other = &b->model.scalings;
    cr_expect(memcmp(one->now, other->now, (size_t)one->count * sizeof *one->now) == 0, "%s: scales differ", what);
}

static void compare_ways(TinySpec spec, const char *what)
{
    TinyModel found, own;
    tiny_create(&found, spec);
    tiny_create(&own, spec);
    forget_slots(&own);
    cr_expect_eq(tiny_train(&found, 0.5f), tiny_train(&own, 0.5f), "%s: losses differ", what);
    expect_all_found(&found, what);
    tiny_expect_equal_gradients(&found, &own, what);
    expect_equal_scalings(&found, &own, what);
    cr_expect_eq(tiny_evaluate(&found), tiny_evaluate(&own), "%s: losses of evaluation differ", what);
    tiny_train_more(&found); /* magnitudes of the first micro-batch are forgotten, or scales would differ */
    tiny_train_more(&own);
    tiny_expect_equal_gradients(&found, &own, what);
    expect_equal_scalings(&found, &own, what);
    tiny_destroy(&found);
    tiny_destroy(&own);
}

Test(found_amax, is_what_a_cast_would_find)
{
    static const char *const families[] = { "gpt2", "llama" }, *const modes[] = { "fp8", "nvfp4" };
    static const HsRecompute policies[] = { HS_RECOMPUTE_NONE, HS_RECOMPUTE_MLP, HS_RECOMPUTE_BLOCK };
    for (int family = 0; family < 2; family++)
        for (int mode = 0; mode < 2; mode++)
            for (int policy = 0; policy < 3; policy++) {
                const Variant variant = { families[family], modes[mode], policy == 1 ? 0.2 : 0.0, policies[policy], 0 };
                tiny_on_ref_and_cpu(compare_ways, spec_of(&variant), modes[mode]);
            }
}

Test(found_amax, with_adapters)
{
    const Variant variants[] = { { "gpt2", "fp8", 0.1, HS_RECOMPUTE_BLOCK, 2 },
                                 { "llama", "fp8", 0.0, HS_RECOMPUTE_NONE, 2 } };
    for (int i = 0; i < 2; i++)
        tiny_on_ref_and_cpu(compare_ways, spec_of(&variants[i]), "adapters");
}

/* Where a block has its own scale, no magnitude is found. */
Test(found_amax, where_nothing_follows_from_it)
{
    static const char *const modes[] = { "bf16", "fp8-block", "mxfp8" };
    for (int i = 0; i < 3; i++) {
        TinyModel tiny;
        const Variant variant = { "gpt2", modes[i], 0.0, HS_RECOMPUTE_NONE, 0 };
        tiny_create(&tiny, spec_of(&variant));
        cr_expect_not(hs_tensor_present(&tiny.model.scalings.found));
        for (int s = 0; s < tiny.model.slot_count; s++)
            cr_expect_not(tiny.model.slots[s].amax || tiny.model.slots[s].gradient_amax);
        tiny_destroy(&tiny);
    }
}
