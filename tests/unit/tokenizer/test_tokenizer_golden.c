/* SPDX-License-Identifier: MIT
 *
 * Each kind of tokenizer.json, token for token as the `tokenizers` library encodes and decodes it.
 * tests/tokenizers/goldens.py writes tests/unit/tokenizer/golden: one small file a kind, and golden.jsonl.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/tokenizer.h"
#include "runtime/io/files.h"
#include "runtime/io/json.h"

#define FOLDER "tests/unit/tokenizer/golden/"
enum { GOLDEN_MAX_BYTES = 1 << 20 };

/* The one that is loaded. */
typedef struct Loaded {
    char name[64];
    HsTokenizer *tokenizer;
} Loaded;

static void load(Loaded *loaded, const char *name)
{
    char path[256];
    if (loaded->tokenizer && strcmp(loaded->name, name) == 0)
        return;
    hs_tokenizer_destroy(loaded->tokenizer);
    snprintf(loaded->name, sizeof loaded->name, "%s", name);
    snprintf(path, sizeof path, FOLDER "%s.json", name);
    cr_assert_eq(hs_tokenizer_load(path, &loaded->tokenizer), HS_OK, "%s", hs_error_message());
}

static void check(const Loaded *loaded, const char *text, const HsJson *list, const char *decoded)
{
    HsTokens tokens = { 0 };
    cr_assert_eq(hs_tokenizer_encode(loaded->tokenizer, text, strlen(text), &tokens), HS_OK, "%s: `%s`: %s",
                 loaded->name, text, hs_error_message());
    cr_expect_eq(tokens.count, hs_json_count(list), "%s: `%s`: %lld tokens, not %d", loaded->name, text,
                 (long long)tokens.count, hs_json_count(list));
    int64_t i = 0;
    for (const HsJson *item = hs_json_first(list); item && i < tokens.count; item = hs_json_next(item), i++)
        cr_expect_eq(tokens.items[i], (int32_t)hs_json_number(item), "%s: `%s`: token %lld is %d, not %d", loaded->name,
                     text, (long long)i, tokens.items[i], (int)hs_json_number(item));
    char *again;
    size_t length;
    cr_assert_eq(hs_tokenizer_decode(loaded->tokenizer, tokens.items, tokens.count, &again, &length), HS_OK);
    cr_expect(length == strlen(decoded) && memcmp(again, decoded, length) == 0, "%s: `%s` decodes to `%.*s`, not `%s`",
              loaded->name, text, (int)length, again, decoded);
    free(again);
    hs_tokens_deinit(&tokens);
}

Test(tokenizer_golden, every_kind_agrees_with_the_library)
{
    char *text;
    size_t length;
    int lines = 0;
    Loaded loaded = { 0 };
    cr_assert_eq(hs_read_file(FOLDER "golden.jsonl", GOLDEN_MAX_BYTES, &text, &length), HS_OK, "%s",
                 hs_error_message());
    for (char *at = text, *end; at < text + length; at = end + 1, lines++) {
        HsJson *line;
        end = memchr(at, '\n', (size_t)(text + length - at));
        cr_assert_not_null(end);
        cr_assert_eq(hs_json_parse("golden.jsonl", at, (size_t)(end - at), &line), HS_OK, "%s", hs_error_message());
        load(&loaded, hs_json_string(hs_json_get(line, "tokenizer")));
        check(&loaded, hs_json_string(hs_json_get(line, "text")), hs_json_get(line, "tokens"),
              hs_json_string(hs_json_get(line, "decoded")));
        hs_json_destroy(line);
    }
    cr_expect_geq(lines, 200);
    hs_tokenizer_destroy(loaded.tokenizer);
    free(text);
}
