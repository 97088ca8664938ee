/* SPDX-License-Identifier: MIT
 *
 * Activation functions of one element, in f32.
 *
 * Both are made of the logistic function s(u) = 1 / (1 + exp(-u)):
 *     silu(x) = x s(x)
 *     gelu(x) = x/2 (1 + tanh v) = x s(2v),   v = sqrt(2/pi) (x + 0.044715 x^3)   (Hendrycks & Gimpel 2016, section 2)
 * since (1 + tanh v) / 2 = s(2v), which does not cancel where tanh nears -1.  With tanh' v = 4 s (1 - s),
 *     gelu'(x) = s + 2 x s (1 - s) v',   v' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)
 * One exponential and one reciprocal an element: about 30 instructions, which hide behind the bytes.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_ACTIVATION_CUH
#define HS_KERNELS_CUDA_TOOLBOX_ACTIVATION_CUH

#include "kernels/cuda/toolbox/platform.cuh"
#ifdef HS_EMU
#include <math.h>
#endif

namespace HS_CUDA_NAMESPACE
{

/* s(u) and 1 - s(u), each without cancellation. */
struct Logistic {
    float value, complement;
};

/* z = exp(-|u|) is at most 1: nothing overflows, and the smaller of the two keeps its relative accuracy. */
HS_DEVICE Logistic logistic(float u)
{
    const float z = expf(-fabsf(u));
    const float larger = __fdividef(1.0f, 1.0f + z), smaller = z * larger;
    return u < 0.0f ? Logistic{ smaller, larger } : Logistic{ larger, smaller };
}

HS_DEVICE float silu(float x)
{
    return x * logistic(x).value;
}

/* silu'(x) = s (1 + x (1 - s)) */
HS_DEVICE float silu_derivative(float x, Logistic s)
{
    return s.value * fmaf(x, s.complement, 1.0f);
}

static constexpr float GELU_TWICE_SLOPE = 1.5957691216057308f; /* 2 sqrt(2/pi) */
static constexpr float GELU_CUBIC = 0.044715f;

HS_DEVICE float gelu(float x)
{
    return x * logistic(GELU_TWICE_SLOPE * x * fmaf(GELU_CUBIC * x, x, 1.0f)).value;
}

/* Beyond 9 the derivative is 1 or 0 to within 1e-26; stopping there keeps x^2 from overflowing against s = 0.  Written
 * as comparisons so that NaN passes. */
HS_DEVICE float gelu_derivative(float x)
{
    x = x > 9.0f ? 9.0f : x;
    x = x < -9.0f ? -9.0f : x;
    const float square = x * x;
    const Logistic s = logistic(GELU_TWICE_SLOPE * x * fmaf(GELU_CUBIC, square, 1.0f));
    const float slope = GELU_TWICE_SLOPE * fmaf(3.0f * GELU_CUBIC, square, 1.0f);
    return s.value * fmaf(x * s.complement, slope, 1.0f);
}

} // namespace HS_CUDA_NAMESPACE

#endif
