/* SPDX-License-Identifier: MIT
 *
 * Operations of continual learning that touch each element of a parameter once: accumulating squares, consolidation,
 * interpolation, ranges of columns.  Bound by memory; arithmetic in f32 with one rounding at each store, the merge's offset in double.
 * A thread reads all streams of its four elements before it writes any, so streams may share their memory.
 */
#include "kernels/cuda/toolbox/parameter.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/toolbox/view.cuh"
#include "kernels/ops/update_rule.h"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* Runs quad<whole>(i, left) of `operation` for this thread's quad, with `whole` where packs can be moved. */
template <typename Operation>
__global__ void __launch_bounds__(QUAD_THREADS) quad_kernel(const Operation operation, int64_t count, bool aligned)
{
    begin_after_kernel_before();
    const int64_t i = quad_index(), left = count - i;
    if (aligned && left >= QUAD)
        operation.template quad<true>(i, QUAD);
    else if (left > 0)
        operation.template quad<false>(i, left < QUAD ? (int)left : QUAD);
}

/* accumulator += weight (multiplier grad)^2; the multiplier first: a scaled gradient's square leaves f32's range. */
template <typename Gradient> struct SquareAccumulate {
    Gradient *grad;
    float *accumulator;
    float multiplier, weight;

    template <bool whole> __device__ __forceinline__ void quad(int64_t i, int left) const
    {
        const Pack<Gradient, QUAD> grad_quad = load_quad<whole>(grad, i, left);
        Pack<float, QUAD> sum = load_quad<whole>(accumulator, i, left);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float g = to_float(grad_quad.value[j]) * multiplier;
            sum.value[j] = fmaf(g * g, weight, sum.value[j]);
        }
        store_quad<whole>(accumulator, i, left, sum);
        clear_quad<whole>(grad, i, left);
    }
};

/* importance = decay importance + scale fresh;  anchor = p, over fresh where they share their memory */
template <typename Weight> struct ConsolidateOnline {
    float *fresh, *importance, *anchor;
    const Weight *parameter;
    float decay, scale;

    template <bool whole> __device__ __forceinline__ void quad(int64_t i, int left) const
    {
        const Pack<float, QUAD> fresh_quad = load_quad<whole>(fresh, i, left);
        Pack<float, QUAD> importance_quad = load_quad<whole>(importance, i, left), anchor_quad;
        const Pack<Weight, QUAD> p = load_quad<whole>(parameter, i, left);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            importance_quad.value[j] = fmaf(importance_quad.value[j], decay, fresh_quad.value[j] * scale);
        widen(p, anchor_quad.value);
        store_quad<whole>(importance, i, left, importance_quad);
        store_quad<whole>(anchor, i, left, anchor_quad);
        if (fresh != anchor)
            clear_quad<whole>(fresh, i, left);
    }
};

/* importance = max(0, importance + path / ((p - anchor)^2 + damping)); NaN stays to be seen */
template <typename Weight> struct ConsolidatePath {
    float *path, *importance, *anchor;
    const Weight *parameter;
    float damping;

    template <bool whole> __device__ __forceinline__ void quad(int64_t i, int left) const
    {
        const Pack<float, QUAD> path_quad = load_quad<whole>(path, i, left);
        Pack<float, QUAD> importance_quad = load_quad<whole>(importance, i, left);
        Pack<float, QUAD> anchor_quad = load_quad<whole>(anchor, i, left), p;
        widen(load_quad<whole>(parameter, i, left), p.value);
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float distance = p.value[j] - anchor_quad.value[j];
            const float value = importance_quad.value[j] + path_quad.value[j] / fmaf(distance, distance, damping);
            importance_quad.value[j] = value < 0.0f ? 0.0f : value;
        }
        store_quad<whole>(importance, i, left, importance_quad);
        store_quad<whole>(anchor, i, left, p);
        clear_quad<whole>(path, i, left);
    }
};

/* anchor + rate (p - anchor); at rate 1 rounding could miss p, so p is kept */
template <typename Parameter> struct Interpolate {
    const float *anchor;
    Parameter parameter;
    float rate;

    template <bool whole> __device__ __forceinline__ void quad(int64_t i, int left) const
    {
        const Pack<float, QUAD> anchor_quad = load_quad<whole>(anchor, i, left);
        float p[QUAD], stored[QUAD];
        widen(load_quad<whole>(parameter.kept(), i, left), p);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            if (rate != 1.0f)
                p[j] = HS_RULE_BACK(fmaf, p[j], rate, anchor_quad.value[j]);
        parameter.template store<whole>(i, left, p, stored);
    }
};

/* A merge's block walks over a stretch of this many elements, whatever the GPU: the offset's sum has one order. */
enum { MERGE_ELEMENTS = 8 * QUAD_BLOCK_ELEMENTS, MERGE_SUM_THREADS = 256 };

template <typename Weight> struct Merge {
    float *fresh, *importance, *anchor;
    const Weight *parameter;
    float scale;

    /* One quadratic in place of two; returns the quad's share of the offset.  Where F is 0 the anchor is p to the bit,
     * and the anchor that was there, which may be anything, does not reach the sum. */
    template <bool whole> __device__ __forceinline__ double quad(int64_t i, int left) const
    {
        const Pack<float, QUAD> fresh_quad = load_quad<whole>(fresh, i, left);
        Pack<float, QUAD> importance_quad = load_quad<whole>(importance, i, left);
        Pack<float, QUAD> anchor_quad = load_quad<whole>(anchor, i, left);
        float p[QUAD];
        widen(load_quad<whole>(parameter, i, left), p);
        double offset = 0.0;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const float added = fresh_quad.value[j] * scale, old = importance_quad.value[j], sum = old + added;
            const float distance = p[j] - anchor_quad.value[j];
            importance_quad.value[j] = sum;
            if (old == 0.0f) { /* also beyond the tensor's end: zeros were loaded */
                anchor_quad.value[j] = p[j];
                continue;
            }
            const float share = added / sum;
            anchor_quad.value[j] = fmaf(share, distance, anchor_quad.value[j]);
            offset = fma((double)distance * (double)distance, (double)(old * share), offset);
        }
        store_quad<whole>(importance, i, left, importance_quad);
        store_quad<whole>(anchor, i, left, anchor_quad);
        clear_quad<whole>(fresh, i, left);
        return offset;
    }
};

template <typename Weight>
__global__ void __launch_bounds__(QUAD_THREADS)
    consolidate_merge_kernel(const Merge<Weight> merge, int64_t count, bool aligned, double *partials)
{
    HS_SHARED(double, scratch, WARP_SIZE);
    begin_after_kernel_before();
    double offset = 0.0;
    int64_t i = (int64_t)blockIdx.x * MERGE_ELEMENTS + (int64_t)threadIdx.x * QUAD;
    for (int pass = 0; pass < MERGE_ELEMENTS / QUAD_BLOCK_ELEMENTS; pass++, i += QUAD_BLOCK_ELEMENTS) {
        const int64_t left = count - i;
        if (aligned && left >= QUAD)
            offset += merge.template quad<true>(i, QUAD);
        else if (left > 0)
            offset += merge.template quad<false>(i, left < QUAD ? (int)left : QUAD);
    }
    offset = block_reduce<Sum>(offset, 0.0, scratch);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = offset;
}

/* One block: *offset += the sum of the partial sums. */
__global__ void __launch_bounds__(MERGE_SUM_THREADS)
    consolidate_offset_kernel(const double *partials, int64_t count, double *offset)
{
    HS_SHARED(double, scratch, WARP_SIZE);
    begin_after_kernel_before();
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < count; i += MERGE_SUM_THREADS)
        sum += partials[i];
    sum = block_reduce<Sum>(sum, 0.0, scratch);
    if (threadIdx.x == 0)
        *offset += sum;
}

template <typename Operation>
HsStatus launch_quads(const HsContext *context, const char *name, const Operation &operation, int64_t count,
                      bool aligned)
{
    return hs_launch_after(context, name, quad_kernel<Operation>, quad_blocks(count), QUAD_THREADS, 0, operation, count,
                           aligned);
}

HsStatus merge(HsContext *context, const HsConsolidateArgs *args, bool aligned)
{
    const int64_t count = hs_tensor_count(&args->parameter);
    const unsigned blocks = blocks_for(count, MERGE_ELEMENTS);
    double *partials = static_cast<double *>(context->workspace);
    HS_TRY(dispatch_act(args->parameter.dtype, [&](auto weight) {
        using Weight = decltype(weight);
        const Merge<Weight> operation = { data_of<float>(args->fresh), data_of<float>(args->importance),
                                          data_of<float>(args->anchor), data_of<Weight>(args->parameter), args->scale };
        return hs_launch_after(context, HS_KERNEL(consolidate_merge_kernel<Weight>), blocks, QUAD_THREADS, 0, operation,
                               count, aligned, partials);
    }));
    return hs_launch_after(context, HS_KERNEL(consolidate_offset_kernel), 1, MERGE_SUM_THREADS, 0, partials,
                           (int64_t)blocks, args->offset);
}

/* copy_columns: a row of threads on a row; lane after lane a column, STRIPES apart. */
enum { COLUMN_ROWS = 8, COLUMN_STRIPES = 4 };

struct ColumnCopy {
    AnyView x, y;
    const float *minus, *scale;
    int64_t rows, columns, x_columns, y_columns, from, to;
};

__global__ void __launch_bounds__(COLUMN_ROWS *WARP_SIZE) copy_columns_kernel(const ColumnCopy copy)
{
    begin_after_kernel_before();
    const int64_t row = (int64_t)blockIdx.x * COLUMN_ROWS + threadIdx.y;
    const int64_t first = (int64_t)blockIdx.y * (COLUMN_STRIPES * WARP_SIZE) + threadIdx.x;
    if (row >= copy.rows)
        return;
    const float scale = copy.scale != nullptr ? copy.scale[row] : 1.0f;
#pragma unroll
    for (int stripe = 0; stripe < COLUMN_STRIPES; stripe++) {
        const int64_t column = first + stripe * WARP_SIZE, at = row * copy.x_columns + copy.from + column;
        if (column >= copy.columns)
            return;
        float value[1];
        copy.x.load(at, value);
        if (copy.minus != nullptr)
            value[0] -= copy.minus[at];
        value[0] *= scale;
        copy.y.store(row * copy.y_columns + copy.to + column, value);
    }
}

} // namespace

HsStatus op::copy_columns(HsContext *context, const HsCopyColumnsArgs *args)
{
    const ColumnCopy copy = { any_view_of(args->x),
                              any_view_of(args->y),
                              optional_data<float>(args->minus),
                              optional_data<float>(args->scale),
                              args->x.shape[0],
                              args->columns,
                              args->x.shape[1],
                              args->y.shape[1],
                              args->from,
                              args->to };
    const dim3 grid(blocks_for(copy.rows, COLUMN_ROWS), blocks_for(copy.columns, COLUMN_STRIPES * WARP_SIZE));
    return hs_launch_after(context, HS_KERNEL(copy_columns_kernel), grid, dim3(WARP_SIZE, COLUMN_ROWS), 0, copy);
}

HsStatus op::square_accumulate(HsContext *context, const HsSquareAccumulateArgs *args)
{
    return dispatch_act(args->grad.dtype, [&](auto gradient) {
        using Gradient = decltype(gradient);
        const SquareAccumulate<Gradient> operation = { data_of<Gradient>(args->grad), data_of<float>(args->accumulator),
                                                       args->multiplier, args->weight };
        return launch_quads(context, "square_accumulate_kernel", operation, hs_tensor_count(&args->grad),
                            quad_aligned(args->grad) && quad_aligned(args->accumulator));
    });
}

size_t workspace::consolidate(const HsContext *, const HsConsolidateArgs *args)
{
    return args->merge ? blocks_for(hs_tensor_count(&args->parameter), MERGE_ELEMENTS) * sizeof(double) : 0;
}

HsStatus op::consolidate(HsContext *context, const HsConsolidateArgs *args)
{
    const bool aligned = quad_aligned(args->fresh) && quad_aligned(args->importance) && quad_aligned(args->anchor) &&
                         quad_aligned(args->parameter);
    if (args->merge)
        return merge(context, args, aligned);
    return dispatch_act(args->parameter.dtype, [&](auto weight) {
        using Weight = decltype(weight);
        const ConsolidateOnline<Weight> operation = { data_of<float>(args->fresh),
                                                      data_of<float>(args->importance),
                                                      data_of<float>(args->anchor),
                                                      data_of<Weight>(args->parameter),
                                                      args->decay,
                                                      args->scale };
        return launch_quads(context, "consolidate_kernel", operation, hs_tensor_count(&args->parameter), aligned);
    });
}

HsStatus op::consolidate_path(HsContext *context, const HsConsolidatePathArgs *args)
{
    const bool aligned = quad_aligned(args->path) && quad_aligned(args->importance) && quad_aligned(args->anchor) &&
                         quad_aligned(args->parameter);
    return dispatch_act(args->parameter.dtype, [&](auto weight) {
        using Weight = decltype(weight);
        const ConsolidatePath<Weight> operation = { data_of<float>(args->path), data_of<float>(args->importance),
                                                    data_of<float>(args->anchor), data_of<Weight>(args->parameter),
                                                    args->damping };
        return launch_quads(context, "consolidate_path_kernel", operation, hs_tensor_count(&args->parameter), aligned);
    });
}

HsStatus op::interpolate(HsContext *context, const HsInterpolateArgs *args)
{
    const bool aligned = quad_aligned(args->anchor) && quad_aligned(args->master) && quad_aligned(args->weight);
    return dispatch_parameter(args->master, args->weight, args->rng, [&](auto parameter) {
        const Interpolate<decltype(parameter)> operation = { data_of<float>(args->anchor), parameter, args->rate };
        return launch_quads(context, "interpolate_kernel", operation, hs_tensor_count(&args->weight), aligned);
    });
}

} // namespace HS_CUDA_NAMESPACE
