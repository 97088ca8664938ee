/* SPDX-License-Identifier: MIT
 *
 * Launching a kernel: HS_TRY(hs_launch(context, HS_KERNEL((norm_forward_kernel<T>)), grid, block, shared_bytes,
 * args...)). Every launch's error is checked; with kernels.sync_launch the host waits, so that the message names the
 * kernel whose run failed and not a later call.
 */
#ifndef HS_KERNELS_CUDA_LAUNCH_CUH
#define HS_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/platform.cuh"

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
/* Where set, sees every launch of the emulator; when it returns false the kernel does not run.  For tools that list
 * which kernels are launched with which blocks (tests/kernels/launches.c). */
extern "C" {
inline bool (*hs_emu_launch_observer)(const void *kernel, unsigned block_threads, size_t shared_bytes) = nullptr;
}

template <typename... Parameters, typename... Arguments>
HsStatus hs_launch(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments)
{
    if (hs_emu_launch_observer != nullptr &&
        !hs_emu_launch_observer(reinterpret_cast<const void *>(kernel), block.x * block.y * block.z, shared_bytes))
        return HS_OK;
    cudaError_t error = emulate_launch(name, grid, block, shared_bytes, stream_of(context),
                                       [=]() { kernel(static_cast<Parameters>(arguments)...); });
    return check_launch(context, name, grid, block, shared_bytes, error);
}
#else
template <typename... Parameters, typename... Arguments>
HsStatus hs_launch(const HsContext *context, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, Arguments... arguments)
{
    /* More than 48 KiB of shared memory has to be asked for. */
    if (shared_bytes > 48 * 1024) {
        cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
        if (error != cudaSuccess)
            return check_launch(context, name, grid, block, shared_bytes, error);
    }
    kernel<<<grid, block, shared_bytes, stream_of(context)>>>(static_cast<Parameters>(arguments)...);
    return check_launch(context, name, grid, block, shared_bytes, cudaGetLastError());
}
#endif

} // namespace HS_CUDA_NAMESPACE

#endif
