/* SPDX-License-Identifier: MIT
 *
 * A tokenizer.json as the tables of a GGUF: byte-level BPE (ggml's model `gpt2`), with its merges, ggml's name for how
 * text is cut before merging (export_gguf_cut.c), and what else is known of its tokens.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/commands/export_gguf.h"

enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER, TOKEN_UNUSED }; /* ggml's numbers */

typedef struct Tables {
    const HsJson *model;
    int64_t count;
    const char **texts;
    char (*unused)[32]; /* texts of ids that stand for nothing */
    int32_t *types;
    HsBytes merges; /* "left right", each with its NUL */
    uint64_t merge_count;
} Tables;

static bool in_range(const Tables *tables, double id)
{
    return id >= 0 && id < (double)tables->count && id == (double)(int64_t)id;
}

static HsStatus read_vocabulary(const HsJson *root, Tables *tables)
{
    const HsJson *vocabulary = hs_json_get(tables->model, "vocab");
    const char *const unknown = hs_json_string(hs_json_get(tables->model, "unk_token"));
    for (const HsJson *entry = hs_json_first(vocabulary); entry; entry = hs_json_next(entry)) {
        const double id = hs_json_number(entry);
        const char *const text = hs_json_key(entry);
        if (!in_range(tables, id))
            return hs_fail(HS_EFORMAT, "tokenizer.json: token `%.40s` has no row in the model", text);
        tables->texts[(int64_t)id] = text;
        tables->types[(int64_t)id] = unknown && strcmp(unknown, text) == 0 ? TOKEN_UNKNOWN : TOKEN_NORMAL;
    }
    for (const HsJson *entry = hs_json_first(hs_json_get(root, "added_tokens")); entry; entry = hs_json_next(entry)) {
        const double id = hs_json_number(hs_json_get(entry, "id"));
        const char *const text = hs_json_string(hs_json_get(entry, "content"));
        if (!text || !in_range(tables, id))
            return hs_fail(HS_EFORMAT, "tokenizer.json: added token `%.40s` has no row in the model", text ? text : "");
        const bool special = hs_json_is_true(hs_json_get(entry, "special"));
        tables->texts[(int64_t)id] = text;
        if (tables->types[(int64_t)id] != TOKEN_UNKNOWN)
            tables->types[(int64_t)id] = special ? TOKEN_CONTROL : TOKEN_USER;
    }
    for (int64_t i = 0; i < tables->count; i++) {
        if (tables->texts[i])
            continue;
        snprintf(tables->unused[i], sizeof tables->unused[i], "[PAD%lld]", (long long)i);
        tables->texts[i] = tables->unused[i];
        tables->types[i] = TOKEN_UNUSED;
    }
    return HS_OK;
}

/* "left right", or ["left", "right"]. */
static HsStatus read_merges(Tables *tables)
{
    HsStatus status = HS_OK;
    for (const HsJson *merge = hs_json_first(hs_json_get(tables->model, "merges")); merge && status == HS_OK;
         merge = hs_json_next(merge)) {
        const HsJson *left = hs_json_first(merge);
        const char *const whole = hs_json_string(merge), *const first = hs_json_string(left);
        const char *const second = left ? hs_json_string(hs_json_next(left)) : NULL;
        if (!whole && (!first || !second))
            return hs_fail(HS_EFORMAT, "tokenizer.json: merge %llu must be a pair of texts",
                           (unsigned long long)tables->merge_count);
        if (!whole && (strchr(first, ' ') || strchr(second, ' ')))
            return hs_fail(HS_EUNSUPPORTED,
                           "tokenizer.json: a merge of texts with spaces cannot be written to a GGUF: use --format hf");
        status = whole ? hs_bytes_append(&tables->merges, whole, strlen(whole))
                       : hs_bytes_append(&tables->merges, first, strlen(first));
        if (status == HS_OK && !whole)
            status = hs_bytes_append(&tables->merges, " ", 1);
        if (status == HS_OK && !whole)
            status = hs_bytes_append(&tables->merges, second, strlen(second));
        if (status == HS_OK)
            status = hs_bytes_append(&tables->merges, "", 1);
        tables->merge_count++;
    }
    return status;
}

static HsStatus add_merges(const Tables *tables, HsGguf *file)
{
    const char **list = calloc((size_t)tables->merge_count + 1, sizeof *list);
    if (!list)
        return hs_fail(HS_ENOMEM, "no memory for %llu merges", (unsigned long long)tables->merge_count);
    const char *text = tables->merges.items;
    for (uint64_t i = 0; i < tables->merge_count; i++, text += strlen(text) + 1)
        list[i] = text;
    hs_gguf_add_texts(file, "tokenizer.ggml.merges", list, tables->merge_count);
    free(list);
    return HS_OK;
}

static void add_token(const HsExportSource *source, const char *key, int32_t token, HsGguf *file)
{
    if (token >= 0 && token < source->vocabulary)
        hs_gguf_add_u32(file, key, (uint32_t)token);
}

/* The tokens that the file puts around a text: at most one in front and one behind can be said. */
static HsStatus read_around(const HsExportSource *source, int32_t *begin, int32_t *end)
{
    HsTokens front = { 0 }, whole = { 0 };
    HsStatus status = hs_tokenizer_append_begin(source->tokenizer, &front);
    if (status == HS_OK)
        status = hs_tokenizer_encode_whole(source->tokenizer, "", 0, &whole);
    const int64_t behind = whole.count - front.count;
    *begin = front.count > 0 ? front.items[0] : -1;
    *end = behind > 0 ? whole.items[front.count] : -1;
    if (status == HS_OK && (front.count > 1 || behind > 1))
        status = hs_fail(HS_EUNSUPPORTED,
                         "tokenizer.json: post_processor puts %lld tokens in front of a text and %lld behind it, and a "
                         "GGUF can hold one each: --format hf writes it as it is",
                         (long long)front.count, (long long)behind);
    hs_tokens_deinit(&front);
    hs_tokens_deinit(&whole);
    return status;
}

/* What ends a text besides eos: the end of the template's answers, and what programs do not know by its text. */
static void add_ends(const HsExportAbout *about, int32_t eos, HsGguf *file)
{
    static const char *const keys[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    int used = 0;
    if (about->answered >= 0 && about->answered != eos)
        add_token(about->source, keys[used++], about->answered, file);
    for (int64_t i = 0; i < about->ends.count; i++) {
        size_t length;
        const int32_t token = about->ends.items[i];
        const char *const text = hs_tokenizer_bytes(about->source->tokenizer, token, &length);
        if (token == eos || token == about->answered || hs_gguf_ends_by_name(text, length))
            continue;
        if (used < 2)
            add_token(about->source, keys[used++], token, file);
        else
            hs_warn("token %d, `%.*s`, ends a text too, but a GGUF has no further key for it: programs that read it "
                    "may not stop there",
                    token, (int)length, text);
    }
}

static HsStatus add_special(const HsExportAbout *about, HsGguf *file)
{
    static const struct {
        const char *kind, *key;
    } rows[] = {
        { "unk", "tokenizer.ggml.unknown_token_id" },
        { "sep", "tokenizer.ggml.seperator_token_id" }, /* ggml's spelling */
        { "pad", "tokenizer.ggml.padding_token_id" },
        { "mask", "tokenizer.ggml.mask_token_id" },
    };
    const HsExportSource *source = about->source;
    int32_t begin, behind;
    HS_TRY(read_around(source, &begin, &behind));
    const int32_t named = about->begin >= 0 ? about->begin : hs_export_special(about, "bos");
    const int32_t eos = behind >= 0 ? behind : about->end;
    /* Always, where there is any: programs take token 11 of a file that has none. */
    add_token(source, "tokenizer.ggml.bos_token_id", begin >= 0 ? begin : named >= 0 ? named : eos, file);
    add_token(source, "tokenizer.ggml.eos_token_id", eos, file);
    add_ends(about, eos, file);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_token(source, rows[i].key, hs_export_special(about, rows[i].kind), file);
    hs_gguf_add_bool(file, "tokenizer.ggml.add_bos_token", begin >= 0);
    hs_gguf_add_bool(file, "tokenizer.ggml.add_eos_token", behind >= 0);
    return HS_OK;
}

enum { TEMPLATES_MOST = 32, TEMPLATE_NAME_BYTES = 128 };

typedef struct TemplateNames {
    char texts[TEMPLATES_MOST][TEMPLATE_NAME_BYTES];
    int count;
} TemplateNames;

/* Of a name the letters and digits are kept, as by ggml's converter.  length: of the name without a file's ending. */
static HsStatus add_named_template(const char *name, size_t length, const char *text, TemplateNames *names,
                                   HsGguf *file)
{
    char key[TEMPLATE_NAME_BYTES + 32], *const kept = names->texts[names->count];
    if (length == 0 || length >= TEMPLATE_NAME_BYTES || names->count == TEMPLATES_MOST)
        return hs_fail(HS_EUNSUPPORTED,
                       "chat template `%.40s`: a GGUF holds at most %d templates, with short names: use --format hf",
                       name, TEMPLATES_MOST);
    for (size_t i = 0; i < length; i++)
        kept[i] = (char)((unsigned char)name[i] < 128 && isalnum((unsigned char)name[i]) ? name[i] : '_');
    kept[length] = '\0';
    if (strcmp(kept, "default") == 0)
        return HS_OK;
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->texts[i], kept) == 0)
            return hs_fail(HS_EUNSUPPORTED, "two chat templates would be called `%s` in a GGUF: rename one", kept);
    snprintf(key, sizeof key, "tokenizer.chat_template.%s", kept);
    hs_gguf_add_text(file, key, text);
    names->count++;
    return HS_OK;
}

/* Files of theirs go before the list of tokenizer_config.json. */
static HsStatus add_named_templates(const HsExportAbout *about, TemplateNames *names, HsGguf *file)
{
    static const char folder[] = HS_CARRIED_TEMPLATES "/", ending[] = ".jinja";
    const HsJson *files = hs_carried_files(&about->source->carried);
    const HsJson *list = about->tokenizer ? hs_json_get(about->tokenizer, "chat_template") : NULL;
    for (const HsJson *item = files ? hs_json_first(files) : NULL; item; item = hs_json_next(item)) {
        const char *const name = hs_json_key(item) + strlen(folder);
        if (strncmp(hs_json_key(item), folder, strlen(folder)) == 0 && strlen(name) > strlen(ending))
            HS_TRY(add_named_template(name, strlen(name) - strlen(ending), hs_json_string(item), names, file));
    }
    if (names->count > 0 || !hs_json_is_array(list))
        return HS_OK;
    for (const HsJson *item = hs_json_first(list); item; item = hs_json_next(item)) {
        const char *const name = hs_json_string(hs_json_get(item, "name"));
        const char *const text = hs_json_string(hs_json_get(item, "template"));
        if (name && text)
            HS_TRY(add_named_template(name, strlen(name), text, names, file));
    }
    return HS_OK;
}

/* The template that serves, and those that are asked for by name. */
static HsStatus add_templates(const HsExportAbout *about, HsGguf *file)
{
    const char *list[TEMPLATES_MOST], *const text = hs_export_template(about);
    TemplateNames *names = calloc(1, sizeof *names);
    if (text)
        hs_gguf_add_text(file, "tokenizer.chat_template", text);
    HsStatus status = names ? HS_OK : hs_fail(HS_ENOMEM, "no memory for names of chat templates");
    if (status == HS_OK && !about->program)
        status = add_named_templates(about, names, file);
    for (int i = 0; names && i < names->count; i++)
        list[i] = names->texts[i];
    if (status == HS_OK && names->count > 0)
        hs_gguf_add_texts(file, "tokenizer.chat_templates", list, (uint64_t)names->count);
    free(names);
    return status;
}

/* Those of generation_config.json that have a key; what has none, sampling programs do not take from such files. */
static void add_sampling(const HsExportAbout *about, HsGguf *file)
{
    static const struct {
        const char *theirs, *key;
        bool whole;
    } rows[] = {
        { "top_k", "general.sampling.top_k", true },
        { "top_p", "general.sampling.top_p", false },
        { "min_p", "general.sampling.min_p", false },
        { "temperature", "general.sampling.temp", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const HsJson *value = about->generation ? hs_json_get(about->generation, rows[i].theirs) : NULL;
        const double number = value ? hs_json_number(value) : NAN;
        if (rows[i].whole && fabs(number) <= INT32_MAX)
            hs_gguf_add_i32(file, rows[i].key, (int32_t)number);
        else if (!rows[i].whole && isfinite(number))
            hs_gguf_add_f32(file, rows[i].key, number);
    }
}

static HsStatus add_tables(const HsExportAbout *about, Tables *tables, HsGguf *file)
{
    const char *cut;
    HS_TRY(hs_gguf_cut(about->published, &cut));
    HS_TRY(hs_gguf_check_tokens(about->published));
    tables->model = hs_json_get(about->published, "model");
    HS_TRY(read_vocabulary(about->published, tables));
    HS_TRY(read_merges(tables));
    hs_gguf_add_text(file, "tokenizer.ggml.model", "gpt2");
    hs_gguf_add_text(file, "tokenizer.ggml.pre", cut);
    hs_gguf_add_texts(file, "tokenizer.ggml.tokens", tables->texts, (uint64_t)tables->count);
    hs_gguf_add_i32s(file, "tokenizer.ggml.token_type", tables->types, (uint64_t)tables->count);
    HS_TRY(add_merges(tables, file));
    HS_TRY(add_special(about, file));
    add_sampling(about, file);
    return add_templates(about, file);
}

HsStatus hs_export_gguf_tokenizer(const HsExportAbout *about, HsGguf *file)
{
    Tables tables = { .count = about->source->vocabulary };
    const size_t count = (size_t)tables.count;
    tables.texts = calloc(count, sizeof *tables.texts);
    tables.unused = calloc(count, sizeof *tables.unused);
    tables.types = calloc(count, sizeof *tables.types);
    HsStatus status = tables.texts && tables.unused && tables.types
                          ? HS_OK
                          : hs_fail(HS_ENOMEM, "no memory for the tables of %zu tokens", count);
    if (status == HS_OK)
        status = add_tables(about, &tables, file);
    hs_bytes_deinit(&tables.merges);
    free(tables.texts);
    free(tables.unused);
    free(tables.types);
    return status;
}
