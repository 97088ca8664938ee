/* SPDX-License-Identifier: MIT
 *
 * Reads sources into the corpus: the table of file kinds, plain text, and the corpus's growing arrays.
 */
#include "runtime/data/source/source.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/synthetic/synthetic.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

/* Names decide, not contents: what a file is must not depend on what its first bytes happen to be.  Only formats that
 * are no text are known by their bytes (bytes.c). */
const HsSourceKind hs_source_kinds[] = {
    { "jsonl", ".jsonl", false, hs_jsonl_parse },     { "jsonl", ".ndjson", false, hs_jsonl_parse },
    { "jsonl", ".jsonlines", false, hs_jsonl_parse }, { "jsonl", ".ldjson", false, hs_jsonl_parse },
    { "json", ".json", false, hs_json_list_parse },   { "csv", ".csv", false, hs_csv_parse },
    { "tsv", ".tsv", false, hs_tsv_parse },           { "tsv", ".tab", false, hs_tsv_parse },
    { "", ".bin", true, hs_token_file_parse },        { "text", NULL, false, hs_text_parse },
};

/* Doubles a capacity until `needed` fits; shared by both arrays.  Keeps the old array when it fails. */
static HsStatus grow(void **array, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity)
        return HS_OK;
    size_t wanted = *capacity > 0 ? *capacity : 256;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2 / element_bytes)
            return hs_fail(HS_ENOMEM, "the training data does not fit into memory (%zu items of %zu bytes)", needed,
                           element_bytes);
        wanted *= 2;
    }
    void *grown = realloc(*array, wanted * element_bytes);
    if (!grown)
        return hs_fail(HS_ENOMEM, "the training data does not fit into memory (%zu bytes more were asked for)",
                       wanted * element_bytes);
    *array = grown;
    *capacity = wanted;
    return HS_OK;
}

static HsStatus add_piece(HsCorpus *corpus, const HsPiece *piece)
{
    size_t capacity = (size_t)corpus->piece_capacity;
    void *pieces = corpus->pieces;
    HS_TRY(grow(&pieces, &capacity, (size_t)corpus->piece_count + 1, sizeof *corpus->pieces));
    corpus->pieces = pieces;
    corpus->piece_capacity = (int64_t)capacity;
    corpus->pieces[corpus->piece_count++] = *piece;
    return HS_OK;
}

HsStatus hs_corpus_add_text(HsCorpus *corpus, const char *text, size_t length, bool counted, bool ends_document,
                            int64_t line, double nats)
{
    void *bytes = corpus->text;
    HS_TRY(grow(&bytes, &corpus->text_capacity, corpus->text_length + length, 1));
    corpus->text = bytes;
    HsPiece piece = { .start = corpus->text_length,
                      .length = length,
                      .nats = nats,
                      .source = corpus->source,
                      .line = line,
                      .counted = counted,
                      .ends_document = ends_document };
    HS_TRY(add_piece(corpus, &piece));
    if (length > 0)
        memcpy(corpus->text + corpus->text_length, text, length);
    corpus->text_length += length;
    return HS_OK;
}

HsStatus hs_corpus_add_tokens(HsCorpus *corpus, int64_t first)
{
    /* No end-of-text token is added: a token file brings its own. */
    HsPiece piece = { .start = (size_t)first,
                      .length = (size_t)(corpus->tokens.count - first),
                      .nats = NAN,
                      .source = corpus->source,
                      .is_tokens = true,
                      .counted = true,
                      .ends_document = false };
    return add_piece(corpus, &piece);
}

void hs_corpus_deinit(HsCorpus *corpus)
{
    free(corpus->text);
    free(corpus->pieces);
    hs_tokens_deinit(&corpus->tokens);
    *corpus = (HsCorpus){ 0 };
}

HsStatus hs_text_check(const char *name, const char *bytes, size_t size, const HsSourceOptions *options)
{
    /* Any bytes but zero are text to the byte tokenizer; the others read characters. */
    const char *zero = size > 0 ? memchr(bytes, 0, size) : NULL;
    if (zero)
        return hs_fail(HS_EFORMAT,
                       "%s: byte %zu: a zero byte, so this is not text (token files must be named .bin); leave the "
                       "file out or convert it",
                       name, (size_t)(zero - bytes));
    size_t valid = options->needs_utf8 && size > 0 ? hs_utf8_valid_prefix(bytes, size) : size;
    if (valid < size)
        return hs_fail(HS_EFORMAT,
                       "%s: byte %zu (0x%02X) is not UTF-8; convert the file (iconv -f ENCODING -t UTF-8) or leave it "
                       "out; tokenizer.kind: byte takes anything",
                       name, valid, (unsigned char)bytes[valid]);
    return HS_OK;
}

HsStatus hs_text_parse(const char *name, const char *bytes, size_t size, const HsSourceOptions *options,
                       HsCorpus *corpus)
{
    const size_t mark = hs_utf8_mark_bytes(bytes, size); /* says how the file is encoded, and is none of its text */
    HS_TRY(hs_text_check(name, bytes, size, options));
    if (size == mark)
        return HS_OK; /* an empty file is no document */
    return hs_corpus_add_text(corpus, bytes + mark, size - mark, true, true, 0, NAN);
}

/* One piece for each document, so that a share can be cut between two of them. */
static HsStatus read_synthetic(const char *name, const HsSourceOptions *options, HsCorpus *corpus)
{
    HsSyntheticText text = { 0 };
    HsStatus status = hs_synthetic_write(name, options->seed, options->synthetic_bytes, &text);
    size_t start = 0;
    for (int64_t i = 0; status == HS_OK && i < text.document_count; i++) {
        const HsSyntheticDocument *document = &text.documents[i];
        status = hs_corpus_add_text(corpus, text.bytes + start, document->end - start, true, true, 0, document->nats);
        start = document->end;
    }
    hs_synthetic_text_deinit(&text);
    return status;
}

static bool is_input(const HsSource *source)
{
    return source->kind && strcmp(source->name, HS_SOURCE_INPUT) == 0;
}

const char *hs_source_title(const HsSource *source)
{
    return is_input(source) ? "the standard input" : source->name;
}

HsStatus hs_source_read(const HsSource *source, const HsSourceOptions *options, HsCorpus *corpus)
{
    /* Generated text needs no parser: it comes with its documents and their information content. */
    if (!source->kind)
        return read_synthetic(source->name + strlen(HS_SYNTHETIC_PREFIX), options, corpus);
    char *bytes = NULL;
    size_t size = 0;
    const char *title = hs_source_title(source);
    HS_TRY(is_input(source) ? hs_read_input(source->name, 0, &bytes, &size)
                            : hs_read_file(source->name, 0, &bytes, &size));
    HsStatus status = hs_source_unpack(title, source->kind, &bytes, &size);
    if (status == HS_OK)
        status = source->kind->parse(title, bytes, size, options, corpus);
    free(bytes);
    return status;
}
