/* SPDX-License-Identifier: MIT
 *
 * Gradients that are not finite at the smallest loss scale: where the first such value is, and what to do.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/files.h"
#include "runtime/train/run.h"

/* Says what happened, and a command that continues: from the last checkpoint, with a lower learning rate. */
static HsStatus explain(const HsTraining *training, const HsStepReport *report, const char *where, const char *kept)
{
    const HsConfig *config = training->config;
    const char *const out_dir = config->training.out_dir;
    const char *const wider = strcmp(training->precision.name, "fp16") == 0   ? " precision.mode=bf16, or"
                              : hs_precision_codes(&training->precision)      ? " precision.mode=bf16, or"
                              : strcmp(training->precision.name, "bf16") == 0 ? " precision.mode=fp32, or"
                                                                              : "";
    bool saved;
    char path[4096], *word;
    snprintf(path, sizeof path, "%s/config.yaml", out_dir);
    HS_TRY(hs_shell_word(path, &word));
    const HsStatus status = hs_fail(
        HS_ENUMERIC,
        "gradients are not finite at step %lld with loss scale %g, the smallest allowed; first non-finite value: "
        "%s. The state is kept for inspection in %s; the last checkpoint is unchanged. To continue %s with%s "
        "a lower learning rate: trainer --config %s resume=changed learning_rate=%.2g",
        (long long)training->state.counters.applied_steps, (double)report->loss_scale, where, kept,
        hs_checkpoint_exists(out_dir, &saved) == HS_OK && saved ? "from it" : "from the start", wider, word,
        config->training.learning_rate / 3);
    free(word);
    return status;
}

/* Gradients that are not finite at the smallest loss scale: find the first bad tensor, keep the state, and stop.  Steps
 * that were started after it have changed nothing and count as skipped. */
HsStatus hs_run_diagnose(HsRun *run, const HsStepReport *report)
{
    HsTraining *training = &run->training;
    const HsConfig *config = training->config;
    const HsStepSlot *const slot = hs_step_queue_latest(&training->queue);
    const int64_t counted = slot->counted > 0 ? slot->counted : 1;
    char where[192] = "", kept[4096];
    HS_TRY(hs_training_drop_steps(training));
    /* A step's worth of work, and the reason why the run ends: a signal waits for it. */
    HsContext undisturbed = training->engine.context;
    undisturbed.stop_asked = NULL;
    HS_TRY(hs_training_lend_gradients(training));
    HS_TRY(hs_training_lend_weights(training));
    for (int64_t row = 0; row < training->queue.shape.rows && where[0] == '\0'; row += training->train_program.batch) {
        const int64_t offset = row * config->training.max_length;
        HS_TRY(hs_program_find_nonfinite(&training->train_program, &undisturbed, slot->batch.tokens + offset,
                                         slot->batch.targets + offset, (uint64_t)config->training.seed, slot->attempt,
                                         offset, report->loss_scale / (float)counted, where, sizeof where));
    }
    if (where[0] == '\0')
        snprintf(where, sizeof where, "the gradient of %s, in its accumulation",
                 report->first_nonfinite >= 0 ? training->exchange.share.all[report->first_nonfinite].name
                                              : "a parameter");
    snprintf(kept, sizeof kept, "%s/diverged", config->training.out_dir);
    HS_TRY(hs_run_save_aside(run, kept));
    return explain(training, report, where, kept);
}
