/* SPDX-License-Identifier: MIT
 *
 * The parts of an attention tile that forward and backward share: products by panels, loads and stores that turn
 * rows of heads into lanes and back, and dropout's factors.
 */
#include "kernels/cpu/isa/attention_tile.h"
#include "kernels/cpu/simd_random.h"

void HS_ISA_NAME(hs_attention_multiply)(const HsTileProduct *product)
{
#ifdef HS_ISA_amx
    if (product->format == HS_PANEL_BF16_PAIRS) {
        HS_ISA_NAME(hs_attention_multiply_amx)(product);
        return;
    }
#endif
    int64_t column = product->begin - product->begin % HS_TILE_COLUMNS;
    for (; column < product->end; column += HS_TILE_COLUMNS) {
        const int64_t left = product->begin > column ? product->begin - column : 0;
        const int64_t right = product->end - column < HS_TILE_COLUMNS ? product->end - column : HS_TILE_COLUMNS;
        const int vectors = (int)hs_cpu_block_count(right - left, HS_TILE_LANES);
        const int64_t panel = column / HS_TILE_COLUMNS;
        const float *b = product->b.data + panel * product->b.stride + left;
        float *out = product->out.data + panel * product->out.stride + left;
        for (int64_t row = 0; row < product->rows; row += HS_KERNEL_ROWS) {
            const int64_t rows = product->rows - row < HS_KERNEL_ROWS ? product->rows - row : HS_KERNEL_ROWS;
            const HsMatmulTile tile = { .depth = product->depth,
                                        .a = (const uint32_t *)(product->a + row * product->a_row),
                                        .a_row = product->a_row,
                                        .a_step = product->a_step,
                                        .b = (const uint32_t *)b,
                                        .out = out + row * HS_TILE_COLUMNS,
                                        .resume = product->resume };
            HS_ISA_NAME(hs_tile_kernel)(product->format, (int)rows, vectors)(&tile);
        }
    }
}

void HS_ISA_NAME(hs_attention_scores)(const HsAttentionPlace *place, HsPanelFormat format, const float *rows,
                                      HsPanels columns, int64_t width, HsPanels out)
{
    const int64_t step = place->diagonal ? HS_LANES : place->keys, words = hs_panel_depth(format, width);
    for (int64_t key = 0; key < place->keys; key += step) {
        const HsTileProduct product = { .format = format,
                                        .a = rows + key * words,
                                        .a_row = words,
                                        .a_step = 1,
                                        .b = columns,
                                        .out = hs_panels_from(out, key),
                                        .rows = place->keys - key < step ? place->keys - key : step,
                                        .depth = words,
                                        .begin = place->diagonal ? key : 0,
                                        .end = place->queries };
        HS_ISA_NAME(hs_attention_multiply)(&product);
    }
}

void HS_ISA_NAME(hs_attention_sums)(const HsAttentionPlace *place, HsPanelFormat format, const float *rows,
                                    HsPanels weights, int64_t width, HsPanels out)
{
    const int64_t step = place->diagonal ? HS_LANES : place->keys;
    for (int64_t key = 0; key < place->keys; key += step) {
        const int64_t word = key / hs_panel_step(format); /* steps of the diagonal are even */
        const bool turned = hs_across_turned(format);
        const HsTileProduct product = { .format = format,
                                        .a = rows + word * (turned ? 1 : width),
                                        .a_row = turned ? HS_ATTENTION_TILE / 2 : 1,
                                        .a_step = turned ? 1 : width,
                                        .b = hs_panels_from(weights, word),
                                        .out = out,
                                        .rows = width,
                                        .depth =
                                            hs_panel_depth(format, place->keys - key < step ? place->keys - key : step),
                                        .begin = place->diagonal ? key : 0,
                                        .end = place->queries,
                                        .resume = place->key > place->first_key || key > 0 };
        HS_ISA_NAME(hs_attention_multiply)(&product);
    }
}

/* tanh u = (1 - e) / (1 + e), e = exp(-2 |u|), with the sign of u. */
static inline HsF32x16 cap_score(HsF32x16 score, float exponent, float largest)
{
    const HsI32x16 negative = hs_simd_less(score, (HsF32x16){ 0 });
    const HsF32x16 size = hs_simd_select(negative, -score, score);
    const HsF32x16 e = hs_attention_exp2(size * -exponent), capped = (1.0f - e) / (1.0f + e) * largest;
    return hs_simd_select(negative, -capped, capped);
}

void HS_ISA_NAME(hs_attention_cap)(const HsAttentionPlace *place, HsPanels scores)
{
    const float cap = place->rule->cap, scale = place->rule->scale;
    if (cap == 0.0f)
        return;
    for (int64_t key = 0; key < place->keys; key++)
        for (int group = hs_first_group(place->diagonal, key); group * HS_LANES < place->queries; group++)
            hs_group_store(scores, key, group,
                           cap_score(hs_group_load(scores, key, group), 2.0f * HS_LOG2_E * scale / cap, cap / scale));
}

/* A row of a square: in memory part by part where it is wider than a register. */
static inline void set_row(HsF32x16 *row, HsF32x16 words)
{
#if defined(__AVX512F__)
    *row = words;
#else
    hs_simd_store_f32((float *)row, words);
#endif
}

/* Rows of a square become columns. */
#if defined(__AVX2__) && !defined(__AVX512F__)
static inline __m256 row_part(const HsF32x16 *row, int part)
{
    return (__m256)hs_part_load_f32((const float *)row + part * HS_PART_LANES);
}

/* One part of eight successive rows: pairs of words are interleaved, then pairs of pairs, then halves
 * exchanged. */
static inline __attribute__((always_inline)) void turn_corner(const HsF32x16 rows[8], int part, __m256 columns[8])
{
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        const __m256 a = row_part(rows + i, part), b = row_part(rows + i + 1, part);
        pairs[i] = _mm256_unpacklo_ps(a, b);
        pairs[i + 1] = _mm256_unpackhi_ps(a, b);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xEE);
        }
    for (int i = 0; i < 4; i++) {
        columns[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        columns[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

static void transpose(HsF32x16 rows[HS_LANES])
{
    __m256 columns[HS_PARTS][HS_PARTS][8]; /* of the upper rows and the lower ones, of each part */
    for (int i = 0; i < HS_PARTS; i++)
        for (int part = 0; part < HS_PARTS; part++)
            turn_corner(rows + 8 * i, part, columns[i][part]);
    for (int row = 0; row < HS_LANES; row++)
        for (int i = 0; i < HS_PARTS; i++)
            hs_part_store_f32((float *)(rows + row) + i * HS_PART_LANES, (HsF32Part)columns[i][row / 8][row % 8]);
}
#else
/* Exchange the blocks of `size` lanes off the diagonal between row pairs at that distance: lane l of the upper row
 * comes from the lower one (numbered 16 + l) where l has the bit `size`, and the other way round. */
#define UPPER(l, size) ((l) & (size) ? 16 + (l) - (size) : (l))
#define LOWER(l, size) ((l) & (size) ? 16 + (l) : (l) + (size))
#define LANES(side, size)                                                                                            \
    side(0, size), side(1, size), side(2, size), side(3, size), side(4, size), side(5, size), side(6, size),         \
        side(7, size), side(8, size), side(9, size), side(10, size), side(11, size), side(12, size), side(13, size), \
        side(14, size), side(15, size)
#define EXCHANGE(size)                                                          \
    for (int row = 0; row < HS_LANES; row++) {                                  \
        if (row & (size))                                                       \
            continue;                                                           \
        const HsF32x16 a = rows[row], b = rows[row + (size)];                   \
        rows[row] = __builtin_shufflevector(a, b, LANES(UPPER, size));          \
        rows[row + (size)] = __builtin_shufflevector(a, b, LANES(LOWER, size)); \
    }

static inline __attribute__((always_inline)) void transpose(HsF32x16 rows[HS_LANES])
{
#pragma GCC unroll 16
    EXCHANGE(8)
#pragma GCC unroll 16
    EXCHANGE(4)
#pragma GCC unroll 16
    EXCHANGE(2)
#pragma GCC unroll 16
    EXCHANGE(1)
}
#endif

/* Successive rows lie too far apart for the processor to look ahead by itself. */
enum { ROWS_AHEAD = 16 };

/* Sixteen words of a row from word `word` on, zeros behind its end. */
static inline HsF32x16 row_words(const HsHeadRows *rows, HsPanelFormat format, int64_t row, int64_t word)
{
    if (row >= rows->count)
        return (HsF32x16){ 0 };
    const void *from = hs_head_row(rows, row);
    if (format == HS_PANEL_F32)
        return hs_simd_load_part(rows->dtype, from, word, rows->width - word);
    HsF32x16 words = { 0 };
    const uint16_t *halves = (const uint16_t *)from + 2 * word;
    const int64_t left = rows->width - 2 * word;
    if (left >= 2 * HS_LANES)
        memcpy(&words, halves, sizeof words);
    else
        memcpy(&words, halves, (size_t)left * sizeof *halves);
    return words;
}

/* Sixteen words of a pair of rows from column `column` on (or of one row), zeros behind its end. */
static inline HsF32x16 pair_words(const HsHeadRows *rows, HsPanelFormat format, int64_t pair, int64_t column)
{
    if (format == HS_PANEL_F32)
        return row_words(rows, format, pair, column);
    const int64_t left = rows->width - column;
    HsU16x16 lower = { 0 }, upper = { 0 };
    const uint16_t *first = (const uint16_t *)hs_head_row(rows, 2 * pair) + column;
    const uint16_t *second =
        2 * pair + 1 < rows->count ? (const uint16_t *)hs_head_row(rows, 2 * pair + 1) + column : NULL;
    const size_t bytes = left >= HS_LANES ? sizeof lower : (size_t)left * sizeof *first;
    if (bytes == sizeof lower && second) {
        memcpy(&lower, first, sizeof lower);
        memcpy(&upper, second, sizeof upper);
    } else {
        memcpy(&lower, first, bytes);
        if (second)
            memcpy(&upper, second, bytes);
    }
    return (HsF32x16)(__builtin_convertvector(lower, HsU32x16) | __builtin_convertvector(upper, HsU32x16) << 16);
}

void HS_ISA_NAME(hs_attention_load_lanes)(const HsHeadRows *rows, HsPanelFormat format, HsPanels out)
{
    const int64_t words = hs_panel_depth(format, rows->width);
    for (int group = 0; group * HS_LANES < rows->count; group++) {
        for (int64_t word = 0; word < words; word += HS_LANES) {
            HsF32x16 block[HS_LANES];
            for (int lane = 0; lane < HS_LANES && word == 0; lane++)
                hs_attention_ask(rows, (group + 1) * HS_LANES + lane, false);
            for (int lane = 0; lane < HS_LANES; lane++)
                set_row(block + lane, row_words(rows, format, group * HS_LANES + lane, word));
            transpose(block);
            for (int lane = 0; lane < HS_LANES && word + lane < words; lane++)
                hs_group_store(out, word + lane, group, block[lane]);
        }
    }
}

void HS_ISA_NAME(hs_attention_load_rows)(const HsHeadRows *rows, HsPanelFormat format, HsPanels out)
{
    for (int64_t pair = 0; pair < hs_panel_depth(format, rows->count); pair++)
        for (int64_t column = 0; column < rows->width; column += HS_LANES)
            hs_group_store(out, pair, (int)(column / HS_LANES), pair_words(rows, format, pair, column));
}

void HS_ISA_NAME(hs_attention_load_plain)(const HsHeadRows *rows, HsPanelFormat format, float *out)
{
    const int64_t words = hs_panel_depth(format, rows->width);
    for (int64_t row = 0; row < rows->count; row++) {
        hs_attention_ask(rows, row + ROWS_AHEAD, false);
        for (int64_t word = 0; word < words; word += HS_LANES)
            hs_simd_store_part(HS_F32, out, row * words + word, row_words(rows, format, row, word), words - word);
    }
}

/* Tiles of rows one behind the other, each [column][word of rows]. */
static void load_turned(const HsHeadRows *rows, float *out)
{
    enum { WORDS = HS_ATTENTION_TILE / 2 };
    const int64_t pairs = hs_cpu_block_count(rows->count, 2);
    for (int64_t pair = 0; pair < pairs; pair += HS_LANES) {
        float *const tile = out + pair / WORDS * WORDS * rows->width + pair % WORDS;
        for (int64_t row = 2 * pair; row < 2 * (pair + HS_LANES); row++)
            hs_attention_ask(rows, row + ROWS_AHEAD, false);
        for (int64_t column = 0; column < rows->width; column += HS_LANES) {
            HsF32x16 block[HS_LANES];
            for (int lane = 0; lane < HS_LANES; lane++)
                set_row(block + lane, pair + lane < pairs ? pair_words(rows, HS_PANEL_BF16_PAIRS, pair + lane, column)
                                                          : (HsF32x16){ 0 });
            transpose(block);
            for (int lane = 0; lane < HS_LANES && column + lane < rows->width; lane++)
                hs_simd_store_f32(tile + (column + lane) * WORDS, block[lane]);
        }
    }
}

void HS_ISA_NAME(hs_attention_load_across)(const HsHeadRows *rows, HsPanelFormat format, float *out)
{
    const int64_t width = rows->width, step = hs_panel_step(format);
    if (hs_across_turned(format)) {
        load_turned(rows, out);
        return;
    }
    for (int64_t pair = 0; pair < hs_panel_depth(format, rows->count); pair++) {
        for (int64_t row = pair * step; row < (pair + 1) * step; row++)
            hs_attention_ask(rows, row + ROWS_AHEAD, false);
        for (int64_t column = 0; column < width; column += HS_LANES)
            hs_simd_store_part(HS_F32, out, pair * width + column, pair_words(rows, format, pair, column),
                               width - column);
    }
}

void HS_ISA_NAME(hs_attention_store_columns)(HsPanels in, const HsF32x16 factors[HS_ATTENTION_GROUPS],
                                             const HsHeadRows *rows)
{
    for (int group = 0; group * HS_LANES < rows->count; group++) {
        for (int64_t column = 0; column < rows->width; column += HS_LANES) {
            HsF32x16 block[HS_LANES];
            for (int lane = 0; lane < HS_LANES; lane++)
                set_row(block + lane, column + lane < rows->width
                                          ? hs_group_load(in, column + lane, group) * factors[group]
                                          : (HsF32x16){ 0 });
            transpose(block);
            for (int lane = 0; lane < HS_LANES && group * HS_LANES + lane < rows->count; lane++)
                hs_simd_store_part(rows->dtype, hs_head_row(rows, group * HS_LANES + lane), column, block[lane],
                                   rows->width - column);
        }
    }
}

void HS_ISA_NAME(hs_attention_store_rows)(HsPanels in, float factor, const HsHeadRows *rows)
{
    for (int64_t row = 0; row < rows->count; row++) {
        void *to = hs_head_row(rows, row);
        for (int64_t column = 0; column < rows->width; column += HS_LANES)
            hs_simd_store_part(rows->dtype, to, column, hs_group_load(in, row, (int)(column / HS_LANES)) * factor,
                               rows->width - column);
    }
}

/* The draws that hold the element (query, key) of each query of a group, which are not successive. */
static void draw_words(const HsDropoutTile *tile, int group, int64_t key, uint32_t words[4][HS_LANES])
{
    for (int first = 0; first < HS_LANES; first += HS_DRAW_LANES) {
        HsDrawLanes draws, drawn[4];
        for (int lane = 0; lane < HS_DRAW_LANES; lane++) {
            const int64_t query = group * HS_LANES + first + lane;
            draws[lane] = (uint64_t)(tile->first + query * tile->query_stride + key) / 4;
        }
        hs_simd_philox(tile->rng, draws, drawn);
        for (int word = 0; word < 4; word++)
            for (int lane = 0; lane < HS_DRAW_LANES; lane++)
                words[word][first + lane] = (uint32_t)drawn[word][lane];
    }
}

void HS_ISA_NAME(hs_attention_dropout)(const HsDropoutTile *tile, HsPanels factors)
{
    const float kept = 1.0f / (1.0f - tile->probability);
    /* One draw serves four successive keys of a query where rows of the mask start at multiples of four. */
    const bool aligned = tile->first % 4 == 0 && tile->query_stride % 4 == 0;
    const int64_t step = aligned ? 4 : 1;
    for (int64_t key = 0; key < tile->keys; key += step) {
        for (int group = hs_first_group(tile->diagonal, key); group * HS_LANES < tile->queries; group++) {
            uint32_t words[4][HS_LANES];
            draw_words(tile, group, key, words);
            for (int64_t next = key; next < key + step && next < tile->keys; next++) {
                HsU32x16 word;
                memcpy(&word, words[aligned ? next - key : 0], sizeof word);
                for (int lane = 0; lane < HS_LANES && !aligned; lane++) {
                    const int64_t query = group * HS_LANES + lane;
                    word[lane] = words[(tile->first + query * tile->query_stride + next) % 4][lane];
                }
                const HsF32x16 uniform = hs_simd_from_i32((HsI32x16)(word >> 8)) * 0x1p-24f;
                const HsI32x16 dropped = hs_simd_less(uniform, hs_simd_splat(tile->probability));
                const HsF32x16 factor = hs_simd_select(dropped, (HsF32x16){ 0 }, hs_simd_splat(kept));
                hs_group_store(factors, next, group, factor);
            }
        }
    }
}
