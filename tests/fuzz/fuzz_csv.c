/* SPDX-License-Identifier: MIT
 *
 * CSV: what is read, written with every field in quotes, reads back the same.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* "text" and a row for each piece; returns the length. */
static size_t write_csv(const HsCorpus *corpus, char *csv)
{
    size_t used = 0;
    memcpy(csv, "text\r\n", 6);
    used += 6;
    for (int64_t i = 0; i < corpus->piece_count; i++) {
        csv[used++] = '"';
        for (size_t k = 0; k < corpus->pieces[i].length; k++) {
            char byte = corpus->text[corpus->pieces[i].start + k];
            if (byte == '"')
                csv[used++] = '"';
            csv[used++] = byte;
        }
        memcpy(csv + used, "\"\r\n", 3);
        used += 3;
    }
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const HsSourceOptions options = {
        .text_field = "text", .prompt_field = "prompt", .completion_field = "completion", .needs_utf8 = true
    };
    HsCorpus corpus = { 0 }, again = { 0 };
    if (hs_csv_parse(&(const HsSourceText)HS_SOURCE_WHOLE("fuzz", (const char *)bytes, size), &options, &corpus) ==
        HS_OK) {
        char *csv = malloc(6 + 2 * corpus.text_length + 6 * (size_t)corpus.piece_count);
        assert(csv);
        size_t length = write_csv(&corpus, csv);
        assert(hs_csv_parse(&(const HsSourceText)HS_SOURCE_WHOLE("again", csv, length), &options, &again) == HS_OK);
        assert(again.text_length == corpus.text_length);
        assert(corpus.text_length == 0 || memcmp(again.text, corpus.text, corpus.text_length) == 0);
        free(csv);
    }
    hs_corpus_deinit(&corpus);
    hs_corpus_deinit(&again);
    return 0;
}
