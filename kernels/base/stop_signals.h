/* SPDX-License-Identifier: MIT
 *
 * The signals after which a run saves what it has and ends.
 */
#ifndef HS_KERNELS_BASE_STOP_SIGNALS_H
#define HS_KERNELS_BASE_STOP_SIGNALS_H

#include <signal.h>

/* X(the signal) */
#define HS_STOP_SIGNALS(X) X(SIGINT) X(SIGTERM) X(SIGHUP) X(SIGUSR1)

/* Their numbers, each with a comma behind it. */
#define HS_STOP_SIGNAL_NUMBER(number) number,
#define HS_STOP_SIGNAL_NUMBERS        HS_STOP_SIGNALS(HS_STOP_SIGNAL_NUMBER)

#endif
