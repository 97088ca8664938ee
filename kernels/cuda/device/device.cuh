/* SPDX-License-Identifier: MIT
 *
 * What the operations may ask about their device.
 */
#ifndef HS_KERNELS_CUDA_DEVICE_DEVICE_CUH
#define HS_KERNELS_CUDA_DEVICE_DEVICE_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Limits of the GPU, read once. */
struct DeviceLimits {
    char name[64];
    double clock_hz, bytes_per_second; /* nominal: of the multiprocessors (a known card's boost clock), of the memory */
    int multiprocessors;               /* that work is laid out for: the GPU's own, or HALFSTEP_MULTIPROCESSORS */
    int compute_capability;            /* 80, 86, 89, 90 ... */
    size_t block_shared_bytes;         /* most dynamic shared memory of a block, opted in */
    size_t multiprocessor_shared_bytes;
    bool hopper_products, hopper_attention; /* the kernels for sm_90a serve these */
    bool hopper_copies;                     /* HALFSTEP_HOPPER_STORES=copies: their products store by tensor copies */
    bool gates_apart;                       /* HALFSTEP_GATES=apart: kernels behind their products */
};

/* As that card would be found, but for its memory and for what Hopper's kernels serve. */
void play_card(const HsCard &card, DeviceLimits *limits);

/* Opens the GPU of options->index: memory, copies, streams, events, graphs.  kind: the name before its number. */
HsStatus open_device(HsDevice *device, const HsCudaOptions *options, const char *kind);

/* What products keep on a device (product/products.cuh), which knows no more of it than how to give it back. */
struct Products;

/* Looks after the device while the host waits for it (comm/nccl.cu): called again and again, with the seconds that this
 * wait has lasted; an error ends the wait.  NULL: nothing does. */
struct Watch {
    HsStatus (*look)(void *watcher, double waited_s);
    void *watcher;
};
void hang_watch(HsDevice *device, Watch watch);
/* Waits for the stream, watched. */
HsStatus wait_for_stream(const HsDevice *device, cudaStream_t stream);
/* Whether a pointer is of memory that kernels may access, or the host's. */
HsStatus is_on_device(const void *pointer, bool *on_device);

const DeviceLimits &limits_of(const HsContext *context);
const DeviceLimits &device_limits(const HsDevice *device);
Products *device_products(const HsDevice *device);
void hang_products(HsDevice *device, Products *products, void (*release)(Products *products));
const HsCudaOptions &device_options(const HsDevice *device);
const HsCudaOptions &options_of(const HsContext *context);

} // namespace HS_CUDA_NAMESPACE

#endif
