/* SPDX-License-Identifier: MIT
 *
 * Starts them, waits, passes stop signals on, and finds in their logs why they failed.
 */
#include "runtime/study/process_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/stop_signals.h"
#include "runtime/launch/spawn.h"
#include "runtime/train/signals.h"

enum { POLL_NS = 5000000, TAIL_BYTES = 16384 };

static const int stops[] = { HS_STOP_SIGNAL_NUMBERS };
enum { STOPS = sizeof stops / sizeof *stops };

typedef struct Pool {
    HsPoolJob *jobs;
    int count, next, running;
    bool told; /* the children were asked to stop */
} Pool;

/* In the child: until it has its own handlers there is nothing to save. */
static void prepare(void *unused)
{
    (void)unused;
    for (int i = 0; i < STOPS; i++)
        signal(stops[i], SIG_DFL);
}

static HsStatus start(Pool *pool, HsPoolJob *job)
{
    sigset_t blocked, before;
    const int log = open(job->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log < 0)
        return hs_fail(HS_EIO, "cannot open %s: %s", job->log_path, strerror(errno));
    job->log_offset = lseek(log, 0, SEEK_END);
    job->began_s = hs_clock_s();
    /* Blocked, so that a signal finds a child with this process's handlers or with the default ones, never in between. */
    sigemptyset(&blocked);
    for (int i = 0; i < STOPS; i++)
        sigaddset(&blocked, stops[i]);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    const HsStatus status = hs_spawn(&(HsSpawn){ .arguments = job->arguments,
                                                 .orphan_signal = SIGTERM,
                                                 .output = log,
                                                 .given = -1,
                                                 .signals = &before,
                                                 .prepare = prepare },
                                     &job->process);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(log);
    pool->running += status == HS_OK;
    return status;
}

/* Once: a second signal would end them at once. */
static void tell_to_stop(Pool *pool, int number)
{
    for (int i = 0; i < pool->next && !pool->told; i++)
        if (pool->jobs[i].process > 0)
            kill(pool->jobs[i].process, number);
    pool->told = true;
}

/* Whether it has ended by now. */
static bool reap(Pool *pool, HsPoolJob *job)
{
    int code = 0;
    struct rusage usage;
    const pid_t ended = job->process > 0 ? wait4(job->process, &code, WNOHANG, &usage) : 0;
    if (ended != job->process || ended == 0)
        return false;
    job->process = 0;
    job->exit_code = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
    job->seconds = hs_clock_s() - job->began_s;
    job->processor_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                       1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    pool->running--;
    return true;
}

static HsStatus reap_all(Pool *pool, HsPoolDone done, void *user, bool *some)
{
    HsStatus status = HS_OK;
    *some = false;
    for (int i = 0; i < pool->next; i++) {
        if (!reap(pool, &pool->jobs[i]))
            continue;
        *some = true;
        if (status == HS_OK && !pool->told) /* what a stopped run leaves is read after it was continued */
            status = done(user, i);
    }
    return status;
}

HsStatus hs_pool_run(HsPoolJob *jobs, int count, int at_once, HsPoolDone done, void *user)
{
    Pool pool = { .jobs = jobs, .count = count };
    char first[HS_POOL_REASON_BYTES] = ""; /* the first failure's message; others follow */
    HsStatus result = HS_OK;
    while (pool.running > 0 || (pool.next < pool.count && result == HS_OK && !hs_run_stop_asked())) {
        HsStatus status = HS_OK;
        bool some = false;
        while (result == HS_OK && status == HS_OK && !hs_run_stop_asked() && pool.next < pool.count &&
               pool.running < at_once)
            status = start(&pool, &jobs[pool.next++]);
        if (status == HS_OK)
            status = reap_all(&pool, done, user, &some);
        if (status != HS_OK && result == HS_OK) {
            result = status;
            snprintf(first, sizeof first, "%s", hs_error_message());
        }
        if (hs_run_stop_asked() || result != HS_OK)
            tell_to_stop(&pool, hs_run_stop_asked() ? hs_run_stop_signal() : SIGTERM);
        if (!some)
            nanosleep(&(struct timespec){ .tv_nsec = POLL_NS }, NULL);
    }
    if (result != HS_OK)
        return first[0] ? hs_fail(result, "%s", first) : result;
    if (hs_run_stop_asked())
        return hs_fail(HS_EINTERRUPTED,
                       "stopped by %s; the runs under way are saved: the same command continues from here",
                       hs_run_stop_name());
    return HS_OK;
}

/* The last line of `text` that begins with "error: ", without that and without its end; NULL: none does. */
static char *last_error(char *text)
{
    static const char mark[] = "error: ";
    char *found = NULL;
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (strncmp(line, mark, sizeof mark - 1) == 0)
            found = line + sizeof mark - 1;
        line = end ? end + 1 : NULL;
    }
    if (found)
        found[strcspn(found, "\n")] = '\0';
    return found;
}

const char *hs_pool_reason(const HsPoolJob *job, char reason[HS_POOL_REASON_BYTES])
{
    char tail[TAIL_BYTES + 1], unread[128] = "";
    const int log = open(job->log_path, O_RDONLY | O_CLOEXEC);
    ssize_t length = 0;
    if (log >= 0) {
        const off_t end = lseek(log, 0, SEEK_END);
        off_t from = (off_t)job->log_offset;
        if (end - from > TAIL_BYTES)
            from = end - TAIL_BYTES;
        length = pread(log, tail, TAIL_BYTES, from);
    }
    if (log < 0 || length < 0)
        snprintf(unread, sizeof unread, " (it cannot be read: %.90s)", strerror(errno));
    if (log >= 0)
        close(log);
    tail[length > 0 ? length : 0] = '\0';
    const char *error = last_error(tail);
    if (error)
        snprintf(reason, HS_POOL_REASON_BYTES, "%.2000s", error);
    else if (job->exit_code > 128)
        snprintf(reason, HS_POOL_REASON_BYTES, "its process was ended by signal %d (%s)", job->exit_code - 128,
                 strsignal(job->exit_code - 128));
    else
        snprintf(reason, HS_POOL_REASON_BYTES, "its process ended with exit code %d; %.1700s has what it said%s",
                 job->exit_code, job->log_path, unread);
    return reason;
}
