/* SPDX-License-Identifier: MIT
 *
 * Gradients for the Fisher information of a task, one group of tokens at a time, dropout off.
 * With g_n the gradient of -log p(y_n | x) of token n, N counted tokens in all, the diagonal Fisher of a token is
 *     F = 1/N sum_n E_{y ~ p} g_n(y)^2
 *
 *   exact      one pass per token and label v:  F = 1/N sum_n sum_v p(v) g_n(v)^2
 *   sampled    labels drawn from the model, a group G of sequences at a time:  (sum_{n in G} g_n)^2 / N
 *              Cross terms have expectation 0, as E g_n = 0: one ordinary backward pass per group is unbiased.
 *   empirical  true labels, a sequence at a time:  (sum over its tokens)^2 / N
 *   batched    true labels:  the mean over groups of (mean gradient)^2, biased low, for comparison
 *
 * exact and empirical run one sequence in a program for B of them: row 0 is the sequence, the others repeat it with
 * every target ignored.  They cost B times what their arithmetic needs, and no additional memory.
 */
#ifndef HS_RUNTIME_TRAIN_FISHER_H
#define HS_RUNTIME_TRAIN_FISHER_H

#include "optim/continual/continual.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/program.h"
#include "runtime/model/layer.h"
#include "runtime/exchange/virtual_ranks.h"

typedef enum HsFisherEstimator {
    HS_FISHER_SAMPLED,
    HS_FISHER_EXACT,
    HS_FISHER_EMPIRICAL,
    HS_FISHER_BATCHED
} HsFisherEstimator;

/* errors: HS_ECONFIG for an unknown name */
HsStatus hs_fisher_estimator_find(const char *name, HsFisherEstimator *estimator);

typedef struct HsFisher {
    HsFisherEstimator estimator;
    HsProgram *program; /* borrowed training program; exact, empirical: rows of other sequences are ignored targets */
    HsContext *context;
    const HsDataset *dataset;
    const HsSampler *stream; /* NULL: the dataset's first epoch; else the latest samples of this stream, */
    int64_t stream_end;      /* which had that many, at least one */
    const HsSpan *spans;
    int span_count;
    int64_t samples; /* sequences to use; rounded up to whole groups, at most all that there are */
    int64_t group;   /* sequences with gradients summed before they are squared: a multiple of its batch */
    uint64_t seed;
    uint32_t task;
    float loss_scale; /* halved on overflow, and stays so, within a part; 1 without scaling */
    /* Groups (or sequences) are divided among the virtual ranks in their order; sums of a part, and of all. */
    HsVirtualRanks ranks;
    HsComm *comm;         /* borrowed */
    const HsTensor *sums; /* where the strategy gathers; borrowed */
    int sum_count;
    bool on_host; /* they are in the host's memory: so are their sums over virtual ranks */
    /* [span_count]: where passes add factors of curvature (sampled and empirical only); NULL: nowhere.  One loss scale
     * then serves all of them: an overflow lets everything begin anew (HsFisherSample.restart). */
    const HsSpanFactors *factors;
    /* Called before the first pass, when strategies that end the task by changing weights have done so; NULL: nothing. */
    HsStatus (*prepare)(void *user);
    void *user;
    /* private */
    bool prepared;
    int64_t part;                            /* of this process's, 0, 1, ... */
    int64_t next, next_position, next_label; /* group or sequence; exact: token and label in it */
    float first_loss_scale;
    HsPartialSums partial;
    double *numbers;                     /* [virtual ranks, HS_FISHER_NUMBERS] */
    double counted;                      /* the denominator so far */
    uint64_t label_seed;                 /* of seed and task */
    int32_t *tokens, *targets;           /* [group*T] */
    int32_t *labels;                     /* [T] true targets of the current sequence */
    double *sum_squares;                 /* device [span_count] */
    int64_t *nonfinite, *host_nonfinite; /* device and host [span_count] */
    HsTensor *gradients;                 /* [span_count] */
    HsFactorPass pass;
    void *block; /* device: sums, counts; ones, scratch and workspace of the factors */
    size_t block_bytes;
    bool overflowed;
    double pass_rows; /* tokens of the latest group */
} HsFisher;

/* Fill the public members first.  Windows are those of evenly spread sample indices of the first epoch.  Clears the
 * spans' gradients; from then on hs_op_square_accumulate, which squares them, leaves them clear. */
HsStatus hs_fisher_init(HsFisher *fisher);
void hs_fisher_deinit(HsFisher *fisher);
/* Device memory that init takes until deinit, without partial sums of `sums`; needs program, context, spans, factors.
 * errors: HS_ENOMEM */
HsStatus hs_fisher_device_bytes(const HsFisher *fisher, size_t *bytes);
/* As HsFisherSource.sum_part. */
HsStatus hs_fisher_sum_part(void *fisher, double *numbers, int count);
/* As HsFisherSource.next with user = HsFisher.  Gradients of excluded spans are cleared: they are not squared.
 * errors: HS_ENUMERIC when gradients stay non-finite at loss scale 2^-10, HS_ECONFIG when no target counts */
HsStatus hs_fisher_next(void *fisher, HsFisherSample *sample);
/* Forward and backward passes that all of it takes at most; needs the public members only. */
int64_t hs_fisher_passes(const HsFisher *fisher, int64_t vocabulary);

#endif
