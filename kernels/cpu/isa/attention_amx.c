/* SPDX-License-Identifier: MIT
 *
 * Attention's products of pairs of bf16 on AMX (amx.h): out = (resume ? out : 0) + a b, both operands small tiles in
 * scratch.  The depth is walked 16 words a step; what is left of it is a shorter step behind these, so that an element's
 * sum does not depend on what lies behind the depth.
 */
#include "kernels/cpu/isa/attention_tile.h"

typedef int HsNoEmptyUnit; /* elsewhere there is nothing in this file */

#ifdef HS_ISA_amx
#include "kernels/cpu/isa/amx.h"

#include <assert.h>

/* Words [begin, end) of the depth, `words` a step, into rows from `row` on and one or two groups of columns. */
static inline __attribute__((always_inline)) void multiply_block(const HsTileProduct *product, bool lower, bool second,
                                                                 int64_t row, int64_t group, HsRowBlock depth,
                                                                 int words, bool resume)
{
    const int64_t panel = group * HS_AMX_SIDE / HS_TILE_COLUMNS, column = group * HS_AMX_SIDE % HS_TILE_COLUMNS;
    const uint32_t *a = (const uint32_t *)product->a + row * product->a_row;
    const uint32_t *b = (const uint32_t *)product->b.data + panel * product->b.stride + column;
    float *out = product->out.data + panel * product->out.stride + row * HS_TILE_COLUMNS + column;
    hs_amx_begin(lower, second, resume, out);
    for (int64_t word = depth.begin; word < depth.end; word += words)
        hs_amx_step(lower, second, a + word, product->a_row * HS_AMX_WORD_BYTES, b + word * HS_TILE_COLUMNS);
    hs_amx_end(lower, second, out);
}

static void multiply_words(const HsTileProduct *product, HsRowBlock depth, int words, bool resume)
{
    const int64_t groups = hs_cpu_block_count(product->end, HS_AMX_SIDE), in_panel = HS_TILE_COLUMNS / HS_AMX_SIDE;
    for (int64_t row = 0; row < product->rows; row += 2 * HS_AMX_SIDE) {
        const int64_t left = product->rows - row;
        const int upper = (int)(left < HS_AMX_SIDE ? left : HS_AMX_SIDE);
        const int lower = (int)(left < 2 * HS_AMX_SIDE ? left - upper : HS_AMX_SIDE);
        hs_amx_configure(upper, lower, words);
        int64_t width;
        for (int64_t group = product->begin / HS_AMX_SIDE; group < groups; group += width) {
            const bool second = group + 1 < groups && group % in_panel != in_panel - 1;
            width = second ? 2 : 1;
            if (lower > 0 && second)
                multiply_block(product, true, true, row, group, depth, words, resume);
            else if (lower > 0)
                multiply_block(product, true, false, row, group, depth, words, resume);
            else if (second)
                multiply_block(product, false, true, row, group, depth, words, resume);
            else
                multiply_block(product, false, false, row, group, depth, words, resume);
        }
    }
}

void HS_ISA_NAME(hs_attention_multiply_amx)(const HsTileProduct *product)
{
    assert(product->a_step == 1 && product->begin % HS_AMX_SIDE == 0);
    const int64_t whole = product->depth / HS_AMX_SIDE * HS_AMX_SIDE;
    if (whole > 0)
        multiply_words(product, (HsRowBlock){ 0, whole }, HS_AMX_SIDE, product->resume);
    if (whole < product->depth)
        multiply_words(product, (HsRowBlock){ whole, product->depth }, (int)(product->depth - whole),
                       product->resume || whole > 0);
}
#endif
