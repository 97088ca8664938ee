/* SPDX-License-Identifier: MIT
 *
 * The memory of a model's parameters: one arena a category, initial weights, and the copies that follow them.
 *
 *   (the optimizer's master f32 --round-->) weight 16-bit --pack--> packed for x w^T, packed for dy w
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/model/coded.h"
#include "runtime/model/quantized.h"

/* Sites of initial weights, apart from those of dropout masks, which count from 1. */
#define INITIAL_SITE 0x80000000u

/* Some of a parameter's first values, on their way: elements [first, first + count), first a multiple of 4. */
typedef struct Piece {
    HsDtype dtype;
    int64_t first, count;
    void *values;
} Piece;

enum { PIECE_NUMBERS = 1 << 20 };

/* U(from, to): element 4i+j from word j of draw i. */
static void fill_uniform(const Piece *piece, uint64_t seed, uint32_t site, double from, double to)
{
    HsRng rng = { .seed = seed, .site = site };
    const double middle = (from + to) / 2, bound = (to - from) / 2;
    for (int64_t at = 0; at < piece->count; at += 4) {
        HsPhilox bits = hs_rng_draw(&rng, (uint64_t)((piece->first + at) / 4));
        for (int64_t j = 0; j < 4 && at + j < piece->count; j++)
            hs_dtype_store(piece->dtype, piece->values, at + j,
                           middle + bound * (2.0 * (double)hs_rng_uniform(bits.word[j]) - 1.0));
    }
}

/* Bytes of a packed copy; 0 when this parameter has none.  With adapters the model has none in training: it would
 * stand in memory three times, and to pack it anew for each product takes one part in as many as a product has rows. */
static size_t packed_bytes(const HsContext *context, const HsParam *param, const HsOperand *copy, bool training)
{
    const bool stays = training && (param->beside_adapters || (param->streams && param->trainable));
    const HsPacked *const packed = hs_packed_of(copy);
    if (!hs_param_multiplies(param) || stays || param->stored.layout != HS_LAYOUT_ROWS || packed == NULL ||
        context->backend->packed_bytes == NULL)
        return 0;
    return context->backend->packed_bytes(context, packed->dtype, packed->k, packed->n);
}

/* The same of the copy for dy w, which only training reads, and only where it is computed. */
static size_t packed_backward_bytes(const HsContext *context, const HsParam *param, bool training)
{
    return training && param->passes_gradient ? packed_bytes(context, param, &param->backward, training) : 0;
}

static bool comes_later(const HsModel *model, const HsParam *param, bool training)
{
    return model->streams && training && param->trainable;
}

static void reserve_param(HsModel *model, const HsContext *context, HsParam *param, bool training)
{
    param->streams = model->streams;
    if (!comes_later(model, param, training))
        param->offset_stored = hs_arena_reserve(&model->weights, hs_param_weight_bytes(param));
    size_t forward = packed_bytes(context, param, &param->forward, training);
    size_t backward = packed_backward_bytes(context, param, training);
    if (forward > 0)
        param->offset_forward = hs_arena_reserve(&model->packed, forward);
    if (backward > 0)
        param->offset_backward = hs_arena_reserve(&model->packed, backward);
    if (training && param->trainable && !model->passing)
        param->offset_gradient = hs_arena_reserve(&model->gradients, hs_tensor_bytes(&param->gradient));
}

/* Offsets become pointers. */
static void place_param(HsModel *model, const HsContext *context, HsParam *param, bool training)
{
    void *const weight =
        comes_later(model, param, training) ? NULL : hs_arena_at(&model->weights, param->offset_stored);
    if (param->stored.layout != HS_LAYOUT_NF4)
        param->stored.values.data = weight;
    else if (weight)
        hs_nf4_place(&param->stored.nf4, weight);
    if (packed_bytes(context, param, &param->forward, training) > 0)
        param->forward.packed.data = hs_arena_at(&model->packed, param->offset_forward);
    if (packed_backward_bytes(context, param, training) > 0)
        param->backward.packed.data = hs_arena_at(&model->packed, param->offset_backward);
    if (training && param->trainable && !model->passing)
        param->gradient.data = hs_arena_at(&model->gradients, param->offset_gradient);
}

HsStatus hs_model_commit(HsModel *model, HsContext *context, bool training)
{
    const struct {
        HsArena *arena;
        HsMemoryCategory category;
    } rows[] = {
        { &model->weights, model->teacher ? HS_MEMORY_TEACHER : HS_MEMORY_WEIGHTS },
        { &model->gradients, HS_MEMORY_GRADIENTS },
        { &model->packed, model->teacher ? HS_MEMORY_TEACHER : HS_MEMORY_PACKED },
    };
    enum { ARENAS = sizeof rows / sizeof rows[0] };
    for (int i = 0; i < ARENAS; i++)
        hs_arena_init(rows[i].arena, context->device, rows[i].category);
    for (int i = 0; i < model->param_count; i++)
        reserve_param(model, context, &model->params[i], training);
    hs_coded_reserve(model, training);
    for (int i = 0; i < ARENAS; i++) {
        if (rows[i].arena->used > 0)
            HS_TRY(hs_arena_commit(rows[i].arena));
    }
    for (int i = 0; i < model->param_count; i++)
        place_param(model, context, &model->params[i], training);
    hs_coded_place(model, training);
    return hs_coded_begin(model, context);
}

/* Element 4i+j of a parameter comes from word pair j/2 of draw i: four normal numbers a draw. */
static void fill_normal(const Piece *piece, uint64_t seed, uint32_t site, double deviation)
{
    HsRng rng = { .seed = seed, .site = site };
    for (int64_t at = 0; at < piece->count; at += 4) {
        HsPhilox bits = hs_rng_draw(&rng, (uint64_t)((piece->first + at) / 4));
        double normal[4];
        hs_rng_normal(bits.word[0], bits.word[1], normal);
        hs_rng_normal(bits.word[2], bits.word[3], normal + 2);
        for (int64_t j = 0; j < 4 && at + j < piece->count; j++)
            hs_dtype_store(piece->dtype, piece->values, at + j, deviation * normal[j]);
    }
}

/* `count` elements of the whole parameter. */
static void fill_line(const Piece *piece, int64_t count, double from, double to)
{
    for (int64_t i = 0; i < piece->count; i++)
        hs_dtype_store(piece->dtype, piece->values, i,
                       from + (to - from) * (double)(piece->first + i) / (double)(count > 1 ? count - 1 : 1));
}

/* The first values of parameter `index`, in the format of its master, whether it has one or not. */
static void draw_values(const HsModel *model, int index, uint64_t seed, double init_std, const Piece *values)
{
    const HsParam *param = &model->params[index];
    const uint32_t site = INITIAL_SITE | (uint32_t)index;
    const double bound = 1.0 / sqrt((double)param->shape[1]);
    switch (param->start) {
    case HS_START_ZERO:
    case HS_START_ONE:
        fill_line(values, 1, param->start == HS_START_ONE ? 1.0 : 0.0, param->start == HS_START_ONE ? 1.0 : 0.0);
        return;
    case HS_START_NORMAL:
        fill_normal(values, seed, site, param->start_to > 0 ? param->start_to : init_std);
        return;
    case HS_START_RESIDUAL:
        /* Each branch adds to the stream: 2 a layer, so its variance stays 1 when each is divided by sqrt(2 layers). */
        fill_normal(values, seed, site, init_std / sqrt(2.0 * (double)model->layers));
        return;
    case HS_START_UNIFORM:
        fill_uniform(values, seed, site, -bound, bound);
        return;
    case HS_START_BETWEEN:
        fill_uniform(values, seed, site, param->start_from, param->start_to);
        return;
    case HS_START_LINE:
        fill_line(values, hs_tensor_count(&param->stored.values), param->start_from, param->start_to);
        return;
    }
}

/* Those that the target holds, the first element of which is the parameter's `at`. */
static HsStatus send(HsContext *context, const HsTensor *target, int64_t at, const Piece *piece)
{
    HsDevice *device = context->device;
    const int64_t target_end = at + hs_tensor_count(target), piece_end = piece->first + piece->count;
    const int64_t first = at > piece->first ? at : piece->first, end = target_end < piece_end ? target_end : piece_end;
    const size_t bytes = hs_dtype_bytes(piece->dtype);
    if (first >= end)
        return HS_OK;
    HS_TRY(device->copy(device, context->stream, (unsigned char *)target->data + (size_t)(first - at) * bytes,
                        (const unsigned char *)piece->values + (size_t)(first - piece->first) * bytes,
                        (size_t)(end - first) * bytes));
    return device->stream_sync(device, context->stream);
}

/* All values of the parameter, as wide as a master, into four bits; their memory is used up. */
static HsStatus quantize(HsContext *context, const HsParam *param, const Piece *values)
{
    float *const wide = values->values;
    int64_t first = 0;
    const bool grows = hs_dtype_bytes(values->dtype) < sizeof *wide; /* in place: what is unread must not be written */
    const int64_t count_all = values->dtype == HS_F32 ? 0 : values->count;
    for (int64_t i = 0; i < count_all; i++) {
        const int64_t at = grows ? count_all - 1 - i : i;
        wide[at] = (float)hs_dtype_load(values->dtype, values->values, at);
    }
    for (int part = 0; part < hs_param_stored_parts(param); part++) {
        const int64_t count = hs_param_stored_rows(param, part) * param->shape[1];
        HS_TRY(hs_quantized_set(&param->stored.nf4, first, count, wide + first, context));
        first += count;
    }
    return HS_OK;
}

static HsDtype wider(HsDtype a, HsDtype b)
{
    return hs_dtype_bytes(a) > hs_dtype_bytes(b) ? a : b;
}

/* To the masters and weights that hold them; spans [first, end) are the parameter's. */
static HsStatus send_piece(const HsModel *model, HsContext *context, const HsParam *param, Piece *piece,
                           const HsSpan *spans, int first, int end)
{
    const HsTensor *weight = &param->stored.values;
    for (int s = first; s < end; s++)
        if (hs_tensor_present(&spans[s].master))
            HS_TRY(send(context, &spans[s].master, spans[s].first, piece));
    if (param->stored.layout == HS_LAYOUT_NF4)
        return quantize(context, param, piece);
    for (int64_t e = 0; weight->dtype != piece->dtype && e < piece->count; e++)
        hs_dtype_store(weight->dtype, piece->values, e, hs_dtype_load(piece->dtype, piece->values, e));
    piece->dtype = weight->dtype;
    if (weight->data || !model->streams)
        HS_TRY(send(context, weight, 0, piece));
    for (int s = first; s < end && model->streams; s++)
        HS_TRY(send(context, &spans[s].weight, spans[s].first, piece));
    return HS_OK;
}

static bool is_drawn(const HsParam *param, bool adapters_only)
{
    return !adapters_only || param->role == HS_PARAM_ADAPTER;
}

/* What is quantized is so as a whole. */
static int64_t piece_numbers(const HsParam *param)
{
    const int64_t count = hs_tensor_count(&param->stored.values);
    return param->stored.layout == HS_LAYOUT_NF4 || count < PIECE_NUMBERS ? count : PIECE_NUMBERS;
}

/* The first values of some parameters: of all, or of adapters alone. */
static HsStatus draw(HsModel *model, HsContext *context, uint64_t seed, double init_std, const HsSpan *spans,
                     int span_count, bool adapters_only)
{
    HsStatus status = HS_OK;
    int64_t largest = 0;
    for (int i = 0; i < model->param_count; i++) {
        const int64_t count = is_drawn(&model->params[i], adapters_only) ? piece_numbers(&model->params[i]) : 0;
        largest = count > largest ? count : largest;
    }
    if (largest == 0)
        return HS_OK;
    void *staging = malloc((size_t)largest * sizeof(double));
    if (staging == NULL)
        return hs_fail(HS_ENOMEM, "model: no memory for the initial values of %lld numbers", (long long)largest);
    for (int i = 0, span = 0; i < model->param_count && status == HS_OK; i++) {
        const HsParam *param = &model->params[i];
        const int64_t count = hs_tensor_count(&param->stored.values), most = piece_numbers(param);
        if (!is_drawn(param, adapters_only))
            continue;
        while (span < span_count && spans[span].parameter < i)
            span++;
        const int first_span = span;
        while (span < span_count && spans[span].parameter == i)
            span++;
        for (int64_t first = 0; first < count && status == HS_OK; first += most) {
            Piece piece = { wider(model->precision.master, param->stored.values.dtype), first,
                            count - first < most ? count - first : most, staging };
            draw_values(model, i, seed, init_std, &piece);
            status = send_piece(model, context, param, &piece, spans, first_span, span);
        }
    }
    free(staging);
    return status;
}

HsStatus hs_model_initialize(HsModel *model, HsContext *context, uint64_t seed, double init_std, const HsSpan *spans,
                             int span_count)
{
    HS_TRY(draw(model, context, seed, init_std, spans, span_count, false));
    return hs_model_pack(model, context);
}

HsStatus hs_model_initialize_adapters(HsModel *model, HsContext *context, uint64_t seed, const HsSpan *spans,
                                      int span_count)
{
    return draw(model, context, seed, 0, spans, span_count, true);
}

static HsStatus pack(HsContext *context, const HsParam *param, HsOperand *copy, bool transposed)
{
    if (copy->layout != HS_LAYOUT_PACKED || copy->packed.data == NULL)
        return HS_OK;
    HsPackWeightArgs args = { .w = param->stored.values, .transposed = transposed, .packed = &copy->packed };
    return hs_op_pack_weight(context, &args);
}

HsStatus hs_model_pack(HsModel *model, HsContext *context)
{
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        HS_TRY(pack(context, param, &param->forward, true));
        HS_TRY(pack(context, param, &param->backward, false));
    }
    model->scalings.stale = true;
    return HS_OK;
}

static unsigned uses_of(const HsParam *param)
{
    static const unsigned uses[] = {
        [HS_PARAM_MATRIX] = HS_SPAN_MULTIPLIES, [HS_PARAM_VECTOR] = 0,  [HS_PARAM_EMBEDDING] = HS_SPAN_IS_LOOKED_UP,
        [HS_PARAM_HEAD] = HS_SPAN_MAKES_LOGITS, [HS_PARAM_ADAPTER] = 0,
    };
    return uses[param->role] | (param->tied ? HS_SPAN_MAKES_LOGITS : 0u);
}

static HsPacked *packed_in(HsOperand *copy)
{
    return copy->layout == HS_LAYOUT_PACKED ? &copy->packed : NULL;
}

int hs_model_spans(HsModel *model, HsSpan *spans)
{
    int count = 0;
    for (int i = 0; i < model->param_count; i++) {
        HsParam *param = &model->params[i];
        if (!param->trainable)
            continue;
        spans[count++] = (HsSpan){
            .name = param->name,
            .parameter = i,
            .count = hs_tensor_count(&param->stored.values),
            .part_count = param->role == HS_PARAM_MATRIX || param->role == HS_PARAM_ADAPTER ? param->part_count : 0,
            .part_rows = param->part_rows,
            .head_rows = param->head_rows,
            .adapts = param->start == HS_START_UNIFORM,
            .uses = uses_of(param),
            .decay = param->rank == 2, /* gains and biases are not shrunk (GPT-2's recipe) */
            .learning_rate_scale = 1.0f,
            .weight = param->stored.values,
            .gradient = param->gradient,
            .epilogue = { .packed_transposed = packed_in(&param->forward), .packed = packed_in(&param->backward) },
        };
    }
    return count;
}
