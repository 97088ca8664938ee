/* SPDX-License-Identifier: MIT
 *
 * Products on tensor cores: mma.sync m16n8k16 (bf16, f16) or m16n8k8 (tf32), f32 accumulators.
 *
 * Pipeline: `stages` steps of k live in shared memory; while one is multiplied, the copies of the next stages - 1 are
 * under way (cp.async).  Within a step, the fragments of the next half are read while the tensor cores work on this
 * one, across the border between steps too, so that neither global nor shared memory's latency shows:
 *
 *     half 0 of step s:  read half 1 of s            copy step s + stages - 1 into the stage that step s - 1 has left
 *     half 1 of step s:  wait for s + 1, barrier, read half 0 of s + 1
 *
 * The barrier lies between the last read of step s - 1 (in half 0 of s - 1) and the copy into its stage (half 0 of s).
 *
 * The limits: tensor cores, then the bandwidth of shared memory (matmul_tiles.cuh).  Sums go through shared memory to
 * the epilogue, 16 rows a warp at a time, so that global memory is written in whole 32-byte sectors.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_KERNEL_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_KERNEL_CUH

#include <type_traits>

#include "kernels/cuda/product/matmul_epilogue.cuh"
#include "kernels/cuda/product/matmul_nf4.cuh"
#include "kernels/cuda/product/matmul_shared.cuh"
#include "kernels/cuda/product/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

template <int tile_rows, int tile_columns, int warp_rows, int warp_columns, int stages_, int blocks_>
struct MatmulTile {
    static constexpr int rows = tile_rows, columns = tile_columns, stages = stages_, blocks = blocks_;
    static constexpr int warps_down = warp_rows, warps_across = warp_columns;
    static constexpr int threads = warp_rows * warp_columns * WARP_SIZE;
    static constexpr int row_blocks = tile_rows / warp_rows / 16;          /* of 16 rows, a warp */
    static constexpr int column_blocks = tile_columns / warp_columns / 16; /* of 16 columns: two n8 fragments */
    static constexpr int stage_bytes = (tile_rows + tile_columns) * STEP_BYTES;
    static constexpr int shared_bytes = stages_ * stage_bytes;
    /* gates that follow each other: a warp has their linear halves too, and so has a pass of TileLoader */
    static constexpr int gate_columns =
        column_blocks * 8 < threads / STEP_CHUNKS / 2 ? column_blocks * 8 : threads / STEP_CHUNKS / 2;

    /* The epilogue uses the stages' memory again. */
    typedef MatmulStaging<column_blocks * 16> Staging;
    static_assert(threads / WARP_SIZE * Staging::floats * 4 <= shared_bytes, "staging fits");
};

template <typename Tile> using Accumulators = float[Tile::row_blocks][Tile::column_blocks * 2][4];

/* A gate between the product and c. */
enum MatmulGate { MATMUL_NO_GATE, MATMUL_GATES, MATMUL_UNGATES };

/* The epilogue of 16 staged rows. */
template <typename Element, typename Tile, MatmulGate gate, typename Cast>
HS_DEVICE uint32_t finish_rows(const MatmulOutput &output, const float *staging, int lane, int first_row,
                               int first_column, const Cast &cast)
{
    typedef typename Tile::Staging Staging;
    const bool silu = hs_epilogue_activation(output.epilogue) == HS_ACTIVATION_SILU;
    if constexpr (gate == MATMUL_GATES)
        return silu ? finish_gated<Staging, Tile::gate_columns, Element, HS_ACTIVATION_SILU>(
                          output, staging, lane, first_row, first_column / 2, cast)
                    : finish_gated<Staging, Tile::gate_columns, Element, HS_ACTIVATION_GELU>(
                          output, staging, lane, first_row, first_column / 2, cast);
    else if constexpr (gate == MATMUL_UNGATES)
        return silu ? finish_ungated<Staging, Tile::column_blocks, Element, HS_ACTIVATION_SILU>(
                          output, staging, lane, first_row, first_column, cast)
                    : finish_ungated<Staging, Tile::column_blocks, Element, HS_ACTIVATION_GELU>(
                          output, staging, lane, first_row, first_column, cast);
    else
        return finish_staged<Staging, Tile::column_blocks * 2>(output, staging, lane, first_row, first_column, cast);
}

/* Where a warp's accumulators of 16 rows and its columns lie: as the instruction has them, or, of an operand in codes that was
 * read across (matmul_fp8.cu), rows 2 g and 2 g + 1 of 16 in place of g and g + 8, and likewise of 16 columns the two
 * fragments' column c in place of c and c + 8. */
template <typename Tile, bool rows_turned, bool columns_turned>
HS_DEVICE void stage_sums(const float (&sums)[Tile::column_blocks * 2][4], float *staging, int lane)
{
    constexpr int stride = Tile::Staging::stride, row = rows_turned ? 2 : 1, half_row = rows_turned ? 1 : 8;
    float *const target = staging + lane / 4 * row * stride + lane % 4 * (columns_turned ? 4 : 2);
#pragma unroll
    for (int j = 0; j < Tile::column_blocks * 2; j += columns_turned ? 2 : 1)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float *const at = target + j * 8 + half * half_row * stride;
            if constexpr (columns_turned) {
                store_pack<float, 2>(at, { { sums[j][half * 2], sums[j + 1][half * 2] } });
                store_pack<float, 2>(at + 2, { { sums[j][half * 2 + 1], sums[j + 1][half * 2 + 1] } });
            } else {
                store_pack<float, 2>(at, { { sums[j][half * 2], sums[j][half * 2 + 1] } });
            }
        }
}

/* The warp's sums to shared memory, 16 rows at a time, and on to the epilogue. */
template <typename Tile, typename Element = float, MatmulGate gate = MATMUL_NO_GATE, bool rows_turned = false,
          bool columns_turned = false, typename Cast = ValuesAsTheyAre>
HS_DEVICE void finish_tile(const MatmulOutput &output, const Accumulators<Tile> &sums, float *shared, int first_row,
                           int first_column, const Cast &cast = Cast())
{
    const int warp = (int)threadIdx.x / WARP_SIZE, lane = (int)threadIdx.x % WARP_SIZE;
    float *const staging = shared + warp * Tile::Staging::floats;
    uint32_t most = 0;
    /* A loop in time, not in code: the epilogue is long.  The inner loop keeps the accumulators' indices constant. */
#pragma unroll 1
    for (int block = 0; block < Tile::row_blocks; block++) {
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++) {
            if (i == block)
                stage_sums<Tile, rows_turned, columns_turned>(sums[i], staging, lane);
        }
        __syncwarp();
        most = larger(
            most, finish_rows<Element, Tile, gate>(output, staging, lane, first_row + block * 16, first_column, cast));
        __syncwarp(); /* read before the next 16 rows overwrite it */
    }
    leave_amax(output.amax, most);
}

HS_DEVICE uint32_t pair_of_ones(Bf16)
{
    return 0x3f803f80u;
}
HS_DEVICE uint32_t pair_of_ones(F16)
{
    return 0x3c003c00u;
}

/* The sums of op(a)'s rows: one more product a fragment, with ones, where all columns are the same.  Every tile of a
 * row of tiles has these rows of a, and every warp of a row of warps: those of column 0 sum. */
template <typename Element, typename Tile> struct RowSums {
    float sums[Tile::row_blocks][4];
    bool here;

    __device__ __forceinline__ void init(int tile_column)
    {
        here = tile_column == 0 && (int)threadIdx.x / WARP_SIZE % Tile::warps_across == 0;
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sums[i][j] = 0.0f;
    }

    __device__ __forceinline__ void add(const uint32_t (&a)[Tile::row_blocks][4])
    {
        if (!here)
            return;
        const uint32_t ones[2] = { pair_of_ones(Element{}), pair_of_ones(Element{}) };
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
            multiply_add(Element{}, sums[i], a[i], ones);
    }

    /* Whole sums are added to what there is; those of a slice have a separate place. */
    __device__ __forceinline__ void finish(const MatmulOutput &output, int first_row) const
    {
        const int lane = (int)threadIdx.x % WARP_SIZE;
        if (!here || lane % 4 != 0)
            return;
        float *const destination = output.row_sums + (int64_t)blockIdx.y * output.rows;
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = first_row + i * 16 + half * 8 + lane / 4;
                if (row < output.rows)
                    destination[row] = sums[i][half * 2] + (gridDim.y > 1 ? 0.0f : destination[row]);
            }
    }
};

struct NoRowSums {
    __device__ __forceinline__ void init(int)
    {
    }
    template <typename Fragments> __device__ __forceinline__ void add(const Fragments &)
    {
    }
    __device__ __forceinline__ void finish(const MatmulOutput &, int) const
    {
    }
};

/* nf4: op(b) comes in four bits.  with_sums: output.row_sums is there.  gate: what the epilogue is. */
template <typename Element, typename Tile, bool a_contiguous, bool b_contiguous, bool aligned, bool nf4 = false,
          bool with_sums = false, MatmulGate gate = MATMUL_NO_GATE>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks) matmul_kernel(const MatmulParameters parameters)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    begin_after_kernel_before();
    const MatmulTilePosition position = tile_of_block((int)blockIdx.x, parameters.row_tiles, parameters.column_tiles);
    const int warp = (int)threadIdx.x / WARP_SIZE;
    const int warp_row = warp / Tile::warps_across * (Tile::row_blocks * 16);
    const int warp_column = warp % Tile::warps_across * (Tile::column_blocks * 16);
    const int k_begin = (int)blockIdx.y * parameters.slice_depth;
    const int k_end = min(parameters.depth, k_begin + parameters.slice_depth);
    const int steps = (k_end - k_begin + step_depth<Element> - 1) / step_depth<Element>;

    TileLoader<Element, a_contiguous, Tile::rows, Tile::threads, aligned> load_a;
    std::conditional_t<nf4, Nf4Loader<Element, b_contiguous, Tile::columns, Tile::threads>,
                       TileLoader<Element, b_contiguous, Tile::columns, Tile::threads, aligned,
                                  gate == MATMUL_GATES ? Tile::gate_columns : 0>>
        load_b;
    load_a.init(parameters.a, position.row, k_begin, k_end);
    if constexpr (nf4) {
        float *const levels = reinterpret_cast<float *>(shared + Tile::shared_bytes);
        fill_nf4_levels(levels);
        load_b.init(parameters.b, parameters.quantized, levels, position.column, k_begin, k_end);
        __syncthreads();
    } else {
        load_b.init(parameters.b, position.column, k_begin, k_end);
    }
    FragmentReader<Element, a_contiguous, Tile::rows, true> read_a;
    FragmentReader<Element, b_contiguous, Tile::columns, false> read_b;
    read_a.init(warp_row);
    read_b.init(warp_column);

    Accumulators<Tile> sums = {};
    std::conditional_t<with_sums, RowSums<Element, Tile>, NoRowSums> row_sums;
    row_sums.init(position.column);
    uint32_t a[2][Tile::row_blocks][4], b[2][Tile::column_blocks][4];

    /* Steps past the last are copied as zeros: one code path, and the same number of groups always. */
    auto copy_step = [&](int stage) {
        unsigned char *const base = shared + stage * Tile::stage_bytes;
        load_a.load_step(base);
        load_b.load_step(base + Tile::rows * STEP_BYTES);
        ptx::copy_async_commit();
    };
    auto read_fragments = [&](int stage, int fragment) {
        const unsigned char *const base = shared + stage * Tile::stage_bytes;
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
            read_a.load(base, i, fragment, a[fragment][i]);
#pragma unroll
        for (int j = 0; j < Tile::column_blocks; j++)
            read_b.load(base + Tile::rows * STEP_BYTES, j, fragment, b[fragment][j]);
    };

#pragma unroll
    for (int stage = 0; stage < Tile::stages - 1; stage++)
        copy_step(stage);
    ptx::copy_async_wait<Tile::stages - 2>();
    __syncthreads();
    read_fragments(0, 0);

    int stage = 0, free_stage = Tile::stages - 1;
    for (int step = 0; step < steps; step++) {
#pragma unroll
        for (int fragment = 0; fragment < STEP_FRAGMENTS; fragment++) {
            if (fragment == STEP_FRAGMENTS - 1) {
                stage = stage + 1 == Tile::stages ? 0 : stage + 1;
                ptx::copy_async_wait<Tile::stages - 2>();
                __syncthreads();
            }
            read_fragments(stage, 1 - fragment);
            if (fragment == 0) {
                copy_step(free_stage);
                free_stage = free_stage + 1 == Tile::stages ? 0 : free_stage + 1;
            }
#pragma unroll
            for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
                for (int j = 0; j < Tile::column_blocks * 2; j++) {
                    const uint32_t column_pair[2] = { b[fragment][j / 2][j % 2 * 2],
                                                      b[fragment][j / 2][j % 2 * 2 + 1] };
                    multiply_add(Element{}, sums[i][j], a[fragment][i], column_pair);
                }
            row_sums.add(a[fragment]);
        }
    }
    ptx::copy_async_wait<0>();
    __syncthreads();

    row_sums.finish(parameters.output, position.row * Tile::rows + warp_row);
    MatmulOutput output = parameters.output;
    if (gridDim.y > 1) /* one slice of k: its sums go to its own part of the workspace */
        output.c.data = static_cast<float *>(output.c.data) + (int64_t)blockIdx.y * output.rows * output.columns;
    finish_tile<Tile, Element, gate>(output, sums, reinterpret_cast<float *>(shared),
                                     position.row * Tile::rows + warp_row,
                                     position.column * Tile::columns + warp_column);
}

template <typename Kernel>
HsStatus launch_tile(HsContext *context, MatmulParameters &parameters, int slices, const char *name, Kernel kernel,
                     int rows, int columns, int threads, int shared_bytes)
{
    parameters.row_tiles = (int)blocks_for(parameters.output.rows, rows);
    parameters.column_tiles = (int)blocks_for(parameters.output.columns, columns);
    const dim3 grid((unsigned)parameters.row_tiles * (unsigned)parameters.column_tiles, (unsigned)slices);
    return hs_launch_after(context, name, kernel, grid, dim3((unsigned)threads), (size_t)shared_bytes, parameters);
}

#define HS_LAUNCH_KERNEL(kernel)                                                                          \
    launch_tile(context, parameters, slices, HS_KERNEL(kernel), Tile::rows, Tile::columns, Tile::threads, \
                Tile::shared_bytes)
#define HS_LAUNCH_TILE(a_contiguous, b_contiguous, aligned) \
    HS_LAUNCH_KERNEL((matmul_kernel<Element, Tile, a_contiguous, b_contiguous, aligned>))

/* The three layouts of training, rows of whole chunks; of 16 bits, a weight's gradient with row sums, and a gate in the
 * layout that it has in a model: of a forward product with b's rows along k, of a gradient with b's columns. */
template <typename Element, typename Tile>
HsStatus launch_aligned(HsContext *context, MatmulParameters &parameters, int slices)
{
    if constexpr (sizeof(Element) == 2) {
        if (parameters.output.row_sums != NULL)
            return HS_LAUNCH_KERNEL((matmul_kernel<Element, Tile, false, false, true, false, true>));
        if (hs_epilogue_gates(parameters.output.epilogue))
            return HS_LAUNCH_KERNEL((matmul_kernel<Element, Tile, true, true, true, false, false, MATMUL_GATES>));
        if (hs_epilogue_ungates(parameters.output.epilogue))
            return HS_LAUNCH_KERNEL((matmul_kernel<Element, Tile, true, false, true, false, false, MATMUL_UNGATES>));
    }
    if (!parameters.a.k_contiguous)
        return HS_LAUNCH_TILE(false, false, true);
    return parameters.b.k_contiguous ? HS_LAUNCH_TILE(true, true, true) : HS_LAUNCH_TILE(true, false, true);
}

/* Every layout, any alignment. */
template <typename Element, typename Tile>
HsStatus launch_any(HsContext *context, MatmulParameters &parameters, int slices)
{
    if (parameters.a.k_contiguous)
        return parameters.b.k_contiguous ? HS_LAUNCH_TILE(true, true, false) : HS_LAUNCH_TILE(true, false, false);
    return parameters.b.k_contiguous ? HS_LAUNCH_TILE(false, true, false) : HS_LAUNCH_TILE(false, false, false);
}
#undef HS_LAUNCH_TILE
#undef HS_LAUNCH_KERNEL

typedef HsStatus (*LaunchMatmulTile)(HsContext *context, MatmulParameters &parameters, int slices);

/* A row of a table of launchers, from a row of the table of tiles. */
#define HS_MATMUL_TILE(rows, columns, warp_rows, warp_columns, stages, blocks, rate, rate_alone) \
    MatmulTile<rows, columns, warp_rows, warp_columns, stages, blocks>

} // namespace HS_CUDA_NAMESPACE

#endif
