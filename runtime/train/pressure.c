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
 * What the samples say is of the machine, not of the run: a resumed run continues with the micro-batch of its
 * checkpoint and halves again only when it is pressed itself.
 */
#include "kernels/base/log.h"
#include "runtime/train/run.h"

static bool is_pressed(const HsTraining *training, const HsDeviceSample *sample)
{
    const double share = training->config->memory.pressure;
    return share > 0 && sample->total_bytes > 0 && (double)sample->used_bytes >= share * (double)sample->total_bytes;
}

/* "13901 of emu:0's 14000 MiB are in use, memory.pressure is 0.97" */
static const char *describe(const HsTraining *training, const HsDeviceSample *sample, char text[160])
{
    if (sample->total_bytes == 0)
        return "another process of the run asks for it";
    snprintf(text, 160, "%.0f of %.40s's %.0f MiB are in use, memory.pressure is %g",
             hs_mebibytes((double)sample->used_bytes), training->engine.device.name,
             hs_mebibytes((double)sample->total_bytes), training->config->memory.pressure);
    return text;
}

/* Takes a sample when one is due; marks the run when that asks for less. */
static HsStatus look(HsRun *run)
{
    HsTraining *training = &run->training;
    HsRunPressure *pressure = &run->pressure;
    const int64_t micro_batch = hs_training_micro_batch(training);
    HsDeviceSample sample;
    bool taken;
    char text[160];
    HS_TRY(hs_monitor_poll(run->monitor, training->state.counters.applied_steps, &sample, &taken));
    if (!taken || !is_pressed(training, &sample))
        return HS_OK;
    if (micro_batch % 2 == 0) {
        pressure->halving = true;
        pressure->sample = sample;
    } else if (!pressure->warned) {
        hs_warn("memory pressure: %s, and a micro-batch of %lld cannot be halved: continuing as it is. Other processes "
                "may hold the memory; memory.recompute: block needs less of it",
                describe(training, &sample, text), (long long)micro_batch);
        pressure->warned = true;
    }
    return HS_OK;
}

/* Half the micro-batch may still be more than others have left: then the state is saved, smaller micro-batch included,
 * and the same command continues from it. */
static HsStatus save_and_stop(HsRun *run, HsStatus reason)
{
    char message[512];
    snprintf(message, sizeof message, "%.511s", hs_error_message());
    HS_TRY(hs_run_save(run));
    return hs_fail(reason, "under memory pressure, after step %lld was saved: %s",
                   (long long)run->training.state.counters.applied_steps, message);
}

static HsStatus halve(HsRun *run)
{
    HsTraining *training = &run->training;
    const int64_t before = hs_training_micro_batch(training);
    const HsDeviceSample *sample = &run->pressure.sample;
    const HsMetricsPressure event = {
        .step = training->state.counters.applied_steps,
        .before = before,
        .after = before / 2,
        .used_bytes = sample->used_bytes,
        .total_bytes = sample->total_bytes,
    };
    char text[160];
    run->pressure.halving = false;
    hs_warn("memory pressure: %s: after step %lld the micro-batch is %lld instead of %lld; the effective batch and the "
            "order of the data stay",
            describe(training, sample, text), (long long)event.step, (long long)event.after, (long long)event.before);
    run->pressure.sample = (HsDeviceSample){ 0 };
    HS_TRY(hs_metrics_pressure(run->metrics, &event));
    HsStatus status = hs_training_set_micro_batch(training, event.after);
    return status == HS_ENOMEM ? save_and_stop(run, status) : status;
}

HsStatus hs_run_watch_pressure(HsRun *run)
{
    if (!run->pressure.halving)
        HS_TRY(look(run));
    return run->pressure.halving && run->training.queue.count == 0 ? halve(run) : HS_OK;
}
