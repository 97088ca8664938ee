/* SPDX-License-Identifier: MIT
 *
 * Labels drawn from softmax(logits), a block a row.  With e_v = exp(l_v - max), the label is the smallest v with a
 * running sum above uniform * sum e.
 *
 *     row    [ strip of warp 0 | strip of warp 1 | ... ]      1. maximum   2. each strip's sum
 *     strip  [ 128 | 128 | 128 | ... ]                        3. the warp with the label in its strip walks it again
 *     tile   [ 4 elements of lane 0 | 4 of lane 1 | ... ]     4. the lane that holds the label names it
 *
 * A row is read three times, the second and the third from L2 or L1.  Exponentials are f32, sums double: a vocabulary
 * of 150,000 loses no small probabilities.  The third walk adds what the second did in the same order, so that the
 * strip which promised to pass the limit does.
 */
#include <math.h>

#include "kernels/cuda/toolbox/logit_cap.cuh"
#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"
#include "kernels/cuda/toolbox/rng.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { TILE = WARP_SIZE * QUAD, MOST_THREADS = 512, MOST_WARPS = MOST_THREADS / WARP_SIZE };

/* This lane's elements of the tile at `begin`; beyond `end` they are -infinity.  packs: the row is aligned. */
template <typename In> HS_DEVICE void load_lane(const In *row, int begin, int end, bool packs, float (&x)[QUAD])
{
    const int first = begin + (int)threadIdx.x % WARP_SIZE * QUAD;
    if (packs && first + QUAD <= end) {
        widen(load_pack<In, QUAD>(row + first), x);
        return;
    }
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        x[j] = first + j < end ? to_float(row[first + j]) : -INFINITY;
}

/* The exponentials of this lane's elements, and their sum added to those of the lanes before it. */
template <bool capped, typename In>
HS_DEVICE double running_sum(const In *row, const LogitCap &cap, int begin, int end, bool packs, float maximum,
                             float (&e)[QUAD])
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    load_lane(row, begin, end, packs, e);
    double sum = 0.0;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        if constexpr (capped) /* but not what lies beyond the end */
            e[j] = begin + lane * QUAD + j < end ? capped_logit(cap, e[j]).value : -INFINITY;
        e[j] = expf(e[j] - maximum);
        sum += (double)e[j];
    }
#pragma unroll
    for (int distance = 1; distance < WARP_SIZE; distance *= 2) {
        const double before = __shfl_up_sync(FULL_WARP, sum, (unsigned)distance);
        if (lane >= distance)
            sum += before;
    }
    return sum;
}

/* The label among this lane's elements, the running sum before them being `sum`.  Rounding may leave every sum at or
 * below what the lanes' promised: then the last element of any probability is the one. */
HS_DEVICE int label_of_lane(const float (&e)[QUAD], int first, double sum, double limit)
{
    int last = first;
#pragma unroll
    for (int j = 0; j < QUAD; j++) {
        sum += (double)e[j];
        if (sum > limit)
            return first + j;
        if (e[j] > 0.0f)
            last = first + j;
    }
    return last;
}

/* Called by the whole warp with the strip [begin, end) that takes the running sum from `before` past the limit. */
template <bool capped, typename In>
HS_DEVICE void find_label(const In *row, const LogitCap &cap, int begin, int end, bool packs, float maximum,
                          double before, double limit, int32_t *target)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    double strip = 0.0;
    for (int tile = begin; tile < end; tile += TILE) {
        float e[QUAD];
        const double up_to = running_sum<capped>(row, cap, tile, end, packs, maximum, e);
        const double total = __shfl_sync(FULL_WARP, up_to, WARP_SIZE - 1);
        if (before + (strip + total) > limit) {
            const unsigned passed = __ballot_sync(FULL_WARP, before + (strip + up_to) > limit);
            const double of_lanes_before = __shfl_up_sync(FULL_WARP, up_to, 1u);
            if (lane == __ffs((int)passed) - 1)
                *target =
                    label_of_lane(e, tile + lane * QUAD, before + (strip + (lane > 0 ? of_lanes_before : 0.0)), limit);
            return;
        }
        strip += total;
    }
}

template <typename In, bool capped>
__global__ void __launch_bounds__(MOST_THREADS)
    sample_labels_kernel(const HsRng rng, const In *logits, const LogitCap cap, const int32_t *rows, int32_t *targets,
                         int vocabulary)
{
    HS_SHARED(float, largest, WARP_SIZE);
    HS_SHARED(double, sums, WARP_SIZE);
    begin_after_kernel_before();
    const int64_t n = blockIdx.x;
    if (targets[n] < 0)
        return;
    const int64_t number = rows != nullptr ? rows[n] : n;
    const float uniform = rng_uniform(rng_draw(rng, (uint64_t)(rng.row_offset + number)).x);
    const int warp = (int)threadIdx.x / WARP_SIZE, lane = (int)threadIdx.x % WARP_SIZE;
    const int warps = (int)blockDim.x / WARP_SIZE;
    const In *row = logits + n * vocabulary;
    const bool packs = reinterpret_cast<uintptr_t>(row) % (QUAD * sizeof(In)) == 0;
    /* strips of whole tiles */
    const int tiles = (vocabulary + TILE - 1) / TILE, strip_tiles = (tiles + warps - 1) / warps;
    const int begin = min(warp * strip_tiles * TILE, vocabulary), end = min(begin + strip_tiles * TILE, vocabulary);

    float maximum = -INFINITY;
    for (int tile = begin; tile < end; tile += TILE) {
        float x[QUAD];
        load_lane(row, tile, end, packs, x);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            maximum = fmaxf(maximum, x[j]);
    }
    maximum = block_reduce<Maximum>(maximum, -INFINITY, largest);
    if constexpr (capped)
        maximum = capped_logit(cap, maximum).value;

    double strip = 0.0;
    for (int tile = begin; tile < end; tile += TILE) {
        float e[QUAD];
        const double up_to = running_sum<capped>(row, cap, tile, end, packs, maximum, e);
        strip += __shfl_sync(FULL_WARP, up_to, WARP_SIZE - 1);
    }
    if (lane == 0)
        sums[warp] = strip;
    __syncthreads();

    /* Every thread adds the strips in order; the last sum is the total, which exceeds the limit. */
    double total = 0.0, before = 0.0;
    for (int w = 0; w < warps; w++)
        total += sums[w];
    const double limit = (double)uniform * total;
    int chosen = 0;
    while (chosen < warps && !(before + sums[chosen] > limit))
        before += sums[chosen++];
    if (chosen == warp)
        find_label<capped>(row, cap, begin, end, packs, maximum, before, limit, &targets[n]);
    if (chosen == warps && threadIdx.x == 0)
        targets[n] = vocabulary - 1; /* only with NaN: its gradient will tell */
}

} // namespace

HsStatus op::sample_labels(HsContext *context, const HsSampleLabelsArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1];
    if (vocabulary > INT32_MAX / 2)
        return hs_fail(HS_EUNSUPPORTED, "sample_labels: a vocabulary of %lld is more than the kernel's %d",
                       (long long)vocabulary, INT32_MAX / 2);
    const unsigned tiles = blocks_for(vocabulary, TILE);
    const unsigned threads = (tiles < MOST_WARPS ? tiles : (unsigned)MOST_WARPS) * (unsigned)WARP_SIZE;
    return dispatch_act(args->logits.dtype, [&](auto in) {
        using In = decltype(in);
        return dispatch_cap(args->cap > 0.0f, [&](auto kind) {
            return hs_launch_after(context, HS_KERNEL((sample_labels_kernel<In, decltype(kind)::capped>)),
                                   (unsigned)rows, threads, 0, args->rng, (const In *)data_of<In>(args->logits),
                                   logit_cap_of(args->cap), (const int32_t *)optional_data<int32_t>(args->rows),
                                   data_of<int32_t>(args->targets), (int)vocabulary);
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
