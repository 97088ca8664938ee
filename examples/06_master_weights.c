/* SPDX-License-Identifier: MIT
 *
 * Example 6: why 16-bit weights keep a 32-bit master.
 *
 *     build/examples/06_master_weights
 *
 * bf16 has 8 significant bits: next to 1.0 the nearest numbers are 2^-7 above and 2^-8 below.  An update of less than
 * half of that is rounded away, every time, however many there are.  Part 1 adds a small update a thousand times.
 * Part 2 descends on a quadratic in the three ways a trainer can keep its weights:
 *     w in bf16, rounded to nearest        updates below half a unit in the last place are lost
 *     w in bf16, rounded stochastically    up with probability (distance below) / unit: right on average
 *     master in f32, w its bf16 copy       small updates gather in the master until the copy moves
 */
#include <math.h>
#include <stdio.h>

#include "kernels/base/dtype.h"
#include "kernels/base/rng.h"

enum { STEPS = 1000, WEIGHTS = 256 };

static double to_bf16(double value)
{
    uint16_t bits;
    hs_dtype_store(HS_BF16, &bits, 0, value);
    return hs_dtype_load(HS_BF16, &bits, 0);
}

/* The 16 bits that bf16 drops, plus 16 random ones, carry into what is kept as often as they should. */
static double to_bf16_stochastically(double value, uint64_t draw)
{
    const HsRng rng = { .seed = 6 };
    const union {
        float number;
        uint32_t bits;
    } exact = { .number = (float)value };
    const uint32_t random = hs_rng_draw(&rng, draw).word[0] & 0xffffu;
    const union {
        uint32_t bits;
        float number;
    } rounded = { .bits = (exact.bits + random) & 0xffff0000u };
    return (double)rounded.number;
}

/* --- 1 --- */

static void add_small_updates(void)
{
    const double update = 1e-4;
    double nearest = 1, stochastic = 1, master = 1;
    for (int step = 0; step < STEPS; step++) {
        nearest = to_bf16(nearest + update);
        stochastic = to_bf16_stochastically(stochastic + update, (uint64_t)step);
        master += update;
    }
    printf("1. 1.0 + %d updates of %g (half a unit of bf16 there is %g)\n\n", STEPS, update, 0x1p-8);
    printf("  exact                          %.4f\n", 1 + STEPS * update);
    printf("  bf16, nearest                  %.4f\n", nearest);
    printf("  bf16, stochastic               %.4f\n", stochastic);
    printf("  f32 master, copied to bf16     %.4f\n\n", to_bf16(master));
}

/* --- 2 --- */

typedef enum Keeping { NEAREST, STOCHASTIC, MASTER } Keeping;

/* A separate target for each weight, of size 1. */
static double target_of(int i)
{
    const HsRng rng = { .seed = 7 };
    double pair[2];
    const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
    hs_rng_normal(draw.word[0], draw.word[1], pair);
    return pair[0];
}

/* Mean of (w - target)^2 / 2 after gradient descent with a rate of 0.01; updates with no effect are counted. */
static double descend(Keeping keeping, double *lost_share)
{
    double kept[WEIGHTS], loss = 0;
    long lost = 0;
    for (int i = 0; i < WEIGHTS; i++)
        kept[i] = to_bf16(target_of(i) + 1); /* start one away */
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < WEIGHTS; i++) {
            const double weight = to_bf16(kept[i]), gradient = weight - target_of(i);
            const double moved = kept[i] - 0.01 * gradient;
            const uint64_t draw = (uint64_t)(step * WEIGHTS + i);
            const double next = keeping == NEAREST      ? to_bf16(moved)
                                : keeping == STOCHASTIC ? to_bf16_stochastically(moved, draw)
                                                        : (double)(float)moved;
            lost += next == kept[i] && gradient != 0;
            kept[i] = next;
        }
    for (int i = 0; i < WEIGHTS; i++)
        loss += 0.5 * (kept[i] - target_of(i)) * (kept[i] - target_of(i)) / WEIGHTS;
    *lost_share = (double)lost / STEPS / WEIGHTS;
    return loss;
}

int main(void)
{
    static const char *const names[] = { "bf16, nearest", "bf16, stochastic", "f32 master" };
    add_small_updates();
    printf(
        "2. gradient descent on (w - target)^2 / 2, %d weights, %d steps with a rate of 0.01, from a loss of 0.5\n\n",
        WEIGHTS, STEPS);
    printf("  %-20s %12s %24s\n", "weights kept in", "final loss", "updates without effect");
    for (Keeping keeping = NEAREST; keeping <= MASTER; keeping++) {
        double lost;
        const double loss = descend(keeping, &lost);
        printf("  %-20s %12.2e %23.1f%%\n", names[keeping], loss, 100 * lost);
    }
    printf("\n  Nearest rounding stops where the update falls below half a unit: lr * gradient < 2^-9 |w|.  A master "
           "costs "
           "4 bytes\n  a parameter; stochastic rounding costs none, and leaves the noise of the last bit.\n");
    return 0;
}
