/* SPDX-License-Identifier: MIT
 *
 * Reading a config.json key by key: what its files share.  Private to runtime/config/huggingface*.c.
 */
#ifndef HS_RUNTIME_CONFIG_HUGGINGFACE_READER_H
#define HS_RUNTIME_CONFIG_HUGGINGFACE_READER_H

#include "runtime/config/model_types.h"
#include "runtime/config/pretrained.h"
#include "runtime/io/json.h"

enum { HS_MODEL_TEXT_BYTES = 64 };

/* Of the last two our number is one divided by theirs, or by the root of theirs. */
typedef enum HsRowKind {
    HS_ROW_WHOLE,
    HS_ROW_REAL,
    HS_ROW_YES_NO,
    HS_ROW_TEXT,
    HS_ROW_INVERSE,
    HS_ROW_INVERSE_ROOT
} HsRowKind;

/* Our key, and their names for it: of two the first goes before the second.  What a missing one means: "": our default;
 * else the value. */
typedef struct HsModelRow {
    const char *key;
    const char *names[2];
    HsRowKind kind;
    const char *missing;
    bool may_be_null;       /* null is as missing; else it is refused, as the library refuses it */
    const char *null_means; /* it is this instead; NULL: as missing */
} HsModelRow;

typedef struct HsModelReader {
    const char *path;
    const HsJson *root;
    const HsModelType *type;
    HsAdoption *adoption;
} HsModelReader;

/* A JSON value as messages show it -> text. */
const char *hs_model_show(const HsJson *value, char *text, size_t size);
/* NULL where the key is absent or null. */
const HsJson *hs_model_member(const HsJson *object, const char *name);
/* A value of the kind -> text as YAML writes it.  errors: HS_EFORMAT naming file and key */
HsStatus hs_model_value_text(const HsModelReader *reader, const char *name, const HsJson *value, HsRowKind kind,
                             char text[HS_MODEL_TEXT_BYTES]);
/* Errors that name file, key and value. */
HsStatus hs_model_unsupported(const HsModelReader *reader, const char *key, const HsJson *value, const char *supported);
HsStatus hs_model_refuse_null(const HsModelReader *reader, const char *name);
/* One of our keys; from: what it is called there. */
HsStatus hs_model_add(const HsModelReader *reader, const char *key, const char *text, const char *from);
/* `object`'s member of one of the names -> our key. */
HsStatus hs_model_add_member(const HsModelReader *reader, const HsJson *object, const HsModelRow *row);

/* huggingface_positions.c: how positions rotate; the sections that say it, by precedence. */
extern const char *const hs_model_rope_sections[2];
HsStatus hs_model_add_positions(const HsModelReader *reader);
/* The base of the layers whose positions differ; 0: none is said.  errors: HS_EUNSUPPORTED where they are scaled */
HsStatus hs_model_local_theta(const HsModelReader *reader, double *theta);
void hs_model_write_positions(const HsConfig *config, const HsModelType *type, HsJson *root);

/* huggingface_layers.c: which layers see a window alone, or have no positions. */
HsStatus hs_model_add_layers(const HsModelReader *reader);
void hs_model_write_layers(const HsConfig *config, const HsModelType *type, HsJson *root);
bool hs_model_layers_fit(const HsConfig *config, const HsModelType *type);

/* huggingface.c, huggingface_write.c: the families' own keys. */
HsStatus hs_model_read_gpt2(const HsModelReader *reader);
HsStatus hs_model_read_llama(const HsModelReader *reader);
void hs_model_write_gpt2(const HsConfig *config, const HsModelType *type, int64_t mlp_width, bool biases, HsJson *root);
void hs_model_write_llama(const HsConfig *config, const HsModelType *type, int64_t mlp_width, bool biases,
                          HsJson *root);

#endif
