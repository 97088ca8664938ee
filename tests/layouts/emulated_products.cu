/* SPDX-License-Identifier: MIT
 *
 * The kernels' own functions: the descriptors that they give to wgmma, which are recorded in the place of products, and
 * what they write to shared memory by themselves, in the swizzle that tensor copies and products expect.
 */
#include "kernels/cuda/toolbox/ptx_mbarrier.cuh"
#include "tests/emu/harness.h"
#include "tests/layouts/emulated.h"

namespace hs_emu
{

static std::vector<WarpgroupProduct> recorded;

static inline void record_product(const WarpgroupProduct &product)
{
    recorded.push_back(product);
}
static inline void record_nothing()
{
}

} // namespace hs_emu

/* The wrappers of ptx_wgmma.cuh, static functions all of them, call these from here on. */
#define emulated_wgmma        record_product
#define emulated_wgmma_fence  record_nothing
#define emulated_wgmma_commit record_nothing
#include "kernels/cuda/attention/attention_backward_hopper.cu"
#include "kernels/cuda/product/matmul_hopper.cuh"
#include "kernels/cuda/product/matmul_tiles.cuh"

extern "C" {
#include "kernels/base/dtype.h"
}

namespace hs_emu
{

using layouts::Experiments;
using layouts::Table;

enum { CONSUMERS_OF_A_BLOCK = 2 };

/* What is recorded of one operand, as CuTe's tables have it (PTX ISA, "Matrix Descriptor Format" of wgmma). */
static void read_descriptors(Experiments &experiments, const std::string &name, int consumer, bool is_a)
{
    const bool first_consumer = consumer == 0;
    const auto table_of = [&](const char *kind) -> Table & {
        return first_consumer ? experiments.answer(kind, name) : experiments.own.at({ kind, name });
    };
    Table &start = table_of("start"), &advance = table_of("advance"), &leading = table_of("leading");
    Table &stride = table_of("stride"), &type = table_of("type"), &instruction = table_of("instruction");
    const auto planted = [&](const char *kind, int64_t by) { return experiments.is_planted(kind) ? by : 0; };
    const size_t steps = recorded.size();
    if (consumer * steps + steps > advance.numbers.size())
        return; /* numbers that are not found will tell */
    const auto bits_of = [&](size_t step) { return is_a ? recorded[step].a_descriptor : recorded[step].b_descriptor; };
    /* Addresses below 2^18 have nothing in the emulator's own bits, nor in those that hardware wants zero. */
    const auto start_of = [](uint64_t bits) {
        return (bits >> 14 & 3) == 0 && (bits >> 30 & 3) == 0 && (bits >> 46 & 7) == 0 && (bits >> 52 & 0x3ff) == 0
                   ? (int64_t)(bits & 0x3fff) * 16
                   : (int64_t)layouts::NOWHERE;
    };
    start.numbers[(size_t)consumer] = start_of(bits_of(0)) + planted("start", 1024);
    for (size_t step = 0; step < steps; step++) {
        const uint64_t bits = bits_of(step);
        const WarpgroupProduct &product = recorded[step];
        const size_t place = (size_t)consumer * steps + step;
        advance.numbers[place] = start_of(bits) - start_of(bits_of(0)) + planted("advance", 32 * (int64_t)step);
        leading.numbers[place] = (int64_t)(bits >> 16 & 0x3fff) * 16 + planted("leading", 16);
        stride.numbers[place] = (int64_t)(bits >> 32 & 0x3fff) * 16 + planted("stride", 1024);
        type.numbers[place] = (int64_t)(bits >> 49 & 7) * 4 + (int64_t)(bits >> 62 ^ (uint64_t)planted("type", 3));
        const bool transposed = is_a ? product.a_transposed : product.b_transposed;
        instruction.numbers[place] = (product.columns * 2 + (product.a_format == TensorFormat::F16)) * 2 +
                                     (transposed != (planted("instruction", 1) != 0));
    }
}

template <typename T, typename Tile, bool a_contiguous, bool b_contiguous>
static void record_hopper_multiply(Experiments &experiments, const char *type)
{
    static const char *const orders[] = { "outer-major", "K-major" };
    const std::string name = "hopper_multiply " + std::to_string(Tile::columns) + " " + type + ", A " +
                             orders[a_contiguous] + ", B " + orders[b_contiguous] + ": ";
    const HopperRing<Tile> ring = { layouts::TILE_ADDRESS };
    for (int consumer = 0; consumer < CONSUMERS_OF_A_BLOCK; consumer++) {
        float sums[Tile::columns / 2] = {};
        recorded.clear();
        HopperMultiply<T, Tile, a_contiguous, b_contiguous>::issue(ring, 0, consumer, sums, false);
        read_descriptors(experiments, name + "A", consumer, true);
        read_descriptors(experiments, name + "B", consumer, false);
    }
}

template <typename T, int width, int b_rows> static void record_begin_rows(Experiments &experiments, const char *type)
{
    typedef HeadTile<width, 128> ATile;
    typedef HeadTile<width, b_rows> BTile;
    const std::string name = "begin_rows " + std::to_string(width) + " x " + std::to_string(b_rows) + " " + type + ": ";
    for (int consumer = 0; consumer < CONSUMERS_OF_A_BLOCK; consumer++) {
        float sums[b_rows / 2] = {};
        recorded.clear();
        begin_rows<T, ATile, BTile>(sums, layouts::TILE_ADDRESS, consumer * 64, layouts::TILE_ADDRESS + ATile::bytes);
        read_descriptors(experiments, name + "A", consumer, true);
        read_descriptors(experiments, name + "B", consumer, false);
    }
}

template <typename T, int width, int rows> static void record_begin_weights(Experiments &experiments, const char *type)
{
    const std::string name = "begin_weights " + std::to_string(width) + " x " + std::to_string(rows) + " " + type;
    for (int consumer = 0; consumer < CONSUMERS_OF_A_BLOCK; consumer++) {
        float sums[width / 2] = {};
        const uint32_t weights[rows / 16][4] = {};
        recorded.clear();
        begin_weights<T, HeadTile<width, rows>>(sums, weights, layouts::TILE_ADDRESS, true);
        read_descriptors(experiments, name + ": B", consumer, false);
    }
}

template <typename T, int width> static void record_begin_query_part(Experiments &experiments, const char *type)
{
    typedef GradientShape<width> Shape;
    const std::string name = "begin_query_part " + std::to_string(width) + " " + type + ": ";
    for (int consumer = 0; consumer < CONSUMERS_OF_A_BLOCK; consumer++) {
        float part[32] = {};
        recorded.clear();
        begin_query_part<T, Shape>(part, layouts::TILE_ADDRESS, layouts::TILE_ADDRESS + Shape::score_bytes, consumer);
        read_descriptors(experiments, name + "A", consumer, true);
        read_descriptors(experiments, name + "B", consumer, false);
    }
}

template <typename T> static void record_products(Experiments &experiments, const char *type)
{
/* Of a block's rows, half of a tile's; where consumers share them. */
#define HS_MULTIPLY_ROWS(rows, columns, stages, rate)                                                        \
    if constexpr (HopperTile<(rows) / 2, columns, stages>::shared) {                                         \
        record_hopper_multiply<T, HopperTile<(rows) / 2, columns, stages>, true, true>(experiments, type);   \
        record_hopper_multiply<T, HopperTile<(rows) / 2, columns, stages>, true, false>(experiments, type);  \
        record_hopper_multiply<T, HopperTile<(rows) / 2, columns, stages>, false, true>(experiments, type);  \
        record_hopper_multiply<T, HopperTile<(rows) / 2, columns, stages>, false, false>(experiments, type); \
    }
    HS_MATMUL_TILES_HOPPER(HS_MULTIPLY_ROWS)
#undef HS_MULTIPLY_ROWS
    record_begin_rows<T, 64, 128>(experiments, type);
    record_begin_rows<T, 128, 128>(experiments, type);
    record_begin_rows<T, 128, 64>(experiments, type);
    record_begin_weights<T, 64, 128>(experiments, type);
    record_begin_weights<T, 128, 128>(experiments, type);
    record_begin_weights<T, 128, 64>(experiments, type);
    record_begin_query_part<T, 64>(experiments, type);
    record_begin_query_part<T, 128>(experiments, type);
}

/* ---- What threads write. */

template <typename T, int width>
__global__ void results_kernel(const float *sums, int planted_row, unsigned char *image)
{
    typedef HeadTile<width, 64> Result;
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const int thread = (int)threadIdx.x;
    float own[width / 2];
    for (int i = 0; i < width / 2; i++)
        own[i] = sums[thread * (width / 2) + i];
    const float factors[2] = { 1.0f, 1.0f };
    stage_results<T, Result>(own, factors, shared, (thread / 32 * 16 + thread % 32 / 4) ^ planted_row);
    __syncthreads();
    for (int i = thread; i < Result::bytes; i += 128)
        image[i] = shared[i];
}

/* blocks: [lane][value]; of a warp's part as many as fill a buffer. */
template <typename T> __global__ void blocks_kernel(const float *sums, int planted_value, unsigned char *image)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const int lane = (int)threadIdx.x;
    float blocks[32];
    for (int i = 0; i < 32; i++)
        blocks[i ^ planted_value] = sums[lane * 32 + i];
    stage_blocks(T{}, shared, blocks);
    __syncwarp();
    for (int i = lane; i < HopperStaging::buffer_bytes; i += 32)
        image[i] = shared[i];
}

/* weights: [thread][pair][register]. */
template <typename Shape> __global__ void scores_kernel(const uint32_t *weights, int planted_line, unsigned char *image)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    constexpr int pairs = Shape::step / 16;
    const int thread = (int)threadIdx.x;
    uint32_t own[pairs][4];
    for (int i = 0; i < pairs * 4; i++)
        own[i / 4][i % 4] = weights[thread * pairs * 4 + i];
    store_scores(own, shared, Shape::score_box, thread / 32 * 16 ^ planted_line);
    __syncthreads();
    for (int i = thread; i < Shape::score_bytes; i += 256)
        image[i] = shared[i];
}

/* Rows, then columns, through registers of sums, and back from each 16-bit element that was written. */
static void find_rounded(Experiments &experiments, const std::string &name, const std::string &sums_name, bool f16,
                         int threads, void (*kernel)(const float *, int, unsigned char *))
{
    Table &table = experiments.answer("staging", name);
    const Table &sums = experiments.expected("sums", sums_name);
    const int64_t columns = sums.value[1].count, registers = sums.index[1].count;
    const size_t bytes = table.numbers.size() * 2;
    std::vector<int64_t> places(table.numbers.size());
    for (int part = 0; part < 2; part++) {
        std::vector<float> values((size_t)(threads * registers));
        for (size_t i = 0; i < values.size(); i++)
            values[i] = (float)(part == 0 ? sums.numbers[i] / columns : sums.numbers[i] % columns);
        unsigned char *image = test::to_device(std::vector<unsigned char>(bytes));
        if (!test::launch(kernel, 1, threads, bytes, test::to_device(values), experiments.is_planted("staging") ? 1 : 0,
                          image))
            exit(1);
        const std::vector<unsigned char> written = test::to_host(image, bytes);
        for (size_t i = 0; i < places.size(); i++) {
            const uint16_t bits = (uint16_t)(written[2 * i] | written[2 * i + 1] << 8);
            const float value = f16 ? hs_f16_decode(bits) : hs_bf16_decode(bits);
            places[i] += (int64_t)value * (part == 0 ? columns : 1);
        }
    }
    for (size_t i = 0; i < places.size(); i++)
        set_number(table, places[i], (int64_t)i * 2);
}

template <typename T> static void find_results(Experiments &experiments, const std::string &type)
{
    const bool f16 = ptx::is_f16<T>;
    find_rounded(experiments, "stage_results 64 " + type, "wgmma.m64n64k16 " + type, f16, 128, results_kernel<T, 64>);
    find_rounded(experiments, "stage_results 128 " + type, "wgmma.m64n128k16 " + type, f16, 128,
                 results_kernel<T, 128>);
    find_rounded(experiments, "stage_blocks " + type, "wgmma.m64n64k16 " + type, f16, 32, blocks_kernel<T>);
}

template <int width> static void find_scores(Experiments &experiments, const std::string &type)
{
    typedef GradientShape<width> Shape;
    const int step = Shape::step, pairs = step / 16, bytes = Shape::score_bytes;
    Table &table = experiments.answer("staging", "store_scores " + std::to_string(width) + " " + type);
    const Table &registers = experiments.expected("registers", "wgmma.m64n64k16 " + type);
    std::vector<uint32_t> weights((size_t)(256 * pairs * 4));
    for (int thread = 0; thread < 256; thread++)
        for (int i = 0; i < pairs * 8; i++) {
            const int64_t place = registers.numbers[(size_t)(thread % 128 * 8 + i % 8)];
            const int64_t key = thread / 128 * 64 + place / 16, query = i / 8 * 16 + place % 16;
            weights[(size_t)(thread * pairs * 4 + i / 2)] |= (uint32_t)(key * step + query) << (i % 2 * 16);
        }
    unsigned char *image = test::to_device(std::vector<unsigned char>((size_t)bytes));
    if (!test::launch(scores_kernel<Shape>, 1, 256, (size_t)bytes, test::to_device(weights),
                      experiments.is_planted("staging") ? 16 : 0, image))
        exit(1);
    const std::vector<unsigned char> written = test::to_host(image, (size_t)bytes);
    for (int at = 0; at < bytes; at += 2)
        set_number(table, written[(size_t)at] | written[(size_t)at + 1] << 8, at);
}

/* f32 sums keep whole codes: 16 rows of 32 columns fill a buffer. */
static void find_plain_blocks(Experiments &experiments)
{
    Table &table = experiments.answer("staging", "stage_blocks f32");
    const Table &sums = experiments.expected("sums", "wgmma.m64n64k16 bf16");
    std::vector<float> values(32 * 32);
    for (size_t i = 0; i < values.size(); i++)
        values[i] = (float)(sums.numbers[i] / 64 * 32 + sums.numbers[i] % 64);
    unsigned char *image = test::to_device(std::vector<unsigned char>(HopperStaging::buffer_bytes));
    if (!test::launch(blocks_kernel<float>, 1, 32, (size_t)HopperStaging::buffer_bytes, test::to_device(values),
                      experiments.is_planted("staging") ? 1 : 0, image))
        exit(1);
    const std::vector<unsigned char> written = test::to_host(image, HopperStaging::buffer_bytes);
    for (size_t at = 0; at < written.size(); at += 4) {
        float code;
        memcpy(&code, written.data() + at, 4);
        set_number(table, (int64_t)code, (int64_t)at);
    }
    Table &places = experiments.answer("staging", "HopperStaging::place");
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 64; column++)
            places.numbers[(size_t)(row * 64 + column)] = HopperStaging::place(row, column) * 4;
}

} // namespace hs_emu

void layouts::run_products(Experiments &experiments)
{
    hs_emu::record_products<hs_emu::Bf16>(experiments, "bf16");
    hs_emu::record_products<hs_emu::F16>(experiments, "f16");
}

void layouts::run_staging(Experiments &experiments)
{
    hs_emu::find_results<hs_emu::Bf16>(experiments, "bf16");
    hs_emu::find_results<hs_emu::F16>(experiments, "f16");
    for (const char *type : { "bf16", "f16" }) {
        hs_emu::find_scores<64>(experiments, type);
        hs_emu::find_scores<128>(experiments, type);
    }
    hs_emu::find_plain_blocks(experiments);
}
