/* SPDX-License-Identifier: MIT
 *
 * Validation: windows spread evenly over the validation stream, the same ones every time, dropout off; then the items.
 */
#include "runtime/train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exchange/reduce.h"
#include "runtime/train/run.h"

/* What end-of-text ends is in no text: it has no bytes. */
static size_t bytes_of(const HsTokenizer *tokenizer, int32_t token)
{
    size_t length = 0;
    if (token != hs_tokenizer_end_of_text(tokenizer))
        (void)hs_tokenizer_bytes(tokenizer, token, &length);
    return length;
}

/* A sum over targets, how many there are, and the bytes of their text. */
typedef struct Counted {
    double loss;
    int64_t targets, bytes;
} Counted;

/* sums: of each batch, [batches]; those of others are left alone. */
static HsStatus evaluate_windows(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows, double *sums,
                                 Counted *counted)
{
    const HsProgram *program = evaluator->program;
    const HsComm *comm = evaluator->comm;
    int32_t *tokens = evaluator->tokens, *targets = evaluator->targets;
    const int64_t length = dataset->sequence_length;
    /* Ranks take batches in turn. */
    const int64_t stride = comm->size * program->batch;
    const int64_t end = evaluator->in_step ? (windows + stride - 1) / stride * stride : windows;
    for (int64_t first = comm->rank * program->batch; first < end; first += stride) {
        double nothing, *sum = first < windows ? &sums[first / program->batch] : &nothing;
        for (int64_t row = 0; row < program->batch; row++) {
            /* The program's batch is fixed: rows beyond the last window repeat it with every target ignored. */
            int64_t index = first + row < windows ? first + row : windows - 1;
            HS_TRY(
                hs_dataset_validation_sample(dataset, index, windows, tokens + row * length, targets + row * length));
            for (int64_t t = 0; t < length; t++) {
                int32_t *target = &targets[row * length + t];
                if (first + row >= windows)
                    *target = -1;
                if (*target < 0)
                    continue;
                counted->targets++;
                counted->bytes += (int64_t)bytes_of(dataset->tokenizer, *target);
            }
        }
        HS_TRY(hs_program_evaluate(evaluator->program, evaluator->context, tokens, targets, sum, NULL));
    }
    return HS_OK;
}

/* Batches are added up in their order, whichever rank evaluated them. */
static HsStatus sum_windows(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows, Counted *counted)
{
    HsStream *const stream = evaluator->context->stream;
    const size_t batches = (size_t)((windows + evaluator->program->batch - 1) / evaluator->program->batch);
    int64_t *const counts[] = { &counted->targets, &counted->bytes };
    double *sums = calloc(batches + 1, sizeof *sums);
    if (!sums)
        return hs_fail(HS_ENOMEM, "no memory for the losses of %zu batches", batches);
    HsStatus status = evaluate_windows(evaluator, dataset, windows, sums, counted);
    if (status == HS_OK)
        status = hs_share_entries(evaluator->comm, stream, sums, batches);
    for (int i = 0; i < 2 && status == HS_OK; i++)
        status = hs_comm_all_reduce(evaluator->comm, stream, counts[i], 1, HS_I64, HS_COMM_SUM);
    for (size_t i = 0; i < batches; i++)
        counted->loss += sums[i];
    free(sums);
    return status;
}

HsStatus hs_evaluate_text(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows,
                          HsEvaluation *evaluation)
{
    const int64_t available = hs_dataset_validation_windows(dataset);
    Counted counted = { 0 };
    HS_TRY(sum_windows(evaluator, dataset, windows <= 0 || windows > available ? available : windows, &counted));
    evaluation->loss = counted.targets > 0 ? counted.loss / (double)counted.targets : NAN;
    evaluation->bytes_per_token = counted.bytes > 0 ? (double)counted.bytes / (double)counted.targets : NAN;
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        evaluation->items[set] = 0;
        evaluation->accuracy[set] = NAN;
    }
    return HS_OK;
}

HsStatus hs_evaluate(const HsEvaluator *evaluator, const HsDataset *dataset, int64_t windows, HsEvaluation *evaluation)
{
    HS_TRY(hs_evaluate_text(evaluator, dataset, windows, evaluation));
    for (int set = 0; set < HS_ITEM_SET_COUNT; set++) {
        evaluation->items[set] = dataset->items[set].count;
        HS_TRY(hs_evaluate_items(evaluator, dataset, &dataset->items[set], &evaluation->accuracy[set]));
    }
    return HS_OK;
}

double hs_bits_per_byte(double loss, double bytes_per_token)
{
    return loss / (M_LN2 * bytes_per_token);
}

/* ---- items ---- */

void hs_evaluator_shape(const HsEvaluator *evaluator, int64_t length, int64_t *batch, int64_t *padded)
{
    enum { GRAIN = 16 }; /* so that shapes are few */
    const HsProgram *program = evaluator->program;
    *padded = (length + GRAIN - 1) / GRAIN * GRAIN;
    *batch = program->batch * program->sequence_length / *padded;
    if (*batch > 0 && hs_program_fits(program, evaluator->context, *batch, *padded))
        return;
    *batch = program->batch;
    *padded = program->sequence_length;
}

/* All tokens of an item but the last, which is a target alone. */
static int64_t item_inputs(const HsItem *item)
{
    return item->prompt + item->completion - 1;
}

/* Items [first, first + batch), one a row from position 0 on; rows are padded at their end, where nothing looks back
 * from.  *right: how many completions are the likeliest tokens all along. */
static HsStatus predict_batch(const HsEvaluator *evaluator, const HsItemSet *set, int64_t vocabulary, int64_t first,
                              int64_t batch, int64_t length, int64_t *right)
{
    int32_t *tokens = evaluator->tokens, *predicted = evaluator->targets;
    memset(tokens, 0, (size_t)(batch * length) * sizeof *tokens);
    for (int64_t row = 0; row < batch && first + row < set->count; row++) {
        const HsItem *item = &set->items[first + row];
        memcpy(tokens + row * length, set->tokens.items + item->start, (size_t)item_inputs(item) * sizeof *tokens);
    }
    HS_TRY(hs_program_predict(evaluator->program, evaluator->context, batch, length, vocabulary, tokens, predicted));
    for (int64_t row = 0; row < batch && first + row < set->count; row++) {
        const HsItem *item = &set->items[first + row];
        const int32_t *completion = set->tokens.items + item->start + item->prompt;
        *right += memcmp(predicted + row * length + item->prompt - 1, completion,
                         (size_t)item->completion * sizeof *completion) == 0;
    }
    return HS_OK;
}

HsStatus hs_evaluate_items(const HsEvaluator *evaluator, const HsDataset *dataset, const HsItemSet *set,
                           double *accuracy)
{
    HsComm *const comm = evaluator->comm;
    const int64_t vocabulary = hs_tokenizer_vocabulary(dataset->tokenizer);
    int64_t longest = 1, batch, length, right = 0;
    *accuracy = NAN;
    if (set->count == 0)
        return HS_OK;
    for (int64_t i = 0; i < set->count; i++)
        longest = item_inputs(&set->items[i]) > longest ? item_inputs(&set->items[i]) : longest;
    hs_evaluator_shape(evaluator, longest, &batch, &length);
    const int64_t stride = comm->size * batch;
    const int64_t end = evaluator->in_step ? (set->count + stride - 1) / stride * stride : set->count;
    for (int64_t first = comm->rank * batch; first < end; first += stride)
        HS_TRY(predict_batch(evaluator, set, vocabulary, first, batch, length, &right));
    HS_TRY(hs_comm_all_reduce(comm, evaluator->context->stream, &right, 1, HS_I64, HS_COMM_SUM));
    *accuracy = (double)right / (double)set->count;
    return HS_OK;
}

HsEvaluator hs_training_evaluator(HsTraining *training)
{
    hs_training_exchange(training);
    return (HsEvaluator){ .program = &training->evaluation_program,
                          .context = &training->engine.context,
                          .comm = training->engine.comm,
                          .in_step = training->evaluation_program.exchange != NULL,
                          .tokens = training->evaluation_tokens,
                          .targets = training->evaluation_targets };
}
