/* SPDX-License-Identifier: MIT
 *
 * What is remembered word for word: the share of exact greedy completions by task, after each task and over training,
 * and a few prompts with what the model made of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/html.h"
#include "runtime/pages/report_internal.h"

static const char *const set_titles[HS_ITEM_SET_COUNT] = {
    [HS_ITEMS_SEEN] = "Prompts of the training text",
    [HS_ITEMS_UNSEEN] = "Prompts that are not in the training text",
};

/* --- the matrix --- */

static bool row_known(const double *row, int count)
{
    for (int i = 0; i < count; i++)
        if (isfinite(row[i]))
            return true;
    return false;
}

/* Rows with a figure, and those between them that have none, so that the diagonal is one; a joint run has no diagonal:
 * its only row is the last, and nothing was just trained there.  Colours as in the map of losses, where the calm end is
 * the good one: here that is 1. */
static HsStatus write_map(const HsMatrix *matrix, int set, FILE *stream)
{
    const size_t tasks = (size_t)matrix->tasks;
    const bool joint = hs_matrix_is_joint(matrix);
    int last = matrix->tasks - 1, rows = 0, diagonal = -1;
    while (last >= -1 && !row_known(hs_matrix_accuracy(matrix, set, last, 0), matrix->tasks))
        last--;
    if (last < -1)
        return HS_OK;
    double *values = malloc((tasks + 1) * tasks * sizeof *values);
    char(*names)[HS_REPORT_NAME_BYTES] = malloc((tasks + 1) * sizeof *names);
    const char **row_names = malloc((tasks + 1) * sizeof *row_names), **columns = malloc(tasks * sizeof *columns);
    const bool there = values && names && row_names && columns;
    for (int row = -1; there && row <= last; row++) {
        const double *figures = hs_matrix_accuracy(matrix, set, row, 0);
        if (!row_known(figures, matrix->tasks) && (joint || rows == 0))
            continue;
        if (row < 0)
            snprintf(names[rows], HS_REPORT_NAME_BYTES, "untrained");
        else
            snprintf(names[rows], HS_REPORT_NAME_BYTES, "after %.63s", matrix->names[row]);
        if (row == 0 && !joint)
            diagonal = rows;
        row_names[rows] = names[rows];
        memcpy(values + (size_t)rows++ * tasks, figures, tasks * sizeof *values);
    }
    for (size_t i = 0; there && i < tasks; i++)
        columns[i] = matrix->names[i];
    if (there)
        hs_html_heat_map(
            stream, &(HsHeatMap){ set_titles[set], row_names, columns, values, rows, matrix->tasks, diagonal, 1, 0 });
    free(columns);
    free(row_names);
    free(names);
    free(values);
    return there ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a map of %zu tasks", tasks);
}

/* --- curves --- */

static HsStatus write_set_curves(const HsReport *report, int set, FILE *stream)
{
    const size_t tasks = (size_t)report->task_count, room = tasks + 1;
    HsChartSeries *series = malloc(room * sizeof *series);
    HsChartMark *marks = malloc((room + 1) * sizeof *marks);
    char(*names)[HS_REPORT_NAME_BYTES] = malloc(2 * (room + 1) * sizeof *names);
    char title[96];
    int count = 0;
    HsStatus status = series && marks && names ? HS_OK : hs_fail(HS_ENOMEM, "no memory for %zu curves", room);
    if (status == HS_OK && report->overall_accuracy[set].count > 0) {
        const HsReportSeries *points = &report->overall_accuracy[set];
        series[count++] = (HsChartSeries){ "exact", points->x, points->y, points->count };
    }
    for (size_t i = 0; status == HS_OK && i < tasks; i++) {
        const HsReportSeries *points = &report->tasks[i].accuracy[set];
        if (!row_known(points->y, (int)points->count))
            continue;
        hs_report_task_name(report, (int)i, names[i]);
        series[count++] = (HsChartSeries){ names[i], points->x, points->y, points->count };
    }
    if (count > 0) {
        snprintf(title, sizeof title, "%s, over training", set_titles[set]);
        const int mark_count = hs_report_task_marks(report, marks, names + room, (int)room);
        hs_html_line_chart(stream, title, "optimizer step", "share of exact completions", series, count, marks,
                           mark_count);
    }
    free(names);
    free(marks);
    free(series);
    return status;
}

static bool any_accuracy(const HsReport *report)
{
    bool any = false;
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        any = any || report->overall_accuracy[set].count > 0;
        for (int i = 0; i < report->task_count; i++) {
            const HsReportSeries *points = &report->tasks[i].accuracy[set];
            any = any || row_known(points->y, (int)points->count);
        }
    }
    return any;
}

HsStatus hs_report_write_accuracy(const HsReport *report, FILE *stream)
{
    if (!any_accuracy(report))
        return HS_OK;
    hs_report_begin_section(stream, "What is remembered word for word",
                            "The share of prompts whose greedy completion is exactly the one in the data: higher is "
                            "better. A completion of the training text can be remembered; one that is not in it has "
                            "to be worked out.");
    for (int set = 0; set < HS_ITEM_SET_COUNT && report->matrix.tasks > 0; set++)
        HS_TRY(write_map(&report->matrix, set, stream));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        HS_TRY(write_set_curves(report, set, stream));
    hs_report_end_section(stream);
    return HS_OK;
}

/* --- samples --- */

/* Lines stay lines, and their ends are seen. */
static void write_text(FILE *stream, const char *text)
{
    char piece[2] = "";
    for (; *text; text++) {
        if (*text == '\n')
            fputs("<span class=\"soft\">\u21b5</span>", stream);
        piece[0] = *text;
        hs_html_text(stream, piece);
    }
}

static void write_cell(FILE *stream, const char *text)
{
    fputs("<td>", stream);
    if (text)
        write_text(stream, text);
    else
        fputs("<span class=\"soft\">\u2013</span>", stream);
    fputs("</td>", stream);
}

HsStatus hs_report_write_samples(const HsReport *report, FILE *stream)
{
    const HsJson *list = hs_json_get(report->samples, "samples");
    if (hs_json_count(list) == 0)
        return HS_OK;
    hs_report_begin_section(stream, "Prompts and their continuations",
                            "What the model makes of a prompt at the end of the run, taking the likeliest token each "
                            "time, and what the data have there, where one completion alone is right.");
    fputs("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"prompts and continuations\">\n"
          "<table class=\"texts\">\n<thead><tr><th scope=\"col\">task</th><th scope=\"col\">prompt</th>"
          "<th scope=\"col\">continuation</th><th scope=\"col\">right</th><th scope=\"col\">exact</th></tr></thead>\n"
          "<tbody>\n",
          stream);
    for (const HsJson *sample = hs_json_first(list); sample; sample = hs_json_next(sample)) {
        const char *expected = hs_json_string(hs_json_get(sample, "expected"));
        fputs("<tr><th scope=\"row\">", stream);
        hs_html_text(stream, hs_json_string(hs_json_get(sample, "task")));
        fputs("</th>", stream);
        write_cell(stream, hs_json_string(hs_json_get(sample, "prompt")));
        write_cell(stream, hs_json_string(hs_json_get(sample, "completion")));
        write_cell(stream, expected);
        write_cell(stream, !expected ? NULL : hs_json_is_true(hs_json_get(sample, "exact")) ? "yes" : "no");
        fputs("</tr>\n", stream);
    }
    fputs("</tbody>\n</table>\n</div>\n", stream);
    hs_report_end_section(stream);
    return HS_OK;
}

void hs_report_begin_section(FILE *stream, const char *title, const char *text)
{
    fprintf(stream, "<section>\n<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", title, text);
}

void hs_report_end_section(FILE *stream)
{
    fputs("</section>\n", stream);
}

/* From the matrix, else the run event, else a number.  (A joint run's event has one "task" for all of them.) */
void hs_report_task_name(const HsReport *report, int task, char name[HS_REPORT_NAME_BYTES])
{
    const HsJson *item = hs_json_first(hs_json_get(report->run, "tasks"));
    for (int i = 0; item && i < task; i++)
        item = hs_json_next(item);
    const char *known =
        task < report->matrix.tasks ? report->matrix.names[task] : hs_json_string(hs_json_get(item, "name"));
    if (known && known[0])
        snprintf(name, HS_REPORT_NAME_BYTES, "%.79s", known);
    else
        snprintf(name, HS_REPORT_NAME_BYTES, "task %d", task + 1);
}

/* Where tasks begin, as marks of at most `room`: by the run event's steps, else after each matrix event; none for a run
 * of one task.  Labels point into `names`. */
int hs_report_task_marks(const HsReport *report, HsChartMark *marks, char (*names)[HS_REPORT_NAME_BYTES], int room)
{
    const HsJson *item = hs_json_first(hs_json_get(report->run, "tasks"));
    int count = 0;
    double start = 0;
    if (room < 2)
        return 0;
    if (item && hs_json_count(hs_json_get(report->run, "tasks")) > 1) {
        for (; item && count < room && start <= (double)report->steps; item = hs_json_next(item)) {
            int64_t steps = 0;
            hs_report_task_name(report, count, names[count]);
            marks[count] = (HsChartMark){ start, names[count] };
            count++;
            if (hs_json_need_integer("tasks", item, "steps", &steps) == HS_OK) /* report_read.c checked it */
                start += (double)steps;
        }
        return count;
    }
    /* Task k + 1 begins where task k's matrix was measured; the first at 0. */
    for (int64_t i = -1; i < report->task_ends.count && count < room; i++) {
        int task = i < 0 ? 0 : (int)report->task_ends.y[i] + 1;
        if (task >= report->matrix.tasks || report->matrix.tasks < 2)
            continue;
        hs_report_task_name(report, task, names[count]);
        marks[count] = (HsChartMark){ i < 0 ? 0 : report->task_ends.x[i], names[count] };
        count++;
    }
    return count > 1 ? count : 0;
}
