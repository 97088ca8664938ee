/* SPDX-License-Identifier: MIT
 *
 * A source whole, into a corpus.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/input.h"
#include "runtime/data/synthetic/synthetic.h"

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

HsStatus hs_source_read(const HsSource *source, const HsSourceOptions *options, HsCorpus *corpus)
{
    /* Generated text needs no parser: it comes with its documents and their information content. */
    if (!source->kind)
        return read_synthetic(source->name + strlen(HS_SYNTHETIC_PREFIX), options, corpus);
    HsInput *input;
    char *bytes = NULL;
    size_t size = 0;
    HS_TRY(hs_input_open(source, &input));
    HsStatus status = hs_input_read_all(input, 0, &bytes, &size);
    const HsSourceText text = HS_SOURCE_WHOLE(hs_source_title(source), bytes, size);
    if (status == HS_OK)
        status = source->kind->parse(&text, options, corpus);
    hs_input_close(input);
    free(bytes);
    return status;
}
