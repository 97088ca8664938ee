/* SPDX-License-Identifier: MIT
 *
 * GELU and its derivative against double: within their stated bound (kernels/base/tolerance.h) for every bf16 number and
 * for a dense set of f32 numbers, whatever the approximate instructions do within theirs; and at the ends.  Squared ReLU,
 * which is exact, at chosen ones.
 */
#include "kernels/cuda/toolbox/activation.cuh"
#include "tests/emu/harness.h"

extern "C" {
#include "kernels/base/tolerance.h"
}

namespace hs_emu
{

using emulator::Approximate;

static const double SLOPE = 1.5957691216057308, CUBIC = 0.044715;

static double gelu_exact(double x)
{
    return x / (1.0 + exp(-SLOPE * (x + CUBIC * x * x * x)));
}

static double derivative_exact(double x)
{
    const double v = SLOPE * (x + CUBIC * x * x * x), s = 1.0 / (1.0 + exp(-v)), w = 1.0 / (1.0 + exp(v));
    const double h = SLOPE * (x + 3.0 * CUBIC * x * x * x);
    return fabs(x) > 30.0 ? (double)(x > 0.0) : s + s * w * h; /* 0 * inf beyond */
}

/* Of the bound, how much was used; the worst of all arguments. */
struct Worst {
    double forward = 0.0, backward = 0.0;
};

/* The result itself is the nearest f32 number at best. */
static bool within(float computed, double exact, double bound, double &worst)
{
    const double error = fabs((double)computed - exact), allowed = bound + fabs(exact) * 0x1p-60 + 0x1p-149;
    worst = error / allowed > worst ? error / allowed : worst;
    return error <= allowed;
}

static bool check(uint32_t bits, Worst &worst)
{
    const float x = __uint_as_float(bits);
    if (!(fabsf(x) <= 3e38f))
        return true;
    if (within(gelu(x), gelu_exact((double)x), hs_tolerance_gelu((double)x), worst.forward) &&
        within(gelu_derivative(x), derivative_exact((double)x), hs_tolerance_gelu_derivative((double)x),
               worst.backward))
        return true;
    fprintf(stderr, "x = %.9g: gelu %.9g, %.17g expected; derivative %.9g, %.17g expected\n", (double)x,
            (double)gelu(x), gelu_exact((double)x), (double)gelu_derivative(x), derivative_exact((double)x));
    return false;
}

/* All bf16 numbers; f32 numbers 4099 apart, and 257 apart from 2^-8 to 16. */
static bool sweep(Approximate approximate, Worst &worst)
{
    test::settings().approximate = approximate;
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        if (!check(bits << 16, worst))
            return false;
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 4099)
        if (!check(bits, worst) || !check(bits | 0x80000000, worst))
            return false;
    for (uint32_t bits = 0x3b800000; bits < 0x41800000; bits += 257)
        if (!check(bits, worst) || !check(bits | 0x80000000, worst))
            return false;
    return true;
}

static bool is_bits(float value, uint32_t bits)
{
    if (__float_as_uint(value) != bits)
        fprintf(stderr, "%08x, %08x expected\n", __float_as_uint(value), bits);
    return __float_as_uint(value) == bits;
}

static bool ends()
{
    const float largest = 0x1.fffffep127f, smallest = 0x1p-149f;
    bool right = std::isnan(gelu(NAN)) && std::isnan(gelu_derivative(NAN)) && std::isnan(gelu(-INFINITY));
    right = is_bits(gelu(INFINITY), 0x7f800000) && right;
    right = is_bits(gelu(largest), 0x7f7fffff) && is_bits(gelu(-largest), 0x80000000) && right;
    right = is_bits(gelu(0.0f), 0) && is_bits(gelu(-0.0f), 0x80000000) && right;
    right = is_bits(gelu(4.0f * smallest), 2) && is_bits(gelu(-4.0f * smallest), 0x80000002) && right;
    right = is_bits(gelu_derivative(smallest), 0x3f000000) && is_bits(gelu_derivative(-0.0f), 0x3f000000) && right;
    for (float x : { largest, INFINITY, 1e10f, 11.0f })
        right = is_bits(gelu_derivative(x), 0x3f800000) && fabsf(gelu_derivative(-x)) < 0x1p-117f && right;
    return right;
}

static bool squares()
{
    const float inf = INFINITY;
    bool right = std::isnan(relu2(NAN)) && std::isnan(relu2_derivative(NAN));
    for (float x : { -inf, -3.0f, -0x1p-149f, -0.0f, 0.0f })
        right = relu2(x) == 0.0f && relu2_derivative(x) == 0.0f && right;
    right = is_bits(relu2(inf), 0x7f800000) && is_bits(relu2_derivative(inf), 0x7f800000) && right;
    right = relu2(4095.0f) == 16769025.0f && relu2_derivative(4095.0f) == 8190.0f && right;
    return is_bits(relu2(0x1p-74f), 2) && is_bits(relu2_derivative(0x1p-149f), 2) && right;
}

} // namespace hs_emu

int main()
{
    using hs_emu::Approximate;
    static const char *const names[] = { "exact", "above", "below", "mixed" };
    hs_emu::Worst worst[4];
    for (int i = 0; i < 4; i++) {
        if (!hs_emu::sweep(static_cast<Approximate>(i), worst[i]))
            test::failures++;
        printf("%s: %.2f of gelu's bound, %.2f of its derivative's\n", names[i], worst[i].forward, worst[i].backward);
    }
    /* A bound that is never neared would let mistakes through, and so would errors that are not injected. */
    if (worst[3].forward < 0.5 || worst[3].backward < 0.3 || worst[0].forward > worst[3].forward) {
        printf("FAIL the bound is not tried\n");
        test::failures++;
    }
    test::settings().approximate = Approximate::EXACT;
    if (!hs_emu::ends() || !hs_emu::squares())
        test::failures++;
    return test::result();
}
