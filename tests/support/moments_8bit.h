/* SPDX-License-Identifier: MIT
 *
 * A parameter with moments in 8 bits, and a step of it.
 */
#ifndef HS_TESTS_SUPPORT_MOMENTS_8BIT_H
#define HS_TESTS_SUPPORT_MOMENTS_8BIT_H

#include "kernels/ops/ops.h"

enum { COUNT = 1000, BLOCKS = 4 };

typedef struct State {
    float p[COUNT], gradient[COUNT];
    uint8_t m[COUNT], v[COUNT];
    float m_absmax[BLOCKS], v_absmax[BLOCKS];
    HsStepScalars scalars;
} State;

static const HsStepScalars one = {
    .learning_rate = 0.01f, .gradient_multiplier = 1, .bias_correction1 = 1, .bias_correction2 = 1, .unscale = 1
};

static inline HsAdamW8bitArgs step_with(State *state, const HsStepScalars *scalars)
{
    return (HsAdamW8bitArgs){ .update.scalars = scalars,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .epsilon = 1e-8f,
                              .update.weight_decay = 0.1f,
                              .update.learning_rate_scale = 1.0f,
                              .update.grad = hs_tensor_1d(state->gradient, HS_F32, COUNT),
                              .update.weight = hs_tensor_1d(state->p, HS_F32, COUNT),
                              .m = hs_tensor_1d(state->m, HS_U8, COUNT),
                              .v = hs_tensor_1d(state->v, HS_U8, COUNT),
                              .m_absmax = hs_tensor_1d(state->m_absmax, HS_F32, BLOCKS),
                              .v_absmax = hs_tensor_1d(state->v_absmax, HS_F32, BLOCKS) };
}

#endif
