/* SPDX-License-Identifier: MIT
 *
 * The token between documents: found by name, or as tokenizer.end_of_text says.
 */
#include <criterion/criterion.h>

#include "tests/support/data_fixture.h"
#include "tests/support/tokenizer_json.h"

#define ENDS "<|im_end|>"

/* Two documents, and a tokenizer.json with an end of text as token 256, under another name. */
static void prepare(DataFixture *fixture, char *path, size_t size)
{
    char *json = tokenizer_json("", "", "", PRE_GPT2,
                                ",\"added_tokens\":[{\"id\":256,\"content\":\"" ENDS "\",\"special\":true}]");
    data_fixture_init(fixture);
    data_fixture_write_text(fixture, "tokenizer.json", json);
    free(json);
    snprintf(path, size, "%s", fixture->path);
    fixture->config.tokenizer.kind = "bpe";
    fixture->config.tokenizer.path = path;
    data_fixture_write_text(fixture, "x.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"def\"}\n");
    data_fixture_train(fixture, "x.jsonl");
    data_fixture_validation(fixture, "x.jsonl");
}

static void expect_tokens(DataFixture *fixture, HsTokenizer *tokenizer, const int32_t *expected, int64_t count)
{
    HsDataset dataset;
    cr_assert_eq(hs_dataset_create(&fixture->config, &fixture->task, tokenizer, &dataset), HS_OK, "%s",
                 hs_error_message());
    cr_assert_eq(dataset.train.count, count);
    cr_expect_eq(memcmp(dataset.train.tokens, expected, (size_t)count * sizeof *expected), 0);
    hs_dataset_deinit(&dataset);
}

Test(end_of_text, the_key_names_the_token)
{
    DataFixture fixture;
    char path[256];
    static const int32_t joined[] = { 'a', 'b', 'c', 'd', 'e', 'f' };
    static const int32_t ended[] = { 'a', 'b', 'c', 256, 'd', 'e', 'f', 256 };
    prepare(&fixture, path, sizeof path);
    expect_tokens(&fixture, NULL, joined, 6); /* by name it is not found: a warning (tests/cli) */
    fixture.config.tokenizer.end_of_text = ENDS;
    expect_tokens(&fixture, NULL, ended, 8);
    /* A checkpoint's tokenizer is the file as it was: the configuration says it again. */
    HsTokenizer *tokenizer;
    cr_assert_eq(hs_tokenizer_load(path, &tokenizer), HS_OK);
    cr_expect_eq(hs_tokenizer_end_of_text(tokenizer), -1);
    expect_tokens(&fixture, tokenizer, ended, 8);
    data_fixture_deinit(&fixture);
}

Test(end_of_text, an_unknown_token_is_refused)
{
    static char *const kinds[] = { "bpe", "byte", "char" };
    for (int i = 0; i < 3; i++) {
        DataFixture fixture;
        HsDataset dataset;
        char path[256];
        prepare(&fixture, path, sizeof path);
        fixture.config.tokenizer.kind = kinds[i];
        fixture.config.tokenizer.end_of_text = "<|end|>";
        cr_expect_eq(data_fixture_create(&fixture, &dataset), HS_ECONFIG);
        char expected[256];
        snprintf(expected, sizeof expected,
                 "tokenizer.end_of_text: no token of the vocabulary is `<|end|>` (tokenizer.kind: %s); write it as the "
                 "tokenizer has it, or leave the key empty",
                 kinds[i]);
        cr_expect_str_eq(hs_error_message(), expected);
        data_fixture_deinit(&fixture);
    }
}

Test(end_of_text, any_kind_of_tokenizer_takes_one)
{
    DataFixture fixture;
    char path[256];
    static const int32_t bytes[] = { 'a', 'b', 'c', '\n', 'd', 'e', 'f', '\n' };
    static const int32_t characters[] = { 0, 1, 2, 0, 3, 4, 5, 0 };
    prepare(&fixture, path, sizeof path);
    fixture.config.tokenizer.kind = "byte";
    fixture.config.tokenizer.end_of_text = "\n";
    expect_tokens(&fixture, NULL, bytes, 8);
    fixture.config.tokenizer.kind = "char";
    fixture.config.tokenizer.end_of_text = "a";
    expect_tokens(&fixture, NULL, characters, 8);
    data_fixture_deinit(&fixture);
}
