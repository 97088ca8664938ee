/* SPDX-License-Identifier: MIT
 *
 * The training run: everything it owns, and the state that a checkpoint must hold so that a killed and resumed run is
 * bit-identical to one that was never disturbed.
 *
 *   trainer.c             create and destroy
 *   divide.c, virtual_ranks.c  an optimizer step in parts, and their sums
 *   buckets.c             gradients are summed while backward goes on
 *   shards.c, param_groups.c, passing.c, weight_stream.c, exchange.c   what processes share (distributed.zero)
 *   offload.c             states on the host
 *   allocate.c            what is allocated: model, programs, optimizer, strategies; the same on paper
 *   groups.c              optimizer.groups: rule, rate and decay of each parameter
 *   lengths.c, rates.c    how many steps each task has, and with which learning rate
 *   tasks.c               one task after another: boundaries, evaluations, the matrix
 *   continual.c           strategies: what they protect, the Fisher, what is shown of them
 *   step.c                one optimizer step: started on the device, its report collected
 *   step_graph.c          recorded steps
 *   diagnose.c            gradients that are not finite: where the first such value is
 *   trial.c               before the first step: how large a learning rate may be, where a strategy asks
 *   distill.c             logits that a step compares: those kept of replayed sequences, a teacher's
 *   rehearsal.c           generative replay: what the model writes before a later task
 *   trace_steps.c         logging.trace: the timeline of a few steps
 *   loop.c, signals.c     one optimizer step after another; logging, evaluation, saving; what stops it
 *   records.c             what is recorded of a run
 *   processes.c           what the processes of a run did, side by side
 *   pressure.c            a smaller micro-batch in mid-run, when the device's memory fills up
 *   checkpoint.c          save and restore; numbers.c, checkpoint_continual.c: the run's numbers, the strategies' part
 *   grow.c                tasks appended to the list of a run that began
 *   sources.c             which files the data came from
 *   best.c                what evaluations decide: the best checkpoint, an early end
 *   evaluate.c            mean validation loss, exact-match accuracy
 *   samples.c             at the end: prompts of each task, and what the model makes of them
 */
#ifndef HS_RUNTIME_TRAIN_TRAINER_H
#define HS_RUNTIME_TRAIN_TRAINER_H

#include "kernels/base/clock.h"
#include "optim/continual/continual.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/carried.h"
#include "runtime/data/stream/stream.h"
#include "runtime/engine/decode.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/program.h"
#include "runtime/record/matrix.h"
#include "runtime/record/metrics.h"
#include "runtime/record/monitor.h"
#include "runtime/train/evaluate.h"
#include "runtime/exchange/buckets.h"
#include "runtime/train/memory_plan.h"
#include "runtime/exchange/passing.h"
#include "runtime/train/run_lock.h"
#include "runtime/exchange/shards.h"
#include "runtime/train/step_queue.h"
#include "runtime/exchange/virtual_ranks.h"
#include "runtime/exchange/weight_stream.h"

typedef struct HsTrainerTrace HsTrainerTrace; /* trace_steps.c   */

/* Everything beside tensors that a checkpoint restores; one row of state_table in checkpoint.c         each. */
typedef struct HsTrainerState {
    HsStepCounters counters; /* the optimizer's, as of the latest step collected */
    int64_t micro_batch;     /* sequences at a time: a resumed run's, or what pressure left; 0: as configured */
    int64_t tuning_hash;     /* of the table that chose the products' kernels; 0: none */
    int64_t task;            /* index of the task (phase) in training; phase_count: all are done */
    int64_t task_begun;      /* 1: its schedule, moments and strategies were set up */
    int64_t task_steps;      /* applied in it; of a finished run: in the last task */
    int64_t matrix_rows;     /* evaluated so far, the untrained model's counted in */
    HsStreamPosition position;
    int64_t tokens_seen;
    int64_t evaluated_at;   /* applied step of the latest evaluation, -1 before the first */
    int64_t surveyed_at;    /* the same of the latest evaluation of every task */
    int64_t looked_at;      /* and of the latest look at the tasks that are over (watch.c) */
    double best_validation; /* NAN before the first */
    int64_t best_step;
    /* early_stop, of the task in training: its evaluations since the latest gain, that one counted in (0: none yet),
     * and the loss then */
    int64_t since_gain;
    double gain_loss;
    int64_t consolidated_at; /* unmarked: task_steps at the latest consolidation; 0: none yet */
    int64_t rate_let_down;   /* 1: the task before ended with the end of its schedule; 0: with its rate held */
    double rate_found;       /* of a trial, to the strategies' rate scale; NAN: none was made, 1 */
    double window_loss;      /* losses since the latest step record: their mean is what is logged */
    int64_t window_steps;
    double window_replay_loss;
    int64_t window_replay_steps;
    double window_distillation; /* the same of what comparing logits adds to the loss */
    int64_t window_distillation_steps;
    int64_t jsonl_bytes, tensorboard_bytes;
} HsTrainerState;

/* Transient: not checkpointed. */
typedef struct HsTrainerPressure {
    bool halving;          /* asked for: no step is started until the micro-batch is halved */
    bool said;             /* that it cannot be halved any more */
    HsDeviceSample sample; /* that asked */
} HsTrainerPressure;

/* What watch.c compares with, both [tasks] in one block. */
typedef struct HsTrainerWatch {
    double *at_end; /* losses of the looks' windows when a task ended; NAN: not measured */
    double *warned; /* the rise that was warned of last; 0: none was */
} HsTrainerWatch;

typedef struct HsReadFiles HsReadFiles;
typedef struct HsOrigin HsOrigin;

/* New rows, replayed ones, and what comparing logits adds. */
enum { HS_TRAINER_LOSS_KINDS = 3 };

/* What lies in files of memory.place.disk. */
typedef enum HsDiskLevel { HS_DISK_NOTHING, HS_DISK_MOMENTS, HS_DISK_MASTERS } HsDiskLevel;

typedef struct HsTrainer {
    HsConfig *config; /* borrowed */
    HsEngine engine;
    HsPrecision precision;
    char precision_why[256];
    char changes[512];         /* of the configuration since the checkpoint that is gone on from; empty: none */
    bool new_mode, new_length; /* precision.mode, or the number of steps, are among them */
    int appended;              /* tasks at the list's end that the checkpoint's run did not have */
    HsRunLock *lock;           /* of out_dir; NULL until there is a folder */
    HsTaskData data;
    HsReadFiles *files; /* what data came from; NULL: not listed */
    HsOrigin *origin;   /* what the first weights came from; NULL: not known, or another process records */
    bool moved_text;    /* the configuration has other paths for it than the checkpoint */
    HsCarried carried;  /* what exports pass on; of the process that saves */
    int64_t vocabulary; /* the tokenizer's */
    bool masked;        /* some task ignores targets */
    HsMemoryPlan planned;
    HsDiskLevel on_disk; /* what memory.place sends there */
    size_t free_before;  /* of a GPU's memory, before the run took any; 0: not asked */
    HsModel model;
    HsProgram train_program, evaluation_program;
    bool keeps_validation; /* hs_trainer_peek_data */
    bool has_data, has_model, has_train_plan, has_evaluation_plan, has_optimizer, has_matrix, has_reservoir;
    HsOptimizer optimizer;
    HsOptimizerGroup groups[HS_CONFIG_MOST_GROUPS];
    HsShards shards;              /* all trainable parameters, and whose states are whose */
    HsBuckets buckets;            /* of several processes, where gradients do not pass */
    HsBeside beside;              /* what passes and comes, on a device */
    HsPassing passing;            /* zero 2 */
    HsWeightStream weight_stream; /* zero 3 */
    HsWeightVisits train_visits, evaluation_visits;
    HsProgramExchange train_exchange, evaluation_exchange;
    HsArena lent_gradients, lent_weights; /* whole ones, while they are needed */
    HsSpanShare share;                    /* as optimizer and strategies are told */
    HsSpan *spans;                        /* of those whose states this process has; in shards */
    int span_count;
    HsVirtualRanks ranks;
    HsPartialSums sums; /* of this process's virtual ranks */
    HsContinualConfig continual_config;
    HsContinual *continual;
    HsDistillation distillation; /* at most as many logits as the model has */
    HsModel teacher;             /* LwF: the model before the task; its weights alone */
    HsProgram teacher_program;
    HsArena teacher_hidden; /* [micro-batch T, C] */
    bool has_teacher;
    bool taught; /* the teacher knows something: the task in training is not the first */
    HsReservoir reservoir;
    int32_t
        *openings; /* [tasks, vocabulary] how often a token began a window of a task that is over; NULL: not wanted */
    HsDataStream *stream;
    HsArena workspace; /* of operations outside the programs */
    HsStepQueue queue;
    bool batch_in_hand; /* the step that is being started has not accepted its batch yet */
    bool consolidating; /* the strategies' state is between two tasks: the checkpoint before it is the one to keep */
    int64_t saved_at;   /* applied steps of the checkpoint that was written, or gone on from, last */
    HsGraph *graph;     /* of this task's steps, once recorded */
    bool graph_warm;    /* a step of this task ran unrecorded */
    HsMetrics *metrics;
    HsMonitor *monitor;
    HsTrainerPressure pressure;
    HsMatrix matrix;      /* of runs with several tasks, */
    HsTrainerWatch watch; /* and this */
    HsTrainerState state;
    bool joint;
    bool unmarked;        /* continual.boundaries: none */
    bool one_phase;       /* either: all tasks are one training */
    int64_t *task_ends;   /* unmarked: [tasks] applied steps up to a task's end, which only evaluation knows */
    int phase_count;      /* trainings one after another: one a task, or one of all */
    int64_t *phase_steps; /* applied steps of each */
    int64_t total_steps;
    int64_t rows_per_step;                           /* sequences of an optimizer step */
    int32_t *evaluation_tokens, *evaluation_targets; /* [micro-batch, T] */
    double *loss_sums;                               /* [rows_per_step, HS_TRAINER_LOSS_KINDS]: room for a step's */
    /* timing, not part of the state */
    double start_s, window_start_s;
    double peak_flops; /* of the device in this precision; 0: unknown */
    double flops_per_token;
    double trained_s;   /* spent in optimizer steps, and how many tokens they saw */
    double exchanged_s; /* of that, with other processes, */
    double sent_bytes;  /* and what they were sent */
    int64_t trained_tokens;
    int64_t window_tokens;
    bool resumed;
    HsTrainerTrace *trace; /* NULL: no step of logging.trace has started */
} HsTrainer;

/* comm: the processes of the run, borrowed; NULL: this one alone. */
HsStatus hs_trainer_create(HsConfig *config, HsTrainer *trainer, HsComm *comm);
/* What memory.offload says. */
HsOffloadLevel hs_trainer_offload_level(const HsTrainer *trainer);
static inline bool hs_trainer_passes_gradients(const HsTrainer *trainer)
{
    return trainer->config->distributed.zero >= 2 || hs_trainer_offload_level(trainer) >= HS_OFFLOAD_GRADIENTS;
}
static inline bool hs_trainer_streams_weights(const HsTrainer *trainer)
{
    return trainer->config->distributed.zero >= 3 || hs_trainer_offload_level(trainer) >= HS_OFFLOAD_WEIGHTS;
}
/* One process of a run writes its files and tells what it does. */
static inline bool hs_trainer_records(const HsTrainer *trainer)
{
    return trainer->engine.comm->rank == 0;
}
/* Runs to the end, or to a signal (saves, then HS_EINTERRUPTED). */
HsStatus hs_trainer_run(HsTrainer *trainer);
void hs_trainer_destroy(HsTrainer *trainer);

/* --- allocate.c         --- */

/* Everything that a run takes of its device: config, engine, precision, vocabulary, strategies, rows_per_step and ranks
 * come first.  Release is safe after a failure, and on what never allocated. */
HsStatus hs_trainer_allocate(HsTrainer *trainer);
void hs_trainer_release(HsTrainer *trainer);
/* A run with another configuration on this one's device, allocated on paper: draft->engine.device.account says what it
 * would take, its model and programs are there.  Borrows from `trainer`; hs_trainer_release ends it. */
HsStatus hs_trainer_draft(const HsTrainer *trainer, const HsConfig *config, HsTrainer *draft);
/* From the next step on, which must be none under way; a divisor of batch_size.  The effective batch and the order of
 * the data stay, sums are rounded in other places. */
HsStatus hs_trainer_set_micro_batch(HsTrainer *trainer, int64_t micro_batch);

/* --- offload.c --- */

/* errors: HS_ECONFIG where what memory.offload says cannot be had */
HsStatus hs_trainer_check_offload(const HsTrainer *trainer);
/* What it says, into the optimizer's settings. */
void hs_trainer_choose_offload(const HsTrainer *trainer, HsOptimizerConfig *rules);
/* The most that memory.place.disk could hold. */
HsDiskLevel hs_trainer_disk_most(const HsTrainer *trainer);
/* The most that memory.offload could be. */
HsOffloadLevel hs_trainer_offload_most(const HsTrainer *trainer);
const char *hs_offload_name(HsOffloadLevel level);

/* --- divide.c --- */

/* rows_per_step and ranks, from config, strategies and engine; the virtual ranks become part of the configuration.
 * errors: HS_ECONFIG where a step cannot be divided so */
HsStatus hs_trainer_divide(HsTrainer *trainer);
/* Before: those of the checkpoint (folder; NULL: none) where the configuration does not say any. */
HsStatus hs_trainer_keep_virtual_ranks(HsTrainer *trainer, const char *folder);
/* Sequences that go through the model at a time. */
int64_t hs_trainer_micro_batch(const HsTrainer *trainer);
/* memory.head_chunk, where it is left to the device. */
void hs_trainer_choose_head_chunk(const HsTrainer *trainer, HsModel *model);
/* Prompts of each task that the end shows; 0: none. */
int64_t hs_trainer_samples_wanted(const HsTrainer *trainer);

/* --- fit.c: nothing is allocated --- */

/* What `config` would take on this trainer's device.  Needs what hs_trainer_allocate needs. */
HsStatus hs_trainer_plan(const HsTrainer *trainer, const HsConfig *config, HsMemoryPlan *plan);
/* The figures of an allocated trainer or a draft; bytes are the account's peaks. */
void hs_trainer_measure_plan(const HsTrainer *trainer, HsMemoryPlan *plan);
/* The device's, or memory.limit or memory.place where that is less; and what target_gpu_util allows of it. */
size_t hs_trainer_device_memory(const HsTrainer *trainer);
size_t hs_trainer_memory_limit(const HsTrainer *trainer);
/* The fastest way to run trainer->config in `limit` bytes, with the effective batch as it is. */
HsStatus hs_trainer_search(const HsTrainer *trainer, size_t limit, HsFit *fit, HsMemoryPlan *plan, bool *found);
/* The largest tensors of an allocated trainer or a draft, largest first; returns how many there are. */
int hs_trainer_list_largest(const HsTrainer *trainer, HsTensorUse *uses, int count);

/* --- fit.c --- */

/* Fills trainer->planned.  A plan over the limit is refused, with what takes the memory and what would fit; with
 * memory.auto_fit the configuration is changed to that.  errors: HS_ENOMEM */
HsStatus hs_trainer_fit(HsTrainer *trainer);
/* What memory.place asks for, of which fit is the rest: memory.offload, and what goes to disk; fills `planned`. */
HsStatus hs_trainer_place(HsTrainer *trainer, size_t limit);
/* errors: HS_ENOMEM where the host has no room for what `planned` keeps there */
HsStatus hs_trainer_check_host(const HsTrainer *trainer, size_t limit);
/* Planned, current and peak bytes by category, and the process's own, as log lines. */
void hs_trainer_report_memory(const HsTrainer *trainer);
/* After memory ran out: totals, the largest tensors, and what would fit into what the device has. */
void hs_trainer_explain_memory(const HsTrainer *trainer);

/* One optimizer step of the task that is begun, nothing around it: no record, no checkpoint.  Allocates nothing.
 * loss: mean over the new sequences' targets, NAN when every sequence is replayed. */
HsStatus hs_trainer_step(HsTrainer *trainer, double *loss, HsStepReport *report);

/* The same in two halves; between them up to queue.capacity steps are under way, oldest first.
 * errors of starting: HS_EINTERRUPTED when the context's stop_asked said so before the gradients were there: the step
 * was abandoned, and a checkpoint saved now holds the state before it.
 * errors of collecting: HS_ENUMERIC for gradients that are not finite at the smallest loss scale */
HsStatus hs_trainer_start_step(HsTrainer *trainer);
HsStatus hs_trainer_collect_step(HsTrainer *trainer, double *loss, HsStepReport *report);
/* Calls everything that a step calls, on a draft whose context was told to run: its device only counts, and whoever
 * observes sees what a step consists of. */
HsStatus hs_trainer_walk_step(HsTrainer *draft);
/* Waits for the steps under way and counts them; nothing else is done with their reports. */
HsStatus hs_trainer_drop_steps(HsTrainer *trainer);

/* --- diagnose.c --- */

/* After HS_ENUMERIC of a step that was collected: finds the first bad tensor, keeps the state in out_dir/diverged, and says
 * what to do.  Steps that were started after it have changed nothing and count as skipped.  Returns HS_ENUMERIC. */
HsStatus hs_trainer_diagnose(HsTrainer *trainer, const HsStepReport *report);

/* --- step_graph.c --- */

/* Whether steps are recorded at all. */
bool hs_trainer_can_record(const HsTrainer *trainer);
/* Says which steps will be recorded, where kernels.cuda_graph asks for it. */
void hs_trainer_describe_graph(const HsTrainer *trainer);
/* What steps do is about to change (a task begins or ends): a recorded one is not theirs any more. */
void hs_trainer_forget_graph(HsTrainer *trainer);

/* --- exchange.c --- */

/* After shards, share and programs. */
HsStatus hs_trainer_create_exchange(HsTrainer *trainer);
void hs_trainer_destroy_exchange(HsTrainer *trainer);
/* From now on the programs' passes go in step with the other processes'. */
void hs_trainer_exchange(HsTrainer *trainer);
/* Whole gradients and weights, for what needs those of all parameters at once; where they are there anyway, nothing.
 * Every process calls it. */
HsStatus hs_trainer_lend_gradients(HsTrainer *trainer);
void hs_trainer_take_back_gradients(HsTrainer *trainer);
HsStatus hs_trainer_lend_weights(HsTrainer *trainer);
void hs_trainer_take_back_weights(HsTrainer *trainer);

/* After own spans' weights changed by other ways than a whole parameter's update: all processes have them, packed. */
HsStatus hs_trainer_publish_weights(HsTrainer *trainer);

/* --- signals.c --- */

/* From now on SIGINT, SIGTERM, SIGHUP and SIGUSR1 ask the loop to save and stop, within a step; a line on the standard
 * error says so at once.  A second one ends the process at once, and so does the first before hs_trainer_run, when
 * there is nothing to save yet, unless `from_the_start`: then the caller looks after all of them.  SIGPIPE is ignored.
 */
void hs_trainer_install_signals(bool from_the_start);
bool hs_trainer_stop_asked(void);
/* Which signal asked; 0: none. */
int hs_trainer_stop_signal(void);
const char *hs_trainer_stop_name(void); /* "SIGTERM" */
/* From now on there is something to save: the first signal asks. */
void hs_trainer_stop_in_order(void);
/* Another process of the run was asked by this signal; nothing where this one was, too. */
void hs_trainer_stop_by(int number);

/* --- records.c --- */

/* Measures the peak of products, and keeps the best: other users of the machine make a probe slower, never faster,
 * so a run probes at its beginning and at its end. */
void hs_trainer_probe_peak(HsTrainer *trainer);

/* A metrics record of this instant, everything but step, task, skipped steps and time left out. */
HsMetricsRecord hs_trainer_record(const HsTrainer *trainer, const char *event);

/* The sums of losses since the latest record begin again. */
void hs_trainer_start_losses(HsTrainerState *state);

/* What the optimizer counts, and the loss scale, into the state. */
void hs_trainer_copy_optimizer_state(HsTrainer *trainer);

/* run.json, by the process that records; processes: NULL: this one alone. */
HsStatus hs_trainer_write_run_info(const HsTrainer *trainer, const char *processes);

/* Device memory by what it is for, into run->memory. */
void hs_trainer_list_memory(const HsTrainer *trainer, HsMetricsRun *run);

/* --- processes.c --- */

/* At the end of a run of several processes: what each did, told and into run.json. */
HsStatus hs_trainer_report_processes(HsTrainer *trainer);

/* --- pressure.c         --- */

/* After each collected step: samples the device when that is due, and halves the micro-batch when memory.pressure is
 * reached and no step is under way any more. */
HsStatus hs_trainer_watch_pressure(HsTrainer *trainer);

/* --- settings.c      --- */

/* Warnings of what cannot take effect in a run of this length, by process 0. */
void hs_trainer_warn_settings(const HsTrainer *trainer);

/* --- lengths.c --- */

/* Phases and their lengths, from the tasks' keys and their data. */
HsStatus hs_trainer_count_steps(HsTrainer *trainer);
/* Applied steps that task `task` has on its own. */
int64_t hs_trainer_task_steps(const HsTrainer *trainer, int task);
/* tasks.N.known: its steps change no weight. */
bool hs_trainer_is_known(const HsTrainer *trainer, int task);
/* Unmarked: whether the step that was applied last ends a task; applied steps to the next one that does, INT64_MAX
 * behind the last but one. */
bool hs_trainer_at_task_end(const HsTrainer *trainer);
int64_t hs_trainer_steps_to_task_end(const HsTrainer *trainer);

/* --- rates.c --- */

/* continual.schedule and optimizer_state, with auto resolved: once the phases are counted. */
const char *hs_trainer_schedule(const HsTrainer *trainer);
/* Whether the last task of an infinite schedule, of `steps` steps, has its rate below the peak behind step `step`. */
bool hs_trainer_comes_down(int64_t step, int64_t steps);
/* Steps of the task in training until it does, 0 at the last one that is held; INT64_MAX: it does not, or has. */
int64_t hs_trainer_steps_to_let_down(const HsTrainer *trainer);
bool hs_trainer_keeps_moments(const HsTrainer *trainer);
/* The optimizer's schedule for the task in training. */
HsStatus hs_trainer_set_schedule(HsTrainer *trainer);
/* What strategies multiply the learning rate by. */
double hs_trainer_rate_scale(const HsTrainer *trainer);

/* --- evaluate.c --- */

/* By the run's evaluation program. */
HsEvaluator hs_trainer_evaluator(HsTrainer *trainer);

/* --- tasks.c --- */

/* Schedule, moments and strategies for the task in state.task (unless it is begun already), then its stream. */
HsStatus hs_trainer_begin_task(HsTrainer *trainer);
/* The task's last step was applied: strategies look at it, a checkpoint is saved, every task is evaluated. */
HsStatus hs_trainer_finish_task(HsTrainer *trainer);
/* Evaluations that are due but were lost to a kill: the untrained model's, or a boundary's. */
HsStatus hs_trainer_evaluate_owed(HsTrainer *trainer);
/* The untrained model's losses on tasks `first` and later into the matrix: before a checkpoint's weights are restored.
 */
HsStatus hs_trainer_measure_untrained(HsTrainer *trainer, int first);
/* Validation loss of the task in training, as an "eval" record. */
HsStatus hs_trainer_evaluate_task(HsTrainer *trainer, int task);
/* Every task, as a "tasks" record: evaluation.all_tasks_every. */
HsStatus hs_trainer_survey(HsTrainer *trainer);
/* A finished run goes on because its last task became longer. */
HsStatus hs_trainer_reopen(HsTrainer *trainer);

/* --- watch.c --- */

/* Where there is a matrix. */
HsStatus hs_trainer_create_watch(HsTrainer *trainer);
void hs_trainer_destroy_watch(HsTrainer *trainer);
/* Task `task` has just ended: what later looks compare with. */
HsStatus hs_trainer_look_at_end(HsTrainer *trainer, int task);
/* Whether a look is due after the step that was applied last, and how many applied steps it is to the next one of this
 * task, INT64_MAX where there is none. */
bool hs_trainer_look_due(const HsTrainer *trainer);
int64_t hs_trainer_steps_to_look(const HsTrainer *trainer);
/* Measures the tasks that are over, and warns of those that are being forgotten. */
HsStatus hs_trainer_look(HsTrainer *trainer);
/* The same by the loss that a survey has measured. */
HsStatus hs_trainer_watch_survey(HsTrainer *trainer, int task, double loss);

/* --- best.c         --- */

/* Takes note of a validation loss of `task`: the best so far (*best), a gain or none.  Before its record; keeping the
 * checkpoint comes after it. */
void hs_trainer_judge(HsTrainer *trainer, double loss, bool *best);
/* Saves this instant as the task's best checkpoint where keep_best asks for it. */
HsStatus hs_trainer_keep_best(HsTrainer *trainer, int task);
/* Has the task in training, or the last one of a finished run, used its patience up? */
bool hs_trainer_stalled(const HsTrainer *trainer);
/* Says and records that the task in training ends early. */
HsStatus hs_trainer_record_stall(HsTrainer *trainer);

/* --- samples.c         --- */

/* evaluation.show prompts of each task with greedy continuations: a "samples" record, and lines of the log. */
HsStatus hs_trainer_show_samples(HsTrainer *trainer);

/* --- distill.c       --- */

/* Once the model is made, before its programs are: whether and how logits are compared. */
void hs_trainer_expect_logits(HsTrainer *trainer);
/* Whether steps compare logits at all. */
bool hs_trainer_compares_logits(const HsTrainer *trainer);
/* What the head does for the micro-batch whose first sequence is `row`, in the queue's device memory. */
HsHeadWork hs_trainer_head_work(const HsTrainer *trainer, int64_t row);
/* The teacher's last hidden rows of the micro-batch, ahead of the head's work on it; nothing where none teaches. */
HsStatus hs_trainer_ask_teacher(HsTrainer *trainer, int64_t row);
/* LwF's teacher: its weights' memory; its program, in the training program's arenas; and their end.  Nothing where none
 * is wanted. */
HsStatus hs_trainer_create_teacher(HsTrainer *trainer);
HsStatus hs_trainer_plan_teacher(HsTrainer *trainer);
void hs_trainer_unplan_teacher(HsTrainer *trainer);
void hs_trainer_destroy_teacher(HsTrainer *trainer);
/* Task `task` begins: the teacher becomes what the model is now, unless there is nothing to remember yet. */
HsStatus hs_trainer_take_teacher(HsTrainer *trainer, int task);
/* One parameter of the model, in whichever form its weight has. */
HsStatus hs_trainer_copy_to_teacher(HsTrainer *trainer, int parameter);

/* Adapters become part of the model and are drawn anew, before a later task of a strategy that gives each its own
 * (adapters.c); and what scratch that needs. */
HsStatus hs_trainer_renew_adapters(HsTrainer *trainer, int task);
HsStatus hs_trainer_dry_renew(HsTrainer *trainer, HsContext *dry);
/* Before a step is sent: the logits that were kept of its replayed sequences, out of the reservoir. */
void hs_trainer_load_logits(const HsTrainer *trainer, HsStepSlot *slot, const HsStreamBatch *batch);
/* After it: its own, of new sequences that entered the reservoir. */
HsStatus hs_trainer_keep_logits(HsTrainer *trainer, const HsStepSlot *slot);

/* --- trial.c --- */

/* Before the first step of a run: a strategy whose rate scale is to be found has some tried, a few steps each from the
 * same beginning, to which all is set back; into state.rate_found.  Nothing where there is nothing to find. */
HsStatus hs_trainer_try_rates(HsTrainer *trainer);

/* --- rehearsal.c     --- */

/* Counts how the windows of the task that ends begin; nothing where no strategy writes. */
void hs_trainer_note_openings(HsTrainer *trainer, int task);
/* Task `task` begins: what the model writes of the earlier ones becomes the reservoir's content, out_dir/
 * rehearsal-TASK.txt, and three samples of it lines of the log.  Nothing for the first task. */
HsStatus hs_trainer_write_rehearsal(HsTrainer *trainer, int task);
/* What writing takes of the device for a while, in a dry run. */
HsStatus hs_trainer_try_rehearsal(HsTrainer *trainer);

/* --- trace_steps.c   --- */

/* Steps of logging.trace run alone: whether one more may start now. */
bool hs_trainer_trace_admits(const HsTrainer *trainer);
/* Around a step from its start until it is collected; nothing where it is not to be traced. */
HsStatus hs_trainer_trace_begin(HsTrainer *trainer);
HsStatus hs_trainer_trace_end(HsTrainer *trainer);
/* At the run's end: the steps that were traced are in out_dir/trace.json, or it is said that there were none. */
HsStatus hs_trainer_trace_finish(HsTrainer *trainer);
void hs_trainer_trace_destroy(HsTrainer *trainer); /* after a failure too: what was traced is written */

/* --- continual.c         --- */

typedef void (*HsTextLine)(void *user, const char *text);
/* groups.c: gives each span its group of optimizer.groups.  errors: HS_ECONFIG for a group that no parameter has */
HsStatus hs_trainer_join_groups(HsTrainer *trainer);
/* A line for what is frozen, and where there is more than one rule or rate a line for each. */
void hs_trainer_describe_rules(const HsTrainer *trainer, HsTextLine line, void *user);
/* Marks the spans that ewc.exclude leaves free.  errors: HS_ECONFIG for an entry that matches nothing */
HsStatus hs_trainer_mark_excluded(const HsTrainer *trainer, HsSpan *spans, int count);
HsStatus hs_trainer_create_reservoir(HsTrainer *trainer);
void hs_trainer_destroy_reservoir(HsTrainer *trainer);
/* Before the first task: says how strong the strategies are, makes the matrix. */
HsStatus hs_trainer_begin_continual(HsTrainer *trainer);
size_t hs_trainer_reservoir_bytes(const HsTrainer *trainer);
/* The boundary before the first appended task did not know its learning rate. */
void hs_trainer_warn_appended(const HsTrainer *trainer);
/* Task `task` begins: how foreign its text is decides an automatic strength of a penalty; nothing where there is none. */
HsStatus hs_trainer_meet_task(HsTrainer *trainer, int task);
/* The end of a task for the strategies, the Fisher's passes included. */
HsStatus hs_trainer_consolidate(HsTrainer *trainer, int task);
/* Unmarked: whether a consolidation is due after the step that was applied last; and doing it. */
bool hs_trainer_consolidation_due(const HsTrainer *trainer);
HsStatus hs_trainer_consolidate_stream(HsTrainer *trainer);

/* --- start.c --- */

/* The tokenizer that comes with the weights, so that the vocabulary cannot drift: of the checkpoint `folder` to go on
 * from, else of the checkpoint that init_from names; NULL where neither is. */
HsStatus hs_trainer_given_tokenizer(const HsConfig *config, const char *folder, HsTokenizer **tokenizer);
/* What exports will pass on (runtime/config/carried.h), from the same places, or from the folders of Hugging Face that
 * the configuration names. */
HsStatus hs_trainer_carry(const HsConfig *config, const char *folder, HsCarried *carried);
/* The weights that a run begins with: from init_from, else drawn.  Whoever reads them by products packs them before. */
HsStatus hs_trainer_start(HsTrainer *trainer);
/* Parameters as the model reads them: rounded from the masters, gathered, packed. */
HsStatus hs_trainer_ready_weights(HsTrainer *trainer);

/* --- checkpoint.c, checkpoint_continual.c --- */

/* grow.c.  The list of tasks against the checkpoint's: counts trainer->appended and notes it as a change.
 * errors: HS_ECONFIG naming the task or key that would make the past untrue */
HsStatus hs_trainer_compare_tasks(HsTrainer *trainer, const HsConfig *saved, const char *folder);
/* After the state was restored: what the appended tasks' columns of the matrix are owed. */
HsStatus hs_trainer_grow_state(HsTrainer *trainer);

/* The files of the training data, with size and checksum (sources.c): listed once, kept in each checkpoint, and
 * compared when a run goes on; appended tasks bring theirs.  `name` is the state's for messages.  errors: HS_ECONFIG
 * naming a file that is another */
HsStatus hs_trainer_list_files(HsTrainer *trainer);
void hs_trainer_forget_files(HsTrainer *trainer);
/* errors: HS_ECONFIG where an appended task reads token files, and the tokenizer is made from text (kind char) */
HsStatus hs_trainer_check_token_files(const HsTrainer *trainer);
HsJson *hs_trainer_files_json(const HsTrainer *trainer);
HsStatus hs_trainer_check_files(const HsTrainer *trainer, const char *name, const char *folder, const HsJson *kept);

/* The files of weights that a run begins with (origin.c): listed at its start, kept in each checkpoint. */
HsStatus hs_trainer_list_origin(HsTrainer *trainer);
void hs_trainer_forget_origin(HsOrigin *origin);
HsJson *hs_trainer_origin_json(const HsTrainer *trainer);
/* From a checkpoint's trainer.json; a version that kept none leaves NULL. */
HsStatus hs_trainer_read_origin(HsTrainer *trainer, const char *folder);
/* Of a run that continues: paths in `config`, a copy with its own list of tasks, become the checkpoint's where they hold the same.
 * The text is only taken for the same here, and compared by hs_trainer_check_files.  errors: HS_ECONFIG naming the key,
 * both paths and what differs */
HsStatus hs_trainer_accept_moved(HsTrainer *trainer, const HsConfig *saved, HsConfig *config);

/* HsTrainerState as members of trainer.json (numbers.c), and back, each member in its range.  errors:
 * HS_EFORMAT naming file and member */
HsJson *hs_trainer_numbers_json(const HsTrainerState *state);
HsStatus hs_trainer_read_numbers(const char *file, const HsJson *json, HsTrainerState *state);
/* trainer->state, just read, against itself and the run. */
HsStatus hs_trainer_check_numbers(const HsTrainer *trainer, const char *file);

/* Write a checkpoint of this instant (after recording its event). */
HsStatus hs_trainer_save(HsTrainer *trainer);
/* The same, named the best of its task too (keep_best). */
HsStatus hs_trainer_save_best(HsTrainer *trainer, int task);
/* The same, named the one that a learning rate was held until. */
HsStatus hs_trainer_save_held(HsTrainer *trainer);
/* The same into another folder: the run's latest checkpoint is unchanged. */
HsStatus hs_trainer_save_aside(HsTrainer *trainer, const char *out_dir);
/* The configuration against the one that the checkpoint was made with: notes what changed. */
HsStatus hs_trainer_compare_config(HsTrainer *trainer, const char *folder);
/* After it: tensors and state of the checkpoint; trainer->resumed tells. */
HsStatus hs_trainer_restore(HsTrainer *trainer, const char *folder);
/* What a checkpoint's run does with its data as all did at first: whether it trains on files of validation that its
 * folders have (trainer->keeps_validation), and which token ends its documents (the configuration). */
HsStatus hs_trainer_peek_data(HsTrainer *trainer, const char *folder);
/* earlier_defaults.c.  Keys that the configuration does not set, and that meant something else when the checkpoint's
 * run began, mean that again. */
HsStatus hs_trainer_keep_defaults(HsConfig *config, const HsConfig *saved);
/* The same of a checkpoint's configuration: keys that its version did not have mean what that version did. */
HsStatus hs_trainer_complete_saved(HsConfig *saved);
/* state.micro_batch of a checkpoint, before anything is allocated. */
HsStatus hs_trainer_peek_micro_batch(HsTrainer *trainer, const char *folder);
/* What `resume` and out_dir's contents say: *folder is the checkpoint to go on from, or NULL.  Caller frees. */
HsStatus hs_trainer_find_checkpoint(const HsConfig *config, char **folder);
/* Strategies, reservoir and matrix: numbers into `state`, tensors into folder/continual.safetensors, and back. */
HsStatus hs_trainer_save_continual(HsTrainer *trainer, HsJson *state);
HsStatus hs_trainer_write_continual(HsTrainer *trainer, const char *folder);
HsStatus hs_trainer_restore_continual(HsTrainer *trainer, const char *folder, const HsJson *state);

#endif
