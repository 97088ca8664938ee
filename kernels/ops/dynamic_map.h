/* SPDX-License-Identifier: MIT
 *
 * Eight-bit codes of optimizer states: blockwise dynamic quantization (Dettmers et al. 2022, "8-bit Optimizers via
 * Block-wise Quantization", section 2; the map: Dettmers 2016, "8-Bit Approximations for Parallelism in Deep Learning").
 * The values are those of bitsandbytes' create_dynamic_map, to the bit (tests/ops/test_update_8bit.c).
 *
 * HS_DYNAMIC_BLOCK neighbouring elements share absmax, the largest of their magnitudes; an element is
 * absmax * value(code).  A level is a magnitude: 0, then seven decades of 1, 2, 4 .. 64 levels, the midpoints of as many
 * equal parts of [0.1, 1) 10^-6 .. 10^0 (without a sign twice as many), and 1 on top:
 *
 *     signed    code = 127 + level or 127 - level, level 0 .. 128, of negative numbers at most 127
 *     unsigned  code = level 0 .. 255
 *
 * Encoding takes the nearest value, at a midpoint the even code.
 */
#ifndef HS_KERNELS_OPS_DYNAMIC_MAP_H
#define HS_KERNELS_OPS_DYNAMIC_MAP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__CUDACC__) || defined(__HIP__)
#define HS_DYNAMIC_FUNCTION static __host__ __device__ __forceinline__
#else
#define HS_DYNAMIC_FUNCTION static inline
#endif

enum {
    HS_DYNAMIC_BLOCK = 256,
    HS_DYNAMIC_ZERO = 127,       /* the signed code of 0 */
    HS_DYNAMIC_SIGNED_TOP = 128, /* the level of 1 */
    HS_DYNAMIC_UNSIGNED_TOP = 255,
    HS_DYNAMIC_DECADES = 7
};

HS_DYNAMIC_FUNCTION int hs_dynamic_top(bool is_signed)
{
    return is_signed ? HS_DYNAMIC_SIGNED_TOP : HS_DYNAMIC_UNSIGNED_TOP;
}

/* Where part j of `parts` of [0.1, 1] begins: torch.linspace in f32, which counts from the nearer end. */
HS_DYNAMIC_FUNCTION float hs_dynamic_bound(int j, int parts)
{
    const float step = (1.0f - 0.1f) / (float)parts;
    return j < (parts + 1) / 2 ? fmaf(step, (float)j, 0.1f) : fmaf(-step, (float)(parts - j), 1.0f);
}

/* The magnitude of a level.  A decade's first level is a power of two, less one without a sign. */
HS_DYNAMIC_FUNCTION float hs_dynamic_level(bool is_signed, int level)
{
    if (level == 0 || level == hs_dynamic_top(is_signed))
        return level == 0 ? 0.0f : 1.0f;
    const int place = is_signed ? level : level + 1;
    int parts = is_signed ? 1 : 2;
    float scale = 1e-6f;
    for (int decade = 1; 2 * parts <= place; decade++) {
        parts *= 2;
        scale = decade == 1   ? 1e-5f
                : decade == 2 ? 1e-4f
                : decade == 3 ? 1e-3f
                : decade == 4 ? 1e-2f
                : decade == 5 ? 1e-1f
                              : 1.0f;
    }
    const int j = place - parts;
    return 0.5f * (hs_dynamic_bound(j, parts) + hs_dynamic_bound(j + 1, parts)) * scale;
}

HS_DYNAMIC_FUNCTION float hs_dynamic_value(bool is_signed, int code)
{
    if (!is_signed)
        return hs_dynamic_level(false, code);
    return code < HS_DYNAMIC_ZERO ? -hs_dynamic_level(true, HS_DYNAMIC_ZERO - code)
                                  : hs_dynamic_level(true, code - HS_DYNAMIC_ZERO);
}

/* Half way between a level and the next. */
HS_DYNAMIC_FUNCTION float hs_dynamic_midpoint(bool is_signed, int level)
{
    return 0.5f * (hs_dynamic_level(is_signed, level) + hs_dynamic_level(is_signed, level + 1));
}

/* Whether the midpoint above a level belongs to the next one: the codes of a sign's odd levels are even, and those of
 * no sign's even levels. */
HS_DYNAMIC_FUNCTION bool hs_dynamic_tie_goes_up(bool is_signed, int level)
{
    return (level % 2 == 0) == is_signed;
}

/* A line through each decade: slope x + offset, cut to an integer and at least 0, is the level of x or the one below
 * it, so that one comparison with a midpoint decides.  The first decade begins at 0.  In units of a decade's end, x
 * passes to level i of its `parts` at 0.1 + i 0.9 / parts, to the first 0.18 / parts later; the line is half a level
 * below. */
typedef struct HsDynamicLine {
    float parts, slope, end;
} HsDynamicLine;

HS_DYNAMIC_FUNCTION HsDynamicLine hs_dynamic_first_line(bool is_signed)
{
    const float parts = is_signed ? 1.0f : 2.0f;
    const HsDynamicLine line = { parts, parts * (1e6f / 0.9f), 1e-6f };
    return line;
}

HS_DYNAMIC_FUNCTION HsDynamicLine hs_dynamic_next_line(HsDynamicLine line)
{
    const HsDynamicLine next = { 2.0f * line.parts, 0.2f * line.slope, 10.0f * line.end };
    return next;
}

HS_DYNAMIC_FUNCTION float hs_dynamic_offset(bool is_signed, HsDynamicLine line)
{
    return line.parts * (8.0f / 9.0f) - (is_signed ? 0.5f : 1.5f);
}

/* A code of the signed map, from the level of |value|.  A small negative number keeps its sign, as with bitsandbytes,
 * so that its code is not that of 0. */
HS_DYNAMIC_FUNCTION int hs_dynamic_signed_code(bool is_negative, int level)
{
    if (!is_negative)
        return HS_DYNAMIC_ZERO + level;
    return HS_DYNAMIC_ZERO - (level < 1 ? 1 : level > HS_DYNAMIC_ZERO ? HS_DYNAMIC_ZERO : level);
}

HS_DYNAMIC_FUNCTION int64_t hs_dynamic_blocks(int64_t count)
{
    return (count + HS_DYNAMIC_BLOCK - 1) / HS_DYNAMIC_BLOCK;
}

#endif
