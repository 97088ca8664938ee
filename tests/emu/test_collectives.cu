/* SPDX-License-Identifier: MIT
 *
 * Shuffles, votes, barriers and atomics against their definitions in the CUDA programming guide.
 */
#include "kernels/cuda/toolbox/reduce.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

/* What a lane receives: from lane `source`, of those in its segment of `width`; its own value otherwise. */
enum Direction { INDEX, UP, DOWN, XOR };

static int expected_source(Direction direction, int lane, int argument, int width)
{
    const int first = lane / width * width, last = first + width - 1;
    switch (direction) {
    case INDEX:
        return first + (argument % width + width) % width;
    case UP:
        return lane - argument < first ? lane : lane - argument;
    case DOWN:
        return lane + argument > last ? lane : lane + argument;
    case XOR:
        return (lane ^ argument) > last ? lane : lane ^ argument;
    }
    return -1;
}

template <typename T>
__global__ void shuffle_kernel(Direction direction, int argument, int width, unsigned mask, const T *x, T *y)
{
    const int lane = (int)threadIdx.x;
    T value = x[lane];
    if (mask >> lane & 1) {
        switch (direction) {
        case INDEX:
            value = __shfl_sync(mask, value, argument, width);
            break;
        case UP:
            value = __shfl_up_sync(mask, value, (unsigned)argument, width);
            break;
        case DOWN:
            value = __shfl_down_sync(mask, value, (unsigned)argument, width);
            break;
        case XOR:
            value = __shfl_xor_sync(mask, value, argument, width);
            break;
        }
    }
    y[lane] = value;
}

template <typename T> static bool shuffle()
{
    std::vector<T> x(32);
    for (int i = 0; i < 32; i++)
        x[(size_t)i] = (T)(i * 1000 + 7) / (T)3;
    T *device_x = test::to_device(x), *device_y = test::to_device(x);
    for (Direction direction : { INDEX, UP, DOWN, XOR })
        for (int width = 1; width <= 32; width *= 2)
            for (int argument : { 0, 1, 5, 16, 31 })
                /* Of half the segments, where no lane reads from another segment (xor may, downwards). */
                for (unsigned mask :
                     { 0xffffffffu,
                       width <= 8 && (direction != XOR || argument < width) ? 0xff00ff00u : 0xffffffffu }) {
                    test::launch(shuffle_kernel<T>, 1, 32, 0, direction, argument, width, mask, device_x, device_y);
                    const std::vector<T> y = test::to_host(device_y, 32);
                    for (int lane = 0; lane < 32; lane++) {
                        const int source = mask >> lane & 1 ? expected_source(direction, lane, argument, width) : lane;
                        if (y[(size_t)lane] != x[(size_t)source])
                            return false;
                    }
                }
    return true;
}

/* Two groups of lanes at different collectives at the same time, then all together. */
__global__ void groups_kernel(unsigned *y)
{
    const unsigned lane = threadIdx.x;
    unsigned value;
    if (lane % 2 == 0)
        value = __ballot_sync(0x55555555u, lane % 4 == 0);
    else
        value = __shfl_xor_sync(0xaaaaaaaau, lane, 2);
    __syncwarp();
    value += 1000 * (unsigned)__all_sync(0xffffffffu, lane < 32) + 2000 * (unsigned)__any_sync(0xffffffffu, lane == 40);
    y[lane] = value;
}
static bool groups()
{
    unsigned *device_y = test::to_device(std::vector<unsigned>(32));
    test::launch(groups_kernel, 1, 32, 0, device_y);
    const std::vector<unsigned> y = test::to_host(device_y, 32);
    for (unsigned lane = 0; lane < 32; lane++)
        if (y[lane] != 1000 + (lane % 2 == 0 ? 0x11111111u : lane ^ 2))
            return false;
    return true;
}

/* A last warp of 5 lanes: full masks name lanes that do not exist. */
__global__ void part_of_a_warp_kernel(unsigned *y)
{
    const unsigned ballot = __ballot_sync(0xffffffffu, 1);
    __syncwarp();
    y[threadIdx.x] = ballot + (unsigned)__syncthreads_count(threadIdx.x % 2 == 0);
}
static bool part_of_a_warp()
{
    unsigned *device_y = test::to_device(std::vector<unsigned>(37));
    test::launch(part_of_a_warp_kernel, 1, 37, 0, device_y);
    const std::vector<unsigned> y = test::to_host(device_y, 37);
    return y[0] == 0xffffffffu + 19 && y[36] == 31 + 19;
}

/* Lanes that have returned are waited for no more. */
__global__ void early_return_kernel(unsigned *y)
{
    if (threadIdx.x >= 20)
        return;
    y[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x >= 10);
}
static bool early_return()
{
    unsigned *device_y = test::to_device(std::vector<unsigned>(20));
    test::launch(early_return_kernel, 1, 32, 0, device_y);
    return test::to_host(device_y, 20) == std::vector<unsigned>(20, 0x000ffc00u);
}

__global__ void votes_kernel(int *y)
{
    const int thread = (int)(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
    const int any = __syncthreads_or(thread == 77), none = __syncthreads_or(thread == 1000);
    const int all = __syncthreads_and(thread >= 0), not_all = __syncthreads_and(thread != 5);
    y[thread] = any + 2 * none + 4 * all + 8 * not_all + 16 * __syncthreads_count(thread % 3 == 0);
}
static bool votes()
{
    int *device_y = test::to_device(std::vector<int>(96));
    test::launch(votes_kernel, 1, dim3(8, 4, 3), 0, device_y);
    return test::to_host(device_y, 96) == std::vector<int>(96, 1 + 4 + 16 * 32);
}

__global__ void reduce_kernel(const float *x, float *sum, float *maximum)
{
    HS_SHARED(float, scratch, 32);
    const float value = x[blockIdx.x * blockDim.x + threadIdx.x];
    const float total = block_reduce<Sum>(value, 0.0f, scratch);
    const float largest = block_reduce<Maximum>(value, -INFINITY, scratch);
    if (threadIdx.x == blockDim.x - 1) {
        sum[blockIdx.x] = total;
        maximum[blockIdx.x] = largest;
    }
}
static bool reduce()
{
    std::vector<float> x(8 * 256);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i * 7919 % 1000);
    float *device_x = test::to_device(x), *sum = test::to_device(std::vector<float>(8)),
          *maximum = test::to_device(std::vector<float>(8));
    test::launch(reduce_kernel, 8, 256, 0, device_x, sum, maximum);
    const std::vector<float> sums = test::to_host(sum, 8), maxima = test::to_host(maximum, 8);
    for (size_t block = 0; block < 8; block++) {
        float total = 0.0f, largest = 0.0f;
        for (size_t i = 0; i < 256; i++) {
            total += x[block * 256 + i];
            largest = max(largest, x[block * 256 + i]);
        }
        if (sums[block] != total || maxima[block] != largest)
            return false;
    }
    return true;
}

/* The last block to arrive adds up what the others wrote: the one use of atomics that is deterministic. */
__global__ void last_block_kernel(unsigned *arrived, const int *x, int *partial, int *total, unsigned long long *many,
                                  int *least)
{
    HS_SHARED(int, is_last, 1);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = x[blockIdx.x];
        __threadfence();
        *is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    atomicAdd(many, 1ull << 33);
    atomicMin(least, -(int)threadIdx.x);
    __syncthreads();
    if (*is_last && threadIdx.x == 0)
        for (unsigned block = 0; block < gridDim.x; block++)
            *total += partial[block];
}
static bool last_block()
{
    std::vector<int> x(50);
    for (int i = 0; i < 50; i++)
        x[(size_t)i] = i;
    unsigned *arrived = test::to_device(std::vector<unsigned>(1));
    int *device_x = test::to_device(x), *partial = test::to_device(std::vector<int>(50)),
        *total = test::to_device(std::vector<int>(1)), *least = test::to_device(std::vector<int>(1));
    auto *many = test::to_device(std::vector<unsigned long long>(1));
    test::launch(last_block_kernel, 50, 64, 0, arrived, device_x, partial, total, many, least);
    return test::to_host(total, 1)[0] == 49 * 25 && test::to_host(arrived, 1)[0] == 0 &&
           test::to_host(many, 1)[0] == 3200ull << 33 && test::to_host(least, 1)[0] == -63;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::holds("shuffles of int", shuffle<int>);
    test::holds("shuffles of float", shuffle<float>);
    test::holds("shuffles of double", shuffle<double>);
    test::holds("shuffles of uint64_t", shuffle<uint64_t>);
    test::holds("groups of a warp", groups);
    test::holds("part of a warp", part_of_a_warp);
    test::holds("lanes that returned", early_return);
    test::holds("votes of a block", votes);
    test::holds("reductions", reduce);
    test::holds("atomics and the last block", last_block);
    return test::result();
}
