/* SPDX-License-Identifier: MIT
 *
 * One number (or three) per tensor, for a whole model's tensors in two launches.
 *
 *     tensors        [ 0 .......... ][ 1 . ][ 2 ............................ ]
 *     parts, blocks  [16384][16384][ ][   ][16384][16384][16384][16384][   ]     tensor_parts_kernel: a sum per part
 *     sums           [ 0          ]  [ 1 ] [ 2                            ]     tensor_sums_kernel: a block per tensor
 *
 * The tensors come as kernel parameters, as many as 4 KB hold; more of them take more pairs of launches.  Where a part
 * begins and in which order its elements and the parts are added depends on the tensor's size alone, not on the GPU.
 *
 * A rule has
 *     names                          of its two kernels, for messages
 *     streams                        tensors that are read side by side
 *     Value                          what is summed; Value{} is nothing
 *     Output                         device pointers, copied to the kernel
 *     part(entry, begin, end)        this thread's share of a part
 *     add(a, b), reduce(value, scratch)
 *     store(output, index, value)
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_MULTI_TENSOR_CUH
#define HS_KERNELS_CUDA_TOOLBOX_MULTI_TENSOR_CUH

#include <type_traits>

#include "kernels/cuda/toolbox/quad.cuh"
#include "kernels/cuda/toolbox/reduce.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Sixteen quads a thread: enough to hide the reduction behind, few enough that small models fill a GPU. */
enum { PART_ELEMENTS = 16 * QUAD_BLOCK_ELEMENTS };

template <int streams> struct TensorEntry {
    const void *data[streams]; /* null: absent */
    int64_t count;             /* elements; 0: the sum of nothing */
    uint32_t first_part;       /* of this launch */
    uint8_t dtype[streams];
    bool aligned; /* every stream can be moved by quads */
};

template <int streams> struct TensorList {
    /* Kernel parameters are at most 4 KB; the rest is for the other ones. */
    static constexpr int CAPACITY = (4096 - 128) / (int)sizeof(TensorEntry<streams>);
    TensorEntry<streams> entry[CAPACITY];
    int count;
    uint32_t parts;
};

template <int streams> static inline void set_stream(TensorEntry<streams> &entry, int stream, const HsTensor &tensor)
{
    entry.data[stream] = optional_data<void>(tensor);
    entry.dtype[stream] = (uint8_t)tensor.dtype;
    entry.aligned = entry.aligned && quad_aligned(tensor);
}

/* The tensor that a part is of: the last one that begins at it or before. */
template <typename List> HS_DEVICE int find_entry(const List &list, uint32_t part)
{
    int low = 0, high = list.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (list.entry[middle].first_part <= part)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* body(whole, i, left) for this thread's quads of [begin, end); whole is std::true_type or false_type. */
template <typename Body> HS_DEVICE void for_quads(int64_t begin, int64_t end, bool aligned, Body body)
{
    int64_t i = begin + (int64_t)threadIdx.x * QUAD;
    if (aligned) {
#pragma unroll 4 /* loads of four quads are in flight */
        for (; i + QUAD <= end; i += QUAD_BLOCK_ELEMENTS)
            body(std::true_type{}, i, (int)QUAD);
    }
    for (; i < end; i += QUAD_BLOCK_ELEMENTS)
        body(std::false_type{}, i, end - i < QUAD ? (int)(end - i) : (int)QUAD);
}

/* body(T{}) with a stream's storage type; outside of the loop over elements. */
template <typename Body> HS_DEVICE void visit_act(uint8_t dtype, Body body)
{
    if (dtype == HS_F32)
        body(float{});
    else if (dtype == HS_BF16)
        body(Bf16{});
    else
        body(F16{});
}

template <typename Rule>
__global__ void __launch_bounds__(QUAD_THREADS)
    tensor_parts_kernel(const __grid_constant__ TensorList<Rule::streams> list, typename Rule::Value *partials)
{
    HS_SHARED(double, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const TensorEntry<Rule::streams> &entry = list.entry[find_entry(list, blockIdx.x)];
    const int64_t begin = (int64_t)(blockIdx.x - entry.first_part) * PART_ELEMENTS;
    const int64_t end = begin + PART_ELEMENTS < entry.count ? begin + PART_ELEMENTS : entry.count;
    const typename Rule::Value value = Rule::reduce(Rule::part(entry, begin, end), scratch);
    if (threadIdx.x == 0)
        partials[blockIdx.x] = value;
}

template <typename Rule>
__global__ void __launch_bounds__(QUAD_THREADS)
    tensor_sums_kernel(const __grid_constant__ TensorList<Rule::streams> list, const typename Rule::Value *partials,
                       const typename Rule::Output output, int first)
{
    HS_SHARED(double, scratch, WARP_SIZE);
    begin_after_kernel_before();
    const int tensor = (int)blockIdx.x;
    const uint32_t end = tensor + 1 < list.count ? list.entry[tensor + 1].first_part : list.parts;
    typename Rule::Value value = {};
    for (uint32_t part = list.entry[tensor].first_part + threadIdx.x; part < end; part += QUAD_THREADS)
        value = Rule::add(value, partials[part]);
    value = Rule::reduce(value, scratch);
    if (threadIdx.x == 0)
        Rule::store(output, first + tensor, value);
}

/* Workspace for tensors of these sizes: entry_of(index) as below. */
template <typename Rule, typename EntryOf> size_t tensor_sums_workspace(int count, EntryOf &&entry_of)
{
    size_t parts = 0;
    for (int i = 0; i < count; i++)
        parts += blocks_for(entry_of(i).count, PART_ELEMENTS);
    return parts * sizeof(typename Rule::Value);
}

/* entry_of(index): the TensorEntry of tensor `index`, without its first_part. */
template <typename Rule, typename EntryOf>
HsStatus tensor_sums(HsContext *context, int count, const typename Rule::Output &output, EntryOf &&entry_of)
{
    using List = TensorList<Rule::streams>;
    typename Rule::Value *partials = static_cast<typename Rule::Value *>(context->workspace);
    for (int first = 0; first < count; first += List::CAPACITY) {
        List list = {};
        for (; list.count < List::CAPACITY && first + list.count < count; list.count++) {
            TensorEntry<Rule::streams> entry = entry_of(first + list.count);
            entry.first_part = list.parts;
            list.parts += blocks_for(entry.count, PART_ELEMENTS);
            list.entry[list.count] = entry;
        }
        if (list.parts > 0)
            HS_TRY(hs_launch_after(context, Rule::names[0], tensor_parts_kernel<Rule>, list.parts, QUAD_THREADS, 0,
                                   list, partials));
        HS_TRY(hs_launch_after(context, Rule::names[1], tensor_sums_kernel<Rule>, (unsigned)list.count, QUAD_THREADS, 0,
                               list, (const typename Rule::Value *)partials, output, first));
    }
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE

#endif
