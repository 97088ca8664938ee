/* SPDX-License-Identifier: MIT
 *
 * What a run reports: metrics.jsonl (one object a line), TensorBoard events, a progress bar or plain lines.
 * On resume both files are cut back to where the checkpoint left them, so that a killed run's record equals an
 * undisturbed one's.
 */
#ifndef HS_RUNTIME_RECORD_METRICS_H
#define HS_RUNTIME_RECORD_METRICS_H

#include "optim/continual/continual.h"
#include "runtime/io/json.h"
#include "runtime/model/coded_figures.h"
#include "runtime/record/matrix.h"

typedef struct HsMetrics HsMetrics;

typedef struct HsMetricsPosition {
    int64_t jsonl_bytes;
    int64_t tensorboard_bytes;
} HsMetricsPosition;

/* One record.  NAN fields and negative counts are left out of the line. */
typedef struct HsMetricsRecord {
    const char *event; /* "step" | "eval" | "checkpoint" | "end" */
    int64_t step;
    double loss, val_loss, learning_rate, grad_norm, loss_scale;
    int64_t skipped_steps;
    double tokens_per_second, time_s;
    double entropy_floor;                  /* eval: when known */
    int64_t task;                          /* index; -1: left out (runs of one task) */
    double penalty;                        /* (strength/2) sum importance (p - anchor)^2 */
    double replay_loss;                    /* mean over replayed targets of the steps since the last record */
    double bits_per_byte;                  /* eval: of val_loss */
    double accuracy_seen, accuracy_unseen; /* eval: share of exact greedy completions, where the task has items */
    double distillation; /* as replay_loss, of what comparing logits adds to the loss of such a target */
} HsMetricsRecord;

typedef struct HsMetricsOptions {
    const char *out_dir; /* NULL: another process of the run records; nothing is written or shown */
    bool tensorboard;
    const char *progress; /* auto | bar | lines | none */
    int64_t total_steps;
    const HsMetricsPosition *resume_at; /* NULL: fresh files */
} HsMetricsOptions;

HsStatus hs_metrics_create(const HsMetricsOptions *options, HsMetrics **metrics);
/* Appends a line, an event each for the scalars, and prints a plain line when there is no bar (above a bar, only
 * evaluations).  Flushed, not fsynced.  The clock's numbers have a fixed width: equal runs leave files of equal length.
 */
HsStatus hs_metrics_record(HsMetrics *metrics, const HsMetricsRecord *record);
/* Redraws the bar (at most ten times a second); does nothing without one.  peak_share, memory_bytes: 0 when unknown. */
void hs_metrics_progress(HsMetrics *metrics, int64_t step, double loss, double tokens_per_second, double peak_share,
                         double loss_scale, int64_t memory_bytes, double eta_s);
/* Written by hs_metrics_matrix after each task's row, as one line of event "matrix" with the members task (left out
 * when -1: the untrained model's row), names, losses (all rows so far), untrained, floor, joint and summary;
 * TensorBoard: "tasks/NAME/validation" and "continual/MEMBER" each.  Prints the table (hs_matrix_print) when `print`.
 */
HsStatus hs_metrics_matrix(HsMetrics *metrics, int64_t step, int task, const HsMatrix *matrix, bool print);
/* Event "tasks": every task's figures in the middle of training, as members names, losses, accuracy_seen and
 * accuracy_unseen (null: not known); TensorBoard: "tasks/NAME/validation", "tasks/NAME/accuracy_seen" and so on. */
typedef struct HsMetricsTask {
    const char *name;
    double loss, accuracy_seen, accuracy_unseen; /* NAN: unknown */
} HsMetricsTask;
HsStatus hs_metrics_tasks(HsMetrics *metrics, int64_t step, const HsMetricsTask *tasks, int count);
/* Event "sources" of a task that mixes its sources: a list of name, share (of the task's samples so far), epochs and
 * val_loss (null: not known) each; TensorBoard: "sources/NAME/validation", ".../share", ".../epochs".  Prints a line for
 * each when `print`. */
typedef struct HsMetricsSource {
    const char *name;
    double share, epochs, loss;
} HsMetricsSource;
HsStatus hs_metrics_sources(HsMetrics *metrics, int64_t step, const char *task, const HsMetricsSource *sources,
                            int count, bool print);
/* Event "samples": a list of what the model continues a prompt with, each with the task's name.  Texts are any bytes:
 * what is not UTF-8 is recorded as U+FFFD. */
typedef struct HsMetricsText {
    const char *bytes; /* NULL: there is none */
    size_t length;
} HsMetricsText;
typedef struct HsMetricsSample {
    const char *task;
    HsMetricsText prompt, completion, expected; /* expected: where the data say what is right */
    bool exact;                                 /* completion is the expected one */
} HsMetricsSample;
HsStatus hs_metrics_samples(HsMetrics *metrics, int64_t step, const HsMetricsSample *samples, int count);
/* Event "importance": task, strength, maximum, mean, strength * mean, learning rate * strength * maximum, and per
 * tensor name, maximum, mean, share.  Prints the totals and the tensors that hold most. */
HsStatus hs_metrics_importance(HsMetrics *metrics, int64_t step, int task, double learning_rate,
                               const HsImportance *importance);
/* Event "scales", with a step's record in a mode of codes: `roles`, a list with each role's members role, amax,
 * scale_lowest, scale_highest (null: the recipe scales blocks), saturated, zeroed (shares, 0 to 1), layer and layer_lost
 * where anything was lost; TensorBoard: "scales/ROLE/amax", ".../scale" (the lowest), ".../saturated", ".../zeroed".
 * Nothing is written of no roles. */
HsStatus hs_metrics_scales(HsMetrics *metrics, int64_t step, const HsScalingFigures *roles, int count);
HsJson *hs_metrics_roles_json(const HsScalingFigures *roles, int count); /* the list alone */
/* The micro-batch was halved. */
typedef struct HsMetricsPressure {
    int64_t step;                   /* after which */
    int64_t before, after;          /* sequences at a time */
    size_t used_bytes, total_bytes; /* of the device, as the sample said that asked for it */
} HsMetricsPressure;
/* Event "pressure": micro_batch_before, micro_batch, used_bytes, total_bytes; TensorBoard: "memory/micro_batch". */
HsStatus hs_metrics_pressure(HsMetrics *metrics, const HsMetricsPressure *pressure);
/* A task ended before its last step: early_stop.patience. */
typedef struct HsMetricsStall {
    int64_t step, task;  /* task: -1: left out */
    int64_t evaluations; /* without a gain */
    double best_loss;    /* of the task's evaluations */
    int64_t best_step;
} HsMetricsStall;
/* Event "early_stop": task, evaluations, best_val_loss, best_step. */
HsStatus hs_metrics_stall(HsMetrics *metrics, const HsMetricsStall *stall);
/* A task that had ended lost much of what it had learned. */
typedef struct HsMetricsForgetting {
    int64_t step;
    int task;         /* in training */
    const char *name; /* of the one that is forgotten */
    double loss, loss_at_end, left;
} HsMetricsForgetting;
/* Event "forgetting": task, name, loss, loss_at_end, left. */
HsStatus hs_metrics_forgetting(HsMetrics *metrics, const HsMetricsForgetting *forgetting);
/* Event "diverged": the run ends here, by numbers that are not finite; `reason` is the message. */
HsStatus hs_metrics_diverged(HsMetrics *metrics, int64_t step, const char *reason);
/* Event "changed": keys of the configuration that are others from this step on, with their values. */
HsStatus hs_metrics_changed(HsMetrics *metrics, int64_t step, const char *keys);
/* What the report's head shows, as out_dir/run.json: threads and memory belong to this start of the run, so the record
 * in metrics.jsonl, which is the same however a run is interrupted, does not hold them. */
typedef struct HsMetricsRun {
    const char *name, *device, *precision, *strategy, *model;
    const char *processes; /* how many, and at the end what each did; NULL: one */
    const char *from;      /* init_from; NULL: the first weights were drawn */
    const char *adapter;   /* kind and rank; NULL: none */
    int64_t parameters, trained_parameters, total_steps;
    struct {
        const char *what; /* "weights", "masters", ... */
        int64_t bytes;
    } memory[16];
    int memory_count;
    int task_count;
    const char *const *task_names;
    const int64_t *task_steps; /* optimizer steps of each */
} HsMetricsRun;
HsStatus hs_metrics_run(const char *out_dir, const HsMetricsRun *run);
/* fsyncs both files and says where they end. */
HsStatus hs_metrics_sync(HsMetrics *metrics, HsMetricsPosition *position);
HsStatus hs_metrics_destroy(HsMetrics *metrics);

#endif
