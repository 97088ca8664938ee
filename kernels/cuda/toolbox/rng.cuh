/* SPDX-License-Identifier: MIT
 *
 * kernels/base/rng.h in kernels: the same draws, bit for bit.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_RNG_CUH
#define HS_KERNELS_CUDA_TOOLBOX_RNG_CUH

#include "kernels/cuda/toolbox/platform.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Philox 4x32-10 (Salmon et al. 2011, section 3.3): four words of draw `index` of the stream. */
HS_DEVICE uint4 rng_draw(const HsRng &rng, uint64_t index)
{
    const uint32_t step = rng.step + (rng.step_counter != nullptr ? *rng.step_counter : 0u);
    uint32_t key0 = (uint32_t)rng.seed, key1 = (uint32_t)(rng.seed >> 32);
    uint4 state = make_uint4((uint32_t)index, (uint32_t)(index >> 32), rng.site, step);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = (uint64_t)0xD2511F53u * state.x;
        const uint64_t product1 = (uint64_t)0xCD9E8D57u * state.z;
        state = make_uint4((uint32_t)(product1 >> 32) ^ state.y ^ key0, (uint32_t)product1,
                           (uint32_t)(product0 >> 32) ^ state.w ^ key1, (uint32_t)product0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return state;
}

HS_DEVICE uint32_t rng_word(const uint4 &draw, int index)
{
    return index == 0 ? draw.x : index == 1 ? draw.y : index == 2 ? draw.z : draw.w;
}

/* Bits to [0, 1): hs_rng_uniform. */
HS_DEVICE float rng_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

} // namespace HS_CUDA_NAMESPACE

#endif
