/* SPDX-License-Identifier: MIT
 *
 * Families and model types as files have them: one row says what reads and writes a family, one what a model type of
 * Hugging Face is among ours.  What a family computes is runtime/model's.
 */
#ifndef HS_RUNTIME_CONFIG_MODEL_TYPES_H
#define HS_RUNTIME_CONFIG_MODEL_TYPES_H

#include <string.h>

#include "runtime/config/config.h"
#include "runtime/config/kinds.h"
#include "runtime/io/json.h"

#define HS_FAMILY_KIND(identifier, word) HS_FAMILY_##identifier,
typedef enum HsFamilyKind { HS_FAMILIES(HS_FAMILY_KIND) HS_FAMILY_COUNT } HsFamilyKind;
/* A set of families. */
#define HS_FAMILY_BIT(identifier) (1u << HS_FAMILY_##identifier)
#define HS_FAMILY_ALL             ((1u << HS_FAMILY_COUNT) - 1)

struct HsModelReader;
struct HsModelType;

typedef struct HsFamilyFiles {
    const char *name;
    bool input_rows; /* matrices are stored with a row an input: PEFT's fan_in_fan_out */
    bool biases;     /* every linear layer and norm in its files has one */
    bool ends;       /* positions are a table, which has an end */
    /* After what all families share. */
    HsStatus (*read)(const struct HsModelReader *reader);
    /* mlp_width: settled; biases: config.json's attention_bias. */
    void (*write)(const HsConfig *config, const struct HsModelType *type, int64_t mlp_width, bool biases, HsJson *root);
} HsFamilyFiles;

/* How a type's config.json says which layers differ. */
enum {
    HS_LAYERS_WINDOW = 1,    /* all have sliding_window, or none */
    HS_LAYERS_WINDOWS = 2,   /* those that layer_types names */
    HS_LAYERS_FLAG = 4,      /* only where use_sliding_window says so */
    HS_LAYERS_POSITIONS = 8, /* those have other rotary positions, not scaled */
    HS_LAYERS_NOPE = 16,     /* no_rope_layers: some have no positions */
    HS_LAYERS_FULL_NOPE = 32 /* where sliding_window is given, those without it have no positions */
};

/* Where layer_types is missing. */
typedef enum HsLayersMissing {
    HS_LAYERS_ALL,    /* all have the window */
    HS_LAYERS_FROM,   /* those from max_window_layers on */
    HS_LAYERS_PERIOD, /* all but each `period`th */
    HS_LAYERS_NOPES   /* those without positions */
} HsLayersMissing;

typedef struct HsModelLayers {
    unsigned kinds; /* HS_LAYERS_* */
    HsLayersMissing missing;
    int period;
    const char *period_key; /* that may say another; NULL: none */
    int64_t window;         /* where sliding_window is missing; 0: none */
    double local_theta;     /* HS_LAYERS_POSITIONS: where rope_local_base_freq is missing */
    bool local_key;         /* that key is read */
} HsModelLayers;

/* A key of section model, and the value that all models of a type have. */
typedef struct HsModelTrait {
    const char *key, *value;
} HsModelTrait;

typedef struct HsModelType {
    const char *name;  /* config.json's model_type */
    const char *class; /* the architecture that it is written with; NULL: it is only read */
    const char *gguf;  /* general.architecture; NULL: not written */
    HsFamilyKind family;
    const struct HsModelRow *rows;     /* huggingface_reader.h */
    const struct HsModelRow *own_rows; /* keys that most types do not have, ending with no key; NULL: none */
    const HsModelTrait *traits;        /* where they are not our defaults, ending with no key; NULL: none */
    const char *activation;            /* config.json's key, */
    const char *const *activations;    /* and its words for the one that is computed here; ends with NULL */
    const char *kv_heads, *head_dim;   /* where the file does not say; "": all heads; width / heads */
    bool null_kv_heads, null_head_dim; /* may be null, which says the same as "" */
    bool biases;                       /* reads attention_bias */
    bool mlp_biases;                   /* reads mlp_bias */
    const char *theta;                 /* where rope_theta is missing; NULL: 10000 */
    bool rotates_share;                /* reads partial_rotary_factor, whatever the rope_type */
    bool longrope_alone;               /* its one rope_type besides default, which older files call su or yarn */
    HsModelLayers layers;
} HsModelType;

/* The row of model.family, a word that the table of keys has checked. */
const HsFamilyFiles *hs_family_files(const HsConfig *config);
bool hs_family_is_in(const HsConfig *config, unsigned families);
const HsFamilyFiles *hs_family_files_of(HsFamilyKind kind);
/* Of the set, "gpt2 or llama" -> text. */
const char *hs_family_names(unsigned families, char *text, size_t size);
/* NULL: none. */
const HsModelType *hs_model_type_find(const char *name);
int hs_model_type_count(void);
const HsModelType *hs_model_type_at(int index);
/* "gpt2, llama, ..." -> text. */
const char *hs_model_type_names(char *text, size_t size);
/* model_match.c: keys of section model that make another network of the same dimensions, or other files; NULL behind the last. */
const char *hs_model_telling_key(int index);
/* Whether config.json of the type says the key. */
bool hs_model_type_reads(const HsModelType *type, const char *key);
/* The value that a type's models have of a key of section model; NULL: our default. */
static inline const char *hs_model_trait(const HsModelType *type, const char *key)
{
    for (const HsModelTrait *trait = type->traits; trait && trait->key; trait++)
        if (strcmp(trait->key, key) == 0)
            return trait->value;
    return NULL;
}
/* The type that a model of ours is written as; NULL: none describes it. */
const HsModelType *hs_model_type_of(const HsConfig *config);
/* Where none does: what sets the model apart from the nearest, for a message -> text. */
const char *hs_model_type_missing(const HsConfig *config, char *text, size_t size);

#endif
