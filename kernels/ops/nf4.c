/* SPDX-License-Identifier: MIT */
#include "kernels/ops/nf4.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const float hs_nf4_levels[HS_NF4_LEVELS] = { HS_NF4_LEVEL_LIST };

enum { ALIGNMENT = 64, SIGNED_CODES = 256 };

static size_t aligned(int64_t bytes)
{
    return ((size_t)bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

HsQuantized hs_nf4_shape(const int64_t *counts, int parts)
{
    HsQuantized shape = { .group_shift = HS_NF4_NESTED_SHIFT };
    for (int i = 0; i < parts; i++) {
        if (counts[i] <= 0 || counts[i] % HS_NF4_BLOCK != 0)
            return (HsQuantized){ 0 };
        /* The last part may end within a group: none follows it. */
        while (i + 1 < parts && hs_nf4_blocks(counts[i]) % ((int64_t)1 << shape.group_shift) != 0)
            shape.group_shift--;
        shape.count += counts[i];
    }
    return shape;
}

size_t hs_nf4_bytes(const HsQuantized *shape)
{
    return aligned(shape->count / 2) + aligned(hs_nf4_blocks(shape->count)) +
           aligned(hs_nf4_groups(shape) * 2 * (int64_t)sizeof(float));
}

void hs_nf4_place(HsQuantized *quantized, void *memory)
{
    quantized->codes = memory;
    quantized->absmax = quantized->codes + aligned(quantized->count / 2);
    quantized->scales = (float *)(void *)(quantized->absmax + aligned(hs_nf4_blocks(quantized->count)));
}

/* How many of the rising bounds lie below x. */
static int count_below(const float *bounds, int count, float x)
{
    int low = 0;
    for (int step = count; step > 0; step /= 2)
        while (low + step <= count && bounds[low + step - 1] < x)
            low += step;
    return low;
}

static float scaled(float x, float absmax)
{
    const float value = x * (1.0f / fmaxf(absmax, 1e-38f));
    return value > 1.0f ? 1.0f : value < -1.0f ? -1.0f : value;
}

static float largest(const float *values, int64_t count)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(values[i]));
    return most;
}

static void quantize_block(const float *values, const float bounds[HS_NF4_LEVELS - 1], float absmax,
                           unsigned char *codes)
{
    int code[HS_NF4_BLOCK] = { 0 };
    float x[HS_NF4_BLOCK];
    for (int i = 0; i < HS_NF4_BLOCK; i++)
        x[i] = scaled(values[i], absmax);
    for (int level = 0; level < HS_NF4_LEVELS - 1; level++)
        for (int i = 0; i < HS_NF4_BLOCK; i++)
            code[i] += bounds[level] < x[i];
    for (int i = 0; i < HS_NF4_BLOCK; i += 2)
        codes[i / 2] = (unsigned char)(code[i] << 4 | code[i + 1]);
}

/* A tensor's absmaxes, less their mean, quantized in nested blocks. */
static void quantize_scales(const HsQuantized *quantized, int64_t first_block, int64_t blocks, float *absmax)
{
    float map[SIGNED_CODES], bounds[SIGNED_CODES - 1];
    for (int code = 0; code < SIGNED_CODES; code++)
        map[code] = hs_dynamic_value(true, code);
    for (int code = 0; code < SIGNED_CODES - 1; code++)
        bounds[code] = (map[code] + map[code + 1]) / 2;
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++)
        sum += absmax[b];
    const float offset = (float)(sum / (double)blocks);
    for (int64_t b = 0; b < blocks; b++)
        absmax[b] -= offset;
    for (int64_t b = 0; b < blocks; b += HS_NF4_NESTED) {
        const int64_t count = blocks - b < HS_NF4_NESTED ? blocks - b : HS_NF4_NESTED;
        const float nested = largest(absmax + b, count);
        for (int64_t i = b; i < b + count; i++)
            quantized->absmax[first_block + i] =
                (unsigned char)count_below(bounds, SIGNED_CODES - 1, scaled(absmax[i], nested));
        const int64_t first = (first_block + b) >> quantized->group_shift;
        const int64_t last = (first_block + b + count - 1) >> quantized->group_shift;
        for (int64_t group = first; group <= last; group++) {
            quantized->scales[2 * group] = nested;
            quantized->scales[2 * group + 1] = offset;
        }
    }
}

HsStatus hs_nf4_quantize(const HsQuantized *quantized, int64_t first, int64_t count, const float *values)
{
    const int64_t blocks = hs_nf4_blocks(count);
    float bounds[HS_NF4_LEVELS - 1];
    for (int i = 0; i < HS_NF4_LEVELS - 1; i++)
        bounds[i] = (hs_nf4_levels[i] + hs_nf4_levels[i + 1]) / 2;
    float *absmax = malloc((size_t)blocks * sizeof *absmax);
    if (!absmax)
        return hs_fail(HS_ENOMEM, "nf4: no memory for the scales of %lld blocks", (long long)blocks);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; b++) {
        const float *const block = values + b * HS_NF4_BLOCK;
        absmax[b] = largest(block, HS_NF4_BLOCK);
        quantize_block(block, bounds, absmax[b], quantized->codes + (first + b * HS_NF4_BLOCK) / 2);
    }
    quantize_scales(quantized, first / HS_NF4_BLOCK, blocks, absmax);
    free(absmax);
    return HS_OK;
}

float hs_nf4_absmax(const HsQuantized *quantized, int64_t block)
{
    const float *const scale = quantized->scales + 2 * (block >> quantized->group_shift);
    const float unscaled = hs_dynamic_value(true, quantized->absmax[block]) * scale[0];
    return unscaled + scale[1];
}

float hs_nf4_value(const HsQuantized *quantized, int64_t index)
{
    const int shift = index % 2 == 0 ? 4 : 0;
    const int code = quantized->codes[index / 2] >> shift & 15;
    return hs_nf4_levels[code] * hs_nf4_absmax(quantized, index / HS_NF4_BLOCK);
}
