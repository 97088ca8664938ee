/* SPDX-License-Identifier: MIT
 *
 * Tensor stores from two buffers a warp, as a Hopper product writes its tiles (matmul_hopper_epilogue.cuh), and what
 * happens when one of the steps is missing.
 */
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

enum { WARPS = 4, THREADS = WARPS * 32, LINES = 16, LINE = 32, TILES = 6 };
enum { BUFFER_BYTES = LINES * LINE * 4, WIDTH = TILES * LINE - 12, HEIGHT = WARPS * LINES - 5 }; /* edges cut tiles */

enum Bug {
    NONE,
    NO_WAIT,          /* a buffer is written while its last store may still read it */
    LATE_WAIT,        /* waits for the store before the one that reads the buffer */
    NO_MEETING,       /* others do not know that the first lane has waited */
    NO_FENCE,         /* written, but not for the eyes of a tensor store */
    FENCE_OF_ONE,     /* only what the first lane wrote is */
    STORE_BEFORE_ALL, /* the first lane stores before the others have written */
    NO_COMMIT,        /* waiting for groups does not wait for it */
    NO_LAST_WAIT      /* the block ends before its last stores have read */
};

static float element(int row, int column)
{
    return (float)(row * 1000 + column);
}

/* Warp w writes lines [16 w, 16 w + 16), a tile of 32 columns at a time. */
template <Bug bug> static __global__ void buffers_kernel(const TensorMap map, bool add)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int tile = 0; tile < TILES; tile++) {
        unsigned char *const buffer = shared + (warp * 2 + tile % 2) * BUFFER_BYTES;
        if (lane == 0 && bug != NO_WAIT)
            ptx::store_tile_wait<bug == LATE_WAIT ? 2 : 1>();
        if (bug != NO_MEETING)
            __syncwarp();
        for (int line = 0; line < LINES; line++) {
            const int offset = line * LINE * 4 + ((lane / 4 ^ line % 8) * 16) + lane % 4 * 4;
            *reinterpret_cast<float *>(buffer + offset) = element(warp * LINES + line, tile * LINE + lane);
        }
        if (bug != NO_FENCE && bug != FENCE_OF_ONE)
            ptx::fence_shared_to_async();
        if (bug != STORE_BEFORE_ALL)
            __syncwarp();
        if (lane == 0) {
            if (bug == FENCE_OF_ONE)
                ptx::fence_shared_to_async();
            const uint32_t source = ptx::shared_address(buffer);
            if (add)
                ptx::add_tile(source, &map, tile * LINE, warp * LINES, 0);
            else
                ptx::store_tile(source, &map, tile * LINE, warp * LINES, 0);
            if (bug != NO_COMMIT)
                ptx::store_tile_commit();
        }
    }
    if (lane == 0 && bug != NO_LAST_WAIT)
        ptx::store_tile_wait<0>();
}

template <Bug bug> static bool stores(bool add)
{
    const float before = 0.25f;
    float *device = test::to_device(std::vector<float>(WIDTH * HEIGHT, before));
    const TensorMapShape shape = {
        device, HS_F32, 3, { WIDTH, HEIGHT, 1 }, { 4, WIDTH * 4, WIDTH * HEIGHT * 4 }, { LINE, LINES, 1 }, 128
    };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        return false;
    test::launch(buffers_kernel<bug>, 1, THREADS, (size_t)(WARPS * 2 * BUFFER_BYTES), map, add);
    const std::vector<float> c = test::to_host(device, WIDTH * HEIGHT);
    for (int row = 0; row < HEIGHT; row++)
        for (int column = 0; column < WIDTH; column++)
            if (c[(size_t)(row * WIDTH + column)] != element(row, column) + (add ? before : 0.0f))
                return false;
    return true;
}

/* What the addition does to subnormal numbers. */
static __global__ void add_kernel(const TensorMap map, float addend)
{
    HS_DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = addend;
    ptx::fence_shared_to_async();
    __syncwarp();
    if (threadIdx.x == 0) {
        ptx::add_tile(ptx::shared_address(tile), &map, 0, 0);
        ptx::store_tile_commit();
        ptx::store_tile_wait<0>();
    }
}

static float added(float to, float addend)
{
    float *device = test::to_device(std::vector<float>(32, to));
    const TensorMapShape shape = { device, HS_F32, 2, { 32, 1 }, { 4, 128 }, { 32, 1 }, 0 };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        return -1.0f;
    test::launch(add_kernel, 1, 32, (size_t)128, map, addend);
    return test::to_host(device, 32)[31];
}

static bool subnormals()
{
    const float least = 0x1p-126f, below = 0x1p-127f;
    return added(1.0f, 0x1p-24f) == 1.0f && added(least, least) == 2 * least && added(below, least) == least &&
           added(below, below) == 0.0f && added(1.5f * least, -least) == 0.0f;
}

/* The second warp reads what the first has stored. */
template <bool planted> static __global__ void hand_over_kernel(const TensorMap map, float *device, float *seen)
{
    HS_DYNAMIC_SHARED(float, tile);
    if (threadIdx.x < 32) {
        tile[threadIdx.x] = (float)(threadIdx.x + 1);
        ptx::fence_shared_to_async();
        __syncwarp();
        if (threadIdx.x == 0) {
            ptx::store_tile(ptx::shared_address(tile), &map, 0, 0);
            ptx::store_tile_commit();
            ptx::store_tile_wait<0>();
            if (!planted)
                ptx::store_tile_wait_written<0>();
        }
    }
    __syncthreads();
    if (threadIdx.x >= 32)
        seen[threadIdx.x - 32] = device[threadIdx.x - 32];
}

template <bool planted> static bool hand_over()
{
    float *device = test::to_device(std::vector<float>(32, 0.0f)),
          *seen = test::to_device(std::vector<float>(32, 0.0f));
    const TensorMapShape shape = { device, HS_F32, 2, { 32, 1 }, { 4, 128 }, { 32, 1 }, 0 };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        return false;
    test::launch(hand_over_kernel<planted>, 1, 64, (size_t)128, map, device, seen);
    const std::vector<float> result = test::to_host(seen, 32);
    for (int i = 0; i < 32; i++)
        if (result[(size_t)i] != (float)(i + 1))
            return false;
    return true;
}

} // namespace hs_emu

using namespace hs_emu;

int main()
{
    test::holds("two buffers a warp", [] { return stores<NONE>(false); });
    test::holds("two buffers a warp, added", [] { return stores<NONE>(true); });
    test::holds("additions flush subnormals", subnormals);
    test::catches("no wait before a buffer is written again", "", [] { return stores<NO_WAIT>(false); });
    test::catches("a wait for the store before", nullptr, [] { return stores<LATE_WAIT>(false); });
    test::catches("a wait that the others do not learn of", nullptr, [] { return stores<NO_MEETING>(false); });
    test::catches("no fence", "fence_shared_to_async", [] { return stores<NO_FENCE>(false); });
    test::catches("a fence by the storing thread alone", "fence_shared_to_async",
                  [] { return stores<FENCE_OF_ONE>(false); });
    test::catches("the store before all have written", "", [] { return stores<STORE_BEFORE_ALL>(false); });
    test::catches("a group that is never closed", "", [] { return stores<NO_COMMIT>(false); });
    test::catches("the end before the last stores have read", "has still to read shared memory",
                  [] { return stores<NO_LAST_WAIT>(false); });
    test::holds("what was stored is seen by others", hand_over<false>);
    test::catches("read, but not yet written", "", hand_over<true>);
    return test::result();
}
