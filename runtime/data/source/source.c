/* SPDX-License-Identifier: MIT
 *
 * Reads sources into the corpus: the table of file kinds, plain text, and the corpus's growing arrays.
 */
#include "runtime/data/source/source.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/parquet.h"
#include "runtime/data/synthetic/synthetic.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

/* Names decide, not contents: what a file is must not depend on what its first bytes happen to be.  Only formats that
 * are no text are known by their bytes (bytes.c). */
const HsSourceKind hs_source_kinds[] = {
    { "jsonl", ".jsonl", false, hs_jsonl_parse },
    { "jsonl", ".ndjson", false, hs_jsonl_parse },
    { "jsonl", ".jsonlines", false, hs_jsonl_parse },
    { "jsonl", ".ldjson", false, hs_jsonl_parse },
    { "json", ".json", false, hs_json_list_parse },
    { "csv", ".csv", false, hs_csv_parse },
    { "tsv", ".tsv", false, hs_tsv_parse },
    { "tsv", ".tab", false, hs_tsv_parse },
    { "parquet", ".parquet", false, hs_parquet_parse },
    { "", ".bin", true, hs_token_file_parse },
    { "text", NULL, false, hs_text_parse },
};

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
