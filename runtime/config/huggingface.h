/* SPDX-License-Identifier: MIT
 *
 * Our model section as a config.json that Hugging Face's library reads.
 */
#ifndef HS_RUNTIME_CONFIG_HUGGINGFACE_H
#define HS_RUNTIME_CONFIG_HUGGINGFACE_H

#include "runtime/config/config.h"
#include "runtime/io/json.h"

/* What is not in the configuration. */
typedef struct HsPublishedShape {
    int64_t vocabulary, mlp_width;
    const char *dtype; /* "float32", "bfloat16", "float16" */
    /* The tokenizer cuts text as Qwen's do.  The library makes every tokenizer do so that is next to model_type qwen2;
     * with another one a model with biases of q, k and v is a Llama with its other bias zero. */
    bool qwen_tokenizer;
} HsPublishedShape;

/* The caller destroys *root.  errors: HS_EUNSUPPORTED for a model that no type describes */
HsStatus hs_huggingface_config(const HsConfig *config, const HsPublishedShape *shape, HsJson **root);

#endif
