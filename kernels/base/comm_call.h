/* SPDX-License-Identifier: MIT
 *
 * A rank's call, as the others see it: communicators compare these before they touch a buffer, so that ranks with
 * different calls get an error and not a wrong sum.
 */
#ifndef HS_KERNELS_BASE_COMM_CALL_H
#define HS_KERNELS_BASE_COMM_CALL_H

#include "kernels/base/comm.h"

/* It has no padding and no pointers: it may lie in shared memory or travel as bytes. */
typedef struct HsCommCall {
    char operation[16];
    uint64_t count;           /* elements of the whole buffer */
    uint64_t ranges;          /* hash of `starts`; 0: none */
    int32_t dtype, attribute; /* the attribute: op or root */
} HsCommCall;

HsCommCall hs_comm_call(const char *operation, size_t count, HsDtype dtype, int attribute);
HsCommCall hs_comm_call_ranges(const char *operation, const size_t *starts, int size, HsDtype dtype);
bool hs_comm_same_call(const HsCommCall *a, const HsCommCall *b);
/* HS_EDEVICE, naming rank 0's call and that of `rank`. */
HsStatus hs_comm_fail_calls(const HsCommCall *first, int rank, const HsCommCall *other);

#endif
