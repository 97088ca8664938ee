/* SPDX-License-Identifier: MIT */
#include "runtime/model/coded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/ops/code_rule.h"
#include "runtime/model/casts.h"
#include "runtime/model/selector.h"

/* Of the authors' 62 blocks those that stay in 16 bits. */
enum { NVFP4_BLOCKS = 62, NVFP4_FIRST = 2, NVFP4_LAST = 8 };

/* To the nearest block. */
static int64_t share_of(int64_t layers, int64_t part)
{
    return (layers * part + NVFP4_BLOCKS / 2) / NVFP4_BLOCKS;
}

/* Whether a word or pattern names the node. */
static bool names(const HsModel *model, const HsNode *node, const char *pattern)
{
    const int64_t last = model->layers - 1, block = node->block;
    if (strcmp(pattern, "first") == 0)
        return block == 0;
    if (strcmp(pattern, "last") == 0)
        return block == last;
    if (strcmp(pattern, "auto") == 0)
        return model->precision.scaling.forward.granularity == HS_SCALE_NV &&
               (block < share_of(model->layers, NVFP4_FIRST) || block > last - share_of(model->layers, NVFP4_LAST));
    return hs_param_matches(&model->params[node->params[0]], pattern);
}

static bool is_linear(const HsNode *node)
{
    return node->layer == &hs_layer_linear && node->block >= 0;
}

/* Every pattern has to name a layer: a misspelt one would leave in codes what was to be kept. */
static HsStatus check_patterns(const HsModel *model, const HsStringList *keep)
{
    for (int i = 0; i < keep->count; i++) {
        const char *const pattern = keep->items[i];
        bool known = strcmp(pattern, "auto") == 0 || strcmp(pattern, "none") == 0;
        for (int n = 0; n < model->node_count && !known; n++)
            known = is_linear(&model->nodes[n]) && names(model, &model->nodes[n], pattern);
        if (!known)
            return hs_fail(HS_ECONFIG,
                           "precision.fp8.keep: `%.60s` names no linear layer of the blocks: take first, last, none, "
                           "auto, or a pattern of weights' names such as *.mlp.*",
                           pattern);
    }
    return HS_OK;
}

static bool is_kept(const HsModel *model, const HsNode *node, const HsStringList *keep)
{
    for (int i = 0; i < keep->count; i++)
        if (names(model, node, keep->items[i]))
            return true;
    return false;
}

/* The value that a node reads first, where what makes it knows how to look at it. */
static void ask_for_value(HsModel *model, int slot)
{
    const int producer = model->slots[slot].producer;
    for (int i = 0; producer != HS_NONE && i < HS_NODE_OUTPUTS; i++)
        if (model->nodes[producer].outputs[i] == slot)
            model->slots[slot].amax = (model->nodes[producer].layer->finds_amax >> i & 1u) != 0;
}

/* The gradient of a linear layer's result.  The first of the result's readers is the last to add to it; a product does not
 * look at sums that it adds to, so that it has to be the only one. */
static void ask_for_gradient(HsModel *model, const HsNode *node)
{
    const int slot = node->outputs[node->attributes.epilogue == HS_EPILOGUE_NONE ? 0 : 1];
    const int rounded = node->taken[HS_MADE_ROUNDED]; /* by a norm, which finds this, too */
    const HsReaders readers = hs_model_readers(model, slot);
    const HsNode *const first = readers.node == HS_NONE ? NULL : &model->nodes[readers.node];
    const HsParam *const w = &model->params[node->params[0]];
    const bool cast = w->trainable || w->passes_gradient; /* dy is an operand of some product */
    const bool converted = node->attributes.convert_gradient && rounded == HS_NONE;
    if (first == NULL || !cast || converted || !first->trains ||
        (first->layer == &hs_layer_linear && readers.count > 1))
        return;
    if (rounded != HS_NONE)
        model->slots[rounded].amax = true;
    else
        model->slots[slot].gradient_amax = (first->layer->finds_gradient_amax >> readers.input & 1u) != 0;
}

static void ask_for_amaxes(HsModel *model)
{
    const HsScalingRecipe *const recipe = &model->precision.scaling;
    HsModelScalings *const scalings = &model->scalings;
    if (!hs_scale_is_of_tensor(recipe->forward.granularity) && !hs_scale_is_of_tensor(recipe->dgrad.granularity))
        return;
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *const node = &model->nodes[n];
        if (!hs_node_coded(node))
            continue;
        if (hs_scale_is_of_tensor(recipe->forward.granularity))
            ask_for_value(model, node->inputs[0]);
        if (hs_scale_is_of_tensor(recipe->dgrad.granularity) && node->trains)
            ask_for_gradient(model, node);
    }
    scalings->found = hs_tensor_2d(NULL, HS_F32, 2, model->slot_count);
}

float *hs_model_amax(const HsModel *model, int slot, bool gradient, bool training)
{
    static float planned; /* dry runs have no memory, and look at nothing but whether there is a place */
    const HsTensor *const found = &model->scalings.found;
    if (slot == HS_NONE || !hs_tensor_present(found) || hs_model_scale_source(model, training) != HS_SCALE_OWN ||
        !(gradient ? model->slots[slot].gradient_amax : model->slots[slot].amax))
        return NULL;
    float *const all = found->data;
    return all ? all + (gradient ? model->slot_count : 0) + slot : &planned;
}

HsStatus hs_model_forget_amax(const HsModel *model, HsContext *context, bool training)
{
    const HsTensor *const found = &model->scalings.found;
    if (!hs_tensor_present(found) || context->dry_run || hs_model_scale_source(model, training) != HS_SCALE_OWN)
        return HS_OK;
    return context->device->fill_zero(context->device, context->stream, found->data, hs_tensor_bytes(found));
}

HsStatus hs_model_mark_coded(HsBuilder *builder)
{
    HsModel *const model = builder->model;
    const HsStringList *const keep = &builder->config->precision_fp8.keep;
    if (!hs_precision_codes(&model->precision))
        return HS_OK;
    HS_TRY(check_patterns(model, keep));
    HsModelScalings *const scalings = &model->scalings;
    const HsScalingRecipe *const recipe = &model->precision.scaling;
    scalings->per_node = recipe->rotates ? HS_SCALING_ROLES : HS_SCALING_X_TURNED;
    for (int n = 0; n < model->node_count; n++) {
        HsNode *const node = &model->nodes[n];
        if (!is_linear(node) || is_kept(model, node, keep) ||
            model->params[node->params[0]].stored.layout == HS_LAYOUT_NF4)
            continue;
        HsParam *const param = &model->params[node->params[0]];
        const HsProductPolicy forward = recipe->forward, dgrad = recipe->dgrad;
        node->attributes.code_policy = forward;
        node->attributes.turns_codes = recipe->turns_codes;
        node->attributes.scaling = scalings->count;
        scalings->count += scalings->per_node;
        param->forward = hs_operand_codes(
            (HsCodes){ forward.b, forward.granularity, param->shape[0], param->shape[1], NULL, NULL, NULL });
        param->backward = recipe->turns_codes ? param->forward
                                              : hs_operand_codes((HsCodes){ dgrad.b, dgrad.granularity, param->shape[1],
                                                                            param->shape[0], NULL, NULL, NULL });
        hs_builder_codes(builder, n);
    }
    if (builder->status == HS_OK)
        HS_TRY(hs_model_mark_casts(builder));
    if (builder->status == HS_OK)
        ask_for_amaxes(model);
    if (builder->status == HS_OK && scalings->count == 0)
        return hs_fail(HS_ECONFIG,
                       "precision.fp8.keep leaves no linear layer to run in fp8, or adapter.base: nf4 has them in "
                       "four bits: shorten precision.fp8.keep, or set precision.mode: bf16");
    return builder->status;
}

bool hs_param_coded(const HsParam *param)
{
    return param->forward.layout == HS_LAYOUT_CODES;
}

/* The transpose is read backward, where dy w is computed; w's codes may serve as its. */
static bool has_backward(const HsModel *model, const HsParam *param, bool training)
{
    return training && param->passes_gradient && !model->precision.scaling.turns_codes;
}

void hs_coded_reserve(HsModel *model, bool training)
{
    HsModelScalings *const scalings = &model->scalings;
    const size_t records = (size_t)scalings->count * sizeof(HsScaling);
    if (scalings->count == 0)
        return;
    scalings->offset_now = hs_arena_reserve(&model->packed, records);
    if (training)
        scalings->offset_report = hs_arena_reserve(&model->packed, records);
    if (hs_tensor_present(&scalings->found))
        scalings->offset_found = hs_arena_reserve(&model->packed, hs_tensor_bytes(&scalings->found));
    const int64_t length = model->precision.scaling.history;
    scalings->history = scalings->maxima = (HsTensor){ 0 };
    if (training && model->precision.scaling.delayed) {
        scalings->history = hs_tensor_2d(NULL, HS_F32, scalings->count, length);
        scalings->offset_history = hs_arena_reserve(&model->packed, hs_tensor_bytes(&scalings->history));
        scalings->maxima = hs_tensor_1d(NULL, HS_F32, scalings->count);
        scalings->offset_maxima = hs_arena_reserve(&model->packed, hs_tensor_bytes(&scalings->maxima));
    }
    for (int i = 0; i < model->param_count; i++) {
        HsParam *const param = &model->params[i];
        if (!hs_param_coded(param))
            continue;
        param->offset_forward = hs_arena_reserve(&model->packed, hs_codes_bytes(&param->forward.codes));
        if (has_backward(model, param, training))
            param->offset_backward = hs_arena_reserve(&model->packed, hs_codes_bytes(&param->backward.codes));
    }
}

void hs_coded_place(HsModel *model, bool training)
{
    HsModelScalings *const scalings = &model->scalings;
    if (scalings->count == 0)
        return;
    scalings->now = hs_arena_at(&model->packed, scalings->offset_now);
    if (training)
        scalings->report = hs_arena_at(&model->packed, scalings->offset_report);
    if (hs_tensor_present(&scalings->found))
        scalings->found.data = hs_arena_at(&model->packed, scalings->offset_found);
    if (hs_tensor_present(&scalings->history))
        scalings->history.data = hs_arena_at(&model->packed, scalings->offset_history);
    if (hs_tensor_present(&scalings->maxima))
        scalings->maxima.data = hs_arena_at(&model->packed, scalings->offset_maxima);
    for (int n = 0; n < model->node_count; n++) {
        const HsNode *const node = &model->nodes[n];
        if (!hs_node_coded(node))
            continue;
        HsParam *const param = &model->params[node->params[0]];
        param->forward.codes.scaling = param->backward.codes.scaling = hs_model_scaling(model, node, HS_SCALING_WEIGHT);
        hs_codes_place(&param->forward.codes, hs_arena_at(&model->packed, param->offset_forward));
        if (model->precision.scaling.turns_codes)
            param->backward = param->forward;
        else if (has_backward(model, param, training))
            hs_codes_place(&param->backward.codes, hs_arena_at(&model->packed, param->offset_backward));
    }
}

/* The format that a role's scale is for. */
static HsDtype format_of(const HsScalingRecipe *recipe, int role)
{
    return role == HS_SCALING_DY || role == HS_SCALING_DY_TURNED ? recipe->dgrad.a : recipe->forward.a;
}

HsStatus hs_coded_begin(HsModel *model, HsContext *context)
{
    HsModelScalings *const scalings = &model->scalings;
    HsDevice *const device = context->device;
    if (scalings->count == 0 || context->dry_run)
        return HS_OK;
    HsScaling *const first = calloc((size_t)scalings->count, sizeof *first);
    if (first == NULL)
        return hs_fail(HS_ENOMEM, "no memory for %d scales", scalings->count);
    for (int i = 0; i < scalings->count; i++)
        first[i] =
            (HsScaling){ .scale = 1.0f,
                         .inverse = 1.0f,
                         .kept = 1.0f,
                         .largest = hs_code_largest(format_of(&model->precision.scaling, i % scalings->per_node)) };
    const size_t bytes = (size_t)scalings->count * sizeof *first;
    HsStatus status = device->copy(device, context->stream, scalings->now, first, bytes);
    if (status == HS_OK && scalings->report)
        status = device->copy(device, context->stream, scalings->report, first, bytes);
    if (status == HS_OK && scalings->history.data)
        status =
            device->fill_zero(device, context->stream, scalings->history.data, hs_tensor_bytes(&scalings->history));
    if (status == HS_OK)
        status = device->stream_sync(device, context->stream);
    scalings->stale = true;
    scalings->begun = false;
    free(first);
    return status;
}

HsScaleSource hs_model_scale_source(const HsModel *model, bool training)
{
    return training && model->precision.scaling.delayed && model->scalings.begun ? HS_SCALE_KEPT : HS_SCALE_OWN;
}

HsStatus hs_model_cast(HsModel *model, HsContext *context, bool training)
{
    const HsScalingRecipe *const recipe = &model->precision.scaling;
    if (model->scalings.count == 0 || !(model->scalings.stale || context->dry_run))
        return HS_OK;
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *const param = &model->params[i];
        if (!hs_param_coded(param))
            continue;
        HsQuantizeArgs args = { .x = param->stored.values,
                                .along = param->forward.codes,
                                .squares = recipe->square_weights,
                                .source = hs_model_scale_source(model, training),
                                .power_of_two = recipe->power_of_two,
                                .records = training };
        if (param->backward.codes.data && !recipe->turns_codes)
            args.across = param->backward.codes;
        HS_TRY(hs_op_quantize(context, &args));
    }
    if (!context->dry_run)
        model->scalings.stale = false;
    return HS_OK;
}

/* With kept scales that differ, processes would train different models. */
static HsStatus agree_on_maxima(const HsModelScalings *scalings, HsContext *context, HsComm *comm)
{
    HS_TRY(hs_op_roll_scales(context, &(HsRollScalesArgs){ .scalings = scalings->now,
                                                           .count = scalings->count,
                                                           .maxima = scalings->maxima,
                                                           .gathers = true }));
    return hs_comm_all_reduce(comm, context->stream, scalings->maxima.data, (size_t)scalings->count, HS_F32,
                              HS_COMM_MAX);
}

HsStatus hs_model_roll_scales(HsModel *model, HsContext *context, HsComm *comm)
{
    HsModelScalings *const scalings = &model->scalings;
    const bool agrees = comm->size > 1 && hs_tensor_present(&scalings->history);
    if (scalings->count == 0)
        return HS_OK;
    if (agrees && !context->dry_run)
        HS_TRY(agree_on_maxima(scalings, context, comm));
    const HsRollScalesArgs args = { .scalings = scalings->now,
                                    .report = scalings->report,
                                    .count = scalings->count,
                                    .history = scalings->history,
                                    .maxima = agrees ? scalings->maxima : (HsTensor){ 0 },
                                    .most_recent = model->precision.scaling.most_recent,
                                    .margin = model->precision.scaling.margin };
    return hs_op_roll_scales(context, &args);
}

/* The records to the host, and back. */
static HsStatus copy_scalings(const HsModel *model, HsContext *context, HsScaling *host, bool back)
{
    HsDevice *const device = context->device;
    const HsModelScalings *const scalings = &model->scalings;
    const size_t bytes = (size_t)scalings->count * sizeof *host;
    HS_TRY(device->copy(device, context->stream, back ? (void *)scalings->now : (void *)host,
                        back ? (const void *)host : (const void *)scalings->now, bytes));
    return device->stream_sync(device, context->stream);
}

HsStatus hs_delayed_scales_read(const HsModel *model, HsContext *context, HsDelayedScales *scales)
{
    const size_t count = (size_t)model->scalings.count;
    HsScaling *const host = calloc(count, sizeof *host);
    scales->kept = calloc(count, sizeof *scales->kept);
    scales->recorded = calloc(count, sizeof *scales->recorded);
    HsStatus status = host && scales->kept && scales->recorded
                          ? copy_scalings(model, context, host, false)
                          : hs_fail(HS_ENOMEM, "no memory for %zu scales of a checkpoint", count);
    for (size_t i = 0; i < count && status == HS_OK; i++) {
        scales->kept[i] = host[i].kept;
        scales->recorded[i] = (int32_t)host[i].recorded;
    }
    free(host);
    return status;
}

HsStatus hs_delayed_scales_write(HsModel *model, HsContext *context, const HsDelayedScales *scales)
{
    const size_t count = (size_t)model->scalings.count;
    HsScaling *const host = calloc(count, sizeof *host);
    HsStatus status = host ? copy_scalings(model, context, host, false)
                           : hs_fail(HS_ENOMEM, "no memory for %zu scales of a checkpoint", count);
    model->scalings.begun = false;
    for (size_t i = 0; i < count && status == HS_OK; i++) {
        if (!(scales->kept[i] > 0.0f) || isinf(scales->kept[i]) || scales->recorded[i] < 0)
            status = hs_fail(HS_EFORMAT, "fp8.kept[%zu] is %g after %d steps: a scale is finite and above 0", i,
                             (double)scales->kept[i], scales->recorded[i]);
        host[i].kept = scales->kept[i];
        host[i].recorded = (uint32_t)scales->recorded[i];
        model->scalings.begun = model->scalings.begun || scales->recorded[i] > 0;
    }
    if (status == HS_OK)
        status = copy_scalings(model, context, host, true);
    free(host);
    return status;
}

void hs_delayed_scales_free(HsDelayedScales *scales)
{
    free(scales->kept);
    free(scales->recorded);
    *scales = (HsDelayedScales){ 0 };
}
