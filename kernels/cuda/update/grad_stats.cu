/* SPDX-License-Identifier: MIT
 *
 * Sum of squares of the finite elements and count of the others, for every gradient of a model in one pass: each
 * gradient is read once and nothing but a pair of numbers per 16384 elements is written.  Sums are in double, so that
 * neither a scaled f16 gradient's squares nor a billion small ones are lost.
 */
#include "kernels/cuda/toolbox/multi_tensor.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

struct GradStats {
    static constexpr const char *names[2] = { "grad_stats_parts_kernel", "grad_stats_sums_kernel" };
    static constexpr int streams = 1;
    using Entry = TensorEntry<streams>;
    struct Value {
        double sum_squares;
        int64_t nonfinite;
    };
    struct Output {
        double *sum_squares;
        int64_t *nonfinite;
    };

    static __device__ __forceinline__ Value part(const Entry &entry, int64_t begin, int64_t end)
    {
        Value value = {};
        visit_act(entry.dtype[0], [&](auto element) {
            using T = decltype(element);
            const T *grad = static_cast<const T *>(entry.data[0]);
            for_quads(begin, end, entry.aligned, [&](auto whole, int64_t i, int left) {
                const Pack<T, QUAD> quad = load_quad<decltype(whole)::value>(grad, i, left);
#pragma unroll
                for (int j = 0; j < QUAD; j++) {
                    /* all exponent bits: an infinity or NaN; widening keeps them so */
                    const float g = to_float(quad.value[j]);
                    const bool bad = (__float_as_uint(g) & 0x7f800000u) == 0x7f800000u;
                    const double finite = (double)(bad ? 0.0f : g);
                    value.sum_squares = fma(finite, finite, value.sum_squares);
                    value.nonfinite += bad;
                }
            });
        });
        return value;
    }

    static __device__ __forceinline__ Value add(const Value &a, const Value &b)
    {
        return Value{ a.sum_squares + b.sum_squares, a.nonfinite + b.nonfinite };
    }

    static __device__ __forceinline__ Value reduce(const Value &value, double *scratch)
    {
        int64_t *counts = reinterpret_cast<int64_t *>(scratch); /* block_reduce ends with a barrier */
        const double sum_squares = block_reduce<Sum>(value.sum_squares, 0.0, scratch);
        return Value{ sum_squares, block_reduce<Sum>(value.nonfinite, (int64_t)0, counts) };
    }

    static __device__ __forceinline__ void store(const Output &output, int index, const Value &value)
    {
        output.sum_squares[index] = value.sum_squares;
        output.nonfinite[index] = value.nonfinite;
    }
};

GradStats::Entry entry_of(const HsGradStatsArgs *args, int index)
{
    GradStats::Entry entry = {};
    entry.aligned = true;
    entry.count = hs_tensor_count(&args->tensors[index]);
    set_stream(entry, 0, args->tensors[index]);
    return entry;
}

} // namespace

size_t workspace::grad_stats(const HsContext *, const HsGradStatsArgs *args)
{
    return tensor_sums_workspace<GradStats>(args->count, [&](int index) { return entry_of(args, index); });
}

HsStatus op::grad_stats(HsContext *context, const HsGradStatsArgs *args)
{
    return tensor_sums<GradStats>(context, args->count, GradStats::Output{ args->sum_squares, args->nonfinite },
                                  [&](int index) { return entry_of(args, index); });
}

} // namespace HS_CUDA_NAMESPACE
