/* SPDX-License-Identifier: MIT
 *
 * LoRA (Hu et al. 2021, eq. 3):  y = x W^T + s drop(x) A^T B^T,  W [out,in] frozen, A [b r,in], s = alpha / r.
 *
 *   forward   u = s drop(x) A^T, kept;  branch = u B^T, which the linear layer's product adds before its activation
 *   backward  p = s dy B;  dB += dy^T u;  dA += p^T drop(x);  branch = mask(p A), which dx's product adds
 *
 * B A never exists.  A matrix of several parts (q|k|v) has b of them adapted, each with its own r columns of u: one
 * product makes all of u.  Their Bs are stored below one another, [their rows, r]; the products want them along the
 * diagonal of [out, b r], which is made in scratch: it has b r columns where x has `in`.
 */
#include "runtime/model/layers/adapter.h"

enum { PARAM_A = 2, PARAM_B = 3 };

static int64_t columns_of(const HsAdapterShape *shape)
{
    return shape->blocks * shape->rank;
}

void hs_adapter_scratch(const HsNode *node, int64_t rows, HsDtype operand, bool backward,
                        HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsAdapterShape *shape = &node->attributes.adapter;
    const bool spread = shape->spread;
    const int64_t columns = columns_of(shape);
    scratch[HS_SCRATCH_BRANCH] = hs_tensor_2d(NULL, operand, rows, backward ? shape->inputs : shape->outputs);
    if (shape->dropout > 0)
        scratch[HS_SCRATCH_DROPPED] = hs_tensor_2d(NULL, operand, rows, shape->inputs);
    if (spread)
        scratch[HS_SCRATCH_SPREAD] = hs_tensor_2d(NULL, operand, shape->outputs, columns);
    if (backward)
        scratch[HS_SCRATCH_P] = hs_tensor_2d(NULL, operand, rows, columns);
    if (spread && backward) {
        scratch[HS_SCRATCH_GRADIENT] = hs_tensor_2d(NULL, shape->sum, shape->outputs, columns);
        scratch[HS_SCRATCH_NARROW] = hs_tensor_2d(NULL, shape->sum, shape->outputs, shape->rank);
    }
}

/* Scratch is as long as a whole micro-batch; a call may have fewer rows. */
static HsTensor scratch_rows(const HsLayerCall *call, int place, int64_t rows)
{
    return hs_tensor_rows(call->scratch[place], 0, rows);
}

/* drop(x), by the same mask forward and backward. */
static HsStatus drop(const HsLayerCall *call, const HsNode *node, HsTensor *x)
{
    const float probability = call->training ? node->attributes.adapter.dropout : 0.0f;
    *x = call->inputs[0];
    if (!(probability > 0))
        return HS_OK;
    HsDropoutArgs args = {
        .probability = probability, .rng = call->rng, .x = *x, .y = scratch_rows(call, HS_SCRATCH_DROPPED, x->shape[0])
    };
    *x = args.y;
    return hs_op_dropout_forward(call->context, &args);
}

HsStatus hs_adapter_spread(HsContext *context, const HsAdapterShape *shape, HsTensor stored, HsTensor spread)
{
    if (!context->dry_run)
        HS_TRY(context->device->fill_zero(context->device, context->stream, spread.data, hs_tensor_bytes(&spread)));
    for (int64_t block = 0, row = 0; block < shape->blocks; row += shape->rows[block], block++) {
        HsCopyColumnsArgs copy = { .x = hs_tensor_rows(stored, row, shape->rows[block]),
                                   .to = block * shape->rank,
                                   .columns = shape->rank,
                                   .y = hs_tensor_rows(spread, shape->first_row[block], shape->rows[block]) };
        HS_TRY(hs_op_copy_columns(context, &copy));
    }
    return HS_OK;
}

/* B as the products want it. */
static HsStatus second_factor(const HsLayerCall *call, const HsNode *node, HsTensor *b)
{
    const HsAdapterShape *shape = &node->attributes.adapter;
    *b = call->params[PARAM_B]->stored.values;
    if (!shape->spread)
        return HS_OK;
    const HsTensor stored = *b;
    *b = call->scratch[HS_SCRATCH_SPREAD];
    return hs_adapter_spread(call->context, shape, stored, *b);
}

HsStatus hs_adapter_forward(const HsLayerCall *call, const HsNode *node, HsTensor *branch)
{
    const int64_t rows = call->inputs[0].shape[0];
    HsTensor x, b;
    HS_TRY(drop(call, node, &x));
    HS_TRY(second_factor(call, node, &b));
    HsMatmulArgs down = { .a.values = x,
                          .b = hs_param_operand(call->params[PARAM_A], false),
                          .transpose_b = true,
                          .policy = call->precision->forward,
                          .alpha = node->attributes.adapter.scale * node->attributes.factor,
                          .c = call->saved[0] };
    HS_TRY(hs_op_matmul(call->context, &down));
    *branch = scratch_rows(call, HS_SCRATCH_BRANCH, rows);
    HsMatmulArgs up = { .a.values = call->saved[0],
                        .b = hs_operand_packed(b, hs_packed_of(&call->params[PARAM_B]->forward)),
                        .transpose_b = true,
                        .policy = call->precision->forward,
                        .alpha = 1.0f,
                        .c = *branch };
    return hs_op_matmul(call->context, &up);
}

/* dB += dy^T u.  The blocks off the diagonal are computed and thrown away. */
static HsStatus second_gradient(const HsLayerCall *call, const HsNode *node, HsTensor dy)
{
    const HsAdapterShape *shape = &node->attributes.adapter;
    const HsTensor gradient = hs_call_gradient(call, PARAM_B);
    if (!hs_tensor_present(&gradient))
        return HS_OK;
    HsMatmulArgs product = { .a.values = dy,
                             .b.values = call->saved[0],
                             .transpose_a = true,
                             .accumulate = !shape->spread,
                             .policy = call->precision->wgrad,
                             .alpha = 1.0f,
                             .c = shape->spread ? call->scratch[HS_SCRATCH_GRADIENT] : gradient };
    HS_TRY(hs_op_matmul(call->context, &product));
    for (int64_t block = 0, row = 0; shape->spread && block < shape->blocks; row += shape->rows[block], block++) {
        HsTensor wide = call->scratch[HS_SCRATCH_GRADIENT];
        HsTensor narrow = hs_tensor_rows(call->scratch[HS_SCRATCH_NARROW], 0, shape->rows[block]);
        HsCopyColumnsArgs copy = { .x = hs_tensor_rows(wide, shape->first_row[block], shape->rows[block]),
                                   .from = block * shape->rank,
                                   .columns = shape->rank,
                                   .y = narrow };
        HsCombineArgs add = {
            .x = narrow, .y = hs_tensor_rows(gradient, row, shape->rows[block]), .alpha = 1.0f, .beta = 1.0f
        };
        HS_TRY(hs_op_copy_columns(call->context, &copy));
        HS_TRY(hs_op_combine(call->context, &add));
    }
    return HS_OK;
}

HsStatus hs_adapter_backward(const HsLayerCall *call, const HsNode *node, HsTensor dy, bool wanted, HsTensor *branch)
{
    const HsTensor gradient = hs_call_gradient(call, PARAM_A);
    const int64_t rows = dy.shape[0];
    HsTensor b;
    *branch = (HsTensor){ 0 };
    HS_TRY(second_gradient(call, node, dy));
    HS_TRY(second_factor(call, node, &b));
    HsMatmulArgs back = { .a.values = dy,
                          .b = hs_operand_packed(b, hs_packed_of(&call->params[PARAM_B]->backward)),
                          .policy = call->precision->dgrad,
                          .alpha = node->attributes.adapter.scale * node->attributes.factor,
                          .c = scratch_rows(call, HS_SCRATCH_P, rows) };
    HS_TRY(hs_op_matmul(call->context, &back));
    if (hs_tensor_present(&gradient)) {
        HsMatmulArgs product = { .a.values = back.c,
                                 .transpose_a = true,
                                 .accumulate = true,
                                 .policy = call->precision->wgrad,
                                 .alpha = 1.0f,
                                 .c = gradient };
        HS_TRY(drop(call, node, &product.b.values));
        HS_TRY(hs_op_matmul(call->context, &product));
    }
    if (!wanted)
        return HS_OK;
    *branch = scratch_rows(call, HS_SCRATCH_BRANCH, rows);
    HsMatmulArgs out = { .a.values = back.c,
                         .b = hs_param_operand(call->params[PARAM_A], true),
                         .policy = call->precision->dgrad,
                         .alpha = 1.0f,
                         .c = *branch };
    HS_TRY(hs_op_matmul(call->context, &out));
    const float probability = call->training ? node->attributes.adapter.dropout : 0.0f;
    HsDropoutArgs mask = { .probability = probability, .rng = call->rng, .x = *branch, .y = *branch };
    return probability > 0 ? hs_op_dropout_backward(call->context, &mask) : HS_OK;
}
