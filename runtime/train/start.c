/* SPDX-License-Identifier: MIT
 *
 * A run's first weights: drawn, or those that init_from names.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/adapter_file.h"
#include "runtime/checkpoint/pretrained.h"
#include "runtime/config/pretrained.h"
#include "runtime/train/run.h"

HsStatus hs_training_given_tokenizer(const HsConfig *config, const char *folder, HsTokenizer **tokenizer)
{
    char path[4096];
    HsPretrainedKind kind = HS_PRETRAINED_NONE;
    HsCheckpoint checkpoint = { 0 };
    *tokenizer = NULL;
    if (!folder && config->training.init_from[0] != '\0')
        HS_TRY(hs_pretrained_kind(config->training.init_from, &kind));
    if (!folder && kind != HS_PRETRAINED_CHECKPOINT)
        return HS_OK;
    if (!folder)
        HS_TRY(hs_checkpoint_open(config->training.init_from, false, &checkpoint));
    snprintf(path, sizeof path, "%s/tokenizer.json", folder ? folder : checkpoint.folder);
    HsStatus status = hs_tokenizer_load(path, tokenizer);
    hs_checkpoint_close(&checkpoint);
    return status;
}

HsStatus hs_run_carry(const HsConfig *config, const char *folder, HsCarried *carried)
{
    HsPretrainedKind kind = HS_PRETRAINED_NONE;
    HsCheckpoint checkpoint = { 0 };
    *carried = (HsCarried){ 0 };
    if (folder)
        return hs_carried_load(folder, carried);
    if (config->training.init_from[0] != '\0')
        HS_TRY(hs_pretrained_kind(config->training.init_from, &kind));
    if (kind != HS_PRETRAINED_CHECKPOINT)
        return hs_carried_gather(config, carried);
    HS_TRY(hs_checkpoint_open(config->training.init_from, false, &checkpoint));
    HsStatus status = hs_carried_load(checkpoint.folder, carried);
    hs_checkpoint_close(&checkpoint);
    return status;
}

static HsStatus start_from_checkpoint(HsTraining *training, const char *from)
{
    HsCheckpoint checkpoint;
    char name[4096];
    HS_TRY(hs_checkpoint_open(from, false, &checkpoint));
    snprintf(name, sizeof name, "%s/model.safetensors", checkpoint.folder);
    HsStatus status = hs_weights_restore(name, &checkpoint.model, &training->model, training->exchange.shards.whole,
                                         training->exchange.shards.whole_count, &training->engine.context);
    if (status == HS_OK)
        hs_info("weights: %s", checkpoint.folder);
    hs_checkpoint_close(&checkpoint);
    return status;
}

static HsStatus start_from_folder(HsTraining *training, const char *from)
{
    HsPretrained pretrained;
    HS_TRY(hs_pretrained_open(from, &pretrained));
    HsStatus status = hs_pretrained_load(&pretrained, &training->model, training->exchange.shards.whole,
                                         training->exchange.shards.whole_count, &training->engine.context);
    if (status == HS_OK)
        hs_info("weights: %s, %d %s", from, pretrained.count, pretrained.count > 1 ? "files" : "file");
    hs_pretrained_close(&pretrained);
    return status;
}

static HsStatus start(HsTraining *training)
{
    const HsConfig *config = training->config;
    const char *const from = config->training.init_from;
    HsPretrainedKind kind;
    if (from[0] == '\0')
        return hs_model_initialize(&training->model, &training->engine.context, (uint64_t)config->training.seed,
                                   config->model.init_std, training->spans, training->span_count);
    HS_TRY(hs_pretrained_kind(from, &kind));
    HS_TRY(hs_model_initialize_adapters(&training->model, &training->engine.context, (uint64_t)config->training.seed,
                                        training->spans, training->span_count));
    HS_TRY(kind == HS_PRETRAINED_HUGGINGFACE ? start_from_folder(training, from)
                                             : start_from_checkpoint(training, from));
    if (config->adapter.init_from[0] != '\0')
        HS_TRY(hs_adapter_load(config->adapter.init_from, &training->model, training->exchange.shards.whole,
                               training->exchange.shards.whole_count, &training->engine.context));
    return hs_optimizer_round_weights(&training->optimizer, &training->engine.context, training->spans,
                                      training->span_count);
}

HsStatus hs_training_start(HsTraining *training)
{
    HS_TRY(start(training));
    return hs_optimizer_begin_averages(&training->optimizer, &training->engine.context, training->spans,
                                       training->span_count);
}

HsStatus hs_training_ready_weights(HsTraining *training)
{
    return hs_training_ready_weights_of(training, training->spans);
}

HsStatus hs_training_ready_weights_of(HsTraining *training, const HsSpan *spans)
{
    HsContext *context = &training->engine.context;
    HS_TRY(hs_optimizer_round_weights(&training->optimizer, context, spans, training->span_count));
    HS_TRY(hs_shards_gather_weights(&training->exchange.shards, context));
    return hs_model_pack(&training->model, context);
}
