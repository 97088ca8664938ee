/* SPDX-License-Identifier: MIT
 *
 * Continual learning: what is done against forgetting, behind one small interface.  A strategy is a row of a table;
 * a run may combine one that penalizes (l2, ewc, si), one that replays (er, mer, a-gem, der++), one that teaches (lwf) and merge.  A row says what the
 * strategy asks of the training loop, and holds its functions; its state and settings are its file's own business.
 *
 *     begin_task -> { mix (optim/continual/replay.h, host) -> fold -> gradients -> before_update
 *                     -> optimizer step with the spans' protection and epilogue -> after_step } ...
 *                -> after_task (Fisher) -> next task
 *
 * Memory, f32 elements a parameter: l2 1; ewc 2 (online), 3 (separate), with Kronecker factors 2 a matrix and
 * (rows + columns) block_size for its factors; si 3, or 4 where a task is not to be retained; mer 1, or 2 with several
 * groups; a-gem 1; merge 1.
 * A-GEM keeps its reference gradient, MER its snapshots, in device memory; the reservoir lies on the host.
 */
#ifndef HS_OPTIM_CONTINUAL_CONTINUAL_H
#define HS_OPTIM_CONTINUAL_CONTINUAL_H

#include "optim/continual/factors.h"
#include "optim/continual/replay.h"
#include "optim/continual/reservoir.h"
#include "optim/update.h"

enum { HS_STRATEGIES_MAX = 4, HS_SETTINGS_MAX = 48 };
/* What a run counts is below this: sums and products of two counts and a size of a step stay within 64 bits. */
#define HS_COUNT_MOST ((int64_t)1 << 50)

/* What the user set for a strategy, by the names that the configuration has for it. */
typedef struct HsSetting {
    const char *section, *name; /* "ewc", "lambda"; borrowed */
    double number;              /* a real (NAN: "auto"), a count, or a switch as 0 or 1 */
    const char *word;           /* a choice, borrowed; NULL: the setting is a number */
} HsSetting;

/* What the first task's model is: drawn at random, trained before, or that with an adapter drawn at random. */
typedef enum HsBeginning { HS_BEGINS_UNTRAINED = 0, HS_BEGINS_TRAINED, HS_BEGINS_WITH_DRAWN_ADAPTER } HsBeginning;

typedef struct HsContinualConfig {
    const char *strategies[HS_STRATEGIES_MAX]; /* names of the table; none: count 0 or "none" */
    int strategy_count;
    uint64_t seed;
    HsOptimizerKind optimizer; /* of spans without a group */
    int64_t batch_rows;        /* sequences of a batch, of which a step takes ... */
    int tasks;                 /* that the run has */
    int known;                 /* the first n of them change nothing: the run begins with what they taught */
    int64_t accumulation;      /* ... this many, unless a strategy splits them */
    bool unmarked;             /* where tasks end is not known: all are one */
    HsBeginning beginning;
    /* Whether a task is to be retained; NULL: all are.  `user` is handed to it, both are borrowed. */
    bool (*retains)(const void *user, int task);
    const void *user;
    HsSetting settings[HS_SETTINGS_MAX]; /* of the sections that the strategies read; ends with a NULL section */
} HsContinualConfig;

/* A setting that is there already is replaced.  Strings are borrowed. */
void hs_continual_set(HsContinualConfig *config, HsSetting setting);
/* Asking for a setting that is not there, or is of the other kind, is a mistake in the program. */
double hs_continual_number(const HsContinualConfig *config, const char *section, const char *name);
const char *hs_continual_word(const HsContinualConfig *config, const char *section, const char *name);
bool hs_continual_word_is(const HsContinualConfig *config, const char *section, const char *name, const char *word);

/* In addition to targets, what the loss compares with a model's earlier output (runtime/model/head_work.h); all 0:
 * nothing. */
typedef struct HsDistillation {
    int64_t kept;                 /* DER++: at most how many of the largest logits are kept with each replayed token */
    double weight, target_weight; /* a and b of kernels/ops/ops.h's match_logits */
    bool teacher;                 /* the model as it was before a later task teaches: on the task's new text (LwF), */
    HsTeaching fresh, again;      /* or on what is replayed (generative), or on both */
} HsDistillation;

typedef enum HsStrategyRole {
    HS_ROLE_ALONE = 0, /* none, joint */
    HS_ROLE_PENALIZES = 1,
    HS_ROLE_REPLAYS = 2,
    HS_ROLE_TEACHES = 3,
    HS_ROLE_ADAPTS = 4, /* gives each task an adapter, and no more */
    HS_ROLE_MERGES = 5
} HsStrategyRole;

/* One group of tokens for the Fisher, its gradient left in the spans:  F += weight (multiplier grad)^2.  Where a source
 * fills factors, this group's sums have been added to them, of gradients that are to be multiplied too; the multiplier
 * is the same in all samples, and the weight 1. */
typedef struct HsFisherSample {
    float multiplier, weight;
    double count; /* added to the denominator */
    double rows;  /* tokens with their inputs in the factors */
    bool end;     /* no more: nothing was computed */
    bool part;    /* nothing was computed: what has been gathered since the last one belongs together, see sum_part */
    bool restart; /* nothing was computed: everything begins anew, what has been gathered is to be cleared */
} HsFisherSample;

/* Where gradients for the Fisher come from (runtime/train/fisher.c); optim sees no model. */
typedef struct HsFisherSource {
    void *user;
    HsStatus (*next)(void *user, HsFisherSample *sample);
    /* Of a source with samples in parts: called at the end of each part.  The strategy's tensors of sums (fisher_sums)
     * and `numbers` hold what the part's samples add up to; they are 0 afterwards, and after the last part the sums of
     * all parts, those of other processes included.  NULL: there are no parts. */
    HsStatus (*sum_part)(void *user, double *numbers, int count);
} HsFisherSource;

enum { HS_FISHER_NUMBERS = 2 }; /* of sum_part, at most */

/* What the penalty weighs, after a task: per tensor and in all.  Of a matrix with factors the elements are the
 * eigenvalues of its curvature: the mean is theirs, the maximum bounds them. */
typedef struct HsImportanceTensor {
    const char *name;
    double maximum, mean, share; /* share of the sum over all tensors */
} HsImportanceTensor;

typedef struct HsImportance {
    int count; /* 0: this run has no importance */
    HsImportanceTensor *tensors;
    double maximum, mean;
    double strength; /* lambda */
    bool factored;   /* matrices have factors, and no proximal step */
} HsImportance;

/* Passes over a strategy's state: saving and loading are the same walk. */
typedef struct HsStateVisitor {
    void *user;
    /* 0 <= *value <= most, and a visitor that loads must see to it */
    HsStatus (*integer)(void *user, const char *name, int64_t *value, int64_t most);
    HsStatus (*real)(void *user, const char *name, double *value);
    /* element i of a per-parameter family: "ewc.anchor", span index i */
    HsStatus (*tensor)(void *user, const char *family, const char *span, HsTensor *tensor);
    /* as integer; a checkpoint without it means 0 */
    HsStatus (*added_integer)(void *user, const char *name, int64_t *value, int64_t most);
} HsStateVisitor;

typedef struct HsContinual HsContinual;

/* --- the table --- */

/* What the learning rate is multiplied by; where `most` is more a trial finds the factor between the two. */
typedef struct HsRateScale {
    double least, most;
} HsRateScale;

/* What a strategy is, what it asks of the training loop, and what it does; all but name and doc may be 0 or NULL.
 * Nothing outside of optim/continual asks for a strategy by its name.
 *
 * `state` is the strategy's own: state_bytes zeroed bytes from before create until after destroy. */
typedef struct HsStrategy {
    const char *name, *doc;
    HsStrategyRole role;
    bool plain;          /* another of its role does what it does, and more: of two, this one is to be removed */
    bool does_nothing;   /* a run says nothing of it */
    const char *section; /* of its settings; written by the user, it implies the strategy */
    bool mixes_tasks;    /* all tasks are trained at once */
    const char *needs_boundaries; /* what it does that requires known boundaries of tasks; NULL: nothing */
    /* at the beginning of each later task adapters become part of the model and are drawn anew */
    bool new_adapters;
    bool writes_rehearsal; /* the model fills the reservoir before each later task; new sequences do not enter it */
    /* after_task takes gradients from a source, as section ewc's estimator and fisher_samples say; NULL: never */
    bool (*needs_fisher)(const HsContinualConfig *config);
    const char *host_work;    /* what it does on the host within a step, which cannot be recorded then */
    const char *beside_step;  /* what it does on the device outside a recorded step */
    const char *strength_key; /* of its penalty, */
    const char *proximal_key; /* and what makes that a separate step */

    /* From the settings alone: */
    void (*describe)(const HsContinualConfig *config); /* log lines at a run's start: how strong it acts */
    int (*tensors_per_parameter)(const HsContinualConfig *config);
    size_t (*further_bytes)(const HsContinualConfig *config, const HsSpan *spans, int count); /* added to those */
    HsReplayChoice replay_choice;                                             /* where tasks are known; else any */
    void (*plan_replay)(const HsContinualConfig *config, HsReplayPlan *plan); /* changes what it wants otherwise */
    void (*plan_distillation)(const HsContinualConfig *config, HsDistillation *plan); /* the same */
    bool (*splits_accumulation)(const HsContinualConfig *config); /* each batch of an accumulation is a step */
    HsRateScale (*rate_scale)(const HsContinualConfig *config);

    bool (*whole_matrices)(const HsContinualConfig *config); /* it works on matrices, not on elements; NULL: never */
    const char *by_element; /* the setting with which it would not; NULL: there is none */

    size_t state_bytes;
    HsStatus (*create)(HsContinual *continual, void *state);
    void (*destroy)(HsContinual *continual, void *state); /* after a failed create, too */
    /* every operation that the others call, in a dry run */
    HsStatus (*dry_run)(HsContinual *continual, void *state, HsContext *dry);
    HsStatus (*begin_task)(HsContinual *continual, void *state, HsContext *context, int task);
    /* a strategy with it wants the gradient of reference rows before each step of a later task */
    HsStatus (*take_reference)(HsContinual *continual, void *state, HsContext *context);
    HsStatus (*before_update)(HsContinual *continual, void *state, HsContext *context);
    void (*fold)(HsContinual *continual, void *state, const HsReplayStep *step);
    HsStatus (*after_step)(HsContinual *continual, void *state, HsContext *context, const HsReplayStep *step,
                           bool folded);
    HsStatus (*after_task)(HsContinual *continual, void *state, HsContext *context, int task, HsFisherSource *source);
    /* In its place, of what penalizes, after a task that is not to be retained; NULL: there is nothing to drop. */
    HsStatus (*discard_task)(HsContinual *continual, void *state, HsContext *context, int task);
    /* The tensors in which after_task gathers squares and factors; returns how many, at most HS_FISHER_SUMS a span;
     * NULL: it gathers numbers alone. */
    int (*fisher_sums)(const HsContinual *continual, const void *state, HsTensor *tensors);
    /* Around the measurement: room for sums over spans with states that other processes keep; NULL: none is needed. */
    HsStatus (*begin_fisher)(HsContinual *continual, void *state);
    void (*end_fisher)(HsContinual *continual, void *state);
    HsStatus (*visit)(HsContinual *continual, void *state, const HsStateVisitor *visitor);
    /* penalties */
    bool (*anchored)(const void *state);
    bool (*is_automatic)(const void *state); /* its strength is found */
    HsStatus (*meet_task)(HsContinual *continual, void *state, double foreignness);
    HsStatus (*penalty)(HsContinual *continual, void *state, HsContext *context, double *value);
    const HsImportance *(*importance)(const void *state);
    /* [span_count], which the source of a task's end adds to; NULL: none */
    const HsSpanFactors *(*factors)(const void *state);
} HsStrategy;

extern const HsStrategy *const hs_strategy_table[];
extern const int hs_strategy_count;
const HsStrategy *hs_strategy_find(const char *name); /* NULL: no such name */

/* --- a run's strategies --- */

/* Names known, and a combination that makes sense; messages name continual.strategy and the mend. */
HsStatus hs_continual_check(const HsContinualConfig *config);
/* What the chosen strategies ask for together; names must be known. */
bool hs_continual_replays(const HsContinualConfig *config); /* a reservoir */
bool hs_continual_mixes_tasks(const HsContinualConfig *config);
/* Text of earlier tasks is kept, and replayed in every batch: enough of it for a rate that is held from task to task. */
bool hs_continual_holds_rate(const HsContinualConfig *config);
bool hs_continual_splits_accumulation(const HsContinualConfig *config);
HsRateScale hs_continual_rate_scale(const HsContinualConfig *config); /* a product */
/* The first of them with the property; NULL: none has it. */
const HsStrategy *hs_continual_needs_fisher(const HsContinualConfig *config);
/* The one that works on whole matrices, of which no process may have a part alone. */
const HsStrategy *hs_continual_whole_matrices(const HsContinualConfig *config);
const HsStrategy *hs_continual_writes_rehearsal(const HsContinualConfig *config);
const HsStrategy *hs_continual_new_adapters(const HsContinualConfig *config);
/* The one that makes the model another between two tasks. */
const HsStrategy *hs_continual_replaces_weights(const HsContinualConfig *config);
const HsStrategy *hs_continual_host_work(const HsContinualConfig *config);
const HsStrategy *hs_continual_outside_step(const HsContinualConfig *config);
const HsStrategy *hs_continual_penalizes(const HsContinualConfig *config);
const HsStrategy *hs_continual_compares_logits(const HsContinualConfig *config);
/* One with its own state: what it did at a finished task's end cannot be taken back. */
const HsStrategy *hs_continual_keeps_state(const HsContinualConfig *config);
/* The strategies' lines at a run's start. */
void hs_continual_describe(const HsContinualConfig *config);
/* rows_per_step: sequences of an optimizer step. */
HsReplayPlan hs_continual_replay_plan(const HsContinualConfig *config, int64_t rows_per_step);
HsDistillation hs_continual_distillation(const HsContinualConfig *config);
/* Tasks that are to be forgotten once they have ended: tasks.N.retain. */
bool hs_continual_retains(const HsContinualConfig *config, int task);
bool hs_continual_retains_all(const HsContinualConfig *config);
/* Device memory that create allocates; excluded spans have no penalty tensors. */
size_t hs_continual_device_bytes(const HsContinualConfig *config, const HsSpan *spans, int count);

/* Allocates every tensor and sets the spans' protection.  `context` and `spans` are borrowed and must stay until
 * destroy, which takes the protection away again; spans are written (protection). errors: HS_ECONFIG (see check; a
 * penalty with every span excluded), HS_ENOMEM */
HsStatus hs_continual_create(const HsContinualConfig *config, HsContext *context, HsSpan *spans, int count,
                             HsContinual **continual);
/* The same of the spans that this process has of a share; the statistics that strategies decide by are of all. */
HsStatus hs_continual_create_shared(const HsContinualConfig *config, HsContext *context, const HsSpanShare *share,
                                    HsContinual **created);
void hs_continual_destroy(HsContinual *continual);

/* Every operation that a strategy may call, in a dry run: `dry` learns how much scratch they need. */
HsStatus hs_continual_dry_run(HsContinual *continual, HsContext *dry);

HsStatus hs_continual_begin_task(HsContinual *continual, HsContext *context, int task);

/* An automatic strength that depends on the task to come: where it does, begin_task follows hs_continual_meet_task. */
bool hs_continual_wants_foreignness(const HsContinual *continual, int task);
/* How foreign the task's text is to the model: its perplexity divided by that of the text of the task before.  The most
 * foreign task so far counts. */
HsStatus hs_continual_meet_task(HsContinual *continual, double foreignness);

/* True when task `task` wants a reference gradient before each step's own, where there is something to refer to. */
bool hs_continual_wants_reference(const HsContinual *continual, int task);
/* The spans' gradients are the reference: kept, and cleared in the spans. */
HsStatus hs_continual_take_reference(HsContinual *continual, HsContext *context);

/* Gradients are accumulated (and still scaled).  A-GEM: projects; a non-finite element among them is left, one of
 * the reference is put there, for the optimizer to find and skip the step. */
HsStatus hs_continual_before_update(HsContinual *continual, HsContext *context);
/* Before an optimizer step that reads the spans' epilogues anew (a recorded one does not): what MER
 * interpolates where a group or a window closes becomes part of the update's own pass over memory.  The bits are the
 * same. */
void hs_continual_fold(HsContinual *continual, const HsReplayStep *step);
/* Once per optimizer step, applied or skipped.  folded: hs_continual_fold was called for it.  MER: interpolates where
 * a group or a window closes, unless that was folded into the update; packed weights are the caller's to refresh
 * then. */
HsStatus hs_continual_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step, bool folded);
/* Where a Fisher is gathered, tensors [HS_FISHER_SUMS * spans]; returns how many. */
enum { HS_FISHER_SUMS = 1 + 2 * HS_FACTOR_USES };
int hs_continual_fisher_sums(const HsContinual *continual, HsTensor *tensors);
/* Before that, and after after_task.  errors: HS_ENOMEM */
HsStatus hs_continual_begin_fisher(HsContinual *continual);
void hs_continual_end_fisher(HsContinual *continual);
/* The task's training is over: closes what is open (a MER group), then measures importance and moves the anchor.
 * Gradients are zero on entry, as a step leaves them, and on return.  `source` may be NULL unless a strategy needs_fisher.
 * errors: HS_ENUMERIC when no parameter would be protected, or importance overflows; the state is unusable then. */
HsStatus hs_continual_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);

/* The same of a task that is not to be retained.  What replays closes what is open.  A penalty stays as it was before
 * the task, to the bit: it stands for the losses of the tasks that are to be retained,
 *     sum over these t  (strength/2) F_t (theta - theta_t)^2,
 * and the task adds no term.  So the anchor stays where the latest of them ended, which is where the sum of their losses
 * has its minimum as far as the quadratic knows; at this task's end it has none, and an anchor there would hold what is
 * to be forgotten.  The next task begins away from the anchor, and the penalty pulls it back in the directions that the
 * retained tasks need, which mends what this task did to them.  Without an earlier task to be retained there is still no
 * anchor. */
HsStatus hs_continual_discard_task(HsContinual *continual, HsContext *context, int task);

/* The same as hs_continual_after_task for what penalizes alone, in the middle of an unmarked stream; `round`: how often
 * it was done. */
HsStatus hs_continual_consolidate(HsContinual *continual, HsContext *context, int round, HsFisherSource *source);

/* A penalty acts: some task has ended. */
bool hs_continual_anchored(const HsContinual *continual);
/* (strength/2) sum importance (p - anchor)^2 now; 0 without a penalty or before the first anchor. */
HsStatus hs_continual_penalty(HsContinual *continual, HsContext *context, double *value);
/* Where a source of gradients adds a task's factors, by span; NULL: no strategy wants any.  Borrowed. */
const HsSpanFactors *hs_continual_factors(const HsContinual *continual);
/* Since the latest after_task; count 0 when there is none. Borrowed. */
const HsImportance *hs_continual_importance(const HsContinual *continual);

/* Every number and tensor that a checkpoint must hold, the reservoir's apart: the same names in the same order at any
 * time.  At its end the spans' protection and the importance statistics are set from what it finds, so that a visitor
 * that writes restores a run. */
HsStatus hs_continual_visit(HsContinual *continual, const HsStateVisitor *visitor);

#endif
