/* SPDX-License-Identifier: MIT
 *
 * What AutoTokenizer does with the files of a folder, in its order:
 *
 *  1. The class makes normalizer, pre-tokenizer, decoder and the model's options anew (GPT-2, Llama, Qwen2), or leaves
 *     them as tokenizer.json has them.  A class that makes them forgets tokenizer.json's added tokens, too, ...
 *  2. ... but without added_tokens_decoder in tokenizer_config.json they are among those that are added now, with those
 *     of added_tokens.json, by their ids; with added_tokens_decoder its tokens are.
 *  3. Special tokens by role that are among none of these follow, then the extra ones.
 *  4. The library numbers what the vocabulary does not have: on from the vocabulary, or from the last added token.  Ids
 *     that files give say the order alone.
 */
#include "kernels/base/array.h"
#include "runtime/data/tokenizer/folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/map.h"
#include "runtime/data/tokenizer/tokenizer.h"

/* An added token: as JSON writes it, or a name with the flags of a special one. */
typedef struct Token {
    const char *content;
    bool flags[5]; /* single_word, lstrip, rstrip, normalized, special */
    bool said;     /* normalized is; else it is what special is not */
    int64_t id;    /* as a file orders it, then as the library numbers it */
} Token;

enum { SINGLE_WORD, LSTRIP, RSTRIP, NORMALIZED, SPECIAL };
static const char *const flag_names[] = { "single_word", "lstrip", "rstrip", "normalized", "special" };

typedef struct List {
    Token *items;
    size_t count, capacity;
} List;

typedef struct Adding {
    const HsTokenizerFolder *folder;
    HsJson *root;
    List added;   /* what the tokenizer has */
    List wanted;  /* what is to be added, in order */
    List special; /* those by role and the extra ones, whether added or there before */
    HsJson *kept; /* names that no file has */
    HsMap ids;    /* content -> its place in `added` */
    HsMap names;  /* contents of `added`, and of what files want by number: roles do not want these again */
    HsMap roles;  /* contents of tokens that have one */
    HsMap vocabulary;
    bool changed;
} Adding;

static HsStatus append(List *list, Token token)
{
    HS_TRY(hs_array_grow(&list->items, sizeof *list->items, list->count + 1, &list->capacity));
    list->items[list->count++] = token;
    return HS_OK;
}

/* special: a role's, whatever the object says; else as it says. */
static HsStatus read_token(const Adding *adding, const HsJson *node, bool special, Token *token)
{
    *token = (Token){ .content = hs_token_content(node), .id = -1 };
    if (!token->content)
        return hs_fail(HS_EFORMAT, "%s: a special token is neither a string nor an object with `content`",
                       adding->folder->config_path);
    if (hs_json_is_string(node)) {
        token->flags[SPECIAL] = true;
        return HS_OK;
    }
    token->flags[SPECIAL] = special || hs_json_is_true(hs_json_get(node, flag_names[SPECIAL]));
    for (int i = 0; i < SPECIAL; i++)
        token->flags[i] = hs_json_is_true(hs_json_get(node, flag_names[i]));
    token->said = hs_json_get(node, flag_names[NORMALIZED]) != NULL;
    return HS_OK;
}

/* A role's, or an extra one: only where no file has added it.  Of two with the same text the later one's flags stay. */
static HsStatus want_special(Adding *adding, const HsJson *node, bool role)
{
    Token token;
    int64_t known;
    HS_TRY(read_token(adding, node, true, &token));
    HS_TRY(append(&adding->special, token));
    if (role)
        HS_TRY(hs_map_put(&adding->roles, token.content, strlen(token.content), 1));
    const bool there = hs_map_get(&adding->names, token.content, strlen(token.content), &known);
    return there ? HS_OK : append(&adding->wanted, token);
}

static HsStatus want_special_name(Adding *adding, const char *name)
{
    HsJson *node = hs_json_new_string(name);
    if (!node)
        return hs_fail(HS_ENOMEM, "out of memory for the special token %.40s", name);
    hs_json_append(adding->kept, node);
    return want_special(adding, node, true);
}

static int by_id(const void *a, const void *b)
{
    const int64_t left = ((const Token *)a)->id, right = ((const Token *)b)->id;
    return (left > right) - (left < right);
}

/* One of each id, the last that was said. */
static HsStatus want_numbered(Adding *adding, List *numbered)
{
    HsStatus status = HS_OK;
    for (size_t i = 0; i < numbered->count; i++)
        for (size_t k = i + 1; k < numbered->count && numbered->items[i].content; k++)
            if (numbered->items[k].id == numbered->items[i].id)
                numbered->items[i].content = NULL;
    if (numbered->count > 0)
        qsort(numbered->items, numbered->count, sizeof *numbered->items, by_id);
    for (size_t i = 0; i < numbered->count && status == HS_OK; i++)
        if (numbered->items[i].content) {
            const char *const content = numbered->items[i].content;
            status = hs_map_put(&adding->names, content, strlen(content), 1);
            if (status == HS_OK)
                status = append(&adding->wanted, numbered->items[i]);
        }
    free(numbered->items);
    return status;
}

/* {"300": {"content": ...}} */
static HsStatus read_decoder(const Adding *adding, const HsJson *decoder, List *numbered)
{
    for (const HsJson *item = hs_json_first(decoder); item; item = hs_json_next(item)) {
        Token token;
        char *end = NULL;
        const char *const key = hs_json_key(item);
        HS_TRY(read_token(adding, item, false, &token));
        token.id = strtoll(key, &end, 10);
        if (end == key || *end != '\0' || !hs_json_is_object(item))
            return hs_fail(HS_EFORMAT, "%s: added_tokens_decoder: `%.40s` must be the number of a token and name it",
                           adding->folder->config_path, key);
        HS_TRY(append(numbered, token));
    }
    return HS_OK;
}

/* tokenizer_config.json's extra special tokens, which have two names. */
static const HsJson *extras_of(const Adding *adding)
{
    const HsJson *const extras = hs_json_get(adding->folder->config, "extra_special_tokens");
    return hs_json_count(extras) > 0 ? extras : hs_json_get(adding->folder->config, "additional_special_tokens");
}

static bool has_name(const HsJson *list, const char *name, bool objects)
{
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item)) {
        const char *const content = hs_json_is_object(item) && !objects ? NULL : hs_token_content(item);
        if (content && strcmp(content, name) == 0)
            return true;
    }
    return false;
}

/* Of what tokenizer_config.json says texts alone are compared, not objects. */
static bool is_special_name(const Adding *adding, const char *name)
{
    const char *fallback;
    for (int i = 0; hs_token_roles[i]; i++) {
        const HsJson *const role = hs_tokenizer_folder_role(adding->folder, hs_token_roles[i], &fallback);
        const bool object = hs_json_is_object(role) && role == hs_json_get(adding->folder->config, hs_token_roles[i]);
        const char *const content = object ? NULL : hs_token_content(role);
        if (content && strcmp(content, name) == 0)
            return true;
    }
    return has_name(extras_of(adding), name, false) ||
           has_name(hs_json_get(adding->folder->special, "extra_special_tokens"), name, true);
}

/* added_tokens.json, then tokenizer.json's own. */
static HsStatus read_older(const Adding *adding, List *numbered)
{
    for (const HsJson *item = hs_json_first(adding->folder->added); item; item = hs_json_next(item)) {
        const bool special = is_special_name(adding, hs_json_key(item));
        Token token = { .content = hs_json_key(item), .id = (int64_t)hs_json_number(item) };
        token.flags[NORMALIZED] = !special;
        token.flags[SPECIAL] = special;
        token.said = true;
        HS_TRY(append(numbered, token));
    }
    for (const HsJson *item = hs_json_first(hs_json_get(adding->root, "added_tokens")); item;
         item = hs_json_next(item)) {
        Token token;
        HS_TRY(read_token(adding, item, false, &token));
        token.id = (int64_t)hs_json_number(hs_json_get(item, "id"));
        HS_TRY(append(numbered, token));
    }
    return HS_OK;
}

static HsStatus want_extras(Adding *adding, const HsJson *extras)
{
    for (const HsJson *item = hs_json_first(extras); item; item = hs_json_next(item))
        HS_TRY(want_special(adding, item, false));
    return HS_OK;
}

/* A file that padded its last text says with what, where the other files and the class are silent. */
static const HsJson *padding_of(const Adding *adding)
{
    const HsTokenizerClass class = adding->folder->class;
    const bool by_class = class == HS_TOKENIZER_GPT2 || class == HS_TOKENIZER_QWEN2;
    return hs_json_get(adding->folder->config, "pad_token") || by_class
               ? NULL
               : hs_json_get(hs_json_get(adding->root, "padding"), "pad_token");
}

static HsStatus want_roles(Adding *adding)
{
    const HsJson *const pads = padding_of(adding);
    const char *fallback;
    for (int i = 0; hs_token_roles[i]; i++) {
        const char *const name = hs_token_roles[i];
        const HsJson *role = hs_tokenizer_folder_role(adding->folder, name, &fallback);
        if (role && hs_json_is_object(role) && role == hs_json_get(adding->folder->config, name) &&
            !hs_json_get(role, "__type"))
            return hs_fail(HS_EFORMAT, "%s: %s must be the token's text, or an object with \"__type\": \"AddedToken\"",
                           adding->folder->config_path, name);
        if (!role && pads && strcmp(name, "pad_token") == 0)
            role = pads;
        if (role)
            HS_TRY(want_special(adding, role, true));
        else if (fallback)
            HS_TRY(want_special_name(adding, fallback));
    }
    return HS_OK;
}

static bool is_role(const char *key)
{
    for (int i = 0; hs_token_roles[i]; i++)
        if (strcmp(hs_token_roles[i], key) == 0)
            return true;
    return false;
}

/* Roles that one model has, by any key that ends so: those written as objects come first. */
static HsStatus want_roles_of_model(Adding *adding, bool objects)
{
    static const char ending[] = "_token";
    for (const HsJson *item = hs_json_first(adding->folder->config); item; item = hs_json_next(item)) {
        const char *const key = hs_json_key(item);
        const size_t length = strlen(key), tail = sizeof ending - 1;
        const bool named = length > tail && strcmp(key + length - tail, ending) == 0 && !is_role(key);
        const bool token = objects ? hs_json_get(item, "__type") != NULL : hs_json_is_string(item);
        if (named && token && hs_json_is_last(adding->folder->config, item))
            HS_TRY(want_special(adding, item, true));
    }
    return HS_OK;
}

/* All that is to be added. */
static HsStatus collect(Adding *adding)
{
    const HsTokenizerFolder *folder = adding->folder;
    const HsJson *decoder = hs_json_get(folder->config, "added_tokens_decoder");
    List numbered = { 0 };
    HsStatus status = decoder ? read_decoder(adding, decoder, &numbered) : read_older(adding, &numbered);
    if (status != HS_OK) {
        free(numbered.items);
        return status;
    }
    HS_TRY(want_numbered(adding, &numbered));
    HS_TRY(want_roles(adding));
    HS_TRY(want_roles_of_model(adding, true));
    HS_TRY(want_roles_of_model(adding, false));
    /* special_tokens_map.json's count where added_tokens_decoder is not there. */
    const HsJson *const extras = extras_of(adding);
    HS_TRY(want_extras(adding, extras));
    if (decoder)
        return HS_OK;
    HS_TRY(want_extras(adding, hs_json_get(folder->special, "extra_special_tokens")));
    return extras ? HS_OK : want_extras(adding, hs_json_get(folder->special, "additional_special_tokens"));
}

static HsStatus number_vocabulary(Adding *adding, const HsJson *vocabulary)
{
    for (const HsJson *item = hs_json_first(vocabulary); item; item = hs_json_next(item))
        HS_TRY(hs_map_put(&adding->vocabulary, hs_json_key(item), strlen(hs_json_key(item)),
                          (int64_t)hs_json_number(item)));
    return HS_OK;
}

/* The id that the library gives a token which is not an added one yet. */
static int64_t next_id(const Adding *adding, const Token *token)
{
    const int64_t size = (int64_t)adding->vocabulary.count;
    int64_t id, last = -1;
    if (hs_map_get(&adding->vocabulary, token->content, strlen(token->content), &id))
        return id;
    for (size_t i = 0; i < adding->added.count; i++)
        if (adding->added.items[i].id > last)
            last = adding->added.items[i].id;
    return last >= size ? last + 1 : size;
}

static HsStatus add(Adding *adding, Token token)
{
    int64_t place, role;
    const size_t length = strlen(token.content);
    if (length == 0)
        return HS_OK;
    token.flags[SPECIAL] = token.flags[SPECIAL] || hs_map_get(&adding->roles, token.content, length, &role);
    if (!token.said)
        token.flags[NORMALIZED] = !token.flags[SPECIAL];
    if (hs_map_get(&adding->ids, token.content, length, &place)) {
        Token *const there = &adding->added.items[place];
        adding->changed = adding->changed || memcmp(there->flags, token.flags, sizeof token.flags) != 0;
        memcpy(there->flags, token.flags, sizeof token.flags);
        return HS_OK;
    }
    if (adding->vocabulary.count == 0)
        HS_TRY(number_vocabulary(adding, hs_json_get(hs_json_get(adding->root, "model"), "vocab")));
    token.id = next_id(adding, &token);
    adding->changed = true;
    HS_TRY(hs_map_put(&adding->ids, token.content, length, (int64_t)adding->added.count));
    return append(&adding->added, token);
}

/* What tokenizer.json has, where the class keeps it. */
static HsStatus keep_own(Adding *adding)
{
    for (const HsJson *item = hs_json_first(hs_json_get(adding->root, "added_tokens")); item;
         item = hs_json_next(item)) {
        Token token;
        HS_TRY(read_token(adding, item, false, &token));
        if (!token.said)
            token.flags[NORMALIZED] = !token.flags[SPECIAL];
        token.id = (int64_t)hs_json_number(hs_json_get(item, "id"));
        HS_TRY(hs_map_put(&adding->ids, token.content, strlen(token.content), (int64_t)adding->added.count));
        HS_TRY(hs_map_put(&adding->names, token.content, strlen(token.content), 1));
        HS_TRY(append(&adding->added, token));
    }
    return HS_OK;
}

static HsStatus write_added(Adding *adding)
{
    HsJson *list = hs_json_array();
    if (adding->added.count > 0)
        qsort(adding->added.items, adding->added.count, sizeof(Token), by_id);
    for (size_t i = 0; i < adding->added.count; i++) {
        const Token *const token = &adding->added.items[i];
        HsJson *object = hs_json_object();
        hs_json_set_integer(object, "id", token->id);
        hs_json_set_string(object, "content", token->content);
        for (int flag = 0; flag <= SPECIAL; flag++)
            hs_json_set_bool(object, flag_names[flag], token->flags[flag]);
        hs_json_append(list, object);
    }
    hs_json_replace(adding->root, "added_tokens", list);
    return HS_OK;
}

static HsStatus apply(Adding *adding)
{
    const HsTokenizerFolder *folder = adding->folder;
    HS_TRY(hs_tokenizer_class_apply(folder, adding->root));
    if (!hs_tokenizer_class_rebuilds(folder->class))
        HS_TRY(keep_own(adding));
    HS_TRY(collect(adding));
    for (size_t i = 0; i < adding->wanted.count; i++)
        HS_TRY(add(adding, adding->wanted.items[i]));
    /* Qwen2's class adds them once more, without what they had said of white space. */
    for (size_t i = 0; folder->class == HS_TOKENIZER_QWEN2 && i < adding->special.count; i++) {
        Token token = { .content = adding->special.items[i].content };
        token.flags[SPECIAL] = true;
        HS_TRY(add(adding, token));
    }
    return HS_OK;
}

HsStatus hs_tokenizer_folder_apply(const HsTokenizerFolder *folder, HsJson *root, bool *changed)
{
    Adding adding = { .folder = folder, .root = root, .kept = hs_json_array() };
    *changed = false;
    if (!hs_json_is_object(hs_json_get(root, "model")))
        return HS_OK; /* said by what reads the file */
    HsStatus status = apply(&adding);
    if (status == HS_OK && adding.changed)
        status = write_added(&adding);
    *changed = adding.changed || hs_tokenizer_class_rebuilds(folder->class);
    free(adding.added.items);
    free(adding.wanted.items);
    free(adding.special.items);
    hs_json_destroy(adding.kept);
    hs_map_deinit(&adding.ids);
    hs_map_deinit(&adding.names);
    hs_map_deinit(&adding.roles);
    hs_map_deinit(&adding.vocabulary);
    return status;
}
