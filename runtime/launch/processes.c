/* SPDX-License-Identifier: MIT
 *
 * The parent of `--processes N`: it makes the shared memory, starts this program N times and waits.  It has no threads,
 * holds all signals back and takes one after another.
 *
 *     a signal that stops    to every process; they agree, save and leave, and a second one ends them at once
 *     SIGTSTP                stops them all, then this one; SIGCONT continues them
 *     a process that failed  the others learn of it from the shared memory at once, and have some seconds to leave
 *
 * Each process is in its own group: what a terminal sends comes to this one alone, which sends it once to each.  Should
 * this one die, the system kills them (PR_SET_PDEATHSIG).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/base/clock.h"
#include "kernels/base/comm_shared.h"
#include "kernels/base/log.h"
#include "kernels/base/stop_signals.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/spawn.h"

/* After the first failure the others leave by themselves; there is nothing that they would save.  Those that are
 * stopped, or in the middle of a long computation, are killed after this time. */
static const double grace_s = 5;

/* Taken by this process, or by one of the others, which passed it on. */
static int stop_signal;

typedef struct Processes {
    int size, alive, descriptor;
    pid_t *ids; /* 0: has ended */
    int failed; /* rank of the first that failed; -1: none */
    int failed_status;
    double failed_s;
    bool wrong_configuration, killed_rest;
} Processes;

int hs_launch_stop_signal(void)
{
    return stop_signal;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

typedef struct Rank {
    const Processes *processes;
    int rank;
} Rank;

/* In the child, before it is a trainer. */
static void prepare(void *user)
{
    const Rank *rank = user;
    signal(SIGTTOU, SIG_IGN); /* a progress bar is drawn although another group has the terminal */
    set_number("HALFSTEP_RANK", rank->rank);
    set_number("HALFSTEP_PROCESSES", rank->processes->size);
    set_number("HALFSTEP_SEGMENT", rank->processes->descriptor);
}

static void signal_all(const Processes *processes, int number)
{
    for (int r = 0; r < processes->size; r++)
        if (processes->ids[r] > 0)
            kill(processes->ids[r], number);
}

/* The signal after which it saved and left, whichever process got it; 0: it ended otherwise. */
static int left_by(int status)
{
    static const int signals[] = { HS_STOP_SIGNAL_NUMBERS };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (WIFEXITED(status) && WEXITSTATUS(status) == 128 + signals[i])
            return signals[i];
    return 0;
}

static void note_end(Processes *processes, int rank, int status)
{
    const int signal_of_it = left_by(status);
    processes->ids[rank] = 0;
    processes->alive--;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
        processes->wrong_configuration = true;
    if (!stop_signal)
        stop_signal = signal_of_it;
    if (status == 0 || signal_of_it)
        return;
    char how[96];
    hs_comm_shared_report(processes->descriptor, rank, hs_spawn_end(status, how, sizeof how));
    if (processes->failed >= 0)
        return;
    processes->failed = rank;
    processes->failed_status = status;
    processes->failed_s = hs_clock_s();
}

static void collect(Processes *processes)
{
    int status;
    for (pid_t id; (id = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int r = 0; r < processes->size; r++)
            if (processes->ids[r] == id)
                note_end(processes, r, status);
}

static void pause_all(const Processes *processes)
{
    signal_all(processes, SIGSTOP);
    raise(SIGSTOP);
    signal_all(processes, SIGCONT);
}

static void wait_for_all(Processes *processes, const sigset_t *taken)
{
    const struct timespec second = { .tv_sec = 1 };
    while (processes->alive > 0) {
        const int number = sigtimedwait(taken, NULL, &second);
        if (number == SIGTSTP)
            pause_all(processes);
        else if (number > 0 && number != SIGCHLD) {
            stop_signal = number;
            signal_all(processes, number);
        }
        collect(processes);
        if (processes->failed >= 0 && !processes->killed_rest && hs_clock_s() - processes->failed_s > grace_s) {
            signal_all(processes, SIGKILL);
            processes->killed_rest = true;
        }
    }
}

static HsStatus start_all(Processes *processes, const sigset_t *signals, char **arguments)
{
    for (int r = 0; r < processes->size; r++) {
        Rank rank = { processes, r };
        HS_TRY(hs_spawn(&(HsSpawn){ .arguments = arguments,
                                    .orphan_signal = SIGKILL,
                                    .output = -1,
                                    .given = processes->descriptor,
                                    .signals = signals,
                                    .prepare = prepare,
                                    .user = &rank },
                        &processes->ids[r]));
        processes->alive++;
    }
    return HS_OK;
}

static HsStatus result_of(const Processes *processes)
{
    char how[96], reason[512] = "";
    const int size = processes->size;
    if (processes->failed < 0)
        return stop_signal == 0 ? HS_OK
                                : hs_fail(HS_EINTERRUPTED, "%d processes: asked to stop by signal %d (%s)", size,
                                          stop_signal, strsignal(stop_signal));
    if (stop_signal && WIFSIGNALED(processes->failed_status) && WTERMSIG(processes->failed_status) == stop_signal)
        return hs_fail(HS_EINTERRUPTED, "%d processes: stopped by signal %d (%s)", size, stop_signal,
                       strsignal(stop_signal));
    const HsStatus code = processes->wrong_configuration ? HS_ECONFIG : HS_EDEVICE;
    /* Ends may be seen in another order than failures were. */
    if (hs_comm_shared_reason(processes->descriptor, reason, sizeof reason) == HS_OK && reason[0])
        return hs_fail(code, "%d processes: %s", size, reason);
    return hs_fail(code, "%d processes: rank %d %s", size, processes->failed,
                   hs_spawn_end(processes->failed_status, how, sizeof how));
}

/* All processes once, from their start to the end of the last. */
static HsStatus run_once(const HsLaunch *launch, const sigset_t *taken, const sigset_t *signals, char **arguments)
{
    const int size = launch->processes > 0 ? launch->processes : 1;
    const HsCommSharedOptions options = { 0 };
    Processes processes = { .size = size, .descriptor = -1, .failed = -1 };
    processes.ids = calloc((size_t)size, sizeof *processes.ids);
    if (!processes.ids)
        return hs_fail(HS_ENOMEM, "no memory for %d processes", size);
    HsStatus status = hs_comm_shared_make(size, &options, &processes.descriptor);
    if (status == HS_OK) {
        status = start_all(&processes, signals, arguments);
        if (status != HS_OK)
            signal_all(&processes, SIGKILL);
        wait_for_all(&processes, taken);
        if (status == HS_OK)
            status = result_of(&processes);
        close(processes.descriptor);
    }
    free(processes.ids);
    return status;
}

/* The command line again, in its order; `last` behind it and in place of words that set the same key, NULL: nothing. */
static char **make_arguments(const HsLaunch *launch, char *last)
{
    static char program[] = "trainer", command[] = "train";
    char **arguments = calloc((size_t)launch->count + 4, sizeof *arguments);
    if (arguments) {
        arguments[0] = program;
        arguments[1] = command;
        int count = 2;
        for (int i = 0; i < launch->count; i++)
            if (!last || strncmp(launch->arguments[i], last, strcspn(last, "=") + 1) != 0)
                arguments[count++] = launch->arguments[i];
        arguments[count] = last;
    }
    return arguments;
}

HsStatus hs_launch_processes(const HsConfig *config, const HsLaunch *launch)
{
    static char go_on[] = "resume=auto";
    static const int held[] = { HS_STOP_SIGNAL_NUMBERS SIGTSTP, SIGCHLD };
    sigset_t taken, before;
    HsStatus status;
    sigemptyset(&taken);
    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sigaddset(&taken, held[i]);
    signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, ends could not be asked for */
    sigprocmask(SIG_BLOCK, &taken, &before);
    for (int failures = 0;; failures++) {
        /* Where the first start may not find a checkpoint, the later ones do. */
        const bool refuses = failures > 0 && hs_is(config->training.resume, "never");
        char **arguments = make_arguments(launch, refuses ? go_on : NULL);
        status = arguments ? run_once(launch, &taken, &before, arguments)
                           : hs_fail(HS_ENOMEM, "no memory for a command line of %d words", launch->count);
        free(arguments);
        if (status != HS_EDEVICE || failures == launch->restarts || stop_signal)
            break;
        hs_warn("%s; starting all again, %d of %d", hs_error_message(), failures + 1, launch->restarts);
        unsetenv("HALFSTEP_FAULT"); /* it has struck */
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return status;
}
