/* SPDX-License-Identifier: MIT
 *
 * report.html: a table of sections, each of which draws itself when the run has its data and is left out when not.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/storage.h"
#include "runtime/pages/html_text.h"
#include "runtime/pages/report.h"
#include "runtime/pages/report_internal.h"

enum { TENSORS_SHOWN = 20 };

/* Where memory pressure halved the micro-batch, among the marks there are, in the order of steps: a label ends where the
 * next begins. */
static void add_pressure_marks(const HsReport *report, HsReportMarks *marks, HsPage *page)
{
    for (int64_t i = 0; marks->marks && i < report->pressures.count; i++) {
        const double step = report->pressures.x[i];
        int at = marks->count++;
        for (; at > 0 && marks->marks[at - 1].x > step; at--)
            marks->marks[at] = marks->marks[at - 1];
        marks->marks[at] = (HsChartMark){ step, hs_page_print(page, "micro-batch %.0f", report->pressures.y[i]) };
    }
}

/* --- what ran --- */

static double last_of(const HsReportSeries *series)
{
    return series->count > 0 ? series->y[series->count - 1] : NAN;
}

static void add_fact(HsPage *page, const char *name, const char *value)
{
    hs_page_fact(page, name, "%s", value ? value : "");
}

/* How fast, and how long in all. */
static void add_pace(const HsReport *report, HsPage *page)
{
    const size_t count = (size_t)report->speed.count;
    char figure[HS_HTML_FIGURE_BYTES];
    double *values = hs_page_room(page, count + 1, sizeof *values);
    if (values && count > 0) {
        memcpy(values, report->speed.y, count * sizeof *values);
        const double median = hs_report_median(values, report->speed.count);
        hs_page_fact(page, "speed, median of the records", "%s tokens/s", hs_html_figure(median, figure));
    }
    const double seconds = report->earlier_s + report->latest_s;
    if (seconds >= 120)
        hs_page_fact(page, "time", "%.1f minutes", seconds / 60);
    else if (seconds > 0)
        hs_page_fact(page, "time", "%.1f s", seconds);
}

static void add_head(const HsReport *report, HsPage *page)
{
    static const struct {
        const char *key, *label;
    } facts[] = { { "model", "model" },        { "from", "started from" },   { "adapter", "adapter" },
                  { "device", "device" },      { "precision", "precision" }, { "strategy", "strategy" },
                  { "processes", "processes" } };
    char figure[HS_HTML_FIGURE_BYTES];
    const char *name = hs_json_string(hs_json_get(report->run, "name"));
    const double total = hs_json_number(hs_json_get(report->run, "total_steps"));
    const double parameters = hs_json_number(hs_json_get(report->run, "parameters"));
    hs_page_heading(page, name ? name : "Training run",
                    report->finished ? "Finished." : "Not finished: what was recorded so far.");
    hs_page_bare_section(page, "What ran");
    hs_page_facts(page);
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        add_fact(page, facts[i].label, hs_json_string(hs_json_get(report->run, facts[i].key)));
    if (parameters >= 1e6)
        hs_page_fact(page, "parameters", "%.2f million", parameters / 1e6);
    else if (parameters > 0)
        hs_page_fact(page, "parameters", "%.0f", parameters);
    const double trained = hs_json_number(hs_json_get(report->run, "trained_parameters"));
    if (trained > 0 && trained < parameters)
        hs_page_fact(page, "of these trained", "%.0f (%.3g%%)", trained, 100 * trained / parameters);
    if (total > 0)
        hs_page_fact(page, "optimizer steps", "%lld of %.0f", (long long)report->steps, total);
    else
        hs_page_fact(page, "optimizer steps", "%lld", (long long)report->steps);
    if (report->train.count > 0)
        add_fact(page, "last training loss", hs_html_figure(last_of(&report->train), figure));
    if (report->overall.count > 0)
        add_fact(page, "last validation loss", hs_html_figure(last_of(&report->overall), figure));
    if (report->overall.count > 0 && !isnan(report->bits_per_byte))
        add_fact(page, "the same in bits per byte", hs_html_figure(report->bits_per_byte, figure));
    add_pace(report, page);
    if (hs_report_memory_bytes(report) > 0)
        add_fact(page, "memory", hs_html_bytes((double)hs_report_memory_bytes(report), figure));
    add_fact(page, "changed on the way", report->changes);
    add_fact(page, "was being forgotten", report->forgotten);
    add_fact(page, "ended early", report->stops);
    add_fact(page, "diverged", report->diverged);
}

/* --- the matrix --- */

/* The figures that lead, or the others; whether there is one. */
static bool add_members(const HsMatrix *matrix, bool leads, HsPage *page)
{
    const HsMatrixSummary summary = hs_matrix_summary(matrix);
    char figure[HS_HTML_FIGURE_BYTES];
    bool found = false;
    for (int i = 0; i < hs_matrix_member_count; i++) {
        const HsMatrixMember *member = &hs_matrix_members[i];
        const double value = hs_matrix_member_value(&summary, i);
        const bool none =
            isnan(value) && member->offset == offsetof(HsMatrixSummary, forgetting) && hs_matrix_is_joint(matrix);
        if (member->leads != leads || (isnan(value) && !none))
            continue;
        if (!found && !leads)
            hs_page_fold(page, "More figures");
        if (!found)
            hs_page_figures(page);
        found = true;
        if (none)
            hs_page_figure(page, hs_page_words(page, member->name), "none", "trained on all tasks at once");
        else
            hs_page_figure(page, hs_page_words(page, member->name), hs_html_figure(value, figure), member->doc);
    }
    return found;
}

static void add_summary(const HsMatrix *matrix, HsPage *page)
{
    bool found = add_members(matrix, true, page);
    for (int task = 0; task < matrix->tasks; task++) {
        const double left = hs_matrix_left(matrix, task);
        if (!matrix->forgets[task] || isnan(left))
            continue;
        if (!found)
            hs_page_figures(page);
        found = true;
        hs_page_figure(page, hs_page_print(page, "left of %s", matrix->names[task]),
                       hs_page_print(page, "%.0f%%", 100 * left),
                       "a task that is to be forgotten: 100% is as well as it was ever known, 0% as the untrained "
                       "model knows it");
    }
}

static void add_matrix(const HsReport *report, HsPage *page)
{
    const HsMatrix *matrix = &report->matrix;
    const size_t tasks = (size_t)matrix->tasks;
    if (tasks == 0)
        return;
    double *values = hs_page_room(page, (tasks + 3) * tasks, sizeof *values);
    const char **names = hs_page_room(page, tasks + 3, sizeof *names);
    if (!values || !names)
        return;
    int rows = 0, diagonal = -1, measured = matrix->tasks - 1; /* the last row with a figure */
    while (measured >= 0 && !hs_report_any_known(hs_matrix_at(matrix, measured, 0), matrix->tasks))
        measured--;
    for (size_t i = 0; i < tasks + 3; i++) {
        const bool task_row = i > 0 && i <= tasks;
        const double *row = i == 0           ? matrix->untrained
                            : task_row       ? matrix->loss + (i - 1) * tasks
                            : i == tasks + 1 ? matrix->floor
                                             : matrix->joint;
        /* A gap between rows stays, so that the diagonal is one. */
        const bool gap = task_row && diagonal >= 0 && (int)i - 1 < measured;
        if (!hs_report_any_known(row, matrix->tasks) && !gap)
            continue;
        if (task_row && diagonal < 0)
            diagonal = rows - (int)(i - 1); /* where row 0 would be; below 0 when earlier rows are unknown */
        names[rows] = task_row         ? hs_page_print(page, "after %.63s", matrix->names[i - 1])
                      : i == 0         ? "untrained"
                      : i == tasks + 1 ? "floor"
                                       : "joint";
        memcpy(values + (size_t)rows++ * tasks, row, tasks * sizeof *row);
    }
    hs_page_section(page, "What was learned, what was forgotten",
                    "Held-out loss on each task (column) after training on each task (row), in nats a token: lower is "
                    "better. The outlined cell of a row is the task just trained; what lies left of it shows what "
                    "earlier tasks lost or kept.");
    add_summary(matrix, page);
    hs_page_heat_map(page, &(HsHeatMap){ "Loss by task", names, hs_report_columns(matrix, page), values, rows,
                                         matrix->tasks, diagonal, NAN, NAN });
    add_members(matrix, false, page);
}

/* --- curves --- */

/* A curve for each task of which there are points, and one of all. */
static void add_validation(const HsReport *report, const HsReportMarks *marks, HsPage *page)
{
    const int tasks = hs_report_task_count(report);
    HsChartSeries *series = hs_page_room(page, (size_t)tasks + 1, sizeof *series);
    int count = 0;
    if (!series)
        return;
    if (report->overall.count > 0)
        series[count++] = hs_report_curve(tasks > 1 ? "all tasks" : "validation", &report->overall);
    for (int i = 0; i < report->task_count; i++)
        if (report->tasks[i].validation.count > 0)
            series[count++] = hs_report_curve(hs_report_task_name(report, i, page), &report->tasks[i].validation);
    if (count > 0)
        hs_page_lines(page, &(HsLineChart){ tasks > 1 ? "Validation loss by task" : "Validation loss", "optimizer step",
                                            "nats a token", series, count, marks->marks, marks->count });
}

static void add_curves(const HsReport *report, HsPage *page)
{
    const struct {
        const char *title, *unit;
        struct {
            const char *name;
            const HsReportSeries *points;
        } lines[2];
    } charts[] = {
        { "Training loss", "nats a token", { { "training", &report->train }, { "replayed", &report->replay } } },
        { "Distillation", "added to the loss of a compared token", { { "distillation", &report->distillation } } },
        { "Penalty", "(strength / 2) x sum of importance x squared distance", { { "penalty", &report->penalty } } },
    };
    static const char *const explanations[2][2] = {
        /* by whether tasks begin, and whether memory pressure halved the micro-batch */
        { "Nats a token, lower is better.",
          "Nats a token, lower is better. Dashed lines are where memory pressure halved the micro-batch; the effective "
          "batch stayed." },
        { "Lower is better. Dashed lines are where tasks begin.",
          "Lower is better. Dashed lines are where tasks begin, and where memory pressure halved the micro-batch; the "
          "effective batch stayed." },
    };
    if (report->train.count == 0 && report->overall.count == 0 && report->task_count == 0)
        return;
    HsReportMarks marks = hs_report_task_marks(report, page);
    const bool tasks = marks.count > 0, pressure = report->pressures.count > 0;
    add_pressure_marks(report, &marks, page);
    hs_page_section(page, "Loss over training", "%s", explanations[tasks][pressure]);
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        HsChartSeries lines[2];
        int count = 0;
        for (int j = 0; j < 2; j++) {
            const HsReportSeries *points = charts[i].lines[j].points;
            if (points && hs_report_any_known(points->y, points->count))
                lines[count++] = hs_report_curve(charts[i].lines[j].name, points);
        }
        if (count > 0)
            hs_page_lines(page, &(HsLineChart){ charts[i].title, "optimizer step", charts[i].unit, lines, count,
                                                marks.marks, marks.count });
    }
    add_validation(report, &marks, page);
}

/* --- bars --- */

static void add_forgetting(const HsReport *report, HsPage *page)
{
    const HsMatrix *matrix = &report->matrix;
    const int last = matrix->tasks > 0 ? hs_matrix_last_row(matrix) : -1;
    const char **names = hs_page_room(page, (size_t)matrix->tasks, sizeof *names);
    double *values = hs_page_room(page, (size_t)matrix->tasks, sizeof *values);
    int count = 0;
    for (int task = 0; names && values && task < last; task++)
        if (!matrix->forgets[task]) {
            names[count] = matrix->names[task];
            values[count++] = hs_matrix_forgetting(matrix, task);
        }
    if (!hs_report_any_known(values, count))
        return;
    hs_page_section(page, "Forgetting by task",
                    "How far each earlier task's loss has risen above the lowest it ever had: lower is better, 0 is "
                    "nothing lost.");
    hs_page_bars(page, &(HsBarChart){ "Rise of the loss", "nats", names, values, NULL, count });
}

static void add_importance(const HsReport *report, HsPage *page)
{
    const HsJson *line = report->importance, *tensors = hs_json_get(line, "tensors");
    static const struct {
        const char *key, *label, *doc;
    } totals[] = {
        { "strength", "strength", "lambda: what the penalty is multiplied by" },
        { "mean", "mean", "importance of an average parameter" },
        { "maximum", "maximum", "importance of the most important one" },
        { "strength_mean", "strength x mean", "how stiffly an average parameter is held" },
        { "rate_strength_maximum", "rate x strength x maximum", "above 2 plain gradient descent diverges" },
    };
    const char *names[TENSORS_SHOWN];
    double values[TENSORS_SHOWN];
    char figure[HS_HTML_FIGURE_BYTES];
    int count = 0;
    if (hs_json_count(tensors) == 0)
        return;
    /* The largest shares, by insertion: smaller ones fall off the end. */
    for (const HsJson *tensor = hs_json_first(tensors); tensor; tensor = hs_json_next(tensor)) {
        const double share = 100 * hs_json_number(hs_json_get(tensor, "share"));
        if (count == TENSORS_SHOWN && share <= values[count - 1])
            continue;
        count += count < TENSORS_SHOWN;
        int at = count - 1;
        for (; at > 0 && values[at - 1] < share; at--) {
            values[at] = values[at - 1];
            names[at] = names[at - 1];
        }
        values[at] = share;
        names[at] = hs_json_string(hs_json_get(tensor, "name"));
    }
    hs_page_section(page, "What the penalty protects",
                    "Importance as last measured, and the tensors that hold the largest shares of its sum.");
    hs_page_fold(page, "Figures and tensors");
    hs_page_figures(page);
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        hs_page_figure(page, totals[i].label, hs_html_figure(hs_json_number(hs_json_get(line, totals[i].key)), figure),
                       totals[i].doc);
    hs_page_bars(page, &(HsBarChart){ "Share of all importance", "%", names, values, NULL, count });
}

static void add_memory(const HsReport *report, HsPage *page)
{
    const HsJson *memory = hs_json_get(report->run, "memory");
    const size_t parts = (size_t)hs_json_count(memory);
    const char **names = hs_page_room(page, parts, sizeof *names);
    double *values = hs_page_room(page, parts, sizeof *values);
    char total[HS_HTML_FIGURE_BYTES];
    int count = 0;
    for (const HsJson *part = hs_json_first(memory); names && values && part; part = hs_json_next(part)) {
        int64_t bytes = 0;
        if (hs_json_need_integer("memory", part, "bytes", &bytes) != HS_OK || bytes <= 0) /* report_read.c checked it */
            continue;
        names[count] = hs_json_string(hs_json_get(part, "what"));
        values[count++] = (double)bytes / (1024.0 * 1024.0);
    }
    if (count == 0)
        return;
    hs_page_section(page, "Memory", "Planned before the first step and never more: %s in all.",
                    hs_html_bytes((double)hs_report_memory_bytes(report), total));
    hs_page_fold(page, "By use");
    hs_page_bars(page, &(HsBarChart){ "By use", "MiB", names, values, NULL, count });
}

/* --- the page --- */

static void (*const sections[])(const HsReport *report, HsPage *page) = {
    add_head,       add_matrix,     hs_report_add_accuracy, add_curves, hs_report_add_sources, hs_report_add_samples,
    add_forgetting, add_importance, hs_report_add_scales,   add_memory,
};

static HsStatus fill(HsPage *page, const void *user)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        sections[i](user, page);
    return HS_OK;
}

static const char *title_of(const HsReport *report)
{
    const char *name = hs_json_string(hs_json_get(report->run, "name"));
    return name ? name : "Training run";
}

HsStatus hs_report_print_on(FILE *stream, const char *out_dir, bool *ended)
{
    HsReport report;
    HS_TRY(hs_report_read(out_dir, &report));
    const HsStatus status = hs_page_print_on(stream, title_of(&report), fill, &report);
    *ended = report.finished || report.diverged[0] != '\0';
    hs_report_deinit(&report);
    return status;
}

HsStatus hs_report_write(const char *out_dir)
{
    HsReport report;
    char *path = NULL;
    HS_TRY(hs_report_read(out_dir, &report));
    HsStatus status = hs_storage_join(out_dir, "report.html", &path);
    if (status == HS_OK)
        status = hs_page_write(path, title_of(&report), fill, &report);
    free(path);
    hs_report_deinit(&report);
    return status;
}
