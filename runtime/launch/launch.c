/* SPDX-License-Identifier: MIT
 *
 * From this process's rank to its communicator:
 *
 *     --processes        the shared memory that the parent made
 *     torchrun, srun     rank 0's hub; on one host then shared memory that rank 0 makes, else TCP through rank 0, with
 *                        heartbeats over the hub
 *     mpirun             MPI says where rank 0's hub is; on one host then shared memory, else MPI, with heartbeats over
 *                        the hub
 */
#include "runtime/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/comm_fault.h"
#include "kernels/base/comm_shared.h"
#include "kernels/base/hash.h"
#include "kernels/base/log.h"
#include "kernels/parts/mpi.h"
#include "runtime/launch/comm_hub.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/hub.h"
#include "runtime/launch/hub_wire.h"

/* What lives as long as the communicator. */
typedef struct Joined {
    HsComm *comm; /* what the run uses */
    HsComm *mpi;  /* NULL: not started */
    HsHub *hub;   /* NULL: not needed any more */
    bool guarded; /* the hub has the heartbeats of comm */
} Joined;

static Joined joined;

bool hs_launch_is_child(void)
{
    return getenv("HALFSTEP_RANK") && getenv("HALFSTEP_SEGMENT");
}

/* Only rank 0 prints. */
static void lower_voice(int rank)
{
    static char speaker[32];
    if (rank == 0)
        return;
    snprintf(speaker, sizeof speaker, "rank %d", rank);
    hs_log_set_speaker(speaker);
    hs_log_set_level(HS_LOG_WARNING);
    if (!freopen("/dev/null", "w", stdout))
        hs_warn("the standard output cannot be closed: it shows all ranks' lines");
}

static HsCommSharedOptions shared_options(const HsConfig *config)
{
    return (HsCommSharedOptions){ .join_s = config->distributed.join, .timeout_s = config->distributed.timeout };
}

static HsStatus join_as_child(const HsConfig *config, const HsLaunched *launched)
{
    const char *text = getenv("HALFSTEP_SEGMENT");
    char *end;
    const long descriptor = strtol(text, &end, 10);
    const HsCommSharedOptions options = shared_options(config);
    if (end == text || *end != '\0' || descriptor < 0 || descriptor > 1 << 20)
        return hs_fail(HS_ECONFIG,
                       "the environment variable HALFSTEP_SEGMENT is %s, and should be a descriptor: unset it, as this "
                       "program sets it itself",
                       text);
    if (launched->size == 1)
        return HS_OK;
    HS_TRY(hs_comm_shared_join((int)descriptor, launched->rank, &options, &joined.comm));
    close((int)descriptor);
    return HS_OK;
}

static HsStatus hash_configuration(const HsConfig *config, uint64_t *hash)
{
    char *text;
    HS_TRY(hs_config_text(config, &text));
    *hash = hs_hash_bytes(HS_HASH_START, text, strlen(text));
    free(text);
    return HS_OK;
}

static bool on_one_host(const HsHub *hub, int size)
{
    for (int r = 1; r < size; r++)
        if (hs_hub_member(hub, r)->machine != hs_hub_member(hub, 0)->machine)
            return false;
    return true;
}

/* Rank 0 makes a segment, the others open it among rank 0's files. */
static HsStatus share_segment(const HsConfig *config, HsHub *hub, int rank, int size)
{
    const HsCommSharedOptions options = shared_options(config);
    int descriptor = -1;
    HsStatus status = rank == 0 ? hs_comm_shared_make(size, &options, &descriptor) : HS_OK;
    int64_t number = descriptor; /* -1: there is none */
    const HsStatus told = hs_hub_broadcast(hub, &number, sizeof number);
    if (status == HS_OK)
        status = told;
    if (status == HS_OK && number < 0)
        status = hs_fail(HS_EDEVICE, "rank 0 could not make shared memory for the other ranks: see its own message");
    if (status == HS_OK && rank != 0) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)hs_hub_member(hub, 0)->process, (long long)number);
        descriptor = open(path, O_RDWR | O_CLOEXEC);
        if (descriptor < 0)
            status = hs_fail(HS_EIO, "%s, rank 0's shared memory, cannot be opened: %s", path, strerror(errno));
    }
    if (status == HS_OK)
        status = hs_comm_shared_join(descriptor, rank, &options, &joined.comm);
    if (descriptor >= 0)
        close(descriptor); /* rank 0: all others have it by now */
    return status;
}

static HsStatus fail_hosts(const HsHub *hub, int size)
{
    const char *first = hs_hub_member(hub, 0)->host, *other = first;
    for (int r = 1; r < size; r++)
        if (hs_hub_member(hub, r)->machine != hs_hub_member(hub, 0)->machine)
            other = hs_hub_member(hub, r)->host;
    return hs_fail(HS_ECONFIG,
                   "distributed.transport is shared, and these %d processes run on several hosts (%s, %s), "
                   "which share no memory: set it to auto",
                   size, first, other);
}

/* How many ranks share this host and its cores, and how many of them come before this one. */
static void count_neighbours(HsComm *comm, const HsHub *hub)
{
    const HsHubMember *own = hs_hub_member(hub, comm->rank);
    comm->local_rank = comm->local_size = comm->core_rank = comm->core_size = 0;
    for (int r = 0; r < comm->size; r++) {
        const HsHubMember *other = hs_hub_member(hub, r);
        const bool local = other->machine == own->machine, cores = local && other->cores == own->cores;
        comm->local_size += local;
        comm->local_rank += local && r < comm->rank;
        comm->core_size += cores;
        comm->core_rank += cores && r < comm->rank;
    }
}

/* Heartbeats over the hub, for a communicator that has none. */
static HsCommGuard guard_by_hub(const HsConfig *config)
{
    return (HsCommGuard){ .user = joined.hub,
                          .check = hs_hub_check,
                          .abort = hs_hub_abort,
                          .timeout_s = config->distributed.timeout,
                          .late = hs_hub_late };
}

/* Data have separate connections, made in the same way. */
static HsStatus use_tcp(const HsConfig *config, const HsHubOptions *met)
{
    HsHubOptions options = *met;
    HsHub *links = NULL;
    char run[64];
    const HsCommGuard guard = guard_by_hub(config);
    snprintf(run, sizeof run, "%.58s.data", met->run);
    options.run = run;
    HS_TRY(hs_hub_join(&options, &links));
    HS_TRY(hs_comm_hub_create(links, &guard, &joined.comm));
    count_neighbours(joined.comm, joined.hub);
    joined.guarded = true;
    return hs_hub_watch(joined.hub, joined.comm);
}

/* Off the loopback address any program of the network could come to the hub, and take part. */
static HsStatus refuse_open(const HsLaunched *launched)
{
    static const char *const passes_on[] = {
        [HS_LAUNCHER_MPI] = "mpirun -x HALFSTEP_SECRET_FILE ... (Hydra: -genvlist HALFSTEP_SECRET_FILE) passes it on",
        [HS_LAUNCHER_TORCHRUN] = "torchrun passes it on: export it on every host before",
        [HS_LAUNCHER_SLURM] = "srun passes it on",
    };
    return hs_fail(
        HS_ECONFIG,
        "these processes would meet at %s, which is not the loopback address, and without a secret whatever reaches it "
        "could take part.  Make one, in a file that all hosts see:  (umask 077; head -c 32 /dev/urandom | base64 "
        ">~/halfstep-secret); export HALFSTEP_SECRET_FILE=~/halfstep-secret  and start again: %s.  Processes of one "
        "host "
        "need none with %s",
        launched->addresses[0] ? launched->addresses : "several hosts", passes_on[launched->launcher],
        launched->launcher == HS_LAUNCHER_MPI ? "mpirun on that host alone" : "MASTER_ADDR=127.0.0.1");
}

/* Without a secret on the loopback address alone, whatever name the launcher has for this host. */
static HsStatus choose_address(HsLaunched *launched, const HsSecret *secret)
{
    if (secret->known || hs_wire_is_loopback(launched->addresses))
        return HS_OK;
    if (!launched->one_host)
        return refuse_open(launched);
    snprintf(launched->addresses, sizeof launched->addresses, "127.0.0.1");
    return HS_OK;
}

static HsStatus meet(const HsConfig *config, const HsLaunched *launched, const HsSecret *secret)
{
    const char *transport = config->distributed.transport;
    HsHubOptions options = { .rank = launched->rank,
                             .size = launched->size,
                             .addresses = launched->addresses,
                             .listen_at = launched->addresses,
                             .secret = secret,
                             .port = launched->port,
                             .ports = launched->ports,
                             .run = launched->run,
                             .join_s = config->distributed.join };
    if (strcmp(transport, "mpi") == 0)
        return hs_fail(HS_ECONFIG, "distributed.transport is mpi: start the processes with mpirun");
    HS_TRY(hash_configuration(config, &options.configuration));
    HS_TRY(hs_hub_join(&options, &joined.hub));
    const bool one_host = on_one_host(joined.hub, launched->size);
    if (strcmp(transport, "tcp") == 0 || (!one_host && strcmp(transport, "auto") == 0))
        return use_tcp(config, &options);
    if (!one_host)
        return fail_hosts(joined.hub, launched->size);
    return share_segment(config, joined.hub, launched->rank, launched->size);
}

static HsStatus use_hub(const HsConfig *config, HsLaunched *launched)
{
    HsSecret secret;
    HsStatus status = hs_secret_read(&secret);
    if (status == HS_OK)
        status = choose_address(launched, &secret);
    if (status == HS_OK)
        status = meet(config, launched, &secret);
    hs_secret_forget(&secret);
    return status;
}

/* Where rank 0 is, sent by MPI itself; on one host with a secret for this start. */
typedef struct Meeting {
    int64_t port, number;
    HsSecret secret;
    char addresses[240];
} Meeting;

/* Whether all ranks run on one machine, exchanged by MPI. */
static HsStatus is_one_machine(HsComm *mpi, bool *one)
{
    uint64_t machine[2] = { hs_hub_machine(), 0 }; /* the lowest and the highest of all, by one maximum */
    int64_t bounds[2] = { (int64_t)(machine[0] >> 1), -(int64_t)(machine[0] >> 1) };
    HS_TRY(hs_comm_all_reduce(mpi, NULL, bounds, 2, HS_I64, HS_COMM_MAX));
    *one = bounds[0] == -bounds[1];
    return HS_OK;
}

/* Rank 0's part, before the others know of it. */
static HsStatus open_meeting(HsHubOptions *options, bool one_host, Meeting *meeting)
{
    int port = 0;
    HS_TRY(hs_hub_listen(options, &joined.hub, &port));
    meeting->port = port;
    meeting->number = (int64_t)getpid() << 32 ^ (int64_t)time(NULL);
    if (one_host)
        snprintf(meeting->addresses, sizeof meeting->addresses, "127.0.0.1");
    else
        hs_hub_own_addresses(meeting->addresses, sizeof meeting->addresses);
    return HS_OK;
}

static HsStatus meet_by_mpi(const HsConfig *config, HsSecret *secret, const HsLaunched *launched)
{
    HsComm *mpi = joined.mpi;
    Meeting meeting = { 0 };
    bool one_host;
    char run[64];
    HS_TRY(is_one_machine(mpi, &one_host));
    if (!one_host && !secret->known)
        return refuse_open(launched);
    const bool make_secret = !secret->known;
    HsHubOptions options = { .rank = mpi->rank,
                             .size = mpi->size,
                             .listen_at = one_host ? "127.0.0.1" : NULL,
                             .secret = secret,
                             .ports = 1,
                             .join_s = config->distributed.join };
    HS_TRY(hash_configuration(config, &options.configuration));
    HsStatus status = mpi->rank == 0 && make_secret ? hs_secret_make(&meeting.secret) : HS_OK;
    if (status == HS_OK && mpi->rank == 0)
        status = open_meeting(&options, one_host, &meeting);
    const HsStatus sent = hs_comm_broadcast(mpi, NULL, &meeting, sizeof meeting, HS_U8, 0);
    if (make_secret)
        *secret = meeting.secret;
    hs_secret_forget(&meeting.secret);
    HS_TRY(status);
    HS_TRY(sent);
    snprintf(run, sizeof run, "mpi.%llx", (unsigned long long)meeting.number);
    if (joined.hub) /* made before its name was known */
        hs_hub_rename(joined.hub, run);
    options.run = run;
    options.port = (int)meeting.port;
    options.addresses = meeting.addresses;
    return hs_hub_join(&options, &joined.hub);
}

static HsStatus use_mpi(const HsConfig *config, const HsLaunched *launched)
{
    const HsMpiPart *part;
    HS_TRY(hs_mpi_part_open(&part));
    HS_TRY(part->init(&joined.mpi));
    HsComm *mpi = joined.mpi;
    if (mpi->size != launched->size || mpi->rank != launched->rank)
        return hs_fail(HS_ECONFIG,
                       "%s makes this process %d of %d, and the MPI library that make mpi found, %d of %d: it is not "
                       "the one of this "
                       "mpirun; build again with this mpirun's mpicc (make mpi MPICC=...)",
                       launched->rank_from, launched->rank, launched->size, mpi->rank, mpi->size);
    HsSecret secret;
    HsStatus status = hs_secret_read(&secret);
    if (status == HS_OK)
        status = meet_by_mpi(config, &secret, launched);
    hs_secret_forget(&secret);
    HS_TRY(status);
    const char *transport = config->distributed.transport;
    const bool one_host = on_one_host(joined.hub, mpi->size);
    if (strcmp(transport, "tcp") == 0)
        return hs_fail(HS_ECONFIG, "distributed.transport is tcp, and mpirun started this: use mpi, shared or auto");
    if (one_host && strcmp(transport, "mpi") != 0)
        return share_segment(config, joined.hub, mpi->rank, mpi->size);
    if (strcmp(transport, "shared") == 0)
        return fail_hosts(joined.hub, mpi->size);
    const HsCommGuard guard = guard_by_hub(config);
    count_neighbours(mpi, joined.hub);
    part->set_guard(mpi, &guard);
    joined.comm = mpi;
    joined.guarded = true;
    return hs_hub_watch(joined.hub, mpi);
}

HsStatus hs_launch_join(const HsConfig *config, HsComm **comm)
{
    HsLaunched launched;
    HsStatus status = HS_OK;
    *comm = joined.comm = hs_comm_alone();
    HS_TRY(hs_comm_fault_read());
    HS_TRY(hs_launched_find(config->distributed.launch, config->distributed.address, &launched));
    lower_voice(launched.rank);
    if (launched.launcher == HS_LAUNCHER_PROCESSES)
        status = join_as_child(config, &launched);
    else if (launched.size > 1 && launched.launcher == HS_LAUNCHER_MPI)
        status = use_mpi(config, &launched);
    else if (launched.size > 1)
        status = use_hub(config, &launched);
    if (status != HS_OK) {
        hs_launch_leave(status);
        return status;
    }
    *comm = joined.comm;
    if ((*comm)->size > 1)
        hs_info("processes: %d, by %s", (*comm)->size, hs_comm_name(*comm));
    /* Shared memory has its own heartbeats. */
    if (joined.hub && !joined.guarded) {
        hs_hub_destroy(joined.hub);
        joined.hub = NULL;
    }
    return HS_OK;
}

HsStatus hs_launch_count(const HsConfig *config, int *size)
{
    HsLaunched launched;
    HS_TRY(hs_launched_find(config->distributed.launch, config->distributed.address, &launched));
    *size = launched.size;
    return HS_OK;
}

void hs_launch_leave(HsStatus status)
{
    const bool failed = status != HS_OK && status != HS_EINTERRUPTED;
    char message[1024]; /* of `status`: what fails while leaving says less */
    snprintf(message, sizeof message, "%s", hs_error_message());
    if (failed && joined.comm)
        hs_comm_abort(joined.comm, hs_error_message());
    if (joined.comm != joined.mpi)
        hs_comm_destroy(joined.comm);
    /* mpirun ends the others as soon as one has failed: this long they have for their messages. */
    const struct timespec moment = { .tv_sec = 1 };
    if (failed && joined.mpi)
        nanosleep(&moment, NULL);
    else
        hs_comm_destroy(joined.mpi);
    hs_hub_destroy(joined.hub);
    joined = (Joined){ 0 };
    if (status != HS_OK)
        (void)hs_fail(status, "%s", message);
}
