/* SPDX-License-Identifier: MIT
 *
 * A norm that completes the gradient of a sum rounds it for the products of the linear layer that made the sum, and adds
 * its rows to the bias's gradient.  On ref and cpu every gradient has the very bits that it has where the linear layer
 * converts and sums dy itself, and where the sums wait in a buffer, whatever is frozen, adapted or recomputed, and when
 * micro-batches add up.
 */
#include "tests/support/tiny_model.h"

/* What makes the rounded copy and the sums: the linear layer; the norm above; the norm, into a buffer for the sums. */
typedef enum Way { ITSELF, ABOVE, APART } Way;

static char *patterns[] = { NULL };

/* first: what is frozen, or with adapters trained next to it. */
static TinySpec spec_of(const char *family, const char *mode, HsRecompute policy, const char *first, int64_t rank)
{
    const HsStringList list = { .count = first ? 1 : 0, .items = patterns };
    static char *targets[] = { NULL };
    TinySpec spec = { .family = family,
                      .mode = mode,
                      .layers = 3,
                      .heads = 2,
                      .width = 20,
                      .vocabulary = 19,
                      .batch = 3,
                      .length = 7,
                      .bias = strcmp(family, "gpt2") == 0,
                      .qkv_bias = true,
                      .policy = policy,
                      .freeze = rank > 0 ? (HsStringList){ 0 } : list };
    patterns[0] = (char *)(uintptr_t)first;
    targets[0] = (char *)(uintptr_t) "*.c_proj";
    if (rank > 0) {
        spec.adapter.rank = rank;
        spec.adapter.alpha = 4;
        spec.adapter.targets = (HsStringList){ .count = 1, .items = targets };
        spec.adapter.also_train = list;
    }
    return spec;
}

/* A model that leaves the work to others. */
static void create(TinyModel *tiny, TinySpec spec, Way way)
{
    spec.unfused = way == ITSELF;
    tiny_create(tiny, spec);
    if (way != APART)
        return;
    hs_program_destroy(&tiny->train);
    tiny->model.passing = true;
    TINY_OK(
        hs_program_create(&tiny->model, &tiny->context, spec.batch, spec.length, true, spec.policy, 1, &tiny->train));
    TINY_OK(hs_program_commit(&tiny->train, &tiny->context));
}

static void compare_ways(TinySpec spec, const char *what)
{
    TinyModel tiny[3];
    for (int way = ITSELF; way <= APART; way++) {
        create(&tiny[way], spec, (Way)way);
        tiny_train(&tiny[way], 0.5f);
    }
    tiny_expect_equal_gradients(&tiny[ITSELF], &tiny[ABOVE], what);
    tiny_expect_equal_gradients(&tiny[ITSELF], &tiny[APART], what); /* gradients that pass are of one micro-batch */
    tiny_train_more(&tiny[ITSELF]);
    tiny_train_more(&tiny[ABOVE]);
    tiny_expect_equal_gradients(&tiny[ITSELF], &tiny[ABOVE], what);
    for (int way = ITSELF; way <= APART; way++)
        tiny_destroy(&tiny[way]);
}

Test(rounded_gradients, have_the_same_bits)
{
    static const HsRecompute policies[] = { HS_RECOMPUTE_NONE, HS_RECOMPUTE_MLP, HS_RECOMPUTE_BLOCK };
    for (int k = 0; k < 3; k++) {
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", policies[k], NULL, 0), "gpt2 bf16");
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "fp16", policies[k], NULL, 0), "gpt2 fp16");
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "fp32", policies[k], NULL, 0), "gpt2 fp32");
        tiny_on_ref_and_cpu(compare_ways, spec_of("llama", "bf16", policies[k], NULL, 0), "llama bf16");
    }
}

Test(rounded_gradients, where_much_is_frozen_or_adapted)
{
    static const char *const frozen[] = { "*bias", "*ln_*", "embedding", "*c_proj.weight", "*.1.*", "matrix" };
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++)
        tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", HS_RECOMPUTE_BLOCK, frozen[i], 0), frozen[i]);
    tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", HS_RECOMPUTE_NONE, NULL, 2), "adapters");
    tiny_on_ref_and_cpu(compare_ways, spec_of("gpt2", "bf16", HS_RECOMPUTE_NONE, "*bias", 2), "adapters and biases");
}

/* Counts the operations that only go over dy again. */
typedef struct Counter {
    HsObserver observer; /* first: the context holds its address */
    int passes;
} Counter;

static void count(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    (void)context, (void)cost;
    if (kind == HS_RANGE_OPERATION && (strcmp(name, "convert") == 0 || strcmp(name, "bias_backward") == 0))
        ((Counter *)observer)->passes++;
}

static void ignore(HsObserver *observer, HsContext *context)
{
    (void)observer, (void)context;
}

static int count_passes(double dropout, Way way)
{
    TinyModel tiny;
    Counter counter = { .observer = { count, ignore } };
    TinySpec spec = spec_of("gpt2", "bf16", HS_RECOMPUTE_NONE, NULL, 0);
    spec.dropout = dropout;
    create(&tiny, spec, way);
    tiny.context.observer = &counter.observer;
    tiny_train(&tiny, 1);
    tiny_destroy(&tiny);
    return counter.passes;
}

Test(rounded_gradients, no_operation_goes_over_dy_again)
{
    cr_expect_eq(count_passes(0, ABOVE), 0);
    cr_expect_eq(count_passes(0.1, ABOVE), 0, "the products sum what dropout has rounded");
    cr_expect_eq(count_passes(0, ITSELF), 3 * 2 * 2, "two layers of each block convert and sum");
}
