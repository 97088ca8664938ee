/* SPDX-License-Identifier: MIT
 *
 * Launching a kernel:
 *     HS_TRY(hs_launch(context, HS_KERNEL((norm_forward_kernel<T>)), grid, block, shared_bytes, args...))
 * Every launch's error is checked; with kernels.sync_launch the host waits, so that the message names the kernel that
 * failed and not a later call.
 *
 * hs_launch_after lets a kernel begin while the one before it in the stream still runs: for kernels that first of all
 * call begin_after_kernel_before (ptx_grid.cuh), and which may stay behind hs_launch as well.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_LAUNCH_CUH
#define HS_KERNELS_CUDA_TOOLBOX_LAUNCH_CUH

#include "kernels/cuda/toolbox/ptx_grid.cuh"

/* A kernel and its name, for messages; parentheses around a template's name keep its commas together. */
#define HS_KERNEL(kernel) #kernel, kernel

namespace HS_CUDA_NAMESPACE
{

/* Names the kernel that failed; waits for it first under kernels.sync_launch.  Defined in device.cu. */
HsStatus check_launch(const HsContext *context, const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                      cudaError_t error);

/* Whether the GPU has such launches, they are wanted (kernels.overlap), and the host does not wait for each kernel anyway.
 * Defined in device.cu. */
bool kernels_may_overlap(const HsContext *context);

/* How blocks are launched. */
struct LaunchForm {
    dim3 grid, block;
    size_t shared_bytes;
    unsigned cluster; /* neighbouring blocks, of which grid.x is a multiple; more than 1: sm_90 */
    bool after;       /* may begin while the kernel before still runs */
};

static inline cudaStream_t stream_of(const HsContext *context)
{
    return reinterpret_cast<cudaStream_t>(context->stream);
}

/* Blocks of `size` that cover `count`. */
static inline unsigned blocks_for(int64_t count, int64_t size)
{
    return static_cast<unsigned>((count + size - 1) / size);
}

#ifdef HS_EMU
/* Where set, sees every launch of the emulator; when it returns false the kernel does not run.  For code that lists
 * launches: tests/kernels/launches.c, plans. */
extern "C" {
inline HsLaunchObserver *hs_emu_launch_observer = nullptr;
}

static inline bool is_observed(const char *name, const void *kernel, const LaunchForm &form, bool early)
{
    if (hs_emu_launch_observer == nullptr)
        return false;
    const HsKernelLaunch launch = { name,
                                    kernel,
                                    (int64_t)form.grid.x * form.grid.y * form.grid.z,
                                    form.block.x * form.block.y * form.block.z,
                                    form.shared_bytes,
                                    early };
    return !hs_emu_launch_observer(&launch);
}

template <typename... Parameters, typename... Arguments>
HsStatus launch_as(const HsContext *context, const char *name, void (*kernel)(Parameters...), const LaunchForm &form,
                   Arguments... arguments)
{
    const dim3 block = form.block;
    const bool early = form.after && kernels_may_overlap(context);
    if (is_observed(name, reinterpret_cast<const void *>(kernel), form, early))
        return HS_OK;
    KernelBodies bodies([=]() { kernel(static_cast<Parameters>(arguments)...); });
    if (emulator::ptx_wanted())
        bodies.text = emulator::ptx_body(reinterpret_cast<const void *>(kernel), name,
                                         { emulator::kernel_parameter(static_cast<Parameters>(arguments))... });
    cudaError_t error =
        emulate_launch(name, form.grid, block, form.shared_bytes, stream_of(context), bodies, form.cluster, early);
    return check_launch(context, name, form.grid, block, form.shared_bytes, error);
}
#else
/* More than 48 KiB of shared memory has to be asked for. */
static inline cudaError_t allow_shared_bytes(const void *kernel, size_t shared_bytes)
{
    if (shared_bytes <= 48 * 1024)
        return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
}

#ifndef __HIP__
static inline void add_attributes(const HsContext *context, const LaunchForm &form, cudaLaunchConfig_t &configuration)
{
    if (form.cluster > 1) {
        cudaLaunchAttribute &attribute = configuration.attrs[configuration.numAttrs++];
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = form.cluster;
        attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    }
    if (form.after && kernels_may_overlap(context)) {
        cudaLaunchAttribute &attribute = configuration.attrs[configuration.numAttrs++];
        attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute.val.programmaticStreamSerializationAllowed = 1;
    }
}
#endif

template <typename... Parameters, typename... Arguments>
HsStatus launch_as(const HsContext *context, const char *name, void (*kernel)(Parameters...), const LaunchForm &form,
                   Arguments... arguments)
{
    cudaError_t error = allow_shared_bytes(reinterpret_cast<const void *>(kernel), form.shared_bytes);
    if (error != cudaSuccess)
        return check_launch(context, name, form.grid, form.block, form.shared_bytes, error);
#ifdef __HIP__
    kernel<<<form.grid, form.block, form.shared_bytes, stream_of(context)>>>(static_cast<Parameters>(arguments)...);
    error = cudaGetLastError();
#else
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t configuration = {};
    configuration.gridDim = form.grid;
    configuration.blockDim = form.block;
    configuration.dynamicSmemBytes = form.shared_bytes;
    configuration.stream = stream_of(context);
    configuration.attrs = attributes;
    add_attributes(context, form, configuration);
    error = cudaLaunchKernelEx(&configuration, kernel, static_cast<Parameters>(arguments)...);
#endif
    return check_launch(context, name, form.grid, form.block, form.shared_bytes, error);
}
#endif

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments)
{
    return launch_as(context, name, kernel, LaunchForm{ grid, block, shared_bytes, 1, false }, arguments...);
}

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch_after(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid,
                         dim3 block, size_t shared_bytes, Arguments... arguments)
{
    return launch_as(context, name, kernel, LaunchForm{ grid, block, shared_bytes, 1, true }, arguments...);
}

/* In clusters of `cluster` neighbouring blocks, of which grid.x is a multiple (sm_90). */
template <typename... Parameters, typename... Arguments>
HsStatus hs_launch_clusters(const HsContext *context, const char *name, void (*kernel)(Parameters...), unsigned cluster,
                            dim3 grid, dim3 block, size_t shared_bytes, Arguments... arguments)
{
    return launch_as(context, name, kernel, LaunchForm{ grid, block, shared_bytes, cluster, false }, arguments...);
}

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch_clusters_after(const HsContext *context, const char *name, void (*kernel)(Parameters...),
                                  unsigned cluster, dim3 grid, dim3 block, size_t shared_bytes, Arguments... arguments)
{
    return launch_as(context, name, kernel, LaunchForm{ grid, block, shared_bytes, cluster, true }, arguments...);
}

} // namespace HS_CUDA_NAMESPACE

#endif
