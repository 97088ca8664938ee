/* SPDX-License-Identifier: MIT
 *
 * Prompts and completions of a task, against what is written in its text: which there are, seen and unseen, how often,
 * and how long they may be.
 */
#include <criterion/criterion.h>

#include "tests/support/data_fixture.h"

#define CREATED(fixture, dataset) \
    cr_assert_eq(data_fixture_create(&(fixture), &(dataset)), HS_OK, "%s", hs_error_message())

/* Item `index` as text, "prompt|completion", with $ for the end-of-text. */
static const char *text_of(const HsDataset *dataset, int set, int64_t index)
{
    static char text[256];
    const HsItemSet *items = &dataset->items[set];
    const HsItem *item = &items->items[index];
    size_t used = 0;
    cr_assert_lt(index, items->count);
    for (int64_t i = 0; i < item->prompt + item->completion; i++) {
        size_t length;
        const int32_t token = items->tokens.items[item->start + i];
        const bool end = token == hs_tokenizer_end_of_text(dataset->tokenizer);
        const char *bytes = hs_tokenizer_bytes(dataset->tokenizer, token, &length);
        if (i == item->prompt)
            text[used++] = '|';
        cr_assert_lt(used + length + 2, sizeof text);
        memcpy(text + used, end ? "$" : bytes, end ? 1 : length);
        used += end ? 1 : length;
    }
    text[used] = '\0';
    return text;
}

static bool has(const HsDataset *dataset, int set, const char *text)
{
    bool found = false;
    for (int64_t i = 0; i < dataset->items[set].count; i++)
        found = found || strcmp(text_of(dataset, set, i), text) == 0;
    return found;
}

Test(items, documents_of_two_fields)
{
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    fixture.config.training.max_length = 8;
    fixture.config.evaluation.items = 100;
    data_fixture_write_text(&fixture, "train.jsonl",
                            "{\"prompt\": \"a?\", \"completion\": \"1\"}\n"
                            "{\"text\": \"plain words\"}\n"
                            "{\"prompt\": \"b?\", \"completion\": \"22\"}\n"
                            "{\"prompt\": \"a?\", \"completion\": \"another answer to the first prompt\"}\n"
                            "{\"prompt\": \"\", \"completion\": \"nothing asked\"}\n"
                            "{\"prompt\": \"c?\", \"completion\": \"\"}\n"
                            "{\"prompt\": \"fits\", \"completion\": \"1234\"}\n"
                            "{\"prompt\": \"fits\\u00e9\", \"completion\": \"234\"}\n");
    data_fixture_write_text(&fixture, "validation.csv", "prompt,completion\na?,1\nd?,4\nb?x,5\nb,6\nd?,7\n");
    data_fixture_train(&fixture, "train.jsonl");
    data_fixture_validation(&fixture, "validation.csv");
    CREATED(fixture, dataset);
    /* A prompt's first completion; nine tokens at most, with the end-of-text: "fitse" and its accent have ten. */
    cr_expect_eq(dataset.items[HS_ITEMS_SEEN].count, 3);
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_SEEN, 0), "a?|1$");
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_SEEN, 1), "b?|22$");
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_SEEN, 2), "fits|1234$");
    cr_expect_eq(dataset.items[HS_ITEMS_UNSEEN].count, 3);
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_UNSEEN, 0), "d?|4$");
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_UNSEEN, 1), "b?x|5$");
    cr_expect_str_eq(text_of(&dataset, HS_ITEMS_UNSEEN, 2), "b|6$");
    hs_dataset_deinit(&dataset);
    fixture.config.evaluation.items = 0;
    CREATED(fixture, dataset);
    cr_expect_eq(dataset.items[HS_ITEMS_SEEN].count + dataset.items[HS_ITEMS_UNSEEN].count, 0);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}

/* A share is cut off in tokens, which may lie inside a document: that one is on neither side. */
Test(items, a_document_that_is_cut_is_on_neither_side)
{
    const char *const lines =
        "{\"prompt\": \"p0\", \"completion\": \"0\"}\n{\"prompt\": \"p1\", \"completion\": \"1\"}\n"
        "{\"prompt\": \"p2\", \"completion\": \"2\"}\n{\"prompt\": \"p3\", \"completion\": \"3\"}\n";
    /* 16 tokens, four a document: what is left of the cut, and right of it */
    static const struct {
        char *share;
        int64_t seen, unseen;
    } cuts[] = { { "50%", 2, 2 }, { "42%", 2, 1 }, { "55%", 1, 2 }, { "40%", 2, 1 } };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        fixture.config.evaluation.items = 100;
        fixture.task.validation = cuts[i].share;
        data_fixture_write_text(&fixture, "all.jsonl", lines);
        data_fixture_train(&fixture, "all.jsonl");
        CREATED(fixture, dataset);
        cr_expect_eq(dataset.items[HS_ITEMS_SEEN].count, cuts[i].seen, "%s", cuts[i].share);
        cr_expect_eq(dataset.items[HS_ITEMS_UNSEEN].count, cuts[i].unseen, "%s", cuts[i].share);
        cr_expect_str_eq(text_of(&dataset, HS_ITEMS_SEEN, 0), "p0|0$");
        cr_expect_str_eq(text_of(&dataset, HS_ITEMS_UNSEEN, cuts[i].unseen - 1), "p3|3$");
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

/* Does the stream have the prompt of such a line at the beginning of one? */
static bool stream_has_prompt(const HsStreamTokens *stream, const char *prompt)
{
    const int64_t length = (int64_t)strlen(prompt);
    for (int64_t i = 0; i + length <= stream->count; i++) {
        int64_t same = 0;
        while (same < length && stream->tokens[i + same] == (unsigned char)prompt[same])
            same++;
        if (same == length && (i == 0 || stream->tokens[i - 1] == '\n' || stream->tokens[i - 1] > 255))
            return true;
    }
    return false;
}

Test(items, lines_of_synthetic_sources)
{
    static const struct {
        const char *source;
        char separator;
        int64_t seen, unseen; /* least; 0: exactly none */
    } sources[] = {
        { "synthetic:addition", '=', 50, 1 }, { "synthetic:arithmetic", '=', 50, 50 },
        { "synthetic:facts", ':', 50, 0 },    { "synthetic:reversal", '>', 50, 50 },
        { "synthetic:english", '=', 0, 0 },   { "synthetic:code", '=', 0, 0 },
        { "synthetic:permuted0", '=', 0, 0 }, { "synthetic:words", ':', 0, 0 },
        { "synthetic:mixture", '=', 0, 0 },   { "synthetic:brackets", '>', 0, 0 },
    };
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        fixture.config.training.max_length = 32;
        fixture.config.evaluation.items = 50;
        fixture.task.validation = "10%";
        fixture.task.synthetic_tokens = 30000;
        data_fixture_train(&fixture, sources[s].source);
        CREATED(fixture, dataset);
        cr_expect_eq(dataset.items[HS_ITEMS_SEEN].count, sources[s].seen, "%s", sources[s].source);
        const int64_t unseen = dataset.items[HS_ITEMS_UNSEEN].count;
        cr_expect(sources[s].unseen == 0 ? unseen == 0 : unseen >= sources[s].unseen && unseen <= 50, "%s: %lld",
                  sources[s].source, (long long)unseen);
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            for (int64_t i = 0; i < dataset.items[set].count; i++) {
                char prompt[64];
                snprintf(prompt, sizeof prompt, "%s", text_of(&dataset, set, i));
                char *bar = strchr(prompt, '|');
                cr_expect(bar && bar[-1] == sources[s].separator && bar[strlen(bar) - 1] == '\n', "%s", prompt);
                *bar = '\0';
                cr_expect_eq(stream_has_prompt(&dataset.train, prompt), set == HS_ITEMS_SEEN, "%s", prompt);
                for (int64_t j = 0; j < i; j++)
                    cr_expect_neq(strncmp(text_of(&dataset, set, j), prompt, strlen(prompt)), 0, "%s", prompt);
            }
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

/* The whole table of facts, when as many are asked for; every run has the same items. */
Test(items, all_of_few_and_always_the_same)
{
    DataFixture fixture;
    HsDataset dataset, again;
    data_fixture_init(&fixture);
    fixture.config.training.max_length = 32;
    fixture.config.evaluation.items = 200;
    fixture.task.synthetic_tokens = 60000;
    data_fixture_train(&fixture, "synthetic:facts");
    CREATED(fixture, dataset);
    CREATED(fixture, again);
    cr_expect_eq(dataset.items[HS_ITEMS_SEEN].count, 200);
    for (int64_t i = 0; i < 200; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", text_of(&dataset, HS_ITEMS_SEEN, i));
        cr_expect_str_eq(text_of(&again, HS_ITEMS_SEEN, i), text);
    }
    cr_expect(!has(&dataset, HS_ITEMS_SEEN, "abc|def"));
    hs_dataset_deinit(&again);
    hs_dataset_deinit(&dataset);
    data_fixture_deinit(&fixture);
}
