/* SPDX-License-Identifier: MIT
 *
 * Which kernels are launched, with how many threads a block and how much dynamic shared memory: one line
 *
 *     ADDRESS THREADS SHARED_BYTES
 *
 * for each different launch, over every case of every operation of the selftest, its timed cases, and the products and
 * attention of models that people train.  Nothing runs: the emulator's observer turns every launch away, so the
 * memory behind the large shapes is never touched.  The emulator is part of this program, which
 * is linked without -pie, so that `nm` knows the kernel behind an address.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/parts/part.h"
#include "runtime/selftest/trial.h"

/* kernels/cuda/toolbox/launch.cuh */
extern HsLaunchObserver *hs_emu_launch_observer;

static bool list_launch(const HsKernelLaunch *launch)
{
    printf("%016" PRIxPTR " %u %zu\n", (uintptr_t)launch->kernel, launch->block_threads, launch->shared_bytes);
    return false;
}

#define OP_ROW(name, Args, formula) { #name, &hs_op_test_##name },
static const struct {
    const char *name;
    const HsOpTest *test;
} op_rows[] = { HS_OPS(OP_ROW) };

/* Products of a linear layer [rows, in] -> [rows, out]: GPT-2 124M and 350M, a Llama of 1.1B, a head. */
static const int64_t layers[][3] = {
    { 8192, 768, 2304 },  { 8192, 768, 768 },    { 8192, 768, 3072 },  { 8192, 3072, 768 },
    { 8192, 1024, 4096 }, { 8192, 2048, 11264 }, { 8192, 5632, 2048 }, { 2048, 768, 50304 },
    { 128, 768, 768 },    { 1, 768, 2304 },      { 512, 768, 768 },    { 256, 128, 512 },
};

static const struct {
    HsDtype dtype;
    HsProductPolicy policy;
} modes[] = {
    { HS_F32, HS_POLICY_AS_IS }, { HS_F32, HS_POLICY_TF32 }, { HS_BF16, HS_POLICY_AS_IS }, { HS_F16, HS_POLICY_AS_IS }
};

/* Tensors don't overlap and are aligned like real ones; nothing is there. */
static void *untouched(int index)
{
    return (void *)((uintptr_t)(index + 1) << 32);
}

static HsTensor matrix(HsDtype dtype, int64_t rows, int64_t columns)
{
    static int made;
    made = (made + 1) % 16;
    return hs_tensor_2d(untouched(made), dtype, rows, columns);
}

/* The workspace that the dry run asked for. */
static void use_workspace(HsContext *context)
{
    context->workspace = untouched(32);
    context->workspace_bytes = context->workspace_needed;
}

/* HsStatus launch_matmul(HsContext *, const HsMatmulArgs *), ... */
#define LAUNCH_OP(op, Args)                                           \
    static HsStatus launch_##op(HsContext *context, const Args *args) \
    {                                                                 \
        context->workspace_needed = 0;                                \
        context->dry_run = true;                                      \
        HS_TRY(hs_op_##op(context, args));                            \
        context->dry_run = false;                                     \
        use_workspace(context);                                       \
        return hs_op_##op(context, args);                             \
    }
LAUNCH_OP(matmul, HsMatmulArgs)
LAUNCH_OP(attention_forward, HsAttentionArgs)
LAUNCH_OP(attention_backward, HsAttentionBackwardArgs)

static HsStatus launch_layer(HsContext *context, HsDtype dtype, HsProductPolicy policy, int64_t rows, int64_t in,
                             int64_t out)
{
    const HsTensor x = matrix(dtype, rows, in), y = matrix(dtype, rows, out), w = matrix(dtype, out, in);
    const HsMatmulArgs forward = {
        .a.values = x, .b.values = w, .transpose_b = true, .policy = policy, .alpha = 1.0f, .c = y
    };
    const HsMatmulArgs dgrad = { .a.values = y, .b.values = w, .policy = policy, .alpha = 1.0f, .c = x };
    const HsMatmulArgs wgrad = { .a.values = y,
                                 .b.values = x,
                                 .transpose_a = true,
                                 .policy = policy,
                                 .accumulate = true,
                                 .alpha = 1.0f,
                                 .c = matrix(HS_F32, out, in) };
    HS_TRY(launch_matmul(context, &forward));
    HS_TRY(launch_matmul(context, &dgrad));
    return launch_matmul(context, &wgrad);
}

static HsStatus launch_attention(HsContext *context, HsDtype dtype, int64_t head_dim, int64_t length, float dropout)
{
    const HsHeads heads = { .batch = 8, .sequence_length = length, .heads = 12, .kv_heads = 4, .head_dim = head_dim };
    const int64_t rows = heads.batch * length, packed = (heads.heads + 2 * heads.kv_heads) * head_dim;
    const HsTensor qkv = matrix(dtype, rows, packed), out = matrix(dtype, rows, heads.heads * head_dim);
    const HsTensor lse = matrix(HS_F32, rows, heads.heads);
    const HsAttentionArgs forward = {
        .heads = heads, .rule.scale = 0.125f, .dropout = dropout, .qkv = qkv, .out = out, .lse = lse
    };
    const HsAttentionBackwardArgs backward = { .heads = heads,
                                               .rule.scale = 0.125f,
                                               .dropout = dropout,
                                               .dout = out,
                                               .qkv = qkv,
                                               .out = out,
                                               .lse = lse,
                                               .dqkv = qkv };
    HS_TRY(launch_attention_forward(context, &forward));
    return launch_attention_backward(context, &backward);
}

static HsStatus launch_case(HsContext *context, int op, const HsCase *config)
{
    HsTrial trial = { .op = op_rows[op].name, .test = op_rows[op].test, .config = config };
    HsTensor tensors[HS_TRIAL_OPERANDS] = { 0 };
    trial.test->declare(&trial);
    for (int i = 0; i < HS_TRIAL_OPERANDS; i++) {
        tensors[i] = trial.operands[i].tensor;
        tensors[i].data = hs_operand_present(&trial, i) ? untouched(i) : NULL;
    }
    context->workspace_needed = 0;
    context->dry_run = true;
    HS_TRY(trial.test->call(&trial, context, tensors));
    context->dry_run = false;
    use_workspace(context);
    return trial.test->call(&trial, context, tensors);
}

static HsStatus launch_selftest(HsContext *context)
{
    for (int op = 0; op < HS_COUNT_OF(op_rows); op++) {
        const HsOpTest *test = op_rows[op].test;
        for (int i = 0; i < test->case_count; i++)
            HS_TRY(launch_case(context, op, &test->cases[i]));
        for (int i = 0; i < test->timed_count; i++)
            HS_TRY(launch_case(context, op, &test->timed[i]));
    }
    return HS_OK;
}

static HsStatus launch_models(HsContext *context)
{
    static const int64_t head_dims[] = { 32, 64, 80, 96, 128, 256 };
    for (int d = 0; d < HS_COUNT_OF(modes); d++) {
        for (int l = 0; l < HS_COUNT_OF(layers); l++)
            HS_TRY(launch_layer(context, modes[d].dtype, modes[d].policy, layers[l][0], layers[l][1], layers[l][2]));
        for (int h = 0; h < HS_COUNT_OF(head_dims); h++) {
            HS_TRY(launch_attention(context, modes[d].dtype, head_dims[h], 1024, 0.0f));
            HS_TRY(launch_attention(context, modes[d].dtype, head_dims[h], 1024, 0.1f));
        }
    }
    return HS_OK;
}

/* A table of measured choices may name any tile, which the model need not choose for any of the layers here. */
static HsStatus launch_tiles(HsContext *context)
{
    static const char *const tiles[] = { "mma-128x256,ffma-128x128",
                                         "mma-128x128,ffma-64x64",
                                         "mma-128x64",
                                         "mma-64x64",
                                         "wgmma-256x256",
                                         "wgmma-256x128",
                                         "wgmma-128x256" };
    const HsTuner *tuner = hs_backend_part()->tuner;
    HsStatus status = HS_OK;
    for (int tile = 0; status == HS_OK && tile < HS_COUNT_OF(tiles); tile++) {
        if (tuner->force(context->device, tiles[tile], 0) != HS_OK)
            continue; /* Hopper's, on another GPU */
        for (int d = 0; status == HS_OK && d < HS_COUNT_OF(modes); d++)
            status = launch_layer(context, modes[d].dtype, modes[d].policy, 512, 768, 768);
    }
    const HsStatus freed = tuner->force(context->device, NULL, 0);
    return status == HS_OK ? freed : status;
}

/* kernels/cuda/comm/fold.cu */
HsStatus hs_emu_launch_fold(const HsContext *context, void *own, const void *others, HsDtype dtype);

static HsStatus launch_folds(HsContext *context)
{
    static const HsDtype types[] = { HS_F32, HS_F64, HS_BF16, HS_F16 };
    for (int t = 0; t < HS_COUNT_OF(types); t++)
        HS_TRY(hs_emu_launch_fold(context, untouched(0), untouched(1), types[t]));
    return HS_OK;
}

/* The probes of the device's peak. */
static void launch_probes(HsContext *context)
{
    for (int d = 0; d < HS_COUNT_OF(modes); d++)
        (void)context->backend->peak_flops(context, modes[d].dtype, modes[d].policy);
}

/* Copies between memory that is not there. */
static HsStatus skip_copy(HsDevice *device, HsStream *stream, void *destination, const void *source, size_t bytes)
{
    (void)device, (void)stream, (void)destination, (void)source, (void)bytes;
    return HS_OK;
}

static HsStatus skip_fill(HsDevice *device, HsStream *stream, void *pointer, size_t bytes)
{
    (void)device, (void)stream, (void)pointer, (void)bytes;
    return HS_OK;
}

int main(void)
{
    HsDevice device;
    const HsCudaOptions options = { .index = 0 };
    HsStatus status = hs_backend_part()->device_init(&device, &options);
    HsContext context = { .backend = hs_backend_part()->backend, .device = &device, .threads = 1 };
    if (status == HS_OK) {
        device.copy = skip_copy;
        device.fill_zero = skip_fill;
        hs_emu_launch_observer = list_launch;
        status = launch_selftest(&context);
    }
    if (status == HS_OK)
        status = launch_models(&context);
    if (status == HS_OK)
        status = launch_tiles(&context);
    if (status == HS_OK)
        status = launch_folds(&context);
    if (status == HS_OK)
        launch_probes(&context);
    if (status != HS_OK)
        fprintf(stderr, "launches: %s\n", hs_error_message());
    return status != HS_OK;
}
