/* SPDX-License-Identifier: MIT
 *
 * Byte-level BPE (Sennrich, Haddow & Birch 2016): added tokens are cut out, the rest is cut into pieces, and in each
 * piece the adjacent pair with the best rank is merged, leftmost first, until no pair has one.
 *
 * A piece is a linked list of symbols and a heap of its mergeable pairs, O(n log n): pieces may be megabytes long (a
 * run of one letter).  Pieces seen before in the same text are taken from a cache.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/bpe.h"
#include "runtime/files.h"

enum { BPE_FILE_MAX_BYTES = 256 << 20, CACHED_PIECE_BYTES = 64, CACHE_ENTRIES = 1 << 17, COUNT_BITS = 8 };

typedef struct Symbol {
    int32_t token;
    int32_t previous, next; /* -1: none */
} Symbol;

typedef struct Candidate {
    int64_t rank;
    int32_t at;          /* the left symbol */
    int32_t left, right; /* tokens when it was found; if they have changed since, it is void */
} Candidate;

/* One encode call's scratch memory. */
typedef struct Encoder {
    const HsBpe *bpe;
    HsTokens *tokens;
    Symbol *symbols;
    size_t symbol_capacity;
    Candidate *heap;
    size_t heap_count, heap_capacity;
    HsMap cache; /* piece -> its tokens' place in cached: offset << COUNT_BITS | count */
    HsTokens cached;
} Encoder;

static bool precedes(const Candidate *a, const Candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static HsStatus heap_push(Encoder *encoder, Candidate candidate)
{
    HS_TRY(hs_array_grow(&encoder->heap, sizeof *encoder->heap, encoder->heap_count + 1, &encoder->heap_capacity));
    Candidate *heap = encoder->heap;
    size_t at = encoder->heap_count++;
    while (at > 0 && precedes(&candidate, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
    return HS_OK;
}

static Candidate heap_pop(Encoder *encoder)
{
    Candidate *heap = encoder->heap, top = heap[0], moving = heap[--encoder->heap_count];
    size_t count = encoder->heap_count, at = 0;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && precedes(&heap[child + 1], &heap[child]))
            child++;
        if (!precedes(&heap[child], &moving))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
    return top;
}

/* If symbols[at] and its right neighbour can merge, remember that. */
static HsStatus consider(Encoder *encoder, int32_t at)
{
    if (at < 0 || encoder->symbols[at].next < 0)
        return HS_OK;
    int32_t pair[2] = { encoder->symbols[at].token, encoder->symbols[encoder->symbols[at].next].token };
    int64_t rank;
    if (!hs_map_get(&encoder->bpe->merges, pair, sizeof pair, &rank))
        return HS_OK;
    return heap_push(encoder, (Candidate){ rank, at, pair[0], pair[1] });
}

/* Merge what can be merged, best first.  A symbol that was swallowed has token -1. */
static HsStatus merge_symbols(Encoder *encoder, int32_t count)
{
    Symbol *symbols = encoder->symbols;
    encoder->heap_count = 0;
    for (int32_t i = 0; i + 1 < count; i++)
        HS_TRY(consider(encoder, i));
    while (encoder->heap_count > 0) {
        Candidate best = heap_pop(encoder);
        Symbol *left = &symbols[best.at];
        if (left->token != best.left || left->next < 0 || symbols[left->next].token != best.right)
            continue;
        Symbol *right = &symbols[left->next];
        left->token = encoder->bpe->merged[best.rank];
        left->next = right->next;
        right->token = -1;
        if (left->next >= 0)
            symbols[left->next].previous = best.at;
        HS_TRY(consider(encoder, left->previous));
        HS_TRY(consider(encoder, best.at));
    }
    return HS_OK;
}

static HsStatus encode_new_piece(Encoder *encoder, const char *piece, size_t length)
{
    int64_t whole;
    HsTokens *tokens = encoder->tokens;
    if (encoder->bpe->ignore_merges && hs_map_get(&encoder->bpe->whole_pieces, piece, length, &whole)) {
        HS_TRY(hs_tokens_reserve(tokens, 1));
        tokens->items[tokens->count++] = (int32_t)whole;
        return HS_OK;
    }
    if (length > INT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "tokenizer: a piece of %zu bytes without a break is too long", length);
    HS_TRY(hs_array_grow(&encoder->symbols, sizeof *encoder->symbols, length, &encoder->symbol_capacity));
    int32_t count = (int32_t)length;
    for (int32_t i = 0; i < count; i++)
        encoder->symbols[i] =
            (Symbol){ encoder->bpe->byte_tokens[(unsigned char)piece[i]], i - 1, i + 1 < count ? i + 1 : -1 };
    HS_TRY(merge_symbols(encoder, count));
    HS_TRY(hs_tokens_reserve(tokens, count));
    for (int32_t i = 0; i >= 0; i = encoder->symbols[i].next)
        tokens->items[tokens->count++] = encoder->symbols[i].token;
    return HS_OK;
}

/* HsPieceFunction: through the cache where the piece is short. */
static HsStatus encode_piece(void *context, const char *piece, size_t length)
{
    Encoder *encoder = context;
    HsTokens *tokens = encoder->tokens, *cached = &encoder->cached;
    if (length > CACHED_PIECE_BYTES)
        return encode_new_piece(encoder, piece, length);
    int64_t place;
    if (hs_map_get(&encoder->cache, piece, length, &place)) {
        int64_t count = place & ((1 << COUNT_BITS) - 1);
        HS_TRY(hs_tokens_reserve(tokens, count));
        memcpy(tokens->items + tokens->count, cached->items + (place >> COUNT_BITS), (size_t)count * sizeof(int32_t));
        tokens->count += count;
        return HS_OK;
    }
    int64_t before = tokens->count;
    HS_TRY(encode_new_piece(encoder, piece, length));
    if (encoder->cache.count >= CACHE_ENTRIES)
        return HS_OK;
    int64_t count = tokens->count - before;
    assert(count < 1 << COUNT_BITS); /* at most one token a byte */
    HS_TRY(hs_tokens_reserve(cached, count));
    memcpy(cached->items + cached->count, tokens->items + before, (size_t)count * sizeof(int32_t));
    HS_TRY(hs_map_put(&encoder->cache, piece, length, cached->count << COUNT_BITS | count));
    cached->count += count;
    return HS_OK;
}

/* The longest added token of this pass at the start of text; NULL when there is none. */
static const HsBpeAdded *find_added(const HsBpe *bpe, bool normalized, const char *text, size_t length)
{
    if (!bpe->added_starts[normalized][(unsigned char)text[0]])
        return NULL;
    for (size_t i = 0; i < bpe->added_count; i++) {
        size_t size;
        const char *content = hs_bpe_token_bytes(bpe, bpe->added[i].id, &size);
        if (bpe->added[i].normalized == normalized && size <= length && memcmp(content, text, size) == 0)
            return &bpe->added[i];
    }
    return NULL;
}

static HsStatus encode_text(Encoder *encoder, int pass, const char *text, size_t length);

/* Pass 0 cuts out added tokens that are not normalized, pass 1 the others, and what is left goes to the pieces. */
static HsStatus encode_between(Encoder *encoder, int pass, const char *text, size_t length)
{
    if (length == 0)
        return HS_OK;
    if (pass == 0)
        return encode_text(encoder, 1, text, length);
    return hs_pretokenizer_split(encoder->bpe->pretokenizer, text, length, encode_piece, encoder);
}

static HsStatus encode_text(Encoder *encoder, int pass, const char *text, size_t length)
{
    size_t begun = 0;
    for (size_t at = 0; at < length;) {
        const HsBpeAdded *added = find_added(encoder->bpe, pass == 1, text + at, length - at);
        if (!added) {
            at++;
            continue;
        }
        HS_TRY(encode_between(encoder, pass, text + begun, at - begun));
        HS_TRY(hs_tokens_reserve(encoder->tokens, 1));
        encoder->tokens->items[encoder->tokens->count++] = added->id;
        at += encoder->bpe->tokens[added->id].length;
        begun = at;
    }
    return encode_between(encoder, pass, text + begun, length - begun);
}

static HsStatus bpe_encode(const HsTokenizer *tokenizer, const char *text, size_t length, HsTokens *tokens)
{
    Encoder encoder = { .bpe = tokenizer->state, .tokens = tokens };
    int64_t before = tokens->count;
    HsStatus status = encode_text(&encoder, 0, text, length);
    if (status != HS_OK)
        tokens->count = before; /* all or nothing */
    free(encoder.symbols);
    free(encoder.heap);
    hs_map_deinit(&encoder.cache);
    hs_tokens_deinit(&encoder.cached);
    return status;
}

static HsStatus bpe_create(HsTokenizer *tokenizer, const char *path, const char *text, size_t length)
{
    (void)text, (void)length;
    if (!path)
        return hs_fail(HS_ECONFIG, "tokenizer.kind: bpe needs tokenizer.path, a Hugging Face tokenizer.json");
    char *json;
    size_t json_length;
    HsJson *root = NULL;
    HS_TRY(hs_read_file(path, BPE_FILE_MAX_BYTES, &json, &json_length));
    HsStatus status = hs_json_parse(path, json, json_length, &root);
    if (status == HS_OK && !hs_json_get(root, "model"))
        status = hs_fail(HS_EFORMAT, "%s: not a Hugging Face tokenizer.json: member `model` is missing", path);
    if (status == HS_OK)
        status = hs_bpe_parse(tokenizer, path, root, json, json_length);
    hs_json_destroy(root);
    free(json);
    return status;
}

static HsStatus bpe_write(const HsTokenizer *tokenizer, FILE *stream)
{
    const HsBpe *bpe = tokenizer->state;
    fwrite(bpe->source, 1, bpe->source_length, stream); /* the caller looks at ferror */
    return HS_OK;
}

static const char *bpe_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length)
{
    return hs_bpe_token_bytes(tokenizer->state, token, length);
}

const HsTokenizerKind hs_tokenizer_bpe = {
    "bpe", bpe_create, hs_bpe_parse, bpe_write, bpe_encode, bpe_bytes, hs_bpe_destroy,
};
