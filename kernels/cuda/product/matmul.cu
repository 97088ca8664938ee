/* SPDX-License-Identifier: MIT
 *
 * The matrix product: which kernel runs, its workspace, and the addition of slices.
 *     c = epilogue(alpha op(a) op(b) + addend + bias) + residual [+ c],   row_sums += sum over k of op(a)
 *
 * Workspace: nothing, or f32 sums [slices, M, N] where k is cut (matmul_choice.cu), or where a factor or an addend comes
 * before the epilogue, and behind those of a cut k its row sums [slices, M].  Their addition in the order of the slices
 * keeps the result the same in every run.
 */
#include "kernels/cuda/product/matmul.cuh"

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/product/codes.cuh"
#include "kernels/cuda/product/cublaslt.cuh"
#include "kernels/cuda/product/matmul_epilogue.cuh"
#include "kernels/cuda/product/matmul_fp8.cuh"
#include "kernels/cuda/product/products.cuh"

extern "C" {
#include "kernels/checks/checks.h"
}

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum { FINISH_WARPS = 4, FINISH_ROWS = 4, FINISH_COLUMNS = 128 };

/* Slices added in order; unrolling keeps several slices' loads in flight.  Returns what finish_groups does. */
template <int width>
HS_DEVICE uint32_t add_slices(const float *sums, int slices, const MatmulPrologue &prologue, const MatmulOutput &output,
                              const MatmulPlace &place)
{
    float total[FINISH_ROWS][width] = {}, sum[FINISH_ROWS][width];
    const float alpha =
        prologue.a_scaling == NULL
            ? prologue.alpha
            : prologue.alpha * (HS_SCALING_FACTOR(prologue.a_scaling) * HS_SCALING_FACTOR(prologue.b_scaling));
    const int64_t slice_stride = (int64_t)output.rows * output.columns;
#pragma unroll 4
    for (int slice = 0; slice < slices; slice++) {
        load_groups_as<float>(sums + slice * slice_stride, output, place, sum);
#pragma unroll
        for (int g = 0; g < FINISH_ROWS; g++)
#pragma unroll
            for (int i = 0; i < width; i++)
                total[g][i] += sum[g][i];
    }
#pragma unroll
    for (int g = 0; g < FINISH_ROWS; g++)
#pragma unroll
        for (int i = 0; i < width; i++)
            total[g][i] *= alpha;
    if (prologue.addend.data != NULL) {
        load_groups(prologue.addend.data, prologue.addend.dtype, output, place, sum);
#pragma unroll
        for (int g = 0; g < FINISH_ROWS; g++)
#pragma unroll
            for (int i = 0; i < width; i++)
                total[g][i] += sum[g][i];
    }
    return finish_groups(output, place, total);
}

/* A thread a row, slices in order. */
HS_DEVICE void add_row_slices(const float *partials, int slices, int rows, int row, float *row_sums)
{
    float total = 0.0f;
#pragma unroll 4
    for (int slice = 0; slice < slices; slice++)
        total += partials[(int64_t)slice * rows + row];
    row_sums[row] += total;
}

/* A warp takes FINISH_ROWS rows of FINISH_COLUMNS columns.  Bound by memory: (slices + 1) * 4 bytes an element. */
__global__ void __launch_bounds__(FINISH_WARPS *WARP_SIZE)
    matmul_finish_kernel(const float *sums, int slices, const MatmulPrologue prologue, const MatmulOutput output)
{
    begin_after_kernel_before();
    const int warp = (int)threadIdx.x / WARP_SIZE, lane = (int)threadIdx.x % WARP_SIZE;
    const int row = ((int)blockIdx.x * FINISH_WARPS + warp) * FINISH_ROWS;
    const int column = (int)blockIdx.y * FINISH_COLUMNS;
    uint32_t most = 0;
    if (output.vector) {
        most = add_slices<4>(sums, slices, prologue, output, MatmulPlace{ row, 1, column + lane * 4 });
    } else {
#pragma unroll 1
        for (int i = lane; i < FINISH_COLUMNS; i += WARP_SIZE)
            most = larger(most, add_slices<1>(sums, slices, prologue, output, MatmulPlace{ row, 1, column + i }));
    }
    leave_amax(output.amax, most);
    const int summed = (int)blockIdx.x * FINISH_WARPS * FINISH_ROWS + (int)threadIdx.x;
    if (output.row_sums != NULL && blockIdx.y == 0 && threadIdx.x < FINISH_WARPS * FINISH_ROWS && summed < output.rows)
        add_row_slices(sums + (int64_t)slices * output.rows * output.columns, slices, output.rows, summed,
                       output.row_sums);
}

/* The widest load, in bytes, for which every row starts aligned. */
int access_of(const HsTensor &tensor)
{
    const size_t row_bytes = (size_t)tensor.shape[1] * hs_dtype_bytes(tensor.dtype);
    for (int access = 16; access >= 4; access /= 4)
        if (row_bytes % (size_t)access == 0 && aligned_to(tensor.data, (size_t)access))
            return access;
    return (int)hs_dtype_bytes(tensor.dtype);
}

MatmulOperand operand_of(const HsTensor &tensor, bool k_contiguous)
{
    return MatmulOperand{ tensor.data, tensor.shape[1], (int)tensor.shape[k_contiguous ? 0 : 1], access_of(tensor),
                          k_contiguous };
}

/* Of codes the shape of the product that is chosen: as they are, or decoded. */
struct ChosenProduct {
    MatmulShape shape;
    MatmulChoice choice;
};

ChosenProduct choose(const HsContext *context, const HsMatmulArgs *args)
{
    const MatmulShape shape = matmul_shape(args, limits_of(context));
    const MatmulChoice choice = choose_matmul(shape, context->device);
    return ChosenProduct{ choice.decoded ? decoded_shape(shape) : shape, choice };
}

HsStatus check_size(const MatmulShape &shape)
{
    const int64_t most = (int64_t)1 << 30;
    if (shape.m > most || shape.n > most || shape.k > most)
        return hs_fail(HS_EUNSUPPORTED, "matmul: %lld x %lld x %lld: the CUDA backend's products go up to 2^30 a side",
                       (long long)shape.m, (long long)shape.n, (long long)shape.k);
    return HS_OK;
}

MatmulView view_of(const HsTensor &tensor)
{
    return MatmulView{ hs_tensor_present(&tensor) ? tensor.data : NULL, tensor.dtype };
}

/* Whether four neighbouring columns of a tensor with rows of `columns` can be moved as one; absent: no obstacle. */
bool fours_aligned(const HsTensor &tensor)
{
    return !hs_tensor_present(&tensor) || aligned_to(tensor.data, 4 * hs_dtype_bytes(tensor.dtype));
}

/* Plain f32 sums go to the workspace, and launch_matmul_finish does the rest.  Kernels that multiply codes apply factors
 * themselves. */
bool is_finished_apart(const HsMatmulArgs *args, const MatmulShape &shape, int slices)
{
    const bool factor = args->alpha != 1.0f || args->a.layout == HS_LAYOUT_CODES;
    return slices > 1 || hs_tensor_present(&args->addend) || (factor && shape.family != MATMUL_FP8);
}

/* The kernel of every layout, with the slices of the one for whole chunks. */
bool takes_any_layout(const MatmulShape &shape, const HsMatmulArgs *args)
{
    if (shape.family == MATMUL_FP8)
        return false;
    return shape.any_layout || access_of(args->a.values) < 16 || (!shape.quantized && access_of(args->b.values) < 16);
}

/* Whether the kernel that multiplies sums the rows of a too.  As it is stored a is not what tf32 multiplies, the kernel
 * of every layout has no registers left, and wgmma's sums those of an a with k across, as weights' gradients have it. */
bool sums_rows(const MatmulShape &shape, const MatmulChoice &choice, const HsMatmulArgs *args)
{
    return shape.family == MATMUL_16BIT && !takes_any_layout(shape, args) && (!choice.hopper || shape.key.transpose_a);
}

size_t sums_bytes(const HsMatmulArgs *args, const MatmulShape &shape, const MatmulChoice &choice)
{
    if (!is_finished_apart(args, shape, choice.slices))
        return 0;
    const bool with_rows = hs_tensor_present(&args->row_sums) && choice.slices > 1;
    return (size_t)choice.slices * (size_t)shape.m * ((size_t)shape.n + (with_rows ? 1 : 0)) * sizeof(float);
}

/* Rows that begin at multiples of 16 bytes. */
bool is_whole_lines(const HsTensor &tensor)
{
    return tensor.shape[1] * (int64_t)hs_dtype_bytes(tensor.dtype) % 16 == 0 && aligned_to(tensor.data, 16);
}

HsBiasBackwardArgs row_sums_apart(const HsMatmulArgs *args)
{
    return HsBiasBackwardArgs{ args->a.values, args->row_sums };
}

} // namespace

bool are_rows_summed_apart(const HsContext *context, const HsMatmulArgs *args)
{
    if (!hs_tensor_present(&args->row_sums))
        return false;
    const ChosenProduct product = choose(context, args);
    return options_of(context).cublaslt || !sums_rows(product.shape, product.choice, args);
}

/* The kernels that gate: Hopper's, those of codes along k, and those of codes and of 16 bits by mma.sync in the layouts that
 * models have. */
static bool can_gate(const MatmulShape &shape, const MatmulChoice &choice, bool gates)
{
    const bool along = !shape.key.transpose_a && shape.key.transpose_b;
    if (choice.hopper || (shape.family == MATMUL_FP8 && (along || (!shape.key.transpose_a && !gates))))
        return true;
    return shape.family == MATMUL_16BIT && !shape.quantized && !shape.key.transpose_a && shape.key.transpose_b == gates;
}

bool is_gate_apart(const HsContext *context, const HsMatmulArgs *args)
{
    if (!hs_epilogue_reshapes(args->epilogue))
        return false;
    const HsDtype dtype = args->a.layout == HS_LAYOUT_CODES ? HS_BF16 : args->a.values.dtype;
    const bool lines = args->c.dtype == dtype && args->pre.dtype == dtype && is_whole_lines(args->c) &&
                       is_whole_lines(args->pre) && args->pre.shape[1] / 2 % 8 == 0;
    const bool bias = hs_tensor_present(&args->bias);
    if (!lines || !fours_aligned(args->bias) || (bias && hs_epilogue_ungates(args->epilogue)) ||
        limits_of(context).gates_apart || options_of(context).cublaslt)
        return true;
    const ChosenProduct product = choose(context, args);
    return !can_gate(product.shape, product.choice, hs_epilogue_gates(args->epilogue)) ||
           takes_any_layout(product.shape, args) || is_finished_apart(args, product.shape, product.choice.slices);
}

HsMatmulArgs without_gate(const HsMatmulArgs *args, void *value)
{
    HsMatmulArgs product = *args;
    product.epilogue = HS_EPILOGUE_NONE;
    product.pre.rank = 0;
    product.c = hs_epilogue_gates(args->epilogue)
                    ? args->pre
                    : hs_tensor_2d(value, args->c.dtype, args->c.shape[0], args->c.shape[1] / 2);
    return product;
}

MatmulOutput matmul_output_of(const HsMatmulArgs *args)
{
    const int64_t columns = args->c.shape[1];
    MatmulOutput output;
    output.c = view_of(args->c);
    output.residual = view_of(args->residual);
    output.pre = view_of(args->pre);
    output.bias = hs_tensor_present(&args->bias) ? data_of<const float>(args->bias) : NULL;
    output.rows = (int)args->c.shape[0];
    output.columns = (int)(hs_epilogue_gates(args->epilogue)     ? columns * 2
                           : hs_epilogue_ungates(args->epilogue) ? columns / 2
                                                                 : columns);
    output.epilogue = args->epilogue;
    output.accumulate = args->accumulate;
    output.row_sums = NULL;
    output.amax = amax_out(args->c, args->cast);
    output.vector = output.columns % 4 == 0 && fours_aligned(args->c) && fours_aligned(args->addend) &&
                    fours_aligned(args->residual) && fours_aligned(args->pre) && fours_aligned(args->bias);
    return output;
}

MatmulPrologue matmul_prologue_of(const HsMatmulArgs *args)
{
    return MatmulPrologue{ args->alpha, view_of(args->addend),
                           args->a.layout == HS_LAYOUT_CODES ? args->a.codes.scaling : NULL,
                           args->b.layout == HS_LAYOUT_CODES ? args->b.codes.scaling : NULL };
}

HsStatus launch_matmul_finish(HsContext *context, const float *sums, int slices, const MatmulPrologue &prologue,
                              const MatmulOutput &output)
{
    const dim3 grid(blocks_for(output.rows, FINISH_WARPS * FINISH_ROWS), blocks_for(output.columns, FINISH_COLUMNS));
    return hs_launch_after(context, HS_KERNEL(matmul_finish_kernel), grid, dim3(FINISH_WARPS * WARP_SIZE), 0, sums,
                           slices, prologue, output);
}

HsStatus refuse_matmul(const HsContext *context, const HsMatmulArgs *args)
{
    HS_TRY(hs_refuse_mixed_product(context, args));
    const HsProductFormat format = hs_product_key(args).format;
    if (args->a.layout == HS_LAYOUT_CODES && options_of(context).cublaslt && format != HS_PRODUCT_FP8 &&
        format != HS_PRODUCT_FP8_PROMOTED)
        return hs_fail(HS_EUNSUPPORTED,
                       "matmul: cuBLASLt takes FP8 with one scale a tensor (precision.fp8.recipe current or delayed) "
                       "and rows of multiples of 16 only: set kernels.matmul: native");
    if (args->a.layout == HS_LAYOUT_CODES && options_of(context).cublaslt && (args->transpose_a || !args->transpose_b))
        return hs_fail(HS_EUNSUPPORTED, "matmul: cuBLASLt takes FP8 along k alone: set kernels.matmul: native");
    if (args->b.layout != HS_LAYOUT_NF4 || !options_of(context).cublaslt)
        return HS_OK;
    return hs_fail(HS_EUNSUPPORTED, "matmul: cuBLASLt has no products of four-bit weights: set kernels.matmul: native");
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* | sums of slices | absmaxes of b in four bits | and behind them the value of a gate's backward */
static size_t absmax_offset(const HsContext *context, const HsMatmulArgs *args)
{
    const ChosenProduct product = choose(context, args);
    return whole_lines(sums_bytes(args, product.shape, product.choice));
}

static size_t product_workspace(const HsContext *context, const HsMatmulArgs *args)
{
    if (options_of(context).cublaslt)
        return cublaslt_workspace(args);
    if (args->b.layout == HS_LAYOUT_NF4)
        return absmax_offset(context, args) + (size_t)hs_nf4_blocks(args->b.nf4.count) * sizeof(float);
    const ChosenProduct product = choose(context, args);
    return sums_bytes(args, product.shape, product.choice);
}

static size_t own_workspace(const HsContext *context, const HsMatmulArgs *args)
{
    const size_t product = product_workspace(context, args);
    if (!hs_tensor_present(&args->row_sums)) /* the address decides which kernel sums: there is room for both */
        return product;
    const HsBiasBackwardArgs sums = row_sums_apart(args);
    const size_t after = workspace::bias_backward(context, &sums);
    return after > product ? after : product;
}

static size_t value_offset(const HsContext *context, const HsMatmulArgs *product)
{
    return whole_lines(own_workspace(context, product));
}

static size_t decoded_bytes(const HsCodes *codes)
{
    return whole_lines((size_t)(codes->rows * codes->depth) * sizeof(uint16_t));
}

static bool is_decoded(const HsContext *context, const HsMatmulArgs *args)
{
    if (args->a.layout != HS_LAYOUT_CODES || options_of(context).cublaslt)
        return false;
    const HsMatmulArgs product = hs_epilogue_reshapes(args->epilogue) ? without_gate(args, NULL) : *args;
    return choose(context, &product).shape.family != MATMUL_FP8;
}

static size_t product_and_gate_workspace(const HsContext *context, const HsMatmulArgs *args)
{
    if (!hs_epilogue_reshapes(args->epilogue))
        return own_workspace(context, args);
    const HsMatmulArgs product = without_gate(args, NULL);
    return hs_epilogue_gates(args->epilogue) ? own_workspace(context, &product)
                                             : value_offset(context, &product) + hs_tensor_bytes(&product.c);
}

/* | a and b in bf16, of operands that are decoded | what their product needs */
size_t workspace::matmul(const HsContext *context, const HsMatmulArgs *args)
{
    if (!is_decoded(context, args))
        return product_and_gate_workspace(context, args);
    return decoded_bytes(hs_codes_of(&args->a)) + decoded_bytes(hs_codes_of(&args->b)) +
           product_and_gate_workspace(context, args);
}

static HsStatus multiply(HsContext *context, const HsMatmulArgs *args);

static HsStatus matmul_and_gate(HsContext *context, const HsMatmulArgs *args)
{
    const HsActivation f = hs_epilogue_activation(args->epilogue);
    HsMatmulArgs product = without_gate(args, NULL);
    if (hs_epilogue_gates(args->epilogue)) {
        const HsUnaryArgs gate = { f, args->pre, args->c };
        HS_TRY(multiply(context, &product));
        return op::swiglu_forward(context, &gate);
    }
    product.c.data = static_cast<unsigned char *>(context->workspace) + value_offset(context, &product);
    const HsUnaryBackwardArgs gate = { f, product.c, args->pre, args->c };
    HS_TRY(multiply(context, &product));
    return op::swiglu_backward(context, &gate);
}

static HsStatus prepare_quantized(HsContext *context, const HsMatmulArgs *args, MatmulParameters *parameters)
{
    if (args->b.nf4.count > (int64_t)1 << 34) /* chunks of four elements are counted in 32 bits */
        return hs_fail(HS_EUNSUPPORTED,
                       "matmul: a four-bit matrix of %lld elements: the CUDA backend's have up to 2^34",
                       (long long)args->b.nf4.count);
    unsigned char *const place = static_cast<unsigned char *>(context->workspace) + absmax_offset(context, args);
    float *const absmax = reinterpret_cast<float *>(place);
    parameters->quantized = MatmulQuantized{ args->b.nf4.codes, absmax };
    return launch_nf4_absmax(context, args->b.nf4, absmax);
}

static HsStatus launch_codes(HsContext *context, const HsMatmulArgs *args, MatmulParameters &parameters,
                             const MatmulChoice &choice)
{
    const Fp8Product product = fp8_product_of(args);
    return choice.hopper ? launch_matmul_fp8_hopper(context, parameters, product, choice)
                         : launch_matmul_fp8(context, parameters, product, choice);
}

static HsStatus native_matmul(HsContext *context, const HsMatmulArgs *args)
{
    const ChosenProduct product = choose(context, args);
    const MatmulShape &shape = product.shape;
    const MatmulChoice &choice = product.choice;
    HS_TRY(check_size(shape));
    MatmulOutput output = matmul_output_of(args);
    if (hs_tensor_present(&args->row_sums) && sums_rows(shape, choice, args))
        output.row_sums = data_of<float>(args->row_sums);

    MatmulParameters parameters;
    const bool fp8 = shape.family == MATMUL_FP8;
    parameters.a =
        fp8 ? fp8_operand_of(args->a.codes, args->transpose_a) : operand_of(args->a.values, !args->transpose_a);
    parameters.b =
        fp8 ? fp8_operand_of(args->b.codes, !args->transpose_b) : operand_of(args->b.values, args->transpose_b);
    parameters.output = output;
    parameters.depth = (int)shape.k;
    const int64_t units = (shape.k + MATMUL_SLICE_UNIT - 1) / MATMUL_SLICE_UNIT;
    parameters.slice_depth = (int)((units + choice.slices - 1) / choice.slices) * MATMUL_SLICE_UNIT;
    float *const sums = static_cast<float *>(context->workspace);
    const bool apart = is_finished_apart(args, shape, choice.slices);
    if (apart) {
        parameters.output = MatmulOutput{};
        parameters.output.c = MatmulView{ sums, HS_F32 };
        parameters.output.rows = output.rows;
        parameters.output.columns = output.columns;
        parameters.output.vector = output.columns % 4 == 0;
        parameters.output.row_sums = output.row_sums;
    }
    if (choice.slices == 1) /* the product adds its own row sums to what there is */
        output.row_sums = NULL;
    else if (output.row_sums != NULL)
        parameters.output.row_sums = sums + (int64_t)choice.slices * output.rows * output.columns;
    /* An address may forbid what the strides allow. */
    const bool misaligned = parameters.a.access < 16 || (!shape.quantized && parameters.b.access < 16);
    const bool any_layout = takes_any_layout(shape, args);
    parameters.quantized = MatmulQuantized{};
    parameters.joint_turns = NULL;
    if (choice.joint && aligned_to(args->c.data, 16))
        HS_TRY(take_turns(context, &parameters.joint_turns));
    if (shape.quantized)
        HS_TRY(prepare_quantized(context, args, &parameters));

    if (fp8)
        HS_TRY(launch_codes(context, args, parameters, choice));
    else if (shape.quantized && shape.family != MATMUL_F32)
        HS_TRY(launch_matmul_nf4(context, parameters, args->a.values.dtype, choice, any_layout));
    else if (choice.hopper && !misaligned)
        HS_TRY(launch_matmul_hopper(context, parameters, args->a.values.dtype, choice));
    else if (shape.family == MATMUL_F32)
        HS_TRY(launch_matmul_f32(context, parameters, choice, any_layout));
    else if (shape.family == MATMUL_TF32)
        HS_TRY(launch_matmul_tf32(context, parameters, choice, any_layout));
    else if (args->a.values.dtype == HS_BF16)
        HS_TRY(launch_matmul_bf16(context, parameters, choice, any_layout));
    else
        HS_TRY(launch_matmul_f16(context, parameters, choice, any_layout));
    if (!apart)
        return shape.family == MATMUL_F32 ? launch_amax(context, args->c) : HS_OK;
    MatmulPrologue prologue = matmul_prologue_of(args);
    if (fp8) /* the kernel has applied them */
        prologue = MatmulPrologue{ 1.0f, prologue.addend, NULL, NULL };
    return launch_matmul_finish(context, sums, choice.slices, prologue, output);
}

static HsStatus multiply(HsContext *context, const HsMatmulArgs *args)
{
    if (is_gate_apart(context, args))
        return matmul_and_gate(context, args);
    if (options_of(context).cublaslt) {
        HS_TRY(cublaslt_matmul(context, args));
        HS_TRY(launch_amax(context, args->c));
    } else {
        HS_TRY(native_matmul(context, args));
    }
    if (!are_rows_summed_apart(context, args))
        return HS_OK;
    const HsBiasBackwardArgs sums = row_sums_apart(args);
    return op::bias_backward(context, &sums);
}

/* Whether c is stored, and cast by a kernel behind the product. */
static bool is_cast_apart(const HsContext *context, const HsMatmulArgs *args)
{
    if (!casts_as_it_stores(args) || options_of(context).cublaslt ||
        (hs_epilogue_reshapes(args->epilogue) && is_gate_apart(context, args)))
        return true;
    const ChosenProduct product = choose(context, args);
    return product.shape.family != MATMUL_FP8 || product.choice.hopper || !matmul_output_of(args).vector ||
           is_finished_apart(args, product.shape, product.choice.slices);
}

HsStatus op::matmul(HsContext *context, const HsMatmulArgs *args)
{
    if (hs_codes_present(&args->cast) && is_cast_apart(context, args)) {
        const HsQuantizeArgs cast = hs_cast_apart(&args->c, &args->cast);
        HsMatmulArgs product = *args;
        product.cast = HsCodes{};
        HS_TRY(op::matmul(context, &product));
        return op::quantize(context, &cast);
    }
    const bool gated = hs_epilogue_reshapes(args->epilogue) && !is_gate_apart(context, args);
    if (gated || !is_decoded(context, args))
        return multiply(context, args);
    HsContext inner = *context;
    HsMatmulArgs product = *args;
    const size_t a_bytes = decoded_bytes(hs_codes_of(&args->a)), b_bytes = decoded_bytes(hs_codes_of(&args->b));
    product.a.values.data = context->workspace;
    product.b.values.data = static_cast<unsigned char *>(context->workspace) + a_bytes;
    inner.workspace = static_cast<unsigned char *>(product.b.values.data) + b_bytes;
    inner.workspace_bytes -= a_bytes + b_bytes;
    HS_TRY(launch_decode_codes(context, args->a.codes, product.a.values.data));
    HS_TRY(launch_decode_codes(context, args->b.codes, product.b.values.data));
    return multiply(&inner, &product);
}

/* Nothing is packed: both operands' layouts are read as they are (matmul_shared.cuh).  The description is filled all
 * the same, so that callers need not know. */
HsStatus op::pack_weight(HsContext *, const HsPackWeightArgs *args)
{
    args->packed->dtype = args->w.dtype;
    args->packed->k = args->w.shape[args->transposed ? 1 : 0];
    args->packed->n = args->w.shape[args->transposed ? 0 : 1];
    return HS_OK;
}

} // namespace HS_CUDA_NAMESPACE
