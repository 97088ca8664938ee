/* SPDX-License-Identifier: MIT
 *
 * The rendezvous, see hub.h.  Rank 0 reads from all newcomers at a time, so that one which says nothing (a port scanner,
 * another program) does not keep the others waiting.
 */
#include "runtime/launch/hub_internal.h"

#include <ifaddrs.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/hash.h"

/* The layout of what travels is part of it. */
const uint64_t hs_hub_magic = 0x4853485542303100u + sizeof(HsHubMember) + (uint64_t)sizeof(HsHubBeat) * 256;

/* Processes see each other's descriptors in the same namespace of the same boot. */
uint64_t hs_hub_machine(void)
{
    char text[128];
    uint64_t hash = HS_HASH_START;
    FILE *boot = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (boot) {
        hash = hs_hash_bytes(hash, text, fread(text, 1, sizeof text, boot));
        fclose(boot);
    }
    const ssize_t length = readlink("/proc/self/ns/pid", text, sizeof text);
    hash = hs_hash_bytes(hash, text, length > 0 ? (size_t)length : 0);
    gethostname(text, sizeof text - 1);
    return hs_hash_bytes(hash, text, strnlen(text, sizeof text));
}

static uint64_t own_cores(void)
{
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? hs_hash_bytes(HS_HASH_START, &cores, sizeof cores) : 0;
}

static void introduce(const HsHubOptions *options, HsHubMember *own)
{
    memset(own, 0, sizeof *own);
    own->magic = hs_hub_magic;
    own->configuration = options->configuration;
    own->process = getpid();
    own->machine = hs_hub_machine();
    own->cores = own_cores();
    own->rank = options->rank;
    own->size = options->size;
    gethostname(own->host, sizeof own->host - 1);
    snprintf(own->run, sizeof own->run, "%s", options->run ? options->run : "");
}

static HsStatus allocate(const HsHubOptions *options, HsHub **allocated)
{
    const size_t size = (size_t)options->size;
    HsHub *hub = calloc(1, sizeof *hub);
    *allocated = NULL;
    if (hub) {
        hub->members = calloc(size, sizeof *hub->members);
        hub->links = calloc(size, sizeof *hub->links);
        hub->beats = calloc(size, sizeof *hub->beats);
    }
    if (!hub || !hub->members || !hub->links || !hub->beats) {
        if (hub) {
            free(hub->members);
            free(hub->links);
            free(hub->beats);
        }
        free(hub);
        return hs_fail(HS_ENOMEM, "no memory to find %zu ranks", size);
    }
    hub->rank = options->rank;
    hub->size = options->size;
    hub->secret = options->secret;
    hub->silence_s = options->silence_s > 0 ? options->silence_s : 6;
    hub->listener = -1;
    for (size_t r = 0; r < size; r++)
        hub->links[r].socket = -1;
    pthread_mutex_init(&hub->mutex, NULL);
    introduce(options, &hub->members[options->rank]);
    *allocated = hub;
    return HS_OK;
}

HsStatus hs_hub_listen(const HsHubOptions *options, HsHub **hub, int *port)
{
    HS_TRY(allocate(options, hub));
    *port = options->port;
    const HsStatus status =
        hs_wire_listen(options->listen_at, port, options->port > 0 ? options->ports : 1, &(*hub)->listener);
    if (status != HS_OK) {
        hs_hub_destroy(*hub);
        *hub = NULL;
    }
    return status;
}

/* All that came hear why it was in vain. */
static HsStatus give_up(HsHub *hub, HsStatus status, double waited_s)
{
    char why[1024];
    if (status == HS_EDEVICE) {
        size_t used =
            (size_t)snprintf(why, sizeof why, "after %.0f s these ranks of %d are still absent:", waited_s, hub->size);
        for (int r = 1; r < hub->size && used < sizeof why - 8; r++)
            if (hub->links[r].socket < 0)
                used += (size_t)snprintf(why + used, sizeof why - used, " %d", r);
    } else
        snprintf(why, sizeof why, "%s", hs_error_message());
    for (int r = 1; r < hub->size; r++)
        if (hub->links[r].socket >= 0)
            hs_hub_refuse(hub->links[r].socket, why);
    return hs_fail(status, "%s", why);
}

/* A connection that fails between the ranks' arrival and their start. */
static HsStatus name_rank(const HsHub *hub, int rank, HsStatus status)
{
    char member[256];
    if (status == HS_OK)
        return HS_OK;
    hs_hub_describe(&hub->members[rank], NULL, member, sizeof member);
    return hs_error_prefix(HS_EDEVICE, "%s", member);
}

static HsStatus receive_ranks(HsHub *hub, const HsHubOptions *options)
{
    const double start_s = hs_clock_s(), deadline_s = start_s + options->join_s;
    const HsStatus status = hs_hub_gather(hub, deadline_s);
    close(hub->listener); /* what comes now finds nothing there */
    hub->listener = -1;
    if (status != HS_OK)
        return give_up(hub, status, hs_clock_s() - start_s);
    for (int r = 1; r < hub->size; r++)
        HS_TRY(name_rank(hub, r,
                         hs_wire_send(hub->links[r].socket, HS_FRAME_TABLE, hub->members,
                                      (size_t)hub->size * sizeof *hub->members, deadline_s + 10)));
    return HS_OK;
}

/* A frame with text. */
static HsStatus fail_refused(int socket, uint32_t bytes, double deadline_s)
{
    char why[1024] = "";
    HS_TRY(hs_wire_read(socket, why, bytes < sizeof why ? bytes : sizeof why - 1, deadline_s));
    return hs_fail(HS_ECONFIG, "rank 0 refused: %s", why);
}

/* *there: a hub of this run answered, and its answer is final; *is_other: one that has another secret. */
static HsStatus try_port(HsHub *hub, const HsHubOptions *options, const char *host, int port, double deadline_s,
                         bool *there, bool *is_other)
{
    HsFrame frame;
    int socket;
    *there = false;
    const double soon_s = hs_clock_s() + 2;
    HS_TRY(hs_wire_connect(host, port, soon_s < deadline_s ? soon_s : deadline_s, &socket));
    if (socket < 0)
        return HS_OK;
    HsStatus status = hs_hub_enter(hub, socket, soon_s, is_other);
    if (status == HS_OK)
        status = hs_wire_send(socket, HS_FRAME_HELLO, &hub->members[hub->rank], sizeof *hub->members, soon_s);
    if (status == HS_OK)
        status = hs_wire_receive(socket, &frame, hs_clock_s() + 2);
    *there = status == HS_OK && (frame.kind == HS_FRAME_REFUSED || frame.kind == HS_FRAME_WELCOME);
    /* The list comes when all ranks are there. */
    if (*there && frame.kind == HS_FRAME_WELCOME)
        status = hs_wire_receive(socket, &frame, hs_clock_s() + options->join_s + 10);
    const size_t bytes = (size_t)hub->size * sizeof *hub->members;
    if (*there && status == HS_OK && frame.kind == HS_FRAME_TABLE && frame.bytes == bytes)
        status = hs_wire_read(socket, hub->members, bytes, hs_clock_s() + 10);
    else if (*there && status == HS_OK)
        status = fail_refused(socket, frame.bytes, hs_clock_s() + 2);
    if (*there && status == HS_EIO)
        status = hs_error_prefix(HS_EDEVICE, "rank 0 of %d, which was to list the other ranks", hub->size);
    if (*there && status == HS_OK)
        hub->links[0].socket = socket;
    else
        close(socket);
    return *there ? status : HS_OK;
}

/* Rank 0 may not listen yet, and on which of its ports it does is found by asking. */
static HsStatus find_hub(HsHub *hub, const HsHubOptions *options)
{
    const double deadline_s = hs_clock_s() + options->join_s;
    const struct timespec nap = { .tv_nsec = 100000000 };
    char hosts[512], unknown[256] = "";
    bool is_other = false;
    do {
        snprintf(hosts, sizeof hosts, "%s", options->addresses);
        char *rest = NULL;
        for (char *host = strtok_r(hosts, ",", &rest); host; host = strtok_r(NULL, ",", &rest))
            for (int i = 0; i < options->ports; i++) {
                bool there;
                const HsStatus status = try_port(hub, options, host, options->port + i, deadline_s, &there, &is_other);
                if (there)
                    return status;
                if (status != HS_OK) {
                    snprintf(unknown, sizeof unknown, "; %.200s", hs_error_message());
                    break;
                }
            }
        nanosleep(&nap, NULL);
    } while (hs_clock_s() < deadline_s);
    if (is_other)
        snprintf(
            unknown, sizeof unknown,
            "; one listens there that has another secret: HALFSTEP_SECRET or HALFSTEP_SECRET_FILE is to be the same "
            "for all ranks");
    return hs_fail(HS_EDEVICE,
                   "rank %d of %d found no rank 0 at %s, port %d%s within %.0f s: see whether it runs, and whether the "
                   "port is open%s",
                   hub->rank, hub->size, options->addresses, options->port,
                   options->ports > 1 ? " and those after it" : "", options->join_s, unknown);
}

HsStatus hs_hub_join(const HsHubOptions *options, HsHub **hub)
{
    HsStatus status = HS_OK;
    int port;
    if (!*hub)
        status = options->rank == 0 ? hs_hub_listen(options, hub, &port) : allocate(options, hub);
    if (status == HS_OK)
        status = options->rank == 0 ? receive_ranks(*hub, options) : find_hub(*hub, options);
    if (*hub)
        (*hub)->secret = NULL; /* the caller's, and not needed any more */
    if (status != HS_OK) {
        hs_hub_destroy(*hub);
        *hub = NULL;
    }
    return status;
}

void hs_hub_rename(HsHub *hub, const char *run)
{
    snprintf(hub->members[0].run, sizeof hub->members[0].run, "%s", run);
}

const HsHubMember *hs_hub_member(const HsHub *hub, int rank)
{
    return &hub->members[rank];
}

HsStatus hs_hub_broadcast(HsHub *hub, void *bytes, size_t count)
{
    const double deadline_s = hs_clock_s() + 60;
    HsFrame frame;
    for (int r = 1; hub->rank == 0 && r < hub->size; r++)
        HS_TRY(name_rank(hub, r, hs_wire_send(hub->links[r].socket, HS_FRAME_BYTES, bytes, count, deadline_s)));
    if (hub->rank == 0)
        return HS_OK;
    HS_TRY(name_rank(hub, 0, hs_wire_receive(hub->links[0].socket, &frame, deadline_s)));
    if (frame.kind != HS_FRAME_BYTES || frame.bytes != count)
        return hs_fail(HS_EDEVICE,
                       "rank 0 sent something else than the %zu bytes expected: all hosts must run the same build",
                       count);
    return name_rank(hub, 0, hs_wire_read(hub->links[0].socket, bytes, count, deadline_s));
}

void hs_hub_own_addresses(char *text, size_t bytes)
{
    struct ifaddrs *list = NULL;
    size_t used = 0;
    text[0] = '\0';
    if (getifaddrs(&list) == 0) {
        for (const struct ifaddrs *one = list; one; one = one->ifa_next) {
            char number[INET_ADDRSTRLEN];
            if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET)
                continue;
            const struct sockaddr_in *address = (const struct sockaddr_in *)(const void *)one->ifa_addr;
            if (ntohl(address->sin_addr.s_addr) >> 24 == 127 || used + INET_ADDRSTRLEN + 16 > bytes)
                continue;
            inet_ntop(AF_INET, &address->sin_addr, number, sizeof number);
            used += (size_t)snprintf(text + used, bytes - used, "%s,", number);
        }
        freeifaddrs(list);
    }
    snprintf(text + used, bytes - used, "127.0.0.1");
}
