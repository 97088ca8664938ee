/* SPDX-License-Identifier: MIT
 *
 * A communicator of devices for processes that have one of hosts already.
 */
#ifndef HS_KERNELS_PARTS_COMM_H
#define HS_KERNELS_PARTS_COMM_H

#include "kernels/parts/part.h"

typedef struct HsPartCommOptions {
    bool exact;
    size_t scratch_bytes; /* as in HsCommNcclOptions */
    double timeout_s;
} HsPartCommOptions;

/* Joins the device of each rank of `host`, in its numbering; every rank calls it.  Over `host` goes the id; while a rank
 * waits for its device it looks after `host`, and when it gives up it aborts `host` with the reason.  `host` outlives
 * what is made, and stays usable; hs_comm_destroy, before the device's deinit, ends what is made.
 * errors: those of HsBackendPart.comm_id and comm_create; a rank on which this fails has to abort `host`, as another one
 * may wait in it */
HsStatus hs_part_comm_create(const HsBackendPart *part, HsDevice *device, HsComm *host,
                             const HsPartCommOptions *options, HsComm **comm);

#endif
