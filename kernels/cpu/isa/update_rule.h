/* SPDX-License-Identifier: MIT
 *
 * What the update rules share: the penalty, the proximal step, the path, the store of a parameter, and the way through
 * its pieces.
 */
#ifndef HS_KERNELS_CPU_ISA_UPDATE_RULE_H
#define HS_KERNELS_CPU_ISA_UPDATE_RULE_H

#include "kernels/cpu/isa/update_epilogue.h"
#include "kernels/ops/update_rule.h"

/* hs_simd_fma, of scalars. */
static inline float hs_cpu_fma(float a, float b, float c)
{
#if defined(__FMA__) || defined(__FP_FAST_FMAF)
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* strength * importance; only called where there is an anchor. */
HS_SIMD HsF32x16 hs_update_pull(const HsProtection *protection, int64_t i, int64_t left)
{
    const HsF32x16 strength = hs_simd_splat(protection->strength);
    return hs_tensor_present(&protection->importance)
               ? strength * hs_simd_load_part(HS_F32, protection->importance.data, i, left)
               : strength;
}

/* Gradient step: g + strength importance (p - anchor) + strength pull. */
HS_SIMD HsF32x16 hs_update_with_penalty(const HsProtection *protection, HsF32x16 g, HsF32x16 p, int64_t i, int64_t left)
{
    if (hs_tensor_present(&protection->pull))
        g = HS_RULE_PULL(hs_simd_fma, g, protection->strength,
                         hs_simd_load_part(HS_F32, protection->pull.data, i, left));
    if (protection->proximal || !hs_tensor_present(&protection->anchor))
        return g;
    return HS_RULE_PENALTY(hs_simd_fma_each, g, hs_update_pull(protection, i, left), p,
                           hs_simd_load_part(HS_F32, protection->anchor.data, i, left));
}

/* Proximal step: p - k / (1 + k) (p - anchor), k = rate strength importance. */
HS_SIMD HsF32x16 hs_update_after_proximal(const HsProtection *protection, HsF32x16 p, float rate, int64_t i,
                                          int64_t left)
{
    if (!protection->proximal || !hs_tensor_present(&protection->anchor))
        return p;
    /* below infinity, where the quotient would be NaN; the minimum keeps a NaN on its right */
    const HsF32x16 k = hs_simd_min(hs_simd_splat(0x1p126f), hs_update_pull(protection, i, left) * rate);
    return HS_RULE_PROXIMAL(hs_simd_fma_each, p, k, hs_simd_load_part(HS_F32, protection->anchor.data, i, left));
}

/* path -= unscaled gradient * (what is stored now - what was) */
HS_SIMD void hs_update_add_to_path(const HsProtection *protection, HsF32x16 gradient, HsF32x16 stored, HsF32x16 before,
                                   int64_t i, int64_t left)
{
    const HsF32x16 path = hs_simd_load_part(HS_F32, protection->path.data, i, left);
    hs_simd_store_part(HS_F32, protection->path.data, i, HS_RULE_PATH(hs_simd_fma_each, path, gradient, stored, before),
                       left);
}

HS_SIMD HsF32x16 hs_update_load_parameter(const HsUpdateArgs *update, HsDtype copy, int64_t i, int64_t left)
{
    return hs_cpu_load_parameter(&update->master, &update->weight, copy, i, left);
}

/* What every rule ends with: the proximal step, the cleared gradient, the store, the path.  `raw` is the gradient as it
 * was stored, `before` the parameter; `protection` is a constant NULL in the plain copies. */
HS_SIMD void hs_update_finish(const HsUpdateArgs *update, const HsProtection *protection, HsDtype gradient,
                              HsDtype copy, uint32_t word[64], int64_t i, int64_t left, float rate, HsF32x16 raw,
                              HsF32x16 before, HsF32x16 p)
{
    if (protection)
        p = hs_update_after_proximal(protection, p, rate, i, left);
    hs_simd_store_part(gradient, update->grad.data, i, hs_simd_splat(0.0f), left);
    hs_cpu_store_parameter(&update->master, &update->weight, copy, &update->rng, word, i, p, left);
    if (protection && hs_tensor_present(&protection->path)) {
        const HsF32x16 stored = hs_update_load_parameter(update, copy, i, left);
        hs_update_add_to_path(protection, raw * update->scalars->unscale, stored, before, i, left);
    }
}

static inline bool hs_update_is_protected(const HsProtection *protection)
{
    return hs_tensor_present(&protection->anchor) || hs_tensor_present(&protection->path) ||
           hs_tensor_present(&protection->pull);
}

/* The rule on every piece, and what follows it.  Pieces begin at multiples of `grain` elements. */
static inline void hs_update_through_pieces(const HsContext *context, const HsUpdateArgs *update, int64_t grain,
                                            void (*rule)(const void *arguments, HsRowBlock range),
                                            const void *arguments)
{
    const HsPieces cut = hs_update_pieces(&update->weight, &update->epilogue, grain);
    const bool skipped = update->scalars->skip;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, cut.count))
    for (int64_t index = 0; index < cut.count; index++) {
        const HsUpdatePiece piece = hs_update_piece(&cut, index);
        for (int64_t r = 0; r < hs_piece_ranges(&cut, &piece); r++) {
            const HsRowBlock range = hs_piece_range(&cut, &piece, r);
            if (skipped)
                hs_cpu_clear(&update->grad, range);
            else
                rule(arguments, range);
        }
        HS_ISA_NAME(hs_update_finish_piece)(update, &cut, &piece);
    }
}

#endif
