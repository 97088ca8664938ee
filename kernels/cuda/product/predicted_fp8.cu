/* SPDX-License-Identifier: MIT
 *
 * From which width on a linear layer's three products are predicted to be faster in FP8 codes, the casts included.
 *
 * A square layer of width h and T rows: products of [T,h] by [h,h], twice, and of [h,T] by [T,h], by the kernels that the
 * model chooses, for codes with one scale a tensor (gradients in E5M2) and with scales of blocks.  Casts of x and dY to codes
 * along and across, and of the weight, are a kernel's start each and the longer of two: bytes over nine tenths of the
 * bandwidth, one kernel that reads 2 bytes and writes 1 in each direction (turns_codes: along alone), and where a tensor's
 * scale is its own, a second that reads 2 for the largest magnitude before; and instructions over the lanes of all
 * multiprocessors, by the machine code for 9.0 (16 and 20 an element in each direction, of a run of 16, and 6 to load).
 * That all three are cast in each step, the weight too, is one micro-batch a step.
 */
#include <initializer_list>

#include "kernels/cuda/product/matmul_fp8.cuh"
#include "kernels/cuda/product/predicted.cuh"

extern "C" {
#include "kernels/checks/checks.h"
}

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { ROWS = 8192, LEAST = 256, MOST = 8192, STEP = 64 };

const double LAUNCH_CLOCKS = 3000.0, SHARE = 0.9, LANES = 128.0;
const double LOAD_INSTRUCTIONS = 6.0, ALONG_INSTRUCTIONS = 16.0, ACROSS_INSTRUCTIONS = 20.0;

double chosen_seconds(const HsMatmulArgs &args, const DeviceLimits &limits)
{
    const MatmulShape shape = matmul_shape(&args, limits);
    const MatmulChoice choice = choose_by_model(shape, limits);
    return product_seconds(shape, limits, kernel_of(shape, choice), choice.slices, hs_cost_matmul(&args).bytes);
}

/* How precision.fp8.recipe scales, as far as it costs time. */
const struct Recipe {
    const char *name, *what;
    HsScaleGranularity granularity;
    HsDtype gradient;
    int weight_kernels; /* it is read once more where its largest magnitude is not known */
} recipes[] = {
    { "current", "scales of each tensor's own", HS_SCALE_TENSOR, HS_E5M2, 2 },
    { "delayed", "delayed scales", HS_SCALE_TENSOR, HS_E5M2, 1 },
    { "block", "scales of blocks", HS_SCALE_BLOCK, HS_E4M3, 1 },
};

/* The same product of codes, along k both. */
double seconds_in_codes(const HsMatmulArgs &given, HsDtype format, const Recipe &recipe, const DeviceLimits &limits)
{
    const int64_t m = given.c.shape[0], n = given.c.shape[1], k = given.a.values.shape[given.transpose_a ? 0 : 1];
    const HsCodes a = { format, recipe.granularity, m, k, NULL, NULL, NULL };
    const HsCodes b = { HS_E4M3, recipe.granularity, n, k, NULL, NULL, NULL };
    HsMatmulArgs args = given;
    args.a = hs_operand_codes(a);
    args.b = hs_operand_codes(b);
    args.transpose_a = false;
    args.transpose_b = true;
    args.policy = HsProductPolicy{ a.format, b.format, recipe.granularity };
    return chosen_seconds(args, limits);
}

struct LayerSeconds {
    double pass[HS_TRAINING_PASSES], casts, all;
};

/* recipe: NULL for bf16. */
LayerSeconds layer_seconds(int64_t width, const Recipe *recipe, const DeviceLimits &limits)
{
    const HsTrainingLayer layer = { "square", "square", ROWS, width, width, false };
    const HsProductPolicy as_is = HS_POLICY_AS_IS;
    LayerSeconds seconds = {};
    for (int pass = 0; pass < HS_TRAINING_PASSES; pass++) {
        const HsMatmulArgs args = hs_training_product(&layer, (HsTrainingPass)pass, HS_BF16, as_is);
        seconds.pass[pass] =
            recipe == NULL
                ? chosen_seconds(args, limits)
                : seconds_in_codes(args, pass == HS_PASS_FORWARD ? HS_E4M3 : recipe->gradient, *recipe, limits);
        seconds.all += seconds.pass[pass];
    }
    if (recipe == NULL)
        return seconds;
    const double cast = 2.0 * ROWS * (double)width, weight = (double)width * (double)width;
    const bool across = recipe->granularity != HS_SCALE_TENSOR || limits.hopper_products;
    const double written = across ? 2.0 : 1.0; /* bytes an element, of which 2 are read */
    const double bytes = (2.0 + written) * cast + (2.0 * recipe->weight_kernels + written) * weight;
    const double moving = bytes / (SHARE * limits.bytes_per_second);
    const double instructions = LOAD_INSTRUCTIONS + ALONG_INSTRUCTIONS + (across ? ACROSS_INSTRUCTIONS : 0.0);
    const double busy = instructions * (cast + weight) / (LANES * limits.multiprocessors * limits.clock_hz);
    seconds.casts = (2.0 + recipe->weight_kernels) * LAUNCH_CLOCKS / limits.clock_hz + (moving > busy ? moving : busy);
    seconds.all += seconds.casts;
    return seconds;
}

bool wins(int64_t width, const Recipe &recipe, const DeviceLimits &limits)
{
    return layer_seconds(width, &recipe, limits).all < layer_seconds(width, NULL, limits).all;
}

/* The width from which on FP8 always wins; more than MOST: it does not. */
int64_t least_width(const Recipe &recipe, const DeviceLimits &limits)
{
    int64_t width = MOST + STEP;
    while (width > LEAST && wins(width - STEP, recipe, limits))
        width -= STEP;
    return width;
}

void write_passes(FILE *out, const LayerSeconds &seconds)
{
    for (const double pass : seconds.pass)
        fprintf(out, " %.0f |", 1e6 * pass);
}

void write_table(FILE *out, const Recipe &recipe, const DeviceLimits &limits)
{
    const int64_t least = least_width(recipe, limits);
    fprintf(out, "\nRecipe %s, %s: FP8 is predicted to win ", recipe.name, recipe.what);
    if (least > MOST)
        fprintf(out, "nowhere up to h = %d.\n", (int)MOST);
    else
        fprintf(out, "**from h = %lld on** (in steps of %d).\n", (long long)least, (int)STEP);
    fprintf(out, "\n| h | bf16 forward | dgrad | wgrad | FP8 forward | dgrad | wgrad | casts | bf16 / FP8 |\n"
                 "|---|---|---|---|---|---|---|---|---|\n");
    for (const int width : { 512, 768, 1024, 1536, 2048, 4096, 8192 }) {
        const LayerSeconds plain = layer_seconds(width, NULL, limits), codes = layer_seconds(width, &recipe, limits);
        fprintf(out, "| %d |", width);
        write_passes(out, plain);
        write_passes(out, codes);
        fprintf(out, " %.0f | %.2f |\n", 1e6 * codes.casts, plain.all / codes.all);
    }
}

} // namespace

void write_fp8(FILE *out, const DeviceLimits &limits)
{
    if (!has_fp8_products(limits))
        return;
    fprintf(out,
            "\n### A linear layer's products in bf16 and in FP8\n\n%d rows, h x h; casts are of x and dY%s, with their "
            "largest magnitudes left by what makes them, and of the weight.\n",
            (int)ROWS,
            limits.hopper_products ? " along and across"
                                   : ", with scales of blocks along and across, else along alone");
    for (const Recipe &recipe : recipes)
        write_table(out, recipe, limits);
}

} // namespace HS_CUDA_NAMESPACE
