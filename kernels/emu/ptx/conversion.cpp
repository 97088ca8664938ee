/* SPDX-License-Identifier: MIT
 *
 * cvt (PTX ISA, "Data Movement and Conversion Instructions: cvt"), a row for each form: cvt.<how>.<to>.<from>.
 */
#include <limits>
#include <math.h>

#include "kernels/emu/ptx/program.h"

extern "C" {
#include "kernels/base/dtype.h"
#include "kernels/base/scaled_formats.h"
}

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

namespace
{

#define CONVERT(text, To, From, result)                   \
    {                                                     \
        text, [](Frame &frame, const Op &op) {            \
            const From a = get<From>(frame, op.slots[1]); \
            set<To>(frame, op.slots[0], (To)(result));    \
        }                                                 \
    }
#define FROM_INTEGER(from, From)                                                                 \
    CONVERT("cvt.u8." from, uint8_t, From, a), CONVERT("cvt.s8." from, int8_t, From, a),         \
        CONVERT("cvt.u16." from, uint16_t, From, a), CONVERT("cvt.s16." from, int16_t, From, a), \
        CONVERT("cvt.u32." from, uint32_t, From, a), CONVERT("cvt.s32." from, int32_t, From, a), \
        CONVERT("cvt.u64." from, uint64_t, From, a), CONVERT("cvt.s64." from, int64_t, From, a), \
        CONVERT("cvt.rn.f32." from, float, From, a), CONVERT("cvt.rn.f64." from, double, From, a)
/* A number outside the integer's range becomes its nearest end, NaN zero. */
#define TO_INTEGERS(how, from, From, rounded)                                                     \
    CONVERT("cvt." how ".s32." from, int32_t, From, (within<int32_t>((double)rounded(a)))),       \
        CONVERT("cvt." how ".u32." from, uint32_t, From, (within<uint32_t>((double)rounded(a)))), \
        CONVERT("cvt." how ".s64." from, int64_t, From, (within<int64_t>((double)rounded(a)))),   \
        CONVERT("cvt." how ".u64." from, uint64_t, From, (within<uint64_t>((double)rounded(a))))
#define ROUND(how, rounded)                                                                                  \
    CONVERT("cvt." how ".f32.f32", float, float, rounded(a)),                                                \
        CONVERT("cvt." how ".f64.f64", double, double, rounded(a)), TO_INTEGERS(how, "f32", float, rounded), \
        TO_INTEGERS(how, "f64", double, rounded)
/* Two to one register: the first operand above the second. */
#define PAIR(text, encode)                                                                      \
    {                                                                                           \
        text, [](Frame &frame, const Op &op) {                                                  \
            const float a = get<float>(frame, op.slots[1]), b = get<float>(frame, op.slots[2]); \
            set<uint32_t>(frame, op.slots[0], (uint32_t)encode(b) | (uint32_t)encode(a) << 16); \
        }                                                                                       \
    }

/* Likewise to bytes. */
#define CODES(text, encode)                                                                     \
    {                                                                                           \
        text, [](Frame &frame, const Op &op) {                                                  \
            const float a = get<float>(frame, op.slots[1]), b = get<float>(frame, op.slots[2]); \
            set<uint16_t>(frame, op.slots[0], (uint16_t)(encode(b) | encode(a) << 8));          \
        }                                                                                       \
    }

template <typename T> T within(double value)
{
    if (value != value)
        return 0;
    if (value <= (double)std::numeric_limits<T>::min())
        return std::numeric_limits<T>::min();
    /* Of 64 bits the largest rounds up to what the type has no more. */
    if (value >= (double)std::numeric_limits<T>::max())
        return std::numeric_limits<T>::max();
    return (T)value;
}

/* Every NaN becomes the same one. */
uint16_t bf16_of(float value)
{
    return value != value ? 0x7fff : hs_bf16_encode(value);
}
uint16_t f16_of(float value)
{
    return value != value ? 0x7fff : hs_f16_encode(value);
}

uint32_t tf32_of(float value)
{
    const uint32_t bits = __float_as_uint(value);
    if ((bits & 0x7f800000u) == 0x7f800000u)
        return bits & 0xffffe000u;
    return (bits + 0x1000u) & 0xffffe000u;
}

const std::unordered_map<std::string, Run> &table()
{
    static const std::unordered_map<std::string, Run> rows = {
        FROM_INTEGER("u8", uint8_t),
        FROM_INTEGER("s8", int8_t),
        FROM_INTEGER("u16", uint16_t),
        FROM_INTEGER("s16", int16_t),
        FROM_INTEGER("u32", uint32_t),
        FROM_INTEGER("s32", int32_t),
        FROM_INTEGER("u64", uint64_t),
        FROM_INTEGER("s64", int64_t),
        ROUND("rni", rint),
        ROUND("rzi", trunc),
        ROUND("rmi", floor),
        ROUND("rpi", ceil),
        CONVERT("cvt.f64.f32", double, float, a),
        CONVERT("cvt.rn.f32.f64", float, double, a),
        CONVERT("cvt.f32.f16", float, uint16_t, hs_f16_decode(a)),
        CONVERT("cvt.rn.f16.f32", uint16_t, float, f16_of(a)),
        CONVERT("cvt.sat.f32.f32", float, float, a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f),
        CONVERT("cvt.rna.tf32.f32", uint32_t, float, tf32_of(a)),
        PAIR("cvt.rn.bf16x2.f32", bf16_of),
        PAIR("cvt.rn.f16x2.f32", f16_of),
        CODES("cvt.rn.satfinite.e4m3x2.f32", hs_e4m3_encode_saturate),
        CODES("cvt.rn.satfinite.e5m2x2.f32", hs_e5m2_encode_saturate),
    };
    return rows;
}

} // namespace

Run conversion_run(const std::string &text)
{
    const auto found = table().find(text);
    return found == table().end() ? nullptr : found->second;
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
