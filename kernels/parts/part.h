/* SPDX-License-Identifier: MIT
 *
 * A backend as a separate part: libhalfstep-cuda.so and libhalfstep-emu.so, shared objects that a program opens when a
 * device asks for them.  A part exports one function, hs_backend_part, and takes every other hs_* function from the
 * program, so that program and part have to come from the same sources.
 */
#ifndef HS_KERNELS_PARTS_PART_H
#define HS_KERNELS_PARTS_PART_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/base/comm_nccl.h"
#include "kernels/base/hash.h"
#include "kernels/ops/backend.h"
#include "kernels/tuning/tuning.h"

typedef struct HsBackendPart {
    uint64_t layout; /* hs_part_layout() as the part was compiled; it stays the first member */
    const char *name;
    /* HALFSTEP_MULTIPROCESSORS=N: work is laid out as for a GPU of N multiprocessors, so that kernels which continue
     * from tile to tile do so on small problems (N small), or as they will on a large GPU (N large); N is part of the
     * description.  errors: HS_EUNSUPPORTED with the reason (no driver, no GPU, too old a GPU or driver, no cuBLASLt
     * library), HS_ECONFIG for what this GPU has no use for (options->hopper on another than compute capability 9.0) or
     * a wrong N. */
    HsStatus (*device_init)(HsDevice *device, const HsCudaOptions *options);
    const HsBackend *backend; /* works on devices of device_init */
    const HsTuner *tuner;
    /* Predicted times of the GPU kernels, as Markdown.  errors: HS_EIO */
    HsStatus (*write_predictions)(FILE *out);
    /* From now on `observer` is called for every launch (NULL: none is); parts for GPUs do not have it (NULL). */
    void (*observe_launches)(HsLaunchObserver *observer);
    /* Between GPUs (kernels/base/comm_nccl.h): an id for a new communicator, and this rank's end of one, which works on
     * buffers of `device` and watches its waits, is destroyed before it (hs_comm_destroy), and returns when all ranks
     * have come.  One communicator a device.
     * errors: HS_EUNSUPPORTED where NCCL is not there or too old, saying what to install; HS_EINVAL: the options;
     * HS_EDEVICE: NCCL's, with its words; another rank's failure, with that one's; timeout_s is over */
    HsStatus (*comm_id)(unsigned char id[HS_COMM_NCCL_ID_BYTES]);
    HsStatus (*comm_create)(HsDevice *device, const HsCommNcclOptions *options, HsComm **comm);
} HsBackendPart;

/* Raised when a member changes its meaning but not its size. */
enum { HS_PART_VERSION = 3 };

/* What program and part have to agree on: the sizes of what passes between them, in a fixed order. */
static inline uint64_t hs_part_layout(void)
{
    uint64_t layout = hs_hash_number(HS_HASH_START, HS_PART_VERSION);
    layout = hs_hash_number(layout, sizeof(HsBackendPart));
    layout = hs_hash_number(layout, sizeof(HsBackend));
    layout = hs_hash_number(layout, sizeof(HsDevice));
    layout = hs_hash_number(layout, sizeof(HsContext));
    layout = hs_hash_number(layout, sizeof(HsTensor));
    layout = hs_hash_number(layout, sizeof(HsCudaOptions));
    layout = hs_hash_number(layout, sizeof(HsComm));
    layout = hs_hash_number(layout, sizeof(HsCommOperations));
    layout = hs_hash_number(layout, sizeof(HsCommNcclOptions));
    layout = hs_hash_number(layout, sizeof(HsTuner));
    layout = hs_hash_number(layout, sizeof(HsTuningTable));
    layout = hs_hash_number(layout, sizeof(HsTuningRow));
    /* What arguments only point to. */
    layout = hs_hash_number(layout, sizeof(HsPacked));
    layout = hs_hash_number(layout, sizeof(HsStepInput));
    layout = hs_hash_number(layout, sizeof(HsStepState));
    layout = hs_hash_number(layout, sizeof(HsStepScalars));
    layout = hs_hash_number(layout, sizeof(HsStepOutcome));
#define HS_PART_ARGS(name, Args, formula) layout = hs_hash_number(hs_hash_number(layout, sizeof #name), sizeof(Args));
    HS_OPS(HS_PART_ARGS)
#undef HS_PART_ARGS
    return layout;
}

/* What a part exports. */
const HsBackendPart *hs_backend_part(void);

/* Opens the part of a backend, "cuda" or "emu"; it stays open until the process ends.  It is looked for where the
 * program's own RPATH says: next to it, or in ../lib/halfstep.
 * errors: HS_EUNSUPPORTED where it was not built, naming the command that builds it; where it cannot be opened, with the
 * reason; where it comes from another build */
HsStatus hs_part_open(const char *name, const HsBackendPart **part);

#endif
