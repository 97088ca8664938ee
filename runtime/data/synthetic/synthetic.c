/* SPDX-License-Identifier: MIT
 *
 * Text with a known entropy: the table of sources, the writer, and the mixture.
 *
 * Every document is a pure function of (seed, document number), so text of twice the length begins with the same
 * documents.
 */
#include "kernels/base/array.h"
#include "runtime/data/synthetic/synthetic.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void write_mixture(HsSyntheticWriter *writer);

const HsSynthetic hs_synthetic_table[] = {
    { "arithmetic", "sums, differences and products with their results", hs_synthetic_arithmetic, 0, '=' },
    { "english", "sentences of a small grammar with agreement in number", hs_synthetic_english, 0, 0 },
    { "brackets", "nested brackets of four kinds", hs_synthetic_brackets, 0, 0 },
    { "code", "a small programming language with declared variables, calls and loops", hs_synthetic_code, 0, 0 },
    { "mixture", "documents of the four above in random order", write_mixture, 0, 0 },
    { "addition", "sums of two-digit numbers", hs_synthetic_addition, 0, '=' },
    { "facts", "lines key:value of a fixed table of 200", hs_synthetic_facts, 0, ':' },
    { "words", "a Markov chain over 128 pseudo-words", hs_synthetic_words, 0, 0 },
    { "reversal", "five letters, and the same letters backwards", hs_synthetic_reversal, 0, '>' },
    { "permuted0", "english under a permutation of the small letters", hs_synthetic_permuted, 0, 0 },
    { "permuted1", "the same under another permutation", hs_synthetic_permuted, 1, 0 },
    { "permuted2", "the same under another permutation", hs_synthetic_permuted, 2, 0 },
    { "permuted3", "the same under another permutation", hs_synthetic_permuted, 3, 0 },
    { "permuted4", "the same under another permutation", hs_synthetic_permuted, 4, 0 },
    { "permuted5", "the same under another permutation", hs_synthetic_permuted, 5, 0 },
    { "permuted6", "the same under another permutation", hs_synthetic_permuted, 6, 0 },
    { "permuted7", "the same under another permutation", hs_synthetic_permuted, 7, 0 },
    { "permuted8", "the same under another permutation", hs_synthetic_permuted, 8, 0 },
    { "permuted9", "the same under another permutation", hs_synthetic_permuted, 9, 0 },
};
const int hs_synthetic_count = sizeof hs_synthetic_table / sizeof hs_synthetic_table[0];
enum { MIXED_SOURCES = 4 }; /* the first rows */

/* Decodable: a document's first character is a digit, a capital letter, a bracket or a small letter, by its source. */
static void write_mixture(HsSyntheticWriter *writer)
{
    hs_synthetic_table[hs_synthetic_uniform(writer, MIXED_SOURCES)].write(writer);
}

const HsSynthetic *hs_synthetic_find(const char *name)
{
    for (int i = 0; i < hs_synthetic_count; i++)
        if (strcmp(hs_synthetic_table[i].name, name) == 0)
            return &hs_synthetic_table[i];
    return NULL;
}

static HsStatus add_document(HsSyntheticText *text, double nats)
{
    HS_TRY(hs_array_grow(&text->documents, sizeof *text->documents, (size_t)text->document_count + 1,
                         &text->document_capacity));
    text->documents[text->document_count++] = (HsSyntheticDocument){ text->length, nats };
    return HS_OK;
}

HsStatus hs_synthetic_write(const char *name, uint64_t seed, int64_t bytes, HsSyntheticText *text)
{
    const HsSynthetic *source = hs_synthetic_find(name);
    if (!source)
        return hs_fail(HS_ECONFIG, "there is no synthetic source `%s`", name);
    uint64_t document = 0;
    while ((int64_t)text->length < bytes) {
        HsSyntheticWriter writer = { .text = text, .seed = seed, .document = document++, .variant = source->variant };
        source->write(&writer);
        if (writer.out_of_memory)
            return hs_fail(HS_ENOMEM, "no memory for %" PRId64 " bytes of synthetic:%s; lower synthetic_tokens", bytes,
                           name);
        HS_TRY(add_document(text, writer.nats));
    }
    return HS_OK;
}

void hs_synthetic_text_deinit(HsSyntheticText *text)
{
    free(text->bytes);
    free(text->documents);
    *text = (HsSyntheticText){ 0 };
}

HsStatus hs_synthetic_generate(const char *name, uint64_t seed, int64_t bytes, char **text, size_t *length,
                               int64_t *documents, double *entropy_nats)
{
    HsSyntheticText written = { 0 };
    HsStatus status = hs_synthetic_write(name, seed, bytes, &written);
    if (status != HS_OK) {
        hs_synthetic_text_deinit(&written);
        return status;
    }
    *entropy_nats = 0.0;
    for (int64_t i = 0; i < written.document_count; i++)
        *entropy_nats += written.documents[i].nats;
    *text = written.bytes;
    *length = written.length;
    *documents = written.document_count;
    free(written.documents);
    return HS_OK;
}
