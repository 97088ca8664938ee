/* SPDX-License-Identifier: MIT
 *
 * The table of file kinds, and plain text.
 */
#include "runtime/data/source/source.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/parquet.h"
#include "runtime/io/utf8.h"

/* Names decide, not contents: what a file is must not depend on what its first bytes happen to be.  Only formats that
 * are no text are known by their bytes (bytes.c). */
const HsSourceKind hs_source_kinds[] = {
    { "jsonl", ".jsonl", false, hs_jsonl_parse, hs_jsonl_cut },
    { "jsonl", ".ndjson", false, hs_jsonl_parse, hs_jsonl_cut },
    { "jsonl", ".jsonlines", false, hs_jsonl_parse, hs_jsonl_cut },
    { "jsonl", ".ldjson", false, hs_jsonl_parse, hs_jsonl_cut },
    { "json", ".json", false, hs_json_list_parse, hs_json_list_cut },
    { "csv", ".csv", false, hs_csv_parse, hs_csv_cut },
    { "tsv", ".tsv", false, hs_tsv_parse, hs_tsv_cut },
    { "tsv", ".tab", false, hs_tsv_parse, hs_tsv_cut },
    { "parquet", ".parquet", false, hs_parquet_parse, NULL },
    { "", ".bin", true, hs_token_file_parse, NULL },
    { "text", NULL, false, hs_text_parse, NULL },
};

HsStatus hs_text_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    const size_t mark = hs_utf8_mark_bytes(text->bytes, text->size); /* how the file is encoded, and none of its text */
    HS_TRY(hs_text_check(text, options));
    if (text->size == mark)
        return HS_OK; /* an empty file is no document */
    return hs_corpus_add_text(corpus, text->bytes + mark, text->size - mark, true, true, 0, NAN);
}

static bool is_input(const HsSource *source)
{
    return source->kind && strcmp(source->name, HS_SOURCE_INPUT) == 0;
}

const char *hs_source_title(const HsSource *source)
{
    return is_input(source) ? "the standard input" : source->name;
}
