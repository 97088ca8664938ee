/* SPDX-License-Identifier: MIT
 *
 * Operations that read and write each element once: dropout with its residual, convert, combine, normalize, blend.
 *
 * Bound by memory.  One kernel serves all: each thread moves PACKS packs of 16 bytes of the widest operand, a block's
 * worth apart, so that every access of a warp is one contiguous piece; all loads are issued before the first is used,
 * which keeps 32 to 64 bytes in flight a thread.  What is computed is a rule:
 *     rule.apply(index, x, z, y)   y[i] from x[i] and, where there is one, a second operand z[i]
 * with `index` the first element's.  Either operand may be the output itself: a thread stores only where it has loaded.
 */
#include "kernels/cuda/layers/dropout.cuh"
#include "kernels/cuda/toolbox/activation.cuh"
#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/parameter.cuh"
#include "kernels/ops/update_rule.h"

namespace HS_CUDA_NAMESPACE
{

enum { THREADS = 256, PACKS = 2 };

template <int width, typename Rule, typename X, typename Y> struct Elementwise {
    Rule rule;
    X x;
    Y z; /* like y; z.data NULL: absent, zeros */
    Y y;
    int64_t count;
};

template <int width, typename Task>
HS_DEVICE void load_operands(const Task &task, int64_t i, float (&x)[width], float (&z)[width])
{
    task.x.load(i, x);
    if (task.z.data) {
        task.z.load(i, z);
    } else {
#pragma unroll
        for (int j = 0; j < width; j++)
            z[j] = 0.0f;
    }
}

/* Blocks that a multiprocessor holds at least; 0: the compiler's choice. */
template <typename Rule, typename X> static constexpr int least_blocks = 0;

template <int width, typename Rule, typename X, typename Y>
__global__ void __launch_bounds__(THREADS, (least_blocks<Rule, X>))
    elementwise_kernel(const Elementwise<width, Rule, X, Y> task)
{
    begin_after_kernel_before();
    const int64_t first = ((int64_t)blockIdx.x * (PACKS * THREADS) + threadIdx.x) * width;
    float x[PACKS][width], z[PACKS][width], y[width];
#pragma unroll
    for (int pack = 0; pack < PACKS; pack++) {
        const int64_t i = first + pack * THREADS * width;
        if (i + width <= task.count)
            load_operands(task, i, x[pack], z[pack]);
    }
#pragma unroll
    for (int pack = 0; pack < PACKS; pack++) {
        const int64_t i = first + pack * THREADS * width;
        if (i + width <= task.count) {
            task.rule.apply(i, x[pack], z[pack], y);
            task.y.store(i, y);
        }
    }
    /* What is left when `count` is no multiple of the width: the first threads take an element each. */
    const int64_t rest = task.count / width * width + threadIdx.x;
    if (width > 1 && blockIdx.x == 0 && rest < task.count) {
        float x_one[1], z_one[1], y_one[1];
        load_operands(task, rest, x_one, z_one);
        task.rule.apply(rest, x_one, z_one, y_one);
        task.y.store(rest, y_one);
    }
}

template <int width, typename Rule, typename X, typename Y>
static HsStatus launch_elementwise(const HsContext *context, const Rule &rule, X x, Y z, Y y, int64_t count)
{
    const Elementwise<width, Rule, X, Y> task = { rule, x, z, y, count };
    return hs_launch_after(context, HS_KERNEL((elementwise_kernel<width, Rule, X, Y>)),
                           blocks_for(count, PACKS * THREADS * width), THREADS, 0, task);
}

/* The mixes with packed kernels: one dtype, or f32 on either side. */
template <typename Body> static HsStatus dispatch_mix(HsDtype x, HsDtype y, Body &&body)
{
    if (x == HS_F32)
        return dispatch_act(y, [&](auto to) { return body(float{}, to); });
    return dispatch_act(x, [&](auto from) { return y == HS_F32 ? body(from, float{}) : body(from, from); });
}

/* z: a tensor like y, or absent (rank 0). */
template <typename Rule>
static HsStatus run_elementwise(const HsContext *context, const Rule &rule, const HsTensor &x, const HsTensor &z,
                                const HsTensor &y)
{
    const int64_t count = hs_tensor_count(&x);
    const bool mixed = x.dtype != y.dtype && x.dtype != HS_F32 && y.dtype != HS_F32;
    const bool z_like_y = !hs_tensor_present(&z) || z.dtype == y.dtype;
    if (mixed || !z_like_y || !aligned_to(x.data, 16) || !aligned_to(y.data, 16) || !aligned_to(z.data, 16))
        return launch_elementwise<1>(context, rule, any_view_of(x), any_view_of(z), any_view_of(y), count);
    return dispatch_mix(x.dtype, y.dtype, [&](auto from, auto to) {
        using X = decltype(from);
        using Y = decltype(to);
        return launch_elementwise<access_width<X, Y>>(context, rule, view_of<X>(x), view_of<Y>(z), view_of<Y>(y),
                                                      count);
    });
}

static constexpr HsTensor ABSENT = {};

static HsStatus run_dropout(HsContext *context, const HsDropoutArgs *args, const HsTensor &residual)
{
    const DropoutRule rule = dropout_rule(args->rng, args->probability, args->x.shape[1]);
    HS_TRY(run_elementwise(context, rule, args->x, residual, args->y));
    return launch_amax(context, args->y);
}

HsStatus op::dropout_forward(HsContext *context, const HsDropoutArgs *args)
{
    return run_dropout(context, args, args->residual);
}

/* Linear, so its gradient is the same mask on dy. */
HsStatus op::dropout_backward(HsContext *context, const HsDropoutArgs *args)
{
    return run_dropout(context, args, ABSENT);
}

/* The rounding is the store's. */
struct ConvertRule {
    template <int width>
    HS_MEMBER void apply(int64_t, const float (&x)[width], const float (&)[width], float (&y)[width]) const
    {
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = x[i];
    }
};

/* f32 to bf16 by random bits: element e takes the upper half of word e % 4 of draw e / 4.  The store then rounds what
 * is a bf16 number already. */
struct StochasticRule {
    HsRng rng;

    template <int width>
    HS_MEMBER void apply(int64_t index, const float (&x)[width], const float (&)[width], float (&y)[width]) const
    {
        const int phase = width == 1 ? (int)(index % 4) : 0;
#pragma unroll
        for (int first = 0; first < width; first += 4) {
            const uint4 words = rng_draw(rng, (uint64_t)(index + first) / 4);
#pragma unroll
            for (int i = first; i < first + 4 && i < width; i++)
                y[i] = to_float(round_stochastically(x[i], rng_word(words, i - first + phase) >> 16));
        }
    }
};

HsStatus op::convert(HsContext *context, const HsConvertArgs *args)
{
    if (!args->stochastic)
        return run_elementwise(context, ConvertRule{}, args->x, ABSENT, args->y);
    const StochasticRule rule = { args->rng };
    const int64_t count = hs_tensor_count(&args->x);
    if (!aligned_to(args->x.data, 16) || !aligned_to(args->y.data, 16))
        return launch_elementwise<1>(context, rule, any_view_of(args->x), any_view_of(ABSENT), any_view_of(args->y),
                                     count);
    return launch_elementwise<4>(context, rule, view_of<float>(args->x), view_of<Bf16>(ABSENT), view_of<Bf16>(args->y),
                                 count);
}

/* alpha x + beta z, z being y itself; beta 0: z is absent, for y may hold anything, NaN too. */
struct CombineRule {
    float alpha, beta;

    template <int width>
    HS_MEMBER void apply(int64_t, const float (&x)[width], const float (&z)[width], float (&y)[width]) const
    {
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = fmaf(alpha, x[i], beta * z[i]);
    }
};

/* Two packs of x and of z are 32 numbers besides their addresses: for six blocks on 12.0, which it tries by itself, the
 * compiler would spill some. */
template <> constexpr int least_blocks<CombineRule, View<Bf16>> = 5;

/* x / (sqrt(sum of squares) + epsilon): of a whole matrix, with the sum in device memory */
struct NormalizeRule {
    const double *sum_squares;
    float epsilon;

    template <int width>
    HS_MEMBER void apply(int64_t, const float (&x)[width], const float (&)[width], float (&y)[width]) const
    {
        const float factor = (float)(1.0 / (sqrt(*sum_squares) + (double)epsilon));
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = factor * x[i];
    }
};

HsStatus op::normalize(HsContext *context, const HsNormalizeArgs *args)
{
    return run_elementwise(context, NormalizeRule{ args->sum_squares, args->epsilon }, args->x, ABSENT, args->y);
}

/* average + rate (x - average), with the rate in device memory; at rate 1 rounding could miss x */
struct AverageRule {
    const float *rate;

    template <int width>
    HS_MEMBER void apply(int64_t, const float (&x)[width], const float (&average)[width], float (&y)[width]) const
    {
        const float by = *rate;
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = by == 1.0f ? x[i] : HS_RULE_BACK(fmaf, x[i], by, average[i]);
    }
};

template <> constexpr int least_blocks<AverageRule, View<Bf16>> = 5; /* as of combine */

HsStatus op::average(HsContext *context, const HsAverageArgs *args)
{
    return run_elementwise(context, AverageRule{ args->rate }, args->x, args->average, args->average);
}

HsStatus op::combine(HsContext *context, const HsCombineArgs *args)
{
    const HsTensor &kept = args->beta != 0.0f ? args->y : ABSENT;
    return run_elementwise(context, CombineRule{ args->alpha, args->beta }, args->x, kept, args->y);
}

/* a x + sign b z, with a and b in device memory; a NULL: 1 */
struct BlendRule {
    const float *a, *b;
    float sign;

    template <int width>
    HS_MEMBER void apply(int64_t, const float (&x)[width], const float (&z)[width], float (&y)[width]) const
    {
        const float first = a != nullptr ? *a : 1.0f, second = sign * *b;
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] = fmaf(first, x[i], second * z[i]);
    }
};

template <> constexpr int least_blocks<BlendRule, View<Bf16>> = 5; /* as of combine */

HsStatus op::blend_forward(HsContext *context, const HsBlendArgs *args)
{
    const float *const a = hs_tensor_present(&args->a) ? data_of<float>(args->a) + args->at : nullptr;
    const BlendRule rule = { a, data_of<float>(args->b) + args->at, args->sign };
    return run_elementwise(context, rule, args->x, args->z, args->y);
}

} // namespace HS_CUDA_NAMESPACE
