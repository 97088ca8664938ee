/* SPDX-License-Identifier: MIT
 *
 * A backend is a row of functions, one per operation of ops.h; a missing one is a link error, never a fallback.
 * Callers use hs_op_<name> (kernels/checks/dispatch.c), which checks shapes first, so that no kernel checks.
 */
#ifndef HS_KERNELS_OPS_BACKEND_H
#define HS_KERNELS_OPS_BACKEND_H

#include "kernels/base/cards.h"
#include "kernels/base/device.h"
#include "kernels/base/status.h"
#include "kernels/ops/cost.h"
#include "kernels/ops/ops.h"

typedef struct HsContext HsContext;

#define HS_OP_MEMBER(name, Args, formula)           HsStatus (*name)(HsContext *, const Args *);
#define HS_OP_WORKSPACE_MEMBER(name, Args, formula) size_t (*name)(const HsContext *, const Args *);
#define HS_OP_REFUSE_MEMBER(name, Args, formula)    HsStatus (*name)(const HsContext *, const Args *);
#define HS_OP_SECONDS_MEMBER(name, Args, formula)   double (*name)(const HsContext *, const Args *);

#define HS_UNCACHED_BYTES ((size_t)1 << 40)

typedef struct HsBackend {
    const char *name; /* "ref", "cpu" */
    HS_OPS(HS_OP_MEMBER)
    /* Scratch bytes an operation needs from context->workspace; a NULL member means none. */
    struct {
        HS_OPS(HS_OP_WORKSPACE_MEMBER)
    } workspace;
    /* HS_EUNSUPPORTED, with the reason, for what the checks allow and this backend does not compute: asked in dry runs
     * too.  A NULL member: it computes everything. */
    struct {
        HS_OPS(HS_OP_REFUSE_MEMBER)
    } refuse;
    /* Seconds by the backend's model of its device, for what more than the bytes of its operands decides; a NULL member:
     * there is no model.  Reads shapes, never data. */
    struct {
        HS_OPS(HS_OP_SECONDS_MEMBER)
    } seconds;
    /* Bytes of a packed k x n right operand; 0: this backend does not pack. */
    size_t (*packed_bytes)(const HsContext *context, HsDtype dtype, int64_t k, int64_t n);
    /* Whether products read the transpose of codes with one scale a tensor from where the codes lie, so that a copy of them
     * across would be of no use; a NULL member: yes. */
    bool (*turns_codes)(const HsContext *context);
    /* Measured peak of products of `dtype`, rounded as the policy says, in operations a second; NULL or 0: unknown. */
    double (*peak_flops)(const HsContext *context, HsDtype dtype, HsProductPolicy policy);
    /* Measured peak of moving memory, in bytes read or written a second; NULL or 0: unknown.  most_bytes: of what is
     * moved and held for it meanwhile; HS_UNCACHED_BYTES or more: as much as no cache holds. */
    double (*peak_bytes)(const HsContext *context, size_t most_bytes);
    /* Calls piece(data, index, thread) for each index below `count` on as many threads, each as it gets free, and waits
     * for them; NULL: the device works on one operation after the other. */
    void (*share_out)(int threads, int count, void (*piece)(void *data, int index, int thread), void *data);
} HsBackend;

/* Named, nested stretches of work, for profilers, traces and the split of a step's time. */
typedef enum HsRangeKind {
    HS_RANGE_STEP, /* one optimizer step, from batch to weights */
    HS_RANGE_DATA, /* the host waits for a batch: host time only */
    HS_RANGE_FORWARD,
    HS_RANGE_HEAD, /* the last layer: logits, loss, and their gradients in one pass */
    HS_RANGE_RECOMPUTE,
    HS_RANGE_BACKWARD,
    HS_RANGE_UPDATE,   /* norms, decisions, the optimizer's pass, which packs weights for the next step */
    HS_RANGE_STRATEGY, /* what continual learning adds */
    HS_RANGE_LAYER,    /* inside the passes: a node of the model's table */
    HS_RANGE_OPERATION /* inside a layer: an operation of ops.h */
} HsRangeKind;

/* Called for every range as its work is enqueued.  cost: of an operation; NULL for the other kinds. */
typedef struct HsObserver HsObserver;
struct HsObserver {
    void (*begin)(HsObserver *observer, HsContext *context, HsRangeKind kind, const char *name, const HsOpCost *cost);
    void (*end)(HsObserver *observer, HsContext *context);
};

/* Everything an operation runs in.  One per trainer; not shared between threads. */
struct HsContext {
    const HsBackend *backend;
    HsDevice *device;
    HsStream *stream;
    int threads; /* worker threads of the cpu backend; results never depend on it */
    void *workspace;
    size_t workspace_bytes;
    /* Dry run: hs_op_* checks shapes and records the largest workspace, and runs nothing (data may be NULL). */
    bool dry_run;
    bool rare; /* a dry run of a shape that only some batches have */
    size_t workspace_needed;
    double flops;         /* counted in dry runs: 2 M N K per product, 4 N T H D / 2 per causal attention, ... */
    HsObserver *observer; /* NULL: none is attached, ranges cost nothing */
    /* Called between two operations by code that runs many of them in a row; when it returns true, that code stops with
     * HS_EINTERRUPTED.  NULL: never. */
    bool (*stop_asked)(void);
};

/* Ranges nest; each begin has its end, also after a failure.  Operations are the dispatcher's. */
static inline void hs_range_begin(HsContext *context, HsRangeKind kind, const char *name)
{
    if (context->device->range_push)
        context->device->range_push(context->device, name);
    if (context->observer)
        context->observer->begin(context->observer, context, kind, name, NULL);
}

static inline void hs_range_end(HsContext *context)
{
    if (context->device->range_pop)
        context->device->range_pop(context->device);
    if (context->observer)
        context->observer->end(context->observer, context);
}

/* The checked entry points: HsStatus hs_op_matmul(HsContext *, const HsMatmulArgs *), ... */
#define HS_OP_PROTOTYPE(name, Args, formula) HsStatus hs_op_##name(HsContext *context, const Args *args);
HS_OPS(HS_OP_PROTOTYPE)

/* Piece `index` of the work that `data` describes: operations on `context`, with memory that no other piece has.  Dry
 * runs give no memory, and read no data. */
typedef HsStatus HsWork(void *data, HsContext *context, void *scratch, int index);

/* `count` pieces of work that do not depend on each other, with scratch_bytes of the workspace for each.  Small ones run
 * side by side where the backend can, a thread for each, the longest first if all are to end together, and an observer
 * sees one operation, `name`; others run one after the other.  errors: that of a piece; the rest may not have run */
HsStatus hs_at_once(HsContext *context, const char *name, int count, size_t scratch_bytes, HsWork *work, void *data);

/* Shape and dtype rules (kernels/checks): HsStatus hs_check_matmul(const HsMatmulArgs *), ... */
#define HS_CHECK_PROTOTYPE(name, Args, formula) HsStatus hs_check_##name(const Args *args);
HS_OPS(HS_CHECK_PROTOTYPE)

/* The formula column, for documentation and selftest; NULL for an unknown name. */
const char *hs_op_formula(const char *name);

/* Backends.  `cpu` chooses its instruction set by what the processor has at the first call; HALFSTEP_CPU_ISA =
 * portable | avx2 | avx512 | avx512bf16 | amx, or on Arm portable | neon | neonbf16, forces one (error when the machine
 * lacks it). */
const HsBackend *hs_backend_ref(void);
HsStatus hs_backend_cpu(const HsBackend **backend);
const char *hs_backend_cpu_isa(void); /* "avx512bf16" ... */
bool hs_backend_cpu_has_bf16(void);   /* bf16 products in hardware */
bool hs_backend_cpu_fuses(void);      /* multiply-adds round once (kernels/ops/update_rule.h) */

/* kernels/cuda is compiled twice: by nvcc for GPUs (`cuda`, where there is an nvcc), and by the host compiler against
 * an emulation of CUDA (`emu`).  Each is a separate part (kernels/parts/part.h). */

/* A kernel's launch on the emulator, as an observer gets it; when the observer returns false the kernel does not
 * run. */
typedef struct HsKernelLaunch {
    const char *name;   /* "matmul_hopper_kernel<Element, Tile, true, true>" as it stands in the source */
    const void *kernel; /* its address */
    int64_t blocks;
    unsigned block_threads;
    size_t shared_bytes; /* dynamic */
    bool early;          /* begins while the kernel before runs */
} HsKernelLaunch;
typedef bool HsLaunchObserver(const HsKernelLaunch *launch);

/* Which operations the kernels for compute capability 9.0 (wgmma, tensor copies) serve where the GPU has it; the
 * kernels for all GPUs serve the others. */
typedef enum HsHopperUse { HS_HOPPER_ALL, HS_HOPPER_PRODUCTS, HS_HOPPER_ATTENTION, HS_HOPPER_NONE } HsHopperUse;

typedef struct HsCudaOptions {
    int index;        /* which GPU */
    bool sync_launch; /* wait after every launch, and name the kernel that failed */
    bool no_overlap;  /* no kernel begins before the one before it has ended */
    bool unordered;   /* what blocks add to one tensor is added as it comes, where that saves waits: bits vary */
    bool cublaslt;    /* products by cuBLASLt, the rival, opened at run time */
    HsHopperUse hopper;
    const HsCard *card; /* work is laid out as for this GPU, for plans on the emulator; NULL: as for the one there is */
} HsCudaOptions;

#endif
