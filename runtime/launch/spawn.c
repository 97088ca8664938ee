/* SPDX-License-Identifier: MIT
 *
 * fork and exec: this process may have threads by now (OpenMP's), which a fork alone would not bring along.  Between the
 * two a process with threads calls only what POSIX allows there.
 */
#include "runtime/launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, NOT_STARTED = 127 };

static bool take_over_files(const HsSpawn *spawn)
{
    if (spawn->given >= 0 && fcntl(spawn->given, F_SETFD, 0) != 0)
        return false;
    if (spawn->output < 0)
        return true;
    const int null = open("/dev/null", O_RDONLY);
    return null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(spawn->output, STDOUT_FILENO) >= 0 &&
           dup2(spawn->output, STDERR_FILENO) >= 0;
}

/* In the child, up to exec. */
static void become(const HsSpawn *spawn, const char *program, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, spawn->orphan_signal);
    if (getppid() != parent) /* it died before that could help */
        _exit(NOT_STARTED);
    if (spawn->prepare)
        spawn->prepare(spawn->user);
    sigprocmask(SIG_SETMASK, spawn->signals, NULL);
    if (take_over_files(spawn))
        execv(program, spawn->arguments);
    dprintf(spawn->output < 0 ? STDERR_FILENO : spawn->output, "error: %s cannot be started: %s\n", program,
            strerror(errno)); /* of one thread: it may */
    _exit(NOT_STARTED);
}

HsStatus hs_spawn(const HsSpawn *spawn, pid_t *child)
{
    char program[PATH_BYTES];
    const ssize_t length = readlink("/proc/self/exe", program, PATH_BYTES - 1);
    if (length <= 0)
        return hs_fail(
            HS_EUNSUPPORTED,
            "/proc/self/exe cannot be read, so this program cannot start itself again (is /proc mounted?): %s",
            strerror(errno));
    program[length] = '\0';
    const pid_t parent = getpid(), made = fork();
    if (made == 0)
        become(spawn, program, parent);
    if (made < 0)
        return hs_fail(HS_ENOMEM, "a process cannot be started: %s", strerror(errno));
    *child = made;
    return HS_OK;
}

const char *hs_spawn_end(int status, char *text, size_t bytes)
{
    if (WIFSIGNALED(status))
        snprintf(text, bytes, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(text, bytes, "ended with exit code %d", WEXITSTATUS(status));
    return text;
}
