/* SPDX-License-Identifier: MIT */
#include "kernels/cpu/dynamic_maps.h"

#include <pthread.h>

#include "kernels/ops/moment_map.h"

static HsDynamicMaps maps;

/* At a midpoint that belongs to the next level the limit is the number below. */
static void make_map(bool is_signed, HsDynamicMap *map)
{
    for (int code = 0; code < HS_DYNAMIC_CODES; code++)
        map->value[code] = hs_dynamic_value(is_signed, code);
    for (int level = 0; level < hs_dynamic_top(is_signed); level++) {
        const float midpoint = hs_dynamic_midpoint(is_signed, level);
        map->limit[level] = hs_dynamic_tie_goes_up(is_signed, level) ? nextafterf(midpoint, 0.0f) : midpoint;
    }
    HsDynamicLine line = hs_dynamic_first_line(is_signed);
    for (int decade = 0; decade < HS_DYNAMIC_DECADES; decade++) {
        map->begin[decade] = decade == 0 ? 0.0f : 0.1f * line.end;
        map->slope[decade] = line.slope;
        map->offset[decade] = hs_dynamic_offset(is_signed, line);
        line = hs_dynamic_next_line(line);
    }
}

static void make_maps(void)
{
    make_map(true, &maps.with_sign);
    make_map(false, &maps.without_sign);
    for (int code = 0; code < HS_DYNAMIC_CODES; code++) {
        maps.e4m3[code] = hs_moment_number(HS_MOMENTS_FP8, true, code);
        maps.e5m2[code] = hs_moment_number(HS_MOMENTS_FP8, false, code);
    }
}

const HsDynamicMaps *hs_cpu_dynamic_maps(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_maps);
    return &maps;
}

float hs_cpu_nf4_absmax(const HsQuantized *quantized, int64_t block)
{
    const float *const scale = quantized->scales + 2 * (block >> quantized->group_shift);
    const float unscaled = hs_cpu_dynamic_maps()->with_sign.value[quantized->absmax[block]] * scale[0];
    return unscaled + scale[1];
}
