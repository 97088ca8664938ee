/* SPDX-License-Identifier: MIT
 *
 * The table's row of BPE: a tokenizer.json with what stands next to it, encoding (bpe.c, bpe_parts.c), decoding.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/bpe_encoder.h"
#include "runtime/data/tokenizer/folder.h"
#include "runtime/io/files.h"

enum { BPE_FILE_MAX_BYTES = 256 << 20 };

static HsStatus open_encoder(const HsBpe *bpe, size_t length, HsBpeEncoder *encoder)
{
    *encoder = (HsBpeEncoder){ .bpe = bpe, .token_bits = 1 };
    while (bpe->token_capacity > (size_t)1 << encoder->token_bits)
        encoder->token_bits++;
    return hs_matcher_create(bpe->budget, length, &encoder->matcher);
}

static void close_encoder(HsBpeEncoder *encoder)
{
    hs_matcher_destroy(encoder->matcher);
    hs_bytes_deinit(&encoder->normalized);
    free(encoder->symbols);
    free(encoder->heap);
    hs_map_deinit(&encoder->cache);
    hs_tokens_deinit(&encoder->cached);
}

static HsStatus bpe_encode(const HsTokenizer *tokenizer, const char *text, size_t length, size_t offset,
                           HsTokens *tokens)
{
    (void)offset;
    HsBpeEncoder encoder;
    HsStatus status = open_encoder(tokenizer->state, length, &encoder);
    if (status == HS_OK)
        status = hs_bpe_encode_text(&encoder, text, length, tokens);
    close_encoder(&encoder);
    return status;
}

static HsStatus bpe_open(const HsTokenizer *tokenizer, void **scratch)
{
    HsBpeEncoder *encoder = malloc(sizeof *encoder);
    if (!encoder)
        return hs_fail(HS_ENOMEM, "out of memory while tokenizing");
    HsStatus status = open_encoder(tokenizer->state, 0, encoder);
    if (status != HS_OK)
        free(encoder);
    else
        *scratch = encoder;
    return status;
}

static void bpe_close(void *scratch)
{
    if (scratch)
        close_encoder(scratch);
    free(scratch);
}

static HsStatus bpe_encode_more(void *scratch, const char *text, size_t length, HsTokens *tokens)
{
    HsBpeEncoder *encoder = scratch;
    hs_matcher_begin(encoder->matcher, length);
    return hs_bpe_encode_text(encoder, text, length, tokens);
}

static HsStatus bpe_decode(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, HsBytes *text)
{
    const HsBpe *bpe = tokenizer->state;
    if (hs_detokenizer_is_joining(bpe->detokenizer))
        return hs_tokenizer_join(tokenizer, tokens, count, text);
    HsStrings strings = { 0 };
    HsMatcher *matcher = NULL;
    HsStatus status = HS_OK;
    for (int64_t i = 0; i < count && status == HS_OK; i++) {
        if (tokens[i] < 0 || tokens[i] >= tokenizer->vocabulary || !bpe->tokens[tokens[i]].used)
            continue; /* stands for nothing */
        const HsBpeToken *token = &bpe->tokens[tokens[i]];
        status = hs_strings_append(&strings, bpe->pool + token->written_offset, token->written_length);
    }
    if (status == HS_OK)
        status = hs_matcher_create(bpe->budget, strings.bytes.count, &matcher);
    if (status == HS_OK)
        status = hs_detokenizer_run(bpe->detokenizer, matcher, &strings);
    if (status == HS_OK)
        status = hs_bytes_append(text, strings.bytes.items, strings.bytes.count);
    hs_matcher_destroy(matcher);
    hs_strings_deinit(&strings);
    return status;
}

/* The token that ends a document, as the folder names it. */
static void take_end_of_text(HsTokenizer *tokenizer, const HsTokenizerFolder *folder)
{
    const char *fallback;
    const char *end = hs_token_content(hs_tokenizer_folder_role(folder, "eos_token", &fallback));
    end = end ? end : fallback;
    if (end)
        (void)hs_tokenizer_set_end_of_text(tokenizer, end); /* one without a token is none */
    else if (folder->end_id >= 0 && folder->end_id < tokenizer->vocabulary)
        tokenizer->end_of_text = (int32_t)folder->end_id;
}

/* Parts that a class makes anew must still be ones that the library knows: it reads them first. */
static HsStatus check_own_parts(const char *path, const HsJson *root)
{
    HsNormalizer *normalizer = NULL;
    HsPretokenizer *pretokenizer = NULL;
    HsDetokenizer *detokenizer = NULL;
    HsStatus status = hs_normalizer_create(path, hs_json_get(root, "normalizer"), &normalizer);
    if (status == HS_OK)
        status = hs_pretokenizer_create(path, hs_json_get(root, "pre_tokenizer"), &pretokenizer);
    if (status == HS_OK)
        status = hs_detokenizer_create(path, hs_json_get(root, "decoder"), hs_pretokenizer_is_byte_level(pretokenizer),
                                       &detokenizer);
    hs_normalizer_destroy(normalizer);
    hs_pretokenizer_destroy(pretokenizer);
    hs_detokenizer_destroy(detokenizer);
    return status;
}

/* With what stands next to it, where it has the name under which transformers looks for it. */
HsStatus hs_bpe_parse_in_folder(HsTokenizer *tokenizer, const char *path, HsJson *root, const char *text, size_t length)
{
    static const char file_name[] = "tokenizer.json";
    const char *const slash = strrchr(path, '/');
    HsTokenizerFolder folder;
    bool changed = false;
    if (strcmp(slash ? slash + 1 : path, file_name) != 0)
        return hs_bpe_parse(tokenizer, path, root, text, length);
    HS_TRY(hs_tokenizer_folder_open(path, text, &folder));
    HsStatus status = hs_tokenizer_class_rebuilds(folder.class) ? check_own_parts(path, root) : HS_OK;
    if (status == HS_OK)
        status = hs_tokenizer_folder_apply(&folder, root, &changed);
    char *const made = status == HS_OK && changed ? hs_json_write(root, true) : NULL;
    if (status == HS_OK && changed && !made)
        status = hs_fail(HS_ENOMEM, "%s: out of memory", path);
    if (status == HS_OK)
        status = hs_bpe_parse(tokenizer, path, root, made ? made : text, made ? strlen(made) : length);
    if (status == HS_OK)
        take_end_of_text(tokenizer, &folder);
    free(made);
    hs_tokenizer_folder_close(&folder);
    return status;
}

static HsStatus bpe_create(HsTokenizer *tokenizer, const char *path, const char *text, size_t length)
{
    (void)text, (void)length;
    if (!path)
        return hs_fail(HS_ECONFIG, "tokenizer.kind: bpe needs tokenizer.path, a Hugging Face tokenizer.json");
    char *json;
    size_t json_length;
    HsJson *root = NULL;
    HS_TRY(hs_read_file(path, BPE_FILE_MAX_BYTES, &json, &json_length));
    HsStatus status = hs_json_parse(path, json, json_length, &root);
    if (status == HS_OK && !hs_json_get(root, "model"))
        status = hs_fail(HS_EFORMAT, "%s: not a Hugging Face tokenizer.json: member `model` is missing", path);
    if (status == HS_OK)
        status = hs_bpe_parse_in_folder(tokenizer, path, root, json, json_length);
    hs_json_destroy(root);
    free(json);
    return status;
}

static HsStatus bpe_write(const HsTokenizer *tokenizer, FILE *stream)
{
    const HsBpe *bpe = tokenizer->state;
    fwrite(bpe->source, 1, bpe->source_length, stream); /* the caller looks at ferror */
    return HS_OK;
}

static const char *bpe_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length)
{
    return hs_bpe_token_bytes(tokenizer->state, token, length);
}

const HsTokenizerKind hs_tokenizer_bpe = {
    .name = "bpe",
    .create = bpe_create,
    .parse = hs_bpe_parse,
    .write = bpe_write,
    .encode = bpe_encode,
    .decode = bpe_decode,
    .bytes = bpe_bytes,
    .destroy = hs_bpe_destroy,
    .open = bpe_open,
    .close = bpe_close,
    .encode_more = bpe_encode_more,
    .takes_parts = hs_bpe_takes_parts,
    .encode_part = hs_bpe_encode_part,
};
