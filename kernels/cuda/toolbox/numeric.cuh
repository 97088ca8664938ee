/* SPDX-License-Identifier: MIT
 *
 * Number formats in kernels: bf16 and f16 as plain storage, arithmetic always in float, one rounding to nearest even
 * when a value is stored; of FP8, which only tensor cores take, the names.  Packs are what one thread moves at once.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_NUMERIC_CUH
#define HS_KERNELS_CUDA_TOOLBOX_NUMERIC_CUH

#include "kernels/cuda/toolbox/ptx_convert.cuh"

namespace HS_CUDA_NAMESPACE
{

struct Bf16 {
    uint16_t bits;
};
struct F16 {
    uint16_t bits;
};
struct E4m3 {
    uint8_t bits;
};
struct E5m2 {
    uint8_t bits;
};

#ifdef HS_EMU
/* What the emulator calls a format. */
template <typename Element> static constexpr TensorFormat tensor_format = TensorFormat::BF16;
template <> inline constexpr TensorFormat tensor_format<F16> = TensorFormat::F16;
template <> inline constexpr TensorFormat tensor_format<E4m3> = TensorFormat::E4M3;
template <> inline constexpr TensorFormat tensor_format<E5m2> = TensorFormat::E5M2;
#endif

HS_DEVICE float to_float(float value)
{
    return value;
}
HS_DEVICE float to_float(Bf16 value)
{
    return __uint_as_float((uint32_t)value.bits << 16);
}
HS_DEVICE float to_float(F16 value)
{
    return ptx::decode_f16(value.bits);
}

/* Round to nearest even at the destination. */
HS_DEVICE void round_to(float &destination, float value)
{
    destination = value;
}
HS_DEVICE void round_to(Bf16 &destination, float value)
{
    destination.bits = ptx::encode_bf16(value);
}
HS_DEVICE void round_to(F16 &destination, float value)
{
    destination.bits = ptx::encode_f16(value);
}

/* The value as it reads back after being stored as T. */
template <typename T> HS_DEVICE float rounded(float value)
{
    T stored;
    round_to(stored, value);
    return to_float(stored);
}

/* `count` neighbours moved as one; the address must be a multiple of its size (at most 16 bytes). */
template <typename T, int count> struct alignas(sizeof(T) * count) Pack {
    T value[count];
};

/* The widest pack of T: 16 bytes. */
template <typename T> struct PackWidth {
    static constexpr int value = 16 / (int)sizeof(T);
};

template <typename T, int count> HS_DEVICE Pack<T, count> load_pack(const T *source)
{
    return *reinterpret_cast<const Pack<T, count> *>(source);
}

template <typename T, int count> HS_DEVICE void store_pack(T *destination, const Pack<T, count> &pack)
{
    *reinterpret_cast<Pack<T, count> *>(destination) = pack;
}

static inline bool aligned_to(const void *pointer, size_t bytes)
{
    return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

/* Calls body(T{}) with the storage type of an activation's dtype:
 *     return dispatch_act(args->x.dtype, [&](auto x) { using X = decltype(x); return hs_launch(...); });  */
template <typename Body> HsStatus dispatch_act(HsDtype dtype, Body &&body)
{
    switch (dtype) {
    case HS_F32:
        return body(float{});
    case HS_BF16:
        return body(Bf16{});
    case HS_F16:
        return body(F16{});
    default:
        return hs_fail(HS_EUNSUPPORTED, "the CUDA backend has no kernels for activations of %s", hs_dtype_name(dtype));
    }
}

template <typename T> T *data_of(const HsTensor &tensor)
{
    return static_cast<T *>(tensor.data);
}

} // namespace HS_CUDA_NAMESPACE

#endif
