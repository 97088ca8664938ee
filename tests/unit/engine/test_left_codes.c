/* SPDX-License-Identifier: MIT
 *
 * Products and norms that leave codes in place of their results (runtime/model/casts.h): losses, gradients and what casts
 * record are those of passes that store every value and cast it apart, whatever is recomputed, adapted or looked at; and as
 * many casts fewer as layers that can.
 */
#include "runtime/engine/program_internal.h"
#include "tests/support/tiny_model.h"

enum { LAYERS = 2, ROWS = 3 * 7 };

static TinySpec spec_of(const char *family, const char *shape, HsRecompute policy, int64_t rank)
{
    static char *targets[] = { (char *)(uintptr_t) "all-linear" };
    TinySpec spec = { .family = family,
                      .shape = shape,
                      .mode = "fp8-delayed",
                      .turns_codes = true,
                      .layers = LAYERS,
                      .heads = 4,
                      .width = 32,
                      .vocabulary = 19,
                      .batch = 3,
                      .length = 7,
                      .bias = strcmp(family, "gpt2") == 0,
                      .policy = policy };
    if (rank > 0) {
        spec.adapter.rank = rank;
        spec.adapter.alpha = 4;
        spec.adapter.targets = (HsStringList){ .count = 1, .items = targets };
    }
    return spec;
}

/* Scales as an earlier step may have left them: some numbers are beyond the largest code, some become 0. */
static void keep_scales(TinyModel *tiny)
{
    HsModelScalings *const scalings = &tiny->model.scalings;
    for (int i = 0; i < scalings->count; i++)
        scalings->now[i].kept = i % 3 == 0 ? 900.0f : 40.0f;
    scalings->begun = true;
}

typedef struct Counter {
    HsObserver observer; /* first: the context holds its address */
    int casts;
} Counter;

static void count(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost)
{
    (void)context, (void)cost;
    if (kind == HS_RANGE_OPERATION && strcmp(name, "quantize") == 0)
        ((Counter *)observer)->casts++;
}

static void ignore(HsObserver *observer, HsContext *context)
{
    (void)observer, (void)context;
}

/* Two micro-batches; returns their losses' sum and, in *casts, how many casts there were. */
static double train(TinyModel *tiny, bool stores_all, int *casts)
{
    Counter counter = { .observer = { count, ignore } };
    double loss = 0;
    keep_scales(tiny);
    tiny_clear_gradients(tiny);
    tiny->context.observer = &counter.observer;
    for (int micro_batch = 0; micro_batch < 2; micro_batch++) {
        HsExecution execution = hs_execution_of_training(&tiny->train, 11, 3, micro_batch * ROWS);
        execution.stores_all = stores_all;
        TINY_OK(hs_program_load_training(&tiny->train, &tiny->context, tiny->tokens, tiny->targets, 0.5f,
                                         &execution.target_rows));
        TINY_OK(hs_program_run(&tiny->train, &tiny->context, &execution, NULL, NULL));
        for (int row = 0; row < ROWS; row++)
            loss += hs_dtype_load(tiny->train.buffers[tiny->train.losses_buffer].tensor.dtype,
                                  hs_program_tensor(&tiny->train, tiny->train.losses_buffer, ROWS).data, row);
    }
    tiny->context.observer = NULL;
    *casts = counter.casts;
    return loss;
}

static int fewer; /* casts of a micro-batch that the products make */

static void compare_ways(TinySpec spec, const char *what)
{
    TinyModel left, stored;
    int casts_left, casts_stored;
    tiny_create(&left, spec);
    tiny_create(&stored, spec);
    cr_expect_eq(train(&left, false, &casts_left), train(&stored, true, &casts_stored), "%s: losses differ", what);
    cr_expect_eq(casts_stored - casts_left, 2 * fewer, "%s: %d casts fewer, not %d", what, casts_stored - casts_left,
                 2 * fewer);
    tiny_expect_equal_gradients(&left, &stored, what);
    const HsModelScalings *const one = &left.model.scalings, *const other = &stored.model.scalings;
    cr_expect(memcmp(one->now, other->now, (size_t)one->count * sizeof *one->now) == 0, "%s: records differ", what);
    uint64_t saturated = 0, zeroed = 0;
    for (int i = 0; i < one->count; i++) {
        saturated += one->now[i].saturated;
        zeroed += one->now[i].zeroed;
    }
    cr_expect(saturated > 0 && zeroed > 0, "%s: %llu and %llu", what, (unsigned long long)saturated,
              (unsigned long long)zeroed);
    cr_expect_eq(tiny_evaluate(&left), tiny_evaluate(&stored), "%s: losses of evaluation differ", what);
    tiny_destroy(&left);
    tiny_destroy(&stored);
}

/* Of a layer's four linear ones, how many find x in codes: those behind norms, and the MLP's second; and how many dy: those
 * whose sum a norm reads, unless it is masked, and the MLP's first, which in GPT-2 has a bias to add up. */
Test(left_codes, are_those_of_casts)
{
    const struct {
        const char *family, *shape;
        HsRecompute policy;
        double dropout;
        int x, dy;
    } ways[] = {
        { "gpt2", NULL, HS_RECOMPUTE_NONE, 0, 3, 2 },        { "gpt2", NULL, HS_RECOMPUTE_ATTENTION, 0, 2, 2 },
        { "gpt2", NULL, HS_RECOMPUTE_MLP, 0, 1, 2 },         { "gpt2", NULL, HS_RECOMPUTE_BLOCK, 0, 0, 2 },
        { "gpt2", NULL, HS_RECOMPUTE_NONE, 0.2, 3, 0 },      { "gpt2", NULL, HS_RECOMPUTE_ATTENTION, 0.2, 2, 0 },
        { "gpt2", NULL, HS_RECOMPUTE_MLP, 0.2, 1, 0 },       { "gpt2", NULL, HS_RECOMPUTE_BLOCK, 0.2, 0, 0 },
        { "llama", NULL, HS_RECOMPUTE_NONE, 0, 3, 3 },       { "llama", NULL, HS_RECOMPUTE_ATTENTION, 0, 2, 3 },
        { "llama", NULL, HS_RECOMPUTE_MLP, 0, 1, 3 },        { "llama", NULL, HS_RECOMPUTE_BLOCK, 0, 0, 3 },
        { "llama", "nanochat", HS_RECOMPUTE_NONE, 0, 3, 3 }, { "llama", "gemma2", HS_RECOMPUTE_NONE, 0, 3, 1 }
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        TinySpec spec = spec_of(ways[i].family, ways[i].shape, ways[i].policy, 0);
        spec.dropout = ways[i].dropout;
        fewer = LAYERS * (ways[i].x + ways[i].dy);
        tiny_on_ref_and_cpu(compare_ways, spec, ways[i].shape ? ways[i].shape : ways[i].family);
    }
}

Test(left_codes, of_what_adapters_read_there_are_none)
{
    fewer = 0;
    tiny_on_ref_and_cpu(compare_ways, spec_of("llama", NULL, HS_RECOMPUTE_NONE, 2), "adapters");
}

/* Where something else reads x and dy, and where codes do not serve as those of the transpose. */
Test(left_codes, are_not_all_that_is_read)
{
    TinyModel tiny;
    int casts, all;
    TinySpec spec = spec_of("llama", NULL, HS_RECOMPUTE_NONE, 0);
    tiny_create(&tiny, spec);
    (void)train(&tiny, true, &all);
    hs_program_destroy(&tiny.train);
    tiny.model.looks_at_inputs = true;
    TINY_OK(hs_program_create(&tiny.model, &tiny.context, spec.batch, spec.length, true, spec.policy, 1, &tiny.train));
    TINY_OK(hs_program_commit(&tiny.train, &tiny.context));
    (void)train(&tiny, false, &casts);
    /* Weights have not changed; but for attention's, of which it is so always, x is cast again backward. */
    cr_expect_eq(casts, all - LAYERS * 4 + 2 * LAYERS * 3, "%d casts, before %d", casts, all);
    tiny_destroy(&tiny);
    spec.turns_codes = false;
    tiny_create(&tiny, spec);
    (void)train(&tiny, false, &casts);
    cr_expect_eq(casts, all);
    tiny_destroy(&tiny);
}
