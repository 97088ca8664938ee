/* SPDX-License-Identifier: MIT
 *
 * Sums over whole tensors: gradient statistics, scalar products, statistics of the importance, the penalty.  Each part
 * of a tensor is summed in double with lanes apart, and the parts are added in order: one result for any number of
 * threads.  All are bound by memory.
 */
#include "kernels/cpu/isa/parameter.h"

/* Sum of squares, and the count of elements with exponent bits of all ones. */
HS_SIMD void stats_vector(HsDtype dtype, const void *data, int64_t i, int64_t left, HsF64Parts *sum, HsI32Parts *found)
{
    HsF32x16 g = hs_simd_load_part(dtype, data, i, left);
    const HsI32Parts bad = { .whole = hs_simd_equal_i32((HsI32x16)g & 0x7F800000, hs_simd_splat_i32(0x7F800000)) };
    const HsF64Parts wide = hs_simd_widen(hs_simd_select(bad.whole, hs_simd_splat(0.0f), g));
    for (int part = 0; part < HS_PARTS; part++)
        found->part[part] += bad.part[part];
    hs_simd_accumulate_products(sum, wide, wide);
}

HS_SIMD void stats_of(HsDtype dtype, const void *data, HsRowBlock range, double *sum_squares, int64_t *nonfinite)
{
    HsF64Parts sum = { 0 };
    HsI32Parts found = { 0 }; /* less one for each: a part's lanes count far below 2^31 */
    HS_FOR_VECTORS(i, left, range.begin, range.end, stats_vector(dtype, data, i, left, &sum, &found));
    *sum_squares = hs_simd_sum_f64(sum);
    *nonfinite = 0;
    for (int lane = 0; lane < HS_LANES; lane++)
        *nonfinite -= found.whole[lane];
}

static void part_stats(const HsTensor *tensor, HsRowBlock range, double *sum_squares, int64_t *nonfinite)
{
    if (tensor->dtype == HS_F32)
        stats_of(HS_F32, tensor->data, range, sum_squares, nonfinite);
    else if (tensor->dtype == HS_BF16)
        stats_of(HS_BF16, tensor->data, range, sum_squares, nonfinite);
    else
        stats_of(HS_F16, tensor->data, range, sum_squares, nonfinite);
}

HsStatus HS_ISA_NAME(hs_cpu_grad_stats)(HsContext *context, const HsGradStatsArgs *args)
{
    for (int t = 0; t < args->count; t++) {
        const int64_t count = hs_tensor_count(&args->tensors[t]), size = hs_cpu_part_size(count);
        const int64_t parts = hs_cpu_block_count(count, size);
        double sums[HS_CPU_PARTS];
        int64_t counts[HS_CPU_PARTS];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
        for (int64_t part = 0; part < parts; part++)
            part_stats(&args->tensors[t], hs_cpu_block(count, size, part), &sums[part], &counts[part]);
        args->sum_squares[t] = 0;
        args->nonfinite[t] = 0;
        for (int64_t part = 0; part < parts; part++) {
            args->sum_squares[t] += sums[part];
            args->nonfinite[t] += counts[part];
        }
    }
    return HS_OK;
}

HS_SIMD void dot_vector(HsDtype first, HsDtype second, const void *x, const void *y, int64_t i, int64_t left,
                        HsF64Parts *sum)
{
    hs_simd_accumulate_products(sum, hs_simd_widen(hs_simd_load_part(first, x, i, left)),
                                hs_simd_widen(hs_simd_load_part(second, y, i, left)));
}

HS_SIMD double dot_of(HsDtype first, HsDtype second, const void *x, const void *y, HsRowBlock range)
{
    HsF64Parts sum = { 0 };
    HS_FOR_VECTORS(i, left, range.begin, range.end, dot_vector(first, second, x, y, i, left, &sum));
    return hs_simd_sum_f64(sum);
}

static double part_dot(const HsTensor *x, const HsTensor *y, HsRowBlock range)
{
#define DOT(first, second) return dot_of(first, second, x->data, y->data, range)
    HS_FOR_DTYPES(x->dtype, y->dtype, DOT);
#undef DOT
}

HsStatus HS_ISA_NAME(hs_cpu_dot)(HsContext *context, const HsDotArgs *args)
{
    for (int t = 0; t < args->count; t++) {
        const int64_t count = hs_tensor_count(&args->x[t]), size = hs_cpu_part_size(count);
        const int64_t parts = hs_cpu_block_count(count, size);
        double sums[HS_CPU_PARTS];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
        for (int64_t part = 0; part < parts; part++)
            sums[part] = part_dot(&args->x[t], &args->y[t], hs_cpu_block(count, size, part));
        args->values[t] = 0;
        for (int64_t part = 0; part < parts; part++)
            args->values[t] += sums[part];
    }
    return HS_OK;
}

typedef struct ImportanceSums {
    double maximum, sum, sum_squares;
} ImportanceSums;

static ImportanceSums part_importance(const HsTensor *tensor, HsRowBlock range)
{
    HsF32Parts most = { 0 };
    HsF64Parts sum = { 0 }, squares = { 0 };
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 value = hs_simd_load_part(HS_F32, tensor->data, i, left);
        const HsF64Parts wide = hs_simd_widen(value);
        hs_simd_raise(&most, value);
        hs_simd_accumulate_f64(&sum, wide);
        hs_simd_accumulate_products(&squares, wide, wide);
    }
    return (ImportanceSums){ (double)hs_simd_largest(most.whole), hs_simd_sum_f64(sum), hs_simd_sum_f64(squares) };
}

HsStatus HS_ISA_NAME(hs_cpu_importance_stats)(HsContext *context, const HsImportanceStatsArgs *args)
{
    for (int t = 0; t < args->count; t++) {
        const int64_t count = hs_tensor_count(&args->tensors[t]), size = hs_cpu_part_size(count);
        const int64_t parts = hs_cpu_block_count(count, size);
        ImportanceSums found[HS_CPU_PARTS], all = { 0 };
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
        for (int64_t part = 0; part < parts; part++)
            found[part] = part_importance(&args->tensors[t], hs_cpu_block(count, size, part));
        for (int64_t part = 0; part < parts; part++) {
            all.maximum = found[part].maximum > all.maximum ? found[part].maximum : all.maximum;
            all.sum += found[part].sum;
            all.sum_squares += found[part].sum_squares;
        }
        args->maximum[t] = all.maximum;
        args->sum[t] = all.sum;
        args->sum_squares[t] = all.sum_squares;
    }
    return HS_OK;
}

/* sum importance (p - anchor)^2; from the difference on in double: squares of small steps leave f32's range */
HS_SIMD double penalty_of(HsDtype dtype, bool weighted, const HsTensor *importance, const HsTensor *anchor,
                          const HsTensor *parameter, HsRowBlock range)
{
    HsF64Parts sum = { 0 };
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 distance =
            hs_simd_load_part(dtype, parameter->data, i, left) - hs_simd_load_part(HS_F32, anchor->data, i, left);
        const HsF32x16 weight = weighted ? hs_simd_load_part(HS_F32, importance->data, i, left) : hs_simd_splat(1.0f);
        hs_simd_accumulate_products(&sum, hs_simd_square(hs_simd_widen(distance)), hs_simd_widen(weight));
    }
    return hs_simd_sum_f64(sum);
}

static double part_penalty(const HsTensor *importance, const HsTensor *anchor, const HsTensor *parameter,
                           HsRowBlock range)
{
    const HsDtype dtype = parameter->dtype;
    if (!hs_tensor_present(importance))
        return penalty_of(dtype, false, importance, anchor, parameter, range);
    if (dtype == HS_F32)
        return penalty_of(HS_F32, true, importance, anchor, parameter, range);
    if (dtype == HS_BF16)
        return penalty_of(HS_BF16, true, importance, anchor, parameter, range);
    return penalty_of(HS_F16, true, importance, anchor, parameter, range);
}

HsStatus HS_ISA_NAME(hs_cpu_penalty)(HsContext *context, const HsPenaltyArgs *args)
{
    for (int t = 0; t < args->count; t++) {
        args->values[t] = 0;
        if (!hs_tensor_present(&args->anchor[t]))
            continue;
        const int64_t count = hs_tensor_count(&args->parameter[t]), size = hs_cpu_part_size(count);
        const int64_t parts = hs_cpu_block_count(count, size);
        double sums[HS_CPU_PARTS];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
        for (int64_t part = 0; part < parts; part++)
            sums[part] = part_penalty(&args->importance[t], &args->anchor[t], &args->parameter[t],
                                      hs_cpu_block(count, size, part));
        for (int64_t part = 0; part < parts; part++)
            args->values[t] += sums[part];
    }
    return HS_OK;
}
