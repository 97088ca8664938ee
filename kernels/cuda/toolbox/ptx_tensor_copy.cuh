/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers of sm_90: copies of whole tiles by the tensor memory accelerator.  One thread asks; coordinates are
 * those of the tile's first element, the contiguous dimension first.  Tiles of a swizzled map are aligned in shared
 * memory to eight lines of the swizzle, others to 128 bytes.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_TENSOR_COPY_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_TENSOR_COPY_CUH

#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "kernels/cuda/toolbox/tensor_map.cuh"

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

/* The map itself, which is a kernel's parameter, to where the first copy finds it. */
HS_DEVICE void prefetch_tensor_map(const TensorMap *map)
{
#ifdef HS_EMU
    emulated_prefetch_tensor_map(map);
#else
    HS_SM90A(asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"));
#endif
}

/* A tile to this block's shared memory; its bytes count at `mbarrier` when they have come. */
HS_DEVICE void load_tile(uint32_t destination, const TensorMap *map, uint32_t mbarrier, int x, int y)
{
#ifdef HS_EMU
    const int place[] = { x, y };
    emulated_tensor_load(destination, map, mbarrier, place, 0);
#else
    HS_SM90A(asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
                          "{%3, %4}], [%2];" ::"r"(destination),
                          "l"(map), "r"(mbarrier), "r"(x), "r"(y)
                          : "memory"));
#endif
}

/* The same tile to the same place in each block of the cluster that has its bit in `blocks`, and its bytes to each
 * one's mbarrier at the same place. */
HS_DEVICE void load_tile_multicast(uint32_t destination, const TensorMap *map, uint32_t mbarrier, int x, int y,
                                   unsigned blocks)
{
#ifdef HS_EMU
    const int place[] = { x, y };
    emulated_tensor_load(destination, map, mbarrier, place, blocks);
#else
    HS_SM90A(asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                          ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
                          "l"(map), "r"(mbarrier), "r"(x), "r"(y), "h"((uint16_t)blocks)
                          : "memory"));
#endif
}

HS_DEVICE void load_tile(uint32_t destination, const TensorMap *map, uint32_t mbarrier, int x, int y, int z)
{
#ifdef HS_EMU
    const int place[] = { x, y, z };
    emulated_tensor_load(destination, map, mbarrier, place, 0);
#else
    HS_SM90A(asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                          " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(destination),
                          "l"(map), "r"(mbarrier), "r"(x), "r"(y), "r"(z)
                          : "memory"));
#endif
}

HS_DEVICE void load_tile(uint32_t destination, const TensorMap *map, uint32_t mbarrier, int x, int y, int z, int w)
{
#ifdef HS_EMU
    const int place[] = { x, y, z, w };
    emulated_tensor_load(destination, map, mbarrier, place, 0);
#else
    HS_SM90A(asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                          " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(destination),
                          "l"(map), "r"(mbarrier), "r"(x), "r"(y), "r"(z), "r"(w)
                          : "memory"));
#endif
}

/* A tile from shared memory, which the threads that wrote it have fenced (fence_shared_to_async) before a barrier. */
HS_DEVICE void store_tile(uint32_t source, const TensorMap *map, int x, int y)
{
#ifdef HS_EMU
    const int place[] = { x, y };
    emulated_tensor_store(source, map, place, false);
#else
    HS_SM90A(asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];" ::"r"(source),
                          "l"(map), "r"(x), "r"(y)
                          : "memory"));
#endif
}

HS_DEVICE void store_tile(uint32_t source, const TensorMap *map, int x, int y, int z)
{
#ifdef HS_EMU
    const int place[] = { x, y, z };
    emulated_tensor_store(source, map, place, false);
#else
    HS_SM90A(
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%1, {%2, %3, %4}], [%0];" ::"r"(source),
                     "l"(map), "r"(x), "r"(y), "r"(z)
                     : "memory"));
#endif
}

HS_DEVICE void store_tile(uint32_t source, const TensorMap *map, int x, int y, int z, int w)
{
#ifdef HS_EMU
    const int place[] = { x, y, z, w };
    emulated_tensor_store(source, map, place, false);
#else
    HS_SM90A(asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], [%0];" ::"r"(source), "l"(map),
        "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory"));
#endif
}

/* Added to what is there (f32, to nearest even); subnormal addends and sums become zeros of their sign. */
HS_DEVICE void add_tile(uint32_t source, const TensorMap *map, int x, int y)
{
#ifdef HS_EMU
    const int place[] = { x, y };
    emulated_tensor_store(source, map, place, true);
#else
    HS_SM90A(asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"
                          " [%1, {%2, %3}], [%0];" ::"r"(source),
                          "l"(map), "r"(x), "r"(y)
                          : "memory"));
#endif
}

HS_DEVICE void add_tile(uint32_t source, const TensorMap *map, int x, int y, int z)
{
#ifdef HS_EMU
    const int place[] = { x, y, z };
    emulated_tensor_store(source, map, place, true);
#else
    HS_SM90A(asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"
                          " [%1, {%2, %3, %4}], [%0];" ::"r"(source),
                          "l"(map), "r"(x), "r"(y), "r"(z)
                          : "memory"));
#endif
}

/* Close the group of this thread's stores since the last one. */
HS_DEVICE void store_tile_commit()
{
#ifdef HS_EMU
    emulated_tensor_store_commit();
#else
    HS_SM90A(asm volatile("cp.async.bulk.commit_group;" ::: "memory"));
#endif
}

/* Until all but `pending` of this thread's groups have read shared memory, so that it may be written again. */
template <int pending> HS_DEVICE void store_tile_wait()
{
#ifdef HS_EMU
    emulated_tensor_store_wait(pending, false);
#else
    HS_SM90A(asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"));
#endif
}

/* Until all but `pending` of this thread's groups are in memory, where other blocks may read them. */
template <int pending> HS_DEVICE void store_tile_wait_written()
{
#ifdef HS_EMU
    emulated_tensor_store_wait(pending, true);
#else
    HS_SM90A(asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory"));
#endif
}

} // namespace ptx
} // namespace HS_CUDA_NAMESPACE

#endif
