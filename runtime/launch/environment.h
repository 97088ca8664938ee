/* SPDX-License-Identifier: MIT
 *
 * Which of several processes this one is, by the variables that its launcher set.
 */
#ifndef HS_RUNTIME_LAUNCH_ENVIRONMENT_H
#define HS_RUNTIME_LAUNCH_ENVIRONMENT_H

#include <stdbool.h>

#include "kernels/base/status.h"

typedef enum HsLauncher {
    HS_LAUNCHER_NONE,
    HS_LAUNCHER_PROCESSES, /* hs_launch_processes */
    HS_LAUNCHER_MPI,       /* mpirun, or srun with an MPI */
    HS_LAUNCHER_TORCHRUN,
    HS_LAUNCHER_SLURM
} HsLauncher;

typedef struct HsLaunched {
    HsLauncher launcher;
    int rank, size;        /* 0 and 1 where there is no launcher */
    const char *rank_from; /* the variable */
    char addresses[256];   /* torchrun, Slurm: where rank 0 is */
    int port, ports;
    bool one_host; /* the launcher says that all run on this one; false: it does not say */
    char run[64];  /* what distinguishes this run from others */
} HsLaunched;

/* choice: distributed.launch; address: distributed.address, "" when unset.
 * errors: HS_ECONFIG for variables that contradict each other (both are named), are missing or are no numbers */
HsStatus hs_launched_find(const char *choice, const char *address, HsLaunched *launched);

#endif
