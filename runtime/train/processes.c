/* SPDX-License-Identifier: MIT
 *
 * What the processes of a run did, side by side: their waits for each other, what each sent and took.
 */
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/exchange/reduce.h"
#include "runtime/train/run.h"

/* Of one process; as many numbers as a row has. */
typedef struct Row {
    double trained_s, exchange_s, sent_bytes, peak_bytes;
} Row;
enum { NUMBERS = sizeof(Row) / sizeof(double), ROWS_TOLD = 16 };

static HsStatus tell(const HsRun *run, const Row *rows)
{
    const HsTraining *training = &run->training;
    const HsComm *comm = training->engine.comm;
    const double steps = (double)(run->trained_tokens > 0 ? run->trained_tokens : 1) /
                         (double)(training->rows_per_step * training->config->training.max_length);
    char page[160 + 24 * ROWS_TOLD];
    int slowest = 0; /* the rank with the least waiting time is the slowest */
    for (int r = 1; r < comm->size; r++)
        slowest =
            rows[r].exchange_s / rows[r].trained_s < rows[slowest].exchange_s / rows[slowest].trained_s ? r : slowest;
    size_t used = (size_t)snprintf(
        page, sizeof page, "%d over %s; %.2f MiB sent a step; share of the time in exchange, by rank:", comm->size,
        hs_comm_name(comm), hs_mebibytes(rows[0].sent_bytes / steps));
    hs_info("processes: %d over %s; the others waited for rank %d", comm->size, hs_comm_name(comm), slowest);
    for (int r = 0; r < comm->size && r < ROWS_TOLD; r++) {
        const double share = 100 * rows[r].exchange_s / rows[r].trained_s;
        used += (size_t)snprintf(page + used, sizeof page - used, " %.1f%%", share);
        hs_info("  rank %d: %.1f s of training, %.1f%% of them waiting for others, moving and adding; %.3f MiB sent a "
                "step, "
                "%.1f MiB of memory at most",
                r, rows[r].trained_s, share, hs_mebibytes(rows[r].sent_bytes / steps),
                hs_mebibytes(rows[r].peak_bytes));
    }
    return hs_training_write_run_info(training, page);
}

HsStatus hs_run_report_processes(HsRun *run)
{
    HsTraining *training = &run->training;
    HsComm *comm = training->engine.comm;
    if (comm->size == 1 || run->trained_s <= 0)
        return HS_OK;
    Row *rows = calloc((size_t)comm->size, sizeof *rows);
    if (!rows)
        return hs_fail(HS_ENOMEM, "no memory for the figures of %d processes", comm->size);
    rows[comm->rank] =
        (Row){ run->trained_s, run->exchanged_s, run->sent_bytes, (double)training->engine.device.peak_bytes };
    HsStatus status =
        hs_share_entries(comm, training->engine.context.stream, &rows->trained_s, (size_t)comm->size * NUMBERS);
    if (status == HS_OK && hs_training_records(training))
        status = tell(run, rows);
    free(rows);
    return status;
}
