/* SPDX-License-Identifier: MIT
 *
 * Planted bugs of order: barriers and waits that are missing.  Each kernel has a template flag for its bug.
 */
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

/* Each round adds up a neighbour's number from the other end of the block.  Both barriers are needed: one before the
 * others' numbers are read, one before they are written anew. */
template <bool before_reading, bool before_writing> __global__ void mirror_kernel(const int *x, int rounds, int *y)
{
    HS_SHARED(int, exchanged, 256);
    int value = x[threadIdx.x];
    for (int round = 0; round < rounds; round++) {
        exchanged[threadIdx.x] = value + round;
        if (before_reading)
            __syncthreads();
        value += exchanged[blockDim.x - 1 - threadIdx.x];
        if (before_writing)
            __syncthreads();
    }
    y[threadIdx.x] = value;
}

template <bool before_reading, bool before_writing> static bool mirror()
{
    std::vector<int> x(256), y(256);
    for (int i = 0; i < 256; i++)
        x[(size_t)i] = i * i;
    int *device_x = test::to_device(x), *device_y = test::to_device(y);
    test::launch(mirror_kernel<before_reading, before_writing>, 1, 256, 0, device_x, 4, device_y);
    y = test::to_host(device_y, 256);
    for (int round = 0; round < 4; round++) {
        const std::vector<int> before = x;
        for (size_t i = 0; i < 256; i++)
            x[i] += before[255 - i] + round;
    }
    return x == y;
}

/* The same within a warp. */
template <bool synchronized> __global__ void rotate_kernel(int *y)
{
    HS_SHARED(int, exchanged, 32);
    exchanged[threadIdx.x] = (int)threadIdx.x;
    if (synchronized)
        __syncwarp();
    y[threadIdx.x] = exchanged[(threadIdx.x + 1) % 32];
}

template <bool synchronized> static bool rotate()
{
    int *device_y = test::to_device(std::vector<int>(32));
    test::launch(rotate_kernel<synchronized>, 1, 32, 0, device_y);
    const std::vector<int> y = test::to_host(device_y, 32);
    for (int i = 0; i < 32; i++)
        if (y[(size_t)i] != (i + 1) % 32)
            return false;
    return true;
}

/* Sums tiles that a ring of two stages of cp.async feeds, as every product's main loop does.  `pending`: how many
 * groups may be unfinished when a stage is read: one too many means that it is read too early. */
enum { TILE = 128, STAGES = 2 };

template <int pending, bool barrier_before_reading, bool barrier_before_refill>
__global__ void pipeline_kernel(const float *x, int tiles, float *y)
{
    HS_SHARED(float, ring, TILE *STAGES);
    const int thread = (int)threadIdx.x;
    float sum = 0.0f;
    ptx::copy_async_4(ptx::shared_address(ring + thread), x + thread, 4);
    ptx::copy_async_commit();
    for (int tile = 0; tile < tiles; tile++) {
        float *stage = ring + tile % STAGES * TILE, *next = ring + (tile + 1) % STAGES * TILE;
        if (tile + 1 < tiles)
            ptx::copy_async_4(ptx::shared_address(next + thread), x + (tile + 1) * TILE + thread, 4);
        ptx::copy_async_commit();
        ptx::copy_async_wait<pending>();
        if (barrier_before_reading)
            __syncthreads();
        sum += stage[(thread + 32) % TILE];
        if (barrier_before_refill)
            __syncthreads();
    }
    y[thread] = sum;
}

template <int pending, bool barrier_before_reading, bool barrier_before_refill> static bool pipeline()
{
    const int tiles = 6;
    std::vector<float> x(tiles * TILE);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i % 97);
    float *device_x = test::to_device(x), *device_y = test::to_device(std::vector<float>(TILE));
    test::launch(pipeline_kernel<pending, barrier_before_reading, barrier_before_refill>, 1, TILE, 0, device_x, tiles,
                 device_y);
    const std::vector<float> y = test::to_host(device_y, TILE);
    for (int i = 0; i < TILE; i++) {
        float sum = 0.0f;
        for (int tile = 0; tile < tiles; tile++)
            sum += x[(size_t)(tile * TILE + (i + 32) % TILE)];
        if (y[(size_t)i] != sum)
            return false;
    }
    return true;
}

/* Two streams: the second reads what the first writes. */
__global__ void fill_kernel(int *x, int value)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__global__ void double_kernel(const int *x, int *y)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2 * x[i];
}

template <bool waits> static bool two_streams()
{
    int *x = test::to_device(std::vector<int>(256)), *y = test::to_device(std::vector<int>(256));
    cudaStream_t first, second;
    cudaEvent_t written;
    cudaStreamCreate(&first);
    cudaStreamCreate(&second);
    cudaEventCreate(&written);
    emulate_launch("fill", 4, 64, 0, first, [=] { fill_kernel(x, 21); });
    cudaEventRecord(written, first);
    if (waits)
        cudaStreamWaitEvent(second, written);
    emulate_launch("double", 4, 64, 0, second, [=] { double_kernel(x, y); });
    cudaStreamSynchronize(second);
    return test::to_host(y, 256) == std::vector<int>(256, 42);
}

/* Pinned memory is the destination until the stream has been waited for. */
template <bool waits> static bool read_back()
{
    int *x = test::to_device(std::vector<int>(64)), *pinned;
    cudaMallocHost(&pinned, 64 * sizeof(int));
    emulate_launch("fill", 1, 64, 0, nullptr, [=] { fill_kernel(x, 7); });
    cudaMemcpyAsync(pinned, x, 64 * sizeof(int), cudaMemcpyDefault, nullptr);
    if (waits)
        cudaStreamSynchronize(nullptr);
    return pinned[63] == 7;
}

/* ... and the source. */
template <bool waits> static bool overwrite_source()
{
    int *x = test::to_device(std::vector<int>(1)), *pinned;
    cudaMallocHost(&pinned, sizeof(int));
    *pinned = 1;
    cudaMemcpyAsync(x, pinned, sizeof(int), cudaMemcpyHostToDevice, nullptr);
    if (waits)
        cudaStreamSynchronize(nullptr);
    *pinned = 2;
    return test::to_host(x, 1)[0] == 1;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::finds("no barrier before reading", nullptr, mirror<true, true>, mirror<false, true>);
    test::finds("no barrier before writing", nullptr, mirror<true, true>, mirror<true, false>);
    test::finds("no __syncwarp", nullptr, rotate<true>, rotate<false>);
    test::finds("cp.async: waits for one group too few", nullptr, pipeline<1, true, true>, pipeline<2, true, true>);
    test::finds("cp.async: no barrier after the wait", nullptr, pipeline<1, true, true>, pipeline<1, false, true>);
    test::finds("cp.async: refilled while others read", nullptr, pipeline<1, true, true>, pipeline<1, true, false>);
    test::finds("no event between two streams", nullptr, two_streams<true>, two_streams<false>);
    test::finds("pinned memory read before the wait", nullptr, read_back<true>, read_back<false>);
    test::finds("pinned memory overwritten before the wait", nullptr, overwrite_source<true>, overwrite_source<false>);
    return test::result();
}
