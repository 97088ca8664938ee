/* SPDX-License-Identifier: MIT */
#include "runtime/model/layers/coded.h"

/* Sites of stochastic rounding, apart from those of dropout masks and initial weights. */
#define ROUNDING_SITE 0x40000000u

static HsCodes shape_of(HsDtype format, HsScaleGranularity granularity, int64_t rows, int64_t depth)
{
    return (HsCodes){ format, granularity, rows, depth, NULL, NULL, NULL };
}

static HsTensor bytes_of(HsCodes codes)
{
    return hs_tensor_1d(NULL, HS_U8, (int64_t)hs_codes_bytes(&codes));
}

/* The formats do not matter to the bytes but for E2M1, which all operands of a recipe have or none. */
void hs_coded_scratch(const HsNode *node, int64_t rows, int64_t columns, bool backward,
                      HsTensor scratch[HS_NODE_SCRATCH])
{
    const HsDtype format = node->attributes.code_policy.a;
    const HsScaleGranularity granularity = node->attributes.code_policy.granularity;
    const int64_t inputs = node->attributes.inputs;
    const bool turns = node->attributes.turns_codes;
    if (backward ? !node->takes_dy_codes : !turns || !node->keeps_codes)
        scratch[HS_SCRATCH_ALONG] = bytes_of(shape_of(format, granularity, rows, backward ? columns : inputs));
    if (!backward)
        return;
    if (!turns)
        scratch[HS_SCRATCH_ACROSS] = bytes_of(shape_of(format, granularity, columns, rows));
    if (!node->keeps_codes)
        scratch[HS_SCRATCH_X_CODES] = bytes_of(shape_of(format, granularity, inputs, rows));
}

static HsCodes codes_in(HsDtype format, HsScaleGranularity granularity, int64_t rows, int64_t depth,
                        const HsTensor *memory, HsScaling *scaling)
{
    HsCodes codes = shape_of(format, granularity, rows, depth);
    hs_codes_place(&codes, memory->data);
    codes.scaling = scaling;
    return codes;
}

/* The scaling of a role, or of its transpose where that has its own. */
static HsScaling *scaling_of(const HsLayerCall *call, const HsNode *node, HsScalingRole role, bool turned)
{
    const bool own = turned && call->precision->scaling.rotates;
    return hs_model_scaling(call->model, node,
                            !own                   ? role
                            : role == HS_SCALING_X ? HS_SCALING_X_TURNED
                                                   : HS_SCALING_DY_TURNED);
}

/* The place for codes of x that backward multiplies; absent: it casts x. */
static const HsTensor *kept_codes(const HsLayerCall *call)
{
    const HsTensor *const from_below = &call->inputs[HS_INPUT_CODES];
    return hs_tensor_present(from_below) ? from_below : &call->saved[HS_SAVED_CODES];
}

static HsQuantizeArgs cast_of(const HsLayerCall *call, HsTensor x)
{
    const HsScalingRecipe *const recipe = &call->precision->scaling;
    return (HsQuantizeArgs){ .x = x,
                             .source = hs_model_scale_source(call->model, call->training),
                             .power_of_two = recipe->power_of_two,
                             .records = call->training && !call->again,
                             .rotates = recipe->rotates };
}

/* Whether codes are left in this pass: all layers know their scales, or none does. */
static bool leaves_codes(const HsLayerCall *call)
{
    return call->training && !call->stores_all && hs_model_scale_source(call->model, true) == HS_SCALE_KEPT;
}

HsCodes hs_coded_result(const HsLayerCall *call, const HsNode *node, bool backward, const HsTensor *result)
{
    const HsTensor *const place = backward ? &call->made[HS_MADE_CODES] : &call->outputs[HS_OUTPUT_CODES];
    const int slot = backward ? node->made[HS_MADE_CODES] : node->outputs[HS_OUTPUT_CODES];
    if (!hs_tensor_present(place) || !leaves_codes(call))
        return (HsCodes){ 0 };
    const HsSlot *const codes = &call->model->slots[slot];
    HsScaling *const all = call->model->scalings.now;
    return codes_in(codes->format, codes->granularity, result->shape[0], result->shape[1], place,
                    all ? all + codes->scaling : NULL);
}

HsStatus hs_coded_forward(const HsLayerCall *call, const HsNode *node, HsMatmulArgs *product)
{
    const HsProductPolicy policy = call->precision->scaling.forward, later = call->precision->scaling.wgrad;
    const int64_t rows = product->a.values.shape[0], columns = product->a.values.shape[1];
    const HsTensor *const kept = kept_codes(call);
    const bool turns = call->precision->scaling.turns_codes, keeps = hs_tensor_present(kept);
    const bool left = hs_tensor_present(&call->inputs[HS_INPUT_CODES]) && leaves_codes(call);
    HsQuantizeArgs cast = cast_of(call, product->a.values);
    const HsCodes x =
        codes_in(policy.a, policy.granularity, rows, columns, turns && keeps ? kept : &call->scratch[HS_SCRATCH_ALONG],
                 scaling_of(call, node, HS_SCALING_X, false));
    cast.along = x;
    if (keeps && !turns)
        cast.across =
            codes_in(later.b, later.granularity, columns, rows, kept, scaling_of(call, node, HS_SCALING_X, true));
    cast.rotates = cast.rotates && hs_codes_present(&cast.across);
    if (!left)
        HS_TRY(hs_op_quantize(call->context, &cast));
    product->a = hs_operand_codes(x);
    product->b = call->params[0]->forward;
    product->policy = policy;
    return HS_OK;
}

/* x's transpose, or x where its codes serve as both: as forward left it, or made again with the scale that it had. */
static HsStatus cast_x(const HsLayerCall *call, const HsNode *node, HsCodes *x)
{
    const HsProductPolicy policy = call->precision->scaling.wgrad;
    const HsTensor *const kept = kept_codes(call);
    const int64_t rows = call->batch * call->sequence_length, columns = node->attributes.inputs;
    const bool present = hs_tensor_present(kept), turns = call->precision->scaling.turns_codes;
    *x = codes_in(policy.b, policy.granularity, turns ? rows : columns, turns ? columns : rows,
                  present ? kept : &call->scratch[HS_SCRATCH_X_CODES], scaling_of(call, node, HS_SCALING_X, true));
    if (present)
        return HS_OK;
    HsQuantizeArgs cast = cast_of(call, call->inputs[0]);
    *(turns ? &cast.along : &cast.across) = *x;
    cast.records = false;
    if (!cast.rotates) /* a scale of what is rotated was not needed before */
        cast.source = HS_SCALE_LATEST;
    return hs_op_quantize(call->context, &cast);
}

HsStatus hs_coded_backward(const HsLayerCall *call, const HsNode *node, HsTensor dy, bool data, bool weight,
                           HsCodedGradient *codes)
{
    const HsProductPolicy to_data = call->precision->scaling.dgrad, to_weight = call->precision->scaling.wgrad;
    const int64_t rows = dy.shape[0], columns = dy.shape[1];
    const bool turns = call->precision->scaling.turns_codes;
    const HsTensor *const taken = &call->taken[HS_MADE_CODES];
    const bool has_place = hs_tensor_present(taken), left = has_place && leaves_codes(call);
    HsQuantizeArgs cast = cast_of(call, dy);
    codes->dy =
        codes_in(to_data.a, to_data.granularity, rows, columns, has_place ? taken : &call->scratch[HS_SCRATCH_ALONG],
                 scaling_of(call, node, HS_SCALING_DY, false));
    codes->dy_across = turns ? codes->dy
                             : codes_in(to_weight.a, to_weight.granularity, columns, rows,
                                        &call->scratch[HS_SCRATCH_ACROSS], scaling_of(call, node, HS_SCALING_DY, true));
    cast.stochastic = call->precision->scaling.stochastic_gradients;
    cast.rng = call->rng;
    cast.rng.site |= ROUNDING_SITE;
    if (data || turns)
        cast.along = codes->dy;
    if (weight && !turns)
        cast.across = codes->dy_across;
    cast.rotates = cast.rotates && weight;
    if ((data || weight) && !left)
        HS_TRY(hs_op_quantize(call->context, &cast));
    return weight ? cast_x(call, node, &codes->x) : HS_OK;
}

void hs_coded_weight_gradient(const HsLayerCall *call, const HsCodedGradient *codes, HsMatmulArgs *product)
{
    product->a = hs_operand_codes(codes->dy_across);
    product->b = hs_operand_codes(codes->x);
    product->transpose_a = call->precision->scaling.turns_codes;
    product->transpose_b = !product->transpose_a;
    product->policy = call->precision->scaling.wgrad;
}

void hs_coded_data_gradient(const HsLayerCall *call, const HsCodedGradient *codes, HsMatmulArgs *product)
{
    product->a = hs_operand_codes(codes->dy);
    product->b = call->params[0]->backward;
    product->transpose_b = !call->precision->scaling.turns_codes;
    product->policy = call->precision->scaling.dgrad;
}
