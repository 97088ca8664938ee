/* SPDX-License-Identifier: MIT
 *
 * hs_op_<name> for every row of HS_OPS, all the same:
 *     check shapes -> ask the backend for its workspace -> dry run: record and return -> run.
 * A dry run touches no data: it is how memory is planned and flops are counted before anything is allocated.
 */
#include "kernels/backend.h"

#include <assert.h>
#include <string.h>

#include "kernels/checks.h"

/* Floating-point operations of what is worth counting: products and attention; everything else is bound by memory. */
static double flops_of_matmul(const HsMatmulArgs *args)
{
    const int64_t k = args->a.shape[args->transpose_a ? 0 : 1];
    return 2.0 * (double)hs_tensor_count(&args->c) * (double)k;
}

/* Two products of T x T x D per head, half of each masked away: 2 * 2 N T H D / 2. */
static double flops_of_causal_heads(const HsHeads *heads)
{
    return 2.0 * (double)hs_heads_rows(heads) * (double)heads->sequence_length *
           (double)(heads->heads * heads->head_dim);
}

static double flops_of_attention_forward(const HsAttentionArgs *args)
{
    return flops_of_causal_heads(&args->heads);
}

/* Five products where forward has two: scores again, dv, dp, dq, dk. */
static double flops_of_attention_backward(const HsAttentionBackwardArgs *args)
{
    return 2.5 * flops_of_causal_heads(&args->heads);
}

/* Each new row attends to all rows before it and to itself. */
static double flops_of_attention_cached(const HsAttentionCachedArgs *args)
{
    const double rows = (double)args->heads.sequence_length;
    const double keys = rows * (double)args->position_start + rows * (rows + 1.0) / 2.0;
    return 4.0 * (double)args->heads.batch * keys * (double)(args->heads.heads * args->heads.head_dim);
}

#define FLOPS_MEMBER(name, Args, formula) double (*name)(const Args *);
static const struct {
    HS_OPS(FLOPS_MEMBER)
} flops_table = {
    .matmul = flops_of_matmul,
    .attention_forward = flops_of_attention_forward,
    .attention_backward = flops_of_attention_backward,
    .attention_cached = flops_of_attention_cached,
};

static HsStatus require_workspace(const HsContext *context, const char *op, size_t needed)
{
    if (needed <= context->workspace_bytes && (needed == 0 || context->workspace != NULL))
        return HS_OK;
    return hs_fail(HS_ENOMEM,
                   "%s: the %s backend needs %zu bytes of workspace, the context has %zu: plan with a dry run", op,
                   context->backend->name, needed, context->workspace_bytes);
}

/* The macro's parameter is `op`, not `name`: HsBackend has a member of that name. */
#define HS_OP_ENTRY(op, Args, formula)                                                          \
    HsStatus hs_op_##op(HsContext *context, const Args *args)                                   \
    {                                                                                           \
        const HsBackend *backend = context->backend;                                            \
        HS_TRY(hs_check_##op(args));                                                            \
        const size_t needed = backend->workspace.op ? backend->workspace.op(context, args) : 0; \
        if (context->dry_run) {                                                                 \
            if (needed > context->workspace_needed)                                             \
                context->workspace_needed = needed;                                             \
            if (flops_table.op)                                                                 \
                context->flops += flops_table.op(args);                                         \
            return HS_OK;                                                                       \
        }                                                                                       \
        HS_TRY(require_workspace(context, #op, needed));                                        \
        assert(backend->op != NULL);                                                            \
        if (!context->observer)                                                                 \
            return backend->op(context, args);                                                  \
        context->observer->begin(context->observer, context, HS_RANGE_OPERATION, #op);          \
        const HsStatus status = backend->op(context, args);                                     \
        context->observer->end(context->observer, context);                                     \
        return status;                                                                          \
    }
HS_OPS(HS_OP_ENTRY)

#define FORMULA_ROW(op, Args, formula) { #op, formula },
static const struct {
    const char *op, *formula;
} formulas[] = { HS_OPS(FORMULA_ROW) };

const char *hs_op_formula(const char *name)
{
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        if (strcmp(formulas[i].op, name) == 0)
            return formulas[i].formula;
    }
    return NULL;
}
