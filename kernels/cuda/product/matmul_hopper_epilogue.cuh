/* SPDX-License-Identifier: MIT
 *
 * How a Hopper product leaves the registers.  Each consumer warp has its own 16 rows of sums and 4 KiB of staging, so
 * that warps wait for no other warp.  There are two ways, and the launch decides which:
 *
 * By lines, where every tensor of c's shape has an address and rows of multiples of 16 bytes.  The epilogue is done in
 * registers, a part of 64 columns at a time; finished elements go to one of two buffers of 16 lines of 128 bytes, and
 * whole lines leave it in one of two ways.  By the warp itself: eight lanes store a line, 16 bytes each, and nothing is
 * waited for.  By a tensor copy, where sums are added to c or clusters share tiles: a buffer is then waited for before
 * it is written again, so that the last copies of a tile run during the next tile's products:
 *
 *     lane 0: until the copy before the last has read its buffer       warp barrier
 *     all:    write the buffer, fence_shared_to_async                  warp barrier
 *     lane 0: copy the buffer, close the group                         the other buffer is next
 *
 * Why not always so?  Tensor copies are served in turn, and those of the next tile's operands, four stages of them, are
 * in the queue by then.  An H200 took 6.7 us longer for each tile of 256 x 256, whether c had 2 bytes an element or 4,
 * than its products take (bench/results/nvidia-h200/blocks.md: half of the time of a forward product with k = 768), when
 * all stores were copies.  That the queue is why is an inference; HALFSTEP_HOPPER_STORES=copies has them as they were.
 *
 * What is read (the pre-activation of a gradient, a residual, a 16-bit c that accumulates) comes through the ring:
 * behind the tile's steps of k the producer fills stages with parts of these tensors, as lines of 128 bytes like an
 * operand's.  So they are on their way while the last products run, and traffic continues while consumers compute.  A
 * consumer reads its elements in the registers' layout and releases the stage.
 *
 *     inputs of a tile: for each stage_parts parts: pre, residual, c, those that there are, a stage each
 *
 * Rows and columns outside c are cut off by the tensor map, which has three dimensions (columns, rows, slices), so that
 * what is below one slice's rows does not go into the next slice.  f32 sums that accumulate (weight gradients) are
 * added by the store itself: each element once a launch, so the result is the same in every run, and what a load, an
 * addition and a store would give, but that subnormal addends and sums become zeros.
 *
 * Gates (SwiGLU and GEGLU), by the warp's own stores.  Forward, half of a tile's columns are gates and half are linear
 * halves of the same features: of B the cluster's first block brings columns n and on, the second F + n and on.  So a
 * thread has both numbers of a feature, stores them, and then what the gate makes of them.  Backward a tile has F's
 * columns, both halves of pre come through the ring, and each part leaves as two.  Rounded where a kernel apart would
 * round, so that both ways have the same bits.
 *
 * Directly, otherwise.  The buffers then hold 64 columns of f32 sums for finish_staged, which uses ordinary loads and
 * stores.
 *
 * What either way will read is prefetched to L2 before the tile's products begin.
 *
 * Bank conflicts.  A line is 128 bytes, all banks once; piece q (16 bytes) of line r lies at q ^ (r % 8), as the
 * swizzle of the tensor map has it.  Lane (g, p) = (lane / 4, lane % 4) holds columns 2 p and 2 p + 1 of each block of
 * eight, of rows g and g + 8.
 *     16 bits: the warp writes 4 bytes a lane: 8 lines, of each the piece j ^ g: 8 different ones.  (stmatrix would
 *     take a quarter of the instructions for the same 128 bytes a clock: not worth a wrapper.)
 *     f32: 8 bytes a lane, half a warp at once: 4 lines, of each the two pieces 2 j and 2 j + 1, permuted by g, which
 *     for g and g ^ 1 are the same two.  So odd lines write block j ^ 2 while even ones write j: then the four lines'
 *     pairs of pieces are all different.  That costs a selection a value, a quarter of the conflict's clocks.
 *     finish_staged reads 16 bytes a lane: eight lanes a whole line.  Inputs lie likewise and are read likewise.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_EPILOGUE_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_EPILOGUE_CUH

#include "kernels/cuda/product/matmul_epilogue.cuh"
#include "kernels/cuda/product/matmul_hopper_work.cuh"
#include "kernels/cuda/toolbox/ptx_tensor_copy.cuh"
#include "kernels/cuda/toolbox/ptx_wgmma.cuh"

namespace HS_CUDA_NAMESPACE
{

enum { HOPPER_MOST_INPUTS = 3 };

struct HopperOutput {
    TensorMap c, pre;                     /* boxes of a buffer; pre only where it is written */
    TensorMap inputs[HOPPER_MOST_INPUTS]; /* what is read, in the order of use: boxes of a block's rows */
    HsDtype input_dtypes[HOPPER_MOST_INPUTS];
    int input_count, stage_parts;
    MatmulOutput matmul;
    bool by_lines; /* else directly */
    bool copied;   /* lines leave by tensor copies */
};

/* A tensor that lines go to, or are read from: its rows and columns, and elements from a row to the next. */
struct HopperBounds {
    int rows, columns, stride;
};

static inline __host__ __device__ HopperBounds hopper_bounds(const MatmulOutput &output)
{
    return { output.rows, output.columns, output.columns };
}

/* Parts of a tile that lie in c; the tile begins at `column`. */
template <int columns> HS_DEVICE int hopper_parts(const HopperOutput &output, int column)
{
    return (min(columns, output.matmul.columns - column) + 63) / 64;
}

/* A warp's two buffers, and its turn.  As f32 staging of finish_staged, each has 32 of the 64 columns. */
struct HopperStaging {
    static constexpr int columns = 64, rows = 16, line = 128, buffer_bytes = rows * line, bytes = 2 * buffer_bytes;
    static constexpr int warps = 8, all_bytes = warps * (bytes + (int)sizeof(HopperTurn) + (int)sizeof(unsigned));

    unsigned char *all; /* of all warps of the consumers, which come after the first four */
    int next;           /* the buffer that the next store takes */

    /* Computed anew, since registers are scarce. */
    __device__ __forceinline__ unsigned char *buffer(int number) const
    {
        return all + (ptx::thread_anew() / WARP_SIZE - 4) * bytes + number * buffer_bytes;
    }

    /* The warp's turn in the tile at hand, behind the buffers: registers are scarce. */
    __device__ __forceinline__ volatile HopperTurn *noted() const
    {
        const int warp = ptx::thread_anew() / WARP_SIZE - 4;
        return reinterpret_cast<volatile HopperTurn *>(all + warps * bytes) + warp;
    }
    __device__ __forceinline__ void note(const HopperTurn &turn) const
    {
        if (ptx::thread_anew() % WARP_SIZE == 0) {
            noted()->counter = turn.counter;
            noted()->turn = turn.turn;
            noted()->last = turn.last;
        }
        __syncwarp();
    }
    __device__ __forceinline__ HopperTurn turn() const
    {
        return { noted()->counter, noted()->turn, noted()->last };
    }
    /* Behind the turns: the largest magnitude that the warp has sent, its first lane's alone. */
    __device__ __forceinline__ volatile unsigned *sent() const
    {
        const int warp = ptx::thread_anew() / WARP_SIZE - 4;
        return reinterpret_cast<volatile unsigned *>(all + warps * (bytes + (int)sizeof(HopperTurn))) + warp;
    }
    __device__ __forceinline__ void send_amax(const AmaxOut &amax, uint32_t most) const
    {
        most = warp_reduce<Maximum>(most);
        if (ptx::thread_anew() % WARP_SIZE != 0 || most <= *sent())
            return;
        *sent() = most;
        atomicMax(amax.to, stored_magnitude(amax.dtype, most));
    }
    __device__ __forceinline__ bool adds() const
    {
        return noted()->turn > 0;
    }

    static __device__ __forceinline__ int place(int row, int column)
    {
        return column / 32 * (buffer_bytes / 4) + row * (line / 4) + ((column % 32 / 4) ^ (row % 8)) * 4 + column % 4;
    }
};

/* 16 rows of 64 columns, as wgmma leaves them: block j of eight columns has values 4 j and on. */
typedef float HopperPart[32];

/* `blocks` of a part, one buffer full, to the buffer. */
HS_DEVICE void stage_blocks(float, unsigned char *buffer, const float *blocks)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, p = lane % 4;
    const bool odd = g % 2 != 0;
    const int offset = g * HopperStaging::line + (p / 2 ^ g ^ (odd ? 4 : 0)) * 16 + p % 2 * 8;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            values[i] = odd ? blocks[(j ^ 2) * 4 + i] : blocks[j * 4 + i];
        float *const target = reinterpret_cast<float *>(buffer + (offset ^ (j * 32)));
        store_pack<float, 2>(target, { { values[0], values[1] } });
        store_pack<float, 2>(target + 8 * HopperStaging::line / 4, { { values[2], values[3] } });
    }
}

/* first, count: which of the line's eight blocks. */
template <typename T>
HS_DEVICE void stage_blocks(T, unsigned char *buffer, const float *blocks, int first = 0, int count = 8)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, p = lane % 4;
    const int offset = g * HopperStaging::line + g * 16 + p * 4;
#pragma unroll
    for (int j = 0; j < count; j++) {
        uint32_t *const target = reinterpret_cast<uint32_t *>(buffer + (offset ^ ((first + j) * 16)));
        target[0] = pack_pair<T>(blocks[j * 4], blocks[j * 4 + 1]);
        target[8 * HopperStaging::line / 4] = pack_pair<T>(blocks[j * 4 + 2], blocks[j * 4 + 3]);
    }
}

/* Four blocks of a line, as stage_blocks would have written them: the first half of 16-bit ones, or with `half` 1 the
 * second. */
HS_DEVICE void read_blocks(float, const unsigned char *lines, int, float (&blocks)[16])
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, p = lane % 4;
    const bool odd = g % 2 != 0;
    const int offset = g * HopperStaging::line + (p / 2 ^ g ^ (odd ? 4 : 0)) * 16 + p % 2 * 8;
    float found[16];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float *const source = reinterpret_cast<const float *>(lines + (offset ^ (j * 32)));
        const Pack<float, 2> upper = load_pack<float, 2>(source);
        const Pack<float, 2> lower = load_pack<float, 2>(source + 8 * HopperStaging::line / 4);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            found[j * 4 + i] = upper.value[i];
            found[j * 4 + 2 + i] = lower.value[i];
        }
    }
#pragma unroll
    for (int i = 0; i < 16; i++)
        blocks[i] = odd ? found[i ^ 8] : found[i];
}

template <typename T> HS_DEVICE void read_blocks(T, const unsigned char *lines, int half, float (&blocks)[16])
{
    const int lane = ptx::thread_anew() % WARP_SIZE, g = lane / 4, p = lane % 4;
    const int offset = g * HopperStaging::line + g * 16 + p * 4;
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const T *const source = reinterpret_cast<const T *>(lines + (offset ^ ((half * 4 + j) * 16)));
        const Pack<T, 2> upper = load_pack<T, 2>(source), lower = load_pack<T, 2>(source + 8 * HopperStaging::line / 2);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            blocks[j * 4 + i] = to_float(upper.value[i]);
            blocks[j * 4 + 2 + i] = to_float(lower.value[i]);
        }
    }
}

template <HsActivation f> HS_DEVICE void activate_part(const MatmulView &pre, HopperPart &values)
{
#pragma unroll
    for (int first = 0; first < 32; first += 16) {
#pragma unroll
        for (int i = first; i < first + 16; i++)
            values[i] = activate<f>(as_stored(pre, values[i]));
        ptx::wgmma_settle(values); /* the halves one after the other: registers are scarce */
    }
}

/* One input of a part.  lines: the warp's first, of the part's first columns; `next` bytes behind it the columns after
 * the line's.  f: it is pre, and the values are those of f's gradient; NONE: it is added. */
template <typename T>
HS_DEVICE void apply_input_as(const unsigned char *lines, int next, HsActivation f, HopperPart &values)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float others[16];
        read_blocks(T{}, lines + (sizeof(T) == 4 ? half * next : 0), half, others);
        if (f == HS_ACTIVATION_GELU) {
#pragma unroll
            for (int i = 0; i < 16; i++)
                values[half * 16 + i] *= slope_of<HS_ACTIVATION_GELU>(others[i]);
        } else if (f == HS_ACTIVATION_RELU2) {
#pragma unroll
            for (int i = 0; i < 16; i++)
                values[half * 16 + i] *= slope_of<HS_ACTIVATION_RELU2>(others[i]);
        } else {
#pragma unroll
            for (int i = 0; i < 16; i++)
                values[half * 16 + i] += others[i];
        }
        ptx::wgmma_settle(values);
    }
}

HS_DEVICE void apply_input(HsDtype dtype, const unsigned char *lines, int next, HsActivation f, HopperPart &values)
{
    if (dtype == HS_F32)
        apply_input_as<float>(lines, next, f, values);
    else if (dtype == HS_BF16)
        apply_input_as<Bf16>(lines, next, f, values);
    else
        apply_input_as<F16>(lines, next, f, values);
}

/* Where a part lies in c. */
struct HopperPlace {
    int column, row, slice;
};

/* By one lane: a buffer's lines by a tensor copy. */
HS_DEVICE void copy_lines(const TensorMap *map, const unsigned char *buffer, bool add, const HopperPlace &place)
{
    const uint32_t source = ptx::shared_address(buffer);
    if (add)
        ptx::add_tile(source, map, place.column, place.row, place.slice);
    else
        ptx::store_tile(source, map, place.column, place.row, place.slice);
    ptx::store_tile_commit();
}

/* By the warp, eight lanes a line.  Columns are multiples of 16 bytes: a lane's are in the tensor or behind them. */
template <typename T>
HS_DEVICE void store_lines(const HopperBounds &bounds, T *to, const unsigned char *buffer, const HopperPlace &place)
{
    constexpr int width = 16 / (int)sizeof(T), step = WARP_SIZE / 8;
    const int lane = ptx::thread_anew() % WARP_SIZE, line = lane / 8, column = place.column + lane % 8 * width;
    const int rows = column < bounds.columns ? bounds.rows - place.row - line : 0;
    const int64_t stride = (int64_t)bounds.stride * step;
    T *at = to + (int64_t)(place.row + line) * bounds.stride + column;
    const int from = line * HopperStaging::line + (lane % 8 ^ line) * 16;
#pragma unroll
    for (int i = 0; i < HopperStaging::rows / step; i++, at += stride)
        if (i * step < rows) /* lines 4 to 7 of eight have their pieces exchanged by fours */
            store_pack<T, width>(at, load_pack<T, width>(reinterpret_cast<const T *>(buffer + (from ^ i % 2 * 64) +
                                                                                     i * step * HopperStaging::line)));
}

/* Buffers alternate: before one is written again, lanes have met behind what they read of it. */
template <typename T, bool copied>
HS_DEVICE void store_part_as(const HopperOutput &output, HopperStaging &staging, const MatmulView &view,
                             const TensorMap *map, const HopperPart &values, bool add, HopperPlace place)
{
    constexpr int blocks = HopperStaging::line / 8 / (int)sizeof(T);
    const bool leads = ptx::thread_anew() % WARP_SIZE == 0;
#pragma unroll
    for (int first = 0; first < HopperStaging::columns / 8; first += blocks) {
        unsigned char *const buffer = staging.buffer(staging.next);
        if (copied) {
            if (leads)
                ptx::store_tile_wait<1>();
            __syncwarp();
        }
        stage_blocks(T{}, buffer, values + first * 4);
        if (copied)
            ptx::fence_shared_to_async();
        __syncwarp();
        if (!copied)
            store_lines(hopper_bounds(output.matmul), static_cast<T *>(view.data), buffer, place);
        else if (leads)
            copy_lines(map, buffer, add, place);
        place.column += blocks * 8;
        staging.next ^= 1;
    }
}

template <typename T>
HS_DEVICE void store_part_as(const HopperOutput &output, HopperStaging &staging, const MatmulView &view,
                             const TensorMap *map, const HopperPart &values, bool add, const HopperPlace &place)
{
    if (output.copied)
        store_part_as<T, true>(output, staging, view, map, values, add, place);
    else
        store_part_as<T, false>(output, staging, view, map, values, false, place);
}

HS_DEVICE void store_part(const HopperOutput &output, HopperStaging &staging, const MatmulView &view,
                          const TensorMap *map, const HopperPart &values, bool add, const HopperPlace &place)
{
    if (view.dtype == HS_F32)
        store_part_as<float>(output, staging, view, map, values, add, place);
    else if (view.dtype == HS_BF16)
        store_part_as<Bf16>(output, staging, view, map, values, false, place);
    else
        store_part_as<F16>(output, staging, view, map, values, false, place);
}

/* Of a part's elements that lie in the tensor, with rows of whole pairs: of `count / 4` of its blocks, the first at
 * place.column. */
template <int count>
HS_DEVICE uint32_t largest_of_blocks(const HopperBounds &bounds, const float (&values)[count], const HopperPlace &place)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, row = place.row + lane / 4, column = place.column + lane % 4 * 2;
    const bool upper = row < bounds.rows, lower = row + 8 < bounds.rows;
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < count / 4; j++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + j * 8 < bounds.columns && (i < 2 ? upper : lower))
                most = larger(most, magnitude_of(values[j * 4 + i]));
    }
    return most;
}

/* What this lane adds to a part; where there is none -0, which changes no number. */
struct HopperBias {
    Pack<float, 2> pairs[8];

    /* column: the part's first */
    __device__ __forceinline__ void load(const MatmulOutput &output, int column)
    {
        const int first = column + ptx::thread_anew() % WARP_SIZE % 4 * 2;
        const int columns = output.bias != NULL ? output.columns : 0;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            pairs[j] = { { -0.0f, -0.0f } };
            if (first + j * 8 < columns)
                pairs[j] = load_pack<float, 2>(output.bias + first + j * 8);
        }
    }
};

/* Part `part` of a thread's sums.  The loop keeps the registers' indices constant; the first part is taken always, or the
 * compiler would keep what was in `values` before. */
template <int columns> HS_DEVICE void take_part(const float (&sums)[columns / 2], int part, HopperPart &values)
{
#pragma unroll
    for (int i = 0; i < columns / HopperStaging::columns; i++) {
        if (i > 0 && i != part)
            continue;
#pragma unroll
        for (int j = 0; j < 32; j++)
            values[j] = sums[i * 32 + j];
    }
}

/* Sums with nothing but a bias, by the warp's own stores: without a choice of anything in the loop, which is one in code
 * so that a part's registers are named and none is moved. */
template <int columns, typename T>
HS_DEVICE void store_plain(const HopperOutput &output, const float (&sums)[columns / 2], HopperBias &bias,
                           HopperStaging &staging, HopperPlace place)
{
    const MatmulOutput &matmul = output.matmul;
    const int parts = hopper_parts<columns>(output, place.column);
#pragma unroll
    for (int part = 0; part < columns / HopperStaging::columns; part++) {
        if (part >= parts)
            break;
        HopperPart values;
#pragma unroll
        for (int i = 0; i < 32; i++)
            values[i] = sums[part * 32 + i] + bias.pairs[i / 4].value[i % 2];
        if (part + 1 < columns / HopperStaging::columns)
            bias.load(matmul, place.column + HopperStaging::columns);
        store_part_as<T, false>(output, staging, matmul.c, NULL, values, false, place);
        place.column += HopperStaging::columns;
    }
    __syncwarp();
}

/* By lines.  place: of the warp's first sum.  bias: of the first part, where there is one.  wait() returns
 * the warp's first line in the ring's stage at hand when that is full, done() releases the stage and advances to the
 * next; `next` bytes lie between a line and the one with the columns behind it. */
template <int columns, typename Wait, typename Done>
HS_DEVICE void store_sums(const HopperOutput &output, const float (&sums)[columns / 2], HopperBias &bias,
                          HopperStaging &staging, HopperPlace place, int next, const Wait &wait, const Done &done)
{
    const MatmulOutput &matmul = output.matmul;
    if (!output.copied && output.input_count == 0 && !hs_epilogue_activates(matmul.epilogue) &&
        matmul.amax.to == NULL) {
        if (matmul.c.dtype == HS_F32)
            store_plain<columns, float>(output, sums, bias, staging, place);
        else if (matmul.c.dtype == HS_BF16)
            store_plain<columns, Bf16>(output, sums, bias, staging, place);
        else
            store_plain<columns, F16>(output, sums, bias, staging, place);
        return;
    }
    const int parts = hopper_parts<columns>(output, place.column);
    staging.turn().wait(ptx::thread_anew() % WARP_SIZE);
    /* A loop in time, not in code. */
#pragma unroll 1
    for (int part = 0; part < parts; part++) {
        HopperPart values;
        take_part<columns>(sums, part, values);
        if (matmul.bias != NULL) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                values[i] += bias.pairs[i / 4].value[i % 2];
            bias.load(matmul, place.column + HopperStaging::columns);
        }
        if (hs_epilogue_activates(matmul.epilogue)) {
            if (matmul.pre.data != NULL)
                store_part(output, staging, matmul.pre, &output.pre, values, false, place);
            if (hs_epilogue_activation(matmul.epilogue) == HS_ACTIVATION_RELU2)
                activate_part<HS_ACTIVATION_RELU2>(matmul.pre, values);
            else
                activate_part<HS_ACTIVATION_GELU>(matmul.pre, values);
        }
#pragma unroll 1
        for (int input = 0; input < output.input_count; input++) {
            const HsDtype dtype = output.input_dtypes[input];
            const int part_lines = dtype == HS_F32 ? 2 : 1, behind = part % output.stage_parts;
            const bool derivative = input == 0 && hs_epilogue_differentiates(matmul.epilogue);
            const HsActivation f = derivative ? hs_epilogue_activation(matmul.epilogue) : HS_ACTIVATION_NONE;
            apply_input(dtype, wait() + behind * part_lines * next, next, f, values);
            if (behind == output.stage_parts - 1 || part == parts - 1)
                done();
        }
        if (matmul.amax.to != NULL)
            staging.send_amax(matmul.amax, largest_of_blocks(hopper_bounds(matmul), values, place));
        store_part(output, staging, matmul.c, &output.c, values, matmul.accumulate || staging.adds(), place);
        place.column += HopperStaging::columns;
    }
    staging.turn().pass(ptx::thread_anew() % WARP_SIZE);
    __syncwarp();
}

/* --- gates --- */

/* A part of 16-bit elements by the warp's own stores. */
template <typename T>
HS_DEVICE void store_gate_part(HopperStaging &staging, const HopperBounds &bounds, T *to, const HopperPart &values,
                               const HopperPlace &place)
{
    unsigned char *const buffer = staging.buffer(staging.next);
    stage_blocks(T{}, buffer, values);
    __syncwarp();
    store_lines(bounds, to, buffer, place);
    staging.next ^= 1;
}

/* A tile whose first half of columns are gates of features from place.column on, and whose second half are the same
 * features' linear halves: pre = [gate | up], c = f(gate) up, of both as they are stored.  bias: of the first part. */
template <int columns, typename T, HsActivation f>
HS_DEVICE void store_gated(const MatmulOutput &matmul, const float (&sums)[columns / 2], HopperBias &bias,
                           HopperStaging &staging, HopperPlace place)
{
    constexpr int parts = columns / 2 / HopperStaging::columns;
    const int features = matmul.columns / 2;
    const HopperBounds half = { matmul.rows, features, matmul.columns }, all = { matmul.rows, features, features };
    T *const pre = static_cast<T *>(matmul.pre.data);
#pragma unroll
    for (int part = 0; part < parts; part++) {
        if (place.column >= features)
            break;
        HopperPart gate, up;
        if (part > 0)
            bias.load(matmul, place.column);
#pragma unroll
        for (int i = 0; i < 32; i++)
            gate[i] = sums[part * 32 + i] + bias.pairs[i / 4].value[i % 2];
        bias.load(matmul, features + place.column);
#pragma unroll
        for (int i = 0; i < 32; i++)
            up[i] = sums[(parts + part) * 32 + i] + bias.pairs[i / 4].value[i % 2];
        store_gate_part(staging, half, pre, gate, place);
        store_gate_part(staging, half, pre + features, up, place);
#pragma unroll
        for (int i = 0; i < 32; i++)
            up[i] = rounded<T>(up[i]) * activate<f>(rounded<T>(gate[i]));
        if (matmul.amax.to != NULL)
            staging.send_amax(matmul.amax, largest_of_blocks(all, up, place));
        store_gate_part(staging, all, static_cast<T *>(matmul.c.data), up, place);
        place.column += HopperStaging::columns;
    }
    __syncwarp();
}

/* The gradient: c = [value up f'(gate) | value f(gate)], of value as a tensor of c's dtype would have it.  Gates and linear
 * halves come through the ring, a part in a stage, and what is made of a gate leaves before the other comes. */
template <int columns, typename T, HsActivation f, typename Wait, typename Done>
HS_DEVICE void store_ungated(const MatmulOutput &matmul, const float (&sums)[columns / 2], HopperStaging &staging,
                             HopperPlace place, const Wait &wait, const Done &done)
{
    const int features = matmul.columns;
    const HopperBounds half = { matmul.rows, features, 2 * features };
    T *const c = static_cast<T *>(matmul.c.data);
#pragma unroll 1
    for (int part = 0; part < columns / HopperStaging::columns && place.column < features; part++) {
        HopperPart values;
        take_part<columns>(sums, part, values);
        uint32_t most = 0;
        unsigned char *const buffer = staging.buffer(staging.next);
        const unsigned char *lines = wait();
#pragma unroll
        for (int first = 0; first < 2; first++) {
            float others[16];
            read_blocks(T{}, lines, first, others);
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const float value = rounded<T>(values[first * 16 + i]);
                const Activated gate = activate_with_slope<f>(others[i]);
                others[i] = value * gate.value;
                values[first * 16 + i] = value * gate.slope;
            }
            if (matmul.amax.to != NULL)
                most = larger(most, largest_of_blocks(half, others, { place.column + first * 32, place.row, 0 }));
            stage_blocks(T{}, buffer, others, first * 4, 4);
            ptx::wgmma_settle(values); /* the halves one after the other: registers are scarce */
        }
        done(); /* the lanes have met */
        store_lines(half, c + features, buffer, place);
        staging.next ^= 1;
        lines = wait();
#pragma unroll
        for (int first = 0; first < 2; first++) {
            float others[16];
            read_blocks(T{}, lines, first, others);
#pragma unroll
            for (int i = 0; i < 16; i++)
                values[first * 16 + i] *= others[i];
        }
        done();
        if (matmul.amax.to != NULL)
            staging.send_amax(matmul.amax, larger(most, largest_of_blocks(half, values, place)));
        store_gate_part(staging, half, c, values, place);
        place.column += HopperStaging::columns;
    }
    __syncwarp();
}

template <int columns, typename T, typename Wait, typename Done>
HS_DEVICE void store_gates(const MatmulOutput &matmul, const float (&sums)[columns / 2], HopperBias &bias,
                           HopperStaging &staging, const HopperPlace &place, const Wait &wait, const Done &done)
{
    const bool silu = hs_epilogue_activation(matmul.epilogue) == HS_ACTIVATION_SILU;
    if (hs_epilogue_gates(matmul.epilogue) && silu)
        store_gated<columns, T, HS_ACTIVATION_SILU>(matmul, sums, bias, staging, place);
    else if (hs_epilogue_gates(matmul.epilogue))
        store_gated<columns, T, HS_ACTIVATION_GELU>(matmul, sums, bias, staging, place);
    else if (silu)
        store_ungated<columns, T, HS_ACTIVATION_SILU>(matmul, sums, staging, place, wait, done);
    else
        store_ungated<columns, T, HS_ACTIVATION_GELU>(matmul, sums, staging, place, wait, done);
}

/* Directly. */
template <int columns, int groups>
HS_DEVICE void finish_sums(const MatmulOutput &output, const float (&sums)[columns / 2], const HopperStaging &staging,
                           const HopperPlace &place)
{
#pragma unroll 1
    for (int part = 0; part < columns / HopperStaging::columns; part++) {
#pragma unroll
        for (int i = 0; i < columns / HopperStaging::columns; i++) {
            if (i != part)
                continue;
            stage_blocks(0.0f, staging.buffer(0), sums + i * 32);
            stage_blocks(0.0f, staging.buffer(1), sums + i * 32 + 16);
        }
        __syncwarp();
        const uint32_t most = finish_staged<HopperStaging, groups>(
            output, reinterpret_cast<const float *>(staging.buffer(0)), ptx::thread_anew() % WARP_SIZE, place.row,
            place.column + part * HopperStaging::columns);
        if (output.amax.to != NULL)
            staging.send_amax(output.amax, most);
        __syncwarp();
    }
}

/* Directly, the plain f32 sums of a slice: where rows are no multiples of 16 bytes, element by element. */
template <int columns>
HS_DEVICE void write_sums(const MatmulOutput &output, const float (&sums)[columns / 2], const HopperPlace &place)
{
    const int lane = ptx::thread_anew() % WARP_SIZE;
    float *const c = static_cast<float *>(output.c.data) + (int64_t)place.slice * output.rows * output.columns;
#pragma unroll 1
    for (int part = 0; part < columns / HopperStaging::columns; part++) {
        HopperPart values;
        take_part<columns>(sums, part, values);
#pragma unroll
        for (int i = 0; i < 32; i++) {
            const int row = place.row + lane / 4 + i / 2 % 2 * 8;
            const int column = place.column + part * HopperStaging::columns + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (row < output.rows && column < output.columns)
                c[(int64_t)row * output.columns + column] = values[i];
        }
    }
    __syncwarp();
}

/* The lines of the warp's 16 rows of a tensor, `columns` wide, behind its first `offset` elements. */
HS_DEVICE void prefetch_rows(const MatmulView &view, const HopperBounds &bounds, const HopperPlace &place, int columns,
                             int offset = 0)
{
    const int lane = ptx::thread_anew() % WARP_SIZE, row = place.row + lane % HopperStaging::rows;
    if (view.data == NULL || row >= bounds.rows)
        return;
    const int size = view.dtype == HS_F32 ? 4 : 2;
    const int bytes = min(columns, bounds.columns - place.column) * size;
    const char *const first =
        static_cast<const char *>(view.data) + ((int64_t)row * bounds.stride + offset + place.column) * size;
#pragma unroll 1
    for (int byte = lane / HopperStaging::rows * 128; byte < bytes; byte += 256)
        ptx::prefetch_to_l2(first + byte);
}

HS_DEVICE void prefetch_inputs(const MatmulOutput &output, const HopperPlace &place, int columns)
{
    const HopperBounds bounds = hopper_bounds(output), half = { output.rows, output.columns, 2 * output.columns };
    if (hs_epilogue_ungates(output.epilogue)) {
        prefetch_rows(output.pre, half, place, columns);
        prefetch_rows(output.pre, half, place, columns, output.columns);
        return;
    }
    prefetch_rows(output.residual, bounds, place, columns);
    if (hs_epilogue_differentiates(output.epilogue))
        prefetch_rows(output.pre, bounds, place, columns);
    if (output.accumulate)
        prefetch_rows(output.c, bounds, place, columns);
}

} // namespace HS_CUDA_NAMESPACE

#endif
