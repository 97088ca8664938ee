/* SPDX-License-Identifier: MIT
 *
 * Our adapter section as PEFT's adapter_config.json, and the other way round.
 */
#ifndef HS_RUNTIME_CONFIG_PEFT_H
#define HS_RUNTIME_CONFIG_PEFT_H

#include "runtime/config/config.h"
#include "runtime/io/json.h"

struct HsAdoption;

/* Names of modules, as PEFT matches them. */
typedef struct HsPeftNames {
    const char *base; /* where the base model is */
    const char *const *targets, *const *saved;
    int target_count, saved_count;
} HsPeftNames;

/* The caller destroys it. */
HsJson *hs_peft_config(const HsConfig *config, const HsPeftNames *names);

/* adapter_config.json -> adoption.  tied: the model's head is its embedding's table, which PEFT trains as two: a list that
 * names both names the one that is here.
 * errors: HS_EUNSUPPORTED, HS_EFORMAT naming file, key and value, with what is supported */
HsStatus hs_peft_read(const char *path, bool tied, struct HsAdoption *adoption);

#endif
