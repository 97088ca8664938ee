/* SPDX-License-Identifier: MIT
 *
 * wgmma against plain products of matrices, with operands that tensor copies have brought: every width, both orders of
 * both operands, A from registers, both formats; and programs that break its rules.
 */
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"
#include "tests/emu/harness.h"

namespace hs_emu
{

enum { ROWS = 64, DEPTH = 64, STEP = 16, THREADS = 128, TILE_BYTES = 64 * 128 };

enum Bug { NONE, NO_FENCE, NO_WGMMA_WAIT, WRONG_ORDER, NOT_ALL, OTHER_DESCRIPTOR, RETURNS };

/* Element e of a thread's sums, in the manual's words: row and column. */
static int sum_row(int thread, int e)
{
    return thread / 32 * 16 + thread % 32 / 4 + (e % 4 >= 2 ? 8 : 0);
}
static int sum_column(int thread, int e)
{
    return e / 4 * 8 + thread % 4 * 2 + e % 2;
}

/* The four registers of A for columns [k, k + 16) of this warp's rows. */
static __device__ void load_registers(const uint16_t *a, int k, uint32_t (&registers)[4])
{
    const int row = (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4, column = k + (int)threadIdx.x % 4 * 2;
    for (int r = 0; r < 4; r++) {
        const uint16_t *pair = a + (row + r % 2 * 8) * DEPTH + column + r / 2 * 8;
        registers[r] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
    }
}

/* out[thread][sum] = start + A B, in four instructions. */
template <typename Element, int columns, bool a_transposed, bool b_transposed, bool a_in_registers, Bug bug>
static __global__ void product_kernel(const TensorMap map_a, const TensorMap map_b, const uint16_t *a_values,
                                      float start, float *out)
{
    HS_DYNAMIC_SHARED(unsigned char, tiles);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full), a = ptx::shared_address(tiles), b = a + TILE_BYTES;
    if (threadIdx.x == 0)
        ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect(barrier, TILE_BYTES + columns * 128);
        ptx::load_tile(a, &map_a, barrier, 0, 0);
        if (b_transposed)
            for (int n = 0; n < columns; n += 64)
                ptx::load_tile(b + (uint32_t)n * 128, &map_b, barrier, n, 0);
        else
            ptx::load_tile(b, &map_b, barrier, 0, 0);
    }
    ptx::mbarrier_wait(barrier, 0);

    float sums[columns / 2];
    for (float &sum : sums)
        sum = start;
    if (bug == NOT_ALL && threadIdx.x >= 96)
        return;
    const uint64_t a_tile = ptx::wgmma_descriptor(a, 1024, 8192), b_tile = ptx::wgmma_descriptor(b, 1024, 8192);
    constexpr bool b_order = bug == WRONG_ORDER ? !b_transposed : b_transposed;
    if (bug != NO_FENCE)
        ptx::wgmma_fence();
    for (int k = 0; k < DEPTH; k += STEP) {
        const uint32_t bytes = (uint32_t)k * 2;
        uint64_t b_step = ptx::advance_descriptor(b_tile, b_transposed ? (uint32_t)k * 128 : bytes);
        if (bug == OTHER_DESCRIPTOR && threadIdx.x == 5)
            b_step++;
        if (a_in_registers) {
            uint32_t registers[4];
            load_registers(a_values, k, registers);
            ptx::wgmma<Element, b_order>(sums, registers, b_step, k > 0 || start != 0.0f);
        } else {
            const uint64_t a_step = ptx::advance_descriptor(a_tile, a_transposed ? (uint32_t)k * 128 : bytes);
            ptx::wgmma<Element, a_transposed, b_order>(sums, a_step, b_step, k > 0 || start != 0.0f);
        }
    }
    ptx::wgmma_commit();
    if (bug == RETURNS)
        return;
    if (bug != NO_WGMMA_WAIT)
        ptx::wgmma_wait<0>();
    for (int e = 0; e < columns / 2; e++)
        out[(int)threadIdx.x * (columns / 2) + e] = sums[e];
    if (bug == NO_WGMMA_WAIT)
        ptx::wgmma_wait<0>();
}

/* Halves of small whole numbers: every product and sum is exact. */
static float element(int row, int column)
{
    return (float)((row * 5 + column * 3 + row * column % 7) % 15 - 7) * 0.5f;
}

/* `outer` x DEPTH elements, stored with k contiguous, or with the outer index. */
static std::vector<uint16_t> operand(int outer, int seed, bool transposed, bool f16)
{
    std::vector<uint16_t> values((size_t)(outer * DEPTH));
    for (int o = 0; o < outer; o++)
        for (int k = 0; k < DEPTH; k++) {
            const float value = element(o + seed, k);
            values[(size_t)(transposed ? k * outer + o : o * DEPTH + k)] =
                f16 ? hs_f16_encode(value) : hs_bf16_encode(value);
        }
    return values;
}

static TensorMap map_of(uint16_t *device, int outer, bool transposed)
{
    TensorMapShape shape = { device, HS_BF16, 2, { DEPTH, outer }, { 2, DEPTH * 2 }, { 64, outer }, 128 };
    if (transposed) {
        shape.extents[0] = outer, shape.extents[1] = DEPTH;
        shape.strides[1] = outer * 2;
        shape.box[1] = DEPTH;
    }
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        abort();
    return map;
}

template <typename Element, int columns, bool a_transposed, bool b_transposed, bool a_in_registers = false,
          Bug bug = NONE>
static bool product(float start)
{
    const bool f16 = ptx::is_f16<Element>;
    uint16_t *a = test::to_device(operand(ROWS, 0, a_transposed, f16));
    uint16_t *b = test::to_device(operand(columns, 100, b_transposed, f16));
    const size_t count = (size_t)ROWS * columns;
    float *out = test::to_device(std::vector<float>(count));
    test::launch(product_kernel<Element, columns, a_transposed, b_transposed, a_in_registers, bug>, 1, THREADS,
                 (size_t)(TILE_BYTES + columns * 128), map_of(a, ROWS, a_transposed), map_of(b, columns, b_transposed),
                 a, start, out);
    const std::vector<float> sums = test::to_host(out, count);
    for (int thread = 0; thread < THREADS; thread++)
        for (int e = 0; e < columns / 2; e++) {
            float expected = start;
            for (int k = 0; k < DEPTH; k++)
                expected += element(sum_row(thread, e), k) * element(sum_column(thread, e) + 100, k);
            if (sums[(size_t)(thread * (columns / 2) + e)] != expected)
                return false;
        }
    return true;
}

template <int columns> static bool orders()
{
    return product<Bf16, columns, false, false>(0.0f) && product<Bf16, columns, false, true>(1.5f) &&
           product<Bf16, columns, true, false>(2.0f) && product<F16, columns, true, true>(0.0f);
}

static bool registers()
{
    return product<Bf16, 64, false, false, true>(0.0f) && product<Bf16, 64, false, true, true>(1.0f) &&
           product<F16, 128, false, false, true>(0.0f) && product<F16, 128, false, true, true>(-2.0f);
}

/* Registers handed from one warpgroup to the other. */
template <bool too_many> static __global__ void registers_kernel(int *out)
{
    if (threadIdx.x < 128)
        ptx::fewer_registers<40>();
    else
        ptx::more_registers<too_many ? 240 : 232>();
    if (threadIdx.x >= 128 && too_many)
        ptx::more_registers<256>();
    out[threadIdx.x] = 1;
}

template <bool too_many> static bool shares_registers()
{
    int *out = test::to_device(std::vector<int>(384));
    test::launch(registers_kernel<too_many>, 1, 384, 0, out);
    return test::to_host(out, 384)[383] == 1;
}

} // namespace hs_emu

using namespace hs_emu;

int main()
{
    const auto correct = [] { return product<Bf16, 64, false, false>(1.0f); };
    test::holds("64 columns, every order", orders<64>);
    test::holds("128 columns, every order", orders<128>);
    test::holds("256 columns, every order", orders<256>);
    test::holds("A in registers", registers);
    test::holds("registers handed over", shares_registers<false>);
    test::finds("no fence", "no wgmma.fence", correct,
                [] { return product<Bf16, 64, false, false, false, NO_FENCE>(1.0f); });
    test::finds("no wait for the products", nullptr, correct,
                [] { return product<Bf16, 64, false, false, false, NO_WGMMA_WAIT>(1.0f); });
    test::finds("the other order of B", nullptr, correct,
                [] { return product<Bf16, 64, false, false, false, WRONG_ORDER>(1.0f); });
    test::finds("a warp that does not take part", "not take part", correct,
                [] { return product<Bf16, 64, false, false, false, NOT_ALL>(1.0f); });
    test::finds("descriptors that differ", "descriptors or scale differ", correct,
                [] { return product<Bf16, 64, false, false, false, OTHER_DESCRIPTOR>(1.0f); });
    test::finds("the end before the products", "before it waited for its products", correct,
                [] { return product<Bf16, 64, false, false, false, RETURNS>(1.0f); });
    test::finds("more registers than there are", "registers of 65536", shares_registers<false>, shares_registers<true>);
    return test::result();
}
