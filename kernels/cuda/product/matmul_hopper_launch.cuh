/* SPDX-License-Identifier: MIT
 *
 * What a launch of Hopper's products describes to its kernel (matmul_hopper.cuh): operands and tensors of c's shape as
 * tensor maps, and how tiles are dealt to clusters.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_LAUNCH_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_HOPPER_LAUNCH_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/matmul_hopper.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Boxes of an operand: 64 k by `lines` where k is contiguous, else 64 of its rows or columns by a step of k. */
static inline HsStatus map_operand(const MatmulOperand &operand, HsDtype dtype, int64_t depth, int lines,
                                   TensorMap *map)
{
    const int64_t along = operand.k_contiguous ? depth : operand.extent;
    const int64_t across = operand.k_contiguous ? operand.extent : depth;
    const TensorMapShape shape = { const_cast<void *>(operand.data),
                                   dtype,
                                   2,
                                   { along, across },
                                   { 2, operand.stride * 2 },
                                   { 64, operand.k_contiguous ? lines : (int)HOPPER_STEP },
                                   HOPPER_LINE };
    return encode_tensor_map(shape, map);
}

/* Of a tensor: boxes of lines of `rows` rows. */
static inline HsStatus map_lines(const MatmulView &view, const HopperBounds &bounds, int slices, int rows,
                                 TensorMap *map)
{
    const int64_t size = (int64_t)hs_dtype_bytes(view.dtype), row_bytes = bounds.stride * size;
    const TensorMapShape shape = { view.data,
                                   view.dtype,
                                   3,
                                   { bounds.columns, bounds.rows, slices },
                                   { size, row_bytes, bounds.rows * row_bytes },
                                   { HopperStaging::line / (int)size, rows, 1 },
                                   HopperStaging::line };
    return encode_tensor_map(shape, map);
}

static inline bool can_be_mapped(const MatmulView &view, const MatmulOutput &output)
{
    return view.data == NULL ||
           (aligned_to(view.data, 16) && (size_t)output.columns * hs_dtype_bytes(view.dtype) % 16 == 0);
}

/* What is read, in the order of use.  rows: of a block; lines: of 128 bytes that a stage has room for in each row.
 * Several inputs take turns with a part each. */
static inline HsStatus describe_inputs(const MatmulOutput &given, int rows, int lines, HopperOutput *output)
{
    const MatmulView absent = {};
    const MatmulView reads[] = { hs_epilogue_differentiates(given.epilogue) ? given.pre : absent, given.residual,
                                 given.accumulate && given.c.dtype != HS_F32 ? given.c : absent };
    for (const MatmulView &view : reads) {
        if (view.data == NULL)
            continue;
        output->stage_parts = output->input_count > 0 ? 1 : lines / (view.dtype == HS_F32 ? 2 : 1);
        output->input_dtypes[output->input_count] = view.dtype;
        HS_TRY(map_lines(view, hopper_bounds(given), 1, rows, &output->inputs[output->input_count++]));
    }
    return HS_OK;
}

/* What a gate's gradient reads: gates, then linear halves. */
static inline HsStatus describe_halves(const MatmulOutput &given, int rows, HopperOutput *output)
{
    const HopperBounds bounds = { given.rows, given.columns, 2 * given.columns };
    MatmulView half = given.pre;
    output->stage_parts = 1;
    for (; output->input_count < 2; output->input_count++) {
        output->input_dtypes[output->input_count] = half.dtype;
        HS_TRY(map_lines(half, bounds, 1, rows, &output->inputs[output->input_count]));
        half.data = static_cast<unsigned char *>(half.data) + given.columns * (int64_t)hs_dtype_bytes(half.dtype);
    }
    return HS_OK;
}

/* The rules of matmul_hopper_epilogue.cuh. */
static inline HsStatus describe_output(const DeviceLimits &limits, const MatmulParameters &product, int slices,
                                       int rows, int lines, HopperOutput *output)
{
    const MatmulOutput &given = product.output;
    output->matmul = given;
    output->by_lines = given.vector && can_be_mapped(given.c, given) && can_be_mapped(given.pre, given) &&
                       can_be_mapped(given.residual, given);
    output->copied = !hs_epilogue_reshapes(given.epilogue) &&
                     (limits.hopper_copies || given.accumulate || slices > 1 || product.joint_turns != NULL);
    if (!output->by_lines)
        return HS_OK;
    if (hs_epilogue_ungates(given.epilogue))
        return describe_halves(given, rows, output);
    HS_TRY(describe_inputs(given, rows, lines, output));
    if (!output->copied)
        return HS_OK;
    if (hs_epilogue_activates(given.epilogue) && given.pre.data != NULL)
        HS_TRY(map_lines(given.pre, hopper_bounds(given), slices, HopperStaging::rows, &output->pre));
    return map_lines(given.c, hopper_bounds(given), slices, HopperStaging::rows, &output->c);
}

/* Clusters of a launch, and what each has to do.  Behind a gate half of a tile's columns are gates, and half are linear
 * halves, of the same features. */
static inline int deal_tiles(const MatmulParameters &given, int tile_rows, int tile_columns, int slices, int most,
                             HopperParameters *parameters)
{
    const bool gates = hs_epilogue_gates(given.output.epilogue);
    HopperDeal *const deal = &parameters->deal;
    parameters->second = gates ? given.output.columns / 2 : tile_columns / HOPPER_CLUSTER;
    deal->depth = given.depth;
    deal->slice_depth = given.slice_depth;
    deal->columns = gates ? tile_columns / 2 : tile_columns;
    deal->row_pairs = (int)blocks_for(given.output.rows, tile_rows * HOPPER_CLUSTER);
    deal->column_tiles = (int)blocks_for(gates ? given.output.columns / 2 : given.output.columns, deal->columns);
    deal->slices = slices;
    const int64_t tiles = (int64_t)deal->row_pairs * deal->column_tiles;
    const int64_t steps = blocks_for(given.depth, HOPPER_STEP);
    const int64_t pieces = tiles * (given.joint_turns != NULL ? steps : slices);
    const int clusters = (int)min(pieces, (int64_t)most);
    if (given.joint_turns == NULL)
        return clusters;
    deal->range = (int)blocks_for(tiles % clusters * steps, clusters);
    deal->turns = given.joint_turns;
    return clusters;
}

} // namespace HS_CUDA_NAMESPACE

#endif
