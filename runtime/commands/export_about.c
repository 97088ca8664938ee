/* SPDX-License-Identifier: MIT
 *
 * See export_about.h.
 */
#include "runtime/commands/export_about.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/chat_template.h"
#include "runtime/data/source/chat.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

#define JINJA_FILE "chat_template.jinja"

/* NULL where it is absent or null. */
static const HsJson *member(const HsJson *object, const char *key)
{
    const HsJson *value = object ? hs_json_get(object, key) : NULL;
    return value && !hs_json_is_null(value) ? value : NULL;
}

/* The id of the token that has this text; -1: none. */
static int32_t token_of(const HsExportAbout *about, const char *text)
{
    const HsJson *added = hs_json_get(about->published, "added_tokens");
    const HsJson *vocabulary = hs_json_get(hs_json_get(about->published, "model"), "vocab");
    for (const HsJson *entry = hs_json_first(added); entry; entry = hs_json_next(entry)) {
        const char *const content = hs_json_string(hs_json_get(entry, "content"));
        if (content && strcmp(content, text) == 0)
            return (int32_t)hs_json_number(hs_json_get(entry, "id"));
    }
    const double id = hs_json_number(hs_json_get(vocabulary, text));
    return id >= 0 && id <= INT32_MAX ? (int32_t)id : -1;
}

/* Whether texts hold it wherever its letters stand.  A token that is named in tokenizer_config.json becomes one that they
 * do for transformers, which would cut texts otherwise than the run did where it was none. */
static bool is_special(const HsExportAbout *about, int32_t token)
{
    const HsJson *added = hs_json_get(about->published, "added_tokens");
    for (const HsJson *entry = hs_json_first(added); entry; entry = hs_json_next(entry))
        if (hs_json_number(hs_json_get(entry, "id")) == token)
            return hs_json_is_true(hs_json_get(entry, "special"));
    return false;
}

/* What an entry such as eos_token names: a text, or an object with one. */
static int32_t token_of_entry(const HsExportAbout *about, const char *key)
{
    const HsJson *entry = member(about->tokenizer, key);
    const char *const text =
        hs_json_is_object(entry) ? hs_json_string(hs_json_get(entry, "content")) : hs_json_string(entry);
    return text ? token_of(about, text) : -1;
}

static int32_t token_of_number(const HsJson *node)
{
    const double id = node ? hs_json_number(node) : NAN;
    return id >= 0 && id <= INT32_MAX && id == floor(id) ? (int32_t)id : -1;
}

static bool has(const HsTokens *tokens, int32_t token)
{
    for (int64_t i = 0; i < tokens->count; i++)
        if (tokens->items[i] == token)
            return true;
    return false;
}

static HsStatus add_end(HsTokens *ends, int32_t token)
{
    if (token < 0 || has(ends, token))
        return HS_OK;
    HS_TRY(hs_tokens_reserve(ends, 1));
    ends->items[ends->count++] = token;
    return HS_OK;
}

/* eos_token_id: a number, or a list of them. */
static HsStatus read_ends(const HsJson *node, HsTokens *ends)
{
    if (!node || !hs_json_is_array(node))
        return add_end(ends, token_of_number(node));
    for (const HsJson *item = hs_json_first(node); item; item = hs_json_next(item))
        HS_TRY(add_end(ends, token_of_number(item)));
    return HS_OK;
}

/* Older folders keep special tokens in a file of theirs, which goes before. */
static HsStatus merge_special_map(const HsExportSource *source, HsJson **about)
{
    HsJson *map = NULL;
    if (*about && hs_json_get(*about, "added_tokens_decoder"))
        return HS_OK;
    HsStatus status = hs_carried_object(&source->carried, "special_tokens_map.json", &map);
    if (status != HS_OK || !map) {
        hs_json_destroy(map);
        return status;
    }
    int count = hs_json_count(map);
    for (const HsJson *item = *about ? hs_json_first(*about) : NULL; item; item = hs_json_next(item)) {
        if (hs_json_get(map, hs_json_key(item)))
            continue;
        hs_json_set(map, hs_json_key(item), hs_json_copy(item));
        count++;
    }
    hs_json_destroy(*about);
    *about = map;
    return hs_json_count(map) == count ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the keys of tokenizer_config.json");
}

static HsStatus read_carried(const HsExportSource *source, HsExportAbout *about)
{
    HS_TRY(hs_carried_object(&source->carried, "tokenizer_config.json", &about->tokenizer));
    HS_TRY(merge_special_map(source, &about->tokenizer));
    HS_TRY(hs_carried_object(&source->carried, "generation_config.json", &about->generation));
    return hs_carried_object(&source->carried, "config.json", &about->config);
}

/* Whether the run's texts name bos_token and eos_token: the template has no tokens with names fixed. */
static bool writes_own_tokens(const char *name)
{
    return strcmp(name, "alpaca") == 0;
}

/* eos_token, and all that ends a text. */
static HsStatus choose_ends(HsExportAbout *about)
{
    const HsExportSource *source = about->source;
    const HsConfig *config = &source->config;
    const bool trained = source->naming != HS_NAMING_PUBLISHED;
    const int32_t own = hs_tokenizer_end_of_text(source->tokenizer), theirs = token_of_entry(about, "eos_token");
    HsTokens given = { 0 };
    const HsJson *eos = member(about->generation, "eos_token_id");
    HsStatus status = read_ends(eos ? eos : member(about->config, "eos_token_id"), &given);
    const bool named = trained && own != theirs && config->tokenizer.end_of_text[0] != '\0' && !has(&given, own) &&
                       about->answered != theirs;
    about->own_end = theirs < 0 || named || (writes_own_tokens(config->tokenizer.chat_template) && own >= 0);
    about->end = about->own_end && own >= 0 ? own : theirs >= 0 ? theirs : given.count > 0 ? given.items[0] : -1;
    if (status == HS_OK && (trained || given.count == 0))
        status = add_end(&about->ends, about->answered);
    for (int64_t i = 0; i < given.count && status == HS_OK; i++)
        status = add_end(&about->ends, given.items[i]);
    if (status == HS_OK && given.count == 0)
        status = add_end(&about->ends, about->end);
    if (status == HS_OK && (trained || given.count == 0))
        status = add_end(&about->ends, own);
    hs_tokens_deinit(&given);
    return status;
}

/* The text of the carried template that serves where none is asked for: transformers takes the file before the key. */
static const char *carried_template(const HsExportAbout *about)
{
    const char *const file = hs_carried_text(&about->source->carried, JINJA_FILE);
    const HsJson *node = member(about->tokenizer, "chat_template");
    if (file || !hs_json_is_array(node))
        return file ? file : hs_json_string(node);
    for (const HsJson *item = hs_json_first(node); item; item = hs_json_next(item)) {
        const char *const name = hs_json_string(hs_json_get(item, "name"));
        if (name && strcmp(name, "default") == 0)
            return hs_json_string(hs_json_get(item, "template"));
    }
    return NULL;
}

static HsStatus choose_template(HsExportAbout *about)
{
    const char *const name = about->source->config.tokenizer.chat_template;
    const HsChatTemplate *made_by = hs_chat_template_get(name);
    const char *const theirs = carried_template(about), *const known = theirs ? hs_chat_template_known(theirs) : NULL;
    if (!made_by || (known && strcmp(known, name) == 0))
        return HS_OK;
    if (writes_own_tokens(name) && about->end >= 0 && !is_special(about, about->end))
        return hs_fail(
            HS_EUNSUPPORTED,
            "the chat template %s ends answers with end-of-text, token %d, which is no special token of "
            "tokenizer.json: make it one (added_tokens, special: true), or choose another tokenizer.chat_template",
            name, about->end);
    if (theirs)
        hs_info("the chat template is tokenizer.chat_template's, %s, in place of the folder's own", name);
    about->program = hs_chat_program(made_by, hs_tokenizer_begin_of_text(about->source->tokenizer) >= 0);
    return about->program ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a chat template");
}

HsStatus hs_export_about_init(const HsExportSource *source, HsExportAbout *about)
{
    const HsChatTemplate *made_by = hs_chat_template_get(source->config.tokenizer.chat_template);
    *about = (HsExportAbout){ .source = source, .begin = -1, .end = -1, .answered = -1 };
    HS_TRY(hs_tokenizer_published(source->tokenizer, &about->published));
    HS_TRY(read_carried(source, about));
    if (made_by && hs_chat_end_token(made_by, source->tokenizer, &about->answered) != HS_OK)
        about->answered = -1;
    HS_TRY(choose_ends(about));
    const int32_t begin = hs_tokenizer_begin_of_text(source->tokenizer), theirs = token_of_entry(about, "bos_token");
    const bool own = writes_own_tokens(source->config.tokenizer.chat_template) && begin >= 0;
    about->begin = theirs >= 0 && !own ? theirs : begin >= 0 || about->tokenizer ? begin : about->end;
    return choose_template(about);
}

void hs_export_about_deinit(HsExportAbout *about)
{
    hs_json_destroy(about->published);
    hs_json_destroy(about->tokenizer);
    hs_json_destroy(about->generation);
    hs_json_destroy(about->config);
    hs_tokens_deinit(&about->ends);
    free(about->program);
    *about = (HsExportAbout){ 0 };
}

/* ---- files of a folder ---- */

static bool is_among(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, key) == 0)
            return true;
    return false;
}

static void set_token(HsJson *object, const char *key, const HsTokenizer *tokenizer, int32_t token)
{
    size_t length;
    const char *const text = hs_tokenizer_bytes(tokenizer, token, &length);
    if (token >= 0)
        hs_json_set(object, key, hs_json_new_text(text, length));
}

/* What is carried of an object, but for those keys and what is set already. */
static void copy_others(const HsJson *from, const char *const *but, HsJson *to)
{
    for (const HsJson *item = hs_json_first(from); from && item; item = hs_json_next(item)) {
        const bool endless = hs_json_is_number(item) && fabs(hs_json_number(item)) > 1e15; /* "no limit" */
        if (!is_among(hs_json_key(item), but) && !endless && !hs_json_get(to, hs_json_key(item)))
            hs_json_set(to, hs_json_key(item), hs_json_copy(item));
    }
}

HsJson *hs_export_tokenizer_config(const HsExportAbout *about)
{
    /* How text is cut is what tokenizer.json says, which is that of training; these would say it again, or otherwise, or
     * name files that are not there. */
    static const char *const replaced[] = {
        "tokenizer_class",
        "backend",
        "auto_map",
        "added_tokens_decoder",
        "add_prefix_space",
        "add_bos_token",
        "add_eos_token",
        "legacy",
        "from_slow",
        "split_special_tokens",
        "fix_mistral_regex",
        "tokenizer_file",
        "vocab_file",
        "merges_file",
        "special_tokens_map_file",
        "added_tokens_file",
        "tokenizer_object",
        "name_or_path",
        "is_local",
        "local_files_only",
        "init_inputs",
        "device_map",
        "files_loaded",
        NULL,
    };
    const HsExportSource *source = about->source;
    const int64_t positions = source->config.model.max_positions;
    HsJson *root = hs_json_object();
    hs_json_set_string(root, "tokenizer_class", "PreTrainedTokenizerFast");
    if (!about->tokenizer)
        hs_json_set_integer(root, "model_max_length", positions ? positions : source->config.training.max_length);
    if (!member(about->tokenizer, "clean_up_tokenization_spaces"))
        hs_json_set_bool(root, "clean_up_tokenization_spaces", false);
    if (token_of_entry(about, "bos_token") != about->begin && is_special(about, about->begin))
        set_token(root, "bos_token", source->tokenizer, about->begin);
    if (about->own_end && is_special(about, about->end))
        set_token(root, "eos_token", source->tokenizer, about->end);
    else if (about->own_end && about->end >= 0)
        hs_warn("token %d ends a text and is no special token of tokenizer.json: generation_config.json has its "
                "number, and tokenizer_config.json does not name it",
                about->end);
    if (about->program)
        hs_json_set_string(root, "chat_template", about->program);
    copy_others(about->tokenizer, replaced, root);
    return root;
}

static HsJson *list_of(const HsTokens *tokens)
{
    if (tokens->count == 1)
        return hs_json_new_integer(tokens->items[0]);
    HsJson *list = hs_json_array();
    for (int64_t i = 0; i < tokens->count; i++)
        hs_json_append(list, hs_json_new_integer(tokens->items[i]));
    return list;
}

/* bos_token_id as the file has it that is carried; else the tokenizer's. */
static void set_begin(const HsExportAbout *about, const HsJson *carried, HsJson *root)
{
    const int32_t theirs = token_of_number(member(carried, "bos_token_id"));
    const int32_t begin = theirs >= 0 ? theirs : carried && hs_json_get(carried, "bos_token_id") ? -1 : about->begin;
    if (begin >= 0)
        hs_json_set_integer(root, "bos_token_id", begin);
}

HsJson *hs_export_generation_config(const HsExportAbout *about)
{
    static const char *const replaced[] = { "_from_model_config", "transformers_version", "bos_token_id",
                                            "eos_token_id", NULL };
    HsJson *root = hs_json_object();
    set_begin(about, about->generation ? about->generation : about->config, root);
    if (about->ends.count > 0)
        hs_json_set(root, "eos_token_id", list_of(&about->ends));
    copy_others(about->generation, replaced, root);
    if (!about->generation && member(about->config, "pad_token_id"))
        hs_json_set(root, "pad_token_id", hs_json_copy(member(about->config, "pad_token_id")));
    return root;
}

void hs_export_set_tokens(const HsExportAbout *about, HsJson *config)
{
    /* What readers of config.json take from it, and what of it says nothing of the model's shape. */
    static const char *const carried[] = { "pad_token_id", "sep_token_id", "task_specific_params" };
    const bool trained = about->source->naming != HS_NAMING_PUBLISHED;
    const HsJson *theirs = member(about->config, "eos_token_id");
    set_begin(about, about->config, config);
    if (theirs && !trained)
        hs_json_set(config, "eos_token_id", hs_json_copy(theirs));
    else if (about->ends.count > 0)
        hs_json_set(config, "eos_token_id", list_of(&about->ends));
    for (size_t i = 0; i < sizeof carried / sizeof *carried; i++)
        if (member(about->config, carried[i]))
            hs_json_set(config, carried[i], hs_json_copy(member(about->config, carried[i])));
    if (!member(about->config, "pad_token_id")) /* a class has its default, Phi3's beyond a small vocabulary */
        hs_json_set(config, "pad_token_id", hs_json_new_null());
}

HsStatus hs_export_write_templates(const HsExportAbout *about, const char *folder)
{
    char *path = NULL;
    HsStatus status = HS_OK;
    const HsJson *files = about->program ? NULL : hs_carried_files(&about->source->carried);
    for (const HsJson *file = hs_json_first(files); files && file && status == HS_OK; file = hs_json_next(file)) {
        const char *const name = hs_json_key(file), *const text = hs_json_string(file);
        const bool further = strncmp(name, HS_CARRIED_TEMPLATES "/", strlen(HS_CARRIED_TEMPLATES) + 1) == 0;
        if (!text || !(further || strcmp(name, JINJA_FILE) == 0 || strcmp(name, "chat_template.json") == 0))
            continue;
        if (strchr(name + (further ? strlen(HS_CARRIED_TEMPLATES) + 1 : 0), '/')) /* of a file from elsewhere */
            return hs_fail(HS_EFORMAT, HS_CARRIED_FILE ": `%.80s` is no file of a folder", name);
        if (further) {
            HS_TRY(hs_storage_join(folder, HS_CARRIED_TEMPLATES, &path));
            status = hs_make_directories(path);
            free(path);
        }
        path = NULL;
        if (status == HS_OK)
            status = hs_storage_join(folder, name, &path);
        if (status == HS_OK)
            status = hs_storage_replace_text(path, text);
        free(path);
    }
    return status;
}

/* ---- parts ---- */

int32_t hs_export_special(const HsExportAbout *about, const char *kind)
{
    char key[64], number[64];
    snprintf(key, sizeof key, "%s_token", kind);
    snprintf(number, sizeof number, "%s_token_id", kind);
    const int32_t named = token_of_entry(about, key);
    if (named >= 0)
        return named;
    const int32_t numbered = token_of_number(member(about->config, number));
    return numbered >= 0 ? numbered : token_of_number(member(about->generation, number));
}

const char *hs_export_template(const HsExportAbout *about)
{
    return about->program ? about->program : carried_template(about);
}
