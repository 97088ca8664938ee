/* SPDX-License-Identifier: MIT
 *
 * The coordinate check (Yang et al. 2022, "Tensor Programs V"): under train.size's rates a step moves a feature by as much
 * in a wide model as in a narrow one.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/train/training.h"
#include "tests/support/scratch.h"

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s: %s", #expression, hs_error_message())

enum { LENGTH = 64 };

static void encode(HsTraining *training, const int32_t *tokens, float *features)
{
    const HsProgram *const program = &training->evaluation_program;
    const int64_t rows = program->batch * program->sequence_length;
    OK(hs_program_encode(program, &training->engine.context, tokens,
                         hs_tensor_2d(features, HS_F32, rows, training->model.width)));
}

/* How far the mean feature behind the last norm, which has a mean square of one, is from where it was drawn, after a step
 * of a run of 60.  rate, group: NULL: the rule's. */
static double measure(int width, const char *rate, const char *group)
{
    char out_dir[300], wide[32];
    HsConfig config;
    static HsTraining training;
    const Scratch scratch = scratch_make();
    snprintf(out_dir, sizeof out_dir, "out_dir=%s", scratch.folder);
    snprintf(wide, sizeof wide, "model.width=%d", width);
    const char *overrides[] = { out_dir,
                                wide,
                                "train.size=800k",
                                "model.layers=2",
                                "device=cpu",
                                "precision.mode=fp32",
                                "threads=1",
                                "batch_size=4",
                                "max_length=64",
                                "max_steps=60",
                                "schedule.warmup_steps=0",
                                "tasks.0.synthetic_tokens=20000",
                                rate,
                                group };
    OK(hs_config_load(&config, NULL, rate ? 14 : 12, overrides));
    OK(hs_training_create(&config, &training, NULL));
    OK(hs_training_begin_task(&training));
    const int64_t count = training.evaluation_program.batch * LENGTH;
    int32_t *const tokens = calloc((size_t)count, sizeof *tokens);
    float *const before = calloc((size_t)(count * width), sizeof *before);
    float *const after = calloc((size_t)(count * width), sizeof *after);
    cr_assert(tokens && before && after);
    for (int64_t i = 0; i < count; i++)
        tokens[i] = (int32_t)(97 + i * i % 23);
    encode(&training, tokens, before);
    double loss, sum = 0;
    HsStepReport report;
    OK(hs_training_step(&training, &loss, &report));
    encode(&training, tokens, after);
    for (int64_t i = 0; i < count * width; i++)
        sum += fabs((double)after[i] - (double)before[i]);
    free(tokens);
    free(before);
    free(after);
    hs_training_destroy(&training);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
    return sum / (double)(count * width);
}

/* Muon's step of a matrix is 0.2 rate sqrt(width) times an orthogonal one, so that features behind it move as
 * width^(0.5 - 0.64) under the rule, 0.82 times as far at four times the width; AdamW's of an embedding moves it by the
 * rate, a quarter there.  Together between the two: half at least.  Rates that are held move features further, as
 * sqrt(width) through the matrices, twice at most. */
Test(coordinates, a_step_moves_features_alike_at_every_width)
{
    hs_log_set_level(HS_LOG_ERROR);
    const double narrow = measure(64, NULL, NULL), wide = measure(256, NULL, NULL);
    cr_expect(wide > narrow / 2 && wide < narrow, "%g at width 64, %g at 256", narrow, wide);
    const char *const rate = "learning_rate=2e-2",
                      *const group = "optimizer.groups=[{match: [embedding, head, norm], learning_rate: 2e-2}]";
    const double held = measure(256, rate, group) / measure(64, rate, group);
    cr_expect(held > 1 && held < 2, "held rates: %g times as far at width 256", held);
}
