/* SPDX-License-Identifier: MIT
 *
 * The micro-kernel of bf16 products on AMX (amx.h): 32 rows by 32 columns of sums, twice for a panel's 64 columns.
 *
 * A word is a pair of successive k, as in the panels, so B's panels are loaded as they lie, 16 words deep, and A's rows 16
 * words at a time.  Depth past the end is zeros: of A and of B; the memory there belongs to other data.
 */
#include "kernels/cpu/isa/matmul.h"

typedef int HsNoEmptyUnit; /* elsewhere there is nothing in this file */

#ifdef HS_ISA_amx
#include "kernels/cpu/isa/amx.h"

#include <string.h>

/* The last words of a depth that is no multiple of 16, with zeros behind them. */
typedef struct Rest {
    uint32_t a[HS_TILE_ROWS][HS_AMX_SIDE], b[HS_AMX_SIDE][HS_TILE_COLUMNS];
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
    const int64_t whole = tile->depth / HS_AMX_SIDE * HS_AMX_SIDE, a_bytes = tile->a_row * (int64_t)sizeof(uint32_t);
    const char *ahead = tile->ahead, *source = tile->source;
    Rest rest;
    if (whole < tile->depth)
        copy_rest(tile, whole, &rest);
    for (int column = 0; column < vectors * HS_AMX_SIDE; column += 2 * HS_AMX_SIDE) {
        hs_amx_begin(lower, true, tile->resume, tile->out + column);
        for (int64_t p = 0; p < whole; p += HS_AMX_SIDE) {
            for (int i = 0; i < HS_AMX_SIDE && column == 0; i++) {
                if (ahead)
                    __builtin_prefetch(ahead, 0, 2);
                if (source)
                    __builtin_prefetch(source, 0, 2);
                ahead += tile->ahead_step;
                source += tile->source_step;
            }
            hs_amx_step(lower, true, tile->a + p, a_bytes, tile->b + p * HS_TILE_COLUMNS + column);
        }
        if (whole < tile->depth)
            hs_amx_step(lower, true, rest.a[0], sizeof rest.a[0], rest.b[0] + column);
        hs_amx_end(lower, true, tile->out + column);
    }
}

/* The configuration is set for each tile, which has some thousand multiply-adds. */
static inline __attribute__((always_inline)) void multiply_rows(int vectors, const HsMatmulTile *tile)
{
    const int upper = tile->rows < HS_AMX_SIDE ? tile->rows : HS_AMX_SIDE;
    hs_amx_configure(upper, tile->rows - upper, HS_AMX_SIDE);
    if (tile->rows > HS_AMX_SIDE)
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
