/* SPDX-License-Identifier: MIT
 *
 * One source after another: read, encode its pieces, hand its documents out.
 */
#include "runtime/data/source/encode.h"
#include "runtime/data/source/chat.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Walk {
    const HsTokenizer *tokenizer;
    const HsChatTemplate *chat_template;
    bool checked;    /* that the tokenizer has the template's tokens */
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

/* A conversation as one text, at its first piece. */
static HsStatus take_chat(Walk *walk, const HsCorpus *corpus, const HsPiece *pieces, int64_t count)
{
    const size_t length = pieces[count - 1].start + pieces[count - 1].length - pieces[0].start;
    int32_t end;
    if (!walk->checked)
        HS_TRY(hs_chat_end_token(walk->chat_template, walk->tokenizer, &end));
    walk->checked = true;
    HsStatus status = hs_tokenizer_encode(walk->tokenizer, corpus->text + pieces[0].start, length, &walk->tokens);
    if (status != HS_OK)
        return hs_error_prefix(status, "%s:%" PRId64, walk->document.source, pieces[0].line);
    walk->document.bytes = (int64_t)length;
    walk->document.masked = true;
    return hand_out(walk, walk->tokens.items, walk->tokens.count);
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
    for (int64_t i = 0, count; status == HS_OK && i < corpus.piece_count; i += count) {
        const HsPiece *piece = &corpus.pieces[i];
        count = piece->chat ? hs_chat_piece_count(piece, corpus.piece_count - i) : 1;
        status = piece->chat        ? take_chat(walk, &corpus, piece, count)
                 : piece->is_tokens ? take_tokens(walk, &corpus, piece)
                                    : take_text(walk, &corpus, piece);
    }
    hs_corpus_deinit(&corpus);
    return status;
}

HsStatus hs_sources_encode(const HsSourceList *sources, const HsSourceOptions *options, const HsTokenizer *tokenizer,
                           HsStatus (*take)(void *user, const HsEncoded *document), void *user)
{
    Walk walk = { .tokenizer = tokenizer,
                  .chat_template = hs_chat_template_get(options->chat_template),
                  .take = take,
                  .user = user };
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < sources->count; i++)
        status = encode_source(&walk, &sources->items[i], options);
    hs_tokens_deinit(&walk.tokens);
    return status;
}
