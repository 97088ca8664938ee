/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a tokenizer file: refused with a message, or loaded; what loads encodes its own file, and text that is
 * awkward for normalizers and expressions, and decodes within bounds.  Where nothing but the byte map stands between
 * text and tokens, decoding gives the text back.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char awkward[] =
    "e\xCC\x81\xCC\xA3 \xE2\x96\x81 a  b\r\n\xEF\xB7\xBA \xF0\x91\xBC\x84\xFF\xE2\x84\xAB'S 123 "
    "<s> <0x0A>\xEA\xB0\x80\xE1\x86\xA8\xC4\xB0 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

static void check_round_trip(const HsTokenizer *tokenizer, const char *text, size_t size, bool exact)
{
    HsTokens tokens = { 0 };
    char *decoded;
    size_t length;
    if (hs_tokenizer_encode(tokenizer, text, size, &tokens) != HS_OK) {
        if (hs_error_message()[0] == '\0' || tokens.count != 0)
            abort();
        hs_tokens_deinit(&tokens);
        return;
    }
    for (int64_t i = 0; i < tokens.count; i++)
        if (tokens.items[i] < 0 || tokens.items[i] >= hs_tokenizer_vocabulary(tokenizer))
            abort();
    if (hs_tokenizer_decode(tokenizer, tokens.items, tokens.count, &decoded, &length) == HS_OK) {
        if (exact && (length != size || memcmp(text, decoded, size) != 0))
            abort();
    } else if (hs_error_message()[0] == '\0' || decoded) {
        abort();
    }
    free(decoded);
    hs_tokens_deinit(&tokens);
}

/* Our own kinds, and byte-level files without a part that changes text. */
static bool gives_text_back(const HsTokenizer *tokenizer, const char *text, size_t size)
{
    static const char *const changing[] = { "normalizer", "decoder",       "added_tokens", "Split",
                                            "Whitespace", "Metaspace",     "Sequence",     "\"Delim",
                                            "unk_token",  "byte_fallback", "Punctuation",  "\\" };
    /* The default of add_prefix_space is true, so that only files that say false, and say it once, are exact. */
    static const char off[] = "\"add_prefix_space\":false";
    if (strcmp(hs_tokenizer_kind(tokenizer), "bpe") != 0)
        return true;
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
        if (memmem(text, size, changing[i], strlen(changing[i])))
            return false;
    const char *setting = memmem(text, size, off, sizeof off - 1);
    return setting && !memmem(setting + sizeof off, size - (size_t)(setting + sizeof off - text), "add_prefix", 10);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    HsTokenizer *tokenizer;
    if (hs_tokenizer_parse("fuzz", text, size, &tokenizer) != HS_OK) {
        if (hs_error_message()[0] == '\0' || tokenizer)
            abort();
        return 0;
    }
    bool exact = gives_text_back(tokenizer, text, size);
    check_round_trip(tokenizer, text, size, exact);
    if (strcmp(hs_tokenizer_kind(tokenizer), "char") != 0) /* it knows its own characters alone */
        check_round_trip(tokenizer, awkward, sizeof awkward - 1, exact);
    hs_tokenizer_destroy(tokenizer);
    return 0;
}
