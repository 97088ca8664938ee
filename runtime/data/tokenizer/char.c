/* SPDX-License-Identifier: MIT
 *
 * The character tokenizer: the text's distinct code points, sorted, are the vocabulary (nanoGPT's shakespeare_char).
 * Invariant: characters[] ascends strictly, and index_of_ascii agrees with it.
 */
#include "runtime/data/tokenizer/kind.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/io/utf8.h"

enum { CODE_POINTS = 0x110000, ASCII = 128 };

typedef struct Characters {
    int32_t count;
    int32_t index_of_ascii[ASCII]; /* -1: not in the vocabulary */
    struct {
        uint32_t code_point;
        char bytes[HS_UTF8_MAX_BYTES];
        size_t length;
    } characters[];
} Characters;

/* From a set of code points, one bit each. */
static HsStatus build(HsTokenizer *tokenizer, const uint8_t *present)
{
    int32_t count = 0;
    for (uint32_t c = 0; c < CODE_POINTS; c++)
        count += present[c / 8] >> (c % 8) & 1;
    Characters *state = calloc(1, sizeof *state + (size_t)count * sizeof state->characters[0]);
    if (!state)
        return hs_fail(HS_ENOMEM, "out of memory while making a tokenizer");
    for (int c = 0; c < ASCII; c++)
        state->index_of_ascii[c] = -1;
    for (uint32_t c = 0; c < CODE_POINTS; c++) {
        if (!(present[c / 8] >> (c % 8) & 1))
            continue;
        state->characters[state->count].code_point = c;
        state->characters[state->count].length = hs_utf8_encode(c, state->characters[state->count].bytes);
        if (c < ASCII)
            state->index_of_ascii[c] = state->count;
        state->count++;
    }
    tokenizer->state = state;
    tokenizer->vocabulary = count;
    return HS_OK;
}

static HsStatus not_utf8(const char *text, size_t at, size_t offset)
{
    return hs_fail(HS_EFORMAT,
                   "byte %zu (0x%02X) is not UTF-8; tokenizer.kind: char needs UTF-8 text, byte takes anything",
                   offset + at, (unsigned char)text[at]);
}

static HsStatus char_create(HsTokenizer *tokenizer, const char *path, const char *text, size_t length)
{
    (void)path;
    if (length == 0)
        return hs_fail(HS_EFORMAT, "tokenizer.kind: char takes its vocabulary from the text, which is empty");
    uint8_t *present = calloc(CODE_POINTS / 8, 1);
    if (!present)
        return hs_fail(HS_ENOMEM, "out of memory while making a tokenizer");
    HsStatus status = HS_OK;
    for (size_t at = 0; at < length && status == HS_OK;) {
        uint32_t c = 0;
        size_t size = hs_utf8_decode(text + at, length - at, &c);
        if (size == 0)
            status = not_utf8(text, at, 0);
        else
            present[c / 8] |= (uint8_t)(1u << (c % 8));
        at += size;
    }
    if (status == HS_OK)
        status = build(tokenizer, present);
    free(present);
    return status;
}

/* {"halfstep_tokenizer": 1, "kind": "char", "characters": [10, 32, ...]}: numbers, because a JSON string is an awkward
 * place for some characters. */
static HsStatus char_parse(HsTokenizer *tokenizer, const char *name, const HsJson *root, const char *text,
                           size_t length)
{
    (void)text, (void)length;
    const HsJson *list = hs_json_get(root, "characters");
    if (!hs_json_is_array(list) || hs_json_count(list) == 0)
        return hs_fail(HS_EFORMAT, "%s: member `characters` must be a list of code points", name);
    uint8_t *present = calloc(CODE_POINTS / 8, 1);
    if (!present)
        return hs_fail(HS_ENOMEM, "out of memory while reading %s", name);
    HsStatus status = HS_OK;
    double previous = -1;
    for (const HsJson *item = hs_json_first(list); item && status == HS_OK; item = hs_json_next(item)) {
        double value = hs_json_number(item);
        bool surrogate = value >= 0xD800 && value < 0xE000;
        if (!(value > previous && value < CODE_POINTS) || value != (double)(uint32_t)value || surrogate) {
            status = hs_fail(HS_EFORMAT, "%s: `characters` must hold ascending code points", name);
            break;
        }
        uint32_t c = (uint32_t)value;
        present[c / 8] |= (uint8_t)(1u << (c % 8));
        previous = value;
    }
    if (status == HS_OK)
        status = build(tokenizer, present);
    free(present);
    return status;
}

static HsStatus char_write(const HsTokenizer *tokenizer, FILE *stream)
{
    const Characters *state = tokenizer->state;
    fputs("{\"" HS_TOKENIZER_MARK "\": 1, \"kind\": \"char\", \"characters\": [", stream);
    for (int32_t i = 0; i < state->count; i++)
        fprintf(stream, "%s%u", i > 0 ? ", " : "", (unsigned)state->characters[i].code_point);
    fputs("]}\n", stream);
    return HS_OK;
}

/* -1 when the character is not in the vocabulary. */
static int32_t find(const Characters *state, uint32_t code_point)
{
    if (code_point < ASCII)
        return state->index_of_ascii[code_point];
    int32_t low = 0, high = state->count;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (state->characters[middle].code_point < code_point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < state->count && state->characters[low].code_point == code_point ? low : -1;
}

static HsStatus char_encode(const HsTokenizer *tokenizer, const char *text, size_t length, size_t offset,
                            HsTokens *tokens)
{
    const Characters *state = tokenizer->state;
    HS_TRY(hs_tokens_reserve(tokens, (int64_t)length));
    int64_t before = tokens->count;
    for (size_t at = 0; at < length;) {
        uint32_t c = 0;
        size_t size = hs_utf8_decode(text + at, length - at, &c);
        int32_t token = size > 0 ? find(state, c) : -1;
        if (token < 0) {
            tokens->count = before; /* all or nothing */
            if (size == 0)
                return not_utf8(text, at, offset);
            bool shown = c >= 0x20 && c != 0x7F;
            return hs_fail(HS_EFORMAT, "byte %zu: character U+%04X%s%.*s%s is not among the tokenizer's %d characters",
                           offset + at, (unsigned)c, shown ? " '" : "", shown ? (int)size : 0, text + at,
                           shown ? "'" : "", state->count);
        }
        tokens->items[tokens->count++] = token;
        at += size;
    }
    return HS_OK;
}

static const char *char_bytes(const HsTokenizer *tokenizer, int32_t token, size_t *length)
{
    const Characters *state = tokenizer->state;
    *length = state->characters[token].length;
    return state->characters[token].bytes;
}

static void char_destroy(HsTokenizer *tokenizer)
{
    free(tokenizer->state);
}

const HsTokenizerKind hs_tokenizer_char = {
    .name = "char",
    .create = char_create,
    .parse = char_parse,
    .write = char_write,
    .encode = char_encode,
    .bytes = char_bytes,
    .destroy = char_destroy,
};
