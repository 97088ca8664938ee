/* SPDX-License-Identifier: MIT
 *
 * Where a parameter lives: in its f32 master, with a weight that is the rounded master; or in the weight alone.  The
 * five ways to keep one are types, so that the kernels of the update rules have no test between their loads.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PARAMETER_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PARAMETER_CUH

#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/rng.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Round stochastically: add 16 random bits below the kept ones and cut.  Infinity and NaN pass through. */
HS_DEVICE Bf16 round_stochastically(float value, uint32_t random16)
{
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return Bf16{ ptx::encode_bf16(value) };
    return Bf16{ (uint16_t)((bits + random16) >> 16) };
}

/* `Kept` is what is read; store() returns what a reader of it will see from now on. */
template <typename Copy> struct MasteredParameter {
    using Kept = float;
    float *master;
    Copy *weight;

    MasteredParameter(const HsTensor &master_tensor, const HsTensor &weight_tensor, const HsRng &)
        : master(data_of<float>(master_tensor)), weight(data_of<Copy>(weight_tensor))
    {
    }

    __device__ MasteredParameter(void *master_data, void *weight_data, const HsRng &)
        : master(static_cast<float *>(master_data)), weight(static_cast<Copy *>(weight_data))
    {
    }

    __device__ const Kept *kept() const
    {
        return master;
    }

    template <bool whole>
    __device__ __forceinline__ void store(int64_t i, int left, const float (&p)[QUAD], float (&stored)[QUAD]) const
    {
        Pack<float, QUAD> values;
        Pack<Copy, QUAD> copies;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            values.value[j] = stored[j] = p[j];
            round_to(copies.value[j], p[j]);
        }
        store_quad<whole>(master, i, left, values);
        store_quad<whole>(weight, i, left, copies);
    }
};

/* Without a master: an f32 weight is the parameter itself; a bf16 one is rounded stochastically, element e by the upper
 * half of word e % 4 of draw e / 4, so a quad's four words are one draw. */
template <typename Weight> struct LoneParameter {
    using Kept = Weight;
    Weight *weight;
    HsRng rng;

    LoneParameter(const HsTensor &, const HsTensor &weight_tensor, const HsRng &stream)
        : weight(data_of<Weight>(weight_tensor)), rng(stream)
    {
    }

    __device__ LoneParameter(void *, void *weight_data, const HsRng &stream)
        : weight(static_cast<Weight *>(weight_data)), rng(stream)
    {
    }

    __device__ const Kept *kept() const
    {
        return weight;
    }

    static __device__ __forceinline__ void round_quad(const HsRng &, int64_t, const float (&p)[QUAD],
                                                      Pack<float, QUAD> &quad)
    {
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            quad.value[j] = p[j];
    }

    static __device__ __forceinline__ void round_quad(const HsRng &rng, int64_t i, const float (&p)[QUAD],
                                                      Pack<Bf16, QUAD> &quad)
    {
        const uint4 draw = rng_draw(rng, (uint64_t)(rng.row_offset + i) / QUAD);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            quad.value[j] = round_stochastically(p[j], rng_word(draw, j) >> 16);
    }

    template <bool whole>
    __device__ __forceinline__ void store(int64_t i, int left, const float (&p)[QUAD], float (&stored)[QUAD]) const
    {
        Pack<Weight, QUAD> quad;
        round_quad(rng, i, p, quad);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            stored[j] = to_float(quad.value[j]);
        store_quad<whole>(weight, i, left, quad);
    }
};

/* Calls body(parameter) with the type that fits; the checks refused an f16 weight without a master. */
template <typename Body>
HsStatus dispatch_parameter(const HsTensor &master, const HsTensor &weight, const HsRng &rng, Body &&body)
{
    if (!hs_tensor_present(&master))
        return weight.dtype == HS_BF16 ? body(LoneParameter<Bf16>(master, weight, rng))
                                       : body(LoneParameter<float>(master, weight, rng));
    return dispatch_act(weight.dtype,
                        [&](auto copy) { return body(MasteredParameter<decltype(copy)>(master, weight, rng)); });
}

} // namespace HS_CUDA_NAMESPACE

#endif
