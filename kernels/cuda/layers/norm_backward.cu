/* SPDX-License-Identifier: MIT
 *
 * Norms, backward (derivation in kernels/ref/norm.c).  With g = weight dy and
 * xhat = (x - mean) rstd dx [+]= rstd (g - mean(g) - xhat mean(g xhat)),
 * dweight += sum_n dy xhat,   dbias += sum_n dy where rms lacks the mean(g)
 * term; and of dx as it is stored, where they are wanted, a rounded copy and
 *     dx_sums += sum_n dx,   or   dx_masked = mask(dx) / (1 - p).
 *
 * Bound by memory: dy and x are read once, dx written once (and read once when
 * it accumulates).  A block walks over its rows and keeps the sums of its
 * columns in registers; PartialSums (norm.cuh) says how the blocks' sums come
 * together.
 *
 * A row that one warp holds (up to 768 columns, 24 a lane) needs no barrier,
 * and the loads of a warp's next row are under way while it works on this one.
 * Packed as they come, the next row's take 60 registers of 24 elements in mixed
 * precision, besides 60 of this row's and 72 of three sums: room for the eight
 * warps of one block, which have 60 KiB in flight, twice what a multiprocessor
 * of an H100 needs to cover memory's latency.  Longer rows have several warps,
 * in blocks without registers for a second row: all loads of one come before
 * the first use.
 *
 * A rounded copy that is cast to E5M2 by a scale that is known is left in codes,
 * where registers hold the rows.
 */
#include "kernels/cuda/layers/dropout.cuh"
#include "kernels/cuda/layers/norm.cuh"
#include "kernels/cuda/toolbox/cast.cuh"

namespace HS_CUDA_NAMESPACE
{

/* What is made of dx besides it: nothing; a rounded copy and sums, the copy in
 * codes or as it is; a copy under dropout's mask.  The first two have no members,
 * as they have no registers to spare. */
struct Alone {
    static constexpr bool finishes = false, masks = false, casts = false;

    static Alone of(const HsNormBackwardArgs *)
    {
        return {};
    }
    HS_MEMBER Alone at_step() const
    {
        return {};
    }
};
struct Finished : Alone {
    static constexpr bool finishes = true;

    static Finished of(const HsNormBackwardArgs *)
    {
        return {};
    }
};
struct FinishedInCodes : Finished {
    static constexpr bool casts = true;
    CastOut cast;

    static FinishedInCodes of(const HsNormBackwardArgs *args)
    {
        FinishedInCodes extra;
        extra.cast = cast_out(args->cast);
        return extra;
    }
};
struct Masked : DropoutRule {
    static constexpr bool finishes = false, masks = true, casts = false;

    static Masked of(const HsNormBackwardArgs *args)
    {
        return { dropout_rule(args->rng, args->probability, args->x.shape[1]) };
    }
};

/* amax of the copy, else of dx; a member where kernels look for it alone,
 * likewise. */
template <bool looks> struct LookedAt {
    HS_MEMBER bool asked() const
    {
        return false;
    }
};
template <> struct LookedAt<true> {
    AmaxOut amax;

    HS_MEMBER bool asked() const
    {
        return amax.to != nullptr;
    }
};

/* dy in 16 bits is of an f32 stream's norm, x in 16 bits of a branch's, which
 * is added to one: a cast follows both. */
template <typename Gradient, typename Stream>
static constexpr bool looks_on_way = looks_at<Gradient> || looks_at<Stream>;

template <typename Gradient, typename Stream, typename Extra, typename Place = WholeRows>
struct NormBackward : LookedAt<looks_on_way<Gradient, Stream>>, Place {
    static constexpr bool looks = looks_on_way<Gradient, Stream>;
    static constexpr bool finishes = Extra::finishes, masks = Extra::masks, casts = Extra::casts;
    Gradient dy;
    Stream x, dx;
    Gradient copy;            /* rounded, where data is not NULL, or masked */
    View<float> weight;       /* data may be NULL */
    const float *mean, *rstd; /* mean: NULL for rms */
    float *partials;          /* [blocks][arrays][columns]: dweight's, dbias's where it is
                      wanted, dx's where dx is finished */
    int64_t rows, block_rows;
    int columns, arrays;
    bool biased, accumulate;
    Extra extra;

    HS_MEMBER int64_t at(int64_t row, int column) const
    {
        return Place::begin(row, columns) + column;
    }
};

/* A thread's place in its row, and the first column of its packs.  Where
 * several warps hold a row and dx is summed too, there are no registers for
 * columns from one pass over the packs to the next: each finds them anew. */
template <bool one_warp, typename Task> HS_DEVICE int row_thread()
{
    if constexpr (!one_warp && Task::finishes)
        return ptx::thread_anew();
    else
        return (int)threadIdx.x;
}
template <int width, bool one_warp> HS_DEVICE int column_of(int pack, int thread)
{
    return (pack * row_threads<one_warp>() + thread) * width;
}

/* What a thread needs of one row.  Outside of the row, or of all rows: zeros.
 */
template <int width, int packs, bool one_warp, typename Task> struct RowPart {
    decltype(fetch<width>(Task{}.dy, 0)) dy[packs];
    decltype(fetch<width>(Task{}.x, 0)) x[packs], dx[packs]; /* dx: what was there, where it is added to */
    float mean, rstd;
    /* Single elements' addresses leave no registers to wait in. */
    static constexpr bool loads_previous = width > 1;

    HS_MEMBER void load(const Task &task, int64_t row, int64_t end)
    {
        const int columns = row < end ? task.columns : 0;
        const int thread = row_thread<one_warp, Task>();
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack, thread);
            dy[pack] = {};
            x[pack] = {};
            dx[pack] = {};
            if (column < columns) {
                const int64_t at = task.at(row, column);
                dy[pack] = fetch<width>(task.dy, at);
                x[pack] = fetch<width>(task.x, at);
                if (loads_previous && task.accumulate)
                    dx[pack] = fetch<width>(task.dx, at);
            }
        }
        mean = task.mean && row < end ? task.mean[row] : 0.0f;
        rstd = row < end ? task.rstd[task.statistic(row)] : 0.0f;
    }

    HS_MEMBER void unpack_previous(const Task &task, int64_t at, int pack, float (&values)[width]) const
    {
        if (loads_previous)
            unpack(task.dx, dx[pack], values);
        else if (task.accumulate)
            task.dx.load(at, values);
        else
            values[0] = 0.0f;
    }
};

/* A pack of dx from g and xhat; `means` of g and of g xhat.  dx: what there
 * was, then what is stored.  most: the largest magnitude so far of what is
 * handed on. */
template <bool looks, int width, typename Task, typename Extra>
HS_DEVICE void store_gradient(const Task &task, const Extra &extra, int64_t at, const float (&g)[width],
                              const float (&xhat)[width], float rstd, const float (&means)[2], float (&dx)[width],
                              uint32_t &most, CastCounts &counts)
{
#pragma unroll
    for (int i = 0; i < width; i++)
        dx[i] = fmaf(rstd, g[i] - means[0] - xhat[i] * means[1], dx[i]);
    task.dx.store(at, dx);
    if constexpr (Task::casts)
        CastTo<HS_E5M2>{ task.extra.cast.data, task.extra.cast.scaling->kept, &counts }.store(at, dx);
    else if constexpr (Task::finishes)
        if (task.copy.data)
            task.copy.store(at, dx);
    if constexpr (Task::masks) {
        const float nothing[width] = {};
        float masked[width];
        extra.template apply<width, true>(at, dx, nothing, masked); /* rows are whole packs of four */
        task.copy.store(at, masked);
        if (looks && task.asked())
            most = largest_of(masked, most);
    } else if (looks && task.asked()) {
        most = largest_of(dx, most);
    }
}

/* The block's sums of one array: those of its row slots, added in the order of
 * the slots. */
template <bool one_warp, int width, int packs>
HS_DEVICE void store_partials(const float (&sums)[packs][width], int columns, float *slots, float *destination)
{
#pragma unroll
    for (int pack = 0; pack < packs; pack++) {
        const int column = column_of<width, one_warp>(pack);
        if (column < columns)
            View<float>{ slots }.store((int)threadIdx.y * columns + column, sums[pack]);
    }
    __syncthreads();
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x), threads = (int)(blockDim.x * blockDim.y);
    for (int column = thread; column < columns; column += threads) {
        float sum = 0.0f;
        for (int slot = 0; slot < (int)blockDim.y; slot++)
            sum += slots[slot * columns + column];
        destination[column] = sum;
    }
    __syncthreads();
}

template <int width, int tile, bool one_warp, typename Task>
__global__ void __launch_bounds__(most_threads<one_warp>) norm_backward_kernel(const Task task)
{
    HS_SHARED(float, scratch, 2 * NORM_MOST_WARPS);
    HS_DYNAMIC_SHARED(float, slots); /* [rows at once][columns] */
    begin_after_kernel_before();
    constexpr int packs = tile / width;
    constexpr bool prefetches = one_warp && width > 1;
    float dweight[packs][width] = {}, dbias[packs][width] = {};
    float dx_sums[Task::finishes ? packs : 1][width] = {};
    const int64_t first = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = first + task.block_rows < task.rows ? first + task.block_rows : task.rows;
    const auto extra = task.extra.at_step();
    uint32_t most = 0;
    CastCounts counts = {};
    RowPart<width, packs, one_warp, Task> part, next;
    if (prefetches)
        next.load(task, first + threadIdx.y, end);
    for (int64_t slot_row = first; slot_row < end; slot_row += blockDim.y) {
        const int64_t row = slot_row + threadIdx.y;
        const int columns = row < end ? task.columns : 0;
        if (prefetches) {
            part = next;
            next.load(task, row + blockDim.y, end);
        } else {
            part.load(task, row, end);
        }
        const float mean = part.mean, rstd = part.rstd;
        float xhat[packs][width];
        float sums[2] = { 0.0f, 0.0f };
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack);
            float weight[width] = {}, g[width];
            if (column < columns)
                load_weight(task.weight, column, weight);
            unpack(task.dy, part.dy[pack], g);
            unpack(task.x, part.x[pack], xhat[pack]);
#pragma unroll
            for (int i = 0; i < width; i++) {
                xhat[pack][i] = (xhat[pack][i] - mean) * rstd; /* outside the row: g is 0 */
                dweight[pack][i] = fmaf(g[i], xhat[pack][i], dweight[pack][i]);
                dbias[pack][i] += g[i];
                g[i] *= weight[i];
                sums[0] += g[i];
                sums[1] = fmaf(g[i], xhat[pack][i], sums[1]);
            }
        }
        row_sums<one_warp>(sums, scratch);
        /* Read again where columns are found anew: another register. */
        constexpr bool again = !one_warp && Task::finishes;
        const float scale = !again ? rstd : row < end ? task.rstd[task.statistic(row)] : 0.0f;
        const float means[2] = { task.mean ? sums[0] / (float)task.columns : 0.0f, sums[1] / (float)task.columns };
#pragma unroll
        for (int pack = 0; pack < packs; pack++) {
            const int column = column_of<width, one_warp>(pack, row_thread<one_warp, Task>());
            if (column >= columns)
                continue;
            /* g again: dy takes half the registers, and the weight's first-level
       * cache is near. */
            float weight[width], g[width], dx[width];
            load_weight(task.weight, column, weight);
            unpack(task.dy, part.dy[pack], g);
#pragma unroll
            for (int i = 0; i < width; i++)
                g[i] *= weight[i];
            part.unpack_previous(task, task.at(row, column), pack, dx);
            store_gradient<Task::looks>(task, extra, task.at(row, column), g, xhat[pack], scale, means, dx, most,
                                        counts);
            if constexpr (Task::finishes) {
#pragma unroll
                for (int i = 0; i < width; i++)
                    dx_sums[pack][i] += dx[i];
            }
        }
    }
    if constexpr (Task::looks)
        leave_amax(task.amax, most);
    if constexpr (Task::casts)
        leave_cast(task.extra.cast, counts);
    float *destination = task.partials + (int64_t)blockIdx.x * task.arrays * task.columns;
    store_partials<one_warp>(dweight, task.columns, slots, destination);
    if (task.biased)
        store_partials<one_warp>(dbias, task.columns, slots, destination + task.columns);
    if constexpr (Task::finishes)
        store_partials<one_warp>(dx_sums, task.columns, slots, destination + (task.arrays - 1) * task.columns);
}

/* Of a row that registers do not hold: sums of g and g xhat, and its share of
 * dweight and dbias, which live in the workspace; fresh: they begin with it. */
template <bool weighted, int width, typename Task>
HS_DEVICE void sum_long_row(const Task &task, int64_t row, bool fresh, const View<float> &dweight,
                            const View<float> &dbias, float mean, float rstd, float (&sums)[2])
{
    const int start = (int)threadIdx.x * width, stride = (int)blockDim.x * width;
    for (int column = start; column < task.columns; column += stride) {
        float g[width], xhat[width], weight[width];
        float dweight_sum[width] = {}, dbias_sum[width] = {};
        task.dy.load(task.at(row, column), g);
        task.x.load(task.at(row, column), xhat);
        load_known_weight<weighted>(task.weight, column, weight);
        if (!fresh) {
            dweight.load(column, dweight_sum);
            if (task.biased)
                dbias.load(column, dbias_sum);
        }
#pragma unroll
        for (int i = 0; i < width; i++) {
            xhat[i] = (xhat[i] - mean) * rstd;
            dweight_sum[i] = fmaf(g[i], xhat[i], dweight_sum[i]);
            dbias_sum[i] += g[i];
            g[i] *= weight[i];
            sums[0] += g[i];
            sums[1] = fmaf(g[i], xhat[i], sums[1]);
        }
        dweight.store(column, dweight_sum);
        if (task.biased)
            dbias.store(column, dbias_sum);
    }
}

/* Its dx, and that one's sums. */
template <bool weighted, int width, typename Task, typename Extra>
HS_DEVICE void store_long_row(const Task &task, const Extra &extra, int64_t row, bool fresh, const View<float> &dx_sums,
                              float mean, float rstd, const float (&means)[2])
{
    const int start = (int)threadIdx.x * width, stride = (int)blockDim.x * width;
    uint32_t most = 0; /* not looked at */
    CastCounts counts = {};
    for (int column = start; column < task.columns; column += stride) {
        float g[width], xhat[width], weight[width];
        task.dy.load(task.at(row, column), g);
        task.x.load(task.at(row, column), xhat);
        load_known_weight<weighted>(task.weight, column, weight);
#pragma unroll
        for (int i = 0; i < width; i++) {
            xhat[i] = (xhat[i] - mean) * rstd;
            g[i] *= weight[i];
        }
        float dx[width] = {};
        if (task.accumulate)
            task.dx.load(task.at(row, column), dx);
        store_gradient<false>(task, extra, task.at(row, column), g, xhat, rstd, means, dx, most, counts);
        if constexpr (Task::finishes) {
            float sum[width] = {};
            if (!fresh)
                dx_sums.load(column, sum);
#pragma unroll
            for (int i = 0; i < width; i++)
                sum[i] += dx[i];
            dx_sums.store(column, sum);
        }
    }
}

/* Rows that registers do not hold: read twice, the second time mostly from L2;
 * each column's sums always with the same thread.  Whether there is a weight is
 * asked once a row, where registers are few. */
template <int width, typename Task>
__global__ void __launch_bounds__(NORM_MOST_THREADS, 1) norm_backward_long_kernel(const Task task)
{
    HS_SHARED(float, scratch, 2 * NORM_MOST_WARPS);
    begin_after_kernel_before();
    const View<float> dweight = { task.partials + (int64_t)blockIdx.x * task.arrays * task.columns };
    const View<float> dbias = { dweight.data + task.columns };
    const View<float> dx_sums = { dweight.data + (task.arrays - 1) * task.columns };
    const auto extra = task.extra.at_step();
    const int64_t first = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = first + task.block_rows < task.rows ? first + task.block_rows : task.rows;
    for (int64_t row = first; row < end; row++) {
        const float mean = task.mean ? task.mean[row] : 0.0f, rstd = task.rstd[task.statistic(row)];
        float sums[2] = { 0.0f, 0.0f };
        if (task.weight.data)
            sum_long_row<true, width>(task, row, row == first, dweight, dbias, mean, rstd, sums);
        else
            sum_long_row<false, width>(task, row, row == first, dweight, dbias, mean, rstd, sums);
        row_sums<false>(sums, scratch);
        const float means[2] = { task.mean ? sums[0] / (float)task.columns : 0.0f, sums[1] / (float)task.columns };
        if (task.weight.data)
            store_long_row<true, width>(task, extra, row, row == first, dx_sums, mean, rstd, means);
        else
            store_long_row<false, width>(task, extra, row, row == first, dx_sums, mean, rstd, means);
    }
}

/* A warp's lanes read 32 neighbouring columns of one block's sums; warp w takes
 * blocks w, w + 32, ...; the 32 results of a column are added in order. */
__global__ void __launch_bounds__(WARP_SIZE *WARP_SIZE)
    partial_sums_kernel(const float *partials, int blocks, const PartialTotals totals, int64_t columns)
{
    HS_SHARED(float, sums, WARP_SIZE *WARP_SIZE);
    begin_after_kernel_before();
    const int64_t total = totals.count * columns, column = (int64_t)blockIdx.x * WARP_SIZE + threadIdx.x;
    float sum = 0.0f;
    if (column < total) {
        for (int block = (int)threadIdx.y; block < blocks; block += WARP_SIZE)
            sum += partials[block * total + column];
    }
    sums[threadIdx.y * WARP_SIZE + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= total)
        return;
    const int array = (int)(column / columns);
    const AnyView destination = array == 0 ? totals.to[0] : array == 1 ? totals.to[1] : totals.to[2];
    if (destination.data == nullptr)
        return;
    sum = 0.0f;
    for (int warp = 0; warp < WARP_SIZE; warp++)
        sum += sums[warp * WARP_SIZE + (int)threadIdx.x];
    float value[1];
    destination.load(column - array * columns, value);
    value[0] += sum;
    destination.store(column - array * columns, value);
}

HsStatus add_partial_sums(HsContext *context, PartialSums sums, const PartialTotals &totals, int64_t columns)
{
    return hs_launch_after(context, HS_KERNEL(partial_sums_kernel), blocks_for(totals.count * columns, WARP_SIZE),
                           dim3(WARP_SIZE, WARP_SIZE), 0, static_cast<const float *>(context->workspace), sums.blocks,
                           totals, columns);
}

/* The tile of rows that one warp holds but not with 16 elements a lane. */
enum { WIDEST_TILE = 24 };

/* Layout and partition follow from the shape alone: the dry run must find the
 * same as the run. */
static RowLayout backward_layout(const HsNormBackwardArgs *args)
{
    const RowLayout layout = row_layout(args->x.shape[1], 16);
    if (layout.one_warp() || args->x.shape[1] > WIDEST_TILE * WARP_SIZE)
        return layout;
    return { WIDEST_TILE, WARP_SIZE, NORM_BLOCK_WARPS };
}

static bool finishes(const HsNormBackwardArgs *args)
{
    return hs_tensor_present(&args->dx_rounded) || hs_tensor_present(&args->dx_sums);
}

/* In the order of the partial sums' arrays. */
static PartialTotals totals_of(const HsNormBackwardArgs *args)
{
    PartialTotals totals = { { any_view_of(args->dweight) }, 1 };
    if (hs_tensor_present(&args->dbias))
        totals.to[totals.count++] = any_view_of(args->dbias);
    if (finishes(args))
        totals.to[totals.count++] = any_view_of(args->dx_sums);
    return totals;
}

size_t workspace::norm_backward(const HsContext *, const HsNormBackwardArgs *args)
{
    return partial_sums(args->x.shape[0], backward_layout(args).rows_at_once)
        .bytes(args->x.shape[1], totals_of(args).count);
}

/* Where all moves in packs.  A copy has dy's format then, as precision modes
 * have it; none is made of a branch's gradient from that of an f32 stream. */
static bool is_packed(const HsNormBackwardArgs *args, const HsTensor &copy)
{
    if (hs_tensor_present(&copy) && copy.dtype != args->dy.dtype)
        return false;
    const bool pair = is_stream_pair(args->dy.dtype, args->x.dtype) || is_stream_pair(args->x.dtype, args->dy.dtype);
    return args->x.dtype == args->dx.dtype && pair && (!finishes(args) || args->dy.dtype != HS_F32) &&
           packs_fit(args->x.shape[1], args->dy, args->x, args->dx) && aligned_to(args->weight.data, 16) &&
           aligned_to(copy.data, 16);
}

/* Whether dx is masked in the norm's own pass: what is stored must be what
 * registers hold, in f32. */
static bool masks_in_one_pass(const HsNormBackwardArgs *args)
{
    return hs_tensor_present(&args->dx_masked) && args->x.dtype == HS_F32 && is_packed(args, args->dx_masked);
}

/* Whether the kernel that serves the call finds amax: those of rows that
 * registers hold, in packs of 16 bits, where no separate pass masks dx behind
 * them. */
static bool looks_on_the_way(const HsNormBackwardArgs *args)
{
    const bool masks = hs_tensor_present(&args->dx_masked);
    return (args->dy.dtype != HS_F32 || args->x.dtype != HS_F32) && backward_layout(args).tile > 0 &&
           (masks ? masks_in_one_pass(args) : is_packed(args, args->dx_rounded));
}

template <int width, typename Extra, typename Gradient, typename Stream, typename Place = WholeRows>
static HsStatus launch_backward(const HsContext *context, const HsNormBackwardArgs *args, Gradient dy, Stream x,
                                Stream dx, Gradient copy, Place place = {})
{
    using Task = NormBackward<Gradient, Stream, Extra, Place>;
    const RowLayout layout = backward_layout(args);
    const PartialSums sums = partial_sums(args->x.shape[0], layout.rows_at_once);
    Task task = { {},
                  place,
                  dy,
                  x,
                  dx,
                  copy,
                  view_of<float>(args->weight),
                  args->kind == HS_NORM_LAYER ? data_of<float>(args->mean) : nullptr,
                  data_of<float>(args->rstd),
                  static_cast<float *>(context->workspace),
                  args->x.shape[0],
                  sums.rows,
                  (int)args->x.shape[1],
                  totals_of(args).count,
                  hs_tensor_present(&args->dbias),
                  args->accumulate,
                  Extra::of(args) };
    if constexpr (Task::looks)
        task.amax = looks_on_the_way(args) ? amax_out(*hs_norm_handed_on(args), args->cast) : AmaxOut{};
    const dim3 blocks((unsigned)sums.blocks), block = layout.block();
    const size_t shared_bytes = (size_t)layout.rows_at_once * (size_t)task.columns * sizeof(float);
    /* Single elements' addresses leave no registers for 16 of them, and none for
   * 8 besides the sums of dx. */
    if constexpr (width > 1 || !Task::finishes) {
        if (layout.tile == 8)
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 8, true, Task>)), blocks, block,
                                   shared_bytes, task);
    }
    if constexpr (width > 1) {
        if (layout.tile == WIDEST_TILE)
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, WIDEST_TILE, true, Task>)), blocks,
                                   block, shared_bytes, task);
        if (layout.tile == 16 && layout.one_warp())
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 16, true, Task>)), blocks, block,
                                   shared_bytes, task);
        if (layout.tile == 16)
            return hs_launch_after(context, HS_KERNEL((norm_backward_kernel<width, 16, false, Task>)), blocks, block,
                                   shared_bytes, task);
    }
    if constexpr (!Task::casts)
        return hs_launch_after(context, HS_KERNEL((norm_backward_long_kernel<width, Task>)), blocks,
                               dim3(NORM_MOST_THREADS), 0, task);
    return hs_fail(HS_EUNSUPPORTED, "norm_backward: no kernel casts rows of %d columns", task.columns);
}

static HsStatus launch_unpacked(const HsContext *context, const HsNormBackwardArgs *args)
{
    const AnyView dy = any_view_of(args->dy), copy = any_view_of(args->dx_rounded);
    const AnyView x = any_view_of(args->x), dx = any_view_of(args->dx);
    return finishes(args) ? launch_backward<1, Finished>(context, args, dy, x, dx, copy)
                          : launch_backward<1, Alone>(context, args, dy, x, dx, copy);
}

/* In packs of a branch in 16 bits, from the gradient of an f32 stream. */
static HsStatus launch_branch(const HsContext *context, const HsNormBackwardArgs *args)
{
    const View<float> dy = view_of<float>(args->dy);
    if (args->x.dtype == HS_BF16)
        return launch_backward<4, Alone>(context, args, dy, view_of<Bf16>(args->x), view_of<Bf16>(args->dx),
                                         View<float>{});
    return launch_backward<4, Alone>(context, args, dy, view_of<F16>(args->x), view_of<F16>(args->dx), View<float>{});
}

static HsStatus launch_backward_by_dtype(const HsContext *context, const HsNormBackwardArgs *args)
{
    const bool masks = masks_in_one_pass(args);
    const HsTensor &copy = masks ? args->dx_masked : args->dx_rounded;
    if (!is_packed(args, copy))
        return launch_unpacked(context, args);
    if (args->dy.dtype == HS_F32 && args->x.dtype != HS_F32)
        return launch_branch(context, args);
    return dispatch_stream_pair(args->dy.dtype, args->x.dtype, [&](auto compute, auto stream) {
        using Compute = decltype(compute);
        using Stream = decltype(stream);
        constexpr int width = access_width<Compute, Stream>;
        const View<Compute> dy = view_of<Compute>(args->dy), rounded = view_of<Compute>(copy);
        const View<Stream> x = view_of<Stream>(args->x), dx = view_of<Stream>(args->dx);
        if constexpr (sizeof(Stream) == sizeof(float))
            if (masks)
                return launch_backward<width, Masked>(context, args, dy, x, dx, rounded);
        if constexpr (std::is_same<Compute, Bf16>::value && sizeof(Compute) < sizeof(Stream))
            if (hs_codes_present(&args->cast))
                return launch_backward<width, FinishedInCodes>(context, args, dy, x, dx, rounded);
        if constexpr (sizeof(Compute) < sizeof(Stream))
            if (finishes(args))
                return launch_backward<width, Finished>(context, args, dy, x, dx, rounded);
        return launch_backward<width, Alone>(context, args, dy, x, dx, rounded);
    });
}

/* Whether a kernel casts the copy: where one looks for its amax, from an f32 dx. */
static bool casts_on_the_way(const HsNormBackwardArgs *args)
{
    return args->cast.format == HS_E5M2 && aligned_to(args->cast.data, 16) && args->dy.dtype == HS_BF16 &&
           args->dx.dtype == HS_F32 && looks_on_the_way(args);
}

HsStatus op::norm_backward(HsContext *context, const HsNormBackwardArgs *args)
{
    if (hs_codes_present(&args->cast) && !casts_on_the_way(args)) {
        const HsQuantizeArgs cast = hs_cast_apart(&args->dx_rounded, &args->cast);
        HsNormBackwardArgs norm = *args;
        norm.cast = HsCodes{};
        HS_TRY(op::norm_backward(context, &norm));
        return op::quantize(context, &cast);
    }
    HS_TRY(launch_backward_by_dtype(context, args));
    const PartialSums sums = partial_sums(args->x.shape[0], backward_layout(args).rows_at_once);
    HS_TRY(add_partial_sums(context, sums, totals_of(args), args->x.shape[1]));
    if (!hs_tensor_present(&args->dx_masked) || masks_in_one_pass(args))
        return looks_on_the_way(args) ? HS_OK : launch_amax(context, *hs_norm_handed_on(args));
    const HsDropoutArgs mask = { args->probability, args->rng, args->dx, {}, args->dx_masked };
    return op::dropout_backward(context, &mask);
}

static HsStatus launch_stretches(const HsContext *context, const HsNormBackwardArgs *args, Stretches place)
{
    const bool one_dtype = args->dy.dtype == args->x.dtype && args->x.dtype == args->dx.dtype;
    const bool fit = packs_fit(args->x.shape[1], args->dy, args->x, args->dx) &&
                     packs_fit(place.stride, args->dy, args->x, args->dx);
    if (!one_dtype || !fit || !aligned_to(args->weight.data, 16))
        return launch_backward<1, Alone>(context, args, any_view_of(args->dy), any_view_of(args->x),
                                         any_view_of(args->dx), AnyView{}, place);
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_backward<access_width<T>, Alone>(context, args, view_of<T>(args->dy), view_of<T>(args->x),
                                                       view_of<T>(args->dx), View<T>{}, place);
    });
}

HsStatus norm_stretches_backward(HsContext *context, const HsNormBackwardArgs *args, int64_t stride)
{
    HS_TRY(launch_stretches(context, args, Stretches{ stride }));
    const PartialSums sums = partial_sums(args->x.shape[0], backward_layout(args).rows_at_once);
    return add_partial_sums(context, sums, totals_of(args), args->x.shape[1]);
}

size_t norm_stretches_workspace(int64_t rows, int64_t columns)
{
    HsNormBackwardArgs args = {};
    args.x = hs_tensor_2d(nullptr, HS_F32, rows, columns);
    return workspace::norm_backward(nullptr, &args);
}

} // namespace HS_CUDA_NAMESPACE
