/* SPDX-License-Identifier: MIT
 *
 * QK-norm: root-mean-square norm of each q and k head of the packed projection, or of all q features at once and all k
 * features at once, before RoPE; v heads are copied.
 *     y = weight xhat,   xhat = x rstd,   rstd = 1 / sqrt(mean(x^2) + epsilon)
 *     dx = rstd (g - xhat mean(g xhat)),   g = weight dy,   dweight += sum over rows and heads of dy xhat
 *
 * Bound by memory.  A head (at most 256 elements) is held by a group of `lanes` lanes of one warp, 8 elements each, so
 * sums are a few shuffles and there is no barrier.  Neighbouring groups take neighbouring heads: a warp's accesses are
 * contiguous.  All of a kind at once is a row of a norm, in wider rows: norm.cu's kernels, and a copy of columns.
 */
#include "kernels/cuda/layers/norm.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { THREADS = 256, TILE = 8 };

/* How heads lie in rows and on lanes. */
struct HeadLayout {
    int64_t rows;
    int query_heads, normed_heads, row_heads, head_width;
    int lanes; /* of a group: a power of two */
};

static HeadLayout head_layout(const HsHeads &heads)
{
    int lanes = 1;
    while (lanes * TILE < heads.head_dim)
        lanes *= 2;
    const int query_heads = (int)heads.heads, normed = query_heads + (int)heads.kv_heads;
    return { heads.batch * heads.sequence_length, query_heads,         normed,
             normed + (int)heads.kv_heads,        (int)heads.head_dim, lanes };
}

/* Sum over the lanes of a group; every lane of the warp calls. */
HS_DEVICE float group_sum(float value, int lanes)
{
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(FULL_WARP, value, offset);
    return value;
}

/* This thread's packs of the head that begins at `start`; zeros beyond its end and where there is none. */
template <int width, typename X>
HS_DEVICE void load_head(const X &x, int64_t start, int head_width, int lanes, float (&values)[TILE / width][width])
{
    const int lane = (int)threadIdx.x % lanes;
#pragma unroll
    for (int pack = 0; pack < TILE / width; pack++) {
        const int column = (pack * lanes + lane) * width;
        if (column < head_width) {
            x.load(start + column, values[pack]);
        } else {
#pragma unroll
            for (int i = 0; i < width; i++)
                values[pack][i] = 0.0f;
        }
    }
}

/* The same of a weight; of a norm without one, ones. */
template <int width>
HS_DEVICE void load_head_weight(const View<float> &weight, int head_width, int lanes,
                                float (&values)[TILE / width][width])
{
    if (weight.data) {
        load_head<width>(weight, 0, head_width, lanes, values);
    } else {
#pragma unroll
        for (int pack = 0; pack < TILE / width; pack++)
#pragma unroll
            for (int i = 0; i < width; i++)
                values[pack][i] = 1.0f;
    }
}

template <int width, typename Y>
HS_DEVICE void store_head(const Y &y, int64_t start, int head_width, int lanes,
                          const float (&values)[TILE / width][width])
{
    const int lane = (int)threadIdx.x % lanes;
#pragma unroll
    for (int pack = 0; pack < TILE / width; pack++) {
        const int column = (pack * lanes + lane) * width;
        if (column < head_width)
            y.store(start + column, values[pack]);
    }
}

template <typename X> struct HeadNormForward {
    HeadLayout layout;
    X x, y;
    View<float> q_weight, k_weight; /* data may be NULL */
    float *rstd;
    float epsilon;
};

template <int width, typename Task> __global__ void __launch_bounds__(THREADS) head_norm_forward_kernel(const Task task)
{
    begin_after_kernel_before();
    const HeadLayout &layout = task.layout;
    const int groups = THREADS / layout.lanes;
    const int64_t index = (int64_t)blockIdx.x * groups + (int)threadIdx.x / layout.lanes;
    const int64_t row = (int64_t)((uint64_t)index / (uint32_t)layout.row_heads);
    const int head = (int)(index - row * layout.row_heads);
    /* A group without a head holds zeros and stays for the shuffles. */
    const int head_width = row < layout.rows ? layout.head_width : 0;
    float x[TILE / width][width], squares = 0.0f;
    load_head<width>(task.x, index * layout.head_width, head_width, layout.lanes, x);
#pragma unroll
    for (int pack = 0; pack < TILE / width; pack++)
#pragma unroll
        for (int i = 0; i < width; i++)
            squares = fmaf(x[pack][i], x[pack][i], squares);
    squares = group_sum(squares, layout.lanes);
    if (head < layout.normed_heads) {
        const float rstd = 1.0f / sqrtf(squares / (float)layout.head_width + task.epsilon);
        float weight[TILE / width][width];
        load_head_weight<width>(head < layout.query_heads ? task.q_weight : task.k_weight, head_width, layout.lanes,
                                weight);
#pragma unroll
        for (int pack = 0; pack < TILE / width; pack++)
#pragma unroll
            for (int i = 0; i < width; i++)
                x[pack][i] *= weight[pack][i] * rstd;
        if (row < layout.rows && (int)threadIdx.x % layout.lanes == 0)
            task.rstd[row * layout.normed_heads + head] = rstd;
    }
    store_head<width>(task.y, index * layout.head_width, head_width, layout.lanes, x);
}

template <typename Gradient, typename X, typename Result> struct HeadNormBackward {
    HeadLayout layout;
    Gradient dy;
    X x;
    Result dx;
    View<float> q_weight, k_weight;
    const float *rstd;
    float *partials;
    int64_t block_rows;
    AmaxOut amax; /* of dx */
};

/* The block's sums of one weight: those of its groups, in their order. */
template <int width>
HS_DEVICE void store_group_sums(const HeadLayout &layout, const float (&sums)[TILE / width][width], float *slots,
                                float *destination)
{
    const int group = (int)threadIdx.x / layout.lanes, groups = THREADS / layout.lanes;
    store_head<width>(View<float>{ slots }, group * layout.head_width, layout.head_width, layout.lanes, sums);
    __syncthreads();
    for (int column = (int)threadIdx.x; column < layout.head_width; column += THREADS) {
        float sum = 0.0f;
        for (int slot = 0; slot < groups; slot++)
            sum += slots[slot * layout.head_width + column];
        destination[column] = sum;
    }
    __syncthreads();
}

template <int width, typename Task>
__global__ void __launch_bounds__(THREADS) head_norm_backward_kernel(const Task task)
{
    HS_SHARED(float, slots, THREADS *TILE); /* [groups][head width] */
    begin_after_kernel_before();
    const HeadLayout &layout = task.layout;
    const int groups = THREADS / layout.lanes;
    const int64_t first = (int64_t)blockIdx.x * task.block_rows;
    const int64_t rows = layout.rows - first < task.block_rows ? layout.rows - first : task.block_rows;
    const unsigned heads = (unsigned)rows * (unsigned)layout.row_heads;
    float dq_weight[TILE / width][width] = {}, dk_weight[TILE / width][width] = {};
    uint32_t most = 0;
    for (unsigned base = 0; base < heads; base += (unsigned)groups) {
        const unsigned index = base + threadIdx.x / (unsigned)layout.lanes;
        const int row_in_block = (int)(index / (unsigned)layout.row_heads);
        const int head = (int)(index % (unsigned)layout.row_heads);
        const int head_width = index < heads ? layout.head_width : 0;
        const int64_t start = (first * layout.row_heads + index) * layout.head_width;
        const bool normed = head < layout.normed_heads, query = head < layout.query_heads, key = normed && !query;
        float dy[TILE / width][width], x[TILE / width][width], weight[TILE / width][width];
        load_head<width>(task.dy, start, head_width, layout.lanes, dy);
        load_head<width>(task.x, start, normed ? head_width : 0, layout.lanes, x);
        load_head_weight<width>(query ? task.q_weight : task.k_weight, normed ? head_width : 0, layout.lanes, weight);
        const bool has_rstd = normed && index < heads;
        const float rstd = has_rstd ? task.rstd[(first + row_in_block) * layout.normed_heads + head] : 0.0f;
        float sum = 0.0f;
#pragma unroll
        for (int pack = 0; pack < TILE / width; pack++) {
#pragma unroll
            for (int i = 0; i < width; i++) {
                x[pack][i] *= rstd; /* xhat; 0 for v heads */
                const float term = dy[pack][i] * x[pack][i];
                dq_weight[pack][i] += query ? term : 0.0f;
                dk_weight[pack][i] += key ? term : 0.0f;
                sum = fmaf(term, weight[pack][i], sum);
            }
        }
        const float mean = group_sum(sum, layout.lanes) / (float)layout.head_width;
        if (normed) {
#pragma unroll
            for (int pack = 0; pack < TILE / width; pack++)
#pragma unroll
                for (int i = 0; i < width; i++)
                    dy[pack][i] = rstd * (weight[pack][i] * dy[pack][i] - x[pack][i] * mean);
        }
        store_head<width>(task.dx, start, head_width, layout.lanes, dy);
#pragma unroll
        for (int pack = 0; pack < TILE / width && task.amax.to; pack++) /* zeros behind the head */
            most = largest_of(dy[pack], most);
    }
    leave_amax(task.amax, most);
    float *destination = task.partials + (int64_t)blockIdx.x * 2 * layout.head_width;
    store_group_sums<width>(layout, dq_weight, slots, destination);
    store_group_sums<width>(layout, dk_weight, slots, destination + layout.head_width);
}

template <int width, typename X>
static HsStatus launch_forward(const HsContext *context, const HsHeadNormArgs *args, X x, X y)
{
    using Task = HeadNormForward<X>;
    const HeadLayout layout = head_layout(args->heads);
    const Task task = {
        layout,       x, y, view_of<float>(args->q_weight), view_of<float>(args->k_weight), data_of<float>(args->rstd),
        args->epsilon
    };
    const unsigned blocks = blocks_for(layout.rows * layout.row_heads, THREADS / layout.lanes);
    return hs_launch_after(context, HS_KERNEL((head_norm_forward_kernel<width, Task>)), blocks, THREADS, 0, task);
}

/* `columns` columns of rows of a wider matrix, from `first` on. */
static HsTensor stretch_of(const HsTensor &matrix, int64_t first, int64_t columns)
{
    char *const begin = data_of<char>(matrix) + (size_t)first * hs_dtype_bytes(matrix.dtype);
    return hs_tensor_2d(begin, matrix.dtype, matrix.shape[0], columns);
}

/* Column `which` of rstd [N,2]. */
static HsTensor statistic_of(const HsTensor &rstd, int64_t which)
{
    return hs_tensor_1d(data_of<float>(rstd) + which, HS_F32, rstd.shape[0]);
}

/* Of queries, keys and values: their first columns, and the row's end. */
struct Columns {
    int64_t query, key, value, end;

    static Columns of(const HsHeads &heads)
    {
        const int64_t queries = heads.heads * heads.head_dim, keys = heads.kv_heads * heads.head_dim;
        return { 0, queries, queries + keys, queries + 2 * keys };
    }
};

static HsStatus copy_values(HsContext *context, const HsTensor &from, const HsTensor &to, const Columns &at)
{
    HsCopyColumnsArgs copy = {};
    copy.x = from;
    copy.from = copy.to = at.value;
    copy.columns = at.end - at.value;
    copy.y = to;
    return op::copy_columns(context, &copy);
}

static HsStatus whole_forward(HsContext *context, const HsHeadNormArgs *args)
{
    const Columns at = Columns::of(args->heads);
    HsNormArgs norm = {};
    norm.kind = HS_NORM_RMS;
    norm.epsilon = args->epsilon;
    norm.x = stretch_of(args->x, at.query, at.key);
    norm.weight = args->q_weight;
    norm.y = stretch_of(args->y, at.query, at.key);
    norm.rstd = statistic_of(args->rstd, 0);
    HS_TRY(norm_stretches(context, &norm, at.end));
    norm.x = stretch_of(args->x, at.key, at.value - at.key);
    norm.weight = args->k_weight;
    norm.y = stretch_of(args->y, at.key, at.value - at.key);
    norm.rstd = statistic_of(args->rstd, 1);
    HS_TRY(norm_stretches(context, &norm, at.end));
    return copy_values(context, args->x, args->y, at);
}

HsStatus op::head_norm_forward(HsContext *context, const HsHeadNormArgs *args)
{
    if (args->whole)
        return whole_forward(context, args);
    if (!packs_fit(args->heads.head_dim, args->x, args->y) || !aligned_to(args->q_weight.data, 16) ||
        !aligned_to(args->k_weight.data, 16))
        return launch_forward<1>(context, args, any_view_of(args->x), any_view_of(args->y));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_forward<access_width<T>>(context, args, view_of<T>(args->x), view_of<T>(args->y));
    });
}

static PartialSums backward_sums(const HsHeadNormBackwardArgs *args)
{
    return partial_sums(args->x.shape[0], 1);
}

/* The queries' stretch, or the keys'. */
static HsNormBackwardArgs whole_backward_of(const HsHeadNormBackwardArgs *args, bool query)
{
    const Columns at = Columns::of(args->heads);
    const int64_t first = query ? at.query : at.key, columns = query ? at.key : at.value - at.key;
    HsNormBackwardArgs norm = {};
    norm.kind = HS_NORM_RMS;
    norm.dy = stretch_of(args->dy, first, columns);
    norm.x = stretch_of(args->x, first, columns);
    norm.weight = query ? args->q_weight : args->k_weight;
    norm.rstd = statistic_of(args->rstd, query ? 0 : 1);
    norm.dx = stretch_of(args->dx, first, columns);
    norm.dweight = query ? args->dq_weight : args->dk_weight;
    return norm;
}

static HsStatus whole_backward(HsContext *context, const HsHeadNormBackwardArgs *args)
{
    const Columns at = Columns::of(args->heads);
    const HsNormBackwardArgs query = whole_backward_of(args, true), key = whole_backward_of(args, false);
    HS_TRY(norm_stretches_backward(context, &query, at.end));
    HS_TRY(norm_stretches_backward(context, &key, at.end));
    HS_TRY(copy_values(context, args->dy, args->dx, at));
    return launch_amax(context, args->dx);
}

size_t workspace::head_norm_backward(const HsContext *, const HsHeadNormBackwardArgs *args)
{
    if (args->whole) { /* one after the other */
        const int64_t rows = args->x.shape[0], width = args->heads.head_dim;
        const size_t of_queries = norm_stretches_workspace(rows, args->heads.heads * width);
        const size_t of_keys = norm_stretches_workspace(rows, args->heads.kv_heads * width);
        return of_queries > of_keys ? of_queries : of_keys;
    }
    return backward_sums(args).bytes(args->heads.head_dim, 2);
}

template <int width, typename Gradient, typename X, typename Result>
static HsStatus launch_backward(const HsContext *context, const HsHeadNormBackwardArgs *args, Gradient dy, X x,
                                Result dx)
{
    using Task = HeadNormBackward<Gradient, X, Result>;
    const PartialSums sums = backward_sums(args);
    const Task task = { head_layout(args->heads),
                        dy,
                        x,
                        dx,
                        view_of<float>(args->q_weight),
                        view_of<float>(args->k_weight),
                        data_of<float>(args->rstd),
                        static_cast<float *>(context->workspace),
                        sums.rows,
                        amax_out(args->dx) };
    return hs_launch_after(context, HS_KERNEL((head_norm_backward_kernel<width, Task>)), (unsigned)sums.blocks, THREADS,
                           0, task);
}

static HsStatus launch_backward_by_dtype(const HsContext *context, const HsHeadNormBackwardArgs *args)
{
    const bool one_dtype = args->dy.dtype == args->x.dtype && args->x.dtype == args->dx.dtype;
    if (!one_dtype || !packs_fit(args->heads.head_dim, args->dy, args->x, args->dx) ||
        !aligned_to(args->q_weight.data, 16) || !aligned_to(args->k_weight.data, 16))
        return launch_backward<1>(context, args, any_view_of(args->dy), any_view_of(args->x), any_view_of(args->dx));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_backward<access_width<T>>(context, args, view_of<T>(args->dy), view_of<T>(args->x),
                                                view_of<T>(args->dx));
    });
}

HsStatus op::head_norm_backward(HsContext *context, const HsHeadNormBackwardArgs *args)
{
    if (args->whole)
        return whole_backward(context, args);
    HS_TRY(launch_backward_by_dtype(context, args));
    const PartialTotals totals = { { any_view_of(args->dq_weight), any_view_of(args->dk_weight) }, 2 };
    return add_partial_sums(context, backward_sums(args), totals, args->heads.head_dim);
}

} // namespace HS_CUDA_NAMESPACE
