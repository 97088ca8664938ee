/* SPDX-License-Identifier: MIT
 *
 * Operands in codes, as products read them.
 */
#ifndef HS_KERNELS_CPU_ISA_CODES_H
#define HS_KERNELS_CPU_ISA_CODES_H

#include "kernels/cpu/cpu.h"

/* out [rows, depth] bf16 = number times block scale, exactly. */
void HS_ISA_NAME(hs_codes_decode)(const HsContext *context, const HsCodes *codes, uint16_t *out);

#endif
