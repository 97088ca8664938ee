/* SPDX-License-Identifier: MIT
 *
 * What a strategy's functions work with: the run's spans, room for sums and lists, sets of tensors, and what the
 * penalties share.  Private to optim/.
 */
#ifndef HS_OPTIM_CONTINUAL_INTERNAL_H
#define HS_OPTIM_CONTINUAL_INTERNAL_H

#include "optim/continual/continual.h"
#include "optim/kinds.h"

/* One f32 tensor a parameter (data NULL for spans without one), in one block of the device's memory, or of the host's
 * where the share says so: then it counts as offloaded. */
typedef struct HsTensorSet {
    void *block;
    size_t bytes;
    HsMemoryCategory category;
    bool excludable;                 /* spans marked excluded have none */
    HsTensor *tensors;               /* [span_count]; rank 0: this span has none */
    bool (*has)(const HsSpan *span); /* which spans have one; NULL: all that are not excluded */
} HsTensorSet;

struct HsContinual {
    HsContinualConfig config;
    HsContext *context; /* borrowed: for what no caller brings one, restoring */
    HsDevice *device;
    HsSpan *spans; /* borrowed */
    int span_count;
    HsSpanShare share; /* all processes' spans, and which of them these are */
    struct {
        const HsStrategy *row;
        void *state; /* row->state_bytes */
    } active[HS_STRATEGIES_MAX];
    int active_count;
    /* Room within one call, absent where no strategy has tensors: for sums that come back, [4 * span_count], and
     * those of all spans that are shared */
    double *device_values, *host_values;
    HsTensor *arguments; /* and for the lists that operations take, on the host, [3 * span_count] */
};

/* Device bytes of a family.  excludable: spans marked excluded get none. */
size_t hs_tensor_set_bytes(const HsSpan *spans, int count, bool excludable);
/* Bytes of device_values. */
static inline size_t hs_continual_value_bytes(int span_count)
{
    enum { VALUES_PER_SPAN = 4 };
    return (size_t)span_count * VALUES_PER_SPAN * sizeof(double);
}
/* Filled with zeros.  Spans marked excluded get none of HS_MEMORY_PENALTY. */
HsStatus hs_tensor_set_create(HsContinual *continual, HsMemoryCategory category, const char *what, HsTensorSet *set);
/* The same for those spans alone that `has` says; NULL: all. */
HsStatus hs_tensor_set_create_for(HsContinual *continual, HsMemoryCategory category, const char *what,
                                  bool (*has)(const HsSpan *span), HsTensorSet *set);
/* The same over another list of spans, and the set has their tensors: of those that are shared, all. */
HsStatus hs_tensor_set_create_over(HsContinual *continual, const HsSpan *spans, int count, HsMemoryCategory category,
                                   const char *what, bool (*has)(const HsSpan *span), HsTensorSet *set);
/* Bytes of one tensor as a set holds it. */
size_t hs_tensor_set_span_bytes(const HsSpan *span);
bool hs_tensor_set_has(const HsTensorSet *set, const HsSpan *span);
void hs_tensor_set_destroy(HsContinual *continual, HsTensorSet *set);
HsStatus hs_tensor_set_visit(HsContinual *continual, HsTensorSet *set, const char *name, const HsStateVisitor *visitor);
/* Copies the parameters (master where there is one, else weight) into a family. */
HsStatus hs_tensor_set_copy_parameters(HsContinual *continual, HsContext *context, HsTensorSet *set);
/* The rounding of a bf16 weight without a master, at `site` of this span. */
HsRng hs_span_draws(const HsContinual *continual, int span, uint32_t site, uint32_t step);
/* Span `span` back towards the set:  p = anchor + rate (p - anchor); and, in a dry run, both this and the copy of all. */
HsStatus hs_tensor_set_interpolate(HsContinual *continual, HsContext *context, const HsTensorSet *set, int span,
                                   double rate, HsRng rng);
HsStatus hs_tensor_set_dry_interpolate(HsContinual *continual, HsContext *dry);
/* The f32 master, or the weight that stands for it. */
HsTensor hs_span_parameter(const HsSpan *span);

/* What a Fisher's source measures of each sample's gradients, which are of all spans. */
HsStatus hs_continual_dry_statistics(HsContinual *continual, HsContext *dry);

/* device_values holds `kinds` values for each of some own spans, one after another: those that are not excluded, or all.
 * host_values [kinds, all spans] has them afterwards, with those of other processes; 0 of excluded spans.
 * Waits for the device. */
HsStatus hs_continual_fetch_values(HsContinual *continual, HsContext *context, const HsTensor *tensors, int kinds);

/* What an importance-like family amounts to.  Of all spans, 0 where there is no tensor, host_values holds maximum,
 * sum, sum of squares [3, all spans]. */
typedef struct HsTensorSetStats {
    int tensors; /* of this process */
    int64_t elements;
    double maximum, sum;
} HsTensorSetStats;
/* Waits for the device.  errors: HS_ENUMERIC for elements that are not finite */
HsStatus hs_tensor_set_measure(HsContinual *continual, HsContext *context, const HsTensorSet *set,
                               HsTensorSetStats *stats);

/* The shape of a set's tensor for the span, without memory: for dry runs. */
HsTensor hs_span_wide(const HsSpan *span);

/* --- Kronecker factors (kronecker.c) --- */

/* The penalty  (strength/2) sum over matrices  tr(D^T left D right),  D = W - anchor, of every span that has uses. */
typedef struct HsKronecker HsKronecker;
/* Device bytes of create. */
size_t hs_kronecker_bytes(const HsSpan *spans, int count, int64_t block);
/* decay: of earlier tasks' left (product) and right (lookup) factors, which are sums over tasks; the others are means.
 * errors: HS_ENOMEM */
HsStatus hs_kronecker_create(HsContinual *continual, int64_t block, double decay, HsKronecker **kronecker);
void hs_kronecker_destroy(HsContinual *continual, HsKronecker *kronecker);
/* A span is this penalty's, and not the diagonal one's. */
bool hs_kronecker_serves(const HsSpan *span);
/* Where the next task's sums go, [span_count]; they share their memory with the pulls. */
const HsSpanFactors *hs_kronecker_fresh(const HsKronecker *kronecker);
HsStatus hs_kronecker_clear(HsContinual *continual, HsKronecker *kronecker, HsContext *context);
/* The sums become part of the factors: over `rows` tokens, `count` of them counted, of gradients times multiplier. */
HsStatus hs_kronecker_merge(HsContinual *continual, HsKronecker *kronecker, HsContext *context, double rows,
                            double count, double multiplier);
/* The tensor that the update rule adds strength times; rank 0: none. */
HsTensor hs_kronecker_pull_of(const HsKronecker *kronecker, int span);
/* left D right of every matrix at its parameters now. */
HsStatus hs_kronecker_pull(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                           const HsTensorSet *anchor);
/* sum over matrices tr(D^T left D right); overwrites the pulls. */
HsStatus hs_kronecker_value(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                            const HsTensorSet *anchor, double *value);
/* Entries of the matrices behind those that are there: the maximum bounds the largest eigenvalue of left (x) right, the
 * mean is the mean eigenvalue.  *sum, *elements: of all.  errors: HS_ENUMERIC for elements that are not finite */
HsStatus hs_kronecker_measure(HsContinual *continual, HsKronecker *kronecker, HsContext *context,
                              HsImportance *importance, double *sum, int64_t *elements);
HsStatus hs_kronecker_visit(HsContinual *continual, HsKronecker *kronecker, const HsStateVisitor *visitor);
HsStatus hs_kronecker_dry_run(HsContinual *continual, HsKronecker *kronecker, HsContext *dry);

/* --- penalties (penalties.c) --- */

/* The names of a penalty's tensors in checkpoints; NULL: it has none of that kind. */
typedef struct HsPenaltyNames {
    const char *strategy, *anchor, *importance, *path;
} HsPenaltyNames;

/* What the states of l2, ewc and si begin with. */
typedef struct HsPenalty {
    const HsPenaltyNames *names;
    HsProtection settings;  /* strength and kind of step; no tensors */
    bool automatic;         /* the strength is found when a task ends, and again when the next one begins */
    bool proximal_descent;  /* spans with a rule that bounds no step take the proximal one */
    HsKronecker *kronecker; /* matrices have this curvature, and no importance; NULL: theirs is diagonal too */
    HsTensorSet importance, anchor, path;
    int64_t met;        /* tasks of which the foreignness is in ... */
    double foreignness; /* ... the geometric mean of theirs and of a typical one */
    double parameters;  /* how many are protected */
    double offset;      /* a constant that the value adds, without strength */
    int64_t anchored;   /* 1: an anchor exists and the penalty acts */
    HsImportance stats;
} HsPenalty;

/* strength: NAN: automatic.  The step is the one of `settings`. */
HsStatus hs_penalty_create(HsContinual *continual, HsPenalty *penalty, const HsPenaltyNames *names,
                           HsProtection settings);
/* Strengths in natural units: 1 holds the parameters as the earlier tasks' own losses would, in nats a token, each task
 * alike, if these were the quadratics that stand for them.  What a strength that is right for typical tasks without
 * replay is in this run. */
double hs_penalty_natural(const HsContinual *continual, const HsPenalty *penalty, double alone);
/* An automatic strength is set, and logged.  unit: what the importance has to be multiplied by for natural units, to be
 * divided by here.  Before hs_penalty_anchored. */
void hs_penalty_choose(const HsContinual *continual, HsPenalty *penalty, double alone, double unit);
/* The last step of every after_task: an anchor exists from now on.  task: for messages. */
HsStatus hs_penalty_anchored(HsContinual *continual, HsPenalty *penalty, HsContext *context, int task);
/* Functions of a row with a state that begins with an HsPenalty. */
void hs_penalty_destroy(HsContinual *continual, void *state);
HsStatus hs_penalty_dry_run(HsContinual *continual, void *state, HsContext *dry);
HsStatus hs_penalty_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor);
bool hs_penalty_acts(const void *state);
bool hs_penalty_is_automatic(const void *state);
HsStatus hs_penalty_meet_task(HsContinual *continual, void *state, double foreignness);
HsStatus hs_penalty_value(HsContinual *continual, void *state, HsContext *context, double *value);
const HsImportance *hs_penalty_importance(const void *state);

/* --- the table's rows --- */

#define HS_DECLARE_STRATEGY(identifier, word) extern const HsStrategy hs_strategy_##identifier;
HS_STRATEGIES(HS_DECLARE_STRATEGY)

#endif
