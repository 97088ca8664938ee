/* SPDX-License-Identifier: MIT
 *
 * Packing of the matrix product's operands into panels (matmul.h), which also turns every layout into one: the
 * micro-kernels never see a transposed operand or a dtype.  Conversions to f32 are exact.
 *
 * A stored row runs either across lanes (then words of successive lanes are made together, by vectors, and dealt out
 * to the panels) or along k (then each lane's words are scattered, a few cache lines at a time).
 */
#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

#include <string.h>

/* Lanes handled together at most, words of depth whose cache lines of a panel are open at a time, and how many stored
 * rows ahead to ask for: successive rows lie pages apart, where the processor does not look by itself. */
enum { LANE_BATCH = 96, DEPTH_BATCH = 16, ROWS_AHEAD = 12 };

static const unsigned char *element(const HsOperand *operand, int64_t row, int64_t column)
{
    size_t bytes = operand->dtype == HS_F32 ? 4 : 2;
    return (const unsigned char *)operand->data + (size_t)(row * operand->stride + column) * bytes;
}

/* words[i] = the f32 bits of element i of `source`. */
static void widen(HsDtype dtype, const void *source, int64_t count, uint32_t *words)
{
    if (dtype == HS_F32) {
        memcpy(words, source, (size_t)count * sizeof *words);
    } else if (dtype == HS_BF16) {
        const uint16_t *halves = source;
        for (int64_t i = 0; i < count; i++)
            words[i] = (uint32_t)halves[i] << 16;
    } else {
        hs_simd_row_to_f32(HS_F16, source, count, (float *)words);
    }
}

static void ask_for(const HsOperand *operand, int64_t row, int64_t lane, int64_t lanes)
{
    if (row >= operand->k)
        return;
    const unsigned char *begin = element(operand, row, lane), *end = element(operand, row, lane + lanes);
    for (; begin < end; begin += 64)
        __builtin_prefetch(begin);
}

/* Word p of `count` successive lanes. */
static void lane_words(const HsOperand *operand, int64_t lane, int64_t count, int64_t p, uint32_t *words)
{
    if (operand->format == HS_PANEL_F32) {
        widen(operand->dtype, element(operand, p, lane), count, words);
        return;
    }
    const uint16_t *lower = (const uint16_t *)element(operand, 2 * p, lane);
    if (2 * p + 1 == operand->k) {
        for (int64_t i = 0; i < count; i++)
            words[i] = lower[i];
        return;
    }
    const uint16_t *upper = lower + operand->stride;
    for (int64_t i = 0; i < count; i++)
        words[i] = (uint32_t)lower[i] | (uint32_t)upper[i] << 16;
}

/* `count` successive words of one lane, from word p. */
static void depth_words(const HsOperand *operand, int64_t lane, int64_t p, int64_t count, uint32_t *words)
{
    if (operand->format == HS_PANEL_F32) {
        widen(operand->dtype, element(operand, lane, p), count, words);
        return;
    }
    bool odd_end = 2 * (p + count) > operand->k;
    memcpy(words, element(operand, lane, 2 * p), (size_t)count * sizeof *words - (odd_end ? sizeof(uint16_t) : 0));
    if (odd_end) {
        uint16_t last;
        memcpy(&last, element(operand, lane, operand->k - 1), sizeof last);
        words[count - 1] = last;
    }
}

static void pack_across(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                        int64_t width, int64_t panel_stride, uint32_t *out)
{
    uint32_t words[LANE_BATCH + HS_TILE_ROWS];
    const int64_t step = hs_panel_step(operand->format);
    for (int64_t p = begin; p < end; p++, out += width) {
        for (int64_t row = p * step; row < (p + 1) * step; row++)
            ask_for(operand, row + ROWS_AHEAD, lane, lanes);
        if (lanes == width) { /* a whole panel of B: no detour */
            lane_words(operand, lane, lanes, p, out);
            continue;
        }
        lane_words(operand, lane, lanes, p, words);
        int64_t padded = hs_cpu_block_count(lanes, width) * width;
        for (int64_t i = lanes; i < padded; i++)
            words[i] = 0;
        if (width == HS_TILE_ROWS) /* a constant size: two moves instead of a call */
            for (int64_t i = 0; i < padded; i += HS_TILE_ROWS)
                memcpy(out + i / HS_TILE_ROWS * panel_stride, words + i, HS_TILE_ROWS * sizeof *words);
        else
            memcpy(out, words, (size_t)padded * sizeof *words);
    }
}

/* Four words of four lanes: word d of lane l, words[l * DEPTH_BATCH + d], becomes across[d][l]. */
typedef uint32_t Quad __attribute__((vector_size(16)));

static inline void transpose_quad(const uint32_t *words, Quad across[4])
{
    Quad lane[4];
    for (int l = 0; l < 4; l++)
        memcpy(&lane[l], words + l * DEPTH_BATCH, sizeof lane[l]);
    const Quad low01 = __builtin_shuffle(lane[0], lane[1], (Quad){ 0, 4, 1, 5 });
    const Quad high01 = __builtin_shuffle(lane[0], lane[1], (Quad){ 2, 6, 3, 7 });
    const Quad low23 = __builtin_shuffle(lane[2], lane[3], (Quad){ 0, 4, 1, 5 });
    const Quad high23 = __builtin_shuffle(lane[2], lane[3], (Quad){ 2, 6, 3, 7 });
    across[0] = __builtin_shuffle(low01, low23, (Quad){ 0, 1, 4, 5 });
    across[1] = __builtin_shuffle(low01, low23, (Quad){ 2, 3, 6, 7 });
    across[2] = __builtin_shuffle(high01, high23, (Quad){ 0, 1, 4, 5 });
    across[3] = __builtin_shuffle(high01, high23, (Quad){ 2, 3, 6, 7 });
}

/* Write `count` words of four lanes (or, at the end of a panel of six, two) to a column of a panel. */
static void store_quads(const uint32_t *words, int64_t count, int64_t width, bool whole, uint32_t *column)
{
    for (int64_t d = 0; d < count; d += 4) {
        Quad across[4];
        transpose_quad(words + d, across);
        for (int64_t e = d; e < d + 4 && e < count; e++) {
            if (whole)
                memcpy(column + e * width, &across[e - d], sizeof across[0]);
            else
                memcpy(column + e * width, &across[e - d], sizeof across[0] / 2);
        }
    }
}

static void pack_along(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end, int64_t width,
                       int64_t panel_stride, uint32_t *out)
{
    uint32_t words[4 * DEPTH_BATCH] = { 0 };
    const int64_t padded = hs_cpu_block_count(lanes, width) * width;
    for (int64_t p = begin; p < end; p += DEPTH_BATCH) {
        const int64_t count = end - p < DEPTH_BATCH ? end - p : DEPTH_BATCH;
        for (int64_t first = 0, used; first < padded; first += used) {
            const int64_t within = first % width;
            used = width - within < 4 ? 2 : 4; /* panel widths are even */
            for (int64_t l = 0; l < used; l++) {
                if (first + l < lanes)
                    depth_words(operand, lane + first + l, p, count, words + l * DEPTH_BATCH);
                else
                    memset(words + l * DEPTH_BATCH, 0, DEPTH_BATCH * sizeof *words);
            }
            store_quads(words, count, width, used == 4,
                        out + first / width * panel_stride + (p - begin) * width + within);
        }
    }
}

void HS_ISA_NAME(hs_panel_pack)(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                                int64_t width, int64_t panel_stride, uint32_t *out)
{
    (operand->lanes_contiguous ? pack_across : pack_along)(operand, lane, lanes, begin, end, width, panel_stride, out);
}

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
    args->packed->dtype = args->w.dtype;
    args->packed->k = k;
    args->packed->n = n;
    uint32_t *out = args->packed->data;

#pragma omp parallel for num_threads(hs_cpu_threads(context, panels)) schedule(static)
    for (int64_t panel = 0; panel < panels; panel++) {
        const int64_t column = panel * HS_TILE_COLUMNS;
        const int64_t lanes = n - column < HS_TILE_COLUMNS ? n - column : HS_TILE_COLUMNS;
        HS_ISA_NAME(hs_panel_pack)
        (&operand, column, lanes, 0, depth, HS_TILE_COLUMNS, depth * HS_TILE_COLUMNS,
         out + panel * depth * HS_TILE_COLUMNS);
    }
    return HS_OK;
}
