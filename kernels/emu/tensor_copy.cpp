/* SPDX-License-Identifier: MIT
 *
 * Copies of whole tiles by the tensor memory accelerator (PTX ISA, "cp.async.bulk.tensor"): from a tensor of up to five
 * dimensions in device memory to shared memory and back, in the layout that a tensor map describes.  Elements outside
 * the tensor are loaded as zero and not stored.
 *
 * A load ends some time after it was issued.  Emulated are the extremes, as for cp.async: at once, or when no thread
 * can continue without it, and then in any order; until then the destination is spoilt.  A store reads and writes at
 * once, or it reads shared memory when its thread waits for that, and writes when its thread waits for that or its
 * block ends.
 */
#include <memory>

#include "kernels/emu/tensor_map.h"
#include "kernels/emu/worker.h"

namespace hs_emu
{
namespace emulator
{

static constexpr int PIECE = 16; /* bytes that a swizzle keeps together */

struct Tile {
    TensorMap map;
    int64_t place[TENSOR_MAP_RANKS]; /* of its first element */
    uint32_t address;                /* in shared memory */
    int row_bytes, rows;
};

static void check_encoded(const char *what, const TensorMap &map, Site site)
{
    if (map.rank < 1 || map.rank > TENSOR_MAP_RANKS)
        fault("%s (%s:%d): the tensor map is not encoded", what, site.file, site.line);
}

static Tile tile_at(const char *what, uint32_t address, const TensorMap *map, const int *place, Site site)
{
    Tile tile = { *map, { 0 }, address, 0, 1 };
    const TensorMap &m = tile.map;
    check_encoded(what, m, site);
    tile.row_bytes = m.box[0] * m.element_bytes;
    for (int d = 0; d < m.rank; d++)
        tile.place[d] = place[d];
    for (int d = 1; d < m.rank; d++)
        tile.rows *= m.box[d];
    const uint32_t alignment = m.swizzle_bytes == 0 ? 128 : (uint32_t)m.swizzle_bytes * 8;
    if (address % alignment != 0)
        fault("%s (%s:%d): the tile in shared memory is not aligned to %u bytes", what, site.file, site.line,
              alignment);
    return tile;
}

static int tile_bytes(const Tile &tile)
{
    return tile.row_bytes * tile.rows;
}

/* Row `row` of the tile: where its first element lies in device memory (which may be before the tensor), and the
 * elements [begin, end) of the row that are inside. */
struct TileRow {
    char *data;
    int64_t begin, end;
};

static TileRow row_of(const Tile &tile, int row, const char *what)
{
    const TensorMap &m = tile.map;
    TileRow result = { m.data, 0, m.box[0] };
    int64_t offset = tile.place[0] * m.element_bytes;
    bool inside = true;
    for (int d = 1; d < m.rank; d++, row /= m.box[d - 1]) {
        const int64_t index = tile.place[d] + row % m.box[d];
        inside = inside && index >= 0 && (uint64_t)index < m.extents[d];
        offset += index * (int64_t)m.strides[d];
    }
    result.begin = tile.place[0] < 0 ? -tile.place[0] : 0;
    const int64_t left = (int64_t)m.extents[0] - tile.place[0];
    result.end = left < result.end ? left : result.end;
    if (!inside || result.begin >= result.end)
        result.begin = result.end = 0;
    result.data += offset;
    const size_t bytes = (size_t)(result.end - result.begin) * m.element_bytes;
    const char *first = result.data + result.begin * m.element_bytes;
    if (bytes > 0 && !device_range(first, bytes)) {
        char text[512] = "not device memory";
        memory_describe(first + bytes - 1, text, sizeof text);
        fault("%s: the tensor map leads to %zu bytes at %p: %s", what, bytes, static_cast<const void *>(first), text);
    }
    return result;
}

/* A call for each 16 bytes of the tile: their place in shared memory, in device memory, and which of them are inside.
 */
template <typename Move> static void for_each_piece(const Tile &tile, char *shared, const char *what, Move move)
{
    const int size = tile.map.element_bytes;
    for (int row = 0; row < tile.rows; row++) {
        const TileRow line = row_of(tile, row, what);
        for (int byte = 0; byte < tile.row_bytes; byte += PIECE) {
            const uint32_t address = tile.address + (uint32_t)(row * tile.row_bytes + byte);
            const int64_t begin = line.begin * size - byte, end = line.end * size - byte;
            move(shared + (swizzled(address, tile.map.swizzle_bytes) - tile.address), line.data + byte,
                 (int)(begin < 0       ? 0
                       : begin > PIECE ? PIECE
                                       : begin),
                 (int)(end < 0       ? 0
                       : end > PIECE ? PIECE
                                     : end));
        }
    }
}

/* The tile into every destination, then the bytes to their mbarriers. */
static void load(const Tile &tile, const std::vector<uint32_t> &destinations, const std::vector<uint32_t> &mbarriers)
{
    const char *what = "tensor load";
    for (size_t i = 0; i < destinations.size(); i++) {
        Tile copy = tile;
        copy.address = destinations[i];
        for_each_piece(copy, cluster_pointer(copy.address, tile_bytes(copy), 128, what), what,
                       [](char *shared, const char *device, int begin, int end) {
                           memset(shared, 0, PIECE);
                           if (begin < end)
                               memcpy(shared + begin, device + begin, (size_t)(end - begin));
                       });
        mbarrier_complete(mbarriers[i], tile_bytes(copy), what);
    }
}

/* PTX ISA, "cp.reduce.async.bulk": additions in f32 take and give zeros for subnormal numbers. */
static float flushed(float value)
{
    return value > -0x1p-126f && value < 0x1p-126f ? value * 0.0f : value;
}

static void store(const Tile &tile, char *shared, bool add)
{
    for_each_piece(tile, shared, "tensor store", [add](char *from, char *device, int begin, int end) {
        if (!add) {
            if (begin < end)
                memcpy(device + begin, from + begin, (size_t)(end - begin));
            return;
        }
        for (int byte = begin; byte < end; byte += 4) {
            float sum, addend;
            memcpy(&sum, device + byte, 4);
            memcpy(&addend, from + byte, 4);
            sum = flushed(flushed(sum) + flushed(addend));
            memcpy(device + byte, &sum, 4);
        }
    });
}

void tensor_stores_at_exit(Thread &thread)
{
    Block &block = block_of(thread);
    for (const TensorStore &pending : thread.stores) {
        if (!pending.was_read)
            fault("this thread returned, and a tensor store (%s:%d) has still to read shared memory", pending.site.file,
                  pending.site.line);
        block.unwritten.push_back(pending.write);
    }
    thread.stores.clear();
    if (block.live > 0)
        return;
    for (const std::function<void()> &write : block.unwritten)
        write();
    block.unwritten.clear();
}

} // namespace emulator

using namespace emulator;

void emulated_prefetch_tensor_map(const TensorMap *map, Site site)
{
    check_encoded("prefetch.tensormap", *map, site);
}

void emulated_tensor_load(uint32_t destination, const TensorMap *map, uint32_t mbarrier, const int *place,
                          unsigned blocks, Site site)
{
    Worker &self = *worker;
    const char *what = "tensor load";
    check_open(what, site);
    const int own = block_of(*self.current).rank;
    const Tile tile = tile_at(what, destination, map, place, site);
    shared_pointer(destination, tile_bytes(tile), 128, what);
    shared_pointer(mbarrier, 8, 8, what);
    if (blocks >> self.block_count != 0)
        fault("%s (%s:%d): blocks %x of a cluster of %d", what, site.file, site.line, blocks, self.block_count);
    std::vector<uint32_t> destinations, mbarriers;
    for (int rank = 0; rank < self.block_count; rank++) {
        if (((blocks != 0 ? blocks : 1u << own) >> rank & 1) == 0)
            continue;
        destinations.push_back(shared_address_in(destination, own, rank, what));
        mbarriers.push_back(shared_address_in(mbarrier, own, rank, what));
        mbarrier_complete(mbarriers.back(), 0, what); /* it must be there already: the bytes may come at any time */
        if (self.launch->settings.late_copies)
            memset(cluster_pointer(destinations.back(), tile_bytes(tile), 128, what), 0xff, (size_t)tile_bytes(tile));
    }
    if (self.launch->settings.late_copies)
        self.deferred.push_back(Deferred{ [=] { load(tile, destinations, mbarriers); }, what, site });
    else
        load(tile, destinations, mbarriers);
    preemption_point();
}

void emulated_tensor_store(uint32_t source, const TensorMap *map, const int *place, bool add, Site site)
{
    Worker &self = *worker;
    Thread &thread = *self.current;
    const char *what = "tensor store";
    check_open(what, site);
    const Tile tile = tile_at(what, source, map, place, site);
    char *shared = shared_pointer(source, tile_bytes(tile), 128, what);
    /* CUDA Programming Guide, "Tensor Memory Access": tiles that are written begin at no negative index. */
    for (int d = 0; d < tile.map.rank; d++)
        if (place[d] < 0)
            fault("%s (%s:%d): it begins at %d of dimension %d, before the tensor", what, site.file, site.line,
                  place[d], d);
    if (add && tile.map.element_bytes != 4)
        fault("%s (%s:%d): adds elements of %d bytes; only f32 is emulated", what, site.file, site.line,
              tile.map.element_bytes);
    async_proxy_check_store(thread, source, shared, tile_bytes(tile), site);
    if (!self.launch->settings.late_copies) {
        store(tile, shared, add);
        return;
    }
    const auto bytes = std::make_shared<std::vector<char>>();
    thread.stores.push_back(TensorStore{ [=] { bytes->assign(shared, shared + tile_bytes(tile)); },
                                         [=] { store(tile, bytes->data(), add); }, thread.store_group, false, site });
}

void emulated_tensor_store_commit()
{
    worker->current->store_group++;
}

void emulated_tensor_store_wait(int pending, bool written, Site)
{
    Thread &thread = *worker->current;
    size_t done = 0;
    while (done < thread.stores.size() && thread.stores[done].group < thread.store_group - pending) {
        TensorStore &next = thread.stores[done++];
        if (!next.was_read)
            next.read();
        next.was_read = true;
        if (written)
            next.write();
    }
    if (written)
        thread.stores.erase(thread.stores.begin(), thread.stores.begin() + (long)done);
    preemption_point();
}

} // namespace hs_emu
