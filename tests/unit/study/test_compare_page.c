/* SPDX-License-Identifier: MIT
 *
 * The comparison of strategies: means, spreads and overheads against values by hand, the page, the table and the JSON.
 */
#include <math.h>

#include "runtime/io/json.h"
#include "runtime/study/compare_page.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

enum { LEARNED, RETAINED, FORGETTING, BWT, FWT, OVER_JOINT, OVER_FLOOR, RATIO }; /* as in HsMatrixSummary */

/* Two tasks; `first` is what task 0's loss ends at, `own` what each task is learned to.  Joint: only the last row. */
static HsRunResult result_of(bool joint, double first, double own, double speed, int64_t memory_bytes)
{
    HsRunResult result = { .tokens_per_second = speed, .memory_bytes = memory_bytes, .steps = 20, .finished = true };
    cr_assert_eq(hs_matrix_init(&result.matrix, 2), HS_OK);
    hs_matrix_set_name(&result.matrix, 0, "sums");
    hs_matrix_set_name(&result.matrix, 1, "<facts>");
    if (!joint) {
        *hs_matrix_at(&result.matrix, 0, 0) = own;
        *hs_matrix_at(&result.matrix, 0, 1) = 4;
    }
    *hs_matrix_at(&result.matrix, 1, 0) = first;
    *hs_matrix_at(&result.matrix, 1, 1) = own;
    return result;
}

typedef struct Sample {
    HsRunResult results[3][3];
    HsCompareRow rows[3];
} Sample;

static void sample_make(Sample *sample)
{
    static const char *const names[] = { "none", "joint", "ewc & er" };
    static const double first[3][3] = { { 7, 8, 9 }, { 1.5, 1.25, 1.75 }, { 2, 3, 4 } };
    static const double own[] = { 1, 1.5, 1.5 }, speed[] = { 2000, 1900, 1600 };
    for (int i = 0; i < 3; i++) {
        for (int seed = 0; seed < 3; seed++)
            sample->results[i][seed] =
                result_of(i == 1, first[i][seed], own[i], speed[i] + 100 * (seed - 1), (i == 2 ? 3 : 2) << 20);
        sample->rows[i] = (HsCompareRow){ names[i], 3, sample->results[i] };
    }
}

static void sample_free(Sample *sample)
{
    for (int i = 0; i < 9; i++)
        hs_run_result_deinit(&sample->results[i / 3][i % 3]);
}

static void expect_figure(const HsCompareFigure *figure, double mean, double spread, int count)
{
    cr_expect_eq(figure->mean, mean, "%g, not %g", figure->mean, mean);
    cr_expect_eq(figure->spread, spread, "%g, not %g", figure->spread, spread);
    cr_expect_eq(figure->count, count);
}

Test(compare_page, means_spreads_and_overheads)
{
    Sample sample;
    HsCompareFigures *figures = NULL;
    sample_make(&sample);
    cr_assert_eq(hs_compare_figures(sample.rows, 3, &figures), HS_OK, "%s", hs_error_message());
    const HsCompareFigures *none = &figures[0], *joint = &figures[1], *both = &figures[2];
    /* Of x - 1, x, x + 1 the sample deviation is 1; retained halves it. */
    expect_figure(&none->members[FORGETTING], 7, 1, 3);
    expect_figure(&both->members[FORGETTING], 1.5, 1, 3);
    expect_figure(&both->members[RETAINED], 2.25, 0.5, 3);
    expect_figure(&both->members[LEARNED], 1.5, 0, 3);
    expect_figure(&both->tokens_per_second, 1600, 100, 3);
    expect_figure(&both->memory_bytes, 3 << 20, 0, 3);
    cr_expect_eq(both->time_overhead, 0.25);
    cr_expect_eq(both->memory_overhead, 0.5);
    cr_expect_eq(none->time_overhead, 0);
    /* Against the same seed's joint losses: (2 - 1.5)/2, (3 - 1.25)/2, (4 - 1.75)/2. */
    cr_expect_eq(both->members[OVER_JOINT].mean, (0.25 + 0.875 + 1.125) / 3);
    cr_expect_eq(joint->members[LEARNED].count, 0);
    cr_expect(isnan(joint->members[FORGETTING].mean));
    cr_expect(isnan(joint->members[OVER_JOINT].mean)); /* not against itself */
    cr_expect_eq(*hs_matrix_at(&both->mean, 1, 0), 3);
    cr_expect(isnan(*hs_matrix_at(&joint->mean, 0, 0)));
    hs_compare_figures_free(figures, 3);
    sample_free(&sample);
}

/* Of two runs in three: their mean, in the table, the page and the JSON. */
Test(compare_page, accuracies)
{
    Sample sample;
    HsCompareFigures *figures = NULL;
    Scratch scratch = scratch_make();
    size_t size = 0;
    sample_make(&sample);
    for (int seed = 0; seed < 2; seed++) {
        const HsMatrix *matrix = &sample.results[2][seed].matrix;
        *hs_matrix_accuracy(matrix, HS_ITEMS_SEEN, 1, 0) = seed == 0 ? 0.5 : 1;
        *hs_matrix_accuracy(matrix, HS_ITEMS_UNSEEN, 1, 0) = 0.125;
        matrix->bytes_per_token[0] = matrix->bytes_per_token[1] = 4;
    }
    cr_assert_eq(hs_compare_figures(sample.rows, 3, &figures), HS_OK, "%s", hs_error_message());
    cr_expect_eq(*hs_matrix_accuracy(&figures[2].mean, HS_ITEMS_SEEN, 1, 0), 0.75);
    cr_expect(isnan(*hs_matrix_accuracy(&figures[2].mean, HS_ITEMS_SEEN, 1, 1)));
    cr_expect_eq(figures[2].mean.bytes_per_token[1], 4);
    cr_expect_eq(hs_matrix_summary(&figures[2].mean).accuracy_seen, 0.75);
    hs_compare_figures_free(figures, 3);
    char *text = NULL;
    FILE *stream = open_memstream(&text, &size);
    cr_assert_eq(hs_compare_print(sample.rows, 3, 120, stream), HS_OK);
    fclose(stream);
    cr_expect_not_null(strstr(text, "2.250       1.500     1.500   0.750"));
    free(text);
    const char *path = scratch_path(&scratch, "compare.html");
    cr_assert_eq(hs_compare_write_html(path, "t", sample.rows, 3), HS_OK, "%s", hs_error_message());
    text = scratch_read(path, &size);
    page_expect_sound(text);
    cr_expect_not_null(strstr(text, "Exact completions of prompts of the training text at the end: higher is better"));
    cr_expect_not_null(strstr(text, "<td>0.750 <span"));
    cr_expect_not_null(strstr(text, "<td>none</td>")); /* joint's forgetting */
    free(text);
    path = scratch_path(&scratch, "compare.json");
    cr_assert_eq(hs_compare_write_json(path, sample.rows, 3), HS_OK, "%s", hs_error_message());
    text = scratch_read(path, &size);
    cr_expect_null(strstr(text, "nan"));
    free(text);
    scratch_remove(&scratch);
    sample_free(&sample);
}

Test(compare_page, only_finished_runs_count)
{
    Sample sample;
    HsCompareFigures *figures = NULL;
    sample_make(&sample);
    sample.results[2][0].finished = false;
    sample.results[2][1].finished = false;
    sample.results[1][2].finished = false; /* the joint run of the seed that is left */
    cr_assert_eq(hs_compare_figures(sample.rows, 3, &figures), HS_OK, "%s", hs_error_message());
    cr_expect_eq(figures[2].finished, 1);
    cr_expect_eq(figures[2].members[RETAINED].mean, 2.75);
    cr_expect(isnan(figures[2].members[RETAINED].spread));
    cr_expect(isnan(figures[2].members[OVER_JOINT].mean));
    hs_compare_figures_free(figures, 3);
    /* Without a row "none" there is nothing to be slower than. */
    cr_assert_eq(hs_compare_figures(sample.rows + 1, 2, &figures), HS_OK);
    cr_expect(isnan(figures[1].time_overhead));
    hs_compare_figures_free(figures, 2);
    sample_free(&sample);
}

Test(compare_page, different_tasks_do_not_compare)
{
    Sample sample;
    HsCompareFigures *figures = NULL;
    sample_make(&sample);
    hs_matrix_deinit(&sample.results[2][1].matrix);
    cr_assert_eq(hs_matrix_init(&sample.results[2][1].matrix, 3), HS_OK);
    cr_expect_eq(hs_compare_figures(sample.rows, 3, &figures), HS_EINVAL);
    cr_expect_null(figures);
    cr_expect_str_eq(hs_error_message(),
                     "run 2 of ewc & er has 3 tasks, others have 2: only runs of the same tasks can be compared");
    cr_expect_eq(hs_compare_figures(sample.rows, 0, &figures), HS_EINVAL);
    sample_free(&sample);
}

static char *printed(const Sample *sample, int columns)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    cr_assert_not_null(stream);
    cr_assert_eq(hs_compare_print(sample->rows, 3, columns, stream), HS_OK);
    cr_assert_eq(fclose(stream), 0);
    return text;
}

Test(compare_page, the_table_fits)
{
    Sample sample;
    sample_make(&sample);
    sample.results[2][0].finished = false;
    char *text = printed(&sample, 106);
    cr_expect_str_eq(
        text,
        "strategy          retained  forgetting   learned   exact  over joint  tokens/s   +time     memory  +memory\n"
        "none                 4.500       7.000     1.000       -       3.000      2.0k     +0%    2.0 MiB      +0%\n"
        "joint                1.500        none         -       -           -      1.9k     +5%    2.0 MiB      +0%\n"
        "ewc & er             2.500       2.000     1.500       -       1.000      1.6k    +21%    3.0 MiB     +50%\n"
        "\n"
        "losses in nats a token, lower is better, means over seeds\n"
        "exact: share of exact completions, higher is better\n"
        "+time (a token), +memory: against none\n"
        "ewc & er: 2 of 3 runs finished; only those count\n");
    free(text);
    text = printed(&sample, 142);
    cr_expect_not_null(strstr(text, "2.500 +-0.354"));
    free(text);
    for (int columns = 40; columns < 160; columns++) {
        text = printed(&sample, columns);
        const char *notes = strstr(text, "\n\n");
        for (char *line = text; line <= notes; line = strchr(line, '\n') + 1)
            cr_expect_leq((int)(strchr(line, '\n') - line), columns, "columns %d", columns);
        free(text);
    }
    sample_free(&sample);
}

Test(compare_page, the_page_is_sound)
{
    Scratch scratch = scratch_make();
    Sample sample;
    size_t size = 0;
    sample_make(&sample);
    cr_assert_eq(hs_compare_write_html(scratch_path(&scratch, "compare.html"), "a <b>", sample.rows, 3), HS_OK, "%s",
                 hs_error_message());
    char *page = scratch_read(scratch_path(&scratch, "compare.html"), &size);
    page_expect_sound(page);
    static const char *const held[] = {
        "<h1>a &lt;b&gt;</h1>",
        "<th scope=\"row\">ewc &amp; er</th><td>3 of 3</td>",
        "<td>2.250 <span class=\"soft\">\u00b1 0.500</span></td>",
        "<td>3.0 MiB</td>",
        "<title>ewc &amp; er: 1.500</title>",
        "1.500 \u00b1 1.000 nats</text>",
        "<title>ewc &amp; er: 25.000</title>",
        "after &lt;facts&gt; | sums: 3.000",
    };
    PAGE_EXPECT_HELD(page, held);
    cr_expect_eq(page_count(page, "class=\"whisker\""), 2 + 3 + 2);
    cr_expect_eq(page_count(page, "<table class=\"heat\">"), 3);
    cr_expect_eq(page_count(page, "class=\"own\""), 4); /* not in joint's one row */
    free(page);
    sample_free(&sample);
    scratch_remove(&scratch);
}

Test(compare_page, json_reads_back)
{
    Scratch scratch = scratch_make();
    Sample sample;
    size_t size = 0;
    HsJson *root = NULL;
    sample_make(&sample);
    cr_assert_eq(hs_compare_write_json(scratch_path(&scratch, "compare.json"), sample.rows, 3), HS_OK, "%s",
                 hs_error_message());
    char *text = scratch_read(scratch_path(&scratch, "compare.json"), &size);
    cr_assert_eq(hs_json_parse("compare.json", text, size, &root), HS_OK, "%s", hs_error_message());
    const HsJson *row = hs_json_first(hs_json_get(root, "strategies"));
    row = hs_json_next(hs_json_next(row));
    cr_expect_str_eq(hs_json_string(hs_json_get(row, "name")), "ewc & er");
    const HsJson *retained = hs_json_get(hs_json_get(row, "figures"), "retained");
    cr_expect_eq(hs_json_number(hs_json_get(retained, "mean")), 2.25);
    cr_expect_eq(hs_json_number(hs_json_get(retained, "spread")), 0.5);
    cr_expect_eq(hs_json_number(hs_json_get(row, "time_overhead")), 0.25);
    const HsJson *seed = hs_json_first(hs_json_get(row, "seeds"));
    cr_expect_eq(hs_json_number(hs_json_get(hs_json_get(seed, "summary"), "excess_over_joint")), 0.25);
    cr_expect_eq(hs_json_count(hs_json_get(hs_json_get(row, "mean_matrix"), "losses")), 2);
    hs_json_destroy(root);
    free(text);
    sample_free(&sample);
    scratch_remove(&scratch);
}
