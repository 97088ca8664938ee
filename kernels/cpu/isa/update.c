/* SPDX-License-Identifier: MIT
 *
 * The update rules: one pass over memory each.  AdamW reads gradient, moments and master and writes moments, master,
 * weight and the cleared gradient: 28 to 34 bytes a parameter, nothing twice.  What continual learning adds is fused:
 * importance and anchor are two more streams to read (8 bytes), the path integral one to update (8 bytes).  Each chunk
 * function is compiled with and without it, so that plain training pays nothing and keeps its bits.  What follows on
 * the updated parameter, packing for the next step's products above all, is done on each piece at once.
 */
#include "kernels/cpu/isa/update_tail.h"

#define finish_piece HS_ISA_NAME(hs_update_finish_piece)

/* strength * importance; only called where there is an anchor. */
HS_SIMD HsF32x16 pull(const HsProtection *protection, int64_t i, int64_t left)
{
    const HsF32x16 strength = hs_simd_splat(protection->strength);
    return hs_tensor_present(&protection->importance)
               ? strength * hs_simd_load_part(HS_F32, protection->importance.data, i, left)
               : strength;
}

/* Gradient step: g + strength importance (p - anchor). */
HS_SIMD HsF32x16 with_penalty(const HsProtection *protection, HsF32x16 g, HsF32x16 p, int64_t i, int64_t left)
{
    if (protection->proximal || !hs_tensor_present(&protection->anchor))
        return g;
    return g + pull(protection, i, left) * (p - hs_simd_load_part(HS_F32, protection->anchor.data, i, left));
}

/* Proximal step: p - k / (1 + k) (p - anchor), k = rate strength importance. */
HS_SIMD HsF32x16 after_proximal(const HsProtection *protection, HsF32x16 p, float rate, int64_t i, int64_t left)
{
    if (!protection->proximal || !hs_tensor_present(&protection->anchor))
        return p;
    /* below infinity, whose quotient would be NaN; the minimum keeps a NaN on its right */
    const HsF32x16 k = hs_simd_min(hs_simd_splat(0x1p126f), pull(protection, i, left) * rate);
    return p - k / (k + 1.0f) * (p - hs_simd_load_part(HS_F32, protection->anchor.data, i, left));
}

/* path -= unscaled gradient * (what is stored now - what was) */
HS_SIMD void add_to_path(const HsProtection *protection, HsF32x16 gradient, HsF32x16 moved, int64_t i, int64_t left)
{
    const HsF32x16 path = hs_simd_load_part(HS_F32, protection->path.data, i, left);
    hs_simd_store_part(HS_F32, protection->path.data, i, path - gradient * moved, left);
}

/* p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps)
 * `protection` is a constant NULL in the plain copies. */
HS_SIMD void adamw_chunk(const HsAdamWArgs *args, const HsProtection *protection, HsDtype gradient, HsDtype copy,
                         HsRowBlock range)
{
    const HsStepScalars *scalars = args->scalars;
    const float rate = scalars->learning_rate * args->learning_rate_scale;
    const float keep = 1.0f - rate * args->weight_decay;
    const float step = rate / scalars->bias_correction1, correction = 1.0f / scalars->bias_correction2;
    const float beta1 = args->beta1, beta2 = args->beta2, multiplier = scalars->gradient_multiplier;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 raw = hs_simd_load_part(gradient, args->grad.data, i, left);
        const HsF32x16 before = hs_cpu_load_parameter(&args->master, &args->weight, copy, i, left);
        HsF32x16 g = raw * multiplier;
        if (protection)
            g = with_penalty(protection, g, before, i, left);
        HsF32x16 m = hs_simd_load_part(HS_F32, args->m.data, i, left) * beta1 + g * (1.0f - beta1);
        HsF32x16 v = hs_simd_load_part(HS_F32, args->v.data, i, left) * beta2 + g * g * (1.0f - beta2);
        HsF32x16 p = before * keep;
        p -= m * step / (hs_simd_sqrt(v * correction) + args->epsilon);
        if (protection)
            p = after_proximal(protection, p, rate, i, left);
        hs_simd_store_part(HS_F32, args->m.data, i, m, left);
        hs_simd_store_part(HS_F32, args->v.data, i, v, left);
        hs_simd_store_part(gradient, args->grad.data, i, hs_simd_splat(0.0f), left);
        hs_cpu_store_parameter(&args->master, &args->weight, copy, &args->rng, word, i, p, left);
        if (protection && hs_tensor_present(&protection->path)) {
            const HsF32x16 stored = hs_cpu_load_parameter(&args->master, &args->weight, copy, i, left);
            add_to_path(protection, raw * scalars->unscale, stored - before, i, left);
        }
    }
}

static bool is_protected(const HsProtection *protection)
{
    return hs_tensor_present(&protection->anchor) || hs_tensor_present(&protection->path);
}

/* What the walk over a parameter's pieces needs to know of a rule's arguments. */
typedef struct Parameter {
    const HsTensor *master, *weight;
    const HsUpdateTail *tail;
    bool skipped;
} Parameter;

/* The rule on every piece, and what follows it. */
static void update_pieces(const HsContext *context, const Parameter *parameter,
                          void (*rule)(const void *arguments, HsRowBlock range), const void *arguments)
{
    const HsPieces cut = hs_update_pieces(parameter->weight, parameter->tail);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, cut.count))
    for (int64_t index = 0; index < cut.count; index++) {
        const HsPiece piece = hs_update_piece(&cut, index);
        for (int64_t r = 0; r < hs_piece_ranges(&cut, &piece); r++)
            rule(arguments, hs_piece_range(&cut, &piece, r));
        finish_piece(parameter->tail, parameter->master, parameter->weight, &cut, &piece, parameter->skipped);
    }
}

static void adamw_range(const void *arguments, HsRowBlock range)
{
    const HsAdamWArgs *args = arguments;
    const bool guarded = is_protected(&args->protection);
    const HsDtype gradient = args->grad.dtype, copy = args->weight.dtype;
    const HsProtection *protection = &args->protection;
    if (args->scalars->skip)
        hs_cpu_clear(&args->grad, range);
    else if (gradient == HS_F32 && copy == HS_BF16 && guarded)
        adamw_chunk(args, protection, HS_F32, HS_BF16, range);
    else if (gradient == HS_F32 && copy == HS_BF16)
        adamw_chunk(args, NULL, HS_F32, HS_BF16, range);
    else if (gradient == HS_F32 && copy == HS_F32 && guarded)
        adamw_chunk(args, protection, HS_F32, HS_F32, range);
    else if (gradient == HS_F32 && copy == HS_F32)
        adamw_chunk(args, NULL, HS_F32, HS_F32, range);
    else if (guarded)
        adamw_chunk(args, protection, gradient, copy, range);
    else
        adamw_chunk(args, NULL, gradient, copy, range);
}

HsStatus HS_ISA_NAME(hs_cpu_adamw)(HsContext *context, const HsAdamWArgs *args)
{
    const Parameter parameter = { &args->master, &args->weight, &args->tail, args->scalars->skip };
    update_pieces(context, &parameter, adamw_range, args);
    return HS_OK;
}

/* d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
HS_SIMD void sgd_chunk(const HsSgdArgs *args, const HsProtection *protection, HsRowBlock range)
{
    const float rate = args->scalars->learning_rate * args->learning_rate_scale;
    const float multiplier = args->scalars->gradient_multiplier;
    const HsDtype copy = args->weight.dtype;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 before = hs_cpu_load_parameter(&args->master, &args->weight, copy, i, left);
        const HsF32x16 raw = hs_simd_load_part(args->grad.dtype, args->grad.data, i, left);
        /* the penalty last: at the anchor the sum has the plain copy's bits, whichever product the compiler fused */
        HsF32x16 descent = raw * multiplier;
        descent += before * args->weight_decay;
        if (protection)
            descent = with_penalty(protection, descent, before, i, left);
        HsF32x16 direction = descent;
        if (hs_tensor_present(&args->buffer)) {
            HsF32x16 buffer = hs_simd_load_part(HS_F32, args->buffer.data, i, left) * args->momentum + descent;
            hs_simd_store_part(HS_F32, args->buffer.data, i, buffer, left);
            direction = args->nesterov ? descent + buffer * args->momentum : buffer;
        }
        HsF32x16 p = before - direction * rate;
        if (protection)
            p = after_proximal(protection, p, rate, i, left);
        hs_simd_store_part(args->grad.dtype, args->grad.data, i, hs_simd_splat(0.0f), left);
        hs_cpu_store_parameter(&args->master, &args->weight, copy, &args->rng, word, i, p, left);
        if (protection && hs_tensor_present(&protection->path)) {
            const HsF32x16 stored = hs_cpu_load_parameter(&args->master, &args->weight, copy, i, left);
            add_to_path(protection, raw * args->scalars->unscale, stored - before, i, left);
        }
    }
}

static void sgd_range(const void *arguments, HsRowBlock range)
{
    const HsSgdArgs *args = arguments;
    const bool guarded = is_protected(&args->protection);
    if (args->scalars->skip)
        hs_cpu_clear(&args->grad, range);
    else if (guarded)
        sgd_chunk(args, &args->protection, range);
    else
        sgd_chunk(args, NULL, range);
}

HsStatus HS_ISA_NAME(hs_cpu_sgd)(HsContext *context, const HsSgdArgs *args)
{
    const Parameter parameter = { &args->master, &args->weight, &args->tail, args->scalars->skip };
    update_pieces(context, &parameter, sgd_range, args);
    return HS_OK;
}
