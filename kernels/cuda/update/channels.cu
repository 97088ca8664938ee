/* SPDX-License-Identifier: MIT
 *
 * What APOLLO's steps are made of.  A random matrix is arithmetic alone: a thread turns a draw of Philox into four of its
 * numbers.  Factors take three kernels, bound by memory: moments and their sums down each column of r, sums of the
 * gradient's squares, and one block that adds all of them up, always in the same order, and writes the factors.
 */
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/toolbox/view.cuh"
#include "kernels/cuda/update/update_rule.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* A tile of columns has a warp's width; its HEIGHT warps take rows in turns.  Long columns of a gradient are cut in at
 * most SLICES, so that there are enough blocks. */
enum { THREADS = 256, WIDTH = WARP_SIZE, HEIGHT = THREADS / WIDTH, SLICES = 8, SLICE_ROWS = 128, LAST_THREADS = 1024 };

__global__ void __launch_bounds__(QUAD_THREADS)
    random_matrix_kernel(HsRng rng, uint32_t interval, float *y, int64_t count)
{
    begin_after_kernel_before();
    const int64_t i = quad_index();
    if (i >= count)
        return;
    rng.step = (rng.step + (rng.step_counter != nullptr ? *rng.step_counter : 0u)) / interval;
    rng.step_counter = nullptr;
    const uint4 draw = rng_draw(rng, (uint64_t)i / QUAD);
    Pack<float, QUAD> quad;
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        quad.value[j] = (float)(__popc(rng_word(draw, j)) - 16);
    if (count - i >= QUAD && ((uintptr_t)y & 15) == 0)
        store_quad<true>(y, i, QUAD, quad);
    else
        store_quad<false>(y, i, count - i < QUAD ? (int)(count - i) : (int)QUAD, quad);
}

struct Channels {
    const HsStepScalars *scalars;
    HsRng rng;
    const float *r, *g; /* g null: there is no limit */
    float *norm, *factors;
    float *t_squares, *r_squares; /* [channels] */
    float *g_squares;             /* [slices, channels] */
    int64_t depth, channels, rows, columns;
    int slices;
    float beta1, beta2, epsilon, scale, growth;
    bool whole;
};

HS_DEVICE void store_moment(float *moment, int64_t i, float value, uint32_t)
{
    moment[i] = value;
}

HS_DEVICE void store_moment(Bf16 *moment, int64_t i, float value, uint32_t random16)
{
    moment[i] = round_stochastically(value, random16);
}

HS_DEVICE uint32_t word_of(const float *, const HsRng &, int64_t)
{
    return 0;
}

HS_DEVICE uint32_t word_of(const Bf16 *, const HsRng &rng, int64_t i)
{
    return rng_word(rng_draw(rng, (uint64_t)i / QUAD), (int)(i % QUAD));
}

/* The sums of a tile's warps, in their order; by threads of the first one. */
HS_DEVICE float down_the_tile(float value, float *scratch)
{
    const int lane = (int)threadIdx.x % WIDTH, warp = (int)threadIdx.x / WIDTH;
    scratch[warp * WIDTH + lane] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; warp == 0 && i < HEIGHT; i++)
        sum += scratch[i * WIDTH + lane];
    __syncthreads();
    return sum;
}

template <typename Moment>
__global__ void __launch_bounds__(THREADS) channel_moments_kernel(Channels call, Moment *m, Moment *v)
{
    HS_SHARED(float, scratch, THREADS);
    begin_after_kernel_before();
    const HsStepScalars scalars = *call.scalars;
    if (scalars.skip)
        return;
    const int64_t channel = (int64_t)blockIdx.x * WIDTH + threadIdx.x % WIDTH;
    const float correction1 = 1.0f / scalars.bias_correction1, correction2 = 1.0f / scalars.bias_correction2;
    float t_sum = 0.0f, r_sum = 0.0f;
    for (int64_t k = threadIdx.x / WIDTH; channel < call.channels && k < call.depth; k += HEIGHT) {
        const int64_t i = k * call.channels + channel;
        const float r = call.r[i];
        const float m_new = HS_RULE_ADAMW_M(fmaf, to_float(m[i]), r, call.beta1, 1.0f - call.beta1);
        const float v_new = HS_RULE_ADAMW_V(fmaf, to_float(v[i]), r, call.beta2, 1.0f - call.beta2);
        const float t = m_new * correction1 / (sqrtf(v_new * correction2) + call.epsilon);
        const uint32_t word = word_of(m, call.rng, i);
        store_moment(m, i, m_new, word >> 16);
        store_moment(v, i, v_new, word & 0xffffu);
        t_sum = fmaf(t, t, t_sum);
        r_sum = fmaf(r, r, r_sum);
    }
    t_sum = down_the_tile(t_sum, scratch);
    r_sum = down_the_tile(r_sum, scratch);
    if (threadIdx.x < WIDTH && channel < call.channels) {
        call.t_squares[channel] = t_sum;
        call.r_squares[channel] = r_sum;
    }
}

__global__ void __launch_bounds__(THREADS) column_squares_kernel(Channels call)
{
    HS_SHARED(float, scratch, THREADS);
    begin_after_kernel_before();
    if (call.scalars->skip)
        return;
    const int64_t channel = (int64_t)blockIdx.x * WIDTH + threadIdx.x % WIDTH;
    const int64_t first = (int64_t)blockIdx.y * HEIGHT + threadIdx.x / WIDTH, stride = (int64_t)call.slices * HEIGHT;
    float sum = 0.0f;
    for (int64_t row = first; channel < call.channels && row < call.rows; row += stride) {
        const float g = call.g[row * call.columns + channel];
        sum = fmaf(g, g, sum);
    }
    sum = down_the_tile(sum, scratch);
    if (threadIdx.x < WIDTH && channel < call.channels)
        call.g_squares[blockIdx.y * call.channels + channel] = sum;
}

__global__ void __launch_bounds__(THREADS) row_squares_kernel(Channels call)
{
    HS_SHARED(float, scratch, THREADS / WARP_SIZE);
    begin_after_kernel_before();
    if (call.scalars->skip)
        return;
    const int64_t row = blockIdx.x;
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < call.columns; i += THREADS) {
        const float g = call.g[row * call.columns + i];
        sum = fmaf(g, g, sum);
    }
    sum = block_reduce<Sum>(sum, 0.0f, scratch);
    if (threadIdx.x == 0)
        call.g_squares[row] = sum;
}

/* 0 where the divisor is. */
HS_DEVICE float ratio(float t_squares, float r_squares)
{
    return r_squares > 0.0f ? sqrtf(t_squares) / sqrtf(r_squares) : 0.0f;
}

__global__ void __launch_bounds__(LAST_THREADS) channel_factors_kernel(Channels call)
{
    HS_SHARED(float, scratch, LAST_THREADS / WARP_SIZE);
    begin_after_kernel_before();
    const bool skip = call.scalars->skip != 0;
    float t_sum = 0.0f, r_sum = 0.0f, g_sum = 0.0f, moved = 0.0f;
    for (int64_t j = threadIdx.x; !skip && j < call.channels; j += LAST_THREADS) {
        const float t = call.t_squares[j], r = call.r_squares[j];
        float g = 0.0f;
        for (int slice = 0; call.g != nullptr && slice < call.slices; slice++)
            g += call.g_squares[slice * call.channels + j];
        t_sum += t;
        r_sum += r;
        g_sum += g;
        const float step = ratio(t, r) * sqrtf(g); /* f^2 might be infinite */
        moved = fmaf(step, step, moved);
    }
    t_sum = block_reduce<Sum>(t_sum, 0.0f, scratch);
    r_sum = block_reduce<Sum>(r_sum, 0.0f, scratch);
    g_sum = block_reduce<Sum>(g_sum, 0.0f, scratch);
    moved = block_reduce<Sum>(moved, 0.0f, scratch);
    const float of_all = ratio(t_sum, r_sum);
    float limit = 1.0f;
    if (call.g != nullptr && !skip) {
        const float now = call.whole ? of_all * sqrtf(g_sum) : sqrtf(moved), most = call.growth * *call.norm;
        limit = most > 0.0f && now > most ? most / now : 1.0f;
        __syncthreads(); /* all have read the norm */
        if (threadIdx.x == 0)
            *call.norm = limit * now;
    }
    for (int64_t j = threadIdx.x; j < call.channels; j += LAST_THREADS) {
        const float f = skip ? 0.0f : call.whole ? of_all : ratio(call.t_squares[j], call.r_squares[j]);
        call.factors[j] = call.scale * limit * f;
    }
}

int slices_of(const HsChannelFactorsArgs *args)
{
    if (!hs_tensor_present(&args->g) || !args->of_columns)
        return 1;
    const int64_t slices = blocks_for(args->g.shape[0], SLICE_ROWS);
    return slices < SLICES ? (int)slices : (int)SLICES;
}

HsStatus launch_squares(HsContext *context, const HsChannelFactorsArgs *args, const Channels &call)
{
    if (call.g == nullptr)
        return HS_OK;
    if (!args->of_columns)
        return hs_launch_after(context, HS_KERNEL(row_squares_kernel), (unsigned)call.rows, THREADS, 0, call);
    const dim3 grid(blocks_for(call.channels, WIDTH), (unsigned)call.slices);
    return hs_launch_after(context, HS_KERNEL(column_squares_kernel), grid, THREADS, 0, call);
}

} // namespace

HsStatus op::random_matrix(HsContext *context, const HsRandomMatrixArgs *args)
{
    const int64_t count = hs_tensor_count(&args->y);
    return hs_launch_after(context, HS_KERNEL(random_matrix_kernel), quad_blocks(count), QUAD_THREADS, 0, args->rng,
                           args->interval, data_of<float>(args->y), count);
}

HsStatus op::channel_factors(HsContext *context, const HsChannelFactorsArgs *args)
{
    const int64_t channels = args->r.shape[1];
    const bool limited = hs_tensor_present(&args->g);
    Channels call = {};
    call.scalars = args->scalars;
    call.rng = args->rng;
    call.r = data_of<float>(args->r);
    call.g = optional_data<float>(args->g);
    call.norm = optional_data<float>(args->norm);
    call.factors = data_of<float>(args->factors);
    call.t_squares = static_cast<float *>(context->workspace);
    call.r_squares = call.t_squares + channels;
    call.g_squares = call.r_squares + channels;
    call.depth = args->r.shape[0];
    call.channels = channels;
    call.rows = limited ? args->g.shape[0] : 0;
    call.columns = limited ? args->g.shape[1] : 0;
    call.slices = slices_of(args);
    call.beta1 = args->beta1;
    call.beta2 = args->beta2;
    call.epsilon = args->epsilon;
    call.scale = args->scale;
    call.growth = args->growth;
    call.whole = args->whole;
    const unsigned blocks = blocks_for(channels, WIDTH);
    if (args->m.dtype == HS_BF16)
        HS_TRY(hs_launch_after(context, HS_KERNEL(channel_moments_kernel<Bf16>), blocks, THREADS, 0, call,
                               data_of<Bf16>(args->m), data_of<Bf16>(args->v)));
    else
        HS_TRY(hs_launch_after(context, HS_KERNEL(channel_moments_kernel<float>), blocks, THREADS, 0, call,
                               data_of<float>(args->m), data_of<float>(args->v)));
    HS_TRY(launch_squares(context, args, call));
    return hs_launch_after(context, HS_KERNEL(channel_factors_kernel), 1, LAST_THREADS, 0, call);
}

size_t workspace::channel_factors(const HsContext *, const HsChannelFactorsArgs *args)
{
    return (size_t)(2 + slices_of(args)) * (size_t)args->r.shape[1] * sizeof(float);
}

} // namespace HS_CUDA_NAMESPACE
