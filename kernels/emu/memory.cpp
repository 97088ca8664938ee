/* SPDX-License-Identifier: MIT
 *
 * Device memory: every allocation on its own pages,
 *
 *     | guard page | 0xff ... | data, 64-byte aligned | 0xff, up to 63 bytes | guard page |
 *
 * so that an access past the end strikes at once, and a write below the start or into the alignment's rest is found
 * after the kernel.  Freed memory keeps its addresses, unmapped, for a while.  While no kernel or copy runs, device
 * memory is unmapped (settings.guard): the host cannot touch it.  New memory is filled with 0xff: NaN in every format.
 * Pinned host memory is the same, but is never unmapped.
 */
#include "kernels/emu/memory.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <stdio.h>
#include <sys/mman.h>

#include "kernels/emu/redzone.h"
#include "kernels/emu/stream.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

static constexpr size_t ALIGNMENT = 64;
static constexpr size_t FREED_KEPT = 1024;

struct Allocation {
    char *pages; /* between the guard pages */
    size_t page_bytes;
    char *data;
    size_t bytes;
    bool pinned, freed;
};

static std::recursive_mutex memory_lock;
static std::map<const char *, Allocation> allocations; /* by the first guard page */
static std::deque<const char *> freed;                 /* keys, oldest first */
static std::atomic<long> generation(1);
static int open_count;

static Allocation *find(const void *pointer)
{
    auto after = allocations.upper_bound(static_cast<const char *>(pointer));
    if (after == allocations.begin())
        return nullptr;
    --after;
    const Allocation &found = after->second;
    return pointer < found.pages + found.page_bytes + PAGE_BYTES ? &after->second : nullptr;
}

MemoryKind memory_kind(const void *pointer)
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    const Allocation *found = find(pointer);
    return found == nullptr || found->freed ? MemoryKind::PAGEABLE
           : found->pinned                  ? MemoryKind::PINNED
                                            : MemoryKind::DEVICE;
}

bool memory_holds(const void *pointer, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    const Allocation *found = find(pointer);
    const char *start = static_cast<const char *>(pointer);
    return found != nullptr && !found->freed && start >= found->data && start + bytes <= found->data + found->bytes;
}

/* Asked for every cp.async: the allocations that a kernel copies from are few, so the last ones found are kept. */
bool device_range(const void *pointer, size_t bytes)
{
    RangeCache &cache = worker->device_ranges;
    const char *start = static_cast<const char *>(pointer);
    if (cache.generation != generation.load(std::memory_order_relaxed)) {
        cache = RangeCache();
        cache.generation = generation;
    }
    for (const auto &range : cache.ranges)
        if (start >= range.start && start + bytes <= range.end)
            return true;
    if (!memory_holds(pointer, bytes))
        return false;
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    const Allocation *found = find(pointer);
    cache.ranges[cache.next].start = found->data;
    cache.ranges[cache.next].end = found->data + found->bytes;
    cache.next = (cache.next + 1) % 4;
    return true;
}

/* Changing the protection costs time for every page: not for each of the early mode's operations. */
static bool is_guarded()
{
    return settings().guard && settings().late_streams;
}

static void protect_all(int protection)
{
    for (auto &entry : allocations) {
        Allocation &allocation = entry.second;
        if (!allocation.pinned && !allocation.freed)
            mprotect(allocation.pages, allocation.page_bytes, protection);
    }
}

void memory_open()
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    if (open_count++ == 0 && is_guarded())
        protect_all(PROT_READ | PROT_WRITE);
}

void memory_close()
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    if (--open_count == 0 && is_guarded())
        protect_all(PROT_NONE);
}

void memory_hide()
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    if (is_guarded())
        protect_all(PROT_NONE);
}

void memory_show()
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    if (is_guarded())
        protect_all(PROT_READ | PROT_WRITE);
}

void memory_check(const char *after)
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    for (const auto &entry : allocations) {
        const Allocation &a = entry.second;
        if (a.freed)
            continue;
        const bool below = !redzone_intact(a.pages, a.data);
        if (below || !redzone_intact(a.data + a.bytes, a.pages + a.page_bytes))
            fault("%s wrote %s an allocation of %zu bytes at %p", after,
                  below ? "below the start of" : "past the end of", a.bytes, static_cast<void *>(a.data));
    }
}

MemoryCopy memory_copy()
{
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    MemoryCopy copy;
    for (const auto &entry : allocations) {
        const Allocation &a = entry.second;
        if (!a.freed)
            copy.ranges.push_back({ a.data, std::vector<char>(a.data, a.data + a.bytes) });
    }
    return copy;
}

void memory_restore(const MemoryCopy &copy)
{
    for (const MemoryCopy::Range &range : copy.ranges)
        memcpy(range.data, range.bytes.data(), range.bytes.size());
}

bool memory_differs(const MemoryCopy &copy, std::string *difference)
{
    for (const MemoryCopy::Range &range : copy.ranges) {
        size_t count = 0, first = 0;
        for (size_t byte = 0; byte < range.bytes.size(); byte++)
            if (range.data[byte] != range.bytes[byte] && count++ == 0)
                first = byte / 4 * 4;
        if (count == 0)
            continue;
        unsigned own = 0, other = 0;
        memcpy(&own, &range.bytes[first], std::min<size_t>(4, range.bytes.size() - first));
        memcpy(&other, range.data + first, std::min<size_t>(4, range.bytes.size() - first));
        char text[256];
        snprintf(text, sizeof text, "%zu bytes of an allocation of %zu; at byte %zu %08x (%.9g) became %08x (%.9g)",
                 count, range.bytes.size(), first, own, (double)__uint_as_float(own), other,
                 (double)__uint_as_float(other));
        *difference = text;
        return true;
    }
    return false;
}

bool memory_describe(const void *address, char *text, size_t size)
{
    /* Called by the signal handler: better no words than a deadlock. */
    if (!memory_lock.try_lock())
        return false;
    const Allocation *found = find(address);
    const char *place = static_cast<const char *>(address);
    if (found != nullptr && found->freed)
        snprintf(text, size, "byte %ld of freed memory, an allocation of %zu bytes", (long)(place - found->data),
                 found->bytes);
    else if (found != nullptr && place < found->data)
        snprintf(text, size, "%ld bytes below the start of an allocation of %zu bytes", (long)(found->data - place),
                 found->bytes);
    else if (found != nullptr && place >= found->data + found->bytes)
        snprintf(text, size, "%ld bytes past the end of an allocation of %zu bytes",
                 (long)(place - (found->data + found->bytes)), found->bytes);
    else if (found != nullptr && open_count == 0)
        snprintf(text, size, "the host touches device memory (byte %ld of %zu): copy it, and wait for the copy",
                 (long)(place - found->data), found->bytes);
    else if (found != nullptr && worker != nullptr && worker->closed)
        snprintf(text, size,
                 "device memory (byte %ld of %zu) before griddepcontrol.wait: the kernel before may still run",
                 (long)(place - found->data), found->bytes);
    else
        found = nullptr;
    memory_lock.unlock();
    return found != nullptr;
}

static cudaError_t allocate(void **pointer, size_t bytes, bool pinned)
{
    fault_watch_process();
    *pointer = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    const size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t page_bytes = (rounded + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *mapping = mmap(nullptr, page_bytes + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return remember(cudaErrorMemoryAllocation);
    char *pages = static_cast<char *>(mapping) + PAGE_BYTES;
    if (mprotect(pages, page_bytes, PROT_READ | PROT_WRITE) != 0) {
        munmap(mapping, page_bytes + 2 * PAGE_BYTES);
        return remember(cudaErrorMemoryAllocation);
    }
    memset(pages, 0xff, page_bytes);
    const Allocation made = { pages, page_bytes, pages + page_bytes - rounded, bytes, pinned, false };
    redzone_forbid(pages, made.data);
    redzone_forbid(made.data + bytes, pages + page_bytes);
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    if (!pinned && open_count == 0 && is_guarded())
        mprotect(pages, page_bytes, PROT_NONE);
    allocations[static_cast<char *>(mapping)] = made;
    generation++;
    *pointer = made.data;
    return cudaSuccess;
}

static cudaError_t release(void *pointer, bool pinned, const char *function)
{
    if (pointer == nullptr)
        return cudaSuccess;
    /* As on a GPU, freeing waits for the work that may still use the memory. */
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess)
        return error;
    std::lock_guard<std::recursive_mutex> hold(memory_lock);
    Allocation *found = find(pointer);
    if (found == nullptr || found->data != pointer || found->pinned != pinned)
        fault("%s(%p): no such allocation", function, pointer);
    if (found->freed)
        fault("%s(%p): freed twice", function, pointer);
    redzone_allow(found->pages, found->pages + found->page_bytes);
    /* A fresh mapping in its place gives the pages back and keeps the addresses out of use. */
    mmap(found->pages, found->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    found->freed = true;
    generation++;
    freed.push_back(found->pages - PAGE_BYTES);
    if (freed.size() > FREED_KEPT) {
        auto oldest = allocations.find(freed.front());
        munmap(oldest->second.pages - PAGE_BYTES, oldest->second.page_bytes + 2 * PAGE_BYTES);
        allocations.erase(oldest);
        freed.pop_front();
    }
    return cudaSuccess;
}

} // namespace emulator

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
    return emulator::allocate(pointer, bytes, false);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer)
{
    const emulator::MemoryKind kind = emulator::memory_kind(pointer);
    void *const address = const_cast<void *>(pointer);
    *attributes = cudaPointerAttributes{ cudaMemoryTypeUnregistered, -1, nullptr, address };
    if (kind == emulator::MemoryKind::PINNED)
        *attributes = cudaPointerAttributes{ cudaMemoryTypeHost, 0, address, address };
    else if (kind == emulator::MemoryKind::DEVICE)
        *attributes = cudaPointerAttributes{ cudaMemoryTypeDevice, 0, address, nullptr };
    return cudaSuccess;
}
cudaError_t cudaFree(void *pointer)
{
    return emulator::release(pointer, false, "cudaFree");
}
cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
    return emulator::allocate(pointer, bytes, true);
}
cudaError_t cudaFreeHost(void *pointer)
{
    return emulator::release(pointer, true, "cudaFreeHost");
}

} // namespace hs_emu
