/* SPDX-License-Identifier: MIT
 *
 * Views: how kernels that are bound by memory read and write activations, `width` neighbours as floats at a time.
 *   View<T>   the dtype is known to the compiler: accesses of up to 16 bytes, addresses a multiple of their size
 *   AnyView   the dtype is looked up at each element: whatever is not aligned, and mixes of dtypes that no precision
 *             mode makes.  It keeps the number of compiled kernels small where speed is not at stake.
 * data is NULL for an operand that is absent.
 * A kernel is written once, over views and a width.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_VIEW_CUH
#define HS_KERNELS_CUDA_TOOLBOX_VIEW_CUH

#include <string.h>

#include "kernels/cuda/toolbox/numeric.cuh"

/* Member functions of what kernels are made of. */
#define HS_MEMBER __device__ __forceinline__

namespace HS_CUDA_NAMESPACE
{

/* `count` neighbours rounded, as they lie in memory.  Conversion in pairs: one instruction rounds two. */
template <int count> HS_DEVICE Pack<float, count> round_pack(const float *values, float)
{
    Pack<float, count> pack;
#pragma unroll
    for (int i = 0; i < count; i++)
        pack.value[i] = values[i];
    return pack;
}
HS_DEVICE uint32_t round_pair(float low, float high, Bf16)
{
    return ptx::pack_bf16(low, high);
}
HS_DEVICE uint32_t round_pair(float low, float high, F16)
{
    return ptx::pack_f16(low, high);
}
template <int count, typename T> HS_DEVICE Pack<T, count> round_pack(const float *values, T type)
{
    Pack<uint32_t, count / 2> pairs;
#pragma unroll
    for (int i = 0; i < count / 2; i++)
        pairs.value[i] = round_pair(values[2 * i], values[2 * i + 1], type);
    Pack<T, count> pack;
    memcpy(&pack, &pairs, sizeof pack);
    return pack;
}

template <typename T> struct View {
    T *data;

    template <int width> HS_MEMBER void load(int64_t index, float (&values)[width]) const
    {
        constexpr int count = width < PackWidth<T>::value ? width : PackWidth<T>::value;
#pragma unroll
        for (int first = 0; first < width; first += count) {
            const Pack<T, count> pack = load_pack<T, count>(data + index + first);
#pragma unroll
            for (int i = 0; i < count; i++)
                values[first + i] = to_float(pack.value[i]);
        }
    }

    template <int width> HS_MEMBER void store(int64_t index, const float (&values)[width]) const
    {
        if constexpr (width == 1) {
            round_to(data[index], values[0]);
        } else {
            constexpr int count = width < PackWidth<T>::value ? width : PackWidth<T>::value;
#pragma unroll
            for (int first = 0; first < width; first += count)
                store_pack<T, count>(data + index + first, round_pack<count>(values + first, T{}));
        }
    }
};

struct AnyView {
    void *data;
    HsDtype dtype;

    template <int width> HS_MEMBER void load(int64_t index, float (&values)[width]) const
    {
        static_assert(width == 1, "an unknown dtype is read element by element");
        if (dtype == HS_F32) {
            values[0] = static_cast<const float *>(data)[index];
        } else {
            const uint16_t bits = static_cast<const uint16_t *>(data)[index];
            values[0] = dtype == HS_BF16 ? to_float(Bf16{ bits }) : to_float(F16{ bits });
        }
    }

    template <int width> HS_MEMBER void store(int64_t index, const float (&values)[width]) const
    {
        static_assert(width == 1, "an unknown dtype is written element by element");
        if (dtype == HS_F32)
            static_cast<float *>(data)[index] = values[0];
        else
            static_cast<uint16_t *>(data)[index] =
                dtype == HS_BF16 ? ptx::encode_bf16(values[0]) : ptx::encode_f16(values[0]);
    }
};

/* Neighbours that a thread moves at a time: 16 bytes of the widest of these types. */
template <typename... T> static constexpr int access_width = ((sizeof(T) > 2) || ...) ? 4 : 8;

template <typename T> View<T> view_of(const HsTensor &tensor)
{
    return View<T>{ data_of<T>(tensor) };
}

static inline AnyView any_view_of(const HsTensor &tensor)
{
    return AnyView{ tensor.data, tensor.dtype };
}

/* Whether rows (or heads) of `columns` elements can be moved in packs: of 4 where an activation is f32, else of 8.
 * Absent tensors, with a NULL pointer, are no obstacle. */
template <typename... Tensors> bool packs_fit(int64_t columns, const Tensors &...activations)
{
    const int64_t width = ((activations.dtype == HS_F32) || ...) ? 4 : 8;
    return columns % width == 0 && (aligned_to(activations.data, 16) && ...);
}

/* The mixes that precision modes make: activations of a compute dtype with a residual stream of the same dtype or of
 * f32.  Calls body(Compute{}, Stream{}). */
static inline bool is_stream_pair(HsDtype compute, HsDtype stream)
{
    return stream == compute || stream == HS_F32;
}

template <typename Body> HsStatus dispatch_stream_pair(HsDtype compute, HsDtype stream, Body &&body)
{
    return dispatch_act(compute, [&](auto element) {
        using Compute = decltype(element);
        return stream == HS_F32 ? body(Compute{}, float{}) : body(Compute{}, Compute{});
    });
}

} // namespace HS_CUDA_NAMESPACE

#endif
