/* SPDX-License-Identifier: MIT
 *
 * What the two directions of packing share: how an operand's elements are reached and become words (matmul.h).
 */
#ifndef HS_KERNELS_CPU_ISA_PACK_H
#define HS_KERNELS_CPU_ISA_PACK_H

#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

#include <string.h>

static inline const unsigned char *hs_operand_element(const HsMatmulOperand *operand, int64_t row, int64_t column)
{
    const size_t bytes = operand->dtype == HS_F32 ? 4 : 2;
    return (const unsigned char *)operand->data + (size_t)(row * operand->stride + column) * bytes;
}

/* words[i] = the f32 bits of element i of `source`. */
static inline void hs_pack_widen(HsDtype dtype, const void *source, int64_t count, uint32_t *words)
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

/* `count` successive words of one lane, from word p. */
static inline void hs_pack_depth_words(const HsMatmulOperand *operand, int64_t lane, int64_t p, int64_t count,
                                       uint32_t *words)
{
    if (operand->format == HS_PANEL_F32) {
        hs_pack_widen(operand->dtype, hs_operand_element(operand, lane, p), count, words);
        return;
    }
    const uint16_t *source = (const uint16_t *)hs_operand_element(operand, lane, 2 * p);
    const int64_t halves = 2 * (p + count) > operand->k ? 2 * count - 1 : 2 * count;
#ifdef HS_ISA_avx512bf16
    for (int64_t i = 0; i < 2 * count; i += 32) { /* a row of a narrow matrix is short for a call of memcpy */
        const uint32_t read = halves - i < 32 ? (1u << (halves - i)) - 1 : ~0u;
        const __mmask16 written = (__mmask16)(2 * count - i < 32 ? (1u << (count - i / 2)) - 1 : 0xffffu);
        _mm512_mask_storeu_epi32(words + i / 2, written, _mm512_maskz_loadu_epi16(read, source + i));
    }
#else
    memcpy(words, source, (size_t)halves * sizeof *source);
    if (halves < 2 * count)
        words[count - 1] = source[halves - 1];
#endif
}

/* Sixteen words to a panel.  Past the caches a whole line is not read before it is written. */
static inline __attribute__((always_inline)) void hs_pack_store(uint32_t *out, HsF32x16 words, bool streamed)
{
#ifdef __AVX512F__
    if (streamed) {
        _mm512_stream_ps((float *)out, (__m512)words);
        return;
    }
#else
    (void)streamed;
#endif
    hs_simd_store_f32((float *)out, words);
}

/* One panel of B where stored rows run along k. */
void HS_ISA_NAME(hs_panel_pack_along)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                      int64_t end, uint32_t *out);
#define panel_pack_along HS_ISA_NAME(hs_panel_pack_along)

#if defined(HS_ISA_amx) || defined(HS_ISA_neonbf16)
/* Lanes of A, each a separate panel, `panel_stride` words apart, where stored rows run across lanes; pairs. */
void HS_ISA_NAME(hs_panel_pack_turned)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                       int64_t end, int64_t panel_stride, uint32_t *out);
#endif
#ifdef HS_ISA_neonbf16
/* One panel of B for BFMMLA, whatever its layout. */
void HS_ISA_NAME(hs_panel_pack_bfmmla)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin,
                                       int64_t end, uint32_t *out);
#endif

#endif
