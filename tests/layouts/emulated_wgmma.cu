/* SPDX-License-Identifier: MIT
 *
 * What a warpgroup does: the sums of wgmma, an A in registers, and where in shared memory operands are read.
 */
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"
#include "tests/emu/harness.h"
#include "tests/layouts/emulated.h"

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{

enum { THREADS = 128, ROWS = 64, DEPTH = 64, STEP = 16, A_CELLS = ROWS * DEPTH, B_CELLS = 256 * DEPTH };

/* One instruction: 16-bit cells of shared memory, the operands' descriptors as CuTe gives them for tiles at 0 (or A's
 * registers), and the sums [thread][register] before and after. */
struct Instruction {
    const uint16_t *a, *b;
    const uint32_t *registers;
    uint64_t a_bits, b_bits;
    float *sums;
    bool planted;
};

/* The descriptor of a tile that is moved to `address`; the layout type is the one that it had. */
HS_DEVICE uint64_t moved(uint64_t bits, uint32_t address)
{
    return (ptx::wgmma_descriptor(address, 0, 0) & ~((uint64_t)3 << 62)) + bits;
}

template <typename Element, int columns, bool a_transposed, bool b_transposed, bool a_in_registers>
__global__ void wgmma_kernel(const Instruction instruction)
{
    HS_DYNAMIC_SHARED(uint16_t, cells);
    const int thread = (int)threadIdx.x, count = columns / 2;
    for (int i = thread; i < A_CELLS; i += THREADS)
        cells[i] = instruction.a[i];
    for (int i = thread; i < columns * DEPTH; i += THREADS)
        cells[A_CELLS + i] = instruction.b[i];
    ptx::fence_shared_to_async();
    __syncthreads();
    /* A mistake that is planted exchanges registers 1 and 2. */
    const auto place = [&](int i) { return instruction.planted && (i % 4 == 1 || i % 4 == 2) ? i ^ 3 : i; };
    float sums[columns / 2];
    for (int i = 0; i < count; i++)
        sums[i] = instruction.sums[thread * count + i];
    const uint64_t b = moved(instruction.b_bits, ptx::shared_address(cells + A_CELLS));
    ptx::wgmma_fence();
    if constexpr (a_in_registers) {
        uint32_t registers[4];
        for (int i = 0; i < 4; i++)
            registers[place(i)] = instruction.registers[thread * 4 + i];
        ptx::wgmma<Element, b_transposed>(sums, registers, b, true);
    } else {
        const uint64_t a = moved(instruction.a_bits, ptx::shared_address(cells));
        ptx::wgmma<Element, a_transposed, b_transposed>(sums, a, b, true);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    for (int i = 0; i < count; i++)
        instruction.sums[thread * count + i] = sums[a_in_registers ? i : place(i)];
}

typedef void (*Kernel)(const Instruction);

struct WgmmaRow {
    const char *name, *operand;
    int columns;
    uint16_t (*encode)(float);
    Kernel plain, a_across, b_across, registers; /* registers: NULL where the wrappers have no such instruction */
};

#define HS_WGMMA_ROW(name, operand, Element, columns, encode, registers)                                            \
    {                                                                                                               \
        name, operand, columns, encode, wgmma_kernel<Element, columns, false, false, false>,                        \
            wgmma_kernel<Element, columns, true, false, false>, wgmma_kernel<Element, columns, false, true, false>, \
            registers                                                                                               \
    }

static const WgmmaRow wgmma_rows[] = {
    HS_WGMMA_ROW("wgmma.m64n64k16 bf16", "bf16", Bf16, 64, hs_bf16_encode,
                 (wgmma_kernel<Bf16, 64, false, false, true>)),
    HS_WGMMA_ROW("wgmma.m64n128k16 bf16", "bf16", Bf16, 128, hs_bf16_encode,
                 (wgmma_kernel<Bf16, 128, false, false, true>)),
    HS_WGMMA_ROW("wgmma.m64n256k16 bf16", "bf16", Bf16, 256, hs_bf16_encode, nullptr),
    HS_WGMMA_ROW("wgmma.m64n64k16 f16", "f16", F16, 64, hs_f16_encode, (wgmma_kernel<F16, 64, false, false, true>)),
    HS_WGMMA_ROW("wgmma.m64n128k16 f16", "f16", F16, 128, hs_f16_encode, (wgmma_kernel<F16, 128, false, false, true>)),
    HS_WGMMA_ROW("wgmma.m64n256k16 f16", "f16", F16, 256, hs_f16_encode, nullptr),
};

/* An operand in shared memory: its image, and its descriptor for one step of k. */
struct Operand {
    std::vector<uint16_t> image;
    uint64_t bits;
};

static const std::string PLAIN = " K-major swizzle 128";

/* value(outer, k) for k of the first step, as CuTe lays it out K-major with the swizzle of 128 bytes; else zero. */
template <typename Value>
static Operand operand_of(const layouts::Experiments &experiments, const WgmmaRow &row, bool is_a, Value value)
{
    /* A's rows are in the list of the narrowest instruction. */
    const std::string name = is_a ? std::string("wgmma.m64n64k16 ") + row.operand + " A" : std::string(row.name) + " B";
    const layouts::Table &layout = experiments.expected("operand", name + PLAIN);
    Operand operand = { std::vector<uint16_t>(is_a ? A_CELLS : B_CELLS),
                        (uint64_t)experiments.expected("given", name + PLAIN).numbers[0] };
    for (size_t i = 0; i < layout.numbers.size(); i++) {
        const int outer = (int)i / DEPTH, k = (int)i % DEPTH;
        if (k < STEP)
            operand.image[(size_t)layout.numbers[i] / 2] = row.encode(value(outer, k));
    }
    return operand;
}

static float identity(int outer, int k)
{
    return outer == k ? 1.0f : 0.0f;
}
static float first(int, int k)
{
    return k == 0 ? 1.0f : 0.0f;
}
static float outer_at_first(int outer, int k)
{
    return k == 0 ? (float)outer : 0.0f;
}

/* Device memory is freed: there are hundreds of runs. */
static std::vector<float> multiply(const WgmmaRow &row, Kernel kernel, const Operand &a, const Operand &b,
                                   const std::vector<uint32_t> &registers, const std::vector<float> &start,
                                   bool planted)
{
    uint16_t *device_a = test::to_device(a.image), *device_b = test::to_device(b.image);
    uint32_t *device_registers = registers.empty() ? nullptr : test::to_device(registers);
    float *sums = test::to_device(start);
    const Instruction instruction = { device_a, device_b, device_registers, a.bits, b.bits, sums, planted };
    if (!test::launch(kernel, 1, THREADS, (size_t)(A_CELLS + row.columns * DEPTH) * 2, instruction))
        exit(1);
    const std::vector<float> result = test::to_host(sums, start.size());
    for (void *pointer : { (void *)device_a, (void *)device_b, (void *)device_registers, (void *)sums })
        cudaFree(pointer);
    return result;
}

/* The row, then the column, as a product, added to a code of the register. */
static void find_sums(layouts::Experiments &experiments, const WgmmaRow &row)
{
    layouts::Table &table = experiments.answer("sums", row.name);
    const bool planted = experiments.is_planted("sums");
    std::vector<float> start((size_t)(ROWS * row.columns));
    for (size_t i = 0; i < start.size(); i++)
        start[i] = 256.0f * (float)i;
    const auto run = [&](float (*a)(int, int), float (*b)(int, int)) {
        return multiply(row, row.plain, operand_of(experiments, row, true, a), operand_of(experiments, row, false, b),
                        {}, start, planted);
    };
    const std::vector<float> rows = run(outer_at_first, first), columns = run(first, outer_at_first);
    /* Where another register's code comes back, nothing was found; the mistake is to show places, so it is let through.
     */
    for (size_t i = 0; i < start.size(); i++)
        if (planted || ((size_t)rows[i] / 256 == i && (size_t)columns[i] / 256 == i))
            table.numbers[i] = (int64_t)rows[i] % 256 * row.columns + (int64_t)columns[i] % 256;
}

/* Codes in A's registers come out where B is the identity. */
static void find_registers(layouts::Experiments &experiments, const WgmmaRow &row)
{
    const layouts::Table &sums = experiments.expected("sums", row.name);
    layouts::Table &table = experiments.answer("registers", row.name);
    const Operand a = { std::vector<uint16_t>(A_CELLS), 0 }, b = operand_of(experiments, row, false, identity);
    const std::vector<float> zeros((size_t)(ROWS * row.columns));
    std::vector<float> digits[2];
    for (int digit = 0; digit < 2; digit++) {
        std::vector<uint32_t> registers(THREADS * 4);
        for (size_t i = 0; i < registers.size() * 2; i++)
            registers[i / 2] |= (uint32_t)row.encode(layouts::digit_of((int64_t)i, digit)) << (i % 2 * 16);
        digits[digit] = multiply(row, row.registers, a, b, registers, zeros, experiments.is_planted("registers"));
    }
    for (size_t i = 0; i < zeros.size(); i++)
        if (sums.numbers[i] % row.columns < STEP)
            set_number(table, (int64_t)(digits[1][i] * 128 + digits[0][i]),
                       sums.numbers[i] / row.columns * STEP + sums.numbers[i] % row.columns);
}

/* Each cell of the tile holds a code of its place; which of them are the elements of each step, the other operand being
 * the identity. */
static void find_operand(layouts::Experiments &experiments, const WgmmaRow &row, const std::string &name, bool is_a,
                         Kernel kernel)
{
    const layouts::Table &sums = experiments.expected("sums", row.name), &given = experiments.expected("given", name);
    layouts::Table &table = experiments.answer("operand", name);
    const Operand other = operand_of(experiments, row, !is_a, identity);
    const std::vector<float> zeros((size_t)(ROWS * row.columns));
    for (int step = 0; step < DEPTH / STEP; step++) {
        std::vector<float> digits[2];
        for (int digit = 0; digit < 2; digit++) {
            Operand coded = { std::vector<uint16_t>(is_a ? A_CELLS : B_CELLS), (uint64_t)given.numbers[(size_t)step] };
            for (size_t i = 0; i < coded.image.size(); i++)
                coded.image[i] = row.encode(layouts::digit_of((int64_t)i, digit));
            digits[digit] = multiply(row, kernel, is_a ? coded : other, is_a ? other : coded, {}, zeros, false);
        }
        for (size_t i = 0; i < zeros.size(); i++) {
            const int64_t m = sums.numbers[i] / row.columns, n = sums.numbers[i] % row.columns;
            const int64_t outer = is_a ? m : n, k = is_a ? n : m;
            if (k < STEP)
                table.numbers[(size_t)(outer * DEPTH + step * STEP + k)] =
                    (int64_t)(digits[1][i] * 128 + digits[0][i]) * 2;
        }
    }
}

static void find_operands(layouts::Experiments &experiments, const WgmmaRow &row)
{
    for (const char *swizzle : { "128", "64", "32", "0" }) {
        const std::string name = row.name, along = std::string(" K-major swizzle ") + swizzle;
        const std::string across = std::string(" outer-major swizzle ") + swizzle;
        /* The mistake: the other transpose bit.  Here it does not lead out of the tile. */
        const bool planted = experiments.is_planted("operand") && along == PLAIN;
        if (row.columns == 64) {
            find_operand(experiments, row, name + " A" + along, true, planted ? row.a_across : row.plain);
            find_operand(experiments, row, name + " A" + across, true, row.a_across);
        }
        find_operand(experiments, row, name + " B" + along, false, planted ? row.b_across : row.plain);
        find_operand(experiments, row, name + " B" + across, false, row.b_across);
    }
}

} // namespace hs_emu

void layouts::run_sums(Experiments &experiments)
{
    for (const hs_emu::WgmmaRow &row : hs_emu::wgmma_rows)
        find_sums(experiments, row);
}

void layouts::run_registers(Experiments &experiments)
{
    for (const hs_emu::WgmmaRow &row : hs_emu::wgmma_rows)
        if (row.registers != nullptr)
            find_registers(experiments, row);
}

void layouts::run_operands(Experiments &experiments)
{
    for (const hs_emu::WgmmaRow &row : hs_emu::wgmma_rows)
        find_operands(experiments, row);
}
