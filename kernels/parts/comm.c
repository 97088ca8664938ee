/* SPDX-License-Identifier: MIT
 *
 * Communicators of devices, see comm.h.
 */
#include "kernels/parts/comm.h"

#include <stdio.h>

static bool host_failed(void *host, char *message, size_t bytes)
{
    if (hs_comm_check(host) == HS_OK)
        return false;
    snprintf(message, bytes, "%s", hs_error_message());
    return true;
}

static void abort_host(void *host, const char *reason)
{
    hs_comm_abort(host, reason);
}

static void note_on_host(void *host, int64_t step)
{
    hs_comm_note_step(host, step);
}

HsStatus hs_part_comm_create(const HsBackendPart *part, HsDevice *device, HsComm *host,
                             const HsPartCommOptions *options, HsComm **comm)
{
    HsCommNcclOptions made = {
        .rank = host->rank,
        .size = host->size,
        .local_rank = host->local_rank,
        .local_size = host->local_size,
        .exact = options->exact,
        .scratch_bytes = options->scratch_bytes,
        .timeout_s = options->timeout_s,
        .others_failed = host_failed,
        .tell_others = abort_host,
        .note_step = note_on_host,
        .host = host,
    };
    *comm = NULL;
    if (host->rank == 0)
        HS_TRY(part->comm_id(made.id));
    HS_TRY(hs_comm_broadcast(host, NULL, made.id, sizeof made.id, HS_U8, 0));
    return part->comm_create(device, &made, comm);
}
