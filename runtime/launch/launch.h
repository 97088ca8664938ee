/* SPDX-License-Identifier: MIT
 *
 * Several processes that train one model: starting them on this host, or finding out that a launcher started this one,
 * and the communicator that they have then.
 */
#ifndef HS_RUNTIME_LAUNCH_LAUNCH_H
#define HS_RUNTIME_LAUNCH_LAUNCH_H

#include "kernels/base/comm.h"
#include "runtime/config/config.h"

typedef struct HsLaunch {
    int processes; /* 0 counts as 1 */
    int restarts;  /* after failures, all of them again, at most so often */
    int count;     /* the command line behind the command's name: the processes get the same */
    char **arguments;
} HsLaunch;

/* Starts the processes, passes signals on to them and waits for their ends; none outlives this one, however it ends.
 * errors: HS_EINTERRUPTED after a signal (hs_launch_stop_signal says which); HS_ECONFIG and HS_EDEVICE, naming the first
 * process that failed and how; HS_EUNSUPPORTED, HS_ENOMEM where they cannot be started */
HsStatus hs_launch_processes(const HsConfig *config, const HsLaunch *launch);
/* 0: none came */
int hs_launch_stop_signal(void);

/* Whether hs_launch_processes of another process started this one. */
bool hs_launch_is_child(void);

/* The communicator of this process: of those that were launched together, or alone; hs_launch_leave destroys it.  From
 * here on all but rank 0 show warnings and errors only, with their rank, and write nothing to the standard output.
 * errors: HS_ECONFIG for an environment that makes no sense, HS_EDEVICE where others do not come */
HsStatus hs_launch_join(const HsConfig *config, HsComm **comm);

/* At the end, with the run's status (its message stays): sends a failure to the others, unless they know of another. */
void hs_launch_leave(HsStatus status);
/* How many processes a launcher started, this one included.  errors: those of its environment */
HsStatus hs_launch_count(const HsConfig *config, int *size);

#endif
