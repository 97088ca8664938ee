/* SPDX-License-Identifier: MIT
 *
 * The records that a task leaves when it ends, and the one that opens a file.  Their lines are as long as the tasks and
 * tensors they name, so they are built as a tree of JSON: unlike a step's record they may allocate, between tasks.
 *
 * No number of theirs comes from a clock: equal runs write equal lines.
 */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/record/matrix_json.h"
#include "runtime/record/metrics_internal.h"
#include "runtime/record/tensorboard.h"

enum { PLAIN_COLUMNS = 110, TOP_TENSORS = 5 };

HsStatus hs_metrics_append_line(HsMetrics *metrics, HsJson *line)
{
    char *text = hs_json_write(line, false);
    hs_json_destroy(line);
    size_t size = text ? strlen(text) : 0;
    char *whole = text ? realloc(text, size + 2) : NULL;
    if (!whole) {
        free(text);
        return hs_fail(HS_ENOMEM, "no memory for a line of %s", metrics->jsonl.path);
    }
    memcpy(whole + size, "\n", 2);
    HsStatus status = hs_metrics_append(&metrics->jsonl, whole, size + 1);
    free(whole);
    return status;
}

HsJson *hs_metrics_event_line(const char *event, int64_t step, int task)
{
    HsJson *line = hs_json_object();
    hs_json_set_string(line, "event", event);
    hs_json_set_integer(line, "step", step);
    if (task >= 0)
        hs_json_set_integer(line, "task", task);
    return line;
}

HsStatus hs_metrics_changed(HsMetrics *metrics, int64_t step, const char *keys)
{
    HsJson *line = hs_metrics_event_line("changed", step, -1);
    hs_json_set_string(line, "keys", keys);
    return hs_metrics_append_line(metrics, line);
}

HsStatus hs_metrics_diverged(HsMetrics *metrics, int64_t step, const char *reason)
{
    HsJson *line = hs_metrics_event_line("diverged", step, -1);
    hs_json_set(line, "reason", hs_json_new_text(reason, strlen(reason)));
    return hs_metrics_append_line(metrics, line);
}

HsStatus hs_metrics_forgetting(HsMetrics *metrics, const HsMetricsForgetting *forgetting)
{
    HsJson *line = hs_metrics_event_line("forgetting", forgetting->step, forgetting->task);
    hs_json_set(line, "name", hs_json_new_text(forgetting->name, strlen(forgetting->name)));
    hs_json_set_real(line, "loss", forgetting->loss);
    hs_json_set_real(line, "loss_at_end", forgetting->loss_at_end);
    hs_json_set_real(line, "left", forgetting->left);
    return hs_metrics_append_line(metrics, line);
}

static HsStatus task_scalars(HsMetrics *metrics, int64_t step, const HsMetricsTask *task)
{
    const HsMetricsScalar scalars[] = { { "validation", task->loss },
                                        { "accuracy_seen", task->accuracy_seen },
                                        { "accuracy_unseen", task->accuracy_unseen } };
    return hs_metrics_append_scalars(metrics, step, "tasks", task->name, scalars, sizeof scalars / sizeof *scalars);
}

static HsStatus matrix_scalars(HsMetrics *metrics, int64_t step, int task, const HsMatrix *matrix)
{
    char tag[HS_TENSORBOARD_MAX_TAG];
    const double *row = task < 0 ? matrix->untrained : hs_matrix_at(matrix, task, 0);
    for (int i = 0; i < matrix->tasks; i++)
        HS_TRY(task_scalars(metrics, step,
                            &(HsMetricsTask){ matrix->names[i], row[i],
                                              *hs_matrix_accuracy(matrix, HS_ITEMS_SEEN, task, i),
                                              *hs_matrix_accuracy(matrix, HS_ITEMS_UNSEEN, task, i) }));
    HsMatrixSummary summary = hs_matrix_summary(matrix);
    for (int i = 0; i < hs_matrix_member_count; i++) {
        snprintf(tag, sizeof tag, "continual/%s", hs_matrix_members[i].name);
        HS_TRY(hs_metrics_append_scalar(metrics, step, tag, hs_matrix_member_value(&summary, i)));
    }
    return HS_OK;
}

/* The width of what lines go to: the terminal's, or a fixed one, so that a log file's tables look alike. */
static int columns_of_output(const HsMetrics *metrics)
{
    struct winsize size;
    int descriptor = metrics->progress.bar ? STDERR_FILENO : STDOUT_FILENO;
    return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : PLAIN_COLUMNS;
}

/* Through the progress, so that a bar does not tear the table. */
static HsStatus print_matrix(HsMetrics *metrics, const HsMatrix *matrix)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (stream) {
        fputc('\n', stream);
        hs_matrix_print(matrix, columns_of_output(metrics), stream);
    }
    if (hs_close_text(stream, &text) != HS_OK)
        return hs_fail(HS_ENOMEM, "no memory to print the matrix");
    hs_progress_print(&metrics->progress, text); /* its final newline and the print's make a blank line */
    free(text);
    return HS_OK;
}

HsStatus hs_metrics_matrix(HsMetrics *metrics, int64_t step, int task, const HsMatrix *matrix, bool print)
{
    HsJson *line = hs_metrics_event_line("matrix", step, task);
    hs_matrix_to_json(matrix, task + 1, line);
    hs_json_set(line, "summary", hs_matrix_summary_json(matrix));
    HS_TRY(hs_metrics_append_line(metrics, line));
    HS_TRY(matrix_scalars(metrics, step, task, matrix));
    return print ? print_matrix(metrics, matrix) : HS_OK;
}

HsStatus hs_metrics_tasks(HsMetrics *metrics, int64_t step, const HsMetricsTask *tasks, int count)
{
    HsJson *line = hs_metrics_event_line("tasks", step, -1), *names = hs_json_array(), *losses = hs_json_array();
    HsJson *seen = hs_json_array(), *unseen = hs_json_array();
    for (int i = 0; i < count; i++) {
        hs_json_append(names, hs_json_new_text(tasks[i].name, strlen(tasks[i].name)));
        hs_json_append(losses, hs_json_new_real(tasks[i].loss));
        hs_json_append(seen, hs_json_new_real(tasks[i].accuracy_seen));
        hs_json_append(unseen, hs_json_new_real(tasks[i].accuracy_unseen));
    }
    hs_json_set(line, "names", names);
    hs_json_set(line, "losses", losses);
    hs_json_set(line, "accuracy_seen", seen);
    hs_json_set(line, "accuracy_unseen", unseen);
    HS_TRY(hs_metrics_append_line(metrics, line));
    for (int i = 0; i < count; i++)
        HS_TRY(task_scalars(metrics, step, &tasks[i]));
    return HS_OK;
}

static HsStatus source_scalars(HsMetrics *metrics, int64_t step, const HsMetricsSource *source)
{
    const HsMetricsScalar scalars[] = { { "validation", source->loss },
                                        { "share", source->share },
                                        { "epochs", source->epochs } };
    return hs_metrics_append_scalars(metrics, step, "sources", source->name, scalars, sizeof scalars / sizeof *scalars);
}

HsStatus hs_metrics_sources(HsMetrics *metrics, int64_t step, const char *task, const HsMetricsSource *sources,
                            int count, bool print)
{
    HsJson *line = hs_metrics_event_line("sources", step, -1), *list = hs_json_array();
    hs_json_set(line, "name", hs_json_new_text(task, strlen(task)));
    for (int i = 0; i < count; i++) {
        HsJson *object = hs_json_object();
        hs_json_set(object, "name", hs_json_new_text(sources[i].name, strlen(sources[i].name)));
        hs_json_set_real(object, "share", sources[i].share);
        hs_json_set_real(object, "epochs", sources[i].epochs);
        hs_json_set_real(object, "val_loss", sources[i].loss);
        hs_json_append(list, object);
    }
    hs_json_set(line, "sources", list);
    HS_TRY(hs_metrics_append_line(metrics, line));
    for (int i = 0; i < count; i++) {
        char text[256];
        HS_TRY(source_scalars(metrics, step, &sources[i]));
        snprintf(text, sizeof text, "  source %.120s: %.1f%% of the samples, %.2f epochs, val_loss %.4f\n",
                 sources[i].name, 100 * sources[i].share, sources[i].epochs, sources[i].loss);
        if (print)
            hs_progress_print(&metrics->progress, text);
    }
    return HS_OK;
}

/* ---- samples ---- */

HsStatus hs_metrics_samples(HsMetrics *metrics, int64_t step, const HsMetricsSample *samples, int count)
{
    HsJson *line = hs_metrics_event_line("samples", step, -1), *list = hs_json_array();
    for (int i = 0; i < count; i++) {
        const HsMetricsSample *sample = &samples[i];
        HsJson *object = hs_json_object();
        hs_json_set(object, "task", hs_json_new_text(sample->task, strlen(sample->task)));
        hs_json_set(object, "prompt", hs_json_new_text(sample->prompt.bytes, sample->prompt.length));
        hs_json_set(object, "completion", hs_json_new_text(sample->completion.bytes, sample->completion.length));
        if (sample->expected.bytes) {
            hs_json_set(object, "expected", hs_json_new_text(sample->expected.bytes, sample->expected.length));
            hs_json_set_bool(object, "exact", sample->exact);
        }
        hs_json_append(list, object);
    }
    hs_json_set(line, "samples", list);
    return hs_metrics_append_line(metrics, line);
}

/* ---- importance ---- */

static int by_share(const void *a, const void *b)
{
    const HsImportanceTensor *left = *(const HsImportanceTensor *const *)a;
    const HsImportanceTensor *right = *(const HsImportanceTensor *const *)b;
    if (left->share != right->share)
        return left->share > right->share ? -1 : 1;
    return left < right ? -1 : left > right; /* equal ones in the model's order */
}

__attribute__((format(printf, 2, 3))) static void print_line(HsMetrics *metrics, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    hs_progress_print(&metrics->progress, line);
}

static HsStatus print_importance(HsMetrics *metrics, int task, double stability, const HsImportance *importance)
{
    size_t count = (size_t)importance->count;
    const HsImportanceTensor **order = malloc(count * sizeof *order);
    if (!order)
        return hs_fail(HS_ENOMEM, "no memory to sort %d tensors", importance->count);
    for (size_t i = 0; i < count; i++)
        order[i] = &importance->tensors[i];
    qsort(order, count, sizeof *order, by_share);
    print_line(metrics, "importance after task %d: mean %.3g, maximum %.3g; strength %g x mean = %.3g", task + 1,
               importance->mean, importance->maximum, importance->strength, importance->strength * importance->mean);
    print_line(metrics, "  learning rate x strength x maximum = %.3g (plain gradient descent diverges above 2)",
               stability);
    for (size_t i = 0; i < count && i < TOP_TENSORS; i++)
        print_line(metrics, "  %5.1f%%  %s", 100 * order[i]->share, order[i]->name);
    free(order);
    return HS_OK;
}

HsStatus hs_metrics_importance(HsMetrics *metrics, int64_t step, int task, double learning_rate,
                               const HsImportance *importance)
{
    if (!importance || importance->count == 0)
        return HS_OK;
    double stability = learning_rate * importance->strength * importance->maximum;
    HsJson *line = hs_metrics_event_line("importance", step, task), *tensors = hs_json_array();
    hs_json_set_real(line, "strength", importance->strength);
    hs_json_set_real(line, "maximum", importance->maximum);
    hs_json_set_real(line, "mean", importance->mean);
    hs_json_set_real(line, "strength_mean", importance->strength * importance->mean);
    hs_json_set_real(line, "rate_strength_maximum", stability);
    for (int i = 0; i < importance->count; i++) {
        HsJson *tensor = hs_json_object();
        hs_json_set_string(tensor, "name", importance->tensors[i].name);
        hs_json_set_real(tensor, "maximum", importance->tensors[i].maximum);
        hs_json_set_real(tensor, "mean", importance->tensors[i].mean);
        hs_json_set_real(tensor, "share", importance->tensors[i].share);
        hs_json_append(tensors, tensor);
    }
    hs_json_set(line, "tensors", tensors);
    HS_TRY(hs_metrics_append_line(metrics, line));
    return print_importance(metrics, task, stability, importance);
}

/* ---- the run ---- */

HsStatus hs_metrics_run(const char *out_dir, const HsMetricsRun *run)
{
    const struct {
        const char *key, *text;
    } texts[] = { { "name", run->name },           { "model", run->model },       { "device", run->device },
                  { "precision", run->precision }, { "strategy", run->strategy }, { "processes", run->processes },
                  { "from", run->from },           { "adapter", run->adapter } };
    HsJson *line = hs_metrics_event_line("run", 0, -1), *memory = hs_json_array(), *tasks = hs_json_array();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].text)
            hs_json_set_string(line, texts[i].key, texts[i].text);
    }
    hs_json_set_integer(line, "parameters", run->parameters);
    hs_json_set_integer(line, "trained_parameters", run->trained_parameters);
    hs_json_set_integer(line, "total_steps", run->total_steps);
    for (int i = 0; i < run->memory_count; i++) {
        HsJson *part = hs_json_object();
        hs_json_set_string(part, "what", run->memory[i].what);
        hs_json_set_integer(part, "bytes", run->memory[i].bytes);
        hs_json_append(memory, part);
    }
    hs_json_set(line, "memory", memory);
    for (int i = 0; i < run->task_count; i++) {
        HsJson *task = hs_json_object();
        hs_json_set_string(task, "name", run->task_names[i]);
        hs_json_set_integer(task, "steps", run->task_steps[i]);
        hs_json_append(tasks, task);
    }
    hs_json_set(line, "tasks", tasks);
    char *text = hs_json_write(line, false), *path = NULL;
    hs_json_destroy(line);
    HsStatus status = text ? hs_storage_join(out_dir, "run.json", &path) : hs_fail(HS_ENOMEM, "no memory for run.json");
    if (status == HS_OK)
        status = hs_storage_write_file(path, text, strlen(text));
    free(path);
    free(text);
    return status;
}
