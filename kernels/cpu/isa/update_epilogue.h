/* SPDX-License-Identifier: MIT
 *
 * How an update cuts a parameter, and what follows the rule on each piece (HsUpdateEpilogue).
 *
 * A matrix with packed layouts to write in the same pass is cut in blocks of rows that fill whole panels; anything else
 * is one row.  One of many rows is cut in whole rows: the processor follows the streams of gradient, moments, master
 * and weight only while they continue, and blocks of 256 columns took half as long again.  One of few is cut across,
 * too, to give each thread its share.  The cut depends on the parameter alone.  A piece is a few contiguous ranges,
 * each of which begins at a multiple of 64 elements: draws of random bits are made for 64 at a time.
 */
#ifndef HS_KERNELS_CPU_ISA_UPDATE_EPILOGUE_H
#define HS_KERNELS_CPU_ISA_UPDATE_EPILOGUE_H

#include "kernels/cpu/isa/parameter.h"

enum {
    HS_PIECE_ROWS = 64,
    HS_PIECE_COLUMNS = HS_CPU_CHUNK / HS_PIECE_ROWS,
    HS_PIECES_OF_ROWS = 6,
    HS_PIECE_GRAIN = 64 /* at which ranges begin */
};

typedef struct HsPieces {
    int64_t rows, columns, block_rows, block_columns, count;
} HsPieces;

typedef struct HsUpdatePiece {
    HsRowBlock rows, columns;
} HsUpdatePiece;

static inline bool hs_update_packs(const HsUpdateEpilogue *epilogue)
{
    return (epilogue->packed_transposed && epilogue->packed_transposed->data) ||
           (epilogue->packed && epilogue->packed->data);
}

/* grain: where a rule wants its ranges to begin, HS_PIECE_GRAIN or HS_DYNAMIC_BLOCK. */
static inline HsPieces hs_update_pieces(const HsTensor *weight, const HsUpdateEpilogue *epilogue, int64_t grain)
{
    HsPieces cut = { .rows = 1, .columns = hs_tensor_count(weight), .block_rows = 1, .block_columns = HS_CPU_CHUNK };
    if (hs_update_packs(epilogue)) {
        const int64_t columns = weight->shape[1];
        const bool even = HS_PIECE_ROWS * columns % grain == 0;
        cut = (HsPieces){ .rows = weight->shape[0], .columns = columns, .block_rows = even ? HS_PIECE_ROWS : grain };
        const bool across = columns % grain == 0 && weight->shape[0] < HS_PIECES_OF_ROWS * HS_PIECE_ROWS;
        cut.block_columns = across && columns > HS_PIECE_COLUMNS ? HS_PIECE_COLUMNS : columns;
    }
    cut.count = hs_cpu_block_count(cut.rows, cut.block_rows) * hs_cpu_block_count(cut.columns, cut.block_columns);
    return cut;
}

/* Along the columns first. */
static inline HsUpdatePiece hs_update_piece(const HsPieces *cut, int64_t index)
{
    const int64_t across = hs_cpu_block_count(cut->columns, cut->block_columns);
    return (HsUpdatePiece){ hs_cpu_block(cut->rows, cut->block_rows, index / across),
                            hs_cpu_block(cut->columns, cut->block_columns, index % across) };
}

/* Whole rows, and a part of the only row, are one range. */
static inline int64_t hs_piece_ranges(const HsPieces *cut, const HsUpdatePiece *piece)
{
    return cut->block_columns < cut->columns ? piece->rows.end - piece->rows.begin : 1;
}

static inline HsRowBlock hs_piece_range(const HsPieces *cut, const HsUpdatePiece *piece, int64_t index)
{
    if (cut->block_columns >= cut->columns)
        return (HsRowBlock){ piece->rows.begin * cut->columns, piece->rows.end * cut->columns };
    const int64_t row = (piece->rows.begin + index) * cut->columns;
    return (HsRowBlock){ row + piece->columns.begin, row + piece->columns.end };
}

void HS_ISA_NAME(hs_update_finish_piece)(const HsUpdateArgs *update, const HsPieces *cut, const HsUpdatePiece *piece);

#endif
