/* SPDX-License-Identifier: MIT
 *
 * The one clock for durations.
 */
#ifndef HS_KERNELS_BASE_CLOCK_H
#define HS_KERNELS_BASE_CLOCK_H

#include <time.h>

/* Seconds since some fixed moment; never set back. */
static inline double hs_clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
