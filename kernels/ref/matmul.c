/* SPDX-License-Identifier: MIT
 *
 * Matrix products with their epilogues, and the weight "packing" that the reference does not need.
 *     value = alpha sum_k op(a)[m,k] op(b)[k,n] + addend[m,n] + bias[n]
 *     c     = epilogue(value) + residual [+ c]
 *     row_sums[m] += sum_k op(a)[m,k]: of a stored [K,M], what bias_backward makes
 * tf32 is a permission to round, which is not taken.
 */
#include "kernels/base/scaled_formats.h"
#include "kernels/ref/ref.h"

/* Work proceeds in square tiles, copied to double, so that each element is decoded TILE times less often; k still
 * increases, so every sum has one fixed order. */
enum { TILE = 32 };

typedef struct HsSumTile {
    double at[TILE][TILE];
} HsSumTile;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A decoded element as the product sees it: rounded to the operand's dtype. */
static double load_quantized(const HsTensor *x, const HsQuantized *quantized, int64_t index)
{
    unsigned char rounded[sizeof(double)];
    const float value = hs_nf4_value(quantized, index);
    hs_dtype_store(x->dtype, rounded, 0, (double)value);
    return hs_dtype_load(x->dtype, rounded, 0);
}

/* Number times block scale of an element that comes in codes, which are stored as the operand is. */
static double load_code(const HsCodes *codes, int64_t index)
{
    const int64_t row = index / codes->depth, k = index % codes->depth;
    const unsigned char *const line = codes->data + row * hs_codes_row_bytes(codes);
    const int size = hs_scale_block(codes->granularity);
    double number = 0.0, worth = 1.0;
    if (codes->format == HS_E2M1)
        number = (double)hs_e2m1_decode((uint8_t)(k % 2 == 0 ? line[k / 2] & 15 : line[k / 2] >> 4));
    else
        number = hs_dtype_load(codes->format, line, k);
    if (size > 0) {
        const uint8_t block = codes->block_scales[row * hs_codes_blocks(codes) + k / size];
        worth = (double)(codes->granularity == HS_SCALE_NV ? hs_e4m3_decode(block) : hs_e8m0_decode(block));
    }
    return number * worth;
}

/* An operand's bytes: its own, or what stands for them. */
typedef struct HsFactor {
    const HsTensor *x;
    const HsQuantized *quantized;
    const HsCodes *codes;
} HsFactor;

static double load_element(const HsFactor *source, int64_t index)
{
    return source->codes       ? load_code(source->codes, index)
           : source->quantized ? load_quantized(source->x, source->quantized, index)
                               : hs_ref_load(source->x, index);
}

/* tile[r][c] = op(x)[row + r, column + c], zero beyond the edges. */
static void load_tile(const HsFactor *source, bool transposed, int64_t row, int64_t column, HsSumTile *tile)
{
    const HsTensor *const x = source->x;
    const int64_t rows = x->shape[transposed ? 1 : 0], columns = x->shape[transposed ? 0 : 1];
    const int64_t row_count = smaller(TILE, rows - row), column_count = smaller(TILE, columns - column);
    for (int64_t r = 0; r < TILE; r++) {
        for (int64_t c = 0; c < TILE; c++) {
            const int64_t index = transposed ? (column + c) * rows + row + r : (row + r) * columns + column + c;
            if (r >= row_count || c >= column_count)
                tile->at[r][c] = 0.0;
            else
                tile->at[r][c] = load_element(source, index);
        }
    }
}

static void multiply_tiles(const HsSumTile *a, const HsSumTile *b, int64_t k_count, HsSumTile *sum)
{
    for (int64_t r = 0; r < TILE; r++) {
        for (int64_t k = 0; k < k_count; k++) {
            const double factor = a->at[r][k];
            for (int64_t c = 0; c < TILE; c++)
                sum->at[r][c] += factor * b->at[k][c];
        }
    }
}

/* Everything after the sum, for one element.  A function sees `pre` as it is stored: backward will read the same number. */
static void finish_element(const HsMatmulArgs *args, int64_t row, int64_t column, double sum)
{
    const HsActivation function = hs_epilogue_activation(args->epilogue);
    const int64_t index = row * args->c.shape[1] + column;
    double value = (double)args->alpha * sum;
    if (hs_tensor_present(&args->addend))
        value += hs_ref_load(&args->addend, row * args->addend.shape[1] + column);
    if (hs_tensor_present(&args->bias))
        value += hs_ref_load(&args->bias, column);
    if (hs_epilogue_activates(args->epilogue)) {
        if (hs_tensor_present(&args->pre))
            value = hs_ref_store_rounded(&args->pre, index, value);
        value = hs_ref_activation(function, value);
    } else if (hs_epilogue_differentiates(args->epilogue)) {
        value *= hs_ref_derivative(function, hs_ref_load(&args->pre, index));
    }
    if (hs_epilogue_ungates(args->epilogue)) {
        hs_ref_gate_gradient(function, &args->pre, &args->c, row, column, value);
        return;
    }
    if (hs_tensor_present(&args->residual))
        value += hs_ref_load(&args->residual, index);
    if (args->accumulate)
        value += hs_ref_load(&args->c, index);
    hs_ref_store(&args->c, index, value);
}

/* The same call with the scales of its codes in alpha. */
static HsMatmulArgs with_scales(const HsMatmulArgs *args)
{
    HsMatmulArgs scaled = *args;
    if (args->a.layout == HS_LAYOUT_CODES)
        scaled.alpha *= HS_SCALING_FACTOR(args->a.codes.scaling) * HS_SCALING_FACTOR(args->b.codes.scaling);
    return scaled;
}

static HsStatus multiply(HsContext *context, const HsMatmulArgs *given)
{
    const HsMatmulArgs scaled = with_scales(given), *const args = &scaled;
    if (hs_epilogue_gates(args->epilogue)) { /* of pre as stored: backward will read the same numbers */
        HsMatmulArgs product = *args;
        product.epilogue = HS_EPILOGUE_NONE;
        product.c = args->pre;
        product.pre = (HsTensor){ 0 };
        const HsUnaryArgs swiglu = { .gate = hs_epilogue_activation(args->epilogue), .x = args->pre, .y = args->c };
        product.alpha = given->alpha;
        HS_TRY(multiply(context, &product));
        return hs_ref_swiglu_forward(context, &swiglu);
    }
    const int64_t rows = args->c.shape[0], columns = args->b.values.shape[args->transpose_b ? 0 : 1];
    const int64_t depth = args->a.values.shape[args->transpose_a ? 0 : 1];
    const HsFactor from_a = { &args->a.values, NULL, hs_codes_of(&args->a) },
                   from_b = { &args->b.values, hs_nf4_of(&args->b), hs_codes_of(&args->b) };
#pragma omp parallel for schedule(static) if ((double)rows * (double)columns * (double)depth > 0x1p20)
    for (int64_t row = 0; row < rows; row += TILE) {
        HsSumTile a, b, sum;
        for (int64_t column = 0; column < columns; column += TILE) {
            for (int64_t r = 0; r < TILE; r++)
                for (int64_t c = 0; c < TILE; c++)
                    sum.at[r][c] = 0.0;
            for (int64_t k = 0; k < depth; k += TILE) {
                load_tile(&from_a, args->transpose_a, row, k, &a);
                load_tile(&from_b, args->transpose_b, k, column, &b);
                multiply_tiles(&a, &b, smaller(TILE, depth - k), &sum);
            }
            for (int64_t r = 0; r < smaller(TILE, rows - row); r++)
                for (int64_t c = 0; c < smaller(TILE, columns - column); c++)
                    finish_element(args, row + r, column + c, sum.at[r][c]);
        }
    }
    hs_ref_find_amax(&args->c);
    if (!hs_tensor_present(&args->row_sums))
        return HS_OK;
    const HsBiasBackwardArgs sums = { .dy = args->a.values, .dbias = args->row_sums };
    return hs_ref_bias_backward(context, &sums);
}

HsStatus hs_ref_matmul(HsContext *context, const HsMatmulArgs *args)
{
    const HsQuantizeArgs cast = hs_cast_apart(&args->c, &args->cast);
    HS_TRY(multiply(context, args));
    return hs_codes_present(&args->cast) ? hs_ref_quantize(context, &cast) : HS_OK;
}

/* Nothing is packed: packed_bytes is 0, data stays NULL, and matmul reads b.  The description is filled all the same,
 * so that callers need not know. */
HsStatus hs_ref_pack_weight(HsContext *context, const HsPackWeightArgs *args)
{
    (void)context;
    args->packed->dtype = args->w.dtype;
    args->packed->k = args->w.shape[args->transposed ? 1 : 0];
    args->packed->n = args->w.shape[args->transposed ? 0 : 1];
    return HS_OK;
}

/* dbias[c] += sum_n dy[n,c] */
HsStatus hs_ref_bias_backward(HsContext *context, const HsBiasBackwardArgs *args)
{
    (void)context;
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    for (int64_t c = 0; c < columns; c++) {
        double sum = hs_ref_load(&args->dbias, c);
        for (int64_t n = 0; n < rows; n++)
            sum += hs_ref_load(&args->dy, n * columns + c);
        hs_ref_store(&args->dbias, c, sum);
    }
    return HS_OK;
}
