/* SPDX-License-Identifier: MIT
 *
 * Parquet: whatever the bytes are, documents or an error; the same again group by group.
 */
#include <assert.h>
#include <string.h>

#include "runtime/data/source/parquet.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static HsStatus read_bytes(const void *user, int64_t at, size_t size, char *bytes)
{
    if (size > 0)
        memcpy(bytes, (const char *)user + at, size);
    return HS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const HsSourceOptions options = {
        .text_field = "text", .prompt_field = "prompt", .completion_field = "completion", .chat_template = "qwen2.5"
    };
    const HsParquetInput input = { read_bytes, bytes, (int64_t)size };
    HsCorpus corpus = { 0 }, again = { 0 };
    HsParquet *file = NULL;
    if (hs_parquet_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", (const char *)bytes, size), &options, &corpus) ==
        HS_OK) {
        assert(hs_parquet_open("fuzz", &input, &options, &file) == HS_OK);
        for (int64_t group = 0; group < hs_parquet_groups(file); group++) {
            assert(hs_parquet_group_bytes(file, group) >= 0);
            assert(hs_parquet_parse_group(file, group, &options, &again) == HS_OK);
        }
        assert(again.text_length == corpus.text_length && again.piece_count == corpus.piece_count);
        assert(corpus.text_length == 0 || memcmp(again.text, corpus.text, corpus.text_length) == 0);
        hs_parquet_close(file);
    }
    hs_corpus_deinit(&corpus);
    hs_corpus_deinit(&again);
    return 0;
}
