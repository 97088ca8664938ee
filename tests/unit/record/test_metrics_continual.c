/* SPDX-License-Identifier: MIT
 *
 * What tasks leave in the record: exact lines, scalars, and what is printed.
 */
#include <math.h>

#include "runtime/record/matrix_json.h"
#include "runtime/record/metrics.h"
#include "tests/support/event_file.h"

static HsMetrics *create(const Scratch *scratch, bool tensorboard, const char *progress)
{
    const HsMetricsOptions options = { scratch->folder, tensorboard, progress, 2000, NULL };
    HsMetrics *metrics = NULL;
    cr_assert_eq(hs_metrics_create(&options, &metrics), HS_OK, "%s", hs_error_message());
    return metrics;
}

static HsMatrix two_tasks(void)
{
    HsMatrix matrix;
    cr_assert_eq(hs_matrix_init(&matrix, 2), HS_OK);
    hs_matrix_set_name(&matrix, 0, "sums");
    hs_matrix_set_name(&matrix, 1, "a\"b");
    matrix.untrained[0] = matrix.untrained[1] = 4;
    *hs_matrix_at(&matrix, 0, 0) = 1;
    *hs_matrix_at(&matrix, 0, 1) = 3;
    *hs_matrix_at(&matrix, 1, 0) = 1.5;
    *hs_matrix_at(&matrix, 1, 1) = 2;
    return matrix;
}

Test(metrics_continual, run_matrix_and_importance_lines_are_exact)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, "none");
    static const char *const names[] = { "sums", "a\"b" };
    static const int64_t steps[] = { 10, 20 };
    const HsMetricsRun run = { .name = "x",
                               .device = "cpu",
                               .strategy = "ewc",
                               .from = "base",
                               .adapter = "lora, rank 4",
                               .parameters = 5,
                               .trained_parameters = 2,
                               .total_steps = 30,
                               .memory = { { "weights", 1024 } },
                               .memory_count = 1,
                               .task_count = 2,
                               .task_names = names,
                               .task_steps = steps };
    HsImportanceTensor tensors[] = { { "wte", 1, 0.5, 0.75 }, { "head", 0.25, 0.125, 0.25 } };
    const HsImportance importance = { .count = 2, .tensors = tensors, .maximum = 1, .mean = 0.25, .strength = 100 };
    HsMatrix matrix = two_tasks();
    cr_assert_eq(hs_metrics_run(scratch.folder, &run), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_matrix(metrics, 30, 1, &matrix, false), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_importance(metrics, 30, 1, 0.5, &importance), HS_OK, "%s", hs_error_message());
    HsMetricsPosition position;
    cr_assert_eq(hs_metrics_sync(metrics, &position), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "run.json"), &size);
    cr_expect_str_eq(text,
                     "{\"event\":\"run\",\"step\":0,\"name\":\"x\",\"device\":\"cpu\",\"strategy\":\"ewc\","
                     "\"from\":\"base\",\"adapter\":\"lora, rank 4\",\"parameters\":5,"
                     "\"trained_parameters\":2,\"total_steps\":30,\"memory\":[{\"what\":\"weights\",\"bytes\":1024}],"
                     "\"tasks\":[{\"name\":\"sums\",\"steps\":10},{\"name\":\"a\\\"b\",\"steps\":20}]}");
    free(text);
    text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    /* learned (1 + 2)/2, retained (1.5 + 2)/2, forgetting 1.5 - 1, bwt 1 - 1.5, fwt 4 - 3 */
    cr_expect_str_eq(
        text, "{\"event\":\"matrix\",\"step\":30,\"task\":1,\"names\":[\"sums\",\"a\\\"b\"],"
              "\"losses\":[[1,3],[1.5,2]],\"untrained\":[4,4],\"floor\":[null,null],\"joint\":[null,null],"
              "\"summary\":{\"learned\":1.5,\"retained\":1.75,\"forgetting\":0.5,\"bwt\":-0.5,\"fwt\":1,"
              "\"excess_over_joint\":null,\"excess_over_floor\":null,\"perplexity_ratio\":null,"
              "\"bits_per_byte\":null,\"accuracy_seen\":null,\"accuracy_unseen\":null}}\n"
              "{\"event\":\"importance\",\"step\":30,\"task\":1,\"strength\":100,\"maximum\":1,\"mean\":0.25,"
              "\"strength_mean\":25,\"rate_strength_maximum\":50,\"tensors\":[{\"name\":\"wte\",\"maximum\":1,"
              "\"mean\":0.5,\"share\":0.75},{\"name\":\"head\",\"maximum\":0.25,\"mean\":0.125,\"share\":0.25}]}\n");
    cr_expect_eq(position.jsonl_bytes, (int64_t)size);
    free(text);
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}

Test(metrics_continual, a_matrix_is_a_scalar_a_task_and_a_figure)
{
    static const struct {
        const char *tag;
        float value;
    } expected[] = {
        { "tasks/sums/validation", 1.5f },
        { "tasks/a\"b/validation", 2 },
        { "continual/learned", 1.5f },
        { "continual/retained", 1.75f },
        { "continual/forgetting", 0.5f },
        { "continual/bwt", -0.5f },
        { "continual/fwt", 1 }, /* unknown figures have no event */
    };
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, true, "none");
    HsMatrix matrix = two_tasks();
    cr_assert_eq(hs_metrics_matrix(metrics, 30, 1, &matrix, false), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    Event events[16];
    cr_assert_eq(read_events(scratch_path(&scratch, EVENTS), events, 16), 8);
    for (int i = 0; i < 7; i++) {
        cr_expect_eq(events[i + 1].step, 30);
        cr_expect_str_eq(events[i + 1].tag, expected[i].tag);
        cr_expect_eq(events[i + 1].value, expected[i].value);
    }
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}

Test(metrics_continual, tasks_and_samples_lines_are_exact)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, true, "none");
    const HsMetricsTask tasks[] = { { "sums", 1.5, 0.25, 0.125 }, { "a\"b", 2, 1, (double)NAN } };
    const HsMetricsSample samples[] = { { "sums", { "1+1=", 4 }, { "2\n", 2 }, { "2\n", 2 }, true },
                                        { "a\"b", { "x\0y", 3 }, { "\xff", 1 }, { NULL, 0 }, false } };
    cr_assert_eq(hs_metrics_tasks(metrics, 20, tasks, 2), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_samples(metrics, 30, samples, 2), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    cr_expect_str_eq(text, "{\"event\":\"tasks\",\"step\":20,\"names\":[\"sums\",\"a\\\"b\"],\"losses\":[1.5,2],"
                           "\"accuracy_seen\":[0.25,1],\"accuracy_unseen\":[0.125,null]}\n"
                           "{\"event\":\"samples\",\"step\":30,\"samples\":[{\"task\":\"sums\",\"prompt\":\"1+1=\","
                           "\"completion\":\"2\\n\",\"expected\":\"2\\n\",\"exact\":true},{\"task\":\"a\\\"b\","
                           "\"prompt\":\"x\xef\xbf\xbdy\",\"completion\":\"\xef\xbf\xbd\"}]}\n");
    free(text);
    static const struct {
        const char *tag;
        float value;
    } expected[] = {
        { "tasks/sums/validation", 1.5f },        { "tasks/sums/accuracy_seen", 0.25f },
        { "tasks/sums/accuracy_unseen", 0.125f }, { "tasks/a\"b/validation", 2 },
        { "tasks/a\"b/accuracy_seen", 1 },
    };
    Event events[16];
    cr_assert_eq(read_events(scratch_path(&scratch, EVENTS), events, 16), 6);
    for (int i = 0; i < 5; i++) {
        cr_expect_eq(events[i + 1].step, 20);
        cr_expect_str_eq(events[i + 1].tag, expected[i].tag);
        cr_expect_eq(events[i + 1].value, expected[i].value);
    }
    scratch_remove(&scratch);
}

/* What is known of accuracies and bytes survives the file; where it is absent it is unknown. */
Test(metrics_continual, accuracies_come_back)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, "none");
    HsMatrix matrix = two_tasks(), back;
    matrix.bytes_per_token[1] = 3.5;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_UNSEEN, -1, 1) = 0.125;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_UNSEEN, 0, 0) = 0.75;
    cr_assert_eq(hs_metrics_matrix(metrics, 1, 0, &matrix, false), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    HsJson *root = NULL;
    cr_assert_eq(hs_json_parse("line", text, size - 1, &root), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_matrix_from_json("line", root, &back), HS_OK, "%s", hs_error_message());
    cr_expect(isnan(back.bytes_per_token[0]));
    cr_expect_eq(back.bytes_per_token[1], 3.5);
    cr_expect_eq(*hs_matrix_accuracy(&back, HS_ITEMS_UNSEEN, -1, 1), 0.125);
    cr_expect_eq(*hs_matrix_accuracy(&back, HS_ITEMS_UNSEEN, 0, 0), 0.75);
    cr_expect(isnan(*hs_matrix_accuracy(&back, HS_ITEMS_UNSEEN, 0, 1)));
    cr_expect(isnan(*hs_matrix_accuracy(&back, HS_ITEMS_SEEN, 0, 0)));
    hs_json_destroy(root);
    free(text);
    hs_matrix_deinit(&back);
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}

/* A name that its buffer cut in the middle of a character must not make the file unreadable. */
Test(metrics_continual, a_cut_name_leaves_json)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, "none");
    HsMatrix matrix = two_tasks(), back;
    memset(matrix.names[0], 'x', 62);
    memcpy(matrix.names[0] + 62, "\xc3", 2); /* the first half of an e with an accent */
    cr_assert_eq(hs_metrics_matrix(metrics, 1, 1, &matrix, false), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    HsJson *root = NULL;
    cr_assert_eq(hs_json_parse("line", text, size - 1, &root), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_matrix_from_json("line", root, &back), HS_OK, "%s", hs_error_message());
    cr_expect_eq(strlen(back.names[0]), 62u);
    cr_expect_eq(*hs_matrix_at(&back, 1, 0), 1.5);
    cr_expect(isnan(back.joint[1]));
    hs_json_destroy(root);
    free(text);
    hs_matrix_deinit(&back);
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}

Test(metrics_continual, importance_and_matrix_are_printed)
{
    Scratch scratch = scratch_make();
    cr_assert_not_null(freopen(scratch_path(&scratch, "out"), "w", stdout));
    HsMetrics *metrics = create(&scratch, false, "lines");
    HsImportanceTensor tensors[] = { { "head", 0.25, 0.125, 0.25 }, { "wte", 1, 0.5, 0.75 } };
    const HsImportance importance = { .count = 2, .tensors = tensors, .maximum = 1, .mean = 0.25, .strength = 100 };
    HsMatrix matrix = two_tasks();
    cr_assert_eq(hs_metrics_importance(metrics, 30, 0, 0.5, &importance), HS_OK);
    cr_assert_eq(hs_metrics_matrix(metrics, 30, 1, &matrix, true), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "out"), &size);
    static const char head[] = "importance after task 1: mean 0.25, maximum 1; strength 100 x mean = 25\n"
                               "  learning rate x strength x maximum = 50 (plain gradient descent diverges above 2)\n"
                               "   75.0%  wte\n"
                               "   25.0%  head\n"
                               "\n"
                               "held-out loss, nats a token";
    cr_expect_eq(strncmp(text, head, strlen(head)), 0, "%s", text);
    cr_expect_not_null(strstr(text, "forgetting            0.500"));
    free(text);
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}

/* Before the first task there is only the untrained model's row. */
Test(metrics_continual, the_untrained_row)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, true, "none");
    HsMatrix matrix;
    cr_assert_eq(hs_matrix_init(&matrix, 1), HS_OK);
    hs_matrix_set_name(&matrix, 0, "sums");
    matrix.untrained[0] = 4.5;
    cr_assert_eq(hs_metrics_matrix(metrics, 0, -1, &matrix, false), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    static const char head[] = "{\"event\":\"matrix\",\"step\":0,\"names\":[\"sums\"],\"losses\":[],"
                               "\"untrained\":[4.5],";
    cr_expect_eq(strncmp(text, head, strlen(head)), 0, "%s", text);
    Event events[4];
    cr_assert_eq(read_events(scratch_path(&scratch, EVENTS), events, 4), 2);
    cr_expect_str_eq(events[1].tag, "tasks/sums/validation");
    cr_expect_eq(events[1].value, 4.5f);
    free(text);
    hs_matrix_deinit(&matrix);
    scratch_remove(&scratch);
}
