/* SPDX-License-Identifier: MIT
 *
 * Generation runs an evaluation program of one sequence, a few rows at a time, at growing positions; or of several
 * sequences, one row each at a time.  Attention gets
 * a cache of all earlier keys and values, everything else is as in evaluation, so logits equal the full forward's up to
 * the order in which attention sums.
 *
 * A layer with a window W keeps the last W - 1 keys and values at least, and has room for as many again: when that is
 * full, those that are still seen move to its beginning, once in W tokens.  A smear keeps its rows, the last of which the
 * next token reads.
 *
 * Tokens are fed in pieces with sizes that are powers of two: each size was tried in a dry run, so scratch is known.
 */
#include "runtime/engine/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "kernels/ops/logit_cap.h"
#include "runtime/engine/program_internal.h"

enum { LARGEST_PIECE = 64 };

struct HsDecoder {
    HsModel *model;
    HsProgram program;
    int64_t batch;
    int64_t piece; /* rows of the program, of each sequence */
    int64_t position, max_tokens;
    HsArena arena;
    HsKeyValueCache *caches; /* per node; rank 0 where nothing is kept */
    HsTensor device_logits;  /* [batch,V] */
    void *host_logits;       /* the same, as it came from the device */
    float *logits;           /* [batch,V] */
};

/* What a row of a node's cache is wide; 0: it has none. */
static int64_t kept_columns(const HsModel *model, const HsNode *node)
{
    return node->layer == &hs_layer_attention ? model->kv_heads * model->head_dim
           : node->layer == &hs_layer_smear   ? model->width
                                              : 0;
}

/* Rows of a node's cache. */
static int64_t room_of(const HsDecoder *decoder, const HsNode *node)
{
    const int64_t window = node->attributes.score.window;
    const int64_t room = 2 * (window - 1) + decoder->piece;
    return window > 0 && room < decoder->max_tokens ? room : decoder->max_tokens;
}

/* Caches and logits share an arena; offsets come first, pointers after the commit. */
static HsStatus place_caches(HsDecoder *decoder, HsContext *context)
{
    const HsModel *model = decoder->model;
    hs_arena_init(&decoder->arena, context->device, HS_MEMORY_CACHES);
    size_t logits_offset = hs_arena_reserve(&decoder->arena, hs_tensor_bytes(&decoder->device_logits));
    const size_t begin = decoder->arena.used;
    for (int s = 0; s < model->node_count; s++) {
        const int64_t columns = kept_columns(model, &model->nodes[s]);
        const bool pairs = model->nodes[s].layer == &hs_layer_attention;
        if (columns == 0)
            continue;
        const HsTensor cache = hs_tensor_3d(NULL, pairs ? model->precision.activation : model->precision.residual,
                                            decoder->batch, room_of(decoder, &model->nodes[s]), columns);
        decoder->caches[s] = (HsKeyValueCache){ .keys = cache, .values = pairs ? cache : (HsTensor){ 0 } };
        hs_arena_reserve(&decoder->arena, hs_tensor_bytes(&cache));
        if (pairs)
            hs_arena_reserve(&decoder->arena, hs_tensor_bytes(&cache));
    }
    HS_TRY(hs_arena_commit(&decoder->arena));
    decoder->device_logits.data = hs_arena_at(&decoder->arena, logits_offset);
    size_t offset = begin;
    for (int s = 0; s < model->node_count; s++) {
        HsKeyValueCache *cache = &decoder->caches[s];
        const size_t bytes = hs_tensor_bytes(&cache->keys);
        if (!hs_tensor_present(&cache->keys))
            continue;
        const size_t stride = (bytes + HS_ARENA_ALIGNMENT - 1) / HS_ARENA_ALIGNMENT * HS_ARENA_ALIGNMENT;
        cache->keys.data = hs_arena_at(&decoder->arena, offset);
        offset += stride;
        if (!hs_tensor_present(&cache->values))
            continue;
        cache->values.data = hs_arena_at(&decoder->arena, offset);
        offset += stride;
    }
    return HS_OK;
}

/* Rows [from, from + count) of each sequence to its beginning; they do not overlap. */
static HsStatus move_rows(const HsDecoder *decoder, HsContext *context, const HsTensor *cache, int64_t from,
                          int64_t count)
{
    HsDevice *device = context->device;
    const size_t row = (size_t)cache->shape[2] * hs_dtype_bytes(cache->dtype);
    for (int64_t b = 0; b < decoder->batch && !context->dry_run && count > 0; b++) {
        unsigned char *sequence = (unsigned char *)cache->data + (size_t)(b * cache->shape[1]) * row;
        HS_TRY(device->copy(device, context->stream, sequence, sequence + (size_t)from * row, (size_t)count * row));
    }
    return HS_OK;
}

/* Room for `count` rows at the position in every cache. */
static HsStatus make_room(const HsDecoder *decoder, HsContext *context, int64_t position, int64_t count)
{
    for (int s = 0; s < decoder->model->node_count; s++) {
        HsKeyValueCache *cache = &decoder->caches[s];
        if (!hs_tensor_present(&cache->keys) || position - cache->first + count <= cache->keys.shape[1])
            continue;
        const int64_t held = position - cache->first, seen = decoder->model->nodes[s].attributes.score.window - 1;
        HS_TRY(move_rows(decoder, context, &cache->keys, held - seen, seen));
        HS_TRY(move_rows(decoder, context, &cache->values, held - seen, seen));
        cache->first = position - seen;
    }
    return HS_OK;
}

/* Every node but the loss over `count` rows of each sequence at the current position, then the head on the last row of
 * each: several sequences have one. */
static HsStatus run_piece(const HsDecoder *decoder, HsContext *context, int64_t position, int64_t count)
{
    const HsProgram *program = &decoder->program;
    const HsModel *model = decoder->model;
    const int64_t rows = decoder->batch * count;
    HsExecution execution = { .batch = decoder->batch,
                              .sequence_length = count,
                              .position_start = position,
                              .caches = decoder->caches,
                              .without_head = true };
    HS_TRY(make_room(decoder, context, position, count));
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    const HsAction *head = &program->actions[program->action_count - 1];
    assert(head->node == model->loss_node);
    HsTensor hidden = hs_program_tensor(program, head->inputs[0], rows);
    const HsNode *node = &model->nodes[head->node];
    return hs_layer_head_logits(context, &model->precision, &model->params[node->params[0]],
                                node->attributes.logit_factor,
                                hs_tensor_rows(hidden, rows - decoder->batch, decoder->batch), decoder->device_logits);
}

static HsStatus plan_pieces(HsDecoder *decoder, HsContext *context)
{
    HS_TRY(hs_program_create(decoder->model, context, decoder->batch, decoder->piece, false, HS_RECOMPUTE_NONE, 1,
                             &decoder->program));
    HsContext dry = *context;
    dry.dry_run = true;
    dry.observer = NULL;
    dry.workspace_needed = decoder->program.workspace_bytes;
    for (int64_t count = decoder->piece; count > 0; count /= 2)
        HS_TRY(run_piece(decoder, &dry, decoder->max_tokens - count, count));
    for (int s = 0; s < decoder->model->node_count; s++)
        decoder->caches[s].first = 0;
    decoder->program.workspace_bytes = dry.workspace_needed;
    return hs_program_commit(&decoder->program, context);
}

HsStatus hs_decoder_create(HsModel *model, HsContext *context, int64_t batch, int64_t max_tokens, HsDecoder **decoder)
{
    *decoder = NULL;
    if (max_tokens < 1)
        return hs_fail(HS_EINVAL, "decoder: max_tokens must be at least 1 (got %" PRId64 ")", max_tokens);
    if (model->max_positions > 0 && max_tokens > model->max_positions)
        return hs_fail(HS_EINVAL,
                       "decoder: %" PRId64 " tokens asked for, but the model has learned %" PRId64
                       " positions: ask for fewer",
                       max_tokens, model->max_positions);
    HsStatus status = HS_OK;
    HsDecoder *made = calloc(1, sizeof *made);
    if (made == NULL)
        return hs_fail(HS_ENOMEM, "decoder: no memory");
    made->model = model;
    made->batch = batch;
    made->max_tokens = max_tokens;
    made->piece = 1;
    while (batch == 1 && made->piece * 2 <= max_tokens && made->piece < LARGEST_PIECE)
        made->piece *= 2;
    made->device_logits = hs_tensor_2d(NULL, model->precision.statistic, batch, model->vocabulary);
    made->caches = calloc((size_t)model->node_count, sizeof *made->caches);
    made->host_logits = malloc(hs_tensor_bytes(&made->device_logits));
    made->logits = malloc((size_t)(batch * model->vocabulary) * sizeof *made->logits);
    if (!made->caches || !made->host_logits || !made->logits) {
        status = hs_fail(HS_ENOMEM, "decoder: no memory for tables of %d nodes and %" PRId64 " logits",
                         model->node_count, model->vocabulary);
        goto failed;
    }
    HS_TRY_GOTO(status, place_caches(made, context), failed);
    HS_TRY_GOTO(status, plan_pieces(made, context), failed);
    *decoder = made;
    return HS_OK;
failed:
    hs_decoder_destroy(made);
    return status;
}

void hs_decoder_destroy(HsDecoder *decoder)
{
    if (decoder == NULL)
        return;
    hs_program_destroy(&decoder->program);
    if (decoder->arena.device)
        hs_arena_deinit(&decoder->arena);
    free(decoder->caches);
    free(decoder->host_logits);
    free(decoder->logits);
    free(decoder);
}

void hs_decoder_reset(HsDecoder *decoder)
{
    (void)hs_decoder_rewind(decoder, 0);
}

int64_t hs_decoder_rewind(HsDecoder *decoder, int64_t tokens)
{
    assert(tokens >= 0 && tokens <= decoder->position);
    const HsModel *model = decoder->model;
    bool gone = false; /* what a window sees from there */
    for (int s = 0; s < model->node_count; s++) {
        const HsKeyValueCache *cache = &decoder->caches[s];
        gone |= cache->first > 0 && cache->first > tokens - model->nodes[s].attributes.score.window + 1;
    }
    /* What the caches hold beyond the position is never read. */
    decoder->position = gone ? 0 : tokens;
    for (int s = 0; s < model->node_count && decoder->position == 0; s++)
        decoder->caches[s].first = 0;
    return decoder->position;
}

static HsStatus check_tokens(const HsDecoder *decoder, const int32_t *tokens, int64_t count)
{
    const int64_t positions = decoder->batch > 1 ? 1 : count;
    assert(decoder->batch == 1 || count == decoder->batch);
    if (count < 1 || decoder->position + positions > decoder->max_tokens)
        return hs_fail(HS_EINVAL,
                       "decoder: %" PRId64 " tokens at position %" PRId64 " do not fit its %" PRId64 " positions",
                       positions, decoder->position, decoder->max_tokens);
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= decoder->model->vocabulary)
            return hs_fail(HS_EINVAL, "decoder: token %" PRId32 " is not in the vocabulary of %" PRId64, tokens[i],
                           decoder->model->vocabulary);
    }
    return HS_OK;
}

static HsStatus feed_pieces(HsDecoder *decoder, HsContext *context, const int32_t *tokens, int64_t count)
{
    if (decoder->batch > 1) {
        HS_TRY(hs_program_load_inputs(&decoder->program, context, tokens, NULL, count));
        return run_piece(decoder, context, decoder->position++, 1);
    }
    while (count > 0) {
        int64_t piece = decoder->piece;
        while (piece > count)
            piece /= 2;
        HS_TRY(hs_program_load_inputs(&decoder->program, context, tokens, NULL, piece));
        HS_TRY(run_piece(decoder, context, decoder->position, piece));
        decoder->position += piece;
        tokens += piece;
        count -= piece;
    }
    return HS_OK;
}

HsStatus hs_decoder_feed(HsDecoder *decoder, HsContext *context, const int32_t *tokens, int64_t count,
                         const float **logits)
{
    HS_TRY(check_tokens(decoder, tokens, count));
    HsProgramWorkspace outer = hs_program_enter(&decoder->program, context);
    HsStatus status = feed_pieces(decoder, context, tokens, count);
    hs_program_leave(context, outer);
    HS_TRY(status);

    HsDevice *device = context->device;
    const HsTensor *made = &decoder->device_logits;
    const float cap = decoder->model->nodes[decoder->model->loss_node].attributes.logit_cap;
    HS_TRY(device->copy(device, context->stream, decoder->host_logits, made->data, hs_tensor_bytes(made)));
    HS_TRY(device->stream_sync(device, context->stream));
    for (int64_t v = 0; v < hs_tensor_count(made); v++)
        decoder->logits[v] = hs_cap_logit((float)hs_dtype_load(made->dtype, decoder->host_logits, v), cap);
    *logits = decoder->logits;
    return HS_OK;
}
