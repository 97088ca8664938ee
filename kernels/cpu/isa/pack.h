/* SPDX-License-Identifier: MIT
 *
 * What the two directions of packing share: how an operand's elements are reached and become words (matmul.h).
 */
#ifndef HS_KERNELS_CPU_ISA_PACK_H
#define HS_KERNELS_CPU_ISA_PACK_H

#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

#include <string.h>

static inline const unsigned char *hs_operand_element(const HsOperand *operand, int64_t row, int64_t column)
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

/* hs_panel_pack where stored rows run along k. */
void HS_ISA_NAME(hs_panel_pack_along)(const HsOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                                      int64_t width, int64_t panel_stride, uint32_t *out);
#define panel_pack_along HS_ISA_NAME(hs_panel_pack_along)

#endif
