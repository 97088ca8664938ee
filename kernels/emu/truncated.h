/* SPDX-License-Identifier: MIT
 *
 * Sums as tensor cores take them (HALFSTEP_EMU_SUMS=truncate).  An instruction's k is cut into groups; for each,
 *
 *     d = c + sum of products:  E = the largest exponent among c and the products, where a product's exponent is the sum
 *     of its factors' (its significand lies in [1, 4));  every term is cut to a multiple of 2^(E - bits), towards zero;
 *     these are added exactly; the sum is cut to f32, towards zero.
 *
 *                     group, 16-bit operands   group, tf32   bits     sources
 *     8.0 (mma.sync)            8                   4          24     Fasi et al. 2021, "Numerical behavior of NVIDIA tensor
 *     9.0 (mma, wgmma)         16                   8          25     cores"; Khattak & Mikaitis 2025, arXiv
 *                                                                     2512.07004; models agree with cards to the bit
 *
 * They measured wmma and mma; that wgmma adds alike is assumed here.  Nothing here was measured by this project.
 *
 * FP8 operands on 8.9 and 9.0: bits is 13, and the sum is cut to 14 significant bits, though it comes as f32 (DeepSeek-AI
 * 2024, "DeepSeek-V3 Technical Report", section 3.5.2).  Of the group only the instruction's k is known: 32 is assumed.
 * So a sum that has grown to 2^14 times its terms stands still: kernels add such sums to others in f32, by FFMA, every
 * 128 of k.
 *
 * What it costs: with u = 2^-24 and S the sum of the terms' sizes, a group of n products loses less than n 2^-bits S by
 * alignment and 2^-23 S by the last cut: on 9.0 10 u S for 16 products, less than the 16 u S that a sum of single f32
 * additions may lose; on 8.0 10 u S for 8.  All losses have the sign that makes sums smaller: where all terms are of one
 * sign they add up, and do not cancel as roundings to nearest do.
 */
#ifndef HS_KERNELS_EMU_TRUNCATED_H
#define HS_KERNELS_EMU_TRUNCATED_H

#include "kernels/emu/device.h"

namespace hs_emu
{
namespace emulator
{

struct TensorAdder {
    int group;     /* products that are added at once */
    int bits;      /* kept after the point of the largest term */
    int kept = 23; /* after the point of the sum */
};

/* How this device's mma.sync adds 16-bit (or tf32) operands, and how wgmma does; FP8 operands, by both. */
TensorAdder adder_of_mma(bool tf32);
TensorAdder adder_of_wgmma();
TensorAdder adder_of_fp8();

/* The exponents of both operands' smallest normal numbers; subnormal ones have them too. */
struct LeastExponents {
    int a, b;
    LeastExponents(int both) : a(both), b(both)
    {
    }
    LeastExponents(TensorFormat a_format, TensorFormat b_format);
};

/* One row: sums[n] += a[k] b[k * stride + n], k up to `depth`, n up to `columns` (at most 256). */
void truncated_sums(TensorAdder adder, LeastExponents least, const float *a, int depth, const float *b, int stride,
                    int columns, float *sums);

} // namespace emulator
} // namespace hs_emu

#endif
