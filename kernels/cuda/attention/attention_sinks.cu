/* SPDX-License-Identifier: MIT
 *
 * The gradient of attention's sinks: of each head the sum over rows of exp(sink - lse) dout.out.  Eight lanes share a row,
 * a block takes ROWS_A_BLOCK rows of a head and adds them up in an order that is always the same; a second kernel adds the
 * blocks' sums in turn.  Bound by memory: dout and out are read once.
 */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/attention_element.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { SINK_LANES = 8, SINK_THREADS = 256, ROWS_A_BLOCK = 512 };

struct SinkCall {
    int64_t rows;
    int heads, head_dim;
    const float *lse, *sinks;
    float *partial; /* [blocks, heads] */
};

/* chunk: elements moved at once */
template <typename Result, int chunk>
__global__ void __launch_bounds__(SINK_THREADS) attention_sinks_kernel(SinkCall call, Result dout, Result out)
{
    HS_SHARED(float, scratch, SINK_THREADS / WARP_SIZE);
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x % SINK_LANES, head = (int)blockIdx.y;
    const int64_t first = (int64_t)blockIdx.x * ROWS_A_BLOCK;
    const int64_t end = call.rows - first < ROWS_A_BLOCK ? call.rows : first + ROWS_A_BLOCK;
    const float sink = call.sinks[head];
    float sum = 0.0f; /* of every eighth element of every 32nd row */
    for (int64_t row = first + threadIdx.x / SINK_LANES; row < end; row += SINK_THREADS / SINK_LANES) {
        const int64_t at = row * call.heads + head;
        float delta = 0.0f;
        for (int d = lane * chunk; d < call.head_dim; d += SINK_LANES * chunk) {
            const Pack<float, chunk> a = dout.template load<chunk>(at * call.head_dim + d);
            const Pack<float, chunk> b = out.template load<chunk>(at * call.head_dim + d);
#pragma unroll
            for (int i = 0; i < chunk; i++)
                delta = fmaf(a.value[i], b.value[i], delta);
        }
        sum = fmaf(expf(sink - call.lse[at]), delta, sum);
    }
    sum = block_reduce<Sum>(sum, 0.0f, scratch);
    if (threadIdx.x == 0)
        call.partial[(int64_t)blockIdx.x * call.heads + head] = sum;
}

__global__ void attention_sinks_sum_kernel(const float *partial, int64_t blocks, int heads, float *dsinks)
{
    begin_after_kernel_before();
    const int head = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (head >= heads)
        return;
    float sum = 0.0f;
    for (int64_t block = 0; block < blocks; block++)
        sum += partial[block * heads + head];
    dsinks[head] -= sum;
}

static int64_t sink_blocks(const HsHeads &heads)
{
    return (heads.batch * heads.sequence_length + ROWS_A_BLOCK - 1) / ROWS_A_BLOCK;
}

template <typename Result, int chunk>
static HsStatus launch_sinks(HsContext *context, const SinkCall &call, const HsSinkBackwardArgs *args)
{
    const dim3 grid((unsigned)sink_blocks(args->heads), (unsigned)call.heads);
    return hs_launch_after(context, HS_KERNEL((attention_sinks_kernel<Result, chunk>)), grid, SINK_THREADS, 0, call,
                           Result{ args->dout.data, args->dout.dtype }, Result{ args->out.data, args->out.dtype });
}

static HsStatus sum_rows(HsContext *context, const SinkCall &call, const HsSinkBackwardArgs *args)
{
    const HsDtype dtype = args->dout.dtype;
    if (args->out.dtype != dtype || call.head_dim * (int64_t)hs_dtype_bytes(dtype) % 16 != 0 ||
        !aligned_to(args->dout.data, 16) || !aligned_to(args->out.data, 16))
        return launch_sinks<AnyElements, 1>(context, call, args);
    return dispatch_act(dtype, [&](auto element) {
        using T = decltype(element);
        return launch_sinks<Elements<T>, PackWidth<T>::value>(context, call, args);
    });
}

namespace op
{

HsStatus sink_backward(HsContext *context, const HsSinkBackwardArgs *args)
{
    const HsTensor *const tensors[] = { &args->dout, &args->out, &args->lse, &args->sinks, &args->dsinks };
    HS_TRY(refuse_f64("sink_backward", tensors, 5));
    const SinkCall call = { args->heads.batch * args->heads.sequence_length,
                            (int)args->heads.heads,
                            (int)args->heads.head_dim,
                            data_of<const float>(args->lse),
                            data_of<const float>(args->sinks),
                            static_cast<float *>(context->workspace) };
    HS_TRY(sum_rows(context, call, args));
    return hs_launch_after(context, HS_KERNEL(attention_sinks_sum_kernel), blocks_for(call.heads, WARP_SIZE), WARP_SIZE,
                           0, (const float *)call.partial, sink_blocks(args->heads), call.heads,
                           data_of<float>(args->dsinks));
}

} // namespace op

namespace workspace
{

size_t sink_backward(const HsContext *, const HsSinkBackwardArgs *args)
{
    return (size_t)(sink_blocks(args->heads) * args->heads.heads) * sizeof(float);
}

} // namespace workspace

} // namespace HS_CUDA_NAMESPACE
