/* SPDX-License-Identifier: MIT
 *
 * A corpus that is being read: text, or tokens, in pieces that remember where they came from.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/source.h"
#include "kernels/base/array.h"
#include "runtime/io/utf8.h"

static HsStatus grow(void *array_pointer, size_t size, size_t needed, size_t *capacity)
{
    const HsStatus status = hs_array_grow(array_pointer, size, needed, capacity);
    return status == HS_OK ? HS_OK : hs_error_prefix(status, "the training data does not fit into memory");
}

static HsStatus add_piece(HsCorpus *corpus, const HsPiece *piece)
{
    HS_TRY(grow(&corpus->pieces, sizeof *corpus->pieces, (size_t)corpus->piece_count + 1, &corpus->piece_capacity));
    corpus->pieces[corpus->piece_count++] = *piece;
    return HS_OK;
}

HsStatus hs_corpus_add_text(HsCorpus *corpus, const char *text, size_t length, bool counted, bool ends_document,
                            int64_t line, double nats)
{
    HS_TRY(grow(&corpus->text, 1, corpus->text_length + length, &corpus->text_capacity));
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

void hs_corpus_clear(HsCorpus *corpus)
{
    corpus->text_length = 0;
    corpus->tokens.count = corpus->piece_count = 0;
    corpus->unrendered_contents = corpus->quoted_arguments = 0;
}

void hs_corpus_deinit(HsCorpus *corpus)
{
    free(corpus->text);
    free(corpus->pieces);
    hs_tokens_deinit(&corpus->tokens);
    *corpus = (HsCorpus){ 0 };
}

HsStatus hs_text_check(const HsSourceText *text, const HsSourceOptions *options)
{
    /* Any bytes but zero are text to the byte tokenizer; the others read characters. */
    const char *zero = text->size > 0 ? memchr(text->bytes, 0, text->size) : NULL;
    if (zero)
        return hs_fail(HS_EFORMAT,
                       "%s: byte %zu: a zero byte, so this is not text (token files must be named .bin); leave the "
                       "file out (tasks.N.exclude) or convert it",
                       text->name, text->offset + (size_t)(zero - text->bytes));
    size_t valid = options->needs_utf8 && text->size > 0 ? hs_utf8_valid_prefix(text->bytes, text->size) : text->size;
    if (valid < text->size)
        return hs_fail(HS_EFORMAT,
                       "%s: byte %zu (0x%02X) is not UTF-8; convert the file (iconv -f ENCODING -t UTF-8) or leave it "
                       "out (tasks.N.exclude); tokenizer.kind: byte takes anything",
                       text->name, text->offset + valid, (unsigned char)text->bytes[valid]);
    return HS_OK;
}
