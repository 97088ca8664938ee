/* SPDX-License-Identifier: MIT
 *
 * PTX wrappers of sm_90: mbarriers, barriers of some of a block's threads, clusters, registers of a warpgroup.
 *
 * An mbarrier is a 64-bit word of shared memory that counts arrivals and bytes.  Phases alternate in parity: the first
 * is 0.  Waiting for parity 1 on a fresh one returns at once, which is what a producer's first round needs.
 */
#ifndef HS_KERNELS_CUDA_TOOLBOX_PTX_MBARRIER_CUH
#define HS_KERNELS_CUDA_TOOLBOX_PTX_MBARRIER_CUH

#include "kernels/cuda/toolbox/ptx_copy.cuh"

/* Bodies that need sm_90a; another architecture's copy of a kernel traps. */
#if !defined(HS_EMU) && (!defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL))
#define HS_SM90A(...) __VA_ARGS__
#else
#define HS_SM90A(...) HS_NO_SM90A()
#endif

namespace HS_CUDA_NAMESPACE
{
namespace ptx
{

#ifndef HS_EMU
HS_DEVICE void no_sm90a()
{
    asm volatile("trap;");
}
#define HS_NO_SM90A() no_sm90a()
#endif

/* By one thread; then fence_mbarrier_init and a barrier before it is used. */
HS_DEVICE void mbarrier_init(uint32_t address, int arrivals)
{
#ifdef HS_EMU
    emulated_mbarrier_init(address, arrivals);
#else
    HS_SM90A(asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory"));
#endif
}

/* Makes mbarriers that this thread initialised visible to the cluster and to tensor copies. */
HS_DEVICE void fence_mbarrier_init()
{
#ifndef HS_EMU
    HS_SM90A(asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"));
#endif
}

HS_DEVICE void mbarrier_arrive(uint32_t address)
{
#ifdef HS_EMU
    emulated_mbarrier_arrive(address, 0);
#else
    HS_SM90A(asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(address) : "memory"));
#endif
}

/* Arrives, and the phase is not over before `bytes` more have come. */
HS_DEVICE void mbarrier_arrive_expect(uint32_t address, int bytes)
{
#ifdef HS_EMU
    emulated_mbarrier_arrive(address, bytes);
#else
    HS_SM90A(
        asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
                     : "memory"));
#endif
}

/* At an address of map_shared: perhaps another block's.  It says that this thread's products are done.  Without
 * qualifiers, so that it releases (relaxed would order nothing before the copy that follows the arrival), at the
 * block's scope: a release at the cluster's scope is a fence of all of the GPU's memory (MEMBAR in the machine code),
 * which would wait for whatever this warp has stored last. */
HS_DEVICE void mbarrier_arrive_cluster(uint32_t address)
{
#ifdef HS_EMU
    emulated_mbarrier_arrive_remote(address);
#else
    HS_SM90A(asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory"));
#endif
}

/* Until the phase of this parity is over. */
HS_DEVICE void mbarrier_wait(uint32_t address, unsigned parity)
{
#ifdef HS_EMU
    emulated_mbarrier_wait(address, parity);
#else
    HS_SM90A(asm volatile("{\n"
                          ".reg .pred over;\n"
                          "again:\n"
                          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 over, [%0], %1;\n"
                          "@!over bra again;\n"
                          "}" ::"r"(address),
                          "r"(parity)
                          : "memory"));
#endif
}

/* Ordinary writes of this thread to shared memory before what tensor copies and wgmma read there later. */
HS_DEVICE void fence_shared_to_async()
{
#ifdef HS_EMU
    emulated_fence_shared_to_async();
#else
    HS_SM90A(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"));
#endif
}

/* What tensor copies of other blocks have brought to device memory, before tensor copies of this thread. */
HS_DEVICE void fence_global_to_async()
{
#ifndef HS_EMU
    HS_SM90A(asm volatile("fence.proxy.async.global;" ::: "memory"));
#endif
}

/* A word of device memory by which blocks wait for each other: what was written before it was stored is seen after. */
HS_DEVICE unsigned load_acquire(const unsigned *address)
{
#ifdef HS_EMU
    return emulated_load_acquire(address);
#else
    unsigned value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
#endif
}

HS_DEVICE void store_release(unsigned *address, unsigned value)
{
#ifdef HS_EMU
    emulated_store_release(address, value);
#else
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
#endif
}

/* `threads` of the block (whole warps) meet at barrier `name`, 1 to 15. */
HS_DEVICE void barrier_sync(int name, int threads)
{
#ifdef HS_EMU
    emulated_barrier_sync(name, threads);
#else
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
#endif
}

/* The same without waiting for the others. */
HS_DEVICE void barrier_arrive(int name, int threads)
{
#ifdef HS_EMU
    emulated_barrier_arrive(name, threads);
#else
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
#endif
}

/* All threads of the cluster's blocks.  The instructions want whole warps, and one lane's code may have come before. */
HS_DEVICE void cluster_sync()
{
    __syncwarp();
#ifdef HS_EMU
    emulated_cluster_sync();
#else
    HS_SM90A(asm volatile("barrier.cluster.arrive.release.aligned;\n"
                          "barrier.cluster.wait.acquire.aligned;" ::
                              : "memory"));
#endif
}

/* The same where nothing is handed over: what a thread did before, an arrival at another block's mbarrier included, may
 * come to the others after.  A release at the cluster's scope waits for all that the thread has stored to the GPU's memory
 * (MEMBAR in the machine code). */
HS_DEVICE void cluster_meet()
{
    __syncwarp();
#ifdef HS_EMU
    emulated_cluster_sync();
#else
    HS_SM90A(asm volatile("barrier.cluster.arrive.relaxed.aligned;\n"
                          "barrier.cluster.wait.acquire.aligned;" ::
                              : "memory"));
#endif
}

/* This block's number in its cluster, read anew by each call: registers are scarce where it is asked for. */
HS_DEVICE int cluster_rank()
{
#ifdef HS_EMU
    return emulated_cluster_rank();
#else
    uint32_t rank = 0;
    HS_SM90A(asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)));
    return (int)rank;
#endif
}

/* The address in block `rank` of the cluster of what this block has at `address`. */
HS_DEVICE uint32_t map_shared(uint32_t address, int rank)
{
#ifdef HS_EMU
    return emulated_map_shared(address, rank);
#else
    uint32_t mapped = 0;
    HS_SM90A(asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank)));
    return mapped;
#endif
}

/* A word to an address of map_shared: seen by that block's threads behind the next cluster_sync. */
HS_DEVICE void store_shared_cluster(uint32_t address, unsigned value)
{
#ifdef HS_EMU
    emulated_store_shared_cluster(address, value);
#else
    HS_SM90A(asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory"));
#endif
}

/* Registers a thread of this warpgroup may have from here on: 24 to 256, a multiple of 8.  What `fewer` gives back,
 * `more` waits for. */
template <int count> HS_DEVICE void fewer_registers()
{
#ifdef HS_EMU
    emulated_set_registers(count, false);
#else
    HS_SM90A(asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count)));
#endif
}

template <int count> HS_DEVICE void more_registers()
{
#ifdef HS_EMU
    emulated_set_registers(count, true);
#else
    HS_SM90A(asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count)));
#endif
}

} // namespace ptx

/* A stage and the round of the ring that it is in. */
template <int stages> struct RingPlace {
    int stage = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void next()
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    /* Past `count` stages. */
    __device__ __forceinline__ void skip(int count)
    {
        const int rounds = (stage + count) / stages;
        stage += count - rounds * stages;
        parity ^= (unsigned)rounds & 1;
    }
};

} // namespace HS_CUDA_NAMESPACE

#endif
