/* SPDX-License-Identifier: MIT
 *
 * Softmax cross-entropy with its gradient.  For a row of logits l, target t and lse = log sum_v exp(l_v):
 *     loss = lse - l_t;  dl_v = gs ((1 + 2 z lse) p_v - [v = t]),  p_v = exp(l_v - lse)
 *
 * The bound is memory: each logit read once, each gradient written once.  A row has to be seen whole before its first
 * gradient is known, so it waits in shared memory (a row of 50304 is 201 KB); what does not fit is read a second time,
 * mostly from L2, where the rows in flight do fit.
 *
 * A block takes row after row.  A thread uses the same places of the cache in both passes, so no barrier guards them:
 * as soon as a gradient is written, its place is refilled from the block's next row by cp.async, in groups that the
 * next first pass waits for one by one.  Memory is so kept busy by loads while stores drain, and idles for one
 * reduction a row.
 *
 * Places are quads, 16 bytes aligned in memory and in the cache.  Where V is no multiple of four a row begins inside a
 * quad: `shift` elements of its first quad, and some of its last one, are not the row's.
 */
#include <math.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* A group is what a thread handles between two looks at the running maximum, and one commit of copies; MOST_GROUPS of
 * them, by 1024 threads, are more than the shared memory of any GPU. */
enum { GROUP_QUADS = 4, GROUP_ELEMENTS = GROUP_QUADS * QUAD, MOST_GROUPS = 4, MOST_THREADS = 1024 };

/* What the warps of a block tell each other: the largest logit, and the sum of exp(logit - largest). */
struct Scores {
    float maximum, sum;
};

/* Two sets, used in turn: a warp that is a row ahead writes the other one. */
enum { SCRATCH_BYTES = 2 * WARP_SIZE * (int)sizeof(Scores) };

struct Row {
    const float *quads; /* the row's first element less `shift` */
    int64_t first;      /* index of that place in the tensor */
    int shift, end;     /* places of the row: [shift, end) */
    bool counted;       /* there is such a row, and its target is not -1 */
    int target;         /* place of the target */
};

HS_DEVICE Row row_at(const float *logits, const int32_t *targets, int64_t row, int64_t rows, int vocabulary)
{
    Row result = {};
    if (row >= rows)
        return result;
    const int64_t first = row * vocabulary;
    const int target = targets[row];
    result.shift = (int)(reinterpret_cast<uintptr_t>(logits + first) / sizeof(float) % QUAD);
    result.quads = logits + first - result.shift;
    result.first = first - result.shift;
    result.end = result.shift + vocabulary;
    result.counted = target >= 0;
    result.target = result.shift + target;
    return result;
}

HS_DEVICE bool is_whole(const Row &row, int quad)
{
    return quad * QUAD >= row.shift && quad * QUAD + QUAD <= row.end;
}

HS_DEVICE bool is_inside(const Row &row, int place)
{
    return place >= row.shift && place < row.end;
}

static constexpr float LOG2_E = 1.44269504f;

/* exp(x) to the accuracy of x log2(e) in f32 and of ex2; subnormal results, which no sum notices, are flushed. */
HS_DEVICE float exponential(float x)
{
    return ptx::exp2_approximate(x * LOG2_E);
}

/* Start the copies of one group of the cache. */
HS_DEVICE void fetch_group(const Row &row, uint32_t cache, int first_quad, int cached)
{
#pragma unroll
    for (int k = 0; k < GROUP_QUADS; k++) {
        const int quad = first_quad + k * (int)blockDim.x;
        if (!row.counted || quad >= cached)
            continue;
        if (is_whole(row, quad)) {
            ptx::copy_async_16(cache + 16u * (uint32_t)quad, row.quads + quad * QUAD, 16);
            continue;
        }
        for (int place = quad * QUAD; place < quad * QUAD + QUAD; place++)
            if (is_inside(row, place))
                ptx::copy_async_4(cache + 4u * (uint32_t)place, row.quads + place, 4);
    }
    ptx::copy_async_commit();
}

HS_DEVICE void wait_for_groups(int pending)
{
    static_assert(MOST_GROUPS == 4, "one case for each number of groups");
    if (pending == 0)
        ptx::copy_async_wait<0>();
    else if (pending == 1)
        ptx::copy_async_wait<1>();
    else if (pending == 2)
        ptx::copy_async_wait<2>();
    else
        ptx::copy_async_wait<3>();
}

/* The quads of one group below `limit` from `source` (cache or memory); places that are not the row's are -infinity. */
HS_DEVICE void load_group(const Row &row, const float *source, int first_quad, int limit, float (&x)[GROUP_ELEMENTS])
{
    const int step = (int)blockDim.x, last_quad = first_quad + (GROUP_QUADS - 1) * step;
    if (last_quad < limit && is_whole(row, first_quad) && is_whole(row, last_quad)) {
#pragma unroll
        for (int k = 0; k < GROUP_QUADS; k++) {
            const Pack<float, QUAD> pack = load_pack<float, QUAD>(source + (first_quad + k * step) * QUAD);
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                x[k * QUAD + j] = pack.value[j];
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < GROUP_QUADS; k++) {
        const int quad = first_quad + k * step;
#pragma unroll
        for (int j = 0; j < QUAD; j++) {
            const int place = quad * QUAD + j;
            x[k * QUAD + j] = quad < limit && is_inside(row, place) ? source[place] : -INFINITY;
        }
    }
}

/* The running maximum and sum take in a group (Milakov & Gimelshein 2018, algorithm 3, many elements at a time). */
HS_DEVICE void gather(Scores &scores, const float (&x)[GROUP_ELEMENTS])
{
    float maximum = scores.maximum;
#pragma unroll
    for (int j = 0; j < GROUP_ELEMENTS; j++)
        maximum = fmaxf(maximum, x[j]); /* passes over NaN, which the sum then shows */
    const float offset = maximum == -INFINITY ? 0.0f : maximum;
    float sum = scores.sum * exponential(scores.maximum - offset);
#pragma unroll
    for (int j = 0; j < GROUP_ELEMENTS; j++)
        sum += exponential(x[j] - offset);
    scores = Scores{ maximum, sum };
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
template <typename Out>
HS_DEVICE void write_group(const Row &row, const Gradient &gradient, const float *source, int first_quad, int limit,
                           Out *dlogits, bool packs)
{
    float x[GROUP_ELEMENTS] = {};
    if (row.counted)
        load_group(row, source, first_quad, limit, x);
#pragma unroll
    for (int k = 0; k < GROUP_QUADS; k++) {
        const int quad = first_quad + k * (int)blockDim.x, place = quad * QUAD;
        if (quad >= limit)
            return;
        Pack<Out, QUAD> pack = {};
        if (row.counted) {
#pragma unroll
            for (int j = 0; j < QUAD; j++) {
                const float p = exp2f((x[k * QUAD + j] - gradient.lse) * LOG2_E); /* subnormal ones, too */
                const float once = place + j == row.target ? gradient.scale : 0.0f;
                round_to(pack.value[j], fmaf(gradient.pull, p, -once));
            }
        }
        if (packs && is_whole(row, quad)) {
            store_pack<Out, QUAD>(dlogits + row.first + place, pack);
            continue;
        }
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            if (is_inside(row, place + j))
                dlogits[row.first + place + j] = pack.value[j];
    }
}

/* cached: how many quads of a row the dynamic shared memory holds.  packs: dlogits' rows begin inside a quad where the
 * logits' do.  dlogits may be null. */
template <typename Out>
__global__ void __launch_bounds__(MOST_THREADS)
    cross_entropy_kernel(const float *logits, const int32_t *targets, float z_loss, const float *gradient_scale,
                         float *losses, Out *dlogits, int64_t rows, int vocabulary, int cached, bool packs)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    begin_after_kernel_before();
    Scores *scratch = reinterpret_cast<Scores *>(shared);
    const float *cache = reinterpret_cast<const float *>(shared + SCRATCH_BYTES);
    const uint32_t cache_address = ptx::shared_address(cache);
    const int thread = (int)threadIdx.x, group = GROUP_QUADS * (int)blockDim.x;
    const int groups = (cached + group - 1) / group;
    const float scale = dlogits != nullptr ? *gradient_scale : 0.0f;

    Row row = row_at(logits, targets, blockIdx.x, rows, vocabulary);
    for (int g = 0; g < groups; g++)
        fetch_group(row, cache_address, g * group + thread, cached);
    int set = 0;
    for (int64_t n = blockIdx.x; n < rows; n += gridDim.x, set ^= 1) {
        const Row next = row_at(logits, targets, n + gridDim.x, rows, vocabulary);
        const int quads = (row.end + QUAD - 1) / QUAD;
        /* before any gradient can be written in its place: the reduction's barrier is between */
        const float target_logit = row.counted && thread == 0 ? row.quads[row.target] : 0.0f;

        Scores scores = { -INFINITY, 0.0f };
        float x[GROUP_ELEMENTS];
        for (int g = 0; g < groups; g++) {
            wait_for_groups(groups - 1 - g);
            if (!row.counted)
                continue;
            load_group(row, cache, g * group + thread, min(cached, quads), x);
            gather(scores, x);
        }
        for (int quad = cached + thread; quad < quads && row.counted; quad += group) {
            load_group(row, row.quads, quad, quads, x);
            gather(scores, x);
        }
        const float lse = block_log_sum_exp(scores, scratch + set * WARP_SIZE);
        if (thread == 0)
            losses[n] = row.counted ? lse - target_logit : 0.0f;

        if (dlogits != nullptr) {
            const Gradient gradient = { lse, scale * (1.0f + 2.0f * z_loss * lse), scale };
            for (int g = 0; g < groups; g++) {
                write_group(row, gradient, cache, g * group + thread, min(cached, quads), dlogits, packs);
                fetch_group(next, cache_address, g * group + thread, cached);
            }
            for (int quad = cached + thread; quad < quads; quad += group)
                write_group(row, gradient, row.quads, quad, quads, dlogits, packs);
        }
        row = next;
    }
}

} // namespace

HsStatus op::cross_entropy(HsContext *context, const HsCrossEntropyArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    const bool wants_gradient = hs_tensor_present(&args->dlogits);
    const DeviceLimits &limits = limits_of(context);
    if (vocabulary > INT32_MAX / 2)
        return hs_fail(HS_EUNSUPPORTED, "cross_entropy: a vocabulary of %lld is more than the kernel's %d",
                       (long long)vocabulary, INT32_MAX / 2);

    /* One group a thread, as far as threads go. */
    const unsigned wanted = blocks_for(vocabulary, GROUP_ELEMENTS * WARP_SIZE) * (unsigned)WARP_SIZE;
    const unsigned threads = wanted < MOST_THREADS ? wanted : (unsigned)MOST_THREADS;
    /* Without a gradient no logit is needed twice, and nothing is cached. */
    const int64_t row_quads = (vocabulary + 2 * (QUAD - 1)) / QUAD; /* with a shift of three */
    const int64_t room = (int64_t)(limits.block_shared_bytes - SCRATCH_BYTES) / 16;
    const int cached = !wants_gradient ? 0 : (int)(row_quads < room ? row_quads : room);
    const size_t shared_bytes = SCRATCH_BYTES + 16 * (size_t)cached;

    /* As many blocks as the GPU holds at a time; which rows a block takes changes no result. */
    const int64_t by_shared = (int64_t)(limits.multiprocessor_shared_bytes / (shared_bytes + 1024));
    const int64_t by_threads = 2 * MOST_THREADS / (int64_t)threads;
    int64_t resident = by_shared < by_threads ? by_shared : by_threads;
    resident = resident < 1 ? 1 : resident < 32 ? resident : 32;
    const int64_t blocks = resident * limits.multiprocessors;
    const unsigned grid = (unsigned)(rows < blocks ? rows : blocks);

    const float *logits = data_of<float>(args->logits);
    return dispatch_act(wants_gradient ? args->dlogits.dtype : HS_F32, [&](auto out) {
        using Out = decltype(out);
        Out *dlogits = optional_data<Out>(args->dlogits);
        const uintptr_t logits_phase = reinterpret_cast<uintptr_t>(logits) / sizeof(float) % QUAD;
        const bool packs = reinterpret_cast<uintptr_t>(dlogits) / sizeof(Out) % QUAD == logits_phase;
        return hs_launch_after(context, HS_KERNEL(cross_entropy_kernel<Out>), grid, threads, shared_bytes, logits,
                               data_of<int32_t>(args->targets), args->z_loss, args->gradient_scale,
                               data_of<float>(args->losses), dlogits, rows, (int)vocabulary, cached, packs);
    });
}

} // namespace HS_CUDA_NAMESPACE
