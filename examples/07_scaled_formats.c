/* SPDX-License-Identifier: MIT
 *
 * Example 7: numbers below 16 bits, and the scales without which they hold nothing.
 *
 *     build/examples/07_scaled_formats
 *
 * Part 1 shows the formats.  An 8-bit format spends its bits on range (E5M2) or on precision (E4M3); four bits (E2M1)
 * have eight magnitudes.  What is stored is code * scale, and the question is what a scale is of: part 2 casts a row with
 * one outlier by one scale for all, for blocks of 128, of 32 (MXFP8) and of 16 (NVFP4).  Part 3 scales by the past:
 * delayed scaling takes this step's scale from the largest magnitudes of steps before, and a jump saturates.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/base/rng.h"
#include "kernels/ops/code_rule.h"
#include "runtime/engine/cast_loss.h"

enum { COUNT = 4096, STEPS = 8, HISTORY = 4 };

/* --- 1 --- */

static void show_formats(void)
{
    static const struct {
        const char *name;
        HsDtype format;
        const char *use;
    } formats[] = { { "E4M3", HS_E4M3, "weights, activations" },
                    { "E5M2", HS_E5M2, "gradients" },
                    { "E2M1", HS_E2M1, "everything, in blocks of 16" } };
    printf("1. formats\n\n  %-6s %10s %12s %22s   %s\n", "", "largest", "smallest", "numbers in a binade", "used for");
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        printf("  %-6s %10g %12g %22d   %s\n", formats[i].name, (double)hs_code_largest(formats[i].format),
               (double)hs_code_decode(formats[i].format, 1), 1 << hs_code_mantissa(formats[i].format), formats[i].use);
    printf("\n  all of E2M1:");
    for (uint8_t code = 0; code < 8; code++)
        printf(" %g", (double)hs_code_decode(HS_E2M1, code));
    printf("\n\n");
}

/* --- 2 --- */

static float normal(uint64_t index)
{
    const HsRng rng = { .seed = 7 };
    double pair[2];
    const HsPhilox draw = hs_rng_draw(&rng, index);
    hs_rng_normal(draw.word[0], draw.word[1], pair);
    return (float)pair[0];
}

/* Of the others: the outlier itself is the largest magnitude, which every rule keeps. */
static void cast_beside_outlier(const HsCastRule *rule, float outlier, double *error, double *zeroed)
{
    float values[COUNT];
    double others = 0;
    HsCastLoss loss = { 0 };
    for (int i = 0; i < COUNT; i++) {
        values[i] = normal((uint64_t)i);
        others += i == COUNT / 2 ? 0 : (double)values[i] * (double)values[i];
    }
    values[COUNT / 2] = outlier;
    hs_cast_loss_add(rule, values, 1, COUNT, outlier, &loss);
    *error = sqrt(loss.error_squares / others);
    *zeroed = (double)loss.zeroed / COUNT;
}

static void show_outlier(void)
{
    static const struct {
        const char *name;
        HsCastRule rule;
    } rules[] = { { "E4M3, one scale", { HS_E4M3, HS_SCALE_TENSOR, false } },
                  { "E4M3, blocks of 128", { HS_E4M3, HS_SCALE_BLOCK, false } },
                  { "E4M3, blocks of 32", { HS_E4M3, HS_SCALE_MX, false } },
                  { "E2M1, blocks of 16", { HS_E2M1, HS_SCALE_NV, false } } };
    static const float outliers[] = { 0x1p4f, 0x1p10f, 0x1p14f, 0x1p18f };
    enum { OUTLIERS = sizeof outliers / sizeof *outliers };
    printf("2. %d normal numbers and one outlier: error of the others, and those that become 0\n\n  %-20s", COUNT - 1,
           "");
    for (int i = 0; i < OUTLIERS; i++)
        printf("   outlier 2^%-8d", ilogbf(outliers[i]));
    printf("\n");
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
        printf("  %-20s", rules[r].name);
        for (int i = 0; i < OUTLIERS; i++) {
            double error, zeroed;
            cast_beside_outlier(&rules[r].rule, outliers[i], &error, &zeroed);
            printf(" %8.2f%% %8.2f%%", 100 * error, 100 * zeroed);
        }
        printf("\n");
    }
    printf(
        "\n  One scale serves the outlier; in blocks only its neighbours share its fate.  E4M3 has 18 binades of its\n"
        "  own, so that it takes a large one; E2M1 has 4.\n\n");
}

/* --- 3 --- */

static void show_delay(void)
{
    static const float amax[STEPS] = { 1, 1.1f, 0.9f, 1, 8, 8, 8, 1 };
    float ring[HISTORY] = { 0 };
    HsScaling scaling = { .kept = 448, .largest = 448 };
    printf("3. delayed scaling, a history of %d steps: 448 is E4M3's largest number\n\n"
           "  %6s %12s %12s %24s\n",
           HISTORY, "step", "largest", "scale", "largest becomes");
    for (int step = 0; step < STEPS; step++) {
        const float cast = hs_code_decode(HS_E4M3, hs_code_encode(HS_E4M3, amax[step] * scaling.kept));
        const float back = cast / scaling.kept;
        printf("  %6d %12g %12g %24.3f%s\n", step + 1, (double)amax[step], (double)scaling.kept, (double)back,
               amax[step] * scaling.kept > 464 ? "   saturated" : "");
        hs_code_roll_in(&scaling, NULL, amax[step], ring, HISTORY);
        float most = 0;
        for (int i = 0; i < HISTORY; i++)
            most = fmaxf(most, ring[i]);
        hs_code_keep(&scaling, most, 1);
    }
    printf(
        "\n  The step of the jump pays: its largest value, 8, is cut to 1.1.  A step later the scale has followed;\n"
        "  the way down takes as long as the history.  Scaling by the tensor's own largest magnitude never saturates,\n"
        "  and reads every tensor twice.\n");
}

int main(void)
{
    show_formats();
    show_outlier();
    show_delay();
    return 0;
}
