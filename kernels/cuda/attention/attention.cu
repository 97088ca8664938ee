/* SPDX-License-Identifier: MIT
 *
 * The operations attention_forward and attention_backward: which kernels serve a call, and the statistics of queries
 * that both of backward's kernels read:  lse log2(e)  and  delta = dout . out, one pair a query head, laid out head by
 * head so that a tile's pairs are neighbours.
 */
#include <limits.h>
#include <math.h>

#include "kernels/cuda/attention/attention_backward_hopper.cuh"
#include "kernels/cuda/attention/attention_element.cuh"
#include "kernels/cuda/device/device.cuh"

namespace HS_CUDA_NAMESPACE
{

HsStatus describe_attention(const char *op, const HsHeads &heads, const HsScoreRule &rule, float dropout,
                            const HsRng &rng, Attention *attention)
{
    const int64_t columns = (heads.heads + 2 * heads.kv_heads) * heads.head_dim;
    if (heads.batch * heads.heads > INT_MAX || heads.sequence_length > INT_MAX / 2 || columns > INT_MAX ||
        heads.sequence_length * columns > UINT_MAX)
        return hs_fail(
            HS_EUNSUPPORTED,
            "%s: a sequence of %lld tokens with %lld columns has more elements than the CUDA backend counts; "
            "use shorter sequences",
            op, (long long)heads.sequence_length, (long long)columns);
    const double scale = (double)rule.scale;
    if (!(scale > 0.0))
        return hs_fail(HS_EUNSUPPORTED, "%s: the CUDA backend needs a positive scale, got %g", op, scale);
    const bool window = rule.window > 0 && rule.window < heads.sequence_length,
               starts = hs_tensor_present(&rule.starts);
    *attention = { (int)heads.batch,
                   (int)heads.sequence_length,
                   (int)heads.heads,
                   (int)heads.kv_heads,
                   (int)heads.head_dim,
                   rule.scale,
                   (float)(scale * 1.4426950408889634),
                   {},
                   window || starts,
                   (int)(window ? rule.window : heads.sequence_length),
                   starts ? data_of<const int32_t>(rule.starts) : nullptr,
                   (float)((double)rule.cap / scale),
                   rule.cap > 0.0f ? (float)(2.0 * 1.4426950408889634 * scale / (double)rule.cap) : 0.0f,
                   nullptr,
                   {} };
    attention->dropout = { rng, (uint32_t)ceil((double)dropout * 0x1p24), (float)(1.0 / (1.0 - (double)dropout)),
                           heads.sequence_length % 4 == 0 };
    return HS_OK;
}

bool fits_hopper(const HsContext *context, int64_t head_dim)
{
    return limits_of(context).hopper_attention && head_dim <= HOPPER_HEAD_DIM;
}

/* Their schedules know one diagonal only, and have no registers for more: what a rule changes is left to the kernels for
 * all GPUs. */
static bool serves_hopper(const HsContext *context, const Attention &attention)
{
    return !attention.ruled() && fits_hopper(context, attention.head_dim);
}

/* Lanes that share a query head; a block has 256 threads. */
enum { STATISTICS_LANES = 8, STATISTICS_THREADS = 256 };

/* What backward counts in (attention_backward_hopper.cuh), to be zeroed on the way; fewer than the kernel's threads. */
struct Counters {
    unsigned *values;
    int64_t count;
};

/* One group of eight lanes a query head; neighbouring groups take neighbouring heads of one token, with rows that are
 * neighbours in memory.  The bound is memory: dout and out are read once.  chunk: elements moved at once. */
template <typename Result, int chunk>
__global__ void attention_statistics_kernel(Attention attention, Result dout, Result out, const float *lse,
                                            QueryStatistics *statistics, Counters counters)
{
    begin_after_kernel_before();
    const int64_t counter = (int64_t)blockIdx.x * STATISTICS_THREADS + threadIdx.x;
    if (counter < counters.count)
        counters.values[counter] = 0;

    const int lane = (int)threadIdx.x % STATISTICS_LANES, rows = (int)statistics_length(attention.length);
    const int64_t index =
        (int64_t)blockIdx.x * (STATISTICS_THREADS / STATISTICS_LANES) + threadIdx.x / STATISTICS_LANES;
    const int64_t token = index / attention.heads;
    const int head = (int)(index % attention.heads), sequence = (int)(token / rows), query = (int)(token % rows);
    const bool inside = sequence < attention.batch && query < attention.length;
    const int64_t at = ((int64_t)sequence * attention.length + query) * attention.heads + head;

    float delta = 0.0f;
    for (int d = lane * chunk; inside && d < attention.head_dim; d += STATISTICS_LANES * chunk) {
        const Pack<float, chunk> a = dout.template load<chunk>(at * attention.head_dim + d);
        const Pack<float, chunk> b = out.template load<chunk>(at * attention.head_dim + d);
#pragma unroll
        for (int i = 0; i < chunk; i++)
            delta = fmaf(a.value[i], b.value[i], delta);
    }
#pragma unroll
    for (int offset = STATISTICS_LANES / 2; offset > 0; offset /= 2)
        delta += __shfl_xor_sync(FULL_WARP, delta, offset);
    if (lane == 0 && sequence < attention.batch)
        statistics[(int64_t)(sequence * attention.heads + head) * rows + query] =
            inside ? QueryStatistics{ lse[at] * LOG2_E, delta } : QueryStatistics{ 0.0f, 0.0f };
}

template <typename Result, int chunk>
static HsStatus launch_statistics(HsContext *context, const Attention &attention, const HsAttentionBackwardArgs *args,
                                  QueryStatistics *statistics, Counters counters)
{
    const int64_t groups = (int64_t)attention.batch * statistics_length(attention.length) * attention.heads;
    return hs_launch_after(context, HS_KERNEL((attention_statistics_kernel<Result, chunk>)),
                           blocks_for(groups, STATISTICS_THREADS / STATISTICS_LANES), STATISTICS_THREADS, 0, attention,
                           Result{ args->dout.data, args->dout.dtype }, Result{ args->out.data, args->out.dtype },
                           data_of<const float>(args->lse), statistics, counters);
}

static HsStatus compute_statistics(HsContext *context, const Attention &attention, const HsAttentionBackwardArgs *args,
                                   QueryStatistics *statistics, Counters counters)
{
    const HsDtype dtype = args->dout.dtype;
    const int64_t row_bytes = attention.head_dim * (int64_t)hs_dtype_bytes(dtype);
    if (args->out.dtype != dtype || row_bytes % 16 != 0 || !aligned_to(args->dout.data, 16) ||
        !aligned_to(args->out.data, 16))
        return launch_statistics<AnyElements, 1>(context, attention, args, statistics, counters);
    return dispatch_act(dtype, [&](auto element) {
        using T = decltype(element);
        return launch_statistics<Elements<T>, PackWidth<T>::value>(context, attention, args, statistics, counters);
    });
}

namespace op
{

HsStatus attention_forward(HsContext *context, const HsAttentionArgs *args)
{
    Attention attention;
    HS_TRY(describe_attention("attention_forward", args->heads, args->rule, args->dropout, args->rng, &attention));
    attention.sinks = hs_tensor_present(&args->sinks) ? data_of<const float>(args->sinks) : nullptr;
    const HsTensor *const tensors[] = { &args->qkv, &args->out };
    HS_TRY(refuse_f64("attention_forward", tensors, 2));
    if (!fits_mma(attention, tensors, 2)) {
        HS_TRY(attention_forward_exact(context, attention, args));
        return launch_amax(context, args->out);
    }
    attention.amax = amax_out(args->out);
    if (serves_hopper(context, attention))
        return attention_forward_hopper(context, attention, args);
    return attention_forward_mma(context, attention, args);
}

HsStatus attention_backward(HsContext *context, const HsAttentionBackwardArgs *args)
{
    Attention attention;
    HS_TRY(describe_attention("attention_backward", args->heads, args->rule, args->dropout, args->rng, &attention));
    const HsTensor *const tensors[] = { &args->qkv, &args->dout, &args->dqkv, &args->out };
    HS_TRY(refuse_f64("attention_backward", tensors, 4));
    const bool mma = fits_mma(attention, tensors, 3), hopper = mma && serves_hopper(context, attention);
    QueryStatistics *const statistics = static_cast<QueryStatistics *>(context->workspace);
    Counters counters = { NULL, 0 };
    if (hopper) {
        const GradientWorkspace workspace =
            gradient_workspace(attention.batch, attention.heads, attention.length, attention.head_dim);
        char *const end = static_cast<char *>(context->workspace) + workspace.bytes;
        counters = { reinterpret_cast<unsigned *>(end) - workspace.counters, workspace.counters };
    }
    HS_TRY(compute_statistics(context, attention, args, statistics, counters));
    const BackwardTensors backward = { args->dout, args->qkv, args->dqkv, statistics };
    if (!mma) {
        HS_TRY(attention_backward_query_exact(context, attention, backward));
        HS_TRY(attention_backward_key_value_exact(context, attention, backward));
        return launch_amax(context, args->dqkv);
    }
    attention.amax = amax_out(args->dqkv);
    if (hopper)
        return attention_backward_hopper(context, attention, backward);
    HS_TRY(attention_backward_query_mma(context, attention, backward));
    return attention_backward_key_value_mma(context, attention, backward);
}

} // namespace op

namespace workspace
{

/* Where these kernels might serve, alignment permitting, there is room for them. */
size_t attention_backward(const HsContext *context, const HsAttentionBackwardArgs *args)
{
    const HsHeads &heads = args->heads;
    if (fits_hopper(context, heads.head_dim))
        return gradient_workspace(heads.batch, heads.heads, heads.sequence_length, (int)heads.head_dim).bytes;
    return (size_t)(heads.batch * heads.heads * statistics_length((int)heads.sequence_length)) *
           sizeof(QueryStatistics);
}

} // namespace workspace

} // namespace HS_CUDA_NAMESPACE
