/* SPDX-License-Identifier: MIT
 *
 * Launchers and their variables:
 *
 *     --processes    HALFSTEP_RANK, HALFSTEP_PROCESSES
 *     Open MPI       OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
 *     Hydra (MPICH)  PMI_RANK, PMI_SIZE
 *     torchrun       RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; TORCHELASTIC_USE_AGENT_STORE: its own store has that port
 *     srun           SLURM_PROCID, SLURM_NTASKS; with an MPI's PMIX_RANK too.  A batch script's shell has them as well,
 *                    and is one process: hence they count only where they are asked for, or an MPI step says the rank
 *
 * A variable without its partner is no launcher's.
 */
#include "runtime/launch/environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/launch/hub.h"

typedef struct Row {
    HsLauncher launcher;
    const char *rank, *size, *too; /* too: a third one that has to be there; NULL: none */
} Row;

static const Row rows[] = {
    { HS_LAUNCHER_PROCESSES, "HALFSTEP_RANK", "HALFSTEP_PROCESSES", "HALFSTEP_SEGMENT" },
    { HS_LAUNCHER_TORCHRUN, "RANK", "WORLD_SIZE", NULL },
    { HS_LAUNCHER_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL },
    { HS_LAUNCHER_MPI, "PMI_RANK", "PMI_SIZE", NULL },
    { HS_LAUNCHER_MPI, "SLURM_PROCID", "SLURM_NTASKS", "PMIX_RANK" },
    { HS_LAUNCHER_SLURM, "SLURM_PROCID", "SLURM_NTASKS", NULL },
};
enum { ROWS = sizeof rows / sizeof *rows };

static HsStatus number_of(const char *name, long least, long most, int *number)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long value = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end != '\0' || value < least || value > most)
        return hs_fail(HS_ECONFIG, "the environment variable %s is %s, and should be a number from %ld to %ld", name,
                       text ? text : "not set", least, most);
    *number = (int)value;
    return HS_OK;
}

static bool is_set(const Row *row)
{
    return getenv(row->rank) && getenv(row->size) && (!row->too || getenv(row->too));
}

/* Whether a row counts under distributed.launch. */
static bool is_meant(const Row *row, const char *choice)
{
    static const char *const names[] = {
        [HS_LAUNCHER_MPI] = "mpi", [HS_LAUNCHER_TORCHRUN] = "torchrun", [HS_LAUNCHER_SLURM] = "slurm"
    };
    if (row->launcher == HS_LAUNCHER_PROCESSES)
        return true;
    if (strcmp(choice, "auto") == 0)
        return row->launcher != HS_LAUNCHER_SLURM;
    return strcmp(choice, names[row->launcher]) == 0;
}

static HsStatus read_row(const Row *row, HsLaunched *launched)
{
    HS_TRY(number_of(row->size, 1, 1 << 20, &launched->size));
    HS_TRY(number_of(row->rank, 0, launched->size - 1, &launched->rank));
    launched->launcher = row->launcher;
    launched->rank_from = row->rank;
    return HS_OK;
}

/* "host:port", "[v6]:port" */
static HsStatus read_address(const char *address, HsLaunched *launched)
{
    const char *colon = strrchr(address, ':');
    char *end = NULL;
    const long port = colon ? strtol(colon + 1, &end, 10) : 0;
    if (!colon || colon == address || *end != '\0' || port < 1 || port > 65535 ||
        (size_t)(colon - address) >= sizeof launched->addresses)
        return hs_fail(HS_ECONFIG, "distributed.address: %s should be host:port", address);
    const bool brackets = address[0] == '[' && colon[-1] == ']';
    snprintf(launched->addresses, sizeof launched->addresses, "%.*s", (int)(colon - address) - 2 * brackets,
             address + brackets);
    launched->port = (int)port;
    launched->ports = HS_HUB_PORTS;
    return HS_OK;
}

/* The first host of "node[03-07,9],other": node03. */
static void first_host(const char *list, char *host, size_t bytes)
{
    const size_t plain = strcspn(list, ",[");
    if (list[plain] == '[')
        snprintf(host, bytes, "%.*s%.*s", (int)plain, list, (int)strcspn(list + plain + 1, ",-]"), list + plain + 1);
    else
        snprintf(host, bytes, "%.*s", (int)plain, list);
}

static HsStatus slurm_address(HsLaunched *launched)
{
    const char *list = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID");
    if (!list)
        list = getenv("SLURM_JOB_NODELIST");
    if (!list || !job)
        return hs_fail(HS_ECONFIG,
                       "distributed.launch: slurm: SLURM_JOB_NODELIST and SLURM_JOB_ID are not both set: set "
                       "distributed.address to host:port of process 0");
    first_host(list, launched->addresses, sizeof launched->addresses);
    launched->port = 20000 + (int)(strtol(job, NULL, 10) % 20000);
    launched->ports = HS_HUB_PORTS;
    return HS_OK;
}

static HsStatus find_address(const char *address, HsLaunched *launched)
{
    const char *host = getenv("MASTER_ADDR"), *store = getenv("TORCHELASTIC_USE_AGENT_STORE");
    if (address[0])
        return read_address(address, launched);
    if (!host && launched->launcher == HS_LAUNCHER_SLURM)
        return slurm_address(launched);
    if (!host)
        return hs_fail(
            HS_ECONFIG,
            "%s says that this is one of %d processes, and MASTER_ADDR is not set: set it and MASTER_PORT, or "
            "distributed.address; a process that trains alone: distributed.launch=none",
            launched->rank_from, launched->size);
    int port;
    HS_TRY(number_of("MASTER_PORT", 1, 65535, &port));
    /* torchrun's own store, where it has one, occupies the port that is set. */
    launched->port = port + (store && strcmp(store, "True") == 0);
    launched->ports = HS_HUB_PORTS;
    const size_t length = strlen(host);
    const bool brackets = length > 2 && host[0] == '[' && host[length - 1] == ']';
    snprintf(launched->addresses, sizeof launched->addresses, "%.*s", (int)length - 2 * brackets, host + brackets);
    return HS_OK;
}

/* Not those of an earlier attempt, or of another job on the same host. */
static void name_run(HsLaunched *launched)
{
    static const char *const parts[] = { "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID",
                                         "SLURM_STEP_ID" };
    size_t used = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && used < sizeof launched->run; i++) {
        const char *text = getenv(parts[i]);
        if (text)
            used += (size_t)snprintf(launched->run + used, sizeof launched->run - used, "%s%.30s", used > 0 ? "." : "",
                                     text);
    }
    if (used == 0)
        snprintf(launched->run, sizeof launched->run, "run");
}

/* By what the launcher says: as many processes here as in all, or one host. */
static bool is_one_host(const HsLaunched *launched)
{
    const char *local = getenv("LOCAL_WORLD_SIZE"), *hosts = getenv("SLURM_STEP_NUM_NODES");
    if (launched->launcher == HS_LAUNCHER_TORCHRUN)
        return local && strtol(local, NULL, 10) == launched->size;
    return launched->launcher == HS_LAUNCHER_SLURM && hosts && strcmp(hosts, "1") == 0;
}

HsStatus hs_launched_find(const char *choice, const char *address, HsLaunched *launched)
{
    *launched = (HsLaunched){ .rank = 0, .size = 1 };
    if (strcmp(choice, "none") == 0)
        return HS_OK;
    for (int i = 0; i < ROWS; i++) {
        HsLaunched other = { 0 };
        if (!is_meant(&rows[i], choice) || !is_set(&rows[i]))
            continue;
        if (launched->launcher == HS_LAUNCHER_NONE) {
            HS_TRY(read_row(&rows[i], launched));
            if (launched->launcher == HS_LAUNCHER_PROCESSES)
                return HS_OK;
            continue;
        }
        HS_TRY(read_row(&rows[i], &other));
        if (other.rank != launched->rank || other.size != launched->size)
            return hs_fail(HS_ECONFIG,
                           "%s makes this process %d of %d, and %s %d of %d: unset one, or say which counts by "
                           "distributed.launch",
                           launched->rank_from, launched->rank, launched->size, rows[i].rank, other.rank, other.size);
    }
    const bool asked = strcmp(choice, "auto") != 0;
    if (launched->launcher == HS_LAUNCHER_NONE && asked)
        return hs_fail(
            HS_ECONFIG,
            "distributed.launch is %s, and no %s started this process: start it so, or set distributed.launch=auto",
            choice,
            strcmp(choice, "mpi") == 0     ? "mpirun"
            : strcmp(choice, "slurm") == 0 ? "srun"
                                           : choice);
    name_run(launched);
    if (launched->size > 1 && (launched->launcher == HS_LAUNCHER_TORCHRUN || launched->launcher == HS_LAUNCHER_SLURM))
        HS_TRY(find_address(address, launched));
    launched->one_host = is_one_host(launched);
    return HS_OK;
}
