/* SPDX-License-Identifier: MIT
 *
 * report.html of records written by the run's own writer: sound as a page, whatever tasks are called, with the figures
 * in it; and files that are cut or hostile are refused with their line.
 */
#include <math.h>

#include "runtime/pages/html_text.h"
#include "runtime/pages/report.h"
#include "runtime/record/metrics.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

#define HOSTILE "</td><script>alert('x')&\"\x01"

static HsMetrics *open_metrics(const Scratch *scratch)
{
    const HsMetricsOptions options = { scratch->folder, false, "none", 200, NULL };
    HsMetrics *metrics = NULL;
    cr_assert_eq(hs_metrics_create(&options, &metrics), HS_OK, "%s", hs_error_message());
    return metrics;
}

static void record(HsMetrics *metrics, const char *event, int64_t step, int64_t task, double loss, double validation,
                   double speed)
{
    HsMetricsRecord line = { .event = event,
                             .step = step,
                             .loss = loss,
                             .val_loss = validation,
                             .learning_rate = 1e-3,
                             .grad_norm = 1,
                             .loss_scale = 1,
                             .tokens_per_second = speed,
                             .time_s = (double)NAN,
                             .entropy_floor = (double)NAN,
                             .task = task,
                             .penalty = task > 0 ? 0.25 : (double)NAN,
                             .replay_loss = task > 0 ? 1.5 : (double)NAN,
                             .bits_per_byte = (double)NAN,
                             .accuracy_seen = (double)NAN,
                             .accuracy_unseen = (double)NAN,
                             .distillation = task > 0 ? 0.5 : (double)NAN };
    cr_assert_eq(hs_metrics_record(metrics, &line), HS_OK, "%s", hs_error_message());
}

/* Two tasks of 100 steps: what is known of the first rises from 1.125 to 2.375. */
static void write_two_tasks(const Scratch *scratch, const char *second)
{
    const char *names[] = { "sums", second };
    const int64_t steps[] = { 100, 100 };
    HsMetrics *metrics = open_metrics(scratch);
    const HsMetricsRun run = { .name = "runs/two & more",
                               .device = "cpu",
                               .precision = "bf16",
                               .strategy = "ewc",
                               .model = "gpt2",
                               .parameters = 2500000,
                               .total_steps = 200,
                               .memory = { { "weights", 10 << 20 }, { "activations", 30 << 20 } },
                               .memory_count = 2,
                               .task_count = 2,
                               .task_names = names,
                               .task_steps = steps };
    HsMatrix matrix;
    cr_assert_eq(hs_matrix_init(&matrix, 2), HS_OK);
    hs_matrix_set_name(&matrix, 0, names[0]);
    hs_matrix_set_name(&matrix, 1, second);
    cr_assert_eq(hs_metrics_run(scratch->folder, &run), HS_OK, "%s", hs_error_message());
    matrix.untrained[0] = matrix.untrained[1] = 4.25;
    cr_assert_eq(hs_metrics_matrix(metrics, 0, -1, &matrix, false), HS_OK, "%s", hs_error_message());
    for (int task = 0; task < 2; task++) {
        for (int64_t step = 10; step <= 100; step += 10)
            record(metrics, "step", 100 * task + step, task, 4.0 / (double)step, (double)NAN, 1000.0 + (double)step);
        record(metrics, "eval", 100 * task + 50, task, (double)NAN, 2, (double)NAN);
        *hs_matrix_at(&matrix, task, 0) = task == 0 ? 1.125 : 2.375;
        *hs_matrix_at(&matrix, task, 1) = task == 0 ? 3.5 : 1.625;
        cr_assert_eq(hs_metrics_matrix(metrics, 100 * (task + 1), task, &matrix, false), HS_OK, "%s",
                     hs_error_message());
    }
    HsImportanceTensor tensors[] = { { "norm", 0.5, 0.25, 0.125 }, { "wte", 1, 0.5, 0.875 } };
    const HsImportance importance = { .count = 2, .tensors = tensors, .maximum = 1, .mean = 0.375, .strength = 5000 };
    cr_assert_eq(hs_metrics_importance(metrics, 200, 1, 0.001, &importance), HS_OK);
    record(metrics, "end", 200, -1, (double)NAN, 2, (double)NAN);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    hs_matrix_deinit(&matrix);
}

static char *page_of(const Scratch *scratch)
{
    size_t size = 0;
    cr_assert_eq(hs_report_write(scratch->folder), HS_OK, "%s", hs_error_message());
    cr_expect(!scratch_exists(scratch_path(scratch, "report.html.tmp")));
    return scratch_read(scratch_path(scratch, "report.html"), &size);
}

Test(report, a_run_of_two_tasks)
{
    Scratch scratch = scratch_make();
    write_two_tasks(&scratch, "facts");
    char *page = page_of(&scratch);
    page_expect_sound(page);
    static const char *const held[] = {
        "<h1>runs/two &amp; more</h1>",
        "Finished.",
        "2.50 million",
        "200 of 200",
        "40.0 MiB",
        ">untrained<",
        ">after sums<",
        ">after facts<",
        ">4.250</td>",
        ">1.125</td>",
        ">2.375</td>",
        ">3.500</td>",
        /* retained (2.375 + 1.625)/2, forgetting 2.375 - 1.125, its bar; boundaries; importance */
        "<dt>retained</dt><dd class=\"value\">2.000</dd>",
        "<dt>forgetting</dt><dd class=\"value\">1.250</dd>",
        "<title>sums: 1.250</title>",
        "<title>from step 100: facts</title>",
        "<title>wte: 87.500</title>",
        "<h2>Memory</h2>",
        "weights: 10.000",
        "rate x strength x maximum</dt><dd class=\"value\">5.000",
        "<figcaption>Distillation</figcaption>",
        "<figcaption>Penalty</figcaption>",
        "<title>replayed, 110: 1.500</title>",
        /* task 0's curve continues from the matrix while task 1 trains */
        "<title>sums, 0: 4.250</title>",
        "<title>sums, 50: 2.000</title>",
        "<title>sums, 200: 2.375</title>",
    };
    PAGE_EXPECT_HELD(page, held);
    cr_expect_eq(page_count(page, "class=\"own\""), 2); /* the diagonal */
    cr_expect_eq(page_count(page, "<svg"), page_count(page, "role=\"img\"") + page_count(page, "aria-hidden"));
    cr_expect_not_null(strstr(page, "prefers-color-scheme:dark"));
    free(page);
    scratch_remove(&scratch);
}

/* A run that had one task when it began: its evaluation names none, and its row is measured again with the new one. */
Test(report, a_run_that_grew)
{
    Scratch scratch = scratch_make();
    static const char *const lines[] = {
        "{\"event\":\"step\",\"step\":10,\"loss\":3}",
        "{\"event\":\"eval\",\"step\":10,\"val_loss\":2.75}",
        "{\"event\":\"matrix\",\"step\":10,\"task\":0,\"names\":[\"one\"],\"losses\":[[2.5]],\"untrained\":[4],"
        "\"floor\":[null],\"joint\":[null]}",
        "{\"event\":\"changed\",\"step\":10,\"keys\":\"tasks: two appended\"}",
        "{\"event\":\"matrix\",\"step\":10,\"task\":0,\"names\":[\"one\",\"two\"],\"losses\":[[2.5,null]],"
        "\"untrained\":[4,5],\"floor\":[null,null],\"joint\":[null,null]}",
        "{\"event\":\"matrix\",\"step\":20,\"task\":1,\"names\":[\"one\",\"two\"],\"losses\":[[2.5,null],[2.625,2]],"
        "\"untrained\":[4,5],\"floor\":[null,null],\"joint\":[null,null]}",
    };
    char text[2048] = "";
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        strcat(text, lines[i]);
        strcat(text, "\n");
    }
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), text, strlen(text));
    static const char run[] = "{\"event\":\"run\",\"step\":0,\"tasks\":[{\"name\":\"one\",\"steps\":10},{\"name\":"
                              "\"two\",\"steps\":10}]}";
    scratch_write(scratch_path(&scratch, "run.json"), run, sizeof run - 1);
    char *page = page_of(&scratch);
    static const char *const held[] = {
        ">4.000</td>",
        ">5.000</td>",
        ">\u2013</td>", /* what was not measured */
        "<dt>forgetting</dt><dd class=\"value\">0.125</dd>",
        "<title>one, 10: 2.750</title>",
        "<title>two, 20: 2.000</title>",
        "at step 10: tasks: two appended",
    };
    PAGE_EXPECT_HELD(page, held);
    cr_expect_null(strstr(page, "<title>all tasks, "));
    free(page);
    /* Without run.json tasks begin where rows were measured: one that was measured twice ends once. */
    cr_assert_eq(remove(scratch_path(&scratch, "run.json")), 0);
    page = page_of(&scratch);
    cr_expect_eq(page_count(page, "from step 10: two"), page_count(page, "from step 0: one"));
    free(page);
    scratch_remove(&scratch);
}

Test(report, hostile_names_stay_text)
{
    Scratch scratch = scratch_make();
    write_two_tasks(&scratch, HOSTILE);
    char *page = page_of(&scratch);
    page_expect_sound(page);
    cr_expect_not_null(strstr(page, "&lt;/td&gt;&lt;script&gt;alert(&#39;x&#39;)&amp;&quot;&#xfffd;"));
    free(page);
    scratch_remove(&scratch);
}

/* Accuracies, evaluations of every task and samples on top of two tasks. */
static void write_what_is_remembered(const Scratch *scratch, const char *name)
{
    HsMatrix matrix;
    HsMetrics *metrics = open_metrics(scratch);
    cr_assert_eq(hs_matrix_init(&matrix, 2), HS_OK);
    hs_matrix_set_name(&matrix, 0, "sums");
    hs_matrix_set_name(&matrix, 1, name);
    matrix.untrained[0] = matrix.untrained[1] = 4;
    matrix.bytes_per_token[0] = matrix.bytes_per_token[1] = 2;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, -1, 0) = 0.0625;
    cr_assert_eq(hs_metrics_matrix(metrics, 0, -1, &matrix, false), HS_OK);
    const HsMetricsTask tasks[] = { { "sums", 3.25, 0.5, 0.375 }, { name, 3.5, (double)NAN, (double)NAN } };
    cr_assert_eq(hs_metrics_tasks(metrics, 50, tasks, 2), HS_OK);
    for (int task = 0; task < 2; task++) {
        *hs_matrix_at(&matrix, task, 0) = *hs_matrix_at(&matrix, task, 1) = 2 + task;
        *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, task, 0) = task == 0 ? 0.9375 : 0.4375;
        *hs_matrix_accuracy(&matrix, HS_ITEMS_UNSEEN, task, 0) = 0.3125;
        cr_assert_eq(hs_metrics_matrix(metrics, 100 * (task + 1), task, &matrix, false), HS_OK);
    }
    const HsMetricsSample samples[] = {
        { "sums", { "12+30=", 6 }, { "42\n", 3 }, { "42\n", 3 }, true },
        { "sums", { "1+1=", 4 }, { "<3>", 3 }, { "2\n", 2 }, false },
        { name, { "two\nlines", 9 }, { "\xff\x01&", 3 }, { NULL, 0 }, false },
    };
    cr_assert_eq(hs_metrics_samples(metrics, 200, samples, 3), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    hs_matrix_deinit(&matrix);
}

Test(report, what_is_remembered)
{
    static const char *const names[] = { "facts", HOSTILE };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        Scratch scratch = scratch_make();
        write_what_is_remembered(&scratch, names[n]);
        char *page = page_of(&scratch);
        page_expect_sound(page);
        static const char *const held[] = {
            "<h2>What is remembered word for word</h2>",
            "higher is better",
            "<caption>Prompts of the training text</caption>",
            "<caption>Prompts that are not in the training text</caption>",
            ">0.062</td>",
            ">0.938</td>",
            ">0.312</td>",
            /* of the matrix's rows and of the evaluation between them */
            "<title>sums, 0: 0.062</title>",
            "<title>sums, 50: 0.500</title>",
            "<title>sums, 50: 0.375</title>",
            "<title>sums, 200: 0.438</title>",
            "<title>sums, 50: 3.250</title>",
            "<dt>bits per byte</dt><dd class=\"value\">2.164</dd>", /* 3 / (2 ln 2) */
            "<dt>accuracy seen</dt><dd class=\"value\">0.438</dd>",
            "<h2>Prompts and their continuations</h2>",
            "<td>12+30=</td><td>42<span class=\"soft\">\u21b5</span>\n</td>",
            "<td>&lt;3&gt;</td>",
            "<td>yes</td>",
            "<td>no</td>",
            "<td>two<span class=\"soft\">\u21b5</span>\nlines</td><td>\xef\xbf\xbd&#xfffd;&amp;</td>",
        };
        PAGE_EXPECT_HELD(page, held);
        /* Colours the other way round: all of them right is the calm end, the untrained model's is not. */
        cr_expect_not_null(strstr(page, "background:rgb(var(--cool) / 0.481)\" title=\"after sums | sums: 0.938"));
        cr_expect_not_null(strstr(page, "background:rgb(var(--warm) / 0.481)\" title=\"untrained | sums: 0.062"));
        free(page);
        scratch_remove(&scratch);
    }
}

/* One row, the last: no diagonal, no forgetting. */
Test(report, a_joint_run)
{
    Scratch scratch = scratch_make();
    HsMatrix matrix;
    HsMetrics *metrics = open_metrics(&scratch);
    cr_assert_eq(hs_matrix_init(&matrix, 2), HS_OK);
    hs_matrix_set_name(&matrix, 0, "sums");
    hs_matrix_set_name(&matrix, 1, "facts");
    *hs_matrix_at(&matrix, 1, 0) = *hs_matrix_at(&matrix, 1, 1) = 1.5;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, 1, 1) = 0.75;
    cr_assert_eq(hs_metrics_matrix(metrics, 200, 1, &matrix, false), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    hs_matrix_deinit(&matrix);
    char *page = page_of(&scratch);
    page_expect_sound(page);
    cr_expect_not_null(strstr(page, "<dt>forgetting</dt><dd class=\"value\">none</dd>"));
    cr_expect_eq(page_count(page, "class=\"own\""), 0);
    cr_expect_eq(page_count(page, ">after facts<"), 2); /* of losses, and of accuracies */
    cr_expect_null(strstr(page, "after sums"));
    free(page);
    scratch_remove(&scratch);
}

Test(report, plain_training_has_curves_and_no_matrix)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = open_metrics(&scratch);
    for (int64_t step = 1; step <= 3000; step++) /* one spike, to be seen in the thinned curve */
        record(metrics, "step", step, -1, step == 1234 ? 77 : 2, (double)NAN, 100);
    record(metrics, "eval", 3000, -1, (double)NAN, 1.75, (double)NAN);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    char *bare = page_of(&scratch);
    cr_expect_null(strstr(bare, "bits per byte"));
    free(bare);
    size_t size = 0;
    char *lines = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    char *longer = malloc(size + 128);
    cr_assert_not_null(longer);
    size = (size_t)sprintf(longer, "%s%s", lines,
                           "{\"event\":\"eval\",\"step\":3000,\"val_loss\":1.75,\"bits_per_byte\":2.125}\n");
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), longer, size);
    free(longer);
    free(lines);
    char *page = page_of(&scratch);
    page_expect_sound(page);
    cr_expect_not_null(strstr(page, "Not finished"));
    cr_expect_not_null(strstr(page, "<title>validation, 3000: 1.750</title>"));
    cr_expect_not_null(strstr(page, "<dt>the same in bits per byte</dt><dd>2.125</dd>"));
    cr_expect_null(strstr(page, "<table"));
    cr_expect_null(strstr(page, "Forgetting"));
    cr_expect_null(strstr(page, "class=\"mark\""));
    const char *path = strstr(page, "<path class=\"curve s0\" d=\"M");
    cr_assert_not_null(path);
    int points = 0, spikes = 0;
    for (const char *at = path; *at && *at != '/'; at++) {
        double x, y;
        if ((*at == 'L' || *at == 'M') && sscanf(at + 1, "%lf %lf", &x, &y) == 2) {
            points++;
            spikes += y < 60; /* upwards is smaller; the plain losses lie near the bottom */
        }
    }
    cr_expect_leq(points, 600);
    cr_expect_eq(spikes, 1);
    free(page);
    scratch_remove(&scratch);
}

Test(report, numbers_for_people)
{
    static const struct {
        double value;
        const char *figure, *bytes;
    } cases[] = {
        { 0, "0.000", "\u2013" },
        { 1.23456, "1.235", "1 B" },
        { 123.45, "123.5", "123 B" },
        { 12345, "12345", "12.1 KiB" },
        { 3e9, "3.00e+09", "2.8 GiB" },
        { 1e-5, "1.00e-05", "0 B" },
        { (double)NAN, "\u2013", "\u2013" },
    };
    char text[HS_HTML_FIGURE_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_str_eq(hs_html_figure(cases[i].value, text), cases[i].figure);
        cr_expect_str_eq(hs_html_bytes(cases[i].value, text), cases[i].bytes);
    }
}

/* ---- what comparisons read ---- */

Test(report, the_result_of_a_run_is_read)
{
    Scratch scratch = scratch_make();
    HsRunResult result;
    write_two_tasks(&scratch, "facts");
    cr_assert_eq(hs_run_result_read(scratch.folder, &result), HS_OK, "%s", hs_error_message());
    cr_expect_eq(result.matrix.tasks, 2);
    cr_expect_str_eq(result.matrix.names[1], "facts");
    cr_expect_eq(*hs_matrix_at(&result.matrix, 1, 0), 2.375);
    cr_expect_eq(result.tokens_per_second, 1055); /* of 1010, 1020 .. 1100, twice each */
    cr_expect_eq(result.memory_bytes, 40 << 20);
    cr_expect_eq(result.steps, 200);
    cr_expect(result.finished);
    hs_run_result_deinit(&result);
    scratch_remove(&scratch);
}

/* A record as three processes left it: the clock begins again where a run is resumed, and what a strategy keeps is
 * counted among the parts of memory. */
Test(report, time_and_what_is_kept)
{
    static const char run[] = "{\"event\":\"run\",\"step\":0,\"parameters\":100,\"total_steps\":4,\"memory\":["
                              "{\"what\":\"weights\",\"bytes\":400},{\"what\":\"importance and anchor\",\"bytes\":800},"
                              "{\"what\":\"teacher\",\"bytes\":64}],\"tasks\":[]}";
    static const char lines[] = "{\"event\":\"step\",\"step\":1,\"time_s\":2.5e+00}\n"
                                "{\"event\":\"checkpoint\",\"step\":1,\"time_s\":3.0e+00}\n"
                                "{\"event\":\"step\",\"step\":2,\"time_s\":1.0e+00}\n"
                                "{\"event\":\"step\",\"step\":3,\"time_s\":0.25}\n"
                                "{\"event\":\"end\",\"step\":4,\"time_s\":0.5}\n";
    Scratch scratch = scratch_make();
    HsRunResult result;
    scratch_write(scratch_path(&scratch, "run.json"), run, strlen(run));
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), lines, strlen(lines));
    cr_assert_eq(hs_run_result_read(scratch.folder, &result), HS_OK, "%s", hs_error_message());
    cr_expect_eq(result.seconds, 3 + 1 + 0.5);
    cr_expect_eq(result.kept_bytes, 864);
    cr_expect_eq(result.memory_bytes, 1264);
    cr_expect_eq(result.parameters, 100);
    hs_run_result_deinit(&result);
    scratch_remove(&scratch);
}

/* ---- files that are not ours ---- */

static void expect_refused(const char *text, size_t size, const char *message)
{
    Scratch scratch = scratch_make();
    HsRunResult result;
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), text, size);
    cr_expect_eq(hs_report_write(scratch.folder), HS_EFORMAT, "%s", text);
    cr_expect_not_null(strstr(hs_error_message(), message), "%s | %s", message, hs_error_message());
    cr_expect(!scratch_exists(scratch_path(&scratch, "report.html")));
    cr_expect_eq(hs_run_result_read(scratch.folder, &result), HS_EFORMAT);
    scratch_remove(&scratch);
}

Test(report, bad_lines_are_named)
{
#define GOOD   "{\"event\":\"step\",\"step\":1,\"loss\":1}\n"
#define MATRIX "{\"event\":\"matrix\",\"step\":1,\"task\":0,\"names\":[\"a\",\"b\"],"
#define ROLE(name, lowest) \
    "{\"role\":\"" name "\",\"saturated\":0,\"zeroed\":0,\"amax\":null,\"scale_lowest\":" lowest "}"
#define ROWS "\"untrained\":[1,2],\"floor\":[1,2],\"joint\":[1,null]}"
    static const struct {
        const char *text, *message;
    } cases[] = {
        { GOOD "{\"event\":\"st", "metrics.jsonl:2: byte" },
        { GOOD GOOD "\n" GOOD, "metrics.jsonl:3: byte 0" },
        { GOOD "[1,2]", "metrics.jsonl:2: member `event` is missing" },
        { GOOD "7", "metrics.jsonl:2: member `event` is missing" },
        { "{\"event\":7}", "metrics.jsonl:1: member `event` must be a string" },
        { "{\"event\":\"step\"}", "member `step` is missing" },
        { "{\"event\":\"step\",\"step\":-1}", "`step` must be from 0" },
        { "{\"event\":\"step\",\"step\":1,\"loss\":\"x\"}", "`loss` must be a number" },
        { "{\"event\":\"eval\",\"step\":1,\"task\":1000000000,\"val_loss\":1}", "`task` must be from 0 to 1023" },
        { "{\"event\":\"eval\",\"step\":1,\"task\":-1,\"val_loss\":1}", "`task` must be from 0 to 1023" },
        { MATRIX "\"losses\":[[1,2],[3,4],[5,6]]," ROWS, "at most 2 rows" },
        { MATRIX "\"losses\":[[1]]," ROWS, "array of 2 numbers" },
        { MATRIX "\"losses\":[[1,\"x\"]]," ROWS, "numbers or null" },
        { MATRIX "\"losses\":3," ROWS, "`losses` must be an array" },
        { MATRIX "\"losses\":[[1,2]]}", "`untrained` must be an array of 2" },
        { "{\"event\":\"matrix\",\"step\":1,\"names\":[]}", "`names` must be an array of 1 to 1024" },
        { "{\"event\":\"matrix\",\"step\":1,\"names\":[1,2],\"losses\":[]," ROWS, "`names` must hold strings" },
        { "{\"event\":\"matrix\",\"step\":1,\"task\":2,\"names\":[\"a\",\"b\"],\"losses\":[]," ROWS, "from 0 to 1" },
        { "{\"event\":\"run\",\"step\":0,\"memory\":7}", "`memory` must be an array" },
        { "{\"event\":\"run\",\"step\":0,\"memory\":[{\"what\":\"x\",\"bytes\":-1}]}", "`bytes` must be from 0" },
        { "{\"event\":\"run\",\"step\":0,\"tasks\":[{\"name\":3,\"steps\":1}]}", "`name` must be a string" },
        { "{\"event\":\"importance\",\"step\":0}", "`strength` is missing" },
        { MATRIX "\"losses\":[[1,2]],\"accuracy_seen\":[[1,2],[1,2],[1,2],[1,2]]," ROWS, "at most 3 rows" },
        { MATRIX "\"losses\":[[1,2]],\"accuracy_unseen\":[[1]]," ROWS, "`accuracy_unseen` must be an array of 2" },
        { MATRIX "\"losses\":[[1,2]],\"bytes_per_token\":[1]," ROWS, "`bytes_per_token` must be an array of 2" },
        { "{\"event\":\"tasks\",\"step\":1}", "`names` must be an array of 1 to 1024" },
        { "{\"event\":\"tasks\",\"step\":1,\"names\":[\"a\"],\"losses\":[1,2]}", "`losses` must be an array of 1" },
        { "{\"event\":\"tasks\",\"step\":1,\"names\":[\"a\"],\"losses\":[1],\"accuracy_seen\":[\"x\"]}",
          "`accuracy_seen` must hold numbers or null" },
        { "{\"event\":\"eval\",\"step\":1,\"val_loss\":1,\"accuracy_seen\":\"x\"}",
          "`accuracy_seen` must be a number" },
        { "{\"event\":\"scales\",\"step\":1}", "`roles` must be an array" },
        { "{\"event\":\"scales\",\"step\":1,\"roles\":[7]}", "`role` is missing" },
        { "{\"event\":\"scales\",\"step\":1,\"roles\":[{\"role\":\"x\",\"zeroed\":0}]}", "`saturated` is missing" },
        { "{\"event\":\"scales\",\"step\":1,\"roles\":[" ROLE("x", "\"y\"") "]}", "`scale_lowest` must be a number" },
        { "{\"event\":\"scales\",\"step\":1,\"roles\":[" ROLE("a", "1") "," ROLE("b", "1") "," ROLE("c", "1") "," ROLE(
              "d", "1") "," ROLE("e", "1") "," ROLE("f", "1") "]}",
          "at most 5 roles" },
        { "{\"event\":\"scales\",\"step\":1,\"roles\":[" ROLE("a name that is longer than any role of a run is",
                                                              "1") "]}",
          "fewer than 32 bytes" },
        { "{\"event\":\"samples\",\"step\":1}", "`samples` must be an array" },
        { "{\"event\":\"samples\",\"step\":1,\"samples\":[{\"task\":\"a\",\"prompt\":1}]}",
          "`prompt` must be a string" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_refused(cases[i].text, strlen(cases[i].text), cases[i].message);
}

/* Casts of two recorded steps: the table is the last one's, a name of the file is no markup. */
Test(report, casts_by_role)
{
    Scratch scratch = scratch_make();
    static const char text[] =
        "{\"event\":\"step\",\"step\":10,\"loss\":1}\n"
        "{\"event\":\"scales\",\"step\":10,\"roles\":[{\"role\":\"x\",\"amax\":4,\"scale_lowest\":0.5,"
        "\"scale_highest\":96,\"saturated\":0.25,\"zeroed\":0,\"layer\":\"first\",\"layer_lost\":0.5}]}\n"
        "{\"event\":\"scales\",\"step\":20,\"roles\":[{\"role\":\"x\",\"amax\":8,\"scale_lowest\":2,"
        "\"scale_highest\":128,\"saturated\":0,\"zeroed\":0.0625,\"layer\":\"<second>\",\"layer_lost\":0.125},"
        "{\"role\":\"dy\",\"amax\":null,\"scale_lowest\":null,\"scale_highest\":null,\"saturated\":0,"
        "\"zeroed\":1e-9}]}\n";
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), text, sizeof text - 1);
    char *page = page_of(&scratch);
    page_expect_sound(page);
    static const char *const held[] = {
        "What the casts did",
        "<th scope=\"row\">x</th><td>8</td><td>2 to 128</td><td>0</td><td>6.25%</td>",
        "&lt;second&gt;",
        ">12.50%</div>",
        "<th scope=\"row\">dy</th><td>\u2013</td><td>of blocks</td><td>0</td><td>under 0.0001%</td><td>\u2013</td>",
    };
    PAGE_EXPECT_HELD(page, held);
    cr_expect_null(strstr(page, ">first<"));
    free(page);
    scratch_remove(&scratch);
}

/* Cut anywhere, the file is refused or, cut between lines, drawn: nothing crashes.  Every cut of the interesting part.
 */
Test(report, every_truncation_is_survived)
{
    Scratch scratch = scratch_make(), cut = scratch_make();
    size_t size = 0;
    write_two_tasks(&scratch, "facts");
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    for (size_t length = 0; length < size; length += 7) {
        HsRunResult result;
        scratch_write(scratch_path(&cut, "metrics.jsonl"), text, length);
        HsStatus status = hs_run_result_read(cut.folder, &result);
        bool whole = length == 0 || text[length - 1] == '\n' || text[length] == '\n';
        cr_expect_eq(status, whole ? HS_OK : HS_EFORMAT, "%zu: %s", length, hs_error_message());
        if (status == HS_OK) {
            cr_expect_eq(hs_report_write(cut.folder), HS_OK, "%s", hs_error_message());
            hs_run_result_deinit(&result);
        }
    }
    free(text);
    scratch_remove(&cut);
    scratch_remove(&scratch);
}

/* Numbers at the edge of doubles draw something sound and end. */
Test(report, extreme_numbers)
{
    static const char text[] = "{\"event\":\"step\",\"step\":9007199254740991,\"loss\":1e308}\n"
                               "{\"event\":\"step\",\"step\":9007199254740992,\"loss\":-1e308}\n"
                               "{\"event\":\"step\",\"step\":5,\"loss\":null,\"tokens_per_second\":1e-300}\n"
                               "{\"event\":\"eval\",\"step\":5,\"val_loss\":1e999}\n";
    Scratch scratch = scratch_make();
    scratch_write(scratch_path(&scratch, "metrics.jsonl"), text, strlen(text));
    char *page = page_of(&scratch);
    cr_expect_null(page_fault(page));
    free(page);
    scratch_remove(&scratch);
}

Test(report, a_missing_file_is_named)
{
    Scratch scratch = scratch_make();
    cr_expect_eq(hs_report_write(scratch.folder), HS_EIO);
    cr_expect_not_null(strstr(hs_error_message(), "/metrics.jsonl"));
    scratch_remove(&scratch);
}
