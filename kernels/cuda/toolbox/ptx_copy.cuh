/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers: shared-memory addresses, asynchronous copies (cp.async, sm_80) and their groups.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_COPY_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_COPY_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

#ifdef __HIP__
typedef __attribute__((address_space(3))) unsigned char SharedBytes;

HS_DEVICE void copy_at_once(uint32_t destination, const void *source, int bytes, int valid)
{
    for (int i = 0; i < bytes; i++)
        ((SharedBytes *)(uintptr_t)destination)[i] = i < valid ? static_cast<const unsigned char *>(source)[i] : 0;
}
#endif

/* The 32-bit address of shared memory that cp.async and ldmatrix take. */
HS_DEVICE uint32_t shared_address(const void *pointer)
{
#ifdef HS_EMU
    return emulated_shared_address(pointer);
#elif defined(__HIP__)
    return (uint32_t)(uintptr_t)(SharedBytes *)pointer;
#else
    return (uint32_t)__cvta_generic_to_shared(pointer);
#endif
}

/* Copy 16 bytes to shared memory past L1: the first `valid` (0..16) from `source`, the others zero.  Both 16-byte
 * aligned; with valid 0 nothing is read. */
HS_DEVICE void copy_async_16(uint32_t destination, const void *source, int valid)
{
#ifdef HS_EMU
    emulated_copy_async(destination, source, 16, valid);
#elif defined(__HIP__)
    copy_at_once(destination, source, 16, valid);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(valid)
                 : "memory");
#endif
}

/* The same for 4 bytes, 4-byte aligned: rows with a stride that is no multiple of 16 bytes. */
HS_DEVICE void copy_async_4(uint32_t destination, const void *source, int valid)
{
#ifdef HS_EMU
    emulated_copy_async(destination, source, 4, valid);
#elif defined(__HIP__)
    copy_at_once(destination, source, 4, valid);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(destination), "l"(source), "r"(valid) : "memory");
#endif
}

/* Asks for the line of device memory that holds `address` to come to L2. */
HS_DEVICE void prefetch_to_l2(const void *address)
{
#if defined(HS_EMU) || defined(__HIP__)
    (void)address;
#else
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
#endif
}

/* Close the group of this thread's copies since the last one. */
HS_DEVICE void copy_async_commit()
{
#ifdef HS_EMU
    emulated_copy_async_commit();
#elif defined(__HIP__)
    /* was done at once */
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Wait until at most `pending` of this thread's groups are unfinished; other threads' need a barrier besides. */
template <int pending> HS_DEVICE void copy_async_wait()
{
#ifdef HS_EMU
    emulated_copy_async_wait(pending);
#elif defined(__HIP__)
    /* was done at once */
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

} // namespace ptx
} // namespace HS_CUDA_NAMESPACE

#endif
