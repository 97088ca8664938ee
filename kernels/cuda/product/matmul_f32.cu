/* SPDX-License-Identifier: MIT
 *
 * Exact f32 products, c = op(a) op(b), on the general cores: every product and sum an FFMA, never a tensor core, where
 * operands would lose 13 bits.
 *
 * A block of 2 * side threads computes side x side of c, 8 of k at a time.  Each thread keeps 8 x 8 (or 8 x 4) sums in
 * registers: per k, 4 (3) shared loads of 16 bytes feed 64 (32) FFMAs, so that arithmetic is the limit.  Both operands
 * lie in shared memory as [k][row or column], whatever their layout in global memory:
 *   k strided      16 bytes along the row, stored as they are;
 *   k contiguous   16 bytes along k, stored as 4 words in 4 rows.  Rows are side + 4 words long, so the 16 rows of
 *                  op(a) and 2 halves of k that a warp stores at once fall on 32 different banks.
 * While one step is multiplied the next one travels through registers into the other buffer: one barrier a step.
 */
#include <type_traits>

#include "kernels/cuda/product/matmul_epilogue.cuh"
#include "kernels/cuda/product/matmul_nf4.cuh"
#include "kernels/cuda/product/matmul_tiles.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { DEPTH = 8, LANES_DOWN = 4, LANES_ACROSS = 8 };

template <int side_, int thread_rows_, int thread_columns_, int blocks_> struct F32Tile {
    static constexpr int side = side_, blocks = blocks_, threads = 2 * side_;
    static constexpr int thread_rows = thread_rows_, thread_columns = thread_columns_;
    /* A warp's part, LANES_DOWN x LANES_ACROSS threads.  Each thread's rows and columns come in fours, the fours
     * interleaved between lanes: neighbouring lanes read neighbouring 16 bytes. */
    static constexpr int warp_rows = LANES_DOWN * thread_rows_, warp_columns = LANES_ACROSS * thread_columns_;
    static constexpr int warps_across = side_ / warp_columns;
    static constexpr int stride = side_ + 4, operand_floats = DEPTH * stride, buffer_floats = 2 * operand_floats;
    typedef MatmulStaging<warp_columns> Staging;
    static constexpr int staging_floats = threads / WARP_SIZE * Staging::floats;
    static constexpr int shared_floats = 2 * buffer_floats > staging_floats ? 2 * buffer_floats : staging_floats;
    static_assert(side_ / warp_rows * warps_across * WARP_SIZE == threads, "the warps cover the tile");
};

/* Where a thread's four elements of a step lie: in the tile, and in shared memory. */
struct F32Place {
    int k, outer, target;
};

template <typename Tile> HS_DEVICE F32Place place_of_thread(bool k_contiguous)
{
    const int thread = (int)threadIdx.x;
    const int k = k_contiguous ? thread % 2 * 4 : thread / (Tile::side / 4);
    const int outer = k_contiguous ? thread / 2 : thread % (Tile::side / 4) * 4;
    return { k, outer, k * Tile::stride + outer };
}

template <typename Tile> HS_DEVICE void store_four(float *target, bool k_contiguous, const Pack<float, 4> &pack)
{
    if (!k_contiguous) {
        store_pack<float, 4>(target, pack);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        target[i * Tile::stride] = pack.value[i];
}

/* One thread's four elements of an operand, step after step. */
template <typename Tile> struct F32Loader {
    typedef Pack<float, 4> Held;
    const float *source;
    int64_t step_stride, element_stride; /* element_stride: always 1 where the four are read as one */
    int outer, outer_end, k, k_end;
    int target; /* place in shared memory */
    bool k_contiguous, vector;

    __device__ __forceinline__ void init(const MatmulOperand &operand, int tile, int k_begin, int k_stop)
    {
        const F32Place place = place_of_thread<Tile>(operand.k_contiguous);
        k_contiguous = operand.k_contiguous;
        vector = operand.access == 16;
        target = place.target;
        k = k_begin + place.k;
        k_end = k_stop;
        outer = tile * Tile::side + place.outer;
        outer_end = operand.extent;
        const int64_t row = k_contiguous ? outer : k, column = k_contiguous ? k : outer;
        source = static_cast<const float *>(operand.data) + row * operand.stride + column;
        step_stride = k_contiguous ? (int64_t)DEPTH : DEPTH * operand.stride;
    }

    __device__ __forceinline__ Pack<float, 4> load_step()
    {
        Pack<float, 4> pack = {};
        const bool row_inside = k_contiguous ? outer < outer_end : k < k_end;
        const int left = k_contiguous ? k_end - k : outer_end - outer;
        if (vector) { /* rows of whole fours */
            if (row_inside && left > 0)
                pack = load_pack<float, 4>(source);
        } else {
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (row_inside && i < left)
                    pack.value[i] = source[i];
        }
        source += step_stride;
        k += DEPTH;
        return pack;
    }

    __device__ __forceinline__ void store_step(float *operand, const Pack<float, 4> &pack) const
    {
        store_four<Tile>(operand + target, k_contiguous, pack);
    }
};

/* The same of an operand in four bits, which is decoded when it goes into shared memory. */
template <typename Tile> struct F32Nf4Loader {
    struct Held {
        uint32_t codes;
        float absmax;
    };
    MatmulQuantized matrix;
    const float *levels;
    uint32_t chunk, step_stride; /* the next step's four elements */
    int k, k_end, target;        /* k_end: none are left where row or column lies outside */
    bool k_contiguous;

    __device__ __forceinline__ void init(const MatmulOperand &operand, const MatmulQuantized &quantized,
                                         const float *shared_levels, int tile, int k_begin, int k_stop)
    {
        const F32Place place = place_of_thread<Tile>(operand.k_contiguous);
        matrix = quantized;
        levels = shared_levels;
        k_contiguous = operand.k_contiguous;
        target = place.target;
        const int outer = tile * Tile::side + place.outer;
        k = k_begin + place.k;
        k_end = outer < operand.extent ? k_stop : 0;
        const uint32_t row_chunks = (uint32_t)(operand.stride / 4);
        chunk = (uint32_t)(k_contiguous ? outer : k) * row_chunks + (uint32_t)(k_contiguous ? k : outer) / 4;
        step_stride = k_contiguous ? DEPTH / 4 : DEPTH * row_chunks;
    }

    __device__ __forceinline__ Held load_step()
    {
        const bool inside = k < k_end; /* rows are whole fours */
        const Held held = { inside ? load_nf4_codes<4>(matrix, chunk) : 0u,
                            inside ? load_nf4_absmax<4>(matrix, chunk) : 0.0f };
        chunk += step_stride;
        k += DEPTH;
        return held;
    }

    __device__ __forceinline__ void store_step(float *operand, const Held &held) const
    {
        Pack<float, 4> pack;
#pragma unroll
        for (int i = 0; i < 4; i++)
            pack.value[i] = nf4_element(levels, held.codes, i, held.absmax);
        store_four<Tile>(operand + target, k_contiguous, pack);
    }
};

/* nf4: op(b) comes in four bits. */
template <typename Tile, bool nf4>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks) matmul_f32_kernel(const MatmulParameters parameters)
{
    HS_DYNAMIC_SHARED(float, shared);
    begin_after_kernel_before();
    const MatmulTilePosition position = tile_of_block((int)blockIdx.x, parameters.row_tiles, parameters.column_tiles);
    const int warp = (int)threadIdx.x / WARP_SIZE, lane = (int)threadIdx.x % WARP_SIZE;
    const int warp_row = warp / Tile::warps_across * Tile::warp_rows;
    const int warp_column = warp % Tile::warps_across * Tile::warp_columns;
    const int k_begin = (int)blockIdx.y * parameters.slice_depth;
    const int k_end = min(parameters.depth, k_begin + parameters.slice_depth);
    const int steps = (k_end - k_begin + DEPTH - 1) / DEPTH;

    typedef std::conditional_t<nf4, F32Nf4Loader<Tile>, F32Loader<Tile>> LoaderB;
    F32Loader<Tile> load_a;
    LoaderB load_b;
    load_a.init(parameters.a, position.row, k_begin, k_end);
    if constexpr (nf4) {
        float *const levels = shared + Tile::shared_floats;
        fill_nf4_levels(levels);
        load_b.init(parameters.b, parameters.quantized, levels, position.column, k_begin, k_end);
        __syncthreads();
    } else {
        load_b.init(parameters.b, position.column, k_begin, k_end);
    }
    load_a.store_step(shared, load_a.load_step());
    load_b.store_step(shared + Tile::operand_floats, load_b.load_step());
    __syncthreads();

    float sums[Tile::thread_rows][Tile::thread_columns] = {};
    for (int step = 0; step < steps; step++) {
        /* Past the last step these are zeros that no thread reads. */
        const Pack<float, 4> next_a = load_a.load_step();
        const typename LoaderB::Held next_b = load_b.load_step();
        const float *const a = shared + step % 2 * Tile::buffer_floats + warp_row + lane / LANES_ACROSS * 4;
        const float *const b =
            shared + step % 2 * Tile::buffer_floats + Tile::operand_floats + warp_column + lane % LANES_ACROSS * 4;
#pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            Pack<float, 4> rows[Tile::thread_rows / 4], columns[Tile::thread_columns / 4];
#pragma unroll
            for (int i = 0; i < Tile::thread_rows / 4; i++)
                rows[i] = load_pack<float, 4>(a + k * Tile::stride + i * 4 * LANES_DOWN);
#pragma unroll
            for (int j = 0; j < Tile::thread_columns / 4; j++)
                columns[j] = load_pack<float, 4>(b + k * Tile::stride + j * 4 * LANES_ACROSS);
#pragma unroll
            for (int i = 0; i < Tile::thread_rows; i++)
#pragma unroll
                for (int j = 0; j < Tile::thread_columns; j++)
                    sums[i][j] = fmaf(rows[i / 4].value[i % 4], columns[j / 4].value[j % 4], sums[i][j]);
        }
        float *const next = shared + (step + 1) % 2 * Tile::buffer_floats;
        load_a.store_step(next, next_a);
        load_b.store_step(next + Tile::operand_floats, next_b);
        __syncthreads();
    }

    MatmulOutput output = parameters.output;
    output.amax = AmaxOut{}; /* found by a pass (matmul.cu): there are no registers for it */
    if (gridDim.y > 1)
        output.c.data = static_cast<float *>(output.c.data) + (int64_t)blockIdx.y * output.rows * output.columns;
    float *const staging = shared + warp * Tile::Staging::floats;
    const int first_row = position.row * Tile::side + warp_row;
    /* As in matmul_kernel.cuh: one pass over the epilogue's code for every 16 rows. */
#pragma unroll 1
    for (int block = 0; block < Tile::thread_rows / 4; block++) {
#pragma unroll
        for (int i = 0; i < Tile::thread_rows; i++) {
            if (i / 4 != block)
                continue;
            float *const row = staging + (lane / LANES_ACROSS * 4 + i % 4) * Tile::Staging::stride;
#pragma unroll
            for (int j = 0; j < Tile::thread_columns; j += 4)
                store_pack<float, 4>(row + lane % LANES_ACROSS * 4 + j * LANES_ACROSS,
                                     { { sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3] } });
        }
        __syncwarp();
        finish_staged<typename Tile::Staging, 4>(output, staging, lane, first_row + block * 16,
                                                 position.column * Tile::side + warp_column);
        __syncwarp();
    }
}

template <typename Tile> HsStatus launch(HsContext *context, MatmulParameters &parameters, int slices)
{
    parameters.row_tiles = (int)blocks_for(parameters.output.rows, Tile::side);
    parameters.column_tiles = (int)blocks_for(parameters.output.columns, Tile::side);
    const dim3 grid((unsigned)parameters.row_tiles * (unsigned)parameters.column_tiles, (unsigned)slices);
    const size_t shared_bytes = Tile::shared_floats * sizeof(float);
    if (parameters.quantized.codes != NULL)
        return hs_launch_after(context, HS_KERNEL((matmul_f32_kernel<Tile, true>)), grid, dim3(Tile::threads),
                               shared_bytes + NF4_LEVEL_BYTES, parameters);
    return hs_launch_after(context, HS_KERNEL((matmul_f32_kernel<Tile, false>)), grid, dim3(Tile::threads),
                           shared_bytes, parameters);
}

} // namespace

HsStatus launch_matmul_f32(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice, bool)
{
#define LAUNCHER(side, thread_rows, thread_columns, blocks, rate, rate_alone) \
    launch<F32Tile<side, thread_rows, thread_columns, blocks>>,
    static HsStatus (*const launchers[])(HsContext *, MatmulParameters &, int) = { HS_MATMUL_TILES_F32(LAUNCHER) };
    return launchers[choice.tile](context, parameters, choice.slices);
}

} // namespace HS_CUDA_NAMESPACE
