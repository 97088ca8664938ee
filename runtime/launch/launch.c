/* SPDX-License-Identifier: MIT
 *
 * Who this process is among those that were started together, and its communicator.
 */
#include "runtime/launch/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/base/comm_shared.h"
#include "kernels/base/log.h"

/* How long those started on one host may take to come: each reads the configuration before. */
static const double join_s = 120;

bool hs_launch_is_child(void)
{
    return getenv("HALFSTEP_RANK") && getenv("HALFSTEP_SEGMENT");
}

static HsStatus number_of(const char *name, int least, int most, int *number)
{
    const char *text = getenv(name);
    char *end = NULL;
    const long value = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end != '\0' || value < least || value > most)
        return hs_fail(HS_ECONFIG, "the environment variable %s is %s, and should be a number from %d to %d", name,
                       text ? text : "not set", least, most);
    *number = (int)value;
    return HS_OK;
}

/* One voice. */
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

static HsStatus join_as_child(const HsConfig *config, HsComm **comm)
{
    int rank, size, descriptor;
    HS_TRY(number_of("HALFSTEP_PROCESSES", 1, 1024, &size));
    HS_TRY(number_of("HALFSTEP_RANK", 0, size - 1, &rank));
    HS_TRY(number_of("HALFSTEP_SEGMENT", 0, 1 << 20, &descriptor));
    lower_voice(rank);
    if (size == 1)
        return HS_OK;
    const HsCommSharedOptions options = { .join_s = join_s, .timeout_s = config->distributed.timeout };
    HS_TRY(hs_comm_shared_join(descriptor, rank, &options, comm));
    close(descriptor);
    return HS_OK;
}

HsStatus hs_launch_join(const HsConfig *config, HsComm **comm)
{
    *comm = hs_comm_alone();
    if (!hs_launch_is_child())
        return HS_OK;
    const HsStatus status = join_as_child(config, comm);
    if (status != HS_OK)
        return status;
    if ((*comm)->size > 1)
        hs_info("processes: %d, by %s", (*comm)->size, hs_comm_name(*comm));
    return HS_OK;
}
