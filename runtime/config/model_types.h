/* SPDX-License-Identifier: MIT
 *
 * Families and model types as files have them: one row says what reads and writes a family, one what a model type of Hugging
 * Face is among ours.  What a family computes is runtime/model's.
 */
#ifndef HS_RUNTIME_CONFIG_MODEL_TYPES_H
#define HS_RUNTIME_CONFIG_MODEL_TYPES_H

#include "runtime/config/config.h"
#include "runtime/config/kinds.h"
#include "runtime/io/json.h"

#define HS_FAMILY_KIND(identifier, word) HS_FAMILY_##identifier,
typedef enum HsFamilyKind { HS_FAMILIES(HS_FAMILY_KIND) HS_FAMILY_COUNT } HsFamilyKind;
/* A set of families. */
#define HS_FAMILY_BIT(identifier) (1u << HS_FAMILY_##identifier)
#define HS_FAMILY_ALL             ((1u << HS_FAMILY_COUNT) - 1)

struct HsModelReader;

typedef struct HsFamilyFiles {
    const char *name;
    bool input_rows;                /* matrices are stored with a row an input: PEFT's fan_in_fan_out */
    bool biases;                    /* every linear layer and norm in its files has one */
    bool ends;                      /* positions are a table, which has an end */
    const char *activation;         /* config.json's key, */
    const char *const *activations; /* and its words for the one that is computed here; ends with NULL */
    /* After what all families share. */
    HsStatus (*read)(const struct HsModelReader *reader);
    /* mlp_width: settled; biases: config.json's attention_bias. */
    void (*write)(const HsConfig *config, int64_t mlp_width, bool biases, HsJson *root);
} HsFamilyFiles;

typedef struct HsModelType {
    const char *name;  /* config.json's model_type */
    const char *class; /* the architecture that it is written with; NULL: it is only read */
    const char *gguf;  /* general.architecture; NULL: not written */
    HsFamilyKind family;
    const struct HsModelRow *rows;     /* huggingface_reader.h */
    const char *kv_heads, *head_dim;   /* where the file does not say; "": all heads; width / heads */
    bool null_kv_heads, null_head_dim; /* may be null, which says the same as "" */
    bool qkv_bias, qk_norm;
    bool biases;          /* reads attention_bias */
    bool mlp_biases;      /* reads mlp_bias */
    bool window;          /* reads sliding_window, 4096 where the file does not say */
    bool window_by_layer; /* only where use_sliding_window says so, in the layers of layer_types or max_window_layers */
} HsModelType;

/* The row of model.family, a word that the table of keys has checked. */
const HsFamilyFiles *hs_family_files(const HsConfig *config);
bool hs_family_is_in(const HsConfig *config, unsigned families);
const HsFamilyFiles *hs_family_files_of(HsFamilyKind kind);
/* Of the set, "gpt2 or llama" -> text. */
const char *hs_family_names(unsigned families, char *text, size_t size);
/* NULL: none. */
const HsModelType *hs_model_type_find(const char *name);
/* "gpt2, llama, ..." -> text. */
const char *hs_model_type_names(char *text, size_t size);
/* The type that a model of ours is written as; NULL: none describes it. */
const HsModelType *hs_model_type_of(const HsConfig *config);

#endif
