/* SPDX-License-Identifier: MIT
 *
 * The fence between a thread's ordinary writes to shared memory and tensor stores that read them (PTX ISA, "Async
 * proxy": fence.proxy.async).  Without it hardware may store what was there before.
 *
 * Ordinary writes leave no trace here, so that it is inferred: a store of a tile that is not what the last store from
 * that place found needs a fence since then, by a thread other than the one that stores (a tile is written by several
 * threads, each of which has to fence its own part; the classic mistake is that only the storing thread does).
 */
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

void async_proxy_start(AsyncProxy &proxy)
{
    proxy.fences = 0;
    proxy.last = proxy.last_of_others = AsyncProxy::Fence{ nullptr, 0 };
    proxy.tiles.clear();
}

/* Whether a thread other than this one has fenced after the block's first `fences` fences. */
static bool another_fenced(const AsyncProxy &proxy, const Thread *thread, long fences)
{
    return (proxy.last.thread != thread ? proxy.last : proxy.last_of_others).number > fences;
}

void async_proxy_check_store(const Thread &thread, uint32_t address, const char *bytes, int count, Site site)
{
    Block &block = block_of(thread);
    AsyncProxy &proxy = block.proxy;
    AsyncProxy::Tile *known = nullptr;
    for (AsyncProxy::Tile &tile : proxy.tiles)
        if (tile.address == address && tile.bytes.size() == (size_t)count)
            known = &tile;
    if (known == nullptr) {
        proxy.tiles.push_back(AsyncProxy::Tile{ address, std::vector<char>((size_t)count, '\xff'), 0 });
        known = &proxy.tiles.back();
    }
    if (memcmp(known->bytes.data(), bytes, (size_t)count) != 0 && block.thread_count > 1 &&
        !another_fenced(proxy, &thread, known->fences))
        fault("tensor store (%s:%d): the tile was written since the last store from there, and no thread but this one "
              "has called fence_shared_to_async since",
              site.file, site.line);
    memcpy(known->bytes.data(), bytes, (size_t)count);
    known->fences = proxy.fences;
}

} // namespace emulator

using namespace emulator;

void emulated_fence_shared_to_async()
{
    const Thread &thread = *worker->current;
    AsyncProxy &proxy = block_of(thread).proxy;
    if (proxy.last.thread != &thread)
        proxy.last_of_others = proxy.last;
    proxy.last = AsyncProxy::Fence{ &thread, ++proxy.fences };
}

} // namespace hs_emu
