/* SPDX-License-Identifier: MIT
 *
 * Faults that tests plant into one rank of a run: HALFSTEP_FAULT=rank=2,step=17,do=kill|stop|exit|delay:SECONDS.  They
 * strike as the rank notes that step.
 */
#ifndef HS_KERNELS_BASE_COMM_FAULT_H
#define HS_KERNELS_BASE_COMM_FAULT_H

#include "kernels/base/comm.h"

/* Reads the variable; where it is not set, nothing is planted.  errors: HS_ECONFIG for another form */
HsStatus hs_comm_fault_read(void);
void hs_comm_fault_strike(const HsComm *comm, int64_t step);

#endif
