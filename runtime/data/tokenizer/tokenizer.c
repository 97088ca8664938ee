/* SPDX-License-Identifier: MIT
 *
 * The table of tokenizers and what does not depend on the kind.
 * A file says its kind: ours by the member "halfstep_tokenizer", Hugging Face's by "model".
 */
#include "runtime/config/tokenizer_folder.h"
#include "runtime/data/tokenizer/bpe.h"
#include "runtime/data/tokenizer/kind.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"

#include "runtime/io/files.h"
#include "runtime/io/storage.h"

enum { TOKENIZER_MAX_BYTES = 256 << 20, TOKENIZER_FORMAT = 1 };

static const HsTokenizerKind *const kinds[] = { &hs_tokenizer_byte, &hs_tokenizer_char, &hs_tokenizer_bpe };
enum { KIND_COUNT = sizeof kinds / sizeof kinds[0] };

static const HsTokenizerKind *find_kind(const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static HsStatus allocate(const HsTokenizerKind *kind, HsTokenizer **tokenizer)
{
    *tokenizer = calloc(1, sizeof **tokenizer);
    if (!*tokenizer)
        return hs_fail(HS_ENOMEM, "out of memory while making a tokenizer");
    (*tokenizer)->kind = kind;
    (*tokenizer)->end_of_text = -1;
    return HS_OK;
}

/* On failure the caller gets no half-made tokenizer. */
static HsStatus finish(HsStatus status, HsTokenizer **tokenizer)
{
    if (status != HS_OK) {
        hs_tokenizer_destroy(*tokenizer);
        *tokenizer = NULL;
    }
    return status;
}

HsStatus hs_tokenizer_create(const char *kind, const char *path, const char *text, size_t text_length,
                             HsTokenizer **tokenizer)
{
    *tokenizer = NULL;
    const HsTokenizerKind *row = find_kind(kind);
    if (!row)
        return hs_fail(HS_ECONFIG, "there is no tokenizer of kind %s", kind);
    HS_TRY(allocate(row, tokenizer));
    return finish(row->create(*tokenizer, path, text, text_length), tokenizer);
}

/* Which row reads the file; NULL after a failure. */
static HsStatus kind_of_file(const char *name, const HsJson *root, const HsTokenizerKind **kind)
{
    if (!hs_json_is_object(root))
        return hs_fail(HS_EFORMAT, "%s: a tokenizer must be a JSON object", name);
    if (hs_json_get(root, "model")) {
        *kind = &hs_tokenizer_bpe;
        return HS_OK;
    }
    if (!hs_json_get(root, HS_TOKENIZER_MARK))
        return hs_fail(HS_EFORMAT,
                       "%s: neither a Hugging Face tokenizer.json (member `model`) nor one of ours (member "
                       "`" HS_TOKENIZER_MARK "`)",
                       name);
    int64_t format;
    const char *kind_name;
    HS_TRY(hs_json_need_integer(name, root, HS_TOKENIZER_MARK, &format));
    HS_TRY(hs_json_need_string(name, root, "kind", &kind_name));
    if (format != TOKENIZER_FORMAT)
        return hs_fail(HS_EUNSUPPORTED, "%s: tokenizer format %lld; this version reads format %d", name,
                       (long long)format, TOKENIZER_FORMAT);
    *kind = find_kind(kind_name);
    if (!*kind || *kind == &hs_tokenizer_bpe)
        return hs_fail(HS_EFORMAT, "%s: there is no tokenizer of kind %.40s", name, kind_name);
    return HS_OK;
}

/* in_folder: `name` is the path of a file, and the files next to it count. */
static HsStatus parse(const char *name, const char *json, size_t length, bool in_folder, HsTokenizer **tokenizer)
{
    *tokenizer = NULL;
    HsJson *root;
    const HsTokenizerKind *kind = NULL;
    HS_TRY(hs_json_parse(name, json, length, &root));
    HsStatus status = kind_of_file(name, root, &kind);
    if (status == HS_OK)
        status = allocate(kind, tokenizer);
    if (status == HS_OK)
        status =
            finish(in_folder && kind == &hs_tokenizer_bpe ? hs_bpe_parse_in_folder(*tokenizer, name, root, json, length)
                                                          : kind->parse(*tokenizer, name, root, json, length),
                   tokenizer);
    hs_json_destroy(root);
    return status;
}

HsStatus hs_tokenizer_parse(const char *name, const char *json, size_t length, HsTokenizer **tokenizer)
{
    return parse(name, json, length, false, tokenizer);
}

HsStatus hs_tokenizer_load(const char *path, HsTokenizer **tokenizer)
{
    *tokenizer = NULL;
    char *text;
    size_t length;
    HS_TRY(hs_read_file(path, TOKENIZER_MAX_BYTES, &text, &length));
    HsStatus status = parse(path, text, length, true, tokenizer);
    free(text);
    return status;
}

static HsStatus print(FILE *stream, const void *user)
{
    const HsTokenizer *tokenizer = user;
    return tokenizer->kind->write(tokenizer, stream);
}

HsStatus hs_tokenizer_save(const HsTokenizer *tokenizer, const char *path)
{
    return hs_storage_replace_printed(path, print, tokenizer);
}

HsStatus hs_tokenizer_hash(const HsTokenizer *tokenizer, uint64_t *hash)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    HsStatus status = stream ? tokenizer->kind->write(tokenizer, stream) : HS_ENOMEM;
    if (stream)
        fprintf(stream, "%s %lld %lld %d", tokenizer->kind->name, (long long)tokenizer->vocabulary,
                (long long)tokenizer->rows, (int)tokenizer->end_of_text);
    const bool written = stream && !ferror(stream);
    if (stream && (fclose(stream) != 0 || !written || !text))
        status = HS_ENOMEM;
    if (status == HS_OK)
        *hash = hs_storage_hash(text, length);
    free(text);
    return status == HS_ENOMEM ? hs_fail(HS_ENOMEM, "no memory to look at the tokenizer") : status;
}

void hs_tokenizer_destroy(HsTokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    tokenizer->kind->destroy(tokenizer);
    free(tokenizer);
}

const char *hs_tokenizer_kind(const HsTokenizer *tokenizer)
{
    return tokenizer->kind->name;
}

int64_t hs_tokenizer_vocabulary(const HsTokenizer *tokenizer)
{
    return tokenizer->rows > 0 ? tokenizer->rows : tokenizer->vocabulary;
}

int32_t hs_tokenizer_end_of_text(const HsTokenizer *tokenizer)
{
    return tokenizer->end_of_text;
}

/* By the names alone, as a checkpoint's copy of the file would be read, which has no folder. */
static void find_usual_end(HsTokenizer *tokenizer)
{
    tokenizer->end_of_text = -1;
    for (int i = 0; hs_usual_ends_of_text[i]; i++)
        if (hs_tokenizer_set_end_of_text(tokenizer, hs_usual_ends_of_text[i]) == HS_OK)
            return;
}

HsStatus hs_tokenizer_settle(HsTokenizer *tokenizer, const HsConfig *config)
{
    const int64_t rows = config->training.init_from[0] != '\0' ? config->model.vocabulary : 0;
    if (tokenizer->kind == &hs_tokenizer_bpe && config->tokenizer.end_of_text[0] == '\0')
        find_usual_end(tokenizer);
    HS_TRY(hs_tokenizer_set_end_of_text(tokenizer, config->tokenizer.end_of_text));
    tokenizer->rows = rows > 0 && rows < tokenizer->vocabulary ? rows : 0;
    if (tokenizer->rows > 0 && tokenizer->end_of_text >= tokenizer->rows) {
        hs_warn("the end-of-text token has id %d, but the model has %lld rows (vocab_size): documents follow each "
                "other without one",
                tokenizer->end_of_text, (long long)rows);
        tokenizer->end_of_text = -1;
    }
    return HS_OK;
}

HsStatus hs_tokenizer_check_rows(const HsTokenizer *tokenizer, const HsTokens *tokens, int64_t from)
{
    for (int64_t i = from; tokenizer->rows > 0 && i < tokens->count; i++) {
        size_t length;
        if (tokens->items[i] < tokenizer->rows)
            continue;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens->items[i], &length);
        return hs_fail(HS_EFORMAT,
                       "the text makes token %d (`%.*s`), but the model has %lld rows (vocab_size): take it out of the "
                       "text, or give the model a row for it",
                       tokens->items[i], (int)(length < 60 ? length : 60), bytes, (long long)tokenizer->rows);
    }
    return HS_OK;
}

HsStatus hs_tokenizer_encode(const HsTokenizer *tokenizer, const char *text, size_t length, HsTokens *tokens)
{
    const int64_t before = tokens->count;
    HS_TRY(tokenizer->kind->encode(tokenizer, text, length, 0, tokens));
    return hs_tokenizer_check_rows(tokenizer, tokens, before);
}

static HsStatus append_around(const HsTokenizer *tokenizer, bool behind, HsTokens *tokens)
{
    const struct HsAround *around = &tokenizer->around[behind];
    HS_TRY(hs_tokens_reserve(tokens, around->count));
    for (int i = 0; i < around->count; i++)
        tokens->items[tokens->count++] = around->ids[i];
    return hs_tokenizer_check_rows(tokenizer, tokens, tokens->count - around->count);
}

HsStatus hs_tokenizer_encode_whole(const HsTokenizer *tokenizer, const char *text, size_t length, HsTokens *tokens)
{
    HS_TRY(append_around(tokenizer, false, tokens));
    HS_TRY(hs_tokenizer_encode(tokenizer, text, length, tokens));
    return append_around(tokenizer, true, tokens);
}

HsStatus hs_tokenizer_append_begin(const HsTokenizer *tokenizer, HsTokens *tokens)
{
    return append_around(tokenizer, false, tokens);
}

int32_t hs_tokenizer_begin_of_text(const HsTokenizer *tokenizer)
{
    return tokenizer->around[0].count > 0 ? tokenizer->around[0].ids[0] : -1;
}

HsStatus hs_tokenizer_decode(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, char **text,
                             size_t *length)
{
    HsBytes bytes = { 0 };
    *text = NULL;
    *length = 0;
    HsStatus status = hs_bytes_append(&bytes, "", 0); /* never NULL */
    if (status == HS_OK)
        status = tokenizer->kind->decode ? tokenizer->kind->decode(tokenizer, tokens, count, &bytes)
                                         : hs_tokenizer_join(tokenizer, tokens, count, &bytes);
    if (status != HS_OK) {
        hs_bytes_deinit(&bytes);
        return status;
    }
    *text = bytes.items;
    *length = bytes.count;
    return HS_OK;
}
