/* SPDX-License-Identifier: MIT
 *
 * Attention that differs by layer (model.attention): a pattern that is repeated over the layers, and cut off.
 *
 *     ["5x window 512 theta 10000", "full"]     five layers in which a query sees 512 keys, one in which it sees all
 *     ["3x full", "nope"]                       no positions in every fourth layer
 *     ["3x window 512", "full", "last full"]    whatever the pattern says of it, the last layer sees all
 *     ["window 768 sink", "full values"]        a learned sink a head; values of tokens by themselves are added
 */
#ifndef HS_RUNTIME_CONFIG_ATTENTION_PATTERN_H
#define HS_RUNTIME_CONFIG_ATTENTION_PATTERN_H

#include "runtime/config/config.h"

typedef struct HsAttentionKind {
    int64_t window; /* keys that a query sees, with its own; 0: all before it */
    double theta;   /* base of the rotary frequencies; 0: model.rope_theta */
    bool nope;      /* queries and keys are not rotated */
    bool unscaled;  /* as model.rope_scaling none */
    bool sink;      /* a learned logit of each head in the denominator alone */
    bool values;    /* a table's row for each token is added to its values, by a gate */
} HsAttentionKind;

/* Of each of model.layers -> kinds.  errors: HS_ECONFIG, quoting what is not understood */
HsStatus hs_attention_kinds(const HsConfig *config, HsAttentionKind *kinds);
/* Of one, where the pattern was checked. */
HsAttentionKind hs_attention_kind(const HsConfig *config, int64_t layer);

/* The shortest pattern that says the same, as a list of YAML; "" where no layer differs from a plain one.  The caller
 * frees.  errors: HS_ENOMEM */
HsStatus hs_attention_pattern_text(const HsAttentionKind *kinds, int64_t layers, char **text);

#endif
