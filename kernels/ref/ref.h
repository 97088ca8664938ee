/* SPDX-License-Identifier: MIT
 *
 * What the reference kernels share.  The reference is the specification: plain loops in the order of the equation,
 * every sum in double, one rounding (to nearest, even) where an output is stored.  No threads, no workspace.
 */
#ifndef HS_KERNELS_REF_REF_H
#define HS_KERNELS_REF_REF_H

#include <math.h>

#include "kernels/ops/backend.h"

#define HS_REF_PROTOTYPE(name, Args, formula) HsStatus hs_ref_##name(HsContext *context, const Args *args);
HS_OPS(HS_REF_PROTOTYPE)

/* Element `index` of a tensor, exactly; f32 (training) and f64 (gradient checks) need not go through the table. */
static inline double hs_ref_load(const HsTensor *tensor, int64_t index)
{
    if (tensor->dtype == HS_F32)
        return (double)((const float *)tensor->data)[index];
    if (tensor->dtype == HS_F64)
        return ((const double *)tensor->data)[index];
    return hs_dtype_load(tensor->dtype, tensor->data, index);
}

/* The one rounding. */
static inline void hs_ref_store(const HsTensor *tensor, int64_t index, double value)
{
    if (tensor->dtype == HS_F32)
        ((float *)tensor->data)[index] = (float)value;
    else if (tensor->dtype == HS_F64)
        ((double *)tensor->data)[index] = value;
    else
        hs_dtype_store(tensor->dtype, tensor->data, index, value);
}

/* Round to a tensor's dtype and come back: the value that a reader of the tensor will see. */
static inline double hs_ref_store_rounded(const HsTensor *tensor, int64_t index, double value)
{
    hs_ref_store(tensor, index, value);
    return hs_ref_load(tensor, index);
}

/* The functions of HsActivation, and their derivatives. */
double hs_ref_activation(HsActivation function, double x);
double hs_ref_derivative(HsActivation function, double x);
/* dx = [gate|up]'s gradient at (row, column) of y = f(gate) up, x [N,2F] = [gate|up]. */
void hs_ref_gate_gradient(HsActivation f, const HsTensor *x, const HsTensor *dx, int64_t row, int64_t column,
                          double dy);

/* A capped logit, cap 0: x itself, and its derivative by x, 1 - tanh^2 = 1 / cosh^2, which does not cancel. */
static inline double hs_ref_cap_logit(double x, float cap)
{
    return cap > 0.0f ? (double)cap * tanh(x / (double)cap) : x;
}

static inline double hs_ref_cap_slope(double x, float cap)
{
    const double secant = cap > 0.0f ? 1.0 / cosh(x / (double)cap) : 1.0;
    return secant * secant;
}

/* Dropout's factor of an element: 1 / (1 - p) when it is kept, else 0.  rng.h states the rule. */
static inline double hs_ref_dropout_factor(const HsRng *rng, float probability, uint64_t element)
{
    if (probability == 0.0f)
        return 1.0;
    const HsPhilox draw = hs_rng_draw(rng, element / 4);
    const bool kept = hs_rng_uniform(draw.word[element % 4]) >= probability;
    return kept ? 1.0 / (1.0 - (double)probability) : 0.0;
}

/* Stochastic rounding takes element e's bits from the upper half of word[e % 4] of draw e / 4, that of AdamW's v from
 * the lower. */
static inline uint16_t hs_ref_random_bits(const HsRng *rng, uint64_t element)
{
    return (uint16_t)(hs_rng_draw(rng, element / 4).word[element % 4] >> 16);
}

static inline uint16_t hs_ref_random_lower_bits(const HsRng *rng, uint64_t element)
{
    return (uint16_t)hs_rng_draw(rng, element / 4).word[element % 4];
}

/* The amax that the tensor has, if any, of its numbers as they are stored (ops.h). */
void hs_ref_find_amax(const HsTensor *tensor);

/* A parameter is its master where there is one, else its weight. */
static inline double hs_ref_load_parameter(const HsTensor *master, const HsTensor *weight, int64_t index)
{
    return hs_ref_load(hs_tensor_present(master) ? master : weight, index);
}

/* The weight is the rounded master, not the rounded p: reloading the master gives the same weight, bit for bit. */
static inline void hs_ref_store_parameter(const HsTensor *master, const HsTensor *weight, const HsRng *rng,
                                          int64_t index, double p)
{
    if (hs_tensor_present(master))
        hs_ref_store(weight, index, hs_ref_store_rounded(master, index, p));
    else if (weight->dtype == HS_BF16)
        ((uint16_t *)weight->data)[index] =
            hs_bf16_encode_stochastic((float)p, hs_ref_random_bits(rng, (uint64_t)(rng->row_offset + index)));
    else
        hs_ref_store(weight, index, p);
}

#endif
