/* SPDX-License-Identifier: MIT
 *
 * Packing for BFMMLA (matmul_bfmmla.c), pairs of bf16 as words.  A panel of B is HS_TILE_COLUMNS wide, and of two
 * successive words of depth, p and p + 1, each column's lie next to each other, so that four values of k of two columns
 * fill a register:
 *
 *     out[(p - begin) * HS_TILE_COLUMNS + 2 * column], ... + 1        p - begin even
 *
 * The last word of an odd depth has none next to it: a plain row of the panel.  Panels of A are rows along k, which are
 * stored so, or turned here.
 */
#include "kernels/cpu/isa/pack.h"

#ifdef HS_ISA_neonbf16
enum { HALVES = 8, DEPTH_BATCH = 16 };

/* `count` (0..HALVES) stored bf16 of row `k` from `lane` on, and zeros; none where there is no such row. */
static inline __attribute__((always_inline)) uint16x8_t load_halves(const HsMatmulOperand *operand, int64_t k,
                                                                    int64_t lane, int64_t count)
{
    uint16x8_t halves = vdupq_n_u16(0);
    if (k >= operand->k || count <= 0)
        return halves;
    const unsigned char *source = hs_operand_element(operand, k, lane);
    if (count >= HALVES)
        memcpy(&halves, source, sizeof halves);
    else
        memcpy(&halves, source, (size_t)count * sizeof(uint16_t));
    return halves;
}

/* Stored rows run across lanes: four rows of k, or the two of a last word, are interleaved as they are stored. */
static void pack_across(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                        uint32_t *out)
{
    for (int64_t p = begin; p < end; p += 2, out += 2 * HS_TILE_COLUMNS)
        for (int64_t first = 0; first < HS_TILE_COLUMNS; first += HALVES) {
            uint16x8x4_t rows;
            for (int k = 0; k < 4; k++)
                rows.val[k] = load_halves(operand, 2 * p + k, lane + first, lanes - first);
            if (p + 1 < end)
                vst4q_u16((uint16_t *)(out + 2 * first), rows);
            else
                vst2q_u16((uint16_t *)(out + first), (uint16x8x2_t){ { rows.val[0], rows.val[1] } });
        }
}

/* Stored rows run along k. */
static void pack_along(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                       uint32_t *out)
{
    uint32_t words[HS_TILE_COLUMNS][DEPTH_BATCH] = { { 0 } };
    for (int64_t p = begin; p < end; p += DEPTH_BATCH) {
        const int64_t count = end - p < DEPTH_BATCH ? end - p : DEPTH_BATCH;
        for (int64_t l = 0; l < lanes; l++)
            hs_pack_depth_words(operand, lane + l, p, count, words[l]);
        int64_t d = 0;
        for (; d + 2 <= count; d += 2, out += 2 * HS_TILE_COLUMNS)
            for (int l = 0; l < HS_TILE_COLUMNS; l++)
                memcpy(out + 2 * l, &words[l][d], 2 * sizeof *out);
        for (int l = 0; l < HS_TILE_COLUMNS && d < count; l++)
            out[l] = words[l][d];
    }
}

void HS_ISA_NAME(hs_panel_pack_bfmmla)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                       int64_t end, uint32_t *out)
{
    if (operand->lanes_contiguous)
        pack_across(operand, lane, lanes, begin, end, out);
    else
        pack_along(operand, lane, lanes, begin, end, out);
}

/* Rows of a square become columns: a row is interleaved with the one half a square below, three times. */
static inline __attribute__((always_inline)) void transpose(uint16x8_t rows[HALVES])
{
    for (int round = 0; round < 3; round++) {
        uint16x8_t mixed[HALVES];
#pragma GCC unroll 4
        for (int i = 0; i < HALVES / 2; i++) {
            mixed[2 * i] = vzip1q_u16(rows[i], rows[i + HALVES / 2]);
            mixed[2 * i + 1] = vzip2q_u16(rows[i], rows[i + HALVES / 2]);
        }
        memcpy(rows, mixed, sizeof mixed);
    }
}

void HS_ISA_NAME(hs_panel_pack_turned)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                       int64_t end, int64_t panel_stride, uint32_t *out)
{
    for (int64_t p = begin; p < end; p += HALVES / 2) {
        const int64_t words = end - p < HALVES / 2 ? end - p : HALVES / 2;
        for (int64_t first = 0; first < lanes; first += HALVES) {
            uint16x8_t rows[HALVES];
            for (int k = 0; k < HALVES; k++)
                rows[k] = load_halves(operand, 2 * p + k, lane + first, lanes - first);
            transpose(rows);
            for (int l = 0; l < HALVES && first + l < lanes; l++)
                memcpy(out + (first + l) * panel_stride + (p - begin), &rows[l], (size_t)words * sizeof *out);
        }
    }
}
#endif
