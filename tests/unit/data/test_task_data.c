/* SPDX-License-Identifier: MIT
 *
 * Datasets of several tasks under one tokenizer: which tasks' characters it knows, what each task's text and order of
 * windows are, and how errors name the task.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/rng.h"
#include "runtime/data/synthetic/synthetic.h"
#include "tests/support/data_fixture.h"

static void create(DataFixture *fixture, HsTaskData *data)
{
    cr_assert_eq(hs_task_data_create(&fixture->config, NULL, data), HS_OK, "%s", hs_error_message());
}

static bool same_stream(const HsStreamTokens *a, const HsStreamTokens *b)
{
    return a->count == b->count && memcmp(a->tokens, b->tokens, (size_t)a->count * sizeof(int32_t)) == 0;
}

Test(task_data, characters_of_all_tasks)
{
    DataFixture fixture;
    HsTaskData data;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "first", "cacacacacaca");
    data_fixture_write_text(&fixture, "second", "x\xc3\xa9x\xc3\xa9x\xc3\xa9x\xc3\xa9x\xc3\xa9"); /* e acute */
    data_fixture_write_text(&fixture, "checks", "xxxqxxx");
    fixture.config.tokenizer.kind = "char";
    data_fixture_add_task(&fixture, "a", "first");
    data_fixture_validation(&fixture, "checks");
    data_fixture_add_task(&fixture, "b", "second")->validation = fixture.validation;
    create(&fixture, &data);
    cr_assert_eq(data.count, 2);
    /* The sorted union: a c q x e-acute, of which no text holds all. */
    cr_assert_eq(hs_tokenizer_vocabulary(data.tokenizer), 5);
    cr_expect_eq(data.tasks[0].tokenizer, data.tokenizer);
    cr_expect_eq(data.tasks[1].tokenizer, data.tokenizer);
    cr_assert_eq(data.tasks[0].train.count, 6);
    cr_assert_eq(data.tasks[1].train.count, 10);
    for (int i = 0; i < 6; i++)
        cr_expect_eq(data.tasks[0].train.tokens[i], i % 2 ? 0 : 1);
    for (int i = 0; i < 10; i++)
        cr_expect_eq(data.tasks[1].train.tokens[i], i % 2 ? 4 : 3);
    cr_expect_eq(data.tasks[1].validation.tokens[3], 2);
    hs_task_data_deinit(&data);
    cr_expect_null(data.tasks);
    data_fixture_deinit(&fixture);
}

/* The first task is what a run of one task always was: its text has the seed Philox(seed, {0, 0, 0, "SOUR"}), and its
 * windows the run's own seed.  Recorded losses rest on it. */
Test(task_data, the_first_task_keeps_its_seeds)
{
    DataFixture fixture;
    HsTaskData data;
    char *text;
    size_t length;
    int64_t documents;
    double nats;
    data_fixture_init(&fixture);
    fixture.task.validation = "synthetic:code";
    fixture.config.tokenizer.kind = "char";
    data_fixture_add_task(&fixture, "a", "synthetic:mixture");
    data_fixture_add_task(&fixture, "b", "synthetic:mixture");
    create(&fixture, &data);
    HsPhilox bits = hs_philox(1337, (const uint32_t[4]){ 0, 0, 0, 0x534f5552 });
    uint64_t seed = (uint64_t)bits.word[1] << 32 | bits.word[0];
    cr_assert_eq(hs_synthetic_generate("mixture", seed, 20000, &text, &length, &documents, &nats), HS_OK);
    const HsStreamTokens *train = &data.tasks[0].train;
    cr_assert_eq((size_t)train->count, length);
    for (int64_t i = 0; i < train->count; i++) {
        size_t size;
        cr_assert_eq(*hs_tokenizer_bytes(data.tokenizer, train->tokens[i], &size), text[i], "byte %lld", (long long)i);
    }
    cr_expect_eq(train->documents, documents);
    cr_expect_eq(data.tasks[0].seed, 1337);
    free(text);
    hs_task_data_deinit(&data);
    data_fixture_deinit(&fixture);
}

Test(task_data, the_same_source_in_two_tasks_is_other_text)
{
    DataFixture fixture;
    HsTaskData data;
    data_fixture_init(&fixture);
    fixture.task.validation = "synthetic:english";
    for (int i = 0; i < 3; i++)
        data_fixture_add_task(&fixture, "same", "synthetic:english");
    create(&fixture, &data);
    for (int i = 0; i < 3; i++) {
        cr_expect(data.tasks[i].train.entropy_floor > 0.3 && data.tasks[i].train.entropy_floor < 0.5);
        for (int k = 0; k < i; k++) {
            cr_expect_not(same_stream(&data.tasks[i].train, &data.tasks[k].train));
            cr_expect_not(same_stream(&data.tasks[i].validation, &data.tasks[k].validation));
            cr_expect_neq(data.tasks[i].seed, data.tasks[k].seed);
        }
    }
    hs_task_data_deinit(&data);
    data_fixture_deinit(&fixture);
}

/* A task made alone, as `eval` does, is the task that was trained on. */
Test(task_data, a_task_made_alone_is_the_same)
{
    DataFixture fixture;
    HsTaskData data;
    data_fixture_init(&fixture);
    data_fixture_add_task(&fixture, "a", "synthetic:addition");
    data_fixture_add_task(&fixture, "b", "synthetic:words");
    data_fixture_add_task(&fixture, "c", "synthetic:addition");
    create(&fixture, &data);
    for (int i = 0; i < 3; i++) {
        HsDataset alone;
        int32_t tokens[2][4], targets[2][4];
        cr_assert_eq(hs_dataset_create(&fixture.config, &fixture.tasks[i], NULL, &alone), HS_OK);
        cr_expect(same_stream(&alone.train, &data.tasks[i].train), "task %d", i);
        cr_expect(same_stream(&alone.validation, &data.tasks[i].validation), "task %d", i);
        cr_expect_eq(alone.train.entropy_floor, data.tasks[i].train.entropy_floor);
        HsSampler sampler = hs_dataset_sampler(&data.tasks[i]);
        cr_expect_eq(sampler.sequence_length, 4);
        for (int64_t row = 0; row < 50; row++) {
            hs_dataset_sample(&alone, row, tokens[0], targets[0]);
            sampler.sample(sampler.user, row, tokens[1], targets[1]);
            cr_expect_eq(memcmp(tokens[0], tokens[1], sizeof tokens[0]), 0);
            cr_expect_eq(memcmp(targets[0], targets[1], sizeof targets[0]), 0);
        }
        hs_dataset_deinit(&alone);
    }
    hs_task_data_deinit(&data);
    data_fixture_deinit(&fixture);
}

Test(task_data, masks)
{
    for (int masked = 0; masked < 2; masked++) {
        DataFixture fixture;
        HsTaskData data;
        data_fixture_init(&fixture);
        data_fixture_write_text(&fixture, "plain", "some text without a mask");
        data_fixture_write_text(&fixture, "x.jsonl",
                                masked ? "{\"prompt\":\"abcdefgh\",\"completion\":\"ijklmnopqrst\"}\n"
                                       : "{\"text\":\"abcdefghijklmnopqrst\"}\n");
        data_fixture_add_task(&fixture, "a", "plain");
        data_fixture_add_task(&fixture, "b", "x.jsonl");
        create(&fixture, &data);
        cr_expect_eq(hs_task_data_masked(&data), masked == 1);
        hs_task_data_deinit(&data);
        data_fixture_deinit(&fixture);
    }
}

/* "@" stands for the scratch folder. */
static void expect_failure(DataFixture *fixture, HsTokenizer *tokenizer, HsStatus status, const char *expected)
{
    HsTaskData data;
    char message[1024];
    size_t used = 0, folder = strlen(fixture->folder);
    cr_expect_eq(hs_task_data_create(&fixture->config, tokenizer, &data), status, "`%s` must fail", expected);
    for (const char *at = hs_error_message(); *at && used + 1 < sizeof message;) {
        bool here = strncmp(at, fixture->folder, folder) == 0;
        message[used++] = here ? '@' : *at;
        at += here ? folder : 1;
    }
    message[used] = '\0';
    cr_expect(strncmp(message, expected, strlen(expected)) == 0, "got      `%s`\nexpected `%s`", message, expected);
    cr_expect_null(data.tasks);
    cr_expect_null(data.tokenizer);
}

/* The second task's source, and what is said about it. */
Test(task_data, errors_name_task_file_and_offset)
{
    static const struct {
        char *kind;
        const char *file, *text, *train;
        HsStatus status;
        const char *message;
    } cases[] = {
        { "char", "x.txt", "bad \xff text", "x.txt", HS_EFORMAT, "task b: @/x.txt: byte 4 (0xFF) is not UTF-8" },
        { "byte", "x.jsonl", "{\"text\":\"fine\"}\n[]\n", "x.jsonl", HS_EFORMAT,
          "task b: @/x.jsonl:2: a list begins here" },
        { "byte", "x.txt", "", "none.txt", HS_EIO, "task b: train: @/none.txt: cannot be read" },
        { "byte", "x.txt", "", "x.txt", HS_ECONFIG, "task b: train holds no text" },
        { "byte", "x.txt", "abc", "x.txt", HS_ECONFIG, "task b: train has 2 tokens, but one window" },
        { "char", "x.bin", "abcd", "x.bin", HS_ECONFIG, "task b: token files (.bin) need a tokenizer that exists" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DataFixture fixture;
        data_fixture_init(&fixture);
        data_fixture_write_text(&fixture, cases[i].file, cases[i].text);
        fixture.config.tokenizer.kind = cases[i].kind;
        data_fixture_add_task(&fixture, "a", "synthetic:facts");
        data_fixture_add_task(&fixture, "b", cases[i].train);
        expect_failure(&fixture, NULL, cases[i].status, cases[i].message);
        data_fixture_deinit(&fixture);
    }
}

/* A checkpoint's tokenizer is taken as it is, and freed here too although one task does not fit it. */
Test(task_data, given_tokenizer)
{
    DataFixture fixture;
    HsTaskData data;
    HsTokenizer *tokenizer = NULL;
    data_fixture_init(&fixture);
    fixture.config.tokenizer.kind = "char";
    data_fixture_write_text(&fixture, "good", "abcabcabcabc");
    data_fixture_write_text(&fixture, "bad", "abcabcabcabx");
    data_fixture_add_task(&fixture, "a", "good");
    cr_assert_eq(hs_tokenizer_create("char", NULL, "abcd", 4, &tokenizer), HS_OK);
    cr_assert_eq(hs_task_data_create(&fixture.config, tokenizer, &data), HS_OK);
    cr_expect_eq(data.tokenizer, tokenizer);
    cr_expect_eq(hs_tokenizer_vocabulary(data.tokenizer), 4);
    hs_task_data_deinit(&data);
    data_fixture_add_task(&fixture, "b", "bad");
    cr_assert_eq(hs_tokenizer_create("char", NULL, "abcd", 4, &tokenizer), HS_OK);
    expect_failure(&fixture, tokenizer, HS_EFORMAT, "task b: @/bad: byte 11: character U+0078 'x' is not among");
    data_fixture_deinit(&fixture);
}

/* All of them are reported, not the first alone. */
Test(task_data, characters_that_a_given_tokenizer_has_not)
{
    DataFixture fixture;
    HsTokenizer *tokenizer = NULL;
    data_fixture_init(&fixture);
    fixture.config.tokenizer.kind = "char";
    data_fixture_write_text(&fixture, "good", "abcabcabcabc");
    data_fixture_write_text(&fixture, "few", "abz\x01z\xc3\xa9y");
    data_fixture_add_task(&fixture, "a", "good");
    data_fixture_add_task(&fixture, "b", "few");
    cr_assert_eq(hs_tokenizer_create("char", NULL, "abcd", 4, &tokenizer), HS_OK);
    expect_failure(
        &fixture, tokenizer, HS_EFORMAT,
        "task b: @/few: byte 2: character U+007A 'z' is not among the tokenizer's 4 characters; tokenizer.kind: char "
        "stays with the characters of the text that it was made of, and the task has 4 others: U+0001, 'y', 'z', "
        "'\xc3\xa9'. Replace them, or begin with tokenizer.kind: byte, which takes any text, in a fresh out_dir");
    data_fixture_deinit(&fixture);
}
