/* SPDX-License-Identifier: MIT
 *
 * Everything after the sum of a product:
 *     value = sum + bias;  f (gelu, relu2): pre = round(value), value = f(pre);  backward: value *= f'(pre)
 *     c = round(value + residual [+ c])
 *
 * Gates: two columns of sums make one of c, or one makes two (finish_gated, finish_ungated).
 *
 * Cast (cast.cuh): what is left in place of c's values, ValuesAsTheyAre or CastTo.
 *
 * A thread holds `count` groups of `width` neighbouring columns, one below the other.  The options are run-time
 * branches that every thread takes alike, around unrolled loops: all groups' loads are in flight before the first is
 * used (addends come from DRAM, several hundred cycles away), and one kernel serves every epilogue and output format.
 */
#ifndef HS_KERNELS_CUDA_PRODUCT_MATMUL_EPILOGUE_CUH
#define HS_KERNELS_CUDA_PRODUCT_MATMUL_EPILOGUE_CUH

#include "kernels/cuda/toolbox/cast.cuh"
#include "kernels/cuda/product/matmul.cuh"
#include "kernels/cuda/toolbox/activation.cuh"

namespace HS_CUDA_NAMESPACE
{

/* Group g is row `row + g * row_step`, columns `column` and on.  Groups wider than one lie inside or outside whole. */
struct MatmulPlace {
    int row, row_step, column;

    __device__ __forceinline__ bool inside(const MatmulOutput &output, int group) const
    {
        return row + group * row_step < output.rows && column < output.columns;
    }
    __device__ __forceinline__ int64_t index(const MatmulOutput &output, int group) const
    {
        return (int64_t)row * output.columns + column + group * ((int64_t)row_step * output.columns);
    }
};

template <typename T, int count, int width>
HS_DEVICE void load_groups_as(const void *data, const MatmulOutput &output, const MatmulPlace &place,
                              float (&values)[count][width])
{
    Pack<T, width> packs[count] = {};
#pragma unroll
    for (int g = 0; g < count; g++)
        if (place.inside(output, g))
            packs[g] = load_pack<T, width>(static_cast<const T *>(data) + place.index(output, g));
#pragma unroll
    for (int g = 0; g < count; g++)
#pragma unroll
        for (int i = 0; i < width; i++)
            values[g][i] = to_float(packs[g].value[i]);
}

template <int count, int width>
HS_DEVICE void load_groups(const void *data, HsDtype dtype, const MatmulOutput &output, const MatmulPlace &place,
                           float (&values)[count][width])
{
    if (dtype == HS_F32)
        load_groups_as<float>(data, output, place, values);
    else if (dtype == HS_BF16)
        load_groups_as<Bf16>(data, output, place, values);
    else
        load_groups_as<F16>(data, output, place, values);
}

template <typename T, int count, int width>
HS_DEVICE void store_groups_as(void *data, const MatmulOutput &output, const MatmulPlace &place,
                               const float (&values)[count][width])
{
#pragma unroll
    for (int g = 0; g < count; g++) {
        Pack<T, width> pack;
#pragma unroll
        for (int i = 0; i < width; i++)
            round_to(pack.value[i], values[g][i]);
        if (place.inside(output, g))
            store_pack<T, width>(static_cast<T *>(data) + place.index(output, g), pack);
    }
}

template <int count, int width>
HS_DEVICE void store_groups(const MatmulView &view, const MatmulOutput &output, const MatmulPlace &place,
                            const float (&values)[count][width])
{
    if (view.dtype == HS_F32)
        store_groups_as<float>(view.data, output, place, values);
    else if (view.dtype == HS_BF16)
        store_groups_as<Bf16>(view.data, output, place, values);
    else
        store_groups_as<F16>(view.data, output, place, values);
}

/* A function sees pre as it is stored: backward will read the same number. */
HS_DEVICE float as_stored(const MatmulView &view, float value)
{
    if (view.data == NULL || view.dtype == HS_F32)
        return value;
    return view.dtype == HS_BF16 ? rounded<Bf16>(value) : rounded<F16>(value);
}

template <HsActivation f, int count, int width>
HS_DEVICE void activate_groups(const MatmulView &pre, float (&values)[count][width])
{
#pragma unroll
    for (int g = 0; g < count; g++)
#pragma unroll
        for (int i = 0; i < width; i++)
            values[g][i] = activate<f>(as_stored(pre, values[g][i]));
}

template <HsActivation f, int count, int width>
HS_DEVICE void differentiate_groups(const float (&pre)[count][width], float (&values)[count][width])
{
#pragma unroll
    for (int g = 0; g < count; g++)
#pragma unroll
        for (int i = 0; i < width; i++)
            values[g][i] *= slope_of<f>(pre[g][i]);
}

/* The largest magnitude of groups that lie in c. */
template <int count, int width>
HS_DEVICE uint32_t largest_of_groups(const MatmulOutput &output, const MatmulPlace &place,
                                     const float (&values)[count][width])
{
    uint32_t most = 0;
#pragma unroll
    for (int g = 0; g < count; g++)
        if (place.inside(output, g))
            most = largest_of(values[g], most);
    return most;
}

template <typename Cast, int count>
HS_DEVICE void cast_groups(const Cast &cast, const MatmulOutput &output, const MatmulPlace &place,
                           const float (&values)[count][4])
{
#pragma unroll
    for (int g = 0; g < count; g++)
        if (place.inside(output, g))
            cast.store(place.index(output, g), values[g]);
}

/* values: the sums; used up.  Returns what leave_amax wants; 0 where amax is not wanted. */
template <int count, int width, typename Cast = ValuesAsTheyAre>
HS_DEVICE uint32_t finish_groups(const MatmulOutput &output, const MatmulPlace &place, float (&values)[count][width],
                                 const Cast &cast = Cast())
{
    float others[count][width];
    if (output.bias != NULL) {
        Pack<float, width> bias = {};
        if (place.column < output.columns)
            bias = load_pack<float, width>(output.bias + place.column);
#pragma unroll
        for (int g = 0; g < count; g++)
#pragma unroll
            for (int i = 0; i < width; i++)
                values[g][i] += bias.value[i];
    }
    const bool squares = hs_epilogue_activation(output.epilogue) == HS_ACTIVATION_RELU2;
    if (hs_epilogue_activates(output.epilogue)) {
        if (output.pre.data != NULL)
            store_groups(output.pre, output, place, values);
        if (squares)
            activate_groups<HS_ACTIVATION_RELU2>(output.pre, values);
        else
            activate_groups<HS_ACTIVATION_GELU>(output.pre, values);
    } else if (hs_epilogue_differentiates(output.epilogue)) {
        load_groups(output.pre.data, output.pre.dtype, output, place, others);
        if (squares)
            differentiate_groups<HS_ACTIVATION_RELU2>(others, values);
        else
            differentiate_groups<HS_ACTIVATION_GELU>(others, values);
    }
    /* One piece of code for residual and c, run once for each that there is. */
#pragma unroll 1
    for (int added = 0; added < 2; added++) {
        const void *const data = added == 0 ? output.residual.data : output.accumulate ? output.c.data : NULL;
        if (data == NULL)
            continue;
        load_groups(data, added == 0 ? output.residual.dtype : output.c.dtype, output, place, others);
#pragma unroll
        for (int g = 0; g < count; g++)
#pragma unroll
            for (int i = 0; i < width; i++)
                values[g][i] += others[g][i];
    }
    if constexpr (Cast::casts)
        cast_groups(cast, output, place, values);
    else
        store_groups(output.c, output, place, values);
    return output.amax.to != NULL ? largest_of_groups(output, place, values) : 0;
}

/* One warp's staging in shared memory: 16 rows of sums; 8 floats of padding put rows g and g + 1 on different banks
 * when lanes (g, t) write pairs of columns. */
template <int columns_> struct MatmulStaging {
    static constexpr int columns = columns_, rows = 16, stride = columns_ + 8, floats = rows * stride;

    static __device__ __forceinline__ int place(int row, int column)
    {
        return row * stride + column;
    }
};

/* Finishes the 16 rows that the warp has staged; the first is row `first_row` of c.  Lanes take neighbouring groups, so
 * that a warp reads and writes whole 32-byte sectors of every tensor.  Without vectors: single elements, likewise.
 * Staging: where sums lie; four neighbouring columns lie together.
 * count: groups a lane takes at once; more hide latency better and take more registers.
 * What is cast comes as vectors.  Returns the lane's largest magnitude, as finish_groups. */
template <typename Staging, int count, typename Cast = ValuesAsTheyAre>
HS_DEVICE uint32_t finish_staged(const MatmulOutput &output, const float *staging, int lane, int first_row,
                                 int first_column, const Cast &cast = Cast())
{
    constexpr int columns = Staging::columns;
    uint32_t most = 0;
    if (Cast::casts || output.vector) {
        constexpr int row_lanes = columns / 4, row_step = WARP_SIZE / row_lanes;
        static_assert(Staging::rows % (row_step * count) == 0, "whole groups");
        const int column = lane % row_lanes * 4;
#pragma unroll 1
        for (int row = lane / row_lanes; row < Staging::rows; row += row_step * count) {
            float values[count][4];
#pragma unroll
            for (int g = 0; g < count; g++) {
                const Pack<float, 4> pack = load_pack<float, 4>(staging + Staging::place(row + g * row_step, column));
#pragma unroll
                for (int i = 0; i < 4; i++)
                    values[g][i] = pack.value[i];
            }
            const MatmulPlace place = { first_row + row, row_step, first_column + column };
            most = larger(most, finish_groups(output, place, values, cast));
        }
    } else if constexpr (!Cast::casts) {
#pragma unroll 1
        for (int column = lane; column < columns; column += WARP_SIZE) {
#pragma unroll 1
            for (int row = 0; row < Staging::rows; row += 4) {
                float values[4][1];
#pragma unroll
                for (int g = 0; g < 4; g++)
                    values[g][0] = staging[Staging::place(row + g, column)];
                most = larger(most,
                              finish_groups(output, MatmulPlace{ first_row + row, 1, first_column + column }, values));
            }
        }
    }
    return most;
}

/* Of 16 staged rows the columns are, by turns, `half` gates and the linear halves of as many features: both go to
 * pre = [gate | up], and f(gate) up, of both as they are stored, to c.  first_feature: the warp's.  Lanes take four
 * features; what finish_staged says of sectors and of what is returned holds. */
template <typename Staging, int half, typename T, HsActivation f, typename Cast>
HS_DEVICE uint32_t finish_gated(const MatmulOutput &output, const float *staging, int lane, int first_row,
                                int first_feature, const Cast &cast)
{
    constexpr int row_lanes = Staging::columns / 8, row_step = WARP_SIZE / row_lanes;
    const int offset = lane % row_lanes * 4, feature = first_feature + offset, features = output.columns / 2;
    const int staged = offset / half * (2 * half) + offset % half;
    T *const pre = static_cast<T *>(output.pre.data), *const c = static_cast<T *>(output.c.data);
    uint32_t most = 0;
    if (feature >= features)
        return 0;
    Pack<float, 4> gate_bias = { { -0.0f, -0.0f, -0.0f, -0.0f } }, up_bias = gate_bias; /* which change nothing */
    if (output.bias != NULL) {
        gate_bias = load_pack<float, 4>(output.bias + feature);
        up_bias = load_pack<float, 4>(output.bias + features + feature);
    }
#pragma unroll 2
    for (int row = lane / row_lanes; row < Staging::rows; row += row_step) {
        if (first_row + row >= output.rows)
            break;
        const int64_t at = (int64_t)(first_row + row) * features + feature,
                      at_pre = at + (int64_t)(first_row + row) * features;
        const Pack<float, 4> gates = load_pack<float, 4>(staging + Staging::place(row, staged));
        const Pack<float, 4> ups = load_pack<float, 4>(staging + Staging::place(row, staged + half));
        Pack<T, 4> gate, up, result;
        float values[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            round_to(gate.value[i], gates.value[i] + gate_bias.value[i]);
            round_to(up.value[i], ups.value[i] + up_bias.value[i]);
            values[i] = to_float(up.value[i]) * activate<f>(to_float(gate.value[i]));
            round_to(result.value[i], values[i]);
        }
        store_pack<T, 4>(pre + at_pre, gate);
        store_pack<T, 4>(pre + at_pre + features, up);
        if constexpr (Cast::casts)
            cast.store(at, values);
        else
            store_pack<T, 4>(c + at, result);
        most = largest_of(values, most);
    }
    return output.amax.to != NULL ? most : 0;
}

/* The gradient of 16 staged rows, each column of which becomes two: [value up f'(gate) | value f(gate)], of value as a
 * tensor of c's dtype would have it. */
template <typename Staging, int count, typename T, HsActivation f, typename Cast>
HS_DEVICE uint32_t finish_ungated(const MatmulOutput &output, const float *staging, int lane, int first_row,
                                  int first_column, const Cast &cast)
{
    constexpr int row_lanes = Staging::columns / 4, row_step = WARP_SIZE / row_lanes;
    static_assert(Staging::rows % (row_step * count) == 0, "whole groups");
    const int offset = lane % row_lanes * 4, feature = first_column + offset, features = output.columns;
    const T *const pre = static_cast<const T *>(output.pre.data);
    T *const c = static_cast<T *>(output.c.data);
    uint32_t most = 0;
    if (feature >= features)
        return 0;
#pragma unroll 1
    for (int row = lane / row_lanes; row < Staging::rows; row += row_step * count) {
        Pack<T, 4> gates[count] = {}, ups[count] = {};
        const int64_t at = (int64_t)(first_row + row) * 2 * features + feature;
        const int64_t stride = (int64_t)row_step * 2 * features;
#pragma unroll
        for (int g = 0; g < count; g++)
            if (first_row + row + g * row_step < output.rows) {
                gates[g] = load_pack<T, 4>(pre + at + g * stride);
                ups[g] = load_pack<T, 4>(pre + at + g * stride + features);
            }
#pragma unroll
        for (int g = 0; g < count; g++) {
            if (first_row + row + g * row_step >= output.rows)
                break;
            const Pack<float, 4> sums = load_pack<float, 4>(staging + Staging::place(row + g * row_step, offset));
            float gate[4], up[4];
            Pack<T, 4> dgate, dup;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float value = rounded<T>(sums.value[i]);
                const Activated activated = activate_with_slope<f>(to_float(gates[g].value[i]));
                gate[i] = value * activated.slope * to_float(ups[g].value[i]);
                up[i] = value * activated.value;
                round_to(dgate.value[i], gate[i]);
                round_to(dup.value[i], up[i]);
            }
            if constexpr (Cast::casts) {
                cast.store(at + g * stride, gate);
                cast.store(at + g * stride + features, up);
            } else {
                store_pack<T, 4>(c + at + g * stride, dgate);
                store_pack<T, 4>(c + at + g * stride + features, dup);
            }
            most = largest_of(up, largest_of(gate, most));
        }
    }
    return output.amax.to != NULL ? most : 0;
}

} // namespace HS_CUDA_NAMESPACE

#endif
