/* SPDX-License-Identifier: MIT
 *
 * Products of FP8 codes by mma.sync m16n8k32, for GPUs of 8.9 and 12.0 (matmul_fp8.cuh says what is summed how).
 *
 * In shared memory a pair of codes is an element of 16 bits: tiles, copies and fragments are those of matmul_kernel.cuh,
 * and a fragment of 16 such elements is what m16n8k32 takes.  A promoted sum has two sets of registers, so that eight
 * warps share a tile of 128 x 128, 64 x 32 each.  One barrier a step: the stage that step s - 1 has left is refilled while
 * step s is multiplied.
 *
 * Codes that lie across k: ldmatrix transposes 16 bits at a time, so that of rows k and k + 1 a lane gets columns 2 g and
 * 2 g + 1 of both.  Two such registers, of k, k + 1 and k + 2, k + 3, have the bytes of two others, four neighbours along k of
 * column 2 g and four of 2 g + 1, and a permutation of bytes makes each.  Which rows of shared memory ldmatrix reads is
 * free, so that k is in its order; rows or columns of c are not, and are put in theirs on the way to the epilogue
 * (stage_sums).  The sums' bits are those of copies along k.
 */
#include "kernels/cuda/product/matmul_fp8.cuh"

#include "kernels/cuda/product/matmul_kernel.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { STEP_PAIRS = STEP_BYTES / 2, PART_STEPS = FP8_PART_PAIRS / STEP_PAIRS };

/* The scales of this lane's rows and columns in one block of k. */
template <typename Tile, MatmulGate gate> struct BlockScales {
    float rows[Tile::row_blocks][2], columns[Tile::column_blocks * 2][2];

    __device__ __forceinline__ void load(const Fp8Scales &scales, const MatmulOutput &output, int first_row,
                                         int first_column, int block)
    {
        constexpr bool gates = gate == MATMUL_GATES;
        const int lane = (int)threadIdx.x % WARP_SIZE;
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                rows[i][half] = fp8_block_scale(scales.a_blocks, scales.blocks,
                                                first_row + i * 16 + half * 8 + lane / 4, output.rows, block);
#pragma unroll
        for (int j = 0; j < Tile::column_blocks * 2; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const int column = j * 8 + lane % 4 * 2 + e, first = gates ? first_column / 2 : first_column;
                columns[j][e] = fp8_block_scale(
                    scales.b_blocks, scales.blocks,
                    first + (gates ? gated_column<Tile::gate_columns>(column, output.columns / 2) : column),
                    output.columns, block);
            }
    }
};

/* sums += part, with its scales where there are blocks; part begins anew. */
template <typename Tile, bool blocks, typename Scales>
HS_DEVICE void promote(Accumulators<Tile> &sums, Accumulators<Tile> &part, const Scales &scales)
{
#pragma unroll
    for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
        for (int j = 0; j < Tile::column_blocks * 2; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                sums[i][j][e] =
                    blocks ? fmaf(part[i][j][e] * scales.rows[i][e / 2], scales.columns[j][e % 2], sums[i][j][e])
                           : sums[i][j][e] + part[i][j][e];
                part[i][j][e] = 0.0f;
            }
}

/* Fragments of an operand that lies across k, as FragmentReader's: 16 rows of op(a), or columns of op(b), by 32 codes. */
template <int extent, bool is_a> struct AcrossReader {
    int offset; /* this lane's part, for block 0 and fragment 0 */

    /* origin: the warp's first row or column, a multiple of 16 for each block that it reads. */
    __device__ __forceinline__ void init(int origin)
    {
        /* Lane 8 i + r addresses row r of matrix i: matrices 0 and 1 are the first and the second two of every four k. */
        const int lane = (int)threadIdx.x % WARP_SIZE, r = lane % 8, i = lane / 8;
        const int row = i / 2 * 16 + r / 2 * 4 + i % 2 * 2 + r % 2;
        offset = row * extent + permuted_chunk<Code, false>(row, origin / CHUNK_BYTES) * CHUNK_BYTES;
    }

    __device__ __forceinline__ void load(const unsigned char *tile, int block, int fragment,
                                         uint32_t (&registers)[4]) const
    {
        enum { EVEN = 0x6420, ODD = 0x7531, FRAGMENT_ROWS = 32 };
        uint32_t pairs[4];
        const int at = (offset ^ (block * CHUNK_BYTES)) + fragment * FRAGMENT_ROWS * extent;
        ptx::load_matrix_x4_transposed(pairs, ptx::shared_address(tile + at));
#pragma unroll
        for (int half = 0; half < 2; half++) { /* 16 of k; a[1] is the other column's, b[1] the other half's */
            registers[is_a ? half * 2 : half] = __byte_perm(pairs[half * 2], pairs[half * 2 + 1], EVEN);
            registers[is_a ? half * 2 + 1 : half + 2] = __byte_perm(pairs[half * 2], pairs[half * 2 + 1], ODD);
        }
    }
};

/* What copies and reads an operand of `extent` rows or columns a tile. */
template <bool across, int extent, int threads, bool is_a, int gate> struct CodeAccess {
    typedef TileLoader<Bf16, true, extent, threads, true, gate> Loader;
    typedef FragmentReader<Bf16, true, extent, is_a> Reader;
    static constexpr int elements = 1; /* of the loader, in a pair of codes */
};
template <int extent, int threads, bool is_a, int gate> struct CodeAccess<true, extent, threads, is_a, gate> {
    static_assert(gate == 0, "gates are columns along k");
    typedef TileLoader<Code, false, extent, threads, true> Loader;
    typedef AcrossReader<extent, is_a> Reader;
    static constexpr int elements = 2;
};

/* A warp's part of one step. */
template <typename A, typename Tile, typename ReaderA, typename ReaderB>
HS_DEVICE void multiply_step(const ReaderA &read_a, const ReaderB &read_b, const unsigned char *stage,
                             Accumulators<Tile> &sums)
{
#pragma unroll
    for (int fragment = 0; fragment < STEP_FRAGMENTS; fragment++) {
        uint32_t a[Tile::row_blocks][4], b[Tile::column_blocks][4];
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
            read_a.load(stage, i, fragment, a[i]);
#pragma unroll
        for (int j = 0; j < Tile::column_blocks; j++)
            read_b.load(stage + Tile::rows * STEP_BYTES, j, fragment, b[j]);
#pragma unroll
        for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
            for (int j = 0; j < Tile::column_blocks * 2; j++) {
                const uint32_t columns[2] = { b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1] };
                ptx::mma_fp8<A, E4m3>(sums[i][j], a[i], columns);
            }
    }
}

/* What c is cast to in place of its values: forward it is the next product's x, backward a dy. */
template <Fp8Order order> constexpr HsDtype cast_format = order == FP8_ALONG ? HS_E4M3 : HS_E5M2;

template <typename A, typename Tile, Fp8Sum sum, MatmulGate gate, Fp8Order order, bool casts>
__global__ void __launch_bounds__(Tile::threads, Tile::blocks)
    matmul_fp8_kernel(const MatmulParameters parameters, const Fp8Scales scales, const CastOut cast)
{
    HS_DYNAMIC_SHARED(unsigned char, shared);
    begin_after_kernel_before();
    const MatmulTilePosition position = tile_of_block((int)blockIdx.x, parameters.row_tiles, parameters.column_tiles);
    const int warp = (int)threadIdx.x / WARP_SIZE;
    const int warp_row = warp / Tile::warps_across * (Tile::row_blocks * 16);
    const int warp_column = warp % Tile::warps_across * (Tile::column_blocks * 16);
    const int first_row = position.row * Tile::rows + warp_row;
    const int first_column = position.column * Tile::columns + warp_column;
    const int k_begin = (int)blockIdx.y * parameters.slice_depth;
    const int k_end = min(parameters.depth, k_begin + parameters.slice_depth);
    const int steps = (k_end - k_begin + STEP_PAIRS - 1) / STEP_PAIRS;

    constexpr int turns = gate == MATMUL_GATES ? Tile::gate_columns : 0;
    typedef CodeAccess<order == FP8_BOTH_ACROSS, Tile::rows, Tile::threads, true, 0> AccessA;
    typedef CodeAccess<order != FP8_ALONG, Tile::columns, Tile::threads, false, turns> AccessB;
    typename AccessA::Loader load_a;
    typename AccessB::Loader load_b;
    load_a.init(parameters.a, position.row, k_begin * AccessA::elements, k_end * AccessA::elements);
    load_b.init(parameters.b, position.column, k_begin * AccessB::elements, k_end * AccessB::elements);
    typename AccessA::Reader read_a;
    typename AccessB::Reader read_b;
    read_a.init(warp_row);
    read_b.init(warp_column);

    Accumulators<Tile> sums = {}, part = {};
    BlockScales<Tile, gate> block_scales = {};
    /* Steps past the last are copied as zeros, so that there are as many groups as stages. */
    auto copy_step = [&](int stage) {
        unsigned char *const base = shared + stage * Tile::stage_bytes;
        load_a.load_step(base);
        load_b.load_step(base + Tile::rows * STEP_BYTES);
        ptx::copy_async_commit();
    };
#pragma unroll
    for (int stage = 0; stage < Tile::stages - 1; stage++)
        copy_step(stage);
    int stage = 0, free_stage = Tile::stages - 1;
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (sum == FP8_BLOCKS && step % PART_STEPS == 0)
            block_scales.load(scales, parameters.output, first_row, first_column,
                              k_begin / FP8_PART_PAIRS + step / PART_STEPS);
        ptx::copy_async_wait<Tile::stages - 2>();
        __syncthreads(); /* all threads' copies have come, and the stage before has been read */
        copy_step(free_stage);
        multiply_step<A, Tile>(read_a, read_b, shared + stage * Tile::stage_bytes, part);
        free_stage = stage;
        stage = stage + 1 == Tile::stages ? 0 : stage + 1;
        if (sum != FP8_STRAIGHT && step % PART_STEPS == PART_STEPS - 1)
            promote<Tile, sum == FP8_BLOCKS>(sums, part, block_scales);
    }
    promote<Tile, sum == FP8_BLOCKS>(sums, part, block_scales);
    ptx::copy_async_wait<0>();
    __syncthreads();

    const float factor = fp8_factor(scales);
#pragma unroll
    for (int i = 0; i < Tile::row_blocks; i++)
#pragma unroll
        for (int j = 0; j < Tile::column_blocks * 2; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[i][j][e] *= factor;
    MatmulOutput output = parameters.output;
    if (gridDim.y > 1) /* one slice of k: its sums go to its own part of the workspace */
        output.c.data = static_cast<float *>(output.c.data) + (int64_t)blockIdx.y * output.rows * output.columns;
    constexpr bool a_across = order == FP8_BOTH_ACROSS, b_across = order != FP8_ALONG;
    float *const staging = reinterpret_cast<float *>(shared);
    if constexpr (casts) {
        CastCounts counts = {};
        const CastTo<cast_format<order>> to = { cast.data, cast.scaling->kept, &counts };
        finish_tile<Tile, Bf16, gate, a_across, b_across>(output, sums, staging, first_row, first_column, to);
        leave_cast(cast, counts);
    } else {
        finish_tile<Tile, Bf16, gate, a_across, b_across>(output, sums, staging, first_row, first_column);
    }
}

template <typename A, Fp8Sum sum, MatmulGate gate, Fp8Order order, bool casts>
HsStatus launch_cast(HsContext *context, MatmulParameters &parameters, const Fp8Product &product, int slices)
{
#define HS_ROW(...) typedef HS_MATMUL_TILE(__VA_ARGS__) Tile;
    HS_MATMUL_TILES_FP8(HS_ROW)
#undef HS_ROW
    parameters.row_tiles = (int)blocks_for(parameters.output.rows, Tile::rows);
    parameters.column_tiles = (int)blocks_for(parameters.output.columns, Tile::columns);
    const dim3 grid((unsigned)parameters.row_tiles * (unsigned)parameters.column_tiles, (unsigned)slices);
    return hs_launch_after(context, HS_KERNEL((matmul_fp8_kernel<A, Tile, sum, gate, order, casts>)), grid,
                           dim3(Tile::threads), (size_t)Tile::shared_bytes, parameters, product.scales, product.cast);
}

/* can_cast: there is a kernel for it (casts_as_it_stores). */
template <typename A, Fp8Sum sum, MatmulGate gate, Fp8Order order = FP8_ALONG, bool can_cast = false>
HsStatus launch_gate(HsContext *context, MatmulParameters &parameters, const Fp8Product &product, int slices)
{
    if constexpr (can_cast)
        if (product.cast.elements > 0)
            return launch_cast<A, sum, gate, order, true>(context, parameters, product, slices);
    return launch_cast<A, sum, gate, order, false>(context, parameters, product, slices);
}

/* Codes across k: gradients, dx with or without a gate's, and dw. */
template <typename A>
HsStatus launch_across(HsContext *context, MatmulParameters &parameters, const Fp8Product &product, int slices)
{
    constexpr bool can_cast = std::is_same<A, E5m2>::value;
    if (!parameters.a.k_contiguous)
        return launch_gate<A, FP8_PROMOTED, MATMUL_NO_GATE, FP8_BOTH_ACROSS>(context, parameters, product, slices);
    if (hs_epilogue_ungates(parameters.output.epilogue))
        return launch_gate<A, FP8_PROMOTED, MATMUL_UNGATES, FP8_B_ACROSS, can_cast>(context, parameters, product,
                                                                                    slices);
    return launch_gate<A, FP8_PROMOTED, MATMUL_NO_GATE, FP8_B_ACROSS, can_cast>(context, parameters, product, slices);
}

template <typename A, Fp8Sum sum>
HsStatus launch_sum(HsContext *context, MatmulParameters &parameters, const Fp8Product &product, int slices)
{
    constexpr bool can_cast = std::is_same<A, E4m3>::value && sum != FP8_BLOCKS;
    if (hs_epilogue_gates(parameters.output.epilogue))
        return launch_gate<A, sum, MATMUL_GATES, FP8_ALONG, can_cast>(context, parameters, product, slices);
    if (hs_epilogue_ungates(parameters.output.epilogue))
        return launch_gate<A, sum, MATMUL_UNGATES>(context, parameters, product, slices);
    return launch_gate<A, sum, MATMUL_NO_GATE, FP8_ALONG, can_cast>(context, parameters, product, slices);
}

/* Whether FP8 is faster by mma.sync than 16 bits. */
bool has_fp8_mma(int compute_capability)
{
    return compute_capability == 89 || compute_capability >= 120;
}

} // namespace

bool has_fp8_products(const DeviceLimits &limits)
{
    return limits.hopper_products || has_fp8_mma(limits.compute_capability);
}

Fp8Product fp8_product_of(const HsMatmulArgs *args)
{
    const HsCodes &a = args->a.codes, &b = args->b.codes;
    const HsProductFormat format = hs_product_key(args).format;
    Fp8Product product;
    product.a_e5m2 = a.format == HS_E5M2;
    product.sum = format == HS_PRODUCT_FP8_BLOCKS ? FP8_BLOCKS : format == HS_PRODUCT_FP8 ? FP8_STRAIGHT : FP8_PROMOTED;
    product.scales =
        Fp8Scales{ a.scaling, b.scaling, a.block_scales, b.block_scales, (int)hs_codes_blocks(&a), args->alpha };
    product.cast = cast_out(args->cast);
    return product;
}

bool casts_as_it_stores(const HsMatmulArgs *args)
{
    if (args->transpose_a || args->policy.granularity != HS_SCALE_TENSOR)
        return false;
    const bool forward = args->transpose_b && args->policy.a == HS_E4M3 && !hs_epilogue_ungates(args->epilogue);
    const bool backward = !args->transpose_b && args->policy.a == HS_E5M2 && !hs_epilogue_gates(args->epilogue);
    return (forward && args->cast.format == cast_format<FP8_ALONG>) ||
           (backward && args->cast.format == cast_format<FP8_B_ACROSS>);
}

MatmulOperand fp8_operand_of(const HsCodes &codes, bool across)
{
    return across ? MatmulOperand{ codes.data, codes.depth, (int)codes.depth, CHUNK_BYTES, false }
                  : MatmulOperand{ codes.data, codes.depth / 2, (int)codes.rows, CHUNK_BYTES, true };
}

bool turns_codes(const HsContext *context)
{
    return !limits_of(context).hopper_products && !options_of(context).cublaslt;
}

HsStatus launch_matmul_fp8(HsContext *context, MatmulParameters &parameters, const Fp8Product &product,
                           const MatmulChoice &choice)
{
    const int slices = choice.slices;
    if (!parameters.b.k_contiguous)
        return product.a_e5m2 ? launch_across<E5m2>(context, parameters, product, slices)
                              : launch_across<E4m3>(context, parameters, product, slices);
    if (product.sum == FP8_BLOCKS)
        return product.a_e5m2 ? launch_sum<E5m2, FP8_BLOCKS>(context, parameters, product, slices)
                              : launch_sum<E4m3, FP8_BLOCKS>(context, parameters, product, slices);
    if (product.sum == FP8_PROMOTED || product.a_e5m2)
        return product.a_e5m2 ? launch_sum<E5m2, FP8_PROMOTED>(context, parameters, product, slices)
                              : launch_sum<E4m3, FP8_PROMOTED>(context, parameters, product, slices);
    return launch_sum<E4m3, FP8_STRAIGHT>(context, parameters, product, slices);
}

} // namespace HS_CUDA_NAMESPACE
