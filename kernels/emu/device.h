/* SPDX-License-Identifier: MIT
 *
 * What kernels call: built-in variables, barriers, warp collectives, atomics, and the emulated bodies of ptx_*.cuh.
 * Anything that waits for other threads takes its caller's place in the source, for reports.
 */
#ifndef HS_KERNELS_EMU_DEVICE_H
#define HS_KERNELS_EMU_DEVICE_H

#include "kernels/emu/types.h"

namespace hs_emu
{

namespace emulator
{

/* Every shuffle: each lane gives 64 bits and receives those of lane `source` (its own when negative). */
uint64_t exchange(unsigned mask, uint64_t value, int source, Site site);
int lane_index();

template <typename T> static inline T exchange_value(unsigned mask, T value, int source, Site site)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(mask, bits, source, site);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Called after each atomic: a place where the scheduler may continue with another thread. */
void atomic_performed();

/* Shared memory.  `key` is one address per place of declaration (and per instantiation of a template). */
void *shared_array(const void *key, const char *name, size_t bytes, Site site);
void *shared_dynamic(const char *name, Site site);

} // namespace emulator

/* Of the thread now running; the scheduler sets them at every switch.  A block never leaves its host thread. */
extern __thread uint3 threadIdx;
extern __thread uint3 blockIdx;
extern __thread uint3 blockDim;
extern __thread uint3 gridDim;
static constexpr int warpSize = 32;

/* Barriers of the whole block. */
void __syncthreads(emulator::Site site = HS_EMU_HERE);
int __syncthreads_or(int predicate, emulator::Site site = HS_EMU_HERE);
int __syncthreads_and(int predicate, emulator::Site site = HS_EMU_HERE);
int __syncthreads_count(int predicate, emulator::Site site = HS_EMU_HERE);

/* Collectives of the lanes in `mask`. */
void __syncwarp(unsigned mask = 0xffffffffu, emulator::Site site = HS_EMU_HERE);
unsigned __ballot_sync(unsigned mask, int predicate, emulator::Site site = HS_EMU_HERE);
int __any_sync(unsigned mask, int predicate, emulator::Site site = HS_EMU_HERE);
int __all_sync(unsigned mask, int predicate, emulator::Site site = HS_EMU_HERE);

/* `width` (a power of two up to 32) splits the warp into segments that shuffle by themselves. */
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::Site site = HS_EMU_HERE)
{
    const int first = emulator::lane_index() & ~(width - 1);
    return emulator::exchange_value(mask, value, first + (source & (width - 1)), site);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                               emulator::Site site = HS_EMU_HERE)
{
    const int lane = emulator::lane_index(), first = lane & ~(width - 1), source = lane - (int)delta;
    return emulator::exchange_value(mask, value, source < first ? -1 : source, site);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                                 emulator::Site site = HS_EMU_HERE)
{
    const int lane = emulator::lane_index(), last = lane | (width - 1), source = lane + (int)delta;
    return emulator::exchange_value(mask, value, source > last ? -1 : source, site);
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                                emulator::Site site = HS_EMU_HERE)
{
    const int lane = emulator::lane_index(), last = lane | (width - 1), source = lane ^ lane_mask;
    return emulator::exchange_value(mask, value, source > last ? -1 : source, site);
}

/* Integer atomics; blocks may run on several host threads, so these are real ones. */
#define HS_EMU_ATOMIC(name, builtin)                                                  \
    template <typename T, typename U> static inline T name(T *address, U value)       \
    {                                                                                 \
        static_assert(T(1) / 2 == 0, "floating-point atomics are not deterministic"); \
        const T old = builtin(address, (T)value, __ATOMIC_SEQ_CST);                   \
        emulator::atomic_performed();                                                 \
        return old;                                                                   \
    }
HS_EMU_ATOMIC(atomicAdd, __atomic_fetch_add)
HS_EMU_ATOMIC(atomicSub, __atomic_fetch_sub)
HS_EMU_ATOMIC(atomicOr, __atomic_fetch_or)
HS_EMU_ATOMIC(atomicAnd, __atomic_fetch_and)
HS_EMU_ATOMIC(atomicXor, __atomic_fetch_xor)
HS_EMU_ATOMIC(atomicExch, __atomic_exchange_n)
#undef HS_EMU_ATOMIC

template <typename T, typename U, typename V> static inline T atomicCAS(T *address, U compare, V value)
{
    T expected = (T)compare;
    __atomic_compare_exchange_n(address, &expected, (T)value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    emulator::atomic_performed();
    return expected;
}
template <typename T, typename Choose> static inline T atomic_choose(T *address, T value, Choose better)
{
    T old = __atomic_load_n(address, __ATOMIC_SEQ_CST);
    while (better(value, old) &&
           !__atomic_compare_exchange_n(address, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    emulator::atomic_performed();
    return old;
}
template <typename T, typename U> static inline T atomicMax(T *address, U value)
{
    static_assert(T(1) / 2 == 0, "CUDA has no atomicMax on floating point");
    return atomic_choose(address, (T)value, [](T a, T b) { return a > b; });
}
template <typename T, typename U> static inline T atomicMin(T *address, U value)
{
    static_assert(T(1) / 2 == 0, "CUDA has no atomicMin on floating point");
    return atomic_choose(address, (T)value, [](T a, T b) { return a < b; });
}
/* Counts up to `limit`, then starts at 0 again. */
static inline unsigned atomicInc(unsigned *address, unsigned limit)
{
    unsigned old = __atomic_load_n(address, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(address, &old, old >= limit ? 0 : old + 1, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
    }
    emulator::atomic_performed();
    return old;
}

/* The emulator reorders no memory accesses: fences are the host's own. */
static inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
static inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Words by which blocks wait for each other (collective.cpp).  A load lets others continue, as it is often repeated. */
unsigned emulated_load_acquire(const unsigned *address);
void emulated_store_release(unsigned *address, unsigned value);

/* Loads and stores with cache hints. */
#define HS_EMU_LOAD(name)                                        \
    template <typename T> static inline T name(const T *address) \
    {                                                            \
        return *address;                                         \
    }
HS_EMU_LOAD(__ldg)
HS_EMU_LOAD(__ldca)
HS_EMU_LOAD(__ldcg)
HS_EMU_LOAD(__ldcs)
HS_EMU_LOAD(__ldcv)
HS_EMU_LOAD(__ldlu)
#undef HS_EMU_LOAD
#define HS_EMU_STORE(name)                                                         \
    template <typename T, typename U> static inline void name(T *address, U value) \
    {                                                                              \
        *address = value;                                                          \
    }
HS_EMU_STORE(__stwb)
HS_EMU_STORE(__stcg)
HS_EMU_STORE(__stcs)
HS_EMU_STORE(__stwt)
#undef HS_EMU_STORE

/* ex2.approx.ftz and rcp.approx.ftz, off as settings() say (approximate.cpp). */
float emulated_exp2_approximate(float x);
float emulated_reciprocal_approximate(float x);

/* griddepcontrol.wait (block.cpp). */
void emulated_wait_for_kernel_before(emulator::Site site = HS_EMU_HERE);

/* cp.async (copy.cpp): shared addresses are 32-bit offsets in the block's window. */
uint32_t emulated_shared_address(const void *pointer);
void emulated_copy_async(uint32_t destination, const void *source, int bytes, int valid,
                         emulator::Site site = HS_EMU_HERE);
void emulated_copy_async_commit();
void emulated_copy_async_wait(int pending, emulator::Site site = HS_EMU_HERE);

/* Barriers of a number of threads, and of the cluster (barrier.cpp). */
void emulated_barrier_sync(int name, int threads, emulator::Site site = HS_EMU_HERE);
void emulated_barrier_arrive(int name, int threads, emulator::Site site = HS_EMU_HERE);
void emulated_cluster_sync(emulator::Site site = HS_EMU_HERE);
int emulated_cluster_rank();
int emulated_cluster_size();
/* Shared memory of block `rank` of the cluster, where this block has `address`. */
uint32_t emulated_map_shared(uint32_t address, int rank);
void emulated_store_shared_cluster(uint32_t address, unsigned value);

/* mbarrier (mbarrier.cpp). */
void emulated_mbarrier_init(uint32_t address, int count, emulator::Site site = HS_EMU_HERE);
/* Expects `bytes` more in this phase, and arrives. */
void emulated_mbarrier_arrive(uint32_t address, int bytes, emulator::Site site = HS_EMU_HERE);
void emulated_mbarrier_arrive_remote(uint32_t address, emulator::Site site = HS_EMU_HERE);
void emulated_mbarrier_wait(uint32_t address, unsigned parity, emulator::Site site = HS_EMU_HERE);

/* Tiles of tensors, from and to shared memory (tensor_copy.cpp). */
struct TensorMap;
void emulated_prefetch_tensor_map(const TensorMap *map, emulator::Site site = HS_EMU_HERE);
/* blocks: a bit for each block of the cluster that receives the tile; 0: this one. */
void emulated_tensor_load(uint32_t destination, const TensorMap *map, uint32_t mbarrier, const int *place,
                          unsigned blocks, emulator::Site site = HS_EMU_HERE);
/* add: to what is there (f32). */
void emulated_tensor_store(uint32_t source, const TensorMap *map, const int *place, bool add,
                           emulator::Site site = HS_EMU_HERE);
/* Of this thread's ordinary writes to shared memory (async_proxy.cpp). */
void emulated_fence_shared_to_async();
void emulated_tensor_store_commit();
/* Until they have read shared memory; written: and are in device memory. */
void emulated_tensor_store_wait(int pending, bool written, emulator::Site site = HS_EMU_HERE);

/* What tensor cores multiply. */
enum class TensorFormat { BF16, F16, TF32, E4M3, E5M2 };

/* What a warpgroup does together (warpgroup.cpp). */
struct WarpgroupProduct {
    float *sums;       /* columns / 2 registers of this thread */
    const uint32_t *a; /* four registers, or NULL: from shared memory */
    uint64_t a_descriptor, b_descriptor;
    int columns;
    TensorFormat a_format, b_format; /* the same one of 16 bits, or of 8 bits any two */
    bool add;                        /* to the sums; else in their place */
    bool a_transposed, b_transposed;
};
void emulated_wgmma(const WarpgroupProduct &product, emulator::Site site = HS_EMU_HERE);
void emulated_wgmma_fence(emulator::Site site = HS_EMU_HERE);
void emulated_wgmma_commit(emulator::Site site = HS_EMU_HERE);
void emulated_wgmma_wait(int pending, emulator::Site site = HS_EMU_HERE);
void emulated_set_registers(int count, bool more, emulator::Site site = HS_EMU_HERE);

/* mma.sync and ldmatrix (tensor.cpp); fragments as ptx_mma.cuh draws them.  Whole warps only. */
void emulated_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       emulator::Site site = HS_EMU_HERE);
void emulated_mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], emulator::Site site = HS_EMU_HERE);
void emulated_mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       emulator::Site site = HS_EMU_HERE);
void emulated_mma_fp8(TensorFormat a_format, TensorFormat b_format, float (&d)[4], const uint32_t (&a)[4],
                      const uint32_t (&b)[2], emulator::Site site = HS_EMU_HERE);
void emulated_load_matrix(uint32_t *result, int matrices, bool transposed, uint32_t address,
                          emulator::Site site = HS_EMU_HERE);

} // namespace hs_emu

/* name: pointer to `count` elements of shared memory. */
#define HS_SHARED(type, name, count)        \
    static const char name##_key = 0;       \
    type *const name = static_cast<type *>( \
        ::hs_emu::emulator::shared_array(&name##_key, #name, sizeof(type) * (size_t)(count), HS_EMU_HERE))
/* name: pointer to the launch's shared bytes. */
#define HS_DYNAMIC_SHARED(type, name) \
    type *const name = static_cast<type *>(::hs_emu::emulator::shared_dynamic(#name, HS_EMU_HERE))

#include "kernels/emu/arithmetic.h"

#endif
