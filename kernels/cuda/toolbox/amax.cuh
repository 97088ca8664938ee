/* SPDX-License-Identifier: MIT
 *
 * The largest magnitude of what a kernel stores (ops.h: amax), found on the way out.  Magnitudes are compared as bits, in
 * which a NaN is larger than infinity; a maximum has no order, so that every run and every device finds the same.
 *
 * A thread looks at its values before they are rounded: the largest one's rounding is the largest rounding.  A warp
 * settles among its lanes and sends one atomic maximum, which nothing waits for; where it stores many tiles, it sends
 * what is larger than all that it has sent before.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_AMAX_CUH
#define HS_KERNELS_CUDA_TOOLBOX_AMAX_CUH

#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

HS_DEVICE uint32_t magnitude_of(float x)
{
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

HS_DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

template <int width> HS_DEVICE uint32_t largest_of(const float (&values)[width], uint32_t before)
{
#pragma unroll
    for (int i = 0; i < width; i++)
        before = larger(before, magnitude_of(values[i]));
    return before;
}

/* Where it goes: a float's bits, NULL where it is not asked for; dtype: of what is stored. */
struct AmaxOut {
    unsigned *to;
    HsDtype dtype;
};

static inline AmaxOut amax_out(const HsTensor &stored)
{
    return AmaxOut{ reinterpret_cast<unsigned *>(stored.amax), stored.dtype };
}

/* Of what may be cast: the codes' scaling has it then (ops.h: hs_cast_apart). */
static inline AmaxOut amax_out(const HsTensor &stored, const HsCodes &cast)
{
    return cast.scaling ? AmaxOut{ reinterpret_cast<unsigned *>(&cast.scaling->amax), stored.dtype } : amax_out(stored);
}

/* A magnitude's bits as it is stored. */
HS_DEVICE uint32_t stored_magnitude(HsDtype dtype, uint32_t magnitude)
{
    const float value = __uint_as_float(magnitude);
    if (dtype == HS_F32)
        return magnitude;
    return magnitude_of(dtype == HS_BF16 ? rounded<Bf16>(value) : rounded<F16>(value));
}

/* Of a warp, all lanes of which call. */
HS_DEVICE void leave_amax(const AmaxOut &out, uint32_t most)
{
    if (out.to == nullptr)
        return;
    most = warp_reduce<Maximum>(most);
    if (threadIdx.x % WARP_SIZE == 0)
        atomicMax(out.to, stored_magnitude(out.dtype, most));
}

/* Of a tensor, by a pass over it: for kernels that do not look at what they store.  In product/quantize.cu. */
HsStatus launch_amax(const HsContext *context, const HsTensor &tensor);

} // namespace HS_CUDA_NAMESPACE

#endif
