/* SPDX-License-Identifier: MIT
 *
 * Opening a checkpoint, or a Hugging Face folder, for evaluation and generation.
 */
#include "runtime/commands/loaded_model.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/adapter_file.h"
#include "runtime/checkpoint/pretrained.h"
#include "runtime/config/pretrained.h"
#include "runtime/io/storage.h"

static HsStatus restore_weights(HsLoadedModel *loaded, const HsCheckpoint *checkpoint)
{
    char name[4096];
    HsModel *model = &loaded->model;
    snprintf(name, sizeof name, "%s/model.safetensors", checkpoint->folder);
    HS_TRY(hs_weights_restore(name, &checkpoint->model, model, NULL, 0, &loaded->engine.context));
    return hs_model_pack(model, &loaded->engine.context);
}

/* Everything but the weights, once the configuration is there. */
static HsStatus open_parts(HsLoadedModel *loaded, const char *tokenizer_folder)
{
    char path[4096], why[256];
    HsEngineOptions engine = hs_engine_options(&loaded->config);
    engine.cuda_graph = HS_GRAPH_NEVER; /* for training steps only */
    engine.tuning = NULL;               /* measured on the GPU that trained, for its shapes; this may be another */
    HS_TRY(hs_engine_init(&loaded->engine, &engine));
    HS_TRY(hs_precision_resolve(&loaded->config, loaded->engine.products, &loaded->precision, why, sizeof why));
    snprintf(path, sizeof path, "%s/tokenizer.json", tokenizer_folder);
    HS_TRY(hs_tokenizer_load(tokenizer_folder[0] ? path : loaded->config.tokenizer.path, &loaded->tokenizer));
    HS_TRY(hs_tokenizer_settle(loaded->tokenizer, &loaded->config));
    HS_TRY(hs_model_create(&loaded->config, &loaded->precision, hs_tokenizer_vocabulary(loaded->tokenizer),
                           &loaded->model));
    loaded->has_model = true;
    return hs_model_commit(&loaded->model, &loaded->engine.context, false);
}

/* What a run could have on its machine says nothing about this one, and weights that come from elsewhere must not name
 * code to be run: these keys count only where the command line has them. */
static HsStatus load_saved(HsConfig *config, const char *name, int override_count, const char *const *overrides)
{
    static const char *const of_machine[] = { "memory.limit=0", "memory.allocator=" };
    enum { OF_MACHINE = sizeof of_machine / sizeof *of_machine };
    const char **all = calloc((size_t)override_count + OF_MACHINE, sizeof *all);
    if (!all)
        return hs_fail(HS_ENOMEM, "no memory for %d keys", override_count);
    memcpy(all, of_machine, sizeof of_machine);
    if (override_count > 0)
        memcpy(all + OF_MACHINE, overrides, (size_t)override_count * sizeof *all);
    const HsStatus status = hs_config_load_saved(config, name, override_count + OF_MACHINE, all);
    free(all);
    return status;
}

static HsStatus open_checkpoint(HsLoadedModel *loaded, const HsCheckpoint *checkpoint, int override_count,
                                const char *const *overrides)
{
    char name[4096];
    snprintf(name, sizeof name, "%s/trainer.json", checkpoint->folder);
    HS_TRY(hs_json_need_integer(name, checkpoint->state, "applied_steps", &loaded->step));
    snprintf(name, sizeof name, "%s/config.yaml", checkpoint->folder);
    HS_TRY(load_saved(&loaded->config, name, override_count, overrides));
    loaded->has_config = true;
    HS_TRY(open_parts(loaded, checkpoint->folder));
    return restore_weights(loaded, checkpoint);
}

/* Adapters that lie in the folder are part of its model. */
static HsStatus load_published(HsConfig *config, const char *folder, int override_count, const char *const *overrides)
{
    static const char *const keys[] = { "init_from=", "adapter.init_from=" };
    const size_t room = strlen(folder) + sizeof "adapter.init_from=";
    const char **all = calloc((size_t)override_count + 2, sizeof *all);
    char *own[2] = { malloc(room), malloc(room) };
    bool adapted = false;
    HsStatus status = all && own[0] && own[1] ? hs_storage_has(folder, "adapter_config.json", &adapted)
                                              : hs_fail(HS_ENOMEM, "no memory for the path %s", folder);
    if (status == HS_OK) {
        for (int i = 0; i < 2; i++) {
            snprintf(own[i], room, "%s%s", keys[i], folder);
            all[i] = own[i];
        }
        memcpy(all + 1 + adapted, overrides, (size_t)override_count * sizeof *all);
        status = hs_config_load(config, NULL, 1 + adapted + override_count, all);
    }
    free(all);
    free(own[0]);
    free(own[1]);
    return status;
}

/* With the defaults of everything that config.json does not say, but for the length: what the positions allow. */
static HsStatus open_huggingface(HsLoadedModel *loaded, const char *folder, int override_count,
                                 const char *const *overrides)
{
    enum { USUAL_LENGTH = 1024 };
    HsStatus status;
    HS_TRY(load_published(&loaded->config, folder, override_count, overrides));
    loaded->has_config = true;
    HsConfig *config = &loaded->config;
    const int64_t positions = config->model.max_positions;
    if (!hs_config_is_set(config, "max_length"))
        config->training.max_length = positions > 0 && positions < USUAL_LENGTH ? positions : USUAL_LENGTH;
    HS_TRY(open_parts(loaded, ""));
    HsPretrained pretrained;
    HS_TRY(hs_pretrained_open(folder, &pretrained));
    HsContext *context = &loaded->engine.context;
    status = hs_model_initialize_adapters(&loaded->model, context, 0, NULL, 0);
    if (status == HS_OK)
        status = hs_pretrained_load(&pretrained, &loaded->model, NULL, 0, context);
    hs_pretrained_close(&pretrained);
    HS_TRY(status);
    if (config->adapter.init_from[0] != '\0') {
        hs_info("adapters: %s", config->adapter.init_from);
        HS_TRY(hs_adapter_load(config->adapter.init_from, &loaded->model, NULL, 0, context));
    }
    return hs_model_pack(&loaded->model, &loaded->engine.context);
}

HsStatus hs_loaded_model_init(HsLoadedModel *loaded, const char *folder, int override_count,
                              const char *const *overrides)
{
    memset(loaded, 0, sizeof *loaded);
    HsPretrainedKind kind;
    HsCheckpoint checkpoint = { 0 };
    HS_TRY(hs_pretrained_kind(folder, &kind));
    HsStatus status = HS_OK;
    if (kind == HS_PRETRAINED_HUGGINGFACE) {
        status = open_huggingface(loaded, folder, override_count, overrides);
    } else {
        HS_TRY(hs_checkpoint_open(folder, false, &checkpoint));
        status = open_checkpoint(loaded, &checkpoint, override_count, overrides);
    }
    loaded->folder = strdup(checkpoint.folder ? checkpoint.folder : folder);
    if (!loaded->folder && status == HS_OK)
        status = hs_fail(HS_ENOMEM, "no memory for the path %s", folder);
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
