/* SPDX-License-Identifier: MIT
 *
 * See encode.h.  A worker parses a unit's records and encodes them; of a text, which has no records, it encodes a part.
 */
#include "runtime/data/source/encode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/source/chat.h"
#include "runtime/data/source/progress.h"
#include "runtime/data/source/units.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"

/* Of a unit; kept for the next one in its slot. */
typedef struct Result {
    HsTokens tokens;
    uint8_t *mask;
    size_t mask_capacity;
    bool masked;
    HsEncodedDocument *documents;
    size_t document_count, document_capacity;
    int64_t bytes, unrendered_contents, quoted_arguments;
    uint64_t part_hash; /* of a text's part */
} Result;

typedef struct Worker {
    HsTokenizerSession *session;
    HsCorpus corpus;
    int64_t *starts; /* first tokens of a conversation's pieces */
    size_t start_capacity;
    bool checked; /* that the tokenizer has the template's tokens */
} Worker;

typedef struct Encoder {
    const HsEncoding *encoding;
    int32_t end;     /* -1: none is put */
    Worker *workers; /* one more than there are threads: the last finds borders */
    int threads;
    /* Of the text that is being taken: */
    int64_t text_bytes;
    uint64_t text_hash;
    HsSourceProgress progress, *shown;
} Encoder;

static HsStatus put_end(const Encoder *encoder, bool ends, Result *result)
{
    if (!ends || encoder->end < 0)
        return HS_OK;
    HS_TRY(hs_tokens_reserve(&result->tokens, 1));
    result->tokens.items[result->tokens.count++] = encoder->end;
    return HS_OK;
}

static HsStatus add_document(Result *result, const HsEncodedDocument *document)
{
    HS_TRY(hs_array_grow(&result->documents, sizeof *result->documents, result->document_count + 1,
                         &result->document_capacity));
    result->documents[result->document_count++] = *document;
    return HS_OK;
}

/* Tokens from `from` on count, or not. */
static HsStatus put_mask(Result *result, int64_t from, bool counted)
{
    const size_t count = (size_t)result->tokens.count;
    HS_TRY(hs_array_grow(&result->mask, 1, count + 1, &result->mask_capacity));
    memset(result->mask + from, counted, count - (size_t)from);
    result->masked |= !counted && (int64_t)count > from;
    return HS_OK;
}

/* ---- records ---- */

static HsStatus encode_piece(Worker *worker, const HsPiece *piece, Result *result)
{
    const HsCorpus *corpus = &worker->corpus;
    if (!piece->is_tokens)
        return piece->length > 0 ? hs_tokenizer_session_encode(worker->session, corpus->text + piece->start,
                                                               piece->length, &result->tokens)
                                 : HS_OK;
    HS_TRY(hs_tokens_reserve(&result->tokens, (int64_t)piece->length));
    memcpy(result->tokens.items + result->tokens.count, corpus->tokens.items + piece->start,
           piece->length * sizeof(int32_t));
    result->tokens.count += (int64_t)piece->length;
    return HS_OK;
}

static int64_t token_bytes(const HsTokenizer *tokenizer, const int32_t *tokens, size_t count)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size;
        (void)hs_tokenizer_bytes(tokenizer, tokens[i], &size);
        bytes += (int64_t)size;
    }
    return bytes;
}

/* A conversation as one text.  starts[i]: the first token of its piece i. */
static HsStatus encode_chat(const HsSourceOptions *options, Worker *worker, const HsPiece *pieces, int64_t count,
                            Result *result)
{
    int32_t end;
    if (!worker->checked)
        HS_TRY(hs_chat_end_token(hs_chat_template_get(options->chat_template), hs_tokenizer_session_of(worker->session),
                                 &end));
    worker->checked = true;
    HS_TRY(hs_array_grow(&worker->starts, sizeof *worker->starts, (size_t)count + 1, &worker->start_capacity));
    HS_TRY(hs_chat_encode(worker->session, worker->corpus.text, pieces, count, &result->tokens, worker->starts));
    worker->starts[count] = result->tokens.count;
    const int64_t tokens = result->tokens.count;
    for (int64_t i = 0; i < count; i++) {
        result->tokens.count = worker->starts[i + 1];
        HS_TRY(put_mask(result, worker->starts[i], pieces[i].counted));
    }
    result->tokens.count = tokens;
    return HS_OK;
}

static HsStatus encode_pieces(const Encoder *encoder, Worker *worker, const HsPiece *pieces, int64_t count,
                              Result *result, HsEncodedDocument *document)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t before = result->tokens.count;
        HS_TRY(encode_piece(worker, &pieces[i], result));
        if (i == 0 && count > 1 && !pieces[0].counted)
            document->prompt = result->tokens.count - before;
        HS_TRY(put_end(encoder, pieces[i].ends_document, result));
        HS_TRY(put_mask(result, before, pieces[i].counted));
    }
    return HS_OK;
}

/* A prompt and a completion, which are something each. */
static bool is_pair(const HsPiece *pieces, int64_t count)
{
    return count == 2 && !pieces[0].counted && pieces[1].counted && pieces[0].length > 0 && pieces[1].length > 0;
}

/* Pieces [0, count), which are one document. */
static HsStatus encode_document(const Encoder *encoder, const HsSourceOptions *options, Worker *worker,
                                const HsPiece *pieces, int64_t count, Result *result)
{
    const HsCorpus *corpus = &worker->corpus;
    const HsPiece *last = &pieces[count - 1];
    const char *const text = corpus->text + pieces->start;
    const size_t length = last->start + last->length - pieces->start;
    HsEncodedDocument document = {
        .source = corpus->source, .nats = last->nats, .is_chat = pieces->chat, .is_tokens = pieces->is_tokens
    };
    HS_TRY(pieces->chat ? encode_chat(options, worker, pieces, count, result)
                        : encode_pieces(encoder, worker, pieces, count, result, &document));
    document.ends = last->ends_document && !pieces->chat;
    if (pieces->is_tokens) {
        const int32_t *tokens = corpus->tokens.items + pieces->start;
        document.bytes = token_bytes(encoder->encoding->tokenizer, tokens, length);
        document.hash = hs_storage_hash(tokens, length * sizeof *tokens);
    } else {
        document.bytes = (int64_t)length;
        document.hash = hs_storage_hash(text, length);
        document.prompt_hash = is_pair(pieces, count) && !pieces->chat ? hs_storage_hash(text, pieces->length) : 0;
    }
    for (int64_t i = 0; i < count; i++)
        document.masked |= !pieces[i].counted;
    document.end = result->tokens.count;
    result->bytes += document.bytes;
    return add_document(result, &document);
}

static HsStatus blame(const HsUnit *unit, const HsPiece *piece, HsStatus status)
{
    const char *const name = hs_source_title(unit->from);
    if (status == HS_OK)
        return HS_OK;
    return piece->line > 0 ? hs_error_prefix(status, "%s:%" PRId64, name, piece->line)
                           : hs_error_prefix(status, "%s", name);
}

static HsStatus encode_records(const Encoder *encoder, Worker *worker, const HsUnit *unit, Result *result)
{
    const HsSourceOptions options = encoder->encoding->options(encoder->encoding->user, unit->source);
    HsCorpus *corpus = &worker->corpus;
    HS_TRY(hs_unit_parse(unit, &options, corpus));
    for (int64_t i = 0, count; i < corpus->piece_count; i += count) {
        const HsPiece *pieces = &corpus->pieces[i];
        count = pieces->is_tokens ? 1 : hs_chat_piece_count(pieces, corpus->piece_count - i);
        HS_TRY(blame(unit, pieces, encode_document(encoder, &options, worker, pieces, count, result)));
    }
    result->unrendered_contents = corpus->unrendered_contents;
    result->quoted_arguments = corpus->quoted_arguments;
    return HS_OK;
}

/* ---- texts ---- */

/* A part of a text, or all of it, without the mark that says how it is encoded. */
static HsStatus encode_text(const Encoder *encoder, Worker *worker, HsUnit *unit, Result *result)
{
    const HsSourceOptions options = encoder->encoding->options(encoder->encoding->user, unit->source);
    HsTextPart part;
    size_t mark;
    HS_TRY(hs_unit_open_text(unit, &options, &part, &mark));
    if (encoder->encoding->look)
        encoder->encoding->look(encoder->encoding->user, unit->source, part.text, part.length);
    if (part.least > 0) {
        size_t used;
        HsStatus status = part.first && part.last && part.least == part.length
                              ? hs_tokenizer_session_encode(worker->session, part.text, part.length, &result->tokens)
                              : hs_tokenizer_session_encode_part(worker->session, &part, &result->tokens, &used);
        if (status != HS_OK)
            return hs_error_prefix(status, "%s", unit->text.name);
        if (unit->is_part && !unit->ends)
            unit->used = used > 0 ? used + mark : 0;
    }
    const size_t bytes = unit->used > mark ? unit->used - mark : 0;
    result->bytes = (int64_t)bytes;
    result->part_hash = hs_storage_hash(part.text, bytes);
    const bool there = unit->ends && (!unit->begins || bytes > 0); /* an empty file is no document */
    HS_TRY(put_end(encoder, there, result));
    const HsEncodedDocument document = {
        .end = result->tokens.count, .source = unit->source, .nats = (double)NAN, .ends = true, .is_text_file = true
    };
    return there ? add_document(result, &document) : HS_OK;
}

static HsSourceOptions options_of(const void *user, int source)
{
    const Encoder *encoder = user;
    return encoder->encoding->options(encoder->encoding->user, source);
}

static HsStatus work(void *user, int number, HsUnit *unit)
{
    Encoder *encoder = user;
    Result *result = unit->result;
    Worker *worker = &encoder->workers[number];
    HsStatus status;
    result->tokens.count = 0;
    result->document_count = 0;
    result->masked = false;
    result->bytes = result->unrendered_contents = result->quoted_arguments = 0;
    status = hs_unit_is_text(unit) ? encode_text(encoder, worker, unit, result)
                                   : encode_records(encoder, worker, unit, result);
    unit->weight = result->bytes;
    return status;
}

static HsStatus find_border(void *user, const HsTextPart *part, size_t *at)
{
    Encoder *encoder = user;
    return hs_tokenizer_session_encode_part(encoder->workers[encoder->threads].session, part, NULL, at);
}

/* A text's hash and length are those of all its parts. */
static void finish_text(Encoder *encoder, const HsUnit *unit, Result *result)
{
    const uint64_t both[2] = { encoder->text_hash, result->part_hash };
    encoder->text_hash = unit->begins ? result->part_hash : hs_storage_hash(both, sizeof both);
    encoder->text_bytes = unit->begins ? result->bytes : encoder->text_bytes + result->bytes;
    if (result->document_count == 0)
        return;
    result->documents[0].bytes = encoder->text_bytes;
    result->documents[0].hash = encoder->text_hash;
}

static HsStatus take(void *user, const HsUnit *unit)
{
    Encoder *encoder = user;
    Result *result = unit->result;
    if (hs_unit_is_text(unit))
        finish_text(encoder, unit, result);
    hs_source_progress_add(encoder->shown, unit);
    const HsEncodedUnit encoded = { .from = unit->from,
                                    .source = unit->source,
                                    .tokens = result->tokens.items,
                                    .count = result->tokens.count,
                                    .mask = result->masked ? result->mask : NULL,
                                    .documents = result->documents,
                                    .document_count = (int64_t)result->document_count,
                                    .bytes = result->bytes,
                                    .unrendered_contents = result->unrendered_contents,
                                    .quoted_arguments = result->quoted_arguments };
    return encoder->encoding->take(encoder->encoding->user, &encoded);
}

static void clear(void *result)
{
    Result *own = result;
    hs_tokens_deinit(&own->tokens);
    free(own->mask);
    free(own->documents);
}

HsStatus hs_sources_encode(const HsEncoding *encoding)
{
    const int threads = hs_source_threads(encoding->threads);
    Encoder encoder = { .encoding = encoding,
                        .end = encoding->with_ends ? hs_tokenizer_end_of_text(encoding->tokenizer) : -1,
                        .threads = threads,
                        .workers = calloc((size_t)threads + 1, sizeof *encoder.workers) };
    HsUnitPlace reached;
    if (encoding->from) {
        encoder.text_bytes = encoding->from->text_bytes;
        encoder.text_hash = encoding->from->text_hash;
    }
    HsStatus status = encoder.workers ? HS_OK : hs_fail(HS_ENOMEM, "no memory to encode text");
    for (int i = 0; status == HS_OK && i <= threads; i++)
        status = hs_tokenizer_session_create(encoding->tokenizer, &encoder.workers[i].session);
    const HsUnitWork units = { .sources = encoding->sources,
                               .first = encoding->first,
                               .last = encoding->last,
                               .from = encoding->from ? &encoding->from->unit : NULL,
                               .most = encoding->most,
                               .reached = &reached,
                               .threads = threads,
                               .options = options_of,
                               .border = hs_tokenizer_takes_parts(encoding->tokenizer) ? find_border : NULL,
                               .work = work,
                               .take = take,
                               .clear = clear,
                               .user = &encoder,
                               .result_bytes = sizeof(Result) };
    hs_source_progress_begin(&encoder.progress, encoding->sources, encoding->first, encoding->last, encoding->what);
    encoder.shown = encoding->progress ? encoding->progress : &encoder.progress;
    if (status == HS_OK)
        status = hs_units_run(&units);
    hs_source_progress_end(&encoder.progress);
    if (status == HS_OK && encoding->reached)
        *encoding->reached = (HsEncodingPlace){ reached, encoder.text_bytes, encoder.text_hash };
    for (int i = 0; encoder.workers && i <= threads; i++) {
        hs_tokenizer_session_destroy(encoder.workers[i].session);
        hs_corpus_deinit(&encoder.workers[i].corpus);
        free(encoder.workers[i].starts);
    }
    free(encoder.workers);
    return status;
}
