/* SPDX-License-Identifier: MIT
 *
 * Shared memory.  Each host thread has a window of addresses; an array of the running block lies at the end of a slot
 * of whole pages, with unmapped pages around it:
 *
 *     | guard | 0xff ... | array | 0xff: rest of the alignment | guard | next slot ...
 *
 * An index past the end strikes the guard page at once; one below the start, or into the alignment's rest, is found
 * when the block ends, because the 0xff there has changed.  Slots are reused by size, so that the layout settles after
 * the first block and costs no system calls.  Arrays are filled with 0xff (NaN in every format) for every block: shared
 * memory holds nothing that a kernel may rely on.
 */
#include "kernels/emu/redzone.h"
#include "kernels/emu/worker.h"

#include <stdio.h>
#include <sys/mman.h>

namespace hs_emu
{
namespace emulator
{

static constexpr size_t WINDOW_BYTES = (size_t)64 << 20; /* addresses only */
static constexpr size_t STATIC_LIMIT = 48 * 1024;        /* what nvcc allows to declarations of fixed size */

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

void shared_start(Worker &self)
{
    /* A window for the first time, or a new one when slots of many sizes have used it up. */
    if (self.shared_window == nullptr || self.shared_used > WINDOW_BYTES / 2) {
        void *window =
            mmap(self.shared_window, WINDOW_BYTES, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (self.shared_window != nullptr ? MAP_FIXED : 0), -1, 0);
        if (window == MAP_FAILED)
            out_of_memory();
        redzone_allow(static_cast<char *>(window), static_cast<char *>(window) + self.shared_used);
        self.shared_window = static_cast<char *>(window);
        self.shared_used = PAGE_BYTES;
        self.shared_slots.clear();
    }
    self.shared.clear();
}

void shared_finish(Worker &self)
{
    for (const SharedArray &array : self.shared) {
        SharedSlot &slot = self.shared_slots[(size_t)array.slot];
        redzone_allow(slot.pages, slot.pages + slot.bytes);
        if (!redzone_intact(slot.pages, array.data))
            fault("shared array %s (%s:%d): something wrote below its start", array.name, array.site.file,
                  array.site.line);
        if (!redzone_intact(array.data + array.bytes, slot.pages + slot.bytes))
            fault("shared array %s (%s:%d): something wrote past its end (%zu bytes)", array.name, array.site.file,
                  array.site.line, array.bytes);
        slot.used = false;
    }
}

static int take_slot(Worker &self, size_t bytes)
{
    for (size_t i = 0; i < self.shared_slots.size(); i++)
        if (!self.shared_slots[i].used && self.shared_slots[i].bytes == bytes)
            return (int)i;
    SharedSlot slot = { self.shared_window + self.shared_used, bytes, false };
    self.shared_used += bytes + PAGE_BYTES;
    if (self.shared_used > WINDOW_BYTES || mprotect(slot.pages, bytes, PROT_READ | PROT_WRITE) != 0)
        fault("no memory for a shared array of %zu bytes", bytes);
    memset(slot.pages, 0xff, bytes);
    self.shared_slots.push_back(slot);
    return (int)self.shared_slots.size() - 1;
}

static void *find_or_add(const void *key, const char *name, size_t bytes, size_t alignment, Site site)
{
    Worker &self = *worker;
    const int rank = block_of(*self.current).rank;
    size_t total = round_up(bytes, 16);
    for (const SharedArray &array : self.shared) {
        if (array.block != rank)
            continue;
        if (array.key == key)
            return array.data;
        total += round_up(array.bytes, 16);
    }
    if (total > self.launch->settings.shared_limit)
        fault("shared memory: with %s (%s:%d) the block takes %zu bytes of at most %zu", name, site.file, site.line,
              total, self.launch->settings.shared_limit);
    SharedArray array = {
        rank, key, name, site, nullptr, bytes, take_slot(self, round_up(bytes > 0 ? bytes : 1, PAGE_BYTES))
    };
    SharedSlot &slot = self.shared_slots[(size_t)array.slot];
    slot.used = true;
    array.data = slot.pages + slot.bytes - round_up(bytes, alignment);
    /* All of the slot: its last array may have been of another size. */
    memset(slot.pages, 0xff, slot.bytes);
    redzone_forbid(slot.pages, array.data);
    redzone_forbid(array.data + bytes, slot.pages + slot.bytes);
    self.shared.push_back(array);
    return array.data;
}

void *shared_array(const void *key, const char *name, size_t bytes, Site site)
{
    if (bytes > STATIC_LIMIT)
        fault("shared array %s (%s:%d): %zu bytes; more than 48 KiB must be HS_DYNAMIC_SHARED", name, site.file,
              site.line, bytes);
    return find_or_add(key, name, bytes, 16, site);
}

void *shared_dynamic(const char *name, Site site)
{
    static const char key = 0;
    return find_or_add(&key, name, worker->launch->shared_bytes, 1024, site);
}

/* The array that `bytes` at an address lie in. */
static const SharedArray &array_at(uint32_t address, int bytes, int alignment, const char *what)
{
    Worker &self = *worker;
    char *pointer = self.shared_window + address;
    if (address % (uint32_t)alignment != 0)
        fault("%s: the shared address is not a multiple of %d", what, alignment);
    for (const SharedArray &array : self.shared)
        if (pointer >= array.data && pointer + bytes <= array.data + array.bytes)
            return array;
    char text[512] = "not shared memory";
    shared_describe(pointer, text, sizeof text);
    fault("%s of %d bytes of shared memory: %s", what, bytes, text);
}

char *shared_pointer(uint32_t address, int bytes, int alignment, const char *what)
{
    const SharedArray &array = array_at(address, bytes, alignment, what);
    if (array.block != block_of(*worker->current).rank)
        fault("%s: the address is in shared memory of block %d of the cluster, not in this block's", what, array.block);
    return worker->shared_window + address;
}

char *cluster_pointer(uint32_t address, int bytes, int alignment, const char *what)
{
    const SharedArray &array = array_at(address, bytes, alignment, what);
    if (worker->blocks[array.block].live == 0)
        fault("%s: block %d of the cluster, which owns this shared memory, has returned", what, array.block);
    return worker->shared_window + address;
}

uint32_t shared_address_in(uint32_t address, int from, int rank, const char *what)
{
    Worker &self = *worker;
    const SharedArray &array = array_at(address, 1, 1, what);
    if (array.block != from)
        fault("%s: the address is not in shared memory of block %d", what, from);
    for (const SharedArray &other : self.shared)
        if (other.block == rank && other.key == array.key)
            return (uint32_t)(other.data - array.data) + address;
    fault("%s: block %d of the cluster has not declared %s yet: no cluster barrier before its use", what, rank,
          array.name);
}

bool shared_describe(const void *address, char *text, size_t size)
{
    if (worker == nullptr || worker->shared_window == nullptr)
        return false;
    const char *place = static_cast<const char *>(address);
    if (place < worker->shared_window || place >= worker->shared_window + WINDOW_BYTES)
        return false;
    /* Of the nearest array of the block. */
    const SharedArray *nearest = nullptr;
    long least = 0;
    for (const SharedArray &array : worker->shared) {
        const long below = array.data - place, past = place - (array.data + array.bytes) + 1;
        const long distance = below > past ? below : past;
        if (nearest == nullptr || distance < least) {
            nearest = &array;
            least = distance;
        }
    }
    if (nearest == nullptr)
        snprintf(text, size, "shared memory, of which the block has declared none");
    else
        snprintf(text, size, "byte %ld of shared array %s (%s:%d), which has %zu", (long)(place - nearest->data),
                 nearest->name, nearest->site.file, nearest->site.line, nearest->bytes);
    return true;
}

} // namespace emulator

uint32_t emulated_shared_address(const void *pointer)
{
    const ptrdiff_t offset = static_cast<const char *>(pointer) - emulator::worker->shared_window;
    if (offset < 0 || (size_t)offset >= emulator::WINDOW_BYTES)
        emulator::fault("the address of %p as shared memory, which it is not", pointer);
    return (uint32_t)offset;
}

} // namespace hs_emu
