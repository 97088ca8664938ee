/* SPDX-License-Identifier: MIT
 *
 * Generation runs an evaluation program of one sequence, a few rows at a time, at growing positions; or of several
 * sequences, one row each at a time.  Attention gets
 * a cache of all earlier keys and values, everything else is as in evaluation, so logits equal the full forward's up to
 * the order in which attention sums.
 *
 * Tokens are fed in pieces with sizes that are powers of two: each size was tried in a dry run, so scratch is known.
 */
#include "runtime/engine/decode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "runtime/engine/program_internal.h"

enum { LARGEST_PIECE = 64 };

struct HsDecoder {
    HsModel *model;
    HsProgram program;
    int64_t batch;
    int64_t piece; /* rows of the program, of each sequence */
    int64_t position, max_tokens;
    HsArena caches;
    HsTensor *k_caches, *v_caches; /* per node; rank 0 where there is no attention */
    HsTensor device_logits;        /* [batch,V] */
    void *host_logits;             /* the same, as it came from the device */
    float *logits;                 /* [batch,V] */
};

/* Caches and logits share an arena; offsets come first, pointers after the commit. */
static HsStatus place_caches(HsDecoder *decoder, HsContext *context)
{
    const HsModel *model = decoder->model;
    HsTensor cache = hs_tensor_3d(NULL, model->precision.activation, decoder->batch, decoder->max_tokens,
                                  model->kv_heads * model->head_dim);
    size_t bytes = hs_tensor_bytes(&cache);
    hs_arena_init(&decoder->caches, context->device, HS_MEMORY_CACHES);
    size_t logits_offset = hs_arena_reserve(&decoder->caches, hs_tensor_bytes(&decoder->device_logits));
    size_t first = decoder->caches.used;
    for (int s = 0; s < model->node_count; s++) {
        if (model->nodes[s].layer != &hs_layer_attention)
            continue;
        decoder->k_caches[s] = decoder->v_caches[s] = cache;
        hs_arena_reserve(&decoder->caches, bytes);
        hs_arena_reserve(&decoder->caches, bytes);
    }
    HS_TRY(hs_arena_commit(&decoder->caches));
    decoder->device_logits.data = hs_arena_at(&decoder->caches, logits_offset);
    size_t stride = (bytes + HS_ARENA_ALIGNMENT - 1) / HS_ARENA_ALIGNMENT * HS_ARENA_ALIGNMENT;
    for (int s = 0; s < model->node_count; s++) {
        if (!hs_tensor_present(&decoder->k_caches[s]))
            continue;
        decoder->k_caches[s].data = hs_arena_at(&decoder->caches, first);
        decoder->v_caches[s].data = hs_arena_at(&decoder->caches, first + stride);
        first += 2 * stride;
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
                              .k_caches = decoder->k_caches,
                              .v_caches = decoder->v_caches,
                              .without_head = true };
    HS_TRY(hs_program_run(program, context, &execution, NULL, NULL));
    const HsAction *head = &program->actions[program->action_count - 1];
    assert(head->node == model->loss_node);
    HsTensor hidden = hs_program_tensor(program, head->inputs[0], rows);
    const HsParam *weight = &model->params[model->nodes[head->node].params[0]];
    return hs_layer_head_logits(context, &model->precision, weight,
                                hs_tensor_rows(hidden, rows - decoder->batch, decoder->batch), decoder->device_logits);
}

static HsStatus plan_pieces(HsDecoder *decoder, HsContext *context)
{
    HS_TRY(hs_program_create(decoder->model, context, decoder->batch, decoder->piece, false, HS_RECOMPUTE_NONE, 1,
                             &decoder->program));
    HsContext dry = *context;
    dry.dry_run = true;
    dry.workspace_needed = decoder->program.workspace_bytes;
    for (int64_t count = decoder->piece; count > 0; count /= 2)
        HS_TRY(run_piece(decoder, &dry, decoder->max_tokens - count, count));
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
    made->k_caches = calloc((size_t)model->node_count, sizeof *made->k_caches);
    made->v_caches = calloc((size_t)model->node_count, sizeof *made->v_caches);
    made->host_logits = malloc(hs_tensor_bytes(&made->device_logits));
    made->logits = malloc((size_t)(batch * model->vocabulary) * sizeof *made->logits);
    if (!made->k_caches || !made->v_caches || !made->host_logits || !made->logits) {
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
    if (decoder->caches.device)
        hs_arena_deinit(&decoder->caches);
    free(decoder->k_caches);
    free(decoder->v_caches);
    free(decoder->host_logits);
    free(decoder->logits);
    free(decoder);
}

void hs_decoder_reset(HsDecoder *decoder)
{
    hs_decoder_rewind(decoder, 0);
}

void hs_decoder_rewind(HsDecoder *decoder, int64_t tokens)
{
    /* What the caches hold beyond the position is never read. */
    assert(tokens >= 0 && tokens <= decoder->position);
    decoder->position = tokens;
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
    HS_TRY(device->copy(device, context->stream, decoder->host_logits, made->data, hs_tensor_bytes(made)));
    HS_TRY(device->stream_sync(device, context->stream));
    for (int64_t v = 0; v < hs_tensor_count(made); v++)
        decoder->logits[v] = (float)hs_dtype_load(made->dtype, decoder->host_logits, v);
    *logits = decoder->logits;
    return HS_OK;
}
