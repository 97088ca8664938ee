/* SPDX-License-Identifier: MIT
 *
 * A pass over rows that end in padding ends behind the last target (runtime/engine/program_lengths.c).  On the
 * reference backend it has the bits of a pass over whole rows (hs_program_train), as what is left out adds exact zeros.
 * Other backends divide sums by rows: there it has the bits of a model that was made for that length.
 */
#include "runtime/engine/program_internal.h"
#include "tests/support/host_backends.h"
#include "tests/support/tiny_model.h"

enum { BATCH = 3, LENGTH = 67, ROWS = BATCH * LENGTH, VOCABULARY = 19 };

/* Targets before these places; the pass ends at the largest, in whole sixteens. */
static const struct {
    int ends[BATCH], length;
} cases[] = {
    { { 5, 16, 9 }, 16 }, { { 17, 1, 1 }, 32 },       { { 3, 3, 48 }, 48 },         { { 0, 0, 0 }, 16 },
    { { 64, 2, 5 }, 64 }, { { 65, 20, 66 }, LENGTH }, { { 0, LENGTH, 0 }, LENGTH },
};
enum { CASES = sizeof cases / sizeof *cases };

static void set_targets(TinyModel *tiny, const int *ends)
{
    for (int row = 0; row < ROWS; row++)
        tiny->targets[row] = row % LENGTH < ends[row / LENGTH] && row % 7 != 2 ? row * 5 % VOCABULARY : -1;
    for (int i = 0; i < BATCH; i++)
        if (ends[i] > 0)
            tiny->targets[i * LENGTH + ends[i] - 1] = i;
}

static int64_t pass(TinyModel *tiny, double *losses)
{
    const float scale = 2;
    const uint32_t step = 3;
    int64_t left_out = 0;
    int32_t list[ROWS];
    const int64_t listed = hs_target_rows_list(tiny->targets, ROWS, list);
    const HsProgramFeed feed = { .tokens = tiny->tokens,
                                 .targets = tiny->targets,
                                 .seed = 11,
                                 .step_counter = &step,
                                 .gradient_scale = &scale,
                                 .losses = losses,
                                 .left_out = &left_out,
                                 .target_rows = { list, listed } };
    tiny_clear_gradients(tiny);
    TINY_OK(hs_program_train_queued(&tiny->train, &tiny->context, &feed));
    return left_out;
}

/* `truth` has rows of `length` tokens. */
static void expect_same(TinyModel *truth, TinyModel *shorter, const char *what, int64_t length)
{
    double losses[ROWS];
    (void)pass(shorter, losses);
    (void)tiny_train(truth, 2);
    for (int row = 0; row < ROWS; row++) {
        const int64_t t = row % LENGTH, sequence = row / LENGTH;
        const double loss = hs_dtype_load(truth->model.precision.statistic, losses, row);
        cr_assert(loss == (t < length ? hs_program_row_loss(&truth->train, sequence * length + t) : 0),
                  "%s: row %d of length %lld", what, row, (long long)length);
    }
    for (int p = 0; p < truth->model.param_count; p++) {
        const HsTensor *a = &truth->model.params[p].gradient, *b = &shorter->model.params[p].gradient;
        cr_assert(memcmp(a->data, b->data, hs_tensor_bytes(a)) == 0, "%s: the gradient of %s, length %lld", what,
                  truth->model.params[p].name, (long long)length);
    }
    cr_expect(tiny_evaluate(truth) == tiny_evaluate(shorter), "%s: evaluated, length %lld", what, (long long)length);
}

/* The first `length` tokens of each sequence. */
static void cut(const TinyModel *from, TinyModel *to, int64_t length)
{
    for (int i = 0; i < BATCH; i++) {
        memcpy(to->tokens + i * length, from->tokens + i * LENGTH, (size_t)length * sizeof *to->tokens);
        memcpy(to->targets + i * length, from->targets + i * LENGTH, (size_t)length * sizeof *to->targets);
    }
}

static void compare(TinySpec spec, bool with_whole, const char *what)
{
    TinyModel truth, shorter;
    TinySpec padded = spec;
    padded.pads = true;
    tiny_create(&shorter, padded);
    cr_assert_eq(shorter.train.length_grain, 16);
    for (int i = 0; i < CASES; i++) {
        double losses[ROWS];
        const int64_t length = cases[i].length;
        set_targets(&shorter, cases[i].ends);
        cr_expect_eq(pass(&shorter, losses), BATCH * (LENGTH - length), "%s: the pass is not %lld long", what,
                     (long long)length);
        spec.length = with_whole ? LENGTH : length;
        tiny_create(&truth, spec);
        cr_assert_eq(truth.train.length_grain, 0);
        cut(&shorter, &truth, spec.length);
        expect_same(&truth, &shorter, what, spec.length);
        tiny_destroy(&truth);
    }
    tiny_destroy(&shorter);
}

Test(lengths, a_pass_ends_behind_the_last_target)
{
    static const char *const modes[] = { "fp32", "bf16", "fp16" };
    const TinySpec families[] = {
        { .family = "gpt2", .layers = 2, .heads = 2, .width = 32, .bias = true, .tie_head = true },
        { .family = "llama", .layers = 2, .heads = 4, .kv_heads = 2, .width = 32, .qk_norm = true },
    };
    HsContext context;
    const char *backend;
    for (int b = 0; next_host_backend(&b, &context, &backend);)
        for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
            for (int f = 0; f < 2; f++) {
                char what[64];
                TinySpec spec = families[f];
                spec.mode = modes[m];
                spec.backend = context.backend;
                spec.vocabulary = VOCABULARY;
                spec.batch = BATCH;
                spec.length = LENGTH;
                spec.head_chunk = 16;
                spec.policy = f == 0 ? HS_RECOMPUTE_BLOCK : HS_RECOMPUTE_NONE;
                snprintf(what, sizeof what, "%s, %s, %s", backend, spec.family, spec.mode);
                if (b == 1 || f == 1) /* gpt2's table of positions has as many rows as the length */
                    compare(spec, b == 1, what);
            }
}

/* A mask's element depends on the length of rows: all of them are computed. */
Test(lengths, not_where_masks_are_drawn)
{
    TinyModel tiny;
    tiny_create(&tiny, (TinySpec){ .family = "llama",
                                   .mode = "fp32",
                                   .layers = 1,
                                   .heads = 2,
                                   .width = 32,
                                   .vocabulary = VOCABULARY,
                                   .batch = BATCH,
                                   .length = LENGTH,
                                   .dropout = 0.1,
                                   .pads = true });
    cr_expect_eq(tiny.train.length_grain, 0);
    tiny_destroy(&tiny);
}
