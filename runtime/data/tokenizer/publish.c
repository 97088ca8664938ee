/* SPDX-License-Identifier: MIT
 *
 * Tokenizers as the tokenizer.json that others read.  One of ours that has a token a byte or a character is a byte-pair
 * tokenizer without merges: each symbol stays by itself.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/kind.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"

/* {"type": name} with members that are false. */
static HsJson *typed(const char *name, const char *const *off)
{
    HsJson *object = hs_json_object();
    hs_json_set_string(object, "type", name);
    for (; off && *off; off++)
        hs_json_set_bool(object, *off, false);
    return object;
}

/* What the file calls token `token`: the byte's character in GPT-2's map, or the character itself. */
static const char *symbol(const HsTokenizer *tokenizer, int32_t token, char text[HS_UTF8_MAX_BYTES + 1])
{
    size_t length;
    if (tokenizer->kind == &hs_tokenizer_byte) {
        length = hs_utf8_encode(hs_byte_map_character((unsigned char)token), text);
    } else {
        const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
        memcpy(text, bytes, length);
    }
    text[length] = '\0';
    return text;
}

static HsJson *model_of(const HsTokenizer *tokenizer)
{
    static const char *const off[] = { "fuse_unk", "byte_fallback", "ignore_merges", NULL };
    HsJson *model = typed("BPE", off), *vocabulary = hs_json_object();
    char text[HS_UTF8_MAX_BYTES + 1];
    for (int32_t token = 0; token < tokenizer->vocabulary; token++)
        if (token != tokenizer->end_of_text)
            hs_json_set_integer(vocabulary, symbol(tokenizer, token, text), token);
    hs_json_set(model, "vocab", vocabulary);
    hs_json_set(model, "merges", hs_json_array());
    return model;
}

static HsJson *added_of(const HsTokenizer *tokenizer)
{
    HsJson *list = hs_json_array();
    if (tokenizer->end_of_text < 0)
        return list;
    HsJson *token = hs_json_object();
    hs_json_set_integer(token, "id", tokenizer->end_of_text);
    hs_json_set_string(token, "content", HS_END_OF_TEXT);
    for (const char *const *key = (const char *const[]){ "single_word", "lstrip", "rstrip", "normalized", NULL }; *key;
         key++)
        hs_json_set_bool(token, *key, false);
    hs_json_set_bool(token, "special", true);
    hs_json_append(list, token);
    return list;
}

static HsJson *make_json(const HsTokenizer *tokenizer)
{
    static const char *const off[] = { "add_prefix_space", "trim_offsets", "use_regex", NULL };
    const bool bytes = tokenizer->kind == &hs_tokenizer_byte;
    HsJson *root = hs_json_object();
    hs_json_set_string(root, "version", "1.0");
    hs_json_set(root, "added_tokens", added_of(tokenizer));
    if (bytes)
        hs_json_set(root, "pre_tokenizer", typed("ByteLevel", off));
    hs_json_set(root, "decoder", bytes ? typed("ByteLevel", off) : typed("Fuse", NULL));
    hs_json_set(root, "model", model_of(tokenizer));
    return root;
}

HsStatus hs_tokenizer_publish(const HsTokenizer *tokenizer, const char *path)
{
    if (tokenizer->kind == &hs_tokenizer_bpe)
        return hs_tokenizer_save(tokenizer, path);
    HsJson *root = make_json(tokenizer);
    char *text = hs_json_write(root, true);
    hs_json_destroy(root);
    HsStatus status = hs_storage_replace_text(path, text);
    free(text);
    return status;
}

HsStatus hs_tokenizer_published(const HsTokenizer *tokenizer, HsJson **root)
{
    char *text = NULL;
    size_t size = 0;
    *root = NULL;
    if (tokenizer->kind != &hs_tokenizer_bpe) {
        *root = make_json(tokenizer);
        return HS_OK;
    }
    FILE *stream = open_memstream(&text, &size);
    HsStatus status = stream ? tokenizer->kind->write(tokenizer, stream) : HS_OK;
    const HsStatus closed = hs_close_text(stream, &text);
    status = status == HS_OK ? closed : status;
    if (status == HS_OK)
        status = hs_json_parse("tokenizer.json", text, strlen(text), root);
    free(text);
    return status;
}

const HsJson *hs_published_cut(const HsJson *root)
{
    const HsJson *cut = hs_json_get(root, "pre_tokenizer"), *stages = hs_json_get(cut, "pretokenizers");
    return hs_json_is_array(stages) ? hs_json_first(stages) : cut;
}

const char *hs_published_expression(const HsJson *root)
{
    return hs_json_string(hs_json_get(hs_json_get(hs_published_cut(root), "pattern"), "Regex"));
}

HsStatus hs_tokenizer_is_qwen(const HsTokenizer *tokenizer, bool *is_qwen)
{
    HsJson *root = NULL;
    *is_qwen = false;
    HS_TRY(hs_tokenizer_published(tokenizer, &root));
    const char *const found = hs_published_expression(root);
    *is_qwen = found && strcmp(found, HS_QWEN_EXPRESSION) == 0;
    hs_json_destroy(root);
    return HS_OK;
}
