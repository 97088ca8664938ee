/* SPDX-License-Identifier: MIT
 *
 * One optimizer step over parameter spans, in the fixed order
 *     (gradients accumulated and reduced by the caller) -> unscale -> check -> clip -> step or skip -> scaler update.
 * The caller cannot reorder it.  Sees spans, not models.
 *
 * The decisions are made on the device (kernels/ops/step.h), so a caller may start steps before it knows the outcome of
 * earlier ones; HsOptimizer's counters and loss scale are then those of the latest step collected:
 *
 *     announce -> { input to the device -> begin -> gradients -> update -> outcome from the device } -> collect
 *
 * What stands in braces only enqueues work, always the same: it can be recorded and replayed.
 */
#ifndef HS_OPTIM_UPDATE_H
#define HS_OPTIM_UPDATE_H

#include <stdbool.h>

#include "kernels/base/arena.h"
#include "kernels/base/comm.h"
#include "kernels/ops/backend.h"
#include "optim/kinds.h"
#include "optim/scaler.h"
#include "optim/schedule.h"

#define HS_OPTIMIZER_KIND(identifier, word) HS_OPTIMIZER_##identifier,
typedef enum HsOptimizerKind { HS_OPTIMIZERS(HS_OPTIMIZER_KIND) HS_OPTIMIZER_KINDS } HsOptimizerKind;

/* What lies in the host's memory and not in the device's; each level has what those before it have.
 *   optimizer: masters and states, and what strategies keep of each parameter; gradients: also the sums of gradients;
 *   weights: also what forward reads */
#define HS_OFFLOAD_LEVEL(identifier, word) HS_OFFLOAD_##identifier,
typedef enum HsOffloadLevel { HS_OFFLOAD_LEVELS(HS_OFFLOAD_LEVEL) } HsOffloadLevel;

/* Settings of one group of parameters. */
typedef struct HsOptimizerGroup {
    HsOptimizerKind kind;
    double weight_decay;
    double learning_rate_scale; /* its peak rate over the run's */
} HsOptimizerGroup;

enum { HS_SPAN_STATES = 5 };

/* Elements of x that are made at a time. */
enum { HS_DERIVED_PIECE = 1 << 18 };

/* What a matrix does in the network, bits: y = w x; the same, with a row for each word of the vocabulary; each token
 * looks up a row. */
enum { HS_SPAN_MULTIPLIES = 1, HS_SPAN_MAKES_LOGITS = 2, HS_SPAN_IS_LOOKED_UP = 4 };

/* Elements [first, first + count) of one parameter, as the optimizer sees them.  Tensors hold device pointers; absent
 * ones have rank 0.  A whole parameter is one span; a shard of the model is a list of other ones, which update to the
 * same bits: random numbers belong to parameter and element. */
typedef struct HsSpan {
    const char *name;
    int parameter; /* which of the model's */
    int64_t first, count;
    /* of a part, what decides by which rule the whole is updated: its elements (0: this is the whole), and whether each
     * token looks up a row of it */
    int64_t part_of;
    bool part_of_table;
    /* a matrix: how many are stacked along its rows, and the rows of each; 0: none (a table, a vector, a part) */
    int part_count;
    const int64_t *part_rows;
    int64_t head_rows;             /* of a head, in a stack of queries, keys and values; 0: it is none */
    bool adapts;                   /* the first factor of an adapter, a row a direction of its input */
    unsigned uses;                 /* of a whole matrix; 0: a vector, or a part */
    const HsOptimizerGroup *group; /* NULL: the run's own rule, decay and rate */
    bool decay;                    /* weight decay applies */
    float learning_rate_scale;     /* 1 by default; a group's comes on top */
    HsTensor weight;               /* what forward reads: f32 or 16-bit */
    HsTensor master;               /* f32, absent when weight is f32 or trained by stochastic rounding */
    HsTensor gradient;             /* f32 or 16-bit, scaled; cleared by the step */
    HsTensor state[HS_SPAN_STATES];
    HsTensorShare share; /* of master and states, in a span that stands for a whole parameter: each process's ranges */
    bool excluded;       /* from penalties */
    HsProtection protection;   /* set by the continual strategies; all absent: none */
    HsUpdateEpilogue epilogue; /* packed layouts are the model's, the rest is set by the continual strategies */
} HsSpan;

/* Several processes keep the states of one model: each of some consecutive spans of a list that all of them have. */
typedef struct HsSpanShare {
    HsSpan *all; /* in order of parameters and elements; borrowed */
    int all_count;
    int first, count; /* this process's */
    HsComm *comm;     /* of those that share; NULL: this process has all */
    bool on_host;     /* what strategies keep of them lies in the host's memory */
} HsSpanShare;

/* values [kinds, all]: this process filled in those of its spans, and 0 stands elsewhere; afterwards all processes
 * have all of them.  Host memory. */
HsStatus hs_span_share_values(const HsSpanShare *share, HsStream *stream, double *values, int kinds);

/* `count` elements of a whole parameter's span from `first` (a multiple of HS_SPAN_GRAIN) on, as a separate span.  A
 * shorter state has one element a HS_DYNAMIC_BLOCK: parts begin where blocks do.  Parts have no packed layouts. */
HsSpan hs_span_cut(const HsSpan *whole, int64_t first, int64_t count);

#define HS_MUON_POLYNOMIAL(identifier, name) HS_MUON_##identifier,
typedef enum HsMuonPolynomial { HS_MUON_POLYNOMIALS(HS_MUON_POLYNOMIAL) HS_MUON_POLYNOMIAL_COUNT } HsMuonPolynomial;
#undef HS_MUON_POLYNOMIAL

typedef struct HsMuonConfig {
    /* from start, over as many steps, to momentum, and as the schedule's rate decays to end */
    double momentum, momentum_start, momentum_end;
    int64_t momentum_warmup_steps;
    bool nesterov;
    bool equilibrate;    /* rows of one length before the iteration */
    double beta2;        /* NorMuon's; 0: neurons keep the sizes that the iteration gives them */
    bool cautious_decay; /* where it does not oppose the step */
    int64_t head_group;  /* heads of queries, and of keys, that make a matrix; 0: all do */
    HsMuonPolynomial polynomial;
    int64_t steps;   /* of the iteration */
    HsDtype product; /* format of its operands */
    HsProductPolicy policy;
} HsMuonConfig;

#define HS_APOLLO_GRANULARITY(identifier, name) HS_APOLLO_##identifier,
typedef enum HsApolloGranularity { HS_APOLLO_GRANULARITIES(HS_APOLLO_GRANULARITY) } HsApolloGranularity;
#undef HS_APOLLO_GRANULARITY

typedef struct HsApolloConfig {
    int64_t rank;                    /* of what Adam sees of a gradient */
    int64_t interval;                /* applied steps that a projection serves */
    double scale;                    /* of steps: the paper's alpha */
    HsApolloGranularity granularity; /* of the factors */
    double growth_limit;             /* of a step's norm over that of the one before; 0: none */
    HsProductPolicy policy;          /* of the projection, a product in f32 */
} HsApolloConfig;

typedef struct HsOptimizerConfig {
    HsOptimizerKind kind;
    double beta1, beta2, epsilon, momentum, weight_decay, clip_norm; /* clip_norm 0: none */
    bool nesterov;
    double average_decay; /* of a moving average of every parameter, kept with its states; 0: none */
    HsDtype moments;      /* of AdamW, with a schedule and without, and APOLLO: f32 or bf16, rounded stochastically */
    HsMuonConfig muon;
    HsApolloConfig apollo;
    uint64_t seed;          /* stochastic rounding, and APOLLO's projections */
    HsOffloadLevel offload; /* what lies on the host, which updates it (optim/offload.h) */
    int host_threads;       /* of that */
    const char *disk;       /* a folder for states, and with masters_on_disk for masters; NULL: none.  Borrowed */
    bool masters_on_disk;
    const HsSpanShare *share; /* the optimizer's spans are its own ones; NULL: nothing is shared.  Borrowed */
} HsOptimizerConfig;

typedef struct HsOptimizer {
    HsOptimizerConfig config;
    HsSchedule schedule;
    HsScalerConfig scaling;
    HsStepCounters counters;    /* of the latest step collected */
    double learning_rate_scale; /* of the next step; 1 unless a strategy says otherwise */
    /* device records at fixed addresses: the caller copies input and outcome, and reads the others' addresses */
    HsStepInput *input;
    HsStepOutcome *outcome;
    HsStepState *state;
    float *gradient_scales; /* [HS_STEP_ROWS], see HsBeginStepArgs */
    /* private: device scalars and per-span statistics, allocated once by init */
    HsStepScalars *scalars;
    size_t block_bytes;
    double *sum_squares;
    int64_t *nonfinite;
    HsTensor *gradients;
    HsUpdateListArgs list;        /* the step's; each array has room for every span */
    struct HsWholeUpdate *wholes; /* likewise: the spans that are updated each by separate operations */
    int span_count;
    int first, all_count; /* of all that share: their statistics decide together */
    int in_flight;        /* announced and not collected */
    HsDevice *device;
    HsArena masters, states;   /* of the spans */
    struct HsOffload *offload; /* NULL: the device updates */
} HsOptimizer;

typedef struct HsStepReport {
    HsScalerVerdict verdict;
    double gradient_norm; /* unscaled, before clipping; non-finite when found */
    double clip_coefficient;
    double learning_rate;
    float loss_scale;    /* the one this step's gradients were made with */
    int first_nonfinite; /* index of the first span (of all) with non-finite elements, -1 if none */
    int64_t nonfinite_elements;
} HsStepReport;

/* errors: HS_ECONFIG for a name that is no rule's */
HsStatus hs_optimizer_kind_find(const char *name, HsOptimizerKind *kind);
/* The rule that updates a span: its group's or the run's, or AdamW where that one does not serve it. */
HsOptimizerKind hs_optimizer_kind_of(const HsOptimizerConfig *config, const HsSpan *span);
const char *hs_optimizer_kind_name(HsOptimizerKind kind);
/* Which parameters the rule serves, in words; NULL: all. */
const char *hs_optimizer_kind_serves(HsOptimizerKind kind);
/* What to do about a model in which the rule serves nothing; NULL: that is as it should be. */
const char *hs_optimizer_kind_mend(HsOptimizerKind kind);
/* Whether the rule makes the step of what it serves from the whole matrix, which one process and one memory then have. */
bool hs_optimizer_kind_needs_whole(HsOptimizerKind kind);
/* How many state tensors a span has by its rule, and their names: "m", "v", "momentum", "m_absmax", "v_absmax",
 * "z_minus_y"; behind them, with average_decay, "average". */
int hs_optimizer_state_count(const HsOptimizerConfig *config, const HsSpan *span);
/* f32, of the span's shape; NULL: averages are not kept */
const HsTensor *hs_optimizer_average(const HsOptimizerConfig *config, const HsSpan *span);
const char *hs_optimizer_state_name(const HsOptimizerConfig *config, const HsSpan *span, int index);

HsStatus hs_optimizer_init(HsOptimizer *optimizer, HsDevice *device, const HsOptimizerConfig *config,
                           const HsSchedule *schedule, const HsScalerConfig *scaler, int span_count);
void hs_optimizer_deinit(HsOptimizer *optimizer);

/* Allocates what the rules keep for the spans: a master of `master` where the weight is narrower, and zeroed
 * states.  What spans of one parameter keep of a kind lies in one piece.  Callers with their own tensors need none. */
HsStatus hs_optimizer_commit(HsOptimizer *optimizer, HsSpan *spans, int count, HsDtype master);
/* Master and states of a whole parameter, as this process has them: `own` is the first of its spans there, NULL: it has
 * none, and the tensors no data.  After commit. */
void hs_optimizer_view(const HsOptimizer *optimizer, const HsSpan *own, HsDtype master, HsSpan *whole);
/* weight = round(master), wherever there is a master. */
HsStatus hs_optimizer_round_weights(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);

/* average = p, wherever averages are kept. */
HsStatus hs_optimizer_begin_averages(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);

/* Whether a span is trained in one place and evaluated in another, by schedule-free: x, which is derived from its weight
 * and its state 0 (schedule_free.c). */
bool hs_optimizer_derives(const HsOptimizerConfig *config, const HsSpan *span);
/* weight = round(x), of the spans that derive it; the others stay.  A dry run asks for what the context's workspace must
 * hold, and nothing else.  What is trained of a span without a master is overwritten: the caller keeps it. */
HsStatus hs_optimizer_show(const HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);
/* x of some elements of such a span, in y's format, in the host's memory.  y: of its master, or of its weight;
 * z_minus_y: of its state.  errors: HS_ENOMEM where the workspace is smaller than the dry run said */
HsStatus hs_optimizer_derive(const HsOptimizer *optimizer, HsContext *context, const HsTensor *y, bool master,
                             const HsTensor *z_minus_y, void *host);

/* Zero moments or momentum, as at the start; the next step is AdamW's first again, and averages begin again with it.
 * Schedule-free begins again with x: masters, or weights without one, change, and the other weights are to be rounded. */
HsStatus hs_optimizer_reset_state(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);

/* Allocates nothing.  HS_OK also for skipped steps: look at the report.  coef = min(1, clip / (norm + 1e-6)). */
HsStatus hs_optimizer_step(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count,
                           HsStepReport *report);

/* --- the same in parts, for steps that run ahead --- */

/* A step will start, the (in_flight + 1)-th that is under way, at most HS_STEPS_AHEAD: fills the record that the caller
 * brings to optimizer->input.  counted, reference_counted: targets that count in the batch and in the reference rows.
 * The first one under way takes the counters and the loss scale from the host's struct to the device. */
HsStatus hs_optimizer_announce(HsOptimizer *optimizer, HsContext *context, int64_t counted, int64_t reference_counted,
                               HsStepInput *input);
/* Gradient scales, from the loss scale that the step before left. */
HsStatus hs_optimizer_begin(HsOptimizer *optimizer, HsContext *context);
/* Statistics, decisions, update of every span; leaves optimizer->outcome. */
HsStatus hs_optimizer_update(HsOptimizer *optimizer, HsContext *context, const HsSpan *spans, int count);
/* The oldest step under way is over, and its outcome has reached the host. */
void hs_optimizer_collect(HsOptimizer *optimizer, const HsStepOutcome *outcome, HsStepReport *report);

#endif
