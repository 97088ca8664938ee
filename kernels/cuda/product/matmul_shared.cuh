/* SPDX-License-Identifier: MIT
 *
 * Operands of tensor-core products in shared memory: how they are laid out, filled and read.
 *
 * An operand's tile covers `extent` rows of op(a) (columns of op(b)) and 64 bytes of k, in 16-byte chunks, laid out as
 * in global memory, so that no layout ever needs a separate transpose:
 *
 *                    a row is                               chunk c of row r lies at
 *     k contiguous   m or n: 64 bytes (4 chunks of k)       c ^ (r / 2 % 4)
 *     k strided      k: extent elements, 16 bits            c ^ (r % 8)
 *                    k: extent codes, 8 bits                c ^ (r % 2 + 2 * (r / 4 % 4))
 *                    k: extent elements, tf32               c ^ (2 * (r % 4))
 *
 * Why these permutations have no bank conflicts (32 banks of 4 bytes, 128 bytes an access):
 *   - ldmatrix reads, at once, one chunk of each of 8 consecutive rows.  Rows of 64 bytes: two rows fill the banks, so
 *     rows r and r + 2 collide unless their chunks differ; r / 2 % 4 gives the 4 pairs 4 different chunks.  Rows of a
 *     multiple of 128 bytes: all 8 rows start at bank 0; r % 8 gives them 8 different chunks.
 *   - tf32 with k strided: ldmatrix transposes 16-bit elements only, so fragments are read as 32-bit words, lane
 *     (g, t) reading column g of row t.  2 * (t % 4) chunks are 8 t banks: 4 groups of 8 different banks.
 *   - codes with k strided (matmul_fp8.cu): ldmatrix reads rows r and r + 1 of four, of every four: 0, 1, 4, 5, 8, 9, 12, 13
 *     or those that are 2 further.  The permutation gives each such set 8 different chunks.
 *   - cp.async writes 8 neighbouring chunks at once; permuted among themselves they still fill 128 bytes.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_SHARED_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_SHARED_CUH

#include "kernels/cuda/product/matmul.cuh"
#include "kernels/cuda/toolbox/ptx_copy.cuh"
#include "kernels/cuda/toolbox/ptx_mma.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Storage of an f32 operand that is multiplied in tf32. */
struct Tf32 {
    float value;
};

/* Storage of an operand in codes of which a product reads the transpose. */
struct Code {
    uint8_t value;
};

enum { CHUNK_BYTES = 16, STEP_BYTES = 64, STEP_CHUNKS = STEP_BYTES / CHUNK_BYTES, STEP_FRAGMENTS = 2 };

/* Elements of k in one step: 32 of 16 bits, 16 of tf32; a step is two fragments deep (k16 or k8). */
template <typename Element> static constexpr int step_depth = STEP_BYTES / (int)sizeof(Element);
template <typename Element> static constexpr int chunk_elements = CHUNK_BYTES / (int)sizeof(Element);

template <typename Element, bool k_contiguous> HS_DEVICE int permuted_chunk(int row, int chunk)
{
    if (k_contiguous)
        return chunk ^ (row / 2 % 4);
    if (sizeof(Element) == 1)
        return chunk ^ (row % 2 + row / 4 % 4 * 2);
    return sizeof(Element) == 2 ? chunk ^ (row % 8) : chunk ^ (2 * (row % 4));
}

/* One chunk from memory that is only as aligned as `access` says: the first `count` elements, the others zero. */
template <typename Element>
HS_DEVICE void copy_chunk(unsigned char *destination, const unsigned char *source, int count, int access)
{
    const int valid = count * (int)sizeof(Element);
    if (access == CHUNK_BYTES) {
        ptx::copy_async_16(ptx::shared_address(destination), source, valid);
    } else if (access == 4) {
#pragma unroll
        for (int byte = 0; byte < CHUNK_BYTES; byte += 4)
            ptx::copy_async_4(ptx::shared_address(destination + byte), source + byte, max(0, min(4, valid - byte)));
    } else { /* 2-byte elements one by one, through registers */
        Pack<uint16_t, 8> chunk = {};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (2 * i < valid)
                chunk.value[i] = reinterpret_cast<const uint16_t *>(source)[i];
        *reinterpret_cast<Pack<uint16_t, 8> *>(destination) = chunk;
    }
}

/* Which column of op(b), of 2 `features`, stands in a tile's `column` where `gate` gates and the linear halves of as many
 * features come by turns; from the tile's first feature on. */
template <int gate> HS_DEVICE int gated_column(int column, int features)
{
    constexpr int turn = gate > 0 ? gate : 1;
    return column / (2 * turn) * turn + column % turn + column / turn % 2 * features;
}

/* Brings one operand's tiles of consecutive steps into shared memory.  Each thread always copies the same chunk
 * column of `passes` rows, `pass_rows` apart: one address and one bound do for all.
 * gate: 0, or as many rows by turns are gates, columns of op(b), and the linear halves of the same features. */
template <typename Element, bool k_contiguous, int extent, int threads, bool aligned, int gate = 0> struct TileLoader {
    static constexpr int row_bytes = k_contiguous ? (int)STEP_BYTES : extent * (int)sizeof(Element);
    static constexpr int rows = extent * STEP_BYTES / row_bytes;
    static constexpr int row_chunks = row_bytes / CHUNK_BYTES;
    static constexpr int pass_rows = threads / row_chunks;
    static constexpr int passes = rows / pass_rows;
    static constexpr int pass_outer =
        gate > 0 ? pass_rows / 2 : pass_rows; /* from a pass's rows in memory to the next's */
    static_assert(gate == 0 || (k_contiguous && pass_rows % (2 * gate) == 0), "whole turns of b's rows in a pass");
    static_assert(pass_rows * row_chunks == threads && passes * pass_rows == rows, "every thread copies alike");
    static_assert(pass_rows % (sizeof(Element) == 1                   ? 16
                               : k_contiguous || sizeof(Element) == 2 ? 8
                                                                      : 4) ==
                      0,
                  "passes permute alike");

    const unsigned char *source; /* the chunk of the first pass in the next step */
    int64_t pass_stride, step_stride;
    int offset; /* in the tile, of the first pass */
    int k, k_end;
    int outer, outer_end; /* row of op(a) or column of op(b), of the first pass */
    int access;

    __device__ __forceinline__ void init(const MatmulOperand &operand, int tile, int k_begin, int k_stop)
    {
        const int row = (int)threadIdx.x / row_chunks, chunk = (int)threadIdx.x % row_chunks;
        const int stored_column = chunk * chunk_elements<Element>;
        k = k_begin + (k_contiguous ? stored_column : row);
        k_end = k_stop;
        outer = gate > 0 ? tile * (extent / 2) + gated_column<gate>(row, operand.extent / 2)
                         : tile * extent + (k_contiguous ? row : stored_column);
        outer_end = operand.extent;
        access = operand.access;
        offset = row * row_bytes + permuted_chunk<Element, k_contiguous>(row, chunk) * CHUNK_BYTES;
        const int64_t stride = operand.stride * (int64_t)sizeof(Element);
        source = static_cast<const unsigned char *>(operand.data);
        source += (k_contiguous ? outer : k) * stride + (int64_t)(k_contiguous ? k : outer) * (int64_t)sizeof(Element);
        pass_stride = pass_outer * stride;
        step_stride = k_contiguous ? (int64_t)STEP_BYTES : step_depth<Element> * stride;
    }

    /* Elements of the chunk of `pass` that are inside the matrix. */
    __device__ __forceinline__ int inside(int pass) const
    {
        const bool row_inside = k_contiguous ? outer + pass * pass_outer < outer_end : k + pass * pass_rows < k_end;
        const int left = k_contiguous ? k_end - k : outer_end - outer;
        return row_inside ? max(0, min(chunk_elements<Element>, left)) : 0;
    }

    __device__ __forceinline__ void load_step(unsigned char *tile)
    {
#pragma unroll
        for (int pass = 0; pass < passes; pass++) {
            unsigned char *const destination = tile + offset + pass * pass_rows * row_bytes;
            const unsigned char *const from = source + pass * pass_stride;
            if (aligned) /* rows of whole chunks: inside or outside altogether */
                ptx::copy_async_16(ptx::shared_address(destination), from, inside(pass) > 0 ? (int)CHUNK_BYTES : 0);
            else
                copy_chunk<Element>(destination, from, inside(pass), access);
        }
        source += step_stride;
        k += step_depth<Element>;
    }
};

HS_DEVICE void encode_fragment(Bf16, uint32_t (&)[4])
{
}
HS_DEVICE void encode_fragment(F16, uint32_t (&)[4])
{
}
HS_DEVICE void encode_fragment(Tf32, uint32_t (&registers)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        registers[i] = ptx::encode_tf32(__uint_as_float(registers[i]));
}

/* Reads fragments of a tile: 16 rows of op(a), or 16 columns of op(b) (two n8 fragments, two registers each), by one
 * fragment of k.  Both are two by two 8 x 16-byte matrices; the operands differ in which comes second. */
template <typename Element, bool k_contiguous, int extent, bool is_a> struct FragmentReader {
    static constexpr bool words = sizeof(Element) == 4 && !k_contiguous; /* tf32 by 32-bit words */
    static constexpr int row_bytes = k_contiguous ? (int)STEP_BYTES : extent * (int)sizeof(Element);
    int offset; /* this lane's part, for block 0 and fragment 0 */

    /* origin: the warp's first row of op(a) or column of op(b) in the tile, a multiple of 32. */
    __device__ __forceinline__ void init(int origin)
    {
        const int lane = (int)threadIdx.x % WARP_SIZE;
        if (words) {
            const int g = lane / 4, t = lane % 4;
            offset = t * row_bytes + ((origin + g) ^ (8 * t)) * 4;
            return;
        }
        /* ldmatrix: lane 8 i + r addresses row r of matrix i.  by_16: matrix 1 is 8 rows of shared memory further and
         * matrix 2 one chunk; otherwise the other way round.  a[1] is 8 rows of op(a) further, b[1] 8 of k. */
        constexpr bool by_16 = is_a == k_contiguous;
        const int row = by_16 ? lane % 16 : lane % 8 + lane / 16 * 8;
        const int chunk = by_16 ? lane / 16 : lane / 8 % 2;
        if (k_contiguous)
            offset = (origin + row) * row_bytes + permuted_chunk<Element, true>(row, chunk) * CHUNK_BYTES;
        else
            offset = row * row_bytes + permuted_chunk<Element, false>(row, origin / 8 + chunk) * CHUNK_BYTES;
    }

    /* block: which 16 rows or columns from the origin; fragment: which half of the step's k.  The permutation being an
     * exclusive or, so is moving by a power of two of chunks. */
    __device__ __forceinline__ void load(const unsigned char *tile, int block, int fragment,
                                         uint32_t (&registers)[4]) const
    {
        if (words) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int outer_half = is_a ? i % 2 : i / 2, k_half = is_a ? i / 2 : i % 2;
                const int at = (offset ^ (block * 64 + outer_half * 32)) + (fragment * 8 + k_half * 4) * row_bytes;
                registers[i] = *reinterpret_cast<const uint32_t *>(tile + at);
            }
        } else if (k_contiguous) {
            const int at = (offset ^ (fragment * 2 * CHUNK_BYTES)) + block * 16 * row_bytes;
            ptx::load_matrix_x4(registers, ptx::shared_address(tile + at));
        } else {
            const int at = (offset ^ (block * 2 * CHUNK_BYTES)) + fragment * 16 * row_bytes;
            ptx::load_matrix_x4_transposed(registers, ptx::shared_address(tile + at));
        }
        encode_fragment(Element{}, registers);
    }
};

HS_DEVICE void multiply_add(Bf16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    ptx::mma_bf16(d, a, b);
}
HS_DEVICE void multiply_add(F16, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    ptx::mma_f16(d, a, b);
}
HS_DEVICE void multiply_add(Tf32, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    ptx::mma_tf32(d, a, b);
}

} // namespace HS_CUDA_NAMESPACE

#endif
