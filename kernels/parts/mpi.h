/* SPDX-License-Identifier: MIT
 *
 * Ranks that talk by MPI: libhalfstep-mpi.so, a part like those of backends, built with the compiler of the site's MPI
 * (make mpi), as the libraries of MPI differ in what a communicator even is.  The program itself links none.
 */
#ifndef HS_KERNELS_PARTS_MPI_H
#define HS_KERNELS_PARTS_MPI_H

#include "kernels/base/comm.h"

/* What notices that other processes die while MPI waits for them.  NULL members: nothing does. */
typedef struct HsCommGuard {
    void *user;
    /* HS_OK, or why no rank can continue; never waits */
    HsStatus (*check)(void *user);
    void (*abort)(void *user, const char *reason);
    double timeout_s; /* how long an operation may wait; 0: for ever */
    /* An operation has waited for so long that a late rank is now a failure of all ranks, which check reports. */
    void (*late)(void *user, double waited_s);
} HsCommGuard;

typedef struct HsMpiPart {
    uint64_t layout; /* hs_mpi_part_layout() as the part was compiled; it stays the first member */
    const char *library;
    /* MPI_Init_thread, FUNNELED: operations are called by this thread alone.  *comm: the ranks of MPI_COMM_WORLD.
     * errors: HS_EUNSUPPORTED, HS_EDEVICE, HS_ENOMEM */
    HsStatus (*init)(HsComm **comm);
    /* From here on operations look after it while they wait.  Borrows what it points to. */
    void (*set_guard)(HsComm *comm, const HsCommGuard *guard);
} HsMpiPart;

static inline uint64_t hs_mpi_part_layout(void)
{
    return (uint64_t)sizeof(HsMpiPart) << 32 ^ (uint64_t)sizeof(HsComm) << 20 ^
           (uint64_t)sizeof(HsCommOperations) << 8 ^ sizeof(HsCommGuard);
}

/* What the part exports. */
const HsMpiPart *hs_mpi_part(void);

/* Opens it; it stays open until the process ends.
 * errors: HS_EUNSUPPORTED where it was not built, cannot be opened, or comes from another build */
HsStatus hs_mpi_part_open(const HsMpiPart **part);

#endif
