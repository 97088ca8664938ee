/* SPDX-License-Identifier: MIT
 *
 * A capped logit and its derivative against double: within their stated bounds (kernels/cuda/toolbox/logit_cap.cuh) for
 * every bf16 number and for a dense set of f32 numbers, whatever the approximate instructions do within theirs; and at
 * the ends.
 */
#include "kernels/cuda/toolbox/logit_cap.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

using emulator::Approximate;

/* Of the bounds, how much was used; the worst of all arguments. */
struct Worst {
    double value = 0.0, slope = 0.0;
};

/* bound: relative; floor: what is flushed on the way, or is off by a whole unit of subnormal numbers. */
static bool within(float computed, double exact, double bound, double floor, double &worst)
{
    const double error = fabs((double)computed - exact), relative = bound * fabs(exact);
    if (fabs(exact) > 0x1p30 * floor)
        worst = error / relative > worst ? error / relative : worst;
    return error <= relative + floor;
}

static bool check(uint32_t bits, float most, Worst &worst)
{
    const float x = __uint_as_float(bits);
    if (!(fabsf(x) <= 3e38f))
        return true;
    const CappedLogit capped = capped_logit(logit_cap_of(most), x);
    const double u = (double)x / (double)most, secant = 1.0 / cosh(u), value = (double)most * tanh(u);
    if (within(capped.value, value, 12.0 * 0x1p-24, ((double)most + 1.0) * 0x1p-149, worst.value) &&
        within(capped.slope, secant * secant, (16.0 + 4.0 * fabs(u)) * 0x1p-24, 0x1p-124, worst.slope))
        return true;
    fprintf(stderr, "x = %.9g, cap %g: %.9g, %.17g expected; derivative %.9g, %.17g expected\n", (double)x,
            (double)most, (double)capped.value, value, (double)capped.slope, secant * secant);
    return false;
}

/* All bf16 numbers; f32 numbers 4099 apart, and 257 apart from 2^-8 to 256. */
static bool sweep(Approximate approximate, float most, Worst &worst)
{
    test::settings().approximate = approximate;
    for (uint32_t bits = 0; bits < 0x10000; bits++)
        if (!check(bits << 16, most, worst))
            return false;
    for (uint32_t bits = 0; bits < 0x7f800000; bits += 4099)
        if (!check(bits, most, worst) || !check(bits | 0x80000000, most, worst))
            return false;
    for (uint32_t bits = 0x3b800000; bits < 0x43800000; bits += 257)
        if (!check(bits, most, worst) || !check(bits | 0x80000000, most, worst))
            return false;
    return true;
}

static bool ends()
{
    const LogitCap cap = logit_cap_of(30.0f);
    const CappedLogit large = capped_logit(cap, INFINITY), small = capped_logit(cap, -INFINITY);
    const CappedLogit zero = capped_logit(cap, -0.0f), none = logit_of(logit_cap_of(0.0f), 1e30f);
    return large.value == 30.0f && large.slope == 0.0f && small.value == -30.0f && small.slope == 0.0f &&
           zero.value == 0.0f && zero.slope == 1.0f && none.value == 1e30f && none.slope == 1.0f &&
           std::isnan(capped_logit(cap, NAN).value);
}

} // namespace hs_emu

int main()
{
    using hs_emu::Approximate;
    static const char *const names[] = { "exact", "above", "below", "mixed" };
    hs_emu::Worst worst[4];
    for (int i = 0; i < 4; i++) {
        for (float most : { 1.0f, 30.0f, 5000.0f })
            if (!hs_emu::sweep(static_cast<Approximate>(i), most, worst[i]))
                test::failures++;
        printf("%s: %.2f of the logit's bound, %.2f of its derivative's\n", names[i], worst[i].value, worst[i].slope);
    }
    /* A bound that is never neared would let mistakes through, and so would errors that are not injected. */
    if (worst[3].value < 0.5 || worst[3].slope < 0.3 || worst[0].value > worst[3].value) {
        printf("FAIL the bound is not tried\n");
        test::failures++;
    }
    test::settings().approximate = Approximate::EXACT;
    if (!hs_emu::ends()) {
        printf("FAIL at the ends\n");
        test::failures++;
    }
    return test::result();
}
