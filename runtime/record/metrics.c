/* SPDX-License-Identifier: MIT
 *
 * One table of fields: from it come the JSON line, the TensorBoard scalars and the line for people.  A record allocates
 * nothing.
 *
 * Numbers that the clock makes (tokens_per_second, time_s) are written in a fixed number of characters: the length of
 * metrics.jsonl is part of a checkpoint, and equal runs are to have equal checkpoints.
 */
#include "runtime/record/metrics_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/record/tensorboard.h"

#define TENSORBOARD_FILE "events.out.tfevents.0.halfstep" /* fixed, so that a resumed run appends */
enum { LINE_BYTES = 1024 };

typedef enum FieldKind { FIELD_REAL, FIELD_CLOCK, FIELD_COUNT } FieldKind;

/* In the order of the JSON line. */
static const struct {
    const char *name, *tag; /* tag NULL: not for TensorBoard */
    FieldKind kind;
    size_t offset;
} fields[] = {
    { "task", NULL, FIELD_COUNT, offsetof(HsMetricsRecord, task) },
    { "loss", "loss/train", FIELD_REAL, offsetof(HsMetricsRecord, loss) },
    { "val_loss", "loss/validation", FIELD_REAL, offsetof(HsMetricsRecord, val_loss) },
    { "replay_loss", "loss/replay", FIELD_REAL, offsetof(HsMetricsRecord, replay_loss) },
    { "distillation", "loss/distillation", FIELD_REAL, offsetof(HsMetricsRecord, distillation) },
    { "penalty", "penalty", FIELD_REAL, offsetof(HsMetricsRecord, penalty) },
    { "learning_rate", "learning_rate", FIELD_REAL, offsetof(HsMetricsRecord, learning_rate) },
    { "grad_norm", "grad_norm", FIELD_REAL, offsetof(HsMetricsRecord, grad_norm) },
    { "loss_scale", "loss_scale", FIELD_REAL, offsetof(HsMetricsRecord, loss_scale) },
    { "skipped_steps", "skipped_steps", FIELD_COUNT, offsetof(HsMetricsRecord, skipped_steps) },
    { "tokens_per_second", "tokens_per_second", FIELD_CLOCK, offsetof(HsMetricsRecord, tokens_per_second) },
    { "time_s", NULL, FIELD_CLOCK, offsetof(HsMetricsRecord, time_s) },
    { "entropy_floor", "loss/entropy_floor", FIELD_REAL, offsetof(HsMetricsRecord, entropy_floor) },
    { "bits_per_byte", "bits_per_byte", FIELD_REAL, offsetof(HsMetricsRecord, bits_per_byte) },
    { "accuracy_seen", "accuracy/seen", FIELD_REAL, offsetof(HsMetricsRecord, accuracy_seen) },
    { "accuracy_unseen", "accuracy/unseen", FIELD_REAL, offsetof(HsMetricsRecord, accuracy_unseen) },
};
enum { FIELD_TOTAL = sizeof fields / sizeof *fields };

/* A field's value as a double; false when the record leaves it out. */
static bool field_value(const HsMetricsRecord *record, int field, double *value)
{
    const char *place = (const char *)record + fields[field].offset;
    if (fields[field].kind == FIELD_COUNT) {
        int64_t count;
        memcpy(&count, place, sizeof count);
        *value = (double)count;
        return count >= 0;
    }
    memcpy(value, place, sizeof *value);
    return !isnan(*value);
}

static double wall_time_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

HsStatus hs_metrics_append(HsMetricsLog *log, const void *bytes, size_t size)
{
    if (log->descriptor < 0)
        return HS_OK;
    HsStatus status = hs_storage_write_all(log->descriptor, log->path, bytes, size);
    if (status == HS_OK) {
        log->bytes += (int64_t)size;
    } else if (ftruncate(log->descriptor, log->bytes) != 0) {
        return hs_error_prefix(status, "and its last line is cut off");
    }
    return status;
}

/* resume_bytes: where the checkpoint left the file; 0 for a fresh one. */
static HsStatus open_log(HsMetricsLog *log, const char *out_dir, const char *name, int64_t resume_bytes)
{
    struct stat info;
    HS_TRY(hs_storage_join(out_dir, name, &log->path));
    log->descriptor = open(log->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->descriptor < 0 || fstat(log->descriptor, &info) != 0)
        return hs_fail(HS_EIO, "cannot open %s: %s", log->path, strerror(errno));
    if (info.st_size < resume_bytes)
        return hs_fail(
            HS_EFORMAT,
            "%s has %lld bytes, but had %lld when the checkpoint was saved: put the file back, or start in a "
            "fresh out_dir",
            log->path, (long long)info.st_size, (long long)resume_bytes);
    if (ftruncate(log->descriptor, resume_bytes) != 0)
        return hs_fail(HS_EIO, "cannot cut %s back to %lld bytes: %s", log->path, (long long)resume_bytes,
                       strerror(errno));
    log->bytes = resume_bytes;
    return HS_OK;
}

/* A removed event file is started again: it only repeats what metrics.jsonl holds, so nothing is lost with it. */
static HsStatus tensorboard_begins_anew(const char *out_dir, int64_t *resume_bytes)
{
    char *path = NULL;
    bool exists;
    HS_TRY(hs_storage_join(out_dir, TENSORBOARD_FILE, &path));
    HsStatus status = hs_path_exists(path, &exists);
    if (status == HS_OK && !exists) {
        hs_warn("%s is missing: a new one begins with the next step", path);
        *resume_bytes = 0;
    }
    free(path);
    return status;
}

static HsStatus open_tensorboard(HsMetrics *metrics, const HsMetricsOptions *options)
{
    int64_t resume_bytes = options->resume_at ? options->resume_at->tensorboard_bytes : 0;
    if (!options->tensorboard) { /* off for now: a later resume continues where the file ended */
        metrics->tensorboard.bytes = resume_bytes;
        return HS_OK;
    }
    if (resume_bytes > 0)
        HS_TRY(tensorboard_begins_anew(options->out_dir, &resume_bytes));
    HS_TRY(open_log(&metrics->tensorboard, options->out_dir, TENSORBOARD_FILE, resume_bytes));
    if (resume_bytes > 0)
        return HS_OK;
    unsigned char record[HS_TENSORBOARD_RECORD_BYTES];
    return hs_metrics_append(&metrics->tensorboard, record, hs_tensorboard_version(record, wall_time_s()));
}

HsStatus hs_metrics_create(const HsMetricsOptions *options, HsMetrics **out)
{
    *out = NULL;
    HsStatus status = HS_OK;
    HsMetrics *metrics = calloc(1, sizeof *metrics);
    if (!metrics)
        return hs_fail(HS_ENOMEM, "no memory for metrics");
    metrics->jsonl.descriptor = metrics->tensorboard.descriptor = -1;
    if (!options->out_dir) {
        *out = metrics; /* its progress shows nothing */
        return HS_OK;
    }
    HS_TRY_GOTO(status, hs_make_directories(options->out_dir), failed);
    HS_TRY_GOTO(status,
                open_log(&metrics->jsonl, options->out_dir, "metrics.jsonl",
                         options->resume_at ? options->resume_at->jsonl_bytes : 0),
                failed);
    HS_TRY_GOTO(status, open_tensorboard(metrics, options), failed);
    HS_TRY_GOTO(status, hs_storage_sync(options->out_dir), failed); /* the files' names; their bytes at each sync */
    HS_TRY_GOTO(status, hs_progress_init(&metrics->progress, options->progress, options->total_steps), failed);
    *out = metrics;
    return HS_OK;
failed:
    (void)hs_metrics_destroy(metrics);
    return status;
}

/* printf at the end of a buffer; what does not fit is our bug and is cut. */
__attribute__((format(printf, 3, 4))) static void add(char *line, size_t *used, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + *used, LINE_BYTES - *used, format, arguments);
    va_end(arguments);
    if (length > 0)
        *used += (size_t)length < LINE_BYTES - *used ? (size_t)length : LINE_BYTES - 1 - *used;
}

static HsStatus record_line(HsMetrics *metrics, const HsMetricsRecord *record)
{
    char line[LINE_BYTES], number[HS_JSON_NUMBER_BYTES];
    size_t used = 0;
    add(line, &used, "{\"event\":\"%s\",\"step\":%lld", record->event, (long long)record->step);
    for (int i = 0; i < FIELD_TOTAL; i++) {
        double value = 0;
        if (!field_value(record, i, &value))
            continue;
        if (fields[i].kind == FIELD_CLOCK && isfinite(value))
            snprintf(number, sizeof number, "%.5e", value);
        else
            hs_json_format_real(value, number);
        add(line, &used, ",\"%s\":%s", fields[i].name, number);
    }
    add(line, &used, "}\n");
    return hs_metrics_append(&metrics->jsonl, line, used);
}

HsStatus hs_metrics_append_scalar(HsMetrics *metrics, int64_t step, const char *tag, double value)
{
    unsigned char bytes[HS_TENSORBOARD_RECORD_BYTES];
    if (metrics->tensorboard.descriptor < 0 || isnan(value))
        return HS_OK;
    size_t size = hs_tensorboard_scalar(bytes, wall_time_s(), step, tag, (float)value);
    return hs_metrics_append(&metrics->tensorboard, bytes, size);
}

HsStatus hs_metrics_append_scalars(HsMetrics *metrics, int64_t step, const char *group, const char *owner,
                                   const HsMetricsScalar *scalars, int count)
{
    for (int i = 0; i < count; i++) {
        char tag[HS_TENSORBOARD_MAX_TAG];
        snprintf(tag, sizeof tag, "%s/%.63s/%s", group, owner, scalars[i].name);
        HS_TRY(hs_metrics_append_scalar(metrics, step, tag, scalars[i].value));
    }
    return HS_OK;
}

static HsStatus record_scalars(HsMetrics *metrics, const HsMetricsRecord *record)
{
    unsigned char bytes[FIELD_TOTAL * HS_TENSORBOARD_RECORD_BYTES];
    size_t used = 0;
    double now = wall_time_s();
    for (int i = 0; i < FIELD_TOTAL; i++) {
        double value = 0;
        if (fields[i].tag && field_value(record, i, &value))
            used += hs_tensorboard_scalar(bytes + used, now, record->step, fields[i].tag, (float)value);
    }
    return hs_metrics_append(&metrics->tensorboard, bytes, used);
}

/* "step 200/2000  loss 2.1453  lr 9.8e-04  |g| 0.83  24.1k tok/s  ETA 12s", with several tasks
 * "step 200/2000  task 2  loss 2.1453  replay 1.8300  penalty 0.0120  ...".  Tasks count from 1 here: people do. */
static void print_line(HsMetrics *metrics, const HsMetricsRecord *record)
{
    char line[LINE_BYTES], number[32];
    size_t used = 0;
    add(line, &used, "step %lld/%lld", (long long)record->step, (long long)metrics->progress.total_steps);
    bool is_step = strcmp(record->event, "step") == 0;
    if (record->task >= 0)
        add(line, &used, "  task %lld", (long long)record->task + 1);
    if (!is_step && strcmp(record->event, "eval") != 0)
        add(line, &used, "  %s", record->event);
    if (!isnan(record->loss))
        add(line, &used, "  loss %.4f", record->loss);
    if (!isnan(record->replay_loss))
        add(line, &used, "  replay %.4f", record->replay_loss);
    if (!isnan(record->distillation))
        add(line, &used, "  distillation %.4f", record->distillation);
    if (!isnan(record->penalty))
        add(line, &used, "  penalty %.4g", record->penalty);
    if (!isnan(record->val_loss))
        add(line, &used, "  val_loss %.4f", record->val_loss);
    if (!isnan(record->entropy_floor))
        add(line, &used, "  floor %.4f", record->entropy_floor);
    if (!isnan(record->bits_per_byte))
        add(line, &used, "  bits/byte %.4f", record->bits_per_byte);
    if (!isnan(record->accuracy_seen))
        add(line, &used, "  exact %.1f%%", 100 * record->accuracy_seen);
    if (!isnan(record->accuracy_unseen))
        add(line, &used, "  unseen %.1f%%", 100 * record->accuracy_unseen);
    if (!isnan(record->learning_rate))
        add(line, &used, "  lr %.1e", record->learning_rate);
    if (!isnan(record->grad_norm))
        add(line, &used, "  |g| %.2f", record->grad_norm);
    if (!isnan(record->loss_scale) && record->loss_scale != 1) /* 1: no scaling */
        add(line, &used, "  scale %g", record->loss_scale);
    if (record->skipped_steps > 0)
        add(line, &used, "  skipped %lld", (long long)record->skipped_steps);
    if (!isnan(record->tokens_per_second)) {
        hs_progress_format_count(record->tokens_per_second, number, sizeof number);
        add(line, &used, "  %s tok/s", number);
    }
    if (is_step && metrics->eta_s > 0) {
        hs_progress_format_time(metrics->eta_s, number, sizeof number);
        add(line, &used, "  ETA %s", number);
    }
    /* Above a bar only what the bar does not tell. */
    if (!metrics->progress.bar || strcmp(record->event, "eval") == 0)
        hs_progress_print(&metrics->progress, line);
}

HsStatus hs_metrics_record(HsMetrics *metrics, const HsMetricsRecord *record)
{
    HS_TRY(record_line(metrics, record));
    HS_TRY(record_scalars(metrics, record));
    print_line(metrics, record);
    return HS_OK;
}

HsStatus hs_metrics_pressure(HsMetrics *metrics, const HsMetricsPressure *pressure)
{
    char line[LINE_BYTES];
    size_t used = 0;
    add(line, &used,
        "{\"event\":\"pressure\",\"step\":%lld,\"micro_batch_before\":%lld,\"micro_batch\":%lld,"
        "\"used_bytes\":%zu,\"total_bytes\":%zu}\n",
        (long long)pressure->step, (long long)pressure->before, (long long)pressure->after, pressure->used_bytes,
        pressure->total_bytes);
    HS_TRY(hs_metrics_append(&metrics->jsonl, line, used));
    return hs_metrics_append_scalar(metrics, pressure->step, "memory/micro_batch", (double)pressure->after);
}

HsStatus hs_metrics_stall(HsMetrics *metrics, const HsMetricsStall *stall)
{
    char line[LINE_BYTES], number[HS_JSON_NUMBER_BYTES];
    size_t used = 0;
    add(line, &used, "{\"event\":\"early_stop\",\"step\":%lld", (long long)stall->step);
    if (stall->task >= 0)
        add(line, &used, ",\"task\":%lld", (long long)stall->task);
    hs_json_format_real(stall->best_loss, number);
    add(line, &used, ",\"evaluations\":%lld,\"best_val_loss\":%s,\"best_step\":%lld}\n", (long long)stall->evaluations,
        number, (long long)stall->best_step);
    return hs_metrics_append(&metrics->jsonl, line, used);
}

void hs_metrics_progress(HsMetrics *metrics, int64_t step, double loss, double tokens_per_second, double peak_share,
                         double loss_scale, int64_t memory_bytes, double eta_s)
{
    HsProgressView view = { step, loss, tokens_per_second, peak_share, loss_scale, memory_bytes, eta_s };
    metrics->eta_s = eta_s;
    hs_progress_update(&metrics->progress, &view);
}

HsStatus hs_metrics_sync(HsMetrics *metrics, HsMetricsPosition *position)
{
    const HsMetricsLog *const logs[] = { &metrics->jsonl, &metrics->tensorboard };
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        if (logs[i]->descriptor >= 0 && fsync(logs[i]->descriptor) != 0)
            return hs_fail(HS_EIO, "cannot flush %s: %s", logs[i]->path, strerror(errno));
    }
    *position = (HsMetricsPosition){ metrics->jsonl.bytes, metrics->tensorboard.bytes };
    return HS_OK;
}

HsStatus hs_metrics_destroy(HsMetrics *metrics)
{
    HsStatus status = HS_OK;
    if (!metrics)
        return HS_OK;
    hs_progress_deinit(&metrics->progress);
    HsMetricsLog *const logs[] = { &metrics->jsonl, &metrics->tensorboard };
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        if (logs[i]->descriptor >= 0 && close(logs[i]->descriptor) != 0 && status == HS_OK)
            status = hs_fail(HS_EIO, "cannot close %s: %s", logs[i]->path, strerror(errno));
        free(logs[i]->path);
    }
    free(metrics);
    return status;
}
