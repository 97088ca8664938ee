/* SPDX-License-Identifier: MIT
 *
 * Four-bit weights: NormalFloat with double quantization (Dettmers et al. 2023, "QLoRA", section 3; the values:
 * appendix E).  Codes and scales are those of bitsandbytes, and so is every decoded value, to the bit
 * (tests/ops/test_nf4.c).
 *
 *     element i   level(code i) absmax(i / 64)                       one product in f32
 *     block b     map(absmax code b) scale(g) + offset(g)            rounded after each step, f32
 *
 * HS_NF4_BLOCK neighbouring elements share absmax, the largest of their magnitudes.  The absmaxes of a file's tensor are
 * quantized again, less their mean (offset), in blocks of HS_NF4_NESTED by the signed map of dynamic_map.h.  Several
 * such tensors may lie stacked in one matrix (q|k|v): g counts groups of 2^group_shift blocks, chosen so that neither a
 * tensor nor one of its nested blocks ends within a group.
 */
#ifndef HS_KERNELS_OPS_NF4_H
#define HS_KERNELS_OPS_NF4_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/base/status.h"
#include "kernels/ops/dynamic_map.h"

enum {
    HS_NF4_LEVELS = 16,
    HS_NF4_BLOCK = 64,   /* elements of a block */
    HS_NF4_NESTED = 256, /* blocks that share a nested absmax */
    HS_NF4_NESTED_SHIFT = 8,
    HS_NF4_RUN = 8 /* rows are multiples of this: what kernels decode at once lies in one block */
};

/* A matrix of `count` elements, a multiple of HS_NF4_BLOCK, row-major; pointers NULL in a dry run. */
typedef struct HsQuantized {
    int64_t count; /* 0: not quantized */
    int group_shift;
    unsigned char *codes;  /* [count / 2]: element 2i in the upper half of byte i, 2i + 1 in the lower */
    unsigned char *absmax; /* [count / 64] */
    float *scales;         /* [groups][2]: nested absmax, offset */
} HsQuantized;

/* Of a matrix that stacks tensors of `parts` counts, or of 0 where one is no multiple of HS_NF4_BLOCK. */
HsQuantized hs_nf4_shape(const int64_t *counts, int parts);

/* All three arrays in one piece of memory, 64-byte aligned. */
size_t hs_nf4_bytes(const HsQuantized *shape);
void hs_nf4_place(HsQuantized *quantized, void *memory);

static inline int64_t hs_nf4_blocks(int64_t count)
{
    return count / HS_NF4_BLOCK;
}

static inline int64_t hs_nf4_groups(const HsQuantized *quantized)
{
    const int64_t group = (int64_t)1 << quantized->group_shift;
    return (hs_nf4_blocks(quantized->count) + group - 1) / group;
}

/* Quantiles of N(0, 1), scaled to [-1, 1]: seven below 0 and -1, 0 itself, and eight above; rising. */
#define HS_NF4_LEVEL_LIST                                                                                           \
    -1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,                \
        -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,             \
        0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, \
        1.0f
extern const float hs_nf4_levels[HS_NF4_LEVELS];

/* Codes of elements first .. first + count - 1, one tensor of the matrix, from f32 values in host memory; all of
 * `quantized` lies in host memory too.  As bitsandbytes on CPUs: x (1 / absmax) against the midpoints of the levels.
 * A block of zeros is 0; values have to be finite.  errors: HS_ENOMEM */
HsStatus hs_nf4_quantize(const HsQuantized *quantized, int64_t first, int64_t count, const float *values);

/* absmax of a block.  Host memory. */
float hs_nf4_absmax(const HsQuantized *quantized, int64_t block);

/* Element i, before it is rounded to what the product multiplies.  Host memory. */
float hs_nf4_value(const HsQuantized *quantized, int64_t index);

#endif
