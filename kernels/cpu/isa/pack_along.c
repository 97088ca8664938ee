/* SPDX-License-Identifier: MIT
 *
 * Packing of B where stored rows run along k (matmul.h, pack.c): squares of words are transposed in registers, so that
 * whole cache lines are read and written.  A line of each of 16 lanes makes a square of 16 by 16 words on AVX-512;
 * elsewhere squares of four.
 */
#include "kernels/cpu/isa/pack.h"

#ifdef __AVX512F__
/* turned[d][l] = rows[l][d]: four rounds of shuffles, of words, pairs, quarters of a register, and those again. */
typedef __m512i Square[16];

static inline __attribute__((always_inline)) void transpose(const Square rows, Square turned)
{
    Square words, quads;
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        words[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        words[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    /* quads[i + e]: in each quarter q, word 4 q + e of lanes i ... i + 3. */
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        quads[i] = _mm512_unpacklo_epi64(words[i], words[i + 2]);
        quads[i + 1] = _mm512_unpackhi_epi64(words[i], words[i + 2]);
        quads[i + 2] = _mm512_unpacklo_epi64(words[i + 1], words[i + 3]);
        quads[i + 3] = _mm512_unpackhi_epi64(words[i + 1], words[i + 3]);
    }
#pragma GCC unroll 4
    for (int e = 0; e < 4; e++) {
        const __m512i even_low = _mm512_shuffle_i32x4(quads[e], quads[e + 4], 0x88); /* quarters 0, 2 of each */
        const __m512i even_high = _mm512_shuffle_i32x4(quads[e + 8], quads[e + 12], 0x88);
        const __m512i odd_low = _mm512_shuffle_i32x4(quads[e], quads[e + 4], 0xdd); /* quarters 1, 3 */
        const __m512i odd_high = _mm512_shuffle_i32x4(quads[e + 8], quads[e + 12], 0xdd);
        const __m512i column[4] = { _mm512_shuffle_i32x4(even_low, even_high, 0x88),
                                    _mm512_shuffle_i32x4(odd_low, odd_high, 0x88),
                                    _mm512_shuffle_i32x4(even_low, even_high, 0xdd),
                                    _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd) };
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
            turned[4 * q + e] = column[q];
    }
}

/* A square of 16 words of 16 lanes, word d of lane l at rows[l][d], becomes out[d * HS_TILE_COLUMNS + l] for the first
 * `count` words. */
static inline __attribute__((always_inline)) void store_transposed(const Square rows, int64_t count, bool streamed,
                                                                   uint32_t *out)
{
    Square turned;
    transpose(rows, turned);
#pragma GCC unroll 16
    for (int d = 0; d < 16; d++)
        if (d < count)
            hs_pack_store(out + d * HS_TILE_COLUMNS, (HsF32x16)turned[d], streamed);
}

#ifdef HS_ISA_amx
/* Words p of 16 lanes, `stored` of which there are. */
static inline __attribute__((always_inline)) __m512i lane_pairs(const HsMatmulOperand *operand, int64_t lane,
                                                                __mmask16 stored, int64_t p)
{
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const unsigned char *const lower = hs_operand_element(operand, 2 * p, lane);
    const bool paired = 2 * p + 1 < operand->k;
    const __m256i low = _mm256_maskz_loadu_epi16(stored, lower);
    const __m256i high = _mm256_maskz_loadu_epi16(paired ? stored : 0, paired ? lower + operand->stride * 2 : lower);
    return _mm512_permutex2var_epi16(_mm512_castsi256_si512(low), order, _mm512_castsi256_si512(high));
}

void HS_ISA_NAME(hs_panel_pack_turned)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                       int64_t end, int64_t panel_stride, uint32_t *out)
{
    for (int64_t p = begin; p < end; p += 16) {
        const int words = end - p < 16 ? (int)(end - p) : 16;
        const __mmask16 written = (__mmask16)((1u << words) - 1);
        for (int64_t first = 0; first < lanes; first += 16) {
            const int left = lanes - first < 16 ? (int)(lanes - first) : 16;
            const __mmask16 stored = (__mmask16)((1u << left) - 1);
            Square rows, turned;
            for (int d = 0; d < 16; d++)
                rows[d] = d < words ? lane_pairs(operand, lane + first, stored, p + d) : _mm512_setzero_si512();
            transpose(rows, turned);
            for (int l = 0; l < left; l++)
                _mm512_mask_storeu_epi32(out + (first + l) * panel_stride + (p - begin), written, turned[l]);
        }
    }
}
#endif

/* Straight from the stored rows, `bytes` apart; a line of each is prefetched a few squares ahead, since the processor
 * follows fewer streams than there are lanes.  `dtype` is a constant; pairs are moved as if they were f32. */
static inline __attribute__((always_inline)) void pack_square(HsDtype dtype, const unsigned char *source, int64_t bytes,
                                                              bool streamed, uint32_t *out)
{
    Square rows;
#pragma GCC unroll 16
    for (int l = 0; l < 16; l++) {
        const unsigned char *row = source + l * bytes;
        __builtin_prefetch(row + 256, 0, 2);
        rows[l] = (__m512i)hs_simd_load(dtype, row, 0);
    }
    store_transposed(rows, 16, streamed, out);
}

/* `lanes` lanes (at most 16, or none) and `count` words of a square that the operand's edge cuts. */
static void pack_cut_square(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t p, int64_t count,
                            uint32_t *out)
{
    uint32_t words[16][16] __attribute__((aligned(64))) = { { 0 } };
    Square rows;
    for (int64_t l = 0; l < lanes; l++)
        hs_pack_depth_words(operand, lane + l, p, count, words[l]);
    for (int l = 0; l < 16; l++)
        rows[l] = _mm512_load_si512(words[l]);
    store_transposed(rows, count, operand->streamed, out);
}

void panel_pack_along(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                      uint32_t *out)
{
    const HsDtype moved = operand->format == HS_PANEL_BF16_PAIRS ? HS_F32 : operand->dtype;
    const int64_t step = hs_panel_step(operand->format);
    const int64_t bytes = operand->stride * (operand->dtype == HS_F32 ? 4 : 2);
    for (int64_t p = begin; p < end; p += 16, out += 16 * HS_TILE_COLUMNS) {
        const bool deep = p + 16 <= end && (p + 16) * step <= operand->k;
        for (int64_t first = 0; first < HS_TILE_COLUMNS; first += 16) {
            const unsigned char *source = hs_operand_element(operand, lane + first, p * step);
            if (!deep || first + 16 > lanes) {
                const int64_t left = lanes - first < 0 ? 0 : lanes - first < 16 ? lanes - first : 16;
                pack_cut_square(operand, lane + first, left, p, end - p < 16 ? end - p : 16, out + first);
            } else if (moved == HS_F32) {
                pack_square(HS_F32, source, bytes, operand->streamed, out + first);
            } else if (moved == HS_BF16) {
                pack_square(HS_BF16, source, bytes, operand->streamed, out + first);
            } else {
                pack_square(HS_F16, source, bytes, operand->streamed, out + first);
            }
        }
    }
}
#else
/* Words of depth that have their cache lines of a panel open at a time. */
enum { DEPTH_BATCH = 16 };

/* Four words of four lanes: word d of lane l, words[l * DEPTH_BATCH + d], becomes across[d][l]. */
typedef uint32_t Quad __attribute__((vector_size(16)));

/* Elements of two quads, 4 to 7 of the second: gcc 11 has the one builtin, clang the other. */
#ifdef __clang__
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (Quad){ __VA_ARGS__ })
#endif

static inline void transpose_quad(const uint32_t *words, Quad across[4])
{
    Quad lane[4];
    for (int l = 0; l < 4; l++)
        memcpy(&lane[l], words + l * DEPTH_BATCH, sizeof lane[l]);
    const Quad low01 = SHUFFLE(lane[0], lane[1], 0, 4, 1, 5);
    const Quad high01 = SHUFFLE(lane[0], lane[1], 2, 6, 3, 7);
    const Quad low23 = SHUFFLE(lane[2], lane[3], 0, 4, 1, 5);
    const Quad high23 = SHUFFLE(lane[2], lane[3], 2, 6, 3, 7);
    across[0] = SHUFFLE(low01, low23, 0, 1, 4, 5);
    across[1] = SHUFFLE(low01, low23, 2, 3, 6, 7);
    across[2] = SHUFFLE(high01, high23, 0, 1, 4, 5);
    across[3] = SHUFFLE(high01, high23, 2, 3, 6, 7);
}

void panel_pack_along(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                      uint32_t *out)
{
    uint32_t words[4 * DEPTH_BATCH] = { 0 };
    for (int64_t p = begin; p < end; p += DEPTH_BATCH, out += DEPTH_BATCH * HS_TILE_COLUMNS) {
        const int64_t count = end - p < DEPTH_BATCH ? end - p : DEPTH_BATCH;
        for (int64_t first = 0; first < HS_TILE_COLUMNS; first += 4) {
            for (int64_t l = 0; l < 4; l++) {
                if (first + l < lanes)
                    hs_pack_depth_words(operand, lane + first + l, p, count, words + l * DEPTH_BATCH);
                else
                    memset(words + l * DEPTH_BATCH, 0, DEPTH_BATCH * sizeof *words);
            }
            for (int64_t d = 0; d < count; d += 4) {
                Quad across[4];
                transpose_quad(words + d, across);
                for (int64_t e = d; e < d + 4 && e < count; e++)
                    memcpy(out + e * HS_TILE_COLUMNS + first, &across[e - d], sizeof across[0]);
            }
        }
    }
}
#endif
