/* SPDX-License-Identifier: MIT
 *
 * The logits kept with the reservoir's sequences are the model's own of that text.  With a learning rate of 0 the model
 * stays as it is, so whenever a sequence was trained on, decoding it token by token must give the logits that were kept;
 * and what a replayed sequence is matched to is no further away than f16's roundings.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"
#include "tests/support/scratch.h"

enum { STEPS = 7, KEPT = 5, LENGTH = 16 };

static void load(HsConfig *config, const Scratch *scratch, const char *own)
{
    char out_dir[512];
    snprintf(out_dir, sizeof out_dir, "out_dir=\"%s/run\"", scratch->folder);
    const char *const overrides[] = { out_dir,
                                      own,
                                      "continual.strategy=der++",
                                      "der.top_k=5",
                                      "replay.buffer_size=6",
                                      "replay.draw=any",
                                      "learning_rate=0",
                                      "schedule.min_learning_rate=0",
                                      "batch_size=4",
                                      "max_length=16",
                                      "max_steps=20",
                                      "model.layers=1",
                                      "model.heads=2",
                                      "model.width=16",
                                      "model.init_std=0.3",
                                      "memory.head_chunk=7",
                                      "tasks.0.synthetic_tokens=4000",
                                      "use_amp=false",
                                      "threads=1" };
    cr_assert_eq(hs_config_load(config, NULL, sizeof overrides / sizeof *overrides, overrides), HS_OK, "%s",
                 hs_error_message());
}

/* The logits of a slot against those of the model, decoded. */
static void check_slot(HsTraining *training, HsDecoder *decoder, int64_t slot)
{
    int32_t tokens[LENGTH], targets[LENGTH], index[LENGTH * KEPT];
    float value[LENGTH * KEPT];
    hs_reservoir_read(&training->reservoir, slot, tokens, targets);
    hs_reservoir_read_logits(&training->reservoir, slot, value, index);
    hs_decoder_reset(decoder);
    for (int t = 0; t < LENGTH; t++) {
        const float *logits;
        cr_assert_eq(hs_decoder_feed(decoder, &training->engine.context, &tokens[t], 1, &logits), HS_OK);
        double last = INFINITY;
        for (int k = t * KEPT; k < (t + 1) * KEPT; k++) {
            cr_assert(index[k] >= 0 && index[k] < training->model.vocabulary, "slot %lld has no logits",
                      (long long)slot);
            const double exact = (double)logits[index[k]];
            /* f16's half unit, and f32's roundings in another order */
            cr_assert(fabs((double)value[k] - exact) <= 0x1p-11 * fabs(exact) + 1e-5, "slot %lld: %g, decoded %g",
                      (long long)slot, (double)value[k], exact);
            cr_assert((double)value[k] <= last);
            last = (double)value[k];
        }
        int larger = 0;
        for (int64_t v = 0; v < training->model.vocabulary; v++)
            larger += (double)logits[v] > last * (1 + (last > 0 ? 0x1p-10 : -0x1p-10)) + 1e-5;
        cr_assert(larger < KEPT, "%d logits are larger than the last one kept", larger);
    }
}

static void run(const char *own)
{
    Scratch scratch = scratch_make();
    HsConfig config;
    HsRun run;
    HsDecoder *decoder;
    hs_log_set_level(HS_LOG_WARNING);
    load(&config, &scratch, own);
    cr_assert_eq(hs_run_create(&config, &run, NULL), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_training_begin_task(&run.training), HS_OK);
    cr_assert_eq(hs_decoder_create(&run.training.model, &run.training.engine.context, 1, LENGTH, &decoder), HS_OK);
    for (int step = 0; step < STEPS; step++) {
        double loss;
        HsStepReport report;
        cr_assert_eq(hs_training_step(&run.training, &loss, &report), HS_OK, "%s", hs_error_message());
        hs_stream_settle(run.training.stream);
        cr_assert_eq(run.training.reservoir.count, fmin(6, (double)run.training.reservoir.seen));
        for (int64_t slot = 0; slot < run.training.reservoir.count; slot++)
            check_slot(&run.training, decoder, slot);
    }
    /* A mean over tokens of 0.2 times a mean of squares, each at most (2^-11 |logit|)^2. */
    cr_assert(run.training.state.window_distillation_steps > 3);
    cr_expect(run.training.state.window_distillation > 0 &&
                  run.training.state.window_distillation < STEPS * 0.2 * 0x1p-22 * 400,
              "%g", run.training.state.window_distillation);
    hs_decoder_destroy(decoder);
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

Test(kept_logits, are_those_of_the_step)
{
    run("memory.recompute=block");
}

Test(kept_logits, in_micro_batches)
{
    run("memory.micro_batch=1");
}

Test(kept_logits, of_an_accumulated_step)
{
    run("gradient_accumulation_steps=2");
}
