/* SPDX-License-Identifier: MIT
 *
 * init_from: the model section and the tokenizer of what a run starts from.  Private to this folder, but for the kind.
 */
#ifndef HS_RUNTIME_CONFIG_PRETRAINED_H
#define HS_RUNTIME_CONFIG_PRETRAINED_H

#include "runtime/config/config.h"

/* What is at a path that init_from, --checkpoint or --model may name. */
typedef enum HsPretrainedKind {
    HS_PRETRAINED_NONE,        /* neither, or nothing */
    HS_PRETRAINED_CHECKPOINT,  /* of ours: a run's folder, a step's, or a file that names one */
    HS_PRETRAINED_HUGGINGFACE, /* a folder with config.json */
} HsPretrainedKind;
HsStatus hs_pretrained_kind(const char *path, HsPretrainedKind *kind);

/* Keys that stand for the model's shape, taken from one place, each with what they are called there. */
enum { HS_ADOPTED_MOST = 96 };
typedef struct HsAdoption {
    const char *path; /* of the file they are from */
    HsConfig made;    /* holds the values */
    struct {
        const struct HsConfigKey *key;
        char from[48];
    } items[HS_ADOPTED_MOST];
    int count;
} HsAdoption;

/* One more: `text` is the value as YAML writes it.  errors: HS_ECONFIG naming file and key where it is out of bounds */
HsStatus hs_adoption_add(HsAdoption *adoption, const char *section, const char *key, const char *text,
                         const char *from);

/* One more that has our default. */
HsStatus hs_adoption_keep(HsAdoption *adoption, const char *section, const char *key, const char *from);

/* config.json -> adoption.
 * errors: HS_EUNSUPPORTED, HS_EFORMAT naming file, key and value, with what is supported */
HsStatus hs_huggingface_read(const char *path, HsAdoption *adoption);

/* Fills `config` in from what init_from names; nothing where it is empty.  A key that the configuration gives otherwise
 * is an error at its line. */
HsStatus hs_config_adopt(HsConfig *config);
/* The values of model.shape, for keys that the configuration does not give (shapes.c). */
HsStatus hs_config_adopt_shape(HsConfig *config);
/* The same of the section adapter and adapter.init_from. */
HsStatus hs_config_adopt_adapter(HsConfig *config);

#endif
