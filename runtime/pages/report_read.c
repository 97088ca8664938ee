/* SPDX-License-Identifier: MIT
 *
 * Reads run.json, where there is one, and metrics.jsonl.  A table says what reads which event; other events are
 * skipped, so that a file may hold more than this version draws.  What is drawn is checked: a broken line is an error
 * with its number, never half a report.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/array.h"
#include "kernels/base/memory.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"
#include "runtime/pages/report.h"
#include "runtime/pages/report_internal.h"
#include "runtime/record/matrix_json.h"

static const int64_t bytes_most = (int64_t)1 << 50; /* of one part of memory: sums of parts stay far from overflow */

/* A step's members, and the curve that each extends. */
static const struct {
    const char *member;
    size_t offset; /* of the series in HsReport */
} curves[] = {
    { "loss", offsetof(HsReport, train) },
    { "replay_loss", offsetof(HsReport, replay) },
    { "distillation", offsetof(HsReport, distillation) },
    { "penalty", offsetof(HsReport, penalty) },
    { "tokens_per_second", offsetof(HsReport, speed) },
};

static HsStatus add_point(HsReportSeries *series, double x, double y)
{
    HS_TRY(hs_array_grow(&series->x, sizeof *series->x, (size_t)series->count + 1, &series->x_capacity));
    HS_TRY(hs_array_grow(&series->y, sizeof *series->y, (size_t)series->count + 1, &series->y_capacity));
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return HS_OK;
}

/* Absent: false.  null is a number that was not finite: a gap in the curve. */
static HsStatus optional_real(const char *name, const HsJson *line, const char *key, bool *there, double *value)
{
    const HsJson *member = hs_json_get(line, key);
    *there = member != NULL;
    *value = hs_json_number(member);
    if (hs_json_is_string(member) || hs_json_is_array(member) || hs_json_is_object(member))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be a number", name, key);
    return HS_OK;
}

static HsStatus need_count(const char *name, const HsJson *object, const char *key, int64_t most, int64_t *value)
{
    HS_TRY(hs_json_need_integer(name, object, key, value));
    if (*value < 0 || *value > most)
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be from 0 to %lld (got %lld)", name, key, (long long)most,
                       (long long)*value);
    return HS_OK;
}

/* `key`: absent, or an array of objects, each with a string and a count. */
static HsStatus check_parts(const char *name, const HsJson *line, const char *key, const char *text_key,
                            const char *count_key, int64_t most)
{
    const HsJson *parts = hs_json_get(line, key);
    if (parts && (!hs_json_is_array(parts) || hs_json_count(parts) > HS_MATRIX_TASKS_MOST))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be an array of at most %d objects", name, key,
                       HS_MATRIX_TASKS_MOST);
    for (const HsJson *part = hs_json_first(parts); part; part = hs_json_next(part)) {
        const char *text;
        int64_t count;
        HS_TRY(hs_json_need_string(name, part, text_key, &text));
        HS_TRY(need_count(name, part, count_key, most, &count));
    }
    return HS_OK;
}

/* --- one reader per event --- */

static HsStatus read_run(HsReport *report, const char *name, HsJson *line)
{
    (void)report;
    HS_TRY(check_parts(name, line, "memory", "what", "bytes", bytes_most));
    return check_parts(name, line, "tasks", "name", "steps", INT64_MAX);
}

static HsStatus read_importance(HsReport *report, const char *name, HsJson *line)
{
    (void)report;
    static const char *const totals[] = { "strength", "maximum", "mean", "strength_mean", "rate_strength_maximum" };
    const HsJson *tensors = hs_json_get(line, "tensors");
    double value;
    for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
        HS_TRY(hs_json_need_real(name, line, totals[i], &value));
    if (!hs_json_is_array(tensors))
        return hs_fail(HS_EFORMAT, "%s: member `tensors` must be an array", name);
    for (const HsJson *tensor = hs_json_first(tensors); tensor; tensor = hs_json_next(tensor)) {
        const char *text;
        HS_TRY(hs_json_need_string(name, tensor, "name", &text));
        HS_TRY(hs_json_need_real(name, tensor, "share", &value));
    }
    return HS_OK;
}

/* Makes room for the curves of tasks 0 .. count-1. */
static HsStatus need_tasks(HsReport *report, int64_t count)
{
    if (count <= report->task_count)
        return HS_OK;
    size_t old = (size_t)report->task_count;
    HsReportTask *larger = realloc(report->tasks, (size_t)count * sizeof *larger);
    if (!larger)
        return hs_fail(HS_ENOMEM, "no memory for the curves of %lld tasks", (long long)count);
    memset(larger + old, 0, ((size_t)count - old) * sizeof *larger);
    report->tasks = larger;
    report->task_count = (int)count;
    return HS_OK;
}

/* accuracy: of a set of items each, NULL: not known; what is unknown makes no point. */
static HsStatus add_task_points(HsReport *report, int task, double loss, const double *const *accuracy)
{
    HsReportTask *curves_of_task = &report->tasks[task];
    HS_TRY(add_point(&curves_of_task->validation, (double)report->steps, loss));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        if (accuracy[set] && !isnan(*accuracy[set]))
            HS_TRY(add_point(&curves_of_task->accuracy[set], (double)report->steps, *accuracy[set]));
    return HS_OK;
}

/* The row measured last extends every task's curve: between its own evaluations a task's loss is seen only here. */
static HsStatus read_matrix(HsReport *report, const char *name, HsJson *line)
{
    HsMatrix matrix;
    HS_TRY(hs_matrix_from_json(name, line, &matrix));
    hs_matrix_deinit(&report->matrix);
    report->matrix = matrix;
    const double *row = matrix.untrained;
    int64_t task = -1;
    if (hs_json_get(line, "task")) {
        HS_TRY(need_count(name, line, "task", matrix.tasks - 1, &task));
        HsReportSeries *ends = &report->task_ends;
        if (ends->count > 0 && (int64_t)ends->y[ends->count - 1] == task) /* measured again, with an appended task */
            ends->count--;
        HS_TRY(add_point(ends, (double)report->steps, (double)task));
        row = hs_matrix_at(&matrix, (int)task, 0);
    }
    HS_TRY(need_tasks(report, matrix.tasks));
    for (int i = 0; i < matrix.tasks; i++) {
        const double *accuracy[HS_ITEM_SET_COUNT];
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            accuracy[set] = hs_matrix_accuracy(&matrix, set, (int)task, i);
        HS_TRY(add_task_points(report, i, row[i], accuracy));
    }
    return HS_OK;
}

static const char *const accuracy_keys[HS_ITEM_SET_COUNT] = { "accuracy_seen", "accuracy_unseen" };

/* Number `index` of the line's array `key`: NAN where it is null, or the array is not there. */
static HsStatus need_element(const char *name, const HsJson *line, const char *key, int index, int count, double *value)
{
    const HsJson *array = hs_json_get(line, key), *item = hs_json_first(array);
    if (!hs_json_is_array(array) || hs_json_count(array) != count)
        return hs_fail(HS_EFORMAT, "%s: member `%s` must be an array of %d numbers", name, key, count);
    for (int i = 0; i < index; i++)
        item = hs_json_next(item);
    if (!hs_json_is_number(item) && !hs_json_is_null(item))
        return hs_fail(HS_EFORMAT, "%s: member `%s` must hold numbers or null", name, key);
    *value = hs_json_number(item);
    return HS_OK;
}

/* Every task in the middle of training. */
static HsStatus read_tasks(HsReport *report, const char *name, HsJson *line)
{
    const HsJson *names = hs_json_get(line, "names");
    const int count = hs_json_is_array(names) ? hs_json_count(names) : 0;
    if (count < 1 || count > HS_MATRIX_TASKS_MOST)
        return hs_fail(HS_EFORMAT, "%s: member `names` must be an array of 1 to %d strings", name,
                       HS_MATRIX_TASKS_MOST);
    HS_TRY(need_tasks(report, count));
    for (int i = 0; i < count; i++) {
        double loss, values[HS_ITEM_SET_COUNT];
        const double *accuracy[HS_ITEM_SET_COUNT];
        HS_TRY(need_element(name, line, "losses", i, count, &loss));
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
            HS_TRY(need_element(name, line, accuracy_keys[set], i, count, &values[set]));
            accuracy[set] = &values[set];
        }
        HS_TRY(add_task_points(report, i, loss, accuracy));
    }
    return HS_OK;
}

static HsStatus read_samples(HsReport *report, const char *name, HsJson *line)
{
    (void)report;
    static const char *const texts[] = { "task", "prompt", "completion" };
    const HsJson *list = hs_json_get(line, "samples");
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: member `samples` must be an array", name);
    for (const HsJson *sample = hs_json_first(list); sample; sample = hs_json_next(sample)) {
        const char *text;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
            HS_TRY(hs_json_need_string(name, sample, texts[i], &text));
        if (hs_json_get(sample, "expected"))
            HS_TRY(hs_json_need_string(name, sample, "expected", &text));
    }
    return HS_OK;
}

static HsStatus read_sources(HsReport *report, const char *name, HsJson *line)
{
    (void)report;
    const char *text;
    const HsJson *list = hs_json_get(line, "sources");
    HS_TRY(hs_json_need_string(name, line, "name", &text));
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: member `sources` must be an array", name);
    for (const HsJson *source = hs_json_first(list); source; source = hs_json_next(source)) {
        double value;
        HS_TRY(hs_json_need_string(name, source, "name", &text));
        HS_TRY(hs_json_need_real(name, source, "share", &value));
        HS_TRY(hs_json_need_real(name, source, "epochs", &value));
    }
    return HS_OK;
}

/* The curves of a role, made where the file names it first. */
static HsStatus find_role(HsReport *report, const char *name, const char *role, HsReportRole **found)
{
    for (int i = 0; i < report->role_count; i++)
        if (strcmp(report->roles[i].name, role) == 0) {
            *found = &report->roles[i];
            return HS_OK;
        }
    if (report->role_count == HS_SCALING_ROLES || strlen(role) >= HS_REPORT_ROLE_BYTES)
        return hs_fail(HS_EFORMAT, "%s: a run has at most %d roles, with names of fewer than %d bytes (got `%.60s`)",
                       name, HS_SCALING_ROLES, HS_REPORT_ROLE_BYTES, role);
    *found = &report->roles[report->role_count++];
    snprintf((*found)->name, sizeof(*found)->name, "%s", role);
    return HS_OK;
}

static HsStatus read_role(HsReport *report, const char *name, const HsJson *role)
{
    static const char *const scales[] = { "scale_lowest", "scale_highest", "layer_lost" };
    const char *text;
    double amax, saturated, zeroed, value;
    bool there;
    HsReportRole *curves_of_role = NULL;
    HS_TRY(hs_json_need_string(name, role, "role", &text));
    HS_TRY(hs_json_need_real(name, role, "saturated", &saturated));
    HS_TRY(hs_json_need_real(name, role, "zeroed", &zeroed));
    HS_TRY(optional_real(name, role, "amax", &there, &amax));
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        HS_TRY(optional_real(name, role, scales[i], &there, &value));
    HS_TRY(find_role(report, name, text, &curves_of_role));
    if (hs_json_get(role, "layer"))
        HS_TRY(hs_json_need_string(name, role, "layer", &text));
    const double step = (double)report->steps;
    HS_TRY(add_point(&curves_of_role->exponent, step, amax > 0 ? log2(amax) : NAN));
    HS_TRY(add_point(&curves_of_role->saturated, step, 100 * saturated));
    return add_point(&curves_of_role->zeroed, step, 100 * zeroed);
}

static HsStatus read_scales(HsReport *report, const char *name, HsJson *line)
{
    const HsJson *list = hs_json_get(line, "roles");
    if (!hs_json_is_array(list))
        return hs_fail(HS_EFORMAT, "%s: member `roles` must be an array", name);
    for (const HsJson *role = hs_json_first(list); role; role = hs_json_next(role))
        HS_TRY(read_role(report, name, role));
    return HS_OK;
}

static HsStatus read_step(HsReport *report, const char *name, HsJson *line)
{
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++) {
        bool there;
        double value;
        HS_TRY(optional_real(name, line, curves[i].member, &there, &value));
        if (there)
            HS_TRY(
                add_point((HsReportSeries *)(void *)((char *)report + curves[i].offset), (double)report->steps, value));
    }
    return HS_OK;
}

static HsStatus read_eval(HsReport *report, const char *name, HsJson *line)
{
    bool there;
    double value, values[HS_ITEM_SET_COUNT];
    const double *accuracy[HS_ITEM_SET_COUNT];
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        HS_TRY(optional_real(name, line, accuracy_keys[set], &there, &values[set]));
        accuracy[set] = there ? &values[set] : NULL;
    }
    HS_TRY(optional_real(name, line, "bits_per_byte", &there, &report->bits_per_byte));
    HS_TRY(optional_real(name, line, "val_loss", &there, &value));
    if (!there) /* it was not a number: a gap */
        value = NAN;
    /* A run that had one task when it was evaluated names none. */
    const bool several = hs_json_count(hs_json_get(report->run, "tasks")) > 1;
    if (!hs_json_get(line, "task") && !several) {
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            if (accuracy[set])
                HS_TRY(add_point(&report->overall_accuracy[set], (double)report->steps, values[set]));
        return add_point(&report->overall, (double)report->steps, value);
    }
    int64_t task = 0;
    if (hs_json_get(line, "task"))
        HS_TRY(need_count(name, line, "task", HS_MATRIX_TASKS_MOST - 1, &task));
    HS_TRY(need_tasks(report, task + 1));
    return add_task_points(report, (int)task, value, accuracy);
}

static HsStatus read_pressure(HsReport *report, const char *name, HsJson *line)
{
    int64_t micro_batch;
    HS_TRY(need_count(name, line, "micro_batch", INT64_MAX, &micro_batch));
    return add_point(&report->pressures, (double)report->steps, (double)micro_batch);
}

static HsStatus read_changed(HsReport *report, const char *name, HsJson *line)
{
    const char *keys = NULL;
    HS_TRY(hs_json_need_string(name, line, "keys", &keys));
    const size_t used = strlen(report->changes);
    snprintf(report->changes + used, sizeof report->changes - used, "%sat step %lld: %s", used > 0 ? "; " : "",
             (long long)report->steps, keys);
    return HS_OK;
}

static HsStatus read_forgetting(HsReport *report, const char *name, HsJson *line)
{
    const char *task = NULL;
    double left;
    HS_TRY(hs_json_need_string(name, line, "name", &task));
    HS_TRY(hs_json_need_real(name, line, "left", &left));
    const size_t used = strlen(report->forgotten);
    snprintf(report->forgotten + used, sizeof report->forgotten - used, "%s%s at step %lld: %.0f%% of it was left",
             used > 0 ? "; " : "", task, (long long)report->steps, 100 * left);
    /* many tasks are cut to fit, inside a character perhaps */
    report->forgotten[hs_utf8_valid_prefix(report->forgotten, strlen(report->forgotten))] = '\0';
    return HS_OK;
}

static HsStatus read_early_stop(HsReport *report, const char *name, HsJson *line)
{
    int64_t evaluations, best_step, task = 0;
    char of_task[32] = "";
    HS_TRY(need_count(name, line, "evaluations", INT64_MAX, &evaluations));
    HS_TRY(need_count(name, line, "best_step", INT64_MAX, &best_step));
    if (hs_json_get(line, "task")) {
        HS_TRY(need_count(name, line, "task", HS_MATRIX_TASKS_MOST - 1, &task));
        snprintf(of_task, sizeof of_task, "task %lld ", (long long)task + 1);
    }
    const size_t used = strlen(report->stops);
    snprintf(report->stops + used, sizeof report->stops - used,
             "%s%sat step %lld, after %lld evaluations without a gain (best at step %lld)", used > 0 ? "; " : "",
             of_task, (long long)report->steps, (long long)evaluations, (long long)best_step);
    return HS_OK;
}

static HsStatus read_diverged(HsReport *report, const char *name, HsJson *line)
{
    const char *reason = NULL;
    HS_TRY(hs_json_need_string(name, line, "reason", &reason));
    snprintf(report->diverged, sizeof report->diverged, "after step %lld: %.900s", (long long)report->steps, reason);
    return HS_OK;
}

static HsStatus read_end(HsReport *report, const char *name, HsJson *line)
{
    (void)name;
    (void)line;
    report->finished = true;
    return HS_OK;
}

enum { NOT_KEPT = -1 };
static const struct {
    const char *event;
    HsStatus (*read)(HsReport *report, const char *name, HsJson *line);
    int kept_at; /* offset of the pointer in HsReport that keeps the line, or NOT_KEPT */
} events[] = {
    { "run", read_run, (int)offsetof(HsReport, run) },
    { "step", read_step, NOT_KEPT },
    { "eval", read_eval, NOT_KEPT },
    { "matrix", read_matrix, NOT_KEPT },
    { "tasks", read_tasks, NOT_KEPT },
    { "samples", read_samples, (int)offsetof(HsReport, samples) },
    { "sources", read_sources, (int)offsetof(HsReport, sources) },
    { "scales", read_scales, (int)offsetof(HsReport, scales) },
    { "importance", read_importance, (int)offsetof(HsReport, importance) },
    { "pressure", read_pressure, NOT_KEPT },
    { "changed", read_changed, NOT_KEPT },
    { "forgetting", read_forgetting, NOT_KEPT },
    { "early_stop", read_early_stop, NOT_KEPT },
    { "diverged", read_diverged, NOT_KEPT },
    { "end", read_end, NOT_KEPT },
};

/* A resumed run's clock starts at 0 again, and its record was cut back to what the checkpoint knows. */
static void add_time(HsReport *report, const HsJson *line)
{
    const double time_s = hs_json_number(hs_json_get(line, "time_s"));
    if (!isfinite(time_s) || time_s < 0)
        return;
    report->earlier_s += time_s < report->latest_s ? report->latest_s : 0;
    report->latest_s = time_s;
}

/* Keeps or destroys `line`. */
static HsStatus take_line(HsReport *report, const char *name, HsJson *line)
{
    const char *event = NULL;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_json_need_string(name, line, "event", &event), done);
    add_time(report, line);
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (strcmp(events[i].event, event) != 0)
            continue;
        HS_TRY_GOTO(status, need_count(name, line, "step", INT64_MAX, &report->steps), done);
        HS_TRY_GOTO(status, events[i].read(report, name, line), done);
        if (events[i].kept_at != NOT_KEPT) {
            HsJson **place = (HsJson **)(void *)((char *)report + events[i].kept_at);
            hs_json_destroy(*place);
            *place = line;
            line = NULL;
        }
    }
done:
    hs_json_destroy(line);
    return status;
}

/* One object, a line of event "run" like any other. */
static HsStatus read_run_file(const char *out_dir, HsReport *report)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    HsJson *line = NULL;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, hs_storage_join(out_dir, "run.json", &path), done);
    bool exists;
    HS_TRY_GOTO(status, hs_path_exists(path, &exists), done);
    if (!exists)
        goto done;
    HS_TRY_GOTO(status, hs_read_file(path, 0, &text, &length), done);
    HS_TRY_GOTO(status, hs_json_parse(path, text, length, &line), done);
    status = take_line(report, path, line);
done:
    free(text);
    free(path);
    return status;
}

HsStatus hs_report_read(const char *out_dir, HsReport *report)
{
    *report = (HsReport){ .bits_per_byte = NAN };
    char *path = NULL, *text = NULL, *name = NULL;
    size_t length = 0;
    HsStatus status = HS_OK;
    HS_TRY_GOTO(status, read_run_file(out_dir, report), done);
    HS_TRY_GOTO(status, hs_storage_join(out_dir, "metrics.jsonl", &path), done);
    HS_TRY_GOTO(status, hs_read_file(path, 0, &text, &length), done);
    name = malloc(strlen(path) + 32);
    if (!name) {
        status = hs_fail(HS_ENOMEM, "no memory to read %s", path);
        goto done;
    }
    int64_t number = 0;
    for (const char *at = text, *end = text + length; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;
        HsJson *line = NULL;
        sprintf(name, "%s:%lld", path, (long long)number + 1);
        HS_TRY_GOTO(status, hs_json_parse(name, at, (size_t)(stop - at), &line), done);
        HS_TRY_GOTO(status, take_line(report, name, line), done);
        at = stop + 1;
    }
done:
    if (status != HS_OK)
        hs_report_deinit(report);
    free(name);
    free(text);
    free(path);
    return status;
}

static void free_series(HsReportSeries *series)
{
    free(series->x);
    free(series->y);
}

void hs_report_deinit(HsReport *report)
{
    HsReportSeries *const all[] = { &report->train, &report->replay,  &report->distillation, &report->penalty,
                                    &report->speed, &report->overall, &report->task_ends,    &report->pressures };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_series(all[i]);
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
        free_series(&report->overall_accuracy[set]);
    for (int i = 0; i < report->task_count; i++) {
        free_series(&report->tasks[i].validation);
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            free_series(&report->tasks[i].accuracy[set]);
    }
    free(report->tasks);
    for (int i = 0; i < report->role_count; i++) {
        free_series(&report->roles[i].exponent);
        free_series(&report->roles[i].saturated);
        free_series(&report->roles[i].zeroed);
    }
    hs_json_destroy(report->run);
    hs_json_destroy(report->scales);
    hs_json_destroy(report->samples);
    hs_json_destroy(report->sources);
    hs_json_destroy(report->importance);
    hs_matrix_deinit(&report->matrix);
    *report = (HsReport){ 0 };
}

/* Of the part `what`, or NULL: of all. */
static int64_t memory_bytes(const HsReport *report, const char *what)
{
    int64_t total = 0, bytes = 0;
    const HsJson *part = hs_json_first(hs_json_get(report->run, "memory"));
    for (; part; part = hs_json_next(part)) {
        const char *const name = hs_json_string(hs_json_get(part, "what"));
        const bool counted = !what || (name && strcmp(name, what) == 0);
        if (counted && hs_json_need_integer("memory", part, "bytes", &bytes) == HS_OK) /* read_run checked it */
            total += bytes;
    }
    return total;
}

int64_t hs_report_memory_bytes(const HsReport *report)
{
    return memory_bytes(report, NULL);
}

int64_t hs_report_kept_bytes(const HsReport *report)
{
    static const HsMemoryCategory kept[] = { HS_MEMORY_PENALTY, HS_MEMORY_SNAPSHOTS, HS_MEMORY_REFERENCE,
                                             HS_MEMORY_TEACHER };
    int64_t total = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        total += memory_bytes(report, hs_memory_row(kept[i])->name);
    return total;
}

/* ---- what comparisons need ---- */

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return left < right ? -1 : left > right;
}

double hs_report_median(double *values, int64_t count)
{
    int64_t known = 0;
    for (int64_t i = 0; i < count; i++) {
        if (isfinite(values[i]))
            values[known++] = values[i];
    }
    if (known == 0)
        return NAN;
    qsort(values, (size_t)known, sizeof *values, by_value);
    return 0.5 * (values[(known - 1) / 2] + values[known / 2]);
}

HsStatus hs_run_result_read(const char *out_dir, HsRunResult *result)
{
    HsReport report;
    *result = (HsRunResult){ .tokens_per_second = NAN };
    HS_TRY(hs_report_read(out_dir, &report));
    result->matrix = report.matrix;
    report.matrix = (HsMatrix){ 0 }; /* moved */
    result->tokens_per_second = hs_report_median(report.speed.y, report.speed.count);
    result->memory_bytes = hs_report_memory_bytes(&report);
    result->kept_bytes = hs_report_kept_bytes(&report);
    const double parameters = hs_json_number(hs_json_get(report.run, "parameters"));
    result->parameters = parameters > 0 && parameters < 1e15 ? (int64_t)parameters : 0;
    result->seconds = report.earlier_s + report.latest_s;
    if (result->seconds <= 0)
        result->seconds = NAN;
    result->steps = report.steps;
    result->finished = report.finished;
    result->diverged = report.diverged[0] != '\0';
    const HsReportSeries *losses = &report.overall;
    result->validation_loss = losses->count > 0 ? losses->y[losses->count - 1] : (double)NAN;
    result->best_validation_loss = NAN;
    for (int64_t i = 0; i < losses->count; i++)
        result->best_validation_loss = fmin(result->best_validation_loss, losses->y[i]);
    hs_report_deinit(&report);
    return HS_OK;
}

void hs_run_result_deinit(HsRunResult *result)
{
    hs_matrix_deinit(&result->matrix);
}
