/* SPDX-License-Identifier: MIT
 *
 * What is remembered word for word: the share of exact greedy completions by task, after each task and over training,
 * and a few prompts with what the model made of them.
 */
#include <math.h>
#include <string.h>

#include "runtime/pages/report_internal.h"

static const char *const set_titles[HS_ITEM_SET_COUNT] = {
    [HS_ITEMS_SEEN] = "Prompts of the training text",
    [HS_ITEMS_UNSEEN] = "Prompts that are not in the training text",
};

/* --- the matrix --- */

/* Rows with a figure, and those between them that have none, so that the diagonal is one; a joint run has no diagonal:
 * its only row is the last, and nothing was just trained there.  Colours as in the map of losses, where the calm end is
 * the good one: here that is 1. */
static void add_map(const HsMatrix *matrix, int set, HsPage *page)
{
    const size_t tasks = (size_t)matrix->tasks;
    const bool joint = hs_matrix_is_joint(matrix);
    int last = matrix->tasks - 1, rows = 0, diagonal = -1;
    while (last >= -1 && !hs_report_any_known(hs_matrix_accuracy(matrix, set, last, 0), matrix->tasks))
        last--;
    double *values = hs_page_room(page, (tasks + 1) * tasks, sizeof *values);
    const char **names = hs_page_room(page, tasks + 1, sizeof *names);
    if (last < -1 || !values || !names)
        return;
    for (int row = -1; row <= last; row++) {
        const double *figures = hs_matrix_accuracy(matrix, set, row, 0);
        if (!hs_report_any_known(figures, matrix->tasks) && (joint || rows == 0))
            continue;
        if (row == 0 && !joint)
            diagonal = rows;
        names[rows] = row < 0 ? "untrained" : hs_page_print(page, "after %.63s", matrix->names[row]);
        memcpy(values + (size_t)rows++ * tasks, figures, tasks * sizeof *values);
    }
    hs_page_heat_map(page, &(HsHeatMap){ set_titles[set], names, hs_report_columns(matrix, page), values, rows,
                                         matrix->tasks, diagonal, 1, 0 });
}

/* --- curves --- */

static void add_set_curves(const HsReport *report, int set, HsPage *page)
{
    HsChartSeries *series = hs_page_room(page, (size_t)report->task_count + 1, sizeof *series);
    int count = 0;
    if (!series)
        return;
    if (report->overall_accuracy[set].count > 0)
        series[count++] = hs_report_curve("exact", &report->overall_accuracy[set]);
    for (int i = 0; i < report->task_count; i++) {
        const HsReportSeries *points = &report->tasks[i].accuracy[set];
        if (hs_report_any_known(points->y, points->count))
            series[count++] = hs_report_curve(hs_report_task_name(report, i, page), points);
    }
    if (count == 0)
        return;
    const HsReportMarks marks = hs_report_task_marks(report, page);
    hs_page_lines(page, &(HsLineChart){ hs_page_print(page, "%s, over training", set_titles[set]), "optimizer step",
                                        "share of exact completions", series, count, marks.marks, marks.count });
}

static bool any_accuracy(const HsReport *report)
{
    bool any = false;
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        any = any || report->overall_accuracy[set].count > 0;
        for (int i = 0; i < report->task_count; i++) {
            const HsReportSeries *points = &report->tasks[i].accuracy[set];
            any = any || hs_report_any_known(points->y, points->count);
        }
    }
    return any;
}

void hs_report_add_accuracy(const HsReport *report, HsPage *page)
{
    if (!any_accuracy(report))
        return;
    hs_page_section(
        page, "What is remembered word for word",
        "The share of prompts with a greedy completion that is exactly the one in the data: higher is better. A "
        "completion of the training text can be remembered; one that is not in it has to be worked out.");
    for (int set = 0; set < HS_ITEM_SET_COUNT && report->matrix.tasks > 0; set++)
        add_map(&report->matrix, set, page);
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        add_set_curves(report, set, page);
}

/* --- samples --- */

static void add_text(HsPage *page, const char *text)
{
    hs_page_cell(page, "%s", text ? text : "\u2013");
}

void hs_report_add_samples(const HsReport *report, HsPage *page)
{
    static const char *const titles[] = { "task", "prompt", "continuation", "right", "exact" };
    const HsJson *list = hs_json_get(report->samples, "samples");
    if (hs_json_count(list) == 0)
        return;
    hs_page_section(page, "Prompts and their continuations",
                    "What the model makes of a prompt at the end of the run, taking the likeliest token each time, and "
                    "what the data have there, where one completion alone is right.");
    hs_page_table_of_texts(page, "prompts and continuations");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (const HsJson *sample = hs_json_first(list); sample; sample = hs_json_next(sample)) {
        const char *expected = hs_json_string(hs_json_get(sample, "expected"));
        hs_page_row(page, hs_json_string(hs_json_get(sample, "task")));
        add_text(page, hs_json_string(hs_json_get(sample, "prompt")));
        add_text(page, hs_json_string(hs_json_get(sample, "completion")));
        add_text(page, expected);
        add_text(page, !expected ? NULL : hs_json_is_true(hs_json_get(sample, "exact")) ? "yes" : "no");
    }
}

/* --- sources of a mixture --- */

void hs_report_add_sources(const HsReport *report, HsPage *page)
{
    static const char *const titles[] = { "source", "share", "epochs", "validation loss" };
    const HsJson *list = hs_json_get(report->sources, "sources");
    if (hs_json_count(list) == 0)
        return;
    hs_page_section(
        page, "Sources",
        "Of the mixture of task %s, as last evaluated: each source's share of the samples so far, how often "
        "they went through it, and its own validation loss in nats a token.",
        hs_json_string(hs_json_get(report->sources, "name")));
    hs_page_table(page, "sources of the mixture");
    hs_page_columns(page, titles, sizeof titles / sizeof *titles);
    for (const HsJson *source = hs_json_first(list); source; source = hs_json_next(source)) {
        const HsJson *loss = hs_json_get(source, "val_loss");
        hs_page_row(page, hs_json_string(hs_json_get(source, "name")));
        hs_page_real(page, "%.1f%%", 100 * hs_json_number(hs_json_get(source, "share")));
        hs_page_real(page, "%.2f", hs_json_number(hs_json_get(source, "epochs")));
        hs_page_real(page, "%.4f", hs_json_is_number(loss) ? hs_json_number(loss) : (double)NAN);
    }
}
