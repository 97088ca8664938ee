/* SPDX-License-Identifier: MIT
 *
 * Ranks that have nothing but TCP: everything passes through rank 0.  It is what processes of several hosts have without
 * MPI: enough for what hosts exchange in addition to a library for GPUs, and slow for gradients: rank 0 moves
 * 2 (N - 1) times a sum's bytes.
 */
#ifndef HS_RUNTIME_LAUNCH_COMM_HUB_H
#define HS_RUNTIME_LAUNCH_COMM_HUB_H

#include "kernels/parts/mpi.h"
#include "runtime/launch/hub.h"

/* links: a separate hub without a watch, which the communicator destroys with itself; guard: of another hub.
 * errors: HS_ENOMEM, and then `links` is destroyed */
HsStatus hs_comm_hub_create(HsHub *links, const HsCommGuard *guard, HsComm **comm);

#endif
