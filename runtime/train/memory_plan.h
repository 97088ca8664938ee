/* SPDX-License-Identifier: MIT
 *
 * Memory known before it is used: what a configuration takes by category, what a step costs, what would fit instead.
 *
 * A plan is the run's own allocations made on paper (hs_training_draft), so planned and measured bytes are equal.
 * The search for what fits varies four things that leave the effective batch as it is:
 *     memory.micro_batch   divisors of batch_size     sums are rounded in other places
 *     memory.recompute     all policies               changes no bit
 *     memory.offload       more and more, on a GPU     changes no bit: only where nothing else fits
 *     precision.gradients  fp32, then the mode's own  changes the arithmetic: only where that is not enough either
 */
#ifndef HS_RUNTIME_TRAIN_MEMORY_PLAN_H
#define HS_RUNTIME_TRAIN_MEMORY_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/base/memory.h"
#include "kernels/base/tensor.h"
#include "kernels/ops/backend.h"
#include "runtime/config/config.h"

static inline double hs_mebibytes(double bytes)
{
    return bytes / (1024.0 * 1024.0);
}

/* What one way of running a configuration takes. */
typedef struct HsMemoryPlan {
    size_t bytes[HS_MEMORY_COUNT]; /* at most, by category */
    size_t device_bytes;           /* their sum; without what lies elsewhere (hs_memory_elsewhere) */
    /* of the activations: alive between forward and backward; logits and their gradient */
    size_t kept_bytes, head_bytes;
    int64_t parameters;
    int64_t micro_batch, micro_batches;                    /* sequences at a time; how often in a step */
    int64_t tokens;                                        /* of a step */
    int64_t actions;                                       /* calls of layers in a step */
    double forward_flops, backward_flops, recompute_flops; /* of a step */
    /* memory.offload, of a step: bytes down to the host, up again, and read and written there; of the update, and of
     * the passes before it, during which they move */
    double offload_down, offload_up, offload_host;
    double passes_down, passes_up, passes_host;
    double disk_bytes;  /* memory.place.disk, of a step: read and written by the update */
    double bytes_moved; /* of a step, by what grows with parameters and micro-batches: gradients, weights, update */
} HsMemoryPlan;

/* What the search may change. */
typedef struct HsFit {
    int64_t micro_batch;
    const char *recompute; /* borrowed: a choice of memory.recompute */
    int64_t recompute_every;
    bool narrow_gradients; /* precision.gradients: compute */
    const char *offload;   /* borrowed: a choice of memory.offload */
} HsFit;

/* What a device does in a second; `launch_s`: what an operation costs in addition to its work. */
typedef struct HsDeviceRates {
    double flops, bytes, launch_s;
} HsDeviceRates;

/* Nominal balance of host and GPU: the search ranks by it and not by measured rates, so that the same configuration on
 * the same device always fits in the same way. */
HsDeviceRates hs_nominal_rates(const HsDevice *device);
/* What states on the host cost a step's update, and passes: copies both ways and the host's work overlap, the slowest
 * decides.  States on disk are read ahead and written behind.
 * By nominal rates: PCIe 4.0 with 16 lanes, and the memory of a host that two channels serve. */
#define HS_LINK_BYTES_A_SECOND 2e10
#define HS_HOST_BYTES_A_SECOND 2e10
/* An NVMe drive on four lanes, reading and writing. */
#define HS_DISK_BYTES_A_SECOND 2e9
double hs_memory_plan_offload_seconds(const HsMemoryPlan *plan);
double hs_memory_plan_passes_seconds(const HsMemoryPlan *plan);
/* Seconds of a step with products at the peak, and memory traffic that does not overlap with them; what comes and goes
 * over the link in passes does. */
double hs_memory_plan_seconds(const HsMemoryPlan *plan, const HsDeviceRates *rates);

/* The configuration as it is. */
HsFit hs_fit_of(const HsConfig *config);
/* A shallow copy of `config` with the fit's values: never to be released. */
void hs_fit_apply(const HsConfig *config, const HsFit *fit, HsConfig *changed);
/* The lines of YAML that turn `config` into what the fit says; "" when it is that already. */
enum { HS_FIT_TEXT = 256 };
const char *hs_fit_lines(const HsConfig *config, const HsFit *fit, char text[HS_FIT_TEXT]);
/* The same as command-line overrides, into the configuration itself. */
HsStatus hs_fit_write(HsConfig *config, const HsFit *fit);

/* A tensor and what it takes. */
typedef struct HsTensorUse {
    char name[96];
    HsMemoryCategory category;
    HsTensor tensor; /* shape and dtype */
    size_t bytes;
} HsTensorUse;

#endif
