/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads of one process: the communicator of tests.  Each thread uses the rank that it was given; memory is
 * the host's, and `stream` is not looked at.
 */
#ifndef HS_KERNELS_BASE_COMM_THREADS_H
#define HS_KERNELS_BASE_COMM_THREADS_H

#include "kernels/base/comm.h"

typedef struct HsCommThreads HsCommThreads;

HsStatus hs_comm_threads_create(int size, HsCommThreads **group);
/* After every thread is done with its rank. */
void hs_comm_threads_destroy(HsCommThreads *group);
HsComm *hs_comm_threads_rank(HsCommThreads *group, int rank);

#endif
