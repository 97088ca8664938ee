/* SPDX-License-Identifier: MIT
 *
 * The micro-kernel of bf16 products on AMX: 32 rows by 32 columns of sums in four tiles, twice for a panel's 64 columns.
 *
 *     tdpbf16ps: sum[m][n] += (sum over 16 words of the even products) + (of the odd ones), in f32, each addition rounded to
 *     nearest even, subnormal numbers read and written as zero (Intel SDM, TDPBF16PS)
 *
 * A word is a pair of successive k, as in the panels, so B's panels are loaded as they lie, 16 words deep, and A's rows 16
 * words at a time.  Depth past the end is zeros: of A and of B; the memory there belongs to other data.
 */
#include "kernels/cpu/isa/matmul.h"

typedef int HsNoEmptyUnit; /* elsewhere there is nothing in this file */

#ifdef HS_ISA_amx
#include <immintrin.h>
#include <string.h>

enum { SIDE = 16, TILE_BYTES = 64, B_STRIDE = HS_TILE_COLUMNS * 4 };

/* What ldtilecfg reads. */
typedef struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

/* Tiles 0, 1: sums of the upper rows; 2, 3: of the lower ones; 4, 5: A, upper and lower; 6, 7: B. */
static void configure(int upper, int lower)
{
    TileConfig config = { .palette = 1 };
    const int rows[8] = { upper, upper, lower, lower, upper, lower, SIDE, SIDE };
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)rows[i];
        config.row_bytes[i] = rows[i] > 0 ? TILE_BYTES : 0;
    }
    _tile_loadconfig(&config);
}

/* One step of depth for one pair of columns. */
static inline __attribute__((always_inline)) void step(const uint32_t *a, int64_t a_bytes, const uint32_t *b,
                                                       bool lower)
{
    _tile_loadd(6, b, B_STRIDE);
    _tile_loadd(7, b + SIDE, B_STRIDE);
    _tile_loadd(4, a, (size_t)a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (lower) {
        _tile_loadd(5, (const unsigned char *)a + SIDE * a_bytes, (size_t)a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

/* The last words of a depth that is no multiple of 16, with zeros behind them. */
typedef struct Rest {
    uint32_t a[HS_TILE_ROWS][SIDE], b[SIDE][HS_TILE_COLUMNS];
} __attribute__((aligned(64))) Rest;

static void copy_rest(const HsMatmulTile *tile, int64_t done, Rest *rest)
{
    const size_t words = (size_t)(tile->depth - done);
    memset(rest, 0, sizeof *rest);
    for (int row = 0; row < tile->rows; row++)
        memcpy(rest->a[row], tile->a + row * tile->a_row + done, words * sizeof(uint32_t));
    memcpy(rest->b, tile->b + done * HS_TILE_COLUMNS, words * sizeof rest->b[0]);
}

/* `vectors` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void multiply(int vectors, bool lower, const HsMatmulTile *tile)
{
    const int64_t whole = tile->depth / SIDE * SIDE, a_bytes = tile->a_row * (int64_t)sizeof(uint32_t);
    const char *ahead = tile->ahead, *source = tile->source;
    Rest rest;
    if (whole < tile->depth)
        copy_rest(tile, whole, &rest);
    for (int column = 0; column < vectors * SIDE; column += 2 * SIDE) {
        float *const out = tile->out + column, *const out_lower = out + SIDE * HS_TILE_COLUMNS;
        if (tile->resume) {
            _tile_loadd(0, out, B_STRIDE);
            _tile_loadd(1, out + SIDE, B_STRIDE);
            if (lower) {
                _tile_loadd(2, out_lower, B_STRIDE);
                _tile_loadd(3, out_lower + SIDE, B_STRIDE);
            }
        } else {
            _tile_zero(0);
            _tile_zero(1);
            if (lower) {
                _tile_zero(2);
                _tile_zero(3);
            }
        }
        for (int64_t p = 0; p < whole; p += SIDE) {
            for (int i = 0; i < SIDE && column == 0; i++) {
                if (ahead)
                    __builtin_prefetch(ahead, 0, 2);
                if (source)
                    __builtin_prefetch(source, 0, 2);
                ahead += tile->ahead_step;
                source += tile->source_step;
            }
            step(tile->a + p, a_bytes, tile->b + p * HS_TILE_COLUMNS + column, lower);
        }
        if (whole < tile->depth)
            step(rest.a[0], TILE_BYTES, rest.b[0] + column, lower);
        _tile_stored(0, out, B_STRIDE);
        _tile_stored(1, out + SIDE, B_STRIDE);
        if (lower) {
            _tile_stored(2, out_lower, B_STRIDE);
            _tile_stored(3, out_lower + SIDE, B_STRIDE);
        }
    }
}

/* The configuration is the thread's, and others may have left theirs: it is set for each tile, which has some thousand
 * multiply-adds. */
static inline __attribute__((always_inline)) void multiply_rows(int vectors, const HsMatmulTile *tile)
{
    configure(tile->rows < SIDE ? tile->rows : SIDE, tile->rows < SIDE ? 0 : tile->rows - SIDE);
    if (tile->rows > SIDE)
        multiply(vectors, true, tile);
    else
        multiply(vectors, false, tile);
}

static void multiply_half(const HsMatmulTile *tile)
{
    multiply_rows(2, tile);
}

static void multiply_whole(const HsMatmulTile *tile)
{
    multiply_rows(4, tile);
}

HsTileKernel HS_ISA_NAME(hs_tile_kernel_amx)(int vectors)
{
    return vectors <= 2 ? multiply_half : multiply_whole;
}
#endif
