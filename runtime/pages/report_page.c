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
#include "runtime/pages/html.h"
#include "runtime/pages/report.h"
#include "runtime/pages/report_internal.h"

enum { NAME_BYTES = HS_REPORT_NAME_BYTES, TENSORS_SHOWN = 20 };

/* --- tasks: their names and where each begins --- */

static int task_count(const HsReport *report)
{
    int named = hs_json_count(hs_json_get(report->run, "tasks"));
    int count = report->matrix.tasks > named ? report->matrix.tasks : named;
    return report->task_count > count ? report->task_count : count;
}

/* Where memory pressure halved the micro-batch, among the `count` marks there are, in the order of steps: a label ends
 * where the next begins.  Returns how many there are then. */
static int add_pressure_marks(const HsReport *report, HsChartMark *marks, char (*names)[NAME_BYTES], int count)
{
    for (int64_t i = 0; i < report->pressures.count; i++, count++) {
        int at = count;
        snprintf(names[count], NAME_BYTES, "micro-batch %.0f", report->pressures.y[i]);
        for (; at > 0 && marks[at - 1].x > report->pressures.x[i]; at--)
            marks[at] = marks[at - 1];
        marks[at] = (HsChartMark){ report->pressures.x[i], names[count] };
    }
    return count;
}

/* --- what ran --- */

static void write_fact(FILE *stream, const char *name, const char *value)
{
    if (!value || !value[0])
        return;
    fprintf(stream, "<div><dt>%s</dt><dd>", name);
    hs_html_text(stream, value);
    fputs("</dd></div>\n", stream);
}

static double last_of(const HsReportSeries *series)
{
    return series->count > 0 ? series->y[series->count - 1] : NAN;
}

static HsStatus write_head(const HsReport *report, FILE *stream)
{
    static const struct {
        const char *key, *label;
    } facts[] = { { "model", "model" },
                  { "device", "device" },
                  { "precision", "precision" },
                  { "strategy", "strategy" },
                  { "processes", "processes" } };
    char text[96], figure[HS_HTML_FIGURE_BYTES];
    const char *name = hs_json_string(hs_json_get(report->run, "name"));
    double total = hs_json_number(hs_json_get(report->run, "total_steps"));
    double parameters = hs_json_number(hs_json_get(report->run, "parameters"));
    fputs("<h1>", stream);
    hs_html_text(stream, name ? name : "Training run");
    fprintf(stream, "</h1>\n<p class=\"soft\">%s</p>\n<section>\n<h2>What ran</h2>\n<dl class=\"facts\">\n",
            report->finished ? "Finished." : "Not finished: what was recorded so far.");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        write_fact(stream, facts[i].label, hs_json_string(hs_json_get(report->run, facts[i].key)));
    if (parameters > 0) {
        snprintf(text, sizeof text, parameters >= 1e6 ? "%.2f million" : "%.0f",
                 parameters >= 1e6 ? parameters / 1e6 : parameters);
        write_fact(stream, "parameters", text);
    }
    snprintf(text, sizeof text, total > 0 ? "%lld of %.0f" : "%lld", (long long)report->steps, total);
    write_fact(stream, "optimizer steps", text);
    if (report->train.count > 0)
        write_fact(stream, "last training loss", hs_html_figure(last_of(&report->train), figure));
    if (report->overall.count > 0)
        write_fact(stream, "last validation loss", hs_html_figure(last_of(&report->overall), figure));
    if (report->overall.count > 0 && !isnan(report->bits_per_byte))
        write_fact(stream, "the same in bits per byte", hs_html_figure(report->bits_per_byte, figure));
    if (report->speed.count > 0) {
        snprintf(text, sizeof text, "%s tokens/s", hs_html_figure(last_of(&report->speed), figure));
        write_fact(stream, "speed at the end", text);
    }
    if (hs_report_memory_bytes(report) > 0)
        write_fact(stream, "memory", hs_html_bytes((double)hs_report_memory_bytes(report), figure));
    write_fact(stream, "changed on the way", report->changes);
    write_fact(stream, "was being forgotten", report->forgotten);
    write_fact(stream, "ended early", report->stops);
    write_fact(stream, "diverged", report->diverged);
    fputs("</dl>\n", stream);
    hs_report_end_section(stream);
    return HS_OK;
}

/* --- the matrix --- */

static void write_summary(const HsMatrix *matrix, FILE *stream)
{
    HsMatrixSummary summary = hs_matrix_summary(matrix);
    char figure[HS_HTML_FIGURE_BYTES];
    fputs("<dl class=\"figures\">\n", stream);
    for (int i = 0; i < hs_matrix_member_count; i++) {
        double value = hs_matrix_member_value(&summary, i);
        const bool none = isnan(value) && hs_matrix_members[i].offset == offsetof(HsMatrixSummary, forgetting) &&
                          hs_matrix_is_joint(matrix);
        if (isnan(value) && !none)
            continue;
        fputs("<div><dt>", stream);
        for (const char *at = hs_matrix_members[i].name; *at; at++)
            fputc(*at == '_' ? ' ' : *at, stream);
        fprintf(stream, "</dt><dd class=\"value\">%s</dd><dd>", none ? "none" : hs_html_figure(value, figure));
        hs_html_text(stream, none ? "trained on all tasks at once" : hs_matrix_members[i].doc);
        fputs("</dd></div>\n", stream);
    }
    for (int task = 0; task < matrix->tasks; task++) {
        const double left = hs_matrix_left(matrix, task);
        if (!matrix->forgets[task] || isnan(left))
            continue;
        fputs("<div><dt>left of ", stream);
        hs_html_text(stream, matrix->names[task]);
        fprintf(
            stream,
            "</dt><dd class=\"value\">%.0f%%</dd><dd>a task that is to be forgotten: 100%% is as well as it was ever "
            "known, 0%% as the untrained model knows it</dd></div>\n",
            100 * left);
    }
    fputs("</dl>\n", stream);
}

static bool any_known(const double *values, int count)
{
    for (int i = 0; i < count; i++) {
        if (isfinite(values[i]))
            return true;
    }
    return false;
}

/* One row of the heat map per row of figures that holds any. */
static HsStatus write_matrix(const HsReport *report, FILE *stream)
{
    const HsMatrix *matrix = &report->matrix;
    size_t tasks = (size_t)matrix->tasks, rows = 0;
    if (tasks == 0)
        return HS_OK;
    double *values = malloc((tasks + 3) * tasks * sizeof *values);
    char(*names)[NAME_BYTES] = malloc((tasks + 3) * sizeof *names);
    const char **row_names = malloc((tasks + 3) * sizeof *row_names);
    const char **columns = malloc(tasks * sizeof *columns);
    HsStatus status = HS_OK;
    if (!values || !names || !row_names || !columns) {
        status = hs_fail(HS_ENOMEM, "no memory to draw a matrix of %zu tasks", tasks);
        goto done;
    }
    int diagonal = -1, measured = matrix->tasks - 1; /* the last row with a figure */
    while (measured >= 0 && !any_known(hs_matrix_at(matrix, measured, 0), matrix->tasks))
        measured--;
    for (size_t i = 0; i < tasks + 3; i++) {
        bool task_row = i > 0 && i <= tasks;
        const double *row = i == 0           ? matrix->untrained
                            : task_row       ? matrix->loss + (i - 1) * tasks
                            : i == tasks + 1 ? matrix->floor
                                             : matrix->joint;
        /* A gap between rows stays, so that the diagonal is one. */
        bool gap = task_row && diagonal >= 0 && (int)i - 1 < measured;
        if (!any_known(row, matrix->tasks) && !gap)
            continue;
        if (task_row && diagonal < 0)
            diagonal = (int)rows - (int)(i - 1); /* where row 0 would be; below 0 when earlier rows are unknown */
        if (task_row)
            snprintf(names[rows], NAME_BYTES, "after %.63s", matrix->names[i - 1]);
        else
            snprintf(names[rows], NAME_BYTES, "%s", i == 0 ? "untrained" : i == tasks + 1 ? "floor" : "joint");
        row_names[rows] = names[rows];
        memcpy(values + rows * tasks, row, tasks * sizeof *row);
        rows++;
    }
    for (size_t i = 0; i < tasks; i++)
        columns[i] = matrix->names[i];
    hs_report_begin_section(
        stream, "What was learned, what was forgotten",
        "Held-out loss on each task (column) after training on each task (row), in nats a token: lower is "
        "better. The outlined cell of a row is the task just trained; what lies left of it shows what "
        "earlier tasks lost or kept.");
    write_summary(matrix, stream);
    hs_html_heat_map(
        stream, &(HsHeatMap){ "Loss by task", row_names, columns, values, (int)rows, (int)tasks, diagonal, NAN, NAN });
    hs_report_end_section(stream);
done:
    free(columns);
    free(row_names);
    free(names);
    free(values);
    return status;
}

/* --- curves --- */

static HsStatus write_curves(const HsReport *report, FILE *stream)
{
    int tasks = task_count(report), curves = 0, mark_count;
    size_t room = (size_t)tasks + 1; /* a curve for each, and one for all */
    const size_t mark_room = room + (size_t)report->pressures.count;
    HsStatus status = HS_OK;
    if (report->train.count == 0 && report->overall.count == 0 && report->task_count == 0)
        return HS_OK;
    HsChartMark *marks = malloc(mark_room * sizeof *marks);
    char(*mark_names)[NAME_BYTES] = malloc(mark_room * sizeof *mark_names);
    char(*names)[NAME_BYTES] = malloc(room * sizeof *names);
    HsChartSeries *series = malloc(room * sizeof *series);
    if (!marks || !mark_names || !names || !series) {
        status = hs_fail(HS_ENOMEM, "no memory to draw the curves of %d tasks", tasks);
        goto done;
    }
    mark_count = hs_report_task_marks(report, marks, mark_names, tasks);
    const char *explanation =
        mark_count > 0 ? "Lower is better. Dashed lines are where tasks begin." : "Nats a token, lower is better.";
    if (report->pressures.count > 0)
        explanation =
            mark_count > 0
                ? "Lower is better. Dashed lines are where tasks begin, and where memory pressure halved the "
                  "micro-batch; the effective batch stayed."
                : "Nats a token, lower is better. Dashed lines are where memory pressure halved the micro-batch; "
                  "the effective batch stayed.";
    hs_report_begin_section(stream, "Loss over training", explanation);
    mark_count = add_pressure_marks(report, marks, mark_names, mark_count);
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
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++) {
        HsChartSeries lines[2];
        int count = 0;
        for (int j = 0; j < 2; j++) {
            const HsReportSeries *points = charts[i].lines[j].points;
            if (points && any_known(points->y, (int)points->count))
                lines[count++] = (HsChartSeries){ charts[i].lines[j].name, points->x, points->y, points->count };
        }
        if (count > 0)
            hs_html_line_chart(stream, charts[i].title, "optimizer step", charts[i].unit, lines, count, marks,
                               mark_count);
    }
    if (report->overall.count > 0) {
        snprintf(names[curves], NAME_BYTES, tasks > 1 ? "all tasks" : "validation");
        series[curves] = (HsChartSeries){ names[curves], report->overall.x, report->overall.y, report->overall.count };
        curves++;
    }
    for (int i = 0; i < report->task_count; i++) {
        const HsReportSeries *points = &report->tasks[i].validation;
        if (points->count == 0)
            continue;
        hs_report_task_name(report, i, names[curves]);
        series[curves] = (HsChartSeries){ names[curves], points->x, points->y, points->count };
        curves++;
    }
    if (curves > 0)
        hs_html_line_chart(stream, tasks > 1 ? "Validation loss by task" : "Validation loss", "optimizer step",
                           "nats a token", series, curves, marks, mark_count);
    hs_report_end_section(stream);
done:
    free(series);
    free(names);
    free(mark_names);
    free(marks);
    return status;
}

/* --- bars --- */

/* Room for `count` bars: names point into text that must stay. */
typedef struct Bars {
    const char **names;
    double *values;
    int count;
} Bars;

static HsStatus make_bars(Bars *bars, int room)
{
    size_t count = (size_t)(room > 0 ? room : 1);
    *bars = (Bars){ malloc(count * sizeof *bars->names), malloc(count * sizeof *bars->values), 0 };
    return bars->names && bars->values ? HS_OK : hs_fail(HS_ENOMEM, "no memory to draw %d bars", room);
}

static void add_bar(Bars *bars, const char *name, double value)
{
    bars->names[bars->count] = name;
    bars->values[bars->count++] = value;
}

static void free_bars(Bars *bars)
{
    free(bars->names);
    free(bars->values);
}

static HsStatus write_forgetting(const HsReport *report, FILE *stream)
{
    int last = report->matrix.tasks > 0 ? hs_matrix_last_row(&report->matrix) : -1;
    Bars bars;
    HsStatus status = make_bars(&bars, report->matrix.tasks);
    for (int task = 0; task < last && status == HS_OK; task++)
        if (!report->matrix.forgets[task])
            add_bar(&bars, report->matrix.names[task], hs_matrix_forgetting(&report->matrix, task));
    if (status == HS_OK && any_known(bars.values, bars.count)) {
        hs_report_begin_section(
            stream, "Forgetting by task",
            "How far each earlier task's loss has risen above the lowest it ever had: lower is better, 0 is "
            "nothing lost.");
        hs_html_bar_chart(stream, "Rise of the loss", "nats", bars.names, bars.values, NULL, bars.count);
        hs_report_end_section(stream);
    }
    free_bars(&bars);
    return status;
}

static HsStatus write_importance(const HsReport *report, FILE *stream)
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
    Bars bars;
    if (hs_json_count(tensors) == 0)
        return HS_OK;
    HsStatus status = make_bars(&bars, TENSORS_SHOWN);
    if (status != HS_OK) {
        free_bars(&bars);
        return status;
    }
    /* The largest shares, by insertion: smaller ones fall off the end. */
    for (const HsJson *tensor = hs_json_first(tensors); tensor; tensor = hs_json_next(tensor)) {
        double share = 100 * hs_json_number(hs_json_get(tensor, "share"));
        int at = bars.count;
        if (at == TENSORS_SHOWN && share <= bars.values[at - 1])
            continue;
        bars.count += at < TENSORS_SHOWN;
        for (at = bars.count - 1; at > 0 && bars.values[at - 1] < share; at--) {
            bars.values[at] = bars.values[at - 1];
            bars.names[at] = bars.names[at - 1];
        }
        bars.values[at] = share;
        bars.names[at] = hs_json_string(hs_json_get(tensor, "name"));
    }
    hs_report_begin_section(stream, "What the penalty protects",
                            "Importance as last measured, and the tensors that hold the largest shares of its sum.");
    fputs("<dl class=\"figures\">\n", stream);
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
        char figure[HS_HTML_FIGURE_BYTES];
        hs_html_figure(hs_json_number(hs_json_get(line, totals[i].key)), figure);
        fprintf(stream, "<div><dt>%s</dt><dd class=\"value\">%s</dd><dd>%s</dd></div>\n", totals[i].label, figure,
                totals[i].doc);
    }
    fputs("</dl>\n", stream);
    hs_html_bar_chart(stream, "Share of all importance", "%", bars.names, bars.values, NULL, bars.count);
    hs_report_end_section(stream);
    free_bars(&bars);
    return HS_OK;
}

static HsStatus write_memory(const HsReport *report, FILE *stream)
{
    const double mebibyte = 1024.0 * 1024.0;
    const HsJson *memory = hs_json_get(report->run, "memory");
    Bars bars;
    HsStatus status = make_bars(&bars, hs_json_count(memory));
    for (const HsJson *part = hs_json_first(memory); part && status == HS_OK; part = hs_json_next(part)) {
        int64_t bytes = 0;
        status = hs_json_need_integer("memory", part, "bytes", &bytes);
        if (bytes > 0)
            add_bar(&bars, hs_json_string(hs_json_get(part, "what")), (double)bytes / mebibyte);
    }
    if (status == HS_OK && bars.count > 0) {
        char total[HS_HTML_FIGURE_BYTES], text[160];
        hs_html_bytes((double)hs_report_memory_bytes(report), total);
        snprintf(text, sizeof text, "Planned before the first step and never more: %s in all.", total);
        hs_report_begin_section(stream, "Memory", text);
        hs_html_bar_chart(stream, "By use", "MiB", bars.names, bars.values, NULL, bars.count);
        hs_report_end_section(stream);
    }
    free_bars(&bars);
    return status;
}

/* --- the page --- */

static HsStatus (*const sections[])(const HsReport *report, FILE *stream) = {
    write_head,       write_matrix,     hs_report_write_accuracy, write_curves, hs_report_write_samples,
    write_forgetting, write_importance, hs_report_write_scales,   write_memory,
};

static HsStatus write_body(FILE *stream, const void *user)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        HS_TRY(sections[i](user, stream));
    return HS_OK;
}

HsStatus hs_report_write(const char *out_dir)
{
    HsReport report;
    char *path = NULL;
    HS_TRY(hs_report_read(out_dir, &report));
    const char *name = hs_json_string(hs_json_get(report.run, "name"));
    HsStatus status = hs_storage_join(out_dir, "report.html", &path);
    if (status == HS_OK)
        status = hs_html_write(path, name ? name : "Training run", write_body, &report);
    free(path);
    hs_report_deinit(&report);
    return status;
}
