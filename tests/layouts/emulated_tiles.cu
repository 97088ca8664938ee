/* SPDX-License-Identifier: MIT
 *
 * Where tensor copies put the elements of a tile: single boxes with every swizzle, and the tiles of the kernels by
 * their own functions (hopper_copy with its clusters, load_head).  Elements carry the code of their place in the
 * source.
 */
#include "kernels/cuda/attention/attention_hopper.cuh"
#include "kernels/cuda/product/matmul_hopper.cu"
#include "tests/emu/harness.h"
#include "tests/layouts/emulated.h"

namespace hs_emu
{

enum { EXTENT = 64 };

/* 0, 1, 2 ... as elements of `bytes` bytes. */
static std::vector<unsigned char> codes(int count, int bytes)
{
    std::vector<unsigned char> source((size_t)(count * bytes));
    for (int i = 0; i < count; i++)
        for (int byte = 0; byte < bytes && byte < 4; byte++)
            source[(size_t)(i * bytes + byte)] = (unsigned char)(i >> 8 * byte);
    return source;
}

/* The image of a tile: which byte each code begins at.  transposed: the source has k lines of the outer index. */
static void read_image(layouts::Table &table, const std::vector<unsigned char> &image, int bytes, bool transposed)
{
    const int64_t outer = table.index[0].count, depth = table.index[1].count;
    for (size_t at = 0; at < image.size(); at += (size_t)bytes) {
        int64_t code = 0;
        for (int byte = 0; byte < bytes; byte++)
            code |= (int64_t)image[at + (size_t)byte] << 8 * byte;
        if (code < outer * depth)
            table.numbers[(size_t)(transposed ? code % outer * depth + code / outer : code)] = (int64_t)at;
    }
}

/* Boxes of a map next to each other, box after box, and then all of shared memory. */
__global__ void boxes_kernel(const TensorMap map, int boxes, int elements, int box_bytes, unsigned char *image)
{
    HS_DYNAMIC_SHARED(unsigned char, tile);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect(barrier, boxes * box_bytes);
        for (int box = 0; box < boxes; box++)
            ptx::load_tile(ptx::shared_address(tile) + (uint32_t)(box * box_bytes), &map, barrier, box * elements, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    for (int i = (int)threadIdx.x; i < boxes * box_bytes; i += 32)
        image[i] = tile[i];
}

static void find_tile(layouts::Experiments &experiments, int swizzle, int bytes, bool transposed)
{
    layouts::Table &table =
        experiments.answer("tile", "swizzle " + std::to_string(swizzle) + (bytes == 2 ? " 16-bit " : " 32-bit ") +
                                       (transposed ? "outer-major" : "K-major"));
    const int elements = (swizzle == 0 ? 16 : swizzle) / bytes, size = EXTENT * EXTENT * bytes;
    unsigned char *source = test::to_device(codes(EXTENT * EXTENT, bytes));
    unsigned char *image = test::to_device(std::vector<unsigned char>((size_t)size));
    const TensorMapShape shape = {
        source, bytes == 2 ? HS_BF16 : HS_F32, 2, { EXTENT, EXTENT }, { bytes, EXTENT * bytes }, { elements, EXTENT },
        swizzle
    };
    TensorMap map;
    if (encode_tensor_map(shape, &map) != HS_OK)
        exit(1);
    if (experiments.is_planted("tile"))
        map.swizzle_bytes = swizzle == 0 ? 0 : (uint8_t)(swizzle / 2 == 16 ? 0 : swizzle / 2);
    if (!test::launch(boxes_kernel, 1, 32, (size_t)size, map, EXTENT / elements, elements, elements * bytes * EXTENT,
                      image))
        exit(1);
    read_image(table, test::to_host(image, (size_t)size), bytes, transposed);
}

template <typename Tile> __global__ void load_head_kernel(const TensorMap map, unsigned char *image)
{
    HS_DYNAMIC_SHARED(unsigned char, tile);
    HS_SHARED(uint64_t, full, 1);
    const uint32_t barrier = ptx::shared_address(full);
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(barrier, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect(barrier, Tile::bytes);
        load_head<Tile>(ptx::shared_address(tile), &map, barrier, 0, 0, 0);
    }
    __syncthreads();
    ptx::mbarrier_wait(barrier, 0);
    for (int i = (int)threadIdx.x; i < Tile::bytes; i += 32)
        image[i] = tile[i];
}

template <int width, int rows> static void find_head(layouts::Experiments &experiments, HsDtype dtype, const char *type)
{
    typedef HeadTile<width, rows> Tile;
    layouts::Table &table =
        experiments.answer("tile", "load_head " + std::to_string(width) + " x " + std::to_string(rows) + " " + type);
    unsigned char *source = test::to_device(codes(width * rows, 2));
    unsigned char *image = test::to_device(std::vector<unsigned char>(Tile::bytes));
    Attention attention = {};
    attention.batch = attention.heads = attention.kv_heads = 1;
    attention.length = rows;
    attention.head_dim = width;
    TensorMap map;
    if (map_heads(source, dtype, attention, 1, rows, &map) != HS_OK ||
        !test::launch(load_head_kernel<Tile>, 1, 32, (size_t)Tile::bytes, map, image))
        exit(1);
    read_image(table, test::to_host(image, Tile::bytes), 2, false);
}

/* A step of both operands into the first stage of both blocks of a cluster; B comes in halves from both. */
template <typename Tile, bool a_contiguous, bool b_contiguous>
__global__ void hopper_copy_kernel(const HopperParameters parameters, unsigned char *images)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    const HopperRing<Tile> ring = { ptx::shared_address(shared) };
    const int rank = ptx::cluster_rank();
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(ring.full(0), 1);
        ptx::fence_mbarrier_init();
    }
    ptx::cluster_sync();
    if (threadIdx.x == 0)
        hopper_copy<Tile, a_contiguous, b_contiguous>(parameters, ring, 0, rank, 0, 0, 0);
    ptx::mbarrier_wait(ring.full(0), 0);
    for (int i = (int)threadIdx.x; i < Tile::stage_bytes; i += 32)
        images[rank * Tile::stage_bytes + i] = shared[i];
    ptx::cluster_sync();
}

template <typename Tile, bool a_contiguous, bool b_contiguous>
static void find_hopper_copy(layouts::Experiments &experiments, HsDtype dtype, const char *type)
{
    static const char *const orders[] = { "outer-major", "K-major" };
    const std::string name = "hopper_copy " + std::to_string(Tile::columns) + " " + type + ", A " +
                             orders[a_contiguous] + ", B " + orders[b_contiguous] + ": ";
    const int columns = Tile::columns;
    unsigned char *a = test::to_device(codes(Tile::rows * HOPPER_STEP, 2));
    unsigned char *b = test::to_device(codes(columns * HOPPER_STEP, 2));
    unsigned char *images = test::to_device(std::vector<unsigned char>(2 * Tile::stage_bytes));
    HopperParameters parameters = {};
    parameters.second = columns / HOPPER_CLUSTER;
    const MatmulOperand operand_a = { a, a_contiguous ? HOPPER_STEP : Tile::rows, Tile::rows, 16, a_contiguous };
    const MatmulOperand operand_b = { b, b_contiguous ? HOPPER_STEP : columns, columns, 16, b_contiguous };
    if (map_operand(operand_a, dtype, HOPPER_STEP, Tile::rows, &parameters.a) != HS_OK ||
        map_operand(operand_b, dtype, HOPPER_STEP, columns / HOPPER_CLUSTER, &parameters.b) != HS_OK ||
        !test::launch_clusters(hopper_copy_kernel<Tile, a_contiguous, b_contiguous>, HOPPER_CLUSTER, HOPPER_CLUSTER, 32,
                               (size_t)Tile::shared_bytes, parameters, images))
        exit(1);
    std::vector<unsigned char> image = test::to_host(images, 2 * Tile::stage_bytes);
    const auto first = image.begin(), second = first + Tile::stage_bytes;
    if (!std::equal(first, second, second))
        std::fill(image.begin(), image.end(), 0xff); /* the blocks differ: nothing is found */
    read_image(experiments.answer("tile", name + "A"), { first, first + Tile::a_bytes }, 2, !a_contiguous);
    read_image(experiments.answer("tile", name + "B"), { first + Tile::a_bytes, second }, 2, !b_contiguous);
}

static void find_kernel_tiles(layouts::Experiments &experiments, HsDtype dtype, const char *type)
{
/* Of a block's rows, half of a tile's; where consumers share them. */
#define HS_COPY_ROWS(rows, columns, stages, rate)                                                          \
    if constexpr (HopperTile<(rows) / 2, columns, stages>::shared) {                                       \
        find_hopper_copy<HopperTile<(rows) / 2, columns, stages>, true, true>(experiments, dtype, type);   \
        find_hopper_copy<HopperTile<(rows) / 2, columns, stages>, false, false>(experiments, dtype, type); \
    }
    HS_MATMUL_TILES_HOPPER(HS_COPY_ROWS)
#undef HS_COPY_ROWS
    find_head<64, 128>(experiments, dtype, type);
    find_head<128, 128>(experiments, dtype, type);
    find_head<128, 64>(experiments, dtype, type);
}

} // namespace hs_emu

void layouts::run_tiles(Experiments &experiments)
{
    for (int swizzle : { 128, 64, 32, 0 })
        for (int bytes : { 2, 4 })
            for (bool transposed : { false, true })
                hs_emu::find_tile(experiments, swizzle, bytes, transposed);
    hs_emu::find_kernel_tiles(experiments, HS_BF16, "bf16");
    hs_emu::find_kernel_tiles(experiments, HS_F16, "f16");
}

void layouts::run_swizzled(Experiments &experiments)
{
    for (int swizzle : { 128, 64, 32, 0 }) {
        Table &table = experiments.answer("swizzled", "swizzle " + std::to_string(swizzle));
        const int bytes = experiments.is_planted("swizzled") && swizzle == 128 ? 64 : swizzle;
        for (size_t piece = 0; piece < table.numbers.size(); piece++)
            table.numbers[piece] = hs_emu::swizzled((uint32_t)piece * 16, bytes);
    }
}
