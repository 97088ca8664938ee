/* SPDX-License-Identifier: MIT
 *
 * Planted faults, see comm_fault.h.
 */
#include "kernels/base/comm_fault.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    bool planted;
    int rank;
    long long step;
    char what[16];
    double seconds;
} fault;

HsStatus hs_comm_fault_read(void)
{
    const char *text = getenv("HALFSTEP_FAULT");
    int used = 0;
    fault.planted = false;
    if (!text || !*text)
        return HS_OK;
    const int fields = sscanf(text, "rank=%d,step=%lld,do=%15[a-z]%n:%lf%n", &fault.rank, &fault.step, fault.what,
                              &used, &fault.seconds, &used);
    const bool delays = strcmp(fault.what, "delay") == 0;
    const bool known =
        strcmp(fault.what, "kill") == 0 || strcmp(fault.what, "stop") == 0 || strcmp(fault.what, "exit") == 0 || delays;
    if (fields != 3 + delays || !known || text[used] != '\0')
        return hs_fail(HS_ECONFIG, "HALFSTEP_FAULT=%s should be rank=R,step=S,do=kill|stop|exit|delay:SECONDS", text);
    fault.planted = true;
    return HS_OK;
}

void hs_comm_fault_strike(const HsComm *comm, int64_t step)
{
    if (!fault.planted || fault.rank != comm->rank || fault.step != step)
        return;
    fault.planted = false;
    if (strcmp(fault.what, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(fault.what, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(fault.what, "exit") == 0)
        _exit(3);
    else {
        struct timespec left = { .tv_sec = (time_t)fault.seconds,
                                 .tv_nsec = (long)((fault.seconds - (double)(time_t)fault.seconds) * 1e9) };
        while (nanosleep(&left, &left) != 0)
            ;
    }
}
