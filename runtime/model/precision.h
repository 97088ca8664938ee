/* SPDX-License-Identifier: MIT
 *
 * Precision modes as constant tables.  A layer asks the table which format a value has; it never compares dtypes.
 * ARCHITECTURE.md, "Three dtype tables", shows the modes.
 */
#ifndef HS_RUNTIME_MODEL_PRECISION_H
#define HS_RUNTIME_MODEL_PRECISION_H

#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include "kernels/ops/product_policy.h"
#include "runtime/config/config.h"

/* What a device multiplies in hardware in addition to f32: dtypes, and formats to which it rounds operands. */
typedef struct HsProducts {
    bool bf16, f16;
    bool rounds_to[HS_FORMAT_COUNT];
    bool turns_codes; /* HsBackend.turns_codes */
} HsProducts;

/* Linear layers of the blocks in codes (kernels/ops/codes.h): what their products multiply, and how it is scaled. */
typedef struct HsScalingRecipe {
    const char *name;                      /* of precision.fp8.recipe; NULL: there are none */
    HsProductPolicy forward, dgrad, wgrad; /* in place of the mode's own, which all other products have */
    bool delayed, power_of_two, most_recent;
    bool square_weights;       /* block scales of weights serve squares, so that both layouts have the same codes */
    bool stochastic_gradients; /* dy is rounded by random bits */
    bool rotates;              /* both operands of a weight's gradient are rotated along tokens */
    bool turns_codes;          /* codes serve as their transpose's too: x, w and dy are cast in one direction alone */
    int64_t history;
    float margin;
} HsScalingRecipe;

enum { HS_PRECISION_SETTINGS = 3 };

typedef struct HsPrecision {
    const char *name;
    const char *doc;                             /* a line of words; NULL: no configuration can choose it */
    const char *settings[HS_PRECISION_SETTINGS]; /* key=value: what chooses it, the most telling first; then NULL */
    HsProductPolicy forward, dgrad, wgrad;
    HsScalingRecipe scaling;
    HsDtype weight;     /* matrices and embeddings as forward reads them, and the other operands of products */
    HsDtype vector;     /* biases and norm gains */
    HsDtype activation; /* outputs of linear layers, attention, norms, activations, and their gradients */
    HsDtype residual;   /* the residual stream and its gradient */
    HsDtype statistic;  /* norm statistics, log-sum-exp, losses */
    HsDtype logit;      /* of training, where their gradient is made; without a gradient they are of `statistic` */
    HsDtype logit_gradient;
    HsDtype master;    /* of weights narrower than it */
    HsDtype gradient;  /* of weights */
    bool loss_scaling; /* dynamic by default */
} HsPrecision;

/* Whether linear layers multiply codes. */
static inline bool hs_precision_codes(const HsPrecision *precision)
{
    return precision->scaling.name != NULL;
}

/* The const row of a mode; NULL when there is none. */
const HsPrecision *hs_precision_find(const char *mode);
/* The modes that a configuration can choose, from 0; NULL behind the last. */
const HsPrecision *hs_precision_choice(int i);

/* The row that the configuration asks for (auto, use_amp, gradients, master_weights resolved), and why in a sentence.
 * errors: HS_ECONFIG for combinations that cannot be, and for tf32 where there is none. */
HsStatus hs_precision_resolve(const HsConfig *config, HsProducts products, HsPrecision *precision, char *why,
                              size_t why_size);

#endif
