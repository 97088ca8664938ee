/* SPDX-License-Identifier: MIT
 *
 * Signals that ask a run to save and stop.
 */
#ifndef HS_RUNTIME_TRAIN_SIGNALS_H
#define HS_RUNTIME_TRAIN_SIGNALS_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the loop to save and stop, within a step; a line on the standard
 * error says so at once.  A second one ends the process at once, and so does the first before hs_run_train, when
 * there is nothing to save yet, unless `from_the_start`: then the caller looks after all of them.  SIGPIPE is ignored.
 */
void hs_run_install_signals(bool from_the_start);
bool hs_run_stop_asked(void);
/* Which signal asked; 0: none. */
int hs_run_stop_signal(void);
const char *hs_run_stop_name(void); /* "SIGTERM" */
/* From now on there is something to save: the first signal asks. */
void hs_run_stop_in_order(void);
/* Another process of the run was asked by this signal; nothing where this one was, too. */
void hs_run_stop_by(int number);

#endif
