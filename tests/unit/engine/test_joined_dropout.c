/* SPDX-License-Identifier: MIT
 *
 * A norm and the sum with dropout right before it are one node (runtime/model/fuse.c).  On ref and cpu the loss and every
 * gradient have the very bits that they have where both are separate nodes: forward, again and backward, whatever
 * is recomputed, frozen or adapted, and when micro-batches add up.
 */
#include "tests/support/tiny_model.h"

static char *patterns[] = { NULL };

static TinySpec spec_of(const char *family, const char *mode, HsRecompute policy, int64_t width, const char *frozen)
{
    patterns[0] = (char *)(uintptr_t)frozen;
    return (TinySpec){ .family = family,
                       .mode = mode,
                       .layers = 3,
                       .heads = 2,
                       .width = width,
                       .vocabulary = 19,
                       .batch = 3,
                       .length = 7,
                       .bias = strcmp(family, "gpt2") == 0,
                       .qkv_bias = true,
                       .dropout = 0.2,
                       .policy = policy,
                       .freeze = { .count = frozen ? 1 : 0, .items = patterns } };
}

/* Calls that make a sum and its norm. */
static int count_joined(const HsProgram *program, HsActionKind kind)
{
    int joined = 0;
    for (int a = 0; a < program->action_count; a++) {
        const HsAction *action = &program->actions[a];
        joined += action->kind == kind && !action->has_sum &&
                  program->model->nodes[action->node].layer == &hs_layer_dropout_norm;
    }
    return joined;
}

static void compare_ways(TinySpec spec, const char *what)
{
    TinyModel joined, apart;
    tiny_create(&joined, spec);
    spec.unfused = true;
    tiny_create(&apart, spec);
    cr_expect_eq(count_joined(&apart.train, HS_ACTION_FORWARD), 0);
    cr_expect_eq(joined.model.node_count, apart.model.node_count - 2 * 3);
    cr_expect_eq(count_joined(&joined.train, HS_ACTION_FORWARD), 2 * 3, "the sums of three blocks");
    cr_expect_eq(count_joined(&joined.train, HS_ACTION_RECOMPUTE), spec.policy == HS_RECOMPUTE_BLOCK ? 3 : 0,
                 "%s: of a block that is made again the first sum; the second is kept", what);
    cr_expect_eq(joined.train.kept_bytes, apart.train.kept_bytes, "%s", what);
    cr_expect_eq(tiny_train(&joined, 0.5f), tiny_train(&apart, 0.5f), "%s", what);
    tiny_expect_equal_gradients(&joined, &apart, what);
    cr_expect_eq(tiny_train_more(&joined), tiny_train_more(&apart), "%s", what);
    tiny_expect_equal_gradients(&joined, &apart, what);
    cr_expect_eq(tiny_evaluate(&joined), tiny_evaluate(&apart), "%s", what);
    tiny_destroy(&joined);
    tiny_destroy(&apart);
}

Test(joined_dropout, has_the_same_bits)
{
    static const HsRecompute policies[] = { HS_RECOMPUTE_NONE, HS_RECOMPUTE_ATTENTION, HS_RECOMPUTE_MLP,
                                            HS_RECOMPUTE_BLOCK };
    for (int k = 0; k < 4; k++) {
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", policies[k], 20, NULL), "gpt2 bf16");
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "fp16", policies[k], 34, NULL), "gpt2 fp16");
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "fp32", policies[k], 20, NULL), "gpt2 fp32");
        tiny_on_ref_and_cpu(compare_ways, spec_of("llama", "bf16", policies[k], 20, NULL), "llama bf16");
    }
}

/* What is not trained has no gradient; that of the branch may be all that is left of a block's. */
Test(joined_dropout, where_much_is_frozen)
{
    static const char *const frozen[] = { "*bias", "*ln_*", "embedding", "*c_proj.weight", "matrix" };
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++)
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", HS_RECOMPUTE_NONE, 20, frozen[i]), frozen[i]);
}

/* A step with recomputation equals one without. */
Test(joined_dropout, recomputed_or_not)
{
    TinyModel kept, again;
    tiny_create(&kept, spec_of("gpt2", "bf16", HS_RECOMPUTE_NONE, 20, NULL));
    for (int policy = HS_RECOMPUTE_ATTENTION; policy <= HS_RECOMPUTE_BLOCK; policy++) {
        tiny_create(&again, spec_of("gpt2", "bf16", (HsRecompute)policy, 20, NULL));
        cr_expect_eq(tiny_train(&kept, 0.5f), tiny_train(&again, 0.5f));
        tiny_expect_equal_gradients(&kept, &again, "recomputed");
        tiny_destroy(&again);
    }
    tiny_destroy(&kept);
}

/* Counts the operations of a training pass by name. */
typedef struct Counter {
    HsObserver observer; /* first: the context holds its address */
    int forward, backward;
} Counter;

static void count(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    (void)context, (void)cost;
    ((Counter *)observer)->forward += kind == HS_RANGE_OPERATION && strcmp(name, "dropout_forward") == 0;
    ((Counter *)observer)->backward += kind == HS_RANGE_OPERATION && strcmp(name, "dropout_backward") == 0;
}

static void ignore(HsObserver *observer, HsContext *context)
{
    (void)observer, (void)context;
}

Test(joined_dropout, leaves_the_embedding_alone_an_operation)
{
    TinyModel tiny;
    Counter counter = { .observer = { count, ignore } };
    tiny_create(&tiny, spec_of("gpt2", "bf16", HS_RECOMPUTE_BLOCK, 20, NULL));
    tiny.context.observer = &counter.observer;
    tiny_train(&tiny, 1);
    cr_expect_eq(counter.forward, 1);
    cr_expect_eq(counter.backward, 1);
    tiny_destroy(&tiny);
}

/* What is not finite is attributed to the layer that computed it: 3e38 / (1 - 0.2) is infinite, 3e38 is not. */
Test(joined_dropout, is_named_where_it_overflows)
{
    TinyModel tiny;
    char where[128];
    tiny_create(&tiny, spec_of("gpt2", "fp32", HS_RECOMPUTE_NONE, 20, NULL));
    for (int p = 0; p < tiny.model.param_count; p++) {
        HsParam *param = &tiny.model.params[p];
        if (strcmp(param->name, "transformer.h.1.mlp.c_proj.bias") == 0)
            ((float *)param->stored.values.data)[3] = 3e38f;
    }
    TINY_OK(hs_program_find_nonfinite(&tiny.train, &tiny.context, tiny.tokens, tiny.targets, 11, 3, 0, 1, where,
                                      sizeof where));
    cr_expect_str_eq(where, "block.1.mlp.down.dropout.out (forward, dropout_norm)");
    tiny_destroy(&tiny);
}
