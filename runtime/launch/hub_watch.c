/* SPDX-License-Identifier: MIT
 *
 * Heartbeats over the hub's connections, two a second: each rank sends its step and operation to rank 0, which sends
 * those of all to all.  A connection that closes without a goodbye is a process that died; one that stays silent, a
 * process or a host that is stopped.  Rank 0 passes the first reason on to all.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "runtime/launch/hub_internal.h"

static const double beat_s = 0.5;

/* To all that this rank is linked with.  Called with the mutex held. */
static void tell_all(HsHub *hub, HsFrameKind kind, const void *content, size_t bytes)
{
    for (int r = 0; r < hub->size; r++)
        if (hub->links[r].socket >= 0 && !hub->links[r].left) /* a failure to send shows in the watch */
            (void)hs_wire_send(hub->links[r].socket, kind, content, bytes, hs_clock_s() + 1);
}

static void fail(HsHub *hub, const char *reason)
{
    pthread_mutex_lock(&hub->mutex);
    if (!atomic_load(&hub->failed)) {
        snprintf(hub->reason, sizeof hub->reason, "%s", reason);
        atomic_store(&hub->failed, true);
        tell_all(hub, HS_FRAME_ABORT, hub->reason, strlen(hub->reason) + 1);
    }
    pthread_mutex_unlock(&hub->mutex);
}

static void lose(HsHub *hub, int rank, const char *what)
{
    char member[256], reason[512];
    pthread_mutex_lock(&hub->mutex);
    hs_hub_describe(&hub->members[rank], &hub->beats[rank], member, sizeof member);
    pthread_mutex_unlock(&hub->mutex);
    snprintf(reason, sizeof reason, "%s %s", member, what);
    fail(hub, reason);
}

/* One beat of another rank, or rank 0's list. */
static HsStatus hear_beats(HsHub *hub, int from, uint32_t bytes, double deadline_s)
{
    const uint32_t wanted = (uint32_t)sizeof *hub->beats * (hub->rank == 0 ? 1 : (uint32_t)hub->size);
    if (bytes != wanted)
        return hs_fail(HS_EIO, "heartbeats of %u bytes", bytes);
    HsHubBeat *heard = malloc(bytes);
    if (!heard)
        return hs_fail(HS_ENOMEM, "no memory for heartbeats");
    const HsStatus status = hs_wire_read(hub->links[from].socket, heard, bytes, deadline_s);
    if (status == HS_OK) {
        pthread_mutex_lock(&hub->mutex);
        memcpy(hub->rank == 0 ? &hub->beats[from] : hub->beats, heard, bytes);
        for (int r = 0; r < hub->size; r++)
            hub->beats[r].operation[sizeof hub->beats[r].operation - 1] = '\0';
        pthread_mutex_unlock(&hub->mutex);
    }
    free(heard);
    return status;
}

static HsStatus hear_one(HsHub *hub, int from)
{
    HsFrame frame;
    HsHubLink *link = &hub->links[from];
    char text[sizeof hub->reason] = "";
    const double deadline_s = hs_clock_s() + 2;
    HS_TRY(hs_wire_receive(link->socket, &frame, deadline_s));
    link->heard_s = hs_clock_s();
    if (frame.kind == HS_FRAME_BEAT)
        return hear_beats(hub, from, frame.bytes, deadline_s);
    if (frame.bytes >= sizeof text)
        return hs_fail(HS_EIO, "a frame of %u bytes", frame.bytes);
    HS_TRY(hs_wire_read(link->socket, text, frame.bytes, deadline_s));
    if (frame.kind == HS_FRAME_ABORT)
        fail(hub, text);
    else if (frame.kind == HS_FRAME_BYE)
        link->left = true;
    return HS_OK;
}

static void hear_all(HsHub *hub)
{
    struct pollfd *waiting = calloc((size_t)hub->size, sizeof *waiting);
    if (!waiting)
        return;
    for (int r = 0; r < hub->size; r++)
        waiting[r] = (struct pollfd){ .fd = hub->links[r].left ? -1 : hub->links[r].socket, .events = POLLIN };
    if (poll(waiting, (nfds_t)hub->size, (int)(beat_s * 1e3)) > 0)
        for (int r = 0; r < hub->size; r++)
            if (waiting[r].revents && hear_one(hub, r) != HS_OK) {
                lose(hub, r, "died: its connection is closed");
                hub->links[r].left = true;
            }
    free(waiting);
}

static void look(HsHub *hub, double now_s)
{
    for (int r = 0; r < hub->size; r++) {
        const HsHubLink *link = &hub->links[r];
        char what[96];
        if (link->socket < 0 || link->left || now_s - link->heard_s <= hub->silence_s)
            continue;
        snprintf(what, sizeof what, "has been without a heartbeat for %.1f s: its process is stopped or hangs",
                 now_s - link->heard_s);
        lose(hub, r, what);
    }
}

/* With the mutex held. */
static void note_own(HsHub *hub)
{
    const HsComm *comm = hub->comm;
    HsHubBeat *own = &hub->beats[hub->rank];
    const char *operation = __atomic_load_n(&comm->operation, __ATOMIC_RELAXED);
    own->step = __atomic_load_n(&comm->step, __ATOMIC_RELAXED);
    own->sequence = __atomic_load_n(&comm->sequence, __ATOMIC_RELAXED);
    snprintf(own->operation, sizeof own->operation, "%s", operation ? operation : "");
}

static void beat(HsHub *hub)
{
    pthread_mutex_lock(&hub->mutex);
    note_own(hub);
    if (hub->rank == 0)
        tell_all(hub, HS_FRAME_BEAT, hub->beats, (size_t)hub->size * sizeof *hub->beats);
    else
        tell_all(hub, HS_FRAME_BEAT, &hub->beats[hub->rank], sizeof *hub->beats);
    pthread_mutex_unlock(&hub->mutex);
}

/* Where this process itself was stopped, the others' silence says nothing about them. */
static void *watch(void *argument)
{
    HsHub *hub = argument;
    double last_s = hs_clock_s(), beaten_s = 0;
    while (!atomic_load(&hub->stop)) {
        double now_s = hs_clock_s();
        if (now_s - beaten_s >= beat_s) {
            beat(hub);
            beaten_s = now_s;
        }
        hear_all(hub);
        now_s = hs_clock_s();
        for (int r = 0; now_s - last_s > 4 * beat_s && r < hub->size; r++)
            hub->links[r].heard_s = now_s;
        last_s = now_s;
        if (!atomic_load(&hub->failed))
            look(hub, now_s);
    }
    return NULL;
}

HsStatus hs_hub_watch(HsHub *hub, const HsComm *comm)
{
    sigset_t all, before;
    hub->comm = comm;
    for (int r = 0; r < hub->size; r++) {
        hub->links[r].heard_s = hs_clock_s();
        hub->beats[r].step = -1;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&hub->watcher, NULL, watch, hub);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return hs_fail(HS_ENOMEM, "no thread for heartbeats: %s", strerror(error));
    hub->watched = true;
    return HS_OK;
}

HsStatus hs_hub_check(void *user)
{
    HsHub *hub = user;
    return atomic_load(&hub->failed) ? hs_fail(HS_EDEVICE, "%s", hub->reason) : HS_OK;
}

void hs_hub_abort(void *user, const char *reason)
{
    HsHub *hub = user;
    char member[256], text[sizeof hub->reason];
    pthread_mutex_lock(&hub->mutex);
    note_own(hub);
    hs_hub_describe(&hub->members[hub->rank], &hub->beats[hub->rank], member, sizeof member);
    pthread_mutex_unlock(&hub->mutex);
    snprintf(text, sizeof text, "%s gave up: %.600s", member, reason);
    fail(hub, text);
}

void hs_hub_late(void *user, double waited_s)
{
    HsHub *hub = user;
    char member[256], waiting[256], text[sizeof hub->reason];
    int behind = hub->rank;
    pthread_mutex_lock(&hub->mutex);
    note_own(hub);
    for (int r = 0; r < hub->size; r++)
        if (hub->beats[r].sequence < hub->beats[behind].sequence)
            behind = r;
    hs_hub_describe(&hub->members[behind], &hub->beats[behind], member, sizeof member);
    hs_hub_describe(&hub->members[hub->rank], &hub->beats[hub->rank], waiting, sizeof waiting);
    pthread_mutex_unlock(&hub->mutex);
    if (behind == hub->rank)
        snprintf(text, sizeof text, "%s has waited for %.0f s (distributed.timeout), and no rank is behind it", waiting,
                 waited_s);
    else
        snprintf(text, sizeof text, "%s is alive and has not come for %.0f s (distributed.timeout) while %s waits",
                 member, waited_s, waiting);
    fail(hub, text);
}

void hs_hub_destroy(HsHub *hub)
{
    if (!hub)
        return;
    atomic_store(&hub->stop, true);
    if (hub->watched)
        pthread_join(hub->watcher, NULL);
    tell_all(hub, HS_FRAME_BYE, NULL, 0);
    for (int r = 0; r < hub->size; r++)
        if (hub->links[r].socket >= 0)
            close(hub->links[r].socket);
    if (hub->listener >= 0)
        close(hub->listener);
    pthread_mutex_destroy(&hub->mutex);
    free(hub->members);
    free(hub->links);
    free(hub->beats);
    free(hub);
}
