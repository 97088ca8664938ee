/* SPDX-License-Identifier: MIT
 *
 * AdamW with moments in 8 bits: one pass over memory.  It reads gradient, codes and master and writes codes, master,
 * weight and the cleared gradient: 22 bytes a parameter and 1/32 for absmax, where adamw moves 34.
 *
 * A block of threads takes TILES tiles of 1024 elements, a quad a thread, so that two neighbouring warps have a block of
 * codes: its absmax is the larger of theirs.  The dynamic map's levels stand in shared memory, made once a block of
 * threads; a code is a guess by a line through its decade, decided by one midpoint (kernels/ops/dynamic_map.h).  Codes of
 * fp8 are computed.
 */
#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/update/update_list.cuh"
#include "kernels/ops/moment_map.h"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { TILES = 4, WARPS = QUAD_THREADS / WARP_SIZE, BLOCK_WARPS = HS_DYNAMIC_BLOCK / (QUAD * WARP_SIZE) };
static_assert(BLOCK_WARPS == 2, "two warps have a block of codes");

/* The largest magnitudes of each warp's elements; with the dynamic map its levels, too. */
template <HsMomentMap map> struct Shared {
    float m_largest[WARPS], v_largest[WARPS];
};

template <> struct Shared<HS_MOMENTS_DYNAMIC> {
    float with_sign[HS_DYNAMIC_SIGNED_TOP + 1], without_sign[HS_DYNAMIC_UNSIGNED_TOP + 1];
    float m_largest[WARPS], v_largest[WARPS];
};

/* map chooses the kernel; it stands here, too, so that a launch has tensors of one map only. */
struct AdamW8bitSettings {
    float beta1, beta2, epsilon;
    HsMomentMap map;

    bool operator==(const AdamW8bitSettings &other) const
    {
        return beta1 == other.beta1 && beta2 == other.beta2 && epsilon == other.epsilon && map == other.map;
    }
};

template <HsMomentMap moment_map> struct AdamW8bit {
    using Settings = AdamW8bitSettings;
    static constexpr HsMomentMap map = moment_map;
    static constexpr int states = 4, part_elements = TILES * QUAD_BLOCK_ELEMENTS;
    float beta1, beta2, epsilon, weight_decay, learning_rate_scale;
    uint8_t *m, *v;
    float *m_absmax, *v_absmax;

    static __device__ __forceinline__ AdamW8bit of(const Settings &settings, const UpdateEntry<states> &entry)
    {
        return AdamW8bit{ settings.beta1,
                          settings.beta2,
                          settings.epsilon,
                          entry.weight_decay,
                          entry.learning_rate_scale,
                          static_cast<uint8_t *>(entry.state[0]),
                          static_cast<uint8_t *>(entry.state[1]),
                          static_cast<float *>(entry.state[2]),
                          static_cast<float *>(entry.state[3]) };
    }
};

/* The number of a code. */
template <bool is_signed, HsMomentMap map> HS_DEVICE float number_of(const Shared<map> &shared, uint8_t code)
{
    if constexpr (map == HS_MOMENTS_FP8) {
        return hs_moment_number(map, is_signed, code);
    } else if constexpr (is_signed) {
        const float magnitude = shared.with_sign[abs(code - HS_DYNAMIC_ZERO)];
        return code < HS_DYNAMIC_ZERO ? -magnitude : magnitude;
    } else {
        return shared.without_sign[code];
    }
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

/* The code of a moment; fp8 takes random bits from its element's word. */
template <bool is_signed, HsMomentMap map>
HS_DEVICE uint8_t code_of(const Shared<map> &shared, float moment, float factor, uint32_t word)
{
    if constexpr (map == HS_MOMENTS_FP8)
        return hs_moment_encode_fp8(is_signed, moment, factor, word);
    else if constexpr (is_signed)
        return (uint8_t)hs_dynamic_signed_code(moment < 0.0f,
                                               nearest_level<true>(shared.with_sign, fabsf(moment) * factor));
    else
        return (uint8_t)nearest_level<false>(shared.without_sign, moment * factor);
}

/* What one thread keeps of its quad between the two halves of a tile. */
struct Moments {
    float m[QUAD], v[QUAD];
};

/* As AdamW of update.cu, in f32 between decoding and encoding. */
template <bool whole, bool guarded, HsMomentMap map, typename Gradient, typename Parameter>
HS_DEVICE Moments update_quad(const AdamW8bit<map> &rule, const HsStepScalars *scalars_pointer, Gradient *grad,
                              const Parameter &parameter, const Protection &protection, const Shared<map> &shared,
                              int64_t i, int left)
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
    const float m_unit = hs_moment_unit(map, true, m_absmax), v_unit = hs_moment_unit(map, false, v_absmax);
    float raw[QUAD], before[QUAD], p[QUAD], stored[QUAD];
    widen(raw_quad, raw);
    widen(before_quad, before);
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        float g = raw[j] * scalars.gradient_multiplier;
        if constexpr (guarded)
            g = with_penalty(protection, guard, j, g, before[j]);
        const float m = number_of<true>(shared, m_quad.value[j]) * m_unit;
        const float v = number_of<false>(shared, v_quad.value[j]) * v_unit;
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
template <bool whole, HsMomentMap map>
HS_DEVICE void encode_quad(const AdamW8bit<map> &rule, const HsRng &stream, const Shared<map> &shared,
                           const Moments &moments, int64_t i, int left)
{
    const int warp = (int)threadIdx.x / WARP_SIZE, first = warp / BLOCK_WARPS * BLOCK_WARPS;
    const float m_absmax = fmaxf(shared.m_largest[first], shared.m_largest[first + 1]);
    const float v_absmax = fmaxf(shared.v_largest[first], shared.v_largest[first + 1]);
    if (i % HS_DYNAMIC_BLOCK == 0) {
        rule.m_absmax[i / HS_DYNAMIC_BLOCK] = m_absmax;
        rule.v_absmax[i / HS_DYNAMIC_BLOCK] = v_absmax;
    }
    const float m_factor = hs_moment_factor(map, true, m_absmax), v_factor = hs_moment_factor(map, false, v_absmax);
    uint4 draw = {};
    if constexpr (map == HS_MOMENTS_FP8)
        draw = rng_draw(stream, (uint64_t)(stream.row_offset + i) / QUAD);
    Pack<uint8_t, QUAD> m_quad, v_quad;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        m_quad.value[j] = code_of<true>(shared, moments.m[j], m_factor, rng_word(draw, j));
        v_quad.value[j] = code_of<false>(shared, moments.v[j], v_factor, rng_word(draw, j));
    }
    store_quad<whole>(rule.m, i, left, m_quad);
    store_quad<whole>(rule.v, i, left, v_quad);
}

HS_DEVICE void make_map(Shared<HS_MOMENTS_DYNAMIC> *shared)
{
    for (int level = (int)threadIdx.x; level <= HS_DYNAMIC_SIGNED_TOP; level += QUAD_THREADS)
        shared->with_sign[level] = hs_dynamic_level(true, level);
    for (int level = (int)threadIdx.x; level <= HS_DYNAMIC_UNSIGNED_TOP; level += QUAD_THREADS)
        shared->without_sign[level] = hs_dynamic_level(false, level);
}

HS_DEVICE void make_map(Shared<HS_MOMENTS_FP8> *)
{
}

/* Barriers: map made; magnitudes there; magnitudes read, and the old absmax by all before it is written. */
template <typename Rule, bool guarded, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(QUAD_THREADS) adamw8bit_kernel(const __grid_constant__ UpdateList<Rule, guarded> list)
{
    HS_SHARED(Shared<Rule::map>, shared, 1);
    begin_after_kernel_before();
    const int warp = (int)threadIdx.x / WARP_SIZE;
    const HsStepScalars *const scalars = list.scalars;
    const bool skip = scalars->skip;
    make_map(shared);
    const auto &entry = list.entry[find_entry(list, blockIdx.x)];
    const Rule rule = Rule::of(list.settings, entry);
    const HsRng stream = list.rng_of(entry);
    const Parameter parameter(entry.master, entry.weight, stream);
    const Protection protection = protection_of(entry);
    Gradient *const grad = static_cast<Gradient *>(entry.grad);
    const int64_t count = entry.count, first = (int64_t)(blockIdx.x - entry.first_part) * Rule::part_elements;
    __syncthreads();
    for (int tile = 0; tile < TILES; tile++) {
        const int64_t begin = first + (int64_t)tile * QUAD_BLOCK_ELEMENTS;
        if (begin >= count)
            return;
        const int64_t i = begin + (int64_t)threadIdx.x * QUAD;
        const int left = i >= count ? 0 : count - i < QUAD ? (int)(count - i) : (int)QUAD;
        const bool whole = entry.aligned && left == QUAD;
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
            encode_quad<true>(rule, stream, *shared, moments, i, left);
        else if (left > 0)
            encode_quad<false>(rule, stream, *shared, moments, i, left);
        __syncthreads();
    }
}

/* What update_list.cuh asks. */
struct UpdateRules {
    template <typename Rule, bool guarded, typename Gradient, typename Parameter> static auto kernel()
    {
        return adamw8bit_kernel<Rule, guarded, Gradient, Parameter>;
    }

    static AdamW8bitSettings settings_of(const HsAdamW8bitArgs &args)
    {
        return AdamW8bitSettings{ args.beta1, args.beta2, args.epsilon, args.map };
    }

    static UpdateStates<4> states_of(const HsAdamW8bitArgs &args)
    {
        return UpdateStates<4>{ { &args.m, &args.v, &args.m_absmax, &args.v_absmax } };
    }

    template <typename Body> static HsStatus dispatch(const HsAdamW8bitArgs &args, Body &&body)
    {
        if (args.map == HS_MOMENTS_FP8)
            return body(RuleTag<AdamW8bit<HS_MOMENTS_FP8>>{});
        return body(RuleTag<AdamW8bit<HS_MOMENTS_DYNAMIC>>{});
    }
};

} // namespace

HsStatus update_adamw8bit(HsContext *context, const HsAdamW8bitArgs *items, int count)
{
    HS_TRY(update_tensors<UpdateRules>(context, "adamw8bit_kernel", items, count));
    return follow_updates(context, items, count);
}

HsStatus op::adamw8bit(HsContext *context, const HsAdamW8bitArgs *args)
{
    return update_adamw8bit(context, args, 1);
}

} // namespace HS_CUDA_NAMESPACE
