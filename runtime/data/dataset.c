/* SPDX-License-Identifier: MIT
 *
 * From a task's sources to two token streams.
 *
 *     list sources -> read them into one corpus -> tokenizer -> encode piece by piece -> split
 *
 * Train and validation text share one corpus, because a char tokenizer must know the characters of both.
 */
#include "runtime/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "runtime/data/source.h"

/* Everything that exists only while the streams are made. */
typedef struct Building {
    const HsConfig *config;
    const HsTaskConfig *task;
    HsTokenizer *tokenizer;
    HsSourceList sources;
    int train_sources; /* sources[0 .. train_sources) train, the rest validates */
    double share;      /* percent cut off for validation; 0: validation has its own sources */
    HsCorpus corpus;
    int64_t train_pieces;
    int64_t *starts; /* [pieces + 1] first token of every piece within its stream; scratch of encode */
} Building;

/* "10%" -> 10.  Anything else names files, unless it can only have been meant as a share. */
static HsStatus parse_share(const char *text, double *share)
{
    char *end;
    double value = strtod(text, &end);
    *share = 0;
    if (end == text || (*end != '\0' && strcmp(end, "%") != 0))
        return HS_OK;
    if (*end == '\0')
        return hs_fail(HS_ECONFIG, "validation `%s`: a share is written with a percent sign, such as 10%%", text);
    if (!(value > 0 && value < 100))
        return hs_fail(HS_ECONFIG, "validation `%s`: the share must be above 0%% and below 100%%", text);
    *share = value;
    return HS_OK;
}

static HsStatus list_sources(Building *building)
{
    const HsTaskConfig *task = building->task;
    for (int i = 0; i < task->train.count; i++) {
        HsStatus status = hs_source_list_add(&building->sources, task->train.items[i]);
        if (status != HS_OK)
            return hs_error_prefix(status, "task %s: train", task->name);
    }
    building->train_sources = building->sources.count;
    HsStatus status = parse_share(task->validation, &building->share);
    if (status != HS_OK)
        return hs_error_prefix(status, "task %s", task->name);
    if (building->share > 0)
        return HS_OK;
    status = hs_source_list_add(&building->sources, task->validation);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "task %s: validation", task->name);
}

/* Other tokenizers exist before any text is read; only char is made from it. */
static HsStatus create_tokenizer_early(Building *building)
{
    const HsConfig *config = building->config;
    if (building->tokenizer)
        return HS_OK;
    if (strcmp(config->tokenizer.kind, "char") != 0) {
        const char *path = config->tokenizer.path[0] ? config->tokenizer.path : NULL;
        return hs_tokenizer_create(config->tokenizer.kind, path, NULL, 0, &building->tokenizer);
    }
    if (hs_source_list_has_tokens(&building->sources))
        return hs_fail(
            HS_ECONFIG,
            "task %s: token files (.bin) need a tokenizer that exists, but tokenizer.kind: char is made from "
            "this task's text; set tokenizer.kind to the one that wrote them, or give text files only",
            building->task->name);
    return HS_OK;
}

/* Sources in a list are different text even if they have the same name: each has its own seed. */
static uint64_t source_seed(const Building *building, int source)
{
    const uint32_t site = 0x534f5552;
    bool validates = source >= building->train_sources;
    uint32_t index = (uint32_t)(validates ? source - building->train_sources : source);
    const uint32_t counter[4] = { index, validates, 0, site };
    HsPhilox bits = hs_philox((uint64_t)building->config->training.seed, counter);
    return (uint64_t)bits.word[1] << 32 | bits.word[0];
}

static HsStatus read_sources(Building *building)
{
    const HsTaskConfig *task = building->task;
    HsCorpus *corpus = &building->corpus;
    HsSourceOptions options = {
        .text_field = task->text_field,
        .prompt_field = task->prompt_field,
        .completion_field = task->completion_field,
        .raw16 = strcmp(building->config->data.token_file, "raw16") == 0,
        .vocabulary = building->tokenizer ? hs_tokenizer_vocabulary(building->tokenizer) : 0,
    };
    for (int i = 0; i < building->sources.count; i++) {
        if (i == building->train_sources)
            building->train_pieces = corpus->piece_count;
        corpus->source = i;
        options.seed = source_seed(building, i);
        /* A tenth is enough to measure with, as with the default share. */
        options.synthetic_bytes = i < building->train_sources ? task->synthetic_tokens : task->synthetic_tokens / 10;
        HS_TRY(hs_source_read(&building->sources.items[i], &options, corpus));
    }
    if (building->sources.count == building->train_sources)
        building->train_pieces = corpus->piece_count;
    if (building->train_pieces == 0)
        return hs_fail(HS_ECONFIG, "task %s: train holds no text: every file in it is empty", task->name);
    return HS_OK;
}

/* Puts the piece's file, and line where it has one, before the message. */
static HsStatus blame_piece(const Building *building, const HsPiece *piece, HsStatus status)
{
    const char *name = building->sources.items[piece->source].name;
    if (piece->line > 0)
        return hs_error_prefix(status, "%s:%" PRId64, name, piece->line);
    return hs_error_prefix(status, "%s", name);
}

static HsStatus create_char_tokenizer(Building *building)
{
    const HsCorpus *corpus = &building->corpus;
    HsStatus status = hs_tokenizer_create("char", NULL, corpus->text, corpus->text_length, &building->tokenizer);
    if (status != HS_EFORMAT)
        return status;
    /* Some file is not UTF-8.  Its offset in all text together helps nobody: find the piece and its own offset. */
    for (int64_t i = 0; i < corpus->piece_count; i++) {
        const HsPiece *piece = &corpus->pieces[i];
        HsTokenizer *probe = NULL;
        if (piece->length == 0)
            continue;
        if (hs_tokenizer_create("char", NULL, corpus->text + piece->start, piece->length, &probe) != HS_OK)
            return blame_piece(building, piece, status);
        hs_tokenizer_destroy(probe);
    }
    return status;
}

static HsStatus encode_piece(const Building *building, const HsPiece *piece, HsTokens *tokens)
{
    const HsCorpus *corpus = &building->corpus;
    if (piece->is_tokens) {
        HS_TRY(hs_tokens_reserve(tokens, (int64_t)piece->length));
        memcpy(tokens->items + tokens->count, corpus->tokens.items + piece->start, piece->length * sizeof(int32_t));
        tokens->count += (int64_t)piece->length;
    } else if (piece->length > 0) {
        HsStatus status = hs_tokenizer_encode(building->tokenizer, corpus->text + piece->start, piece->length, tokens);
        if (status != HS_OK)
            return blame_piece(building, piece, status);
    }
    int32_t end = hs_tokenizer_end_of_text(building->tokenizer);
    if (piece->ends_document && end >= 0) {
        HS_TRY(hs_tokens_reserve(tokens, 1));
        tokens->items[tokens->count++] = end;
    }
    return HS_OK;
}

/* The loss mask of pieces whose first tokens are `starts`; NULL when every token counts. */
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
static HsStatus encode(Building *building, int64_t first, int64_t last, HsStreamTokens *stream)
{
    const HsPiece *pieces = building->corpus.pieces;
    int64_t *starts = building->starts;
    HsTokens tokens = { 0 };
    HsStatus status = HS_OK;
    for (int64_t i = first; status == HS_OK && i < last; i++) {
        starts[i - first] = tokens.count;
        status = encode_piece(building, &pieces[i], &tokens);
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

/* Cuts the share off the end.  train keeps floor(count * (100 - share) / 100) tokens: of characters, nanoGPT's split.
 */
static HsStatus split(Building *building, HsDataset *dataset)
{
    const HsPiece *pieces = building->corpus.pieces;
    const int64_t *starts = building->starts;
    int64_t count = building->train_pieces, piece = 0;
    int64_t cut = (int64_t)floor((double)dataset->train.count * (100 - building->share) / 100);
    while (piece + 1 < count && starts[piece + 1] <= cut)
        piece++;
    /* Inside synthetic text: to the nearer end of the document.  A part's information content is not known. */
    if (!isnan(pieces[piece].nats)) {
        if (cut - starts[piece] > starts[piece + 1] - cut)
            piece++;
        cut = starts[piece];
    }
    /* A document that is cut in two counts where it begins; its nats are NAN, which makes both floors NAN. */
    bool inside = cut > starts[piece];
    HS_TRY(move_tail(dataset, cut));
    describe(pieces, inside ? piece + 1 : piece, &dataset->train);
    describe(pieces + piece, count - piece, &dataset->validation);
    if (inside)
        dataset->validation.documents -= pieces[piece].ends_document || pieces[piece].is_tokens;
    return HS_OK;
}

static bool has_target(const HsStreamTokens *stream)
{
    /* The first token is nobody's target. */
    return !stream->loss_mask || memchr(stream->loss_mask + 1, 1, (size_t)stream->count - 1);
}

static HsStatus check_length(const Building *building, const HsDataset *dataset, const HsStreamTokens *stream,
                             const char *key)
{
    int64_t length = dataset->sequence_length;
    const char *name = building->task->name;
    if (stream->count <= length && stream == &dataset->validation && building->share > 0)
        return hs_fail(HS_ECONFIG,
                       "task %s: validation, %g%% of %" PRId64 " tokens, has %" PRId64
                       ", but one window of max_length %" PRId64 " needs %" PRId64
                       "; raise the share, give more data or lower max_length",
                       name, building->share, dataset->train.count + stream->count, stream->count, length, length + 1);
    if (stream->count <= length)
        return hs_fail(HS_ECONFIG,
                       "task %s: %s has %" PRId64 " tokens, but one window of max_length %" PRId64 " needs %" PRId64
                       "; give more data or lower max_length",
                       name, key, stream->count, length, length + 1);
    if (!has_target(stream))
        return hs_fail(HS_ECONFIG, "task %s: %s has no token that the loss counts: every completion is empty", name,
                       key);
    return HS_OK;
}

static HsStatus build(Building *building, HsDataset *dataset)
{
    HS_TRY(list_sources(building));
    HS_TRY(create_tokenizer_early(building));
    HS_TRY(read_sources(building));
    if (!building->tokenizer)
        HS_TRY(create_char_tokenizer(building));
    int64_t pieces = building->corpus.piece_count, train_pieces = building->train_pieces;
    building->starts = malloc((size_t)(pieces + 1) * sizeof(int64_t));
    if (!building->starts)
        return hs_fail(HS_ENOMEM, "no memory for the bounds of %" PRId64 " documents", pieces);
    HS_TRY(encode(building, 0, train_pieces, &dataset->train));
    if (building->share > 0) {
        HS_TRY(split(building, dataset));
    } else {
        describe(building->corpus.pieces, train_pieces, &dataset->train);
        HS_TRY(encode(building, train_pieces, pieces, &dataset->validation));
        describe(building->corpus.pieces + train_pieces, pieces - train_pieces, &dataset->validation);
    }
    HS_TRY(check_length(building, dataset, &dataset->train, "train"));
    return check_length(building, dataset, &dataset->validation, "validation");
}

HsStatus hs_dataset_create(const HsConfig *config, const HsTaskConfig *task, HsTokenizer *tokenizer, HsDataset *dataset)
{
    Building building = { .config = config, .task = task, .tokenizer = tokenizer };
    *dataset = (HsDataset){
        .sequence_length = config->training.max_length,
        .random_windows = strcmp(config->data.sampling, "random") == 0,
        .seed = (uint64_t)config->training.seed,
    };
    HsStatus status = build(&building, dataset);
    dataset->tokenizer = building.tokenizer;
    hs_source_list_deinit(&building.sources);
    hs_corpus_deinit(&building.corpus);
    free(building.starts);
    if (status != HS_OK)
        hs_dataset_deinit(dataset);
    return status;
}

void hs_dataset_deinit(HsDataset *dataset)
{
    HsStreamTokens *streams[] = { &dataset->train, &dataset->validation };
    for (int i = 0; i < 2; i++) {
        free(streams[i]->tokens);
        free(streams[i]->loss_mask);
    }
    if (dataset->tokenizer)
        hs_tokenizer_destroy(dataset->tokenizer);
    *dataset = (HsDataset){ 0 };
}
