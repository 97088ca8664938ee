/* SPDX-License-Identifier: MIT
 *
 * Launching a kernel:
 *     HS_TRY(hs_launch(context, HS_KERNEL((norm_forward_kernel<T>)), grid, block, shared_bytes, args...))
 * Every launch's error is checked; with kernels.sync_launch the host waits, so that the message names the kernel that
 * failed and not a later call.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_LAUNCH_CUH
#define HS_KERNELS_CUDA_TOOLBOX_LAUNCH_CUH

#include "kernels/cuda/toolbox/platform.cuh"

/* A kernel and its name, for messages; parentheses around a template's name keep its commas together. */
#define HS_KERNEL(kernel) #kernel, kernel

namespace HS_CUDA_NAMESPACE
{

/* Names the kernel that failed; waits for it first under kernels.sync_launch.  Defined in device.cu. */
HsStatus check_launch(const HsContext *context, const char *name, dim3 grid, dim3 block, size_t shared_bytes,
                      cudaError_t error);

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
/* Where set, sees every launch of the emulator; when it returns false the kernel does not run.  For whoever lists
 * launches: tests/kernels/launches.c, plans. */
extern "C" {
inline HsLaunchObserver *hs_emu_launch_observer = nullptr;
}

static inline bool is_observed(const char *name, const void *kernel, dim3 grid, dim3 block, size_t shared_bytes)
{
    if (hs_emu_launch_observer == nullptr)
        return false;
    const HsKernelLaunch launch = { name, kernel, (int64_t)grid.x * grid.y * grid.z, block.x * block.y * block.z,
                              shared_bytes };
    return !hs_emu_launch_observer(&launch);
}

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments)
{
    if (is_observed(name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes))
        return HS_OK;
    cudaError_t error = emulate_launch(name, grid, block, shared_bytes, stream_of(context),
                                       [=]() { kernel(static_cast<Parameters>(arguments)...); });
    return check_launch(context, name, grid, block, shared_bytes, error);
}

/* In clusters of `cluster` neighbouring blocks, of which grid.x is a multiple (sm_90). */
template <typename... Parameters, typename... Arguments>
HsStatus hs_launch_clusters(const HsContext *context, const char *name, void (*kernel)(Parameters...), unsigned cluster,
                            dim3 grid, dim3 block, size_t shared_bytes, Arguments... arguments)
{
    if (is_observed(name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes))
        return HS_OK;
    cudaError_t error = emulate_launch(
        name, grid, block, shared_bytes, stream_of(context), [=]() { kernel(static_cast<Parameters>(arguments)...); },
        cluster);
    return check_launch(context, name, grid, block, shared_bytes, error);
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
template <typename... Parameters, typename... Arguments>
HsStatus hs_launch_clusters(const HsContext *context, const char *name, void (*kernel)(Parameters...), unsigned cluster,
                            dim3 grid, dim3 block, size_t shared_bytes, Arguments... arguments)
{
    cudaError_t error = allow_shared_bytes(reinterpret_cast<const void *>(kernel), shared_bytes);
    if (error != cudaSuccess)
        return check_launch(context, name, grid, block, shared_bytes, error);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t configuration = {};
    configuration.gridDim = grid;
    configuration.blockDim = block;
    configuration.dynamicSmemBytes = shared_bytes;
    configuration.stream = stream_of(context);
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
    error = cudaLaunchKernelEx(&configuration, kernel, static_cast<Parameters>(arguments)...);
    return check_launch(context, name, grid, block, shared_bytes, error);
}
#endif

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments)
{
    const cudaError_t error = allow_shared_bytes(reinterpret_cast<const void *>(kernel), shared_bytes);
    if (error != cudaSuccess)
        return check_launch(context, name, grid, block, shared_bytes, error);
    kernel<<<grid, block, shared_bytes, stream_of(context)>>>(static_cast<Parameters>(arguments)...);
    return check_launch(context, name, grid, block, shared_bytes, cudaGetLastError());
}
#endif

} // namespace HS_CUDA_NAMESPACE

#endif
