/* SPDX-License-Identifier: MIT
 *
 * This program started anew, as a child process in its own group: a terminal's Ctrl-C reaches the parent alone,
 * which passes each signal on once.  A child's parent may die at any moment, however it dies, and the child gets a signal.
 */
#ifndef HS_RUNTIME_LAUNCH_SPAWN_H
#define HS_RUNTIME_LAUNCH_SPAWN_H

#include <signal.h>
#include <stddef.h>
#include <sys/types.h>

#include "kernels/base/status.h"

typedef struct HsSpawn {
    char *const *arguments;  /* argv, NULL at its end; argv[0] is for process lists */
    int orphan_signal;       /* what the child gets when this process dies */
    int output;              /* gets what the child prints, and its input is empty; below 0: both are this process's */
    int given;               /* a descriptor that stays open in the child; below 0: none */
    const sigset_t *signals; /* those that the child holds back */
    void (*prepare)(void *); /* called in the child before it becomes the program, with `user`; NULL: nothing is */
    void *user;
} HsSpawn;

/* -> its process, which ends with 127 where it cannot become the program.  Signals that are not to find a child before
 * `prepare` has said what they do are held back by the caller.
 * errors: HS_EUNSUPPORTED where /proc does not say which program this is, HS_ENOMEM */
HsStatus hs_spawn(const HsSpawn *spawn, pid_t *child);

/* Of waitpid's status, "was ended by signal 9 (Killed)" or "ended with exit code 3" -> text, which it returns. */
const char *hs_spawn_end(int status, char *text, size_t bytes);

#endif
