/* SPDX-License-Identifier: MIT
 *
 * Factors of curvature (optim/continual/factors.h), which backward adds to in a Fisher's passes and never in training.
 *
 * A block of a factor is a product of columns with themselves, which are copied first if the matrix has others.
 * A diagonal is a sum of squares over rows: a few rows are squared into scratch, and these are then added up.  How
 * often a token is named is the gradient of a table one column wide in which every lookup has the gradient 1.
 */
#include "runtime/model/layer.h"

enum { SQUARED_ROWS = 64 };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t scratch_of(const HsFactor *factor, int64_t rows)
{
    if (factor->block == 1)
        return (size_t)factor->size * SQUARED_ROWS * sizeof(float);
    return factor->size > factor->block ? (size_t)rows * (size_t)factor->block * sizeof(double) : 0;
}

size_t hs_factor_scratch_bytes(const HsSpanFactors *factors, int64_t rows)
{
    size_t bytes = 0;
    for (int use = 0; use < HS_FACTOR_USES; use++) {
        const HsFactorPair *pair = &factors->use[use];
        if (!hs_factor_present(&pair->right))
            continue;
        bytes = larger(bytes, scratch_of(&pair->right, rows));
        if (use == HS_FACTOR_PRODUCT) /* lookups are counted, not squared */
            bytes = larger(bytes, scratch_of(&pair->left, rows));
    }
    return bytes;
}

typedef struct Workspace {
    void *data;
    size_t bytes;
} Workspace;

static Workspace enter(const HsLayerCall *call)
{
    HsContext *context = call->context;
    const Workspace outer = { context->workspace, context->workspace_bytes };
    context->workspace = call->pass->workspace;
    context->workspace_bytes = call->pass->workspace_bytes;
    return outer;
}

static HsStatus leave(const HsLayerCall *call, Workspace outer, HsStatus status)
{
    call->context->workspace = outer.data;
    call->context->workspace_bytes = outer.bytes;
    return status;
}

static HsStatus add_squares(const HsLayerCall *call, const HsFactor *factor, float scale, HsTensor x)
{
    HsContext *context = call->context;
    HsDevice *device = context->device;
    x.amax = NULL; /* of what is overwritten */
    for (int64_t row = 0; row < x.shape[0]; row += SQUARED_ROWS) {
        const int64_t rows = x.shape[0] - row < SQUARED_ROWS ? x.shape[0] - row : SQUARED_ROWS;
        const HsTensor squares = hs_tensor_2d(call->pass->scratch, HS_F32, rows, factor->size);
        const HsSquareAccumulateArgs square = {
            .grad = hs_tensor_rows(x, row, rows), .accumulator = squares, .multiplier = scale, .weight = 1.0f
        };
        const HsBiasBackwardArgs sum = { .dy = squares, .dbias = factor->values };
        if (!context->dry_run)
            HS_TRY(device->fill_zero(device, context->stream, squares.data, hs_tensor_bytes(&squares)));
        HS_TRY(hs_op_square_accumulate(context, &square));
        HS_TRY(hs_op_bias_backward(context, &sum));
    }
    return HS_OK;
}

static HsStatus add_block(const HsLayerCall *call, const HsFactor *factor, float scale, HsTensor x, int64_t first)
{
    const int64_t width = hs_factor_width(factor, first);
    HsTensor columns = x;
    if (width < factor->size) {
        columns = hs_tensor_2d(call->pass->scratch, x.dtype, x.shape[0], width);
        const HsCopyColumnsArgs copy = { .x = x, .from = first, .columns = width, .y = columns };
        HS_TRY(hs_op_copy_columns(call->context, &copy));
    }
    const HsMatmulArgs product = { .a.values = columns,
                                   .b.values = columns,
                                   .transpose_a = true,
                                   .accumulate = true,
                                   .alpha = scale * scale,
                                   .c = hs_factor_at(factor, first) };
    return hs_op_matmul(call->context, &product);
}

static HsStatus add_moment(const HsLayerCall *call, const HsFactor *factor, float scale, HsTensor x)
{
    if (factor->block == 1)
        return add_squares(call, factor, scale, x);
    for (int64_t first = 0; first < factor->size; first += factor->block)
        HS_TRY(add_block(call, factor, scale, x, first));
    return HS_OK;
}

HsStatus hs_layer_add_moment(const HsLayerCall *call, const HsFactor *factor, float scale, HsTensor x)
{
    if (!hs_factor_present(factor))
        return HS_OK;
    const Workspace outer = enter(call);
    return leave(call, outer, add_moment(call, factor, scale, x));
}

static HsTensor counts_of(const HsSpanFactors *factors)
{
    const HsFactor *left = factors ? &factors->use[HS_FACTOR_LOOKUP].left : NULL;
    return left && hs_factor_present(left) ? hs_tensor_2d(left->values.data, HS_F32, left->size, 1) : (HsTensor){ 0 };
}

static HsStatus add_lookups(const HsLayerCall *call, float scale, HsTensor tokens, HsTensor dy)
{
    const HsEmbeddingBackwardArgs count = { .tokens = tokens,
                                            .dy = hs_tensor_rows(call->pass->ones, 0, tokens.shape[0]),
                                            .starts = call->starts,
                                            .sequence_length = call->sequence_length,
                                            .factor = 1.0f,
                                            .dtoken_table = counts_of(call->factors[0]),
                                            .dposition_table = counts_of(call->factors[1]) };
    if (!hs_tensor_present(&count.dtoken_table) && !hs_tensor_present(&count.dposition_table))
        return HS_OK;
    HS_TRY(hs_op_embedding_backward(call->context, &count));
    for (int i = 0; i < 2; i++)
        if (call->factors[i])
            HS_TRY(add_moment(call, &call->factors[i]->use[HS_FACTOR_LOOKUP].right, i == 0 ? scale : 1.0f, dy));
    return HS_OK;
}

HsStatus hs_layer_add_lookups(const HsLayerCall *call, float scale, HsTensor tokens, HsTensor dy)
{
    const Workspace outer = enter(call);
    return leave(call, outer, add_lookups(call, scale, tokens, dy));
}
