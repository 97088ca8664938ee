/* SPDX-License-Identifier: MIT
 *
 * What a model is measured by: the mean loss over validation windows, and how many greedy completions are right.
 */
#ifndef HS_RUNTIME_TRAIN_EVALUATE_H
#define HS_RUNTIME_TRAIN_EVALUATE_H

#include "kernels/base/comm.h"
#include "runtime/data/dataset.h"
#include "runtime/engine/program.h"

/* An evaluation program; the ranks share its work.  tokens, targets: scratch [batch, T]. */
typedef struct HsEvaluator {
    HsProgram *program;
    HsContext *context;
    HsComm *comm;
    bool in_step; /* processes make as many passes each: those without a batch left make empty ones */
    int32_t *tokens, *targets;
} HsEvaluator;

typedef struct HsEvaluation {
    double loss;                        /* mean, nats a token; NAN: no target counts */
    double bytes_per_token;             /* text of the counted targets; NAN: they have none */
    double accuracy[HS_ITEM_SET_COUNT]; /* share of items with an exact greedy completion; NAN: no items */
    int64_t items[HS_ITEM_SET_COUNT];   /* how many there are */
} HsEvaluation;

/* Mean loss over `windows` validation windows (0: all); no items.
 * errors: HS_EINTERRUPTED when the context's stop_asked says so */
HsStatus hs_evaluate_text(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows,
                          HsEvaluation *evaluation);
/* The same, and the accuracies of the data's items. */
HsStatus hs_evaluate(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows, HsEvaluation *evaluation);

/* Bits a byte of text, so that tokenizers compare: loss / (ln 2 * bytes_per_token). */
double hs_bits_per_byte(double loss, double bytes_per_token);

/* Share of the set's items for which greedy decoding of the prompt alone makes their completion, token by token.  One
 * pass finds it, without generating: greedy decoding makes the completion if and only if, given prompt and
 * completion so far, each of its tokens is the likeliest (hs_program_predict).  NAN for an empty set. */
HsStatus hs_evaluate_items(const HsEvaluator *evaluator, const HsDataset *dataset, const HsItemSet *set,
                           double *accuracy);

/* How many sequences of at least `length` tokens go through the program at a time, and how long they then are: its own
 * shape where no other fits. */
void hs_evaluator_shape(const HsEvaluator *evaluator, int64_t length, int64_t *batch, int64_t *padded);

#endif
