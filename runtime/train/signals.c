/* SPDX-License-Identifier: MIT
 *
 * Signals that ask a run to save and stop.
 */
#include "runtime/train/signals.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "kernels/base/stop_signals.h"

#define STOP_SIGNAL(number) { number, #number },
static const struct {
    int number;
    const char *name;
} stop_signals[] = { HS_STOP_SIGNALS(STOP_SIGNAL) };
enum { STOP_SIGNALS = sizeof stop_signals / sizeof *stop_signals };

static volatile sig_atomic_t stop_signal;
/* This process had one itself: stop_signal may be another's, of the same run, and its own may come later. */
static volatile sig_atomic_t received;
/* Whether there is something to save: before, and the second time, a signal ends the process as it does by default. */
static volatile sig_atomic_t stops_in_order;

static const char *signal_name(int number)
{
    for (int i = 0; i < STOP_SIGNALS; i++)
        if (stop_signals[i].number == number)
            return stop_signals[i].name;
    return "a signal";
}

/* Only what may be called in a signal's handler. */
static void say(const char *text)
{
    (void)!write(STDERR_FILENO, text, strlen(text));
}

static void on_signal(int number)
{
    const bool known = stop_signal != 0;
    if (received || !stops_in_order) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    received = 1;
    if (!known)
        stop_signal = number;
    if (known || !hs_log_shows(HS_LOG_INFO)) /* the other processes of a run leave the talking to the first */
        return;
    say("\n");
    say(signal_name(number));
    say(": saving, then leaving; once more: leaving at once\n");
}

void hs_run_install_signals(bool from_the_start)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    stops_in_order = from_the_start;
    for (int i = 0; i < STOP_SIGNALS; i++)
        sigaction(stop_signals[i].number, &action, NULL);
    /* The reader of the log has gone: that is no reason to stop training. */
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

int hs_run_stop_signal(void)
{
    return (int)stop_signal;
}

const char *hs_run_stop_name(void)
{
    return signal_name((int)stop_signal);
}

bool hs_run_stop_asked(void)
{
    return stop_signal != 0;
}

void hs_run_stop_in_order(void)
{
    stops_in_order = 1;
}

void hs_run_stop_by(int number)
{
    if (stop_signal)
        return;
    stop_signal = (sig_atomic_t)number;
    hs_info("%s to another process of this run: saving, then leaving", signal_name(number));
}
