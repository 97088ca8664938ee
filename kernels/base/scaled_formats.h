/* SPDX-License-Identifier: MIT
 *
 * Formats below 16 bits and their scales: what dtype.h has no rows for, because two elements share a byte (E2M1) or
 * because it is only a scale, not a number (E8M0); and the rules by which a scale follows from the largest magnitude of
 * what it scales.  Exact in software; every backend gives these bits.
 *
 * A code stands for value = code's number * (1 / scale) where a scale multiplies before the cast (tensors), or
 * value = code's number * scale where it divides (blocks): each function says which.
 *
 * Sources: OCP 8-bit Floating Point Specification (E4M3, E5M2); OCP Microscaling Formats (MX) Specification 1.0,
 * sections 5.2 to 5.4 and 6.3 (E2M1, E8M0, its rule for scales); Micikevicius et al. 2022, "FP8 formats for deep
 * learning", section 3 (scales of tensors).
 */
#ifndef HS_KERNELS_BASE_SCALED_FORMATS_H
#define HS_KERNELS_BASE_SCALED_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

/* E2M1 (four bits): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, in the low four bits.  Nearest, ties to even;
 * what is larger than 6, infinities too, becomes 6, and NaN, which the format has not, +6. */
uint8_t hs_e2m1_encode(float value);
float hs_e2m1_decode(uint8_t code);

/* Stochastic rounding straight from f32: with lo and hi the neighbours of `value`, P(hi) = (value - lo) / (hi - lo), to
 * 2^-32.  random: 32 uniform bits.  What is past the largest number is clamped to it; NaN as by the nearest rounding. */
uint8_t hs_e4m3_encode_stochastic(float value, uint32_t random);
uint8_t hs_e5m2_encode_stochastic(float value, uint32_t random);
uint8_t hs_e2m1_encode_stochastic(float value, uint32_t random);

/* E8M0: 2^(code - 127), code 255 NaN. */
float hs_e8m0_decode(uint8_t code);

/* The E8M0 scale that a block's elements are divided by, from its largest magnitude.
 *   up     the exponent of amax / `largest`, rounded up: nothing saturates.  largest: of the elements' format
 *   floor  OCP's: floor(log2(amax)) - floor(log2(largest)): what is above `largest` * 2^k saturates
 * What is not finite gives 255, NaN, so that it stays visible; 0 gives 0. */
uint8_t hs_e8m0_scale_up(float amax, float largest);
uint8_t hs_e8m0_scale_floor(float amax, float largest);

/* The scale that a tensor is multiplied by, from its largest magnitude: largest / amax by IEEE's division, or the largest
 * finite f32 where that overflows; 1 where amax is 0, infinite or NaN.  power_of_two: the mantissa is cleared, so that
 * nothing comes above `largest`. */
float hs_tensor_scale(float amax, float largest, bool power_of_two);

#endif
