/* SPDX-License-Identifier: MIT
 *
 * The update rules: one pass over memory each, bound by it.  AdamW reads gradient, moments and master and writes
 * moments, master, weight and the cleared gradient: 28 to 34 bytes a parameter, nothing twice.  What continual learning
 * adds is fused: importance and anchor are two more streams to read (8 bytes), a pull one (4 bytes), the path integral one
 * to update (8 bytes); each kernel exists with and without it, so that plain training pays nothing.
 *
 * A launch serves many tensors (update_list.cuh): a model of 148 takes three.
 *
 * Step scalars are read from device memory.  All streams are loaded with them, before `skip` is looked at: a step that
 * is not skipped, nearly every one, waits for memory once and not twice.
 */
#include "kernels/cuda/update/update_list.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* schedule_free chooses the kernel; it stands here, too, so that a launch has tensors of one rule only. */
struct AdamWSettings {
    float beta1, beta2, epsilon;
    bool schedule_free;

    bool operator==(const AdamWSettings &other) const
    {
        return beta1 == other.beta1 && beta2 == other.beta2 && epsilon == other.epsilon &&
               schedule_free == other.schedule_free;
    }
};

/* A rule: its settings, the streams that are its own, and what it does with one quad. */
template <typename Moment> struct AdamW {
    using Settings = AdamWSettings;
    static constexpr int states = 2, part_elements = QUAD_BLOCK_ELEMENTS;
    float beta1, beta2, epsilon, weight_decay, learning_rate_scale;
    Moment *m, *v;
    HsRng rng;

    static __device__ __forceinline__ AdamW of(const Settings &settings, const UpdateEntry<states> &entry,
                                               const HsRng &rng)
    {
        return AdamW{ settings.beta1,
                      settings.beta2,
                      settings.epsilon,
                      entry.weight_decay,
                      entry.learning_rate_scale,
                      static_cast<Moment *>(entry.state[0]),
                      static_cast<Moment *>(entry.state[1]),
                      rng };
    }

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

/* D = g / (sqrt(v) + eps) + wd p;  p += c m + lr (b1 (1-c) - 1) D;  m = (1-c) m - lr b1 (1-c) D, which is z - p */
template <typename Moment> struct ScheduleFree {
    using Settings = AdamWSettings;
    static constexpr int states = 2, part_elements = QUAD_BLOCK_ELEMENTS;
    float beta1, beta2, epsilon, weight_decay, learning_rate_scale;
    Moment *m, *v;
    HsRng rng;

    static __device__ __forceinline__ ScheduleFree of(const Settings &settings, const UpdateEntry<states> &entry,
                                                      const HsRng &rng)
    {
        return ScheduleFree{ settings.beta1,
                             settings.beta2,
                             settings.epsilon,
                             entry.weight_decay,
                             entry.learning_rate_scale,
                             static_cast<Moment *>(entry.state[0]),
                             static_cast<Moment *>(entry.state[1]),
                             rng };
    }

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
        const float rate = scalars.free_rate * learning_rate_scale, c = scalars.free_weight;
        const float step = HS_RULE_FREE_STEP(fmaf, rate, beta1, c), back = HS_RULE_FREE_BACK(rate, beta1, c);
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
            v_new[j] = HS_RULE_ADAMW_V(fmaf, v_new[j], g, beta2, 1.0f - beta2);
            const float direction = HS_RULE_FREE_DIRECTION(fmaf, sqrtf, g, v_new[j], before[j], weight_decay, epsilon);
            p[j] = HS_RULE_FREE_P(fmaf, before[j], m_new[j], c, direction, step);
            m_new[j] = HS_RULE_FREE_D(fmaf, m_new[j], c, direction, back);
        }
        AdamW<Moment>::round_moments(rng, i, m_new, v_new, m_quad, v_quad);
        store_quad<whole>(m, i, left, m_quad);
        store_quad<whole>(v, i, left, v_quad);
        if constexpr (guarded) { /* last, and read again: which spares registers */
            const float late_rate = scalars_pointer->free_rate * learning_rate_scale;
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                p[j] = after_proximal(protection, guard, j, p[j], late_rate);
        }
        parameter.template store<whole>(i, left, p, stored);
        if constexpr (guarded)
            store_path<whole>(protection, guard, i, left, raw, scalars_pointer->unscale, stored, before);
    }
};

struct MomentumSettings {
    float momentum;
    bool nesterov;

    bool operator==(const MomentumSettings &other) const
    {
        return momentum == other.momentum && nesterov == other.nesterov;
    }
};

struct Sgd {
    using Settings = MomentumSettings;
    static constexpr int states = 1, part_elements = QUAD_BLOCK_ELEMENTS;
    float momentum, weight_decay, learning_rate_scale;
    bool nesterov;
    float *buffer; /* null: no momentum */

    static __device__ __forceinline__ Sgd of(const Settings &settings, const UpdateEntry<states> &entry, const HsRng &)
    {
        return Sgd{ settings.momentum, entry.weight_decay, entry.learning_rate_scale, settings.nesterov,
                    static_cast<float *>(entry.state[0]) };
    }

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

struct DirectionSettings {
    bool nesterov;

    bool operator==(const DirectionSettings &other) const
    {
        return nesterov == other.nesterov;
    }
};

/* m = b m + (1 - b) g;  direction = m, or (1 - b) g + b m, or without m g.  The parameter, its gradient and the path
 * stay. */
struct Momentum {
    using Settings = DirectionSettings;
    static constexpr int states = 2, part_elements = QUAD_BLOCK_ELEMENTS;
    bool nesterov;
    float *m, *direction; /* m null: the direction is g */

    static __device__ __forceinline__ Momentum of(const Settings &settings, const UpdateEntry<states> &entry,
                                                  const HsRng &)
    {
        return Momentum{ settings.nesterov, static_cast<float *>(entry.state[0]),
                         static_cast<float *>(entry.state[1]) };
    }

    template <bool whole, bool guarded, typename Gradient, typename Parameter>
    __device__ __forceinline__ void update(const HsStepScalars *scalars_pointer, Gradient *grad,
                                           const Parameter &parameter, const Protection &protection, int64_t i,
                                           int left) const
    {
        const HsStepScalars scalars = *scalars_pointer;
        const Pack<Gradient, QUAD> raw_quad = load_quad<whole>(grad, i, left);
        Pack<float, QUAD> m_quad = {};
        if (m != nullptr)
            m_quad = load_quad<whole>(m, i, left);
        if (scalars.skip) {
            clear_quad<whole>(direction, i, left);
            return;
        }
        const float momentum = scalars.momentum;
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
            if (m == nullptr)
                direction_quad.value[j] = raw[j];
        }
        if (m != nullptr)
            store_quad<whole>(m, i, left, m_quad);
        store_quad<whole>(direction, i, left, direction_quad);
    }
};

struct DescendSettings {
    bool cautious, of_columns;
    int64_t columns; /* of the direction, where there are factors */

    bool operator==(const DescendSettings &other) const
    {
        return cautious == other.cautious && of_columns == other.of_columns && columns == other.columns;
    }
};

/* p -= lr (wd p + direction);  cautious: without decay where direction p < 0.  `scaled`: each row or column of the
 * direction times its factor. */
template <typename Element, bool scaled> struct Descend {
    using Settings = DescendSettings;
    static constexpr int states = 2, part_elements = QUAD_BLOCK_ELEMENTS;
    float weight_decay, learning_rate_scale; /* cautious: minus the decay, which spares a register */
    const Element *direction;
    const float *factors;
    int64_t columns;
    bool of_columns;

    static __device__ __forceinline__ Descend of(const Settings &settings, const UpdateEntry<states> &entry,
                                                 const HsRng &)
    {
        return Descend{ settings.cautious ? -entry.weight_decay : entry.weight_decay,
                        entry.learning_rate_scale,
                        static_cast<const Element *>(entry.state[0]),
                        static_cast<const float *>(entry.state[1]),
                        settings.columns,
                        settings.of_columns };
    }

    /* One division a quad. */
    __device__ __forceinline__ void scale(float (&step)[QUAD], int64_t i, int left) const
    {
        int64_t row = i / columns, column = i - row * columns;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            if (j < left)
                step[j] *= factors[of_columns ? column : row];
            if (++column == columns) {
                column = 0;
                row++;
            }
        }
    }

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
        const float keep = 1.0f - rate * fabsf(weight_decay);
        float raw[QUAD], before[QUAD], step[QUAD], p[QUAD], stored[QUAD];
        widen(raw_quad, raw);
        widen(before_quad, before);
        widen(direction_quad, step);
        if constexpr (scaled)
            scale(step, i, left);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const bool decays = !(weight_decay < 0.0f && step[j] * before[j] < 0.0f);
            p[j] = fmaf(before[j], decays ? keep : 1.0f, -(step[j] * rate));
        }
        if constexpr (guarded) {
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                p[j] = after_proximal(protection, guard, j, p[j], rate);
        }
        parameter.template store<whole>(i, left, p, stored);
        if constexpr (guarded)
            store_path<whole>(protection, guard, i, left, raw, scalars.unscale, stored, before);
    }
};

/* adamw_kernel, sgd_kernel, momentum_kernel, descend_kernel.  A quad a thread and no loop: what a launch has of a tensor
 * stays in the constant bank until it is used, and takes no registers.  To find the tensor takes some 300 clocks, while
 * other blocks move memory. */
template <typename Rule, bool guarded, typename Gradient, typename Parameter>
__global__ void __launch_bounds__(QUAD_THREADS) update_kernel(const __grid_constant__ UpdateList<Rule, guarded> list)
{
    begin_after_kernel_before();
    const auto &entry = list.entry[find_entry(list, blockIdx.x)];
    const HsRng rng = list.rng_of(entry);
    const Rule rule = Rule::of(list.settings, entry, rng);
    const Parameter parameter(entry.master, entry.weight, rng);
    const Protection protection = protection_of(entry);
    Gradient *const grad = static_cast<Gradient *>(entry.grad);
    const int64_t i = (int64_t)(blockIdx.x - entry.first_part) * Rule::part_elements + (int64_t)threadIdx.x * QUAD;
    const int64_t left = entry.count - i;
    if (entry.aligned && left >= QUAD)
        rule.template update<true, guarded>(list.scalars, grad, parameter, protection, i, QUAD);
    else if (left > 0)
        rule.template update<false, guarded>(list.scalars, grad, parameter, protection, i,
                                             left < QUAD ? (int)left : (int)QUAD);
}

/* What update_list.cuh asks. */
struct UpdateRules {
    template <typename Rule, bool guarded, typename Gradient, typename Parameter> static auto kernel()
    {
        return update_kernel<Rule, guarded, Gradient, Parameter>;
    }

    static AdamWSettings settings_of(const HsAdamWArgs &args)
    {
        return AdamWSettings{ args.beta1, args.beta2, args.epsilon, args.schedule_free };
    }

    static MomentumSettings settings_of(const HsSgdArgs &args)
    {
        return MomentumSettings{ args.momentum, args.nesterov };
    }

    static DirectionSettings settings_of(const HsMomentumArgs &args)
    {
        return DirectionSettings{ args.nesterov };
    }

    static DescendSettings settings_of(const HsDescendArgs &args)
    {
        return DescendSettings{ args.cautious, args.of_columns,
                                hs_tensor_present(&args.factors) ? args.direction.shape[1] : 0 };
    }

    static UpdateStates<2> states_of(const HsAdamWArgs &args)
    {
        return UpdateStates<2>{ { &args.m, &args.v } };
    }

    static UpdateStates<1> states_of(const HsSgdArgs &args)
    {
        return UpdateStates<1>{ { &args.buffer } };
    }

    static UpdateStates<2> states_of(const HsMomentumArgs &args)
    {
        return UpdateStates<2>{ { &args.m, &args.direction } };
    }

    static UpdateStates<2> states_of(const HsDescendArgs &args)
    {
        return UpdateStates<2>{ { &args.direction, &args.factors } };
    }

    template <typename Body> static HsStatus dispatch(const HsAdamWArgs &args, Body &&body)
    {
        if (args.schedule_free)
            return args.m.dtype == HS_BF16 ? body(RuleTag<ScheduleFree<Bf16>>{}) : body(RuleTag<ScheduleFree<float>>{});
        return args.m.dtype == HS_BF16 ? body(RuleTag<AdamW<Bf16>>{}) : body(RuleTag<AdamW<float>>{});
    }

    template <typename Body> static HsStatus dispatch(const HsSgdArgs &, Body &&body)
    {
        return body(RuleTag<Sgd>{});
    }

    template <typename Body> static HsStatus dispatch(const HsMomentumArgs &, Body &&body)
    {
        return body(RuleTag<Momentum>{});
    }

    template <typename Body> static HsStatus dispatch(const HsDescendArgs &args, Body &&body)
    {
        if (hs_tensor_present(&args.factors))
            return body(RuleTag<Descend<float, true>>{});
        return dispatch_act(args.direction.dtype,
                            [&](auto element) { return body(RuleTag<Descend<decltype(element), false>>{}); });
    }
};

HsStatus update_adamw(HsContext *context, const HsAdamWArgs *items, int count)
{
    HS_TRY(update_tensors<UpdateRules>(context, "adamw_kernel", items, count));
    return follow_updates(context, items, count);
}

HsStatus update_sgd(HsContext *context, const HsSgdArgs *items, int count)
{
    HS_TRY(update_tensors<UpdateRules>(context, "sgd_kernel", items, count));
    return follow_updates(context, items, count);
}

} // namespace

HsStatus op::adamw(HsContext *context, const HsAdamWArgs *args)
{
    return update_adamw(context, args, 1);
}

HsStatus op::sgd(HsContext *context, const HsSgdArgs *args)
{
    return update_sgd(context, args, 1);
}

HsStatus op::momentum(HsContext *context, const HsMomentumArgs *args)
{
    return update_tensors<UpdateRules>(context, "momentum_kernel", args, 1);
}

HsStatus op::descend(HsContext *context, const HsDescendArgs *args)
{
    HS_TRY(update_tensors<UpdateRules>(context, "descend_kernel", args, 1));
    return update_follow(context, &args->update);
}

HsStatus op::update_list(HsContext *context, const HsUpdateListArgs *args)
{
    HS_TRY(update_adamw(context, args->adamw, args->adamw_count));
    HS_TRY(update_adamw8bit(context, args->adamw8bit, args->adamw8bit_count));
    return update_sgd(context, args->sgd, args->sgd_count);
}

} // namespace HS_CUDA_NAMESPACE
