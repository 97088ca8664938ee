/* SPDX-License-Identifier: MIT
 *
 * ex2.approx.ftz.f32 and rcp.approx.ftz.f32.  The PTX manual (ISA 9.1) promises 2 and 1 units in the last place from the
 * correctly rounded value, and exact results at the ends; what a GPU's table makes of the rest is not published.  So
 * the results are correctly rounded, or off by all that is allowed, as the setting says.
 */
#include <math.h>

#include "kernels/emu/arithmetic.h"
#include "kernels/emu/device.h"
#include "kernels/emu/settings.h"

namespace hs_emu
{
namespace emulator
{

static bool is_normal(float value)
{
    return fabsf(value) >= 0x1p-126f && fabsf(value) <= 0x1.fffffep127f;
}

static float flushed(float value)
{
    return fabsf(value) < 0x1p-126f ? copysignf(0.0f, value) : value;
}

/* A rounded result, moved by `units` away from zero or towards it. */
static float moved(float rounded, unsigned units, float operand)
{
    const Approximate approximate = settings().approximate;
    if (approximate == Approximate::EXACT || !is_normal(rounded))
        return rounded;
    bool larger = approximate == Approximate::ABOVE;
    if (approximate == Approximate::MIXED) /* neighbouring operands differ at random, but each is always the same */
        larger = (__float_as_uint(operand) * 0x9E3779B1u + units * 0x85EBCA6Bu) >> 31 != 0;
    const unsigned bits = __float_as_uint(rounded);
    return flushed(__uint_as_float(larger ? bits + units : bits - units));
}

} // namespace emulator

float emulated_exp2_approximate(float x)
{
    if (fabsf(x) < 0x1p-126f)
        return 1.0f;
    return emulator::moved(emulator::flushed((float)exp2((double)x)), 2, x);
}

float emulated_reciprocal_approximate(float x)
{
    return emulator::moved(emulator::flushed(1.0f / emulator::flushed(x)), 1, x);
}

} // namespace hs_emu
