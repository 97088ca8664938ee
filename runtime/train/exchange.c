/* SPDX-License-Identifier: MIT
 *
 * What processes that share more than an optimizer's states do around the actions of a pass: gradients pass on
 * (distributed.zero: 2, passing.h), weights come (zero: 3, weight_stream.h).  Whatever goes another way than from action
 * to action, in step with the other processes, borrows them whole for its time.
 */
#include <stdlib.h>

#include "runtime/train/run.h"

static HsStatus before_training(void *user, HsContext *context, int action)
{
    HsTraining *training = user;
    if (hs_training_streams_weights(training))
        HS_TRY(hs_weight_visits_before(&training->exchange.train_visits, context, action));
    return hs_passing_before(&training->exchange.passing, context, action);
}

static HsStatus after_training(void *user, HsContext *context, int action)
{
    const HsTraining *training = user;
    const HsExchange *exchange = &training->exchange;
    if (exchange->buckets.count > 0)
        return hs_buckets_after(&exchange->buckets, context, action);
    HS_TRY(hs_passing_after(&exchange->passing, context, action));
    return action == training->train_program.action_count - 1 ? hs_passing_join(&exchange->passing, context) : HS_OK;
}

static HsStatus before_evaluation(void *user, HsContext *context, int action)
{
    HsTraining *training = user;
    return hs_weight_visits_before(&training->exchange.evaluation_visits, context, action);
}

static HsStatus after_evaluation(void *user, HsContext *context, int action)
{
    (void)user;
    (void)context;
    (void)action;
    return HS_OK;
}

HsStatus hs_training_create_exchange(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    HsContext *context = &training->engine.context;
    HsWeightStream *stream = &exchange->weight_stream;
    const HsOffloadLevel level = hs_training_offload_level(training);
    size_t train_bytes, evaluation_bytes;
    exchange->train_exchange = (HsProgramExchange){ before_training, after_training, training };
    if (!hs_training_passes_gradients(training))
        return training->engine.comm->size > 1
                   ? hs_buckets_create(&training->train_program, &exchange->shards, &exchange->sums,
                                       training->engine.comm, context, &exchange->buckets)
                   : HS_OK;
    HS_TRY(hs_side_stream_create(context, &exchange->side));
    HS_TRY(hs_passing_create(&training->model, &training->train_program, &exchange->shards, &exchange->share,
                             &exchange->side, level >= HS_OFFLOAD_GRADIENTS, context, &exchange->passing));
    if (!hs_training_streams_weights(training))
        return HS_OK;
    HS_TRY(hs_weight_stream_create(&training->model, &exchange->shards, &exchange->share, &exchange->side,
                                   level >= HS_OFFLOAD_WEIGHTS, context, stream));
    HS_TRY(hs_weight_visits_find(stream, &training->train_program, context, &exchange->train_visits, &train_bytes));
    HS_TRY(hs_weight_visits_find(stream, &training->evaluation_program, context, &exchange->evaluation_visits,
                                 &evaluation_bytes));
    exchange->evaluation_exchange = (HsProgramExchange){ before_evaluation, after_evaluation, training };
    return hs_weight_stream_commit(stream, train_bytes > evaluation_bytes ? train_bytes : evaluation_bytes);
}

void hs_training_destroy_exchange(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    HsArena *const lent[] = { &exchange->lent_gradients, &exchange->lent_weights };
    for (int i = 0; i < 2; i++)
        if (lent[i]->device)
            hs_arena_deinit(lent[i]);
    hs_buckets_destroy(&exchange->buckets);
    hs_weight_visits_destroy(&exchange->train_visits);
    hs_weight_visits_destroy(&exchange->evaluation_visits);
    hs_weight_stream_destroy(&exchange->weight_stream);
    hs_passing_destroy(&exchange->passing);
    hs_side_stream_destroy(&training->engine.device, &exchange->side);
}

void hs_training_exchange(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    const bool lent = exchange->lent_weights.device != NULL;
    const bool exchanges = hs_training_passes_gradients(training) || exchange->buckets.count > 0;
    training->train_program.exchange = exchanges ? &exchange->train_exchange : NULL;
    training->evaluation_program.exchange =
        hs_training_streams_weights(training) && !lent ? &exchange->evaluation_exchange : NULL;
}

HsStatus hs_training_lend_gradients(HsTraining *training)
{
    if (!hs_training_passes_gradients(training))
        return HS_OK;
    training->train_program.exchange = NULL;
    return hs_passing_lend(&training->exchange.passing, &training->engine.context, &training->exchange.lent_gradients);
}

void hs_training_take_back_gradients(HsTraining *training)
{
    if (hs_training_passes_gradients(training))
        hs_passing_take_back(&training->exchange.passing, &training->exchange.lent_gradients);
}

HsStatus hs_training_lend_weights(HsTraining *training)
{
    if (!hs_training_streams_weights(training))
        return HS_OK;
    hs_training_take_back_weights(training);
    training->train_program.exchange = training->evaluation_program.exchange = NULL;
    return hs_weight_stream_lend(&training->exchange.weight_stream, &training->engine.context,
                                 &training->exchange.lent_weights);
}

void hs_training_take_back_weights(HsTraining *training)
{
    HsExchange *exchange = &training->exchange;
    if (exchange->lent_weights.device)
        hs_weight_stream_take_back(&exchange->weight_stream, &exchange->lent_weights);
}
