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
#include <float.h>
#include <math.h>

#include "optim/continual/internal.h"

typedef struct AgemState {
    HsTensorSet reference;
    bool taken; /* for the step under way */
    int64_t projections;
} AgemState;

static int agem_tensors(const HsContinualConfig *config)
{
    (void)config;
    return 1;
}

static void agem_plan_replay(const HsContinualConfig *config, HsReplayPlan *plan)
{
    plan->reference_rows = (int64_t)hs_continual_number(config, "agem", "reference_batches") * config->batch_rows;
}

static HsStatus agem_create(HsContinual *continual, void *state)
{
    AgemState *agem = state;
    return hs_tensor_set_create(continual, HS_MEMORY_REFERENCE, "agem.reference", &agem->reference);
}

static void agem_destroy(HsContinual *continual, void *state)
{
    AgemState *agem = state;
    hs_tensor_set_destroy(continual, &agem->reference);
}

static HsStatus agem_dry_run(HsContinual *continual, void *state, HsContext *dry)
{
    (void)state;
    const int spans = continual->span_count;
    HsTensor *wide = continual->arguments, *gradients = wide + spans;
    for (int i = 0; i < spans; i++) {
        wide[i] = hs_span_wide(&continual->spans[i]);
        gradients[i] = continual->spans[i].gradient;
        const HsCombineArgs combine = { .x = wide[i], .y = gradients[i], .alpha = 1, .beta = 1 };
        HS_TRY(hs_op_combine(dry, &combine));
    }
    const HsDotArgs dot = { .x = gradients, .y = wide, .count = spans, .values = continual->device_values };
    return hs_op_dot(dry, &dot);
}

static HsStatus agem_take_reference(HsContinual *continual, void *state, HsContext *context)
{
    AgemState *agem = state;
    for (int i = 0; i < continual->span_count; i++) {
        const HsCombineArgs keep = {
            .x = continual->spans[i].gradient, .y = agem->reference.tensors[i], .alpha = 1, .beta = 0
        };
        HS_TRY(hs_op_combine(context, &keep));
    }
    agem->taken = true;
    return HS_OK;
}

/* g += alpha r, over every span. */
static HsStatus add_reference(HsContinual *continual, const AgemState *agem, HsContext *context, double alpha)
{
    for (int i = 0; i < continual->span_count; i++) {
        const HsCombineArgs args = {
            .x = agem->reference.tensors[i], .y = continual->spans[i].gradient, .alpha = (float)alpha, .beta = 1
        };
        HS_TRY(hs_op_combine(context, &args));
    }
    return HS_OK;
}

/* products[0] = g.r, products[1] = |r|^2; summed over spans in their order, so that no device's scheduling shows. */
static HsStatus measure(HsContinual *continual, const AgemState *agem, HsContext *context, double products[2])
{
    const int spans = continual->span_count;
    double *values = continual->device_values;
    const HsTensor *reference = agem->reference.tensors;
    HsTensor *gradients = continual->arguments;
    for (int i = 0; i < spans; i++)
        gradients[i] = continual->spans[i].gradient;
    const HsDotArgs mixed = { .x = gradients, .y = reference, .count = spans, .values = values };
    const HsDotArgs square = { .x = reference, .y = reference, .count = spans, .values = values + spans };
    if (spans > 0) {
        HS_TRY(hs_op_dot(context, &mixed));
        HS_TRY(hs_op_dot(context, &square));
    }
    HS_TRY(hs_continual_fetch_values(continual, context, NULL, 2)); /* whether to project is the host's decision */
    products[0] = products[1] = 0;
    for (int i = 0; i < continual->share.all_count; i++) {
        products[0] += continual->host_values[i];
        products[1] += continual->host_values[continual->share.all_count + i];
    }
    return HS_OK;
}

static HsStatus agem_before_update(HsContinual *continual, void *state, HsContext *context)
{
    AgemState *agem = state;
    /* Each step takes its own reference; the first task takes none. */
    if (!agem->taken)
        return HS_OK;
    agem->taken = false;
    double products[2];
    HS_TRY(measure(continual, agem, context, products));
    /* An overflow in r alone would let the step through unconstrained.  Put among the gradients, it makes the optimizer
     * skip the step and the scaler back off, as an overflow in them does. */
    if (!isfinite(products[1]))
        return add_reference(continual, agem, context, 1.0);
    /* Not finite: an overflow in g, which the optimizer finds. */
    if (!isfinite(products[0]) || products[0] >= 0)
        return HS_OK;
    const double alpha = -products[0] / products[1];
    if (alpha > (double)FLT_MAX) /* |alpha r| is at most |g|: r holds next to nothing, and constrains nothing */
        return HS_OK;
    HS_TRY(add_reference(continual, agem, context, alpha));
    agem->projections++;
    return HS_OK;
}

static HsStatus agem_visit(HsContinual *continual, void *state, const HsStateVisitor *visitor)
{
    AgemState *agem = state;
    (void)continual;
    /* The reference itself exists only within one step, and checkpoints are made between steps. */
    return visitor->integer(visitor->user, "agem.projections", &agem->projections, HS_COUNT_MOST);
}

const HsStrategy hs_strategy_agem = {
    .name = "a-gem",
    .doc = "averaged gradient episodic memory: a gradient that would raise the loss on replayed sequences is "
           "projected (Chaudhry et al. 2019, eq. 11)",
    .role = HS_ROLE_REPLAYS,
    .section = "agem",
    .host_work = "looks at each step's gradients on the host",
    .tensors_per_parameter = agem_tensors,
    .plan_replay = agem_plan_replay,
    .state_bytes = sizeof(AgemState),
    .create = agem_create,
    .destroy = agem_destroy,
    .dry_run = agem_dry_run,
    .take_reference = agem_take_reference,
    .before_update = agem_before_update,
    .visit = agem_visit,
};
