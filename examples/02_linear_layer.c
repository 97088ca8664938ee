/* SPDX-License-Identifier: MIT
 *
 * Example 2: one linear layer, y = x w^T + b, forward and backward, through the operations that training uses, on both
 * backends and in two precisions.
 *
 *     build/examples/02_linear_layer
 *
 * Backward is two more products of the same operation:  dx = dy w   and   dw += dy^T x,  plus  db += sum of rows of dy.
 * Each result is compared with the reference in f32, which takes sums in double.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/base/arena.h"
#include "kernels/ops/backend.h"

enum { ROWS = 64, INPUTS = 128, OUTPUTS = 96 };

/* Every tensor of the example.  Weight and bias gradients are f32 whatever the activations are. */
typedef struct Layer {
    HsArena arena;
    HsTensor x, w, bias, y, dy, dx, dw, dbias;
} Layer;

static HsStatus layer_create(Layer *layer, HsDevice *device, HsDtype dtype)
{
    const struct {
        HsTensor *tensor;
        HsTensor shape;
    } tensors[] = {
        { &layer->x, hs_tensor_2d(NULL, dtype, ROWS, INPUTS) },
        { &layer->w, hs_tensor_2d(NULL, dtype, OUTPUTS, INPUTS) },
        { &layer->bias, hs_tensor_1d(NULL, HS_F32, OUTPUTS) },
        { &layer->y, hs_tensor_2d(NULL, dtype, ROWS, OUTPUTS) },
        { &layer->dy, hs_tensor_2d(NULL, dtype, ROWS, OUTPUTS) },
        { &layer->dx, hs_tensor_2d(NULL, dtype, ROWS, INPUTS) },
        { &layer->dw, hs_tensor_2d(NULL, HS_F32, OUTPUTS, INPUTS) },
        { &layer->dbias, hs_tensor_1d(NULL, HS_F32, OUTPUTS) },
    };
    enum { COUNT = sizeof tensors / sizeof tensors[0] };
    size_t offsets[COUNT];
    /* Reserve everything, allocate once, then turn offsets into pointers: how the trainer plans its memory too. */
    hs_arena_init(&layer->arena, device, HS_MEMORY_WEIGHTS);
    for (int i = 0; i < COUNT; i++)
        offsets[i] = hs_arena_reserve(&layer->arena, hs_tensor_bytes(&tensors[i].shape));
    HS_TRY(hs_arena_commit(&layer->arena));
    for (int i = 0; i < COUNT; i++) {
        *tensors[i].tensor = tensors[i].shape;
        tensors[i].tensor->data = hs_arena_at(&layer->arena, offsets[i]);
    }
    return HS_OK;
}

/* Normal numbers that bf16 holds exactly, so that both precisions start from the same values. */
static void fill(const HsTensor *tensor, uint32_t site, double scale)
{
    const HsRng rng = { .seed = 2, .site = site };
    for (int64_t i = 0; i < hs_tensor_count(tensor); i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double pair[2];
        hs_rng_normal(draw.word[0], draw.word[1], pair);
        hs_dtype_store(tensor->dtype, tensor->data, i,
                       (double)hs_bf16_decode(hs_bf16_encode((float)(scale * pair[0]))));
    }
}

static HsStatus forward_and_backward(HsContext *context, Layer *layer)
{
    const HsMatmulArgs forward = { .a.values = layer->x,
                                   .b.values = layer->w,
                                   .transpose_b = true,
                                   .bias = layer->bias,
                                   .alpha = 1.0f,
                                   .c = layer->y };
    const HsMatmulArgs input_gradient = { .a.values = layer->dy, .b.values = layer->w, .alpha = 1.0f, .c = layer->dx };
    const HsMatmulArgs weight_gradient = { .a.values = layer->dy,
                                           .b.values = layer->x,
                                           .transpose_a = true,
                                           .accumulate = true,
                                           .alpha = 1.0f,
                                           .c = layer->dw };
    const HsBiasBackwardArgs bias_gradient = { .dy = layer->dy, .dbias = layer->dbias };
    HS_TRY(hs_op_matmul(context, &forward));
    HS_TRY(hs_op_matmul(context, &input_gradient));
    HS_TRY(hs_op_matmul(context, &weight_gradient));
    return hs_op_bias_backward(context, &bias_gradient);
}

/* Ask for the largest workspace in a dry run, then run for good. */
static HsStatus run(HsDevice *device, const HsBackend *backend, HsDtype dtype, Layer *layer)
{
    HS_TRY(layer_create(layer, device, dtype));
    fill(&layer->x, 1, 1.0);
    fill(&layer->w, 2, 0.1);
    fill(&layer->bias, 3, 0.1);
    fill(&layer->dy, 4, 1.0);
    HsContext context = { .backend = backend, .device = device, .threads = 2, .dry_run = true };
    HS_TRY(forward_and_backward(&context, layer));
    HS_TRY(device->alloc(device, context.workspace_needed, &context.workspace));
    context.workspace_bytes = context.workspace_needed;
    context.dry_run = false;
    HsStatus status = forward_and_backward(&context, layer);
    device->release(device, context.workspace);
    return status;
}

/* Largest difference, relative to the largest element of the reference. */
static double difference(const HsTensor *a, const HsTensor *reference)
{
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < hs_tensor_count(a); i++) {
        const double truth = hs_dtype_load(reference->dtype, reference->data, i);
        largest = fmax(largest, fabs(truth));
        worst = fmax(worst, fabs(hs_dtype_load(a->dtype, a->data, i) - truth));
    }
    return worst / largest;
}

static HsStatus compare_all(void)
{
    HsDevice device;
    const HsBackend *cpu;
    HS_TRY(hs_device_host_init(&device));
    HS_TRY(hs_backend_cpu(&cpu));
    const struct {
        const HsBackend *backend;
        HsDtype dtype;
    } runs[] = { { hs_backend_ref(), HS_F32 }, { cpu, HS_F32 }, { hs_backend_ref(), HS_BF16 }, { cpu, HS_BF16 } };
    Layer layers[4] = { 0 };
    HsStatus status = HS_OK;
    printf("y = x w^T + b with x [%d,%d], w [%d,%d] on %s (%s)\n\n", ROWS, INPUTS, OUTPUTS, INPUTS, device.description,
           hs_backend_cpu_isa());
    printf("largest difference from ref f32, relative to the largest element\n\n");
    printf("  %-12s %10s %10s %10s %10s\n", "run", "y", "dx", "dw", "db");
    for (int i = 0; i < 4 && status == HS_OK; i++) {
        Layer *layer = &layers[i];
        status = run(&device, runs[i].backend, runs[i].dtype, layer);
        if (status == HS_OK)
            printf("  %-4s %-7s %10.2e %10.2e %10.2e %10.2e\n", runs[i].backend->name, hs_dtype_name(runs[i].dtype),
                   difference(&layer->y, &layers[0].y), difference(&layer->dx, &layers[0].dx),
                   difference(&layer->dw, &layers[0].dw), difference(&layer->dbias, &layers[0].dbias));
    }
    for (int i = 0; i < 4; i++)
        hs_arena_deinit(&layers[i].arena);
    return status;
}

int main(void)
{
    if (compare_all() != HS_OK) {
        fprintf(stderr, "error: %s\n", hs_error_message());
        return 1;
    }
    printf("\n  f32: the backends differ by the order of f32 sums only, near epsilon 1.2e-07.\n");
    printf("  bf16: y and dx are rounded once to 8 bits, half an epsilon of 7.8e-03 at most; the products themselves\n"
           "  are exact and their sums are f32, so dw and db, stored in f32, stay as good as in f32.\n");
    return 0;
}
