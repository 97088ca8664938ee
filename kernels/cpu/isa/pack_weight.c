/* SPDX-License-Identifier: MIT
 *
 * Weights packed once for many products: panels as matmul.h has them, one after the other.
 */
#include "kernels/cpu/isa/pack.h"

/* Words of depth that one piece of work covers: also a narrow weight is shared out evenly. */
enum { PIECE_DEPTH = 128 };

/* From this many elements on, a weight and what belongs to it (its panels twice, gradient, moments and master: 5 MiB
 * and more) have left the caches before the next product asks for it. */
enum { STREAMED_ELEMENTS = 1 << 18 };

/* Below this many words starting threads costs more than it saves. */
enum { SERIAL_WORDS = 1 << 14 };

size_t HS_ISA_NAME(hs_cpu_packed_bytes)(const HsContext *context, HsDtype dtype, int64_t k, int64_t n)
{
    (void)context;
    int64_t panels = hs_cpu_block_count(n, HS_TILE_COLUMNS);
    return hs_cpu_align((size_t)(panels * hs_panel_depth(hs_panel_format(dtype), k) * HS_TILE_COLUMNS) *
                        sizeof(uint32_t));
}

void HS_ISA_NAME(hs_pack_weight_block)(const HsTensor *w, bool transposed, HsRowBlock lanes, HsRowBlock words,
                                       void *packed)
{
    const HsPanelFormat format = hs_panel_format(w->dtype);
    const int64_t columns = w->shape[1], k = transposed ? columns : w->shape[0];
    const HsMatmulOperand operand = {
        w->data, w->dtype, format, !transposed, columns, k, hs_tensor_count(w) >= STREAMED_ELEMENTS
    };
    const int64_t panel_words = hs_panel_depth(format, k) * HS_TILE_COLUMNS;
    HS_ISA_NAME(hs_panel_pack)
    (&operand, lanes.begin, lanes.end - lanes.begin, words.begin, words.end, HS_TILE_COLUMNS, panel_words,
     (uint32_t *)packed + lanes.begin / HS_TILE_COLUMNS * panel_words + words.begin * HS_TILE_COLUMNS);
#ifdef __AVX512F__
    if (operand.streamed)
        _mm_sfence(); /* other threads see what went past the caches */
#endif
}

HsStatus HS_ISA_NAME(hs_cpu_pack_weight)(HsContext *context, const HsPackWeightArgs *args)
{
    if (args->w.dtype == HS_F64)
        return hs_fail(HS_EUNSUPPORTED, "pack_weight: the cpu backend has no f64 products; use the ref backend");
    const int64_t rows = args->w.shape[0], columns = args->w.shape[1];
    const int64_t k = args->transposed ? columns : rows, n = args->transposed ? rows : columns;
    const int64_t depth = hs_panel_depth(hs_panel_format(args->w.dtype), k);
    const int64_t panels = hs_cpu_block_count(n, HS_TILE_COLUMNS), pieces = hs_cpu_block_count(depth, PIECE_DEPTH);
    args->packed->dtype = args->w.dtype;
    args->packed->k = k;
    args->packed->n = n;

    const bool serial = panels * depth * HS_TILE_COLUMNS < SERIAL_WORDS;
#pragma omp parallel for num_threads(serial ? 1 : hs_cpu_threads(context, panels *pieces)) schedule(static)
    for (int64_t piece = 0; piece < panels * pieces; piece++)
        HS_ISA_NAME(hs_pack_weight_block)
    (&args->w, args->transposed, hs_cpu_block(n, HS_TILE_COLUMNS, piece / pieces),
     hs_cpu_block(depth, PIECE_DEPTH, piece % pieces), args->packed->data);
    return HS_OK;
}
