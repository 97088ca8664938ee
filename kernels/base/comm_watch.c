/* SPDX-License-Identifier: MIT
 *
 * The thread of a rank that shows that its process is alive, and looks after the others: whether they have ended (their
 * pidfd says so at once) and whether their heartbeats continue (a stopped process has none).  Two beats a second.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_segment.h"

static const double beat_s = 0.5;

typedef struct Watched {
    uint64_t beat;
    double changed_s;
} Watched;

static bool has_ended(int process)
{
    struct pollfd poll_of = { .fd = process, .events = POLLIN };
    return process >= 0 && poll(&poll_of, 1, 0) == 1;
}

static void lose(HsCommSegment *segment, int rank, const char *what)
{
    char member[256], reason[HS_SEGMENT_REASON];
    hs_segment_describe(segment, rank, member, sizeof member);
    snprintf(reason, sizeof reason, "%s %s", member, what);
    hs_segment_abort(segment, reason);
}

static void look(const HsCommShared *shared, int rank, Watched *watched, double now_s)
{
    HsSegmentMember *member = &shared->segment->members[rank];
    const uint64_t beat = atomic_load(&member->beat);
    char what[96];
    if (beat != watched->beat)
        *watched = (Watched){ beat, now_s };
    const bool ended = has_ended(shared->processes[rank]);
    const double silent_s = now_s - watched->changed_s;
    if (atomic_load(&member->left)) /* in this order: one that has ended had left before */
        return;
    if (ended) {
        lose(shared->segment, rank, "died: its process has ended");
    } else if (silent_s > shared->options.silence_s) {
        snprintf(what, sizeof what, "has been without a heartbeat for %.1f s: its process is stopped or hangs",
                 silent_s);
        lose(shared->segment, rank, what);
    }
}

/* Where this process itself was stopped, or did not get to run, the others' silence says nothing about them. */
static void *watch(void *argument)
{
    HsCommShared *shared = argument;
    HsCommSegment *segment = shared->segment;
    Watched watched[HS_SEGMENT_RANKS_MOST];
    double last_s = hs_clock_s();
    for (int r = 0; r < shared->comm.size; r++)
        watched[r] = (Watched){ atomic_load(&segment->members[r].beat), last_s };
    while (!atomic_load(&shared->stop)) {
        HsSegmentMember *own = &segment->members[shared->comm.rank];
        atomic_fetch_add(&own->beat, 1);
        atomic_store(&own->step, __atomic_load_n(&shared->comm.step, __ATOMIC_RELAXED));
        const double now_s = hs_clock_s();
        for (int r = 0; r < shared->comm.size; r++) {
            if (now_s - last_s > 4 * beat_s)
                watched[r].changed_s = now_s;
            if (r != shared->comm.rank && !atomic_load(&segment->aborted))
                look(shared, r, &watched[r], now_s);
        }
        last_s = now_s;
        hs_futex_wait(&shared->stop, 0, beat_s);
    }
    return NULL;
}

HsStatus hs_watch_start(HsCommShared *shared)
{
    for (int r = 0; r < shared->comm.size; r++) {
        const int64_t process = atomic_load(&shared->segment->members[r].process);
        /* Without this call (Linux before 5.3) heartbeats alone tell. */
        if (r != shared->comm.rank)
            shared->processes[r] = (int)syscall(SYS_pidfd_open, (pid_t)process, 0);
        if (r != shared->comm.rank && shared->processes[r] < 0 && errno == ESRCH)
            lose(shared->segment, r, "died: its process has ended");
    }
    /* Signals are the main thread's. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&shared->watcher, NULL, watch, shared);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return hs_fail(HS_ENOMEM, "no thread for heartbeats: %s", strerror(error));
    shared->watched = true;
    return HS_OK;
}

void hs_watch_stop(HsCommShared *shared)
{
    if (shared->watched) {
        atomic_store(&shared->stop, 1);
        hs_futex_wake(&shared->stop);
        pthread_join(shared->watcher, NULL);
    }
    for (int r = 0; r < shared->comm.size; r++)
        if (shared->processes[r] >= 0)
            close(shared->processes[r]);
}
