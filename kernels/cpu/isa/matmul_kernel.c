/* SPDX-License-Identifier: MIT
 *
 * The micro-kernels of the matrix product: a tile of C in registers, one broadcast word of A times a row of B per
 * multiply-add.  One body for each panel format, instantiated for every tile height and width, so that edges and
 * products of a few rows (generation) do no padded work.
 *
 * vdpbf16ps adds two products per lane to an f32 sum, rounding to nearest even after each addition; it reads and writes
 * subnormal numbers as zero (Intel SDM, VDPBF16PS).
 */
#include "kernels/cpu/isa/matmul.h"

#ifdef HS_ISA_avx512bf16
#include <immintrin.h>
#endif

typedef float TileVector __attribute__((vector_size(HS_TILE_LANES * sizeof(float)), may_alias));
typedef float TileScalar __attribute__((may_alias, aligned(2)));

/* `rows` and `vectors` are constants wherever this is inlined: the loops over them unroll and `sums` lives in
 * registers.
 */
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
    bool resume = tile->resume;
    for (int64_t begin = 0; begin < tile->depth; begin += HS_CHAIN_WORDS, resume = true) {
        const int64_t words = tile->depth - begin < HS_CHAIN_WORDS ? tile->depth - begin : HS_CHAIN_WORDS;
        TileVector sums[HS_KERNEL_ROWS][HS_TILE_VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sums[i][j] = (TileVector){ 0 };
        for (int64_t p = 0; p < words; p++) {
            __builtin_prefetch(ahead, 0, 2);
            ahead += ahead_step;
            __builtin_prefetch(source, 0, 2);
            source += source_step;
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                float scalar = i < 3 ? upper[i * a_row] : lower[(i - 3) * a_row];
#pragma GCC unroll 8
                for (int j = 0; j < vectors; j++)
                    sums[i][j] += scalar * b[j];
            }
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

#ifdef HS_ISA_avx512bf16
typedef int32_t TilePair __attribute__((may_alias, aligned(2)));

/* The same walk; each word holds two values of k. */
static inline __attribute__((always_inline)) void multiply_bf16(int rows, int vectors, const HsMatmulTile *tile)
{
    __m512 sums[HS_KERNEL_ROWS][HS_TILE_VECTORS];
    float *out = tile->out;
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            sums[i][j] =
                tile->resume ? _mm512_load_ps(out + i * HS_TILE_COLUMNS + j * HS_TILE_LANES) : _mm512_setzero_ps();

    const TilePair *upper = (const TilePair *)tile->a, *lower = upper + 3 * tile->a_row;
    const uint32_t *b = tile->b;
    const int64_t a_row = tile->a_row, a_step = tile->a_step, ahead_step = tile->ahead_step;
    const int64_t source_step = tile->source_step;
    const char *ahead = tile->ahead ? tile->ahead : (const char *)tile->b; /* an unmapped page would be looked up */
    const char *source = tile->source ? tile->source : (const char *)tile->b;
    for (int64_t p = 0; p < tile->depth; p++) {
        __builtin_prefetch(ahead, 0, 2);
        ahead += ahead_step;
        __builtin_prefetch(source, 0, 2);
        source += source_step;
        __m512bh row_b[HS_TILE_VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            row_b[j] = (__m512bh)_mm512_load_si512(b + j * HS_TILE_LANES);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            __m512bh pair = (__m512bh)_mm512_set1_epi32(i < 3 ? upper[i * a_row] : lower[(i - 3) * a_row]);
#pragma GCC unroll 8
            for (int j = 0; j < vectors; j++)
                sums[i][j] = _mm512_dpbf16_ps(sums[i][j], pair, row_b[j]);
        }
        upper += a_step;
        lower += a_step;
        b += HS_TILE_COLUMNS;
    }

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < vectors; j++)
            _mm512_store_ps(out + i * HS_TILE_COLUMNS + j * HS_TILE_LANES, sums[i][j]);
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
#if defined(HS_ISA_avx512) || defined(HS_ISA_avx512bf16)
KERNELS_OF_WIDTH(f32, 3)
KERNELS_OF_WIDTH(f32, 4)
#endif
#ifdef HS_ISA_avx512bf16
KERNELS_OF_WIDTH(bf16, 1)
KERNELS_OF_WIDTH(bf16, 2)
KERNELS_OF_WIDTH(bf16, 3)
KERNELS_OF_WIDTH(bf16, 4)
#endif

/* [format][vectors - 1][rows - 1] */
static const HsTileKernel kernels[][HS_TILE_VECTORS][HS_KERNEL_ROWS] = {
    [HS_PANEL_F32] = { ROW_OF_WIDTH(f32, 1), ROW_OF_WIDTH(f32, 2),
#if defined(HS_ISA_avx512) || defined(HS_ISA_avx512bf16)
                       ROW_OF_WIDTH(f32, 3), ROW_OF_WIDTH(f32, 4)
#endif
    },
#ifdef HS_ISA_avx512bf16
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
    return HS_ISA_NAME(hs_tile_kernel)(format, rows, vectors);
}
#endif
