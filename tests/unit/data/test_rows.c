/* SPDX-License-Identifier: MIT
 *
 * data.packing: none: each document once an epoch, in its own row, from its first token, with padding that is no
 * target; what is cut or left out is counted; and padding changes nothing of what a model computes.  documents: the
 * same documents, first fit, several in a row, with marks where one begins.
 */
#include <criterion/criterion.h>

#include "runtime/data/dataset_build.h"
#include "runtime/data/length_groups.h"
#include "tests/support/data_fixture.h"
#include "tests/support/tiny_model.h"

enum { LENGTH = 6 };

static void rows_fixture(DataFixture *fixture)
{
    data_fixture_init(fixture);
    fixture->config.training.max_length = LENGTH;
    fixture->config.data.packing = "none";
}

/* A row's inputs and targets as text: end-of-text as '|', what is ignored as '.'; of several documents in a row the marked
 * first tokens as capitals, marked padding as '*'. */
static void describe_row(const int32_t *tokens, const int32_t *targets, char text[2 * LENGTH + 2])
{
    for (int t = 0; t < LENGTH; t++) {
        const int32_t token = tokens[t] < 0 ? ~tokens[t] : tokens[t];
        text[t] = (char)(token == 256 ? (tokens[t] < 0 ? '*' : '|') : tokens[t] < 0 ? token - 'a' + 'A' : token);
        text[LENGTH + 1 + t] = (char)(targets[t] == 256 ? '|' : targets[t] < 0 ? '.' : targets[t]);
    }
    text[LENGTH] = ' ';
    text[2 * LENGTH + 1] = '\0';
}

Test(rows, each_document_is_a_row_from_its_first_token)
{
    static const char *const expected[] = { "ab|||| b|....", "cdef|| def|..", "ghijkl hijkl|", "mnopqr nopqrs",
                                            "PQab|| .ab|.." };
    enum { ROWS = sizeof expected / sizeof *expected };
    DataFixture fixture;
    HsDataset dataset;
    int32_t tokens[LENGTH], targets[LENGTH];
    char text[2 * LENGTH + 2];
    rows_fixture(&fixture);
    /* Of `mnopqrstu` three tokens are lost and its end; a prompt of seven leaves no target. */
    data_fixture_write_text(
        &fixture, "d.jsonl",
        "{\"text\":\"ab\"}\n{\"text\":\"cdef\"}\n{\"text\":\"ghijkl\"}\n{\"text\":\"mnopqrstu\"}\n"
        "{\"prompt\":\"PQ\",\"completion\":\"ab\"}\n{\"prompt\":\"PQRSTUV\",\"completion\":\"ab\"}\n");
    data_fixture_train(&fixture, "d.jsonl");
    data_fixture_write_text(&fixture, "v.jsonl", "{\"text\":\"xy\"}\n{\"text\":\"z\"}\n");
    data_fixture_validation(&fixture, "v.jsonl");
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_dataset_windows(&dataset), ROWS);
    bool orders_differ = false;
    int64_t first[ROWS] = { 0 };
    for (int epoch = 0; epoch < 6; epoch++) {
        bool seen[ROWS] = { false };
        for (int64_t i = 0; i < ROWS; i++) {
            hs_dataset_sample(&dataset, epoch * ROWS + i, tokens, targets);
            describe_row(tokens, targets, text);
            int found = 0;
            while (found < ROWS && strcmp(text, expected[found]) != 0)
                found++;
            cr_assert_lt(found, ROWS, "`%s` is no row that is expected", text);
            cr_expect(!seen[found], "`%s` twice in an epoch", text);
            seen[found] = true;
            orders_differ = orders_differ || (epoch > 0 && first[i] != found);
            if (epoch == 0)
                first[i] = found;
        }
    }
    cr_expect(orders_differ, "every epoch has the same order");
    cr_assert_eq(hs_dataset_validation_windows(&dataset), 2);
    hs_dataset_validation_sample(&dataset, 1, 2, tokens, targets);
    describe_row(tokens, targets, text);
    cr_expect_str_eq(text, "z||||| |.....");
    double share = 1;
    cr_assert_eq(hs_dataset_empty_share(&dataset, &share), HS_OK);
    cr_expect_eq(share, 0);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

Test(rows, a_share_is_cut_between_documents)
{
    DataFixture fixture;
    HsDataset dataset;
    rows_fixture(&fixture);
    data_fixture_write_text(&fixture, "d.jsonl",
                            "{\"text\":\"aaaa\"}\n{\"text\":\"bbbb\"}\n{\"text\":\"cccc\"}\n{\"text\":\"dddd\"}\n");
    data_fixture_train(&fixture, "d.jsonl");
    fixture.task.validation = "40%";
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
    cr_expect_eq(dataset.train.row_count, 2);
    cr_expect_eq(dataset.validation.row_count, 2);
    cr_expect_eq(dataset.train.count, 10);
    cr_expect_eq(dataset.validation.tokens[0], 'c');
    cr_expect_eq(dataset.validation.rows[1].start, 5);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

static void expect_refused(const char *name, const void *bytes, size_t size, const char *message)
{
    DataFixture fixture;
    HsDataset dataset;
    rows_fixture(&fixture);
    data_fixture_write(&fixture, name, bytes, size);
    data_fixture_train(&fixture, name);
    data_fixture_validation(&fixture, name);
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_ECONFIG);
    cr_expect(strstr(hs_error_message(), message) != NULL, "`%s`", hs_error_message());
    data_fixture_deinit(&fixture);
}

Test(rows, what_makes_no_rows_is_refused)
{
    unsigned char file[1024 + 8] = { 0 };
    data_fixture_header(file, 20240520, 1, 4);
    expect_refused("t.bin", file, sizeof file, "a token file does not say where its documents end");
    const char prompts[] = "{\"prompt\":\"abcdefgh\",\"completion\":\"x\"}\n";
    expect_refused("p.jsonl", prompts, sizeof prompts - 1,
                   "no document of train has a token that the loss counts among its first 7");
}

/* With its end ab| has 3 tokens, cdef| 5, ghijkl| 7, mz| 3, nopqrstuv| is cut at 7, w| has 2 and xxyy| 5, two of which
 * are a prompt; rows hold 7.  First fit puts mz| behind ab| and w| behind cdef|. */
Test(rows, documents_share_rows)
{
    static const char *const expected[] = { "ab|Mz| b|.z|.", "cdef|W def|.|", "ghijkl hijkl|", "nopqrs opqrst",
                                            "xxyy|* .yy|.." };
    enum { ROWS = sizeof expected / sizeof *expected };
    DataFixture fixture;
    HsDataset dataset;
    int32_t tokens[LENGTH], targets[LENGTH];
    char text[2 * LENGTH + 2];
    rows_fixture(&fixture);
    fixture.config.data.packing = "documents";
    data_fixture_write_text(&fixture, "d.jsonl",
                            "{\"text\":\"ab\"}\n{\"text\":\"cdef\"}\n{\"text\":\"ghijkl\"}\n{\"text\":\"mz\"}\n"
                            "{\"text\":\"nopqrstuv\"}\n{\"text\":\"w\"}\n{\"prompt\":\"xx\",\"completion\":\"yy\"}\n");
    data_fixture_train(&fixture, "d.jsonl");
    data_fixture_write_text(&fixture, "v.jsonl", "{\"text\":\"xy\"}\n{\"text\":\"z\"}\n");
    data_fixture_validation(&fixture, "v.jsonl");
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_dataset_windows(&dataset), ROWS);
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[ROWS] = { false };
        for (int64_t i = 0; i < ROWS; i++) {
            hs_dataset_sample(&dataset, epoch * ROWS + i, tokens, targets);
            describe_row(tokens, targets, text);
            int found = 0;
            while (found < ROWS && strcmp(text, expected[found]) != 0)
                found++;
            cr_assert_lt(found, ROWS, "`%s` is no row that is expected", text);
            cr_expect(!seen[found], "`%s` twice in an epoch", text);
            seen[found] = true;
        }
    }
    cr_assert_eq(hs_dataset_validation_windows(&dataset), 1);
    hs_dataset_validation_sample(&dataset, 0, 1, tokens, targets);
    describe_row(tokens, targets, text);
    cr_expect_str_eq(text, "xy|Z|* y|.|..");
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

/* Of any number of rows and steps: each once an epoch; a step's ranks lie in two mixed blocks at most, but where it lies in
 * two epochs or has the odd ones; and another epoch has another order. */
Test(rows, a_step_has_rows_of_similar_lengths)
{
    static const struct {
        int64_t count, group;
    } cases[] = { { 1, 8 }, { 7, 8 }, { 8, 8 }, { 9, 8 }, { 100, 1 }, { 600, 8 }, { 1003, 10 }, { 20011, 16 } };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int64_t count = cases[c].count, group = cases[c].group;
        const int64_t block = group * (count / group / 50 > 2 ? count / group / 50 : 2);
        bool *seen = calloc((size_t)count, sizeof *seen);
        int64_t *first = calloc((size_t)count, sizeof *first), equal = 0, low = count, high = 0;
        cr_assert(seen && first);
        for (int64_t index = 0; index < 4 * count; index++) {
            const int64_t epoch = index / count;
            const HsLengthGroups groups = { count,
                                            group,
                                            { 17 + (uint64_t)epoch, 23 * (uint64_t)epoch, 5 + 7 * (uint64_t)epoch } };
            const int64_t rank = hs_length_groups_rank(&groups, index);
            cr_assert(rank >= 0 && rank < count && seen[rank] == (epoch % 2 == 1), "rank %lld", (long long)rank);
            seen[rank] = !seen[rank];
            equal += epoch == 1 && first[index % count] == rank;
            if (epoch == 0)
                first[index] = rank;
            low = index % group == 0 || rank < low ? rank : low;
            high = index % group == 0 || rank > high ? rank : high;
            const bool whole = index % count >= group && index % count < count - group;
            cr_assert(!whole || index % group < group - 1 || high - low < block + 2 * group,
                      "ranks %lld to %lld in a step", (long long)low, (long long)high);
        }
        cr_expect(count < 50 || equal < count / 2, "%lld of %lld places keep their rows", (long long)equal,
                  (long long)count);
        free(seen);
        free(first);
    }
}

Test(rows, are_grouped_by_length)
{
    enum { DOCUMENTS = 40, STEP = 4 };
    DataFixture fixture;
    HsDataset dataset;
    int32_t tokens[LENGTH], targets[LENGTH];
    char text[DOCUMENTS * 32] = "";
    rows_fixture(&fixture);
    for (int i = 0; i < DOCUMENTS; i++)
        snprintf(text + strlen(text), 32, "{\"text\":\"%.*s\"}\n", 1 + i * 7 % 5, "abcde");
    data_fixture_write_text(&fixture, "d.jsonl", text);
    data_fixture_train(&fixture, "d.jsonl");
    data_fixture_validation(&fixture, "d.jsonl");
    fixture.config.data.group_by_length = true;
    fixture.config.training.batch_size = STEP;
    cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
    int lengths[LENGTH + 1] = { 0 };
    for (int64_t first = 0; first < DOCUMENTS; first += STEP) {
        int shortest = LENGTH, longest = 0;
        for (int64_t i = first; i < first + STEP; i++) {
            int length = 0;
            cr_assert_eq(hs_dataset_sample(&dataset, i, tokens, targets), HS_OK);
            for (int t = 0; t < LENGTH; t++)
                length += targets[t] >= 0;
            shortest = length < shortest ? length : shortest;
            longest = length > longest ? length : longest;
            lengths[length]++;
        }
        cr_expect(longest - shortest <= 1, "a step has rows of %d to %d targets", shortest, longest);
    }
    for (int length = 1; length <= 5; length++)
        cr_expect_eq(lengths[length], DOCUMENTS / 5);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

/* Against first fit as it is defined, by looking at every row: 3000 documents, each in its place once. */
Test(rows, documents_go_to_the_first_row_with_room)
{
    enum { DOCUMENTS = 3000, MOST = 65 };
    static int room[DOCUMENTS];
    static int64_t place[DOCUMENTS];
    HsStreamTokens stream = { .rows = malloc(DOCUMENTS * sizeof(HsRow)), .row_count = DOCUMENTS };
    int64_t rows = 0;
    cr_assert(stream.rows);
    for (int64_t i = 0; i < DOCUMENTS; i++) {
        const HsRng rng = { .seed = 4 };
        const int count = 2 + (int)(hs_rng_draw(&rng, (uint64_t)i).word[0] % (MOST - 1));
        stream.rows[i] = (HsRow){ .start = i, .count = count };
        int64_t row = 0;
        while (row < rows && room[row] < count)
            row++;
        if (row == rows)
            room[rows++] = MOST;
        room[row] -= count;
        place[i] = row;
    }
    cr_assert_eq(hs_dataset_pack(&stream, MOST), HS_OK);
    cr_assert_eq(stream.pack_count, rows);
    int64_t documents = 0;
    for (int64_t row = 0; row < rows; row++) {
        cr_assert_eq(stream.packs[row].first, documents);
        for (int64_t i = 0; i < stream.packs[row].count; i++, documents++) {
            const HsRow *document = &stream.rows[documents];
            cr_expect_eq(place[document->start], row);
            cr_expect(i == 0 || document->start > (document - 1)->start, "a row's documents keep their order");
        }
    }
    cr_expect_eq(documents, DOCUMENTS);
    free(stream.rows);
    free(stream.packs);
}

/* The losses of a document alone, and with other tokens behind it: bit for bit. */
Test(rows, padding_changes_nothing_in_front_of_it)
{
    static const char *const families[] = { "gpt2", "llama" };
    for (int f = 0; f < 2; f++) {
        TinyModel tiny;
        double losses[2];
        tiny_create(&tiny, (TinySpec){ .family = families[f],
                                       .mode = "fp32",
                                       .layers = 2,
                                       .heads = 2,
                                       .width = 16,
                                       .mlp_width = 12,
                                       .vocabulary = 13,
                                       .batch = 2,
                                       .length = 9 });
        for (int padding = 0; padding < 2; padding++) {
            for (int64_t i = 0; i < tiny.rows; i++)
                if (i % 9 >= 5) {
                    tiny.tokens[i] = padding == 0 ? 0 : (int32_t)(3 + i % 7);
                    tiny.targets[i] = -1;
                }
            TINY_OK(
                hs_program_evaluate(&tiny.evaluate, &tiny.context, tiny.tokens, tiny.targets, &losses[padding], NULL));
        }
        cr_expect_eq(losses[0], losses[1], "%s: %.17g and %.17g", families[f], losses[0], losses[1]);
        tiny_destroy(&tiny);
    }
}
