/* SPDX-License-Identifier: MIT
 *
 * mma and ldmatrix against plain products of matrices.  The fragments here are written down once more, from the tables
 * of the PTX manual ("Matrix Fragments for mma.m16n8k16", "... m16n8k8"), in its own form: rows and columns of the i-th
 * element of a lane.
 */
#include "kernels/cuda/toolbox/numeric.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

struct Place {
    int row, column;
};

/* A, .bf16/.f16, elements a0 .. a7. */
static Place place_of_a(int lane, int i)
{
    const int group = lane >> 2, in_group = lane % 4;
    const int row = (i < 2) || (i >= 4 && i < 6) ? group : group + 8;
    const int column = i < 4 ? in_group * 2 + (i & 1) : in_group * 2 + (i & 1) + 8;
    return Place{ row, column };
}
/* B, elements b0 .. b3. */
static Place place_of_b(int lane, int i)
{
    const int row = i < 2 ? lane % 4 * 2 + (i & 1) : lane % 4 * 2 + (i & 1) + 8;
    return Place{ row, lane >> 2 };
}
/* C and D, .f32, elements c0 .. c3. */
static Place place_of_c(int lane, int i)
{
    return Place{ i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1) };
}
/* .tf32: a0 .. a3 and b0, b1. */
static Place place_of_a_tf32(int lane, int i)
{
    return Place{ i == 0 || i == 2 ? lane >> 2 : (lane >> 2) + 8, i < 2 ? lane % 4 : lane % 4 + 4 };
}
static Place place_of_b_tf32(int lane, int i)
{
    return Place{ i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2 };
}

enum Format { BF16, F16_, TF32 };

/* Fragments come and go through memory: register r of lane l at [l][r]. */
template <Format format> __global__ void mma_kernel(const uint32_t *a, const uint32_t *b, float *d)
{
    const int lane = (int)threadIdx.x;
    uint32_t a_registers[4], b_registers[2];
    float d_registers[4];
    for (int i = 0; i < 4; i++) {
        a_registers[i] = a[lane * 4 + i];
        d_registers[i] = d[lane * 4 + i];
    }
    for (int i = 0; i < 2; i++)
        b_registers[i] = b[lane * 2 + i];
    if (format == BF16)
        ptx::mma_bf16(d_registers, a_registers, b_registers);
    else if (format == F16_)
        ptx::mma_f16(d_registers, a_registers, b_registers);
    else
        ptx::mma_tf32(d_registers, a_registers, b_registers);
    for (int i = 0; i < 4; i++)
        d[lane * 4 + i] = d_registers[i];
}

/* Small whole numbers and halves: every product and sum is exact, so results must be equal. */
static float element(int row, int column)
{
    return (float)((row * 5 + column * 3) % 17 - 8) * 0.5f;
}

static uint32_t encode(Format format, float value)
{
    return format == BF16 ? hs_bf16_encode(value) : format == F16_ ? hs_f16_encode(value) : __float_as_uint(value);
}

template <Format format> static bool product()
{
    const int depth = format == TF32 ? 8 : 16, elements = format == TF32 ? 1 : 2;
    std::vector<uint32_t> a(128), b(64);
    std::vector<float> d(128);
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 4 * elements; i++) {
            const Place place = format == TF32 ? place_of_a_tf32(lane, i) : place_of_a(lane, i);
            a[(size_t)(lane * 4 + i / elements)] |= encode(format, element(place.row, place.column))
                                                    << (i % elements * 16);
        }
        for (int i = 0; i < 2 * elements; i++) {
            const Place place = format == TF32 ? place_of_b_tf32(lane, i) : place_of_b(lane, i);
            b[(size_t)(lane * 2 + i / elements)] |= encode(format, element(place.column, place.row + 40))
                                                    << (i % elements * 16);
        }
        for (int i = 0; i < 4; i++) {
            const Place place = place_of_c(lane, i);
            d[(size_t)(lane * 4 + i)] = element(place.row + 9, place.column);
        }
    }
    uint32_t *device_a = test::to_device(a), *device_b = test::to_device(b);
    float *device_d = test::to_device(d);
    test::launch(mma_kernel<format>, 1, 32, 0, device_a, device_b, device_d);
    d = test::to_host(device_d, 128);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const Place place = place_of_c(lane, i);
            float sum = element(place.row + 9, place.column);
            for (int k = 0; k < depth; k++)
                sum += element(place.row, k) * element(place.column, k + 40);
            if (d[(size_t)(lane * 4 + i)] != sum)
                return false;
        }
    return true;
}

/* f16's whole range through mma: 1 times every number, subnormals, infinities and NaN among them. */
__global__ void decode_kernel(float *y)
{
    const uint32_t lane = threadIdx.x;
    for (uint32_t first = 0; first < 65536; first += 64) {
        /* b[k][n] with n = lane / 4: each lane brings two numbers for k = 0 in turn; a is the first unit vector. */
        uint32_t a[4] = { lane == 0 ? 0x3c00u : 0u, 0, 0, 0 }, b[2] = { lane % 4 == 0 ? first + lane / 4 : 0u, 0 };
        for (uint32_t part = 0; part < 8; part++) {
            float d[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
            ptx::mma_f16(d, a, b);
            if (lane < 4) {
                y[first + part * 8 + lane * 2] = d[0];
                y[first + part * 8 + lane * 2 + 1] = d[1];
            }
            b[0] += lane % 4 == 0 ? 8 : 0;
        }
    }
}
static bool decode()
{
    float *device_y = test::to_device(std::vector<float>(65536));
    test::launch(decode_kernel, 1, 32, 0, device_y);
    const std::vector<float> y = test::to_host(device_y, 65536);
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float expected = hs_f16_decode((uint16_t)bits);
        if (expected != expected ? y[bits] == y[bits] : y[bits] != expected)
            return false;
    }
    return true;
}

/* ldmatrix: lane 4 r + t receives [r][2 t], [r][2 t + 1] of each 8 x 8 matrix, or of its transpose. */
template <bool transposed> __global__ void load_matrix_kernel(uint32_t *y)
{
    HS_SHARED(uint16_t, tile, 32 * 24); /* rows of 24: not packed */
    const int lane = (int)threadIdx.x;
    for (int i = lane; i < 32 * 24; i += 32)
        tile[i] = (uint16_t)i;
    __syncwarp();
    uint32_t result[4];
    const uint32_t address = ptx::shared_address(tile + lane * 24 + 8);
    if (transposed)
        ptx::load_matrix_x4_transposed(result, address);
    else
        ptx::load_matrix_x4(result, address);
    for (int i = 0; i < 4; i++)
        y[lane * 4 + i] = result[i];
}
template <bool transposed> static bool load_matrix()
{
    uint32_t *device_y = test::to_device(std::vector<uint32_t>(32 * 4));
    test::launch(load_matrix_kernel<transposed>, 1, 32, 0, device_y);
    const std::vector<uint32_t> y = test::to_host(device_y, 32 * 4);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int r = lane / 4, t = lane % 4;
            const auto at = [&](int row, int column) {
                return (uint32_t)(transposed ? (8 * i + column) * 24 + 8 + row : (8 * i + row) * 24 + 8 + column);
            };
            if (y[(size_t)(lane * 4 + i)] != (at(r, 2 * t) | at(r, 2 * t + 1) << 16))
                return false;
        }
    return true;
}

/* cp.async fills what is not valid with zeros, and reads nothing for 0 valid bytes. */
__global__ void partial_copy_kernel(const float *x, int count, float *y)
{
    HS_DYNAMIC_SHARED(float, tile);
    const int first = (int)threadIdx.x * 4;
    const int valid = max(0, min(4, count - first)) * 4;
    ptx::copy_async_16(ptx::shared_address(tile + first), valid > 0 ? x + first : x, valid);
    ptx::copy_async_commit();
    ptx::copy_async_wait<0>();
    for (int i = 0; i < 4; i++)
        y[first + i] = tile[first + i];
}
static bool partial_copy()
{
    std::vector<float> x(37, 1.5f);
    float *device_x = test::to_device(x), *device_y = test::to_device(std::vector<float>(128, 9.0f));
    test::launch(partial_copy_kernel, 1, 32, 128 * sizeof(float), device_x, 37, device_y);
    x.resize(128, 0.0f);
    return test::to_host(device_y, 128) == x;
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::holds("mma bf16", product<BF16>);
    test::holds("mma f16", product<F16_>);
    test::holds("mma tf32", product<TF32>);
    test::holds("every f16 number", decode);
    test::holds("ldmatrix x4", load_matrix<false>);
    test::holds("ldmatrix x4 transposed", load_matrix<true>);
    test::holds("cp.async in part", partial_copy);
    return test::result();
}
