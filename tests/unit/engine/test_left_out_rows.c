/* SPDX-License-Identifier: MIT
 *
 * Rows without a target are left out before the head's product (runtime/model/layers/head_rows.c).  The truth is the same
 * model with a head that runs on all rows: every loss and every gradient but the head's own have its bits; the head's
 * adds the same terms in other groups.
 */
#include "kernels/base/tolerance.h"
#include "runtime/engine/program_internal.h"
#include "tests/support/host_backends.h"
#include "tests/support/tiny_model.h"

enum { BATCH = 8, LENGTH = 6, ROWS = BATCH * LENGTH, WIDTH = 32, VOCABULARY = 19 };

/* Row after row, over and over; x: a row with a target. */
static const char *const masks[] = {
    ".",                                                /* no row */
    "x",                                                /* all */
    ".xxxxx",                                           /* all but the first of each sequence */
    "x.xx...x.xxx.x..xx..x.x.",                         /* some */
    "........xxxxxxxx........",                         /* chunks without any */
    "....xx",                                           /* prompts */
    "xxx...",                                           /* padding */
    "x...............................................", /* the first */
    "...............................................x", /* the last */
    ".......................x........................", /* one */
};
enum { MASKS = sizeof masks / sizeof *masks };

static bool has_target(const char *mask, int row)
{
    return mask[(size_t)row % strlen(mask)] == 'x';
}

typedef struct Pair {
    TinyModel whole, left;
    const char *what, *mask;
} Pair;

static void create(Pair *pair, const TinySpec *spec, const char *what)
{
    tiny_create(&pair->whole, *spec);
    tiny_create(&pair->left, *spec);
    pair->what = what;
    HsAttributes *head = &pair->whole.model.nodes[pair->whole.model.loss_node].attributes;
    cr_assert(head->leaves_out);
    head->leaves_out = false;
}

static void destroy(Pair *pair)
{
    tiny_destroy(&pair->whole);
    tiny_destroy(&pair->left);
}

static void set_mask(Pair *pair, const char *mask)
{
    pair->mask = mask;
    for (int row = 0; row < ROWS; row++) {
        pair->whole.targets[row] = pair->left.targets[row] = has_target(mask, row) ? row * 7 % VOCABULARY : -1;
    }
}

/* Bounds on the magnitude of a column's terms, all of one sign: |dlogit| <= scale (1 + 2 z lse). */
static void sum_hidden(Pair *pair, double scale, double sums[WIDTH])
{
    TinyModel *tiny = &pair->whole;
    (void)tiny_evaluate(tiny);
    const HsAction *action = &tiny->evaluate.actions[tiny->evaluate.action_count - 1];
    const HsTensor hidden = hs_program_tensor(&tiny->evaluate, action->inputs[0], ROWS);
    memset(sums, 0, WIDTH * sizeof *sums);
    for (int row = 0; row < ROWS; row++)
        for (int c = 0; c < WIDTH && tiny->targets[row] >= 0; c++)
            sums[c] += scale * fabs(hs_dtype_load(hidden.dtype, hidden.data, row * WIDTH + c));
}

/* Both are sums of the same products, rounded to the gradient's format once a chunk. */
static void expect_near(const Pair *pair, const HsParam *whole, const HsParam *left, const double sums[WIDTH])
{
    const HsDtype format = whole->gradient.dtype, sum = format == HS_F64 ? HS_F64 : HS_F32;
    for (int64_t i = 0; i < hs_tensor_count(&whole->gradient); i++) {
        const double a = hs_dtype_load(format, whole->gradient.data, i);
        const double b = hs_dtype_load(format, left->gradient.data, i);
        const double size = sums[i % WIDTH] + fabs(a); /* what the embedding's backward adds, if tied */
        const double bound =
            2 * (hs_tolerance(2 * ROWS, 2, sum, format, size, a) + ROWS * hs_dtype_info(format)->epsilon * size);
        cr_assert(fabs(a - b) <= bound, "%s, %s: %s[%lld] is %.9g, with all rows %.9g, at most %.3g apart", pair->what,
                  pair->mask, whole->name, (long long)i, b, a, bound);
    }
}

static void expect_same(const Pair *pair, const double sums[WIDTH])
{
    const HsModel *model = &pair->whole.model;
    const int head = model->nodes[model->loss_node].params[0];
    for (int p = 0; p < model->param_count; p++) {
        const HsParam *whole = &model->params[p], *left = &pair->left.model.params[p];
        if (!hs_tensor_present(&whole->gradient))
            continue;
        if (p == head)
            expect_near(pair, whole, left, sums);
        else
            cr_assert(memcmp(whole->gradient.data, left->gradient.data, hs_tensor_bytes(&whole->gradient)) == 0,
                      "%s, %s: the gradient of %s differs", pair->what, pair->mask, whole->name);
    }
}

static void compare_training(Pair *pair)
{
    double sums[WIDTH];
    const float scale = 2;
    const double whole = tiny_train(&pair->whole, scale), left = tiny_train(&pair->left, scale);
    cr_assert(whole == left, "%s, %s: the loss is %.17g, with all rows %.17g", pair->what, pair->mask, left, whole);
    for (int row = 0; row < ROWS; row++) {
        const double loss = hs_program_row_loss(&pair->left.train, row);
        cr_assert(loss == hs_program_row_loss(&pair->whole.train, row), "%s, %s: row %d", pair->what, pair->mask, row);
        cr_assert((loss != 0) == has_target(pair->mask, row));
    }
    sum_hidden(pair, (double)scale, sums);
    expect_same(pair, sums);
}

static void compare_evaluation(Pair *pair)
{
    float whole[ROWS], left[ROWS];
    double sum;
    TINY_OK(hs_program_evaluate(&pair->whole.evaluate, &pair->whole.context, pair->whole.tokens, pair->whole.targets,
                                &sum, whole));
    TINY_OK(hs_program_evaluate(&pair->left.evaluate, &pair->left.context, pair->left.tokens, pair->left.targets, &sum,
                                left));
    cr_assert(memcmp(whole, left, sizeof whole) == 0, "%s, %s: evaluated losses differ", pair->what, pair->mask);
}

/* Labels are drawn by row, whichever rows are left out. */
static void compare_probe(Pair *pair)
{
    float losses[2][ROWS];
    TinyModel *both[] = { &pair->whole, &pair->left };
    double sums[WIDTH], sum;
    for (int i = 0; i < 2; i++) {
        tiny_clear_gradients(both[i]);
        TINY_OK(hs_program_probe(&both[i]->train, &both[i]->context, both[i]->tokens, both[i]->targets, true, 17, 4, 6,
                                 1.0f, &sum, losses[i]));
    }
    cr_assert(memcmp(losses[0], losses[1], sizeof losses[0]) == 0, "%s, %s: drawn labels differ", pair->what,
              pair->mask);
    sum_hidden(pair, 1, sums);
    expect_same(pair, sums);
}

/* every: 1 takes all masks, 3 no row, some, padding and one. */
static void compare(const TinySpec *spec, int every, const char *what)
{
    static Pair pair;
    create(&pair, spec, what);
    for (int m = 0; m < MASKS; m += every) {
        set_mask(&pair, masks[m]);
        compare_training(&pair);
        compare_evaluation(&pair);
        compare_probe(&pair);
    }
    destroy(&pair);
}

static const TinySpec base = {
    .family = "gpt2",
    .mode = "fp32",
    .layers = 1,
    .heads = 2,
    .width = WIDTH,
    .vocabulary = VOCABULARY,
    .batch = BATCH,
    .length = LENGTH,
    .bias = true,
    .head_chunk = 5,
};

Test(left_out_rows, on_every_backend)
{
    static const char *const modes[] = { "fp32", "bf16", "fp16" };
    HsContext context;
    const char *name;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
            TinySpec spec = base;
            spec.backend = context.backend;
            spec.threads = m == 0 ? 2 : 1;
            spec.mode = modes[m];
            char what[64];
            snprintf(what, sizeof what, "%s, %s", name, modes[m]);
            compare(&spec, 3, what);
        }
    }
}

static void compare_on_ref_and_cpu(TinySpec spec, int every, const char *what)
{
    compare(&spec, every, what);
    TINY_OK(hs_backend_cpu(&spec.backend));
    compare(&spec, every, what);
}

Test(left_out_rows, in_codes)
{
    static const char *const modes[] = { "fp8", "fp8-delayed", "fp8-block", "mxfp8", "nvfp4" };
    for (size_t m = 0; m < sizeof modes / sizeof *modes; m++) {
        TinySpec spec = base;
        spec.mode = modes[m];
        compare_on_ref_and_cpu(spec, 3, modes[m]);
    }
}

Test(left_out_rows, in_chunks_of_any_size)
{
    static const int64_t chunks[] = { 1, 3, 40, 1000 };
    for (size_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
        TinySpec spec = base;
        spec.head_chunk = chunks[c];
        char what[32];
        snprintf(what, sizeof what, "chunks of %lld", (long long)chunks[c]);
        compare_on_ref_and_cpu(spec, 1, what);
        spec.mode = "fp64";
        compare(&spec, 1, what);
    }
}

Test(left_out_rows, in_every_kind_of_model)
{
    static char *all[] = { (char *)(uintptr_t) "all-linear" }, *head[] = { (char *)(uintptr_t) "head" };
    const TinySpec specs[] = {
        { .family = "gpt2", .tie_head = true, .bias = true, .policy = HS_RECOMPUTE_BLOCK },
        { .family = "gpt2", .mode = "bf16", .gradients_in_16_bits = true },
        { .family = "llama", .kv_heads = 1, .qk_norm = true, .policy = HS_RECOMPUTE_MLP },
        { .family = "llama", .adapter = { .rank = 2, .alpha = 4, .targets = { .count = 1, .items = all } } },
        { .family = "llama", .freeze = { .count = 1, .items = head } },
        { .family = "gpt2", .unfused = true, .head_work = true },
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        TinySpec spec = specs[i];
        spec.mode = spec.mode ? spec.mode : "fp32";
        spec.layers = spec.heads = 2;
        spec.width = WIDTH;
        spec.vocabulary = VOCABULARY;
        spec.batch = BATCH;
        spec.length = LENGTH;
        spec.head_chunk = 4;
        compare_on_ref_and_cpu(spec, 1, spec.family);
    }
}

/* The next micro-batch of an accumulated step finds the gradients of the one before, and another mask. */
Test(left_out_rows, of_one_micro_batch_after_another)
{
    static Pair pair;
    double first[WIDTH], sums[WIDTH];
    create(&pair, &base, "accumulated");
    for (int m = 0; m < MASKS; m++) {
        set_mask(&pair, masks[m]);
        (void)tiny_train(&pair.whole, 1.25f);
        (void)tiny_train(&pair.left, 1.25f);
        sum_hidden(&pair, 1.25, first);
        set_mask(&pair, masks[(m + 4) % MASKS]);
        cr_assert(tiny_train_more(&pair.whole) == tiny_train_more(&pair.left));
        sum_hidden(&pair, 1.25, sums);
        for (int c = 0; c < WIDTH; c++)
            sums[c] += first[c];
        expect_same(&pair, sums);
    }
    destroy(&pair);
}

/* Of a step's work, the head's three products. */
Test(left_out_rows, are_no_work)
{
    static Pair pair;
    create(&pair, &base, "work");
    cr_expect(hs_model_left_out_flops(&pair.left.model) == 6.0 * VOCABULARY * WIDTH);
    cr_expect(hs_model_left_out_flops(&pair.whole.model) == 0);
    destroy(&pair);
}
