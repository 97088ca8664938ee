/* SPDX-License-Identifier: MIT
 *
 * Memory pressure during a run: when all processes together use nearly all of the device's memory, the micro-batch is
 * halved at a step boundary.  Activations take about half from then on, an optimizer step makes twice as many passes,
 * and its loss stays the mean over the whole effective batch: rows, their order, dropout masks (keyed by row) and
 * counters do not depend on micro-batches, only sums are rounded in other places.
 *
 *     a sample above memory.pressure -> no further step is started -> steps under way are collected
 *     -> event recorded -> programs for half the micro-batch -> the next step
 *
 * What the samples say is of the machine, not of the run: a resumed run goes on with the micro-batch of its checkpoint
 * and halves again only when it is pressed itself.
 */
#include "kernels/base/log.h"
#include "runtime/train/trainer.h"

static bool is_pressed(const HsTrainer *trainer, const HsDeviceSample *sample)
{
    const double share = trainer->config->memory.pressure;
    return share > 0 && sample->total_bytes > 0 && (double)sample->used_bytes >= share * (double)sample->total_bytes;
}

/* "13901 of emu:0's 14000 MiB are in use, memory.pressure is 0.97" */
static const char *describe(const HsTrainer *trainer, const HsDeviceSample *sample, char text[160])
{
    if (sample->total_bytes == 0)
        return "another process of the run asks for it";
    snprintf(text, 160, "%.0f of %.40s's %.0f MiB are in use, memory.pressure is %g",
             hs_mebibytes((double)sample->used_bytes), trainer->engine.device.name,
             hs_mebibytes((double)sample->total_bytes), trainer->config->memory.pressure);
    return text;
}

/* Takes a sample when one is due; marks the trainer when that asks for less. */
static HsStatus look(HsTrainer *trainer)
{
    HsTrainerPressure *pressure = &trainer->pressure;
    const int64_t micro_batch = hs_trainer_micro_batch(trainer);
    HsDeviceSample sample;
    bool taken;
    char text[160];
    HS_TRY(hs_monitor_poll(trainer->monitor, trainer->state.counters.applied_steps, &sample, &taken));
    if (!taken || !is_pressed(trainer, &sample))
        return HS_OK;
    if (micro_batch % 2 == 0) {
        pressure->halving = true;
        pressure->sample = sample;
    } else if (!pressure->said) {
        hs_warn("memory pressure: %s, and a micro-batch of %lld cannot be halved: going on as it is. Other processes "
                "may hold the memory; memory.recompute: block needs less of it",
                describe(trainer, &sample, text), (long long)micro_batch);
        pressure->said = true;
    }
    return HS_OK;
}

/* Half the micro-batch may still be more than others have left: then the state is saved, smaller micro-batch included,
 * and the same command goes on from it. */
static HsStatus save_and_stop(HsTrainer *trainer, HsStatus reason)
{
    char message[512];
    snprintf(message, sizeof message, "%.511s", hs_error_message());
    HS_TRY(hs_trainer_save(trainer));
    return hs_fail(reason, "under memory pressure, after step %lld was saved: %s",
                   (long long)trainer->state.counters.applied_steps, message);
}

static HsStatus halve(HsTrainer *trainer)
{
    const int64_t before = hs_trainer_micro_batch(trainer);
    const HsDeviceSample *sample = &trainer->pressure.sample;
    const HsMetricsPressure event = {
        .step = trainer->state.counters.applied_steps,
        .before = before,
        .after = before / 2,
        .used_bytes = sample->used_bytes,
        .total_bytes = sample->total_bytes,
    };
    char text[160];
    trainer->pressure.halving = false;
    hs_warn("memory pressure: %s: after step %lld the micro-batch is %lld instead of %lld; the effective batch and the "
            "order of the data stay",
            describe(trainer, sample, text), (long long)event.step, (long long)event.after, (long long)event.before);
    trainer->pressure.sample = (HsDeviceSample){ 0 };
    HS_TRY(hs_metrics_pressure(trainer->metrics, &event));
    HsStatus status = hs_trainer_set_micro_batch(trainer, event.after);
    return status == HS_ENOMEM ? save_and_stop(trainer, status) : status;
}

HsStatus hs_trainer_watch_pressure(HsTrainer *trainer)
{
    if (!trainer->pressure.halving)
        HS_TRY(look(trainer));
    return trainer->pressure.halving && trainer->queue.count == 0 ? halve(trainer) : HS_OK;
}
