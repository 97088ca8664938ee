/* SPDX-License-Identifier: MIT
 *
 * CUDA's arithmetic that the C library lacks: bit casts, integer tricks, fast functions (here: exact ones).
 */
#ifndef HS_KERNELS_EMU_ARITHMETIC_H
#define HS_KERNELS_EMU_ARITHMETIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>

namespace hs_emu
{

namespace emulator
{
template <typename To, typename From> static inline To bits_as(From value)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}
} // namespace emulator

static inline unsigned __float_as_uint(float value)
{
    return emulator::bits_as<unsigned>(value);
}
static inline int __float_as_int(float value)
{
    return emulator::bits_as<int>(value);
}
static inline float __uint_as_float(unsigned value)
{
    return emulator::bits_as<float>(value);
}
static inline float __int_as_float(int value)
{
    return emulator::bits_as<float>(value);
}
static inline long long __double_as_longlong(double value)
{
    return emulator::bits_as<long long>(value);
}
static inline double __longlong_as_double(long long value)
{
    return emulator::bits_as<double>(value);
}

static inline int __popc(unsigned value)
{
    return __builtin_popcount(value);
}
static inline int __popcll(unsigned long long value)
{
    return __builtin_popcountll(value);
}
static inline int __clz(int value)
{
    return value == 0 ? 32 : __builtin_clz((unsigned)value);
}
static inline int __clzll(long long value)
{
    return value == 0 ? 64 : __builtin_clzll((unsigned long long)value);
}
static inline int __ffs(int value)
{
    return __builtin_ffs(value);
}
static inline int __ffsll(long long value)
{
    return __builtin_ffsll(value);
}
static inline unsigned __brev(unsigned value)
{
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; bit++)
        reversed |= (value >> bit & 1u) << (31 - bit);
    return reversed;
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
/* The low 32 bits of (high:low) >> shift; and << shift, the high 32 bits. */
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
/* Four bytes chosen by the four lowest hex digits of `selector` from the eight of (b:a). */
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++)
        result |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return result;
}

/* Of two numbers of any types, in their common type, as CUDA's overloads do. */
template <typename A, typename B> static inline constexpr std::common_type_t<A, B> min(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_same_v<T, float>)
        return fminf(a, b);
    else if constexpr (std::is_same_v<T, double>)
        return fmin((T)a, (T)b);
    else
        return (T)b < (T)a ? (T)b : (T)a;
}
template <typename A, typename B> static inline constexpr std::common_type_t<A, B> max(A a, B b)
{
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_same_v<T, float>)
        return fmaxf(a, b);
    else if constexpr (std::is_same_v<T, double>)
        return fmax((T)a, (T)b);
    else
        return (T)a < (T)b ? (T)b : (T)a;
}

static inline float rsqrtf(float x)
{
    return (float)(1.0 / sqrt((double)x));
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float __frsqrt_rn(float x)
{
    return rsqrtf(x);
}
static inline float __expf(float x)
{
    return expf(x);
}
static inline float __exp10f(float x)
{
    return (float)pow(10.0, (double)x);
}
static inline float __logf(float x)
{
    return logf(x);
}
static inline float __log2f(float x)
{
    return log2f(x);
}
static inline float __sinf(float x)
{
    return sinf(x);
}
static inline float __cosf(float x)
{
    return cosf(x);
}
static inline float __powf(float x, float y)
{
    return powf(x, y);
}
static inline void sincosf(float x, float *sine, float *cosine)
{
    *sine = sinf(x);
    *cosine = cosf(x);
}
static inline void sincos(double x, double *sine, double *cosine)
{
    *sine = sin(x);
    *cosine = cos(x);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
/* Clamped to [0, 1]; NaN becomes 0. */
static inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
static inline int __float2int_rn(float x)
{
    return (int)rintf(x);
}
static inline unsigned __float2uint_rn(float x)
{
    return (unsigned)rintf(x);
}
static inline int __float2int_rz(float x)
{
    return (int)x;
}

} // namespace hs_emu

#endif
