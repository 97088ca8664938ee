/* SPDX-License-Identifier: MIT
 *
 * What a comparison compares: variants of one configuration, from --strategies and --grid.
 *
 *     --strategies  VARIANT,VARIANT,...    VARIANT = NAME[+NAME]...[:section.key=value]...
 *     --grid        KEY=VALUE,VALUE,...    any number of them: every combination of their values, for each strategy
 *
 * A comma within brackets, braces or quotes does not part values.  A combination is written like a variant:
 * ewc+er:ewc.lambda=10:learning_rate=1e-3, or without a strategy: learning_rate=1e-3:weight_decay=0.1
 */
#ifndef HS_RUNTIME_STUDY_COMPARE_VARIANTS_H
#define HS_RUNTIME_STUDY_COMPARE_VARIANTS_H

#include "runtime/config/config.h"

enum { HS_VARIANTS_MOST = 4096, HS_VARIANT_AXES = 16, HS_VARIANT_FOLDER_BYTES = 192 };

typedef struct HsVariant {
    char *label;
    char folder[HS_VARIANT_FOLDER_BYTES]; /* the label, safe as a file's name; unlike every other's */
    HsStringList overrides;               /* "section.key=value", the strategy first */
} HsVariant;

/* --strategies as a whole, or one --grid. */
typedef struct HsVariantAxis {
    char *key; /* "strategy" for --strategies */
    HsStringList values;
} HsVariantAxis;

typedef struct HsVariants {
    HsVariantAxis axes[HS_VARIANT_AXES]; /* --strategies, where it is given, before the keys */
    int axis_count;
    HsVariant *items; /* [count], the last axis changing fastest */
    int count;
} HsVariants;

/* strategies NULL: the configuration's own.  Whether keys exist and values are theirs is for hs_config_load to say.
 * errors: HS_ECONFIG for what is no variant, no key with values, or given twice; HS_ENOMEM.  Deinit after a failure,
 * too. */
HsStatus hs_variants_parse(const char *strategies, const char *const *grids, int grid_count, HsVariants *variants);
void hs_variants_deinit(HsVariants *variants);
/* Which of an axis's values a variant has. */
int hs_variants_value(const HsVariants *variants, int variant, int axis);

#endif
