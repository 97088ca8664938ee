/* SPDX-License-Identifier: MIT
 *
 * A hub's state, for hub.c and hub_watch.c.
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

/* beat: NULL: not known */
void hs_hub_describe(const HsHubMember *member, const HsHubBeat *beat, char *text, size_t bytes);

#endif
