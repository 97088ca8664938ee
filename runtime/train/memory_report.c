/* SPDX-License-Identifier: MIT
 *
 * What the end of a run says of memory: a line, or a table by use (logging.memory).
 */
#include <stdio.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/record/process_memory.h"
#include "runtime/train/training.h"

HsProcessPlan hs_training_plan_process(const HsTraining *training, size_t device_bytes)
{
    const size_t program = (size_t)64 << 20;
    /* Tokens and targets of the loader's batches, one of which is in use, of the mixed ones, and of a window. */
    const int64_t made = training->config->data.prefetch + 1 + 2 + 1;
    const size_t row = (size_t)training->config->training.max_length * 2 * sizeof(int32_t);
    HsProcessPlan plan = { .data = hs_task_data_memory(&training->data),
                           .batches = (size_t)made * (size_t)training->rows_per_step * row,
                           .program = program };
    plan.bytes = device_bytes + plan.data + plan.batches + plan.program;
    return plan;
}

static void print_row(const char *name, const size_t row[3])
{
    hs_info("  %-20s %9.1f  %9.1f  %9.1f", name, hs_mebibytes((double)row[0]), hs_mebibytes((double)row[1]),
            hs_mebibytes((double)row[2]));
}

static void print_memory_table(const HsTraining *training)
{
    const HsDevice *device = &training->engine.device;
    const HsProcessMemory process = hs_process_memory();
    size_t total[3] = { 0 }, free_now;
    hs_info("memory (MiB)            planned    current       peak");
    for (int i = 0; i < HS_MEMORY_COUNT; i++) {
        const size_t row[] = { training->planned.bytes[i], device->account.current[i], device->account.peak[i] };
        if (row[0] + row[1] + row[2] == 0)
            continue;
        for (int column = 0; column < 3; column++)
            total[column] += row[column];
        print_row(hs_memory_row((HsMemoryCategory)i)->name, row);
    }
    print_row("total", total);
    if (training->free_before > 0 && device->free_memory(device, &free_now) == HS_OK)
        hs_info("  %-20s %9.1f  %9.1f  %9s  (taken since the start, by all processes)", "the device",
                hs_mebibytes((double)training->planned.device_bytes),
                hs_mebibytes((double)training->free_before) - hs_mebibytes((double)free_now), "");
    char planned[16] = "";
    if (device->host_accessible)
        snprintf(planned, sizeof planned, "%.1f",
                 hs_mebibytes((double)hs_training_plan_process(training, total[0]).bytes));
    if (process.peak_bytes > 0)
        hs_info("  %-20s %9s  %9.1f  %9.1f  (resident%s)", "the process", planned,
                hs_mebibytes((double)process.current_bytes), hs_mebibytes((double)process.peak_bytes),
                device->host_accessible ? "; planned: at most" : ", host");
}

void hs_training_report_memory(const HsTraining *training)
{
    if (strcmp(training->config->logging.memory, "table") == 0) {
        print_memory_table(training);
        return;
    }
    char resident[64] = "", most[48] = "";
    const HsProcessMemory process = hs_process_memory();
    const size_t device_bytes = hs_memory_sum(training->planned.bytes);
    if (training->engine.device.host_accessible)
        snprintf(most, sizeof most, ", at most %.1f planned",
                 hs_mebibytes((double)hs_training_plan_process(training, device_bytes).bytes));
    if (process.peak_bytes > 0)
        snprintf(resident, sizeof resident, "; the process %.1f MiB%.40s", hs_mebibytes((double)process.peak_bytes),
                 most);
    hs_info("memory: %.1f MiB planned, %.1f taken%s; by use: logging.memory=table", hs_mebibytes((double)device_bytes),
            hs_mebibytes((double)hs_memory_sum(training->engine.device.account.peak)), resident);
}
