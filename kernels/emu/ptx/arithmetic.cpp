/* SPDX-License-Identifier: MIT
 *
 * Instructions on numbers (PTX ISA, chapters on integer, floating point, comparison, logic and shift), a row for each
 * form.  a, b, c: the operands behind the result.
 */
#include <fenv.h>
#include <limits>
#include <math.h>

#include "kernels/emu/ptx/program.h"

namespace hs_emu
{
namespace emulator
{
namespace ptx
{

#define A(T) const T a = get<T>(frame, op.slots[1])
#define B(T) const T b = get<T>(frame, op.slots[2])
#define C(T) const T c = get<T>(frame, op.slots[3])
#define UNARY(text, T, result)                       \
    {                                                \
        text, [](Frame &frame, const Op &op) {       \
            A(T);                                    \
            set<T>(frame, op.slots[0], (T)(result)); \
        }                                            \
    }
#define BINARY(text, T, result)                      \
    {                                                \
        text, [](Frame &frame, const Op &op) {       \
            A(T);                                    \
            B(T);                                    \
            set<T>(frame, op.slots[0], (T)(result)); \
        }                                            \
    }
#define TERNARY(text, T, result)                     \
    {                                                \
        text, [](Frame &frame, const Op &op) {       \
            A(T);                                    \
            B(T);                                    \
            C(T);                                    \
            set<T>(frame, op.slots[0], (T)(result)); \
        }                                            \
    }
#define WIDE(text, From, To)                                  \
    {                                                         \
        text, [](Frame &frame, const Op &op) {                \
            A(From);                                          \
            B(From);                                          \
            set<To>(frame, op.slots[0], (To)((To)a * (To)b)); \
        }                                                     \
    }
#define SHIFT(text, T, result)                        \
    {                                                 \
        text, [](Frame &frame, const Op &op) {        \
            A(T);                                     \
            B(uint32_t);                              \
            constexpr uint32_t width = 8 * sizeof(T); \
            set<T>(frame, op.slots[0], (T)(result));  \
        }                                             \
    }
#define COMPARE(text, T, result)                         \
    {                                                    \
        text, [](Frame &frame, const Op &op) {           \
            A(T);                                        \
            B(T);                                        \
            frame.slots[op.slots[0]] = (result) ? 1 : 0; \
        }                                                \
    }
#define COMPARE_ALL(type, T)                                                                                      \
    COMPARE("setp.eq." type, T, a == b), COMPARE("setp.ne." type, T, a != b), COMPARE("setp.lt." type, T, a < b), \
        COMPARE("setp.le." type, T, a <= b), COMPARE("setp.gt." type, T, a > b), COMPARE("setp.ge." type, T, a >= b)
/* Unordered: true where one of them is NaN. */
#define COMPARE_REAL(type, T)                                                                               \
    COMPARE_ALL(type, T), COMPARE("setp.neu." type, T, !(a == b)), COMPARE("setp.ltu." type, T, !(a >= b)), \
        COMPARE("setp.leu." type, T, !(a > b)), COMPARE("setp.gtu." type, T, !(a <= b)),                    \
        COMPARE("setp.geu." type, T, !(a < b)), COMPARE("setp.equ." type, T, a == b || a != a || b != b)
#define INTEGER(signed_type, unsigned_type, S, U)                                                               \
    BINARY("add." signed_type, U, a + b), BINARY("sub." signed_type, U, a - b),                                 \
        BINARY("add." unsigned_type, U, a + b), BINARY("sub." unsigned_type, U, a - b),                         \
        BINARY("mul.lo." signed_type, U, a *b), BINARY("mul.lo." unsigned_type, U, a *b),                       \
        TERNARY("mad.lo." signed_type, U, a *b + c), TERNARY("mad.lo." unsigned_type, U, a *b + c),             \
        BINARY("div." signed_type, S, divided(a, b)), BINARY("div." unsigned_type, U, b == 0 ? ~(U)0 : a / b),  \
        BINARY("rem." signed_type, S, remainder_of(a, b)), BINARY("rem." unsigned_type, U, b == 0 ? a : a % b), \
        BINARY("min." signed_type, S, a < b ? a : b), BINARY("min." unsigned_type, U, a < b ? a : b),           \
        BINARY("max." signed_type, S, a > b ? a : b), BINARY("max." unsigned_type, U, a > b ? a : b),           \
        UNARY("neg." signed_type, U, 0 - a), UNARY("abs." signed_type, S, a < 0 ? (S)(0 - (U)a) : a),           \
        SHIFT("shr." signed_type, S, a >> (b < width ? b : width - 1)),                                         \
        SHIFT("shr." unsigned_type, U, b < width ? a >> b : 0), COMPARE_ALL(signed_type, S),                    \
        COMPARE_ALL(unsigned_type, U)
#define BITS(type, U)                                                                                                  \
    BINARY("and." type, U, a &b), BINARY("or." type, U, a | b), BINARY("xor." type, U, a ^ b),                         \
        UNARY("not." type, U, ~a), SHIFT("shl." type, U, b < width ? a << b : 0), COMPARE("setp.eq." type, U, a == b), \
        COMPARE("setp.ne." type, U, a != b)
#define SELECT(type)                                                                                 \
    {                                                                                                \
        "selp." type, [](Frame &frame, const Op &op) {                                               \
            frame.slots[op.slots[0]] = frame.slots[op.slots[frame.slots[op.slots[3]] != 0 ? 1 : 2]]; \
        }                                                                                            \
    }

namespace
{

/* Division by zero has no result that the manual names; nothing here relies on one. */
template <typename T> T divided(T a, T b)
{
    using U = std::make_unsigned_t<T>;
    return b == 0 ? (T)-1 : b == -1 ? (T)(0 - (U)a) : (T)(a / b);
}
template <typename T> T remainder_of(T a, T b)
{
    return b == 0 || b == -1 ? (T)(b == 0 ? a : 0) : (T)(a % b);
}

/* The other one where one is NaN; -0 is less than +0. */
template <typename T> T least(T a, T b)
{
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <typename T> T largest(T a, T b)
{
    return a != a ? b : b != b ? a : a == b ? (std::signbit(a) ? b : a) : a > b ? a : b;
}

/* Rounded down: the host's own multiplication with addition under that mode. */
float fma_down(float a, float b, float c)
{
    const int before = fegetround();
    fesetround(FE_DOWNWARD);
    const volatile float x = a, y = b, z = c;
    const volatile float result = fmaf(x, y, z);
    fesetround(before);
    return result;
}

/* "A gross approximation" whose lower half is zero (PTX ISA, rcp.approx.ftz.f64); how the upper one is rounded is not
 * said: here it is cut. */
double reciprocal_upper(double a)
{
    const double whole = 1.0 / (fabs(a) < 0x1p-1022 ? copysign(0.0, a) : a);
    return __longlong_as_double(__double_as_longlong(whole) & ~0xffffffffll);
}

uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t bytes = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t nibble = selector >> 4 * i & 15;
        uint32_t byte = (uint32_t)(bytes >> (nibble & 7) * 8) & 0xff;
        if ((nibble & 8) != 0)
            byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << 8 * i;
    }
    return result;
}

/* bfi d, a, b, start, length: b with `length` bits of a at `start`. */
template <typename U> void insert_bits(Frame &frame, const Op &op)
{
    A(U);
    B(U);
    const uint32_t width = 8 * sizeof(U), start = get<uint32_t>(frame, op.slots[3]) & 0xff;
    uint32_t length = get<uint32_t>(frame, op.slots[4]) & 0xff;
    if (start >= width) {
        set<U>(frame, op.slots[0], b);
        return;
    }
    length = length < width - start ? length : width - start;
    const U mask = (U)((length < width ? ((U)1 << length) - 1 : ~(U)0) << start);
    set<U>(frame, op.slots[0], (U)((b & ~mask) | (((U)(a << start)) & mask)));
}

typedef std::unordered_map<std::string, Run> Table;

const Table &integer_table()
{
    static const Table rows = {
        INTEGER("s16", "u16", int16_t, uint16_t),
        INTEGER("s32", "u32", int32_t, uint32_t),
        INTEGER("s64", "u64", int64_t, uint64_t),
        BITS("b16", uint16_t),
        BITS("b32", uint32_t),
        BITS("b64", uint64_t),
        WIDE("mul.wide.s16", int16_t, int32_t),
        WIDE("mul.wide.u16", uint16_t, uint32_t),
        WIDE("mul.wide.s32", int32_t, int64_t),
        WIDE("mul.wide.u32", uint32_t, uint64_t),
        BINARY("mul.hi.s32", int32_t, (int64_t)a * b >> 32),
        BINARY("mul.hi.u32", uint32_t, (uint64_t)a * b >> 32),
        BINARY("mul.hi.s64", int64_t, (__int128)a * b >> 64),
        BINARY("mul.hi.u64", uint64_t, (unsigned __int128)a * b >> 64),
        UNARY("popc.b32", uint32_t, __builtin_popcount(a)),
        UNARY("clz.b32", uint32_t, a == 0 ? 32 : __builtin_clz(a)),
        UNARY("brev.b32", uint32_t, __brev(a)),
        UNARY("bfind.shiftamt.u32", uint32_t, a == 0 ? ~0u : (uint32_t)__builtin_clz(a)),
        TERNARY("prmt.b32", uint32_t, permuted(a, b, c)),
        { "bfi.b32", insert_bits<uint32_t> },
        { "bfi.b64", insert_bits<uint64_t> },
        /* An immediate predicate that is true is -1. */
        BINARY("and.pred", uint64_t, a != 0 && b != 0),
        BINARY("or.pred", uint64_t, a != 0 || b != 0),
        BINARY("xor.pred", uint64_t, (a != 0) != (b != 0)),
        UNARY("not.pred", uint64_t, a == 0),
        UNARY("mov.pred", uint64_t, a != 0),
        SELECT("b16"),
        SELECT("b32"),
        SELECT("b64"),
        SELECT("u16"),
        SELECT("u32"),
        SELECT("u64"),
        SELECT("s16"),
        SELECT("s32"),
        SELECT("s64"),
        SELECT("f32"),
        SELECT("f64"),
    };
    return rows;
}

const Table &real_table()
{
    static const Table rows = {
        /* Without a rounding an addition or a multiplication may be fused with its neighbour by what compiles PTX;
         * here it is not. */
        BINARY("add.f32", float, a + b),
        BINARY("add.rn.f32", float, a + b),
        BINARY("add.f64", double, a + b),
        BINARY("add.rn.f64", double, a + b),
        BINARY("sub.f32", float, a - b),
        BINARY("sub.rn.f32", float, a - b),
        BINARY("sub.f64", double, a - b),
        BINARY("sub.rn.f64", double, a - b),
        BINARY("mul.f32", float, a *b),
        BINARY("mul.rn.f32", float, a *b),
        BINARY("mul.f64", double, a *b),
        BINARY("mul.rn.f64", double, a *b),
        BINARY("div.rn.f32", float, a / b),
        BINARY("div.rn.f64", double, a / b),
        BINARY("div.approx.f32", float, a / b), /* 2 units allowed */
        TERNARY("fma.rn.f32", float, fmaf(a, b, c)),
        TERNARY("fma.rn.f64", double, fma(a, b, c)),
        TERNARY("fma.rm.f32", float, fma_down(a, b, c)),
        UNARY("sqrt.rn.f32", float, sqrtf(a)),
        UNARY("sqrt.rn.f64", double, sqrt(a)),
        UNARY("rcp.rn.f32", float, 1.0f / a),
        UNARY("rcp.rn.f64", double, 1.0 / a),
        UNARY("rcp.approx.ftz.f32", float, emulated_reciprocal_approximate(a)),
        UNARY("rcp.approx.ftz.f64", double, reciprocal_upper(a)),
        UNARY("ex2.approx.ftz.f32", float, emulated_exp2_approximate(a)),
        UNARY("ex2.approx.f32", float, (float)exp2((double)a)),
        UNARY("rsqrt.approx.f32", float, (float)(1.0 / sqrt((double)a))),
        UNARY("lg2.approx.f32", float, (float)log2((double)a)),
        UNARY("neg.f32", float, -a),
        UNARY("neg.f64", double, -a),
        UNARY("abs.f32", float, fabsf(a)),
        UNARY("abs.f64", double, fabs(a)),
        BINARY("copysign.f32", float, copysignf(b, a)),
        BINARY("copysign.f64", double, copysign(b, a)),
        BINARY("min.f32", float, least(a, b)),
        BINARY("min.f64", double, least(a, b)),
        BINARY("max.f32", float, largest(a, b)),
        BINARY("max.f64", double, largest(a, b)),
        BINARY("min.NaN.f32", float, a != a || b != b ? __uint_as_float(0x7fffffff) : least(a, b)),
        BINARY("max.NaN.f32", float, a != a || b != b ? __uint_as_float(0x7fffffff) : largest(a, b)),
        COMPARE_REAL("f32", float),
        COMPARE_REAL("f64", double),
    };
    return rows;
}

} // namespace

Run arithmetic_run(const std::string &text)
{
    for (const Table *table : { &integer_table(), &real_table() }) {
        const auto found = table->find(text);
        if (found != table->end())
            return found->second;
    }
    return nullptr;
}

} // namespace ptx
} // namespace emulator
} // namespace hs_emu
