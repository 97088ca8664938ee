/* SPDX-License-Identifier: MIT
 *
 * What follows the sums of a matrix product, while they are still in the first-level cache:
 *     value = alpha sum + addend + bias;  f (gelu, relu2): pre = round(value), value = f(pre);  backward: value *= f'(pre)
 *     c = round(value + residual [+ c])
 * Sixteen columns at a time; columns past the edge of c are neither read nor written.
 */
#include "kernels/cpu/isa/activation.h"
#include "kernels/cpu/isa/matmul_store.h"

/* The commonest cases, c = round(sum [+ c]), with the dtype a constant wherever this is inlined. */
HS_SIMD void finish_bare(HsDtype dtype, HsPanelFormat format, bool accumulate, const HsTensor *c, const float *sums,
                         int64_t index, int rows, int columns)
{
    const int whole = columns / HS_LANES * HS_LANES, left = columns - whole;
    for (int i = 0; i < rows; i++, index += c->shape[1], sums += HS_TILE_COLUMNS) {
        for (int j = 0; j < whole; j += HS_LANES) {
            HsF32x16 value = hs_simd_load_f32(sums + j);
            if (accumulate)
                value += hs_simd_load(dtype, c->data, index + j);
            store_whole(dtype, format, c->data, index + j, value);
        }
        if (left > 0) {
            HsF32x16 value = hs_simd_load_part(HS_F32, sums, whole, left);
            if (accumulate)
                value += hs_simd_load_part(dtype, c->data, index + whole, left);
            hs_simd_store_part(dtype, c->data, index + whole, value, left);
        }
    }
}

HS_SIMD void finish_bare_of(HsDtype dtype, HsPanelFormat format, const HsMatmulArgs *args, const float *sums,
                            int64_t index, int rows, int columns)
{
    if (args->accumulate)
        finish_bare(dtype, format, true, &args->c, sums, index, rows, columns);
    else
        finish_bare(dtype, format, false, &args->c, sums, index, rows, columns);
}

/* Whether the sum is the value. */
static bool is_plain(const HsMatmulArgs *args)
{
    return args->alpha == 1.0f && !hs_tensor_present(&args->addend) && !hs_tensor_present(&args->bias);
}

static bool is_bare(const HsMatmulArgs *args)
{
    return is_plain(args) && !hs_tensor_present(&args->residual) && args->epilogue == HS_EPILOGUE_NONE;
}

/* Columns [column, column + lanes) of one row; `index` is the first one's place in c.  `lanes` is the constant HS_LANES
 * for all but the last vector of a row. */
HS_SIMD void finish_vector(const HsMatmulArgs *args, HsPanelFormat format, HsF32x16 value, int64_t index,
                           int64_t column, int lanes)
{
    value *= args->alpha;
    if (hs_tensor_present(&args->addend))
        value += load(&args->addend, index, lanes); /* of c's shape */
    if (hs_tensor_present(&args->bias))
        value += hs_simd_load_part(HS_F32, args->bias.data, column, lanes);
    const bool squares = hs_epilogue_activation(args->epilogue) == HS_ACTIVATION_RELU2;
    if (hs_epilogue_activates(args->epilogue)) {
        /* Backward will read pre as stored, so forward's function sees the same number. */
        if (hs_tensor_present(&args->pre))
            value = store_and_see(&args->pre, format, index, value, lanes);
        value = squares ? activate(HS_ACTIVATION_RELU2, value) : activate(HS_ACTIVATION_GELU, value);
    } else if (hs_epilogue_differentiates(args->epilogue)) {
        const HsF32x16 pre = load(&args->pre, index, lanes);
        value *= squares ? slope_of(HS_ACTIVATION_RELU2, pre) : slope_of(HS_ACTIVATION_GELU, pre);
    }
    if (hs_tensor_present(&args->residual))
        value += load(&args->residual, index, lanes);
    if (args->accumulate)
        value += load(&args->c, index, lanes);
    store(&args->c, format, index, value, lanes);
}

/* A function and nothing else, over whole vectors of one dtype: with all of these constants, the row's vectors are
 * independent straight-line code and overlap. */
HS_SIMD void finish_function(HsActivation f, bool backward, HsDtype dtype, HsPanelFormat format,
                             const HsMatmulArgs *args, const float *sums, int64_t index, int rows, int columns)
{
    void *const pre = args->pre.data, *const c = args->c.data;
    const int64_t stride = args->c.shape[1];
    for (int i = 0; i < rows; i++, index += stride, sums += HS_TILE_COLUMNS) {
        for (int j = 0; j < columns; j += HS_LANES) {
            HsF32x16 value = hs_simd_load_f32(sums + j);
            if (backward) {
                value *= slope_of(f, hs_simd_load(dtype, pre, index + j));
            } else {
                value = activate(f, store_rounded(dtype, format, pre, index + j, value));
            }
            store_whole(dtype, format, c, index + j, value);
        }
    }
}

HS_SIMD void finish_function_of(HsActivation f, HsPanelFormat format, const HsMatmulArgs *args, const float *sums,
                                int64_t index, int rows, int columns)
{
    const bool backward = hs_epilogue_differentiates(args->epilogue);
    if (args->c.dtype == HS_F32 && backward)
        finish_function(f, true, HS_F32, format, args, sums, index, rows, columns);
    else if (args->c.dtype == HS_F32)
        finish_function(f, false, HS_F32, format, args, sums, index, rows, columns);
    else if (backward)
        finish_function(f, true, HS_BF16, format, args, sums, index, rows, columns);
    else
        finish_function(f, false, HS_BF16, format, args, sums, index, rows, columns);
}

static bool is_only_function(const HsMatmulArgs *args, int columns)
{
    return columns % HS_LANES == 0 && args->epilogue != HS_EPILOGUE_NONE && hs_tensor_present(&args->pre) &&
           args->pre.dtype == args->c.dtype && is_plain(args) && !hs_tensor_present(&args->residual) &&
           !args->accumulate;
}

void HS_ISA_NAME(hs_tile_finish)(const HsMatmulArgs *args, const float *sums, int64_t row, int rows, int64_t column,
                                 int columns)
{
    if (hs_epilogue_reshapes(args->epilogue)) {
        HS_ISA_NAME(hs_tile_finish_swiglu)(args, sums, row, rows, column, columns);
        return;
    }
    const HsTensor *c = &args->c;
    const int64_t index = row * c->shape[1] + column;
    const HsPanelFormat format = hs_panel_format(args->a.values.dtype);
    if (is_bare(args)) {
        if (c->dtype == HS_F32)
            finish_bare_of(HS_F32, format, args, sums, index, rows, columns);
        else if (c->dtype == HS_BF16)
            finish_bare_of(HS_BF16, format, args, sums, index, rows, columns);
        else
            finish_bare_of(HS_F16, format, args, sums, index, rows, columns);
        return;
    }
    if (is_only_function(args, columns) && c->dtype != HS_F16) {
        if (hs_epilogue_activation(args->epilogue) == HS_ACTIVATION_RELU2)
            finish_function_of(HS_ACTIVATION_RELU2, format, args, sums, index, rows, columns);
        else
            finish_function_of(HS_ACTIVATION_GELU, format, args, sums, index, rows, columns);
        return;
    }
    for (int i = 0; i < rows; i++) {
        const float *row_sums = sums + i * HS_TILE_COLUMNS;
        const int64_t place = index + i * c->shape[1];
        int j = 0;
        for (; j + HS_LANES <= columns; j += HS_LANES)
            finish_vector(args, format, hs_simd_load_f32(row_sums + j), place + j, column + j, HS_LANES);
        if (j < columns) {
            const int lanes = columns - j;
            const HsF32x16 value = hs_simd_load_part(HS_F32, row_sums, j, lanes);
            finish_vector(args, format, value, place + j, column + j, lanes);
        }
    }
}
