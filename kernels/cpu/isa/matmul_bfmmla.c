/* SPDX-License-Identifier: MIT
 *
 * The micro-kernel of bf16 products on Arm's FEAT_BF16: six rows by sixteen columns of sums as 2 x 2 blocks, three blocks
 * by eight of the 32 registers.
 *
 *     BFMMLA: sum[2][2] += A[2][4] B[4][2]
 *
 * which is BFDOT of the first pair of k and then of the second in each of the four sums (Arm Architecture Reference
 * Manual, BFMatMulAdd): the same roundings in the same order, as matmul_kernel.c states them, and the same bits.
 *
 * A's words are read by rows; B's panels have two words of a column next to each other (pack_bfmmla.c).  A last word of an
 * odd depth is multiplied with zeros behind it, on both sides, so that no infinity meets a zero.
 */
#include "kernels/cpu/isa/matmul.h"

typedef int HsNoEmptyUnit; /* elsewhere there is nothing in this file */

#ifdef HS_ISA_neonbf16
#include <arm_neon.h>
#include <string.h>

enum { MOST_PAIRS = HS_KERNEL_ROWS / 2, MOST_BLOCKS = 2 * HS_TILE_VECTORS };

static inline __attribute__((always_inline)) float64x2_t load_sums(const float *sums)
{
    return vreinterpretq_f64_f32(vld1q_f32(sums));
}

static inline __attribute__((always_inline)) void store_sums(float *sums, float32x4_t block, float32x4_t next,
                                                             bool lower)
{
    const float64x2_t a = vreinterpretq_f64_f32(block), b = vreinterpretq_f64_f32(next);
    vst1q_f32(sums, vreinterpretq_f32_f64(lower ? vzip2q_f64(a, b) : vzip1q_f64(a, b)));
}

/* The first words of two rows: two pairs of k each, or one and zeros. */
static inline __attribute__((always_inline)) bfloat16x8_t load_rows(const uint32_t *upper, const uint32_t *lower,
                                                                    size_t bytes)
{
    uint64_t words[2] = { 0 };
    memcpy(&words[0], upper, bytes);
    memcpy(&words[1], lower, bytes);
    return vreinterpretq_bf16_u64(vcombine_u64(vcreate_u64(words[0]), vcreate_u64(words[1])));
}

/* `rows` and `vectors` are constants wherever this is inlined.  An odd last row is multiplied twice: the memory below it
 * is not A's, while the tile of sums has a row there. */
static inline __attribute__((always_inline)) void multiply(int rows, int vectors, const HsMatmulTile *tile)
{
    const int pairs = (rows + 1) / 2, blocks = 2 * vectors;
    float32x4_t sums[MOST_PAIRS][MOST_BLOCKS];
    const uint32_t *a[HS_KERNEL_ROWS], *b = tile->b;
    float *const out = tile->out;
#pragma GCC unroll 8
    for (int i = 0; i < 2 * pairs; i++)
        a[i] = tile->a + (i < rows ? i : rows - 1) * tile->a_row;
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 8
        for (int j = 0; j < blocks; j += 2) {
            const float *const upper = out + 2 * i * HS_TILE_COLUMNS + 2 * j, *const lower = upper + HS_TILE_COLUMNS;
            const float64x2_t first = tile->resume ? load_sums(upper) : vdupq_n_f64(0);
            const float64x2_t second = tile->resume ? load_sums(lower) : vdupq_n_f64(0);
            sums[i][j] = vreinterpretq_f32_f64(vzip1q_f64(first, second));
            sums[i][j + 1] = vreinterpretq_f32_f64(vzip2q_f64(first, second));
        }

    const char *ahead = tile->ahead ? tile->ahead : (const char *)tile->b;
    const char *source = tile->source ? tile->source : (const char *)tile->b;
    int64_t p = 0;
    for (; p + 2 <= tile->depth; p += 2, b += 2 * HS_TILE_COLUMNS) {
        for (int word = 0; word < 2; word++) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += tile->ahead_step;
            __builtin_prefetch(source, 0, 2);
            source += tile->source_step;
        }
        bfloat16x8_t row[MOST_PAIRS];
#pragma GCC unroll 8
        for (int i = 0; i < pairs; i++)
            row[i] = load_rows(a[2 * i] + p, a[2 * i + 1] + p, 8);
#pragma GCC unroll 8
        for (int j = 0; j < blocks; j++) {
            const bfloat16x8_t columns = vreinterpretq_bf16_u32(vld1q_u32(b + 4 * j));
#pragma GCC unroll 8
            for (int i = 0; i < pairs; i++)
                sums[i][j] = vbfmmlaq_f32(sums[i][j], row[i], columns);
        }
    }
    if (p < tile->depth) { /* its words of B lie as everywhere: one a column */
#pragma GCC unroll 8
        for (int j = 0; j < blocks; j++) {
            const uint32x4_t words = vcombine_u32(vld1_u32(b + 2 * j), vdup_n_u32(0));
            const bfloat16x8_t columns = vreinterpretq_bf16_u32(vzip1q_u32(words, vdupq_n_u32(0)));
#pragma GCC unroll 8
            for (int i = 0; i < pairs; i++)
                sums[i][j] = vbfmmlaq_f32(sums[i][j], load_rows(a[2 * i] + p, a[2 * i + 1] + p, 4), columns);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < pairs; i++)
#pragma GCC unroll 8
        for (int j = 0; j < blocks; j += 2) {
            store_sums(out + 2 * i * HS_TILE_COLUMNS + 2 * j, sums[i][j], sums[i][j + 1], false);
            store_sums(out + (2 * i + 1) * HS_TILE_COLUMNS + 2 * j, sums[i][j], sums[i][j + 1], true);
        }
}

#define KERNEL(rows, vectors)                                         \
    static void multiply_##rows##x##vectors(const HsMatmulTile *tile) \
    {                                                                 \
        multiply(rows, vectors, tile);                                \
    }
#define KERNELS_OF_WIDTH(vectors) \
    KERNEL(1, vectors) KERNEL(2, vectors) KERNEL(3, vectors) KERNEL(4, vectors) KERNEL(5, vectors) KERNEL(6, vectors)
#define ROW_OF_WIDTH(vectors)                                                                                         \
    {                                                                                                                 \
        multiply_1x##vectors, multiply_2x##vectors, multiply_3x##vectors, multiply_4x##vectors, multiply_5x##vectors, \
            multiply_6x##vectors                                                                                      \
    }

KERNELS_OF_WIDTH(1)
KERNELS_OF_WIDTH(2)
KERNELS_OF_WIDTH(3)
KERNELS_OF_WIDTH(4)

HsTileKernel HS_ISA_NAME(hs_tile_kernel_bfmmla)(int rows, int vectors)
{
    static const HsTileKernel kernels[HS_TILE_VECTORS][HS_KERNEL_ROWS] = { ROW_OF_WIDTH(1), ROW_OF_WIDTH(2),
                                                                           ROW_OF_WIDTH(3), ROW_OF_WIDTH(4) };
    return kernels[vectors - 1][rows - 1];
}
#endif
