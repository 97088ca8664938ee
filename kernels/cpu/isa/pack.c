/* SPDX-License-Identifier: MIT
 *
 * Packing of the matrix product's operands into panels (matmul.h), which also turns every layout into one: the
 * micro-kernels never see a transposed operand or a dtype.  Conversions to f32 are exact.
 *
 * A stored row runs either across lanes (then words of successive lanes are made together, by vectors, and go to the
 * panels) or along k (then squares of words are transposed in registers, a cache line of every lane at a time).
 * Edges go through a small buffer.
 */
#include "kernels/cpu/isa/pack.h"

/* Lanes that an edge handles together at most, and how many stored rows ahead to ask for: successive rows lie pages
 * apart, where the processor does not look by itself. */
enum { LANE_BATCH = 96, ROWS_AHEAD = 12 };

/* Word p of `count` successive lanes. */
static void lane_words(const HsOperand *operand, int64_t lane, int64_t count, int64_t p, uint32_t *words)
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

/* Ask for `lines` cache lines of each of the rows of a word, some rows later. */
static inline void ask_for(const unsigned char *word, int64_t rows, int64_t row_bytes, int64_t lines)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t line = 0; line < lines; line++)
            __builtin_prefetch(word + (ROWS_AHEAD + row) * row_bytes + line * 64);
}

/* Words of a panel of A: HS_TILE_ROWS lanes.  Eight are read, one load for each row. */
enum { LANES_READ = 8 };

typedef uint32_t Octet __attribute__((vector_size(LANES_READ * sizeof(uint32_t))));
typedef uint16_t OctetHalves __attribute__((vector_size(LANES_READ * sizeof(uint16_t))));

static inline __attribute__((always_inline)) Octet read_octet(HsPanelFormat format, HsDtype dtype,
                                                              const unsigned char *source, int64_t row_bytes)
{
    Octet words;
    if (format == HS_PANEL_F32 && dtype == HS_F32) {
        memcpy(&words, source, sizeof words);
        return words;
    }
    OctetHalves halves;
    memcpy(&halves, source, sizeof halves);
#ifdef HS_ISA_avx512bf16
    if (format == HS_PANEL_BF16_PAIRS) { /* one shuffle; its indices count the lower row's halves, then the upper's */
        const __m256i order = _mm256_setr_epi16(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        OctetHalves upper;
        memcpy(&upper, source + row_bytes, sizeof upper);
        return (Octet)_mm256_permutex2var_epi16(_mm256_castsi128_si256((__m128i)halves), order,
                                                _mm256_castsi128_si256((__m128i)upper));
    }
#endif
    (void)row_bytes;
#ifdef __F16C__
    if (dtype == HS_F16)
        return (Octet)_mm256_cvtph_ps((__m128i)halves);
#endif
    return __builtin_convertvector(halves, Octet) << 16;
}

static inline void store_six(Octet words, uint32_t *out)
{
#ifdef __AVX512VL__
    _mm256_mask_storeu_epi32(out, (1 << HS_TILE_ROWS) - 1, (__m256i)words);
#else
    memcpy(out, &words, HS_TILE_ROWS * sizeof *out);
#endif
}

/* Panels of A.  Format and dtype are constants wherever this is inlined.  Lanes past the last one are masked off; what
 * is read of them is the next row's, so the operand's last row is not for this function. */
static inline __attribute__((always_inline)) void deal_rows(HsPanelFormat format, HsDtype dtype,
                                                            const HsOperand *operand, int64_t lane, int64_t lanes,
                                                            int64_t begin, int64_t end, int64_t panel_stride,
                                                            uint32_t *out)
{
    const int64_t step = hs_panel_step(format), element_bytes = dtype == HS_F32 ? 4 : 2;
    const int64_t row_bytes = operand->stride * element_bytes, panel_bytes = HS_TILE_ROWS * element_bytes;
    const int64_t lines = lanes * element_bytes / 64 + 1;
    const int64_t panels = lanes / HS_TILE_ROWS;
    const uint32_t rest = (uint32_t)(lanes % HS_TILE_ROWS);
    const Octet kept = (Octet)((Octet){ 0, 1, 2, 3, 4, 5, 6, 7 } < rest);
    const unsigned char *source = hs_operand_element(operand, begin * step, lane);
    for (int64_t p = begin; p < end; p++, source += step * row_bytes, out += HS_TILE_ROWS) {
        ask_for(source, step, row_bytes, lines);
        for (int64_t i = 0; i < panels; i++)
            store_six(read_octet(format, dtype, source + i * panel_bytes, row_bytes), out + i * panel_stride);
        if (rest > 0)
            store_six(read_octet(format, dtype, source + panels * panel_bytes, row_bytes) & kept,
                      out + panels * panel_stride);
    }
}

/* One whole panel of B, which is whole vectors of simd.h. */
static inline __attribute__((always_inline)) void copy_rows(HsPanelFormat format, HsDtype dtype,
                                                            const HsOperand *operand, int64_t lane, int64_t begin,
                                                            int64_t end, uint32_t *out)
{
    const int64_t step = hs_panel_step(format), element_bytes = dtype == HS_F32 ? 4 : 2;
    const int64_t row_bytes = operand->stride * element_bytes, lines = HS_TILE_COLUMNS * element_bytes / 64;
    const unsigned char *source = hs_operand_element(operand, begin * step, lane);
    for (int64_t p = begin; p < end; p++, source += step * row_bytes, out += HS_TILE_COLUMNS) {
        ask_for(source, step, row_bytes, lines > 0 ? lines : 1);
#ifdef HS_ISA_avx512bf16
        if (format == HS_PANEL_BF16_PAIRS) { /* as in read_octet, 32 lanes at a time */
            const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7,
                                                   38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
            const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
            for (int i = 0; i < HS_TILE_COLUMNS; i += 32) {
                const __m512i lower = _mm512_loadu_si512(source + 2 * i);
                const __m512i upper = _mm512_loadu_si512(source + row_bytes + 2 * i);
                _mm512_store_si512(out + i, _mm512_permutex2var_epi16(lower, first, upper));
                _mm512_store_si512(out + i + 16, _mm512_permutex2var_epi16(lower, second, upper));
            }
            continue;
        }
#endif
        for (int i = 0; i < HS_TILE_COLUMNS; i += HS_LANES)
            hs_simd_store_f32((float *)out + i, hs_simd_load(dtype, source, i));
    }
}

/* The words that deal_rows and copy_rows make: up to which one. */
static int64_t fast_end(const HsOperand *operand, int64_t lanes, int64_t end, int64_t width)
{
    const int64_t step = hs_panel_step(operand->format);
    int64_t rows = operand->k;
    if (width == HS_TILE_COLUMNS) {
        if (HS_TILE_COLUMNS % HS_LANES != 0 || lanes != width)
            return 0;
    } else {
        if (operand->stride < LANES_READ)
            return 0;
#ifndef __F16C__
        if (operand->dtype == HS_F16)
            return 0;
#endif
        rows--;
    }
    return rows / step < end ? rows / step : end;
}

/* At most LANE_BATCH lanes: word p of each, zeros behind the last one. */
static void pack_edge(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t p, int64_t width,
                      int64_t panel_stride, uint32_t *out)
{
    uint32_t words[LANE_BATCH + HS_TILE_ROWS];
    lane_words(operand, lane, lanes, p, words);
    const int64_t padded = hs_cpu_block_count(lanes, width) * width;
    for (int64_t i = lanes; i < padded; i++)
        words[i] = 0;
    if (width == HS_TILE_ROWS) /* a constant size: two moves instead of a call */
        for (int64_t i = 0; i < padded; i += HS_TILE_ROWS)
            memcpy(out + i / HS_TILE_ROWS * panel_stride, words + i, HS_TILE_ROWS * sizeof *words);
    else
        memcpy(out, words, (size_t)padded * sizeof *words);
}

static void pack_across(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                        int64_t width, int64_t panel_stride, uint32_t *out)
{
    const int64_t fast = fast_end(operand, lanes, end, width);
    const HsDtype dtype = operand->dtype;
    if (fast > begin && width == HS_TILE_ROWS) {
        if (operand->format == HS_PANEL_BF16_PAIRS)
            deal_rows(HS_PANEL_BF16_PAIRS, HS_BF16, operand, lane, lanes, begin, fast, panel_stride, out);
        else if (dtype == HS_F32)
            deal_rows(HS_PANEL_F32, HS_F32, operand, lane, lanes, begin, fast, panel_stride, out);
        else if (dtype == HS_BF16)
            deal_rows(HS_PANEL_F32, HS_BF16, operand, lane, lanes, begin, fast, panel_stride, out);
        else
            deal_rows(HS_PANEL_F32, HS_F16, operand, lane, lanes, begin, fast, panel_stride, out);
    } else if (fast > begin) {
        if (operand->format == HS_PANEL_BF16_PAIRS)
            copy_rows(HS_PANEL_BF16_PAIRS, HS_BF16, operand, lane, begin, fast, out);
        else if (dtype == HS_F32)
            copy_rows(HS_PANEL_F32, HS_F32, operand, lane, begin, fast, out);
        else if (dtype == HS_BF16)
            copy_rows(HS_PANEL_F32, HS_BF16, operand, lane, begin, fast, out);
        else
            copy_rows(HS_PANEL_F32, HS_F16, operand, lane, begin, fast, out);
    }
    for (int64_t p = fast > begin ? fast : begin; p < end; p++)
        pack_edge(operand, lane, lanes, p, width, panel_stride, out + (p - begin) * width);
}

void HS_ISA_NAME(hs_panel_pack)(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                                int64_t width, int64_t panel_stride, uint32_t *out)
{
    if (width == HS_TILE_COLUMNS) { /* panels of B one by one: nothing is shared between them */
        for (int64_t first = 0; first < lanes; first += width, out += panel_stride) {
            const int64_t used = lanes - first < width ? lanes - first : width;
            if (operand->lanes_contiguous)
                pack_across(operand, lane + first, used, begin, end, width, panel_stride, out);
            else
                panel_pack_along(operand, lane + first, used, begin, end, width, panel_stride, out);
        }
        return;
    }
    (operand->lanes_contiguous ? pack_across : panel_pack_along)(operand, lane, lanes, begin, end, width, panel_stride,
                                                                 out);
}
