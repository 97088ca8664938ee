/* SPDX-License-Identifier: MIT
 *
 * The page of predicted times: `trainer reference --predicted`.  The models are
 * matmul_model.cuh's, by which the backend also chooses, and predicted.cuh's.
 */
#include "kernels/cuda/product/predicted.cuh"

#include <math.h>
#include <stdio.h>
#include <string.h>

namespace HS_CUDA_NAMESPACE
{

namespace
{

const double LAUNCH_CLOCKS = 3000.0, EXP2_RATE = 16.0, LANES = 128.0, SHARED_RATE = 128.0;
const double MMA_RATE = 0.85, WGMMA_RATE = 0.9;

/* Of hs_cards (kernels/base/cards.h). */
const char *const shown_cards[] = { "H200 SXM", "H100 SXM", "RTX 3060", "RTX 4090" };

const AttentionShape attentions[] = {
    { "GPT-2 124M", 32, 1024, 12, 64 },
    { "long", 4, 8192, 16, 128 },
};

/* Starts: forward, a tile's first scores and exponentials, which nothing overlaps; backward, a ticket's first step and
 * last dQ.  Ends: forward, half an item; backward, a simulation of tickets. */
const AttentionWay ways[] = {
    { "mma forward", false, false, 2, 1, 0.0, 4.0, 64, 64, 0.5, 128, 0.0, 0.0, 1, 0.0 },
    { "wgmma forward", false, true, 2, 1, 0.0, 4.0, 96, 64, 0.5, 128, 800.0, 0.5, 1, 0.0 },
    { "mma backward, two kernels", true, false, 7, 2, 0.0, 12.0, 64, 64, 0.5, 64, 0.0, 0.0, 3, 4.0 },
    { "wgmma backward, one pass", true, true, 5, 1, 0.355, 12.0, 128, 128, 0.5, 128, 600.0, 0.125, 3, 10.0 },
};

DeviceLimits limits_from(const char *name)
{
    DeviceLimits limits = {};
    for (int i = 0; i < hs_card_count; i++)
        if (strcmp(hs_cards[i].name, name) == 0)
            play_card(hs_cards[i], &limits);
    limits.hopper_products = limits.hopper_attention = limits.compute_capability == 90;
    return limits;
}

/* --- products --- */

/* The slices that the backend would cut for this kernel. */
int best_slices(const MatmulShape &shape, const DeviceLimits &limits, int kernel)
{
    int best = 1;
    for (int wanted = 1; wanted <= MATMUL_MOST_SLICES; wanted++) {
        const int slices = real_slices(shape.k, wanted);
        if (product_clocks(shape, limits, kernel, slices) < product_clocks(shape, limits, kernel, best))
            best = slices;
        if (!worth_cutting(shape, limits, kernel, wanted))
            break;
    }
    return best;
}

/* A tile's cell: k whole, in slices or with joint tiles, whichever is faster. */
void write_tile(FILE *out, const MatmulShape &shape, const DeviceLimits &limits, int kernel, const MatmulChoice &choice,
                double bytes)
{
    const int joint = joint_kernel(shape, kernel), chosen = kernel_of(shape, choice);
    const int slices = kernel == chosen ? choice.slices : best_slices(shape, limits, kernel);
    const double clocks = product_clocks(shape, limits, kernel, slices);
    const bool together = joint != kernel && product_clocks(shape, limits, joint, 1) < clocks;
    const int shown = together ? joint : kernel, cut = together ? 1 : slices;
    const char *const mark = shown == chosen ? "**" : "";
    fprintf(out, " %s%.0f%s", mark, 1e6 * product_seconds(shape, limits, shown, cut, bytes), mark);
    if (together)
        fprintf(out, " /j");
    else if (cut > 1)
        fprintf(out, " /%d", cut);
    fprintf(out, " |");
}

void write_product(FILE *out, const HsTrainingLayer &layer, const char *pass, const HsMatmulArgs &args,
                   const DeviceLimits &limits)
{
    const MatmulShape shape = matmul_shape(&args, limits);
    const MatmulChoice choice = choose_by_model(shape, limits);
    const int chosen = kernel_of(shape, choice);
    const double bytes = hs_cost_matmul(&args).bytes;
    fprintf(out, "| %s | %s | %s | %lld x %lld x %lld |", layer.model, layer.name, pass, (long long)shape.m,
            (long long)shape.n, (long long)shape.k);
    for (int kernel = 0; kernel < count_kernels(shape); kernel++)
        if (!is_joint(shape, kernel))
            write_tile(out, shape, limits, kernel, choice, bytes);
    const double seconds = product_seconds(shape, limits, chosen, choice.slices, bytes);
    const bool memory = limits.bytes_per_second * seconds <= bytes * 1.000001;
    fprintf(out, " %.0f | %s |\n", 2e-12 * (double)shape.m * (double)shape.n * (double)shape.k / seconds,
            memory ? "memory" : "issue");
}

void write_heading(FILE *out, const char *format, const MatmulShape &shape)
{
    char name[HS_TUNING_KERNEL];
    fprintf(out, "\n### Products in %s\n\n| model | layer | pass | M x N x K |", format);
    int columns = 0;
    for (int kernel = 0; kernel < count_kernels(shape); kernel++) {
        if (is_joint(shape, kernel))
            continue;
        name_kernel(shape, kernel, name, sizeof name);
        fprintf(out, " %s |", name);
        columns++;
    }
    fprintf(out, " TFLOP/s | bound |\n|---|---|---|---|");
    for (int column = 0; column < columns; column++)
        fprintf(out, "---|");
    fprintf(out, "---|---|\n");
}

void write_products(FILE *out, const DeviceLimits &limits, const char *format, HsDtype dtype, HsProductPolicy policy,
                    bool all)
{
    for (int i = 0; i < hs_training_layer_count; i++) {
        const HsTrainingLayer &layer = hs_training_layers[i];
        if (!all && strcmp(layer.model, hs_training_layers[0].model) != 0)
            continue;
        for (int pass = 0; pass < HS_TRAINING_PASSES; pass++) {
            const HsMatmulArgs args = hs_training_product(&layer, (HsTrainingPass)pass, dtype, policy);
            const MatmulShape shape = matmul_shape(&args, limits);
            if (i == 0 && pass == 0)
                write_heading(out, format, shape);
            write_product(out, layer, hs_training_pass_name((HsTrainingPass)pass), args, limits);
        }
    }
}

/* GPT-2's products that are not plain, as a step of training in mixed precision has them. */
const struct FusedProduct {
    const char *layer, *name;
    HsTrainingPass pass;
    HsEpilogue function;
    bool bias, residual; /* a residual and its sum are f32 */
} fused_products[] = {
    { "qkv", "forward, bias", HS_PASS_FORWARD, HS_EPILOGUE_NONE, true, false },
    { "attention out", "forward, bias, residual", HS_PASS_FORWARD, HS_EPILOGUE_NONE, true, true },
    { "mlp up", "forward, bias, GELU", HS_PASS_FORWARD, HS_EPILOGUE_GELU, true, false },
    { "mlp down", "forward, bias, residual", HS_PASS_FORWARD, HS_EPILOGUE_NONE, true, true },
    { "mlp down", "dgrad, GELU's gradient", HS_PASS_DGRAD, HS_EPILOGUE_GELU_BACKWARD, false, false },
};

void write_fused_products(FILE *out, const DeviceLimits &limits)
{
    bool first = true;
    for (const FusedProduct &product : fused_products)
        for (int i = 0; i < hs_training_layer_count; i++) {
            const HsTrainingLayer &layer = hs_training_layers[i];
            if (strcmp(layer.model, hs_training_layers[0].model) != 0 || strcmp(layer.name, product.layer) != 0)
                continue;
            HsMatmulArgs args = hs_training_product(&layer, product.pass, HS_BF16, HS_POLICY_AS_IS);
            args.epilogue = product.function;
            if (product.residual)
                args.c.dtype = HS_F32;
            if (product.residual)
                args.residual = args.c;
            if (product.function != HS_EPILOGUE_NONE)
                args.pre = args.c;
            if (product.bias)
                args.bias = hs_tensor_1d(NULL, HS_F32, args.c.shape[1]);
            if (first)
                write_heading(out, "16 bits with their epilogues", matmul_shape(&args, limits));
            first = false;
            write_product(out, layer, product.name, args, limits);
        }
}

/* --- attention --- */

void write_attention(FILE *out, const DeviceLimits &limits)
{
    fprintf(out, "\n### Causal attention in 16 bits\n\n"
                 "| attention | B x T, heads x D | kernel | microseconds | TFLOP/s |\n|---|---|---|---|---|\n");
    for (const AttentionShape &shape : attentions)
        for (const AttentionWay &way : ways) {
            if (way.wgmma && rates_of(limits.compute_capability).wgmma == 0.0)
                continue;
            const double seconds = attention_seconds(shape, way, limits);
            fprintf(out, "| %s | %lld x %lld, %lld x %lld | %s | %.0f | %.0f |\n", shape.name, (long long)shape.batch,
                    (long long)shape.length, (long long)shape.heads, (long long)shape.head_dim, way.name, 1e6 * seconds,
                    1e-12 * attention_flops(shape, way.backward) / seconds);
        }
}

const char introduction[] =
    "# Predicted times of the GPU kernels\n\n"
    "Generated by `make docs` (`trainer reference --predicted`). **PREDICTED, NOT MEASURED**: nothing on this page ran "
    "on\n"
    "a GPU. It is what the model of the GPU says, by which the backend also chooses where nothing was measured, "
    "written\n"
    "down to be held against the first measurement (`trainer selftest --tune`, `bench/gpu.sh`).\n\n"
    "The models are stated in [matmul_model.cuh](matmul_model.cuh) and [predicted.cuh](predicted.cuh): multiply-adds "
    "over\n"
    "issue rate in whole waves of tiles, epilogues, L2 and shared memory, slices of k added by a second kernel or "
    "tiles\n"
    "that clusters share; or bytes over bandwidth, whichever takes longer. Rates of kernels are in "
    "[matmul_tiles.cuh](matmul_tiles.cuh). Left\n"
    "out: the power limit, which lowers the clock of large GPUs in long products of random numbers (an H200 was seen "
    "at\n"
    "about 790 TFLOP/s at 8192^3 with the vendor's library, whatever its clock allows), and operands that fall out of "
    "L2.\n\n"
    "Cells are microseconds, `/4` the slices of k where it is cut, `/j` where clusters share tiles; the choice of the "
    "model\n"
    "is bold, and TFLOP/s and bound are its. Where nothing is said of them, products have no bias, residual or "
    "activation.\n";

} // namespace

const AttentionWay &attention_way(bool backward, bool wgmma)
{
    for (const AttentionWay &way : ways)
        if (way.backward == backward && way.wgmma == wgmma)
            return way;
    return ways[0];
}

double attention_seconds(const AttentionShape &shape, const AttentionWay &way, const DeviceLimits &limits)
{
    const GpuRates &rates = rates_of(limits.compute_capability);
    const double peak = way.wgmma ? WGMMA_RATE * rates.wgmma : MMA_RATE * rates.mma[MATMUL_16BIT];
    const double length = (double)shape.length, sequences = (double)(shape.batch * shape.heads);
    const double elements = sequences * length * (double)shape.head_dim;
    /* clocks for all scores of a sequence's head */
    const double multiply = way.products / peak, read = way.shared / SHARED_RATE;
    const double product = (double)shape.head_dim * (multiply > read ? multiply : read);
    const double products = product * 0.5 * length * (length + way.product_tile);
    const double softmax = (way.passes / EXP2_RATE + way.other / LANES) * 0.5 * length * (length + way.softmax_tile);
    const double longer = products > softmax ? products : softmax, shorter = products + softmax - longer;
    const double clocks = longer + (1.0 - way.overlap) * shorter;
    const double tiles = ceil(length / way.rows), longest = 2.0 * clocks / tiles;
    const double busy = (LAUNCH_CLOCKS * way.launches +
                         sequences * (clocks + way.start * tiles) / limits.multiprocessors + way.end * longest) /
                        limits.clock_hz;
    /* forward q, k, v, out; backward q, k, v, dout in each of two kernels and dq, dk, dv once; one pass reads its inputs
     * once, and moves f32 sums of dq instead */
    const double moving = (way.backward ? 11.0 : 4.0) * 2.0 * elements / limits.bytes_per_second;
    return (busy > moving ? busy : moving) + way.bytes_apart * elements / limits.bytes_per_second;
}

double attention_flops(const AttentionShape &shape, bool backward)
{
    const double length = (double)shape.length, heads = (double)(shape.batch * shape.heads);
    return (backward ? 2.5 : 1.0) * 2.0 * heads * length * length * (double)shape.head_dim;
}

HsStatus write_predicted(FILE *out)
{
    fputs(introduction, out);
    for (const char *name : shown_cards) {
        const DeviceLimits limits = limits_from(name);
        const GpuRates &rates = rates_of(limits.compute_capability);
        fprintf(out,
                "\n## %s (predicted)\n\n%d multiprocessors at %.3f GHz, %.3g TB/s. Multiply-adds a clock of each: f32 "
                "%.0f, "
                "mma.sync tf32 %.0f, 16 bits %.0f",
                name, limits.multiprocessors, 1e-9 * limits.clock_hz, 1e-12 * limits.bytes_per_second,
                rates.mma[MATMUL_F32], rates.mma[MATMUL_TF32], rates.mma[MATMUL_16BIT]);
        if (rates.wgmma > 0.0)
            fprintf(out, ", wgmma %.0f", rates.wgmma);
        fprintf(out, ".\n");
        write_products(out, limits, "16 bits", HS_BF16, HS_POLICY_AS_IS, true);
        write_fused_products(out, limits);
        write_products(out, limits, "tf32", HS_F32, HS_POLICY_TF32, false);
        write_products(out, limits, "exact f32", HS_F32, HS_POLICY_AS_IS, false);
        write_fp8(out, limits);
        write_attention(out, limits);
    }
    return ferror(out) ? hs_fail(HS_EIO, "cannot write the page of predictions") : HS_OK;
}

} // namespace HS_CUDA_NAMESPACE
