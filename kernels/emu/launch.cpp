/* SPDX-License-Identifier: MIT
 *
 * Launches: the limits that a GPU has, and blocks spread over host threads.
 *
 * Blocks may run in any order on a GPU; here in the schedule's.  Each block's random choices come from its own index,
 * so that neither the order nor the number of host threads changes what happens inside one.
 *
 * A kernel that begins early may find what the kernel before it has not written yet, and write what that one still reads.
 * So its first block (or cluster) begins with device memory hidden: an access before griddepcontrol.wait is reported, and
 * so is a block that never waits, since whatever is launched next relies on it.  Hiding costs time for every page: done
 * at a kernel's first launches, and then ever more seldom.
 */
#include <atomic>
#include <condition_variable>
#include <map>
#include <stdio.h>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>

#include "kernels/emu/ptx/launch.h"
#include "kernels/emu/stream.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

/* Host threads that help with a grid's blocks; the launching one takes part too. */
struct Pool {
    std::mutex lock;
    std::condition_variable begun, ended;
    long grids = 0;  /* begun so far */
    int helpers = 0; /* threads */
    int wanted = 0;  /* of them for this grid */
    int busy = 0;
    const Launch *launch = nullptr;
    std::atomic<uint64_t> next_block{ 0 };
    pid_t process = getpid();
};

/* The k-th block to run.  Random: k -> (a k + c) mod n with a and n coprime visits every block once. */
static uint64_t block_in_order(const Launch &launch, uint64_t place, uint64_t count)
{
    switch (launch.settings.schedule) {
    case Schedule::FORWARD:
        return place;
    case Schedule::REVERSE:
        return count - 1 - place;
    case Schedule::PCT:
    case Schedule::RANDOM:
        break;
    }
    static const uint64_t primes[] = { 1, 2147483629, 2147483587, 2147483579, 1073741789, 1073741783, 1073741741 };
    const uint64_t factor = primes[launch.seed % 7];
    return (factor % count * place + launch.seed % 1000003) % count;
}

static uint64_t cluster_count(const Launch &launch)
{
    return (uint64_t)launch.grid.x / launch.cluster * launch.grid.y * launch.grid.z;
}

static void run_cluster_at(const Launch &launch, uint64_t place, bool closed)
{
    const uint64_t across = launch.grid.x / launch.cluster;
    const uint64_t cluster = block_in_order(launch, place, cluster_count(launch));
    run_cluster(*worker_of_host_thread(), launch,
                uint3{ (unsigned)(cluster % across) * launch.cluster, (unsigned)(cluster / across % launch.grid.y),
                       (unsigned)(cluster / across / launch.grid.y) },
                closed);
}

static void run_blocks(const Launch &launch, std::atomic<uint64_t> &next)
{
    const uint64_t count = cluster_count(launch);
    for (uint64_t place; (place = next.fetch_add(1)) < count;)
        run_cluster_at(launch, place, false);
}

/* Launches 1 to 4 of a kernel, and 8, 16, 32, ... */
static bool is_looked_at(const char *name)
{
    static std::map<std::string, uint64_t> launches;
    const uint64_t number = ++launches[name];
    return number <= 4 || (number & (number - 1)) == 0;
}

static bool run_first_closed(const Launch &launch)
{
    if (!launch.begins_early || !is_looked_at(launch.name))
        return false;
    memory_hide();
    run_cluster_at(launch, 0, true);
    return true;
}

static void help(Pool &pool, int number, long seen)
{
    std::unique_lock<std::mutex> hold(pool.lock);
    for (;;) {
        pool.begun.wait(hold, [&] { return pool.grids != seen; });
        seen = pool.grids;
        if (number >= pool.wanted)
            continue;
        hold.unlock();
        run_blocks(*pool.launch, pool.next_block);
        hold.lock();
        if (--pool.busy == 0)
            pool.ended.notify_one();
    }
}

/* The pool of this process: threads do not survive a fork. */
static Pool &pool_of_process()
{
    static Pool *pool = new Pool();
    if (pool->process != getpid())
        pool = new Pool();
    return *pool;
}

/* Threads that the system refuses are done without: results do not depend on their number. */
static int start_helpers(Pool &pool, int wanted)
{
    try {
        while (pool.helpers < wanted) {
            std::thread(help, std::ref(pool), pool.helpers, pool.grids).detach();
            pool.helpers++;
        }
    } catch (const std::system_error &) {
    }
    return pool.helpers < wanted ? pool.helpers : wanted;
}

static void run_grid(const Launch &launch)
{
    const uint64_t count = cluster_count(launch);
    int helpers = (int)(count < (uint64_t)launch.settings.threads ? count : launch.settings.threads) - 1;
    Pool &pool = pool_of_process();
    pool.next_block = run_first_closed(launch) ? 1 : 0;
    if (helpers > 0) {
        std::lock_guard<std::mutex> hold(pool.lock);
        helpers = start_helpers(pool, helpers);
        pool.launch = &launch;
        pool.wanted = pool.busy = helpers;
        pool.grids++;
        pool.begun.notify_all();
    }
    run_blocks(launch, pool.next_block);
    if (helpers > 0) {
        std::unique_lock<std::mutex> hold(pool.lock);
        pool.ended.wait(hold, [&] { return pool.busy == 0; });
    }
}

} // namespace emulator

using namespace emulator;

cudaError_t emulate_launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
                           KernelBodies bodies, unsigned cluster, bool begins_early)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (threads == 0 || threads > MAX_THREADS || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        return remember(cudaErrorInvalidConfiguration);
    if (cluster == 0 || cluster > MAX_BLOCKS || grid.x % cluster != 0)
        return remember(cudaErrorInvalidConfiguration);
    if (cluster * ((threads + LANES * WARPGROUP - 1) / (LANES * WARPGROUP)) > MAX_WARPS / WARPGROUP) {
        fprintf(stderr, "emulator: kernel %s: %u blocks of %u threads a cluster are more than it can run\n", name,
                cluster, (unsigned)threads);
        return remember(cudaErrorInvalidConfiguration);
    }
    if (shared_bytes > settings().shared_limit)
        return remember(cudaErrorInvalidValue);
    std::lock_guard<std::recursive_mutex> hold(stream_lock());
    static uint64_t launches;
    const uint64_t seed = (settings().seed * 0xD1342543DE82EF95u + ++launches) * 0x9E3779B97F4A7C15u;
    enqueue(stream_of(stream), [=] {
        const auto run = [&](const std::function<void()> &body) {
            run_grid(Launch{ name, grid, block, cluster, begins_early, shared_bytes, &body, settings(), seed });
        };
        const PtxBody &text = bodies.text;
        if (text.symbol != nullptr && ptx_compared())
            ptx_compare([&] { run(bodies.own); }, text, [&] { run(text.body); });
        else
            run(text.symbol != nullptr ? text.body : bodies.own);
        memory_check(name);
    });
    return cudaSuccess;
}

} // namespace hs_emu
