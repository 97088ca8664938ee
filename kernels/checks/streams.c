/* SPDX-License-Identifier: MIT
 *
 * Rules of blends, gates and smear beyond their operands' rows.
 */
#include "kernels/checks/checks.h"

#include <inttypes.h>
#include <math.h>

static HsStatus check_blend(const char *op, int64_t at, float sign, const HsTensor *b)
{
    if (sign != 1.0f && sign != -1.0f)
        return hs_fail(HS_EINVAL, "%s: sign must be 1 or -1 (got %g)", op, (double)sign);
    if (at < 0 || at >= b->shape[0])
        return hs_fail(HS_EINVAL, "%s: element %" PRId64 " of b is asked for, which has %" PRId64, op, at, b->shape[0]);
    return HS_OK;
}

HsStatus hs_check_blend_forward(const HsBlendArgs *args)
{
    HS_TRY(hs_check_operands("blend_forward", &hs_operands.blend_forward, args));
    return check_blend("blend_forward", args->at, args->sign, &args->b);
}

/* What is read for one gradient alone comes with it. */
static HsStatus check_read_for(const char *op, const char *name, const HsTensor *tensor, const char *gradient_name,
                               const HsTensor *gradient)
{
    const bool given = hs_tensor_present(tensor);
    if (given == hs_tensor_present(gradient))
        return HS_OK;
    return hs_fail(HS_EINVAL, "%s: %s is given without %s: leave it out, or give both", op,
                   given ? name : gradient_name, given ? gradient_name : name);
}

HsStatus hs_check_blend_backward(const HsBlendBackwardArgs *args)
{
    const char *op = "blend_backward";
    HS_TRY(hs_check_operands(op, &hs_operands.blend_backward, args));
    HS_TRY(check_blend(op, args->at, args->sign, &args->b));
    HS_TRY(check_read_for(op, "x", &args->x, "da", &args->da));
    HS_TRY(check_read_for(op, "z", &args->z, "db", &args->db));
    if (hs_tensor_present(&args->da) && !hs_tensor_present(&args->a))
        return hs_fail(HS_EINVAL, "%s: da is given without a: leave it out, or give both", op);
    if (!hs_tensor_present(&args->dx) && !hs_tensor_present(&args->dz) && !hs_tensor_present(&args->da) &&
        !hs_tensor_present(&args->db))
        return hs_fail(HS_EINVAL, "%s: none of dx, dz, da and db is asked for", op);
    if (args->dx.data != NULL && args->dx.data == args->dz.data)
        return hs_fail(HS_EINVAL, "%s: dx and dz share their memory", op);
    if (args->accumulate_x && args->dx.data != NULL && args->dx.data == args->dy.data)
        return hs_fail(HS_EINVAL, "%s: dx and dy share their memory, and dx accumulates", op);
    return HS_OK;
}

/* The whole rows are those of x, or of dx. */
static HsStatus check_gate(const char *op, float factor, const HsTensor *w, const char *name, const HsTensor *rows)
{
    /* written so that NaN fails too */
    if (!(factor > 0.0f) || !isfinite(factor))
        return hs_fail(HS_EINVAL, "%s: factor must be positive and finite (got %g)", op, (double)factor);
    if (hs_tensor_present(rows) && w->shape[1] > rows->shape[1])
        return hs_fail(HS_ESHAPE, "%s: w is of %" PRId64 " features, %s has %" PRId64, op, w->shape[1], name,
                       rows->shape[1]);
    return HS_OK;
}

HsStatus hs_check_gate_forward(const HsGateArgs *args)
{
    HS_TRY(hs_check_operands("gate_forward", &hs_operands.gate_forward, args));
    return check_gate("gate_forward", args->factor, &args->w, "x", &args->x);
}

HsStatus hs_check_gate_backward(const HsGateBackwardArgs *args)
{
    const char *op = "gate_backward";
    HS_TRY(hs_check_operands(op, &hs_operands.gate_backward, args));
    HS_TRY(check_gate(op, args->factor, &args->w, "x", &args->x));
    HS_TRY(check_gate(op, args->factor, &args->w, "dx", &args->dx));
    HS_TRY(check_read_for(op, "x", &args->x, "dw", &args->dw));
    if (!hs_tensor_present(&args->dx) && !hs_tensor_present(&args->dw))
        return hs_fail(HS_EINVAL, "%s: neither dx nor dw is asked for", op);
    return HS_OK;
}

static HsStatus check_sequences(const char *op, const HsTensor *x, int64_t sequence_length)
{
    if (sequence_length < 1 || x->shape[0] % sequence_length != 0)
        return hs_fail(HS_ESHAPE, "%s: x is of %" PRId64 " rows, expected a multiple of sequence_length %" PRId64, op,
                       x->shape[0], sequence_length);
    return HS_OK;
}

HsStatus hs_check_smear_forward(const HsSmearArgs *args)
{
    const char *op = "smear_forward";
    HS_TRY(hs_check_operands(op, &hs_operands.smear_forward, args));
    HS_TRY(check_sequences(op, &args->x, args->sequence_length));
    if (!hs_tensor_present(&args->before))
        return HS_OK;
    if (hs_tensor_present(&args->starts))
        return hs_fail(HS_EINVAL,
                       "%s: before continues documents, and starts are given: leave out the one or the other", op);
    const int64_t sequences = args->x.shape[0] / args->sequence_length;
    if (args->before.shape[0] != sequences)
        return hs_fail(HS_ESHAPE, "%s: before is of %" PRId64 " sequences, there are %" PRId64, op,
                       args->before.shape[0], sequences);
    return HS_OK;
}

HsStatus hs_check_smear_backward(const HsSmearBackwardArgs *args)
{
    HS_TRY(hs_check_operands("smear_backward", &hs_operands.smear_backward, args));
    return check_sequences("smear_backward", &args->x, args->sequence_length);
}
