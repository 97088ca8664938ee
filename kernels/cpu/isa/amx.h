/* SPDX-License-Identifier: MIT
 *
 * AMX's eight tiles as products use them: 32 rows by 32 columns of f32 sums, and what one step of depth multiplies.
 *
 *     tiles 0, 1: sums of the upper 16 rows; 2, 3: of the lower ones; 4, 5: A, upper and lower; 6, 7: B
 *     tdpbf16ps: sum[m][n] += (sum over the words of the even products) + (of the odd ones), in f32, each addition
 *     rounded to nearest even, subnormal numbers read and written as zero (Intel SDM, TDPBF16PS)
 *
 * A word is a pair of bf16 with successive k.  B's rows and the sums' are HS_TILE_COLUMNS words apart, as in panels.
 */
#ifndef HS_KERNELS_CPU_ISA_AMX_H
#define HS_KERNELS_CPU_ISA_AMX_H

#ifdef HS_ISA_amx
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/matmul.h"

enum { HS_AMX_SIDE = 16, HS_AMX_WORD_BYTES = 4, HS_AMX_STRIDE = HS_TILE_COLUMNS * HS_AMX_WORD_BYTES };

/* What ldtilecfg reads. */
typedef struct HsAmxConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} HsAmxConfig;

/* Sums of `upper` and `lower` rows, 16 at most of each, and `words` of depth a step.  The configuration is the
 * thread's, and others may have left theirs; setting it makes all tiles zero. */
static inline void hs_amx_configure(int upper, int lower, int words)
{
    HsAmxConfig config = { .palette = 1 };
    const int rows[8] = { upper, upper, lower, lower, upper, lower, words, words };
    for (int i = 0; i < 8; i++) {
        const bool of_a = i == 4 || i == 5;
        config.rows[i] = (uint8_t)rows[i];
        config.row_bytes[i] = (uint16_t)(rows[i] > 0 ? (of_a ? words : HS_AMX_SIDE) * HS_AMX_WORD_BYTES : 0);
    }
    __asm__ volatile("" : : "m"(config)); /* GCC 12 takes ldtilecfg to read no more than a pointer's bytes */
    _tile_loadconfig(&config);
}

/* `lower`, `second`: whether there are lower rows, and columns behind the first 16; constants wherever this is inlined. */
static inline __attribute__((always_inline)) void hs_amx_begin(bool lower, bool second, bool resume, const float *out)
{
    const float *const out_lower = out + HS_AMX_SIDE * HS_TILE_COLUMNS;
    __asm__ volatile(""
                     :
                     :
                     : "memory"); /* GCC 12 takes loads of tiles to read no memory: what was stored comes first */
    if (resume) {
        _tile_loadd(0, out, HS_AMX_STRIDE);
        if (second)
            _tile_loadd(1, out + HS_AMX_SIDE, HS_AMX_STRIDE);
        if (lower)
            _tile_loadd(2, out_lower, HS_AMX_STRIDE);
        if (lower && second)
            _tile_loadd(3, out_lower + HS_AMX_SIDE, HS_AMX_STRIDE);
        return;
    }
    _tile_zero(0);
    if (second)
        _tile_zero(1);
    if (lower)
        _tile_zero(2);
    if (lower && second)
        _tile_zero(3);
}

/* One step of depth; A's rows lie a_bytes apart.  An operand's tile is made zero after its last use: where the core's
 * other thread is at work, a tile that is loaded over one in use waits for it, and a step takes 260 cycles in place of
 * 175 (64 where that thread is idle, in either order; Sapphire Rapids, from the first-level cache). */
static inline __attribute__((always_inline)) void hs_amx_step(bool lower, bool second, const uint32_t *a,
                                                              int64_t a_bytes, const uint32_t *b)
{
    _tile_loadd(6, b, HS_AMX_STRIDE);
    _tile_loadd(4, a, (size_t)a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if (lower) {
        _tile_loadd(5, (const unsigned char *)a + HS_AMX_SIDE * a_bytes, (size_t)a_bytes);
        _tile_dpbf16ps(2, 5, 6);
    }
    _tile_zero(6);
    if (second) {
        _tile_loadd(7, b + HS_AMX_SIDE, HS_AMX_STRIDE);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_zero(4);
    if (lower && second)
        _tile_dpbf16ps(3, 5, 7);
    if (lower)
        _tile_zero(5);
    if (second)
        _tile_zero(7);
}

static inline __attribute__((always_inline)) void hs_amx_end(bool lower, bool second, float *out)
{
    float *const out_lower = out + HS_AMX_SIDE * HS_TILE_COLUMNS;
    _tile_stored(0, out, HS_AMX_STRIDE);
    if (second)
        _tile_stored(1, out + HS_AMX_SIDE, HS_AMX_STRIDE);
    if (lower)
        _tile_stored(2, out_lower, HS_AMX_STRIDE);
    if (lower && second)
        _tile_stored(3, out_lower + HS_AMX_SIDE, HS_AMX_STRIDE);
}
#endif
#endif
