/* SPDX-License-Identifier: MIT
 *
 * A training run: a training (training.h), its folder and record, and the state that a checkpoint must hold so that a
 * killed and resumed run is bit-identical to one that was never disturbed.
 *
 *   run.c                 create and destroy
 *   loop.c, signals.c     one optimizer step after another; logging, evaluation, saving; what stops it
 *   tasks.c               one task after another: boundaries, evaluations, the matrix
 *   continual.c           strategies: what they protect, the Fisher, what is shown of them
 *   watch.c               tasks that are being forgotten
 *   diagnose.c            gradients that are not finite: where the first such value is
 *   trace_steps.c         logging.trace: the timeline of a few steps
 *   records.c             what is recorded
 *   processes.c           what the processes did, side by side
 *   pressure.c            a smaller micro-batch in mid-run, when the device's memory fills up
 *   checkpoint.c          save and restore; numbers.c, checkpoint_continual.c: the numbers, the strategies' part
 *   grow.c                tasks appended to the list of a run that began
 *   sources.c, origin.c   which files the data, and the first weights, came from
 *   best.c                what evaluations decide: the best checkpoint, an early end
 *   samples.c             at the end: prompts of each task, and what the model makes of them
 */
#ifndef HS_RUNTIME_TRAIN_RUN_H
#define HS_RUNTIME_TRAIN_RUN_H

#include "kernels/base/clock.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/carried.h"
#include "runtime/record/matrix.h"
#include "runtime/record/metrics.h"
#include "runtime/record/monitor.h"
#include "runtime/train/run_lock.h"
#include "runtime/train/signals.h"
#include "runtime/train/training.h"

typedef struct HsRunTrace HsRunTrace; /* trace_steps.c */
typedef struct HsReadFiles HsReadFiles;
typedef struct HsOrigin HsOrigin;

/* Transient: not checkpointed. */
typedef struct HsRunPressure {
    bool halving;          /* asked for: no step is started until the micro-batch is halved */
    bool warned;           /* that it cannot be halved any more */
    HsDeviceSample sample; /* that asked */
} HsRunPressure;

/* What watch.c compares with, both [tasks] in one block. */
typedef struct HsRunWatch {
    double *at_end; /* losses of the looks' windows when a task ended; NAN: not measured */
    double *warned; /* the rise that was warned of last; 0: none was */
} HsRunWatch;

typedef struct HsRun {
    HsTraining training;
    char changes[512];         /* of the configuration since the checkpoint that it continues; empty: none */
    bool new_mode, new_length; /* precision.mode, or the number of steps, are among them */
    bool resumed;
    int appended;          /* tasks at the list's end that the checkpoint's run did not have */
    HsRunLock *lock;       /* of out_dir; NULL until there is a folder */
    HsReadFiles *files;    /* what data came from; NULL: not listed */
    HsOrigin *origin;      /* what the first weights came from; NULL: not known, or another process records */
    bool moved_text;       /* the configuration has other paths for it than the checkpoint */
    bool keeps_validation; /* hs_run_peek_data */
    HsCarried carried;     /* what exports pass on; of the process that saves */
    int64_t saved_at;      /* applied steps of the checkpoint that was written, or continued, last */
    HsMetrics *metrics;
    HsMonitor *monitor;
    HsRunPressure pressure;
    bool has_matrix;
    HsMatrix matrix;   /* of runs with several tasks, */
    HsRunWatch watch;  /* and this */
    HsRunTrace *trace; /* NULL: no step of logging.trace has started */
    /* timing, not part of the state */
    double start_s, window_start_s;
    double trained_s;   /* spent in optimizer steps, and how many tokens they saw */
    double exchanged_s; /* of that, with other processes, */
    double sent_bytes;  /* and what they were sent */
    int64_t trained_tokens;
} HsRun;

/* comm: the processes of the run, borrowed; NULL: this one alone. */
HsStatus hs_run_create(HsConfig *config, HsRun *run, HsComm *comm);
/* Runs to the end, or to a signal (saves, then HS_EINTERRUPTED). */
HsStatus hs_run_train(HsRun *run);
void hs_run_destroy(HsRun *run);

/* --- diagnose.c --- */

/* After HS_ENUMERIC of a step that was collected: finds the first bad tensor, keeps the state in out_dir/diverged, and says
 * what to do.  Steps that were started after it have changed nothing and count as skipped.  Returns HS_ENUMERIC. */
HsStatus hs_run_diagnose(HsRun *run, const HsStepReport *report);

/* --- records.c --- */

/* A metrics record of this instant, everything but step, task, skipped steps and time left out. */
HsMetricsRecord hs_run_record(const HsRun *run, const char *event);

/* --- processes.c --- */

/* At the end of a run of several processes: what each did, in the log and in run.json. */
HsStatus hs_run_report_processes(HsRun *run);

/* --- pressure.c --- */

/* After each collected step: samples the device when that is due, and halves the micro-batch when memory.pressure is
 * reached and no step is under way any more. */
HsStatus hs_run_watch_pressure(HsRun *run);

/* --- tasks.c --- */

/* The task's last step was applied: strategies look at it, a checkpoint is saved, every task is evaluated. */
HsStatus hs_run_finish_task(HsRun *run);
/* Evaluations that are due but were lost to a kill: the untrained model's, or a boundary's. */
HsStatus hs_run_evaluate_owed(HsRun *run);
/* The untrained model's losses on tasks `first` and later into the matrix: before a checkpoint's weights are restored.
 */
HsStatus hs_run_measure_untrained(HsRun *run, int first);
/* Validation loss of the task in training, as an "eval" record. */
HsStatus hs_run_evaluate_task(HsRun *run, int task);
/* Every task, as a "tasks" record: evaluation.all_tasks_every. */
HsStatus hs_run_evaluate_tasks(HsRun *run);

/* --- watch.c --- */

/* Where there is a matrix. */
HsStatus hs_run_create_watch(HsRun *run);
void hs_run_destroy_watch(HsRun *run);
/* Task `task` has just ended: what later looks compare with. */
HsStatus hs_run_look_at_end(HsRun *run, int task);
/* Whether a look is due after the step that was applied last, and how many applied steps it is to the next one of this
 * task, INT64_MAX where there is none. */
bool hs_run_look_due(const HsRun *run);
int64_t hs_run_steps_to_look(const HsRun *run);
/* Measures the tasks that are over, and warns of those that are being forgotten. */
HsStatus hs_run_look(HsRun *run);
/* The same by the loss that a survey has measured. */
HsStatus hs_run_watch_survey(HsRun *run, int task, double loss);

/* --- best.c --- */

/* Saves this instant as the task's best checkpoint where keep_best asks for it. */
HsStatus hs_run_keep_best(HsRun *run, int task);
/* Says and records that the task in training ends early. */
HsStatus hs_run_record_stall(HsRun *run);

/* --- samples.c --- */

/* evaluation.show prompts of each task with greedy continuations: a "samples" record, and lines of the log. */
HsStatus hs_run_show_samples(HsRun *run);

/* --- trace_steps.c --- */

/* Steps of logging.trace run alone: whether one more may start now. */
bool hs_run_trace_admits(const HsRun *run);
/* Around a step from its start until it is collected; nothing where it is not to be traced. */
HsStatus hs_run_trace_begin(HsRun *run);
HsStatus hs_run_trace_end(HsRun *run);
/* At the run's end: the steps that were traced are in out_dir/trace.json, or it is said that there were none. */
HsStatus hs_run_trace_finish(HsRun *run);
void hs_run_trace_destroy(HsRun *run); /* after a failure too: what was traced is written */

/* --- continual.c --- */

/* Before the first task: says how strong the strategies are, makes the matrix. */
HsStatus hs_run_begin_continual(HsRun *run);
/* The boundary before the first appended task did not know its learning rate. */
void hs_run_warn_appended(const HsRun *run);
/* The end of a task for the strategies, the Fisher's passes included. */
HsStatus hs_run_consolidate(HsRun *run, int task);
/* Unmarked, where hs_training_consolidation_due says so. */
HsStatus hs_run_consolidate_stream(HsRun *run);

/* --- start.c --- */

/* What exports will pass on (runtime/config/carried.h), from the same places, or from the folders of Hugging Face that
 * the configuration names. */
HsStatus hs_run_carry(const HsConfig *config, const char *folder, HsCarried *carried);

/* --- checkpoint.c, checkpoint_continual.c --- */

/* grow.c.  The list of tasks against the checkpoint's: counts run->appended and notes it as a change.
 * errors: HS_ECONFIG naming the task or key that would make the past untrue */
HsStatus hs_run_compare_tasks(HsRun *run, const HsConfig *saved, const char *folder);
/* After the state was restored: what the appended tasks' columns of the matrix are owed. */
HsStatus hs_run_grow_state(HsRun *run);
/* The files of the training data, with what each is known by (sources.c): listed once, kept in each checkpoint, and
 * compared when a run continues; appended tasks bring theirs.  `name` is the state's for messages.  errors: HS_ECONFIG
 * naming a file that is another */
HsStatus hs_run_list_files(HsRun *run);
void hs_run_forget_files(HsRun *run);
/* errors: HS_ECONFIG where an appended task reads token files, and the tokenizer is made from text (kind char) */
HsStatus hs_run_check_token_files(const HsRun *run);
HsJson *hs_run_files_json(const HsRun *run);
/* Every process reads the whole batch: their files have to be the same.  errors: HS_ECONFIG, in all of them */
HsStatus hs_run_compare_files(const HsRun *run);
HsStatus hs_run_check_files(const HsRun *run, const char *name, const char *folder, const HsJson *kept);
/* The files of weights that a run begins with (origin.c): listed at its start, kept in each checkpoint. */
HsStatus hs_run_list_origin(HsRun *run);
void hs_run_forget_origin(HsOrigin *origin);
HsJson *hs_run_origin_json(const HsRun *run);
/* From a checkpoint's trainer.json; a version that kept none leaves NULL. */
HsStatus hs_run_read_origin(HsRun *run, const char *folder);
/* Of a run that continues: paths in `config`, a copy with its own list of tasks, become the checkpoint's where they hold the same.
 * The text is only taken for the same here, and compared by hs_run_check_files.  errors: HS_ECONFIG naming the key,
 * both paths and what differs */
HsStatus hs_run_accept_moved(HsRun *run, const HsConfig *saved, HsConfig *config);
/* HsTrainingState as members of trainer.json (numbers.c), and back, each member in its range.  errors:
 * HS_EFORMAT naming file and member */
HsJson *hs_run_numbers_json(const HsTrainingState *state);
HsStatus hs_run_read_numbers(const char *file, const HsJson *json, HsTrainingState *state);
/* Of a checkpoint's folder, before anything of it is restored; `file` is the member's file, for messages. */
enum { HS_RUN_PATH = 4096 };
HsStatus hs_run_peek_numbers(const char *folder, char file[HS_RUN_PATH], HsTrainingState *state);
/* The state, just read, against itself and the run. */
HsStatus hs_run_check_numbers(const HsRun *run, const char *file);
/* Write a checkpoint of this instant (after recording its event). */
HsStatus hs_run_save(HsRun *run);
/* The same, named the best of its task too (keep_best). */
HsStatus hs_run_save_best(HsRun *run, int task);
/* The same, named the one that a learning rate was held until. */
HsStatus hs_run_save_held(HsRun *run);
/* The same into another folder: the run's latest checkpoint is unchanged. */
HsStatus hs_run_save_aside(HsRun *run, const char *out_dir);
/* The configuration against the one that the checkpoint was made with: notes what changed. */
HsStatus hs_run_compare_config(HsRun *run, const char *folder);
/* After it: tensors and state of the checkpoint; sets run->resumed. */
HsStatus hs_run_restore(HsRun *run, const char *folder);
/* What a checkpoint's run does with its data as all did at first: whether it trains on files of validation that its
 * folders have (run->keeps_validation), and which token ends its documents (the configuration). */
HsStatus hs_run_peek_data(HsRun *run, const char *folder);
/* earlier_defaults.c.  Keys that the configuration does not set, and that meant something else when the checkpoint's
 * run began, mean that again. */
HsStatus hs_run_keep_defaults(HsConfig *config, const HsConfig *saved);
/* The same of a checkpoint's configuration: keys that its version did not have mean what that version did. */
HsStatus hs_run_complete_saved(HsConfig *saved);
/* What `resume` and out_dir's contents say: *folder is the checkpoint to continue from, or NULL.  Caller frees. */
HsStatus hs_run_find_checkpoint(const HsConfig *config, char **folder);
/* Strategies, reservoir and matrix: their numbers into `state`. */
HsStatus hs_run_save_continual(HsRun *run, HsJson *state);
/* Back: strategies, reservoir and matrix. */
HsStatus hs_run_restore_continual(HsRun *run, const char *folder, const HsJson *state);

#endif
