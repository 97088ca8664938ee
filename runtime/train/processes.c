/* SPDX-License-Identifier: MIT
 *
 * What the processes of a run did, side by side: who waited for whom, what each sent and took.
 */
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/train/reduce.h"
#include "runtime/train/trainer.h"

/* Of one process; as many numbers as a row has. */
typedef struct Row {
    double trained_s, exchange_s, sent_bytes, peak_bytes;
} Row;
enum { NUMBERS = sizeof(Row) / sizeof(double), ROWS_TOLD = 16 };

static void tell(const HsTrainer *trainer, const Row *rows)
{
    const HsComm *comm = trainer->engine.comm;
    const double steps = (double)(trainer->trained_tokens > 0 ? trainer->trained_tokens : 1) /
                         (double)(trainer->rows_per_step * trainer->config->training.max_length);
    int slowest = 0; /* whoever waits least is waited for */
    for (int r = 1; r < comm->size; r++)
        slowest = rows[r].exchange_s < rows[slowest].exchange_s ? r : slowest;
    hs_info(
        "processes: %d over %s; in exchange (waiting for the slowest, moving, adding) %.0f%% of the time of rank %d, "
        "which the others waited for",
        comm->size, hs_comm_name(comm), 100 * rows[slowest].exchange_s / rows[slowest].trained_s, slowest);
    for (int r = 0; r < comm->size && r < ROWS_TOLD; r++)
        hs_info("  rank %d: %.1f s of training, %.1f%% in exchange, %.3f MiB sent a step, %.1f MiB at most", r,
                rows[r].trained_s, 100 * rows[r].exchange_s / rows[r].trained_s,
                hs_mebibytes(rows[r].sent_bytes / steps), hs_mebibytes(rows[r].peak_bytes));
}

HsStatus hs_trainer_report_processes(HsTrainer *trainer)
{
    HsComm *comm = trainer->engine.comm;
    if (comm->size == 1 || trainer->trained_s <= 0)
        return HS_OK;
    Row *rows = calloc((size_t)comm->size, sizeof *rows);
    if (!rows)
        return hs_fail(HS_ENOMEM, "no memory for the figures of %d processes", comm->size);
    rows[comm->rank] = (Row){ trainer->trained_s, trainer->exchanged_s, trainer->sent_bytes,
                              (double)trainer->engine.device.peak_bytes };
    HsStatus status =
        hs_share_entries(comm, trainer->engine.context.stream, &rows->trained_s, (size_t)comm->size * NUMBERS);
    if (status == HS_OK && hs_trainer_records(trainer))
        tell(trainer, rows);
    free(rows);
    return status;
}
