/* SPDX-License-Identifier: MIT
 *
 * Matrix products on a GPU: what their parts tell each other.
 *
 *     matmul.cu           the operation: workspace, choice of the kernel, the second pass of a split sum
 *     matmul_choice.cu    kernel, tile and slices of k: as measured, else by the model
 *     matmul_table.cu     a device's table of measured choices
 *     matmul_model.cu     the model of the GPU
 *     matmul_kernel.cuh   tensor-core products (mma.sync + cp.async), instantiated by matmul_{bf16,f16,tf32}.cu
 *     matmul_hopper.cuh   16-bit products on sm_90a (wgmma + tensor copies), instantiated by matmul_hopper.cu;
 *                         matmul_hopper_work.cuh is which tiles a cluster has, and how several share one,
 *                         matmul_hopper_epilogue.cuh how they are written
 *     matmul_fp8.cuh      operands in FP8 codes: what is summed how; matmul_fp8.cu (mma.sync) and
 *                         matmul_fp8_hopper.cuh (wgmma), instantiated by matmul_fp8_hopper.cu
 *     matmul_f32.cu       exact f32 products (FFMA)
 *     matmul_nf4.cuh      a right operand in four bits, decoded on its way into shared memory; matmul_nf4.cu
 *     matmul_epilogue.cuh everything after the sum, for all of them
 *     cast.cuh            codes in place of c, by the products of FP8 codes on 8.9 and 12.0
 *     cublaslt.cu         the rival
 *
 * Determinism: a sum over k has one fixed order, given by the shape and the device; no atomics.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/toolbox/amax.cuh"
#include "kernels/cuda/toolbox/launch.cuh"

extern "C" {
#include "kernels/tuning/tuning.h"
}

namespace HS_CUDA_NAMESPACE
{

/* One operand as it is stored.  With m the index that survives in c: k_contiguous means data[m * stride + k], else
 * data[k * stride + m]. */
struct MatmulOperand {
    const void *data;
    int64_t stride; /* elements from one stored row to the next */
    int extent;     /* rows of op(a), columns of op(b) */
    int access;     /* the widest load, in bytes, that every row start allows: 16, 4 or the element's size */
    bool k_contiguous;
};

/* A tensor of the product's shape that the epilogue reads or writes, and of half its columns, or twice as many, where a gate
 * is in between; NULL: absent. */
struct MatmulView {
    void *data;
    HsDtype dtype;
};

/* What becomes of a sum (ops.h) in the kernel that makes it: c = epilogue(sum + bias) + residual [+ c].  A factor and an
 * addend are launch_matmul_finish's: in the kernels they would cost the registers that every product needs. */
struct MatmulOutput {
    MatmulView c, residual, pre;
    const float *bias; /* NULL: absent */
    int rows, columns; /* of the product */
    HsEpilogue epilogue;
    bool accumulate;
    bool vector;  /* four neighbouring columns may be moved as one everywhere */
    AmaxOut amax; /* of c; of a product that is finished apart, only there */
    /* NULL: absent.  [rows], added to; of a product in slices, behind its sums, [slices, rows], written. */
    float *row_sums;
};

/* op(b) in four bits, b.data then being NULL: codes as HsQuantized has them, absmax decoded, one for a block. */
struct MatmulQuantized {
    const unsigned char *codes;
    const float *absmax;
};

/* A launch's parameters, in constant memory. */
struct MatmulParameters {
    MatmulOperand a, b;
    MatmulQuantized quantized;
    MatmulOutput output;
    int depth;       /* K */
    int slice_depth; /* k of one slice, a multiple of SLICE_UNIT; slice s sums k in [s, s + 1) * slice_depth */
    int row_tiles, column_tiles;
    unsigned *joint_turns; /* zeros, where clusters share tiles (matmul_hopper_work.cuh); else NULL */
};

/* Slices of k end at multiples of this, whatever the kernel: a multiple of every kernel's step. */
enum { MATMUL_SLICE_UNIT = 64 };

/* Of Hopper's products: turns are kept for this many (products.cuh). */
enum { MATMUL_MOST_CLUSTERS = 128 };

/* The kernel families; each has its own rows in the table of tiles. */
enum MatmulFamily { MATMUL_F32, MATMUL_TF32, MATMUL_16BIT, MATMUL_FP8, MATMUL_FAMILIES };

/* What an epilogue does to each element of the product, as far as it costs time. */
struct MatmulWork {
    HsEpilogue function; /* of each number by itself, or of a gate, or its gradient */
    bool bias;
    int read, written; /* bytes: residual, pre and c; an f32 c that accumulates is added to in memory */
};

/* Shape alone decides, so that planning (without addresses) and running agree on the workspace. */
struct MatmulShape {
    HsProductKey key;
    MatmulFamily family;
    MatmulWork work;
    int64_t m, n, k; /* k of MATMUL_FP8: pairs of codes */
    bool any_layout; /* strides that are no multiple of 16 bytes, or both operands transposed */
    bool hopper;     /* sm_90, and rows of multiples of 16 bytes: in whatever order */
    bool joint;      /* c is the plain sum, in f32: clusters may share tiles */
    bool promoted;   /* MATMUL_FP8: sums are added to others every 128 of k (matmul_fp8.cuh) */
    bool quantized;  /* b is in four bits, which wgmma's kernels do not read and no table of measured choices knows */
};

struct MatmulChoice {
    bool hopper;  /* by matmul_hopper.cuh */
    int tile;     /* row of the family's table, or of Hopper's */
    int slices;   /* blocks that share one tile of c, each with its part of k; at least 1 */
    bool joint;   /* Hopper: clusters share tiles where there is not one for each; then slices is 1 */
    bool decoded; /* codes become bf16 first, and the other members speak of that product */
};

/* Of a key alone: with a plain epilogue and c in 16 bits (or f32, where the operands are). */
MatmulShape matmul_shape(const HsProductKey &key, const DeviceLimits &limits);
MatmulShape matmul_shape(const HsMatmulArgs *args, const DeviceLimits &limits);
/* MATMUL_FP8's operands decoded to bf16, into plain f32 sums that are finished apart. */
MatmulShape decoded_shape(const MatmulShape &shape);
/* What is prescribed, else the choice of the device's table, else the model's. */
MatmulChoice choose_matmul(const MatmulShape &shape, const HsDevice *device);
MatmulChoice choose_by_model(const MatmulShape &shape, const DeviceLimits &limits);

/* Launch `choice.slices` x tiles blocks.  With more than one slice, or a product finished apart, parameters.output is the plain f32 sums' buffer
 * [slices, M, N].  any_layout: the kernel that takes every layout and alignment.  The 16-bit ones make row_sums. */
HsStatus launch_matmul_bf16(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                            bool any_layout);
HsStatus launch_matmul_f16(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                           bool any_layout);
HsStatus launch_matmul_tf32(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                            bool any_layout);
HsStatus launch_matmul_f32(HsContext *context, MatmulParameters &parameters, const MatmulChoice &choice,
                           bool any_layout);

/* b in four bits, a with k contiguous.  dtype: bf16, f16, or f32, which is rounded to tf32. */
HsStatus launch_matmul_nf4(HsContext *context, MatmulParameters &parameters, HsDtype dtype, const MatmulChoice &choice,
                           bool any_layout);
/* absmax [count / 64] f32 of a matrix in device memory. */
HsStatus launch_nf4_absmax(HsContext *context, const HsQuantized &matrix, float *absmax);

/* Clusters of two blocks that Hopper's products work with at a time. */
inline int clusters_at_once(int multiprocessors)
{
    const int clusters = multiprocessors / 2;
    return clusters < 1 ? 1 : clusters > MATMUL_MOST_CLUSTERS ? (int)MATMUL_MOST_CLUSTERS : clusters;
}

/* On sm_90: any layout with rows of multiples of 16 bytes; slices of multiples of 64. */
HsStatus launch_matmul_hopper(HsContext *context, const MatmulParameters &parameters, HsDtype dtype,
                              const MatmulChoice &choice);

/* What comes before the output's own part: value = alpha sum + addend.  Products of codes have alpha in their sums. */
struct MatmulPrologue {
    float alpha;
    MatmulView addend;
    const HsScaling *a_scaling, *b_scaling; /* of operands in codes; alpha is multiplied by their factors; else NULL */
};

MatmulPrologue matmul_prologue_of(const HsMatmulArgs *args);

/* c = epilogue(alpha (sum over slices of sums[s]) + addend), slices added in order; sums is [slices, M, N] f32.  Likewise
 * output.row_sums from [slices, M] behind them. */
HsStatus launch_matmul_finish(HsContext *context, const float *sums, int slices, const MatmulPrologue &prologue,
                              const MatmulOutput &output);

/* Whether a call's row sums take bias_backward's kernels, behind the product and in the same workspace. */
bool are_rows_summed_apart(const HsContext *context, const HsMatmulArgs *args);

/* Whether a call's gate, or its gradient, is a kernel apart behind the product.  An address may ask for it: without one
 * this is how well aligned ones are served, and the workspace is as for kernels apart. */
bool is_gate_apart(const HsContext *context, const HsMatmulArgs *args);
/* The product of such a call: into pre or, backward, into `value`. */
HsMatmulArgs without_gate(const HsMatmulArgs *args, void *value);

/* The epilogue of a call. */
MatmulOutput matmul_output_of(const HsMatmulArgs *args);

/* Neighbouring tiles of c share rows of a and columns of b, so blocks that run together should form a patch that is
 * about as high as wide: groups of eight rows of tiles are walked column by column, which keeps their operands in L2.
 */
struct MatmulTilePosition {
    int row, column;
};

HS_DEVICE MatmulTilePosition tile_of_block(int block, int row_tiles, int column_tiles)
{
    enum { GROUP_ROWS = 8 };
    const int group_tiles = GROUP_ROWS * column_tiles;
    const int first_row = block / group_tiles * GROUP_ROWS;
    const int rows = min(row_tiles - first_row, (int)GROUP_ROWS);
    const int inside = block % group_tiles;
    return { first_row + inside % rows, inside / rows };
}

} // namespace HS_CUDA_NAMESPACE

#endif
