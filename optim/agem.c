/* SPDX-License-Identifier: MIT
 *
 * A-GEM (Chaudhry et al. 2019, eq. 11): a step may not, to first order, raise the loss on a sample of earlier tasks.
 * With g the batch's gradient and r the sample's,
 *     g = g - (g.r / |r|^2) r   where g.r < 0;   else g is left alone, bit for bit.
 * g.r is the derivative of the earlier tasks' loss along -g, sign changed; afterwards it is 0.
 *
 * Both products run over all parameters together, excluded ones too: the constraint is on the step, not on a tensor.
 * Gradients carry the loss scale S, and so does r when it is taken at the same S: the quotient does not.
 */
#include <assert.h>
#include <float.h>
#include <math.h>

#include "optim/continual_internal.h"

int hs_agem_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 1;
}

HsStatus hs_agem_create(HsContinual *continual)
{
    return hs_family_create(continual, HS_MEMORY_REFERENCE, "agem.reference", &continual->reference);
}

HsStatus hs_continual_take_reference(HsContinual *continual, HsContext *context)
{
    assert(continual->reference.tensors && "only a-gem takes a reference");
    HsDevice *device = continual->device;
    for (int i = 0; i < continual->span_count; i++) {
        const HsTensor *gradient = &continual->spans[i].gradient;
        const HsCombineArgs keep = { .x = *gradient, .y = continual->reference.tensors[i], .alpha = 1, .beta = 0 };
        HS_TRY(hs_op_combine(context, &keep));
        HS_TRY(device->fill_zero(device, context->stream, gradient->data, hs_tensor_bytes(gradient)));
    }
    continual->reference_taken = 1;
    return HS_OK;
}

/* g += alpha r, over every span. */
static HsStatus add_reference(HsContinual *continual, HsContext *context, double alpha)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsCombineArgs args = {
            .x = continual->reference.tensors[i], .y = continual->spans[i].gradient, .alpha = (float)alpha, .beta = 1
        };
        HS_TRY(hs_op_combine(context, &args));
    }
    return HS_OK;
}

/* products[0] = g.r, products[1] = |r|^2; summed over spans in their order, so that no device's scheduling shows. */
static HsStatus measure(HsContinual *continual, HsContext *context, double products[2])
{
    HsDevice *device = continual->device;
    const int spans = continual->span_count;
    double *values = continual->device_values;
    const HsTensor *reference = continual->reference.tensors;
    HsTensor *gradients = continual->arguments;
    for (int i = 0; i < spans; i++)
        gradients[i] = continual->spans[i].gradient;
    const HsDotArgs mixed = { .x = gradients, .y = reference, .count = spans, .values = values };
    const HsDotArgs square = { .x = reference, .y = reference, .count = spans, .values = values + spans };
    HS_TRY(hs_op_dot(context, &mixed));
    HS_TRY(hs_op_dot(context, &square));
    const size_t bytes = 2 * (size_t)spans * sizeof(double);
    HS_TRY(device->copy(device, context->stream, continual->host_values, values, bytes));
    HS_TRY(device->stream_sync(device, context->stream)); /* whether to project is the host's decision */
    products[0] = products[1] = 0;
    for (int i = 0; i < spans; i++) {
        products[0] += continual->host_values[i];
        products[1] += continual->host_values[spans + i];
    }
    return HS_OK;
}

HsStatus hs_agem_before_update(HsContinual *continual, HsContext *context)
{
    /* Each step takes its own reference; the first task takes none. */
    if (!continual->reference_taken)
        return HS_OK;
    continual->reference_taken = 0;
    double products[2];
    HS_TRY(measure(continual, context, products));
    /* An overflow in r alone would let the step through unconstrained.  Put among the gradients, it makes the optimizer
     * skip the step and the scaler back off, as an overflow of their own does. */
    if (!isfinite(products[1]))
        return add_reference(continual, context, 1.0);
    /* Not finite: an overflow in g, which the optimizer finds. */
    if (!isfinite(products[0]) || products[0] >= 0)
        return HS_OK;
    const double alpha = -products[0] / products[1];
    if (alpha > (double)FLT_MAX) /* |alpha r| is at most |g|: r holds next to nothing, and constrains nothing */
        return HS_OK;
    HS_TRY(add_reference(continual, context, alpha));
    continual->projections++;
    return HS_OK;
}

HsStatus hs_agem_visit(HsContinual *continual, const HsStateVisitor *visitor)
{
    /* The reference itself lives within one step, and checkpoints are made between steps. */
    return visitor->integer(visitor->user, "agem.projections", &continual->projections, HS_COUNT_MOST);
}
