/* SPDX-License-Identifier: MIT
 *
 * How far attention may be off that sums in f32.  attention_bounds.c has the derivation.
 */
#ifndef HS_RUNTIME_SELFTEST_ATTENTION_BOUNDS_H
#define HS_RUNTIME_SELFTEST_ATTENTION_BOUNDS_H

#include <math.h>

#include "kernels/checks/checks.h"
#include "runtime/selftest/trial.h"

/* The exact operands of an attention case; pointers that an operation has not are NULL. */
typedef struct HsAttentionView {
    HsHeads heads;
    double scale;
    float dropout;
    HsRng rng;
    const int32_t *starts; /* NULL: one document */
    int64_t window;        /* 0: none */
    double cap;            /* 0: none */
    const double *sinks;   /* [H]; NULL: none */
    const double *qkv;
    const double *k_cache, *v_cache; /* keys and values come from here when given, `room` rows per sequence */
    int64_t room, start;
    const double *lse, *out, *dout;
    /* What probabilities and score gradients may be rounded to on their way into the second products: the operands' own
     * dtype where those run on 16-bit matrix units, else HS_F32. */
    HsDtype weights;
} HsAttentionView;

/* out_error [N,H*D]; lse_error [N,H], may be NULL. */
void hs_bound_attention_forward(const HsAttentionView *view, double *out_error, double *lse_error);
/* dqkv_error [N,(H+2G)D] */
void hs_bound_attention_backward(const HsAttentionView *view, double *dqkv_error);

#endif
