/* SPDX-License-Identifier: MIT
 *
 * A capped logit and its derivative (kernels/ops/logit_cap.h).  With e by ex2.approx and 1 / (1 + e) by rcp.approx they
 * are off by less than 12 and 16 + 4 |x / c| units of 2^-24; a derivative below 2^-124 is flushed.  Attention caps a score
 * for each product, and leaves out the series: its scores are off by that part of the cap (attention.cuh).
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_LOGIT_CAP_CUH
#define HS_KERNELS_CUDA_TOOLBOX_LOGIT_CAP_CUH

#include "kernels/cuda/toolbox/ptx_convert.cuh"
#include "kernels/ops/logit_cap.h"

namespace HS_CUDA_NAMESPACE
{

/* A cap as kernels have it: c, 1 / c, and of |x| the exponent of e as a power of two; c 0: none. */
struct LogitCap {
    float most, inverse, exponent;
};

static inline LogitCap logit_cap_of(float cap)
{
    if (!(cap > 0.0f))
        return LogitCap{ 0.0f, 0.0f, 0.0f };
    return LogitCap{ cap, 1.0f / cap, (float)(-2.0 * 1.4426950408889634 / (double)cap) };
}

struct CappedLogit {
    float value, slope;
};

/* Infinities give +-c and 0, NaN gives NaN. */
HS_DEVICE CappedLogit capped_logit(const LogitCap &cap, float x)
{
    const float e = ptx::exp2_approximate(fabsf(x) * cap.exponent);
    const float share = ptx::reciprocal_approximate(1.0f + e);
    const float u = x * cap.inverse, square = u * u;
    const float near = fmaf(u * square, HS_TANH_SERIES(square), u), far = copysignf((1.0f - e) * share, x);
    return CappedLogit{ cap.most * (fabsf(u) < HS_TANH_NEAR ? near : far), 4.0f * e * share * share };
}

/* Where there may be no cap. */
HS_DEVICE CappedLogit logit_of(const LogitCap &cap, float x)
{
    return cap.most > 0.0f ? capped_logit(cap, x) : CappedLogit{ x, 1.0f };
}

template <bool capped_> struct CapKind {
    static constexpr bool capped = capped_;
};

/* Calls body(kind); `capped` of kind's type is known when compiling: a kernel without a cap pays nothing for one. */
template <typename Body> HsStatus dispatch_cap(bool capped, Body &&body)
{
    return capped ? body(CapKind<true>{}) : body(CapKind<false>{});
}

} // namespace HS_CUDA_NAMESPACE

#endif
