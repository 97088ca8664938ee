/* SPDX-License-Identifier: MIT
 *
 * hs_op_<name> for every row of HS_OPS, all the same:
 *     check shapes -> ask the backend whether it computes this, and for its workspace -> dry run: record and return
 *     -> run.
 * A dry run touches no data: it is how memory is planned and flops are counted before anything is allocated.  What an
 * operation costs is computed for an observer alone.
 */
#include "kernels/ops/backend.h"

#include <assert.h>
#include <string.h>

#include "kernels/checks/checks.h"
#include "kernels/ops/cost.h"

static HsStatus require_workspace(const HsContext *context, const char *op, size_t needed)
{
    if (needed <= context->workspace_bytes && (needed == 0 || context->workspace != NULL))
        return HS_OK;
    return hs_fail(HS_ENOMEM,
                   "%s: the %s backend needs %zu bytes of workspace, the context has %zu: plan with a dry run", op,
                   context->backend->name, needed, context->workspace_bytes);
}

/* In a dry run an operation begins and ends at once. */
static void observe(HsContext *context, const char *op, HsOpCost cost)
{
    context->observer->begin(context->observer, context, HS_RANGE_OPERATION, op, &cost);
    context->observer->end(context->observer, context);
}

/* The macro's parameter is `op`, not `name`: HsBackend has a member of that name. */
#define HS_OP_ENTRY(op, Args, formula)                                                          \
    HsStatus hs_op_##op(HsContext *context, const Args *args)                                   \
    {                                                                                           \
        const HsBackend *backend = context->backend;                                            \
        HS_TRY(hs_check_##op(args));                                                            \
        if (backend->refuse.op)                                                                 \
            HS_TRY(backend->refuse.op(context, args));                                          \
        const size_t needed = backend->workspace.op ? backend->workspace.op(context, args) : 0; \
        if (context->dry_run) {                                                                 \
            if (needed > context->workspace_needed)                                             \
                context->workspace_needed = needed;                                             \
            if (hs_flops_table.op)                                                              \
                context->flops += hs_flops_table.op(args);                                      \
            if (context->observer)                                                              \
                observe(context, #op, hs_cost_##op(args));                                      \
            return HS_OK;                                                                       \
        }                                                                                       \
        HS_TRY(require_workspace(context, #op, needed));                                        \
        assert(backend->op != NULL);                                                            \
        if (!context->observer)                                                                 \
            return backend->op(context, args);                                                  \
        HsOpCost cost = hs_cost_##op(args);                                                     \
        cost.predicted_s = backend->seconds.op ? backend->seconds.op(context, args) : 0.0;      \
        context->observer->begin(context->observer, context, HS_RANGE_OPERATION, #op, &cost);   \
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
