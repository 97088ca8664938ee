/* SPDX-License-Identifier: MIT
 *
 * Which model type a model of ours is written as: the first that has all of its keys which make another network.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/huggingface_reader.h"
#include "runtime/config/table.h"

bool hs_model_type_reads(const HsModelType *type, const char *key)
{
    for (const HsModelRow *row = type->own_rows; row && row->key; row++)
        if (strcmp(row->key, key) == 0)
            return true;
    return type->rotates_share && strcmp(key, "rope_share") == 0;
}

static const char *const telling[] = {
    "bias",          "qkv_bias",     "qk_norm",        "qk_norm_span",      "qk_norm_rotated", "norms",
    "norm_weights",  "norm_offset",  "embedding_norm", "fused_projections", "activation",      "embedding_factor",
    "branch_factor", "logit_factor", "logit_cap",      "score_scale",       "score_cap",       "rope_share",
    "rope_reversed", "smear",        "input_blend",    "backout",
};
enum { TELLING = sizeof telling / sizeof *telling };

const char *hs_model_telling_key(int index)
{
    return index < TELLING ? telling[index] : NULL;
}

/* Which of those keys a type's models have otherwise, or NULL; of a GPT-2 biases are written as zeros where there are none. */
static const char *differing_key(const HsConfig *config, const HsModelType *type, int *count)
{
    HsAdoption *usual = calloc(1, sizeof *usual);
    const char *differing = NULL;
    *count = TELLING;
    if (!usual || hs_config_init(&usual->made) != HS_OK) {
        free(usual);
        return "";
    }
    usual->path = "";
    *count = 0;
    for (const HsModelTrait *trait = type->traits; trait && trait->key; trait++)
        (void)hs_adoption_add(usual, "model", trait->key, trait->value, ""); /* a row above */
    for (int i = 0; i < TELLING; i++) {
        const bool usual_one = hs_config_value_equal(hs_config_key_find("model", telling[i]), config, &usual->made);
        const bool is_auto = strcmp(telling[i], "activation") == 0 && hs_is(usual->made.model.activation, "auto") &&
                             hs_is(config->model.activation, type->family == HS_FAMILY_gpt2 ? "gelu" : "swiglu");
        const bool bias = strcmp(telling[i], "bias") == 0;
        if (usual_one || is_auto || bias || hs_model_type_reads(type, telling[i]))
            continue;
        differing = telling[i];
        ++*count;
    }
    hs_config_deinit(&usual->made);
    free(usual);
    return differing;
}

static bool describes(const HsModelType *type, const HsConfig *config)
{
    int count;
    const bool longrope = hs_is(config->model.rope_scaling, "longrope");
    const bool scaled = !hs_is(config->model.rope_scaling, "none");
    return type->class && hs_family_files_of(type->family) == hs_family_files(config) &&
           differing_key(config, type, &count) == NULL && hs_model_layers_fit(config, type) &&
           (!type->longrope_alone || longrope || !scaled);
}

const HsModelType *hs_model_type_of(const HsConfig *config)
{
    for (int i = 0; i < hs_model_type_count(); i++)
        if (describes(hs_model_type_at(i), config))
            return hs_model_type_at(i);
    return NULL;
}

const char *hs_model_type_missing(const HsConfig *config, char *text, size_t size)
{
    const HsModelType *nearest = NULL;
    const char *key = NULL;
    int least = TELLING + 1;
    for (int i = 0; i < hs_model_type_count(); i++) {
        const HsModelType *const type = hs_model_type_at(i);
        int count;
        if (hs_family_files_of(type->family) != hs_family_files(config))
            continue;
        const char *const differing = differing_key(config, type, &count);
        if (count >= least)
            continue;
        least = count;
        nearest = type;
        key = differing;
    }
    if (!nearest)
        snprintf(text, size, "this model.family");
    else if (key)
        snprintf(text, size, "model.%s as this model has it with its other keys (the nearest is %s, which has %s)", key,
                 nearest->name, hs_model_trait(nearest, key) ? hs_model_trait(nearest, key) : "its default");
    else
        snprintf(text, size, "this model.attention or model.rope_scaling with its other keys (the nearest is %s)",
                 nearest->name);
    return text;
}
