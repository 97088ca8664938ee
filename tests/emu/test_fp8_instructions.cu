/* SPDX-License-Identifier: MIT
 *
 * mma.sync and wgmma of FP8 codes against sums of integers: a number of E4M3 is a multiple of 2^-9 and one of E5M2 of
 * 2^-16, so that products and sums of small ones are exact in f32 in any order.  Then every code, and how the tensor
 * cores' 14 bits are imitated (kernels/emu/truncated.h).
 */
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"
#include "kernels/emu/truncated.h"
#include "tests/emu/harness.h"

#include <math.h>

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{

enum { DEPTH = 128, STEP = 32, ROWS = 64, TILE_BYTES = ROWS * DEPTH };

template <typename Element> static constexpr bool is_e4m3 = tensor_format<Element> == TensorFormat::E4M3;

template <typename Element> static float decoded(uint8_t code)
{
    return is_e4m3<Element> ? hs_e4m3_decode(code) : hs_e5m2_decode(code);
}

/* In units of the format's smallest number. */
template <typename Element> static int64_t integer(uint8_t code)
{
    return (int64_t)ldexpf(decoded<Element>(code), is_e4m3<Element> ? 9 : 16);
}

/* Magnitudes of at most 2^8 units, of both signs, subnormal ones among them. */
template <typename Element> static uint8_t code_at(int row, int k)
{
    const int magnitude = (row * 7 + k * 11 + row * k % 5) % (is_e4m3<Element> ? 40 : 28);
    return (uint8_t)(magnitude | ((row + k * 3) % 4 == 1 ? 0x80 : 0));
}

template <typename A, typename B> static float exact_sum(int row, int column, int depth)
{
    int64_t sum = 0;
    for (int k = 0; k < depth; k++)
        sum += integer<A>(code_at<A>(row, k)) * integer<B>(code_at<B>(column + 100, k));
    return ldexpf((float)sum, -(is_e4m3<A> ? 9 : 16) - (is_e4m3<B> ? 9 : 16));
}

/* --- mma.sync m16n8k32: fragments written down from the manual, "Matrix Fragments for mma.m16n8k32" --- */

template <typename A, typename B> static __global__ void mma_kernel(const uint32_t *a, const uint32_t *b, float *d)
{
    const int lane = (int)threadIdx.x;
    uint32_t a_registers[4], b_registers[2];
    float sums[4] = { 0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f };
    for (int i = 0; i < 4; i++)
        a_registers[i] = a[lane * 4 + i];
    for (int i = 0; i < 2; i++)
        b_registers[i] = b[lane * 2 + i];
    ptx::mma_fp8<A, B>(sums, a_registers, b_registers);
    for (int i = 0; i < 4; i++)
        d[lane * 4 + i] = sums[i];
}

template <typename A, typename B> static bool mma_product()
{
    std::vector<uint32_t> a(128), b(64);
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < 16; i++) {
            const int row = i < 4 || (i >= 8 && i < 12) ? group : group + 8;
            const int column = i < 8 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16;
            a[(size_t)(lane * 4 + i / 4)] |= (uint32_t)code_at<A>(row, column) << (i % 4 * 8);
        }
        for (int i = 0; i < 8; i++) {
            const int row = i < 4 ? in_group * 4 + (i & 3) : in_group * 4 + (i & 3) + 16;
            b[(size_t)(lane * 2 + i / 4)] |= (uint32_t)code_at<B>(group + 100, row) << (i % 4 * 8);
        }
    }
    uint32_t *device_a = test::to_device(a), *device_b = test::to_device(b);
    float *device_d = test::to_device(std::vector<float>(128));
    test::launch(mma_kernel<A, B>, 1, 32, 0, device_a, device_b, device_d);
    const std::vector<float> d = test::to_host(device_d, 128);
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8, column = lane % 4 * 2 + (i & 1);
            if (d[(size_t)(lane * 4 + i)] != exact_sum<A, B>(row, column, STEP) + (float)(i + 1) * 0x1p-9f)
                return false;
        }
    return true;
}

/* Every code times 1: code c in row c % 8 of A, at the k of c's turn. */
template <typename Element> static __global__ void every_code_kernel(float *y)
{
    const int lane = (int)threadIdx.x;
    for (int first = 0; first < 256; first += 8) {
        const uint32_t a[4] = { lane % 4 == 0 ? (uint32_t)(first + lane / 4) : 0u, 0, 0, 0 };
        const uint32_t b[2] = { lane == 0 ? 0x38u : 0u, 0 };
        float d[4] = {};
        ptx::mma_fp8<Element, E4m3>(d, a, b);
        if (lane % 4 == 0)
            y[first + lane / 4] = d[0];
    }
}

template <typename Element> static bool every_code()
{
    float *y = test::to_device(std::vector<float>(256));
    test::launch(every_code_kernel<Element>, 1, 32, 0, y);
    const std::vector<float> found = test::to_host(y, 256);
    for (int code = 0; code < 256; code++) {
        const float expected = decoded<Element>((uint8_t)code), value = found[(size_t)code];
        if (isnan(expected) ? !isnan(value) : value != expected)
            return false;
    }
    return true;
}

/* --- wgmma m64nNk32 --- */

/* out[thread][sum] = start + A B, in four instructions. */
template <typename A, typename B, int columns>
static __global__ void wgmma_kernel(const TensorMap map_a, const TensorMap map_b, float start, float *out)
{
    HS_DYNAMIC_SHARED(unsigned char, tiles);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full), a = ptx::shared_address(tiles), b = a + TILE_BYTES;
    if (threadIdx.x == 0)
        ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(barrier, TILE_BYTES + columns * DEPTH);
        ptx::load_tile(a, &map_a, barrier, 0, 0);
        ptx::load_tile(b, &map_b, barrier, 0, 0);
    }
    ptx::mbarrier_wait(barrier, 0);
    float sums[columns / 2];
    for (float &sum : sums)
        sum = start;
    const uint64_t a_tile = ptx::wgmma_descriptor(a, 1024, 0), b_tile = ptx::wgmma_descriptor(b, 1024, 0);
    ptx::wgmma_fence();
    for (int k = 0; k < DEPTH; k += STEP)
        ptx::wgmma_fp8<A, B>(sums, ptx::advance_descriptor(a_tile, (uint32_t)k),
                             ptx::advance_descriptor(b_tile, (uint32_t)k), k > 0 || start != 0.0f);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    for (int e = 0; e < columns / 2; e++)
        out[(int)threadIdx.x * (columns / 2) + e] = sums[e];
}

/* Codes are copied as pairs, which are bytes to a copy all the same. */
template <typename Element> static TensorMap codes(int rows, int first_row)
{
    std::vector<uint8_t> values((size_t)(rows * DEPTH));
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < DEPTH; k++)
            values[(size_t)(row * DEPTH + k)] = code_at<Element>(row + first_row, k);
    const TensorMapShape shape = {
        test::to_device(values), HS_BF16, 2, { DEPTH / 2, rows }, { 2, DEPTH }, { 64, rows }, 128
    };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        abort();
    return map;
}

template <typename A, typename B, int columns> static bool wgmma_product(float start)
{
    const size_t count = (size_t)ROWS * columns;
    float *out = test::to_device(std::vector<float>(count));
    test::launch(wgmma_kernel<A, B, columns>, 1, 128, (size_t)(TILE_BYTES + columns * DEPTH), codes<A>(ROWS, 0),
                 codes<B>(columns, 100), start, out);
    const std::vector<float> sums = test::to_host(out, count);
    for (int thread = 0; thread < 128; thread++)
        for (int e = 0; e < columns / 2; e++) {
            const int row = thread / 32 * 16 + thread % 32 / 4 + (e % 4 >= 2 ? 8 : 0);
            const int column = e / 4 * 8 + thread % 4 * 2 + e % 2;
            if (sums[(size_t)(thread * (columns / 2) + e)] != start + exact_sum<A, B>(row, column, DEPTH))
                return false;
        }
    return true;
}

/* --- 14 bits --- */

static void expect(const char *what, float computed, float expected)
{
    printf("%s %s: %a%s", computed == expected ? "ok  " : "FAIL", what, (double)computed,
           computed == expected ? "\n" : "");
    if (computed != expected)
        printf(", %a expected\n", (double)expected);
    test::failures += computed != expected;
}

/* c + the products of a and ones. */
static float sum_of(float c, std::initializer_list<float> a)
{
    float operand[32] = {}, ones[32];
    for (float &one : ones)
        one = 1.0f;
    int count = 0;
    for (float value : a)
        operand[count++] = value;
    truncated_sums(emulator::adder_of_fp8(), emulator::LeastExponents(TensorFormat::E4M3, TensorFormat::E4M3), operand,
                   32, ones, 1, 1, &c);
    return c;
}

static void by_hand()
{
    expect("2^-9 next to 1 is kept", sum_of(1.0f, { 0x1p-9f, 0x1p-9f }), 1.0f + 0x1p-8f);
    expect("next to 2^5 2^-8 is", sum_of(32.0f, { 0x1p-8f }), 32.0f + 0x1p-8f);
    expect("2^-9 is not, however often", sum_of(32.0f, { 0x1p-9f, 0x1p-9f, 0x1p-9f, 0x1p-9f }), 32.0f);
    expect("towards zero from below, too", sum_of(-32.0f, { -0x1p-9f }), -32.0f);
    expect("a sum has 14 bits", sum_of(0x1.fff8p0f, { 1.0f }), 0x1.7ff8p1f);
    expect("a subnormal factor aligns as 2^-6", sum_of(0x1p-20f, { 0x1p-9f }), 0x1p-9f);
}

/* 4096 products of one sign: by 14 bits a sum stands still when it has grown enough; in parts of 128, which are added in
 * f32, it loses less than the 32 x 2^-13 of each instruction. */
static void long_sum()
{
    float ones[32], part = 0.0f, straight = 0.0f, promoted = 0.0f;
    for (float &one : ones)
        one = 1.0f;
    float a[32];
    for (int k = 0; k < 32; k++)
        a[k] = 1.0f + (float)(k % 8) * 0.125f;
    const emulator::LeastExponents least(TensorFormat::E4M3, TensorFormat::E4M3);
    for (int k = 0; k < 4096; k += 32) {
        truncated_sums(emulator::adder_of_fp8(), least, a, 32, ones, 1, 1, &straight);
        part = k % 128 == 0 ? 0.0f : part;
        truncated_sums(emulator::adder_of_fp8(), least, a, 32, ones, 1, 1, &part);
        promoted += k % 128 == 96 ? part : 0.0f;
    }
    const float exact = 4096.0f * 1.4375f;
    expect("promoted every 128 of k the sum is exact here", promoted, exact);
    printf("%s and straight it is off: %g of %g\n", straight < exact ? "ok  " : "FAIL", (double)straight,
           (double)exact);
    test::failures += !(straight < exact);
}

} // namespace hs_emu

int main()
{
    using namespace hs_emu;
    test::holds("mma e4m3 e4m3", mma_product<E4m3, E4m3>);
    test::holds("mma e5m2 e4m3", mma_product<E5m2, E4m3>);
    test::holds("every code of e4m3", every_code<E4m3>);
    test::holds("every code of e5m2", every_code<E5m2>);
    test::holds("wgmma e4m3 e4m3, 128 columns", [] { return wgmma_product<E4m3, E4m3, 128>(0.0f); });
    test::holds("wgmma e5m2 e4m3, 128 columns", [] { return wgmma_product<E5m2, E4m3, 128>(0x3p-9f); });
    test::holds("wgmma e4m3 e4m3, 256 columns", [] { return wgmma_product<E4m3, E4m3, 256>(-0x1p-9f); });
    test::holds("wgmma e5m2 e4m3, 256 columns", [] { return wgmma_product<E5m2, E4m3, 256>(0.0f); });
    by_hand();
    long_sum();
    return test::result();
}
