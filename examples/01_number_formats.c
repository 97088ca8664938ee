/* SPDX-License-Identifier: MIT
 *
 * Example 1: the number formats of mixed precision, what they can hold and how they round.
 *
 *     build/examples/01_number_formats
 *
 * Everything printed is computed here by kernels/base/dtype.h, the software definition that every backend must match
 * bit for bit.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"

static const HsDtype formats[] = { HS_F32, HS_F16, HS_BF16, HS_E4M3, HS_E5M2 };
enum { FORMATS = sizeof formats / sizeof formats[0] };

/* What is left of a number after one trip through a format. */
static double through(HsDtype dtype, double value)
{
    unsigned char element[8];
    hs_dtype_store(dtype, element, 0, value);
    return hs_dtype_load(dtype, element, 0);
}

static void print_table(void)
{
    printf("1. The formats\n\n");
    printf("  %-5s %5s %8s %8s %12s %12s %12s %10s\n", "name", "bytes", "exponent", "mantissa", "largest",
           "least normal", "least", "epsilon");
    for (int f = 0; f < FORMATS; f++) {
        const HsDtypeInfo *info = hs_dtype_info(formats[f]);
        printf("  %-5s %5zu %8d %8d %12.4g %12.4g %12.4g %10.3g\n", info->name, info->bytes, info->exponent_bits,
               info->mantissa_bits, info->max, info->smallest_normal, info->smallest_subnormal, info->epsilon);
    }
    printf("\n  bf16 has f32's range with 8 significant bits; f16 has 11 bits but ends at 65504.\n\n");
}

static void print_rounding(void)
{
    /* 1 + 1/256 lies exactly between two neighbours in bf16: the even one is 1.  1 + 3/256 ties upwards. */
    static const double values[] = { 3.14159265358979, 0.1, 1 + 1.0 / 256, 1 + 3.0 / 256, 2049, 1e-3 };
    printf("2. Rounding to the nearest, ties to even\n\n  %14s", "value");
    for (int f = 0; f < FORMATS; f++)
        printf(" %12s", hs_dtype_name(formats[f]));
    printf("\n");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        printf("  %14.10g", values[i]);
        for (int f = 0; f < FORMATS; f++)
            printf(" %12.8g", through(formats[f], values[i]));
        printf("\n");
    }
    printf("\n  2049 needs 12 significant bits: f16 is the first that cannot hold it.  (E4M3 ends at 448: NaN.)\n\n");
}

static void print_edges(void)
{
    static const double values[] = { 65504, 65520, 1e6, 1e-4, 3e-6, 1e-8 };
    printf("3. Overflow above, subnormal numbers and zero below\n\n  %14s %12s %12s %12s %12s\n", "value", "f16",
           "bf16", "e4m3", "e4m3 clamped");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        printf("  %14.6g %12.5g %12.5g %12.5g %12.5g\n", values[i], through(HS_F16, values[i]),
               through(HS_BF16, values[i]), through(HS_E4M3, values[i]),
               (double)hs_e4m3_decode(hs_e4m3_encode_saturate((float)values[i])));
    printf("\n  A gradient of 1e-8 is zero in f16.  That is what loss scaling is for (example 3).\n\n");
}

/* Add 0.001 a thousand times to 1, in bf16.  Half of bf16's spacing there is 0.0039: nearest rounding always goes back.
 * Stochastic rounding goes up with the probability that the dropped part asks for, so the sum is right on average. */
static void print_stochastic(void)
{
    const HsRng rng = { .seed = 1 };
    uint16_t nearest = hs_bf16_encode(1.0f), stochastic = nearest;
    for (uint64_t i = 0; i < 1000; i++) {
        nearest = hs_bf16_encode(hs_bf16_decode(nearest) + 0.001f);
        const uint16_t random = (uint16_t)(hs_rng_draw(&rng, i).word[0] >> 16);
        stochastic = hs_bf16_encode_stochastic(hs_bf16_decode(stochastic) + 0.001f, random);
    }
    printf("4. Small updates to a bf16 weight: 1 + 1000 * 0.001 = 2\n\n");
    printf("  nearest rounding     %.4f   every update is lost\n", (double)hs_bf16_decode(nearest));
    printf("  stochastic rounding  %.4f   right on average\n", (double)hs_bf16_decode(stochastic));
    printf("\n  The other remedy is an f32 master copy of each weight, which the optimizer updates.\n");
}

int main(void)
{
    print_table();
    print_rounding();
    print_edges();
    print_stochastic();
    return 0;
}
