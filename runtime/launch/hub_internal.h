/* SPDX-License-Identifier: MIT
 *
 * A hub's state, for hub.c, hub_door.c and hub_watch.c.
 */
#ifndef HS_RUNTIME_LAUNCH_HUB_INTERNAL_H
#define HS_RUNTIME_LAUNCH_HUB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/launch/hub.h"
#include "runtime/launch/hub_wire.h"

typedef struct HsHubBeat {
    int64_t step;
    uint64_t sequence;
    char operation[16];
} HsHubBeat;

/* A connection: of rank 0 to each other rank, of those to rank 0. */
typedef struct HsHubLink {
    int socket; /* -1: none */
    bool left;  /* said goodbye */
    double heard_s;
} HsHubLink;

struct HsHub {
    int rank, size, here, listener;
    const HsSecret *secret; /* borrowed until all have joined; NULL: none */
    double silence_s;
    HsHubMember *members; /* [size] */
    HsHubLink *links;     /* [size] */
    HsHubBeat *beats;     /* [size] what each was last heard to do; under the mutex */
    /* the watch */
    const HsComm *comm;
    pthread_t watcher;
    bool watched;
    _Atomic bool stop, failed;
    pthread_mutex_t mutex; /* of writing to links, and of `reason` */
    char reason[1024];     /* before `failed` */
};

/* The layout of what travels is part of it. */
extern const uint64_t hs_hub_magic;

/* Rank 0's door (hub_door.c): lets the other ranks in until all are there.  errors: HS_EDEVICE: some are absent; HS_ECONFIG
 * for one that does not belong to this run */
HsStatus hs_hub_gather(HsHub *hub, double deadline_s);
/* Its counterpart: both prove that they know the secret.  *is_other is set where a hub answers that knows another one. */
HsStatus hs_hub_enter(const HsHub *hub, int socket, double deadline_s, bool *is_other);
void hs_hub_refuse(int socket, const char *why);

/* beat: NULL: not known */
void hs_hub_describe(const HsHubMember *member, const HsHubBeat *beat, char *text, size_t bytes);

#endif
