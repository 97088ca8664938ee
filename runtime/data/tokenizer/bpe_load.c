/* SPDX-License-Identifier: MIT
 *
 * A Hugging Face tokenizer.json -> HsBpe.
 * Whatever would make that library's tokens differ from ours is refused by name, and so is a member that is not known.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/bpe.h"

#include <stdio.h>

#include "runtime/data/tokenizer/members.h"

enum { CHARACTERS = 0x110000 };

/* A token as written, in units: -1 when the byte map has no byte for some character, so that no text makes it.
 * `units` has room for the token. */
static long unit_bytes(const HsBpe *bpe, const char *token, size_t length, char *units)
{
    if (bpe->byte_level)
        return hs_byte_map_decode(token, length, units);
    memcpy(units, token, length);
    return (long)length;
}

/* What is looked up by units: a token of one unit, a whole piece. */
static HsStatus note_units(HsBpeLoading *loading, const char *units, size_t length, int32_t id)
{
    HsBpe *bpe = loading->bpe;
    uint32_t unit;
    if (length > 0 && hs_bpe_unit(bpe, units, length, &unit) == length)
        bpe->unit_tokens[unit] = id + 1;
    return bpe->ignore_merges ? hs_map_put(&bpe->whole_pieces, units, length, id) : HS_OK;
}

/* model.vocab: {"token": id}. */
static HsStatus load_vocabulary(HsBpeLoading *loading, const HsJson *vocab)
{
    HsBpe *bpe = loading->bpe;
    if (!hs_json_is_object(vocab) || hs_json_count(vocab) == 0)
        return hs_fail(HS_EFORMAT, "%s: model.vocab must be an object of token: id", loading->name);
    bpe->unit_tokens = calloc(bpe->byte_level ? 256 : CHARACTERS, sizeof *bpe->unit_tokens);
    if (!bpe->unit_tokens)
        return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
    for (const HsJson *item = hs_json_first(vocab); item; item = hs_json_next(item)) {
        const char *token = hs_json_key(item);
        size_t length = strlen(token);
        int32_t id = 0;
        int64_t earlier;
        HS_TRY(hs_bpe_read_id(loading, item, token, &id));
        if (hs_map_get(&loading->ids, token, length, &earlier))
            return hs_fail(HS_EFORMAT, "%s: token \"%.60s\" is in model.vocab twice", loading->name, token);
        HS_TRY(hs_map_put(&loading->ids, token, length, id));
        HS_TRY(hs_bpe_set_token(loading, id, token, length));
        char *units = malloc(length + 1);
        if (!units)
            return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
        long count = unit_bytes(bpe, token, length, units);
        HsStatus status = count >= 0 ? note_units(loading, units, (size_t)count, id) : HS_OK;
        free(units);
        HS_TRY(status);
    }
    loading->model_size = hs_json_count(vocab);
    return HS_OK;
}

/* unk_token, and "<0x00>" to "<0xFF>", for what the vocabulary has no token for. */
static HsStatus load_unknown(HsBpeLoading *loading, const char *unknown, bool byte_fallback)
{
    HsBpe *bpe = loading->bpe;
    int64_t id;
    for (unsigned byte = 0; byte < 256; byte++) {
        char token[8];
        int length = snprintf(token, sizeof token, "<0x%02X>", byte);
        bool there = byte_fallback && hs_map_get(&loading->ids, token, (size_t)length, &id);
        bpe->fallback[byte] = there ? (int32_t)id : -1;
    }
    bpe->unknown = -1;
    if (!unknown)
        return HS_OK;
    if (!hs_map_get(&loading->ids, unknown, strlen(unknown), &id))
        return hs_fail(HS_EFORMAT, "%s: model.unk_token \"%.60s\" is not in model.vocab", loading->name, unknown);
    bpe->unknown = (int32_t)id;
    return HS_OK;
}

/* A pair of units that stands in no merged token is never merged across: long pieces may be cut there. */
static HsStatus note_joints(HsBpeLoading *loading, const char *whole, size_t length)
{
    HsBpe *bpe = loading->bpe;
    char *units = malloc(length + 1);
    if (!units)
        return hs_fail(HS_ENOMEM, "%s: out of memory", loading->name);
    long count = unit_bytes(bpe, whole, length, units);
    uint32_t left = 0, right = 0;
    for (size_t at = 0; count > 0 && at < (size_t)count; left = right) {
        size_t begin = at;
        at += hs_bpe_unit(bpe, units + at, (size_t)count - at, &right);
        size_t joint = hs_bpe_joint(left, right);
        if (begin > 0)
            bpe->joints[joint / 8] |= (unsigned char)(1u << joint % 8);
    }
    free(units);
    return HS_OK;
}

static HsStatus add_merge(HsBpeLoading *loading, const char *left, size_t left_length, const char *right,
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
    HsStatus status = known ? note_joints(loading, whole, length) : HS_OK;
    free(whole);
    HS_TRY(status);
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
static HsStatus load_merges(HsBpeLoading *loading, const HsJson *merges)
{
    HsBpe *bpe = loading->bpe;
    if (!hs_json_is_array(merges))
        return hs_fail(HS_EFORMAT, "%s: model.merges must be a list", loading->name);
    bpe->merge_count = (size_t)hs_json_count(merges);
    bpe->merged = calloc(bpe->merge_count + 1, sizeof *bpe->merged);
    bpe->joints = calloc((size_t)1 << (HS_BPE_JOINT_BITS - 3), 1);
    if (!bpe->merged || !bpe->joints)
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

/* What a token reads as in the middle of a text.  With a byte map an added token stands for itself, also where the
 * map could read it as other bytes. */
static HsStatus decode_token(HsBpeLoading *loading, HsStrings *strings, int32_t id)
{
    HsBpe *bpe = loading->bpe;
    HsBpeToken *token = &bpe->tokens[id];
    if (bpe->byte_level && token->added) {
        token->offset = token->written_offset;
        token->length = token->written_length;
        return HS_OK;
    }
    strings->count = strings->bytes.count = 0;
    HS_TRY(hs_strings_append(strings, bpe->pool + token->offset, token->length));
    HS_TRY(hs_detokenizer_run_middle(bpe->detokenizer, loading->matcher, strings));
    const size_t length = strings->bytes.count;
    const char *bytes = length > 0 ? strings->bytes.items : ""; /* nothing may be left of it, and nothing allocated */
    if (length == token->length && memcmp(bytes, bpe->pool + token->offset, length) == 0)
        return HS_OK;
    HS_TRY(hs_array_grow(&bpe->pool, 1, bpe->pool_used + length + 1, &bpe->pool_capacity));
    memcpy(bpe->pool + bpe->pool_used, bytes, length);
    token->offset = bpe->pool_used;
    token->length = length;
    bpe->pool_used += length;
    return HS_OK;
}

static HsStatus decode_tokens(HsBpeLoading *loading)
{
    HsStrings strings = { 0 };
    HsStatus status = HS_OK;
    for (int32_t id = 0; id < loading->tokenizer->vocabulary && status == HS_OK; id++)
        if (loading->bpe->tokens[id].used)
            status = decode_token(loading, &strings, id);
    hs_strings_deinit(&strings);
    return status;
}

/* Absent, null, or empty: off. */
static HsStatus check_off(const char *where, const HsJson *node, const char *key)
{
    const HsJson *member = hs_json_get(node, key);
    const char *text = hs_json_string(member);
    if (!member || hs_json_is_null(member) || (text && *text == '\0'))
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s.%s is not supported", where, key);
}

static HsStatus check_model(const char *name, const HsJson *model)
{
    char where[256];
    snprintf(where, sizeof where, "%.200s: model", name);
    if (!hs_json_is_object(model))
        return hs_fail(HS_EFORMAT, "%s must be an object", where);
    /* Older files leave the type out; then vocabulary and merges say it. */
    const HsJson *type_member = hs_json_get(model, "type");
    const char *type = hs_json_string(type_member);
    if (type_member && !type)
        return hs_fail(HS_EFORMAT, "%s.type must be a string", where);
    if (type ? strcmp(type, "BPE") != 0 : !hs_json_get(model, "merges"))
        return hs_fail(HS_EUNSUPPORTED, "%s.type %.40s is not supported, only BPE", where, type ? type : "(none)");
    HS_TRY(hs_members_known(where, model,
                            "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                            "byte_fallback ignore_merges vocab merges "));
    HS_TRY(check_off(where, model, "continuing_subword_prefix"));
    HS_TRY(check_off(where, model, "end_of_word_suffix"));
    const HsJson *dropout = hs_json_get(model, "dropout");
    if (!dropout || hs_json_is_null(dropout) || hs_json_number(dropout) == 0)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s.dropout is not supported: set it to null", where);
}

/* truncation and padding are a caller's, which the last one left in the file: the library sets them anew each time. */
static HsStatus check_root(const char *name, const HsJson *root)
{
    static const char *const callers[] = { "truncation", "padding" };
    const HsJson *version = hs_json_get(root, "version");
    const char *number = hs_json_string(version);
    HS_TRY(hs_members_known(name, root,
                            "version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder "
                            "model "));
    if (version && (!number || strcmp(number, "1.0") != 0))
        return hs_fail(HS_EUNSUPPORTED, "%s: only version \"1.0\" is supported", name);
    for (int i = 0; i < 2; i++) {
        char where[256];
        bool present;
        snprintf(where, sizeof where, "%.200s: %s", name, callers[i]);
        HS_TRY(hs_members_present(where, hs_json_get(root, callers[i]), &present));
    }
    return check_model(name, hs_json_get(root, "model"));
}

/* A flag that is off when it is null. */
static HsStatus model_flag(const HsBpeLoading *loading, const HsJson *model, const char *key, bool *value)
{
    char where[256];
    snprintf(where, sizeof where, "%.200s: model", loading->name);
    *value = false;
    if (hs_json_is_null(hs_json_get(model, key)))
        return HS_OK;
    return hs_member_flag(where, model, key, false, value);
}

static HsStatus load_model(HsBpeLoading *loading, const HsJson *model)
{
    HsBpe *bpe = loading->bpe;
    bool byte_fallback;
    const HsJson *unknown = hs_json_get(model, "unk_token");
    if (unknown && !hs_json_is_null(unknown) && !hs_json_is_string(unknown))
        return hs_fail(HS_EFORMAT, "%s: model.unk_token must be a string or null", loading->name);
    HS_TRY(model_flag(loading, model, "ignore_merges", &bpe->ignore_merges));
    HS_TRY(model_flag(loading, model, "byte_fallback", &byte_fallback));
    HS_TRY(model_flag(loading, model, "fuse_unk", &bpe->fuse_unknown));
    HS_TRY(load_vocabulary(loading, hs_json_get(model, "vocab")));
    HS_TRY(load_unknown(loading, hs_json_string(unknown), byte_fallback));
    return load_merges(loading, hs_json_get(model, "merges"));
}

static HsStatus load(HsBpeLoading *loading, const HsJson *root)
{
    HsBpe *bpe = loading->bpe;
    const char *name = loading->name;
    for (int i = 0; i < 2; i++)
        memset(bpe->tries[i].first, 0xFF, sizeof bpe->tries[i].first);
    HS_TRY(hs_pattern_budget_create(name, &bpe->budget));
    HS_TRY(hs_matcher_create(bpe->budget, loading->bpe->source_length, &loading->matcher));
    HS_TRY(hs_normalizer_create(name, hs_json_get(root, "normalizer"), &bpe->normalizer));
    HS_TRY(hs_pretokenizer_create(name, hs_json_get(root, "pre_tokenizer"), &bpe->pretokenizer));
    bpe->byte_level = hs_pretokenizer_is_byte_level(bpe->pretokenizer);
    HS_TRY(hs_detokenizer_create(name, hs_json_get(root, "decoder"), bpe->byte_level, &bpe->detokenizer));
    HS_TRY(load_model(loading, hs_json_get(root, "model")));
    HS_TRY(hs_bpe_load_added(loading, hs_json_get(root, "added_tokens")));
    HS_TRY(hs_bpe_load_around(loading, hs_json_get(root, "post_processor")));
    return decode_tokens(loading);
}

HsStatus hs_bpe_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text, size_t length)
{
    HS_TRY(check_root(name, root));
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
    tokenizer->state = bpe; /* from here on hs_bpe_destroy frees it */

    HsBpeLoading loading = { .tokenizer = tokenizer, .bpe = bpe, .name = name, .last_added = -1 };
    HsStatus status = load(&loading, root);
    hs_matcher_destroy(loading.matcher);
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
    free(bpe->unit_tokens);
    hs_map_deinit(&bpe->merges);
    free(bpe->merged);
    free(bpe->joints);
    hs_map_deinit(&bpe->whole_pieces);
    free(bpe->added);
    for (int i = 0; i < 2; i++)
        free(bpe->tries[i].nodes);
    hs_pattern_destroy(bpe->word);
    hs_normalizer_destroy(bpe->normalizer);
    hs_pretokenizer_destroy(bpe->pretokenizer);
    hs_detokenizer_destroy(bpe->detokenizer);
    hs_pattern_budget_destroy(bpe->budget);
    free(bpe);
}
