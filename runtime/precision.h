/* SPDX-License-Identifier: MIT
 *
 * Precision modes as constant tables.  A layer asks the table which format a value has; it never compares dtypes.
 *
 *            product operands   linear, attention,   residual stream   statistics, losses,   gradients of
 *            and weights        norm outputs         and its gradient  biases, norm gains    weights
 *   fp32     f32                f32                  f32               f32                   f32
 *   tf32     f32, read as tf32  f32                  f32               f32                   f32
 *   bf16     bf16               bf16                 f32               f32                   f32 | bf16
 *   fp16     f16                f16                  f32               f32                   f32 | f16
 *
 * This is PyTorch autocast's policy: the matmul family and attention in 16 bits, sums, norms' arithmetic, softmax and
 * losses in fp32; x + linear(..) promotes to fp32, hence the fp32 residual stream.
 */
#ifndef HS_RUNTIME_PRECISION_H
#define HS_RUNTIME_PRECISION_H

#include "kernels/base/dtype.h"
#include "kernels/base/status.h"
#include "runtime/config.h"

typedef enum HsScaleRule { HS_SCALE_NONE } HsScaleRule; /* per-tensor scales of 8-bit formats come here */

typedef struct HsGemmPolicy {
    HsDtype a, b, out, accumulate;
    HsScaleRule scale;
    bool tf32; /* f32 operands may lose 13 bits of their mantissas */
} HsGemmPolicy;

/* Formats, beside f32, that a device multiplies in hardware. */
typedef struct HsProducts {
    bool bf16, f16, tf32;
} HsProducts;

typedef struct HsPrecision {
    const char *name;
    HsGemmPolicy forward, dgrad, wgrad;
    HsDtype weight;     /* matrices and embeddings as forward reads them */
    HsDtype vector;     /* biases and norm gains */
    HsDtype activation; /* outputs of linear layers, attention, norms, activations, and their gradients */
    HsDtype residual;   /* the residual stream and its gradient */
    HsDtype statistic;  /* norm statistics, log-sum-exp, losses */
    HsDtype logit_gradient;
    HsDtype master; /* of weights narrower than it */
    HsDtype moment;
    HsDtype gradient;  /* of weights */
    bool loss_scaling; /* dynamic by default */
} HsPrecision;

/* The const row of a mode; NULL when there is none. */
const HsPrecision *hs_precision_find(const char *mode);

/* The row that the configuration asks for (auto, use_amp, gradients, master_weights resolved), and why in a sentence.
 * errors: HS_ECONFIG for combinations that cannot be, and for tf32 where there is none. */
HsStatus hs_precision_resolve(const HsConfig *config, HsProducts products, HsPrecision *precision, char *why,
                              size_t why_size);

#endif
