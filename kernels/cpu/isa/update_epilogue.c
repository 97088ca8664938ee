/* SPDX-License-Identifier: MIT
 *
 * What follows an update rule on a piece of a parameter that is still in a cache: steps back, the average, snapshots,
 * packed layouts; and the step back and the average as separate operations.
 */
#include "kernels/cpu/isa/update_epilogue.h"

#include "kernels/cpu/isa/matmul.h"
#include "kernels/ops/update_rule.h"

/* anchor + rate (p - anchor); at rate 1 rounding could miss p, so p is kept */
HS_SIMD void step_back(const HsStepBack *back, const HsTensor *master, const HsTensor *weight, HsDtype copy,
                       HsRowBlock range)
{
    const float rate = back->rate;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        HsF32x16 p = hs_cpu_load_parameter(master, weight, copy, i, left);
        if (rate != 1.0f) {
            const HsF32x16 anchor = hs_simd_load_part(HS_F32, back->anchor.data, i, left);
            p = HS_RULE_BACK(hs_simd_fma, p, rate, anchor);
        }
        hs_cpu_store_parameter(master, weight, copy, &back->rng, word, i, p, left);
    }
}

static void step_back_range(const HsStepBack *back, const HsTensor *master, const HsTensor *weight, HsRowBlock range)
{
    if (weight->dtype == HS_BF16)
        step_back(back, master, weight, HS_BF16, range);
    else if (weight->dtype == HS_F32)
        step_back(back, master, weight, HS_F32, range);
    else
        step_back(back, master, weight, HS_F16, range);
}

/* average + rate (x - average); at rate 1 rounding could miss x */
HS_SIMD void average_as(const HsTensor *average, float rate, const HsTensor *x, HsDtype dtype, HsRowBlock range)
{
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 before = hs_simd_load_part(HS_F32, average->data, i, left);
        const HsF32x16 now = hs_simd_load_part(dtype, x->data, i, left);
        hs_simd_store_part(HS_F32, average->data, i, rate == 1.0f ? now : HS_RULE_BACK(hs_simd_fma, now, rate, before),
                           left);
    }
}

static void average_range(const HsTensor *average, float rate, const HsTensor *x, HsRowBlock range)
{
    if (x->dtype == HS_F32)
        average_as(average, rate, x, HS_F32, range);
    else
        average_as(average, rate, x, x->dtype, range);
}

static void take_snapshot(const HsTensor *snapshot, const HsTensor *master, const HsTensor *weight, HsRowBlock range)
{
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 p = hs_cpu_load_parameter(master, weight, weight->dtype, i, left);
        hs_simd_store_part(HS_F32, snapshot->data, i, p, left);
    }
}

/* The piece's part of one packed layout.  Pieces begin where panels and words do. */
static void pack_piece(const HsTensor *weight, const HsPacked *packed, bool transposed, const HsUpdatePiece *piece)
{
    if (packed == NULL || packed->data == NULL)
        return;
    const HsPanelFormat format = hs_panel_format(weight->dtype);
    const HsRowBlock lanes = transposed ? piece->rows : piece->columns;
    const HsRowBlock k = transposed ? piece->columns : piece->rows;
    const HsRowBlock words = { k.begin / hs_panel_step(format), hs_panel_depth(format, k.end) };
    HS_ISA_NAME(hs_pack_weight_block)(weight, transposed, lanes, words, packed->data);
}

static bool has_streams(const HsUpdateEpilogue *epilogue)
{
    return epilogue->back_count + epilogue->snapshot_count > 0 || hs_tensor_present(&epilogue->average);
}

void HS_ISA_NAME(hs_update_finish_piece)(const HsUpdateArgs *update, const HsPieces *cut, const HsUpdatePiece *piece)
{
    const HsUpdateEpilogue *epilogue = &update->epilogue;
    const HsTensor *master = &update->master, *weight = &update->weight;
    for (int64_t r = 0; has_streams(epilogue) && r < hs_piece_ranges(cut, piece); r++) {
        const HsRowBlock range = hs_piece_range(cut, piece, r);
        for (int i = 0; i < epilogue->back_count; i++)
            step_back_range(&epilogue->back[i], master, weight, range);
        if (hs_tensor_present(&epilogue->average))
            average_range(&epilogue->average, update->scalars->average_rate,
                          hs_tensor_present(master) ? master : weight, range);
        for (int i = 0; i < epilogue->snapshot_count; i++)
            take_snapshot(&epilogue->snapshots[i], master, weight, range);
    }
    if (update->scalars->skip && epilogue->back_count == 0) /* p is as it was */
        return;
    pack_piece(weight, epilogue->packed_transposed, true, piece);
    pack_piece(weight, epilogue->packed, false, piece);
}

HsStatus HS_ISA_NAME(hs_cpu_interpolate)(HsContext *context, const HsInterpolateArgs *args)
{
    const int64_t count = hs_tensor_count(&args->weight);
    const HsStepBack back = { args->anchor, args->rate, args->rng };
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++)
        step_back_range(&back, &args->master, &args->weight, hs_cpu_block(count, HS_CPU_CHUNK, block));
    return HS_OK;
}

HsStatus HS_ISA_NAME(hs_cpu_average)(HsContext *context, const HsAverageArgs *args)
{
    const int64_t count = hs_tensor_count(&args->average);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++)
        average_range(&args->average, *args->rate, &args->x, hs_cpu_block(count, HS_CPU_CHUNK, block));
    return HS_OK;
}
