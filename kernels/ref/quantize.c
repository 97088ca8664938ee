/* SPDX-License-Identifier: MIT
 *
 * Codes of less than 16 bits and their scales, from the formats' definitions (kernels/base): one element after the
 * other, in f32 as ops.h says, since every backend gives these bits.
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/scaled_formats.h"
#include "kernels/ops/code_rule.h"
#include "kernels/ref/ref.h"

static uint8_t encode(const HsQuantizeArgs *args, HsDtype format, float value, int64_t element)
{
    if (!args->stochastic)
        return format == HS_E4M3   ? hs_e4m3_encode_saturate(value)
               : format == HS_E5M2 ? hs_e5m2_encode_saturate(value)
                                   : hs_e2m1_encode(value);
    const uint64_t at = (uint64_t)(args->rng.row_offset * args->x.shape[1] + element);
    const uint32_t random = hs_rng_draw(&args->rng, at / 4).word[at % 4];
    return format == HS_E4M3   ? hs_e4m3_encode_stochastic(value, random)
           : format == HS_E5M2 ? hs_e5m2_encode_stochastic(value, random)
                               : hs_e2m1_encode_stochastic(value, random);
}

static float larger(float a, float b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static float largest_of(const float *values, int64_t count)
{
    float most = 0.0f;
    for (int64_t i = 0; i < count; i++)
        most = larger(most, fabsf(values[i]));
    return most;
}

/* The values of `codes`, [rows, depth]: x, or its transpose with runs rotated. */
static void gather(const HsQuantizeArgs *args, const HsCodes *codes, bool transposed, float *values)
{
    const int64_t columns = args->x.shape[1];
    for (int64_t row = 0; row < codes->rows; row++) {
        float *const out = values + row * codes->depth;
        for (int64_t k = 0; k < codes->depth; k++)
            out[k] = (float)hs_ref_load(&args->x, transposed ? k * columns + row : row * columns + k);
        for (int64_t k = 0; transposed && args->rotates && k + HS_CODES_RUN <= codes->depth; k += HS_CODES_RUN)
            hs_code_rotate(out + k);
    }
}

void hs_ref_find_amax(const HsTensor *tensor)
{
    if (tensor->amax == NULL)
        return;
    for (int64_t i = 0; i < hs_tensor_count(tensor); i++)
        *tensor->amax = larger(*tensor->amax, fabsf((float)hs_ref_load(tensor, i)));
}

/* The scaling of a cast of values with the largest magnitude `amax`. */
static void choose_scale(const HsQuantizeArgs *args, const HsCodes *codes, float amax)
{
    HsScaling *const scaling = codes->scaling;
    const bool usable = isfinite(amax) && amax != 0.0f;
    if (args->source == HS_SCALE_LATEST)
        return;
    if (args->source == HS_SCALE_KEPT) {
        scaling->scale = scaling->kept;
        scaling->inverse = 1.0f / scaling->kept;
        return;
    }
    scaling->scale = scaling->inverse = 1.0f;
    if (codes->granularity == HS_SCALE_TENSOR) {
        scaling->scale = hs_tensor_scale(amax, (float)hs_dtype_info(codes->format)->max, args->power_of_two);
        scaling->inverse = 1.0f / scaling->scale;
    } else if (codes->granularity == HS_SCALE_NV && usable && amax / 2688.0f > 0.0f) {
        scaling->inverse = amax / 2688.0f;
        scaling->scale = 1.0f / scaling->inverse;
    }
    if (!isfinite(amax) && hs_scale_is_of_tensor(codes->granularity))
        scaling->inverse = NAN;
}

/* The largest magnitude that shares a scale with [row, block]. */
static float block_amax(const HsQuantizeArgs *args, const HsCodes *codes, const float *values, int64_t row,
                        int64_t block)
{
    const int64_t size = hs_scale_block(codes->granularity), first = block * size;
    const int64_t count = first + size < codes->depth ? size : codes->depth - first;
    const int64_t top = args->squares ? row / size * size : row;
    const int64_t end = !args->squares ? row + 1 : top + size < codes->rows ? top + size : codes->rows;
    float most = 0.0f;
    for (int64_t r = top; r < end; r++)
        most = larger(most, largest_of(values + r * codes->depth + first, count));
    return most;
}

static uint8_t block_scale(const HsCodes *codes, float amax)
{
    if (codes->granularity != HS_SCALE_NV)
        return hs_e8m0_scale_up(amax, (float)hs_dtype_info(codes->format)->max);
    return hs_e4m3_encode_saturate(amax / (6.0f * codes->scaling->inverse));
}

/* What of x a code's 1 stands for. */
static float scaled(const HsCodes *codes, float value, uint8_t block)
{
    if (codes->granularity == HS_SCALE_TENSOR)
        return value * codes->scaling->scale;
    if (codes->granularity != HS_SCALE_NV)
        return block == 255 ? NAN : value * hs_e8m0_decode((uint8_t)(254 - block));
    const float worth = hs_e4m3_decode(block) * codes->scaling->inverse;
    return worth == 0.0f ? 0.0f : value / worth;
}

static void store_code(const HsCodes *codes, int64_t row, int64_t k, uint8_t code)
{
    unsigned char *const out = codes->data + row * hs_codes_row_bytes(codes);
    if (codes->format != HS_E2M1)
        out[k] = code;
    else if (k % 2 == 0)
        out[k / 2] = code;
    else
        out[k / 2] = (unsigned char)(out[k / 2] | code << 4);
}

/* codes of values, and what is counted of them. */
static void cast(const HsQuantizeArgs *args, const HsCodes *codes, bool transposed, const float *values, bool records)
{
    const int64_t size = hs_scale_block(codes->granularity), blocks = hs_codes_blocks(codes);
    const int64_t columns = args->x.shape[1];
    const float largest = (float)hs_dtype_info(codes->format)->max;
    const uint8_t magnitude = codes->format == HS_E2M1 ? 7 : 0x7F;
    for (int64_t row = 0; row < codes->rows; row++) {
        for (int64_t block = 0; block < blocks; block++)
            codes->block_scales[row * blocks + block] = block_scale(codes, block_amax(args, codes, values, row, block));
        for (int64_t k = 0; k < codes->depth; k++) {
            const float value = values[row * codes->depth + k];
            const uint8_t block = size > 0 ? codes->block_scales[row * blocks + k / size] : 0;
            const float x = scaled(codes, value, block);
            const uint8_t code = encode(args, codes->format, x, transposed ? k * columns + row : row * columns + k);
            store_code(codes, row, k, code);
            if (!records)
                continue;
            codes->scaling->saturated += fabsf(x) > largest;
            codes->scaling->zeroed += value != 0.0f && (code & magnitude) == 0;
        }
    }
    if (records)
        codes->scaling->elements += (uint64_t)(codes->rows * codes->depth);
}

static HsStatus quantize_side(const HsQuantizeArgs *args, const HsCodes *codes, bool transposed, bool chooses,
                              bool records)
{
    if (!hs_codes_present(codes))
        return HS_OK;
    float *const values = malloc((size_t)(codes->rows * codes->depth) * sizeof *values);
    if (values == NULL)
        return hs_fail(HS_ENOMEM, "quantize: no memory for %lld values", (long long)(codes->rows * codes->depth));
    gather(args, codes, transposed, values);
    const float amax = largest_of(values, codes->rows * codes->depth);
    const bool found = args->x.amax && !(transposed && args->rotates);
    if (chooses)
        choose_scale(args, codes, found ? *args->x.amax : amax);
    if (records)
        codes->scaling->amax = larger(codes->scaling->amax, amax);
    cast(args, codes, transposed, values, records);
    free(values);
    return HS_OK;
}

HsStatus hs_ref_quantize(HsContext *context, const HsQuantizeArgs *args)
{
    (void)context;
    const bool two = hs_codes_present(&args->along);
    HS_TRY(quantize_side(args, &args->along, false, true, args->records));
    return quantize_side(args, &args->across, true, !two || args->rotates, args->records && !two);
}

/* kept = largest 2^-margin / amax, of what is finite and above 0; else as it was. */
static void choose_kept(const HsRollScalesArgs *args, HsScaling *scaling, const float *ring, int64_t length)
{
    const int64_t filled = scaling->recorded < length ? scaling->recorded : length;
    float amax = args->most_recent && filled > 0 ? ring[(scaling->recorded - 1) % length] : 0.0f;
    for (int64_t i = 0; i < filled && !args->most_recent; i++)
        amax = larger(amax, ring[i]);
    if (!(amax > 0.0f))
        return;
    const float scale = scaling->largest * exp2f(-args->margin) / amax;
    scaling->kept = isinf(scale) ? FLT_MAX : scale;
}

HsStatus hs_ref_roll_scales(HsContext *context, const HsRollScalesArgs *args)
{
    (void)context;
    const bool remembers = hs_tensor_present(&args->history);
    const int64_t length = remembers ? args->history.shape[1] : 0;
    for (int64_t i = 0; i < args->count; i++) {
        HsScaling *const scaling = &args->scalings[i];
        float *const ring = remembers ? (float *)args->history.data + i * length : NULL;
        float *const maximum = hs_tensor_present(&args->maxima) ? (float *)args->maxima.data + i : NULL;
        const float amax = maximum ? *maximum : scaling->amax;
        if (args->gathers) {
            *maximum = isfinite(scaling->amax) ? scaling->amax : INFINITY;
            continue;
        }
        if (args->report)
            args->report[i] = *scaling;
        if (remembers && isfinite(amax) && amax != 0.0f)
            ring[scaling->recorded++ % length] = amax;
        if (remembers)
            choose_kept(args, scaling, ring, length);
        scaling->amax = 0.0f;
        scaling->elements = scaling->saturated = scaling->zeroed = 0;
    }
    return HS_OK;
}
