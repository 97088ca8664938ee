/* SPDX-License-Identifier: MIT
 *
 * Gates from the first features of a row, and values of tokens added to those of attention (formulas:
 * kernels/ref/streams.c).
 *
 * Gates read a few features of each row: neighbouring lanes serve neighbouring features, and ask so little of memory
 * that formats are looked up.  Added values are bound by memory and move in packs.
 */
#include "kernels/cuda/layers/norm.cuh"
#include "kernels/cuda/toolbox/activation.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* LANE_FEATURES: of a gate, where 32 lanes do not have more.  VALUE_ROWS: of a thread, which waits for their tokens,
 * and then for their values, at once. */
enum { THREADS = 256, WARPS = THREADS / WARP_SIZE, LANE_FEATURES = 4, VALUE_ROWS = 2 };

struct GateForward {
    AnyView x, w;
    float *gate;
    int64_t rows, columns, gates, features;
    float factor;
    int lanes; /* of a row: a power of two */
};

/* Of this thread's neighbours, `lanes` of one warp; every lane of it calls. */
HS_DEVICE float group_sum(float value, int lanes)
{
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(FULL_WARP, value, offset);
    return value;
}

HS_DEVICE float element_of(const AnyView &view, int64_t index)
{
    float value[1];
    view.load(index, value);
    return value[0];
}

/* Lane l of a row keeps logits l, l + lanes, ..., so that exponentials and stores are of as many gates at a time. */
__global__ void __launch_bounds__(THREADS) gate_forward_kernel(const GateForward task)
{
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % task.lanes;
    const int64_t row = (int64_t)blockIdx.x * (THREADS / task.lanes) + (int)threadIdx.x / task.lanes;
    /* Lanes without a row stay for the shuffles. */
    const int64_t features = row < task.rows ? task.features : 0;
    float logit = 0.0f;
    for (int64_t g = 0; g < task.gates; g++) {
        float sum = 0.0f;
        for (int64_t k = lane; k < features; k += task.lanes)
            sum = fmaf(element_of(task.x, row * task.columns + k), element_of(task.w, g * features + k), sum);
        sum = group_sum(sum, task.lanes);
        const int place = (int)g & (task.lanes - 1);
        if (place == lane)
            logit = sum;
        const bool full = place == task.lanes - 1 || g + 1 == task.gates;
        if (full && lane <= place && row < task.rows)
            task.gate[row * task.gates + g - place + lane] = task.factor * logistic(logit).value;
    }
}

struct GateBackward {
    const float *dgate, *gate;
    AnyView x, w, dx; /* x and dx may be absent */
    float *partials;  /* [blocks][gates features], where there is x */
    int64_t rows, block_rows, columns, gates, features;
    float inverse_factor;
    bool accumulate, aligned; /* rows of dx begin at multiples of 16 bytes */
};

/* da of row and gate `at` */
HS_DEVICE float logit_gradient(const GateBackward &task, int64_t at)
{
    const float gate = task.gate[at];
    return task.dgate[at] * gate * (1.0f - gate * task.inverse_factor);
}

/* Half words begin .. end - 1 of a row, whatever its format: zero is all bits clear. */
HS_DEVICE void clear_row(uint16_t *row, int64_t begin, int64_t end, bool aligned)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    constexpr int count = PackWidth<uint16_t>::value;
    const int64_t whole = aligned ? (begin + count - 1) / count * count : end;
    for (int64_t i = begin + lane; i < whole; i += WARP_SIZE)
        row[i] = 0;
    for (int64_t i = whole + lane * count; i < end; i += WARP_SIZE * count)
        store_pack<uint16_t, count>(row + i, Pack<uint16_t, count>{});
}

/* Of one row, by a warp: dx [+]= da w, zeros behind the features unless it accumulates. */
HS_DEVICE void store_features(const GateBackward &task, int64_t row)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    for (int64_t base = 0; base < task.features; base += WARP_SIZE) {
        const int64_t k = base + lane;
        float sum[1] = { 0.0f };
        for (int64_t first = 0; first < task.gates; first += WARP_SIZE) {
            const int count = task.gates - first < WARP_SIZE ? (int)(task.gates - first) : (int)WARP_SIZE;
            const float mine = lane < count ? logit_gradient(task, row * task.gates + first + lane) : 0.0f;
            for (int g = 0; g < count; g++) {
                const float da = __shfl_sync(FULL_WARP, mine, g);
                if (k < task.features)
                    sum[0] = fmaf(da, element_of(task.w, (first + g) * task.features + k), sum[0]);
            }
        }
        const int64_t at = row * task.columns + k;
        if (k < task.features) {
            if (task.accumulate)
                sum[0] += element_of(task.dx, at);
            task.dx.store(at, sum);
        }
    }
    if (task.accumulate)
        return;
    const int64_t units = task.dx.dtype == HS_F32 ? 2 : 1; /* half words of an element */
    clear_row(static_cast<uint16_t *>(task.dx.data) + row * task.columns * units, task.features * units,
              task.columns * units, task.aligned);
}

/* A block's share of dw, a thread an element; where they are few, several threads, which share the rows. */
HS_DEVICE void sum_weight_gradient(const GateBackward &task, int64_t begin, int64_t end, float *sums)
{
    const int64_t elements = task.gates * task.features;
    const int across = elements < THREADS ? ((int)elements + WARP_SIZE - 1) / WARP_SIZE * WARP_SIZE : (int)THREADS;
    const int slots = THREADS / across, slot = (int)threadIdx.x / across, place = (int)threadIdx.x % across;
    for (int64_t base = 0; base < elements; base += across) {
        const int64_t element = base + place, g = element / task.features, k = element % task.features;
        float sum = 0.0f;
        if (slot < slots && element < elements) {
#pragma unroll 4
            for (int64_t row = begin + slot; row < end; row += slots)
                sum = fmaf(logit_gradient(task, row * task.gates + g), element_of(task.x, row * task.columns + k), sum);
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (slot == 0 && element < elements) {
            for (int other = 1; other < slots; other++)
                sum += sums[other * across + place];
            task.partials[blockIdx.x * elements + element] = sum;
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS, 2) gate_backward_kernel(const GateBackward task)
{
    HS_SHARED(float, sums, THREADS);
    begin_after_kernel_before();
    const int64_t begin = (int64_t)blockIdx.x * task.block_rows;
    const int64_t end = begin + task.block_rows < task.rows ? begin + task.block_rows : task.rows;
    for (int64_t row = begin + (int)threadIdx.x / WARP_SIZE; task.dx.data && row < end; row += WARPS)
        store_features(task, row);
    if (task.x.data)
        sum_weight_gradient(task, begin, end, sums);
}

PartialSums gate_sums(const HsGateBackwardArgs *args)
{
    return partial_sums(args->gate.shape[0], WARPS);
}

/* v[n,g] += gate[n,g] table[tokens[n],g], and a copy of what stands before the values. */
template <typename V> struct AddValues {
    V table, x, y;
    const float *gate;
    const int32_t *tokens;
    int64_t rows, columns;
    int64_t begin, value_column; /* the first column: that of the values, where the others stay */
    uint32_t head_dim, kv_heads;
};

template <int width, typename V>
__global__ void __launch_bounds__(THREADS, 2) add_values_kernel(const AddValues<V> task)
{
    begin_after_kernel_before();
    const int64_t column = task.begin + ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * width;
    const int64_t first = ((int64_t)blockIdx.x * blockDim.y + threadIdx.y) * VALUE_ROWS;
    if (column >= task.columns || first >= task.rows)
        return;
    const int count = task.rows - first < VALUE_ROWS ? (int)(task.rows - first) : (int)VALUE_ROWS;
    const bool adds = column >= task.value_column;
    const uint32_t value = adds ? (uint32_t)(column - task.value_column) : 0;
    const int64_t table_columns = (int64_t)task.kv_heads * task.head_dim;
    float x[VALUE_ROWS][width], added[VALUE_ROWS][width] = {}, gate[VALUE_ROWS] = {};
    int64_t token[VALUE_ROWS] = {};
#pragma unroll
    for (int r = 0; r < VALUE_ROWS; r++)
        if (r < count && adds)
            token[r] = task.tokens[first + r];
#pragma unroll
    for (int r = 0; r < VALUE_ROWS; r++) {
        if (r >= count)
            continue;
        task.x.load((first + r) * task.columns + column, x[r]);
        if (adds) {
            gate[r] = task.gate[(first + r) * task.kv_heads + value / task.head_dim];
            task.table.load(token[r] * table_columns + value, added[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < VALUE_ROWS; r++) {
        if (r >= count)
            continue;
        if (adds) {
#pragma unroll
            for (int i = 0; i < width; i++)
                x[r][i] = fmaf(gate[r], added[r][i], x[r][i]);
        }
        task.y.store((first + r) * task.columns + column, x[r]);
    }
}

int64_t value_column_of(const HsHeads &heads)
{
    return (heads.heads + heads.kv_heads) * heads.head_dim;
}

template <int width, typename V>
HsStatus launch_add_values(const HsContext *context, const HsAddValuesArgs *args, V table, V x, V y)
{
    const HsHeads &heads = args->heads;
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1], value_column = value_column_of(heads);
    const int64_t begin = args->x.data == args->y.data ? value_column : 0, packs = (columns - begin) / width;
    const AddValues<V> task = { table,
                                x,
                                y,
                                data_of<float>(args->gate),
                                data_of<int32_t>(args->tokens),
                                rows,
                                columns,
                                begin,
                                value_column,
                                (uint32_t)heads.head_dim,
                                (uint32_t)heads.kv_heads };
    const unsigned warps = blocks_for(packs, WARP_SIZE);
    const unsigned across = warps * WARP_SIZE < THREADS ? warps * WARP_SIZE : (unsigned)THREADS;
    const dim3 block(across, THREADS / across);
    const dim3 grid(blocks_for(rows, (int64_t)block.y * VALUE_ROWS), blocks_for(packs, across));
    return hs_launch_after(context, HS_KERNEL((add_values_kernel<width, V>)), grid, block, 0, task);
}

/* drows[n,g] = gate[n,g] dv[n,g];  dgate[n,g] = dv[n,g].table[tokens[n],g] */
template <typename V> struct AddValuesBackward {
    V dy, table, drows; /* drows may be absent */
    const float *gate;
    const int32_t *tokens;
    float *dgate;
    int64_t rows, columns, value_column;
    int head_dim, kv_heads;
    int lanes; /* of a head: a power of two */
};

/* A head belongs to a group of lanes of one warp. */
template <int width, typename V>
__global__ void __launch_bounds__(THREADS) add_values_backward_kernel(const AddValuesBackward<V> task)
{
    begin_after_kernel_before();
    const int64_t index = (int64_t)blockIdx.x * (THREADS / task.lanes) + (int)threadIdx.x / task.lanes;
    const int64_t row = (int64_t)((uint64_t)index / (uint32_t)task.kv_heads);
    const int64_t head = (index - row * task.kv_heads) * task.head_dim;
    const int64_t table_columns = (int64_t)task.kv_heads * task.head_dim;
    const int lane = (int)threadIdx.x % task.lanes;
    /* A group without a head stays for the shuffles. */
    const int head_dim = row < task.rows ? task.head_dim : 0;
    const float gate = row < task.rows ? task.gate[index] : 0.0f;
    const int64_t token = row < task.rows ? task.tokens[row] : 0;
    float dot = 0.0f;
    for (int column = lane * width; column < head_dim; column += task.lanes * width) {
        float dv[width], value[width];
        task.dy.load(row * task.columns + task.value_column + head + column, dv);
        task.table.load(token * table_columns + head + column, value);
#pragma unroll
        for (int i = 0; i < width; i++) {
            dot = fmaf(dv[i], value[i], dot);
            dv[i] *= gate;
        }
        if (task.drows.data)
            task.drows.store(row * table_columns + head + column, dv);
    }
    dot = group_sum(dot, task.lanes);
    if (row < task.rows && lane == 0)
        task.dgate[index] = dot;
}

template <int width, typename V>
HsStatus launch_add_values_backward(const HsContext *context, const HsAddValuesBackwardArgs *args, V dy, V table,
                                    V drows)
{
    const HsHeads &heads = args->heads;
    int lanes = 1;
    while (lanes < WARP_SIZE && lanes * width < heads.head_dim)
        lanes *= 2;
    const int64_t rows = args->dy.shape[0];
    const AddValuesBackward<V> task = { dy,
                                        table,
                                        drows,
                                        data_of<float>(args->gate),
                                        data_of<int32_t>(args->tokens),
                                        data_of<float>(args->dgate),
                                        rows,
                                        args->dy.shape[1],
                                        value_column_of(heads),
                                        (int)heads.head_dim,
                                        (int)heads.kv_heads,
                                        lanes };
    return hs_launch_after(context, HS_KERNEL((add_values_backward_kernel<width, V>)),
                           blocks_for(rows * heads.kv_heads, THREADS / lanes), THREADS, 0, task);
}

} // namespace

HsStatus op::gate_forward(HsContext *context, const HsGateArgs *args)
{
    int lanes = 1;
    while (lanes < WARP_SIZE && lanes * LANE_FEATURES < args->w.shape[1])
        lanes *= 2;
    const GateForward task = { any_view_of(args->x), any_view_of(args->w), data_of<float>(args->gate),
                               args->x.shape[0],     args->x.shape[1],     args->w.shape[0],
                               args->w.shape[1],     args->factor,         lanes };
    return hs_launch_after(context, HS_KERNEL(gate_forward_kernel), blocks_for(task.rows, THREADS / lanes), THREADS, 0,
                           task);
}

size_t workspace::gate_backward(const HsContext *, const HsGateBackwardArgs *args)
{
    return hs_tensor_present(&args->dw) ? gate_sums(args).bytes(hs_tensor_count(&args->w), 1) : 0;
}

HsStatus op::gate_backward(HsContext *context, const HsGateBackwardArgs *args)
{
    const PartialSums parts = gate_sums(args);
    const HsTensor &rows = hs_tensor_present(&args->dx) ? args->dx : args->x;
    float *const partials = static_cast<float *>(context->workspace);
    const GateBackward task = { data_of<float>(args->dgate),
                                data_of<float>(args->gate),
                                any_view_of(args->x),
                                any_view_of(args->w),
                                any_view_of(args->dx),
                                partials,
                                rows.shape[0],
                                parts.rows,
                                rows.shape[1],
                                args->w.shape[0],
                                args->w.shape[1],
                                1.0f / args->factor,
                                args->accumulate,
                                packs_fit(rows.shape[1], args->dx) };
    HS_TRY(hs_launch_after(context, HS_KERNEL(gate_backward_kernel), (unsigned)parts.blocks, THREADS, 0, task));
    if (!hs_tensor_present(&args->dw))
        return HS_OK;
    return add_partial_sums(context, parts, { { any_view_of(args->dw) }, 1 }, hs_tensor_count(&args->dw));
}

HsStatus op::add_values_forward(HsContext *context, const HsAddValuesArgs *args)
{
    const bool one_dtype = args->x.dtype == args->table.dtype;
    if (!one_dtype || !packs_fit(args->heads.head_dim, args->x, args->y, args->table))
        return launch_add_values<1>(context, args, any_view_of(args->table), any_view_of(args->x),
                                    any_view_of(args->y));
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_add_values<access_width<T>>(context, args, view_of<T>(args->table), view_of<T>(args->x),
                                                  view_of<T>(args->y));
    });
}

HsStatus op::add_values_backward(HsContext *context, const HsAddValuesBackwardArgs *args)
{
    const bool wanted = hs_tensor_present(&args->drows);
    const bool one_dtype = args->dy.dtype == args->table.dtype && (!wanted || args->drows.dtype == args->dy.dtype);
    if (!one_dtype || !packs_fit(args->heads.head_dim, args->dy, args->table) || !aligned_to(args->drows.data, 16))
        return launch_add_values_backward<1>(context, args, any_view_of(args->dy), any_view_of(args->table),
                                             any_view_of(args->drows));
    return dispatch_act(args->dy.dtype, [&](auto element) {
        using T = decltype(element);
        return launch_add_values_backward<access_width<T>>(context, args, view_of<T>(args->dy), view_of<T>(args->table),
                                                           view_of<T>(args->drows));
    });
}

} // namespace HS_CUDA_NAMESPACE
