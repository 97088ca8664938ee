/* SPDX-License-Identifier: MIT
 *
 * A training: what an optimizer step needs, and nothing that a run writes down.  Model, programs, optimizer, data and
 * strategies in memory, in step with other processes or alone, and the numbers that say where it is.  Benches and planners
 * make this alone; a run (run.h) has one.
 *
 *   training.c            create and destroy
 *   divide.c, virtual_ranks.c  an optimizer step in parts, and their sums
 *   exchange.c            what processes share (distributed.zero; runtime/exchange)
 *   offload.c             states on the host
 *   allocate.c            what is allocated: model, programs, optimizer, strategies; the same on paper
 *   fit.c                 what fits
 *   groups.c              optimizer.groups: rule, rate and decay of each parameter
 *   lengths.c, rates.c    how many steps each task has, and with which learning rate
 *   step.c, step_graph.c  one optimizer step: started on the device, its report collected; recorded steps
 *   distill.c             logits that a step compares: those kept of replayed sequences, a teacher's
 *   rehearsal.c           generative replay: what the model writes before a later task
 *   trial.c               before the first step: how large a learning rate may be, where a strategy asks
 *   evaluate.c            mean validation loss, exact-match accuracy
 */
#ifndef HS_RUNTIME_TRAIN_TRAINING_H
#define HS_RUNTIME_TRAIN_TRAINING_H

#include "optim/continual/continual.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/data/stream/stream.h"
#include "runtime/engine/decode.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/program.h"
#include "runtime/exchange/buckets.h"
#include "runtime/exchange/passing.h"
#include "runtime/exchange/shards.h"
#include "runtime/exchange/virtual_ranks.h"
#include "runtime/exchange/weight_stream.h"
#include "runtime/record/metrics.h"
#include "runtime/train/evaluate.h"
#include "runtime/train/memory_plan.h"
#include "runtime/train/step_queue.h"

/* Everything besides tensors that a checkpoint restores; one row of the table in numbers.c each. */
typedef struct HsTrainingState {
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
} HsTrainingState;

/* New rows, replayed ones, and what comparing logits adds. */
enum { HS_TRAINING_LOSS_KINDS = 3 };

/* What lies in files of memory.place.disk. */
typedef enum HsDiskLevel { HS_DISK_NOTHING, HS_DISK_MOMENTS, HS_DISK_MASTERS } HsDiskLevel;

/* How long the run is. */
typedef struct HsLengths {
    bool joint;
    bool unmarked;        /* continual.boundaries: none */
    bool one_phase;       /* either: all tasks are one training */
    int64_t *task_ends;   /* unmarked: [tasks] applied steps up to a task's end, which only evaluation knows */
    int phase_count;      /* trainings one after another: one a task, or one of all */
    int64_t *phase_steps; /* applied steps of each */
    int64_t total_steps;
} HsLengths;

/* Which process, and which of its virtual ranks, has what; how it goes from one to another. */
typedef struct HsExchange {
    HsShards shards;              /* all trainable parameters, and which rank has which states */
    HsSpanShare share;            /* as optimizer and strategies have it */
    HsBuckets buckets;            /* of several processes, where gradients do not pass */
    HsSideStream side;            /* what passes and comes, on a device */
    HsPassing passing;            /* zero 2 */
    HsWeightStream weight_stream; /* zero 3 */
    HsWeightVisits train_visits, evaluation_visits;
    HsProgramExchange train_exchange, evaluation_exchange;
    HsArena lent_gradients, lent_weights; /* whole ones, while they are needed */
    HsVirtualRanks ranks;
    HsPartialSums sums; /* of this process's virtual ranks */
} HsExchange;

/* Steps of one task and one number of rows that the head takes. */
typedef struct HsStepGraph {
    HsGraph *graph; /* once recorded */
    bool warm;      /* a step ran unrecorded */
} HsStepGraph;

/* What steps compare logits with. */
typedef struct HsTeacher {
    HsDistillation distillation; /* at most as many logits as the model has */
    HsModel teacher;             /* LwF: the model before the task; its weights alone */
    HsProgram program;
    HsArena hidden; /* [micro-batch T, C] */
    bool has_teacher;
    bool taught; /* the teacher knows something: the task in training is not the first */
} HsTeacher;

typedef struct HsTraining {
    HsConfig *config; /* borrowed */
    HsEngine engine;
    HsPrecision precision;
    char precision_why[256];
    HsTaskData data;
    int64_t vocabulary; /* the tokenizer's */
    bool masked;        /* some task ignores targets */
    HsMemoryPlan planned;
    HsDiskLevel on_disk; /* what memory.place sends there */
    size_t free_before;  /* of a GPU's memory, before anything was taken; 0: not asked */
    HsModel model;
    HsProgram train_program, evaluation_program;
    bool has_data, has_model, has_train_program, has_evaluation_program, has_optimizer, has_reservoir;
    HsOptimizer optimizer;
    HsOptimizerGroup groups[HS_CONFIG_MOST_GROUPS];
    HsExchange exchange;
    HsSpan *spans; /* of those with states on this rank; in shards */
    int span_count;
    HsContinualConfig continual_config;
    HsContinual *continual;
    HsTeacher teaching;
    HsReservoir reservoir;
    int32_t *openings; /* [tasks, vocabulary] how often a token began a window of a past task; NULL: not wanted */
    HsDataStream *stream;
    HsArena workspace; /* of operations outside the programs */
    HsSpan *averaged;  /* [span_count]: of this rank's, with averages as masters; NULL: there are none (averages.c) */
    HsStepQueue queue;
    bool batch_in_hand; /* the step that is being started has not accepted its batch yet */
    bool consolidating; /* the strategies' state is between two tasks: the checkpoint before it is the one to keep */
    HsStepGraph graphs[HS_TARGET_ROWS_SIZES + 1]; /* of this task's steps, by queue.target_size */
    HsTrainingState state;
    HsLengths lengths;
    int64_t rows_per_step;                           /* sequences of an optimizer step */
    int32_t *evaluation_tokens, *evaluation_targets; /* [micro-batch, T] */
    double *loss_sums;                               /* [rows_per_step, HS_TRAINING_LOSS_KINDS]: room for a step's */
    double peak_flops;                               /* of the device in this precision; 0: unknown */
    double flops_per_token;                          /* of a token with a target */
    int64_t window_tokens; /* since the latest step record; no part of the state, like the next two */
    int64_t run_tokens;    /* since the training was created, and how many of them had a target */
    int64_t run_counted;
    int64_t run_left_out; /* ... and of the others, those that no pass computed (HsProgramFeed) */
} HsTraining;

/* A training of `config` from its beginning, with its stream; nothing is written.  comm as hs_run_create's. */
HsStatus hs_training_create(HsConfig *config, HsTraining *training, HsComm *comm);
void hs_training_destroy(HsTraining *training);

/* --- training.c: the parts of creation, in this order --- */

HsStatus hs_training_begin(HsTraining *training, HsConfig *config, HsComm *comm);
/* errors: HS_ECONFIG, too, where a model is named and no text */
HsStatus hs_training_open_engine(HsTraining *training);
/* Data by the tokenizer, which it takes (NULL: the configuration's).  whole: with the files of validation that folders
 * have. */
HsStatus hs_training_open_data(HsTraining *training, HsTokenizer *tokenizer, bool whole);
/* Strategies, virtual ranks (those of the checkpoint `folder`; NULL: there is none), what a step is made of, how long all
 * is. */
HsStatus hs_training_measure(HsTraining *training, const char *folder);
/* The memory: what fits, precision, everything of hs_training_allocate, and room for evaluations. */
HsStatus hs_training_take_memory(HsTraining *training);
/* Once the weights are there: as the model reads them, and what the device can do. */
HsStatus hs_training_settle(HsTraining *training);
/* Batches of the tasks. */
HsStatus hs_training_open_stream(HsTraining *training);

/* Log lines: device, precision, model, data, memory; and the strategies. */
void hs_training_describe(const HsTraining *training);
void hs_training_describe_strategies(const HsTraining *training);

/* What memory.offload says. */
HsOffloadLevel hs_training_offload_level(const HsTraining *training);
static inline bool hs_training_passes_gradients(const HsTraining *training)
{
    return training->config->distributed.zero >= 2 || hs_training_offload_level(training) >= HS_OFFLOAD_GRADIENTS;
}
static inline bool hs_training_streams_weights(const HsTraining *training)
{
    return training->config->distributed.zero >= 3 || hs_training_offload_level(training) >= HS_OFFLOAD_WEIGHTS;
}
/* One process of a run writes its files and reports what it does. */
static inline bool hs_training_records(const HsTraining *training)
{
    return training->engine.comm->rank == 0;
}

/* --- allocate.c --- */

/* Everything that a run takes of its device: config, engine, precision, vocabulary, strategies, rows_per_step and ranks
 * come first.  Release is safe after a failure, and on what never allocated. */
HsStatus hs_training_allocate(HsTraining *training);
void hs_training_release(HsTraining *training);
/* A run with another configuration on this one's device, allocated on paper: draft->engine.device.account says what it
 * would take, its model and programs are there.  Borrows from `training`; hs_training_release ends it. */
HsStatus hs_training_draft(const HsTraining *training, const HsConfig *config, HsTraining *draft);
/* From the next step on, which must be none under way; a divisor of batch_size.  The effective batch and the order of
 * the data stay, sums are rounded in other places. */
HsStatus hs_training_set_micro_batch(HsTraining *training, int64_t micro_batch);

/* --- offload.c --- */

/* errors: HS_ECONFIG where what memory.offload says cannot be had */
HsStatus hs_training_check_offload(const HsTraining *training);
/* What it says, into the optimizer's settings. */
void hs_training_choose_offload(const HsTraining *training, HsOptimizerConfig *rules);
/* The most that memory.place.disk could hold. */
HsDiskLevel hs_training_disk_most(const HsTraining *training);
/* The most that memory.offload could be. */
HsOffloadLevel hs_training_offload_most(const HsTraining *training);
const char *hs_offload_name(HsOffloadLevel level);

/* --- divide.c --- */

/* rows_per_step and ranks, from config, strategies and engine; the virtual ranks become part of the configuration.
 * errors: HS_ECONFIG where a step cannot be divided so */
HsStatus hs_training_divide(HsTraining *training);
/* Before: those of the checkpoint (folder; NULL: none) where the configuration does not say any. */
HsStatus hs_training_keep_virtual_ranks(HsTraining *training, const char *folder);
/* Sequences that go through the model at a time. */
int64_t hs_training_micro_batch(const HsTraining *training);
/* Of the mean token so far: one without a target may need less (hs_model_left_out_flops). */
double hs_training_flops_per_token(const HsTraining *training);
/* memory.head_chunk, where it is left to the device. */
void hs_training_choose_head_chunk(const HsTraining *training, HsModel *model);
/* Prompts of each task that the end shows; 0: none. */
int64_t hs_training_samples_wanted(const HsTraining *training);

/* --- fit.c: nothing is allocated --- */

/* What `config` would take on this training's device.  Needs what hs_training_allocate needs. */
HsStatus hs_training_plan(const HsTraining *training, const HsConfig *config, HsMemoryPlan *plan);
/* The figures of an allocated training or a draft; bytes are the account's peaks. */
void hs_training_measure_plan(const HsTraining *training, HsMemoryPlan *plan);
/* The device's, or memory.limit or memory.place where that is less; and what target_gpu_util allows of it. */
size_t hs_training_device_memory(const HsTraining *training);
size_t hs_training_memory_limit(const HsTraining *training);
/* The fastest way to run training->config in `limit` bytes, with the effective batch as it is. */
HsStatus hs_training_search(const HsTraining *training, size_t limit, HsFit *fit, HsMemoryPlan *plan, bool *found);
/* The largest tensors of an allocated training or a draft, largest first; returns how many there are. */
int hs_training_list_largest(const HsTraining *training, HsTensorUse *uses, int count);

/* --- fit.c --- */

/* Fills training->planned.  A plan over the limit is refused, with what takes the memory and what would fit; with
 * memory.auto_fit the configuration is changed to that.  errors: HS_ENOMEM */
HsStatus hs_training_fit(HsTraining *training);
/* What memory.place asks for, of which fit is the rest: memory.offload, and what goes to disk; fills `planned`. */
HsStatus hs_training_place(HsTraining *training, size_t limit);
/* errors: HS_ENOMEM where the host has no room for what `planned` keeps there */
HsStatus hs_training_check_host(const HsTraining *training, size_t limit);
/* Planned, current and peak bytes by category, and the process's own, as log lines. */
void hs_training_report_memory(const HsTraining *training);
/* What the process takes at most where the device is the CPU; of GPUs' processes it is not known. */
typedef struct HsProcessPlan {
    size_t data, batches; /* tokens, masks and rows in memory; batches made ahead */
    size_t program; /* the program with its libraries, and reading sources: a constant, which is seldom all used */
    size_t bytes;   /* all of these and the device's */
} HsProcessPlan;
HsProcessPlan hs_training_plan_process(const HsTraining *training, size_t device_bytes);
/* After memory ran out: totals, the largest tensors, and what would fit into what the device has. */
void hs_training_explain_memory(const HsTraining *training);
/* One optimizer step of the task that is begun, nothing around it: no record, no checkpoint.  Allocates nothing.
 * loss: mean over the new sequences' targets, NAN when every sequence is replayed. */
HsStatus hs_training_step(HsTraining *training, double *loss, HsStepReport *report);
/* The same in two halves; between them up to queue.capacity steps are under way, oldest first.
 * errors of starting: HS_EINTERRUPTED when the context's stop_asked said so before the gradients were there: the step
 * was abandoned, and a checkpoint saved now holds the state before it.
 * errors of collecting: HS_ENUMERIC for gradients that are not finite at the smallest loss scale */
HsStatus hs_training_start_step(HsTraining *training);
HsStatus hs_training_collect_step(HsTraining *training, double *loss, HsStepReport *report);
/* Calls everything that a step calls, on a draft with a context that is to run: its device only counts, and an observer
 * sees what a step consists of. */
HsStatus hs_training_walk_step(HsTraining *draft);
/* Waits for the steps under way and counts them; nothing else is done with their reports. */
HsStatus hs_training_drop_steps(HsTraining *training);

/* --- step_graph.c --- */

/* Whether steps are recorded at all. */
bool hs_training_can_record(const HsTraining *training);
/* Says which steps will be recorded, where kernels.cuda_graph asks for it. */
void hs_training_describe_graph(const HsTraining *training);
/* What steps do is about to change (a task begins or ends): a recorded one is not theirs any more. */
void hs_training_forget_graph(HsTraining *training);

/* --- exchange.c --- */

/* After shards, share and programs. */
HsStatus hs_training_create_exchange(HsTraining *training);
void hs_training_destroy_exchange(HsTraining *training);
/* From now on the programs' passes go in step with the other processes'. */
void hs_training_exchange(HsTraining *training);
/* Whole gradients and weights, for what needs those of all parameters at once; where they are there anyway, nothing.
 * Every process calls it. */
HsStatus hs_training_lend_gradients(HsTraining *training);
void hs_training_take_back_gradients(HsTraining *training);
HsStatus hs_training_lend_weights(HsTraining *training);
void hs_training_take_back_weights(HsTraining *training);
/* After own spans' weights changed by other ways than a whole parameter's update: all processes have them, packed. */
HsStatus hs_training_publish_weights(HsTraining *training);

/* --- records.c --- */

/* Measures the peak of products, and keeps the best: other users of the machine make a probe slower, never faster,
 * so a run probes at its beginning and at its end. */
void hs_training_probe_peak(HsTraining *training);
/* The sums of losses since the latest record begin again. */
void hs_training_start_losses(HsTrainingState *state);
/* What the optimizer counts, and the loss scale, into the state. */
void hs_training_copy_optimizer_state(HsTraining *training);
/* run.json, by the process that records; processes: NULL: this one alone. */
HsStatus hs_training_write_run_info(const HsTraining *training, const char *processes);
/* Device memory by what it is for, into run->memory. */
void hs_training_list_memory(const HsTraining *training, HsMetricsRun *run);

/* --- settings.c --- */

/* Warnings of what cannot take effect in a run of this length, by process 0. */
void hs_training_warn_settings(const HsTraining *training);
/* Of a precision whose range the model leaves. */
void hs_training_warn_range(const HsTraining *training);

/* --- lengths.c --- */

/* Phases and their lengths, from the tasks' keys and their data. */
HsStatus hs_training_count_steps(HsTraining *training);
/* Applied steps that task `task` has on its own. */
int64_t hs_training_task_steps(const HsTraining *training, int task);
/* tasks.N.known: its steps change no weight. */
bool hs_training_is_known(const HsTraining *training, int task);
/* Unmarked: whether the step that was applied last ends a task; applied steps to the next one that does, INT64_MAX
 * behind the last but one. */
bool hs_training_at_task_end(const HsTraining *training);
int64_t hs_training_steps_to_task_end(const HsTraining *training);

/* --- rates.c --- */

/* continual.schedule and optimizer_state, with auto resolved: once the phases are counted. */
const char *hs_training_schedule(const HsTraining *training);
/* Whether the last task of an infinite schedule, of `steps` steps, has its rate below the peak behind step `step`. */
bool hs_training_comes_down(int64_t step, int64_t steps);
/* Steps of the task in training until it does, 0 at the last one that is held; INT64_MAX: it does not, or has. */
int64_t hs_training_steps_to_let_down(const HsTraining *training);
bool hs_training_keeps_moments(const HsTraining *training);
/* The optimizer's schedule for the task in training. */
HsStatus hs_training_set_schedule(HsTraining *training);
/* What strategies multiply the learning rate by. */
double hs_training_rate_scale(const HsTraining *training);

/* --- evaluate.c --- */

/* By the run's evaluation program. */
HsEvaluator hs_training_evaluator(HsTraining *training);

/* averages.c; without average.decay and schedule-free these do nothing.  What stands between show and hide sees the means
 * as the model's weights, and no gradients; hide passes on its status. */
bool hs_training_shows_means(const HsTraining *training);
HsStatus hs_training_create_averages(HsTraining *training);
void hs_training_destroy_averages(HsTraining *training);
HsStatus hs_training_show_averages(HsTraining *training);
HsStatus hs_training_hide_averages(HsTraining *training, HsStatus status);
/* The whole parameters, with the averages in place of masters; of what schedule-free trains with a master, which a
 * weight itself may be.  The caller frees.  NULL: no memory */
HsSpan *hs_training_averaged_parameters(const HsTraining *training);
/* Of the list that hs_weights_list made of those: to be written, what schedule-free derives. */
void hs_training_derive_items(const HsTraining *training, const HsSpan *spans, HsWeights *weights);

/* --- tasks.c --- */

/* Schedule, moments and strategies for the task in state.task (unless it is begun already), then its stream. */
HsStatus hs_training_begin_task(HsTraining *training);
/* A finished run continues because its last task became longer. */
HsStatus hs_training_reopen(HsTraining *training);

/* --- best.c --- */

/* Takes note of a validation loss of `task`: the best so far (*best), a gain or none.  Before its record; keeping the
 * checkpoint comes after it. */
void hs_training_judge(HsTraining *training, double loss, bool *best);
/* Has the task in training, or the last one of a finished run, used its patience up? */
bool hs_training_stalled(const HsTraining *training);

/* --- distill.c --- */

/* Once the model is made, before its programs are: whether and how logits are compared. */
void hs_training_expect_logits(HsTraining *training);
/* Whether steps compare logits at all. */
bool hs_training_compares_logits(const HsTraining *training);
/* What the head does for the micro-batch that begins with sequence `row`, in the queue's device memory. */
HsHeadWork hs_training_head_work(const HsTraining *training, int64_t row);
/* The teacher's last hidden rows of the micro-batch, ahead of the head's work on it; nothing where none teaches. */
HsStatus hs_training_ask_teacher(HsTraining *training, int64_t row);
/* LwF's teacher: its weights' memory; its program, in the training program's arenas; and their end.  Nothing where none
 * is wanted. */
HsStatus hs_training_create_teacher(HsTraining *training);
HsStatus hs_training_create_teacher_program(HsTraining *training);
void hs_training_destroy_teacher_program(HsTraining *training);
void hs_training_destroy_teacher(HsTraining *training);
/* Task `task` begins: the teacher becomes what the model is now, unless there is nothing to remember yet. */
HsStatus hs_training_take_teacher(HsTraining *training, int task);
/* One parameter of the model, in whichever form its weight has. */
HsStatus hs_training_copy_to_teacher(HsTraining *training, int parameter);
/* Adapters become part of the model and are drawn anew, before a later task of a strategy that gives each its own
 * (adapters.c); and what scratch that needs. */
HsStatus hs_training_renew_adapters(HsTraining *training, int task);
HsStatus hs_training_dry_renew(HsTraining *training, HsContext *dry);
/* Before a step is sent: the logits that were kept of its replayed sequences, out of the reservoir. */
void hs_training_load_logits(const HsTraining *training, HsStepSlot *slot, const HsStreamBatch *batch);
/* After it: its own, of new sequences that entered the reservoir. */
HsStatus hs_training_keep_logits(HsTraining *training, const HsStepSlot *slot);

/* --- trial.c --- */

/* Before the first step of a run, where a strategy's rate scale is to be found: tries some, a few steps each from the
 * same beginning, to which all is set back; into state.rate_found.  Nothing where there is nothing to find. */
HsStatus hs_training_try_rates(HsTraining *training);

/* --- rehearsal.c --- */

/* Counts how the windows of the task that ends begin; nothing where no strategy writes. */
HsStatus hs_training_note_openings(HsTraining *training, int task);
/* Task `task` begins: what the model writes of the earlier ones becomes the reservoir's content, out_dir/
 * rehearsal-TASK.txt, and three samples of it lines of the log.  Nothing for the first task. */
HsStatus hs_training_write_rehearsal(HsTraining *training, int task);
/* What writing takes of the device for a while, in a dry run. */
HsStatus hs_training_try_rehearsal(HsTraining *training);

/* --- continual.c --- */

typedef void (*HsTextLine)(void *user, const char *text);
/* groups.c: gives each span its group of optimizer.groups.  errors: HS_ECONFIG for a group that no parameter has */
HsStatus hs_training_join_groups(HsTraining *training);
/* A line for what is frozen, and where there is more than one rule or rate a line for each. */
void hs_training_describe_rules(const HsTraining *training, HsTextLine line, void *user);
/* Marks the spans that ewc.exclude leaves free.  errors: HS_ECONFIG for an entry that matches nothing */
HsStatus hs_training_mark_excluded(const HsTraining *training, HsSpan *spans, int count);
HsStatus hs_training_create_reservoir(HsTraining *training);
void hs_training_destroy_reservoir(HsTraining *training);
size_t hs_training_reservoir_bytes(const HsTraining *training);
/* Task `task` begins: how foreign its text is decides an automatic strength of a penalty; nothing where there is none. */
HsStatus hs_training_meet_task(HsTraining *training, int task);
/* Unmarked: whether a consolidation is due after the step that was applied last. */
bool hs_training_consolidation_due(const HsTraining *training);

/* --- start.c --- */

/* The tokenizer that comes with the weights, so that the vocabulary cannot drift: of the checkpoint `folder` to
 * continue from, else of the checkpoint that init_from names; NULL where neither is. */
HsStatus hs_training_given_tokenizer(const HsConfig *config, const char *folder, HsTokenizer **tokenizer);
/* The weights that a run begins with: from init_from, else drawn.  They are packed before products read them. */
HsStatus hs_training_start(HsTraining *training);
/* Parameters as the model reads them: rounded from the masters, gathered, packed. */
HsStatus hs_training_ready_weights(HsTraining *training);
/* The same from the masters of other spans, as many and in the same order as the run's. */
HsStatus hs_training_ready_weights_of(HsTraining *training, const HsSpan *spans);

/* --- checkpoint.c, checkpoint_continual.c --- */

/* state.micro_batch of a checkpoint, before anything is allocated. */
HsStatus hs_training_peek_micro_batch(HsTraining *training, const char *folder);
/* Strategies, reservoir and matrix: their tensors into folder/continual.safetensors. */
HsStatus hs_training_write_continual(HsTraining *training, const char *folder);

#endif
