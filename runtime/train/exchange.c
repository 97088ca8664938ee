/* SPDX-License-Identifier: MIT
 *
 * What processes that share more than an optimizer's states do around the actions of a pass: gradients pass on
 * (distributed.zero: 2, passing.h), weights come (zero: 3, weight_stream.h).  Whatever goes another way than from action
 * to action, in step with the other processes, borrows them whole for its time.
 */
#include <stdlib.h>

#include "runtime/train/trainer.h"

static HsStatus before_training(void *user, HsContext *context, int action)
{
    HsTrainer *trainer = user;
    if (hs_trainer_streams_weights(trainer))
        HS_TRY(hs_weight_visits_before(&trainer->train_visits, context, action));
    return hs_passing_before(&trainer->passing, context, action);
}

static HsStatus after_training(void *user, HsContext *context, int action)
{
    const HsTrainer *trainer = user;
    if (trainer->buckets.count > 0)
        return hs_buckets_after(&trainer->buckets, context, action);
    HS_TRY(hs_passing_after(&trainer->passing, context, action));
    return action == trainer->train_program.action_count - 1 ? hs_passing_join(&trainer->passing, context) : HS_OK;
}

static HsStatus before_evaluation(void *user, HsContext *context, int action)
{
    HsTrainer *trainer = user;
    return hs_weight_visits_before(&trainer->evaluation_visits, context, action);
}

static HsStatus after_evaluation(void *user, HsContext *context, int action)
{
    (void)user;
    (void)context;
    (void)action;
    return HS_OK;
}

HsStatus hs_trainer_create_exchange(HsTrainer *trainer)
{
    HsContext *context = &trainer->engine.context;
    HsWeightStream *stream = &trainer->weight_stream;
    const HsOffloadLevel level = hs_trainer_offload_level(trainer);
    size_t training, evaluation;
    trainer->train_exchange = (HsProgramExchange){ before_training, after_training, trainer };
    if (!hs_trainer_passes_gradients(trainer))
        return trainer->engine.comm->size > 1
                   ? hs_buckets_create(&trainer->train_program, &trainer->shards, &trainer->sums, trainer->engine.comm,
                                       context, &trainer->buckets)
                   : HS_OK;
    HS_TRY(hs_beside_create(context, &trainer->beside));
    HS_TRY(hs_passing_create(&trainer->model, &trainer->train_program, &trainer->shards, &trainer->share,
                             &trainer->beside, level >= HS_OFFLOAD_GRADIENTS, context, &trainer->passing));
    if (!hs_trainer_streams_weights(trainer))
        return HS_OK;
    HS_TRY(hs_weight_stream_create(&trainer->model, &trainer->shards, &trainer->share, &trainer->beside,
                                   level >= HS_OFFLOAD_WEIGHTS, context, stream));
    HS_TRY(hs_weight_visits_find(stream, &trainer->train_program, context, &trainer->train_visits, &training));
    HS_TRY(
        hs_weight_visits_find(stream, &trainer->evaluation_program, context, &trainer->evaluation_visits, &evaluation));
    trainer->evaluation_exchange = (HsProgramExchange){ before_evaluation, after_evaluation, trainer };
    return hs_weight_stream_commit(stream, training > evaluation ? training : evaluation);
}

void hs_trainer_destroy_exchange(HsTrainer *trainer)
{
    HsArena *const lent[] = { &trainer->lent_gradients, &trainer->lent_weights };
    for (int i = 0; i < 2; i++)
        if (lent[i]->device)
            hs_arena_deinit(lent[i]);
    hs_buckets_destroy(&trainer->buckets);
    hs_weight_visits_destroy(&trainer->train_visits);
    hs_weight_visits_destroy(&trainer->evaluation_visits);
    hs_weight_stream_destroy(&trainer->weight_stream);
    hs_passing_destroy(&trainer->passing);
    hs_beside_destroy(&trainer->engine.device, &trainer->beside);
}

void hs_trainer_exchange(HsTrainer *trainer)
{
    const bool lent = trainer->lent_weights.device != NULL;
    const bool exchanges = hs_trainer_passes_gradients(trainer) || trainer->buckets.count > 0;
    trainer->train_program.exchange = exchanges ? &trainer->train_exchange : NULL;
    trainer->evaluation_program.exchange =
        hs_trainer_streams_weights(trainer) && !lent ? &trainer->evaluation_exchange : NULL;
}

HsStatus hs_trainer_lend_gradients(HsTrainer *trainer)
{
    if (!hs_trainer_passes_gradients(trainer))
        return HS_OK;
    trainer->train_program.exchange = NULL;
    return hs_passing_lend(&trainer->passing, &trainer->engine.context, &trainer->lent_gradients);
}

void hs_trainer_take_back_gradients(HsTrainer *trainer)
{
    if (hs_trainer_passes_gradients(trainer))
        hs_passing_take_back(&trainer->passing, &trainer->lent_gradients);
}

HsStatus hs_trainer_lend_weights(HsTrainer *trainer)
{
    if (!hs_trainer_streams_weights(trainer))
        return HS_OK;
    hs_trainer_take_back_weights(trainer);
    trainer->train_program.exchange = trainer->evaluation_program.exchange = NULL;
    return hs_weight_stream_lend(&trainer->weight_stream, &trainer->engine.context, &trainer->lent_weights);
}

void hs_trainer_take_back_weights(HsTrainer *trainer)
{
    if (trainer->lent_weights.device)
        hs_weight_stream_take_back(&trainer->weight_stream, &trainer->lent_weights);
}
