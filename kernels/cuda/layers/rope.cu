/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34), halves layout: the pair (x[i], x[i + R/2]) of every q and k head
 * turns by position * w_i (kernels/ops/rope_rule.h); backward by the negative angle.
 *
 * Angles.  position * frequency reaches thousands of turns, of which f32 keeps no fraction, so the reduction must be in
 * double; but consumer GPUs have one double unit to 64 single ones.  Hence: frequencies, in quarter turns, come from
 * the host (at most 128 numbers, passed by value); a block serves one row and takes four double operations for each of
 * its R/2 angles, once for all heads; what is left, an angle of at most an eighth of a turn, goes to short polynomials
 * in f32.  No table in memory is written or read, and the doubles are hidden by the row's own traffic.
 */
#include <math.h>

#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/documents.cuh"
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/view.cuh"

namespace HS_CUDA_NAMESPACE
{

/* LEAST_BLOCKS: on a multiprocessor at once; more would take registers that ptxas then spills. */
enum { THREADS = 256, LEAST_BLOCKS = 5, MOST_PAIRS = 128 };

struct Frequencies {
    double quarter_turns[MOST_PAIRS];
    float amplitude;
};

template <typename T> struct Rope {
    View<T> x, y;
    const int32_t *starts; /* of the rows' documents, where there are several in a sequence */
    int64_t position_start;
    uint32_t sequence_length;
    int pairs, half_head, rotated_heads, row_heads;
    bool all; /* what is not rotated, too: it is copied where y is not x, and looked at for amax */
    AmaxOut amax;
};

struct Rotation {
    float cosine, sine;
};

/* Of `turns` quarter turns.  For |a| <= pi/4 the Taylor series up to a^9 and a^10 are good to 2^-29 and 2^-33; then the
 * quadrant swaps and negates. */
HS_DEVICE Rotation rotation_of(double turns)
{
    const double quadrant = rint(turns);
    const float a = (float)((turns - quadrant) * 1.5707963267948966);
    const float square = a * a;
    float sine = fmaf(square, 1.0f / 362880, -1.0f / 5040);
    sine = fmaf(square, sine, 1.0f / 120);
    sine = fmaf(square, sine, -1.0f / 6);
    sine = fmaf(a * square, sine, a);
    float cosine = fmaf(square, -1.0f / 3628800, 1.0f / 40320);
    cosine = fmaf(square, cosine, -1.0f / 720);
    cosine = fmaf(square, cosine, 1.0f / 24);
    cosine = fmaf(square, cosine, -0.5f);
    cosine = fmaf(square, cosine, 1.0f);
    const int64_t q = (int64_t)quadrant;
    const float first = q & 1 ? -sine : cosine, second = q & 1 ? cosine : sine;
    return q & 2 ? Rotation{ -first, -second } : Rotation{ first, second };
}

/* One row a block.  An item is a pack of pairs of one head; past the rotated features and heads, a pack of pairs to
 * copy. */
template <int width, bool documents, typename T>
__global__ void __launch_bounds__(THREADS, LEAST_BLOCKS) rope_kernel(const Rope<T> task, const Frequencies frequencies)
{
    HS_SHARED(float, cosines, MOST_PAIRS);
    HS_SHARED(float, sines, MOST_PAIRS);
    if (documents)
        begin_after_kernel_before();
    const int start = documents ? task.starts[blockIdx.x] : 0;
    const double position = (double)(task.position_start + blockIdx.x % task.sequence_length - start);
    for (int pair = (int)threadIdx.x; pair < task.pairs; pair += THREADS) {
        const Rotation rotation = rotation_of(position * frequencies.quarter_turns[pair]);
        cosines[pair] = frequencies.amplitude * rotation.cosine;
        sines[pair] = frequencies.amplitude * rotation.sine;
    }
    if (!documents) /* angles need no memory */
        begin_after_kernel_before();
    __syncthreads();
    const int head_width = 2 * task.half_head;
    const int64_t row = (int64_t)blockIdx.x * task.row_heads * head_width;
    const unsigned head_packs = (unsigned)((task.all ? task.half_head : task.pairs) / width);
    const unsigned items = head_packs * (unsigned)(task.all ? task.row_heads : task.rotated_heads);
    uint32_t most = 0;
    for (unsigned item = threadIdx.x; item < items; item += THREADS) {
        const int head = (int)(item / head_packs), pair = (int)(item % head_packs) * width;
        const bool turns = pair < task.pairs;
        const int64_t first = row + head * head_width + (turns ? pair : pair + task.pairs);
        const int64_t second = first + (turns ? task.pairs : task.half_head - task.pairs);
        float a[width], b[width];
        /* Both halves are read before either is written: y may be x. */
        task.x.load(first, a);
        task.x.load(second, b);
        if (turns && head < task.rotated_heads) {
            float cosine[width], sine[width];
            View<float>{ cosines }.load(pair, cosine);
            View<float>{ sines }.load(pair, sine);
#pragma unroll
            for (int i = 0; i < width; i++) {
                const float turned = fmaf(a[i], cosine[i], -(b[i] * sine[i]));
                b[i] = fmaf(a[i], sine[i], b[i] * cosine[i]);
                a[i] = turned;
            }
        }
        task.y.store(first, a);
        task.y.store(second, b);
        if (task.amax.to)
            most = largest_of(b, largest_of(a, most));
    }
    leave_amax(task.amax, most);
}

HsStatus op::rope(HsContext *context, const HsRopeArgs *args)
{
    const HsHeads &heads = args->heads;
    const int pairs = (int)(hs_rope_rotated(&args->rule, heads.head_dim) / 2), half_head = (int)(heads.head_dim / 2);
    const int rotated = (int)(heads.heads + heads.kv_heads);
    Frequencies frequencies = {};
    frequencies.amplitude = (float)hs_rope_amplitude(&args->rule);
    for (int i = 0; i < pairs; i++) {
        const double turns = hs_rope_frequency(&args->rule, heads.head_dim, i) / 1.5707963267948966;
        frequencies.quarter_turns[i] = args->inverse ? -turns : turns;
    }
    return dispatch_act(args->x.dtype, [&](auto element) {
        using T = decltype(element);
        const Rope<T> task = { view_of<T>(args->x),
                               view_of<T>(args->y),
                               hs_tensor_present(&args->starts) ? data_of<const int32_t>(args->starts) : nullptr,
                               args->position_start,
                               (uint32_t)heads.sequence_length,
                               pairs,
                               half_head,
                               rotated,
                               rotated + (int)heads.kv_heads,
                               args->x.data != args->y.data || args->y.amax != NULL,
                               amax_out(args->y) };
        const dim3 blocks((unsigned)args->x.shape[0]);
        constexpr int width = access_width<T>;
        return dispatch_documents(task.starts != nullptr, [&](auto kind) {
            constexpr bool documents = decltype(kind)::documents;
            if (packs_fit(pairs, args->x, args->y) && packs_fit(half_head, args->x, args->y))
                return hs_launch_after(context, HS_KERNEL((rope_kernel<width, documents, T>)), blocks, THREADS, 0, task,
                                       frequencies);
            return hs_launch_after(context, HS_KERNEL((rope_kernel<1, documents, T>)), blocks, THREADS, 0, task,
                                   frequencies);
        });
    });
}

} // namespace HS_CUDA_NAMESPACE
