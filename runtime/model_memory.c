/* SPDX-License-Identifier: MIT
 *
 * The memory of a model's parameters: one arena a category, initial weights, and the copies that follow the masters.
 *
 *   master f32 --round--> weight 16-bit --pack--> packed for x w^T, packed for dy w
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/model.h"

/* Sites of initial weights, apart from those of dropout masks, which count from 1. */
#define INITIAL_SITE 0x80000000u

/* Bytes of a packed copy; 0 when this parameter has none. */
static size_t packed_bytes(const HsContext *context, const HsParam *param, const HsPacked *packed)
{
    if (!(param->flags & HS_PARAM_MATRIX) || context->backend->packed_bytes == NULL)
        return 0;
    return context->backend->packed_bytes(context, packed->dtype, packed->k, packed->n);
}

static void reserve_param(HsModel *model, const HsContext *context, HsParam *param, bool training, int states)
{
    param->offset_weight = hs_arena_reserve(&model->weights, hs_tensor_bytes(&param->weight));
    size_t forward = packed_bytes(context, param, &param->packed_forward);
    size_t backward = training ? packed_bytes(context, param, &param->packed_backward) : 0;
    if (forward > 0)
        param->offset_packed[0] = hs_arena_reserve(&model->packed, forward);
    if (backward > 0)
        param->offset_packed[1] = hs_arena_reserve(&model->packed, backward);
    if (!training)
        return;
    param->offset_gradient = hs_arena_reserve(&model->gradients, hs_tensor_bytes(&param->gradient));
    if (hs_tensor_present(&param->master))
        param->offset_master = hs_arena_reserve(&model->masters, hs_tensor_bytes(&param->master));
    for (int i = 0; i < states; i++) {
        param->state[i] = param->weight;
        param->state[i].dtype = model->precision.moment;
        param->offset_state[i] = hs_arena_reserve(&model->states, hs_tensor_bytes(&param->state[i]));
    }
}

/* Offsets become pointers. */
static void place_param(HsModel *model, const HsContext *context, HsParam *param, bool training, int states)
{
    param->weight.data = hs_arena_at(&model->weights, param->offset_weight);
    if (packed_bytes(context, param, &param->packed_forward) > 0)
        param->packed_forward.data = hs_arena_at(&model->packed, param->offset_packed[0]);
    if (!training) {
        param->master = (HsTensor){ 0 }; /* inference reads weights only */
        return;
    }
    if (packed_bytes(context, param, &param->packed_backward) > 0)
        param->packed_backward.data = hs_arena_at(&model->packed, param->offset_packed[1]);
    param->gradient.data = hs_arena_at(&model->gradients, param->offset_gradient);
    if (hs_tensor_present(&param->master))
        param->master.data = hs_arena_at(&model->masters, param->offset_master);
    for (int i = 0; i < states; i++)
        param->state[i].data = hs_arena_at(&model->states, param->offset_state[i]);
}

enum { ARENA_COUNT = 5 };

/* Lay every parameter out in arenas that have no memory yet. */
static void reserve_all(HsModel *model, HsContext *context, bool training, int optimizer_states,
                        HsArena *arenas[ARENA_COUNT])
{
    const struct {
        HsArena *arena;
        HsMemoryCategory category;
    } rows[ARENA_COUNT] = {
        { &model->weights, HS_MEMORY_WEIGHTS },     { &model->masters, HS_MEMORY_MASTERS },
        { &model->gradients, HS_MEMORY_GRADIENTS }, { &model->states, HS_MEMORY_MOMENTS },
        { &model->packed, HS_MEMORY_PACKED },
    };
    for (int i = 0; i < ARENA_COUNT; i++) {
        hs_arena_init(rows[i].arena, context->device, rows[i].category);
        arenas[i] = rows[i].arena;
    }
    for (int i = 0; i < model->param_count; i++)
        reserve_param(model, context, &model->params[i], training, optimizer_states);
}

HsStatus hs_model_commit(HsModel *model, HsContext *context, bool training, int optimizer_states)
{
    HsArena *arenas[ARENA_COUNT];
    reserve_all(model, context, training, optimizer_states, arenas);
    for (int i = 0; i < ARENA_COUNT; i++) {
        if (arenas[i]->used > 0)
            HS_TRY(hs_arena_commit(arenas[i]));
    }
    for (int i = 0; i < model->param_count; i++)
        place_param(model, context, &model->params[i], training, optimizer_states);
    return HS_OK;
}

/* Element 4i+j of a parameter comes from word pair j/2 of draw i: four normal numbers a draw. */
static void fill_normal(const HsTensor *tensor, uint64_t seed, uint32_t site, double deviation)
{
    HsRng rng = { .seed = seed, .site = site };
    int64_t count = hs_tensor_count(tensor);
    for (int64_t first = 0; first < count; first += 4) {
        HsPhilox bits = hs_rng_draw(&rng, (uint64_t)(first / 4));
        double normal[4];
        hs_rng_normal(bits.word[0], bits.word[1], normal);
        hs_rng_normal(bits.word[2], bits.word[3], normal + 2);
        for (int64_t j = 0; j < 4 && first + j < count; j++)
            hs_dtype_store(tensor->dtype, tensor->data, first + j, deviation * normal[j]);
    }
}

static void fill_constant(const HsTensor *tensor, double value)
{
    int64_t count = hs_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++)
        hs_dtype_store(tensor->dtype, tensor->data, i, value);
}

HsStatus hs_model_initialize(HsModel *model, HsContext *context, uint64_t seed, double init_std)
{
    HsStatus status = HS_OK;
    size_t largest = 0;
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        size_t bytes = hs_tensor_bytes(hs_tensor_present(&param->master) ? &param->master : &param->weight);
        largest = bytes > largest ? bytes : largest;
    }
    void *staging = malloc(largest);
    if (staging == NULL)
        return hs_fail(HS_ENOMEM, "model: no memory for %zu bytes of initial weights", largest);

    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        /* The master has the value; refresh rounds it into the weight.  Without one the weight is rounded here. */
        HsTensor target = hs_tensor_present(&param->master) ? param->master : param->weight;
        HsTensor host = target;
        host.data = staging;
        /* Each branch adds to the stream: 2 a layer, so its variance stays 1 when each is divided by sqrt(2 layers). */
        double deviation = param->flags & HS_PARAM_RESIDUAL ? init_std / sqrt(2.0 * (double)model->layers) : init_std;
        if (param->flags & (HS_PARAM_MATRIX | HS_PARAM_EMBEDDING))
            fill_normal(&host, seed, INITIAL_SITE | (uint32_t)i, deviation);
        else
            fill_constant(&host, param->flags & HS_PARAM_ONES ? 1.0 : 0.0);
        HS_TRY_GOTO(
            status,
            context->device->copy(context->device, context->stream, target.data, staging, hs_tensor_bytes(&host)),
            done);
        HS_TRY_GOTO(status, context->device->stream_sync(context->device, context->stream), done);
    }
    status = hs_model_refresh(model, context, true);
done:
    free(staging);
    return status;
}

static HsStatus pack(HsContext *context, HsParam *param, HsPacked *packed, bool transposed)
{
    if (packed->data == NULL)
        return HS_OK;
    HsPackWeightArgs args = { .w = param->weight, .transposed = transposed, .packed = packed };
    return hs_op_pack_weight(context, &args);
}

HsStatus hs_model_refresh(HsModel *model, HsContext *context, bool from_master)
{
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        if (from_master && hs_tensor_present(&param->master)) {
            HsConvertArgs round = { .x = param->master, .y = param->weight };
            HS_TRY(hs_op_convert(context, &round));
        }
        HS_TRY(pack(context, param, &param->packed_forward, true));
        HS_TRY(pack(context, param, &param->packed_backward, false));
    }
    return HS_OK;
}

int hs_model_spans(HsModel *model, HsSpan *spans)
{
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        spans[i] = (HsSpan){
            .name = param->name,
            .decay = (param->flags & HS_PARAM_DECAY) != 0,
            .learning_rate_scale = 1.0f,
            .weight = param->weight,
            .master = param->master,
            .gradient = param->gradient,
            .state = { param->state[0], param->state[1] },
            .tail = { .packed_transposed = &param->packed_forward, .packed = &param->packed_backward },
        };
    }
    return model->param_count;
}
