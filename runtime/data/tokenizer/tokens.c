/* SPDX-License-Identifier: MIT
 *
 * What the kinds of tokenizers share: lists of tokens, the end of a text, and the characters that stand for bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/kind.h"
#include "runtime/io/utf8.h"

HsStatus hs_tokens_reserve(HsTokens *tokens, int64_t more)
{
    int64_t needed = tokens->count + more;
    if (needed <= tokens->capacity)
        return HS_OK;
    int64_t capacity = tokens->capacity + tokens->capacity / 2;
    if (capacity < needed)
        capacity = needed < 64 ? 64 : needed;
    int32_t *items = realloc(tokens->items, (size_t)capacity * sizeof *items);
    if (!items)
        return hs_fail(HS_ENOMEM, "out of memory: %lld tokens", (long long)capacity);
    tokens->items = items;
    tokens->capacity = capacity;
    return HS_OK;
}

void hs_tokens_deinit(HsTokens *tokens)
{
    free(tokens->items);
    *tokens = (HsTokens){ 0 };
}

HsStatus hs_tokenizer_join(const HsTokenizer *tokenizer, const int32_t *tokens, int64_t count, HsBytes *text)
{
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens[i], &length);
        HS_TRY(hs_bytes_append(text, bytes, length));
    }
    return HS_OK;
}

HsStatus hs_tokenizer_set_end_of_text(HsTokenizer *tokenizer, const char *text)
{
    const size_t wanted = strlen(text);
    if (wanted == 0)
        return HS_OK;
    for (int32_t token = 0; token < tokenizer->vocabulary; token++) {
        size_t length;
        const char *bytes = hs_tokenizer_bytes(tokenizer, token, &length);
        if (length != wanted || memcmp(bytes, text, length) != 0)
            continue;
        tokenizer->end_of_text = token;
        return HS_OK;
    }
    return hs_fail(HS_ECONFIG,
                   "tokenizer.end_of_text: no token of the vocabulary is `%.60s` (tokenizer.kind: %s); write it as "
                   "the tokenizer has it, or leave the key empty",
                   text, tokenizer->kind->name);
}

static bool stands_for_itself(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

uint32_t hs_byte_map_character(unsigned char byte)
{
    if (stands_for_itself(byte))
        return byte;
    uint32_t character = 256;
    for (unsigned lower = 0; lower < byte; lower++)
        character += !stands_for_itself(lower);
    return character;
}

long hs_byte_map_decode(const char *text, size_t length, char *bytes)
{
    /* Characters 256..323 go to the 68 bytes that do not stand for themselves, in order. */
    unsigned char mapped[68];
    size_t count = 0;
    for (unsigned byte = 0; byte < 256; byte++)
        if (!stands_for_itself(byte))
            mapped[count++] = (unsigned char)byte;
    long written = 0;
    for (size_t at = 0; at < length;) {
        uint32_t character;
        size_t size = hs_utf8_decode(text + at, length - at, &character);
        bool direct = size > 0 && character < 256 && stands_for_itself(character);
        if (!direct && (size == 0 || character < 256 || character >= 256 + count))
            return -1;
        bytes[written++] = (char)(direct ? character : mapped[character - 256]);
        at += size;
    }
    return written;
}

const char *hs_tokenizer_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length)
{
    /* Ids beyond the vocabulary exist where the model pads its embedding: they stand for nothing. */
    *length = 0;
    return token < 0 || token >= tokenizer->vocabulary ? "" : tokenizer->kind->bytes(tokenizer, token, length);
}
