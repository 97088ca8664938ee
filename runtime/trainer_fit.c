/* SPDX-License-Identifier: MIT
 *
 * The plan against the device: refused before anything is allocated, or changed to what fits; and what is said about
 * memory when a run ends, or dies of it.
 */
#include <inttypes.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/process_memory.h"
#include "runtime/trainer.h"

enum { LARGEST_SHOWN = 5, LINE = 512 };

/* "weights 1.5, master weights 3.1": what is there. */
static const char *list_categories(const size_t bytes[HS_MEMORY_COUNT], char text[LINE])
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < HS_MEMORY_COUNT && used < LINE; i++)
        if (bytes[i] > 0)
            used += (size_t)snprintf(text + used, LINE - used, "%s%s %.1f", used > 0 ? ", " : "",
                                     hs_memory_row((HsMemoryCategory)i)->name, hs_mebibytes((double)bytes[i]));
    return text;
}

/* Where the memory goes, in lines of the log: totals, then the largest tensors of `owner`. */
static void show_use(const HsTrainer *owner, const char *what, const size_t bytes[HS_MEMORY_COUNT])
{
    char text[LINE];
    HsTensorUse uses[LARGEST_SHOWN];
    hs_warn("%s, by use (MiB): %s", what, list_categories(bytes, text));
    int count = hs_trainer_list_largest(owner, uses, LARGEST_SHOWN);
    for (int i = 0; i < count; i++)
        hs_warn("  %8.1f MiB  %s: %s, %s [%" PRId64 "%s%.0" PRId64 "]", hs_mebibytes((double)uses[i].bytes),
                hs_memory_row(uses[i].category)->name, uses[i].name, hs_dtype_name(uses[i].tensor.dtype),
                uses[i].tensor.shape[0], uses[i].tensor.rank > 1 ? ", " : "",
                uses[i].tensor.rank > 1 ? uses[i].tensor.shape[1] : 0);
}

/* "needs 12 MiB and costs 1.33 times the time a step:" and the lines; says so where nothing fits. */
static void show_alternative(const HsTrainer *trainer, size_t limit)
{
    HsFit fit;
    HsMemoryPlan plan;
    bool found;
    char lines[HS_FIT_TEXT];
    if (hs_trainer_search(trainer, limit, &fit, &plan, &found) != HS_OK)
        return;
    if (!found) {
        hs_warn("no micro-batch, recomputation or gradient format makes it fit: lower max_length, model.layers or "
                "model.width, or train on a larger device");
        return;
    }
    const HsDeviceRates rates = hs_nominal_rates(&trainer->engine.device);
    hs_fit_lines(trainer->config, &fit, lines);
    if (lines[0] == '\0') {
        hs_warn("the configuration fits as it is (%.0f MiB): something else holds the device's memory",
                hs_mebibytes((double)plan.device_bytes));
        return;
    }
    hs_warn("this would fit: %.0f MiB, a step about %.2f times as long. Write\n%sor set memory.auto_fit: true",
            hs_mebibytes((double)plan.device_bytes),
            hs_memory_plan_seconds(&plan, &rates) / hs_memory_plan_seconds(&trainer->planned, &rates), lines);
}

static HsStatus refuse(const HsTrainer *trainer, size_t limit, const char *limit_text)
{
    HsTrainer draft;
    HS_TRY(hs_trainer_draft(trainer, trainer->config, &draft));
    show_use(&draft, "the plan", trainer->planned.bytes);
    hs_trainer_release(&draft);
    show_alternative(trainer, limit);
    return hs_fail(HS_ENOMEM,
                   "the plan needs %.0f MiB, but %s: nothing was allocated; the lines above say what would fit",
                   hs_mebibytes((double)trainer->planned.device_bytes), limit_text);
}

/* The limit, and in words where it comes from.  A device of its own may be held by other processes: what they hold is
 * not there.  The host's memory is the operating system's to give; what is in use there may be given back. */
static HsStatus find_limit(const HsTrainer *trainer, size_t *limit, char text[LINE])
{
    const HsDevice *device = &trainer->engine.device;
    size_t free_bytes = device->memory_bytes;
    *limit = hs_trainer_memory_limit(trainer);
    snprintf(text, LINE, "target_gpu_util %g of %s's %.0f MiB allows %.0f", trainer->config->training.target_gpu_util,
             trainer->config->memory.limit > 0 ? "memory.limit" : device->name,
             hs_mebibytes((double)hs_trainer_device_memory(trainer)), hs_mebibytes((double)*limit));
    if (device->host_accessible || !device->free_memory || trainer->engine.emulated)
        return HS_OK;
    HS_TRY(device->free_memory(device, &free_bytes));
    if (free_bytes >= *limit)
        return HS_OK;
    *limit = free_bytes;
    snprintf(text, LINE, "only %.0f of %s's %.0f MiB are free: other processes hold the rest",
             hs_mebibytes((double)free_bytes), device->name, hs_mebibytes((double)device->memory_bytes));
    return HS_OK;
}

static HsStatus fit(HsTrainer *trainer, size_t limit, const char *limit_text)
{
    HsFit chosen;
    HsMemoryPlan plan;
    bool found;
    char lines[HS_FIT_TEXT];
    HS_TRY(hs_trainer_search(trainer, limit, &chosen, &plan, &found));
    if (!found)
        return refuse(trainer, limit, limit_text);
    hs_info("memory.auto_fit: the plan needs %.0f MiB, but %s; trained with %.0f MiB as if the configuration said\n%s",
            hs_mebibytes((double)trainer->planned.device_bytes), limit_text, hs_mebibytes((double)plan.device_bytes),
            hs_fit_lines(trainer->config, &chosen, lines));
    HS_TRY(hs_fit_write(trainer->config, &chosen));
    trainer->planned = plan;
    return HS_OK;
}

HsStatus hs_trainer_fit(HsTrainer *trainer)
{
    size_t limit;
    char limit_text[LINE];
    HS_TRY(find_limit(trainer, &limit, limit_text));
    HS_TRY(hs_trainer_plan(trainer, trainer->config, &trainer->planned));
    if (trainer->planned.device_bytes > limit && trainer->state.micro_batch > 0) {
        hs_warn("the micro-batch of %lld that this run had does not fit any more: as configured, sums will be rounded "
                "in other places",
                (long long)trainer->state.micro_batch);
        trainer->state.micro_batch = 0;
        HS_TRY(hs_trainer_plan(trainer, trainer->config, &trainer->planned));
    }
    if (trainer->planned.device_bytes <= limit)
        return HS_OK;
    return trainer->config->memory.auto_fit ? fit(trainer, limit, limit_text) : refuse(trainer, limit, limit_text);
}

/* --- said at the end --- */

void hs_trainer_report_memory(const HsTrainer *trainer)
{
    const HsDevice *device = &trainer->engine.device;
    const HsProcessMemory process = hs_process_memory();
    size_t planned = 0, current = 0, peak = 0;
    hs_info("memory (MiB)            planned    current       peak");
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        const size_t row[] = { trainer->planned.bytes[i], device->account.current[i], device->account.peak[i] };
        if (row[0] + row[1] + row[2] == 0)
            continue;
        planned += row[0];
        current += row[1];
        peak += row[2];
        hs_info("  %-20s %9.1f  %9.1f  %9.1f", hs_memory_row((HsMemoryCategory)i)->name, hs_mebibytes((double)row[0]),
                hs_mebibytes((double)row[1]), hs_mebibytes((double)row[2]));
    }
    hs_info("  %-20s %9.1f  %9.1f  %9.1f", "total", hs_mebibytes((double)planned), hs_mebibytes((double)current),
            hs_mebibytes((double)peak));
    size_t free_now;
    if (trainer->free_before > 0 && device->free_memory(device, &free_now) == HS_OK)
        hs_info("  %-20s %9.1f  %9.1f  %9s  (less is free than before, by whomever)", "the device",
                hs_mebibytes((double)trainer->planned.device_bytes),
                hs_mebibytes((double)trainer->free_before) - hs_mebibytes((double)free_now), "");
    if (process.peak_bytes > 0)
        hs_info("  %-20s %9s  %9.1f  %9.1f  (resident%s)", "the process", "",
                hs_mebibytes((double)process.current_bytes), hs_mebibytes((double)process.peak_bytes),
                device->host_accessible ? "" : ", host");
}

void hs_trainer_explain_memory(const HsTrainer *trainer)
{
    const HsDevice *device = &trainer->engine.device;
    size_t free_bytes = 0;
    char message[1024];                           /* looking around must not replace what went wrong */
    if (hs_memory_sum(device->account.peak) == 0) /* refused, and explained, before anything was allocated */
        return;
    snprintf(message, sizeof message, "%s", hs_error_message());
    show_use(trainer, "allocated", device->account.current);
    if (device->free_memory && device->free_memory(device, &free_bytes) == HS_OK) {
        /* What was asked for could not be had, whatever is said to be free: limits of the process, fragments. */
        const size_t less = trainer->planned.device_bytes / 10 * 9, free_in_all = free_bytes + device->current_bytes;
        show_alternative(trainer, free_in_all < less ? free_in_all : less);
    }
    (void)hs_fail(HS_ENOMEM, "%s", message);
}
