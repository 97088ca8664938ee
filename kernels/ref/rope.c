/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34), halves layout: the pair (x[i], x[i + R/2]) of every q and k head
 * is rotated by position * w_i and multiplied by the rule's amplitude (kernels/ops/rope_rule.h).  A rotation's
 * transpose is its inverse, so backward rotates by the negative angle.
 */
#include "kernels/ref/ref.h"

#include "kernels/checks/checks.h"

HsStatus hs_ref_rope(HsContext *context, const HsRopeArgs *args)
{
    (void)context;
    const HsHeads *heads = &args->heads;
    const int64_t width = heads->head_dim, turned = hs_rope_rotated(&args->rule, width), half = turned / 2;
    const double amplitude = hs_rope_amplitude(&args->rule);
    const int64_t rotated = heads->heads + heads->kv_heads, per_row = rotated + heads->kv_heads;
    for (int64_t n = 0; n < args->x.shape[0]; n++) {
        const double position =
            (double)(args->position_start + n % heads->sequence_length - hs_start_of(&args->starts, n));
        for (int64_t i = 0; i < half; i++) {
            const double frequency = hs_rope_frequency(&args->rule, width, i);
            const double angle = position * frequency * (args->inverse ? -1.0 : 1.0);
            const double c = amplitude * cos(angle), s = amplitude * sin(angle);
            for (int64_t h = 0; h < rotated; h++) {
                const int64_t first = (n * per_row + h) * width + i, second = first + half;
                /* both are read before either is written: y may be x */
                const double a = hs_ref_load(&args->x, first), b = hs_ref_load(&args->x, second);
                hs_ref_store(&args->y, first, a * c - b * s);
                hs_ref_store(&args->y, second, a * s + b * c);
            }
        }
        for (int64_t c = 0; c < per_row * width; c++)
            if (c >= rotated * width || c % width >= turned)
                hs_ref_store(&args->y, n * per_row * width + c, hs_ref_load(&args->x, n * per_row * width + c));
    }
    hs_ref_find_amax(&args->y);
    return HS_OK;
}
