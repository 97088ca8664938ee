/* SPDX-License-Identifier: MIT
 *
 * A tiny model on a device of any kind, with a program for training and one for evaluation.
 */
#ifndef HS_TESTS_SUPPORT_DEVICE_RIG_H
#define HS_TESTS_SUPPORT_DEVICE_RIG_H

#include "runtime/engine/engine.h"
#include "tests/support/tiny_model.h"

typedef struct Rig {
    HsConfig config;
    HsEngine engine;
    HsModel model;
    HsProgram train, evaluate;
} Rig;

/* The device and the model's table, from the rig's configuration. */
static inline void rig_open(Rig *rig, const char *device, const char *mode, int64_t vocabulary)
{
    const HsEngineOptions options = { .device = device, .threads = 2 };
    TINY_OK(hs_engine_init(&rig->engine, &options));
    TINY_OK(hs_model_create(&rig->config, hs_precision_find(mode), vocabulary, &rig->model));
}

/* Its programs, memory and weights. */
static inline void rig_start(Rig *rig, int64_t batch, int64_t length)
{
    HsContext *context = &rig->engine.context;
    TINY_OK(hs_program_create(&rig->model, context, batch, length, true, HS_RECOMPUTE_BLOCK, 1, &rig->train));
    TINY_OK(hs_program_create(&rig->model, context, batch, length, false, HS_RECOMPUTE_NONE, 1, &rig->evaluate));
    TINY_OK(hs_model_commit(&rig->model, context, true));
    TINY_OK(hs_program_commit(&rig->train, context));
    TINY_OK(hs_program_commit(&rig->evaluate, context));
    TINY_OK(hs_model_initialize(&rig->model, context, 4242, 0.3, NULL, 0));
}

static inline void rig_close(Rig *rig)
{
    hs_program_destroy(&rig->train);
    hs_program_destroy(&rig->evaluate);
    hs_model_destroy(&rig->model);
    hs_engine_deinit(&rig->engine);
}

#endif
