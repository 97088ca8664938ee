/* SPDX-License-Identifier: MIT
 *
 * A run's strategies from inside: the state that the rows of the table work on.  Private to optim/.
 */
#ifndef HS_OPTIM_CONTINUAL_INTERNAL_H
#define HS_OPTIM_CONTINUAL_INTERNAL_H

#include "optim/continual.h"

/* One f32 tensor a parameter (data NULL for spans without one), in one device block. */
typedef struct HsFamily {
    void *block;
    size_t bytes;
    HsMemoryCategory category;
    HsTensor *tensors; /* [span_count]; rank 0: this span has none */
} HsFamily;

struct HsContinual {
    HsContinualConfig config;
    HsContext *context; /* borrowed: for what no caller brings one, restoring */
    HsDevice *device;
    HsSpan *spans; /* borrowed */
    int span_count;
    const HsStrategy *active[HS_STRATEGIES_MAX];
    int active_count;
    double *device_values, *host_values; /* [4 * span_count + 1]; absent where no strategy has tensors */
    HsTensor *arguments;                 /* host [3 * span_count]: room for the lists that operations take */

    /* penalties: importance absent for l2, path for si only, fresh for separate ewc only */
    HsFamily importance, anchor, path, fresh;
    double *device_offset; /* the last of device_values; separate: the merged quadratics' constant, without strength */
    double offset;
    int64_t anchored; /* 1: an anchor exists and the penalty acts */
    HsImportance stats;

    /* mer */
    HsFamily group_start, window_start; /* window_start only with several groups */
    int64_t steps_in_interval;          /* since the window (reptile: the interval) began */
    int64_t group_open;                 /* 1: a step was made since the group began */
    bool folded;                        /* the step under way does in its update what closes with it */
    int64_t interpolations;             /* counts them: the draws of stochastic rounding */

    /* a-gem */
    HsFamily reference;
    int64_t reference_taken; /* 1: taken for the step under way */
    int64_t projections;
};

/* Device bytes of a family.  excludable: spans marked excluded get none. */
size_t hs_family_bytes(const HsSpan *spans, int count, bool excludable);
/* Bytes of device_values. */
size_t hs_continual_value_bytes(int span_count);
/* Filled with zeros.  Spans marked excluded get none of HS_MEMORY_PENALTY. */
HsStatus hs_family_create(HsContinual *continual, HsMemoryCategory category, const char *what, HsFamily *family);
void hs_family_destroy(HsContinual *continual, HsFamily *family);
HsStatus hs_family_visit(HsContinual *continual, HsFamily *family, const char *name, const HsStateVisitor *visitor);
/* Copies the parameters (master where there is one, else weight) into a family. */
HsStatus hs_family_copy_parameters(HsContinual *continual, HsContext *context, HsFamily *family);
/* The f32 master, or the weight that stands for it. */
HsTensor hs_span_parameter(const HsSpan *span);

/* What an importance-like family amounts to.  Per tensor, in span order without absent ones, host_values holds
 * maximum [tensors], sum [tensors], sum of squares [tensors]. */
typedef struct HsFamilyStats {
    int tensors;
    int64_t elements;
    double maximum, sum;
} HsFamilyStats;
/* Waits for the device.  errors: HS_ENUMERIC for elements that are not finite */
HsStatus hs_family_measure(HsContinual *continual, HsContext *context, const HsFamily *family, HsFamilyStats *stats);

/* Rows of the table: penalties.c (l2), ewc.c, si.c, mer.c, agem.c; none, joint and er need no functions. */
int hs_l2_tensors(const HsContinualConfig *config);
int hs_ewc_tensors(const HsContinualConfig *config);
int hs_si_tensors(const HsContinualConfig *config);
HsStatus hs_penalty_create(HsContinual *continual);
/* The last step of every after_task: an anchor exists from now on.  task: for messages. */
HsStatus hs_penalty_anchored(HsContinual *continual, HsContext *context, int task);
HsStatus hs_l2_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);
HsStatus hs_ewc_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);
HsStatus hs_si_begin_task(HsContinual *continual, HsContext *context, int task);
HsStatus hs_si_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);
HsStatus hs_penalty_visit(HsContinual *continual, const HsStateVisitor *visitor);

int hs_mer_tensors(const HsContinualConfig *config);
HsStatus hs_mer_create(HsContinual *continual);
HsStatus hs_mer_begin_task(HsContinual *continual, HsContext *context, int task);
void hs_mer_fold(HsContinual *continual, const HsReplayStep *step);
HsStatus hs_mer_after_step(HsContinual *continual, HsContext *context, const HsReplayStep *step);
HsStatus hs_mer_after_task(HsContinual *continual, HsContext *context, int task, HsFisherSource *source);
HsStatus hs_mer_visit(HsContinual *continual, const HsStateVisitor *visitor);

int hs_agem_tensors(const HsContinualConfig *config);
HsStatus hs_agem_create(HsContinual *continual);
HsStatus hs_agem_before_update(HsContinual *continual, HsContext *context);
HsStatus hs_agem_visit(HsContinual *continual, const HsStateVisitor *visitor);

#endif
