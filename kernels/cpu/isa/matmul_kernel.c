/* SPDX-License-Identifier: MIT
 *
 * The micro-kernels of the matrix product: a tile of C in registers, one broadcast word of A times a row of B per
 * multiply-add.  One body for each panel format, instantiated for every tile height and width, so that edges and
 * products of a few rows (generation) do no padded work.
 *
 * vdpbf16ps adds two products per lane to an f32 sum, rounding to nearest even after each addition; it reads and writes
 * subnormal numbers as zero (Intel SDM, VDPBF16PS).  BFDOT, unless FPCR.EBF asks for what FEAT_EBF16 adds, adds the two
 * products, then their sum to the lane's, rounding each of these two to odd: off by less than a unit in the last place,
 * twice the nearest, half as often; subnormal numbers are zero there too, and a NaN is the default one (Arm Architecture
 * Reference Manual, BFDotAdd).  K products in pairs are so within (K + 2) 2^-24 of the sum of their magnitudes.
 */
#include "kernels/cpu/isa/matmul.h"

#if defined(HS_ISA_avx512bf16)
#include <immintrin.h>
#elif defined(HS_ISA_neonbf16)
#include <arm_neon.h>
#endif

typedef float TileVector __attribute__((vector_size(HS_TILE_LANES * sizeof(float)), may_alias));
typedef float TileScalar __attribute__((may_alias, aligned(2)));

/* sums += a column of A times a row of B.  `rows` and `vectors` are constants wherever this is inlined: the loops over
 * them unroll and `sums` lives in registers. */
static inline __attribute__((always_inline)) void multiply_word(int rows, int vectors, const TileScalar *upper,
                                                                const TileScalar *lower, int64_t a_row,
                                                                const TileVector *b,
                                                                TileVector sums[HS_KERNEL_ROWS][HS_TILE_VECTORS])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        const float scalar = i < 3 ? upper[i * a_row] : lower[(i - 3) * a_row];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sums[i][j] += scalar * b[j];
    }
}

/* Words between two requests where what is fetched ahead goes no further than a cache line in as many.  In a narrow tile
 * a word has twelve multiply-adds, which take a core of two such units six cycles; two requests and four additions of
 * addresses are then a fifth of all its instructions, and too many where its other thread wants its share (Zen 3 at such
 * a time: from 74 to 83% of the peak, in turns). */
enum { WORDS_A_REQUEST = 4, LINE_BYTES = 64 };

static bool asks_seldom(const HsMatmulTile *tile)
{
#ifdef HS_WIDE_TILE
    (void)tile;
    return false;
#else
    return !tile->source && WORDS_A_REQUEST * tile->ahead_step <= LINE_BYTES;
#endif
}

static inline __attribute__((always_inline)) void multiply_f32(int rows, int vectors, const HsMatmulTile *tile)
{
    TileVector *out = (TileVector *)tile->out;
    /* Two row pointers: three rows each are reached with the addressing modes base, base + s and base + 2s. */
    const TileScalar *upper = (const TileScalar *)tile->a, *lower = upper + 3 * tile->a_row;
    const TileVector *b = (const TileVector *)tile->b;
    const int64_t a_row = tile->a_row, a_step = tile->a_step, ahead_step = tile->ahead_step;
    const int64_t source_step = tile->source_step;
    const char *ahead = tile->ahead ? tile->ahead : (const char *)tile->b; /* an unmapped page would be looked up */
    const char *source = tile->source ? tile->source : (const char *)tile->b;
    const bool seldom = asks_seldom(tile);
    bool resume = tile->resume;
    for (int64_t begin = 0; begin < tile->depth; begin += HS_CHAIN_WORDS, resume = true) {
        const int64_t words = tile->depth - begin < HS_CHAIN_WORDS ? tile->depth - begin : HS_CHAIN_WORDS;
        TileVector sums[HS_KERNEL_ROWS][HS_TILE_VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sums[i][j] = (TileVector){ 0 };
        int64_t p = 0;
        for (; seldom && p + WORDS_A_REQUEST <= words; p += WORDS_A_REQUEST) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += WORDS_A_REQUEST * ahead_step;
#pragma GCC unroll 4
            for (int word = 0; word < WORDS_A_REQUEST; word++) {
                multiply_word(rows, vectors, upper, lower, a_row, b, sums);
                upper += a_step;
                lower += a_step;
                b += HS_TILE_VECTORS;
            }
        }
        for (; p < words; p++) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += ahead_step;
            __builtin_prefetch(source, 0, 2);
            source += source_step;
            multiply_word(rows, vectors, upper, lower, a_row, b, sums);
            upper += a_step;
            lower += a_step;
            b += HS_TILE_VECTORS;
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++) {
                TileVector sum = sums[i][j];
                if (resume)
                    sum = out[i * HS_TILE_VECTORS + j] + sum;
                out[i * HS_TILE_VECTORS + j] = sum;
            }
    }
}

#ifdef HS_BF16_PAIRS
typedef int32_t TilePair __attribute__((may_alias, aligned(2)));
typedef int32_t TilePairs __attribute__((vector_size(HS_TILE_LANES * sizeof(int32_t)), may_alias));

/* sum + the two products of each lane's pairs */
static inline __attribute__((always_inline)) TileVector add_pairs(TileVector sum, TilePairs a, TilePairs b)
{
#ifdef HS_ISA_avx512bf16
    return (TileVector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    return (TileVector)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)a, (bfloat16x8_t)b);
#endif
}

/* The same walk; each word holds two values of k. */
static inline __attribute__((always_inline)) void multiply_bf16(int rows, int vectors, const HsMatmulTile *tile)
{
    TileVector sums[HS_KERNEL_ROWS][HS_TILE_VECTORS], *out = (TileVector *)tile->out;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sums[i][j] = tile->resume ? out[i * HS_TILE_VECTORS + j] : (TileVector){ 0 };

    const TilePair *upper = (const TilePair *)tile->a, *lower = upper + 3 * tile->a_row;
    const TilePairs *b = (const TilePairs *)tile->b;
    const int64_t a_row = tile->a_row, a_step = tile->a_step, ahead_step = tile->ahead_step;
    const int64_t source_step = tile->source_step;
    const char *ahead = tile->ahead ? tile->ahead : (const char *)tile->b; /* an unmapped page would be looked up */
    const char *source = tile->source ? tile->source : (const char *)tile->b;
    for (int64_t p = 0; p < tile->depth; p++) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        __builtin_prefetch(source, 0, 2);
        source += source_step;
        TilePairs row_b[HS_TILE_VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            row_b[j] = b[j];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const TilePairs pair = (i < 3 ? upper[i * a_row] : lower[(i - 3) * a_row]) - (TilePairs){ 0 };
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sums[i][j] = add_pairs(sums[i][j], pair, row_b[j]);
        }
        upper += a_step;
        lower += a_step;
        b += HS_TILE_VECTORS;
    }

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            out[i * HS_TILE_VECTORS + j] = sums[i][j];
}
#endif

/* multiply_f32_3x2, ...: every height for every width of this instruction set. */
#define KERNEL(format, rows, vectors)                                            \
    static void multiply_##format##_##rows##x##vectors(const HsMatmulTile *tile) \
    {                                                                            \
        multiply_##format(rows, vectors, tile);                                  \
    }
#define KERNELS_OF_WIDTH(format, vectors) \
    KERNEL(format, 1, vectors)            \
    KERNEL(format, 2, vectors)            \
    KERNEL(format, 3, vectors)            \
    KERNEL(format, 4, vectors) KERNEL(format, 5, vectors) KERNEL(format, 6, vectors)
#define ROW_OF_WIDTH(format, vectors)                                                                         \
    {                                                                                                         \
        multiply_##format##_1x##vectors, multiply_##format##_2x##vectors, multiply_##format##_3x##vectors,    \
            multiply_##format##_4x##vectors, multiply_##format##_5x##vectors, multiply_##format##_6x##vectors \
    }

KERNELS_OF_WIDTH(f32, 1)
KERNELS_OF_WIDTH(f32, 2)
#ifdef HS_WIDE_TILE
KERNELS_OF_WIDTH(f32, 3)
KERNELS_OF_WIDTH(f32, 4)
#endif
#ifdef HS_BF16_PAIRS
KERNELS_OF_WIDTH(bf16, 1)
KERNELS_OF_WIDTH(bf16, 2)
KERNELS_OF_WIDTH(bf16, 3)
KERNELS_OF_WIDTH(bf16, 4)
#endif

/* [format][vectors - 1][rows - 1] */
static const HsTileKernel kernels[][HS_TILE_VECTORS][HS_KERNEL_ROWS] = {
    [HS_PANEL_F32] = { ROW_OF_WIDTH(f32, 1), ROW_OF_WIDTH(f32, 2),
#ifdef HS_WIDE_TILE
                       ROW_OF_WIDTH(f32, 3), ROW_OF_WIDTH(f32, 4)
#endif
    },
#ifdef HS_BF16_PAIRS
    [HS_PANEL_BF16_PAIRS] = { ROW_OF_WIDTH(bf16, 1), ROW_OF_WIDTH(bf16, 2), ROW_OF_WIDTH(bf16, 3),
                              ROW_OF_WIDTH(bf16, 4) },
#endif
};

HsTileKernel HS_ISA_NAME(hs_tile_kernel)(HsPanelFormat format, int rows, int vectors)
{
    return kernels[format][vectors - 1][rows - 1];
}

#ifdef HS_ISA_amx
/* A tile of more rows than a kernel has; what is fetched ahead is shared out among the kernels' calls. */
static inline __attribute__((always_inline)) void multiply_tall(int vectors, const HsMatmulTile *tile)
{
    HsMatmulTile part = *tile;
    part.ahead_step = tile->ahead_step * HS_KERNEL_ROWS / tile->rows;
    for (int row = 0; row < tile->rows; row += HS_KERNEL_ROWS) {
        const int rows = tile->rows - row < HS_KERNEL_ROWS ? tile->rows - row : HS_KERNEL_ROWS;
        kernels[HS_PANEL_F32][vectors - 1][rows - 1](&part);
        part.a += HS_KERNEL_ROWS * tile->a_row;
        part.out += HS_KERNEL_ROWS * HS_TILE_COLUMNS;
        part.ahead += part.ahead ? tile->depth * part.ahead_step : 0;
        part.source = NULL; /* the first call has fetched it */
        part.source_step = 0;
    }
}

#define TALL(vectors)                                             \
    static void multiply_tall_##vectors(const HsMatmulTile *tile) \
    {                                                             \
        multiply_tall(vectors, tile);                             \
    }
TALL(1)
TALL(2)
TALL(3)
TALL(4)

HsTileKernel HS_ISA_NAME(hs_product_kernel)(HsPanelFormat format, int rows, int vectors)
{
    static const HsTileKernel tall[] = { multiply_tall_1, multiply_tall_2, multiply_tall_3, multiply_tall_4 };
    (void)rows;
    return format == HS_PANEL_BF16_PAIRS ? HS_ISA_NAME(hs_tile_kernel_amx)(vectors) : tall[vectors - 1];
}
#else
HsTileKernel HS_ISA_NAME(hs_product_kernel)(HsPanelFormat format, int rows, int vectors)
{
#ifdef HS_ISA_neonbf16
    if (format == HS_PANEL_BF16_PAIRS)
        return HS_ISA_NAME(hs_tile_kernel_bfmmla)(rows, vectors);
#endif
    return HS_ISA_NAME(hs_tile_kernel)(format, rows, vectors);
}
#endif
