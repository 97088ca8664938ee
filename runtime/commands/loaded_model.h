/* SPDX-License-Identifier: MIT
 *
 * A trained model for inference: configuration, tokenizer and weights of a checkpoint, on an engine.
 */
#ifndef HS_RUNTIME_COMMANDS_LOADED_MODEL_H
#define HS_RUNTIME_COMMANDS_LOADED_MODEL_H

#include "runtime/train/run.h"

typedef struct HsLoadedModel {
    HsConfig config;
    HsEngine engine;
    HsPrecision precision;
    HsTokenizer *tokenizer; /* NULL once given away to a dataset */
    HsModel model;
    char *folder; /* the checkpoint that was opened */
    int64_t step; /* applied steps of it */
    bool has_config, has_model;
} HsLoadedModel;

/* `folder`: as hs_checkpoint_open takes it.  Overrides apply to the checkpoint's configuration.
 * The caller owns the storage, which must not move; deinit also after a failure. */
HsStatus hs_loaded_model_init(HsLoadedModel *loaded, const char *folder, int override_count,
                              const char *const *overrides);
void hs_loaded_model_deinit(HsLoadedModel *loaded);

#endif
