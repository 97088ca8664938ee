/* SPDX-License-Identifier: MIT
 *
 * Recorded steps whose numbers of targets change: the bits of steps that run unrecorded, whatever follows what; and of
 * steps with a head that runs on all rows, the losses.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "kernels/base/tolerance.h"
#include "runtime/train/training.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { STEPS = 16 };

typedef struct Fixture {
    Scratch scratch;
    HsConfig config;
    HsTraining training;
} Fixture;

/* Completions of one to twenty letters: a batch's number of targets is now one, now another. */
static void write_items(const char *path)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    for (int item = 0; item < 400; item++)
        fprintf(file, "{\"prompt\": \"%c%c\", \"completion\": \"%.*s\"}\n", 'a' + item % 26, 'a' + item % 23,
                1 + item * item % 20, "the quick brown fox jumps");
    cr_assert_eq(fclose(file), 0);
}

static void make(Fixture *fixture, const char *recorded, const char *more, bool leaves_out)
{
    char out_dir[300], train[600];
    hs_log_set_level(HS_LOG_WARNING);
    fixture->scratch = scratch_make();
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", scratch_path(&fixture->scratch, "run"));
    write_items(scratch_path(&fixture->scratch, "items.jsonl"));
    snprintf(train, sizeof train, "tasks.0.train=%s", scratch_path(&fixture->scratch, "items.jsonl"));
    const char *overrides[] = { out_dir,
                                train,
                                recorded,
                                more,
                                "device=emu",
                                "tokenizer.kind=byte",
                                "data.packing=none",
                                "max_length=32",
                                "batch_size=4",
                                "gradient_accumulation_steps=2",
                                "max_steps=16",
                                "model.width=32",
                                "model.heads=2",
                                "model.layers=1",
                                "model.dropout=0.1",
                                "memory.head_chunk=48",
                                "precision.mode=fp32",
                                "evaluation.items=0",
                                "threads=1" };
    OK(hs_config_load(&fixture->config, NULL, sizeof overrides / sizeof *overrides, overrides));
    OK(hs_training_create(&fixture->config, &fixture->training, NULL));
    HsModel *model = &fixture->training.model;
    model->nodes[model->loss_node].attributes.leaves_out = leaves_out;
    OK(hs_training_begin_task(&fixture->training));
}

/* sizes: how many steps each number of rows has */
static void run(const char *recorded, const char *more, bool leaves_out, double losses[STEPS],
                int sizes[HS_TARGET_ROWS_SIZES + 1])
{
    static Fixture fixture;
    make(&fixture, recorded, more, leaves_out);
    HsTraining *training = &fixture.training;
    memset(sizes, 0, (HS_TARGET_ROWS_SIZES + 1) * sizeof *sizes);
    for (int i = 0; i < STEPS; i++) {
        HsStepReport report;
        OK(hs_training_step(training, &losses[i], &report));
        sizes[training->queue.target_size]++;
    }
    for (int size = 0; size <= HS_TARGET_ROWS_SIZES; size++)
        cr_expect_eq(training->graphs[size].graph != NULL, training->engine.cuda_graph && sizes[size] > 1,
                     "%d steps of size %d", sizes[size], size);
    hs_training_destroy(training);
    hs_config_deinit(&fixture.config);
    scratch_remove(&fixture.scratch);
}

static void compare(const char *more)
{
    static double recorded[STEPS], eager[STEPS];
    int sizes[HS_TARGET_ROWS_SIZES + 1], same[HS_TARGET_ROWS_SIZES + 1], several = 0;
    run("kernels.cuda_graph=true", more, true, recorded, sizes);
    run("kernels.cuda_graph=false", more, true, eager, same);
    cr_expect_eq(memcmp(recorded, eager, sizeof eager), 0, "%s: recorded steps have other losses", more);
    cr_expect_eq(memcmp(sizes, same, sizeof same), 0);
    for (int size = 0; size < HS_TARGET_ROWS_SIZES; size++)
        several += sizes[size] > 2;
    cr_expect_geq(several, 2, "too few sizes are replayed for a test");
}

Test(recorded_targets, change_no_bit)
{
    compare("memory.recompute=block");
}

/* The first step's weights are the same.  A loss comes of a sum over the width for each logit, none larger than the
 * loss's own size at the beginning, and one over the vocabulary. */
Test(recorded_targets, leave_the_loss_of_all_rows)
{
    enum { WIDTH = 32, VOCABULARY = 257 };
    double left[STEPS], whole[STEPS];
    int sizes[HS_TARGET_ROWS_SIZES + 1];
    run("kernels.cuda_graph=true", "model.bias=true", true, left, sizes);
    run("kernels.cuda_graph=true", "model.bias=true", false, whole, sizes);
    cr_expect_leq(fabs(left[0] - whole[0]),
                  2 * hs_tolerance(WIDTH + VOCABULARY, 2, HS_F32, HS_F32, 2 * whole[0], whole[0]),
                  "%.9g, with all rows %.9g", left[0], whole[0]);
}
