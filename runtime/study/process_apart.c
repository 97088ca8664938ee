/* SPDX-License-Identifier: MIT
 *
 * A fork, and a pipe for its answer.
 */
#include "runtime/study/process_apart.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/log.h"

static bool transfer(int file, void *data, size_t bytes, bool writes)
{
    char *at = data;
    while (bytes > 0) {
        const ssize_t done = writes ? write(file, at, bytes) : read(file, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

bool hs_ask_apart(void (*work)(void *user), void *user, void *answer, size_t bytes)
{
    int ends[2], code;
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0) {
        hs_log_set_level(HS_LOG_ERROR);
        work(user);
        _exit(transfer(ends[1], answer, bytes, true) ? 0 : 1);
    }
    close(ends[1]);
    const bool got = child > 0 && transfer(ends[0], answer, bytes, false);
    close(ends[0]);
    while (child > 0 && waitpid(child, &code, 0) < 0 && errno == EINTR)
        continue;
    return got;
}
