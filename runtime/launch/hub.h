/* SPDX-License-Identifier: MIT
 *
 * Where the ranks of a run find each other: rank 0 listens (TCP), the others connect, prove that they know the run's
 * secret, and introduce themselves; when all are there, each gets the list.  Afterwards the connections carry heartbeats,
 * and the reason why a run ends.  What travels is neither encrypted nor signed: the secret decides which process takes
 * part, and the network is trusted not to change what it carries.
 *
 * A rank that is absent, comes twice, belongs to another run, was started by another program or reads another
 * configuration is named on both sides.
 */
#ifndef HS_RUNTIME_LAUNCH_HUB_H
#define HS_RUNTIME_LAUNCH_HUB_H

#include "kernels/base/comm.h"
#include "runtime/launch/secret.h"

enum { HS_HUB_PORTS = 16 };

typedef struct HsHubOptions {
    int rank, size;
    const char *addresses;  /* of rank 0, names or numbers with commas between; for the others */
    const char *listen_at;  /* rank 0: the address to listen on (hs_wire_listen); NULL: all */
    const HsSecret *secret; /* what newcomers prove that they know; NULL: nothing */
    int port, ports;        /* rank 0 takes the first free one of these; the others look through them; port 0: any */
    const char *run;        /* what distinguishes this run from others on the same port, at most 63 characters */
    uint64_t configuration; /* equal on all ranks */
    double join_s;          /* how long to wait for absent ranks */
    double silence_s;       /* without a heartbeat a rank counts as lost; 0: 6 */
} HsHubOptions;

/* Of fixed size and order: it travels as bytes. */
typedef struct HsHubMember {
    uint64_t magic, configuration;
    int64_t process;
    uint64_t machine; /* equal where processes can share memory */
    uint64_t cores;   /* equal where processes may run on the same cores */
    int32_t rank, size;
    char host[64], run[64];
} HsHubMember;

typedef struct HsHub HsHub;

/* Rank 0 in two steps, so that its port can be sent to the others in between; *port is the one it listens on. */
HsStatus hs_hub_listen(const HsHubOptions *options, HsHub **hub, int *port);
/* hub: what hs_hub_listen made, or (other ranks) NULL.  On failure *hub is destroyed.
 * errors: HS_EDEVICE naming absent ranks; HS_ECONFIG for ranks that do not belong together; HS_EIO */
HsStatus hs_hub_join(const HsHubOptions *options, HsHub **hub);
/* Rank 0, between the two: what the run is called. */
void hs_hub_rename(HsHub *hub, const char *run);
const HsHubMember *hs_hub_member(const HsHub *hub, int rank);
/* bytes [count] of rank 0 to all; before hs_hub_watch, called by all. */
HsStatus hs_hub_broadcast(HsHub *hub, void *bytes, size_t count);

/* Heartbeats begin: `comm` says what this rank does. */
HsStatus hs_hub_watch(HsHub *hub, const HsComm *comm);
/* HS_OK, or HS_EDEVICE with the first reason; never waits. */
HsStatus hs_hub_check(void *hub);
void hs_hub_abort(void *hub, const char *reason);
/* This rank has waited for so long: the one that is behind all others is the reason. */
void hs_hub_late(void *hub, double waited_s);
/* Leaves in order; NULL is allowed. */
void hs_hub_destroy(HsHub *hub);

/* Equal where processes can share memory. */
uint64_t hs_hub_machine(void);
/* Addresses of this host for HsHubOptions.addresses, loopback last. */
void hs_hub_own_addresses(char *text, size_t bytes);

#endif
