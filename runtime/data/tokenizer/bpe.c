/* SPDX-License-Identifier: MIT
 *
 * BPE (Sennrich, Haddow & Birch 2016): added tokens are cut out, the rest is normalized and cut into pieces, and in
 * each piece the adjacent pair with the best rank is merged, leftmost first, until no pair has one.
 *
 * A piece is a linked list of symbols and a heap of its mergeable pairs, O(n log n): pieces may be megabytes long (a
 * run of one letter, or a whole text where nothing cuts it).  A long one is cut first where no merge reaches across.
 * Pieces seen before in the same text are taken from a cache.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/tokenizer/bpe_encoder.h"

enum { CACHED_PIECE_BYTES = 64, CACHE_ENTRIES = 1 << 16, COUNT_BITS = 8 };

static bool precedes(const HsBpeCandidate *a, const HsBpeCandidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static HsStatus heap_push(HsBpeEncoder *encoder, HsBpeCandidate candidate)
{
    HS_TRY(hs_array_grow(&encoder->heap, sizeof *encoder->heap, encoder->heap_count + 1, &encoder->heap_capacity));
    HsBpeCandidate *heap = encoder->heap;
    size_t at = encoder->heap_count++;
    while (at > 0 && precedes(&candidate, &heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
    return HS_OK;
}

static HsBpeCandidate heap_pop(HsBpeEncoder *encoder)
{
    HsBpeCandidate *heap = encoder->heap, top = heap[0], moving = heap[--encoder->heap_count];
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
static HsStatus consider(HsBpeEncoder *encoder, int32_t at)
{
    if (at < 0 || encoder->symbols[at].next < 0)
        return HS_OK;
    int32_t pair[2] = { encoder->symbols[at].token, encoder->symbols[encoder->symbols[at].next].token };
    int64_t rank;
    if (!hs_map_get(&encoder->bpe->merges, pair, sizeof pair, &rank))
        return HS_OK;
    return heap_push(encoder, (HsBpeCandidate){ rank, at, pair[0], pair[1] });
}

/* Whether the candidate's pair is still there.  Where a neighbour has changed, another pair that becomes the same token
 * takes its place, at the old rank, as in the library that writes tokenizer.json. */
static bool is_current(const HsBpe *bpe, const HsBpeSymbol *symbols, const HsBpeCandidate *candidate)
{
    const HsBpeSymbol *left = &symbols[candidate->at];
    if (left->token < 0 || left->next < 0)
        return false;
    int32_t pair[2] = { left->token, symbols[left->next].token };
    int64_t rank;
    if (pair[0] == candidate->left && pair[1] == candidate->right)
        return true;
    return hs_map_get(&bpe->merges, pair, sizeof pair, &rank) && bpe->merged[rank] == bpe->merged[candidate->rank];
}

/* Merge what can be merged, best first.  A symbol that was swallowed has token -1. */
static HsStatus merge_symbols(HsBpeEncoder *encoder)
{
    HsBpeSymbol *symbols = encoder->symbols;
    encoder->heap_count = 0;
    for (size_t i = 0; i + 1 < encoder->symbol_count; i++)
        HS_TRY(consider(encoder, (int32_t)i));
    while (encoder->heap_count > 0) {
        HsBpeCandidate best = heap_pop(encoder);
        if (!is_current(encoder->bpe, symbols, &best))
            continue;
        HsBpeSymbol *left = &symbols[best.at], *right = &symbols[left->next];
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

static void add_symbol(HsBpeEncoder *encoder, int32_t token)
{
    int32_t at = (int32_t)encoder->symbol_count++;
    encoder->symbols[at] = (HsBpeSymbol){ token, at - 1, -1 };
    if (at > 0)
        encoder->symbols[at - 1].next = at;
}

static HsStatus fail_unit(uint32_t unit, bool byte_level)
{
    if (byte_level || unit >= 0x110000)
        return hs_fail(HS_EFORMAT,
                       "the tokenizer has no token for byte 0x%02X, and neither byte_fallback nor unk_token says what "
                       "to take",
                       (unsigned)(unit & 0xFF));
    char text[HS_UTF8_MAX_BYTES + 1] = "";
    text[hs_utf8_encode(unit, text)] = '\0';
    return hs_fail(HS_EFORMAT,
                   "the tokenizer has no token for character U+%04X%s%s%s, and neither byte_fallback nor unk_token "
                   "says what to take",
                   (unsigned)unit, unit < ' ' ? "" : " '", unit < ' ' ? "" : text, unit < ' ' ? "" : "'");
}

/* A unit without a token: the tokens of its bytes, all or none. */
static bool add_fallback(HsBpeEncoder *encoder, const char *text, size_t length)
{
    const int32_t *fallback = encoder->bpe->fallback;
    for (size_t i = 0; i < length; i++)
        if (fallback[(unsigned char)text[i]] < 0)
            return false;
    for (size_t i = 0; i < length; i++)
        add_symbol(encoder, fallback[(unsigned char)text[i]]);
    return true;
}

/* The piece's units as symbols.  Unknown ones wait, so that fuse_unk can make one of several; bytes of byte_fallback do
 * not end that wait, as in the library that writes tokenizer.json. */
static HsStatus make_symbols(HsBpeEncoder *encoder, const char *piece, size_t length)
{
    const HsBpe *bpe = encoder->bpe;
    if (length > INT32_MAX / 2)
        return hs_fail(
            HS_EUNSUPPORTED,
            "tokenizer: a piece of %zu bytes without a break, such as a space, is too long: split it, or leave it out",
            length);
    /* A byte-level unit is two bytes in the byte map, each of which may be a fallback. */
    HS_TRY(hs_array_grow(&encoder->symbols, sizeof *encoder->symbols, 2 * length + 1, &encoder->symbol_capacity));
    encoder->symbol_count = 0;
    bool waiting = false;
    for (size_t at = 0; at < length;) {
        uint32_t unit;
        const char *text = piece + at;
        size_t size = hs_bpe_unit(bpe, text, length - at, &unit);
        int32_t token = hs_bpe_unit_token(bpe, unit);
        at += size;
        if (token >= 0) {
            if (waiting)
                add_symbol(encoder, bpe->unknown);
            waiting = false;
            add_symbol(encoder, token);
            continue;
        }
        char mapped[HS_UTF8_MAX_BYTES];
        if (bpe->byte_level)
            size = hs_utf8_encode(hs_byte_map_character((unsigned char)unit), mapped);
        if (add_fallback(encoder, bpe->byte_level ? mapped : text, size))
            continue;
        if (bpe->unknown < 0)
            return fail_unit(unit, bpe->byte_level);
        if (waiting && !bpe->fuse_unknown)
            add_symbol(encoder, bpe->unknown);
        waiting = true;
    }
    if (waiting)
        add_symbol(encoder, bpe->unknown);
    return HS_OK;
}

static HsStatus encode_new_piece(HsBpeEncoder *encoder, const char *piece, size_t length)
{
    HsTokens *tokens = encoder->tokens;
    HS_TRY(make_symbols(encoder, piece, length));
    HS_TRY(merge_symbols(encoder));
    HS_TRY(hs_tokens_reserve(tokens, (int64_t)encoder->symbol_count));
    for (int32_t i = encoder->symbol_count > 0 ? 0 : -1; i >= 0; i = encoder->symbols[i].next)
        tokens->items[tokens->count++] = encoder->symbols[i].token;
    return HS_OK;
}

/* A cached piece's value: the number of its tokens, and above it the tokens themselves or, where they are many, their
 * place in `cached`. */
static bool fits_value(const HsBpeEncoder *encoder, int64_t count)
{
    return count * encoder->token_bits + COUNT_BITS < 64;
}

static HsStatus take_cached(HsBpeEncoder *encoder, int64_t value)
{
    HsTokens *tokens = encoder->tokens;
    const int64_t count = value & ((1 << COUNT_BITS) - 1);
    HS_TRY(hs_tokens_reserve(tokens, count));
    int32_t *out = tokens->items + tokens->count;
    uint64_t rest = (uint64_t)value >> COUNT_BITS;
    tokens->count += count;
    if (!fits_value(encoder, count)) {
        memcpy(out, encoder->cached.items + rest, (size_t)count * sizeof *out);
        return HS_OK;
    }
    for (int64_t i = 0; i < count; i++, rest >>= encoder->token_bits)
        out[i] = (int32_t)(rest & ((UINT64_C(1) << encoder->token_bits) - 1));
    return HS_OK;
}

/* A full cache begins anew: what is frequent is soon back in it. */
static HsStatus put_cached(HsBpeEncoder *encoder, const char *piece, size_t length, const int32_t *tokens,
                           int64_t count)
{
    HsTokens *cached = &encoder->cached;
    if (count == 0)
        return HS_OK;
    assert(count < 1 << COUNT_BITS); /* at most two tokens a byte */
    if (encoder->cache.count >= CACHE_ENTRIES) {
        hs_map_clear(&encoder->cache);
        cached->count = 0;
    }
    uint64_t value = 0;
    if (fits_value(encoder, count)) {
        for (int64_t i = count - 1; i >= 0; i--)
            value = value << encoder->token_bits | (uint32_t)tokens[i];
    } else {
        value = (uint64_t)cached->count;
        HS_TRY(hs_tokens_reserve(cached, count));
        memcpy(cached->items + cached->count, tokens, (size_t)count * sizeof(int32_t));
        cached->count += count;
    }
    return hs_map_put(&encoder->cache, piece, length, (int64_t)(value << COUNT_BITS | (uint64_t)count));
}

/* Through the cache where the piece is short. */
static HsStatus encode_cached(HsBpeEncoder *encoder, const char *piece, size_t length)
{
    if (length > CACHED_PIECE_BYTES)
        return encode_new_piece(encoder, piece, length);
    int64_t value;
    if (hs_map_get(&encoder->cache, piece, length, &value))
        return take_cached(encoder, value);
    const int64_t before = encoder->tokens->count;
    HS_TRY(encode_new_piece(encoder, piece, length));
    return put_cached(encoder, piece, length, encoder->tokens->items + before, encoder->tokens->count - before);
}

/* Where a long piece may be cut after `from`: between two known units that stand side by side in no merged token. */
static size_t find_cut(const HsBpe *bpe, const char *piece, size_t length, size_t from)
{
    uint32_t left = 0, right = 0;
    bool left_known = false;
    for (size_t at = from; at < length; left = right) {
        size_t begin = at;
        at += hs_bpe_unit(bpe, piece + at, length - at, &right);
        bool known = hs_bpe_unit_token(bpe, right) >= 0;
        size_t joint = hs_bpe_joint(left, right);
        if (begin > from && left_known && known && !(bpe->joints[joint / 8] >> joint % 8 & 1))
            return begin;
        left_known = known;
    }
    return length;
}

HsStatus hs_bpe_encode_piece(void *context, const char *piece, size_t length)
{
    HsBpeEncoder *encoder = context;
    const HsBpe *bpe = encoder->bpe;
    int64_t whole;
    if (bpe->ignore_merges && hs_map_get(&bpe->whole_pieces, piece, length, &whole)) {
        HS_TRY(hs_tokens_reserve(encoder->tokens, 1));
        encoder->tokens->items[encoder->tokens->count++] = (int32_t)whole;
        return HS_OK;
    }
    for (size_t at = 0, end; length > CACHED_PIECE_BYTES && at < length; at = end) {
        end = find_cut(bpe, piece, length, at);
        HS_TRY(encode_cached(encoder, piece + at, end - at));
    }
    return length > CACHED_PIECE_BYTES ? HS_OK : encode_cached(encoder, piece, length);
}

HsStatus hs_bpe_emit(HsBpeEncoder *encoder, const HsBpeAdded *added)
{
    HS_TRY(hs_tokens_reserve(encoder->tokens, 1));
    encoder->tokens->items[encoder->tokens->count++] = added->id;
    return HS_OK;
}

/* Where the encoder stands in the text. */
typedef struct Part {
    HsBpeEncoder *encoder;
    const char *text;
    bool at_start; /* nothing was cut off before text */
} Part;

/* HsBpePartFunction on normalized text. */
static HsStatus encode_normalized(void *context, const HsBpeAdded *added, size_t begin, size_t end)
{
    const Part *part = context;
    HsBpeEncoder *encoder = part->encoder;
    if (added)
        return hs_bpe_emit(encoder, added);
    return hs_pretokenizer_split(encoder->bpe->pretokenizer, encoder->matcher, part->text + begin, end - begin,
                                 part->at_start && begin == 0, hs_bpe_encode_piece, encoder);
}

HsStatus hs_bpe_encode_run(HsBpeEncoder *encoder, const char *text, size_t length, bool at_start, bool begins)
{
    const HsBpe *bpe = encoder->bpe;
    if (bpe->normalizer) {
        HS_TRY(hs_normalizer_apply(bpe->normalizer, encoder->matcher, text, length, begins, &encoder->normalized));
        text = encoder->normalized.items;
        length = encoder->normalized.count;
    }
    Part part = { encoder, text, at_start };
    return hs_bpe_cut_added(bpe, true, encoder->matcher, text, length, length, encode_normalized, &part);
}

/* HsBpePartFunction on the text as given. */
static HsStatus encode_given(void *context, const HsBpeAdded *added, size_t begin, size_t end)
{
    const Part *given = context;
    return added ? hs_bpe_emit(given->encoder, added)
                 : hs_bpe_encode_run(given->encoder, given->text + begin, end - begin, begin == 0, true);
}

HsStatus hs_bpe_encode_text(HsBpeEncoder *encoder, const char *text, size_t length, HsTokens *tokens)
{
    const int64_t before = tokens->count;
    Part part = { encoder, text, true };
    encoder->tokens = tokens;
    HsStatus status =
        hs_bpe_cut_added(encoder->bpe, false, encoder->matcher, text, length, length, encode_given, &part);
    if (status != HS_OK)
        tokens->count = before; /* all or nothing */
    return status;
}
