/* SPDX-License-Identifier: MIT
 *
 * The figures of the matrix against values worked out by hand, and the printed table.
 *
 * The losses are small multiples of 1/8 and the counts powers of two or exact divisors, so that sums and means are
 * exact in binary: every comparison is an equality.
 */
#include <math.h>

#include "runtime/record/matrix_json.h"
#include "tests/support/scratch.h"

static HsMatrix matrix_of(int tasks, const double *losses)
{
    HsMatrix matrix;
    cr_assert_eq(hs_matrix_init(&matrix, tasks), HS_OK, "%s", hs_error_message());
    for (int i = 0; losses && i < tasks * tasks; i++)
        matrix.loss[i] = losses[i];
    return matrix;
}

static char *printed(const HsMatrix *matrix, int columns)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    cr_assert_not_null(stream);
    hs_matrix_print(matrix, columns, stream);
    cr_assert_eq(fclose(stream), 0);
    return text;
}

static void expect_all_unknown(const HsMatrixSummary *summary)
{
    for (int i = 0; i < hs_matrix_member_count; i++)
        cr_expect(isnan(hs_matrix_member_value(summary, i)), "%s", hs_matrix_members[i].name);
}

Test(matrix, members_cover_the_summary)
{
    cr_expect_eq((size_t)hs_matrix_member_count * sizeof(double), sizeof(HsMatrixSummary));
    for (int i = 0; i < hs_matrix_member_count; i++)
        cr_expect_eq(hs_matrix_members[i].offset, (size_t)i * sizeof(double));
}

Test(matrix, closed_forms)
{
    /* Task 0's lowest loss is not its own row's: it improves once more, then is lost. */
    static const double losses[] = { 1, 4, 6, 0.75, 2, 5, 3, 2.5, 1.5 };
    HsMatrix matrix = matrix_of(3, losses);
    static const double untrained[] = { 7, 7, 7 }, joint[] = { 1, 2, 1 }, floor[] = { 0.5, 0.5, 0.5 };
    memcpy(matrix.untrained, untrained, sizeof untrained);
    memcpy(matrix.joint, joint, sizeof joint);
    memcpy(matrix.floor, floor, sizeof floor);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.learned, 4.5 / 3);
    cr_expect_eq(summary.retained, 7.0 / 3);
    cr_expect_eq(summary.forgetting, ((3 - 0.75) + (2.5 - 2)) / 2);
    cr_expect_eq(summary.bwt, ((1 - 3) + (2 - 2.5)) / 2);
    cr_expect_eq(summary.fwt, ((7 - 4) + (7 - 5)) / 2.0);
    cr_expect_eq(summary.excess_over_joint, 3.0 / 3);
    cr_expect_eq(summary.excess_over_floor, 5.5 / 3);
    cr_expect_eq(summary.perplexity_ratio, exp(1));
    cr_expect_eq(hs_matrix_forgetting(&matrix, 0), 2.25);
    cr_expect_eq(hs_matrix_forgetting(&matrix, 2), 0);
    hs_matrix_deinit(&matrix);
}

/* Task 0 is to be forgotten: the other figures are those of tasks 1 and 2, and `left` is its share. */
Test(matrix, a_task_that_is_not_to_be_retained)
{
    static const double losses[] = { 1, 4, 6, 0.75, 2, 5, 3, 2.5, 1.5 };
    HsMatrix matrix = matrix_of(3, losses);
    for (int task = 0; task < 3; task++)
        matrix.untrained[task] = 7;
    matrix.joint[0] = NAN;
    matrix.joint[1] = matrix.joint[2] = 1;
    matrix.forgets[0] = true;
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.learned, (2 + 1.5) / 2);
    cr_expect_eq(summary.retained, (2.5 + 1.5) / 2);
    cr_expect_eq(summary.forgetting, 2.5 - 2);
    cr_expect_eq(summary.bwt, 2 - 2.5);
    cr_expect_eq(summary.fwt, ((7 - 4) + (7 - 5)) / 2.0);
    cr_expect_eq(summary.excess_over_joint, (1.5 + 0.5) / 2);
    cr_expect_eq(summary.left, (7 - 3) / (7 - 0.75));
    cr_expect_eq(hs_matrix_left(&matrix, 0), summary.left);
    HsJson *json = hs_json_object();
    HsMatrix again;
    hs_matrix_to_json(&matrix, 3, json);
    cr_assert_eq(hs_matrix_from_json("matrix", json, &again), HS_OK, "%s", hs_error_message());
    cr_expect(again.forgets[0] && !again.forgets[1] && !again.forgets[2]);
    hs_matrix_deinit(&again);
    hs_json_replace(json, "retain", hs_json_new_real(1));
    cr_expect_eq(hs_matrix_from_json("matrix", json, &again), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "`retain` must be an array of 3 truth values"));
    hs_json_destroy(json);
    /* After it alone there is nothing retained yet. */
    for (int i = 3; i < 9; i++)
        matrix.loss[i] = NAN;
    summary = hs_matrix_summary(&matrix);
    cr_expect(isnan(summary.learned) && isnan(summary.retained) && isnan(summary.perplexity_ratio));
    cr_expect_eq(summary.left, 1);
    hs_matrix_deinit(&matrix);
}

/* Task 0 was learned before the run: what was learned in it is of the others, all else is as it was. */
Test(matrix, a_task_that_is_known)
{
    static const double losses[] = { 1, 4, 6, 1.5, 2, 5, 3, 2.5, 1.5 };
    HsMatrix matrix = matrix_of(3, losses);
    const HsMatrixSummary without = hs_matrix_summary(&matrix);
    matrix.known = 1;
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.learned, (2 + 1.5) / 2);
    cr_expect_eq(summary.retained, without.retained);
    cr_expect_eq(summary.forgetting, without.forgetting);
    cr_expect_eq(summary.bwt, without.bwt);
    HsJson *json = hs_json_object();
    HsMatrix again;
    hs_matrix_to_json(&matrix, 3, json);
    cr_assert_eq(hs_matrix_from_json("matrix", json, &again), HS_OK, "%s", hs_error_message());
    cr_expect_eq(again.known, 1);
    hs_matrix_deinit(&again);
    for (int wrong = 0; wrong < 3; wrong++) {
        const double values[] = { 4, -1, 0.5 };
        hs_json_replace(json, "known", hs_json_new_real(values[wrong]));
        cr_expect_eq(hs_matrix_from_json("matrix", json, &again), HS_EFORMAT);
        cr_expect_not_null(strstr(hs_error_message(), "`known` must be a number of names, 0 to 3"));
    }
    hs_json_destroy(json);
    /* After it alone nothing has been learned. */
    for (int i = 3; i < 9; i++)
        matrix.loss[i] = NAN;
    summary = hs_matrix_summary(&matrix);
    cr_expect(isnan(summary.learned));
    cr_expect_eq(summary.retained, 1);
    hs_matrix_deinit(&matrix);
}

/* Of rows 0 and 1 each task's own loss alone: no figure that needs the others. */
Test(matrix, rows_of_their_own_task_alone)
{
    static const double losses[] = { 1, NAN, NAN, NAN, 2, NAN, 3, 2.5, 1.5 };
    HsMatrix matrix = matrix_of(3, losses);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.learned, (1 + 2 + 1.5) / 3);
    cr_expect_eq(summary.retained, (3 + 2.5 + 1.5) / 3);
    cr_expect_eq(summary.forgetting, ((3 - 1) + (2.5 - 2)) / 2);
    cr_expect_eq(summary.bwt, -summary.forgetting);
    cr_expect(isnan(summary.fwt));
    *hs_matrix_at(&matrix, 1, 1) = NAN; /* a row that was not measured at all */
    cr_expect(isnan(hs_matrix_forgetting(&matrix, 0)));
    hs_matrix_deinit(&matrix);
}

Test(matrix, a_run_in_its_middle_counts_the_tasks_so_far)
{
    static const double losses[] = { 1, 4, 6, 2, 2, 5, NAN, NAN, NAN };
    HsMatrix matrix = matrix_of(3, losses);
    matrix.untrained[1] = 7;
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(hs_matrix_last_row(&matrix), 1);
    cr_expect_eq(summary.learned, 1.5);
    cr_expect_eq(summary.retained, 2);
    cr_expect_eq(summary.forgetting, 1);
    cr_expect_eq(summary.bwt, -1);
    cr_expect_eq(summary.fwt, 3);
    cr_expect(isnan(summary.excess_over_joint));
    /* A row that is half measured is not the last. */
    *hs_matrix_at(&matrix, 2, 0) = 3;
    cr_expect_eq(hs_matrix_last_row(&matrix), 1);
    hs_matrix_deinit(&matrix);
}

Test(matrix, joint_training_has_only_a_last_row)
{
    static const double losses[] = { NAN, NAN, 1, 2 };
    HsMatrix matrix = matrix_of(2, losses);
    matrix.floor[0] = matrix.floor[1] = 0.5;
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.retained, 1.5);
    cr_expect_eq(summary.excess_over_floor, 1);
    cr_expect(isnan(summary.learned));
    cr_expect(isnan(summary.forgetting));
    cr_expect(isnan(summary.bwt));
    cr_expect(isnan(summary.fwt));
    hs_matrix_deinit(&matrix);
}

Test(matrix, one_task_forgets_nothing_knowable)
{
    static const double loss[] = { 1.25 };
    HsMatrix matrix = matrix_of(1, loss);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(summary.learned, 1.25);
    cr_expect_eq(summary.retained, 1.25);
    cr_expect(isnan(summary.forgetting));
    cr_expect(isnan(summary.bwt));
    cr_expect(isnan(summary.fwt));
    hs_matrix_deinit(&matrix);
}

Test(matrix, nothing_measured)
{
    HsMatrix matrix = matrix_of(3, NULL);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    expect_all_unknown(&summary);
    cr_expect_eq(hs_matrix_last_row(&matrix), -1);
    hs_matrix_deinit(&matrix);
    hs_matrix_deinit(&matrix); /* twice is harmless */
    cr_expect_eq(hs_matrix_init(&matrix, 0), HS_EINVAL);
}

/* An unmeasured earlier row may have been the lowest. */
Test(matrix, forgetting_needs_every_row)
{
    static const double losses[] = { NAN, 4, 2, 2 };
    HsMatrix matrix = matrix_of(2, losses);
    cr_expect(isnan(hs_matrix_forgetting(&matrix, 0)));
    cr_expect_eq(hs_matrix_summary(&matrix).retained, 2);
    hs_matrix_deinit(&matrix);
}

/* The third task was appended when the first two had been trained, the fourth when the third had. */
Test(matrix, appended_tasks_lack_the_rows_before_them)
{
    static const double losses[] = { 1, 4, NAN, NAN, 2, 2, 6, NAN, 3, 2.5, 1.5, 8, 3, 3, 2, 1 };
    static const double untrained[] = { 7, 7, 7, 9 };
    HsMatrix matrix = matrix_of(4, losses);
    memcpy(matrix.untrained, untrained, sizeof untrained);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect_eq(hs_matrix_last_row(&matrix), 3);
    cr_expect_eq(summary.learned, (1 + 2 + 1.5 + 1) / 4);
    cr_expect_eq(summary.retained, 9.0 / 4);
    cr_expect_eq(summary.forgetting, ((3 - 1) + (3 - 2) + (2 - 1.5)) / 3);
    cr_expect_eq(summary.bwt, ((1 - 3) + (2 - 3) + (1.5 - 2)) / 3);
    cr_expect_eq(summary.fwt, ((7 - 4) + (7 - 6) + (9 - 8)) / 3.0);
    cr_expect_eq(hs_matrix_forgetting(&matrix, 2), 0.5);
    char *text = printed(&matrix, 80);
    cr_expect_not_null(strstr(text, "      -             -"), "%s", text);
    free(text);
    /* So far: the last whole row is the second, although it does not know the task that was appended after it. */
    for (int task = 0; task < 4; task++)
        *hs_matrix_at(&matrix, 2, task) = *hs_matrix_at(&matrix, 3, task) = NAN;
    summary = hs_matrix_summary(&matrix);
    cr_expect_eq(hs_matrix_last_row(&matrix), 1);
    cr_expect_eq(summary.retained, 2);
    cr_expect_eq(summary.forgetting, 1);
    /* From a task's own row on every loss must be known. */
    *hs_matrix_at(&matrix, 2, 2) = NAN;
    *hs_matrix_at(&matrix, 3, 0) = *hs_matrix_at(&matrix, 3, 1) = *hs_matrix_at(&matrix, 3, 2) = 2;
    *hs_matrix_at(&matrix, 3, 3) = 1;
    cr_expect(isnan(hs_matrix_forgetting(&matrix, 2)));
    hs_matrix_deinit(&matrix);
}

Test(matrix, names_are_cut_at_whole_characters)
{
    HsMatrix matrix = matrix_of(1, NULL);
    char name[80];
    memset(name, 'n', 62);
    memcpy(name + 62, "\xc3\xa9tail", 7); /* two bytes that end behind the buffer's last */
    hs_matrix_set_name(&matrix, 0, name);
    cr_expect_eq(strlen(matrix.names[0]), 62u);
    hs_matrix_set_name(&matrix, 0, "short");
    cr_expect_str_eq(matrix.names[0], "short");
    hs_matrix_deinit(&matrix);
}

Test(matrix, the_table_is_exact)
{
    static const double losses[] = { 1, 4, 3, 1.5 };
    HsMatrix matrix = matrix_of(2, losses);
    hs_matrix_set_name(&matrix, 0, "sums");
    hs_matrix_set_name(&matrix, 1, "a very long name of a task");
    matrix.untrained[0] = matrix.untrained[1] = 5;
    matrix.floor[1] = 0.5;
    char *text = printed(&matrix, 66);
    cr_expect_str_eq(text, "held-out loss, nats a token (lower is better)\n"
                           "[ ] the task just trained\n"
                           "\n"
                           "                                   sums  a very long nam~ \n"
                           "untrained                         5.000             5.000 \n"
                           "after sums                       [1.000]            4.000 \n"
                           "after a very long nam~            3.000            [1.500]\n"
                           "floor                                 -             0.500 \n"
                           "\n"
                           "learned               1.250   mean loss on each task right after\n"
                           "                              training on it; lower is better\n"
                           "retained              2.250   mean loss on all tasks trained so\n"
                           "                              far, after the last of them; lower\n"
                           "                              is better\n"
                           "forgetting            2.000   mean rise of an earlier task's loss\n"
                           "                              above the lowest it ever had; lower\n"
                           "                              is better\n"
                           "bwt                  -2.000   backward transfer: how much later\n"
                           "                              tasks helped earlier ones; below 0\n"
                           "                              is forgetting\n"
                           "fwt                   1.000   forward transfer: how much earlier\n"
                           "                              tasks helped a task before its own\n"
                           "                              training\n");
    free(text);
    hs_matrix_deinit(&matrix);
}

/* Two tasks have items, each in one set or both; what is unknown counts nowhere. */
Test(matrix, accuracies_and_bits_a_byte)
{
    static const double losses[] = { 1, 4, 6, 2, 2, 5, 3, 2.5, 1.5 };
    HsMatrix matrix = matrix_of(3, losses);
    HsMatrixSummary summary = hs_matrix_summary(&matrix);
    cr_expect(isnan(summary.bits_per_byte) && isnan(summary.accuracy_seen) && isnan(summary.accuracy_unseen));
    for (int task = 0; task < 3; task++)
        matrix.bytes_per_token[task] = task == 1 ? 2.5 : 1;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, -1, 0) = 0.125;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, 0, 0) = 1;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, 2, 0) = 0.25;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_SEEN, 2, 2) = 0.75;
    *hs_matrix_accuracy(&matrix, HS_ITEMS_UNSEEN, 2, 2) = 0.375;
    summary = hs_matrix_summary(&matrix);
    cr_expect_float_eq(summary.bits_per_byte, (3 + 2.5 / 2.5 + 1.5) / log(2) / 3, 1e-15);
    cr_expect_eq(summary.accuracy_seen, 0.5);
    cr_expect_eq(summary.accuracy_unseen, 0.375);
    char *text = printed(&matrix, 100);
    cr_expect_not_null(
        strstr(text, "exact completions, prompts seen in training\n(share of them; higher is better)\n"));
    cr_expect_not_null(
        strstr(text, "untrained                           0.125                 -                 - \n"));
    cr_expect_not_null(
        strstr(text, "after                               0.250                 -            [0.750]\n"));
    free(text);
    /* No cell is another's. */
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        for (int row = -1; row < 3; row++)
            for (int task = 0; task < 3; task++)
                *hs_matrix_accuracy(&matrix, set, row, task) = 0.5;
    cr_expect_eq(memcmp(matrix.loss, losses, sizeof losses), 0);
    cr_expect_eq(matrix.bytes_per_token[1], 2.5);
    hs_matrix_deinit(&matrix);
}

Test(matrix, joint_training_has_no_forgetting)
{
    static const double joint[] = { NAN, NAN, 1, 2 }, begun[] = { 1, 2, NAN, NAN };
    HsMatrix matrix = matrix_of(2, joint), other = matrix_of(2, begun), single = matrix_of(1, joint + 2);
    cr_expect(hs_matrix_is_joint(&matrix));
    cr_expect(!hs_matrix_is_joint(&other));
    cr_expect(!hs_matrix_is_joint(&single));
    char *text = printed(&matrix, 80);
    cr_expect_not_null(strstr(text, "forgetting             none   all tasks at once\n"));
    cr_expect_null(strstr(text, "nan"));
    free(text);
    text = printed(&other, 80);
    cr_expect_null(strstr(text, "forgetting"));
    free(text);
    hs_matrix_deinit(&matrix);
    hs_matrix_deinit(&other);
    hs_matrix_deinit(&single);
}

/* Characters of a line, as a terminal counts those of one column each. */
static int width_of(const char *line, const char *end)
{
    int width = 0;
    for (; line < end; line++)
        width += ((unsigned char)*line & 0xc0) != 0x80;
    return width;
}

Test(matrix, the_table_fits_and_obeys_no_name)
{
    HsMatrix matrix = matrix_of(12, NULL);
    for (int i = 0; i < 12; i++) {
        hs_matrix_set_name(&matrix, i, i % 2 ? "\x1b[2J\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9" : "t");
        for (int j = 0; j < 12; j++)
            *hs_matrix_at(&matrix, i, j) = j == 3 ? 123.4567 : j == 4 ? 1e9 : 0.5;
        *hs_matrix_accuracy(&matrix, i % 2, i, i) = 0.5;
    }
    for (int columns = 56; columns < 240; columns++) {
        char *text = printed(&matrix, columns);
        cr_expect_null(strchr(text, '\x1b'));
        for (char *line = text; *line; line = strchr(line, '\n') + 1)
            cr_expect_leq(width_of(line, strchr(line, '\n')), columns, "columns %d", columns);
        free(text);
    }
    hs_matrix_deinit(&matrix);
}
