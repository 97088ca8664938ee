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

/* What a step of HS_AMX_SIDE words fetches for later in one of its `passes` over the columns: its share of B's lines,
 * and in the first a line of each stored row. */
static inline __attribute__((always_inline)) void fetch(const HsMatmulTile *tile, int64_t word, int pass, int passes)
{
    const int64_t step_bytes = HS_AMX_SIDE * tile->ahead_step;
    const char *const ahead = tile->ahead + word * tile->ahead_step;
    for (int64_t byte = step_bytes * pass / passes; byte < step_bytes * (pass + 1) / passes; byte += 64)
        __builtin_prefetch(ahead + byte, 0, 2);
    for (int row = 0; row < HS_AMX_SIDE && pass == 0 && tile->source; row++)
        __builtin_prefetch(tile->source + (word + row) * tile->source_step, 0, 2);
}

/* `passes`, of 32 columns each, is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void multiply(int passes, bool lower, const HsMatmulTile *tile)
{
    const int64_t whole = tile->depth / HS_AMX_SIDE * HS_AMX_SIDE, a_bytes = tile->a_row * (int64_t)sizeof(uint32_t);
    Rest rest;
    if (whole < tile->depth)
        copy_rest(tile, whole, &rest);
    for (int pass = 0; pass < passes; pass++) {
        const int column = 2 * HS_AMX_SIDE * pass;
        hs_amx_begin(lower, true, tile->resume, tile->out + column);
        for (int64_t p = 0; p < whole; p += HS_AMX_SIDE) {
            fetch(tile, p, pass, passes);
            hs_amx_step(lower, true, tile->a + p, a_bytes, tile->b + p * HS_TILE_COLUMNS + column);
        }
        if (whole < tile->depth)
            hs_amx_step(lower, true, rest.a[0], sizeof rest.a[0], rest.b[0] + column);
        hs_amx_end(lower, true, tile->out + column);
    }
}

static inline __attribute__((always_inline)) void multiply_rows(int passes, const HsMatmulTile *tile)
{
    if (tile->rows > HS_AMX_SIDE)
        multiply(passes, true, tile);
    else
        multiply(passes, false, tile);
}

static void multiply_half(const HsMatmulTile *tile)
{
    multiply_rows(1, tile);
}

static void multiply_whole(const HsMatmulTile *tile)
{
    multiply_rows(2, tile);
}

void HS_ISA_NAME(hs_product_begin)(HsPanelFormat format, int rows)
{
    const int upper = rows < HS_AMX_SIDE ? rows : HS_AMX_SIDE;
    if (format == HS_PANEL_BF16_PAIRS)
        hs_amx_configure(upper, rows - upper, HS_AMX_SIDE);
}

HsTileKernel HS_ISA_NAME(hs_tile_kernel_amx)(int vectors)
{
    return vectors <= 2 ? multiply_half : multiply_whole;
}
#endif
