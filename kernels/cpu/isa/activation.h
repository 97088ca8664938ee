/* SPDX-License-Identifier: MIT
 *
 * The functions of HsActivation, sixteen numbers at a time.  Callers give a constant, so that no vector asks which it is.
 */
#ifndef HS_KERNELS_CPU_ISA_ACTIVATION_H
#define HS_KERNELS_CPU_ISA_ACTIVATION_H

#include "kernels/cpu/simd.h"
#include "kernels/ops/ops.h"

/* f(x), and *slope = f'(x) */
HS_SIMD HsF32x16 activate_with_slope(HsActivation f, HsF32x16 x, HsF32x16 *slope)
{
    if (f == HS_ACTIVATION_SILU)
        return hs_simd_silu(x, slope);
    return f == HS_ACTIVATION_RELU2 ? hs_simd_relu2(x, slope) : hs_simd_gelu_with_slope(x, slope);
}

HS_SIMD HsF32x16 activate(HsActivation f, HsF32x16 x)
{
    HsF32x16 slope;
    return f == HS_ACTIVATION_GELU ? hs_simd_gelu(x) : activate_with_slope(f, x, &slope);
}

HS_SIMD HsF32x16 slope_of(HsActivation f, HsF32x16 x)
{
    HsF32x16 slope;
    activate_with_slope(f, x, &slope);
    return slope;
}

#endif
