/* SPDX-License-Identifier: MIT
 *
 * Continual learning: what is done against forgetting, behind one small interface.  A strategy is a row of a table;
 * a run may combine one that penalizes (l2, ewc, si) with one that replays (er, mer, a-gem).
 *
 *     begin_task -> { mix (optim/replay.h, host) -> fold -> gradients -> before_update -> optimizer step with the
 *     spans' protection and tail -> after_step } ... -> after_task (Fisher) -> next task
 *
 * Memory, f32 elements a parameter: l2 1; ewc 2 (online), 3 (separate); si 3; mer 1, or 2 with several groups; a-gem 1.
 * A-GEM keeps its reference gradient, MER its snapshots, in device memory; the reservoir lies on the host.
 */
#ifndef HS_OPTIM_CONTINUAL_H
#define HS_OPTIM_CONTINUAL_H

#include "optim/replay.h"
#include "optim/reservoir.h"
#include "optim/update.h"

typedef enum HsNormalize { HS_NORMALIZE_NONE, HS_NORMALIZE_MAX, HS_NORMALIZE_MEAN, HS_NORMALIZE_L2 } HsNormalize;
typedef enum HsMerMode { HS_MER_ALGORITHM1, HS_MER_ALGORITHM6, HS_MER_ALGORITHM7, HS_MER_REPTILE } HsMerMode;

enum { HS_STRATEGIES_MAX = 4 };
/* What a run counts is below this: sums and products of two counts and a size of a step stay within 64 bits. */
#define HS_COUNT_MOST ((int64_t)1 << 50)

typedef struct HsContinualConfig {
    const char *strategies[HS_STRATEGIES_MAX]; /* names of the table; none: count 0 or "none" */
    int strategy_count;
    uint64_t seed;
    double replay_fraction; /* er, mer */
    struct {
        double lambda;
    } l2;
    struct {
        double lambda, gamma;
        HsNormalize normalize;
        bool separate, proximal;
    } ewc;
    struct {
        double strength, damping;
    } si;
    struct {
        HsMerMode mode;
        double beta, gamma, epsilon;
        int64_t groups, group_steps; /* group_steps: resolved, at least 1 */
        int64_t interval;
        bool compensate;
    } mer;
    int64_t reference_rows; /* a-gem */
} HsContinualConfig;

typedef enum HsStrategyRole {
    HS_ROLE_ALONE = 0, /* none, joint */
    HS_ROLE_PENALIZES = 1,
    HS_ROLE_REPLAYS = 2
} HsStrategyRole;

/* One group of tokens for the Fisher, its gradient left in the spans:  F += weight (multiplier grad)^2. */
typedef struct HsFisherSample {
    float multiplier, weight;
    double count; /* added to the denominator */
    bool end;     /* no more: nothing was computed */
} HsFisherSample;

/* Where gradients for the Fisher come from (runtime/fisher.c); optim sees no model. */
typedef struct HsFisherSource {
    void *user;
    HsStatus (*next)(void *user, HsFisherSample *sample);
} HsFisherSource;

/* What the penalty weighs, after a task: per tensor and in all. */
typedef struct HsImportanceTensor {
    const char *name;
    double maximum, mean, share; /* share of the sum over all tensors */
} HsImportanceTensor;

typedef struct HsImportance {
    int count; /* 0: this run has no importance */
    HsImportanceTensor *tensors;
    double maximum, mean;
    double strength; /* lambda */
} HsImportance;

/* Passes over a strategy's state: saving and loading are the same walk. */
typedef struct HsStateVisitor {
    void *user;
    /* 0 <= *value <= most, and a visitor that loads must see to it */
    HsStatus (*integer)(void *user, const char *name, int64_t *value, int64_t most);
    HsStatus (*real)(void *user, const char *name, double *value);
    /* element i of a per-parameter family: "ewc.anchor", span index i */
    HsStatus (*tensor)(void *user, const char *family, const char *span, HsTensor *tensor);
} HsStateVisitor;

typedef struct HsContinual HsContinual;

/* --- the table --- */
typedef struct HsStrategy {
    const char *name, *doc;
    HsStrategyRole role;
    int (*tensors_per_parameter)(
        const HsContinualConfig *config); /* this and what follows: NULL where nothing is done */
    HsStatus (*create)(HsContinual *continual);
    HsStatus (*begin_task)(HsContinual *continual, HsContext *context, int task);
    HsStatus (*before_update)(HsContinual *continual, HsContext *context);
    void (*fold)(HsContinual *continual, const HsReplayStep *step);
    HsStatus (*after_step)(HsContinual *continual, HsContext *context, const HsReplayStep *step);
    HsStatus (*after_task)(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);
    HsStatus (*visit)(HsContinual *continual, const HsStateVisitor *visitor);
} HsStrategy;

extern const HsStrategy hs_strategy_table[];
extern const int hs_strategy_count;
const HsStrategy *hs_strategy_find(const char *name); /* NULL: no such name */

/* --- a run's strategies --- */

/* Names known, and a combination that makes sense; messages name continual.strategy and the mend. */
HsStatus hs_continual_check(const HsContinualConfig *config);
bool hs_continual_has(const HsContinualConfig *config, const char *strategy);
bool hs_continual_replays(const HsContinualConfig *config); /* needs a reservoir */
/* rows_per_step: sequences of an optimizer step. */
HsReplayPlan hs_continual_replay_plan(const HsContinualConfig *config, int64_t rows_per_step);
/* Device memory that create allocates; excluded spans have no penalty tensors. */
size_t hs_continual_device_bytes(const HsContinualConfig *config, const HsSpan *spans, int count);

/* Allocates every tensor and sets the spans' protection.  `context` and `spans` are borrowed and must stay until
 * destroy, which takes the protection away again; spans are written (protection). errors: HS_ECONFIG (see check; a
 * penalty with every span excluded), HS_ENOMEM */
HsStatus hs_continual_create(const HsContinualConfig *config, HsContext *context, HsSpan *spans, int count,
                             HsContinual **continual);
void hs_continual_destroy(HsContinual *continual);

/* Every operation that a strategy may call, in a dry run: `dry` learns how much scratch they need. */
HsStatus hs_continual_dry_run(HsContinual *continual, HsContext *dry);

HsStatus hs_continual_begin_task(HsContinual *continual, HsContext *context, int task);

/* a-gem: true when task `task` wants a reference gradient before each step's own. */
bool hs_continual_wants_reference(const HsContinual *continual, int task);
/* The spans' gradients are the reference: kept, and cleared in the spans. */
HsStatus hs_continual_take_reference(HsContinual *continual, HsContext *context);

/* Gradients are accumulated (and still scaled).  A-GEM: projects; a non-finite element among them is left, one of
 * the reference is put there, for the optimizer to find and skip the step. */
HsStatus hs_continual_before_update(HsContinual *continual, HsContext *context);
/* Before an optimizer step whose update reads the spans' tails anew (a recorded one does not): what MER interpolates
 * where a group or a window closes becomes part of the update's own pass over memory.  The bits are the same. */
void hs_continual_fold(HsContinual *continual, const HsReplayStep *step);
/* Once per optimizer step, applied or skipped.  MER: interpolates where a group or a window closes, unless that was
 * folded into the update; packed weights are the caller's to refresh then. */
HsStatus hs_continual_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step);
/* The task's training is over: closes what is open (a MER group), then measures importance and moves the anchor.
 * Gradients are zero on entry, as a step leaves them, and on return.  `source` is read by ewc only, else may be NULL.
 * errors: HS_ENUMERIC when no parameter would be protected, or importance overflows; the state is unusable then. */
HsStatus hs_continual_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);

/* A penalty acts: some task has ended. */
bool hs_continual_anchored(const HsContinual *continual);
/* (strength/2) sum importance (p - anchor)^2 now; 0 without a penalty or before the first anchor. */
HsStatus hs_continual_penalty(HsContinual *continual, HsContext *context, double *value);
/* Since the latest after_task; count 0 when there is none. Borrowed. */
const HsImportance *hs_continual_importance(const HsContinual *continual);

/* MER: what a window's displacement is multiplied by: s beta gamma, gamma (6, 7), epsilon (reptile); 1 without mer. */
double hs_mer_displacement(const HsContinualConfig *config);
/* What the learning rate is multiplied by: 1, or with mer.compensate what optim/mer.c derives. */
double hs_mer_rate_scale(const HsContinualConfig *config);

/* Every number and tensor that a checkpoint must hold, the reservoir's apart: the same names in the same order at any
 * time.  At its end the spans' protection and the importance statistics are set from what it finds, so that a visitor
 * that writes restores a run. */
HsStatus hs_continual_visit(HsContinual *continual, const HsStateVisitor *visitor);

#endif
