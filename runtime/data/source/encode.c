/* SPDX-License-Identifier: MIT
 *
 * One source after another: read, encode its pieces, hand its documents out.
 */
#include "runtime/data/source/encode.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Walk {
    const HsTokenizer *tokenizer;
    HsTokens tokens; /* of the document so far */
    HsEncoded document;
    HsStatus (*take)(void *user, const HsEncoded *document);
    void *user;
} Walk;

static HsStatus hand_out(Walk *walk, const int32_t *tokens, int64_t count)
{
    walk->document.tokens = tokens;
    walk->document.count = count;
    HsStatus status = walk->take(walk->user, &walk->document);
    walk->tokens.count = 0;
    walk->document = (HsEncoded){ .source = walk->document.source };
    return status;
}

static HsStatus take_tokens(Walk *walk, const HsCorpus *corpus, const HsPiece *piece)
{
    const int32_t *tokens = corpus->tokens.items + piece->start;
    for (size_t i = 0; i < piece->length; i++) {
        size_t size;
        hs_tokenizer_bytes(walk->tokenizer, tokens[i], &size);
        walk->document.bytes += (int64_t)size;
    }
    return hand_out(walk, tokens, (int64_t)piece->length);
}

static HsStatus take_text(Walk *walk, const HsCorpus *corpus, const HsPiece *piece)
{
    if (piece->length > 0) {
        HsStatus status =
            hs_tokenizer_encode(walk->tokenizer, corpus->text + piece->start, piece->length, &walk->tokens);
        if (status != HS_OK && piece->line > 0)
            return hs_error_prefix(status, "%s:%" PRId64, walk->document.source, piece->line);
        if (status != HS_OK)
            return hs_error_prefix(status, "%s", walk->document.source);
    }
    walk->document.bytes += (int64_t)piece->length;
    walk->document.masked |= !piece->counted;
    walk->document.ends = piece->ends_document;
    return piece->ends_document ? hand_out(walk, walk->tokens.items, walk->tokens.count) : HS_OK;
}

static HsStatus encode_source(Walk *walk, const HsSource *source, const HsSourceOptions *options)
{
    HsCorpus corpus = { 0 };
    walk->document.source = hs_source_title(source);
    HsStatus status = hs_source_read(source, options, &corpus);
    for (int64_t i = 0; status == HS_OK && i < corpus.piece_count; i++) {
        const HsPiece *piece = &corpus.pieces[i];
        status = piece->is_tokens ? take_tokens(walk, &corpus, piece) : take_text(walk, &corpus, piece);
    }
    hs_corpus_deinit(&corpus);
    return status;
}

HsStatus hs_sources_encode(const HsSourceList *sources, const HsSourceOptions *options, const HsTokenizer *tokenizer,
                           HsStatus (*take)(void *user, const HsEncoded *document), void *user)
{
    Walk walk = { .tokenizer = tokenizer, .take = take, .user = user };
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < sources->count; i++)
        status = encode_source(&walk, &sources->items[i], options);
    hs_tokens_deinit(&walk.tokens);
    return status;
}
