/* SPDX-License-Identifier: MIT
 *
 * AdamW with moments in 8 bits: one pass over memory.  It reads gradient, codes and master and writes codes, master,
 * weight and the cleared gradient: 22 bytes a parameter and 1/32 for absmax, where adamw moves 34.
 *
 * A block of threads takes TILES tiles of 1024 elements, a quad a thread, so that two neighbouring warps have a block of
 * codes: its absmax is the larger of theirs.  Both maps stand in shared memory, made once a block of threads; a code is
 * a guess by a line through its decade, decided by one midpoint (kernels/ops/dynamic_map.h).
 */
#include <float.h>

#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/update/update_rule.cuh"
#include "kernels/ops/dynamic_map.h"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { TILES = 4, WARPS = QUAD_THREADS / WARP_SIZE, BLOCK_WARPS = HS_DYNAMIC_BLOCK / (QUAD * WARP_SIZE) };
static_assert(BLOCK_WARPS == 2, "two warps have a block of codes");

/* Levels, and the largest magnitudes of each warp's elements. */
struct Shared {
    float with_sign[HS_DYNAMIC_SIGNED_TOP + 1], without_sign[HS_DYNAMIC_UNSIGNED_TOP + 1];
    float m_largest[WARPS], v_largest[WARPS];
};

struct AdamW8bit {
    float beta1, beta2, epsilon, weight_decay, learning_rate_scale;
    uint8_t *m, *v;
    float *m_absmax, *v_absmax;
};

HS_DEVICE float decode_signed(const float *level, int code)
{
    const float magnitude = level[abs(code - HS_DYNAMIC_ZERO)];
    return code < HS_DYNAMIC_ZERO ? -magnitude : magnitude;
}

/* The level of the value nearest to x in [0, 1]; a NaN has level 0. */
template <bool is_signed> HS_DEVICE int nearest_level(const float *level, float x)
{
    HsDynamicLine line = hs_dynamic_first_line(is_signed), next = line;
#pragma unroll
    for (int decade = 1; decade < HS_DYNAMIC_DECADES; decade++) {
        const float begin = next.end;
        next = hs_dynamic_next_line(next);
        if (x >= begin)
            line = next;
    }
    const float place = x * line.slope + hs_dynamic_offset(is_signed, line);
    const int guess = place > 0.0f ? min((int)place, hs_dynamic_top(is_signed) - 1) : 0;
    const float midpoint = 0.5f * (level[guess] + level[guess + 1]);
    const bool tie = x == midpoint && hs_dynamic_tie_goes_up(is_signed, guess);
    return guess + (x > midpoint || tie);
}

/* What one thread keeps of its quad between the two halves of a tile. */
struct Moments {
    float m[QUAD], v[QUAD];
};

/* As AdamW of update.cu, in f32 between decoding and encoding. */
template <bool whole, bool guarded, typename Gradient, typename Parameter>
HS_DEVICE Moments update_quad(const AdamW8bit &rule, const HsStepScalars *scalars_pointer, Gradient *grad,
                              const Parameter &parameter, const Protection &protection, const Shared &shared, int64_t i,
                              int left)
{
    const HsStepScalars scalars = *scalars_pointer;
    Moments moments = {};
    const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
    const auto before_quad = load_quad<whole>(parameter.kept(), i, left);
    const Pack<uint8_t, QUAD> m_quad = load_quad<whole>(rule.m, i, left), v_quad = load_quad<whole>(rule.v, i, left);
    const float m_absmax = rule.m_absmax[i / HS_DYNAMIC_BLOCK], v_absmax = rule.v_absmax[i / HS_DYNAMIC_BLOCK];
    Guard guard;
    if constexpr (guarded)
        guard = load_guard<whole>(protection, i, left);

    clear_quad<whole>(grad, i, left);
    if (scalars.skip)
        return moments;
    const float rate = scalars.learning_rate * rule.learning_rate_scale;
    const float keep = HS_RULE_KEEP(fmaf, rate, rule.weight_decay);
    const float step = rate / scalars.bias_correction1, correction = 1.0f / scalars.bias_correction2;
    float raw[QUAD], before[QUAD], p[QUAD], stored[QUAD];
    widen(raw_quad, raw);
    widen(before_quad, before);
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        float g = raw[j] * scalars.gradient_multiplier;
        if constexpr (guarded)
            g = with_penalty(protection, guard, j, g, before[j]);
        const float m = decode_signed(shared.with_sign, m_quad.value[j]) * m_absmax;
        const float v = shared.without_sign[v_quad.value[j]] * v_absmax;
        const float m_new = HS_RULE_ADAMW_M(fmaf, m, g, rule.beta1, 1.0f - rule.beta1);
        const float v_new = HS_RULE_ADAMW_V(fmaf, v, g, rule.beta2, 1.0f - rule.beta2);
        moments.m[j] = j < left ? m_new : 0.0f;
        moments.v[j] = j < left ? v_new : 0.0f;
        p[j] = HS_RULE_ADAMW_P(fmaf, sqrtf, before[j], keep, m_new, v_new, step, correction, rule.epsilon);
        if constexpr (guarded)
            p[j] = after_proximal(protection, guard, j, p[j], rate);
    }
    parameter.template store<whole>(i, left, p, stored);
    if constexpr (guarded)
        store_path<whole>(protection, guard, i, left, raw, scalars.unscale, stored, before);
    return moments;
}

/* Codes of a quad, and absmax by the first thread of a block of codes. */
template <bool whole>
HS_DEVICE void encode_quad(const AdamW8bit &rule, const Shared &shared, const Moments &moments, int64_t i, int left)
{
    const int warp = (int)threadIdx.x / WARP_SIZE, first = warp / BLOCK_WARPS * BLOCK_WARPS;
    const float m_absmax = fmaxf(shared.m_largest[first], shared.m_largest[first + 1]);
    const float v_absmax = fmaxf(shared.v_largest[first], shared.v_largest[first + 1]);
    if (i % HS_DYNAMIC_BLOCK == 0) {
        rule.m_absmax[i / HS_DYNAMIC_BLOCK] = m_absmax;
        rule.v_absmax[i / HS_DYNAMIC_BLOCK] = v_absmax;
    }
    /* below FLT_MIN all are nothing: the reciprocal of a smaller one could be infinite */
    const float m_factor = m_absmax < FLT_MIN ? 0.0f : 1.0f / m_absmax;
    const float v_factor = v_absmax < FLT_MIN ? 0.0f : 1.0f / v_absmax;
    Pack<uint8_t, QUAD> m_quad, v_quad;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        const int level = nearest_level<true>(shared.with_sign, fabsf(moments.m[j]) * m_factor);
        m_quad.value[j] = (uint8_t)hs_dynamic_signed_code(moments.m[j] < 0.0f, level);
        v_quad.value[j] = (uint8_t)nearest_level<false>(shared.without_sign, moments.v[j] * v_factor);
    }
    store_quad<whole>(rule.m, i, left, m_quad);
    store_quad<whole>(rule.v, i, left, v_quad);
}

HS_DEVICE void make_maps(Shared *shared)
{
    for (int level = (int)threadIdx.x; level <= HS_DYNAMIC_SIGNED_TOP; level += QUAD_THREADS)
        shared->with_sign[level] = hs_dynamic_level(true, level);
    for (int level = (int)threadIdx.x; level <= HS_DYNAMIC_UNSIGNED_TOP; level += QUAD_THREADS)
        shared->without_sign[level] = hs_dynamic_level(false, level);
}

/* aligned: all streams allow whole quads.  Barriers: maps made; magnitudes there; magnitudes read, and the old absmax
 * by all before it is written. */
template <bool guarded, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(QUAD_THREADS)
    adamw8bit_kernel(const AdamW8bit rule, const HsStepScalars *scalars, Gradient *grad, const Parameter parameter,
                     const Protection protection, int64_t count, bool aligned)
{
    HS_SHARED(Shared, shared, 1);
    begin_after_kernel_before();
    const int warp = (int)threadIdx.x / WARP_SIZE;
    const bool skip = scalars->skip;
    make_maps(shared);
    __syncthreads();
    for (int tile = 0; tile < TILES; tile++) {
        const int64_t begin = ((int64_t)blockIdx.x * TILES + tile) * QUAD_BLOCK_ELEMENTS;
        if (begin >= count)
            return;
        const int64_t i = begin + (int64_t)threadIdx.x * QUAD;
        const int left = i >= count ? 0 : count - i < QUAD ? (int)(count - i) : (int)QUAD;
        const bool whole = aligned && left == QUAD;
        Moments moments = {};
        if (whole)
            moments = update_quad<true, guarded>(rule, scalars, grad, parameter, protection, *shared, i, left);
        else if (left > 0)
            moments = update_quad<false, guarded>(rule, scalars, grad, parameter, protection, *shared, i, left);
        if (skip)
            continue;
        float m = 0.0f, v = 0.0f;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            m = fmaxf(m, fabsf(moments.m[j]));
            v = fmaxf(v, moments.v[j]);
        }
        m = warp_reduce<Maximum>(m);
        v = warp_reduce<Maximum>(v);
        if (threadIdx.x % WARP_SIZE == 0) {
            shared->m_largest[warp] = m;
            shared->v_largest[warp] = v;
        }
        __syncthreads();
        if (whole)
            encode_quad<true>(rule, *shared, moments, i, left);
        else if (left > 0)
            encode_quad<false>(rule, *shared, moments, i, left);
        __syncthreads();
    }
}

} // namespace

HsStatus op::adamw8bit(HsContext *context, const HsAdamW8bitArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const AdamW8bit rule = { args->beta1,
                             args->beta2,
                             args->epsilon,
                             update->weight_decay,
                             update->learning_rate_scale,
                             data_of<uint8_t>(args->m),
                             data_of<uint8_t>(args->v),
                             data_of<float>(args->m_absmax),
                             data_of<float>(args->v_absmax) };
    const Protection protection(update->protection);
    const bool aligned = update_aligned(*update) && quad_aligned(args->m) && quad_aligned(args->v);
    const int64_t count = hs_tensor_count(&update->weight);
    const unsigned blocks = blocks_for(count, (int64_t)TILES * QUAD_BLOCK_ELEMENTS);
    HS_TRY(dispatch_act(update->grad.dtype, [&](auto gradient) {
        using Gradient = decltype(gradient);
        Gradient *grad = data_of<Gradient>(update->grad);
        return dispatch_parameter(update->master, update->weight, update->rng, [&](auto parameter) {
            using Parameter = decltype(parameter);
            const auto kernel = protection.acts() ? adamw8bit_kernel<true, Gradient, Parameter>
                                                  : adamw8bit_kernel<false, Gradient, Parameter>;
            return hs_launch_after(context, "adamw8bit_kernel", kernel, blocks, QUAD_THREADS, 0, rule, update->scalars,
                                   grad, parameter, protection, count, aligned);
        });
    }));
    return update_follow(context, update);
}

} // namespace HS_CUDA_NAMESPACE
