/* SPDX-License-Identifier: MIT
 *
 * Weights packed once for many products: panels as matmul.h has them, one after the other.
 */
#include "kernels/cpu/isa/matmul.h"

/* Words of depth that one piece of work covers: also a narrow weight is shared out evenly. */
enum { PIECE_DEPTH = 128 };

/* Below this many words starting threads costs more than it saves. */
enum { SERIAL_WORDS = 1 << 14 };

size_t HS_ISA_NAME(hs_cpu_packed_bytes)(const HsContext *context, HsDtype dtype, int64_t k, int64_t n)
{
    (void)context;
    int64_t panels = hs_cpu_block_count(n, HS_TILE_COLUMNS);
    return hs_cpu_align((size_t)(panels * hs_panel_depth(hs_panel_format(dtype), k) * HS_TILE_COLUMNS) *
                        sizeof(uint32_t));
}

HsStatus HS_ISA_NAME(hs_cpu_pack_weight)(HsContext *context, const HsPackWeightArgs *args)
{
    if (args->w.dtype == HS_F64)
        return hs_fail(HS_EUNSUPPORTED, "pack_weight: the cpu backend has no f64 products; use the ref backend");
    const int64_t rows = args->w.shape[0], columns = args->w.shape[1];
    const int64_t k = args->transposed ? columns : rows, n = args->transposed ? rows : columns;
    const HsPanelFormat format = hs_panel_format(args->w.dtype);
    const HsOperand operand = { args->w.data, args->w.dtype, format, !args->transposed, columns, k };
    const int64_t depth = hs_panel_depth(format, k), panels = hs_cpu_block_count(n, HS_TILE_COLUMNS);
    const int64_t pieces = hs_cpu_block_count(depth, PIECE_DEPTH), panel_words = depth * HS_TILE_COLUMNS;
    args->packed->dtype = args->w.dtype;
    args->packed->k = k;
    args->packed->n = n;
    uint32_t *out = args->packed->data;

    const bool serial = panels * panel_words < SERIAL_WORDS;
#pragma omp parallel for num_threads(serial ? 1 : hs_cpu_threads(context, panels *pieces)) schedule(static)
    for (int64_t piece = 0; piece < panels * pieces; piece++) {
        const HsRowBlock lanes = hs_cpu_block(n, HS_TILE_COLUMNS, piece / pieces);
        const HsRowBlock words = hs_cpu_block(depth, PIECE_DEPTH, piece % pieces);
        HS_ISA_NAME(hs_panel_pack)
        (&operand, lanes.begin, lanes.end - lanes.begin, words.begin, words.end, HS_TILE_COLUMNS, panel_words,
         out + piece / pieces * panel_words + words.begin * HS_TILE_COLUMNS);
    }
    return HS_OK;
}
