/* SPDX-License-Identifier: MIT
 *
 * The plan, block by block.  A value belongs to the block in which the family's table makes it; bytes of values that are alive at the
 * turn from forward to backward are kept, the others pass.  Passing values share their places in the arena, so their
 * column adds up to more than the arena has.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/layer.h"
#include "runtime/model/quantized.h"
#include "runtime/study/planner.h"

typedef struct LayerRow {
    char name[48];
    int64_t parameters;
    size_t parameter_bytes, kept_bytes, passing_bytes;
    double flops[3]; /* by HsActionKind, of a micro-batch */
} LayerRow;

/* Row 0 is what comes before the blocks, the last what comes after them. */
static int row_of_block(const HsModel *model, int block, int step)
{
    if (block >= 0)
        return block + 1;
    return step < model->node_count / 2 ? 0 : (int)model->layers + 1;
}

static int row_of(const HsModel *model, int step)
{
    return row_of_block(model, model->nodes[step].block, step);
}

static int64_t parameter_row(const HsModel *model, int param)
{
    for (int s = 0; s < model->node_count; s++)
        for (int p = 0; p < HS_NODE_PARAMS; p++)
            if (model->nodes[s].params[p] == param)
                return row_of(model, s); /* of tied ones, where it stands first */
    return 0;
}

static void count_tensor(LayerRow *row, const HsTensor *tensor)
{
    if (hs_tensor_present(tensor))
        row->parameter_bytes += hs_tensor_bytes(tensor);
}

static void count_parameters(const HsTraining *draft, LayerRow *rows)
{
    const HsModel *model = &draft->model;
    for (int i = 0; i < model->param_count; i++) {
        const HsParam *param = &model->params[i];
        LayerRow *row = &rows[parameter_row(model, i)];
        row->parameters += hs_tensor_count(&param->stored.values);
        row->parameter_bytes += hs_param_weight_bytes(param);
        count_tensor(row, &param->gradient);
    }
    for (int i = 0; i < draft->span_count; i++) {
        const HsSpan *span = &draft->spans[i];
        LayerRow *row = &rows[parameter_row(model, span->parameter)];
        count_tensor(row, &span->master);
        for (int s = 0; s < HS_SPAN_STATES; s++)
            count_tensor(row, &span->state[s]);
    }
}

/* The first action that is not forward. */
static int turn_of(const HsProgram *program)
{
    int turn = 0;
    while (turn < program->action_count && program->actions[turn].kind == HS_ACTION_FORWARD)
        turn++;
    return turn;
}

static void count_buffers(const HsProgram *program, LayerRow *rows)
{
    const int turn = turn_of(program);
    for (int i = 0; i < program->buffer_count; i++) {
        const HsBuffer *buffer = &program->buffers[i];
        const HsModel *model = program->model;
        const HsSlot *slot = buffer->slot == HS_NONE ? NULL : &model->slots[buffer->slot];
        const bool made = slot && slot->producer != HS_NONE;
        const int step = made ? slot->producer : program->actions[buffer->first_action].node;
        LayerRow *row = &rows[row_of_block(model, made ? slot->block : model->nodes[step].block, step)];
        const bool kept = buffer->first_action < turn && buffer->last_action > turn;
        *(kept ? &row->kept_bytes : &row->passing_bytes) += buffer->bytes;
    }
    for (int a = 0; a < program->action_count; a++)
        rows[row_of(program->model, program->actions[a].node)].flops[program->actions[a].kind] +=
            program->actions[a].flops;
}

HsStatus hs_planner_print_layers(const HsTraining *draft, FILE *out)
{
    const HsModel *model = &draft->model;
    const int count = (int)model->layers + 2;
    LayerRow *rows = calloc((size_t)count, sizeof *rows);
    if (!rows)
        return hs_fail(HS_ENOMEM, "no memory for %d rows of the plan", count);
    count_parameters(draft, rows);
    count_buffers(&draft->train_program, rows);
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
