/* SPDX-License-Identifier: MIT
 *
 * The experiments of fragments.h that every GPU can run: each calls one wrapper of ptx_*.cuh the way the kernels do.
 * Compiled by nvcc for the GPU and by the host compiler for the emulator, like kernels/cuda.
 */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/ptx_convert.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"

extern "C" {
#include "bench/fragments.h"
}

namespace HS_CUDA_NAMESPACE
{

namespace
{

template <FragmentKernel kernel> __global__ void mma_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    const uint32_t *mine = inputs + 10 * threadIdx.x;
    uint32_t a[4], b[2];
    float d[4];
    for (int i = 0; i < 4; i++)
        a[i] = mine[i];
    for (int i = 0; i < 2; i++)
        b[i] = mine[4 + i];
    for (int i = 0; i < 4; i++)
        d[i] = __uint_as_float(mine[6 + i]);
    if constexpr (kernel == FRAGMENT_MMA_BF16)
        ptx::mma_bf16(d, a, b);
    else if constexpr (kernel == FRAGMENT_MMA_F16)
        ptx::mma_f16(d, a, b);
    else if constexpr (kernel == FRAGMENT_MMA_TF32)
        ptx::mma_tf32(d, a, b);
    else if constexpr (kernel == FRAGMENT_MMA_E4M3)
        ptx::mma_fp8<E4m3, E4m3>(d, a, b);
    else
        ptx::mma_fp8<E5m2, E4m3>(d, a, b);
    for (int i = 0; i < 4; i++)
        outputs[4 * threadIdx.x + i] = __float_as_uint(d[i]);
}

template <FragmentKernel kernel> __global__ void load_matrix_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    HS_SHARED(uint32_t, rows, 128);
    for (int i = 0; i < 4; i++)
        rows[4 * threadIdx.x + i] = inputs[4 * threadIdx.x + i];
    __syncthreads();
    const uint32_t address = ptx::shared_address(rows + 4 * threadIdx.x);
    uint32_t registers[4];
    if constexpr (kernel == FRAGMENT_LOAD_MATRIX_X4)
        ptx::load_matrix_x4(registers, address);
    else
        ptx::load_matrix_x4_transposed(registers, address);
    for (int i = 0; i < 4; i++)
        outputs[4 * threadIdx.x + i] = registers[i];
}

/* Copies of 0, 1, ... `width` bytes, one a thread, onto words that held something else. */
template <int width> __global__ void copy_async_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    constexpr int words = width / 4;
    HS_SHARED(uint32_t, landing, 32 * words);
    for (int i = 0; i < words; i++)
        landing[words * threadIdx.x + i] = 0xdeadbeefu;
    __syncthreads();
    const int valid = (int)threadIdx.x;
    if (valid <= width) {
        const uint32_t address = ptx::shared_address(landing + words * valid);
        if constexpr (width == 16)
            ptx::copy_async_16(address, inputs, valid);
        else
            ptx::copy_async_4(address, inputs, valid);
    }
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
    __syncthreads();
    for (int i = 0; valid <= width && i < words; i++)
        outputs[words * valid + i] = landing[words * valid + i];
}

template <FragmentKernel kernel> HS_DEVICE uint32_t convert_word(uint32_t word)
{
    const float value = __uint_as_float(word);
    if constexpr (kernel == FRAGMENT_PACK_BF16)
        return ptx::pack_bf16(value, -value);
    else if constexpr (kernel == FRAGMENT_PACK_F16)
        return ptx::pack_f16(value, -value);
    else if constexpr (kernel == FRAGMENT_PACK_E4M3)
        return ptx::pack_e4m3(value, -value);
    else if constexpr (kernel == FRAGMENT_PACK_E5M2)
        return ptx::pack_e5m2(value, -value);
    else if constexpr (kernel == FRAGMENT_ENCODE_TF32)
        return ptx::encode_tf32(value);
    else if constexpr (kernel == FRAGMENT_DECODE_F16)
        return __float_as_uint(ptx::decode_f16((uint16_t)word));
    else if constexpr (kernel == FRAGMENT_EXP2_APPROXIMATE)
        return __float_as_uint(ptx::exp2_approximate(value));
    else if constexpr (kernel == FRAGMENT_RECIPROCAL_APPROXIMATE)
        return __float_as_uint(ptx::reciprocal_approximate(value));
    else if constexpr (kernel == FRAGMENT_CLAMP)
        return __float_as_uint(ptx::clamp(value, -1.0f, 448.0f));
    else
        return __float_as_uint(rsqrtf(value));
}

template <FragmentKernel kernel> __global__ void convert_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    for (int i = (int)threadIdx.x; i < 256; i += WARP_SIZE)
        outputs[i] = convert_word<kernel>(inputs[i]);
}

__global__ void shuffle_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    for (int step = 0; step < 5; step++)
        outputs[32 * step + threadIdx.x] = __shfl_xor_sync(FULL_WARP, inputs[threadIdx.x], 1 << step);
}

__global__ void ballot_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    outputs[threadIdx.x] = __ballot_sync(FULL_WARP, (inputs[threadIdx.x] & 1u) != 0);
}

/* Two groups of two warps meet by themselves, three times; then the second waits for what the first hands over. */
__global__ void named_barriers_fragment_kernel(const uint32_t *inputs, uint32_t *outputs)
{
    constexpr int half = 64;
    HS_SHARED(uint32_t, slots, 2 * half);
    const int thread = (int)threadIdx.x, group = thread / half;
    const uint32_t value = inputs[thread];
    for (int round = 0; round < 3; round++) {
        slots[thread] = value + (uint32_t)round;
        ptx::barrier_sync(1 + group, half);
        outputs[round * 2 * half + thread] = slots[group * half + (thread + round + 1) % half];
        ptx::barrier_sync(1 + group, half);
    }
    if (group == 0) {
        slots[thread] = ~value;
        ptx::barrier_arrive(3, 2 * half);
        outputs[6 * half + thread] = value;
    } else {
        ptx::barrier_sync(3, 2 * half);
        outputs[6 * half + thread] = slots[thread - half];
    }
}

typedef void (*Kernel)(const uint32_t *, uint32_t *);

/* In the order of the enum. */
const Kernel kernels[] = {
    mma_fragment_kernel<FRAGMENT_MMA_BF16>,
    mma_fragment_kernel<FRAGMENT_MMA_F16>,
    mma_fragment_kernel<FRAGMENT_MMA_TF32>,
    mma_fragment_kernel<FRAGMENT_MMA_E4M3>,
    mma_fragment_kernel<FRAGMENT_MMA_E5M2>,
    load_matrix_fragment_kernel<FRAGMENT_LOAD_MATRIX_X4>,
    load_matrix_fragment_kernel<FRAGMENT_LOAD_MATRIX_X4_TRANSPOSED>,
    copy_async_fragment_kernel<16>,
    copy_async_fragment_kernel<4>,
    convert_fragment_kernel<FRAGMENT_PACK_BF16>,
    convert_fragment_kernel<FRAGMENT_PACK_F16>,
    convert_fragment_kernel<FRAGMENT_PACK_E4M3>,
    convert_fragment_kernel<FRAGMENT_PACK_E5M2>,
    convert_fragment_kernel<FRAGMENT_ENCODE_TF32>,
    convert_fragment_kernel<FRAGMENT_DECODE_F16>,
    convert_fragment_kernel<FRAGMENT_EXP2_APPROXIMATE>,
    convert_fragment_kernel<FRAGMENT_RSQRT>,
    convert_fragment_kernel<FRAGMENT_RECIPROCAL_APPROXIMATE>,
    convert_fragment_kernel<FRAGMENT_CLAMP>,
    shuffle_fragment_kernel,
    ballot_fragment_kernel,
    named_barriers_fragment_kernel,
};
static_assert(sizeof kernels / sizeof *kernels == FRAGMENT_FIRST_HOPPER, "a kernel for every row");

HsStatus run(HsContext *context, FragmentKernel kernel, const uint32_t *inputs, uint32_t *outputs)
{
    const FragmentShape *shape = fragment_shape(kernel);
    const int capability = limits_of(context).compute_capability;
    /* mma.sync of FP8: as products choose it (matmul_fp8.cu). */
    if ((kernel == FRAGMENT_MMA_E4M3 || kernel == FRAGMENT_MMA_E5M2) && capability != 89 && capability < 120)
        return HS_EUNSUPPORTED;
    return hs_launch(context, "fragment", kernels[kernel], 1, (unsigned)shape->threads, (size_t)shape->shared_bytes,
                     inputs, outputs);
}

} // namespace

} // namespace HS_CUDA_NAMESPACE

HsStatus fragments_run(HsContext *context, FragmentKernel kernel, uint32_t *inputs, uint32_t *outputs)
{
    return HS_CUDA_NAMESPACE::run(context, kernel, inputs, outputs);
}
