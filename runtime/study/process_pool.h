/* SPDX-License-Identifier: MIT
 *
 * Runs of the trainer as child processes, several at a time: this same program, started anew with other arguments, so
 * that nothing of one run (threads, memory, a crash) is another's (runtime/launch/spawn.h).  If the parent dies,
 * children get SIGTERM: they save and exit.
 */
#ifndef HS_RUNTIME_STUDY_PROCESS_POOL_H
#define HS_RUNTIME_STUDY_PROCESS_POOL_H

#include <stdint.h>
#include <sys/types.h>

#include "kernels/base/status.h"

typedef struct HsPoolJob {
    char **arguments; /* argv, NULL at its end; argv[0] is for process lists */
    char *log_path;   /* gets what the child prints, behind what is there */
    /* filled in: */
    pid_t process;      /* 0: not running */
    int64_t log_offset; /* where this child's output begins */
    int exit_code;      /* 128 + N: ended by signal N */
    double began_s, seconds;
    double processor_s;
} HsPoolJob;

/* Called for each job that has ended, whatever its exit code; an error stops the others in order. */
typedef HsStatus (*HsPoolDone)(void *user, int job);

/* Starts jobs in their order, at most `at_once` at a time, and waits for all.
 * errors: of `done`; HS_EIO for a log that cannot be opened; HS_ENOMEM for a process that cannot be started;
 * HS_EINTERRUPTED when hs_run_stop_asked said so: then every child was asked to save, too, and has ended. */
HsStatus hs_pool_run(HsPoolJob *jobs, int count, int at_once, HsPoolDone done, void *user);

/* Why a job failed: its last line of an error, else how it ended. */
enum { HS_POOL_REASON_BYTES = 2048 };
const char *hs_pool_reason(const HsPoolJob *job, char reason[HS_POOL_REASON_BYTES]);

#endif
