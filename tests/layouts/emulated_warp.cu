/* SPDX-License-Identifier: MIT
 *
 * What one warp does: fragments of mma.sync, rows and registers of ldmatrix.
 */
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"
#include "tests/emu/harness.h"
#include "tests/layouts/emulated.h"

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{

typedef void (*Multiply)(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2]);

/* Fragments come and go through memory: register r of lane l at [l][r]. */
template <Multiply multiply> __global__ void mma_kernel(const uint32_t *a, const uint32_t *b, float *d, bool planted)
{
    const int lane = (int)threadIdx.x;
    uint32_t a_registers[4], b_registers[2];
    float d_registers[4];
    for (int i = 0; i < 4; i++) {
        a_registers[planted ? i ^ (i == 1 || i == 2 ? 3 : 0) : i] = a[lane * 4 + i];
        d_registers[i] = d[lane * 4 + i];
    }
    for (int i = 0; i < 2; i++)
        b_registers[i] = b[lane * 2 + i];
    multiply(d_registers, a_registers, b_registers);
    for (int i = 0; i < 4; i++)
        d[lane * 4 + i] = d_registers[i];
}

static uint32_t bf16_bits(float value)
{
    return hs_bf16_encode(value);
}
static uint32_t f16_bits(float value)
{
    return hs_f16_encode(value);
}
static uint32_t tf32_bits(float value)
{
    return __float_as_uint(value);
}

struct MmaRow {
    const char *name;
    void (*kernel)(const uint32_t *, const uint32_t *, float *, bool);
    uint32_t (*encode)(float);
    int k, parts; /* elements of a register */
};

static const MmaRow mma_rows[] = {
    { "mma.m16n8k16 bf16", mma_kernel<ptx::mma_bf16>, bf16_bits, 16, 2 },
    { "mma.m16n8k16 f16", mma_kernel<ptx::mma_f16>, f16_bits, 16, 2 },
    { "mma.m16n8k8 tf32", mma_kernel<ptx::mma_tf32>, tf32_bits, 8, 1 },
};
enum { M = 16, N = 8 };

/* Registers with value(i) as their i-th element, in the order of lanes. */
template <typename Value> static std::vector<uint32_t> registers_of(const MmaRow &row, int count, Value value)
{
    std::vector<uint32_t> registers((size_t)(count / row.parts));
    for (int i = 0; i < count; i++)
        registers[(size_t)(i / row.parts)] |= row.encode(value(i)) << (i % row.parts * 16);
    return registers;
}

/* Registers that hold value(outer, k), as CuTe lays them. */
template <typename Value>
static std::vector<uint32_t> operand_of(const MmaRow &row, const layouts::Table &layout, Value value)
{
    return registers_of(row, (int)layout.numbers.size(), [&](int i) {
        const int place = (int)layout.numbers[(size_t)i];
        return value(place / row.k, place % row.k);
    });
}

static std::vector<float> multiply(const MmaRow &row, const std::vector<uint32_t> &a, const std::vector<uint32_t> &b,
                                   const std::vector<float> &start, bool planted)
{
    float *d = test::to_device(start);
    if (!test::launch(row.kernel, 1, 32, 0, test::to_device(a), test::to_device(b), d, planted))
        exit(1);
    return test::to_host(d, start.size());
}

/* Where codes that were put into A's registers come out when B is a part of the identity, and the other way round. */
static void find_operands(layouts::Experiments &experiments, const MmaRow &row)
{
    const std::string name = row.name;
    const layouts::Table &cute_a = experiments.expected("mma", name + " A");
    const layouts::Table &cute_b = experiments.expected("mma", name + " B");
    const layouts::Table &cute_c = experiments.expected("mma", name + " C");
    layouts::Table &a = experiments.answer("mma", name + " A"), &b = experiments.answer("mma", name + " B");
    const bool planted = experiments.is_planted("mma");
    const std::vector<float> zeros(M * N);
    const auto code = [](int i) { return (float)i; };
    for (int first = 0; first < row.k; first += N) {
        const std::vector<float> d = multiply(
            row, registers_of(row, M * row.k, code),
            operand_of(row, cute_b, [=](int n, int k) { return k == first + n ? 1.0f : 0.0f; }), zeros, planted);
        for (size_t i = 0; i < d.size(); i++)
            set_number(a, (int64_t)d[i], cute_c.numbers[i] / N * row.k + first + cute_c.numbers[i] % N);
    }
    const std::vector<float> d =
        multiply(row, operand_of(row, cute_a, [](int m, int k) { return m == k ? 1.0f : 0.0f; }),
                 registers_of(row, N * row.k, code), zeros, planted);
    for (size_t i = 0; i < d.size(); i++)
        if (cute_c.numbers[i] / N < row.k)
            set_number(b, (int64_t)d[i], cute_c.numbers[i] % N * row.k + cute_c.numbers[i] / N);
}

/* Sums: the row, then the column, as a product, added to a code of the register: C is where D is. */
static void find_sums(layouts::Experiments &experiments, const MmaRow &row)
{
    const std::string name = row.name;
    const layouts::Table &cute_a = experiments.expected("mma", name + " A");
    const layouts::Table &cute_b = experiments.expected("mma", name + " B");
    layouts::Table &c = experiments.answer("mma", name + " C");
    const bool planted = experiments.is_planted("mma");
    std::vector<float> start(M * N);
    for (size_t i = 0; i < start.size(); i++)
        start[i] = 256.0f * (float)i;
    const auto one = [](int, int k) { return k == 0 ? 1.0f : 0.0f; };
    const auto outer = [](int index, int k) { return k == 0 ? (float)index : 0.0f; };
    const std::vector<float> rows =
        multiply(row, operand_of(row, cute_a, outer), operand_of(row, cute_b, one), start, planted);
    const std::vector<float> columns =
        multiply(row, operand_of(row, cute_a, one), operand_of(row, cute_b, outer), start, planted);
    for (size_t i = 0; i < start.size(); i++)
        if ((size_t)rows[i] / 256 == i && (size_t)columns[i] / 256 == i)
            c.numbers[i] = (int64_t)(rows[i] - start[i]) * N + (int64_t)(columns[i] - start[i]);
}

/* Each lane fills a row of eight elements and gives its address: which lane receives which. */
template <bool transposed> __global__ void load_matrix_kernel(uint32_t *y)
{
    HS_SHARED(uint16_t, rows, 32 * 8);
    const int lane = (int)threadIdx.x;
    for (int i = 0; i < 8; i++)
        rows[lane * 8 + i] = (uint16_t)(lane * 8 + i);
    __syncwarp();
    uint32_t registers[4];
    const uint32_t address = ptx::shared_address(rows + lane * 8);
    if constexpr (transposed)
        ptx::load_matrix_x4_transposed(registers, address);
    else
        ptx::load_matrix_x4(registers, address);
    for (int i = 0; i < 4; i++)
        y[lane * 4 + i] = registers[i];
}

typedef void (*LoadMatrix)(uint32_t *);
struct LoadMatrixRow {
    const char *name;
    int matrices;
    LoadMatrix kernel, other; /* the other: with the mistake */
};

static const LoadMatrixRow load_matrix_rows[] = {
    { "ldmatrix.x4", 4, load_matrix_kernel<false>, load_matrix_kernel<true> },
    { "ldmatrix.x4.trans", 4, load_matrix_kernel<true>, load_matrix_kernel<false> },
};

} // namespace hs_emu

void layouts::run_mma(Experiments &experiments)
{
    for (const hs_emu::MmaRow &row : hs_emu::mma_rows) {
        find_operands(experiments, row);
        find_sums(experiments, row);
    }
}

void layouts::run_load_matrix(Experiments &experiments)
{
    for (const hs_emu::LoadMatrixRow &row : hs_emu::load_matrix_rows) {
        const size_t count = (size_t)(32 * row.matrices);
        uint32_t *y = test::to_device(std::vector<uint32_t>(count));
        if (!test::launch(experiments.is_planted("ldmatrix") ? row.other : row.kernel, 1, 32, 0, y))
            exit(1);
        const std::vector<uint32_t> registers = test::to_host(y, count);
        Table &table = experiments.answer("ldmatrix", row.name);
        for (size_t i = 0; i < count; i++)
            for (int half = 0; half < 2; half++)
                table.numbers[2 * i + (size_t)half] = registers[i] >> 16 * half & 0xffff;
    }
}
