/* SPDX-License-Identifier: MIT
 *
 * What sets families of models apart, for small models of the family llama: keys of section model by a short name.
 */
#ifndef HS_TESTS_SUPPORT_TINY_SHAPES_H
#define HS_TESTS_SUPPORT_TINY_SHAPES_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"

/* The words of model.attention; static memory. */
#define TINY_PATTERN(config, ...)                                              \
    do {                                                                       \
        static const char *const words[] = { __VA_ARGS__ };                    \
        (config)->model.attention.items = (char **)(uintptr_t)words;           \
        (config)->model.attention.count = (int)(sizeof words / sizeof *words); \
    } while (0)

static inline void tiny_shape_gemma(HsConfig *config)
{
    config->model.norms = "around";
    config->model.activation = "geglu";
    config->model.embedding_factor = 0;
}

/* As transformers has it. */
static inline void tiny_shape_nanochat(HsConfig *config)
{
    config->model.norm_weights = false;
    config->model.embedding_norm = true;
    config->model.qk_norm = config->model.qk_norm_rotated = true;
    config->model.rope_reversed = true;
    config->model.activation = "relu2";
    config->model.logit_cap = 3;
}

static inline void tiny_shape(const char *name, HsConfig *config)
{
    if (strcmp(name, "gemma2") == 0) {
        tiny_shape_gemma(config);
        config->model.score_scale = 0.3;
        config->model.score_cap = 1.5;
        config->model.logit_cap = 2;
        TINY_PATTERN(config, "window 3", "full");
    } else if (strcmp(name, "gemma3") == 0) {
        tiny_shape_gemma(config);
        config->model.qk_norm = true;
        TINY_PATTERN(config, "window 2 theta 100", "full");
    } else if (strcmp(name, "olmo2") == 0) {
        config->model.norms = "after";
        config->model.qk_norm = true;
        config->model.qk_norm_span = "projection";
    } else if (strcmp(name, "granite") == 0) {
        config->model.embedding_factor = 3;
        config->model.score_scale = 0.2;
        config->model.branch_factor = 0.22;
        config->model.logit_factor = 0.5;
    } else if (strcmp(name, "nanochat") == 0) {
        tiny_shape_nanochat(config);
    } else if (strcmp(name, "nanochat-whole") == 0) {
        tiny_shape_nanochat(config);
        config->model.score_scale = 0.7;
        config->model.smear = 5;
        config->model.input_blend = config->model.backout = true;
        TINY_PATTERN(config, "window 3", "full values");
    } else if (strcmp(name, "nanochat-repository") == 0) { /* tests/golden/nanochat/make.py */
        tiny_shape_nanochat(config);
        config->model.rope_theta = 100000;
        config->model.norm_epsilon = 0x1p-52;
        config->model.score_scale = 1.25 * 1.25 / 4;
        config->model.logit_cap = 15;
        config->model.smear = 24;
        config->model.value_gate = 12;
        config->model.input_blend = config->model.backout = true;
        TINY_PATTERN(config, "window 3 values", "full");
    } else if (strcmp(name, "sinks") == 0) {
        TINY_PATTERN(config, "window 3 sink", "full sink values");
    } else if (strcmp(name, "smollm3") == 0) {
        TINY_PATTERN(config, "full", "nope");
    } else if (strcmp(name, "phi") == 0) {
        config->model.rope_share = 0.5;
    } else {
        cr_assert_fail("no shape %s", name);
    }
}

#endif
