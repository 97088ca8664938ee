/* SPDX-License-Identifier: MIT
 *
 * Files of a Hugging Face folder that say how its model is used, and that this program does not all understand: chat
 * templates, special tokens, sampling defaults.  They are kept as text from where a run begins to where it is exported,
 * because the folder may be gone by then.
 *
 *     carried.json of a checkpoint: {"format": "halfstep-carried-1", "files": {"tokenizer_config.json": "{...", ...}}
 */
#ifndef HS_RUNTIME_CONFIG_CARRIED_H
#define HS_RUNTIME_CONFIG_CARRIED_H

#include "runtime/config/config.h"
#include "runtime/io/json.h"

#define HS_CARRIED_FILE "carried.json"
/* A folder of further chat templates, each a file. */
#define HS_CARRIED_TEMPLATES "additional_chat_templates"

typedef struct HsCarried {
    HsJson *root; /* NULL: nothing is carried */
} HsCarried;

/* From the folder of tokenizer.path, and what is the model's from the folder that init_from names, where these are Hugging
 * Face's.  A file that is no UTF-8 is left out with a warning.  errors: HS_EIO, HS_ENOMEM; deinit also after them */
HsStatus hs_carried_gather(const HsConfig *config, HsCarried *carried);
/* From a checkpoint's folder; nothing where it has no such file, as those of earlier versions.  errors: HS_EFORMAT */
HsStatus hs_carried_load(const char *checkpoint, HsCarried *carried);
/* Into a checkpoint's folder; no file where nothing is carried. */
HsStatus hs_carried_write(const HsCarried *carried, const char *checkpoint);
void hs_carried_deinit(HsCarried *carried);

/* A file's text; NULL: not carried. */
const char *hs_carried_text(const HsCarried *carried, const char *name);
/* A file's object, which the caller destroys; NULL: not carried.  errors: HS_EFORMAT naming the file */
HsStatus hs_carried_object(const HsCarried *carried, const char *name, HsJson **object);
/* {name: text}; NULL: nothing is carried. */
const HsJson *hs_carried_files(const HsCarried *carried);

#endif
