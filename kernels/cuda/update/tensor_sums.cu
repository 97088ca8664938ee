/* SPDX-License-Identifier: MIT
 *
 * Sums over whole tensors that continual learning asks for: scalar products, statistics of the importance, the penalty.
 * Each stream is read once; products and sums are in double, because squares of small steps leave f32's range.
 */
#include "kernels/cuda/toolbox/multi_tensor.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

/* What the rules with a single sum share. */
template <int stream_count> struct SingleSum {
    static constexpr int streams = stream_count;
    using Entry = TensorEntry<streams>;
    using Value = double;
    struct Output {
        double *values;
    };

    static __device__ __forceinline__ double add(double a, double b)
    {
        return a + b;
    }
    static __device__ __forceinline__ double reduce(double value, double *scratch)
    {
        return block_reduce<Sum>(value, 0.0, scratch);
    }
    static __device__ __forceinline__ void store(const Output &output, int index, double value)
    {
        output.values[index] = value;
    }
};

/* sum x y; the product of two f32 is exact in double */
struct Dot : SingleSum<2> {
    static constexpr const char *names[2] = { "dot_parts_kernel", "dot_sums_kernel" };

    static __device__ __forceinline__ double part(const Entry &entry, int64_t begin, int64_t end)
    {
        double sum = 0.0;
        visit_act(entry.dtype[0], [&](auto first) {
            visit_act(entry.dtype[1], [&](auto second) {
                using X = decltype(first);
                using Y = decltype(second);
                const X *x = static_cast<const X *>(entry.data[0]);
                const Y *y = static_cast<const Y *>(entry.data[1]);
                for_quads(begin, end, entry.aligned, [&](auto whole, int64_t i, int left) {
                    const Pack<X, QUAD> a = load_quad<decltype(whole)::value>(x, i, left);
                    const Pack<Y, QUAD> b = load_quad<decltype(whole)::value>(y, i, left);
#pragma unroll
                    for (int j = 0; j < QUAD; j++)
                        sum = fma((double)to_float(a.value[j]), (double)to_float(b.value[j]), sum);
                });
            });
        });
        return sum;
    }
};

/* sum importance (p - anchor)^2; the difference in f32, as the update takes it */
struct Penalty : SingleSum<3> {
    static constexpr const char *names[2] = { "penalty_parts_kernel", "penalty_sums_kernel" };
    enum { IMPORTANCE, ANCHOR, PARAMETER };

    static __device__ __forceinline__ double part(const Entry &entry, int64_t begin, int64_t end)
    {
        double sum = 0.0;
        const float *importance = static_cast<const float *>(entry.data[IMPORTANCE]);
        const float *anchor = static_cast<const float *>(entry.data[ANCHOR]);
        visit_act(entry.dtype[PARAMETER], [&](auto element) {
            using Weight = decltype(element);
            const Weight *parameter = static_cast<const Weight *>(entry.data[PARAMETER]);
            for_quads(begin, end, entry.aligned, [&](auto whole, int64_t i, int left) {
                constexpr bool packs = decltype(whole)::value;
                const Pack<Weight, QUAD> p = load_quad<packs>(parameter, i, left);
                const Pack<float, QUAD> a = load_quad<packs>(anchor, i, left);
                Pack<float, QUAD> weight = { { 1.0f, 1.0f, 1.0f, 1.0f } };
                if (importance != nullptr)
                    weight = load_quad<packs>(importance, i, left);
#pragma unroll
                for (int j = 0; j < QUAD; j++) { /* beyond the end p and anchor are both zero */
                    const double distance = (double)(to_float(p.value[j]) - a.value[j]);
                    sum = fma(distance * distance, (double)weight.value[j], sum);
                }
            });
        });
        return sum;
    }
};

/* Maximum, sum and sum of squares of numbers that are not negative: zeros beyond the end change none. */
struct ImportanceStats {
    static constexpr const char *names[2] = { "importance_stats_parts_kernel", "importance_stats_sums_kernel" };
    static constexpr int streams = 1;
    using Entry = TensorEntry<streams>;
    struct Value {
        double maximum, sum, sum_squares;
    };
    struct Output {
        double *maximum, *sum, *sum_squares;
    };

    static __device__ __forceinline__ Value part(const Entry &entry, int64_t begin, int64_t end)
    {
        float maximum = 0.0f;
        Value value = {};
        const float *importance = static_cast<const float *>(entry.data[0]);
        for_quads(begin, end, entry.aligned, [&](auto whole, int64_t i, int left) {
            const Pack<float, QUAD> quad = load_quad<decltype(whole)::value>(importance, i, left);
#pragma unroll
            for (int j = 0; j < QUAD; j++) {
                const double element = (double)quad.value[j];
                maximum = Maximum::combine(maximum, quad.value[j]);
                value.sum += element;
                value.sum_squares = fma(element, element, value.sum_squares);
            }
        });
        value.maximum = (double)maximum;
        return value;
    }

    static __device__ __forceinline__ Value add(const Value &a, const Value &b)
    {
        return Value{ Maximum::combine(a.maximum, b.maximum), a.sum + b.sum, a.sum_squares + b.sum_squares };
    }

    static __device__ __forceinline__ Value reduce(const Value &value, double *scratch)
    {
        return Value{ block_reduce<Maximum>(value.maximum, 0.0, scratch), block_reduce<Sum>(value.sum, 0.0, scratch),
                      block_reduce<Sum>(value.sum_squares, 0.0, scratch) };
    }

    static __device__ __forceinline__ void store(const Output &output, int index, const Value &value)
    {
        output.maximum[index] = value.maximum;
        output.sum[index] = value.sum;
        output.sum_squares[index] = value.sum_squares;
    }
};

/* Entries of the operations' arguments. */
Dot::Entry entry_of(const HsDotArgs *args, int index)
{
    Dot::Entry entry = {};
    entry.aligned = true;
    entry.count = hs_tensor_count(&args->x[index]);
    set_stream(entry, 0, args->x[index]);
    set_stream(entry, 1, args->y[index]);
    return entry;
}

ImportanceStats::Entry entry_of(const HsImportanceStatsArgs *args, int index)
{
    ImportanceStats::Entry entry = {};
    entry.aligned = true;
    entry.count = hs_tensor_count(&args->tensors[index]);
    set_stream(entry, 0, args->tensors[index]);
    return entry;
}

/* Without an anchor there is nothing to sum: the value is 0. */
Penalty::Entry entry_of(const HsPenaltyArgs *args, int index)
{
    Penalty::Entry entry = {};
    entry.aligned = true;
    entry.count = hs_tensor_present(&args->anchor[index]) ? hs_tensor_count(&args->parameter[index]) : 0;
    set_stream(entry, Penalty::IMPORTANCE, args->importance[index]);
    set_stream(entry, Penalty::ANCHOR, args->anchor[index]);
    set_stream(entry, Penalty::PARAMETER, args->parameter[index]);
    return entry;
}

template <typename Rule, typename Args>
HsStatus sum(HsContext *context, const Args *args, const typename Rule::Output &output)
{
    return tensor_sums<Rule>(context, args->count, output, [&](int index) { return entry_of(args, index); });
}

template <typename Rule, typename Args> size_t sum_workspace(const Args *args)
{
    return tensor_sums_workspace<Rule>(args->count, [&](int index) { return entry_of(args, index); });
}

} // namespace

size_t workspace::dot(const HsContext *, const HsDotArgs *args)
{
    return sum_workspace<Dot>(args);
}

HsStatus op::dot(HsContext *context, const HsDotArgs *args)
{
    return sum<Dot>(context, args, Dot::Output{ args->values });
}

size_t workspace::importance_stats(const HsContext *, const HsImportanceStatsArgs *args)
{
    return sum_workspace<ImportanceStats>(args);
}

HsStatus op::importance_stats(HsContext *context, const HsImportanceStatsArgs *args)
{
    return sum<ImportanceStats>(context, args, ImportanceStats::Output{ args->maximum, args->sum, args->sum_squares });
}

size_t workspace::penalty(const HsContext *, const HsPenaltyArgs *args)
{
    return sum_workspace<Penalty>(args);
}

HsStatus op::penalty(HsContext *context, const HsPenaltyArgs *args)
{
    return sum<Penalty>(context, args, Penalty::Output{ args->values });
}

} // namespace HS_CUDA_NAMESPACE
