/* SPDX-License-Identifier: MIT
 *
 * The update rules: one pass over memory each.  AdamW reads gradient, moments and master and writes moments, master,
 * weight and the cleared gradient: 28 to 34 bytes a parameter, nothing twice.  What continual learning adds is fused:
 * importance and anchor are two more streams to read (8 bytes), a pull one (4 bytes), the path integral one to update
 * (8 bytes).  Each chunk
 * function is compiled with and without it, so that plain training pays nothing and keeps its bits.  What follows on
 * the updated parameter, packing for the next step's products above all, is done on each piece at once.
 */
#include <math.h>

#include "kernels/cpu/isa/update_rule.h"

/* Moments in bf16: m by the upper half of each word, v by the lower; `word` keeps the draws of 64 elements. */
HS_SIMD void store_rounded_moments(const HsAdamWArgs *args, uint32_t word[64], int64_t i, HsF32x16 m, HsF32x16 v,
                                   int64_t left)
{
    const HsRng *rng = &args->update.rng;
    if (i % 64 == 0) /* chunks begin at multiples of 64 */
        hs_simd_draw64(rng, (uint64_t)(rng->row_offset + i) / 4, word);
    HsU32x16 bits;
    uint32_t lower[HS_LANES];
    memcpy(&bits, word + i % 64, sizeof bits);
    bits <<= 16;
    memcpy(lower, &bits, sizeof bits);
    hs_simd_store_part_stochastic(args->m.data, i, m, word + i % 64, left);
    hs_simd_store_part_stochastic(args->v.data, i, v, lower, left);
}

/* p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;  p -= lr (m/bc1) / (sqrt(v/bc2) + eps) */
HS_SIMD void adamw_chunk(const HsAdamWArgs *args, const HsProtection *protection, HsDtype gradient, HsDtype copy,
                         HsDtype moments, HsRowBlock range)
{
    const HsUpdateArgs *update = &args->update;
    const HsStepScalars *scalars = update->scalars;
    const float rate = scalars->learning_rate * update->learning_rate_scale;
    const float keep = HS_RULE_KEEP(hs_cpu_fma, rate, update->weight_decay);
    const float step = rate / scalars->bias_correction1, correction = 1.0f / scalars->bias_correction2;
    const float beta1 = args->beta1, beta2 = args->beta2, multiplier = scalars->gradient_multiplier;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 raw = hs_simd_load_part(gradient, update->grad.data, i, left);
        const HsF32x16 before = hs_update_load_parameter(update, copy, i, left);
        HsF32x16 g = raw * multiplier;
        if (protection)
            g = hs_update_with_penalty(protection, g, before, i, left);
        const HsF32x16 m_old = hs_simd_load_part(moments, args->m.data, i, left);
        const HsF32x16 v_old = hs_simd_load_part(moments, args->v.data, i, left);
        const HsF32x16 m = HS_RULE_ADAMW_M(hs_simd_fma, m_old, g, beta1, 1.0f - beta1);
        const HsF32x16 v = HS_RULE_ADAMW_V(hs_simd_fma, v_old, g, beta2, 1.0f - beta2);
        const HsF32x16 p =
            HS_RULE_ADAMW_P(hs_simd_fma, hs_simd_sqrt, before, keep, m, v, step, correction, args->epsilon);
        if (moments == HS_BF16) {
            store_rounded_moments(args, word, i, m, v, left);
        } else {
            hs_simd_store_part(HS_F32, args->m.data, i, m, left);
            hs_simd_store_part(HS_F32, args->v.data, i, v, left);
        }
        hs_update_finish(update, protection, gradient, copy, word, i, left, rate, raw, before, p);
    }
}

/* D = g / (sqrt(v) + eps) + wd p;  p += c m + lr (b1 (1-c) - 1) D;  m = (1-c) m - lr b1 (1-c) D, which is z - p */
HS_SIMD void schedule_free_chunk(const HsAdamWArgs *args, const HsProtection *protection, HsDtype gradient,
                                 HsDtype copy, HsDtype moments, HsRowBlock range)
{
    const HsUpdateArgs *update = &args->update;
    const HsStepScalars *scalars = update->scalars;
    const float rate = scalars->free_rate * update->learning_rate_scale, c = scalars->free_weight;
    const float step = HS_RULE_FREE_STEP(hs_cpu_fma, rate, args->beta1, c);
    const float back = HS_RULE_FREE_BACK(rate, args->beta1, c);
    const float beta2 = args->beta2, multiplier = scalars->gradient_multiplier;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 raw = hs_simd_load_part(gradient, update->grad.data, i, left);
        const HsF32x16 before = hs_update_load_parameter(update, copy, i, left);
        HsF32x16 g = raw * multiplier;
        if (protection)
            g = hs_update_with_penalty(protection, g, before, i, left);
        const HsF32x16 apart = hs_simd_load_part(moments, args->m.data, i, left);
        const HsF32x16 v_old = hs_simd_load_part(moments, args->v.data, i, left);
        const HsF32x16 v = HS_RULE_ADAMW_V(hs_simd_fma, v_old, g, beta2, 1.0f - beta2);
        const HsF32x16 direction =
            HS_RULE_FREE_DIRECTION(hs_simd_fma, hs_simd_sqrt, g, v, before, update->weight_decay, args->epsilon);
        const HsF32x16 p = HS_RULE_FREE_P(hs_simd_fma, before, apart, c, direction, step);
        const HsF32x16 m = HS_RULE_FREE_D(hs_simd_fma, apart, c, direction, back);
        if (moments == HS_BF16) {
            store_rounded_moments(args, word, i, m, v, left);
        } else {
            hs_simd_store_part(HS_F32, args->m.data, i, m, left);
            hs_simd_store_part(HS_F32, args->v.data, i, v, left);
        }
        hs_update_finish(update, protection, gradient, copy, word, i, left, rate, raw, before, p);
    }
}

static void schedule_free_range(const void *arguments, HsRowBlock range)
{
    const HsAdamWArgs *args = arguments;
    const HsProtection *protection = &args->update.protection;
    const bool guarded = hs_update_is_protected(protection), rounded = args->m.dtype == HS_BF16;
    const HsDtype gradient = args->update.grad.dtype, copy = args->update.weight.dtype;
    if (gradient == HS_F32 && copy == HS_BF16 && !guarded && !rounded)
        schedule_free_chunk(args, NULL, HS_F32, HS_BF16, HS_F32, range);
    else if (gradient == HS_F32 && copy == HS_F32 && !guarded && !rounded)
        schedule_free_chunk(args, NULL, HS_F32, HS_F32, HS_F32, range);
    else if (guarded)
        schedule_free_chunk(args, protection, gradient, copy, args->m.dtype, range);
    else
        schedule_free_chunk(args, NULL, gradient, copy, args->m.dtype, range);
}

static void adamw_range(const void *arguments, HsRowBlock range)
{
    const HsAdamWArgs *args = arguments;
    const HsProtection *protection = &args->update.protection;
    const bool guarded = hs_update_is_protected(protection);
    const HsDtype gradient = args->update.grad.dtype, copy = args->update.weight.dtype;
    if (args->m.dtype == HS_BF16 && gradient == HS_F32 && copy == HS_BF16 && !guarded)
        adamw_chunk(args, NULL, HS_F32, HS_BF16, HS_BF16, range);
    else if (args->m.dtype == HS_BF16)
        adamw_chunk(args, guarded ? protection : NULL, gradient, copy, HS_BF16, range);
    else if (gradient == HS_F32 && copy == HS_BF16 && guarded)
        adamw_chunk(args, protection, HS_F32, HS_BF16, HS_F32, range);
    else if (gradient == HS_F32 && copy == HS_BF16)
        adamw_chunk(args, NULL, HS_F32, HS_BF16, HS_F32, range);
    else if (gradient == HS_F32 && copy == HS_F32 && guarded)
        adamw_chunk(args, protection, HS_F32, HS_F32, HS_F32, range);
    else if (gradient == HS_F32 && copy == HS_F32)
        adamw_chunk(args, NULL, HS_F32, HS_F32, HS_F32, range);
    else if (guarded)
        adamw_chunk(args, protection, gradient, copy, HS_F32, range);
    else
        adamw_chunk(args, NULL, gradient, copy, HS_F32, range);
}

HsStatus HS_ISA_NAME(hs_cpu_adamw)(HsContext *context, const HsAdamWArgs *args)
{
    hs_update_through_pieces(context, &args->update, HS_PIECE_GRAIN,
                             args->schedule_free ? schedule_free_range : adamw_range, args);
    return HS_OK;
}

/* d = g + wd p;  buffer = momentum buffer + d;  p -= lr buffer   (nesterov: p -= lr (d + momentum buffer)) */
HS_SIMD void sgd_chunk(const HsSgdArgs *args, const HsProtection *protection, HsRowBlock range)
{
    const HsUpdateArgs *update = &args->update;
    const float rate = update->scalars->learning_rate * update->learning_rate_scale;
    const float multiplier = update->scalars->gradient_multiplier;
    const HsDtype gradient = update->grad.dtype, copy = update->weight.dtype;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 before = hs_update_load_parameter(update, copy, i, left);
        const HsF32x16 raw = hs_simd_load_part(gradient, update->grad.data, i, left);
        /* the penalty last: at the anchor the sum has the plain copy's bits */
        HsF32x16 descent = HS_RULE_SGD_DESCENT(hs_simd_fma, raw, multiplier, before, update->weight_decay);
        if (protection)
            descent = hs_update_with_penalty(protection, descent, before, i, left);
        HsF32x16 direction = descent;
        if (hs_tensor_present(&args->buffer)) {
            HsF32x16 buffer = hs_simd_load_part(HS_F32, args->buffer.data, i, left);
            buffer = HS_RULE_SGD_MOVE(hs_simd_fma, buffer, args->momentum, descent);
            hs_simd_store_part(HS_F32, args->buffer.data, i, buffer, left);
            direction = args->nesterov ? HS_RULE_SGD_MOVE(hs_simd_fma, buffer, args->momentum, descent) : buffer;
        }
        hs_update_finish(update, protection, gradient, copy, word, i, left, rate, raw, before,
                         HS_RULE_SGD_P(hs_simd_fma, before, rate, direction));
    }
}

static void sgd_range(const void *arguments, HsRowBlock range)
{
    const HsSgdArgs *args = arguments;
    sgd_chunk(args, hs_update_is_protected(&args->update.protection) ? &args->update.protection : NULL, range);
}

HsStatus HS_ISA_NAME(hs_cpu_sgd)(HsContext *context, const HsSgdArgs *args)
{
    hs_update_through_pieces(context, &args->update, HS_PIECE_GRAIN, sgd_range, args);
    return HS_OK;
}

/* One after another: all threads work on each, and its pieces are packed while a cache holds them. */
HsStatus HS_ISA_NAME(hs_cpu_update_list)(HsContext *context, const HsUpdateListArgs *args)
{
    for (int i = 0; i < args->adamw_count; i++)
        HS_TRY(HS_ISA_NAME(hs_cpu_adamw)(context, &args->adamw[i]));
    for (int i = 0; i < args->adamw8bit_count; i++)
        HS_TRY(HS_ISA_NAME(hs_cpu_adamw8bit)(context, &args->adamw8bit[i]));
    for (int i = 0; i < args->sgd_count; i++)
        HS_TRY(HS_ISA_NAME(hs_cpu_sgd)(context, &args->sgd[i]));
    return HS_OK;
}

/* m = b m + (1 - b) g;  direction = m, or (1 - b) g + b m */
static void momentum_chunk(const HsMomentumArgs *args, HsRowBlock range)
{
    const HsUpdateArgs *update = &args->update;
    const float keep = update->scalars->momentum, multiplier = update->scalars->gradient_multiplier;
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        HsF32x16 g = hs_simd_load_part(update->grad.dtype, update->grad.data, i, left) * multiplier;
        if (hs_tensor_present(&update->protection.anchor) || hs_tensor_present(&update->protection.pull))
            g = hs_update_with_penalty(&update->protection, g,
                                       hs_update_load_parameter(update, update->weight.dtype, i, left), i, left);
        if (!hs_tensor_present(&args->m)) {
            hs_simd_store_part(HS_F32, args->direction.data, i, g, left);
            continue;
        }
        const HsF32x16 m = hs_simd_load_part(HS_F32, args->m.data, i, left) * keep + g * (1.0f - keep);
        hs_simd_store_part(HS_F32, args->m.data, i, m, left);
        hs_simd_store_part(HS_F32, args->direction.data, i, args->nesterov ? g * (1.0f - keep) + m * keep : m, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_momentum)(HsContext *context, const HsMomentumArgs *args)
{
    const int64_t count = hs_tensor_count(&args->direction);
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++) {
        const HsRowBlock range = hs_cpu_block(count, HS_CPU_CHUNK, block);
        if (args->update.scalars->skip)
            hs_cpu_clear(&args->direction, range);
        else
            momentum_chunk(args, range);
    }
    return HS_OK;
}

static void normalize_chunk(const HsNormalizeArgs *args, float factor, HsRowBlock range)
{
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 x = hs_simd_load_part(HS_F32, args->x.data, i, left);
        hs_simd_store_part(args->y.dtype, args->y.data, i, x * factor, left);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_normalize)(HsContext *context, const HsNormalizeArgs *args)
{
    const int64_t count = hs_tensor_count(&args->x);
    const float factor = (float)(1.0 / (sqrt(*args->sum_squares) + (double)args->epsilon));
#pragma omp parallel for schedule(static) num_threads(hs_cpu_chunk_threads(context, count))
    for (int64_t block = 0; block < hs_cpu_block_count(count, HS_CPU_CHUNK); block++)
        normalize_chunk(args, factor, hs_cpu_block(count, HS_CPU_CHUNK, block));
    return HS_OK;
}

/* The running mean square of each row of a block; returns |f x|^2 of them. */
static double measure_neurons(const HsScaleNeuronsArgs *args, HsRowBlock rows)
{
    const int64_t columns = args->x.shape[1];
    float *second = args->second_moment.data;
    double total = 0.0;
    for (int64_t row = rows.begin; row < rows.end; row++) {
        HsF32Parts sum = { 0 };
        HS_FOR_LANES(i, left, 0, columns)
        {
            const HsF32x16 x = hs_simd_load_part(args->x.dtype, args->x.data, row * columns + i, left);
            hs_simd_accumulate(&sum, x * x);
        }
        const float squares = hs_simd_sum(sum.whole);
        second[row] = args->beta2 * second[row] + (1.0f - args->beta2) * (squares / (float)columns);
        const float divisor = sqrtf(second[row]) + args->epsilon;
        total += (double)squares / ((double)divisor * (double)divisor);
    }
    return total;
}

static void scale_neurons(const HsScaleNeuronsArgs *args, float factor, HsRowBlock rows)
{
    const int64_t columns = args->x.shape[1];
    const float *second = args->second_moment.data;
    for (int64_t row = rows.begin; row < rows.end; row++) {
        const float scale = factor / (sqrtf(second[row]) + args->epsilon);
        HS_FOR_LANES(i, left, 0, columns)
        {
            const int64_t at = row * columns + i;
            const HsF32x16 x = hs_simd_load_part(args->x.dtype, args->x.data, at, left);
            hs_simd_store_part(args->x.dtype, args->x.data, at, x * scale, left);
        }
    }
}

/* Rows are cut in blocks by shape alone, and their sums added in the blocks' order. */
HsStatus HS_ISA_NAME(hs_cpu_scale_neurons)(HsContext *context, const HsScaleNeuronsArgs *args)
{
    enum { MOST_BLOCKS = 64 };
    const int64_t rows = args->x.shape[0], columns = args->x.shape[1];
    const int64_t length = (rows + MOST_BLOCKS - 1) / MOST_BLOCKS, blocks = hs_cpu_block_count(rows, length);
    const int threads = hs_cpu_chunk_threads(context, rows * columns);
    double sums[MOST_BLOCKS], total = 0.0;
    if (args->scalars->skip)
        return HS_OK;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++)
        sums[block] = measure_neurons(args, hs_cpu_block(rows, length, block));
    for (int64_t block = 0; block < blocks; block++)
        total += sums[block];
    const float factor = total > 0.0 ? (float)((double)args->size * sqrt((double)(rows * columns) / total)) : 0.0f;
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t block = 0; block < blocks; block++)
        scale_neurons(args, factor, hs_cpu_block(rows, length, block));
    return HS_OK;
}

/* The factors of elements i to i + 15 of a direction. */
HS_SIMD HsF32x16 factors_at(const HsDescendArgs *args, int64_t i, int64_t left)
{
    const float *factors = args->factors.data;
    const int64_t columns = args->direction.shape[1];
    int64_t row = i / columns, column = i % columns;
    if (column + HS_LANES <= columns)
        return args->of_columns ? hs_simd_load_f32(factors + column) : hs_simd_splat(factors[row]);
    HsF32x16 result = { 0 };
    for (int lane = 0; lane < HS_LANES && lane < left; lane++) {
        result[lane] = factors[args->of_columns ? column : row];
        if (++column == columns) {
            column = 0;
            row++;
        }
    }
    return result;
}

/* p -= lr (wd p + direction) */
HS_SIMD void descend_chunk(const HsDescendArgs *args, const HsProtection *protection, HsRowBlock range)
{
    const HsUpdateArgs *update = &args->update;
    const HsDtype gradient = update->grad.dtype, copy = update->weight.dtype;
    const float rate = update->scalars->learning_rate * update->learning_rate_scale;
    const float keep = 1.0f - rate * update->weight_decay;
    uint32_t word[64];
    HS_FOR_LANES(i, left, range.begin, range.end)
    {
        const HsF32x16 before = hs_update_load_parameter(update, copy, i, left);
        const HsF32x16 raw = hs_simd_load_part(gradient, update->grad.data, i, left);
        HsF32x16 direction = hs_simd_load_part(args->direction.dtype, args->direction.data, i, left);
        if (hs_tensor_present(&args->factors))
            direction *= factors_at(args, i, left);
        HsF32x16 p = before * keep;
        if (args->cautious)
            p = hs_simd_select(hs_simd_less(direction * before, hs_simd_splat(0.0f)), before, p);
        p -= direction * rate;
        hs_update_finish(update, protection, gradient, copy, word, i, left, rate, raw, before, p);
    }
}

static void descend_range(const void *arguments, HsRowBlock range)
{
    const HsDescendArgs *args = arguments;
    descend_chunk(args, hs_update_is_protected(&args->update.protection) ? &args->update.protection : NULL, range);
}

HsStatus HS_ISA_NAME(hs_cpu_descend)(HsContext *context, const HsDescendArgs *args)
{
    hs_update_through_pieces(context, &args->update, HS_PIECE_GRAIN, descend_range, args);
    return HS_OK;
}
