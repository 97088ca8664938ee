/* SPDX-License-Identifier: MIT
 *
 * Attention for generation: append the new rows' keys and values to the cache, then let each new query read all of it.
 * There are few queries, and the bound is the bytes of the cache.  A block serves one row, up to four query heads of
 * one kv head (what they share is read once), and a range of keys; ranges are joined by a last kernel, so that a single
 * long sequence still fills the machine.
 *
 * Within a warp, groups of lanes hold one key each, 16 bytes a lane; a group takes four keys at a time, so that four
 * loads are in flight, and runs its own online softmax (Milakov & Gimelshein 2018).  Partial results
 *     (m, l, a) = (max, sum 2^(s - m), sum 2^(s - m) v)
 * are joined in a fixed order: over the groups of the block, then over the ranges.  How keys are split depends on
 * shapes alone, so the same call gives the same bits on every device.
 */
#include <limits.h>

#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_element.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { CACHED_THREADS = 128, KEYS_AT_ONCE = 4, LEAST_KEYS_A_SPLIT = 256, BLOCKS_WANTED = 512, MOST_SPLITS = 64 };

struct CachedCall {
    Attention attention;
    int position, room; /* first new position; rows of the cache a sequence */
    int window, base;   /* keys that a row sees, INT_MAX: all; the first that some row sees */
    int lanes;          /* of a key: a power of two */
    int splits, keys_a_split;
    const void *qkv;
    void *k_cache, *v_cache, *out;
    HsDtype out_dtype;
    float *partial; /* [rows * heads][splits][2 + head_dim], when there is more than one split */
};

template <typename T, int chunk> __global__ void cache_append_kernel(CachedCall call)
{
    begin_after_kernel_before();
    const Attention &attention = call.attention;
    const int64_t width = (int64_t)attention.kv_heads * attention.head_dim, row = blockIdx.x;
    const int64_t sequence = row / attention.length, position = call.position + row % attention.length;
    const T *const keys =
        static_cast<const T *>(call.qkv) + row * projection_columns(attention) + key_column(attention, 0);
    T *const k_cache = static_cast<T *>(call.k_cache) + (sequence * call.room + position) * width;
    T *const v_cache = static_cast<T *>(call.v_cache) + (sequence * call.room + position) * width;
    for (int64_t c = (int64_t)threadIdx.x * chunk; c < width; c += (int64_t)blockDim.x * chunk) {
        store_pack(k_cache + c, load_pack<T, chunk>(keys + c));
        store_pack(v_cache + c, load_pack<T, chunk>(keys + width + c));
    }
}

/* A partial result; values[i]: this lane's elements of the head. */
template <int count> struct Partial {
    float maximum, total, value[count];
};

/* a joined with b, both over the same elements; either may be empty (maximum -infinity, total 0). */
template <int count> HS_DEVICE void join(Partial<count> &a, const Partial<count> &b)
{
    const float maximum = fmaxf(a.maximum, b.maximum);
    const float shrink_a = a.maximum == maximum ? 1.0f : ptx::exp2_approximate(a.maximum - maximum);
    const float shrink_b = b.maximum == maximum ? 1.0f : ptx::exp2_approximate(b.maximum - maximum);
    a.total = fmaf(a.total, shrink_a, b.total * shrink_b);
#pragma unroll
    for (int i = 0; i < count; i++)
        a.value[i] = fmaf(a.value[i], shrink_a, b.value[i] * shrink_b);
    a.maximum = maximum;
}

/* The head's sink, which no value belongs to, joins last.  head: in the whole call. */
HS_DEVICE float end_row(const Attention &attention, int64_t head, Partial<1> &sum)
{
    if (attention.sinks != nullptr)
        join(sum, { attention.sinks[head % attention.heads] * LOG2_E, 1.0f, { 0.0f } });
    return sum.value[0] / sum.total;
}

/* Join the groups of the block, one query head after another: a thread takes elements of the head, over all groups in
 * order.  first_head: of `row`, in the whole call; value: room for [groups][lanes * count] of one query head. */
template <int chunk, int chunks, int heads>
HS_DEVICE void join_groups(const CachedCall &call, const Partial<chunk * chunks> (&partial)[heads], int64_t first_head,
                           float *maximum, float *total, float *value)
{
    const int lanes = call.lanes, groups = CACHED_THREADS / lanes, head_dim = call.attention.head_dim;
    const int group = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    if (lane == 0)
#pragma unroll
        for (int h = 0; h < heads; h++) {
            maximum[h * CACHED_THREADS + group] = partial[h].maximum;
            total[h * CACHED_THREADS + group] = partial[h].total;
        }
    const int pitch = lanes * chunk * chunks;
#pragma unroll
    for (int h = 0; h < heads; h++) {
        __syncthreads(); /* the last head has been read */
#pragma unroll
        for (int c = 0; c < chunks; c++)
#pragma unroll
            for (int i = 0; i < chunk; i++)
                value[group * pitch + (c * lanes + lane) * chunk + i] = partial[h].value[c * chunk + i];
        __syncthreads();
        const int64_t head = first_head + h;
        for (int d = (int)threadIdx.x; d < head_dim; d += CACHED_THREADS) {
            Partial<1> sum = { -INFINITY, 0.0f, { 0.0f } };
            for (int other = 0; other < groups; other++)
                join(sum, { maximum[h * CACHED_THREADS + other],
                            total[h * CACHED_THREADS + other],
                            { value[other * pitch + d] } });
            if (call.splits == 1) {
                store_any(call.out, call.out_dtype, head * head_dim + d, end_row(call.attention, head, sum));
                continue;
            }
            float *const destination = call.partial + (head * call.splits + blockIdx.y) * (2 + head_dim);
            destination[2 + d] = sum.value[0];
            if (d == 0) {
                destination[0] = sum.maximum;
                destination[1] = sum.total;
            }
        }
    }
}

/* chunk elements a load, `chunks` loads a lane and key; `heads` query heads a block. */
template <typename T, int chunk, int chunks, int heads>
__global__ void __launch_bounds__(CACHED_THREADS, 3) attention_cached_kernel(CachedCall call)
{
    begin_after_kernel_before();
    constexpr int count = chunk * chunks;
    HS_SHARED(float, shared_maximum, heads *CACHED_THREADS);
    HS_SHARED(float, shared_total, heads *CACHED_THREADS);
    HS_DYNAMIC_SHARED(float, shared_value); /* [groups][lanes * count] of one query head */

    const Attention &attention = call.attention;
    const int lanes = call.lanes, groups = CACHED_THREADS / lanes, head_dim = attention.head_dim;
    const int group = (int)threadIdx.x / lanes, lane = (int)threadIdx.x % lanes;
    const int blocks_a_row = attention.heads / heads, first_head = (int)blockIdx.x % blocks_a_row * heads;
    const int64_t row = blockIdx.x / (unsigned)blocks_a_row, sequence = row / attention.length;
    const int kv_head = first_head / (attention.heads / attention.kv_heads), split = (int)blockIdx.y;
    const int keys = call.position + (int)(row % attention.length) + 1;
    const int split_begin = call.base + split * call.keys_a_split, end = min(split_begin + call.keys_a_split, keys);
    const int begin = max(split_begin, keys - call.window);
    const int64_t stride = (int64_t)attention.kv_heads * head_dim;
    const int64_t first = sequence * call.room * stride + (int64_t)kv_head * head_dim;
    const T *const k_cache = static_cast<const T *>(call.k_cache) + first;
    const T *const v_cache = static_cast<const T *>(call.v_cache) + first;

    /* This lane's elements: chunk c of lane l is chunk c * lanes + l of the head. */
    const auto load = [&](float(&values)[count], const T *source) {
#pragma unroll
        for (int c = 0; c < chunks; c++) {
            const int at = (c * lanes + lane) * chunk;
            Pack<T, chunk> stored = {};
            if (at < head_dim)
                stored = load_pack<T, chunk>(source + at);
#pragma unroll
            for (int i = 0; i < chunk; i++)
                values[c * chunk + i] = to_float(stored.value[i]);
        }
    };
    float query[heads][count];
    Partial<count> partial[heads];
#pragma unroll
    for (int h = 0; h < heads; h++) {
        load(query[h], static_cast<const T *>(call.qkv) + row * projection_columns(attention) +
                           query_column(attention, first_head + h));
        partial[h].maximum = -INFINITY;
        partial[h].total = 0.0f;
#pragma unroll
        for (int i = 0; i < count; i++) {
            query[h][i] *= attention.scale_log2;
            partial[h].value[i] = 0.0f;
        }
    }

    /* Every group makes as many steps: the shuffles below want whole warps. */
    const int steps = (call.keys_a_split + groups * KEYS_AT_ONCE - 1) / (groups * KEYS_AT_ONCE);
    for (int step = 0; step < steps; step++) {
        const int key = begin + (step * groups + group) * KEYS_AT_ONCE;
        if (begin + step * groups * KEYS_AT_ONCE >= end)
            break; /* the same in the whole block */
        float score[heads][KEYS_AT_ONCE], element[count];
#pragma unroll
        for (int k = 0; k < KEYS_AT_ONCE; k++) {
            load(element, k_cache + (int64_t)min(key + k, keys - 1) * stride);
#pragma unroll
            for (int h = 0; h < heads; h++) {
                score[h][k] = 0.0f;
#pragma unroll
                for (int i = 0; i < count; i++)
                    score[h][k] = fmaf(query[h][i], element[i], score[h][k]);
            }
        }
        for (int offset = lanes / 2; offset > 0; offset /= 2)
#pragma unroll
            for (int h = 0; h < heads; h++)
#pragma unroll
                for (int k = 0; k < KEYS_AT_ONCE; k++)
                    score[h][k] += __shfl_xor_sync(FULL_WARP, score[h][k], offset);
        if (attention.cap_exponent != 0.0f) /* the query has the scale in powers of two in it */
#pragma unroll
            for (int h = 0; h < heads; h++)
#pragma unroll
                for (int k = 0; k < KEYS_AT_ONCE; k++)
                    score[h][k] = capped(attention, score[h][k] / attention.scale_log2) * attention.scale_log2;
        if (key >= end)
            continue;
#pragma unroll
        for (int h = 0; h < heads; h++) {
            float maximum = partial[h].maximum;
#pragma unroll
            for (int k = 0; k < KEYS_AT_ONCE; k++)
                if (key + k < end)
                    maximum = fmaxf(maximum, score[h][k]);
            const float shrink = ptx::exp2_approximate(partial[h].maximum - maximum);
            partial[h].maximum = maximum;
            partial[h].total *= shrink;
#pragma unroll
            for (int i = 0; i < count; i++)
                partial[h].value[i] *= shrink;
#pragma unroll
            for (int k = 0; k < KEYS_AT_ONCE; k++) {
                score[h][k] = key + k < end ? ptx::exp2_approximate(score[h][k] - maximum) : 0.0f;
                partial[h].total += score[h][k];
            }
        }
#pragma unroll
        for (int k = 0; k < KEYS_AT_ONCE; k++) {
            load(element, v_cache + (int64_t)min(key + k, keys - 1) * stride);
#pragma unroll
            for (int h = 0; h < heads; h++)
#pragma unroll
                for (int i = 0; i < count; i++)
                    partial[h].value[i] = fmaf(score[h][k], element[i], partial[h].value[i]);
        }
    }
    join_groups<chunk, chunks, heads>(call, partial, row * attention.heads + first_head, shared_maximum, shared_total,
                                      shared_value);
}

/* Join the ranges of keys, in order: a block a query head, a thread an element. */
__global__ void attention_cached_join_kernel(CachedCall call)
{
    begin_after_kernel_before();
    const int head_dim = call.attention.head_dim, pitch = 2 + head_dim;
    const int64_t head = blockIdx.x;
    const float *const partial = call.partial + head * call.splits * pitch;
    for (int d = (int)threadIdx.x; d < head_dim; d += (int)blockDim.x) {
        Partial<1> sum = { -INFINITY, 0.0f, { 0.0f } };
        for (int split = 0; split < call.splits; split++) {
            const float *const other = partial + split * pitch;
            join(sum, { other[0], other[1], { other[2 + d] } });
        }
        store_any(call.out, call.out_dtype, head * head_dim + d, end_row(call.attention, head, sum));
    }
}

/* Rows are whole aligned 16-byte chunks. */
static bool is_packed(const HsAttentionCachedArgs *args)
{
    return args->heads.head_dim * (int64_t)hs_dtype_bytes(args->qkv.dtype) % 16 == 0 &&
           aligned_to(args->qkv.data, 16) && aligned_to(args->k_cache.data, 16) && aligned_to(args->v_cache.data, 16);
}

/* The first key that the first new row sees, before which no row does. */
static int64_t first_of_all(const HsAttentionCachedArgs *args)
{
    const int64_t first = args->position_start + 1 - args->rule.window;
    return args->rule.window > 0 && first > 0 ? first : 0;
}

/* Enough ranges for the machine, none of them short.  Addresses do not matter, so that a dry run counts the same. */
static int count_splits(const HsAttentionCachedArgs *args)
{
    const int64_t blocks = args->heads.batch * args->heads.sequence_length * args->heads.heads;
    const int64_t keys = args->position_start + args->heads.sequence_length - first_of_all(args);
    const int64_t wanted = (BLOCKS_WANTED + blocks - 1) / blocks,
                  most = (keys + LEAST_KEYS_A_SPLIT - 1) / LEAST_KEYS_A_SPLIT;
    const int64_t splits = wanted < most ? wanted : most;
    return splits < MOST_SPLITS ? (int)splits : (int)MOST_SPLITS;
}

template <typename T, int chunk, int chunks, int heads> static HsStatus launch(HsContext *context, CachedCall call)
{
    const int64_t rows = (int64_t)call.attention.batch * call.attention.length;
    HS_TRY(
        hs_launch_after(context, HS_KERNEL((cache_append_kernel<T, chunk>)), (unsigned)rows, CACHED_THREADS, 0, call));
    for (call.lanes = 1; call.lanes < WARP_SIZE && call.lanes * chunk < call.attention.head_dim;)
        call.lanes *= 2;
    const dim3 grid((unsigned)(rows * (call.attention.heads / heads)), (unsigned)call.splits);
    return hs_launch_after(context, HS_KERNEL((attention_cached_kernel<T, chunk, chunks, heads>)), grid, CACHED_THREADS,
                           CACHED_THREADS * chunk * chunks * sizeof(float), call);
}

template <typename T>
static HsStatus attend(HsContext *context, const HsAttentionCachedArgs *args, const CachedCall &call)
{
    /* A lane holds eight elements of a head of up to 256, in 16-byte loads or one by one. */
    constexpr int chunk = PackWidth<T>::value, chunks = 8 / chunk;
    if (!is_packed(args))
        return launch<T, 1, 8, 1>(context, call);
    /* As many query heads a block as divide the group evenly. */
    const int64_t group = args->heads.heads / args->heads.kv_heads;
    if (group % 4 == 0)
        return launch<T, chunk, chunks, 4>(context, call);
    if (group % 2 == 0)
        return launch<T, chunk, chunks, 2>(context, call);
    return launch<T, chunk, chunks, 1>(context, call);
}

namespace op
{

HsStatus attention_cached(HsContext *context, const HsAttentionCachedArgs *args)
{
    const HsTensor *const tensors[] = { &args->qkv, &args->out };
    HS_TRY(refuse_f64("attention_cached", tensors, 2));
    CachedCall call = {};
    HS_TRY(describe_attention("attention_cached", args->heads, args->rule, 0.0f, HsRng{}, &call.attention));
    call.attention.sinks = hs_tensor_present(&args->sinks) ? data_of<const float>(args->sinks) : nullptr;
    const int keys = (int)(args->position_start + args->heads.sequence_length - first_of_all(args));
    call.window = args->rule.window > 0 && args->rule.window < INT_MAX ? (int)args->rule.window : INT_MAX;
    call.base = (int)first_of_all(args);
    call.position = (int)args->position_start;
    call.room = (int)args->k_cache.shape[1];
    call.splits = count_splits(args);
    call.keys_a_split = (keys + call.splits - 1) / call.splits;
    call.qkv = args->qkv.data;
    call.k_cache = args->k_cache.data;
    call.v_cache = args->v_cache.data;
    call.out = args->out.data;
    call.out_dtype = args->out.dtype;
    call.partial = static_cast<float *>(context->workspace);
    HS_TRY(dispatch_act(args->qkv.dtype, [&](auto element) { return attend<decltype(element)>(context, args, call); }));
    const int64_t heads = args->heads.batch * args->heads.sequence_length * args->heads.heads;
    if (call.splits > 1)
        HS_TRY(hs_launch_after(context, HS_KERNEL(attention_cached_join_kernel), (unsigned)heads, CACHED_THREADS, 0,
                               call));
    return launch_amax(context, args->out);
}

} // namespace op

namespace workspace
{

size_t attention_cached(const HsContext *, const HsAttentionCachedArgs *args)
{
    const int64_t splits = count_splits(args),
                  heads = args->heads.batch * args->heads.sequence_length * args->heads.heads;
    return splits == 1 ? 0 : (size_t)(heads * splits * (2 + args->heads.head_dim)) * sizeof(float);
}

} // namespace workspace

} // namespace HS_CUDA_NAMESPACE
