/* SPDX-License-Identifier: MIT
 *
 * Example 3: why f16 training scales its loss, and how the scale finds its own size.
 *
 *     build/examples/03_loss_scaling
 *
 * Part 1 sends gradients of a realistic spread of sizes through f16 with and without a scale.  Part 2 runs the scaler's
 * state machine against gradients that overflow now and then, as training would.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"
#include "optim/scaler.h"

enum { GRADIENTS = 20000 };

/* Sizes spread over many powers of two around 2^-22, as activation gradients are in deep networks. */
static double gradient(uint64_t index)
{
    const HsRng rng = { .seed = 3 };
    const HsPhilox draw = hs_rng_draw(&rng, index);
    double pair[2];
    hs_rng_normal(draw.word[0], draw.word[1], pair);
    return copysign(exp2(-22 + 4 * pair[0]), pair[1]);
}

/* Multiply by the scale, store in f16, load, divide: what a gradient goes through. */
static double through_f16(double value, double scale)
{
    uint16_t bits;
    hs_dtype_store(HS_F16, &bits, 0, value * scale);
    return hs_dtype_load(HS_F16, &bits, 0) / scale;
}

static void print_losses(void)
{
    static const double scales[] = { 1, 0x1p8, 0x1p16, 0x1p24, 0x1p32 };
    printf("1. %d gradients of typical size 2^-22 = %.1e through f16 (least number 2^-24, largest 65504)\n\n",
           GRADIENTS, exp2(-22));
    printf("  %10s %10s %10s %18s\n", "scale", "to zero", "to inf", "mean error if kept");
    for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
        int zero = 0, infinite = 0;
        double error = 0;
        for (uint64_t i = 0; i < GRADIENTS; i++) {
            const double value = gradient(i), seen = through_f16(value, scales[s]);
            zero += seen == 0;
            infinite += isinf(seen) != 0;
            if (seen != 0 && !isinf(seen))
                error += fabs(seen - value) / fabs(value);
        }
        const int kept = GRADIENTS - zero - infinite;
        printf("  %10.4g %9.2f%% %9.2f%% %17.3f%%\n", scales[s], 100.0 * zero / GRADIENTS, 100.0 * infinite / GRADIENTS,
               kept > 0 ? 100 * error / kept : 0.0);
    }
    printf(
        "\n  Too small a scale loses small gradients in silence; too large a one overflows, which is seen at once.\n");
    printf("  So the scale may be found by going up until it overflows and then backing off.\n\n");
}

/* The largest gradient of a step; it overflows f16 where the scale exceeds 65504 / largest. */
static double largest_gradient(int step)
{
    return step == 9 ? 8.0 : 1.0; /* one bad batch */
}

static HsStatus print_scaler(void)
{
    static const char *const verdicts[] = { [HS_SCALER_APPLY] = "applied",
                                            [HS_SCALER_SKIP] = "skipped, weights untouched",
                                            [HS_SCALER_HOPELESS] = "hopeless" };
    const HsScalerConfig config = { .kind = HS_SCALER_DYNAMIC,
                                    .init_scale = 0x1p18,
                                    .growth_factor = 2,
                                    .backoff_factor = 0.5,
                                    .growth_interval = 3, /* 2000 in earnest */
                                    .hysteresis = 1,
                                    .min_scale = 1,
                                    .max_scale = 0x1p24 };
    HsStepCounters counters;
    HS_TRY(hs_scaler_init(&config, &counters));
    printf("2. The dynamic scale: halved on overflow, doubled after %d clean steps\n\n", 3);
    printf("  %4s %10s %12s %12s  %s\n", "step", "scale", "gradient", "in f16", "the step is");
    for (int step = 1; step <= 14; step++) {
        const float scale = counters.loss_scale;
        const double seen = largest_gradient(step) * (double)scale;
        const float in_f16 = hs_f16_decode(hs_f16_encode((float)seen));
        const HsScalerVerdict verdict = hs_scaler_update(&config, &counters, !isfinite(in_f16));
        printf("  %4d %10.0f %12.0f %12.0f  %s\n", step, (double)scale, seen, (double)in_f16, verdicts[verdict]);
    }
    printf("\n  A skipped step costs one batch and nothing else: neither the learning-rate schedule nor Adam's\n"
           "  bias correction counts it.\n");
    return HS_OK;
}

int main(void)
{
    print_losses();
    if (print_scaler() != HS_OK) {
        fprintf(stderr, "error: %s\n", hs_error_message());
        return 1;
    }
    return 0;
}
