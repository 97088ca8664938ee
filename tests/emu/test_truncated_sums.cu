/* SPDX-License-Identifier: MIT
 *
 * The model of tensor cores' adders (kernels/emu/truncated.h) against sums worked out by hand, and through the
 * instructions.
 */
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "kernels/emu/truncated.h"
#include "tests/emu/harness.h"

#include <initializer_list>
#include <math.h>

extern "C" {
#include "kernels/base/rng.h"
}

namespace hs_emu
{

using emulator::TensorAdder;
using emulator::truncated_sums;

static const TensorAdder HOPPER = { 16, 25 }, AMPERE = { 8, 24 };

/* c + the products, each given as a times 1. */
static float sum_of(TensorAdder adder, float c, std::initializer_list<float> a)
{
    float operand[16] = {}, ones[16];
    for (float &one : ones)
        one = 1.0f;
    int count = 0;
    for (float value : a)
        operand[count++] = value;
    truncated_sums(adder, -126, operand, 16, ones, 1, 1, &c);
    return c;
}

static void expect(const char *what, float computed, float expected)
{
    const bool same = computed == expected || (isnan(computed) && isnan(expected));
    printf("%s %s: %a%s", same ? "ok  " : "FAIL", what, (double)computed, same ? "\n" : "");
    if (!same)
        printf(", %a expected\n", (double)expected);
    test::failures += !same;
}

/* The last place of 1 is 2^-23; below 1 it is 2^-24. */
static void by_hand()
{
    const float u = 0x1p-24f;
    expect("two halves of the last place are added exactly", sum_of(HOPPER, 1.0f, { u, u }), 1.0f + 2.0f * u);
    expect("three quarters of the last place are cut, not rounded", sum_of(HOPPER, 1.0f, { 1.5f * u }), 1.0f);
    expect("towards zero from below, too", sum_of(HOPPER, -1.0f, { -1.5f * u }), -1.0f);
    expect("a difference is cut towards zero", sum_of(HOPPER, 1.0f, { -0.5f * u }), 1.0f - u);
    expect("25 bits keep quarters of the last place", sum_of(HOPPER, 1.0f, { u / 2, u / 2, u / 2, u / 2 }),
           1.0f + 2.0f * u);
    expect("24 bits do not", sum_of(AMPERE, 1.0f, { u / 2, u / 2, u / 2, u / 2 }), 1.0f);
    expect("eighths are lost, whatever their number",
           sum_of(HOPPER, 1.0f, { u / 4, u / 4, u / 4, u / 4, u / 4, u / 4, u / 4, u / 4, u / 4, u / 4 }), 1.0f);
    /* 2^26: multiples of 2 are kept, or of 4. */
    expect("what cancels takes small terms with it", sum_of(HOPPER, 0x1p26f, { -0x1p26f, 1.5f }), 0.0f);
    expect("and leaves multiples of 2", sum_of(HOPPER, 0x1p26f, { -0x1p26f, 3.5f, -3.5f, 3.5f }), 2.0f);
    expect("or of 4", sum_of(AMPERE, 0x1p26f, { -0x1p26f, 3.5f }), 0.0f);
    expect("the second group of eight sees no large term",
           sum_of(AMPERE, 0x1p26f, { -0x1p26f, 0, 0, 0, 0, 0, 0, 0, 1.5f }), 1.5f);
    expect("one group of sixteen does", sum_of(HOPPER, 0x1p26f, { -0x1p26f, 0, 0, 0, 0, 0, 0, 0, 1.5f }), 0.0f);
    expect("nothing", sum_of(HOPPER, 0.0f, { 0.0f }), 0.0f);
    expect("a sum alone", sum_of(HOPPER, 0x1.fffffep-3f, {}), 0x1.fffffep-3f);
    expect("the smallest numbers", sum_of(HOPPER, 0x1p-149f, { 0x1p-133f }), 0x1p-133f + 0x1p-149f);
    expect("overflow", sum_of(HOPPER, 0x1.fffffep127f, { 0x1p127f, 0x1p127f }), INFINITY);
    expect("the largest number is not passed by less", sum_of(HOPPER, 0x1.fffffep127f, { 0x1.8p103f }),
           0x1.fffffep127f);
    expect("infinity", sum_of(HOPPER, 1.0f, { -INFINITY, 3.0f }), -INFINITY);
    expect("infinities that cancel", sum_of(HOPPER, INFINITY, { -INFINITY }), NAN);
    /* 1.5 * 1.5 = 2.25 has the exponent 0, its factors' sum, so that 2^-25 next to it is kept. */
    const float a[] = { 1.5f, -1.5f, 0x1p-12f }, b[] = { 1.5f, 1.5f, 0x1p-13f };
    float product = 0.0f;
    truncated_sums(HOPPER, -126, a, 3, b, 1, 1, &product);
    expect("a product's exponent is its factors'", product, 0x1p-25f);
    /* An f16 below 2^-14 has the exponent -14: 2^-40 is cut next to it, which 2^-24 by itself would keep. */
    const float small[] = { 0x1p-24f }, one[] = { 1.0f };
    float kept = 0x1p-40f;
    truncated_sums(HOPPER, -14, small, 1, one, 1, 1, &kept);
    expect("a subnormal factor aligns as its format's smallest exponent", kept, 0x1p-24f);
}

/* What the header says of the error: 10 u S for each group, of long sums of bf16 numbers, all positive and of both signs. */
static void long_sums(const char *what, TensorAdder adder, bool positive)
{
    enum { DEPTH = 4096, COLUMNS = 64 };
    static float a[DEPTH], b[DEPTH][COLUMNS], sums[COLUMNS];
    HsRng rng = {};
    rng.seed = 5;
    for (int k = 0; k < DEPTH; k++)
        for (int n = 0; n < COLUMNS; n++) {
            const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)(k * COLUMNS + n));
            a[k] = __uint_as_float(__float_as_uint(hs_rng_uniform(draw.word[0])) & 0xffff0000u);
            b[k][n] = __uint_as_float(__float_as_uint(hs_rng_uniform(draw.word[1])) & 0xffff0000u);
            b[k][n] = positive || draw.word[2] % 2 ? b[k][n] : -b[k][n];
        }
    for (float &sum : sums)
        sum = 0.0f;
    for (int k = 0; k < DEPTH; k += 16)
        truncated_sums(adder, -126, a + k, 16, b[k], COLUMNS, COLUMNS, sums);
    double worst = 0.0;
    for (int n = 0; n < COLUMNS; n++) {
        double exact = 0.0, magnitude = 0.0;
        for (int k = 0; k < DEPTH; k++) {
            exact += (double)a[k] * (double)b[k][n];
            magnitude += fabs((double)a[k] * (double)b[k][n]);
        }
        worst = fmax(worst, fabs((double)sums[n] - exact) / magnitude);
    }
    const double bound = 10.0 * 0x1p-24 * DEPTH / adder.group;
    printf("%s %s: %.3g of the terms' sizes, at most %.3g\n", worst <= bound ? "ok  " : "FAIL", what, worst, bound);
    test::failures += worst > bound;
}

/* Row 0 of a m16n8k16: 1 + 16 * 2^-25 in column 0. */
static __global__ void mma_kernel(float *result)
{
    const int lane = (int)threadIdx.x;
    uint32_t a[4] = {}, b[2] = {};
    float d[4] = {};
    if (lane / 4 == 0) {
        a[0] = a[2] = 0x33003300; /* bf16 2^-25, twice: of row 0 */
        b[0] = b[1] = 0x3f803f80; /* 1: of column 0 */
        d[0] = 1.0f;
    }
    ptx::mma_bf16(d, a, b);
    if (lane == 0)
        result[0] = d[0];
}

/* On a GPU with shared_kib KiB of shared memory. */
static bool through_mma(bool truncated, size_t shared_kib, float expected)
{
    test::settings().truncated_sums = truncated;
    test::settings().shared_limit = shared_kib * 1024;
    float *result = test::to_device<float>({ 0.0f });
    if (!test::launch(mma_kernel, 1, 32, 0, result))
        return false;
    return test::to_host(result, 1)[0] == expected;
}

} // namespace hs_emu

int main()
{
    hs_emu::by_hand();
    hs_emu::long_sums("positive terms on 9.0", hs_emu::HOPPER, true);
    hs_emu::long_sums("terms of both signs on 9.0", hs_emu::HOPPER, false);
    hs_emu::long_sums("positive terms on 8.0", hs_emu::AMPERE, true);
    /* Each is less than half of the last place of 1, and less than 2^-24. */
    test::holds("one by one they are lost", [] { return hs_emu::through_mma(false, 227, 1.0f); });
    test::holds("9.0 adds sixteen", [] { return hs_emu::through_mma(true, 227, 1.0f + 0x1p-21f); });
    test::holds("8.0 cuts each", [] { return hs_emu::through_mma(true, 163, 1.0f); });
    return test::result();
}
