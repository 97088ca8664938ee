/* SPDX-License-Identifier: MIT
 *
 * Where documents start, from the marks of their first tokens: a warp walks a sequence 32 tokens at a time, and a lane
 * finds the last mark at or before its own among the warp's bits.  What an operation moves is a few thousand integers.
 */
#include "kernels/cuda/toolbox/launch.cuh"
#include "kernels/cuda/toolbox/numeric.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

__global__ void __launch_bounds__(WARP_SIZE) document_starts_kernel(int32_t *tokens, int32_t *starts, int length)
{
    begin_after_kernel_before();
    const int lane = (int)threadIdx.x;
    tokens += (int64_t)blockIdx.x * length;
    starts += (int64_t)blockIdx.x * length;
    int start = 0;
    for (int first = 0; first < length; first += WARP_SIZE) {
        const int t = first + lane;
        const int32_t token = t < length ? tokens[t] : 0;
        const uint32_t marks = __ballot_sync(FULL_WARP, token < 0 && t > 0);
        const uint32_t before = marks & (FULL_WARP >> (WARP_SIZE - 1 - lane)); /* and its own */
        if (t < length) {
            starts[t] = before != 0 ? first + (WARP_SIZE - 1 - __clz((int)before)) : start;
            if (token < 0)
                tokens[t] = ~token;
        }
        if (marks != 0)
            start = first + (WARP_SIZE - 1 - __clz((int)marks));
    }
}

} // namespace

HsStatus op::document_starts(HsContext *context, const HsDocumentStartsArgs *args)
{
    const int64_t sequences = args->tokens.shape[0] / args->sequence_length;
    if (args->tokens.shape[0] > INT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "document_starts: %lld rows are more than an int32 counts",
                       (long long)args->tokens.shape[0]);
    return hs_launch_after(context, HS_KERNEL(document_starts_kernel), (unsigned)sequences, WARP_SIZE, 0,
                           data_of<int32_t>(args->tokens), data_of<int32_t>(args->starts), (int)args->sequence_length);
}

} // namespace HS_CUDA_NAMESPACE
