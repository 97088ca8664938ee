/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy with its gradient.  For a row of logits l, target t and lse = log sum_v exp(l_v):
 *     loss = lse - l_t;  dl_v = gs ((1 + 2 z lse) p_v - [v = t]),  p_v = exp(l_v - lse)
 *
 * The bound is memory: each logit read once, each gradient written once.  A row has to be seen whole before its first
 * gradient is known, so it waits in shared memory (a row of 50304 is 201 KB, and 101 KB in 16 bits: two blocks of a
 * Hopper's multiprocessor, or all that one of the consumer cards has); what does not fit is read a second time, mostly
 * from L2, where the rows in flight do fit.  Two exponentials a logit take 16-bit rows to about two thirds of the time
 * that their bytes take on an H100.
 *
 * A block takes row after row.  A thread uses the same places of the cache in both passes, so no barrier guards them:
 * as soon as a gradient is written, its place is refilled from the block's next row by cp.async, in groups that the
 * next first pass waits for one by one.  Memory is so kept busy by loads while stores drain, and idles for one
 * reduction a row.
 *
 * The row moves by packs, 16 bytes aligned in memory and in the cache: four elements of f32, eight of 16 bits.  Where V
 * is no multiple of those a row begins inside a pack: `shift` elements of its first pack, and some of its last one, are
 * not the row's.
 *
 * With a cap c what is stored is x, l_v = c tanh(x_v / c), and the gradient is dl_v (1 - (l_v / c)^2): capped once in
 * each pass, by another exponential and a reciprocal, in kernels that are compiled apart.
 */
#include <math.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/logit_cap.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* A group is what a thread handles between two looks at the running maximum, and one commit of copies; MOST_GROUPS of
 * them, by 1024 threads, are more than the shared memory of any GPU. */
enum { GROUP_ELEMENTS = 16, MOST_GROUPS = 8, MOST_THREADS = 1024 };

/* Elements of a pack; packs of a group, and a group as it is stored. */
template <typename In> static constexpr int PLACES = PackWidth<In>::value;
template <typename In> static constexpr int GROUP_PACKS = GROUP_ELEMENTS / PLACES<In>;
template <typename In> using Group = Pack<In, PLACES<In>>[GROUP_PACKS<In>];

/* What the warps of a block tell each other: the largest logit, and the sum of exp(logit - largest). */
struct Scores {
    float maximum, sum;
};

/* Two sets, used in turn: a warp that is a row ahead writes the other one. */
enum { SCRATCH_BYTES = 2 * WARP_SIZE * (int)sizeof(Scores) };

template <typename In> struct Row {
    const In *packs; /* the row's first element less `shift` */
    int64_t first;   /* index of that place in the tensor */
    int shift, end;  /* places of the row: [shift, end) */
    bool counted;    /* there is such a row, and its target is not -1 */
    int target;      /* place of the target */
};

template <typename In>
HS_DEVICE Row<In> row_at(const In *logits, const int32_t *targets, int64_t row, int64_t rows, int vocabulary)
{
    Row<In> result = {};
    if (row >= rows)
        return result;
    const int64_t first = row * vocabulary;
    const int target = targets[row];
    result.shift = (int)(reinterpret_cast<uintptr_t>(logits + first) / sizeof(In) % PLACES<In>);
    result.packs = logits + first - result.shift;
    result.first = first - result.shift;
    result.end = result.shift + vocabulary;
    result.counted = target >= 0;
    result.target = result.shift + target;
    return result;
}

template <typename In> HS_DEVICE bool is_whole(const Row<In> &row, int pack)
{
    return pack * PLACES<In> >= row.shift && pack * PLACES<In> + PLACES<In> <= row.end;
}

template <typename In> HS_DEVICE bool is_inside(const Row<In> &row, int place)
{
    return place >= row.shift && place < row.end;
}

static constexpr float LOG2_E = 1.44269504f;

/* exp(x) to the accuracy of x log2(e) in f32 and of ex2; subnormal results, which no sum notices, are flushed. */
HS_DEVICE float exponential(float x)
{
    return ptx::exp2_approximate(x * LOG2_E);
}

/* One element, which only this thread reads there; copies move no less than four bytes. */
HS_DEVICE void fetch_place(float *cache, const float *source)
{
    ptx::copy_async_4(ptx::shared_address(cache), source, 4);
}

template <typename In> HS_DEVICE void fetch_place(In *cache, const In *source)
{
    *cache = *source;
}

/* Start the copies of one group of the cache. */
template <typename In> HS_DEVICE void fetch_group(const Row<In> &row, In *cache, int first_pack, int cached)
{
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++) {
        const int pack = first_pack + k * (int)blockDim.x, first = pack * PLACES<In>;
        if (!row.counted || pack >= cached)
            continue;
        if (is_whole(row, pack)) {
            ptx::copy_async_16(ptx::shared_address(cache + first), row.packs + first, 16);
            continue;
        }
        for (int place = first; place < first + PLACES<In>; place++)
            if (is_inside(row, place))
                fetch_place(cache + place, row.packs + place);
    }
    ptx::copy_async_commit();
}

template <int most = MOST_GROUPS - 1> HS_DEVICE void wait_for_groups(int pending)
{
    if constexpr (most == 0)
        ptx::copy_async_wait<0>();
    else if (pending == most)
        ptx::copy_async_wait<most>();
    else
        wait_for_groups<most - 1>(pending);
}

/* The packs of one group below `limit` from `source` (cache or memory); places that are not the row's are -infinity. */
template <typename In>
HS_DEVICE void load_group(const Row<In> &row, const In *source, int first_pack, int limit, Group<In> &x)
{
    const int step = (int)blockDim.x, last_pack = first_pack + (GROUP_PACKS<In> - 1) * step;
    if (last_pack < limit && is_whole(row, first_pack) && is_whole(row, last_pack)) {
#pragma unroll
        for (int k = 0; k < GROUP_PACKS<In>; k++)
            x[k] = load_pack<In, PLACES<In>>(source + (first_pack + k * step) * PLACES<In>);
        return;
    }
    In nothing;
    round_to(nothing, -INFINITY);
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++) {
        const int pack = first_pack + k * step;
#pragma unroll
        for (int j = 0; j < PLACES<In>; j++) {
            const int place = pack * PLACES<In> + j;
            x[k].value[j] = pack < limit && is_inside(row, place) ? source[place] : nothing;
        }
    }
}

/* The running maximum and sum take in a group (Milakov & Gimelshein 2018, algorithm 3, many elements at a time). */
template <typename In> HS_DEVICE void gather(Scores &scores, const Group<In> &x)
{
    float maximum = scores.maximum;
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++)
#pragma unroll
        for (int j = 0; j < PLACES<In>; j++)
            maximum = fmaxf(maximum, to_float(x[k].value[j])); /* passes over NaN, which the sum then shows */
    const float offset = maximum == -INFINITY ? 0.0f : maximum;
    float sum = scores.sum * exponential(scores.maximum - offset);
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++)
#pragma unroll
        for (int j = 0; j < PLACES<In>; j++)
            sum += exponential(to_float(x[k].value[j]) - offset);
    scores = Scores{ maximum, sum };
}

/* The same of capped logits.  Places that are not the row's count nothing, which the cap of -infinity would. */
template <typename In>
HS_DEVICE void gather_capped(Scores &scores, const Group<In> &x, const LogitCap &cap, const Row<In> &row,
                             int first_pack, int limit)
{
    const int end = min(row.end, limit * PLACES<In>);
    float logits[GROUP_ELEMENTS], maximum = scores.maximum;
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++)
#pragma unroll
        for (int j = 0; j < PLACES<In>; j++) {
            const int place = (first_pack + k * (int)blockDim.x) * PLACES<In> + j;
            const float logit = capped_logit(cap, to_float(x[k].value[j])).value;
            logits[k * PLACES<In> + j] = place >= row.shift && place < end ? logit : -INFINITY;
            maximum = fmaxf(maximum, logits[k * PLACES<In> + j]);
        }
    const float offset = maximum == -INFINITY ? 0.0f : maximum;
    float sum = scores.sum * exponential(scores.maximum - offset);
#pragma unroll
    for (int i = 0; i < GROUP_ELEMENTS; i++)
        sum += exponential(logits[i] - offset);
    scores = Scores{ maximum, sum };
}

/* Of either kind: the packs of one group below `limit` from `source`. */
template <bool capped, typename In>
HS_DEVICE void gather_group(Scores &scores, const LogitCap &cap, const Row<In> &row, const In *source, int first_pack,
                            int limit)
{
    Group<In> x;
    load_group(row, source, first_pack, limit, x);
    if constexpr (capped)
        gather_capped<In>(scores, x, cap, row, first_pack, limit);
    else
        gather<In>(scores, x);
}

HS_DEVICE Scores warp_gather(const Scores &scores)
{
    const float maximum = warp_reduce<Maximum>(scores.maximum);
    const float share = scores.maximum == maximum ? scores.sum : scores.sum * exponential(scores.maximum - maximum);
    return Scores{ maximum, warp_reduce<Sum>(share) };
}

/* Log of the sum of exponentials over the block; one barrier, because rows use the sets of `scratch` in turn. */
HS_DEVICE float block_log_sum_exp(const Scores &mine, Scores *scratch)
{
    const int lane = (int)threadIdx.x % WARP_SIZE, warps = (int)blockDim.x / WARP_SIZE;
    const Scores warp = warp_gather(mine);
    if (lane == 0)
        scratch[threadIdx.x / WARP_SIZE] = warp;
    __syncthreads();
    const Scores block = warp_gather(lane < warps ? scratch[lane] : Scores{ -INFINITY, 0.0f });
    return block.maximum + logf(block.sum);
}

struct Gradient {
    float lse, pull, scale; /* dl_v = pull p_v - scale [v = t] */
};

/* Gradients of one group, from the logits in `source` (not read where the row is not counted: they are zero).  All
 * loads come before the first store, which may be to their place. */
template <bool capped, typename In, typename Out>
HS_DEVICE void write_group(const Row<In> &row, const Gradient &gradient, const LogitCap &cap, const In *source,
                           int first_pack, int limit, Out *dlogits, bool packs)
{
    Group<In> x = {};
    if (row.counted)
        load_group(row, source, first_pack, limit, x);
#pragma unroll
    for (int k = 0; k < GROUP_PACKS<In>; k++) {
        const int pack = first_pack + k * (int)blockDim.x, place = pack * PLACES<In>;
        if (pack >= limit)
            return;
        Pack<Out, PLACES<In>> result = {};
        if (row.counted) {
#pragma unroll
            for (int j = 0; j < PLACES<In>; j++) {
                CappedLogit logit = { to_float(x[k].value[j]), 1.0f };
                if constexpr (capped)
                    logit = capped_logit(cap, logit.value);
                const float p = exp2f((logit.value - gradient.lse) * LOG2_E); /* subnormal ones, too */
                const float once = place + j == row.target ? gradient.scale : 0.0f;
                float change = fmaf(gradient.pull, p, -once);
                if constexpr (capped)
                    change *= logit.slope;
                round_to(result.value[j], change);
            }
        }
        if (packs && is_whole(row, pack)) {
            store_pack<Out, PLACES<In>>(dlogits + row.first + place, result);
            continue;
        }
#pragma unroll
        for (int j = 0; j < PLACES<In>; j++)
            if (is_inside(row, place + j))
                dlogits[row.first + place + j] = result.value[j];
    }
}

/* cached: how many packs of a row the dynamic shared memory holds.  packs: dlogits' rows begin inside a pack where the
 * logits' do.  dlogits may be null. */
template <typename In, typename Out, bool capped>
__global__ void __launch_bounds__(MOST_THREADS)
    cross_entropy_kernel(const In *logits, const LogitCap cap, const int32_t *targets, float z_loss,
                         const float *gradient_scale, float *losses, Out *dlogits, int64_t rows, int vocabulary,
                         int cached, bool packs)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    begin_after_kernel_before();
    Scores *scratch = reinterpret_cast<Scores *>(shared);
    In *cache = reinterpret_cast<In *>(shared + SCRATCH_BYTES);
    const int thread = (int)threadIdx.x, group = GROUP_PACKS<In> * (int)blockDim.x;
    const int groups = (cached + group - 1) / group;
    const float scale = dlogits != nullptr ? *gradient_scale : 0.0f;

    Row<In> row = row_at(logits, targets, blockIdx.x, rows, vocabulary);
    for (int g = 0; g < groups; g++)
        fetch_group(row, cache, g * group + thread, cached);
    int set = 0;
    for (int64_t n = blockIdx.x; n < rows; n += gridDim.x, set ^= 1) {
        const Row<In> next = row_at(logits, targets, n + gridDim.x, rows, vocabulary);
        const int end = (row.end + PLACES<In> - 1) / PLACES<In>;
        /* before any gradient can be written in its place: the reduction's barrier is between */
        float target_logit = row.counted && thread == 0 ? to_float(row.packs[row.target]) : 0.0f;
        if constexpr (capped)
            target_logit = capped_logit(cap, target_logit).value;

        Scores scores = { -INFINITY, 0.0f };
        for (int g = 0; g < groups; g++) {
            wait_for_groups(groups - 1 - g);
            if (row.counted)
                gather_group<capped>(scores, cap, row, static_cast<const In *>(cache), g * group + thread,
                                     min(cached, end));
        }
        for (int pack = cached + thread; pack < end && row.counted; pack += group)
            gather_group<capped>(scores, cap, row, row.packs, pack, end);
        const float lse = block_log_sum_exp(scores, scratch + set * WARP_SIZE);
        if (thread == 0)
            losses[n] = row.counted ? lse - target_logit : 0.0f;

        if (dlogits != nullptr) {
            const Gradient gradient = { lse, scale * (1.0f + 2.0f * z_loss * lse), scale };
            for (int g = 0; g < groups; g++) {
                write_group<capped>(row, gradient, cap, static_cast<const In *>(cache), g * group + thread,
                                    min(cached, end), dlogits, packs);
                fetch_group(next, cache, g * group + thread, cached);
            }
            for (int pack = cached + thread; pack < end; pack += group)
                write_group<capped>(row, gradient, cap, row.packs, pack, end, dlogits, packs);
        }
        row = next;
    }
}

/* dlogits' format is the logits', or these are f32. */
template <typename In, typename Out> HsStatus launch(HsContext *context, const HsCrossEntropyArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    const DeviceLimits &limits = limits_of(context);
    const In *logits = data_of<In>(args->logits);
    Out *dlogits = optional_data<Out>(args->dlogits);

    /* One group a thread, as far as threads go. */
    const unsigned wanted = blocks_for(vocabulary, GROUP_ELEMENTS * WARP_SIZE) * (unsigned)WARP_SIZE;
    const unsigned threads = wanted < MOST_THREADS ? wanted : (unsigned)MOST_THREADS;
    /* Without a gradient no logit is needed twice, and nothing is cached. */
    const int64_t row_packs = (vocabulary + 2 * (PLACES<In> - 1)) / PLACES<In>; /* with the largest shift */
    const int64_t room = (int64_t)(limits.block_shared_bytes - SCRATCH_BYTES) / 16;
    const int cached = dlogits == nullptr ? 0 : (int)(row_packs < room ? row_packs : room);
    const size_t shared_bytes = SCRATCH_BYTES + 16 * (size_t)cached;

    /* As many blocks as the GPU holds at a time; which rows a block takes changes no result. */
    const int64_t by_shared = (int64_t)(limits.multiprocessor_shared_bytes / (shared_bytes + 1024));
    const int64_t by_threads = 2 * MOST_THREADS / (int64_t)threads;
    int64_t resident = by_shared < by_threads ? by_shared : by_threads;
    resident = resident < 1 ? 1 : resident < 32 ? resident : 32;
    const int64_t blocks = resident * limits.multiprocessors;
    const unsigned grid = (unsigned)(rows < blocks ? rows : blocks);

    const uintptr_t logits_phase = reinterpret_cast<uintptr_t>(logits) / sizeof(In) % PLACES<In>;
    const bool packs = reinterpret_cast<uintptr_t>(dlogits) / sizeof(Out) % PLACES<In> == logits_phase;
    return dispatch_cap(args->cap > 0.0f, [&](auto kind) {
        return hs_launch_after(context, HS_KERNEL((cross_entropy_kernel<In, Out, decltype(kind)::capped>)), grid,
                               threads, shared_bytes, logits, logit_cap_of(args->cap), data_of<int32_t>(args->targets),
                               args->z_loss, args->gradient_scale, data_of<float>(args->losses), dlogits, rows,
                               (int)vocabulary, cached, packs);
    });
}

} // namespace

HsStatus op::cross_entropy(HsContext *context, const HsCrossEntropyArgs *args)
{
    if (args->logits.shape[1] > INT32_MAX / 2)
        return hs_fail(HS_EUNSUPPORTED, "cross_entropy: a vocabulary of %lld is more than the kernel's %d",
                       (long long)args->logits.shape[1], INT32_MAX / 2);
    if (args->logits.dtype == HS_BF16)
        return launch<Bf16, Bf16>(context, args);
    if (args->logits.dtype == HS_F16)
        return launch<F16, F16>(context, args);
    return dispatch_act(hs_tensor_present(&args->dlogits) ? args->dlogits.dtype : HS_F32,
                        [&](auto out) { return launch<float, decltype(out)>(context, args); });
}

} // namespace HS_CUDA_NAMESPACE
