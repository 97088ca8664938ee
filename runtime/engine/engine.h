/* SPDX-License-Identifier: MIT
 *
 * The engine: which device, backend and threads a command runs on, chosen from `device`, `threads` and the section
 * `kernels`.
 */
#ifndef HS_RUNTIME_ENGINE_ENGINE_H
#define HS_RUNTIME_ENGINE_ENGINE_H

#include "kernels/base/comm.h"
#include "kernels/ops/backend.h"
#include "kernels/parts/part.h"
#include "kernels/tuning/tuning.h"
#include "runtime/config/config.h"
#include "runtime/model/precision.h"

/* kernels.cuda_graph: false, true, auto. */
typedef enum HsGraphUse { HS_GRAPH_NEVER, HS_GRAPH_ALWAYS, HS_GRAPH_WHERE_POSSIBLE } HsGraphUse;

typedef struct HsEngineOptions {
    const char *device;    /* "auto", "cpu", "cuda", "cuda:1", "emu" or "ref" */
    int64_t threads;       /* 0: one a core this process may run on, as its CPU quota allows */
    bool cublaslt;         /* matrix products by cuBLASLt */
    HsHopperUse hopper;    /* what Hopper's kernels serve */
    bool sync_launch;      /* wait after every kernel; where operations run at once there is nothing to wait for */
    bool no_overlap;       /* no kernel begins before the one before it has ended */
    bool unordered;        /* GPUs' blocks add as they come, where that saves waits */
    HsGraphUse cuda_graph; /* whether steps will be recorded and replayed */
    const char *tuning;    /* a table of measured choices of products; NULL or "": none */
    const char *allocator; /* a shared object that serves the device's memory (memory_hooks.h); NULL or "": none */
    const HsCard *card;    /* the emulator lays work out as for it; NULL: as for itself */
    size_t cap_bytes;      /* of the device's memory, for this process; 0: none */
    HsComm *comm;          /* the run's processes, borrowed; NULL: this one alone */
    bool library_sums;     /* GPUs add up in the order of their library, not along the tree */
    double timeout_s;      /* of GPUs' waits for each other; 0: none */
} HsEngineOptions;

typedef struct HsEngine {
    HsDevice device;
    HsContext context;
    HsComm *comm;              /* the run's processes: borrowed, or `devices` */
    HsComm *devices;           /* between the processes' devices; NULL: they exchange in host memory, or are one */
    const HsBackendPart *part; /* NULL: the device's backend is the program's own */
    HsProducts products;
    bool cuda_graph;
    bool emulated;        /* times mean nothing */
    const HsTuner *tuner; /* NULL: this device chooses no kernels by measurement */
    uint64_t tuning_hash; /* of the table in use; 0: none */
    char why[512];        /* "cpu (AMD EPYC, avx512bf16, 2 threads): no NVIDIA driver is installed" */
} HsEngine;

/* What a configuration asks for; borrows its strings. */
HsEngineOptions hs_engine_options(const HsConfig *config);

/* errors: HS_ECONFIG for what the device cannot do, HS_EUNSUPPORTED when it is not there; both say what to change.
 * The caller owns the storage; the context points into it, so it must not be moved afterwards. */
HsStatus hs_engine_init(HsEngine *engine, const HsEngineOptions *options);
/* After everything that was allocated on the device; safe on a zeroed engine and after a failed init. */
void hs_engine_deinit(HsEngine *engine);

#endif
