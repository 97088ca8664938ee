/* SPDX-License-Identifier: MIT
 *
 * Layer norm (Ba, Kiros & Hinton 2016, eq. 4) and root-mean-square norm (Zhang & Sennrich 2019, eq. 4), forward:
 *     y = weight (x - mean) rstd + bias [+ addend],   rstd = 1 / sqrt(mean((x - mean)^2) + epsilon);   rms: mean = 0
 *
 * Bound by memory: x is read once, y written once.  The row stays in registers between the passes over it, so the
 * variance is taken of centred values at no cost in bytes.  weight and bias come from the L1 cache.
 *
 * Where there is a branch, x = residual + mask(branch) / (1 - p) is made on the way into those registers, and written.
 * Only the residual stream's own format, f32, is made so: what is stored is what the registers hold.
 *
 * Where there is an addend, the stream of y's format, its packs are under way while the row is summed.
 *
 * Where y is cast to E4M3 by a scale that is known, in packs of bf16, its codes are written in place of it.
 */
#include "kernels/cuda/layers/dropout.cuh"
#include "kernels/cuda/layers/norm.cuh"
#include "kernels/cuda/toolbox/cast.cuh"

namespace HS_CUDA_NAMESPACE
{

template <typename X, typename Y, typename Place = WholeRows> struct NormForward : Place {
    static constexpr bool sums = false, adds = false;
    X x;
    Y y;
    View<float> weight, bias; /* data may be NULL */
    float *mean, *rstd;       /* mean: NULL for rms */
    int64_t rows;
    int columns;
    float epsilon;
    bool centre;
    AmaxOut amax; /* of y */

    /* Whether the kernel looks at what it stores (norm.cuh). */
    static constexpr bool looks = looks_at<Y>;

    HS_MEMBER int64_t at(int64_t row, int column) const
    {
        return Place::begin(row, columns) + column;
    }

    HS_MEMBER ValuesAsTheyAre leaving(CastCounts &) const
    {
        return {};
    }
};

/* y is added to a stream like it. */
template <typename X, typename Y> struct AddNormForward : NormForward<X, Y> {
    static constexpr bool adds = true;
    Y addend; /* y itself in place */
};

/* x is made of branch and residual first.  These kernels have no registers for the question whether there is a weight. */
template <typename Branch, bool weighted> struct SumNormForward : NormForward<View<float>, View<Branch>> {
    static constexpr bool sums = true, has_weight = weighted;
    View<Branch> branch;
    View<float> residual;
    DropoutRule rule;
};

/* y's codes are written in place of it. */
template <typename Task> struct CastNormForward : Task {
    CastOut cast;

    HS_MEMBER CastTo<HS_E4M3> leaving(CastCounts &counts) const
    {
        return { cast.data, cast.scaling->kept, &counts };
    }
};

/* Neighbours of the branch as they lie in memory. */
template <int width, typename Branch, bool weighted>
HS_DEVICE Pack<Branch, width> load_branch(const SumNormForward<Branch, weighted> &task, int64_t at)
{
    return load_pack<Branch, width>(task.branch.data + at);
}

/* A pack of x, written; x: the residual, then the sum. */
template <int width, typename Branch, bool weighted>
HS_DEVICE void make_sum(const SumNormForward<Branch, weighted> &task, const DropoutRule &rule, int64_t at,
                        const Pack<Branch, width> &branch, float (&x)[width])
{
    float addend[width], sum[width];
#pragma unroll
    for (int i = 0; i < width; i++)
        addend[i] = to_float(branch.value[i]);
    /* Rows are whole packs of four, as many as a draw has words. */
    rule.template apply<width, true>(at, addend, x, sum);
    task.x.store(at, sum);
#pragma unroll
    for (int i = 0; i < width; i++)
        x[i] = sum[i];
}

/* This thread's packs of a row as they are; outside of the row zeros. */
template <bool one_warp, int width, int packs, typename Task>
HS_DEVICE void read_row(const Task &task, int64_t row, int columns, float (&x)[packs][width])
{
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns) {
            task.x.load(task.at(row, column), x[pack]);
        } else {
#pragma unroll
            for (int i = 0; i < width; i++)
                x[pack][i] = 0.0f;
        }
    }
}

/* The same, made and written.  All loads come before the first use, the branch's as they lie in memory. */
template <bool one_warp, int width, int packs, typename Branch, bool weighted>
HS_DEVICE void make_row(const SumNormForward<Branch, weighted> &task, int64_t row, int columns,
                        float (&x)[packs][width])
{
    Pack<Branch, width> branch[packs];
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        branch[pack] = {};
#pragma unroll
        for (int i = 0; i < width; i++)
            x[pack][i] = 0.0f;
        if (column < columns) {
            branch[pack] = load_branch<width>(task, task.at(row, column));
            task.residual.load(task.at(row, column), x[pack]);
        }
    }
    const DropoutRule rule = task.rule.at_step();
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns)
            make_sum(task, rule, task.at(row, column), branch[pack], x[pack]);
    }
}

/* This thread's packs of the addend, if there is one.  Single elements' addresses leave no registers to wait in. */
template <bool one_warp, int width, int packs, typename Task, bool adds = Task::adds> struct AddendPart {
    HS_MEMBER void load(const Task &, int64_t, int)
    {
    }
    HS_MEMBER void load_at(const Task &, int64_t, int)
    {
    }
    HS_MEMBER void add_to(const Task &, int64_t, int, float (&)[width]) const
    {
    }
};
template <bool one_warp, int width, int packs, typename Task> struct AddendPart<one_warp, width, packs, Task, true> {
    static constexpr bool waits = width > 1;
    decltype(fetch<width>(Task{}.addend, 0)) part[waits ? packs : 1];

    HS_MEMBER void load(const Task &task, int64_t row, int columns)
    {
#pragma unroll
        for (int pack = 0; waits && pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack);
            part[pack] = {};
            if (column < columns)
                part[pack] = fetch<width>(task.addend, task.at(row, column));
        }
    }

    /* As pack 0. */
    HS_MEMBER void load_at(const Task &task, int64_t row, int column)
    {
        if constexpr (waits)
            part[0] = fetch<width>(task.addend, task.at(row, column));
    }

    HS_MEMBER void add_to(const Task &task, int64_t at, int pack, float (&y)[width]) const
    {
        float addend[width];
        if constexpr (waits)
            unpack(task.addend, part[pack], addend);
        else
            task.addend.load(at, addend);
#pragma unroll
        for (int i = 0; i < width; i++)
            y[i] += addend[i];
    }
};

/* Pack number `pack` of y, from x - mean; the largest magnitude so far becomes that of y, too. */
template <int width, typename Task, typename Leaving, typename Addend>
HS_DEVICE void store_normalized(const Task &task, const Leaving &leaving, int64_t row, int pack, int column,
                                const float (&centred)[width], float rstd, const Addend &addend, uint32_t &most)
{
    float weight[width], bias[width] = {}, y[width];
    if constexpr (Task::sums)
        load_known_weight<Task::has_weight>(task.weight, column, weight);
    else
        load_weight(task.weight, column, weight);
    if (task.bias.data)
        task.bias.load(column, bias);
#pragma unroll
    for (int i = 0; i < width; i++)
        y[i] = fmaf(weight[i], centred[i] * rstd, bias[i]);
    addend.add_to(task, task.at(row, column), pack, y);
    if constexpr (Leaving::casts)
        leaving.store(task.at(row, column), y);
    else
        task.y.store(task.at(row, column), y);
    if (Task::looks && task.amax.to)
        most = largest_of(y, most);
}

template <typename Task> HS_DEVICE void store_statistics(const Task &task, int64_t row, float mean, float rstd)
{
    if (threadIdx.x != 0)
        return;
    if (task.mean)
        task.mean[row] = mean;
    task.rstd[task.statistic(row)] = rstd;
}

template <int width, int tile, bool one_warp, typename Task>
__global__ void __launch_bounds__(most_threads<one_warp>) norm_forward_kernel(const Task task)
{
    HS_SHARED(float, scratch, NORM_MOST_WARPS);
    begin_after_kernel_before();
    constexpr int packs = tile / width;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    /* Threads without a row or a column hold zeros and stay for the barriers. */
    const int columns = row < task.rows ? task.columns : 0;
    float x[packs][width];
    float sum[1] = { 0.0f }, squares[1] = { 0.0f };
    uint32_t most = 0;
    CastCounts counts = {};
    const auto leaving = task.leaving(counts);
    if constexpr (Task::sums)
        make_row<one_warp>(task, row, columns, x);
    else
        read_row<one_warp>(task, row, columns, x);
    AddendPart<one_warp, width, packs, Task> addend;
    addend.load(task, row, columns);
    float mean = 0.0f;
    if (task.centre) {
#pragma unroll
        for (int pack = 0; pack < packs; pack++)
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[0] += x[pack][i];
        row_sums<one_warp>(sum, scratch);
        mean = sum[0] / (float)task.columns;
    }
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
#pragma unroll
        for (int i = 0; i < width; i++) {
            x[pack][i] = column < columns ? x[pack][i] - mean : 0.0f;
            squares[0] = fmaf(x[pack][i], x[pack][i], squares[0]);
        }
    }
    row_sums<one_warp>(squares, scratch);
    const float rstd = 1.0f / sqrtf(squares[0] / (float)task.columns + task.epsilon);
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns)
            store_normalized(task, leaving, row, pack, column, x[pack], rstd, addend, most);
    }
    if (row < task.rows)
        store_statistics(task, row, mean, rstd);
    if (Task::looks)
        leave_amax(task.amax, most);
    if constexpr (decltype(leaving)::casts)
        leave_cast(task.cast, counts);
}

/* A row that registers do not hold: one block a row, read three times, the second and third time mostly from L2. */
template <int width, typename Task>
__global__ void __launch_bounds__(NORM_MOST_THREADS) norm_forward_long_kernel(const Task task)
{
    HS_SHARED(float, scratch, NORM_MOST_WARPS);
    begin_after_kernel_before();
    const int64_t row = blockIdx.x;
    const int first = (int)threadIdx.x * width, stride = (int)blockDim.x * width;
    float x[width];
    float sum[1] = { 0.0f }, squares[1] = { 0.0f };
    float mean = 0.0f;
    uint32_t most = 0;
    CastCounts counts = {};
    const auto leaving = task.leaving(counts);
    if constexpr (Task::sums) { /* each thread makes what it reads below */
        const DropoutRule rule = task.rule.at_step();
        for (int column = first; column < task.columns; column += stride) {
            const int64_t at = task.at(row, column);
            task.residual.load(at, x);
            make_sum(task, rule, at, load_branch<width>(task, at), x);
        }
    }
    if (task.centre) {
        for (int column = first; column < task.columns; column += stride) {
            task.x.load(task.at(row, column), x);
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[0] += x[i];
        }
        row_sums<false>(sum, scratch);
        mean = sum[0] / (float)task.columns;
    }
    for (int column = first; column < task.columns; column += stride) {
        task.x.load(task.at(row, column), x);
#pragma unroll
        for (int i = 0; i < width; i++)
            squares[0] = fmaf(x[i] - mean, x[i] - mean, squares[0]);
    }
    row_sums<false>(squares, scratch);
    const float rstd = 1.0f / sqrtf(squares[0] / (float)task.columns + task.epsilon);
    AddendPart<false, width, 1, Task> addend;
    for (int column = first; column < task.columns; column += stride) {
        task.x.load(task.at(row, column), x);
#pragma unroll
        for (int i = 0; i < width; i++)
            x[i] -= mean;
        addend.load_at(task, row, column);
        store_normalized(task, leaving, row, 0, column, x, rstd, addend, most);
    }
    store_statistics(task, row, mean, rstd);
    if (Task::looks)
        leave_amax(task.amax, most);
    if constexpr (decltype(leaving)::casts)
        leave_cast(task.cast, counts);
}

template <typename X, typename Y, typename Place = WholeRows>
static NormForward<X, Y, Place> forward_task(const HsNormArgs *args, X x, Y y, Place place = {})
{
    return { place,
             x,
             y,
             view_of<float>(args->weight),
             view_of<float>(args->bias),
             data_of<float>(args->mean),
             data_of<float>(args->rstd),
             args->x.shape[0],
             (int)args->x.shape[1],
             args->epsilon,
             args->kind == HS_NORM_LAYER,
             amax_out(args->y, args->cast) };
}

template <int width, typename Task>
static HsStatus launch_long(const HsContext *context, const Task &task, unsigned blocks)
{
    return hs_launch_after(context, HS_KERNEL((norm_forward_long_kernel<width, Task>)), blocks, dim3(NORM_MOST_THREADS),
                           0, task);
}

/* The layout, and with it the order of sums, is the same with a branch and without. */
template <int width, typename Task> static HsStatus launch_forward(const HsContext *context, const Task &task)
{
    const RowLayout layout = row_layout(task.columns, 32);
    const unsigned blocks = blocks_for(task.rows, layout.rows_at_once);
    const dim3 block = layout.block();
    switch (layout.tile) {
    case 8:
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 8, true, Task>)), blocks, block, 0, task);
    case 16:
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 16, true, Task>)), blocks, block, 0,
                               task);
    case 32:
        if (layout.one_warp())
            return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 32, true, Task>)), blocks, block, 0,
                                   task);
        return hs_launch_after(context, HS_KERNEL((norm_forward_kernel<width, 32, false, Task>)), blocks, block, 0,
                               task);
    default:
        return launch_long<width>(context, task, blocks);
    }
}

/* Of a task in packs of bf16, by the kernel that casts where y is cast. */
template <int width, typename Task>
static HsStatus launch_or_cast(const HsContext *context, const HsNormArgs *args, const Task &task)
{
    if (!hs_codes_present(&args->cast))
        return launch_forward<width>(context, task);
    CastNormForward<Task> casting;
    static_cast<Task &>(casting) = task;
    casting.cast = cast_out(args->cast);
    return launch_forward<width>(context, casting);
}

/* Whether x is made in the norm's own pass: where all move in packs and the formats are those of a precision mode. */
static bool sums_in_one_pass(const HsNormArgs *args)
{
    return args->x.dtype == HS_F32 && args->residual.dtype == HS_F32 && args->branch.dtype == args->y.dtype &&
           packs_fit(args->x.shape[1], args->x, args->y, args->branch, args->residual) &&
           aligned_to(args->weight.data, 16) && aligned_to(args->bias.data, 16);
}

template <bool weighted> static HsStatus launch_with_sum(const HsContext *context, const HsNormArgs *args)
{
    return dispatch_act(args->y.dtype, [&](auto compute) {
        using Compute = decltype(compute);
        SumNormForward<Compute, weighted> task;
        static_cast<NormForward<View<float>, View<Compute>> &>(task) =
            forward_task(args, view_of<float>(args->x), view_of<Compute>(args->y));
        task.branch = view_of<Compute>(args->branch);
        task.residual = view_of<float>(args->residual);
        task.rule = dropout_rule(args->rng, args->probability, args->x.shape[1]);
        if constexpr (std::is_same<Compute, Bf16>::value)
            return launch_or_cast<4>(context, args, task);
        return launch_forward<4>(context, task);
    });
}

/* y and its addend are the stream; x is a branch in its format, or in 16 bits. */
static bool adds_in_packs(const HsNormArgs *args)
{
    return args->addend.dtype == args->y.dtype && is_stream_pair(args->x.dtype, args->y.dtype) &&
           packs_fit(args->x.shape[1], args->x, args->y, args->addend) && aligned_to(args->weight.data, 16) &&
           aligned_to(args->bias.data, 16);
}

template <typename X, typename Y> static AddNormForward<X, Y> addend_task(const HsNormArgs *args, X x, Y y, Y addend)
{
    AddNormForward<X, Y> task;
    static_cast<NormForward<X, Y> &>(task) = forward_task(args, x, y);
    task.addend = addend;
    return task;
}

static HsStatus launch_with_any_addend(const HsContext *context, const HsNormArgs *args)
{
    /* A row in registers and single elements' addresses of a third operand are more than there are. */
    if (!adds_in_packs(args))
        return launch_long<1>(context,
                              addend_task(args, any_view_of(args->x), any_view_of(args->y), any_view_of(args->addend)),
                              (unsigned)args->x.shape[0]);
    return dispatch_stream_pair(args->x.dtype, args->y.dtype, [&](auto compute, auto stream) {
        using Compute = decltype(compute);
        using Stream = decltype(stream);
        return launch_forward<access_width<Compute, Stream>>(
            context,
            addend_task(args, view_of<Compute>(args->x), view_of<Stream>(args->y), view_of<Stream>(args->addend)));
    });
}

/* Where y and x move in packs. */
static bool is_packed(const HsNormArgs *args)
{
    if (hs_tensor_present(&args->addend))
        return adds_in_packs(args);
    return is_stream_pair(args->y.dtype, args->x.dtype) && packs_fit(args->x.shape[1], args->x, args->y) &&
           aligned_to(args->weight.data, 16) && aligned_to(args->bias.data, 16);
}

static HsStatus run_forward(HsContext *context, const HsNormArgs *args)
{
    if (hs_tensor_present(&args->branch)) {
        if (sums_in_one_pass(args))
            return hs_tensor_present(&args->weight) ? launch_with_sum<true>(context, args)
                                                    : launch_with_sum<false>(context, args);
        const HsDropoutArgs sum = { args->probability, args->rng, args->branch, args->residual, args->x };
        HS_TRY(op::dropout_forward(context, &sum));
    }
    if (hs_tensor_present(&args->addend))
        return launch_with_any_addend(context, args);
    if (!is_packed(args))
        return launch_forward<1>(context, forward_task(args, any_view_of(args->x), any_view_of(args->y)));
    return dispatch_stream_pair(args->y.dtype, args->x.dtype, [&](auto compute, auto stream) {
        using Compute = decltype(compute);
        using Stream = decltype(stream);
        const NormForward<View<Stream>, View<Compute>> task =
            forward_task(args, view_of<Stream>(args->x), view_of<Compute>(args->y));
        if constexpr (std::is_same<Compute, Bf16>::value)
            return launch_or_cast<access_width<Compute, Stream>>(context, args, task);
        return launch_forward<access_width<Compute, Stream>>(context, task);
    });
}

/* Whether a kernel in packs makes y. */
static bool makes_packs(const HsNormArgs *args)
{
    return (hs_tensor_present(&args->branch) && sums_in_one_pass(args)) || is_packed(args);
}

HsStatus op::norm_forward(HsContext *context, const HsNormArgs *args)
{
    const bool casts_as_it_stores =
        makes_packs(args) && args->cast.format == HS_E4M3 && aligned_to(args->cast.data, 16);
    if (hs_codes_present(&args->cast) && !casts_as_it_stores) {
        const HsQuantizeArgs cast = hs_cast_apart(&args->y, &args->cast);
        HsNormArgs norm = *args;
        norm.cast = HsCodes{};
        HS_TRY(op::norm_forward(context, &norm));
        return op::quantize(context, &cast);
    }
    HS_TRY(run_forward(context, args));
    return args->y.dtype != HS_F32 && makes_packs(args) ? HS_OK : launch_amax(context, args->y);
}

HsStatus norm_stretches(HsContext *context, const HsNormArgs *args, int64_t stride)
{
    const Stretches place = { stride };
    const bool fit = packs_fit(args->x.shape[1], args->x, args->y) && packs_fit(stride, args->x, args->y);
    if (!fit || args->x.dtype != args->y.dtype || !aligned_to(args->weight.data, 16))
        return launch_forward<1>(context, forward_task(args, any_view_of(args->x), any_view_of(args->y), place));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_forward<access_width<T>>(context,
                                               forward_task(args, view_of<T>(args->x), view_of<T>(args->y), place));
    });
}

} // namespace HS_CUDA_NAMESPACE
