/* SPDX-License-Identifier: MIT
 *
 * From the corpus to token streams: encode piece by piece, mask, split, and count what is known about the result.
 *
 *     pieces   | doc 0 | prompt | completion | doc 2 ...
 *     tokens   [ ..  end  ..  ..  ..      end   .. ...     starts[i]: first token of piece i
 *     mask     [ 1 .. 1 1  0 .. 0  1 .. 1  1    1 ...
 */
#include "runtime/data/dataset_build.h"
#include "runtime/data/source/chat.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

HsStatus hs_dataset_blame_task(const HsDatasetBuild *building, HsStatus status)
{
    if (status == HS_OK || building->config->task_count < 2)
        return status;
    return hs_error_prefix(status, "task %s", building->task->name);
}

static HsStatus encode_piece(const HsDatasetBuild *building, const HsPiece *piece, HsTokens *tokens)
{
    const HsCorpus *corpus = &building->corpus;
    if (piece->is_tokens) {
        HS_TRY(hs_tokens_reserve(tokens, (int64_t)piece->length));
        memcpy(tokens->items + tokens->count, corpus->tokens.items + piece->start, piece->length * sizeof(int32_t));
        tokens->count += (int64_t)piece->length;
    } else if (piece->length > 0) {
        HsStatus status = hs_tokenizer_encode(building->tokenizer, corpus->text + piece->start, piece->length, tokens);
        if (status != HS_OK)
            return hs_dataset_blame(building, piece, status);
    }
    int32_t end = hs_tokenizer_end_of_text(building->tokenizer);
    if (piece->ends_document && end >= 0) {
        HS_TRY(hs_tokens_reserve(tokens, 1));
        tokens->items[tokens->count++] = end;
    }
    return HS_OK;
}

/* Before the first conversation: the tokenizer has what its template writes. */
static HsStatus check_chat(const HsDatasetBuild *building)
{
    int32_t end;
    return hs_chat_end_token(hs_chat_template_get(building->config->tokenizer.chat_template), building->tokenizer,
                             &end);
}

/* The conversation that begins with pieces[0], of `count`; starts as hs_chat_encode has them. */
static HsStatus encode_chat(HsDatasetBuild *building, const HsPiece *pieces, int64_t count, HsTokens *tokens,
                            int64_t *starts)
{
    HsChatLengths *lengths = &building->chats;
    const int64_t first = tokens->count, most = building->config->training.max_length;
    if (lengths->count++ == 0)
        HS_TRY(check_chat(building));
    HsStatus status = hs_chat_encode(building->tokenizer, building->corpus.text, pieces, count, tokens, starts);
    if (status != HS_OK)
        return hs_dataset_blame(building, pieces, status);
    const int64_t length = tokens->count - first;
    if (length <= most)
        return HS_OK;
    lengths->longer++;
    if (length > lengths->longest)
        lengths->longest = length;
    for (int64_t i = 0; i < count; i++) {
        const int64_t end = (i + 1 < count ? starts[i + 1] : tokens->count) - first, begin = starts[i] - first;
        if (pieces[i].counted && end > most)
            lengths->answers_beyond += end - (begin > most ? begin : most);
    }
    return HS_OK;
}

/* The loss mask of pieces with the first tokens `starts`; NULL when every token counts. */
static HsStatus make_mask(const HsPiece *pieces, int64_t count, const int64_t *starts, uint8_t **mask)
{
    int64_t uncounted = 0;
    for (int64_t i = 0; i < count; i++)
        uncounted += pieces[i].counted ? 0 : 1;
    *mask = NULL;
    if (uncounted == 0)
        return HS_OK;
    *mask = malloc((size_t)starts[count] + 1);
    if (!*mask)
        return hs_fail(HS_ENOMEM, "no memory for the loss mask of %" PRId64 " tokens", starts[count]);
    for (int64_t i = 0; i < count; i++)
        memset(*mask + starts[i], pieces[i].counted, (size_t)(starts[i + 1] - starts[i]));
    return HS_OK;
}

/* Pieces [first, last) to one stream; leaves the pieces' first tokens in building->starts. */
static HsStatus encode(HsDatasetBuild *building, int64_t first, int64_t last, HsStreamTokens *stream)
{
    const HsPiece *pieces = building->corpus.pieces;
    int64_t *starts = building->starts;
    HsTokens tokens = { 0 };
    HsStatus status = HS_OK;
    for (int64_t i = first, count; status == HS_OK && i < last; i += count) {
        count = pieces[i].chat ? hs_chat_piece_count(pieces + i, last - i) : 1;
        starts[i - first] = tokens.count;
        status = pieces[i].chat ? encode_chat(building, pieces + i, count, &tokens, starts + (i - first))
                                : encode_piece(building, &pieces[i], &tokens);
    }
    starts[last - first] = tokens.count;
    if (status == HS_OK)
        status = make_mask(pieces + first, last - first, starts, &stream->loss_mask);
    if (status != HS_OK) {
        hs_tokens_deinit(&tokens);
        return status;
    }
    stream->count = tokens.count;
    stream->tokens = tokens.items; /* the stream owns them now */
    return HS_OK;
}

/* Documents, and the floor: the pieces' information content over the tokens.  Tokens and text determine each other, so
 * it holds for any tokenizer; an end-of-text token follows from the text before it and costs nothing.  NAN as soon as
 * one piece's content is unknown. */
static void describe(const HsPiece *pieces, int64_t count, HsStreamTokens *stream)
{
    double nats = 0;
    stream->documents = 0;
    for (int64_t i = 0; i < count; i++) {
        nats += pieces[i].nats;
        stream->documents += pieces[i].ends_document || pieces[i].is_tokens;
    }
    stream->entropy_floor = stream->count > 0 ? nats / (double)stream->count : NAN;
}

/* Moves the tail of the train stream, from token `cut` on, to the validation stream. */
static HsStatus move_tail(HsDataset *dataset, int64_t cut)
{
    HsStreamTokens *train = &dataset->train, *validation = &dataset->validation;
    size_t count = (size_t)(train->count - cut);
    validation->tokens = malloc((count + 1) * sizeof(int32_t));
    validation->loss_mask = train->loss_mask ? malloc(count + 1) : NULL;
    if (!validation->tokens || (train->loss_mask && !validation->loss_mask))
        return hs_fail(HS_ENOMEM, "no memory for %zu validation tokens", count);
    memcpy(validation->tokens, train->tokens + cut, count * sizeof(int32_t));
    if (train->loss_mask)
        memcpy(validation->loss_mask, train->loss_mask + cut, count);
    validation->count = (int64_t)count;
    train->count = cut;
    return HS_OK;
}

/* Where conversations, or documents with their own rows, stay whole: the nearer end, but not the very first or last. */
static void cut_between_documents(const HsPiece *pieces, int64_t count, const int64_t *starts, int64_t *piece,
                                  int64_t *cut)
{
    int64_t begin = *piece, end = *piece + 1;
    while (begin > 0 && !pieces[begin - 1].ends_document)
        begin--;
    while (end < count && !pieces[end - 1].ends_document)
        end++;
    const int64_t before = *cut - starts[begin], behind = starts[end] - *cut;
    *piece = begin == 0 || (end < count && before > behind) ? end : begin;
    *cut = starts[*piece];
}

/* Cuts the share off the end.  train keeps floor(count * (100 - share) / 100) tokens: of characters, nanoGPT's split.
 */
static HsStatus split(HsDatasetBuild *building, HsDataset *dataset)
{
    const HsPiece *pieces = building->corpus.pieces;
    const int64_t *starts = building->starts;
    int64_t count = building->train_pieces, piece = 0;
    int64_t cut = (int64_t)floor((double)dataset->train.count * (100 - building->share) / 100);
    while (piece + 1 < count && starts[piece + 1] <= cut)
        piece++;
    if (pieces[piece].chat || hs_dataset_keeps_documents(building->config)) {
        cut_between_documents(pieces, count, starts, &piece, &cut);
    } else if (!isnan(pieces[piece].nats)) {
        /* Inside synthetic text: to the nearer end of the document.  A part's information content is not known. */
        if (cut - starts[piece] > starts[piece + 1] - cut)
            piece++;
        cut = starts[piece];
    }
    /* A document that is cut in two is counted once, with train; its nats are NAN, which makes both floors NAN. */
    bool inside = cut > starts[piece];
    HS_TRY(move_tail(dataset, cut));
    describe(pieces, inside ? piece + 1 : piece, &dataset->train);
    describe(pieces + piece, count - piece, &dataset->validation);
    HS_TRY(hs_dataset_make_rows(building, pieces, piece, starts, 0, &dataset->train));
    HS_TRY(hs_dataset_make_rows(building, pieces + piece, count - piece, starts + piece, cut, &dataset->validation));
    if (inside)
        dataset->validation.documents -= pieces[piece].ends_document || pieces[piece].is_tokens;
    return hs_dataset_collect_items(building, piece, inside ? piece + 1 : piece, dataset);
}

/* Encodes the pieces of both streams, or of one that is then split. */
static HsStatus encode_all(HsDatasetBuild *building, HsDataset *dataset)
{
    const HsPiece *pieces = building->corpus.pieces;
    int64_t count = building->corpus.piece_count, train_count = building->train_pieces;
    HS_TRY(encode(building, 0, train_count, &dataset->train));
    if (building->share > 0)
        return split(building, dataset);
    describe(pieces, train_count, &dataset->train);
    HS_TRY(hs_dataset_make_rows(building, pieces, train_count, building->starts, 0, &dataset->train));
    HS_TRY(encode(building, train_count, count, &dataset->validation));
    describe(pieces + train_count, count - train_count, &dataset->validation);
    HS_TRY(hs_dataset_make_rows(building, pieces + train_count, count - train_count, building->starts, 0,
                                &dataset->validation));
    return hs_dataset_collect_items(building, train_count, train_count, dataset);
}

HsStatus hs_dataset_encode(HsDatasetBuild *building, HsDataset *dataset)
{
    int64_t pieces = building->corpus.piece_count;
    building->starts = malloc((size_t)(pieces + 1) * sizeof(int64_t));
    if (!building->starts)
        return hs_fail(HS_ENOMEM, "no memory for the bounds of %" PRId64 " documents", pieces);
    HsStatus status = encode_all(building, dataset);
    free(building->starts);
    building->starts = NULL;
    return status;
}
