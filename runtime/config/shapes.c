/* SPDX-License-Identifier: MIT
 *
 * model.shape: dimensions of published models, as their config.json files have them, without their vocabularies.
 */
#include <stdio.h>
#include <string.h>

#include "runtime/config/model_types.h"
#include "runtime/config/pretrained.h"
#include "runtime/config/table.h"

#define SHAPE_KIND(identifier, word) HS_SHAPE_##identifier,
enum { HS_MODEL_SHAPES(SHAPE_KIND) HS_SHAPE_COUNT };

typedef struct Shape {
    const char *type;         /* whose traits it has (model_types.c) */
    const char *sizes, *rest; /* keys of section model */
} Shape;

/* Of nanochat's repository, for sequences of 2,048 tokens and an even number of layers: queries and keys are times 1.2
 * behind their norm, which is the scale 1.44 / sqrt(128); a short window is a quarter of the context, and its kernel lets a
 * query see one key more. */
#define NANOCHAT                                                                                                 \
    "tie_head: false, norm_epsilon: 1.1920928955078125e-07, logit_cap: 15, rope_theta: 100000, score_scale: "    \
    "0.12727922061357855, smear: 24, input_blend: true, backout: true, init: nanochat, attention: [window 769, " \
    "window 769 values, window 769, full values]"

static const Shape shapes[HS_SHAPE_COUNT] = {
    [HS_SHAPE_GPT2] = { "gpt2", "layers: 12, heads: 12, width: 768",
                        "bias: true, norm_epsilon: 1e-5, max_positions: 1024" },
    [HS_SHAPE_GPT2_MEDIUM] = { "gpt2", "layers: 24, heads: 16, width: 1024",
                               "bias: true, norm_epsilon: 1e-5, max_positions: 1024" },
    [HS_SHAPE_GPT2_LARGE] = { "gpt2", "layers: 36, heads: 20, width: 1280",
                              "bias: true, norm_epsilon: 1e-5, max_positions: 1024" },
    [HS_SHAPE_GPT2_XL] = { "gpt2", "layers: 48, heads: 25, width: 1600",
                           "bias: true, norm_epsilon: 1e-5, max_positions: 1024" },
    [HS_SHAPE_SMOLLM2_135M] = { "llama", "layers: 30, heads: 9, kv_heads: 3, width: 576, head_dim: 64, mlp_width: 1536",
                                "tie_head: true, norm_epsilon: 1e-5, rope_theta: 100000" },
    [HS_SHAPE_SMOLLM2_360M] = { "llama",
                                "layers: 32, heads: 15, kv_heads: 5, width: 960, head_dim: 64, mlp_width: 2560",
                                "tie_head: true, norm_epsilon: 1e-5, rope_theta: 100000" },
    [HS_SHAPE_SMOLLM2_1_7B] = { "llama",
                                "layers: 24, heads: 32, kv_heads: 32, width: 2048, head_dim: 64, mlp_width: 8192",
                                "tie_head: true, norm_epsilon: 1e-5, rope_theta: 130000" },
    [HS_SHAPE_SMOLLM3_3B] = { "smollm3",
                              "layers: 36, heads: 16, kv_heads: 4, width: 2048, head_dim: 128, mlp_width: 11008",
                              "tie_head: true, norm_epsilon: 1e-6, rope_theta: 5000000, attention: [3x full, nope]" },
    [HS_SHAPE_LLAMA3_2_1B] = { "llama",
                               "layers: 16, heads: 32, kv_heads: 8, width: 2048, head_dim: 64, mlp_width: 8192",
                               "tie_head: true, norm_epsilon: 1e-5, rope_theta: 500000, rope_scaling: llama3, "
                               "rope_factor: 32, rope_original_positions: 8192" },
    [HS_SHAPE_LLAMA3_2_3B] = { "llama",
                               "layers: 28, heads: 24, kv_heads: 8, width: 3072, head_dim: 128, mlp_width: 8192",
                               "tie_head: true, norm_epsilon: 1e-5, rope_theta: 500000, rope_scaling: llama3, "
                               "rope_factor: 32, rope_original_positions: 8192" },
    [HS_SHAPE_QWEN2_5_0_5B] = { "qwen2",
                                "layers: 24, heads: 14, kv_heads: 2, width: 896, head_dim: 64, mlp_width: 4864",
                                "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000" },
    [HS_SHAPE_QWEN2_5_1_5B] = { "qwen2",
                                "layers: 28, heads: 12, kv_heads: 2, width: 1536, head_dim: 128, mlp_width: 8960",
                                "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000" },
    [HS_SHAPE_QWEN3_0_6B] = { "qwen3",
                              "layers: 28, heads: 16, kv_heads: 8, width: 1024, head_dim: 128, mlp_width: 3072",
                              "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000" },
    [HS_SHAPE_QWEN3_1_7B] = { "qwen3",
                              "layers: 28, heads: 16, kv_heads: 8, width: 2048, head_dim: 128, mlp_width: 6144",
                              "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000" },
    [HS_SHAPE_QWEN3_4B] = { "qwen3", "layers: 36, heads: 32, kv_heads: 8, width: 2560, head_dim: 128, mlp_width: 9728",
                            "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000" },
    [HS_SHAPE_GEMMA2_2B] = { "gemma2", "layers: 26, heads: 8, kv_heads: 4, width: 2304, head_dim: 256, mlp_width: 9216",
                             "tie_head: true, norm_epsilon: 1e-6, score_cap: 50, logit_cap: 30, attention: [window "
                             "4096, full]" },
    [HS_SHAPE_GEMMA3_270M] = { "gemma3_text",
                               "layers: 18, heads: 4, kv_heads: 1, width: 640, head_dim: 256, mlp_width: 2048",
                               "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000, attention: [5x window 512 "
                               "theta 10000, full]" },
    [HS_SHAPE_GEMMA3_1B] = { "gemma3_text",
                             "layers: 26, heads: 4, kv_heads: 1, width: 1152, head_dim: 256, mlp_width: 6912",
                             "tie_head: true, norm_epsilon: 1e-6, rope_theta: 1000000, attention: [5x window 512 theta "
                             "10000, full]" },
    [HS_SHAPE_OLMO2_1B] = { "olmo2", "layers: 16, heads: 16, kv_heads: 16, width: 2048, head_dim: 128, mlp_width: 8192",
                            "tie_head: false, norm_epsilon: 1e-6, rope_theta: 500000" },
    [HS_SHAPE_NANOCHAT_D12] = { "nanochat", "layers: 12, heads: 6, width: 768, head_dim: 128, mlp_width: 3072",
                                NANOCHAT },
    [HS_SHAPE_NANOCHAT_D20] = { "nanochat", "layers: 20, heads: 10, width: 1280, head_dim: 128, mlp_width: 5120",
                                NANOCHAT },
};

/* One that is given stays. */
static HsStatus take(HsConfig *config, const char *name, const HsYaml *value)
{
    char dotted[HS_DOTTED_BYTES];
    const HsConfigKey *key = hs_config_key_find("model", name);
    return hs_config_is_set(config, hs_config_key_dotted(key, dotted))
               ? HS_OK
               : hs_config_value_set(key, "model.shape", value, config);
}

/* "key: value, key: value" */
static HsStatus take_all(HsConfig *config, const char *pairs)
{
    char text[512];
    HsYaml *map = NULL;
    snprintf(text, sizeof text, "{%s}", pairs);
    HsStatus status = hs_yaml_parse_value(text, &map);
    for (const HsYaml *item = status == HS_OK ? map->first : NULL; item && status == HS_OK; item = item->next)
        status = take(config, item->key, item);
    hs_yaml_destroy(map);
    return status;
}

static int find(const char *word)
{
    static const char *const words[] = HS_WORD_ARRAY(HS_MODEL_SHAPES);
    int kind = HS_SHAPE_NONE;
    for (int i = 0; i < HS_SHAPE_COUNT; i++)
        kind = hs_is(words[i], word) ? i : kind;
    return kind;
}

HsStatus hs_config_adopt_shape(HsConfig *config)
{
    const int kind = find(config->model.shape);
    const Shape *const shape = &shapes[kind];
    if (kind == HS_SHAPE_NONE)
        return HS_OK;
    if (config->training.init_from[0] != '\0')
        return hs_config_relation_fail(config, "model.shape", "init_from",
                                       "model.shape: %s is of a model from scratch, and init_from names weights, which "
                                       "have a shape: remove one of the two",
                                       config->model.shape);
    const HsModelType *const type = hs_model_type_find(shape->type);
    char pair[64];
    HS_TRY(take_all(config, shape->sizes));
    HS_TRY(take_all(config, shape->rest));
    snprintf(pair, sizeof pair, "family: %s", hs_family_files_of(type->family)->name);
    HS_TRY(take_all(config, pair));
    for (const HsModelTrait *trait = type->traits; trait && trait->key; trait++) {
        snprintf(pair, sizeof pair, "%s: %s", trait->key, trait->value);
        HS_TRY(take_all(config, pair));
    }
    return HS_OK;
}
