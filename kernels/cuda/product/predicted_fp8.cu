/* SPDX-License-Identifier: MIT
 *
 * From which width on a linear layer's three products are predicted to be faster in FP8 codes, the casts included.
 *
 * A square layer of width h and T rows, one scale a tensor: products of [T,h] by [h,h], twice, and of [h,T] by [T,h], by the
 * kernels that the model chooses.  Casts of x and dY to codes along and across, and of the weight, are bytes over nine
 * tenths of the bandwidth and a kernel's start each: one kernel that reads 2 bytes and writes 1 + 1, and with scales of
 * their own a second that reads 2 for the largest magnitude.  That all three are cast in each step, the weight too, is one
 * micro-batch a step.
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

const double LAUNCH_CLOCKS = 3000.0, SHARE = 0.9;

double chosen_seconds(const HsMatmulArgs &args, const DeviceLimits &limits)
{
    const MatmulShape shape = matmul_shape(&args, limits);
    const MatmulChoice choice = choose_by_model(shape, limits);
    return product_seconds(shape, limits, kernel_of(shape, choice), choice.slices, hs_cost_matmul(&args).bytes);
}

/* The same product of codes, along k both. */
double seconds_in_codes(const HsMatmulArgs &given, bool gradient, const DeviceLimits &limits)
{
    const int64_t m = given.c.shape[0], n = given.c.shape[1], k = given.a.shape[given.transpose_a ? 0 : 1];
    const HsOperandFormat format = gradient ? HS_OPERAND_E5M2 : HS_OPERAND_E4M3;
    const HsCodes a = { format, HS_SCALE_TENSOR, m, k, NULL, NULL, NULL };
    const HsCodes b = { HS_OPERAND_E4M3, HS_SCALE_TENSOR, n, k, NULL, NULL, NULL };
    HsMatmulArgs args = given;
    args.a = hs_tensor_2d(NULL, HS_BF16, m, k);
    args.b = hs_tensor_2d(NULL, HS_BF16, n, k);
    args.transpose_a = false;
    args.transpose_b = true;
    args.a_codes = &a;
    args.b_codes = &b;
    args.policy = HsProductPolicy{ a.format, b.format, HS_SCALE_TENSOR };
    return chosen_seconds(args, limits);
}

struct LayerSeconds {
    double bf16, products, casts, casts_kept; /* kept: delayed scaling, which reads no largest magnitude */
};

LayerSeconds layer_seconds(int64_t width, const DeviceLimits &limits)
{
    const HsTrainingLayer layer = { "square", "square", ROWS, width, width, false };
    const HsProductPolicy as_is = HS_POLICY_AS_IS;
    LayerSeconds seconds = {};
    for (int pass = 0; pass < HS_TRAINING_PASSES; pass++) {
        const HsMatmulArgs args = hs_training_product(&layer, (HsTrainingPass)pass, HS_BF16, as_is);
        seconds.bf16 += chosen_seconds(args, limits);
        seconds.products += seconds_in_codes(args, pass != HS_PASS_FORWARD, limits);
    }
    const double elements = 2.0 * ROWS * (double)width + (double)width * (double)width;
    const double launches = 3.0 * LAUNCH_CLOCKS / limits.clock_hz;
    seconds.casts_kept = launches + 4.0 * elements / (SHARE * limits.bytes_per_second);
    seconds.casts = 2.0 * launches + 6.0 * elements / (SHARE * limits.bytes_per_second);
    return seconds;
}

bool wins(int64_t width, bool kept, const DeviceLimits &limits)
{
    const LayerSeconds seconds = layer_seconds(width, limits);
    return seconds.products + (kept ? seconds.casts_kept : seconds.casts) < seconds.bf16;
}

/* The width from which on FP8 always wins; more than MOST: it does not. */
int64_t least_width(bool kept, const DeviceLimits &limits)
{
    int64_t width = MOST + STEP;
    while (width > LEAST && wins(width - STEP, kept, limits))
        width -= STEP;
    return width;
}

void write_least_width(FILE *out, const char *what, bool kept, const DeviceLimits &limits)
{
    const int64_t width = least_width(kept, limits);
    if (width > MOST)
        fprintf(out, "; %s, not up to h = %d", what, (int)MOST);
    else
        fprintf(out, "; %s, from h = %lld on", what, (long long)width);
}

} // namespace

void write_fp8(FILE *out, const DeviceLimits &limits)
{
    if (!has_fp8_products(limits))
        return;
    fprintf(out,
            "\n### A linear layer's products in bf16 and in FP8\n\n%d rows, h x h, forward and both gradients. FP8 is "
            "predicted to win with its casts",
            (int)ROWS);
    write_least_width(out, "with scales of each tensor's own", false, limits);
    write_least_width(out, "with delayed ones", true, limits);
    fprintf(out,
            " (in steps of %d).\n\n| h | bf16 | FP8 products | casts | casts, delayed | bf16 / FP8 | delayed |\n"
            "|---|---|---|---|---|---|---|\n",
            (int)STEP);
    for (const int width : { 512, 768, 1024, 1536, 2048, 4096, 8192 }) {
        const LayerSeconds seconds = layer_seconds(width, limits);
        fprintf(out, "| %d | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f |\n", width, 1e6 * seconds.bf16,
                1e6 * seconds.products, 1e6 * seconds.casts, 1e6 * seconds.casts_kept,
                seconds.bf16 / (seconds.products + seconds.casts),
                seconds.bf16 / (seconds.products + seconds.casts_kept));
    }
}

} // namespace HS_CUDA_NAMESPACE
