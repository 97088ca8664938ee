/* SPDX-License-Identifier: MIT
 *
 * SwiGLU and GEGLU behind the sums of a matrix product (Shazeer 2020, section 2), f = silu or gelu:
 *     forward   pre = round(alpha sum + addend + bias) = [gate|up];  c = f(gate) up
 *     backward  value = alpha sum + addend + bias;  c = [value up f'(gate) | value f(gate)]
 * A tile holds columns of one half.  Forward finishes a tile of gates by storing them, and the tile of ups that follows
 * it in the same task by reading them again, from a cache.
 */
#include "kernels/cpu/isa/activation.h"
#include "kernels/cpu/isa/matmul_store.h"

/* The value of what the product sums; columns [column, column + lanes) of the product. */
HS_SIMD HsF32x16 value_of(const HsMatmulArgs *args, HsF32x16 sum, int64_t row, int64_t column, int lanes)
{
    HsF32x16 value = sum * args->alpha;
    if (hs_tensor_present(&args->addend))
        value += load(&args->addend, row * args->addend.shape[1] + column, lanes);
    if (hs_tensor_present(&args->bias))
        value += hs_simd_load_part(HS_F32, args->bias.data, column, lanes);
    return value;
}

HS_SIMD void finish_gate(const HsMatmulArgs *args, HsPanelFormat format, HsF32x16 value, int64_t at, int lanes)
{
    store(&args->pre, format, at, value, lanes);
}

/* `column` counts from the first up. */
HS_SIMD void finish_up(HsActivation f, const HsMatmulArgs *args, HsPanelFormat format, HsF32x16 value, int64_t row,
                       int64_t column, int lanes)
{
    const int64_t width = args->c.shape[1], gate_at = 2 * row * width + column, up_at = gate_at + width;
    /* backward will read what is stored, so forward takes the same numbers */
    const HsF32x16 up = store_and_see(&args->pre, format, up_at, value, lanes);
    const HsF32x16 gate = load(&args->pre, gate_at, lanes);
    store(&args->c, format, row * width + column, activate(f, gate) * up, lanes);
}

HS_SIMD void finish_backward(HsActivation f, const HsMatmulArgs *args, HsPanelFormat format, HsF32x16 value,
                             int64_t row, int64_t column, int lanes)
{
    const int64_t width = args->c.shape[1] / 2, gate_at = 2 * row * width + column, up_at = gate_at + width;
    const HsF32x16 gate = load(&args->pre, gate_at, lanes), up = load(&args->pre, up_at, lanes);
    HsF32x16 slope;
    const HsF32x16 activated = activate_with_slope(f, gate, &slope);
    store(&args->c, format, gate_at, value * up * slope, lanes);
    store(&args->c, format, up_at, value * activated, lanes);
}

HS_SIMD void finish_vector(HsActivation f, bool backward, const HsMatmulArgs *args, HsPanelFormat format, HsF32x16 sum,
                           int64_t row, int64_t column, int lanes)
{
    const HsF32x16 value = value_of(args, sum, row, column, lanes);
    const int64_t width = args->c.shape[1]; /* forward's */
    if (backward)
        finish_backward(f, args, format, value, row, column, lanes);
    else if (column < width)
        finish_gate(args, format, value, 2 * row * width + column, lanes);
    else
        finish_up(f, args, format, value, row, column - width, lanes);
}

/* The tile with function and direction as constants. */
HS_SIMD void finish_rows(HsActivation f, bool backward, const HsMatmulArgs *args, const float *sums, int64_t row,
                         int rows, int64_t column, int columns)
{
    const HsPanelFormat format = hs_panel_format(args->a.values.dtype);
    for (int i = 0; i < rows; i++, sums += HS_TILE_COLUMNS) {
        int j = 0;
        for (; j + HS_LANES <= columns; j += HS_LANES)
            finish_vector(f, backward, args, format, hs_simd_load_f32(sums + j), row + i, column + j, HS_LANES);
        if (j < columns)
            finish_vector(f, backward, args, format, hs_simd_load_part(HS_F32, sums, j, columns - j), row + i,
                          column + j, columns - j);
    }
}

void HS_ISA_NAME(hs_tile_finish_swiglu)(const HsMatmulArgs *args, const float *sums, int64_t row, int rows,
                                        int64_t column, int columns)
{
    const bool backward = hs_epilogue_ungates(args->epilogue);
    if (hs_epilogue_activation(args->epilogue) == HS_ACTIVATION_GELU) {
        if (backward)
            finish_rows(HS_ACTIVATION_GELU, true, args, sums, row, rows, column, columns);
        else
            finish_rows(HS_ACTIVATION_GELU, false, args, sums, row, rows, column, columns);
    } else if (backward) {
        finish_rows(HS_ACTIVATION_SILU, true, args, sums, row, rows, column, columns);
    } else {
        finish_rows(HS_ACTIVATION_SILU, false, args, sums, row, rows, column, columns);
    }
}
