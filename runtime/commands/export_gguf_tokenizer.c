/* SPDX-License-Identifier: MIT
 *
 * A tokenizer.json as the tables of a GGUF: byte-level BPE (ggml's model `gpt2`), with its merges and ggml's name for the
 * expression that cuts text before merging, of which it knows a few.
 */
#include <stdlib.h>
#include <string.h>

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

/* ggml's name for how the text is cut before merging; NULL: none known. */
static const char *name_of_cut(const HsJson *root, bool merges)
{
    static const struct {
        const char *name, *expression;
    } rows[] = {
        { "qwen2", HS_QWEN_EXPRESSION },
        { "llama-bpe", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                       "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+" },
    };
    const HsJson *first = hs_published_cut(root);
    const char *const type = hs_json_string(hs_json_get(first, "type"));
    const char *const expression = hs_published_expression(root);
    if (!merges) /* nothing to keep apart */
        return "gpt-2";
    for (size_t i = 0; expression && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].expression, expression) == 0)
            return rows[i].name;
    const bool byte_level = type && strcmp(type, "ByteLevel") == 0;
    const HsJson *regex = hs_json_get(first, "use_regex");
    return byte_level && (!regex || hs_json_is_true(regex)) ? "gpt-2" : NULL;
}

static bool is_byte_level(const HsJson *root)
{
    const HsJson *decoder = hs_json_get(root, "decoder");
    const char *const type = hs_json_string(hs_json_get(decoder, "type"));
    return type && strcmp(type, "ByteLevel") == 0;
}

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
            return hs_fail(HS_EFORMAT, "tokenizer.json: merge %llu is no pair",
                           (unsigned long long)tables->merge_count);
        if (!whole && (strchr(first, ' ') || strchr(second, ' ')))
            return hs_fail(HS_EUNSUPPORTED, "tokenizer.json: a merge of texts with spaces cannot be said in a GGUF");
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

static void add_special(const HsExportSource *source, HsGguf *file)
{
    const int32_t end = hs_tokenizer_end_of_text(source->tokenizer);
    const int32_t begin = hs_tokenizer_begin_of_text(source->tokenizer);
    if (begin >= 0 || end >= 0)
        hs_gguf_add_u32(file, "tokenizer.ggml.bos_token_id", (uint32_t)(begin >= 0 ? begin : end));
    if (end >= 0)
        hs_gguf_add_u32(file, "tokenizer.ggml.eos_token_id", (uint32_t)end);
    hs_gguf_add_bool(file, "tokenizer.ggml.add_bos_token", begin >= 0);
    hs_gguf_add_bool(file, "tokenizer.ggml.add_eos_token", false);
}

static HsStatus add_tables(const HsExportSource *source, const HsJson *root, Tables *tables, HsGguf *file)
{
    tables->model = hs_json_get(root, "model");
    HS_TRY(read_vocabulary(root, tables));
    HS_TRY(read_merges(tables));
    const char *const cut = name_of_cut(root, tables->merge_count > 0);
    if (!is_byte_level(root))
        return hs_fail(HS_EUNSUPPORTED,
                       "GGUF is written with byte-level tokenizers (this one's decoder is another kind): "
                       "--format hf");
    if (!cut)
        return hs_fail(HS_EUNSUPPORTED, "ggml has no name for the way in which this tokenizer cuts text: --format hf");
    hs_gguf_add_text(file, "tokenizer.ggml.model", "gpt2");
    hs_gguf_add_text(file, "tokenizer.ggml.pre", cut);
    hs_gguf_add_texts(file, "tokenizer.ggml.tokens", tables->texts, (uint64_t)tables->count);
    hs_gguf_add_i32s(file, "tokenizer.ggml.token_type", tables->types, (uint64_t)tables->count);
    HS_TRY(add_merges(tables, file));
    add_special(source, file);
    return HS_OK;
}

HsStatus hs_export_gguf_tokenizer(const HsExportSource *source, HsGguf *file)
{
    HsJson *root = NULL;
    Tables tables = { .count = source->vocabulary };
    HS_TRY(hs_tokenizer_published(source->tokenizer, &root));
    const size_t count = (size_t)tables.count;
    tables.texts = calloc(count, sizeof *tables.texts);
    tables.unused = calloc(count, sizeof *tables.unused);
    tables.types = calloc(count, sizeof *tables.types);
    HsStatus status = tables.texts && tables.unused && tables.types
                          ? HS_OK
                          : hs_fail(HS_ENOMEM, "no memory for the tables of %zu tokens", count);
    if (status == HS_OK)
        status = add_tables(source, root, &tables, file);
    hs_bytes_deinit(&tables.merges);
    free(tables.texts);
    free(tables.unused);
    free(tables.types);
    hs_json_destroy(root);
    return status;
}
