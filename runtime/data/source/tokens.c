/* SPDX-License-Identifier: MIT
 *
 * Token files.  With a header, 256 little-endian int32 (llm.c's layout):
 *
 *     byte 0 magic   4 version   8 count   12 zeros   1024 tokens ...
 *     20240520       1                     u16 tokens (GPT-2)
 *     20240801       7                     u32 tokens (Llama 3)
 *
 * Without one (data.token_file: raw16), u16 tokens from the first byte (nanoGPT's layout).  Which of the two it is
 * is never guessed: a headerless file may begin with any bytes.
 */
#include "runtime/data/source/source.h"

#include <inttypes.h>

#include "runtime/data/source/token_file.h"
#include "runtime/io/files.h"

const HsTokenLayout hs_token_layouts[HS_TOKEN_LAYOUTS] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };

/* Byte by byte: right on any byte order and alignment. */
static uint32_t little_endian(const char *bytes, size_t count)
{
    uint32_t value = 0;
    for (size_t i = 0; i < count; i++)
        value |= (uint32_t)(unsigned char)bytes[i] << (8 * i);
    return value;
}

HsStatus hs_token_file_check_replaced(const char *path)
{
    char start[4];
    const size_t length = hs_read_start(path, start, sizeof start);
    for (int i = 0; i < HS_TOKEN_LAYOUTS; i++)
        if (length == 0 || (length == 4 && little_endian(start, 4) == hs_token_layouts[i].magic))
            return HS_OK;
    return hs_fail(HS_ECONFIG, "%s exists, and is not a token file with a header: name another file, or remove it",
                   path);
}

HsStatus hs_token_file_read_header(const char *name, const char *bytes, size_t size, size_t *token_bytes)
{
    if (size < HS_TOKEN_HEADER_BYTES)
        return hs_fail(HS_EFORMAT,
                       "%s: %zu bytes are too few for the %d-byte header of a token file; if the file is u16 tokens "
                       "without a header, set data.token_file: raw16",
                       name, size, HS_TOKEN_HEADER_BYTES);
    uint32_t magic = little_endian(bytes, 4), version = little_endian(bytes + 4, 4);
    int32_t count = (int32_t)little_endian(bytes + 8, 4);
    const HsTokenLayout *layout = NULL;
    for (int i = 0; i < HS_TOKEN_LAYOUTS; i++)
        if (hs_token_layouts[i].magic == magic)
            layout = &hs_token_layouts[i];
    if (!layout)
        return hs_fail(HS_EFORMAT,
                       "%s: byte 0: the number %" PRIu32 " begins no known token file (20240520: u16, 20240801: u32); "
                       "if the file is u16 tokens without a header, set data.token_file: raw16",
                       name, magic);
    if (version != layout->version)
        return hs_fail(HS_EFORMAT,
                       "%s: byte 4: version %" PRIu32 " of a %" PRIu32 " token file; only %" PRIu32 " is known", name,
                       version, magic, layout->version);
    if (count < 0)
        return hs_fail(
            HS_EFORMAT,
            "%s: byte 8: a negative number of tokens, so the file is damaged: copy or write it again (%" PRId32 ")",
            name, count);
    uint64_t expected = HS_TOKEN_HEADER_BYTES + (uint64_t)count * layout->token_bytes;
    if (expected != size)
        return hs_fail(
            HS_EFORMAT,
            "%s: byte 8: the header says %" PRId32 " tokens, which makes %" PRIu64
            " bytes, but the file has %zu; it is cut off or was not written to its end: copy or write it again",
            name, count, expected, size);
    *token_bytes = layout->token_bytes;
    return HS_OK;
}

HsStatus hs_token_file_check_raw16(const char *name, size_t size)
{
    if (size % 2 == 0)
        return HS_OK;
    return hs_fail(HS_EFORMAT,
                   "%s: %zu bytes are no whole number of u16 tokens: the file is cut off, or data.token_file: "
                   "raw16 is wrong for it",
                   name, size);
}

HsStatus hs_token_file_decode(const HsTokenRange *range, const char *bytes, int64_t count, int32_t *tokens)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i * (int64_t)range->token_bytes;
        const uint32_t token = little_endian(bytes + at, range->token_bytes);
        if ((int64_t)token >= range->vocabulary)
            return hs_fail(HS_EFORMAT,
                           "%s: byte %" PRId64 ": token %" PRIu32 " is not below the tokenizer's vocabulary of %" PRId64
                           "; set tokenizer.kind and tokenizer.path to the tokenizer that wrote the file",
                           range->name, range->byte + at, token, range->vocabulary);
        tokens[i] = (int32_t)token;
    }
    return HS_OK;
}

HsStatus hs_token_file_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus)
{
    size_t offset = 0, token_bytes = 2;
    if (!options->raw16) {
        HS_TRY(hs_token_file_read_header(text->name, text->bytes, text->size, &token_bytes));
        offset = HS_TOKEN_HEADER_BYTES;
    } else {
        HS_TRY(hs_token_file_check_raw16(text->name, text->size));
    }
    size_t count = (text->size - offset) / token_bytes;
    if (count == 0)
        return HS_OK;
    int64_t first = corpus->tokens.count;
    HS_TRY(hs_tokens_reserve(&corpus->tokens, (int64_t)count));
    const HsTokenRange range = { text->name, (int64_t)offset, token_bytes, options->vocabulary };
    HS_TRY(hs_token_file_decode(&range, text->bytes + offset, (int64_t)count, corpus->tokens.items + first));
    corpus->tokens.count = first + (int64_t)count;
    return hs_corpus_add_tokens(corpus, first);
}
