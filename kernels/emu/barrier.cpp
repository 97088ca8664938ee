/* SPDX-License-Identifier: MIT
 *
 * Barriers: of the whole block (__syncthreads), of a number of its threads (bar.sync and bar.arrive with a name), of
 * the cluster (barrier.cluster).
 */
#include <string.h>

#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

/* All `count` threads must arrive, at the same place of the source and in the same instance of a template: CUDA demands
 * that its condition be the same for all, and a thread that has returned can arrive no more.  Returns the votes. */
static int arrive_and_wait(Barrier &barrier, int count, const char *kind, int predicate, Site site)
{
    if (barrier.arrived == 0) {
        barrier.kind = kind;
        barrier.site = site;
    } else if (barrier.kind != kind || !(barrier.site == site)) {
        fault("divergent barriers: this thread is at %s (%s:%d, in %s), others wait at %s (%s:%d, in %s)", kind,
              site.file, site.line, site.function, barrier.kind, barrier.site.file, barrier.site.line,
              barrier.site.function);
    }
    barrier.votes += predicate != 0;
    if (++barrier.arrived == count) {
        barrier.result = barrier.votes;
        barrier.arrived = barrier.votes = 0;
        wake(&barrier);
        switch_away(); /* any thread may continue: not necessarily the last to arrive */
    } else {
        wait_on(&barrier, kind, site);
    }
    return barrier.result;
}

static int block_barrier(const char *kind, int predicate, Site site)
{
    Block &block = block_of(*worker->current);
    if (block.live != block.thread_count)
        fault("waits at %s (%s:%d), where threads of the block that have returned never arrive", kind, site.file,
              site.line);
    return arrive_and_wait(block.barrier, block.thread_count, kind, predicate, site);
}

void barriers_check_exit(const Block &block)
{
    const Worker &self = *worker;
    const Barrier *waited = block.barrier.arrived != 0          ? &block.barrier
                            : self.cluster_barrier.arrived != 0 ? &self.cluster_barrier
                                                                : nullptr;
    if (waited != nullptr)
        fault("this thread returned while others wait at %s (%s:%d)", waited->kind, waited->site.file,
              waited->site.line);
}

/* `threads` of the block, in whole warps, make the barrier complete; a thread that only arrives continues at once. */
static void named_barrier(int name, int threads, bool waits, Site site)
{
    Worker &self = *worker;
    Block &block = block_of(*self.current);
    const char *kind = waits ? "bar.sync" : "bar.arrive";
    if (name < 0 || name >= NAMED_BARRIERS || threads <= 0 || threads % LANES != 0 || threads > block.thread_count)
        fault("%s (%s:%d): barrier %d for %d of the block's %d threads", kind, site.file, site.line, name, threads,
              block.thread_count);
    if (name == 0)
        fault("%s (%s:%d): barrier 0 is __syncthreads's own", kind, site.file, site.line);
    NamedBarrier &barrier = block.named[name];
    if (barrier.arrived != 0 && barrier.expected != threads)
        fault("%s (%s:%d): barrier %d for %d threads, for %d at %s:%d", kind, site.file, site.line, name, threads,
              barrier.expected, barrier.site.file, barrier.site.line);
    barrier.expected = threads;
    barrier.site = site;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        wake(&barrier);
        switch_away();
    } else if (waits) {
        wait_on(&barrier, kind, site);
    } else {
        preemption_point();
    }
}

} // namespace emulator

void __syncthreads(emulator::Site site)
{
    emulator::block_barrier("__syncthreads", 0, site);
}
int __syncthreads_or(int predicate, emulator::Site site)
{
    return emulator::block_barrier("__syncthreads_or", predicate, site) != 0;
}
int __syncthreads_and(int predicate, emulator::Site site)
{
    const int votes = emulator::block_barrier("__syncthreads_and", predicate, site);
    return votes == emulator::block_of(*emulator::worker->current).thread_count;
}
int __syncthreads_count(int predicate, emulator::Site site)
{
    return emulator::block_barrier("__syncthreads_count", predicate, site);
}

void emulated_barrier_sync(int name, int threads, emulator::Site site)
{
    emulator::named_barrier(name, threads, true, site);
}
void emulated_barrier_arrive(int name, int threads, emulator::Site site)
{
    emulator::named_barrier(name, threads, false, site);
}

void emulated_cluster_sync(emulator::Site site)
{
    emulator::Worker &self = *emulator::worker;
    int threads = 0;
    for (int rank = 0; rank < self.block_count; rank++)
        threads += self.blocks[rank].thread_count;
    if (self.live != threads)
        emulator::fault("waits at barrier.cluster (%s:%d), where threads that have returned never arrive", site.file,
                        site.line);
    emulator::arrive_and_wait(self.cluster_barrier, threads, "barrier.cluster", 0, site);
}
int emulated_cluster_rank()
{
    return emulator::block_of(*emulator::worker->current).rank;
}
int emulated_cluster_size()
{
    return emulator::worker->block_count;
}
uint32_t emulated_map_shared(uint32_t address, int rank)
{
    const int from = emulated_cluster_rank();
    if (rank < 0 || rank >= emulated_cluster_size())
        emulator::fault("mapa: block %d of a cluster of %d", rank, emulated_cluster_size());
    return emulator::shared_address_in(address, from, rank, "mapa");
}
void emulated_store_shared_cluster(uint32_t address, unsigned value)
{
    memcpy(emulator::cluster_pointer(address, 4, 4, "st.shared::cluster"), &value, 4);
    emulator::preemption_point();
}

} // namespace hs_emu
