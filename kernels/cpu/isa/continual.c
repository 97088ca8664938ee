/* SPDX-License-Identifier: MIT
 *
 * Operations of continual learning that touch each element of a parameter once: accumulating squares, consolidation,
 * interpolation, linear combination, ranges of columns.  Bound by memory; arithmetic in f32 with one rounding at each store, the merge's
 * offset in double.
 */
#include "kernels/cpu/isa/parameter.h"

/* alpha x + beta y, the product with x fused; at beta 0 y is not read: it may hold anything. */
HS_SIMD void combine_chunk(const HsCombineArgs *args, HsDtype in, HsDtype out, HsRowBlock range)
{
    const float alpha = args->alpha, beta = args->beta;
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 x = hs_simd_load_part(in, args->x.data, i, left);
        HsF32x16 value = x * alpha;
        if (beta != 0.0f)
            value = hs_simd_fma(x, alpha, hs_simd_load_part(out, args->y.data, i, left) * beta);
        hs_simd_store_part(out, args->y.data, i, value, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_combine)(HsContext *context, const HsCombineArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, HS_CPU_CHUNK, block);
        if (in == HS_F32 && out == HS_F32)
            combine_chunk(args, HS_F32, HS_F32, range);
        else
            combine_chunk(args, in, out, range);
    }
    return HS_OK;
}

HS_SIMD void copy_columns_row(const HsCopyColumnsArgs *args, HsDtype in, HsDtype out, int64_t row)
{
    const int64_t from = row * args->x.shape[1] + args->from, to = row * args->y.shape[1] + args->to;
    const bool scaled = hs_tensor_present(&args->scale), difference = hs_tensor_present(&args->minus);
    const float scale = scaled ? ((const float *)args->scale.data)[row] : 1.0f;
    HS_FOR_LANES(i, left, 0, args->columns)
    {
        HsF32x16 value = hs_simd_load_part(in, args->x.data, from + i, left);
        if (difference)
            value -= hs_simd_load_part(HS_F32, args->minus.data, from + i, left);
        if (scaled)
            value *= scale;
        hs_simd_store_part(out, args->y.data, to + i, value, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_copy_columns)(HsContext *context, const HsCopyColumnsArgs *args)
{
    const int64_t rows = args->x.shape[0], chunk = HS_CPU_CHUNK / args->columns + 1;
    const HsDtype in = args->x.dtype, out = args->y.dtype;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, hs_cpu_block_count(rows, chunk)))
    for (int64_t block = 0; block < hs_cpu_block_count(rows, chunk); block++) {
        const HsRowBlock range = hs_cpu_block(rows, chunk, block);
        for (int64_t row = range.begin; row < range.end; row++) {
            if (in == HS_F32 && out == HS_F32)
                copy_columns_row(args, HS_F32, HS_F32, row);
            else
                copy_columns_row(args, in, out, row);
        }
    }
    return HS_OK;
}

/* accumulator += weight (multiplier grad)^2; the multiplier first: a scaled gradient's square leaves f32's range. */
HS_SIMD void square_chunk(const HsSquareAccumulateArgs *args, HsDtype gradient, HsRowBlock range)
{
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 g = hs_simd_load_part(gradient, args->grad.data, i, left) * args->multiplier;
        HsF32x16 sum = hs_simd_load_part(HS_F32, args->accumulator.data, i, left);
        sum += g * g * args->weight;
        hs_simd_store_part(HS_F32, args->accumulator.data, i, sum, left);
        hs_simd_store_part(gradient, args->grad.data, i, hs_simd_splat(0.0f), left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_square_accumulate)(HsContext *context, const HsSquareAccumulateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->grad);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, HS_CPU_CHUNK, block);
        if (args->grad.dtype == HS_F32)
            square_chunk(args, HS_F32, range);
        else if (args->grad.dtype == HS_BF16)
            square_chunk(args, HS_BF16, range);
        else
            square_chunk(args, HS_F16, range);
    }
    return HS_OK;
}

/* One quadratic in place of two; returns the offset's share.  Where F is 0 the anchor is p to the bit. */
static double merge_chunk(const HsConsolidateArgs *args, HsRowBlock range)
{
    const HsF32x16 zero = hs_simd_splat(0.0f);
    HsF64Parts offset = { 0 };
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 fresh = hs_simd_load_part(HS_F32, args->fresh.data, i, left) * args->scale;
        const HsF32x16 importance = hs_simd_load_part(HS_F32, args->importance.data, i, left);
        const HsF32x16 anchor = hs_simd_load_part(HS_F32, args->anchor.data, i, left);
        const HsF32x16 p = hs_simd_load_part(args->parameter.dtype, args->parameter.data, i, left);
        const HsF32x16 sum = importance + fresh, distance = p - anchor;
        /* 0 / 0 counts as 0: that lane's quotient is not looked at */
        const HsI32x16 first = hs_simd_equal(importance, zero);
        const HsF32x16 share = hs_simd_select(first, zero, fresh / sum);
        hs_simd_store_part(HS_F32, args->importance.data, i, sum, left);
        hs_simd_store_part(HS_F32, args->anchor.data, i, hs_simd_select(first, p, anchor + share * distance), left);
        hs_simd_store_part(HS_F32, args->fresh.data, i, zero, left);
        /* an element's first anchor may be anything: it must not reach the sum */
        const HsF64Parts moved = hs_simd_widen(hs_simd_select(first, zero, distance));
        hs_simd_accumulate_products(&offset, hs_simd_square(moved), hs_simd_widen(importance * share));
    }
    return hs_simd_sum_f64(offset);
}

static HsStatus merge(const HsContext *context, const HsConsolidateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->parameter), size = hs_cpu_part_size(count);
    const int64_t parts = hs_cpu_block_count(count, size);
    double offsets[HS_CPU_PARTS], offset = 0;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, parts))
    for (int64_t part = 0; part < parts; part++)
        offsets[part] = merge_chunk(args, hs_cpu_block(count, size, part));
    for (int64_t part = 0; part < parts; part++)
        offset += offsets[part];
    *args->offset += offset;
    return HS_OK;
}

/* importance = decay importance + scale fresh;  anchor = p, over fresh where they share their memory */
static void online_chunk(const HsConsolidateArgs *args, bool shared, HsRowBlock range)
{
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 fresh = hs_simd_load_part(HS_F32, args->fresh.data, i, left);
        const HsF32x16 importance = hs_simd_load_part(HS_F32, args->importance.data, i, left);
        const HsF32x16 p = hs_simd_load_part(args->parameter.dtype, args->parameter.data, i, left);
        hs_simd_store_part(HS_F32, args->importance.data, i, importance * args->decay + fresh * args->scale, left);
        hs_simd_store_part(HS_F32, args->anchor.data, i, p, left);
        if (!shared)
            hs_simd_store_part(HS_F32, args->fresh.data, i, hs_simd_splat(0.0f), left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_consolidate)(HsContext *context, const HsConsolidateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->parameter);
    const bool shared = args->fresh.data == args->anchor.data;
    if (args->merge)
        return merge(context, args);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++)
        online_chunk(args, shared, hs_cpu_block(count, HS_CPU_CHUNK, block));
    return HS_OK;
}

/* importance = max(0, importance + path / ((p - anchor)^2 + damping));  the maximum keeps a NaN on its right */
static void path_chunk(const HsConsolidatePathArgs *args, HsRowBlock range)
{
    const HsF32x16 zero = hs_simd_splat(0.0f);
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 path = hs_simd_load_part(HS_F32, args->path.data, i, left);
        const HsF32x16 importance = hs_simd_load_part(HS_F32, args->importance.data, i, left);
        const HsF32x16 p = hs_simd_load_part(args->parameter.dtype, args->parameter.data, i, left);
        const HsF32x16 distance = p - hs_simd_load_part(HS_F32, args->anchor.data, i, left);
        const HsF32x16 added = path / (distance * distance + args->damping);
        hs_simd_store_part(HS_F32, args->importance.data, i, hs_simd_max(zero, importance + added), left);
        hs_simd_store_part(HS_F32, args->anchor.data, i, p, left);
        hs_simd_store_part(HS_F32, args->path.data, i, zero, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_consolidate_path)(HsContext *context, const HsConsolidatePathArgs *args)
{
    const int64_t count = hs_tensor_count(&args->parameter);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++)
        path_chunk(args, hs_cpu_block(count, HS_CPU_CHUNK, block));
    return HS_OK;
}
