/* SPDX-License-Identifier: MIT
 *
 * Activation functions of one element, in f32.
 *
 * Two are made of the logistic function s(u) = 1 / (1 + exp(-u)):
 *     silu(x) = x s(x)
 *     gelu(x) = x/2 (1 + tanh(v/2)) = x s(v),   v = 2 sqrt(2/pi) (x + 0.044715 x^3)   (Hendrycks & Gimpel 2016, section 2)
 * since (1 + tanh(v/2)) / 2 = s(v), which does not cancel where tanh nears -1.  With w = 1 - s,
 *     gelu'(x) = s + s w h,   h = x v' = 2 sqrt(2/pi) (x + 3 * 0.044715 x^3)
 * and relu2(x) = max(x, 0)^2 (So et al. 2021, section 3.1) is exact but for its last rounding.
 *
 * GELU stands in the epilogue of a product, where no tensor core works meanwhile: its instructions are counted.  The
 * machine code for 9.0 has, an element:
 *     gelu              7: FMUL FFMA FMUL MUFU.EX2 FADD MUFU.RCP FMUL
 *     gelu_derivative  12: 2 FMNMX and FMUL FFMA FMUL MUFU.EX2 FFMA MUFU.RCP FFMA FMUL FFMA FMUL
 * of which the two MUFU fill 16 of the 16 issue slots that a warp has for them, so that less of the rest gains nothing.
 * Their errors are bounded in kernels/base/tolerance.h: gelu's by 5.8 u |x|, u = 2^-24, 8 u |gelu(x)| for
 * x > 0; gelu_derivative's by 16.3 u.  A bf16 rounds by 2^16 u, an f16 by 2^13 u of itself: what is stored as one of them
 * is the correctly rounded value but where that lies next to a tie.
 *
 * SwiGLU's kernels wait for their bytes, so SiLU keeps a logistic function with a relative error of a few u everywhere;
 * one exponential by a rounded product with log2(e) would be off by 2 |x| u where s is small.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_ACTIVATION_CUH
#define HS_KERNELS_CUDA_TOOLBOX_ACTIVATION_CUH

#include "kernels/cuda/toolbox/ptx_convert.cuh"

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

/* -v log2(e) = x (GELU_LINEAR + GELU_CUBIC x^2), an exponent of 2. */
static constexpr float GELU_LINEAR = -2.302208198144325f; /* -2 sqrt(2/pi) log2(e) */
static constexpr float GELU_CUBIC = -0.1029432395800235f; /* 0.044715 of it */

/* x / (1 + 2^t).  t overflows to an infinity of the right sign, and so does 2^t; its reciprocal is then 0: x of any
 * finite size gives x or a zero.  NaN gives NaN, and so does -inf (0 * inf, as the formula of tanh gives); +inf gives
 * +inf, -0 gives -0, a subnormal x gives x/2.  Where 2^t passes 2^126, x < -10, the result is flushed to -0: at most
 * |x| 2^-126 off. */
HS_DEVICE float gelu(float x)
{
    const float t = x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR);
    return x * ptx::reciprocal_approximate(1.0f + ptx::exp2_approximate(t));
}

/* With r = t - 2/3 GELU_LINEAR x = -h / (3 ln 2):  gelu' = s + s w h = s - 3 ln 2 2^t s^2 r.  The factor 3 ln 2 is shared
 * out to both s by k = (3 ln 2)^(-1/2): q = s / k = 1 / (k + k 2^t), and gelu' = q (k - 2^t q r).
 * Beyond 10 the derivative is 1 or 0 to within 2^-118.  Stopping there keeps 2^t below 2^126, so that nothing is flushed
 * and there is no 0 * inf; +-inf gives 1 or 0, NaN gives NaN. */
HS_DEVICE float gelu_derivative(float x)
{
    constexpr float k = 0.6934683460425486f;
    x = ptx::clamp(x, -10.0f, 10.0f);
    const float t = x * fmaf(GELU_CUBIC, x * x, GELU_LINEAR);
    const float power = ptx::exp2_approximate(t);
    const float q = ptx::reciprocal_approximate(fmaf(power, k, k));
    const float r = fmaf(x, 1.5348054654295502f, t);
    return q * fmaf(-power * q, r, k);
}

/* max(x, 0); a NaN stays one: fmaxf would drop it. */
HS_DEVICE float rectified(float x)
{
    return x < 0.0f ? 0.0f : x;
}

HS_DEVICE float relu2(float x)
{
    const float positive = rectified(x);
    return positive * positive;
}

HS_DEVICE float relu2_derivative(float x)
{
    return 2.0f * rectified(x);
}

template <HsActivation f> HS_DEVICE float activate(float x)
{
    if constexpr (f == HS_ACTIVATION_SILU)
        return silu(x);
    else if constexpr (f == HS_ACTIVATION_RELU2)
        return relu2(x);
    else
        return gelu(x);
}

template <HsActivation f> HS_DEVICE float slope_of(float x)
{
    if constexpr (f == HS_ACTIVATION_SILU)
        return silu_derivative(x, logistic(x));
    else if constexpr (f == HS_ACTIVATION_RELU2)
        return relu2_derivative(x);
    else
        return gelu_derivative(x);
}

struct Activated {
    float value, slope;
};

/* f(x) and f'(x). */
template <HsActivation f> HS_DEVICE Activated activate_with_slope(float x)
{
    if constexpr (f == HS_ACTIVATION_SILU) {
        const Logistic s = logistic(x);
        const float slope = silu_derivative(x, s);
        return { x * s.value, slope };
    } else {
        return { activate<f>(x), slope_of<f>(x) };
    }
}

} // namespace HS_CUDA_NAMESPACE

#endif
