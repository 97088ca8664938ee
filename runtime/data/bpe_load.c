/* SPDX-License-Identifier: MIT
 *
 * A Hugging Face tokenizer.json -> HsBpe.
 * Whatever would make that library's tokens differ from ours is refused by name: dropout, affixes, token flags,
 * truncation.  Not honoured on purpose: the post-processor, which adds special tokens around a text (here that is the
 * data's business), as with add_special_tokens=False there.
 */
#include "runtime/data/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/utf8.h"

enum { BPE_MAX_VOCABULARY = 1 << 24 };

/* What is needed only while loading. */
typedef struct Loading {
    HsTokenizer *tokenizer;
    HsBpe *bpe;
    const char *name;
    HsMap ids; /* token as written -> id */
} Loading;

/* An id from JSON: a whole number in range. */
static HsStatus read_id(const Loading *loading, const HsJson *node, const char *token, int32_t *id)
{
    double value = hs_json_number(node);
    if (!(value >= 0 && value < BPE_MAX_VOCABULARY) || value != (double)(int32_t)value)
        return hs_fail(HS_EFORMAT, "%s: the id of token \"%.60s\" must be a whole number below %d", loading->name,
                       token, BPE_MAX_VOCABULARY);
    *id = (int32_t)value;
    return HS_OK;
}

/* Give an id its bytes. */
static HsStatus set_token(Loading *loading, int32_t id, const char *bytes, size_t length)
{
    HsBpe *bpe = loading->bpe;
    size_t before = bpe->token_capacity;
    HS_TRY(hs_array_grow(&bpe->tokens, sizeof *bpe->tokens, (size_t)id + 1, &bpe->token_capacity));
    memset(bpe->tokens + before, 0, (bpe->token_capacity - before) * sizeof *bpe->tokens);
    if (bpe->tokens[id].used)
        return hs_fail(HS_EFORMAT, "%s: id %d belongs to two tokens", loading->name, id);
    HS_TRY(hs_array_grow(&bpe->pool, 1, bpe->pool_used + length + 1, &bpe->pool_capacity));
    memcpy(bpe->pool + bpe->pool_used, bytes, length);
    bpe->tokens[id] = (HsBpeToken){ bpe->pool_used, length, true };
    bpe->pool_used += length;
    if (id >= loading->tokenizer->vocabulary)
        loading->tokenizer->vocabulary = id + 1;
    return HS_OK;
}

/* model.vocab: {"token": id}.  A token with characters outside the byte map stands for itself; no merge makes it. */
static HsStatus load_vocabulary(Loading *loading, const HsJson *vocab)
{
    if (!hs_json_is_object(vocab) || hs_json_count(vocab) == 0)
        return hs_fail(HS_EFORMAT, "%s: model.vocab must be an object of token: id", loading->name);
    for (const HsJson *item = hs_json_first(vocab); item; item = hs_json_next(item)) {
        const char *token = hs_json_key(item);
        size_t length = strlen(token);
        int32_t id = 0;
        int64_t earlier;
        HS_TRY(read_id(loading, item, token, &id));
        if (hs_map_get(&loading->ids, token, length, &earlier))
            return hs_fail(HS_EFORMAT, "%s: token \"%.60s\" is in model.vocab twice", loading->name, token);
        HS_TRY(hs_map_put(&loading->ids, token, length, id));
        char *bytes = malloc(length + 1);
        if (!bytes)
            return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
        long mapped = hs_byte_map_decode(token, length, bytes);
        HsStatus status = set_token(loading, id, mapped < 0 ? token : bytes, mapped < 0 ? length : (size_t)mapped);
        if (status == HS_OK && mapped >= 0 && loading->bpe->ignore_merges)
            status = hs_map_put(&loading->bpe->whole_pieces, bytes, (size_t)mapped, id);
        free(bytes);
        HS_TRY(status);
    }
    return HS_OK;
}

/* Every byte must have a token, or some text could not be written. */
static HsStatus load_bytes(Loading *loading)
{
    for (int byte = 0; byte < 256; byte++) {
        char character[HS_UTF8_MAX_BYTES];
        size_t length = hs_utf8_encode(hs_byte_map_character((unsigned char)byte), character);
        int64_t id;
        if (!hs_map_get(&loading->ids, character, length, &id))
            return hs_fail(HS_EUNSUPPORTED, "%s: byte 0x%02X has no token; only byte-level vocabularies are supported",
                           loading->name, (unsigned)byte);
        loading->bpe->byte_tokens[byte] = (int32_t)id;
    }
    return HS_OK;
}

static HsStatus add_merge(Loading *loading, const char *left, size_t left_length, const char *right,
                          size_t right_length, size_t rank)
{
    int64_t ids[2], merged;
    size_t length = left_length + right_length;
    char *whole = malloc(length + 1);
    if (!whole)
        return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
    memcpy(whole, left, left_length);
    memcpy(whole + left_length, right, right_length);
    bool known = hs_map_get(&loading->ids, left, left_length, &ids[0]) &&
                 hs_map_get(&loading->ids, right, right_length, &ids[1]) &&
                 hs_map_get(&loading->ids, whole, length, &merged);
    free(whole);
    if (!known)
        return hs_fail(HS_EFORMAT,
                       "%s: model.merges[%zu]: \"%.*s\", \"%.*s\" or what they become is not in model.vocab",
                       loading->name, rank, (int)(left_length < 60 ? left_length : 60), left,
                       (int)(right_length < 60 ? right_length : 60), right);
    int32_t pair[2] = { (int32_t)ids[0], (int32_t)ids[1] };
    loading->bpe->merged[rank] = (int32_t)merged;
    return hs_map_put(&loading->bpe->merges, pair, sizeof pair, (int64_t)rank);
}

/* model.merges, strongest first: "a b" (older files) or ["a", "b"]. */
static HsStatus load_merges(Loading *loading, const HsJson *merges)
{
    HsBpe *bpe = loading->bpe;
    if (!hs_json_is_array(merges))
        return hs_fail(HS_EFORMAT, "%s: model.merges must be a list", loading->name);
    bpe->merge_count = (size_t)hs_json_count(merges);
    bpe->merged = calloc(bpe->merge_count + 1, sizeof *bpe->merged);
    if (!bpe->merged)
        return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
    size_t rank = 0;
    for (const HsJson *item = hs_json_first(merges); item; item = hs_json_next(item), rank++) {
        const char *text = hs_json_string(item);
        const HsJson *first = hs_json_is_array(item) && hs_json_count(item) == 2 ? hs_json_first(item) : NULL;
        const char *left = text ? text : hs_json_string(first);
        const char *space = text ? strchr(text, ' ') : NULL;
        const char *right = text ? (space ? space + 1 : NULL) : first ? hs_json_string(hs_json_next(first)) : NULL;
        if (!left || !right || (text && strchr(right, ' ')))
            return hs_fail(HS_EFORMAT, "%s: model.merges[%zu] must be \"a b\" or [\"a\", \"b\"]", loading->name, rank);
        HS_TRY(add_merge(loading, left, space ? (size_t)(space - text) : strlen(left), right, strlen(right), rank));
    }
    return HS_OK;
}

static HsStatus load_added_token(Loading *loading, const HsJson *node)
{
    HsBpe *bpe = loading->bpe;
    const char *content;
    int64_t known;
    int32_t id = 0;
    HS_TRY(hs_json_need_string(loading->name, node, "content", &content));
    HS_TRY(read_id(loading, hs_json_get(node, "id"), content, &id));
    if (content[0] == '\0')
        return hs_fail(HS_EFORMAT, "%s: an added token has no content", loading->name);
    static const char *const flags[] = { "single_word", "lstrip", "rstrip" };
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (hs_json_is_true(hs_json_get(node, flags[i])))
            return hs_fail(HS_EUNSUPPORTED, "%s: added token \"%.60s\": %s is not supported", loading->name, content,
                           flags[i]);
    if (hs_map_get(&loading->ids, content, strlen(content), &known)) {
        if (known != id)
            return hs_fail(HS_EFORMAT, "%s: added token \"%.60s\" has id %d, but %lld in model.vocab", loading->name,
                           content, id, (long long)known);
        /* An added token stands for itself; if merges can make it from other bytes, its id would mean two things. */
        size_t length;
        const char *bytes = hs_bpe_token_bytes(bpe, id, &length);
        if (length != strlen(content) || memcmp(bytes, content, length) != 0)
            return hs_fail(HS_EUNSUPPORTED, "%s: added token \"%.60s\" is also a token for other bytes", loading->name,
                           content);
    } else {
        HS_TRY(hs_map_put(&loading->ids, content, strlen(content), id));
        HS_TRY(set_token(loading, id, content, strlen(content)));
    }
    HS_TRY(hs_array_grow(&bpe->added, sizeof *bpe->added, bpe->added_count + 1, &bpe->added_capacity));
    const HsJson *normalized = hs_json_get(node, "normalized");
    /* Absent: true unless special. */
    bool late = normalized ? hs_json_is_true(normalized) : !hs_json_is_true(hs_json_get(node, "special"));
    bpe->added[bpe->added_count++] = (HsBpeAdded){ id, late };
    bpe->added_starts[late][(unsigned char)content[0]] = true;
    return HS_OK;
}

static HsStatus load_added_tokens(Loading *loading, const HsJson *list)
{
    HsBpe *bpe = loading->bpe;
    if (!list)
        return HS_OK;
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: added_tokens must be a list", loading->name);
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(load_added_token(loading, item));
    /* Longest first, so that the first that fits is the right one; few and loaded once: insertion sort. */
    for (size_t i = 1; i < bpe->added_count; i++) {
        HsBpeAdded moving = bpe->added[i];
        size_t j = i;
        for (; j > 0 && bpe->tokens[bpe->added[j - 1].id].length < bpe->tokens[moving.id].length; j--)
            bpe->added[j] = bpe->added[j - 1];
        bpe->added[j] = moving;
    }
    /* The token between documents goes by one of a few names. */
    static const char *const ends[] = { HS_END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>" };
    for (size_t i = 0; i < sizeof ends / sizeof ends[0] && loading->tokenizer->end_of_text < 0; i++) {
        int64_t id;
        if (hs_map_get(&loading->ids, ends[i], strlen(ends[i]), &id))
            loading->tokenizer->end_of_text = (int32_t)id;
    }
    return HS_OK;
}

/* null, false, 0 and "" leave a feature off. */
static bool is_off(const HsJson *node)
{
    const char *text = hs_json_string(node);
    bool something = hs_json_is_object(node) || hs_json_is_array(node) || hs_json_is_true(node);
    return !something && (!text || *text == '\0') && !(hs_json_is_number(node) && hs_json_number(node) != 0);
}

static HsStatus check_features(const char *name, const HsJson *root, const HsJson *model)
{
    static const char *const of_model[] = { "dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                            "byte_fallback" };
    static const char *const of_root[] = { "truncation", "padding" };
    for (size_t i = 0; i < sizeof of_model / sizeof of_model[0]; i++)
        if (!is_off(hs_json_get(model, of_model[i])))
            return hs_fail(HS_EUNSUPPORTED, "%s: model.%s is not supported", name, of_model[i]);
    for (size_t i = 0; i < sizeof of_root / sizeof of_root[0]; i++)
        if (!is_off(hs_json_get(root, of_root[i])))
            return hs_fail(HS_EUNSUPPORTED, "%s: %s is not supported; set it to null", name, of_root[i]);
    const char *decoder = hs_json_string(hs_json_get(hs_json_get(root, "decoder"), "type"));
    if (decoder && strcmp(decoder, "ByteLevel") != 0)
        return hs_fail(HS_EUNSUPPORTED, "%s: decoder %.40s is not supported, only ByteLevel", name, decoder);
    /* Older files leave the type out; then vocabulary and merges say it. */
    const char *type = hs_json_string(hs_json_get(model, "type"));
    if (type ? strcmp(type, "BPE") != 0 : !hs_json_get(model, "merges"))
        return hs_fail(HS_EUNSUPPORTED, "%s: model.type %.40s is not supported, only BPE", name,
                       type ? type : "(none)");
    return HS_OK;
}

HsStatus hs_bpe_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text, size_t length)
{
    const HsJson *model = hs_json_get(root, "model");
    HS_TRY(check_features(name, root, model));
    HsBpe *bpe = calloc(1, sizeof *bpe);
    char *source = malloc(length + 1);
    if (!bpe || !source) {
        free(bpe);
        free(source);
        return hs_fail(HS_ENOMEM, "%s: out of memory", name);
    }
    memcpy(source, text, length);
    bpe->source = source;
    bpe->source_length = length;
    bpe->ignore_merges = hs_json_is_true(hs_json_get(model, "ignore_merges"));
    tokenizer->state = bpe; /* from here on hs_bpe_destroy frees it */

    Loading loading = { .tokenizer = tokenizer, .bpe = bpe, .name = name };
    HsStatus status;
    HS_TRY_GOTO(status, load_vocabulary(&loading, hs_json_get(model, "vocab")), done);
    HS_TRY_GOTO(status, load_bytes(&loading), done);
    HS_TRY_GOTO(status, load_merges(&loading, hs_json_get(model, "merges")), done);
    HS_TRY_GOTO(status, load_added_tokens(&loading, hs_json_get(root, "added_tokens")), done);
    HS_TRY_GOTO(status,
                hs_pretokenizer_create(name, hs_json_get(root, "normalizer"), hs_json_get(root, "pre_tokenizer"),
                                       &bpe->pretokenizer),
                done);
done:
    hs_map_deinit(&loading.ids);
    return status;
}

void hs_bpe_destroy(HsTokenizer *tokenizer)
{
    HsBpe *bpe = tokenizer->state;
    if (!bpe)
        return;
    free(bpe->source);
    free(bpe->tokens);
    free(bpe->pool);
    hs_map_deinit(&bpe->merges);
    free(bpe->merged);
    hs_map_deinit(&bpe->whole_pieces);
    free(bpe->added);
    hs_pretokenizer_destroy(bpe->pretokenizer);
    free(bpe);
}
