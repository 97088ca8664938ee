/* SPDX-License-Identifier: MIT
 *
 * tokenizer.json's post_processor: which special tokens stand around one text.
 *
 *     TemplateProcessing   single: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}, ...]; its special_tokens
 *                          say which ids that is
 *     RobertaProcessing    cls and sep: ["</s>", 2]; BertProcessing alike
 *     ByteLevel            none: it moves offsets only
 *     Sequence             one after another: later ones stand farther out
 */
#include "runtime/data/tokenizer/bpe.h"

#include <stdio.h>

#include "runtime/data/tokenizer/members.h"

enum { DEEPEST = 8 };

/* In front of the text from the inside out, as they are put there; turned round at the end. */
static HsStatus add(HsBpeLoading *loading, bool behind, const HsJson *id)
{
    HsTokenizer *tokenizer = loading->tokenizer;
    struct HsAround *around = &tokenizer->around[behind];
    int32_t token = 0;
    HS_TRY(hs_bpe_read_id(loading, id, "of post_processor", &token));
    if (token >= tokenizer->vocabulary || !loading->bpe->tokens[token].used)
        return hs_fail(HS_EFORMAT, "%s: post_processor: no token of the vocabulary has id %d", loading->name, token);
    if (around->count == HS_AROUND_MOST)
        return hs_fail(HS_EUNSUPPORTED, "%s: post_processor: more than %d tokens on one side of a text", loading->name,
                       HS_AROUND_MOST);
    around->ids[around->count++] = token;
    return HS_OK;
}

/* The ids of a template's special token, from the last to the first in front of the text. */
static HsStatus add_special(HsBpeLoading *loading, const HsJson *template, const HsJson *special, bool behind)
{
    const char *where = loading->name;
    const char *const name = hs_json_string(hs_json_get(special, "id"));
    const HsJson *ids = name ? hs_json_get(hs_json_get(hs_json_get(template, "special_tokens"), name), "ids") : NULL;
    const int count = hs_json_is_array(ids) ? hs_json_count(ids) : 0;
    if (count == 0)
        return hs_fail(HS_EFORMAT, "%s: post_processor.single: special_tokens does not say which ids %.60s has", where,
                       name ? name : "a SpecialToken without id");
    for (int i = 0; i < count; i++) {
        const HsJson *id = hs_json_first(ids);
        for (int k = behind ? i : count - 1 - i; k > 0; k--)
            id = hs_json_next(id);
        HS_TRY(add(loading, behind, id));
    }
    return HS_OK;
}

/* Each a token or a text, with the type that the library demands and nothing here reads. */
static HsStatus check_pieces(const HsBpeLoading *loading, const char *name, const HsJson *list)
{
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: post_processor.%s must be a list", loading->name, name);
    for (const HsJson *piece = hs_json_first(list); piece; piece = hs_json_next(piece)) {
        const HsJson *special = hs_json_get(piece, "SpecialToken"), *text = hs_json_get(piece, "Sequence");
        const HsJson *const about = special ? special : text;
        if (!about)
            return hs_fail(HS_EFORMAT, "%s: post_processor.%s: neither a SpecialToken nor a Sequence", loading->name,
                           name);
        if (!hs_json_is_string(hs_json_get(about, "id")) || !hs_json_is_number(hs_json_get(about, "type_id")))
            return hs_fail(HS_EFORMAT, "%s: post_processor.%s: a %s needs `id` and `type_id`", loading->name, name,
                           special ? "SpecialToken" : "Sequence");
    }
    return HS_OK;
}

static HsStatus load_template(HsBpeLoading *loading, const HsJson *template)
{
    const HsJson *single = hs_json_get(template, "single");
    const HsJson *before[HS_AROUND_MOST];
    int count = 0, sequences = 0;
    HS_TRY(check_pieces(loading, "single", single));
    HS_TRY(check_pieces(loading, "pair", hs_json_get(template, "pair"))); /* not read, but the library demands it */
    if (!hs_json_is_object(hs_json_get(template, "special_tokens")))
        return hs_fail(HS_EFORMAT, "%s: post_processor.special_tokens must be an object", loading->name);
    for (const HsJson *piece = hs_json_first(single); piece; piece = hs_json_next(piece)) {
        const HsJson *special = hs_json_get(piece, "SpecialToken");
        sequences += !special;
        if (special && sequences > 0)
            HS_TRY(add_special(loading, template, special, true));
        else if (special && count == HS_AROUND_MOST)
            return hs_fail(HS_EUNSUPPORTED, "%s: post_processor: more than %d tokens on one side of a text",
                           loading->name, HS_AROUND_MOST);
        else if (special)
            before[count++] = special;
    }
    if (sequences != 1)
        return hs_fail(HS_EUNSUPPORTED, "%s: post_processor.single must have one Sequence (it has %d)", loading->name,
                       sequences);
    while (count > 0)
        HS_TRY(add_special(loading, template, before[--count], false));
    return HS_OK;
}

/* ["</s>", 2] */
static HsStatus load_pair(HsBpeLoading *loading, const HsJson *node, const char *key, bool behind)
{
    const HsJson *pair = hs_json_get(node, key);
    if (!hs_json_is_array(pair) || hs_json_count(pair) != 2)
        return hs_fail(HS_EFORMAT, "%s: post_processor.%s must be a list of a token and its id", loading->name, key);
    return add(loading, behind, hs_json_next(hs_json_first(pair)));
}

static HsStatus load(HsBpeLoading *loading, const HsJson *node, int depth)
{
    char where[256];
    const char *type;
    const HsJson *list;
    snprintf(where, sizeof where, "%.200s: post_processor", loading->name);
    HS_TRY(hs_members_type(where, node, &type));
    if (strcmp(type, "TemplateProcessing") == 0)
        return load_template(loading, node);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        HS_TRY(load_pair(loading, node, "cls", false));
        return load_pair(loading, node, "sep", true);
    }
    if (strcmp(type, "ByteLevel") == 0)
        return HS_OK;
    if (strcmp(type, "Sequence") != 0 || depth == DEEPEST)
        return hs_fail(HS_EUNSUPPORTED, "%s %.40s is not supported", where, type);
    HS_TRY(hs_member_list(where, node, "processors", &list));
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item))
        HS_TRY(load(loading, item, depth + 1));
    return HS_OK;
}

HsStatus hs_bpe_load_around(HsBpeLoading *loading, const HsJson *node)
{
    struct HsAround *before = &loading->tokenizer->around[0];
    char where[256];
    bool present;
    snprintf(where, sizeof where, "%.200s: post_processor", loading->name);
    HS_TRY(hs_members_present(where, node, &present));
    if (!present)
        return HS_OK;
    HS_TRY(load(loading, node, 0));
    for (int i = 0; i < before->count / 2; i++) {
        const int32_t id = before->ids[i];
        before->ids[i] = before->ids[before->count - 1 - i];
        before->ids[before->count - 1 - i] = id;
    }
    return HS_OK;
}
