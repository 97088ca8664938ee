/* SPDX-License-Identifier: MIT
 *
 * The update rules: one pass over memory each, bound by it.  AdamW reads gradient, moments and master and writes
 * moments, master, weight and the cleared gradient: 28 to 34 bytes a parameter, nothing twice.  What continual learning
 * adds is fused: importance and anchor are two more streams to read (8 bytes), a pull one (4 bytes), the path integral one
 * to update (8 bytes); each kernel exists with and without it, so that plain training pays nothing.
 *
 * Step scalars are read from device memory.  All streams are loaded beside them, before `skip` is looked at: a step
 * that is not skipped, nearly every one, waits for memory once and not twice.
 */
#include "kernels/cuda/update/update_rule.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* A rule: its settings, the streams that are its own, and what it does with one quad. */
template <typename Moment> struct AdamW {
    float beta1, beta2, epsilon, weight_decay, learning_rate_scale;
    Moment *m, *v;
    HsRng rng;

    static __device__ __forceinline__ void round_moments(const HsRng &, int64_t, const float (&m_new)[QUAD],
                                                         const float (&v_new)[QUAD], Pack<float, QUAD> &m_quad,
                                                         Pack<float, QUAD> &v_quad)
    {
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            m_quad.value[j] = m_new[j];
            v_quad.value[j] = v_new[j];
        }
    }

    /* Stochastically, m by the upper half of each word, v by the lower. */
    static __device__ __forceinline__ void round_moments(const HsRng &stream, int64_t i, const float (&m_new)[QUAD],
                                                         const float (&v_new)[QUAD], Pack<Bf16, QUAD> &m_quad,
                                                         Pack<Bf16, QUAD> &v_quad)
    {
        const uint4 draw = rng_draw(stream, (uint64_t)(stream.row_offset + i) / QUAD);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            m_quad.value[j] = round_stochastically(m_new[j], rng_word(draw, j) >> 16);
            v_quad.value[j] = round_stochastically(v_new[j], rng_word(draw, j) & 0xffffu);
        }
    }

    /* p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps) */
    template <bool whole, bool guarded, typename Gradient, typename Parameter>
    __device__ __forceinline__ void update(const HsStepScalars *scalars_pointer, Gradient *grad,
                                           const Parameter &parameter, const Protection &protection, int64_t i,
                                           int left) const
    {
        const HsStepScalars scalars = *scalars_pointer;
        const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
        const auto before_quad = load_quad<whole>(parameter.kept(), i, left);
        Pack<Moment, QUAD> m_quad = load_quad<whole>(m, i, left), v_quad = load_quad<whole>(v, i, left);
        Guard guard;
        if constexpr (guarded)
            guard = load_guard<whole>(protection, i, left);

        clear_quad<whole>(grad, i, left);
        if (scalars.skip)
            return;
        const float rate = scalars.learning_rate * learning_rate_scale;
        const float keep = HS_RULE_KEEP(fmaf, rate, weight_decay);
        const float step = rate / scalars.bias_correction1, correction = 1.0f / scalars.bias_correction2;
        float raw[QUAD], before[QUAD], p[QUAD], stored[QUAD], m_new[QUAD], v_new[QUAD];
        widen(raw_quad, raw);
        widen(before_quad, before);
        widen(m_quad, m_new);
        widen(v_quad, v_new);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            float g = raw[j] * scalars.gradient_multiplier;
            if constexpr (guarded)
                g = with_penalty(protection, guard, j, g, before[j]);
            m_new[j] = HS_RULE_ADAMW_M(fmaf, m_new[j], g, beta1, 1.0f - beta1);
            v_new[j] = HS_RULE_ADAMW_V(fmaf, v_new[j], g, beta2, 1.0f - beta2);
            p[j] = HS_RULE_ADAMW_P(fmaf, sqrtf, before[j], keep, m_new[j], v_new[j], step, correction, epsilon);
            if constexpr (guarded)
                p[j] = after_proximal(protection, guard, j, p[j], rate);
        }
        round_moments(rng, i, m_new, v_new, m_quad, v_quad);
        store_quad<whole>(m, i, left, m_quad);
        store_quad<whole>(v, i, left, v_quad);
        parameter.template store<whole>(i, left, p, stored);
        if constexpr (guarded)
            store_path<whole>(protection, guard, i, left, raw, scalars.unscale, stored, before);
    }
};

struct Sgd {
    float momentum, weight_decay, learning_rate_scale;
    bool nesterov;
    float *buffer; /* null: no momentum */

    /* d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
    template <bool whole, bool guarded, typename Gradient, typename Parameter>
    __device__ __forceinline__ void update(const HsStepScalars *scalars_pointer, Gradient *grad,
                                           const Parameter &parameter, const Protection &protection, int64_t i,
                                           int left) const
    {
        const HsStepScalars scalars = *scalars_pointer;
        const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
        const auto before_quad = load_quad<whole>(parameter.kept(), i, left);
        Pack<float, QUAD> buffer_quad = {};
        if (buffer != nullptr)
            buffer_quad = load_quad<whole>(buffer, i, left);
        Guard guard;
        if constexpr (guarded)
            guard = load_guard<whole>(protection, i, left);

        clear_quad<whole>(grad, i, left);
        if (scalars.skip)
            return;
        const float rate = scalars.learning_rate * learning_rate_scale;
        float raw[QUAD], before[QUAD], p[QUAD], stored[QUAD];
        widen(raw_quad, raw);
        widen(before_quad, before);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            float descent = HS_RULE_SGD_DESCENT(fmaf, raw[j], scalars.gradient_multiplier, before[j], weight_decay);
            if constexpr (guarded)
                descent = with_penalty(protection, guard, j, descent, before[j]);
            float direction = descent;
            if (buffer != nullptr) {
                const float moving = HS_RULE_SGD_MOVE(fmaf, buffer_quad.value[j], momentum, descent);
                buffer_quad.value[j] = moving;
                direction = nesterov ? HS_RULE_SGD_MOVE(fmaf, moving, momentum, descent) : moving;
            }
            p[j] = HS_RULE_SGD_P(fmaf, before[j], rate, direction);
            if constexpr (guarded)
                p[j] = after_proximal(protection, guard, j, p[j], rate);
        }
        if (buffer != nullptr)
            store_quad<whole>(buffer, i, left, buffer_quad);
        parameter.template store<whole>(i, left, p, stored);
        if constexpr (guarded)
            store_path<whole>(protection, guard, i, left, raw, scalars.unscale, stored, before);
    }
};

/* m = b m + (1 - b) g;  direction = m, or (1 - b) g + b m.  The parameter, its gradient and the path stay. */
struct Momentum {
    float momentum;
    bool nesterov;
    float *m, *direction;

    template <bool whole, bool guarded, typename Gradient, typename Parameter>
    __device__ __forceinline__ void update(const HsStepScalars *scalars_pointer, Gradient *grad,
                                           const Parameter &parameter, const Protection &protection, int64_t i,
                                           int left) const
    {
        const HsStepScalars scalars = *scalars_pointer;
        const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
        Pack<float, QUAD> m_quad = load_quad<whole>(m, i, left);
        if (scalars.skip) {
            clear_quad<whole>(direction, i, left);
            return;
        }
        float raw[QUAD];
        Pack<float, QUAD> direction_quad;
        widen(raw_quad, raw);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            raw[j] *= scalars.gradient_multiplier;
        if constexpr (guarded) {
            const auto before_quad = load_quad<whole>(parameter.kept(), i, left);
            const Guard guard = load_guard<whole>(protection, i, left);
            float before[QUAD];
            widen(before_quad, before);
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                raw[j] = with_penalty(protection, guard, j, raw[j], before[j]);
        }
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float moving = fmaf(1.0f - momentum, raw[j], momentum * m_quad.value[j]);
            m_quad.value[j] = moving;
            direction_quad.value[j] = nesterov ? fmaf(1.0f - momentum, raw[j], momentum * moving) : moving;
        }
        store_quad<whole>(m, i, left, m_quad);
        store_quad<whole>(direction, i, left, direction_quad);
    }
};

/* p -= lr (wd p + direction) */
template <typename Element> struct Descend {
    float weight_decay, learning_rate_scale;
    const Element *direction;

    template <bool whole, bool guarded, typename Gradient, typename Parameter>
    __device__ __forceinline__ void update(const HsStepScalars *scalars_pointer, Gradient *grad,
                                           const Parameter &parameter, const Protection &protection, int64_t i,
                                           int left) const
    {
        const HsStepScalars scalars = *scalars_pointer;
        const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
        const auto before_quad = load_quad<whole>(parameter.kept(), i, left);
        const Pack<Element, QUAD> direction_quad = load_quad<whole>(direction, i, left);
        Guard guard;
        if constexpr (guarded)
            guard = load_guard<whole>(protection, i, left);

        clear_quad<whole>(grad, i, left);
        if (scalars.skip)
            return;
        const float rate = scalars.learning_rate * learning_rate_scale;
        const float keep = 1.0f - rate * weight_decay;
        float raw[QUAD], before[QUAD], step[QUAD], p[QUAD], stored[QUAD];
        widen(raw_quad, raw);
        widen(before_quad, before);
        widen(direction_quad, step);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            p[j] = fmaf(before[j], keep, -(step[j] * rate));
            if constexpr (guarded)
                p[j] = after_proximal(protection, guard, j, p[j], rate);
        }
        parameter.template store<whole>(i, left, p, stored);
        if constexpr (guarded)
            store_path<whole>(protection, guard, i, left, raw, scalars.unscale, stored, before);
    }
};

/* adamw_kernel, sgd_kernel, momentum_kernel, descend_kernel.  aligned: all streams allow whole quads. */
template <typename Rule, bool guarded, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(QUAD_THREADS)
    update_kernel(const Rule rule, const HsStepScalars *scalars, Gradient *grad, const Parameter parameter,
                  const Protection protection, int64_t count, bool aligned)
{
    begin_after_kernel_before();
    const int64_t i = quad_index(), left = count - i;
    if (aligned && left >= QUAD)
        rule.template update<true, guarded>(scalars, grad, parameter, protection, i, QUAD);
    else if (left > 0)
        rule.template update<false, guarded>(scalars, grad, parameter, protection, i, left < QUAD ? (int)left : QUAD);
}

template <typename Rule>
HsStatus launch_update(const HsContext *context, const char *name, const Rule &rule, const HsUpdateArgs *args,
                       bool states_aligned)
{
    const Protection protection(args->protection);
    const bool guarded = protection.acts();
    const bool aligned = states_aligned && update_aligned(*args);
    const int64_t count = hs_tensor_count(&args->weight);
    return dispatch_act(args->grad.dtype, [&](auto gradient) {
        using Gradient = decltype(gradient);
        Gradient *grad = data_of<Gradient>(args->grad);
        return dispatch_parameter(args->master, args->weight, args->rng, [&](auto parameter) {
            using Parameter = decltype(parameter);
            if (guarded)
                return hs_launch_after(context, name, update_kernel<Rule, true, Gradient, Parameter>,
                                       quad_blocks(count), QUAD_THREADS, 0, rule, args->scalars, grad, parameter,
                                       protection, count, aligned);
            return hs_launch_after(context, name, update_kernel<Rule, false, Gradient, Parameter>, quad_blocks(count),
                                   QUAD_THREADS, 0, rule, args->scalars, grad, parameter, protection, count, aligned);
        });
    });
}

} // namespace

template <typename Moment> static HsStatus launch_adamw(const HsContext *context, const HsAdamWArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const AdamW<Moment> rule = { args->beta1,
                                 args->beta2,
                                 args->epsilon,
                                 update->weight_decay,
                                 update->learning_rate_scale,
                                 data_of<Moment>(args->m),
                                 data_of<Moment>(args->v),
                                 update->rng };
    return launch_update(context, "adamw_kernel", rule, update, quad_aligned(args->m) && quad_aligned(args->v));
}

HsStatus op::adamw(HsContext *context, const HsAdamWArgs *args)
{
    HS_TRY(args->m.dtype == HS_BF16 ? launch_adamw<Bf16>(context, args) : launch_adamw<float>(context, args));
    return update_follow(context, &args->update);
}

HsStatus op::sgd(HsContext *context, const HsSgdArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    const Sgd rule = { args->momentum, update->weight_decay, update->learning_rate_scale, args->nesterov,
                       optional_data<float>(args->buffer) };
    HS_TRY(launch_update(context, "sgd_kernel", rule, update, quad_aligned(args->buffer)));
    return update_follow(context, update);
}

HsStatus op::momentum(HsContext *context, const HsMomentumArgs *args)
{
    const Momentum rule = { args->momentum, args->nesterov, data_of<float>(args->m), data_of<float>(args->direction) };
    return launch_update(context, "momentum_kernel", rule, &args->update,
                         quad_aligned(args->m) && quad_aligned(args->direction));
}

HsStatus op::descend(HsContext *context, const HsDescendArgs *args)
{
    const HsUpdateArgs *update = &args->update;
    HS_TRY(dispatch_act(args->direction.dtype, [&](auto element) {
        using Element = decltype(element);
        const Descend<Element> rule = { update->weight_decay, update->learning_rate_scale,
                                        data_of<Element>(args->direction) };
        return launch_update(context, "descend_kernel", rule, update, quad_aligned(args->direction));
    }));
    return update_follow(context, update);
}

} // namespace HS_CUDA_NAMESPACE
