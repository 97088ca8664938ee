/* SPDX-License-Identifier: MIT
 *
 * Gradients that are not finite at the smallest loss scale: where the first such value is, and what to do.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/train/trainer.h"

/* Says what happened, and a command that continues: from the last checkpoint, with a lower learning rate. */
static HsStatus explain(const HsTrainer *trainer, const HsStepReport *report, const char *where, const char *kept)
{
    const HsConfig *config = trainer->config;
    const char *const out_dir = config->training.out_dir;
    const char *const wider = strcmp(trainer->precision.name, "fp16") == 0   ? " precision.mode=bf16, or"
                              : hs_precision_codes(&trainer->precision)      ? " precision.mode=bf16, or"
                              : strcmp(trainer->precision.name, "bf16") == 0 ? " precision.mode=fp32, or"
                                                                             : "";
    bool saved;
    return hs_fail(
        HS_ENUMERIC,
        "gradients are not finite at step %lld with loss scale %g, the smallest allowed; first non-finite value: "
        "%s. The state is kept for inspection in %s; the last checkpoint is unchanged. To go on %s with%s "
        "a lower learning rate: trainer --config %s/config.yaml resume=changed learning_rate=%.2g",
        (long long)trainer->state.counters.applied_steps, (double)report->loss_scale, where, kept,
        hs_checkpoint_exists(out_dir, &saved) == HS_OK && saved ? "from it" : "from the start", wider, out_dir,
        config->training.learning_rate / 3);
}

/* Gradients that are not finite at the smallest loss scale: find the first bad tensor, keep the state, and stop.  Steps
 * that were started after it have changed nothing and count as skipped. */
HsStatus hs_trainer_diagnose(HsTrainer *trainer, const HsStepReport *report)
{
    const HsConfig *config = trainer->config;
    const HsStepSlot *const slot = hs_step_queue_latest(&trainer->queue);
    const int64_t counted = slot->counted > 0 ? slot->counted : 1;
    char where[192] = "", kept[4096];
    HS_TRY(hs_trainer_drop_steps(trainer));
    /* A step's worth of work, and the reason why the run ends: a signal waits for it. */
    HsContext undisturbed = trainer->engine.context;
    undisturbed.stop_asked = NULL;
    HS_TRY(hs_trainer_lend_gradients(trainer));
    HS_TRY(hs_trainer_lend_weights(trainer));
    for (int64_t row = 0; row < trainer->queue.shape.rows && where[0] == '\0'; row += trainer->train_program.batch) {
        const int64_t offset = row * config->training.max_length;
        HS_TRY(hs_program_find_nonfinite(&trainer->train_program, &undisturbed, slot->batch.tokens + offset,
                                         slot->batch.targets + offset, (uint64_t)config->training.seed, slot->attempt,
                                         offset, report->loss_scale / (float)counted, where, sizeof where));
    }
    if (where[0] == '\0')
        snprintf(where, sizeof where, "the gradient of %s, in its accumulation",
                 report->first_nonfinite >= 0 ? trainer->share.all[report->first_nonfinite].name : "a parameter");
    snprintf(kept, sizeof kept, "%s/diverged", config->training.out_dir);
    HS_TRY(hs_trainer_save_aside(trainer, kept));
    return explain(trainer, report, where, kept);
}
