/* SPDX-License-Identifier: MIT
 *
 * Our model section as config.json, in spellings that the fourth and the fifth version of the library both read.  Every
 * key is written: what a missing one means differs between versions and model types.
 */

#include "runtime/config/huggingface.h"
#include "runtime/config/huggingface_reader.h"

HsStatus hs_huggingface_config(const HsConfig *config, const HsPublishedShape *shape, HsJson **root)
{
    const HsModelType *type = hs_model_type_of(config);
    char missing[256];
    if (!type)
        return hs_fail(HS_EUNSUPPORTED, "no model type of Hugging Face has %s",
                       hs_model_type_missing(config, missing, sizeof missing));
    /* a Llama with its other bias zero: HsPublishedShape */
    const bool as_llama = hs_model_trait(type, "qkv_bias") && !shape->qwen_tokenizer;
    if (as_llama && config->model.attention.count > 0)
        return hs_fail(HS_EUNSUPPORTED,
                       "model.qkv_bias with windows of attention is model type qwen2, which cuts text in "
                       "another way than this tokenizer: train without windows");
    if (as_llama)
        type = hs_model_type_find("llama");
    HsJson *names = hs_json_array();
    *root = hs_json_object();
    hs_json_append(names, hs_json_new_string(type->class));
    hs_json_set(*root, "architectures", names);
    hs_json_set_string(*root, "model_type", type->name);
    hs_json_set_string(*root, "torch_dtype", shape->dtype);
    hs_json_set_integer(*root, "vocab_size", shape->vocabulary);
    hs_json_set_bool(*root, "tie_word_embeddings", config->model.tie_head);
    hs_family_files(config)->write(config, type, shape->mlp_width, as_llama, *root);
    hs_model_write_layers(config, type, *root);
    hs_json_set_real(*root, "initializer_range", config->model.init_std);
    hs_json_set_bool(*root, "use_cache", true);
    return HS_OK;
}
