/* SPDX-License-Identifier: MIT
 *
 * The maps of 8-bit moments (kernels/ops/moment_map.h) as tables, made at their first use.
 */
#ifndef HS_KERNELS_CPU_DYNAMIC_MAPS_H
#define HS_KERNELS_CPU_DYNAMIC_MAPS_H

#include "kernels/ops/nf4.h"

enum { HS_DYNAMIC_CODES = 256, HS_DYNAMIC_LINES = 16 /* as many as a register has lanes; 7 count */ };

typedef struct HsDynamicMap {
    _Alignas(64) float value[HS_DYNAMIC_CODES]; /* of a code */
    float limit[HS_DYNAMIC_CODES];              /* of a level: what is above it has the next one */
    float begin[HS_DYNAMIC_LINES], slope[HS_DYNAMIC_LINES], offset[HS_DYNAMIC_LINES]; /* of a decade */
} HsDynamicMap;

typedef struct HsDynamicMaps {
    HsDynamicMap with_sign, without_sign;
    _Alignas(64) float e4m3[HS_DYNAMIC_CODES], e5m2[HS_DYNAMIC_CODES]; /* numbers of codes */
} HsDynamicMaps;

const HsDynamicMaps *hs_cpu_dynamic_maps(void);

/* hs_nf4_absmax by the table.  Here and not in its caller's file, which may be compiled to fuse the two roundings. */
float hs_cpu_nf4_absmax(const HsQuantized *quantized, int64_t block);

#endif
