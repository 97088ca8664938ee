/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers: conversions and approximate functions.  PTX ISA 8.x, sections on cvt, ex2, rcp, min and max.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_CONVERT_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_CONVERT_CUH

#include "kernels/cuda/toolbox/platform.cuh"
#include "kernels/ops/code_rule.h"
#ifdef HS_EMU
#include <math.h>
#endif

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

#ifdef __HIP__
/* To nearest even, as cvt.rn.bf16x2 rounds; every NaN becomes one. */
HS_DEVICE uint16_t round_bf16(float value)
{
    const uint32_t bits = __float_as_uint(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
#endif

/* Two floats to nearest even bf16: `low` in the lower half. */
HS_DEVICE uint32_t pack_bf16(float low, float high)
{
#ifdef HS_EMU
    return (uint32_t)hs_bf16_encode(low) | (uint32_t)hs_bf16_encode(high) << 16;
#elif defined(__HIP__)
    return (uint32_t)round_bf16(low) | (uint32_t)round_bf16(high) << 16;
#else
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#endif
}

/* Two floats to nearest even f16 (overflow to infinity): `low` in the lower half. */
HS_DEVICE uint32_t pack_f16(float low, float high)
{
#ifdef HS_EMU
    return (uint32_t)hs_f16_encode(low) | (uint32_t)hs_f16_encode(high) << 16;
#elif defined(__HIP__)
    const uint16_t a = __builtin_bit_cast(uint16_t, (_Float16)low), b = __builtin_bit_cast(uint16_t, (_Float16)high);
    return (uint32_t)a | (uint32_t)b << 16;
#else
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
#endif
}

/* Two floats to nearest even codes, beyond the largest number that one, NaN 0x7F: `low` in the lower byte.  By one
 * instruction from 8.9 on. */
#if !defined(HS_EMU) && !defined(__HIP__) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890)
#define HS_PACK_CODES(format, instruction)                                                        \
    uint16_t packed;                                                                              \
    asm("cvt.rn.satfinite." instruction ".f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low)); \
    return packed
#else
#define HS_PACK_CODES(format, instruction) \
    return (uint32_t)hs_code_encode(format, low) | (uint32_t)hs_code_encode(format, high) << 8
#endif
HS_DEVICE uint32_t pack_e4m3(float low, float high)
{
    HS_PACK_CODES(HS_E4M3, "e4m3x2");
}
HS_DEVICE uint32_t pack_e5m2(float low, float high)
{
    HS_PACK_CODES(HS_E5M2, "e5m2x2");
}
#undef HS_PACK_CODES

HS_DEVICE uint16_t encode_bf16(float value)
{
    return (uint16_t)pack_bf16(value, 0.0f);
}

HS_DEVICE uint16_t encode_f16(float value)
{
    return (uint16_t)pack_f16(value, 0.0f);
}

HS_DEVICE float decode_f16(uint16_t bits)
{
#ifdef HS_EMU
    return hs_f16_decode(bits);
#elif defined(__HIP__)
    return (float)__builtin_bit_cast(_Float16, bits);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
}

/* f32 to tf32 (10 mantissa bits), to nearest, ties away from zero, as mma's tf32 operands want it.  A NaN loses the low
 * bits of its payload, on an H200 too: one that has no others becomes infinity, which no arithmetic makes. */
HS_DEVICE uint32_t encode_tf32(float value)
{
#if defined(HS_EMU) || defined(__HIP__)
    uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return bits & 0xffffe000u;
    return (bits + 0x1000u) & 0xffffe000u;
#else
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
#endif
}

/* 2^x, at most 2 units in the last place from the correctly rounded value (PTX ISA 9.1, ex2); subnormal results are
 * flushed. */
HS_DEVICE float exp2_approximate(float x)
{
#if defined(HS_EMU)
    return emulated_exp2_approximate(x);
#elif defined(__HIP__)
    const float value = exp2f(x);
    return value < 0x1p-126f ? 0.0f : value;
#else
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
#endif
}

/* 1 / x, at most 1 unit in the last place off (PTX ISA 9.1, rcp); subnormal operands and results are flushed. */
HS_DEVICE float reciprocal_approximate(float x)
{
#if defined(HS_EMU)
    return emulated_reciprocal_approximate(x);
#elif defined(__HIP__)
    const float value = 1.0f / x;
    return fabsf(value) < 0x1p-126f ? 0.0f : value;
#else
    float value;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
#endif
}

/* x, or the nearer end of [low, high].  A NaN stays one: fminf and fmaxf would drop it. */
HS_DEVICE float clamp(float x, float low, float high)
{
#if defined(HS_EMU) || defined(__HIP__)
    return x < low ? low : x > high ? high : x;
#else
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(low));
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(high));
    return x;
#endif
}

} // namespace ptx
} // namespace HS_CUDA_NAMESPACE

#endif
