/* SPDX-License-Identifier: MIT
 *
 * The byte tokenizer: token b is byte b, token 256 ends a document.  It needs nothing and fits everything.
 */
#include "runtime/data/tokenizer/kind.h"

enum { END_TOKEN = 256, BYTE_VOCABULARY = 257 };

static HsStatus byte_create(HsTokenizer *tokenizer, const char *path, const char *text, size_t length)
{
    (void)path, (void)text, (void)length;
    tokenizer->vocabulary = BYTE_VOCABULARY;
    tokenizer->end_of_text = END_TOKEN;
    return HS_OK;
}

static HsStatus byte_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text,
                           size_t length)
{
    (void)name, (void)root;
    return byte_create(tokenizer, NULL, text, length);
}

static HsStatus byte_write(const HsTokenizer *tokenizer, FILE *stream)
{
    (void)tokenizer;
    fputs("{\"" HS_TOKENIZER_MARK "\": 1, \"kind\": \"byte\"}\n", stream);
    return HS_OK;
}

static HsStatus byte_encode(const HsTokenizer *tokenizer, const char *text, size_t length, size_t offset,
                            HsTokens *tokens)
{
    (void)offset;
    (void)tokenizer;
    HS_TRY(hs_tokens_reserve(tokens, (int64_t)length));
    for (size_t i = 0; i < length; i++)
        tokens->items[tokens->count++] = (unsigned char)text[i];
    return HS_OK;
}

static const char *byte_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length)
{
    (void)tokenizer;
    if (token == END_TOKEN) {
        *length = sizeof HS_END_OF_TEXT - 1;
        return HS_END_OF_TEXT;
    }
    /* Every byte once, to lend one out: generated, so that none can be mistyped. */
#define FOUR(b)    (char)(b), (char)((b) + 1), (char)((b) + 2), (char)((b) + 3)
#define SIXTEEN(b) FOUR(b), FOUR((b) + 4), FOUR((b) + 8), FOUR((b) + 12)
#define ROW64(b)   SIXTEEN(b), SIXTEEN((b) + 16), SIXTEEN((b) + 32), SIXTEEN((b) + 48)
    static const char every[256] = { ROW64(0), ROW64(64), ROW64(128), ROW64(192) };
    *length = 1;
    return &every[token];
}

static void byte_destroy(HsTokenizer *tokenizer)
{
    (void)tokenizer;
}

const HsTokenizerKind hs_tokenizer_byte = {
    .name = "byte",
    .create = byte_create,
    .parse = byte_parse,
    .write = byte_write,
    .encode = byte_encode,
    .bytes = byte_bytes,
    .destroy = byte_destroy,
};
