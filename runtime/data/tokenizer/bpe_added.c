/* SPDX-License-Identifier: MIT
 *
 * Added tokens: found leftmost, then longest, as the library that writes tokenizer.json finds them.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/bpe.h"

#include <stdio.h>

#include "runtime/config/tokenizer_folder.h"
#include "runtime/data/tokenizer/members.h"

enum { BPE_MAX_VOCABULARY = 1 << 24 };

/* Longer ones would make finding them slow where they almost match at every byte. */
enum { ADDED_MAX_BYTES = 1024 };

static HsStatus new_node(const HsBpeLoading *loading, HsBpeTrie *trie, unsigned char byte, int32_t *index)
{
    if (trie->count >= INT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "%s: too many added tokens", loading->name);
    HS_TRY(hs_array_grow(&trie->nodes, sizeof *trie->nodes, trie->count + 1, &trie->capacity));
    *index = (int32_t)trie->count;
    trie->nodes[trie->count++] = (struct HsBpeTrieNode){ byte, -1, -1, -1 };
    return HS_OK;
}

static int32_t find_child(const HsBpeTrie *trie, int32_t node, unsigned char byte)
{
    int32_t child = trie->nodes[node].child;
    while (child >= 0 && trie->nodes[child].byte != byte)
        child = trie->nodes[child].next;
    return child;
}

/* Of two added tokens with the same bytes the first stays. */
static HsStatus insert(const HsBpeLoading *loading, HsBpeTrie *trie, const char *text, size_t length, int32_t added)
{
    int32_t node = trie->first[(unsigned char)text[0]];
    if (node < 0) {
        HS_TRY(new_node(loading, trie, (unsigned char)text[0], &node));
        trie->first[(unsigned char)text[0]] = node;
    }
    for (size_t i = 1; i < length; i++) {
        int32_t child = find_child(trie, node, (unsigned char)text[i]);
        if (child < 0) {
            HS_TRY(new_node(loading, trie, (unsigned char)text[i], &child));
            trie->nodes[child].next = trie->nodes[node].child;
            trie->nodes[node].child = child;
        }
        node = child;
    }
    if (trie->nodes[node].added < 0)
        trie->nodes[node].added = added;
    return HS_OK;
}

/* The longest added token at the start of text -> its length, 0: none. */
static size_t find_longest(const HsBpeTrie *trie, const char *text, size_t length, int32_t *added)
{
    size_t longest = 0;
    int32_t node = trie->first[(unsigned char)text[0]];
    for (size_t i = 1; node >= 0; i++) {
        if (trie->nodes[node].added >= 0) {
            *added = trie->nodes[node].added;
            longest = i;
        }
        node = i < length ? find_child(trie, node, (unsigned char)text[i]) : -1;
    }
    return longest;
}

/* The character that ends at `end` begins there. */
static size_t previous_character(const char *text, size_t end)
{
    size_t begin = end - 1;
    while (begin > 0 && end - begin < HS_UTF8_MAX_BYTES && ((unsigned char)text[begin] & 0xC0) == 0x80)
        begin--;
    return begin;
}

static HsStatus is_word(const HsBpe *bpe, HsMatcher *matcher, const char *text, size_t length, bool *word)
{
    uint32_t character;
    size_t end, size = hs_utf8_decode(text, length, &character);
    char stand_in[HS_UTF8_MAX_BYTES];
    *word = false;
    if (size == 0)
        return HS_OK;
    hs_utf8_encode(hs_unicode_stand_in(character), stand_in);
    return hs_matcher_next(matcher, bpe->word, stand_in, size, 0, &end, word);
}

static HsStatus stands_alone(const HsBpe *bpe, HsMatcher *matcher, const char *text, size_t length, size_t begin,
                             size_t end, bool *alone)
{
    bool before = false, behind = false;
    if (begin > 0) {
        size_t previous = previous_character(text, begin);
        HS_TRY(is_word(bpe, matcher, text + previous, begin - previous, &before));
    }
    if (end < length)
        HS_TRY(is_word(bpe, matcher, text + end, length - end, &behind));
    *alone = !before && !behind;
    return HS_OK;
}

static bool is_space(const char *text, size_t length, size_t *size)
{
    uint32_t character;
    *size = hs_utf8_decode(text, length, &character);
    return *size > 0 && hs_unicode_is_space(character);
}

HsStatus hs_bpe_cut_added(const HsBpe *bpe, bool normalized, HsMatcher *matcher, const char *text, size_t length,
                          size_t limit, HsBpePartFunction *take, void *context)
{
    const HsBpeTrie *trie = &bpe->tries[normalized];
    size_t begun = 0, spaces_end = 0, size; /* spaces_end: how far white space was followed already */
    int32_t index = 0;
    for (size_t at = 0, next; trie->count > 0 && at < limit; at = next) {
        while (at < limit && trie->first[(unsigned char)text[at]] < 0)
            at++;
        if (at == limit)
            break;
        size_t found = find_longest(trie, text + at, length - at, &index);
        next = at + (found > 0 ? found : 1);
        const HsBpeAdded *added = &bpe->added[index];
        bool taken = found > 0;
        if (taken && added->single_word)
            HS_TRY(stands_alone(bpe, matcher, text, length, at, next, &taken));
        if (!taken)
            continue;
        size_t begin = at, end = next;
        if (added->lstrip && begin < begun)
            begin = begun; /* an earlier one took the white space that this begins with */
        while (added->lstrip && begin > begun) {
            size_t previous = previous_character(text, begin);
            if (previous < begun || !is_space(text + previous, begin - previous, &size))
                break;
            begin = previous;
        }
        if (added->rstrip) {
            end = end < spaces_end ? spaces_end : end;
            while (end < length && is_space(text + end, length - end, &size))
                end += size;
            spaces_end = end;
        }
        if (begun < begin)
            HS_TRY(take(context, NULL, begun, begin));
        if (begin < end)
            HS_TRY(take(context, added, begin, end));
        begun = end;
    }
    return begun < limit ? take(context, NULL, begun, limit) : HS_OK;
}

size_t hs_bpe_limit(const HsBpeTrie *trie, const char *text, size_t length, bool open)
{
    const size_t tail = trie->count > 0 ? trie->longest - 1 : 0;
    size_t limit = !open ? length : length > tail ? length - tail : 0;
    while (limit > 0 && limit < length && ((unsigned char)text[limit] & 0xC0) == 0x80)
        limit--;
    return limit;
}

/* If merges can make a token of the vocabulary from other bytes than it has as an added one, its id means two things.
 */
static HsStatus check_bytes(const HsBpeLoading *loading, const char *content)
{
    size_t length = strlen(content);
    char *bytes = malloc(length + 1);
    if (!bytes)
        return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
    long mapped = loading->bpe->byte_level ? hs_byte_map_decode(content, length, bytes) : -1;
    bool other = mapped >= 0 && ((size_t)mapped != length || memcmp(bytes, content, length) != 0);
    free(bytes);
    if (other)
        return hs_fail(HS_EUNSUPPORTED,
                       "%s: added token \"%.60s\" is in model.vocab too, where it stands for other bytes",
                       loading->name, content);
    return HS_OK;
}

/* The library numbers added tokens itself, on from the vocabulary and from each other; a file that says otherwise would
 * mean two things. */
static HsStatus check_id(HsBpeLoading *loading, const char *content, int32_t id)
{
    int64_t known;
    if (hs_map_get(&loading->ids, content, strlen(content), &known)) {
        if (known != id)
            return hs_fail(HS_EFORMAT, "%s: added token \"%.60s\" has id %d, but %lld in model.vocab", loading->name,
                           content, id, (long long)known);
        return check_bytes(loading, content);
    }
    int64_t expected =
        loading->last_added >= loading->model_size ? (int64_t)loading->last_added + 1 : loading->model_size;
    if (id != expected)
        return hs_fail(HS_EFORMAT,
                       "%s: added token \"%.60s\" has id %d, but the one that follows the vocabulary and the added "
                       "tokens before it is %lld",
                       loading->name, content, id, (long long)expected);
    HS_TRY(hs_map_put(&loading->ids, content, strlen(content), id));
    return hs_bpe_set_token(loading, id, content, strlen(content));
}

/* The library writes such a token as it looks for it. */
static HsStatus set_written(HsBpe *bpe, int32_t id, const HsBytes *bytes)
{
    HS_TRY(hs_array_grow(&bpe->pool, 1, bpe->pool_used + bytes->count + 1, &bpe->pool_capacity));
    if (bytes->count > 0)
        memcpy(bpe->pool + bpe->pool_used, bytes->items, bytes->count);
    bpe->tokens[id].written_offset = bpe->pool_used;
    bpe->tokens[id].written_length = bytes->count;
    bpe->pool_used += bytes->count;
    return HS_OK;
}

/* What is looked for: the content, normalized where that is asked for. */
static HsStatus insert_content(HsBpeLoading *loading, const char *content, bool normalized, int32_t index)
{
    HsBpe *bpe = loading->bpe;
    HsBytes bytes = { 0 };
    HsStatus status = normalized && bpe->normalizer ? hs_normalizer_apply(bpe->normalizer, loading->matcher, content,
                                                                          strlen(content), true, &bytes)
                                                    : hs_bytes_append(&bytes, content, strlen(content));
    if (status == HS_OK && (bytes.count == 0 || bytes.count > ADDED_MAX_BYTES))
        status = hs_fail(HS_EUNSUPPORTED, "%s: added token \"%.60s\": its text has %zu bytes; 1 to %d are supported",
                         loading->name, content, bytes.count, ADDED_MAX_BYTES);
    if (status == HS_OK)
        status = insert(loading, &bpe->tries[normalized], bytes.items, bytes.count, index);
    if (status == HS_OK && bytes.count > bpe->tries[normalized].longest)
        bpe->tries[normalized].longest = bytes.count;
    if (status == HS_OK && normalized)
        status = set_written(bpe, bpe->added[index].id, &bytes);
    hs_bytes_deinit(&bytes);
    return status;
}

static HsStatus load_one(HsBpeLoading *loading, HsMap *seen, const HsJson *node)
{
    HsBpe *bpe = loading->bpe;
    const char *content;
    char where[256];
    int64_t earlier;
    int32_t id = 0;
    bool special, normalized;
    HsBpeAdded added = { 0 };
    snprintf(where, sizeof where, "%.180s: added_tokens", loading->name);
    HS_TRY(hs_json_need_string(loading->name, node, "content", &content));
    HS_TRY(hs_members_known(where, node, "id content single_word lstrip rstrip normalized special "));
    HS_TRY(hs_bpe_read_id(loading, hs_json_get(node, "id"), content, &id));
    if (content[0] == '\0')
        return hs_fail(HS_EFORMAT, "%s: an added token has no content", loading->name);
    if (hs_map_get(seen, content, strlen(content), &earlier))
        return hs_fail(HS_EFORMAT, "%s: added token \"%.60s\" is there twice", loading->name, content);
    snprintf(where, sizeof where, "%.150s: added token \"%.60s\"", loading->name, content);
    HS_TRY(hs_member_flag(where, node, "special", false, &special));
    HS_TRY(hs_member_flag(where, node, "normalized", !special, &normalized));
    HS_TRY(hs_member_flag(where, node, "single_word", false, &added.single_word));
    HS_TRY(hs_member_flag(where, node, "lstrip", false, &added.lstrip));
    HS_TRY(hs_member_flag(where, node, "rstrip", false, &added.rstrip));
    HS_TRY(check_id(loading, content, id));
    bpe->tokens[id].added = true;
    if (id > loading->last_added)
        loading->last_added = id;
    if (added.single_word && !bpe->word)
        HS_TRY(hs_pattern_create(where, "[" HS_WORD_CLASS "\\x{200C}\\x{200D}]", &bpe->word));
    added.id = id;
    HS_TRY(hs_array_grow(&bpe->added, sizeof *bpe->added, bpe->added_count + 1, &bpe->added_capacity));
    bpe->added[bpe->added_count] = added;
    HS_TRY(hs_map_put(seen, content, strlen(content), 2 * (int64_t)bpe->added_count + normalized));
    bpe->added_count++;
    return HS_OK;
}

static void find_end_of_text(const HsBpeLoading *loading)
{
    const char *const *const ends = hs_usual_ends_of_text;
    int64_t id;
    for (int i = 0; ends[i] && loading->tokenizer->end_of_text < 0; i++)
        if (hs_map_get(&loading->ids, ends[i], strlen(ends[i]), &id))
            loading->tokenizer->end_of_text = (int32_t)id;
}

HsStatus hs_bpe_load_added(HsBpeLoading *loading, const HsJson *list)
{
    HsMap seen = { 0 };
    HsStatus status = HS_OK;
    if (!list)
        return HS_OK;
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: added_tokens must be a list", loading->name);
    for (const HsJson *item = hs_json_first(list); item && status == HS_OK; item = hs_json_next(item))
        status = load_one(loading, &seen, item);
    /* Special ones first: of two that read the same after normalizing, the first wins. */
    for (int special = 1; special >= 0; special--) {
        size_t i = 0;
        for (const HsJson *item = hs_json_first(list); item && status == HS_OK; item = hs_json_next(item), i++)
            if (hs_json_is_true(hs_json_get(item, "special")) == (special == 1))
                status = insert_content(loading, hs_json_string(hs_json_get(item, "content")),
                                        seen.entries[i].value % 2 == 1, (int32_t)i);
    }
    hs_map_deinit(&seen);
    find_end_of_text(loading);
    return status;
}

HsStatus hs_bpe_read_id(const HsBpeLoading *loading, const HsJson *node, const char *token, int32_t *id)
{
    double value = hs_json_number(node);
    if (!(value >= 0 && value < BPE_MAX_VOCABULARY) || value != (double)(int32_t)value)
        return hs_fail(HS_EFORMAT, "%s: the id of token \"%.60s\" must be a whole number below %d", loading->name,
                       token, BPE_MAX_VOCABULARY);
    *id = (int32_t)value;
    return HS_OK;
}

/* Its bytes in the middle of a text are read from the decoder once all tokens are there (decode_tokens). */
HsStatus hs_bpe_set_token(HsBpeLoading *loading, int32_t id, const char *written, size_t length)
{
    HsBpe *bpe = loading->bpe;
    size_t before = bpe->token_capacity;
    HS_TRY(hs_array_grow(&bpe->tokens, sizeof *bpe->tokens, (size_t)id + 1, &bpe->token_capacity));
    memset(bpe->tokens + before, 0, (bpe->token_capacity - before) * sizeof *bpe->tokens);
    if (bpe->tokens[id].used)
        return hs_fail(HS_EFORMAT, "%s: id %d belongs to two tokens", loading->name, id);
    HS_TRY(hs_array_grow(&bpe->pool, 1, bpe->pool_used + length + 1, &bpe->pool_capacity));
    memcpy(bpe->pool + bpe->pool_used, written, length);
    bpe->tokens[id] = (HsBpeToken){ bpe->pool_used, length, bpe->pool_used, length, true, false };
    bpe->pool_used += length;
    if (id >= loading->tokenizer->vocabulary)
        loading->tokenizer->vocabulary = id + 1;
    return HS_OK;
}
