/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a tokenizer file: refused with a message, or loaded; what loads encodes its own file and decodes within
 * bounds.  Without a space put in front, decoding gives the text back.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_round_trip(const HsTokenizer *tokenizer, const char *text, size_t size, bool exact)
{
    HsTokens tokens = { 0 };
    if (hs_tokenizer_encode(tokenizer, text, size, &tokens) != HS_OK) {
        if (hs_error_message()[0] == '\0' || tokens.count != 0)
            abort();
        hs_tokens_deinit(&tokens);
        return;
    }
    size_t at = 0;
    for (int64_t i = 0; i < tokens.count; i++) {
        size_t length;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens.items[i], &length);
        if (tokens.items[i] < 0 || tokens.items[i] >= hs_tokenizer_vocabulary(tokenizer))
            abort();
        if (exact && (at + length > size || memcmp(text + at, bytes, length) != 0))
            abort();
        at += length;
    }
    if (exact && at != size)
        abort();
    hs_tokens_deinit(&tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* The default of add_prefix_space is true, so that only files that say false, and say it once, are exact. */
    static const char off[] = "\"add_prefix_space\":false";
    const char *text = (const char *)data;
    HsTokenizer *tokenizer;
    if (hs_tokenizer_parse("fuzz", text, size, &tokenizer) != HS_OK) {
        if (hs_error_message()[0] == '\0' || tokenizer)
            abort();
        return 0;
    }
    const char *setting = memmem(text, size, "add_prefix_space", 16);
    bool exact = strcmp(hs_tokenizer_kind(tokenizer), "bpe") != 0 ||
                 (setting && setting > text && (size_t)(text + size - setting) + 1 >= sizeof off - 1 &&
                  memcmp(setting - 1, off, sizeof off - 1) == 0 &&
                  !memmem(setting + 1, size - (size_t)(setting + 1 - text), "add_prefix_space", 16));
    check_round_trip(tokenizer, text, size, exact);
    hs_tokenizer_destroy(tokenizer);
    return 0;
}
