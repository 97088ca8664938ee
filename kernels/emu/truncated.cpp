/* SPDX-License-Identifier: MIT
 *
 * The arithmetic of truncated.h, in double: a product has at most 22 bits, and a sum of multiples of 2^(E - bits) that
 * are at most 2^(E + 2) each is exact.
 */
#include "kernels/emu/truncated.h"

#include <math.h>

#include "kernels/emu/arithmetic.h"
#include "kernels/emu/settings.h"

namespace hs_emu
{
namespace emulator
{

enum { MOST_COLUMNS = 256, NOTHING = -4096, NOT_FINITE = 4096 };

TensorAdder adder_of_wgmma()
{
    return TensorAdder{ 16, 25 };
}

TensorAdder adder_of_fp8()
{
    return TensorAdder{ 32, 13, 13 };
}

static int least_exponent(TensorFormat format)
{
    switch (format) {
    case TensorFormat::F16:
    case TensorFormat::E5M2:
        return -14;
    case TensorFormat::E4M3:
        return -6;
    case TensorFormat::BF16:
    case TensorFormat::TF32:
        break;
    }
    return -126;
}

LeastExponents::LeastExponents(TensorFormat a_format, TensorFormat b_format)
    : a(least_exponent(a_format)), b(least_exponent(b_format))
{
}

TensorAdder adder_of_mma(bool tf32)
{
    const bool hopper = settings().shared_limit >= 227 * 1024;
    const TensorAdder adder = hopper ? adder_of_wgmma() : TensorAdder{ 8, 24 };
    return TensorAdder{ tf32 ? adder.group / 2 : adder.group, adder.bits };
}

/* floor(log2 |x|), no less than `least`; of zero and of infinities and NaN numbers that stand out in any sum of two. */
static inline int exponent_of(float x, int least)
{
    const unsigned magnitude = __float_as_uint(x) & 0x7fffffffu;
    const int exponent = (int)(magnitude >> 23) - 127;
    if (magnitude == 0)
        return NOTHING;
    return exponent == 128 ? (int)NOT_FINITE : exponent > least ? exponent : least;
}

static inline double power_of_two(int exponent)
{
    return __longlong_as_double((long long)(exponent + 1023) << 52);
}

/* To f32 with `kept` bits after the point, towards zero; from 2^128 on infinite. */
static inline float cut_to_f32(double x, int kept)
{
    const float nearest = (float)x;
    const unsigned keep = 0xffffffffu << (23 - kept), bits = __float_as_uint(nearest);
    if (!(fabs((double)nearest) > fabs(x)) || fabs(x) >= 0x1p128)
        return nearest != nearest ? nearest : __uint_as_float(bits & keep);
    return __uint_as_float((bits - 1) & keep);
}

/* One group: k up to `depth`. */
static inline __attribute__((always_inline)) void add_group(TensorAdder adder, LeastExponents least, const float *a,
                                                            int depth, const float *b, int stride, int columns,
                                                            float *sums)
{
    int largest[MOST_COLUMNS];
    double scale[MOST_COLUMNS], total[MOST_COLUMNS];
    for (int n = 0; n < columns; n++)
        largest[n] = exponent_of(sums[n], -126);
    for (int k = 0; k < depth; k++) {
        const int own = exponent_of(a[k], least.a);
        for (int n = 0; n < columns; n++) {
            const int exponent = own + exponent_of(b[k * stride + n], least.b);
            largest[n] = exponent > largest[n] ? exponent : largest[n];
        }
    }
    for (int n = 0; n < columns; n++) {
        const bool usable = largest[n] > NOTHING / 2 && largest[n] < NOT_FINITE / 2;
        scale[n] = power_of_two(usable ? adder.bits - largest[n] : 0);
        total[n] = trunc((double)sums[n] * scale[n]);
    }
    for (int k = 0; k < depth; k++) {
        const double factor = (double)a[k];
        for (int n = 0; n < columns; n++)
            total[n] += trunc(factor * (double)b[k * stride + n] * scale[n]);
    }
    for (int n = 0; n < columns; n++)
        sums[n] = cut_to_f32(total[n] / scale[n], adder.kept);
}

#if defined(__x86_64__)
__attribute__((target("avx2"), optimize("O3"))) static void add_group_avx2(TensorAdder adder, LeastExponents least,
                                                                           const float *a, int depth, const float *b,
                                                                           int stride, int columns, float *sums)
{
    add_group(adder, least, a, depth, b, stride, columns, sums);
}
static const bool has_avx2 = __builtin_cpu_supports("avx2");
#endif

void truncated_sums(TensorAdder adder, LeastExponents least, const float *a, int depth, const float *b, int stride,
                    int columns, float *sums)
{
    for (int k = 0; k < depth; k += adder.group) {
        const int count = depth - k < adder.group ? depth - k : adder.group;
#if defined(__x86_64__)
        if (has_avx2) {
            add_group_avx2(adder, least, a + k, count, b + k * stride, stride, columns, sums);
            continue;
        }
#endif
        add_group(adder, least, a + k, count, b + k * stride, stride, columns, sums);
    }
}

} // namespace emulator
} // namespace hs_emu
