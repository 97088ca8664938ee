/* SPDX-License-Identifier: MIT
 *
 * From files to rows: what is read and in which order, the split, masks, windows, and the floor.
 */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/support/data_fixture.h"

enum { END = 256 }; /* the byte tokenizer's end of text */

static void expect_tokens(const HsStreamTokens *stream, const int32_t *expected, int64_t count)
{
    cr_assert_eq(stream->count, count, "%lld tokens", (long long)stream->count);
    for (int64_t i = 0; i < count; i++) {
        int32_t token;
        cr_assert_eq(hs_stream_read(stream, i, 1, &token), HS_OK, "%s", hs_error_message());
        cr_expect_eq(token, expected[i], "token %lld is %d", (long long)i, token);
    }
}

/* The train stream of a byte tokenizer as text, end of text written as '|'. */
static void expect_text(const HsStreamTokens *stream, const char *expected)
{
    cr_assert_eq((size_t)stream->count, strlen(expected), "%lld tokens", (long long)stream->count);
    for (int64_t i = 0; i < stream->count; i++)
        cr_expect_eq(stream->tokens[i] == END ? '|' : stream->tokens[i], expected[i], "token %lld", (long long)i);
}

static void create(DataFixture *fixture, HsDataset *dataset)
{
    cr_assert_eq(data_fixture_create(fixture, dataset), HS_OK, "%s", hs_error_message());
}

/* ---- sources ---- */

Test(dataset, folders_and_globs_are_sorted_and_documents_end)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/b.txt", "bb");
    data_fixture_write_text(&fixture, "d/a.md", "aa");
    data_fixture_write_text(&fixture, "d/empty.txt", "");
    data_fixture_write_text(&fixture, "d/.hidden", "hidden");
    data_fixture_write_text(&fixture, "d/c.jsonl", "{\"text\":\"c1\"}\n\n{\"text\":\"\"}\r\n{\"text\":\"c\\n2\"}");
    data_fixture_write_text(&fixture, "x2", "x2");
    data_fixture_write_text(&fixture, "x1", "x1");
    data_fixture_write_text(&fixture, "v", "validation");
    data_fixture_train(&fixture, "x?");
    data_fixture_train(&fixture, "d");
    data_fixture_validation(&fixture, "v");
    create(&fixture, &dataset);
    expect_text(&dataset.train, "x1|x2|aa|bb|c1|c\n2|");
    expect_text(&dataset.validation, "validation|");
    cr_expect_eq(dataset.train.documents, 6);
    cr_expect_eq(dataset.validation.documents, 1);
    cr_expect(isnan(dataset.validation.entropy_floor));
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

/* ---- validation apart from training ---- */

/* What is trained on, with files d/1.txt, d/2.txt and d/v.txt, and how many files are left out. */
static void expect_apart(const char *const *train, const char *validation, const char *expected, int left_out)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/1.txt", "one");
    data_fixture_write_text(&fixture, "d/2.txt", "two");
    data_fixture_write_text(&fixture, "d/v.txt", "valid");
    data_fixture_write_text(&fixture, "e/2.txt", "other");
    for (; *train; train++)
        data_fixture_train(&fixture, *train);
    data_fixture_validation(&fixture, validation);
    create(&fixture, &dataset);
    expect_text(&dataset.train, expected);
    cr_expect_eq(dataset.apart.left_out, left_out, "%d files", dataset.apart.left_out);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}
#define TRAIN(...) ((const char *const[]){ __VA_ARGS__, NULL })

Test(dataset, files_of_validation_are_left_out_of_folders_and_patterns)
{
    expect_apart(TRAIN("d"), "d/v.txt", "one|two|", 1);
    expect_apart(TRAIN("d/*"), "d/../d/v.txt", "one|two|", 1);
    expect_apart(TRAIN("**/*.txt"), "d/[v2].txt", "one|other|", 2);
    expect_apart(TRAIN("d", "e"), "e", "one|two|valid|", 1);
    /* Named for training, too; all of it. */
    expect_apart(TRAIN("d/1.txt", "d/v.txt"), "d/v.txt", "one|valid|", 0);
    expect_apart(TRAIN("d", "d/v.txt"), "d/v.txt", "one|two|valid|valid|", 0);
    expect_apart(TRAIN("d"), "d", "one|two|valid|", 0);
}

Test(dataset, files_of_validation_of_other_tasks_too)
{
    DataFixture fixture;
    HsTaskData data;
    char second[300];
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/1.txt", "first");
    data_fixture_write_text(&fixture, "d/v.txt", "first's");
    data_fixture_write_text(&fixture, "d/w.txt", "second's");
    data_fixture_write_text(&fixture, "e.txt", "second");
    data_fixture_validation(&fixture, "d/v.txt");
    data_fixture_add_task(&fixture, "a", "d");
    snprintf(second, sizeof second, "%s/d/w.txt", fixture.folder);
    data_fixture_add_task(&fixture, "b", "e.txt")->validation = second;
    cr_assert_eq(hs_task_data_create(&fixture.config, NULL, &data), HS_OK, "%s", hs_error_message());
    expect_text(&data.tasks[0].train, "first|");
    expect_text(&data.tasks[1].train, "second|");
    hs_task_data_deinit(&data);
    /* A run that began before this was so. */
    cr_assert_eq(hs_task_data_create_whole(&fixture.config, NULL, &data), HS_OK, "%s", hs_error_message());
    expect_text(&data.tasks[0].train, "first|first's|second's|");
    hs_task_data_deinit(&data);
    data_fixture_deinit(&fixture);
}

Test(dataset, validation_that_is_also_training_text_is_counted)
{
    static const char tokens[] = "a\0b\0c\0d\0e\0f";
    char longer[256], part[101];
    memset(part, 'p', 100);
    part[99] = 'q';
    part[100] = '\0';
    snprintf(longer, sizeof longer, "x%sy", part);
    const struct {
        const char *name, *bytes;
        size_t size;
        const char *other, *other_bytes;
        size_t other_size;
        int64_t documents, bytes_shared;
    } cases[] = {
        { "t.txt", "hello", 0, "v.txt", "hello", 0, 1, 5 },
        { "t.txt", "hello", 0, "v.txt", "hello!", 0, 0, 0 },
        { "t.txt", longer, 0, "v.txt", part, 0, 1, 100 },
        { "t.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"de\"}\n", 0, "v.jsonl",
          "{\"text\":\"de\"}\n{\"text\":\"new\"}\n{\"text\":\"abc\"}", 0, 2, 5 },
        { "t.csv", "text\nabcde\n", 0, "v.jsonl", "{\"text\":\"abcde\"}", 0, 1, 5 },
        { "t.bin", tokens, 12, "v.bin", tokens, 12, 1, 6 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        fixture.config.data.token_file = "raw16";
        /* size 0: a string's */
        data_fixture_write(&fixture, cases[i].name, cases[i].bytes,
                           cases[i].size > 0 ? cases[i].size : strlen(cases[i].bytes));
        data_fixture_write(&fixture, cases[i].other, cases[i].other_bytes,
                           cases[i].other_size > 0 ? cases[i].other_size : strlen(cases[i].other_bytes));
        data_fixture_train(&fixture, cases[i].name);
        data_fixture_validation(&fixture, cases[i].other);
        create(&fixture, &dataset);
        cr_expect_eq(dataset.apart.shared_documents, cases[i].documents, "case %zu", i);
        cr_expect_eq(dataset.apart.shared_bytes, cases[i].bytes_shared, "case %zu", i);
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

/* As bash expands them, with globstar. */
Test(dataset, patterns_of_any_depth)
{
    static const struct {
        const char *pattern, *expected;
    } cases[] = {
        { "p/**/*.txt", "a|b|c|1|2|" }, { "p/**", "a|b|c|no|1|2|" },   { "p/**/t/*", "c|no|" },
        { "**/c.txt", "c|" },           { "p/{s,u}/*.txt", "b|1|2|" }, { "p/u/n-{09..10}.txt", "1|2|" },
        { "p/**/**/b*", "b|" },         { "p/**/s", "b|c|no|" },       { "p/{a.txt,s/{b,t/c}.txt}", "a|b|c|" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        fixture.config.training.max_length = 1;
        data_fixture_write_text(&fixture, "p/a.txt", "a");
        data_fixture_write_text(&fixture, "p/s/b.txt", "b");
        data_fixture_write_text(&fixture, "p/s/t/c.txt", "c");
        data_fixture_write_text(&fixture, "p/s/t/d.md", "no");
        data_fixture_write_text(&fixture, "p/.h/e.txt", "hidden");
        data_fixture_write_text(&fixture, "p/u/n-09.txt", "1");
        data_fixture_write_text(&fixture, "p/u/n-10.txt", "2");
        data_fixture_write_text(&fixture, "v", "validation");
        data_fixture_train(&fixture, cases[i].pattern);
        data_fixture_validation(&fixture, "v");
        cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s: %s", cases[i].pattern, hs_error_message());
        expect_text(&dataset.train, cases[i].expected);
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

Test(dataset, editors_backups_in_folders_are_left_out)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/a.txt", "new text");
    data_fixture_write_text(&fixture, "d/a.txt~", "old text");
    data_fixture_write_text(&fixture, "d/#a.txt#", "unsaved text");
    data_fixture_write_text(&fixture, "v", "validation");
    data_fixture_train(&fixture, "d");
    data_fixture_validation(&fixture, "v");
    create(&fixture, &dataset);
    expect_text(&dataset.train, "new text|");
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

static void link_in(const DataFixture *fixture, const char *target, const char *name, bool symbolic)
{
    char *const path = data_fixture_source(fixture, name), *const from = data_fixture_source(fixture, target);
    cr_assert_eq(symbolic ? symlink(target, path) : link(from, path), 0, "%s", path);
    free(path);
    free(from);
}

/* A download's cache: blobs whose names say nothing, and links to them with the files' names; a folder linked twice. */
Test(dataset, a_file_of_several_names_is_read_once)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/0123", "{\"text\": \"one\"}\n");
    data_fixture_write_text(&fixture, "d/4567", "two");
    data_fixture_write_text(&fixture, "e/c.txt", "three");
    data_fixture_write_text(&fixture, "v", "validation");
    link_in(&fixture, "0123", "d/a.jsonl", true);
    link_in(&fixture, "d/4567", "d/b.txt", false);
    link_in(&fixture, "../e", "d/latest", true);
    link_in(&fixture, "../e", "d/newest", true);
    data_fixture_train(&fixture, "d");
    data_fixture_validation(&fixture, "v");
    create(&fixture, &dataset);
    expect_text(&dataset.train, "one|two|three|");
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

Test(dataset, token_files)
{
    static const struct {
        uint32_t magic, version;
        size_t token_bytes;
    } layouts[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 }, { 0, 0, 2 } };
    for (size_t layout = 0; layout < 3; layout++) {
        DataFixture fixture;
        HsDataset dataset;
        int32_t expected[40];
        unsigned char file[1024 + 160];
        size_t width = layouts[layout].token_bytes, header = layouts[layout].magic ? 1024 : 0;
        data_fixture_init(&fixture);
        data_fixture_header(file, layouts[layout].magic, layouts[layout].version, 40);
        for (size_t i = 0; i < 40; i++) {
            expected[i] = (int32_t)(i * 6 + 20); /* the last is 254; one below is END */
            expected[20] = END;
            memset(file + header + i * width, 0, width);
            file[header + i * width] = (unsigned char)expected[i];
            file[header + i * width + 1] = (unsigned char)(expected[i] >> 8);
        }
        data_fixture_write(&fixture, "x.bin", file, header + 40 * width);
        data_fixture_train(&fixture, "x.bin");
        data_fixture_validation(&fixture, "x.bin");
        fixture.config.data.token_file = header ? "auto" : "raw16";
        create(&fixture, &dataset);
        expect_tokens(&dataset.train, expected, 40); /* as they are: no end of text is added */
        expect_tokens(&dataset.validation, expected, 40);
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

Test(dataset, loss_only_on_completions)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(
        &fixture, "x.jsonl",
        "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n{\"completion\":\"f\",\"prompt\":\"e\",\"id\":3}\n"
        "{\"text\":\"gh\"}\n");
    data_fixture_train(&fixture, "x.jsonl");
    data_fixture_validation(&fixture, "x.jsonl");
    fixture.config.training.max_length = 10;
    create(&fixture, &dataset);
    expect_text(&dataset.train, "abcd|ef|gh|");
    cr_assert_not_null(dataset.train.loss_mask);
    static const int32_t expected[10] = { -1, 'c', 'd', END, -1, 'f', END, 'g', 'h', END };
    int32_t tokens[10], targets[10];
    hs_dataset_sample(&dataset, 0, tokens, targets);
    for (int t = 0; t < 10; t++)
        cr_expect_eq(targets[t], expected[t], "target %d is %d", t, targets[t]);
    hs_dataset_validation_sample(&dataset, 0, 1, tokens, targets);
    for (int t = 0; t < 10; t++)
        cr_expect_eq(targets[t], expected[t], "validation target %d is %d", t, targets[t]);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

Test(dataset, mask_survives_the_split)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "x.jsonl", "{\"prompt\":\"abcd\",\"completion\":\"efghijk\"}\n"); /* 12 tokens */
    data_fixture_train(&fixture, "x.jsonl");
    create(&fixture, &dataset);
    cr_assert_eq(dataset.train.count, 6);
    cr_assert_eq(dataset.validation.count, 6);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(dataset.train.loss_mask[i], i >= 4);
        cr_expect_eq(dataset.validation.loss_mask[i], 1);
    }
    cr_expect_eq(dataset.train.documents + dataset.validation.documents, 1);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

/* nanoGPT cuts its 1,115,394 characters at int(0.9 n). */
Test(dataset, share_of_characters)
{
    enum { CHARACTERS = 1115394 };
    DataFixture fixture;
    HsDataset dataset;
    char *text = malloc(CHARACTERS);
    data_fixture_init(&fixture);
    for (int i = 0; i < CHARACTERS; i++)
        text[i] = (char)('a' + i % 26);
    data_fixture_write(&fixture, "x.txt", text, CHARACTERS);
    data_fixture_train(&fixture, "x.txt");
    fixture.task.validation = "10%";
    fixture.config.tokenizer.kind = "char";
    create(&fixture, &dataset);
    cr_expect_eq(dataset.train.count, 1003854);
    cr_expect_eq(dataset.validation.count, 111540);
    cr_expect_eq(dataset.validation.tokens[0], 1003854 % 26);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
    free(text);
}

/* ---- rows ---- */

/* A stream in which every token encodes its own position. */
static HsDataset counting(int64_t count, int64_t length, bool random_windows)
{
    HsDataset dataset = { .sequence_length = length, .random_windows = random_windows, .seed = 42 };
    dataset.train.count = dataset.validation.count = count;
    dataset.train.tokens = malloc((size_t)count * sizeof(int32_t));
    dataset.validation.tokens = malloc((size_t)count * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++)
        dataset.train.tokens[i] = dataset.validation.tokens[i] = (int32_t)i;
    return dataset;
}

/* Start of the row, after checking that it is a run of the stream. */
static int32_t row_start(const HsDataset *dataset, int64_t index)
{
    int32_t tokens[16], targets[16];
    hs_dataset_sample(dataset, index, tokens, targets);
    for (int64_t t = 0; t < dataset->sequence_length; t++) {
        cr_assert_eq(tokens[t], tokens[0] + t);
        cr_assert_eq(targets[t], tokens[0] + t + 1);
    }
    return tokens[0];
}

Test(dataset, epochs_cover_every_window_once)
{
    enum { COUNT = 1003, LENGTH = 10, EPOCHS = 40 };
    HsDataset dataset = counting(COUNT, LENGTH, false);
    int64_t windows = hs_dataset_windows(&dataset);
    bool shifts[LENGTH] = { false }, orders_differ = false;
    cr_assert_eq(windows, 99);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        int seen[COUNT] = { 0 };
        int32_t shift = row_start(&dataset, epoch * windows) % LENGTH;
        shifts[shift] = true;
        for (int64_t i = 0; i < windows; i++) {
            int32_t start = row_start(&dataset, epoch * windows + i);
            cr_assert_eq(start % LENGTH, shift);
            seen[start / LENGTH]++;
            orders_differ |= start / LENGTH != row_start(&dataset, i) / LENGTH;
        }
        for (int64_t i = 0; i < windows; i++)
            cr_assert_eq(seen[i], 1, "epoch %lld window %lld: %d times", (long long)epoch, (long long)i, seen[i]);
    }
    cr_expect(orders_differ);
    /* 40 draws miss one of 10 shifts with probability under 10 * 0.9^40 = 0.15; the seed is fixed. */
    for (int i = 0; i < LENGTH; i++)
        cr_expect(shifts[i], "shift %d never drawn", i);
    hs_dataset_deinit(&dataset);
}

Test(dataset, shortest_streams)
{
    for (int64_t count = 11; count <= 31; count++) {
        HsDataset dataset = counting(count, 10, false);
        cr_expect_eq(hs_dataset_windows(&dataset), count < 30 ? 1 : 2);
        for (int64_t i = 0; i < 200; i++)
            cr_assert_leq(row_start(&dataset, i), count - 11);
        cr_expect_eq(hs_dataset_validation_windows(&dataset), (count - 1) / 10);
        hs_dataset_deinit(&dataset);
    }
}

Test(dataset, random_starts_are_uniform)
{
    enum { COUNT = 20, LENGTH = 4, STARTS = COUNT - LENGTH, DRAWS = 16000 };
    HsDataset dataset = counting(COUNT, LENGTH, true);
    int seen[STARTS] = { 0 };
    for (int64_t i = 0; i < DRAWS; i++)
        seen[row_start(&dataset, i)]++;
    /* Binomial: mean 1000, deviation 30.6; five of them. */
    for (int i = 0; i < STARTS; i++)
        cr_expect(abs(seen[i] - DRAWS / STARTS) < 153, "start %d: %d times", i, seen[i]);
    cr_expect_eq(hs_dataset_windows(&dataset), COUNT / LENGTH);
    hs_dataset_deinit(&dataset);
}

/* A run that begins at any index, on a dataset made anew, sees the rows that the first run saw there. */
Test(dataset, resume_at_any_index)
{
    static char *const samplings[] = { "epoch", "random" };
    for (int mode = 0; mode < 2; mode++) {
        enum { LENGTH = 16, ROWS = 4000 };
        DataFixture fixture;
        HsDataset first, second, other;
        static int32_t tokens[ROWS][LENGTH], targets[ROWS][LENGTH];
        int32_t again[LENGTH], again_targets[LENGTH];
        int differences = 0;
        data_fixture_init(&fixture);
        data_fixture_train(&fixture, "synthetic:mixture");
        fixture.config.training.max_length = LENGTH;
        fixture.config.data.sampling = samplings[mode];
        create(&fixture, &first);
        create(&fixture, &second);
        fixture.config.training.seed = 1338;
        create(&fixture, &other);
        for (int i = 0; i < ROWS; i++)
            hs_dataset_sample(&first, i, tokens[i], targets[i]);
        for (int i = ROWS - 1; i >= 0; i -= 7) {
            hs_dataset_sample(&second, i, again, again_targets);
            cr_assert_eq(memcmp(again, tokens[i], sizeof again), 0, "row %d", i);
            cr_assert_eq(memcmp(again_targets, targets[i], sizeof again), 0, "row %d", i);
            hs_dataset_sample(&other, i, again, again_targets);
            differences += memcmp(again, tokens[i], sizeof again) != 0;
        }
        cr_expect_gt(differences, 0, "another seed gives other rows");
        hs_dataset_deinit(&first);
        hs_dataset_deinit(&second);
        hs_dataset_deinit(&other);
        data_fixture_deinit(&fixture);
    }
}

Test(dataset, validation_windows_are_spread_evenly)
{
    HsDataset dataset = counting(1001, 10, false);
    int32_t tokens[10], targets[10];
    cr_assert_eq(hs_dataset_validation_windows(&dataset), 100);
    static const int64_t asked[] = { 1, 3, 7, 99, 100 };
    for (size_t k = 0; k < 5; k++)
        for (int64_t i = 0; i < asked[k]; i++) {
            hs_dataset_validation_sample(&dataset, i, asked[k], tokens, targets);
            cr_expect_eq(tokens[0], 10 * (i * 100 / asked[k]), "window %lld of %lld", (long long)i,
                         (long long)asked[k]);
            cr_expect_eq(targets[9], tokens[0] + 10);
        }
    hs_dataset_deinit(&dataset);
}

/* ---- floor ---- */

/* The nats of brackets text from the text alone: see test_synthetic.c for the other languages. */
static double decode_brackets(const HsStreamTokens *stream, int64_t *lines)
{
    static const char open[] = "([{<";
    double nats = 0;
    int depth = 0;
    for (int64_t i = 0; i < stream->count; i++) {
        int32_t token = stream->tokens[i], before = i > 0 ? stream->tokens[i - 1] : END;
        const char *kind = token > 0 && token < END ? strchr(open, token) : NULL;
        bool begins = before == END || before == '\n';
        if (token == END) {
            cr_assert(before == '\n', "end of text after a blank line");
            continue;
        }
        if (token == '\n') { /* of a line: no further group (1/3); of a blank one: no further line (1/8) */
            nats -= log(begins ? 1.0 / 8 : 1.0 / 3);
            *lines += !begins;
            continue;
        }
        if (kind && depth == 0 && before != END) /* another line, or another group */
            nats -= log(begins ? 7.0 / 8 : 2.0 / 3);
        if (depth > 0 && depth < 12)
            nats -= log(kind ? 9.0 / 20 : 11.0 / 20);
        if (kind)
            nats -= log((double)(4 - (kind - open)) / 10);
        depth += kind ? 1 : -1;
    }
    return nats;
}

Test(dataset, floor_of_a_share_cut_from_synthetic_text)
{
    static char *const kinds[] = { "byte", "char" };
    for (int k = 0; k < 2; k++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        data_fixture_train(&fixture, "synthetic:brackets");
        fixture.task.validation = "10%";
        fixture.config.tokenizer.kind = kinds[k];
        create(&fixture, &dataset);
        /* Cut between two documents, within half a document of the tenth. */
        cr_expect(dataset.validation.count > 1000 && dataset.validation.count < 4000);
        cr_expect(dataset.validation.entropy_floor > 1.0 && dataset.validation.entropy_floor < 1.6);
        cr_expect(dataset.train.entropy_floor > 1.0 && dataset.train.entropy_floor < 1.6);
        if (k == 0) {
            HsStreamTokens *streams[] = { &dataset.train, &dataset.validation };
            for (int i = 0; i < 2; i++) {
                int64_t lines = 0;
                double nats = decode_brackets(streams[i], &lines);
                double floor = nats / (double)streams[i]->count;
                /* Fewer than 2^15 terms, summed in another order. */
                cr_expect(fabs(floor - streams[i]->entropy_floor) <= 0x1p-36 * floor, "stream %d: %.17g, said %.17g", i,
                          floor, streams[i]->entropy_floor);
                cr_expect_gt(lines, 10);
                cr_expect_eq(streams[i]->tokens[streams[i]->count - 1], END);
            }
        }
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

Test(dataset, synthetic_validation_is_other_text)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_train(&fixture, "synthetic:english");
    fixture.task.validation = "synthetic:english";
    create(&fixture, &dataset);
    cr_expect_geq(dataset.validation.count, 2000);
    cr_expect(!isnan(dataset.validation.entropy_floor));
    cr_expect_neq(memcmp(dataset.train.tokens, dataset.validation.tokens, 2000 * sizeof(int32_t)), 0);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

Test(dataset, floor_is_unknown_with_foreign_text)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "a.txt", "no generator knows what this says");
    data_fixture_train(&fixture, "a.txt");
    data_fixture_train(&fixture, "synthetic:code");
    create(&fixture, &dataset);
    cr_expect(isnan(dataset.train.entropy_floor));
    cr_expect(!isnan(dataset.validation.entropy_floor)); /* wholly within the synthetic text */
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}
