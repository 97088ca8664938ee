/* SPDX-License-Identifier: MIT
 *
 * The plan, block by block.  A value belongs to the block whose step makes it; bytes of values that are alive at the
 * turn from forward to backward are kept, the others pass.  Passing values share their places in the arena, so their
 * column adds up to more than the arena has.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/layers/layer.h"
#include "runtime/planner.h"

typedef struct LayerRow {
    char name[48];
    int64_t parameters;
    size_t parameter_bytes, kept_bytes, passing_bytes;
    double flops[3]; /* by HsActionKind, of a micro-batch */
} LayerRow;

/* Row 0 is what comes before the blocks, the last what comes after them. */
static int row_of(const HsModel *model, int step)
{
    const int block = model->steps[step].block;
    if (block >= 0)
        return block + 1;
    return step < model->step_count / 2 ? 0 : (int)model->layers + 1;
}

static int64_t parameter_row(const HsModel *model, int param)
{
    for (int s = 0; s < model->step_count; s++)
        for (int p = 0; p < HS_STEP_PARAMS; p++)
            if (model->steps[s].params[p] == param)
                return row_of(model, s); /* of tied ones, where it stands first */
    return 0;
}

static void count_parameters(const HsModel *model, LayerRow *rows)
{
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        LayerRow *row = &rows[parameter_row(model, i)];
        row->parameters += hs_tensor_count(&param->weight);
        const HsTensor *tensors[] = { &param->weight, &param->master, &param->gradient, &param->state[0],
                                      &param->state[1] };
        for (size_t t = 0; t < sizeof tensors / sizeof *tensors; t++)
            if (hs_tensor_present(tensors[t]))
                row->parameter_bytes += hs_tensor_bytes(tensors[t]);
    }
}

/* The first action that is not forward. */
static int turn_of(const HsPlan *plan)
{
    int turn = 0;
    while (turn < plan->action_count && plan->actions[turn].kind == HS_ACTION_FORWARD)
        turn++;
    return turn;
}

static void count_buffers(const HsPlan *plan, LayerRow *rows)
{
    const int turn = turn_of(plan);
    for (int i = 0; i < plan->buffer_count; i++) {
        const HsBuffer *buffer = &plan->buffers[i];
        const int producer = buffer->slot == HS_NONE ? HS_NONE : plan->model->slots[buffer->slot].producer;
        const int step = producer != HS_NONE ? producer : plan->actions[buffer->first_action].step;
        LayerRow *row = &rows[row_of(plan->model, step)];
        const bool kept = buffer->first_action < turn && buffer->last_action > turn;
        *(kept ? &row->kept_bytes : &row->passing_bytes) += buffer->bytes;
    }
    for (int a = 0; a < plan->action_count; a++)
        rows[row_of(plan->model, plan->actions[a].step)].flops[plan->actions[a].kind] += plan->actions[a].flops;
}

HsStatus hs_planner_print_layers(const HsTrainer *draft, FILE *out)
{
    const HsModel *model = &draft->model;
    const int count = (int)model->layers + 2;
    LayerRow *rows = calloc((size_t)count, sizeof *rows);
    if (!rows)
        return hs_fail(HS_ENOMEM, "no memory for %d rows of the plan", count);
    count_parameters(model, rows);
    count_buffers(&draft->train_plan, rows);
    fprintf(out,
            "of one micro-batch        parameters     MiB of them    kept MiB  passing MiB     forward   recompute  "
            "  backward GFLOP\n");
    for (int i = 0; i < count; i++) {
        LayerRow *row = &rows[i];
        if (i == 0 || i == count - 1)
            snprintf(row->name, sizeof row->name, "%s", i == 0 ? "embedding" : "last norm, head, loss");
        else
            snprintf(row->name, sizeof row->name, "block %d", i - 1);
        fprintf(out, "  %-22s %12" PRId64 " %15.1f %11.1f %12.1f %11.3g %11.3g %11.3g\n", row->name, row->parameters,
                hs_mebibytes((double)row->parameter_bytes), hs_mebibytes((double)row->kept_bytes),
                hs_mebibytes((double)row->passing_bytes), row->flops[HS_ACTION_FORWARD] * 1e-9,
                row->flops[HS_ACTION_RECOMPUTE] * 1e-9, row->flops[HS_ACTION_BACKWARD] * 1e-9);
    }
    fprintf(out, "  (parameters with master, gradient and moments; the head's forward is counted in its backward)\n\n");
    free(rows);
    return HS_OK;
}
