/* SPDX-License-Identifier: MIT
 *
 * Codes of less than 16 bits (kernels/ops/codes.h), made and read.
 *
 * A tensor is cut in square tiles of TILE, a multiple of every block of scales, so that a tile has all that its codes
 * depend on, but for the tensor's own scale, where the largest magnitude takes a separate pass.  A tile is loaded once,
 * as f32, and cast along its rows and along its columns: the latter in lanes of columns, into a tile of bytes that is
 * then transposed.  Counts and maxima are integers, so that their order does not matter.
 *
 * Loops over elements are plain C that compilers turn into vectors: kernels/ops/code_rule.h has no branches.
 */
#include <omp.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa/codes.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_random.h"
#include "kernels/ops/code_rule.h"

enum { TILE = 128, SEGMENT = 64, CHUNK = 16384 };
#define INLINE static inline __attribute__((always_inline))

/* What a thread works in. */
typedef struct Tile {
    float x[TILE][TILE];
    float turned[TILE][TILE]; /* columns as across has them, where runs are rotated; else unused */
    uint32_t random[TILE][TILE];
    uint8_t codes[TILE][TILE];
    uint32_t amax[TILE]; /* bits: of a column or row of a block */
    float factor[TILE];  /* hs_code_scaled's, by column or row */
    int64_t row, column; /* of x[0][0] in the tensor */
    int64_t rows, columns;
    uint64_t saturated, zeroed;
} Tile;

INLINE int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Elements index .. index + count - 1 of a tensor. */
static void load_row(const HsTensor *x, int64_t index, int64_t count, float *out)
{
    const unsigned char *const first = (const unsigned char *)x->data + (size_t)index * hs_dtype_bytes(x->dtype);
    if (x->dtype == HS_BF16)
        hs_simd_row_to_f32(HS_BF16, first, count, out);
    else if (x->dtype == HS_F32)
        hs_simd_row_to_f32(HS_F32, first, count, out);
    else
        hs_simd_row_to_f32(HS_F16, first, count, out);
}

INLINE uint32_t magnitude_of(float x)
{
    return hs_code_bits(x) & 0x7FFFFFFFu;
}

/* --- largest magnitudes --- */

static uint32_t amax_of_chunk(const HsTensor *x, HsRowBlock range)
{
    float buffer[SEGMENT];
    uint32_t most = 0;
    for (int64_t i = range.begin; i < range.end; i += SEGMENT) {
        const int64_t count = least(SEGMENT, range.end - i);
        load_row(x, i, count, buffer);
        for (int64_t j = 0; j < count; j++)
            most = magnitude_of(buffer[j]) > most ? magnitude_of(buffer[j]) : most;
    }
    return most;
}

static uint32_t amax_of(const HsContext *context, const HsTensor *x)
{
    const int64_t count = hs_tensor_count(x), chunks = hs_cpu_block_count(count, CHUNK);
    uint32_t most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) num_threads(hs_cpu_threads(context, chunks))
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        const uint32_t found = amax_of_chunk(x, hs_cpu_block(count, CHUNK, chunk));
        most = found > most ? found : most;
    }
    return most;
}

void HS_ISA_NAME(hs_cpu_find_amax)(const HsContext *context, const HsTensor *tensor)
{
    if (tensor->amax == NULL)
        return;
    const uint32_t found = amax_of(context, tensor);
    if (found > hs_code_bits(*tensor->amax))
        *tensor->amax = hs_code_float(found);
}

/* --- tiles --- */

static int64_t tile_count(const HsTensor *x)
{
    return hs_cpu_block_count(x->shape[0], TILE) * hs_cpu_block_count(x->shape[1], TILE);
}

/* Tile `index` of the tensor's, row by row of them. */
static void place_tile(const HsTensor *x, int64_t index, Tile *tile)
{
    const int64_t right = hs_cpu_block_count(x->shape[1], TILE);
    const HsRowBlock r = hs_cpu_block(x->shape[0], TILE, index / right);
    const HsRowBlock c = hs_cpu_block(x->shape[1], TILE, index % right);
    tile->row = r.begin;
    tile->rows = r.end - r.begin;
    tile->column = c.begin;
    tile->columns = c.end - c.begin;
}

static void load_tile(const HsTensor *x, Tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++)
        load_row(x, (tile->row + r) * x->shape[1] + tile->column, tile->columns, tile->x[r]);
}

/* hs_code_rotate of each column's run, with elements in rows here: in lanes of columns. */
static void rotate_run(float (*const x)[TILE], int64_t columns)
{
    for (int i = 0; i < HS_CODES_RUN; i++)
        for (int64_t c = 0; c < columns && (HS_CODE_SIGNS >> i & 1) != 0; c++)
            x[i][c] = -x[i][c];
    for (int half = 1; half < HS_CODES_RUN; half *= 2)
        for (int i = 0; i < HS_CODES_RUN; i++) {
            float *const first = x[i], *const second = x[i | half];
            for (int64_t c = 0; c < columns && (i & half) == 0; c++) {
                const float a = first[c], b = second[c];
                first[c] = a + b;
                second[c] = a - b;
            }
        }
    for (int i = 0; i < HS_CODES_RUN; i++)
        for (int64_t c = 0; c < columns; c++)
            x[i][c] *= 0.25f;
}

/* What is left of the tensor's rows behind whole runs stays as it is. */
static void rotate_tile(Tile *tile)
{
    for (int64_t r = 0; r < tile->rows; r++)
        memcpy(tile->turned[r], tile->x[r], (size_t)tile->columns * sizeof tile->x[r][0]);
    for (int64_t run = 0; run + HS_CODES_RUN <= tile->rows; run += HS_CODES_RUN)
        rotate_run(tile->turned + run, tile->columns);
}

static void draw_tile(const HsQuantizeArgs *args, Tile *tile)
{
    uint32_t words[64 + 4 * HS_DRAW_LANES] = { 0 };
    for (int64_t r = 0; r < tile->rows; r++) {
        const int64_t first = (args->rng.row_offset + tile->row + r) * args->x.shape[1] + tile->column;
        for (int64_t c = 0; c < tile->columns; c += 64) {
            const uint32_t *word = hs_simd_draw_elements(&args->rng, (uint64_t)(first + c), words);
            memcpy(&tile->random[r][c], word, 64 * sizeof *word);
        }
    }
}

/* Codes of a row of the tile; factors: one for each column, or one for all. */
INLINE void cast_row(HsDtype format, HsScaleGranularity granularity, bool stochastic, const float *x,
                     const float *factors, bool one_factor, const uint32_t *random, int64_t count, uint8_t *codes)
{
    const float only = factors[0];
    for (int64_t c = 0; c < count; c++) {
        const float scaled = hs_code_scaled(granularity, x[c], one_factor ? only : factors[c]);
        codes[c] = stochastic ? hs_code_encode_stochastic(format, scaled, random[c]) : hs_code_encode(format, scaled);
    }
}

INLINE void count_row(HsDtype format, HsScaleGranularity granularity, const float *x, const float *factors,
                      bool one_factor, const uint8_t *codes, int64_t count, Tile *tile)
{
    const float largest = hs_code_largest(format), only = factors[0];
    const uint8_t magnitude = format == HS_E2M1 ? 7 : 0x7F;
    uint32_t saturated = 0, zeroed = 0;
    for (int64_t c = 0; c < count; c++) {
        const float scaled = hs_code_scaled(granularity, x[c], one_factor ? only : factors[c]);
        saturated += fabsf(scaled) > largest;
        zeroed += (x[c] != 0.0f) & ((codes[c] & magnitude) == 0);
    }
    tile->saturated += saturated;
    tile->zeroed += zeroed;
}

INLINE void cast_and_count(HsDtype format, HsScaleGranularity granularity, bool stochastic, bool records,
                           const float *x, const float *factors, bool one_factor, const uint32_t *random, int64_t count,
                           uint8_t *codes, Tile *tile)
{
    cast_row(format, granularity, stochastic, x, factors, one_factor, random, count, codes);
    if (records)
        count_row(format, granularity, x, factors, one_factor, codes, count, tile);
}

/* The combinations that there are, each with its constants. */
static void cast_line(const HsQuantizeArgs *args, const HsCodes *codes, bool records, const float *x,
                      const float *factors, bool one_factor, const uint32_t *random, int64_t count, uint8_t *out,
                      Tile *tile)
{
#define CAST(format, granularity)                                                                                 \
    do {                                                                                                          \
        if (args->stochastic)                                                                                     \
            cast_and_count(format, granularity, true, records, x, factors, one_factor, random, count, out, tile); \
        else if (records)                                                                                         \
            cast_and_count(format, granularity, false, true, x, factors, one_factor, NULL, count, out, tile);     \
        else                                                                                                      \
            cast_and_count(format, granularity, false, false, x, factors, one_factor, NULL, count, out, tile);    \
    } while (0)
    if (codes->format == HS_E4M3)
        CAST(HS_E4M3, HS_SCALE_TENSOR);
    else if (codes->format == HS_E5M2)
        CAST(HS_E5M2, HS_SCALE_TENSOR);
    else
        CAST(HS_E2M1, HS_SCALE_NV);
#undef CAST
}

/* A block's scale from its largest magnitude's bits, and the factor of its elements. */
INLINE uint8_t block_scale(const HsCodes *codes, uint32_t amax, float *factor)
{
    if (codes->granularity == HS_SCALE_NV) {
        const uint8_t scale = hs_code_nv_block(amax, codes->scaling->inverse);
        *factor = hs_code_nv_worth(scale, codes->scaling->inverse);
        return scale;
    }
    const uint32_t scale = hs_code_block_exponent(codes->format, amax);
    *factor = hs_code_inverse_power(scale);
    return (uint8_t)scale;
}

static void store_line(const HsCodes *codes, int64_t row, int64_t k, const uint8_t *line, int64_t count)
{
    unsigned char *const out = codes->data + row * hs_codes_row_bytes(codes);
    if (codes->format != HS_E2M1) {
        memcpy(out + k, line, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i += 2) /* tiles begin at even places */
        out[(k + i) / 2] = (unsigned char)(line[i] | (i + 1 < count ? line[i + 1] << 4 : 0));
}

/* tile->codes, which is as x lies, into the rows of across: 16 x 16 at a time, so that neither side leaves the cache. */
static void store_transposed(const HsCodes *codes, const Tile *tile)
{
    enum { SIDE = 16 };
    uint8_t lines[SIDE][TILE];
    for (int64_t c = 0; c < tile->columns; c += SIDE) {
        const int64_t lanes = least(SIDE, tile->columns - c);
        for (int64_t r = 0; r < tile->rows; r++)
            for (int64_t i = 0; i < SIDE; i++)
                lines[i][r] = tile->codes[r][c + i];
        for (int64_t i = 0; i < lanes; i++)
            store_line(codes, tile->column + c + i, tile->row, lines[i], tile->rows);
    }
}

/* --- scales --- */

/* One factor for all: codes along, and the same across. */
static void cast_tensor(const HsQuantizeArgs *args, Tile *tile)
{
    const HsCodes *const one = hs_codes_present(&args->along) ? &args->along : &args->across;
    for (int64_t r = 0; r < tile->rows; r++) {
        cast_line(args, one, args->records, tile->x[r], &one->scaling->scale, true, tile->random[r], tile->columns,
                  tile->codes[r], tile);
        if (hs_codes_present(&args->along))
            store_line(&args->along, tile->row + r, tile->column, tile->codes[r], tile->columns);
    }
    if (hs_codes_present(&args->across))
        store_transposed(&args->across, tile);
}

INLINE uint32_t amax_of_row(const float *x, int64_t count)
{
    uint32_t most = 0;
    for (int64_t c = 0; c < count; c++)
        most = magnitude_of(x[c]) > most ? magnitude_of(x[c]) : most;
    return most;
}

/* x: the tile's, or what is turned. */
static uint32_t amax_of_tile(const Tile *tile, const float (*x)[TILE])
{
    uint32_t most = 0;
    for (int64_t r = 0; r < tile->rows; r++) {
        const uint32_t found = amax_of_row(x[r], tile->columns);
        most = found > most ? found : most;
    }
    return most;
}

/* Largest magnitudes' bits of a row's blocks: of `size`, a constant, but for the last of a tensor's columns. */
INLINE void amax_of_blocks(const float *x, int64_t size, int64_t columns, uint32_t *amax)
{
    const int64_t whole = columns / size;
    for (int64_t block = 0; block < whole; block++) {
        uint32_t most = 0;
        for (int64_t c = 0; c < size; c++)
            most = magnitude_of(x[block * size + c]) > most ? magnitude_of(x[block * size + c]) : most;
        amax[block] = most;
    }
    if (whole * size < columns)
        amax[whole] = amax_of_row(x + whole * size, columns - whole * size);
}

static void find_amaxes(const HsCodes *codes, const float *x, int64_t columns, uint32_t *amax)
{
    if (codes->granularity == HS_SCALE_NV)
        amax_of_blocks(x, HS_SCALE_NV_ELEMENTS, columns, amax);
    else if (codes->granularity == HS_SCALE_MX)
        amax_of_blocks(x, HS_SCALE_MX_ELEMENTS, columns, amax);
    else
        amax_of_blocks(x, HS_SCALE_BLOCK_ELEMENTS, columns, amax);
}

/* The scales of the tile's blocks in a row, and in tile->factor each column's. */
static void scale_blocks(const HsCodes *codes, const uint32_t *amax, Tile *tile, uint8_t *scales)
{
    const int64_t size = hs_scale_block(codes->granularity);
    for (int64_t left = 0; left < tile->columns; left += size) {
        float factor;
        scales[left / size] = block_scale(codes, amax[left / size], &factor);
        for (int64_t c = left; c < left + least(size, tile->columns - left); c++)
            tile->factor[c] = factor;
    }
}

enum { BLOCKS = TILE / HS_SCALE_NV_ELEMENTS };

/* Squares: scales of both directions are the same, and so are codes. */
static void cast_squares(const HsQuantizeArgs *args, Tile *tile)
{
    const HsCodes *const along = &args->along, *const across = &args->across;
    const HsCodes *const one = hs_codes_present(along) ? along : across;
    const int64_t size = hs_scale_block(one->granularity), right = tile->column / size;
    const int64_t blocks = (tile->columns + size - 1) / size;
    for (int64_t top = 0; top < tile->rows; top += size) {
        const int64_t end = least(top + size, tile->rows);
        uint32_t most[BLOCKS] = { 0 }, found[BLOCKS];
        uint8_t scales[BLOCKS];
        for (int64_t r = top; r < end; r++) {
            find_amaxes(one, tile->x[r], tile->columns, found);
            for (int64_t i = 0; i < blocks; i++)
                most[i] = found[i] > most[i] ? found[i] : most[i];
        }
        scale_blocks(one, most, tile, scales);
        for (int64_t r = top; r < end; r++) {
            cast_line(args, one, args->records, tile->x[r], tile->factor, false, tile->random[r], tile->columns,
                      tile->codes[r], tile);
            if (hs_codes_present(along))
                memcpy(along->block_scales + (tile->row + r) * hs_codes_blocks(along) + right, scales, (size_t)blocks);
        }
        for (int64_t c = 0; c < tile->columns && hs_codes_present(across); c++)
            across->block_scales[(tile->column + c) * hs_codes_blocks(across) + (tile->row + top) / size] =
                scales[c / size];
    }
    for (int64_t r = 0; r < tile->rows && hs_codes_present(along); r++)
        store_line(along, tile->row + r, tile->column, tile->codes[r], tile->columns);
    if (hs_codes_present(across))
        store_transposed(across, tile);
}

static void cast_along(const HsQuantizeArgs *args, Tile *tile)
{
    const HsCodes *const along = &args->along;
    const int64_t blocks = hs_codes_blocks(along), right = tile->column / hs_scale_block(along->granularity);
    for (int64_t r = 0; r < tile->rows; r++) {
        uint32_t amax[BLOCKS];
        find_amaxes(along, tile->x[r], tile->columns, amax);
        scale_blocks(along, amax, tile, along->block_scales + (tile->row + r) * blocks + right);
        cast_line(args, along, args->records, tile->x[r], tile->factor, false, tile->random[r], tile->columns,
                  tile->codes[r], tile);
        store_line(along, tile->row + r, tile->column, tile->codes[r], tile->columns);
    }
}

/* In lanes of columns. */
static void cast_across(const HsQuantizeArgs *args, bool records, Tile *tile)
{
    const HsCodes *const across = &args->across;
    const int64_t size = hs_scale_block(across->granularity), blocks = hs_codes_blocks(across);
    float(*const x)[TILE] = args->rotates ? tile->turned : tile->x;
    for (int64_t top = 0; top < tile->rows; top += size) {
        const int64_t end = least(top + size, tile->rows);
        memset(tile->amax, 0, sizeof tile->amax);
        for (int64_t r = top; r < end; r++)
            for (int64_t c = 0; c < tile->columns; c++)
                tile->amax[c] = magnitude_of(x[r][c]) > tile->amax[c] ? magnitude_of(x[r][c]) : tile->amax[c];
        for (int64_t c = 0; c < tile->columns; c++)
            across->block_scales[(tile->column + c) * blocks + (tile->row + top) / size] =
                block_scale(across, tile->amax[c], &tile->factor[c]);
        for (int64_t r = top; r < end; r++)
            cast_line(args, across, records, x[r], tile->factor, false, tile->random[r], tile->columns, tile->codes[r],
                      tile);
    }
    store_transposed(across, tile);
}

static void cast_tile(const HsQuantizeArgs *args, Tile *tile)
{
    const bool along = hs_codes_present(&args->along), across = hs_codes_present(&args->across);
    const HsCodes *const one = along ? &args->along : &args->across;
    load_tile(&args->x, tile);
    if (args->stochastic)
        draw_tile(args, tile);
    if (one->granularity == HS_SCALE_TENSOR) {
        cast_tensor(args, tile);
        return;
    }
    if (args->squares) {
        cast_squares(args, tile);
        return;
    }
    if (along)
        cast_along(args, tile);
    if (across && args->rotates)
        rotate_tile(tile);
    if (across)
        cast_across(args, args->records && !along, tile);
}

/* --- the operation --- */

/* The largest magnitude of what is rotated, by tiles. */
static uint32_t amax_rotated(const HsContext *context, const HsQuantizeArgs *args, Tile *tiles)
{
    const int64_t tiles_there = tile_count(&args->x);
    uint32_t most = 0;
#pragma omp parallel for schedule(static) reduction(max : most) num_threads(hs_cpu_threads(context, tiles_there))
    for (int64_t index = 0; index < tiles_there; index++) {
        Tile *const tile = &tiles[omp_get_thread_num()];
        place_tile(&args->x, index, tile);
        load_tile(&args->x, tile);
        rotate_tile(tile);
        const uint32_t found = amax_of_tile(tile, (const float(*)[TILE])tile->turned);
        most = found > most ? found : most;
    }
    return most;
}

/* hs_ref_quantize's choose_scale. */
static void choose_scale(const HsQuantizeArgs *args, const HsCodes *codes, uint32_t amax)
{
    HsScaling *const scaling = codes->scaling;
    if (args->source == HS_SCALE_LATEST)
        return;
    scaling->scale = scaling->inverse = 1.0f;
    if (args->source == HS_SCALE_KEPT) {
        scaling->scale = scaling->kept;
        scaling->inverse = 1.0f / scaling->kept;
        return;
    }
    if (codes->granularity == HS_SCALE_TENSOR) {
        scaling->scale = hs_code_tensor_scale(codes->format, amax, args->power_of_two);
        scaling->inverse = 1.0f / scaling->scale;
    } else if (codes->granularity == HS_SCALE_NV) {
        scaling->inverse = hs_code_nv_inverse(amax);
        scaling->scale = 1.0f / scaling->inverse;
    }
    if (amax >= 0x7F800000u && hs_scale_is_of_tensor(codes->granularity))
        scaling->inverse = NAN;
}

size_t HS_ISA_NAME(hs_cpu_quantize_workspace)(const HsContext *context, const HsQuantizeArgs *args)
{
    (void)args;
    return (size_t)hs_cpu_thread_slots(context) * hs_cpu_align(sizeof(Tile));
}

HsStatus HS_ISA_NAME(hs_cpu_quantize)(HsContext *context, const HsQuantizeArgs *args)
{
    Tile *const tiles = context->workspace;
    const HsCodes *const one = hs_codes_present(&args->along) ? &args->along : &args->across;
    const int64_t tiles_there = tile_count(&args->x);
    uint64_t saturated = 0, zeroed = 0;
    /* A separate pass where the scale follows from it and it is not known yet; else the tiles find it on the way. */
    const bool own = args->source == HS_SCALE_OWN && hs_scale_is_of_tensor(one->granularity);
    const bool reads = own && args->x.amax == NULL, found_before = own && args->x.amax;
    uint32_t amax = reads ? amax_of(context, &args->x) : found_before ? magnitude_of(*args->x.amax) : 0;
    choose_scale(args, one, amax);
    if (args->rotates && hs_codes_present(&args->across))
        choose_scale(args, &args->across, amax_rotated(context, args, tiles));
#pragma omp parallel for schedule(static) reduction(+ : saturated, zeroed) reduction(max : amax) \
    num_threads(hs_cpu_threads(context, tiles_there))
    for (int64_t index = 0; index < tiles_there; index++) {
        Tile *const tile = &tiles[omp_get_thread_num()];
        place_tile(&args->x, index, tile);
        tile->saturated = tile->zeroed = 0;
        cast_tile(args, tile);
        if (args->records && !reads && !found_before) {
            const uint32_t found = amax_of_tile(tile, (const float(*)[TILE])tile->x);
            amax = found > amax ? found : amax;
        }
        saturated += tile->saturated;
        zeroed += tile->zeroed;
    }
    if (!args->records)
        return HS_OK;
    HsScaling *const scaling = one->scaling;
    scaling->amax = hs_code_float(amax > magnitude_of(scaling->amax) ? amax : magnitude_of(scaling->amax));
    scaling->elements += (uint64_t)hs_tensor_count(&args->x);
    scaling->saturated += saturated;
    scaling->zeroed += zeroed;
    return HS_OK;
}

static void roll(const HsRollScalesArgs *args, int64_t index)
{
    const bool remembers = hs_tensor_present(&args->history);
    const int64_t length = remembers ? args->history.shape[1] : 0;
    float *const ring = remembers ? (float *)args->history.data + index * length : NULL;
    HsScaling *const scaling = &args->scalings[index];
    float *const maximum = hs_tensor_present(&args->maxima) ? (float *)args->maxima.data + index : NULL;
    if (args->gathers) {
        *maximum = hs_code_maximum(scaling);
        return;
    }
    hs_code_roll_in(scaling, args->report ? &args->report[index] : NULL, maximum ? *maximum : scaling->amax, ring,
                    length);
    const int64_t filled = hs_code_filled(scaling, length);
    float amax = 0.0f;
    if (args->most_recent && filled > 0)
        amax = ring[(scaling->recorded - 1) % (uint64_t)length];
    for (int64_t i = 0; i < filled && !args->most_recent; i++)
        amax = ring[i] > amax ? ring[i] : amax;
    hs_code_keep(scaling, amax, exp2f(-args->margin));
}

HsStatus HS_ISA_NAME(hs_cpu_roll_scales)(HsContext *context, const HsRollScalesArgs *args)
{
    (void)context;
    for (int64_t i = 0; i < args->count; i++)
        roll(args, i);
    return HS_OK;
}

/* --- reading them --- */

INLINE uint16_t to_bf16(float value)
{
    const uint32_t bits = hs_code_bits(value);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

INLINE void decode_bytes(HsDtype format, const unsigned char *codes, float worth, int64_t count, uint16_t *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = to_bf16(hs_code_decode(format, codes[i]) * worth);
}

/* Codes of a row, a byte each; count: even, but for a row's last. */
INLINE void spread_nibbles(const unsigned char *codes, int64_t count, unsigned char *out)
{
    for (int64_t i = 0; i < count / 2; i++) {
        out[2 * i] = codes[i] & 15;
        out[2 * i + 1] = codes[i] >> 4;
    }
    if (count % 2 != 0)
        out[count - 1] = codes[count / 2] & 15;
}

/* Blocks of `size`, a constant. */
INLINE void decode_blocks(HsDtype format, HsScaleGranularity granularity, const unsigned char *codes,
                          const unsigned char *scales, int64_t size, int64_t count, uint16_t *out)
{
    const int64_t whole = count / size;
    for (int64_t block = 0; block < whole; block++)
        decode_bytes(format, codes + block * size, hs_code_block_worth(granularity, scales[block]), size,
                     out + block * size);
    if (whole * size < count)
        decode_bytes(format, codes + whole * size, hs_code_block_worth(granularity, scales[whole]),
                     count - whole * size, out + whole * size);
}

/* Bytes of a row, each with its own constants. */
INLINE void decode_eights(HsDtype format, const HsCodes *codes, const unsigned char *line, const unsigned char *scales,
                          uint16_t *out)
{
    if (codes->granularity == HS_SCALE_MX)
        decode_blocks(format, HS_SCALE_MX, line, scales, HS_SCALE_MX_ELEMENTS, codes->depth, out);
    else if (codes->granularity == HS_SCALE_BLOCK)
        decode_blocks(format, HS_SCALE_BLOCK, line, scales, HS_SCALE_BLOCK_ELEMENTS, codes->depth, out);
    else
        decode_bytes(format, line, 1.0f, codes->depth, out);
}

static void decode_fours(const HsCodes *codes, const unsigned char *line, const unsigned char *scales, uint16_t *out)
{
    for (int64_t k = 0; k < codes->depth; k += SEGMENT) {
        unsigned char spread[SEGMENT];
        const int64_t count = least(SEGMENT, codes->depth - k);
        spread_nibbles(line + k / 2, count, spread);
        decode_blocks(HS_E2M1, HS_SCALE_NV, spread, scales + k / HS_SCALE_NV_ELEMENTS, HS_SCALE_NV_ELEMENTS, count,
                      out + k);
    }
}

static void decode_row(const HsCodes *codes, int64_t row, uint16_t *out)
{
    const unsigned char *const line = codes->data + row * hs_codes_row_bytes(codes);
    const int64_t blocks = hs_codes_blocks(codes);
    const unsigned char *const scales = blocks > 0 ? codes->block_scales + row * blocks : NULL;
    if (codes->format == HS_E2M1)
        decode_fours(codes, line, scales, out);
    else if (codes->format == HS_E4M3)
        decode_eights(HS_E4M3, codes, line, scales, out);
    else
        decode_eights(HS_E5M2, codes, line, scales, out);
}

void HS_ISA_NAME(hs_codes_decode)(const HsContext *context, const HsCodes *codes, uint16_t *out)
{
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, codes->rows * codes->depth / CHUNK))
    for (int64_t row = 0; row < codes->rows; row++)
        decode_row(codes, row, out + row * codes->depth);
}

HsStatus HS_ISA_NAME(hs_cpu_cast)(HsContext *context, const HsTensor *result, const HsCodes *codes)
{
    const HsQuantizeArgs cast = hs_cast_apart(result, codes);
    return hs_codes_present(codes) ? HS_ISA_NAME(hs_cpu_quantize)(context, &cast) : HS_OK;
}

size_t HS_ISA_NAME(hs_cpu_cast_workspace)(const HsContext *context, const HsCodes *codes)
{
    return hs_codes_present(codes) ? HS_ISA_NAME(hs_cpu_quantize_workspace)(context, NULL) : 0;
}
