/* SPDX-License-Identifier: MIT
 *
 * Packing of the matrix product's operands (matmul.h), which turns every layout and dtype into words.  Conversions to
 * f32 are exact.
 *
 * A stored row runs either across lanes (then words of successive lanes are made together, by vectors) or along k.  In
 * the latter case A keeps its rows, since the micro-kernel reads words of A one by one, from anywhere; B's are
 * transposed in registers (pack_along.c).
 */
#include "kernels/cpu/isa/pack.h"

/* How many stored rows ahead to ask for, into the second-level cache: successive rows lie pages apart, where the
 * processor does not look by itself, and memory takes longer than the first-level cache has room for requests. */
enum { ROWS_AHEAD = 24 };

/* Word p of `count` successive lanes. */
static void lane_words(const HsMatmulOperand *operand, int64_t lane, int64_t count, int64_t p, uint32_t *words)
{
    if (operand->format == HS_PANEL_F32) {
        hs_pack_widen(operand->dtype, hs_operand_element(operand, p, lane), count, words);
        return;
    }
    const uint16_t *lower = (const uint16_t *)hs_operand_element(operand, 2 * p, lane);
    if (2 * p + 1 == operand->k) {
        for (int64_t i = 0; i < count; i++)
            words[i] = lower[i];
        return;
    }
    const uint16_t *upper = lower + operand->stride;
    for (int64_t i = 0; i < count; i++)
        words[i] = (uint32_t)lower[i] | (uint32_t)upper[i] << 16;
}

/* Ask for `lines` cache lines of each of the rows of a word, some rows later.  Inlined by force: GCC takes a function
 * of prefetches alone for one without effect, and drops its calls. */
static inline __attribute__((always_inline)) void ask_for(const unsigned char *word, int64_t rows, int64_t row_bytes,
                                                          int64_t lines)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t line = 0; line < lines; line++)
            __builtin_prefetch(word + (ROWS_AHEAD + row) * row_bytes + line * 64, 0, 2);
}

/* Sixteen words of the row at `source`, of which `lanes` are stored. */
static inline __attribute__((always_inline)) void copy_vector(HsPanelFormat format, HsDtype dtype,
                                                              const unsigned char *source, int64_t row_bytes,
                                                              int64_t lanes, bool streamed, uint32_t *out)
{
#ifdef HS_ISA_avx512bf16
    if (format == HS_PANEL_BF16_PAIRS) { /* one shuffle; its indices count the lower row's halves, then the upper's */
        const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38,
                                               6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        const __mmask16 stored = (__mmask16)(lanes >= HS_LANES ? 0xffffu : (1u << (lanes < 0 ? 0 : lanes)) - 1);
        const __m256i lower = _mm256_maskz_loadu_epi16(stored, source);
        const __m256i upper = _mm256_maskz_loadu_epi16(stored, source + row_bytes);
        const __m512i pairs =
            _mm512_permutex2var_epi16(_mm512_castsi256_si512(lower), order, _mm512_castsi256_si512(upper));
        hs_pack_store(out, (HsF32x16)pairs, streamed);
        return;
    }
#endif
    (void)format, (void)row_bytes;
    HsF32x16 words = { 0 };
    if (lanes >= HS_LANES)
        words = hs_simd_load(dtype, source, 0);
    else if (lanes > 0)
        words = hs_simd_load_part(dtype, source, 0, lanes);
    hs_pack_store(out, words, streamed);
}

/* One panel of whole vectors of simd.h; its whole words.  Format, dtype and width are constants wherever this is
 * inlined, and so is `lanes` in a panel that the operand's edge does not cut. */
static inline __attribute__((always_inline)) void copy_rows(HsPanelFormat format, HsDtype dtype,
                                                            const HsMatmulOperand *operand, int64_t lane, int64_t lanes,
                                                            int64_t begin, int64_t end, int64_t width, uint32_t *out)
{
    const int64_t step = hs_panel_step(format), element_bytes = dtype == HS_F32 ? 4 : 2;
    const int64_t row_bytes = operand->stride * element_bytes, lines = (lanes * element_bytes + 63) / 64;
    const unsigned char *source = hs_operand_element(operand, begin * step, lane);
    for (int64_t p = begin; p < end; p++, source += step * row_bytes, out += width) {
        ask_for(source, step, row_bytes, lines);
        for (int64_t i = 0; i < width; i += HS_LANES)
            copy_vector(format, dtype, source + i * element_bytes, row_bytes, lanes - i, operand->streamed, out + i);
    }
}

static inline __attribute__((always_inline)) void copy_rows_of(HsPanelFormat format, HsDtype dtype,
                                                               const HsMatmulOperand *operand, int64_t lane,
                                                               int64_t lanes, int64_t begin, int64_t end, int64_t width,
                                                               uint32_t *out)
{
    if (lanes < width)
        copy_rows(format, dtype, operand, lane, lanes, begin, end, width, out);
    else if (width == HS_TILE_COLUMNS)
        copy_rows(format, dtype, operand, lane, HS_TILE_COLUMNS, begin, end, HS_TILE_COLUMNS, out);
    else
        copy_rows(format, dtype, operand, lane, HS_GROUP_ROWS, begin, end, HS_GROUP_ROWS, out);
}

/* One panel where stored rows run across lanes. */
static void pack_across(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                        int64_t width, uint32_t *out)
{
    const int64_t whole = operand->k / hs_panel_step(operand->format);
    const int64_t fast = width % HS_LANES != 0 ? begin : whole < end ? whole : end;
    if (fast > begin) {
        if (operand->format == HS_PANEL_BF16_PAIRS)
            copy_rows_of(HS_PANEL_BF16_PAIRS, HS_BF16, operand, lane, lanes, begin, fast, width, out);
        else if (operand->dtype == HS_F32)
            copy_rows_of(HS_PANEL_F32, HS_F32, operand, lane, lanes, begin, fast, width, out);
        else if (operand->dtype == HS_BF16)
            copy_rows_of(HS_PANEL_F32, HS_BF16, operand, lane, lanes, begin, fast, width, out);
        else
            copy_rows_of(HS_PANEL_F32, HS_F16, operand, lane, lanes, begin, fast, width, out);
    }
    for (int64_t p = fast > begin ? fast : begin; p < end; p++) { /* narrow panels, and the odd half at the end of k */
        uint32_t *words = out + (p - begin) * width;
        lane_words(operand, lane, lanes, p, words);
        memset(words + lanes, 0, (size_t)(width - lanes) * sizeof *words);
    }
}

_Static_assert((int)HS_A_LANES != (int)HS_TILE_ROWS || (int)HS_PART_LANES >= (int)HS_TILE_ROWS, "a tile in a register");

/* Whole tiles of A, a panel each; words [begin, end) of the depth.  A register is wider than a tile: what it stores too
 * much is the next word's place, which is written after it, and what it loads too much is the next stored row's. */
static inline __attribute__((always_inline)) void copy_tiles(HsDtype dtype, const HsMatmulOperand *operand,
                                                             int64_t lane, int64_t tiles, int64_t begin, int64_t end,
                                                             int64_t panel_stride, uint32_t *out)
{
    const int64_t element_bytes = dtype == HS_F32 ? 4 : 2, row_bytes = operand->stride * element_bytes;
    const int64_t lines = (tiles * HS_TILE_ROWS * element_bytes + 63) / 64;
    const unsigned char *source = hs_operand_element(operand, begin, lane);
    for (int64_t p = begin; p < end; p++, source += row_bytes, out += HS_TILE_ROWS) {
        ask_for(source, 1, row_bytes, lines);
        for (int64_t tile = 0; tile < tiles; tile++)
            hs_part_store_f32((float *)out + tile * panel_stride, hs_part_load(dtype, source, tile * HS_TILE_ROWS));
    }
}

/* Panels of whole tiles; how many lanes they are. */
static int64_t pack_tiles(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                          int64_t panel_stride, uint32_t *out)
{
    const int64_t whole = lanes / HS_TILE_ROWS;
    for (int64_t first = 0; first < whole; first += HS_GROUP_TILES, out += HS_GROUP_TILES * panel_stride) {
        const int64_t tiles = whole - first < HS_GROUP_TILES ? whole - first : HS_GROUP_TILES;
        const int64_t from = lane + first * HS_TILE_ROWS;
        if (operand->dtype == HS_F32)
            copy_tiles(HS_F32, operand, from, tiles, begin, end - 1, panel_stride, out);
        else if (operand->dtype == HS_BF16)
            copy_tiles(HS_BF16, operand, from, tiles, begin, end - 1, panel_stride, out);
        else
            copy_tiles(HS_F16, operand, from, tiles, begin, end - 1, panel_stride, out);
        for (int64_t tile = 0; tile < tiles; tile++) /* the last word: behind it may be another's words */
            lane_words(operand, from + tile * HS_TILE_ROWS, HS_TILE_ROWS, end - 1,
                       out + tile * panel_stride + (end - 1 - begin) * HS_TILE_ROWS);
    }
    return whole * HS_TILE_ROWS;
}

void HS_ISA_NAME(hs_panel_pack)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                                int64_t width, int64_t panel_stride, uint32_t *out)
{
#if defined(HS_ISA_amx) || defined(HS_ISA_neonbf16)
    if (operand->lanes_contiguous && width == 1) {
        HS_ISA_NAME(hs_panel_pack_turned)(operand, lane, lanes, begin, end, panel_stride, out);
        return;
    }
#endif
    int64_t first = 0;
    if ((int)HS_A_LANES == (int)HS_TILE_ROWS && operand->lanes_contiguous && width == HS_A_LANES) {
        first = pack_tiles(operand, lane, lanes, begin, end, panel_stride, out);
        out += first / HS_TILE_ROWS * panel_stride;
    }
    for (; first < lanes; first += width, out += panel_stride) {
        const int64_t used = lanes - first < width ? lanes - first : width;
#ifdef HS_ISA_neonbf16
        if (operand->format == HS_PANEL_BF16_PAIRS && width == HS_TILE_COLUMNS) {
            HS_ISA_NAME(hs_panel_pack_bfmmla)(operand, lane + first, used, begin, end, out);
            continue;
        }
#endif
        if (operand->lanes_contiguous)
            pack_across(operand, lane + first, used, begin, end, width, out);
        else if (width == 1)
            hs_pack_depth_words(operand, lane + first, begin, end - begin, out);
        else
            panel_pack_along(operand, lane + first, used, begin, end, out);
    }
}
