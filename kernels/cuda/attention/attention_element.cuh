/* SPDX-License-Identifier: MIT
 *
 * Elements of a tensor as floats, its dtype known when compiling (Elements) or only when running (AnyElements): kernels
 * that serve rare shapes take the second, and need one instance for all dtypes instead of one for each.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_ELEMENT_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_ELEMENT_CUH

#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

template <typename T> struct Elements {
    const void *data;
    HsDtype dtype;

    template <int count> __device__ __forceinline__ Pack<float, count> load(int64_t index) const
    {
        const Pack<T, count> stored = load_pack<T, count>(static_cast<const T *>(data) + index);
        Pack<float, count> values;
#pragma unroll
        for (int i = 0; i < count; i++)
            values.value[i] = to_float(stored.value[i]);
        return values;
    }
};

HS_DEVICE float load_any(const void *data, HsDtype dtype, int64_t index)
{
    if (dtype == HS_F32)
        return static_cast<const float *>(data)[index];
    return dtype == HS_BF16 ? to_float(static_cast<const Bf16 *>(data)[index])
                            : to_float(static_cast<const F16 *>(data)[index]);
}

HS_DEVICE void store_any(void *data, HsDtype dtype, int64_t index, float value)
{
    if (dtype == HS_F32)
        static_cast<float *>(data)[index] = value;
    else if (dtype == HS_BF16)
        round_to(static_cast<Bf16 *>(data)[index], value);
    else
        round_to(static_cast<F16 *>(data)[index], value);
}

struct AnyElements {
    const void *data;
    HsDtype dtype;

    template <int count> __device__ __forceinline__ Pack<float, count> load(int64_t index) const
    {
        Pack<float, count> values;
        for (int i = 0; i < count; i++)
            values.value[i] = load_any(data, dtype, index + i);
        return values;
    }
};

/* f64 is for gradient checks, which only the reference does. */
static inline HsStatus refuse_f64(const char *op, const HsTensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        if (tensors[i]->dtype == HS_F64)
            return hs_fail(HS_EUNSUPPORTED, "%s: the CUDA backend does not compute in f64; use device: ref", op);
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE

#endif
