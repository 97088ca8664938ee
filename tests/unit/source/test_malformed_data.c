/* SPDX-License-Identifier: MIT
 *
 * Data that cannot be used: every case is an error, with a message that names the place and the mend, word for word.
 * In the messages '@' stands for the scratch folder.
 */
#include <criterion/criterion.h>

#include "tests/support/data_fixture.h"

typedef struct Case {
    const char *file;    /* written with `bytes`; NULL: none */
    const char *bytes;   /* text */
    const char *train;   /* list entry; NULL: the file */
    const char *message; /* ends with "...": only so far */
} Case;

/* Replaces the folder by '@', so that messages can be written down. */
static void shorten(const char *message, const char *folder, char *buffer, size_t size)
{
    size_t used = 0, length = strlen(folder);
    while (*message && used + 1 < size) {
        bool here = strncmp(message, folder, length) == 0;
        buffer[used++] = here ? '@' : *message;
        message += here ? length : 1;
    }
    buffer[used] = '\0';
}

static void expect_message(const DataFixture *fixture, const char *expected)
{
    char message[2048];
    size_t length = strlen(expected);
    shorten(hs_error_message(), fixture->folder, message, sizeof message);
    if (length > 3 && strcmp(expected + length - 3, "...") == 0)
        message[length - 3 < strlen(message) ? length - 3 : strlen(message)] = '\0', length -= 3;
    cr_expect(strlen(message) == length && strncmp(message, expected, length) == 0, "got      `%s`\nexpected `%s`",
              message, expected);
}

static void expect_failure(DataFixture *fixture, HsStatus status, const char *expected)
{
    HsDataset dataset;
    cr_expect_eq(data_fixture_create(fixture, &dataset), status, "`%s` must fail", expected);
    expect_message(fixture, expected);
    cr_expect_null(dataset.tokenizer);
}

static void run_cases(const Case *cases, size_t count, HsStatus status)
{
    for (size_t i = 0; i < count; i++) {
        DataFixture fixture;
        data_fixture_init(&fixture);
        if (cases[i].file)
            data_fixture_write_text(&fixture, cases[i].file, cases[i].bytes);
        data_fixture_train(&fixture, cases[i].train ? cases[i].train : cases[i].file);
        expect_failure(&fixture, status, cases[i].message);
        data_fixture_deinit(&fixture);
    }
}

#define RUN(cases, status) run_cases(cases, sizeof(cases) / sizeof((cases)[0]), status)

#define FIELDS "name the fields with the task's text_field, or prompt_field and completion_field"

Test(malformed_data, jsonl)
{
    static const Case cases[] = {
        { "x.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"a\"\n", NULL,
          "@/x.jsonl:3: the file ends within the object that begins here: it is cut off; copy it again" },
        { "x.jsonl", "{\"text\":\"a\"}\nnot json\n", NULL, "@/x.jsonl:2: byte 0: not JSON..." },
        { "x.jsonl", "{\"text\":\"a\"} {\"text\":\"b\"}\n", NULL,
          "@/x.jsonl:1: column 14: a second value begins, and a line of JSON Lines holds one object: write each on one "
          "line (jq -c . FILE)" },
        { "x.jsonl", "{\n  \"text\": \"}\"\n}\n", NULL,
          "@/x.jsonl:1: the object that begins here does not end on its line, and a line of JSON Lines holds one "
          "object: write each on one line (jq -c . FILE)" },
        { "x.jsonl", "{\"text\":\"a\nb\"}\n", NULL, "@/x.jsonl:1: the object that begins here does not end on..." },
        { "x.jsonl", "{\"text\":\"a\"},\n{\"text\":\"b\"}\n", NULL,
          "@/x.jsonl:1: column 13: a comma behind the object, and lines of JSON Lines have none: take it off, or make "
          "the file one list ([...]) and set the task's format: json" },
        { "x.jsonl", "[\n{\"text\":\"a\"}\n]\n", NULL,
          "@/x.jsonl:1: a list begins here, and a line of JSON Lines holds one object: if the file is one list of "
          "documents, set the task's format: json, or name it .json" },
        { "x.jsonl", "{'text': 'a'}\n", NULL, "@/x.jsonl:1: column 2: a single quote, but JSON has double ones: ..." },
        { "x.jsonl", "<!DOCTYPE html>\n<html>", NULL, "@/x.jsonl:1: HTML or XML begins here, not JSON: ..." },
        { "x.jsonl", "17\n", NULL, "@/x.jsonl:1: a line must be an object such as {\"text\": \"...\"}" },
        { "x.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\\\\ud800 \\uDBFF\"}\n", NULL,
          "@/x.jsonl:2: column 18: the escape \\uDBFF is one half of a surrogate pair without the other, which is no "
          "character: repair the text, or leave the document out" },
        { "x.jsonl", "{\"text\":\"\\ude00\\ud83d\"}\n", NULL, "@/x.jsonl:1: column 10: the escape \\ude00 is..." },
        { "x.json", "[{\"text\":\"a\"},\n{\"id\": 1,\n\"text\":\"\\ud83d\\u0041\"}]", NULL,
          "@/x.json:2: element 2: its line 2, column 9: the escape \\ud83d is..." },
        { "x.jsonl", "\n{\"text\":17}\n", NULL, "@/x.jsonl:2: `text` must be a string" },
        { "x.jsonl", "{\"prompt\":\"a\",\"completion\":null}\n", NULL, "@/x.jsonl:1: `completion` must be a string" },
        { "x.jsonl", "{\"body\":\"a\"}\n", NULL,
          "@/x.jsonl:1: has neither `text` nor both `prompt` and `completion`; " FIELDS },
        { "x.jsonl", "{\"prompt\":\"a\"}\n", NULL,
          "@/x.jsonl:1: has neither `text` nor both `prompt` and `completion`; " FIELDS },
        { "x.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\",\"text\":\"ab\"}\n", NULL,
          "@/x.jsonl:1: has `text` and also `prompt` and `completion`; leave one out, or name other fields with the "
          "task's text_field, prompt_field and completion_field" },
        { "x.jsonl", "{\"text\":\"a\\u0000b\"}\n", NULL,
          "@/x.jsonl:1: has the escape \\u0000, which text for training must not have: remove it, or leave the "
          "document out" },
    };
    RUN(cases, HS_EFORMAT);
}

Test(malformed_data, paths)
{
    static const Case cases[] = {
        { NULL, NULL, "none.txt", "task t: train: @/none.txt: cannot be read: No such file or directory" },
        { NULL, NULL, "*.txt",
          "task t: train: @/*.txt: no file matches (paths are relative to the working directory)" },
        { "d/.hidden", "text", "d",
          "task t: train: @/d: the folder holds no files (names that begin with a dot, editors' backups, which end in "
          "~, and what the task excludes are left out)" },
    };
    RUN(cases, HS_EIO);
    static const Case wrong_names[] = {
        { NULL, NULL, "synthetic:poetry",
          "task t: train: synthetic:poetry: there is no synthetic source `poetry`; there are arithmetic, english, "
          "brackets, code, mixture, addition, facts, words, reversal, permuted0, permuted1, permuted2, permuted3, "
          "permuted4, permuted5, permuted6, permuted7, permuted8, permuted9" },
    };
    RUN(wrong_names, HS_ECONFIG);
}

Test(malformed_data, links_that_point_up)
{
    DataFixture fixture;
    char link[320];
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/x.txt", "text");
    snprintf(link, sizeof link, "%s/d/up", fixture.folder);
    cr_assert_eq(symlink("..", link), 0);
    data_fixture_train(&fixture, "d");
    /* One file, found once: its text is too short for two sets. */
    expect_failure(&fixture, HS_ECONFIG, "task t: train has 2 tokens, but ...");
    data_fixture_deinit(&fixture);
    /* A pattern of any depth follows them as well; what points to nothing is said to be a link. */
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/x.txt", "text");
    snprintf(link, sizeof link, "%s/d/up", fixture.folder);
    cr_assert_eq(symlink("..", link), 0);
    data_fixture_train(&fixture, "**/x.txt");
    expect_failure(&fixture, HS_ECONFIG, "task t: train has 2 tokens, but ...");
    cr_assert_eq(unlink(link), 0);
    cr_assert_eq(symlink("nowhere", link), 0);
    fixture.train[0][strlen(fixture.folder)] = '\0'; /* the folder itself */
    expect_failure(&fixture, HS_EIO,
                   "task t: train: @/d/up: cannot be read: what this symbolic link points to: No such file or "
                   "directory");
    data_fixture_deinit(&fixture);
}

Test(malformed_data, too_little)
{
    static const Case cases[] = {
        { "x.txt", "", NULL, "task t: train holds no text: every file in it is empty: @/x.txt" },
        { "x.jsonl", "\n\n", NULL, "task t: train holds no text: every file in it is empty: @/x.jsonl" },
        { "x.txt", "abcdef", NULL,
          "task t: train has 3 tokens, but one window of max_length 4 needs 5; give more data or lower max_length" },
        { "x.jsonl", "{\"prompt\":\"a lot of prompt\",\"completion\":\"\"}", NULL,
          "task t: train has no token that the loss counts: every completion is empty" },
    };
    RUN(cases, HS_ECONFIG);
    DataFixture fixture;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "x.txt", "0123456789012345678");
    data_fixture_train(&fixture, "x.txt");
    fixture.task.validation = "10%";
    expect_failure(&fixture, HS_ECONFIG,
                   "task t: validation, 10% of 20 tokens, has 2, but one window of max_length 4 needs 5; raise the "
                   "share, give more data or lower max_length");
    data_fixture_write_text(&fixture, "v.txt", "abc");
    data_fixture_validation(&fixture, "v.txt");
    expect_failure(&fixture, HS_ECONFIG,
                   "task t: validation has 4 tokens, but one window of max_length 4 needs 5; give more data or lower "
                   "max_length");
    data_fixture_deinit(&fixture);
}

Test(malformed_data, shares)
{
    static const struct {
        char *validation;
        const char *message;
    } cases[] = {
        { "0%", "task t: validation `0%`: the share must be above 0% and below 100%" },
        { "100%", "task t: validation `100%`: the share must be above 0% and below 100%" },
        { "nan%", "task t: validation `nan%`: the share must be above 0% and below 100%" },
        { "0.1", "task t: validation `0.1`: a share is written with a percent sign, such as 10%" },
        { "", "task t: validation: an empty path; name a file, a folder, a glob or synthetic:NAME" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DataFixture fixture;
        data_fixture_init(&fixture);
        data_fixture_write_text(&fixture, "x.txt", "0123456789012345678");
        data_fixture_train(&fixture, "x.txt");
        fixture.task.validation = cases[i].validation;
        expect_failure(&fixture, HS_ECONFIG, cases[i].message);
        data_fixture_deinit(&fixture);
    }
}

#define RAW16 "if the file is u16 tokens without a header, set data.token_file: raw16"

/* A header, then `body_bytes` zero bytes, of which the two at `poison` (if not negative) hold 300. */
Test(malformed_data, token_files)
{
    static const struct {
        uint32_t magic, version, count;
        size_t bytes; /* of the file */
        int poison;
        const char *message;
    } cases[] = {
        { 20240520, 1, 8, 12, -1, "@/x.bin: 12 bytes are too few for the 1024-byte header of a token file; " RAW16 },
        { 20240520, 1, 8, 1023, -1,
          "@/x.bin: 1023 bytes are too few for the 1024-byte header of a token file; " RAW16 },
        { 20240326, 3, 8, 1040, -1,
          "@/x.bin: byte 0: the number 20240326 begins no known token file (20240520: u16, 20240801: u32); " RAW16 },
        { 20240520, 2, 8, 1040, -1, "@/x.bin: byte 4: version 2 of a 20240520 token file; only 1 is known" },
        { 20240801, 1, 8, 1056, -1, "@/x.bin: byte 4: version 1 of a 20240801 token file; only 7 is known" },
        { 20240520, 1, 0xffffffff, 1040, -1,
          "@/x.bin: byte 8: a negative number of tokens, so the file is damaged: copy or write it again (-1)" },
        { 20240520, 1, 9, 1040, -1,
          "@/x.bin: byte 8: the header says 9 tokens, which makes 1042 bytes, but the file has 1040; it is cut off or "
          "was not written to its end: copy or write it again" },
        { 20240520, 1, 8, 1041, -1,
          "@/x.bin: byte 8: the header says 8 tokens, which makes 1040 bytes, but the file has 1041; it is cut off or "
          "was not written to its end: copy or write it again" },
        { 20240801, 7, 0x7fffffff, 1056, -1,
          "@/x.bin: byte 8: the header says 2147483647 tokens, which makes 8589935612 bytes, but the file has 1056; it "
          "is cut off or was not written to its end: copy or write it again" },
        { 20240520, 1, 8, 1040, 1030,
          "@/x.bin: byte 1030: token 300 is not below the tokenizer's vocabulary of 257; set tokenizer.kind and "
          "tokenizer.path to the tokenizer that wrote the file" },
        { 20240801, 7, 8, 1056, 1052,
          "@/x.bin: byte 1052: token 300 is not below the tokenizer's vocabulary of 257; set tokenizer.kind and "
          "tokenizer.path to the tokenizer that wrote the file" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char file[1100] = { 0 };
        DataFixture fixture;
        data_fixture_init(&fixture);
        data_fixture_header(file, cases[i].magic, cases[i].version, cases[i].count);
        if (cases[i].poison >= 0) {
            file[cases[i].poison] = 300 & 255;
            file[cases[i].poison + 1] = 300 >> 8;
        }
        data_fixture_write(&fixture, "x.bin", file, cases[i].bytes);
        data_fixture_train(&fixture, "x.bin");
        expect_failure(&fixture, HS_EFORMAT, cases[i].message);
        data_fixture_deinit(&fixture);
    }
}

Test(malformed_data, raw_token_file)
{
    DataFixture fixture;
    data_fixture_init(&fixture);
    fixture.config.data.token_file = "raw16";
    data_fixture_train(&fixture, "x.bin");
    data_fixture_write(&fixture, "x.bin", "odd", 3);
    expect_failure(&fixture, HS_EFORMAT,
                   "@/x.bin: 3 bytes are no whole number of u16 tokens: the file is cut off, or data.token_file: raw16 "
                   "is wrong for it");
    data_fixture_write(&fixture, "x.bin", "a\0b\0\1\1", 6);
    expect_failure(&fixture, HS_EFORMAT,
                   "@/x.bin: byte 4: token 257 is not below the tokenizer's vocabulary of 257; set tokenizer.kind and "
                   "tokenizer.path to the tokenizer that wrote the file");
    data_fixture_deinit(&fixture);
}

Test(malformed_data, zero_bytes)
{
    DataFixture fixture;
    data_fixture_init(&fixture);
    data_fixture_train(&fixture, "x");
    data_fixture_write(&fixture, "x", "text\0more", 9);
    expect_failure(&fixture, HS_EFORMAT,
                   "@/x: byte 4: a zero byte, so this is not text (token files must be named .bin); leave the file out "
                   "(tasks.N.exclude) or convert it");
    data_fixture_deinit(&fixture);
    data_fixture_init(&fixture);
    data_fixture_train(&fixture, "x.jsonl");
    data_fixture_write(&fixture, "x.jsonl", "\n{\"text\":\"\0\"}", 13);
    expect_failure(&fixture, HS_EFORMAT, "@/x.jsonl:2: byte 9: a zero byte, so this is not JSON");
    data_fixture_deinit(&fixture);
}

/* A char tokenizer is made from the text: token files would have numbers of another one, and bad bytes have a place. */
Test(malformed_data, char_tokenizer)
{
    DataFixture fixture;
    data_fixture_init(&fixture);
    fixture.config.tokenizer.kind = "char";
    data_fixture_write_text(&fixture, "a.txt", "good text");
    data_fixture_write_text(&fixture, "b.bin", "");
    data_fixture_train(&fixture, "a.txt");
    data_fixture_validation(&fixture, "b.bin");
    expect_failure(
        &fixture, HS_ECONFIG,
        "task t: token files (.bin) need a tokenizer that exists, but tokenizer.kind: char is made from this "
        "task's text; set tokenizer.kind to the one that wrote them, or give text files only");
    data_fixture_write_text(&fixture, "c.txt", "bad \xff text");
    data_fixture_validation(&fixture, "c.txt");
    expect_failure(&fixture, HS_EFORMAT, "@/c.txt: byte 4 ...");
    data_fixture_deinit(&fixture);
}

/* A tokenizer that is given (by a checkpoint) is kept, and freed here too although the data does not fit it. */
Test(malformed_data, given_tokenizer)
{
    DataFixture fixture;
    HsDataset dataset;
    HsTokenizer *tokenizer = NULL;
    data_fixture_init(&fixture);
    fixture.config.tokenizer.kind = "char";
    data_fixture_write_text(&fixture, "x.jsonl", "{\"text\":\"abcabcabcabc\"}\n{\"text\":\"abx\"}\n");
    data_fixture_train(&fixture, "x.jsonl");
    cr_assert_eq(hs_tokenizer_create("char", NULL, "abc", 3, &tokenizer), HS_OK);
    cr_expect_eq(hs_dataset_create(&fixture.config, &fixture.task, tokenizer, &dataset), HS_EFORMAT);
    expect_message(&fixture, "@/x.jsonl:2: byte 2...");
    data_fixture_deinit(&fixture);
}
