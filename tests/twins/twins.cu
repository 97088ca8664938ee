/* SPDX-License-Identifier: MIT
 *
 * Each wrapper of inline PTX and what the hardware's makers have for the same instruction, in CUTLASS (CuTe), libcu++
 * or the CUDA headers: two kernels that differ in that call alone.  compare.py wants the same machine code of both.
 *
 * Compiled for sm_90a, and with TWINS_FP8 for sm_89, where mma.sync has FP8.
 */
#include <cuda/atomic>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

#include <cute/arch/cluster_sm90.hpp>
#include <cute/arch/copy_sm75.hpp>
#include <cute/arch/copy_sm80.hpp>
#include <cute/arch/copy_sm90_desc.hpp>
#include <cute/arch/mma_sm80.hpp>
#include <cute/arch/mma_sm89.hpp>
#include <cute/arch/mma_sm90_gmma.hpp>
#include <cutlass/arch/barrier.h>
#include <cutlass/arch/reg_reconfig.h>
#include <cutlass/functional.h>
#include <utility>

#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/ptx_convert.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_grid.cuh"
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"

using namespace hs_cuda;

/* What a pair of kernels may use. */
struct Call {
    uint32_t *out;
    const uint32_t *in;
    float x, y;
    int i, j, k, l;
    uint64_t a, b;
};

/* own and vendor: statements. */
#define TWIN(name, own, vendor)                                                                  \
    extern "C" __global__ void own_##name(Call call, const __grid_constant__ CUtensorMap map)    \
    {                                                                                            \
        __shared__ __align__(1024) unsigned char tile[8192];                                     \
        __shared__ __align__(8) uint64_t bar[4];                                                 \
        (void)tile, (void)bar;                                                                   \
        own;                                                                                     \
    }                                                                                            \
    extern "C" __global__ void vendor_##name(Call call, const __grid_constant__ CUtensorMap map) \
    {                                                                                            \
        __shared__ __align__(1024) unsigned char tile[8192];                                     \
        __shared__ __align__(8) uint64_t bar[4];                                                 \
        (void)tile, (void)bar;                                                                   \
        vendor;                                                                                  \
    }

namespace vendor
{

template <typename T> __device__ uint32_t bits_of(T value)
{
    return *reinterpret_cast<uint32_t *>(&value);
}

/* CuTe's products of warps and warpgroups take each register by itself. */
template <typename Mma> __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    Mma::fma(d[0], d[1], d[2], d[3], a[0], a[1], a[2], a[3], b[0], b[1], d[0], d[1], d[2], d[3]);
}

template <typename Mma, size_t... i, size_t count>
__device__ void multiply(std::index_sequence<i...>, float (&d)[count], uint64_t a, uint64_t b, bool add)
{
    Mma::fma(a, b, d[i]..., static_cast<cute::SM90::GMMA::ScaleOut>((int)add));
}
template <typename Mma, size_t... i, size_t count>
__device__ void multiply(std::index_sequence<i...>, float (&d)[count], const uint32_t (&a)[4], uint64_t b, bool add)
{
    Mma::fma(a[0], a[1], a[2], a[3], b, d[i]..., static_cast<cute::SM90::GMMA::ScaleOut>((int)add));
}

} // namespace vendor

__device__ uint32_t at(const void *pointer)
{
    return ptx::shared_address(pointer);
}

#define LOAD_FRAGMENTS                      \
    float d[4];                             \
    uint32_t a[4], b[2];                    \
    for (int n = 0; n < 4; n++) {           \
        d[n] = __uint_as_float(call.in[n]); \
        a[n] = call.in[4 + n];              \
    }                                       \
    b[0] = call.in[8];                      \
    b[1] = call.in[9]
#define STORE_FRAGMENT          \
    for (int n = 0; n < 4; n++) \
    call.out[n] = __float_as_uint(d[n])
#define TWIN_MMA(name, own, Vendor) \
    TWIN(name, LOAD_FRAGMENTS; own; STORE_FRAGMENT, LOAD_FRAGMENTS; vendor::multiply<Vendor>(d, a, b); STORE_FRAGMENT)

#ifdef TWINS_FP8

TWIN_MMA(mma_e4m3, (ptx::mma_fp8<E4m3, E4m3>(d, a, b)), cute::SM89_16x8x32_F32E4M3E4M3F32_TN)
TWIN_MMA(mma_e5m2, (ptx::mma_fp8<E5m2, E4m3>(d, a, b)), cute::SM89_16x8x32_F32E5M2E4M3F32_TN)

#else

/* Conversions. */
TWIN(pack_bf16, *call.out = ptx::pack_bf16(call.x, call.y),
     *call.out = vendor::bits_of(__floats2bfloat162_rn(call.x, call.y)))
TWIN(pack_f16, *call.out = ptx::pack_f16(call.x, call.y),
     *call.out = vendor::bits_of(__floats2half2_rn(call.x, call.y)))
TWIN(pack_e4m3, *call.out = ptx::pack_e4m3(call.x, call.y),
     *call.out = __nv_cvt_float2_to_fp8x2(make_float2(call.x, call.y), __NV_SATFINITE, __NV_E4M3))
TWIN(pack_e5m2, *call.out = ptx::pack_e5m2(call.x, call.y),
     *call.out = __nv_cvt_float2_to_fp8x2(make_float2(call.x, call.y), __NV_SATFINITE, __NV_E5M2))
TWIN(decode_f16, *call.out = __float_as_uint(ptx::decode_f16((uint16_t)call.i)),
     *call.out = __float_as_uint(__half2float(__ushort_as_half((unsigned short)call.i))))
TWIN(encode_tf32, *call.out = ptx::encode_tf32(call.x),
     *call.out = __float_as_uint(nvcuda::wmma::__float_to_tf32(call.x)))
TWIN(reciprocal_approximate, *call.out = __float_as_uint(ptx::reciprocal_approximate(call.x)),
     *call.out = __float_as_uint(cutlass::reciprocal_approximate_ftz<float>{}(call.x)))
TWIN(clamp, *call.out = __float_as_uint(ptx::clamp(call.x, 0.5f, call.y)),
     *call.out = __float_as_uint(cutlass::minimum<float, true>{}(cutlass::maximum<float, true>{}(call.x, 0.5f),
                                                                 call.y)))

/* Copies of a thread, and kernels that overlap. */
TWIN(copy_async_16, ptx::copy_async_16(at(tile), call.in, call.i != 0 ? 16 : 0),
     (cute::SM80_CP_ASYNC_CACHEGLOBAL_ZFILL<uint4>::copy(*reinterpret_cast<const uint4 *>(call.in),
                                                         *reinterpret_cast<uint4 *>(tile), call.i != 0)))
TWIN(copy_async_4, ptx::copy_async_4(at(tile), call.in, call.i != 0 ? 4 : 0),
     (cute::SM80_CP_ASYNC_CACHEALWAYS_ZFILL<uint32_t>::copy(*call.in, *reinterpret_cast<uint32_t *>(tile),
                                                            call.i != 0)))
TWIN(copy_async_commit, ptx::copy_async_commit(), cute::cp_async_fence())
TWIN(copy_async_wait, ptx::copy_async_wait<2>(), cute::cp_async_wait<2>())
TWIN(wait_for_kernel_before, ptx::wait_for_kernel_before(), cudaGridDependencySynchronize())
TWIN(let_next_kernel_begin, ptx::let_next_kernel_begin(), cudaTriggerProgrammaticLaunchCompletion())

/* mbarriers, fences, barriers, clusters, registers. */
TWIN(mbarrier_init, ptx::mbarrier_init(at(bar), call.i), cuda::ptx::mbarrier_init(bar, (uint32_t)call.i))
TWIN(fence_mbarrier_init, ptx::fence_mbarrier_init(), cutlass::arch::fence_barrier_init())
TWIN(mbarrier_arrive, ptx::mbarrier_arrive(at(bar)), cutlass::arch::ClusterBarrier::arrive(bar))
TWIN(mbarrier_arrive_expect, ptx::mbarrier_arrive_expect(at(bar), call.i),
     cutlass::arch::ClusterTransactionBarrier::arrive_and_expect_tx(bar, (uint32_t)call.i))
TWIN(mbarrier_arrive_cluster, ptx::mbarrier_arrive_cluster(ptx::map_shared(at(bar), call.i)),
     cutlass::arch::ClusterBarrier::arrive(bar, (uint32_t)call.i, 1))
TWIN(mbarrier_wait, ptx::mbarrier_wait(at(bar), (unsigned)call.i),
     while (!cuda::ptx::mbarrier_try_wait_parity(cuda::ptx::sem_acquire, cuda::ptx::scope_cta, bar,
                                                 (uint32_t)call.i)){})
TWIN(fence_shared_to_async, ptx::fence_shared_to_async(), cutlass::arch::fence_view_async_shared())
TWIN(fence_global_to_async, ptx::fence_global_to_async(), cuda::ptx::fence_proxy_async(cuda::ptx::space_global))
TWIN(load_acquire, *call.out = ptx::load_acquire(call.in),
     (*call.out =
          cuda::atomic_ref<const uint32_t, cuda::thread_scope_device>(*call.in).load(cuda::memory_order_acquire)))
TWIN(store_release, ptx::store_release(call.out, (unsigned)call.i),
     (cuda::atomic_ref<uint32_t, cuda::thread_scope_device>(*call.out).store((unsigned)call.i,
                                                                             cuda::memory_order_release)))
/* The user's barriers of CUTLASS begin behind its own. */
TWIN(barrier_sync, ptx::barrier_sync(call.i + 8, call.j),
     cutlass::arch::NamedBarrier::sync((uint32_t)call.j, (uint32_t)call.i))
TWIN(barrier_arrive, ptx::barrier_arrive(call.i + 8, call.j),
     cutlass::arch::NamedBarrier::arrive((uint32_t)call.j, (uint32_t)call.i))
TWIN(cluster_sync, ptx::cluster_sync(), __syncwarp(); cute::cluster_arrive(); cute::cluster_wait())
TWIN(cluster_meet, ptx::cluster_meet(), __syncwarp(); cute::cluster_arrive_relaxed(); cute::cluster_wait())
TWIN(cluster_rank, *call.out = (uint32_t)ptx::cluster_rank(), *call.out = cute::block_rank_in_cluster())
TWIN(map_shared, *call.out = ptx::map_shared(at(tile), call.i),
     *call.out = cute::set_block_rank(at(tile), (uint32_t)call.i))
TWIN(fewer_registers, ptx::fewer_registers<24>(), cutlass::arch::warpgroup_reg_dealloc<24>())
TWIN(more_registers, ptx::more_registers<240>(), cutlass::arch::warpgroup_reg_alloc<240>())

/* Products of warps, and their operands. */
TWIN_MMA(mma_bf16, ptx::mma_bf16(d, a, b), cute::SM80_16x8x16_F32BF16BF16F32_TN)
TWIN_MMA(mma_f16, ptx::mma_f16(d, a, b), cute::SM80_16x8x16_F32F16F16F32_TN)
TWIN_MMA(mma_tf32, ptx::mma_tf32(d, a, b), cute::SM80_16x8x8_F32TF32TF32F32_TN)
#define STORE_MATRICES          \
    for (int n = 0; n < 4; n++) \
    call.out[n] = r[n]
TWIN(load_matrix_x4, uint32_t r[4]; ptx::load_matrix_x4(r, at(tile + 16 * threadIdx.x)); STORE_MATRICES, uint32_t r[4];
     cute::SM75_U32x4_LDSM_N::copy(*reinterpret_cast<cute::uint128_t *>(tile + 16 * threadIdx.x), r[0], r[1], r[2],
                                   r[3]);
     STORE_MATRICES)
TWIN(load_matrix_x4_transposed, uint32_t r[4]; ptx::load_matrix_x4_transposed(r, at(tile + 16 * threadIdx.x));
     STORE_MATRICES, uint32_t r[4];
     cute::SM75_U16x8_LDSM_T::copy(*reinterpret_cast<cute::uint128_t *>(tile + 16 * threadIdx.x), r[0], r[1], r[2],
                                   r[3]);
     STORE_MATRICES)

/* Copies of tiles. */
#define SPACES     cuda::ptx::space_cluster, cuda::ptx::space_global
#define OUTWARDS   cuda::ptx::space_global, cuda::ptx::space_shared
#define PLACE(...) const int32_t place[] = { __VA_ARGS__ }
TWIN(prefetch_tensor_map, ptx::prefetch_tensor_map(&map),
     cute::prefetch_tma_descriptor(reinterpret_cast<const cute::TmaDescriptor *>(&map)))
TWIN(load_tile_2d, ptx::load_tile(at(tile), &map, at(bar), call.i, call.j), PLACE(call.i, call.j);
     cuda::ptx::cp_async_bulk_tensor(SPACES, tile, &map, place, bar))
TWIN(load_tile_3d, ptx::load_tile(at(tile), &map, at(bar), call.i, call.j, call.k), PLACE(call.i, call.j, call.k);
     cuda::ptx::cp_async_bulk_tensor(SPACES, tile, &map, place, bar))
TWIN(load_tile_4d, ptx::load_tile(at(tile), &map, at(bar), call.i, call.j, call.k, call.l),
     PLACE(call.i, call.j, call.k, call.l);
     cuda::ptx::cp_async_bulk_tensor(SPACES, tile, &map, place, bar))
TWIN(load_tile_multicast, ptx::load_tile_multicast(at(tile), &map, at(bar), call.i, call.j, (unsigned)call.k),
     PLACE(call.i, call.j);
     cuda::ptx::cp_async_bulk_tensor(SPACES, tile, &map, place, bar, (uint16_t)call.k))
TWIN(store_tile_2d, ptx::store_tile(at(tile), &map, call.i, call.j), PLACE(call.i, call.j);
     cuda::ptx::cp_async_bulk_tensor(OUTWARDS, &map, place, tile))
TWIN(store_tile_3d, ptx::store_tile(at(tile), &map, call.i, call.j, call.k), PLACE(call.i, call.j, call.k);
     cuda::ptx::cp_async_bulk_tensor(OUTWARDS, &map, place, tile))
TWIN(store_tile_4d, ptx::store_tile(at(tile), &map, call.i, call.j, call.k, call.l),
     PLACE(call.i, call.j, call.k, call.l);
     cuda::ptx::cp_async_bulk_tensor(OUTWARDS, &map, place, tile))
TWIN(add_tile_2d, ptx::add_tile(at(tile), &map, call.i, call.j), PLACE(call.i, call.j);
     cuda::ptx::cp_reduce_async_bulk_tensor(OUTWARDS, cuda::ptx::op_add, &map, place, tile))
TWIN(add_tile_3d, ptx::add_tile(at(tile), &map, call.i, call.j, call.k), PLACE(call.i, call.j, call.k);
     cuda::ptx::cp_reduce_async_bulk_tensor(OUTWARDS, cuda::ptx::op_add, &map, place, tile))
TWIN(store_tile_commit, ptx::store_tile_commit(), cuda::ptx::cp_async_bulk_commit_group())
TWIN(store_tile_wait, ptx::store_tile_wait<1>(), cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<1>()))
TWIN(store_tile_wait_written, ptx::store_tile_wait_written<1>(),
     cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<1>()))

/* Products of warpgroups.  A tile's sums come from memory and go back, so that no register is another's. */
TWIN(wgmma_fence, ptx::wgmma_fence(), cute::warpgroup_arrive())
TWIN(wgmma_commit, ptx::wgmma_commit(), cute::warpgroup_commit_batch())
TWIN(wgmma_wait, ptx::wgmma_wait<1>(), cute::warpgroup_wait<1>())
#define PRODUCT(count, call_it)                                         \
    float d[count];                                                     \
    uint32_t a[4] = { call.in[0], call.in[1], call.in[2], call.in[3] }; \
    (void)a;                                                            \
    for (int n = 0; n < count; n++)                                     \
        d[n] = __uint_as_float(call.in[threadIdx.x * count + n]);       \
    ptx::wgmma_fence();                                                 \
    call_it;                                                            \
    ptx::wgmma_commit();                                                \
    ptx::wgmma_wait<0>();                                               \
    for (int n = 0; n < count; n++)                                     \
    call.out[threadIdx.x * count + n] = __float_as_uint(d[n])
#define MAJOR(transposed) (transposed ? cute::SM90::GMMA::Major::MN : cute::SM90::GMMA::Major::K)
#define TWIN_SHARED(name, Element, count, columns, types, ta, tb)                                                  \
    TWIN(name, PRODUCT(count, (ptx::wgmma<Element, ta, tb>(d, call.a, call.b, call.i != 0))),                      \
         PRODUCT(count,                                                                                            \
                 (vendor::multiply<cute::SM90::GMMA::MMA_64x##columns##x16_F32##types##_SS<MAJOR(ta), MAJOR(tb)>>( \
                     std::make_index_sequence<count>(), d, call.a, call.b, call.i != 0))))
#define TWIN_REGISTERS(name, Element, count, columns, types, tb)                                                      \
    TWIN(name, PRODUCT(count, (ptx::wgmma<Element, tb>(d, a, call.b, call.i != 0))),                                  \
         PRODUCT(count,                                                                                               \
                 (vendor::multiply<                                                                                   \
                     cute::SM90::GMMA::MMA_64x##columns##x16_F32##types##_RS<cute::SM90::GMMA::Major::K, MAJOR(tb)>>( \
                     std::make_index_sequence<count>(), d, a, call.b, call.i != 0))))
#define TWIN_CODES(name, A, B, count, columns, types)                                                    \
    TWIN(name, PRODUCT(count, (ptx::wgmma_fp8<A, B>(d, call.a, call.b, call.i != 0))),                   \
         PRODUCT(count, (vendor::multiply<cute::SM90::GMMA::MMA_64x##columns##x32_F32##types##_SS_TN<>>( \
                            std::make_index_sequence<count>(), d, call.a, call.b, call.i != 0))))
TWIN_SHARED(wgmma_bf16_64, Bf16, 32, 64, BF16BF16, false, false)
TWIN_SHARED(wgmma_bf16_64_a, Bf16, 32, 64, BF16BF16, true, false)
TWIN_SHARED(wgmma_bf16_64_ab, Bf16, 32, 64, BF16BF16, true, true)
TWIN_SHARED(wgmma_bf16_128, Bf16, 64, 128, BF16BF16, false, false)
TWIN_SHARED(wgmma_bf16_128_b, Bf16, 64, 128, BF16BF16, false, true)
TWIN_SHARED(wgmma_bf16_256, Bf16, 128, 256, BF16BF16, false, false)
TWIN_SHARED(wgmma_bf16_256_ab, Bf16, 128, 256, BF16BF16, true, true)
TWIN_SHARED(wgmma_f16_128, F16, 64, 128, F16F16, false, false)
TWIN_SHARED(wgmma_f16_256_b, F16, 128, 256, F16F16, false, true)
TWIN_REGISTERS(wgmma_bf16_64_registers, Bf16, 32, 64, BF16BF16, false)
TWIN_REGISTERS(wgmma_bf16_64_registers_b, Bf16, 32, 64, BF16BF16, true)
TWIN_REGISTERS(wgmma_bf16_128_registers_b, Bf16, 64, 128, BF16BF16, true)
TWIN_REGISTERS(wgmma_f16_64_registers_b, F16, 32, 64, F16F16, true)
TWIN_CODES(wgmma_e4m3_128, E4m3, E4m3, 64, 128, E4M3E4M3)
TWIN_CODES(wgmma_e4m3_256, E4m3, E4m3, 128, 256, E4M3E4M3)
TWIN_CODES(wgmma_e5m2_128, E5m2, E4m3, 64, 128, E5M2E4M3)
TWIN_CODES(wgmma_e5m2_256, E5m2, E4m3, 128, 256, E5M2E4M3)

#endif
