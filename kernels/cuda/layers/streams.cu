/* SPDX-License-Identifier: MIT
 *
 * Gradients of blended streams, and the token before mixed in (formulas: kernels/ref/streams.c; forward, a blend is a
 * rule of elementwise.cu).
 *
 * Bound by memory: each number is read from it once; the row before or behind, which a neighbouring warp reads as well,
 * comes from a cache.  Sums over rows are PartialSums (norm.cuh), of one column: blocks are cut by shape alone.
 */
#include "kernels/cuda/layers/norm.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* SMEAR_ROWS: that a thread makes one behind the other, so that it reads each but the first once. */
enum { THREADS = 256, WARPS = THREADS / WARP_SIZE, UNSUMMED_PACKS = 4, SMEAR_ROWS = 4 };

/* dx [+]= a dy;  dz [+]= sign b dy;  partials[block] = the sums of dy x and of sign dy z */
template <typename V> struct BlendBackward {
    V dy, x, z, dx, dz; /* all but dy may be absent */
    const float *a, *b; /* a NULL: 1 */
    float *partials;    /* [blocks][2]; NULL: no sums */
    int64_t count, block_elements;
    float sign;
    bool accumulate_x, accumulate_z;
};

/* Old values where they are added to, else zeros. */
template <int width, typename V>
HS_DEVICE void load_previous(const V &gradient, bool accumulate, int64_t i, float (&values)[width])
{
    if (gradient.data && accumulate) {
        gradient.load(i, values);
    } else {
#pragma unroll
        for (int j = 0; j < width; j++)
            values[j] = 0.0f;
    }
}

template <int width, typename V>
HS_DEVICE void store_scaled(const V &gradient, int64_t i, float factor, const float (&dy)[width],
                            float (&values)[width])
{
    if (!gradient.data)
        return;
#pragma unroll
    for (int j = 0; j < width; j++)
        values[j] = fmaf(factor, dy[j], values[j]);
    gradient.store(i, values);
}

template <int width, typename V>
HS_DEVICE float product_with(const V &stream, int64_t i, const float (&dy)[width], float sum)
{
    if (!stream.data)
        return sum;
    float values[width];
    stream.load(i, values);
#pragma unroll
    for (int j = 0; j < width; j++)
        sum = fmaf(dy[j], values[j], sum);
    return sum;
}

/* All is read before anything is written: dx may be dy. */
template <int width, typename V>
__global__ void __launch_bounds__(THREADS) blend_backward_kernel(const BlendBackward<V> task)
{
    HS_SHARED(float, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const float a = task.a ? *task.a : 1.0f, b = task.sign * *task.b;
    const int64_t first = (int64_t)blockIdx.x * task.block_elements;
    const int64_t end = first + task.block_elements < task.count ? first + task.block_elements : task.count;
    float da = 0.0f, db = 0.0f;
    for (int64_t i = first + (int64_t)threadIdx.x * width; i < end; i += THREADS * width) {
        float dy[width], dx[width], dz[width];
        task.dy.load(i, dy);
        load_previous(task.dx, task.accumulate_x, i, dx);
        load_previous(task.dz, task.accumulate_z, i, dz);
        da = product_with(task.x, i, dy, da);
        db = product_with(task.z, i, dy, db);
        store_scaled(task.dx, i, a, dy, dx);
        store_scaled(task.dz, i, b, dy, dz);
    }
    if (task.partials == nullptr)
        return;
    da = block_reduce<Sum>(da, 0.0f, scratch);
    db = block_reduce<Sum>(db, 0.0f, scratch);
    if (threadIdx.x == 0) {
        task.partials[2 * blockIdx.x] = da;
        task.partials[2 * blockIdx.x + 1] = task.sign * db;
    }
}

bool is_summed(const HsBlendBackwardArgs *args)
{
    return hs_tensor_present(&args->da) || hs_tensor_present(&args->db);
}

float *number_of(const HsTensor &vector, int64_t at)
{
    return hs_tensor_present(&vector) ? data_of<float>(vector) + at : nullptr;
}

template <int width, typename V>
HsStatus launch_blend_backward(const HsContext *context, const HsBlendBackwardArgs *args, V dy, V x, V z, V dx, V dz)
{
    const PartialSums parts = partial_sums(args->dy.shape[0], 1);
    const int64_t count = hs_tensor_count(&args->dy);
    const int64_t block_elements =
        is_summed(args) ? parts.rows * args->dy.shape[1] : (int64_t)(UNSUMMED_PACKS * THREADS * width);
    const BlendBackward<V> task = { dy,
                                    x,
                                    z,
                                    dx,
                                    dz,
                                    number_of(args->a, args->at),
                                    number_of(args->b, args->at),
                                    is_summed(args) ? static_cast<float *>(context->workspace) : nullptr,
                                    count,
                                    block_elements,
                                    args->sign,
                                    args->accumulate_x,
                                    args->accumulate_z };
    return hs_launch_after(context, HS_KERNEL((blend_backward_kernel<width, V>)), blocks_for(count, block_elements),
                           THREADS, 0, task);
}

/* In packs, where all tensors that are there have one format. */
HsStatus run_blend_backward(const HsContext *context, const HsBlendBackwardArgs *args)
{
    const HsTensor *const others[] = { &args->x, &args->z, &args->dx, &args->dz };
    bool packed = packs_fit(args->dy.shape[1], args->dy);
    for (const HsTensor *other : others)
        packed =
            packed && (!hs_tensor_present(other) || (other->dtype == args->dy.dtype && aligned_to(other->data, 16)));
    if (!packed)
        return launch_blend_backward<1>(context, args, any_view_of(args->dy), any_view_of(args->x),
                                        any_view_of(args->z), any_view_of(args->dx), any_view_of(args->dz));
    return dispatch_act(args->dy.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_blend_backward<access_width<T>>(context, args, view_of<T>(args->dy), view_of<T>(args->x),
                                                      view_of<T>(args->z), view_of<T>(args->dx), view_of<T>(args->dz));
    });
}

/* Where documents and sequences begin. */
struct Sequences {
    const int32_t *starts; /* NULL: a sequence is one document */
    uint32_t length;

    HS_MEMBER bool begins_at(int64_t row) const
    {
        return (uint32_t)row % length == (starts ? (uint32_t)starts[row] : 0u);
    }
};

Sequences sequences_of(const HsTensor &starts, int64_t length)
{
    return { hs_tensor_present(&starts) ? data_of<const int32_t>(starts) : nullptr, (uint32_t)length };
}

HsStatus check_rows(const char *op, int64_t rows)
{
    if (rows <= INT32_MAX)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "%s: %lld rows are more than an int32 counts", op, (long long)rows);
}

template <typename T> struct SmearForward {
    View<T> x, before, y; /* before: data may be NULL */
    const float *gate, *strength;
    Sequences sequences;
    int64_t rows, columns;
};

/* rows[0] is the row before the first of SMEAR_ROWS. */
template <int width, typename T>
__global__ void __launch_bounds__(THREADS) smear_forward_kernel(const SmearForward<T> task)
{
    begin_after_kernel_before();
    const int64_t column = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * width;
    const int64_t begin = ((int64_t)blockIdx.x * blockDim.y + threadIdx.y) * SMEAR_ROWS;
    if (column >= task.columns || begin >= task.rows)
        return;
    const int count = task.rows - begin < SMEAR_ROWS ? (int)(task.rows - begin) : (int)SMEAR_ROWS;
    const float strength = *task.strength;
    float rows[SMEAR_ROWS + 1][width] = {};
#pragma unroll
    for (int r = 0; r <= SMEAR_ROWS; r++)
        if (r <= count && begin + r > 0)
            task.x.load((begin + r - 1) * task.columns + column, rows[r]);
#pragma unroll
    for (int r = 0; r < SMEAR_ROWS; r++) {
        const int64_t n = begin + r;
        if (r >= count)
            continue;
        const float factor = strength * task.gate[n];
        float y[width];
        if (!task.sequences.begins_at(n)) {
#pragma unroll
            for (int i = 0; i < width; i++)
                y[i] = fmaf(factor, rows[r][i], rows[r + 1][i]);
        } else if (task.before.data) {
            task.before.load((int64_t)((uint32_t)n / task.sequences.length) * task.columns + column, y);
#pragma unroll
            for (int i = 0; i < width; i++)
                y[i] = fmaf(factor, y[i], rows[r + 1][i]);
        } else {
#pragma unroll
            for (int i = 0; i < width; i++)
                y[i] = rows[r + 1][i];
        }
        task.y.store(n * task.columns + column, y);
    }
}

template <int width, typename T> HsStatus launch_smear_forward(const HsContext *context, const HsSmearArgs *args)
{
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1], packs = columns / width;
    const SmearForward<T> task = { view_of<T>(args->x),
                                   view_of<T>(args->before),
                                   view_of<T>(args->y),
                                   data_of<float>(args->gate),
                                   data_of<float>(args->strength),
                                   sequences_of(args->starts, args->sequence_length),
                                   rows,
                                   columns };
    const unsigned warps = blocks_for(packs, WARP_SIZE);
    const unsigned across = warps * WARP_SIZE < THREADS ? warps * WARP_SIZE : (unsigned)THREADS;
    const dim3 block(across, THREADS / across);
    const dim3 grid(blocks_for(rows, (int64_t)block.y * SMEAR_ROWS), blocks_for(packs, across));
    return hs_launch_after(context, HS_KERNEL((smear_forward_kernel<width, T>)), grid, block, 0, task);
}

template <typename V> struct SmearBackward {
    V dy, x, dx;
    const float *gate, *strength;
    Sequences sequences;
    float *dgate;
    float *partials; /* [blocks]; NULL: no sum */
    int64_t rows, columns, block_rows;
};

/* A row's gradient; returns this lane's share of dy[n].x[n - 1]. */
template <int width, typename V>
HS_DEVICE float smear_back(const SmearBackward<V> &task, int64_t row, bool first, bool followed, float next)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    float dot = 0.0f;
    for (int64_t column = lane * width; column < task.columns; column += WARP_SIZE * width) {
        const int64_t at = row * task.columns + column;
        float dy[width], behind[width] = {}, before[width] = {};
        task.dy.load(at, dy);
        if (followed)
            task.dy.load(at + task.columns, behind);
        if (!first)
            task.x.load(at - task.columns, before);
#pragma unroll
        for (int i = 0; i < width; i++) {
            dot = fmaf(dy[i], before[i], dot);
            dy[i] = fmaf(next, behind[i], dy[i]);
        }
        task.dx.store(at, dy);
    }
    return dot;
}

/* A warp a row. */
template <int width, typename V>
__global__ void __launch_bounds__(THREADS) smear_backward_kernel(const SmearBackward<V> task)
{
    HS_SHARED(float, shares, WARPS);
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int64_t begin = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = begin + task.block_rows < task.rows ? begin + task.block_rows : task.rows;
    const float strength = *task.strength;
    float share = 0.0f;
    for (int64_t row = begin + warp; row < end; row += WARPS) {
        const bool first = task.sequences.begins_at(row);
        const bool followed = row + 1 < task.rows && !task.sequences.begins_at(row + 1);
        const float next = followed ? strength * task.gate[row + 1] : 0.0f;
        const float dot = warp_reduce<Sum>(smear_back<width>(task, row, first, followed, next));
        if (lane == 0)
            task.dgate[row] = strength * dot;
        share = fmaf(task.gate[row], dot, share);
    }
    if (task.partials == nullptr)
        return;
    if (lane == 0)
        shares[warp] = share;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    share = 0.0f;
    for (int other = 0; other < WARPS; other++)
        share += shares[other];
    task.partials[blockIdx.x] = share;
}

PartialSums smear_sums(const HsSmearBackwardArgs *args)
{
    return partial_sums(args->x.shape[0], WARPS);
}

template <int width, typename V>
HsStatus launch_smear_backward(const HsContext *context, const HsSmearBackwardArgs *args, V dy, V x, V dx)
{
    const PartialSums parts = smear_sums(args);
    const bool summed = hs_tensor_present(&args->dstrength);
    const SmearBackward<V> task = { dy,
                                    x,
                                    dx,
                                    data_of<float>(args->gate),
                                    data_of<float>(args->strength),
                                    sequences_of(args->starts, args->sequence_length),
                                    data_of<float>(args->dgate),
                                    summed ? static_cast<float *>(context->workspace) : nullptr,
                                    args->x.shape[0],
                                    args->x.shape[1],
                                    parts.rows };
    return hs_launch_after(context, HS_KERNEL((smear_backward_kernel<width, V>)), (unsigned)parts.blocks, THREADS, 0,
                           task);
}

HsStatus run_smear_backward(const HsContext *context, const HsSmearBackwardArgs *args)
{
    const bool one_dtype = args->dy.dtype == args->x.dtype && args->x.dtype == args->dx.dtype;
    if (!one_dtype || !packs_fit(args->x.shape[1], args->dy, args->x, args->dx))
        return launch_smear_backward<1>(context, args, any_view_of(args->dy), any_view_of(args->x),
                                        any_view_of(args->dx));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_smear_backward<access_width<T>>(context, args, view_of<T>(args->dy), view_of<T>(args->x),
                                                      view_of<T>(args->dx));
    });
}

} // namespace

size_t workspace::blend_backward(const HsContext *, const HsBlendBackwardArgs *args)
{
    return is_summed(args) ? partial_sums(args->dy.shape[0], 1).bytes(1, 2) : 0;
}

HsStatus op::blend_backward(HsContext *context, const HsBlendBackwardArgs *args)
{
    HS_TRY(run_blend_backward(context, args));
    if (!is_summed(args))
        return HS_OK;
    const PartialTotals totals = {
        { { number_of(args->da, args->at), HS_F32 }, { number_of(args->db, args->at), HS_F32 } }, 2
    };
    return add_partial_sums(context, partial_sums(args->dy.shape[0], 1), totals, 1);
}

HsStatus op::smear_forward(HsContext *context, const HsSmearArgs *args)
{
    HS_TRY(check_rows("smear_forward", args->x.shape[0]));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        const bool packed = packs_fit(args->x.shape[1], args->x, args->y) && aligned_to(args->before.data, 16);
        return packed ? launch_smear_forward<access_width<T>, T>(context, args)
                      : launch_smear_forward<1, T>(context, args);
    });
}

size_t workspace::smear_backward(const HsContext *, const HsSmearBackwardArgs *args)
{
    return hs_tensor_present(&args->dstrength) ? smear_sums(args).bytes(1, 1) : 0;
}

HsStatus op::smear_backward(HsContext *context, const HsSmearBackwardArgs *args)
{
    HS_TRY(check_rows("smear_backward", args->x.shape[0]));
    HS_TRY(run_smear_backward(context, args));
    if (!hs_tensor_present(&args->dstrength))
        return HS_OK;
    const PartialTotals totals = { { any_view_of(args->dstrength) }, 1 };
    return add_partial_sums(context, smear_sums(args), totals, 1);
}

} // namespace HS_CUDA_NAMESPACE
