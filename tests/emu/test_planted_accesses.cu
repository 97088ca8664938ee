/* SPDX-License-Identifier: MIT
 *
 * Planted bugs of place: wrong indices and addresses, and warps or blocks that do not stay together.
 */
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

/* Rows of odd length in tiles of 32: the last tile has an edge.  extra = 1 is the classic <= for <. */
template <int extra> __global__ void scale_kernel(const float *x, int count, float *y)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count + extra)
        y[i] = 2.0f * x[i];
}

/* read: past the end of x; else past the end of y. */
template <int extra, bool read> static bool scale()
{
    const int count = 1024 + 16; /* whole cache lines: the end of the data is the end of a page */
    std::vector<float> x(count + (read ? 0 : 16), 3.0f), y(count + (read ? 16 : 0));
    float *device_x = test::to_device(x), *device_y = test::to_device(y);
    test::launch(scale_kernel<extra>, (count + 31) / 32, 32, 0, device_x, count, device_y);
    const std::vector<float> got = test::to_host(device_y, (size_t)count);
    return got == std::vector<float>((size_t)count, 6.0f);
}

/* Into the few bytes that alignment leaves behind an odd number of elements, and below the start. */
template <int place> __global__ void poke_kernel(float *x)
{
    x[place] = 1.0f;
}
template <int place> static bool poke()
{
    float *x = test::to_device(std::vector<float>(5));
    test::launch(poke_kernel<place>, 1, 1, 0, x);
    return test::to_host(x, 5).size() == 5;
}

template <bool freed> static bool use_after_free()
{
    float *x = test::to_device(std::vector<float>(64, 1.0f)), *y = test::to_device(std::vector<float>(64));
    if (freed)
        cudaFree(x);
    test::launch(scale_kernel<0>, 1, 64, 0, x, 64, y);
    return test::to_host(y, 64) == std::vector<float>(64, 2.0f);
}

template <bool touch> static bool host_access()
{
    float *x = test::to_device(std::vector<float>(64, 1.0f));
    return (touch ? x[5] : test::to_host(x, 64)[5]) == 1.0f;
}

/* A kilobyte of local memory a call. */
static __device__ __noinline__ int nest(int depth, volatile int *seed)
{
    volatile int local[256];
    local[depth % 256] = *seed;
    return depth == 0 ? local[0] : nest(depth - 1, seed) + local[depth % 256];
}
template <bool deep> __global__ void recursion_kernel(int *y)
{
    volatile int seed = 1;
    *y = nest(deep ? 10000 : 10, &seed);
}
template <bool deep> static bool recursion()
{
    int *y = test::to_device(std::vector<int>(1));
    test::launch(recursion_kernel<deep>, 1, 1, 0, y);
    return test::to_host(y, 1)[0] == 11;
}

/* Shared arrays: one element past the end of one that fills pages, one past an odd one, and one below. */
template <int count, int place> __global__ void shared_kernel(int *y)
{
    HS_SHARED(int, first, count);
    HS_SHARED(int, second, count);
    first[(int)threadIdx.x + place] = 1;
    second[threadIdx.x] = 2;
    __syncthreads();
    y[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}
template <int count, int place> static bool shared()
{
    int *y = test::to_device(std::vector<int>((size_t)count));
    test::launch(shared_kernel<count, place>, 1, count, 0, y);
    return test::to_host(y, (size_t)count) == std::vector<int>((size_t)count, 3);
}

/* Shared memory is not zero, nor what the last block left. */
template <bool initialize> __global__ void count_kernel(int *y)
{
    HS_SHARED(int, counter, 1);
    if (initialize && threadIdx.x == 0)
        *counter = 0;
    __syncthreads();
    atomicAdd(counter, 1);
    __syncthreads();
    y[blockIdx.x] = *counter;
}
template <bool initialize> static bool counting()
{
    int *y = test::to_device(std::vector<int>(3));
    test::launch(count_kernel<initialize>, 3, 64, 0, y);
    return test::to_host(y, 3) == std::vector<int>(3, 64);
}

/* cp.async and ldmatrix: addresses. */
template <int offset, int source_offset> __global__ void misaligned_kernel(const float *x, float *y)
{
    HS_SHARED(float, tile, 64);
    ptx::copy_async_16(ptx::shared_address(tile + offset), x + source_offset, 16);
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
    *y = tile[0];
}
template <int offset, int source_offset> static bool misaligned()
{
    float *x = test::to_device(std::vector<float>(16, 5.0f)), *y = test::to_device(std::vector<float>(1));
    test::launch(misaligned_kernel<offset, source_offset>, 1, 1, 0, x, y);
    return test::to_host(y, 1)[0] == 5.0f;
}

template <int offset> __global__ void load_matrix_kernel(uint32_t *y)
{
    HS_SHARED(uint16_t, tile, 8 * 8);
    for (int i = (int)threadIdx.x; i < 64; i += 32)
        tile[i] = 1;
    __syncwarp();
    uint32_t result[4];
    ptx::load_matrix_x4(result, ptx::shared_address(tile + threadIdx.x % 8 * 8) + (uint32_t)offset);
    y[threadIdx.x] = result[0] + result[1];
}
template <int offset> static bool load_matrix()
{
    uint32_t *y = test::to_device(std::vector<uint32_t>(32));
    test::launch(load_matrix_kernel<offset>, 1, 32, 0, y);
    return test::to_host(y, 32) == std::vector<uint32_t>(32, 0x00020002u);
}

/* mma: the identity times b; the wrong one exchanges two registers of a. */
template <bool exchanged> __global__ void fragment_kernel(float *y)
{
    const int group = (int)threadIdx.x / 4, place = (int)threadIdx.x % 4;
    uint32_t a[4],
        b[2] = { __float_as_uint((float)(10 * place + group)), __float_as_uint((float)(10 * (place + 4) + group)) };
    float d[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
    for (int i = 0; i < 4; i++) {
        const int row = group + i % 2 * 8, column = place + i / 2 * 4;
        a[exchanged ? i % 2 * 2 + i / 2 : i] = __float_as_uint(row == column ? 1.0f : 0.0f);
    }
    ptx::mma_tf32(d, a, b);
    y[group * 8 + 2 * place] = d[0];
    y[group * 8 + 2 * place + 1] = d[1];
}
template <bool exchanged> static bool fragment()
{
    float *device_y = test::to_device(std::vector<float>(64));
    test::launch(fragment_kernel<exchanged>, 1, 32, 0, device_y);
    const std::vector<float> y = test::to_host(device_y, 64);
    for (int i = 0; i < 64; i++)
        if (y[(size_t)i] != (float)(10 * (i / 8) + i % 8))
            return false;
    return true;
}

/* Threads that part company.  The flags make each kernel a different mistake. */
enum Parting {
    TOGETHER,
    OTHER_BARRIER,
    RETURNED,
    OTHER_COLLECTIVE,
    OTHER_INSTANCE,
    MISSING_LANE,
    NOT_IN_MASK,
    READS_OUTSIDER
};

template <bool whole> __device__ int vote_and_wait()
{
    const unsigned votes = __ballot_sync(0xffffffffu, whole);
    __syncthreads();
    return (int)votes;
}

template <Parting parting> __global__ void parting_kernel(int *y)
{
    const int lane = (int)threadIdx.x % 32;
    int value = (int)threadIdx.x;
    if (parting == RETURNED && threadIdx.x >= 48)
        return;
    if (parting == OTHER_BARRIER && threadIdx.x >= 48) {
        __syncthreads();
        value++;
    } else {
        __syncthreads();
    }
    if (parting == OTHER_INSTANCE) /* a function that meets, in two branches of a warp */
        value += lane < 16 ? vote_and_wait<true>() : vote_and_wait<false>();
    if (parting == OTHER_COLLECTIVE && lane < 16)
        value += __any_sync(0xffffffffu, 1);
    else if (parting == MISSING_LANE ? lane != 7 : true)
        value += __shfl_sync(0xffffffffu, value, 0);
    if (parting == MISSING_LANE)
        __syncthreads();
    if (parting == NOT_IN_MASK)
        __syncwarp(0x0000ffffu);
    if (parting == READS_OUTSIDER && lane < 8)
        value += __shfl_sync(0x000000ffu, value, 8);
    y[threadIdx.x] = value;
}
template <Parting parting> static bool part()
{
    int *device_y = test::to_device(std::vector<int>(64));
    test::launch(parting_kernel<parting>, 1, 64, 0, device_y);
    const std::vector<int> y = test::to_host(device_y, 64);
    return y[63] == 63 + 32 && y[5] == 5;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::finds("global read past the end", "past the end", scale<0, true>, scale<1, true>);
    test::finds("global write past the end", "past the end", scale<0, false>, scale<1, false>);
    test::finds("global write into the alignment's rest", "test wrote past the end", poke<4>, poke<5>);
    test::finds("global write below the start", "test wrote below the start", poke<0>, poke<-1>);
    test::finds("use after free", "freed memory", use_after_free<false>, use_after_free<true>);
    test::finds("host touches device memory", "the host touches device memory", host_access<false>, host_access<true>);
    test::finds("stack overflow", "stack", recursion<false>, recursion<true>);
    test::finds("shared index past the end", "shared array first", shared<1024, 0>, shared<1024, 1>);
    test::finds("shared index into the alignment's rest", "past its end", shared<33, 0>, shared<33, 1>);
    test::finds("shared index below the start", "below its start", shared<33, 0>, shared<33, -1>);
    test::finds("shared memory not initialized", nullptr, counting<true>, counting<false>);
    test::finds("cp.async: misaligned destination", "not a multiple of 16", misaligned<0, 0>, misaligned<1, 0>);
    test::finds("cp.async: misaligned source", "not a multiple of 16", misaligned<0, 4>, misaligned<0, 1>);
    test::finds("cp.async: source past the end", "past the end", misaligned<0, 12>, misaligned<0, 16>);
    test::finds("cp.async: destination past the end", "shared array tile", misaligned<0, 0>, misaligned<64, 0>);
    test::finds("ldmatrix: misaligned row", "not a multiple of 16", load_matrix<0>, load_matrix<8>);
    test::finds("ldmatrix: row past the end", "shared array tile", load_matrix<0>, load_matrix<16>);
    test::finds("mma: exchanged fragments", nullptr, fragment<false>, fragment<true>);
    test::finds("divergent barriers", "divergent barriers", part<TOGETHER>, part<OTHER_BARRIER>);
    test::finds("a barrier after some returned", "returned", part<TOGETHER>, part<RETURNED>);
    test::finds("divergent collectives", "divergent collectives", part<TOGETHER>, part<OTHER_COLLECTIVE>);
    test::finds("divergent instances", "divergent collectives", part<TOGETHER>, part<OTHER_INSTANCE>);
    test::finds("deadlock", "deadlock: no thread can continue", part<TOGETHER>, part<MISSING_LANE>);
    test::finds("lane outside its mask", "does not name the calling lane", part<TOGETHER>, part<NOT_IN_MASK>);
    test::finds("shuffle from outside the mask", "does not take part", part<TOGETHER>, part<READS_OUTSIDER>);
    return test::result();
}
