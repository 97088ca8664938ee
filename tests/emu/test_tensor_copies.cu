/* SPDX-License-Identifier: MIT
 *
 * Tensor copies and mbarriers: where the elements of a tile lie in shared memory, what is outside the tensor, copies
 * back, and what becomes of programs that do not wait.
 */
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

enum { THREADS = 64, MOST_BYTES = 16384 };

enum Bug { NONE, NO_WAIT, WRONG_PARITY, NO_INIT, TWICE, TOO_FEW_BYTES };

struct Place {
    int x, y, z, w;
};

static __device__ void load(uint32_t destination, const TensorMap *map, uint32_t full, int rank, const Place &place)
{
    if (rank == 2)
        ptx::load_tile(destination, map, full, place.x, place.y);
    else if (rank == 3)
        ptx::load_tile(destination, map, full, place.x, place.y, place.z);
    else
        ptx::load_tile(destination, map, full, place.x, place.y, place.z, place.w);
}

/* A tile as shared memory holds it, byte by byte. */
template <Bug bug>
static __global__ void load_kernel(const TensorMap map, int rank, Place place, int bytes, unsigned char *out)
{
    HS_DYNAMIC_SHARED(unsigned char, tile);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full);
    if (threadIdx.x == 0 && bug != NO_INIT)
        ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(barrier, bug == TOO_FEW_BYTES ? bytes - 16 : bytes);
        load(ptx::shared_address(tile), &map, barrier, rank, place);
        if (bug == TWICE)
            ptx::mbarrier_arrive(barrier);
    }
    if (bug != NO_WAIT)
        ptx::mbarrier_wait(barrier, bug == WRONG_PARITY ? 1 : 0);
    for (int i = (int)threadIdx.x; i < bytes; i += THREADS)
        out[i] = tile[i];
    if (bug == NO_WAIT || bug == WRONG_PARITY)
        ptx::mbarrier_wait(barrier, 0);
}

/* A tensor of 16-bit numbers, each its own index; zero outside. */
struct Tensor {
    int extents[4], strides[4], box[4]; /* elements */
    int rank, swizzle;
};

static int count_of(const Tensor &t)
{
    return t.extents[t.rank - 1] * t.strides[t.rank - 1];
}

static uint16_t element(const Tensor &t, const int (&index)[4])
{
    int offset = 0;
    for (int d = 0; d < t.rank; d++) {
        if (index[d] < 0 || index[d] >= t.extents[d])
            return 0;
        offset += index[d] * t.strides[d];
    }
    return (uint16_t)(offset + 1);
}

/* Byte of element (x, line) of the tile: with a swizzle of `swizzle` bytes, every 128 bytes hold 128 / swizzle lines,
 * and the 16-byte pieces of a line change places by the number of those 128 bytes. */
static int byte_of(const Tensor &t, int x, int line)
{
    const int row_bytes = t.box[0] * 2, piece = x * 2 / 16;
    const int turn = t.swizzle == 0 ? 0 : line / (128 / t.swizzle) % (t.swizzle / 16);
    return line * row_bytes + (piece ^ turn) * 16 + x * 2 % 16;
}

static TensorMap map_of(const Tensor &t, void *data)
{
    TensorMapShape shape = { data, HS_BF16, t.rank, {}, {}, {}, t.swizzle };
    for (int d = 0; d < t.rank; d++) {
        shape.extents[d] = t.extents[d];
        shape.strides[d] = t.strides[d] * 2;
        shape.box[d] = t.box[d];
    }
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        abort();
    return map;
}

template <Bug bug = NONE> static bool loads(const Tensor &t, const Place &place)
{
    std::vector<uint16_t> values((size_t)count_of(t));
    for (size_t i = 0; i < values.size(); i++)
        values[i] = (uint16_t)(i + 1);
    uint16_t *device = test::to_device(values);
    int lines = 1;
    for (int d = 1; d < t.rank; d++)
        lines *= t.box[d];
    const int bytes = lines * t.box[0] * 2;
    unsigned char *out = test::to_device(std::vector<unsigned char>((size_t)bytes));
    test::launch(load_kernel<bug>, 1, THREADS, (size_t)bytes, map_of(t, device), t.rank, place, bytes, out);
    const std::vector<unsigned char> tile = test::to_host(out, (size_t)bytes);
    const int first[4] = { place.x, place.y, place.z, place.w };
    for (int line = 0; line < lines; line++)
        for (int x = 0; x < t.box[0]; x++) {
            int index[4] = { first[0] + x, 0, 0, 0 }, rest = line;
            for (int d = 1; d < t.rank; d++) {
                index[d] = first[d] + rest % t.box[d];
                rest /= t.box[d];
            }
            uint16_t got;
            memcpy(&got, &tile[(size_t)byte_of(t, x, line)], 2);
            if (got != element(t, index))
                return false;
        }
    return true;
}

static Tensor matrix(int swizzle)
{
    return Tensor{ { 70, 21 }, { 1, 72 }, { swizzle == 0 ? 24 : swizzle / 2, 11 }, 2, swizzle };
}

/* Tiles inside, across every edge, and outside. */
static bool matrices()
{
    const int swizzles[] = { 0, 32, 64, 128 };
    for (int swizzle : swizzles)
        for (int y : { 0, 5, 15, -3, 30 })
            for (int x : { 0, 8, 64, -8, -5, 67 })
                if (!loads(matrix(swizzle), Place{ x, y, 0, 0 }))
                    return false;
    return true;
}

static bool more_dimensions()
{
    const Tensor three = { { 64, 6, 5 }, { 1, 64, 64 * 6 }, { 32, 4, 3 }, 3, 64 };
    const Tensor four = { { 64, 6, 5, 3 }, { 1, 64, 64 * 6, 64 * 6 * 5 }, { 64, 3, 2, 2 }, 4, 128 };
    return loads(three, Place{ 32, 1, 2, 0 }) && loads(three, Place{ 48, 4, 3, 0 }) &&
           loads(four, Place{ 0, 2, 1, 0 }) && loads(four, Place{ 8, 4, 4, 2 });
}

/* Every thread writes its part of a tile, one thread stores it, and all write the next. */
enum StoreBug { STORES, NO_BARRIER, NO_STORE_WAIT, NO_WAIT_AT_END, BEFORE_THE_TENSOR };

template <StoreBug bug> static __global__ void store_kernel(const TensorMap map, bool add, int tiles)
{
    HS_DYNAMIC_SHARED(float, tile);
    for (int k = 0; k < tiles; k++) {
        for (int i = (int)threadIdx.x; i < 8 * 16; i += THREADS)
            tile[i] = (float)(k * 1000 + i);
        ptx::fence_shared_to_async();
        if (bug != NO_BARRIER)
            __syncthreads();
        if (threadIdx.x == 0) {
            if (add)
                ptx::add_tile(ptx::shared_address(tile), &map, k * 16, 2);
            else
                ptx::store_tile(ptx::shared_address(tile), &map, k * 16, bug == BEFORE_THE_TENSOR ? -2 : 2);
            ptx::store_tile_commit();
            if (bug != NO_STORE_WAIT && (bug != NO_WAIT_AT_END || k + 1 < tiles))
                ptx::store_tile_wait<0>();
        }
        __syncthreads();
    }
    if (bug == NO_STORE_WAIT && threadIdx.x == 0)
        ptx::store_tile_wait<0>();
}

template <StoreBug bug> static bool stores(bool add)
{
    enum { WIDTH = 44, HEIGHT = 9, TILES = 3 }; /* the last tile and the last lines reach outside */
    std::vector<float> values(WIDTH * HEIGHT, 0.5f);
    float *device = test::to_device(values);
    const TensorMapShape shape = { device, HS_F32, 2, { WIDTH, HEIGHT }, { 4, WIDTH * 4 }, { 16, 8 }, 0 };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        return false;
    test::launch(store_kernel<bug>, 1, THREADS, 8 * 16 * sizeof(float), map, add, (int)TILES);
    values = test::to_host(device, WIDTH * HEIGHT);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            const float stored = (float)(x / 16 * 1000 + (y - 2) * 16 + x % 16);
            const float expected = y < 2 ? 0.5f : add ? stored + 0.5f : stored;
            if (values[(size_t)(y * WIDTH + x)] != expected)
                return false;
        }
    return true;
}

static bool shapes_are_checked()
{
    TensorMap map;
    static char data[64] __attribute__((aligned(16)));
    const TensorMapShape good = { data, HS_BF16, 2, { 64, 4 }, { 2, 128 }, { 64, 4 }, 128 };
    TensorMapShape misaligned = good, wide = good, line = good, stride = good, rank = good;
    misaligned.data = data + 2;
    wide.box[1] = 257;
    line.box[0] = 32;
    stride.strides[1] = 130;
    rank.rank = 6;
    return encode_tensor_map(good, &map) == HS_OK && encode_tensor_map(misaligned, &map) == HS_EINVAL &&
           encode_tensor_map(wide, &map) == HS_EINVAL && encode_tensor_map(line, &map) == HS_EINVAL &&
           encode_tensor_map(stride, &map) == HS_EINVAL && encode_tensor_map(rank, &map) == HS_EINVAL;
}

} // namespace hs_emu

using namespace hs_emu;

int main()
{
    const Tensor t = matrix(128);
    const auto correct = [t] { return loads(t, Place{ 8, 5, 0, 0 }); };
    test::holds("tiles of matrices, four swizzles, all edges", matrices);
    test::holds("tiles of three and four dimensions", more_dimensions);
    test::holds("tiles stored", [] { return stores<STORES>(false); });
    test::holds("tiles added", [] { return stores<STORES>(true); });
    test::holds("shapes that cannot be encoded", shapes_are_checked);
    test::finds("no wait for the tile", nullptr, correct, [t] { return loads<NO_WAIT>(t, Place{ 8, 5, 0, 0 }); });
    test::finds("the other parity", nullptr, correct, [t] { return loads<WRONG_PARITY>(t, Place{ 8, 5, 0, 0 }); });
    test::finds("no mbarrier.init", "no mbarrier is here", correct, [t] {
        return loads<NO_INIT>(t, Place{ 8, 5, 0, 0 });
    });
    test::finds("fewer bytes expected than come", "deadlock", correct, [t] {
        return loads<TOO_FEW_BYTES>(t, Place{ 8, 5, 0, 0 });
    });
    test::finds("two arrivals for one", "more arrivals", correct, [t] { return loads<TWICE>(t, Place{ 8, 5, 0, 0 }); });
    test::finds(
        "no barrier before the store", nullptr, [] { return stores<STORES>(false); },
        [] { return stores<NO_BARRIER>(false); });
    test::finds(
        "the tile written before it was read", nullptr, [] { return stores<STORES>(false); },
        [] { return stores<NO_STORE_WAIT>(false); });
    test::finds(
        "the end before the store has read", "has still to read shared memory", [] { return stores<STORES>(false); },
        [] { return stores<NO_WAIT_AT_END>(false); });
    test::finds(
        "a store from before the tensor", "before the tensor", [] { return stores<STORES>(false); },
        [] { return stores<BEFORE_THE_TENSOR>(false); });
    return test::result();
}
