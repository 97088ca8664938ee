/* SPDX-License-Identifier: MIT
 *
 * Opening a checkpoint for evaluation and generation.
 */
#include "runtime/commands/loaded_model.h"

#include <stdlib.h>
#include <string.h>

static HsStatus restore_weights(HsLoadedModel *loaded, const HsCheckpoint *checkpoint)
{
    char name[4096];
    HsModel *model = &loaded->model;
    HsNamedTensor *tensors = calloc((size_t)model->param_count, sizeof *tensors);
    if (!tensors)
        return hs_fail(HS_ENOMEM, "no memory to list %d tensors", model->param_count);
    for (int i = 0; i < model->param_count; i++) {
        snprintf(tensors[i].name, sizeof tensors[i].name, "%s", model->params[i].name);
        tensors[i].tensor = model->params[i].weight;
        tensors[i].context = &loaded->engine.context;
    }
    snprintf(name, sizeof name, "%s/model.safetensors", checkpoint->folder);
    HsStatus status = hs_checkpoint_restore(name, &checkpoint->model, tensors, model->param_count);
    free(tensors);
    HS_TRY(status);
    return hs_model_pack(model, &loaded->engine.context);
}

static HsStatus open_parts(HsLoadedModel *loaded, const HsCheckpoint *checkpoint, int override_count,
                           const char *const *overrides)
{
    char path[4096], why[256];
    snprintf(path, sizeof path, "%s/config.yaml", checkpoint->folder);
    HS_TRY(hs_config_load(&loaded->config, path, override_count, overrides));
    loaded->has_config = true;
    HsEngineOptions engine = hs_engine_options(&loaded->config);
    engine.cuda_graph = false; /* for training steps only */
    engine.tuning = NULL;      /* measured on the GPU that trained, for its shapes; this may be another */
    HS_TRY(hs_engine_init(&loaded->engine, &engine));
    HS_TRY(hs_precision_resolve(&loaded->config, loaded->engine.products, &loaded->precision, why, sizeof why));
    snprintf(path, sizeof path, "%s/tokenizer.json", checkpoint->folder);
    HS_TRY(hs_tokenizer_load(path, &loaded->tokenizer));
    HS_TRY(hs_tokenizer_set_end_of_text(loaded->tokenizer, loaded->config.tokenizer.end_of_text));
    HS_TRY(hs_model_create(&loaded->config, &loaded->precision, hs_tokenizer_vocabulary(loaded->tokenizer),
                           &loaded->model));
    loaded->has_model = true;
    HS_TRY(hs_model_commit(&loaded->model, &loaded->engine.context, false));
    return restore_weights(loaded, checkpoint);
}

HsStatus hs_loaded_model_init(HsLoadedModel *loaded, const char *folder, int override_count,
                              const char *const *overrides)
{
    memset(loaded, 0, sizeof *loaded);
    HsCheckpoint checkpoint;
    HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
    char name[4096];
    snprintf(name, sizeof name, "%s/trainer.json", checkpoint.folder);
    HsStatus status = hs_json_need_integer(name, checkpoint.state, "applied_steps", &loaded->step);
    if (status == HS_OK)
        status = open_parts(loaded, &checkpoint, override_count, overrides);
    loaded->folder = strdup(checkpoint.folder);
    if (!loaded->folder && status == HS_OK)
        status = hs_fail(HS_ENOMEM, "no memory for the path %s", checkpoint.folder);
    hs_checkpoint_close(&checkpoint);
    return status;
}

void hs_loaded_model_deinit(HsLoadedModel *loaded)
{
    if (loaded->has_model)
        hs_model_destroy(&loaded->model);
    if (loaded->tokenizer)
        hs_tokenizer_destroy(loaded->tokenizer);
    if (loaded->has_config)
        hs_config_deinit(&loaded->config);
    free(loaded->folder);
    hs_engine_deinit(&loaded->engine);
    memset(loaded, 0, sizeof *loaded);
}
