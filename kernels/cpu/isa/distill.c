/* SPDX-License-Identifier: MIT
 *
 * Distillation, one row a task.
 *     top_logits     the kept ones lie sorted; most logits are below the last of them, and are only looked at
 *     match_logits   the row times b, then its K entries, with gradients that were read before
 *     distill        dl_v = b dl_v + gs a/t (p_v - q_v),  loss = a (sum_v q_v (z_v - l_v)/t + lse(l/t) - lse(z/t))
 * Under a cap l = c tanh(x / c), and what is added to dl_v is that times 1 - (l / c)^2.  Rows of distill where a side
 * has one have their own copy of the loops.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/logit_cap.h"

/* --- top_logits --- */

/* Sorted in before the first smaller one, so that of equal ones the first stays first; the last falls out. */
static int64_t insert(float *value, int32_t *index, int64_t held, int64_t kept, float logit, int64_t v)
{
    int64_t k = held < kept ? held : kept - 1;
    for (; k > 0 && value[k - 1] < logit; k--) {
        value[k] = value[k - 1];
        index[k] = index[k - 1];
    }
    value[k] = logit;
    index[k] = (int32_t)v;
    return held < kept ? held + 1 : kept;
}

/* By the numbers that are stored: a cap leaves them in order. */
static void top_of_row(const float *logits, float cap, int64_t vocabulary, int64_t kept, float *value, int32_t *index)
{
    int64_t held = 0;
    for (int64_t v = 0; v < vocabulary; v++) {
        const float logit = logits[v];
        if (!isnan(logit) && (held < kept || logit > value[kept - 1]))
            held = insert(value, index, held, kept, logit, v);
    }
    for (int64_t k = 0; k < held; k++)
        value[k] = hs_cap_logit(value[k], cap);
    for (; held < kept; held++) {
        value[held] = 0.0f;
        index[held] = -1;
    }
}

HsStatus HS_ISA_NAME(hs_cpu_top_logits)(HsContext *context, const HsTopLogitsArgs *args)
{
    const int64_t rows = args->logits.shape[0], vocabulary = args->logits.shape[1], kept = args->index.shape[1];
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++)
        top_of_row((const float *)args->logits.data + row * vocabulary, args->cap, vocabulary, kept,
                   (float *)args->value.data + row * kept, (int32_t *)args->index.data + row * kept);
    return HS_OK;
}

/* --- match_logits --- */

static void *row_of(const HsTensor *matrix, int64_t row)
{
    return (unsigned char *)matrix->data + (size_t)(row * matrix->shape[1]) * hs_dtype_bytes(matrix->dtype);
}

HS_SIMD float load_one(HsDtype dtype, const void *array, int64_t index)
{
    return dtype == HS_F32 ? ((const float *)array)[index] : (float)hs_dtype_load(dtype, array, index);
}

HS_SIMD void scale_row(HsDtype dtype, void *row, int64_t count, float factor)
{
    HS_FOR_VECTORS(i, left, 0, count,
                   hs_simd_store_part(dtype, row, i, factor * hs_simd_load_part(dtype, row, i, left), left));
}

static void scale(HsDtype dtype, void *row, int64_t count, float factor)
{
    if (dtype == HS_F32)
        scale_row(HS_F32, row, count, factor);
    else if (dtype == HS_BF16)
        scale_row(HS_BF16, row, count, factor);
    else
        scale_row(HS_F16, row, count, factor);
}

static float match_row(const HsMatchLogitsArgs *args, int64_t row)
{
    const int64_t vocabulary = args->logits.shape[1], kept = args->index.shape[1];
    const float *logits = row_of(&args->logits, row), *value = row_of(&args->value, row);
    const int32_t *index = row_of(&args->index, row);
    const float share = args->weight / (float)kept, scale_by = *args->gradient_scale;
    void *gradient = row_of(&args->dlogits, row);
    float matched[HS_MOST_KEPT_LOGITS], loss = 0.0f;
    for (int64_t k = 0; k < kept; k++) {
        if (index[k] < 0)
            continue;
        const float x = logits[index[k]], slope = hs_cap_slope(x, args->cap);
        const float distance = hs_cap_logit(x, args->cap) - value[k];
        loss += share * distance * distance;
        matched[k] = args->target_weight * load_one(args->dlogits.dtype, gradient, index[k]) +
                     scale_by * (2.0f * share * distance * slope);
    }
    if (args->target_weight != 1.0f)
        scale(args->dlogits.dtype, gradient, vocabulary, args->target_weight);
    for (int64_t k = 0; k < kept; k++)
        if (index[k] >= 0)
            hs_dtype_store(args->dlogits.dtype, gradient, index[k], (double)matched[k]);
    return loss;
}

HsStatus HS_ISA_NAME(hs_cpu_match_logits)(HsContext *context, const HsMatchLogitsArgs *args)
{
    const int64_t rows = args->logits.shape[0];
    const int32_t *targets = args->targets.data, *replayed = args->replayed.data;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++)
        ((float *)args->losses.data)[row] = replayed[row] != 0 && targets[row] >= 0 ? match_row(args, row) : 0.0f;
    return HS_OK;
}

/* --- distill --- */

/* exp((l - maximum) / t) of `left` logits from i on, the other lanes zero */
HS_SIMD HsF32x16 exponentials(bool capped, float cap, const float *logits, int64_t i, int64_t left, float maximum,
                              float inverse)
{
    const HsF32x16 logit = hs_simd_cap(capped, hs_simd_load_part(HS_F32, logits, i, left), cap).logit;
    return hs_simd_keep_first(hs_simd_exp((logit - maximum) * inverse), left);
}

/* log sum_v exp(l_v / t) = shift + log(sum exp(l_v / t - shift)), shift = max / t */
HS_SIMD float log_sum_exp(bool capped, float cap, const float *logits, int64_t count, float inverse)
{
    const int64_t whole = count / HS_LANES * HS_LANES;
    HsF32Parts most = { .whole = hs_simd_splat(-INFINITY) };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_raise(&most, hs_simd_load_f32(logits + i));
    float maximum = hs_simd_largest(most.whole);
    for (int64_t i = whole; i < count; i++)
        maximum = logits[i] > maximum ? logits[i] : maximum;
    maximum = hs_simd_cap_one(capped, maximum, cap);
    HsF32Parts sum = { 0 };
    HS_FOR_VECTORS(i, left, 0, count,
                   hs_simd_accumulate(&sum, exponentials(capped, cap, logits, i, left, maximum, inverse)));
    return maximum * inverse + logf(hs_simd_sum(sum.whole));
}

/* What a row is computed from. */
typedef struct Pair {
    const float *student, *teacher;
    float cap, teacher_cap;
    float inverse, student_lse, teacher_lse;
    float pull; /* gs a / t */
    float held; /* b */
} Pair;

/* Which sides have a cap; constants where a row is begun. */
typedef struct Caps {
    bool student, teacher;
} Caps;

HS_SIMD void distill_vector(HsDtype dtype, Caps caps, const Pair *pair, void *gradient, HsF32Parts *sum, int64_t i,
                            int64_t left)
{
    const HsCappedLogits student =
        hs_simd_cap(caps.student, hs_simd_load_part(HS_F32, pair->student, i, left), pair->cap);
    const HsCappedLogits teacher =
        hs_simd_cap(caps.teacher, hs_simd_load_part(HS_F32, pair->teacher, i, left), pair->teacher_cap);
    const HsF32x16 l = student.logit * pair->inverse - pair->student_lse;
    const HsF32x16 z = teacher.logit * pair->inverse - pair->teacher_lse;
    const HsF32x16 p = hs_simd_exp(l), q = hs_simd_exp(z);
    hs_simd_accumulate(sum, hs_simd_keep_first(q * (z - l), left));
    const HsF32x16 change = caps.student ? (p - q) * student.slope : p - q;
    hs_simd_store_part(dtype, gradient, i,
                       pair->held * hs_simd_load_part(dtype, gradient, i, left) + pair->pull * change, left);
}

HS_SIMD float distill_typed(HsDtype dtype, Caps caps, const Pair *pair, void *gradient, int64_t count)
{
    HsF32Parts sum = { 0 };
    HS_FOR_VECTORS(i, left, 0, count, distill_vector(dtype, caps, pair, gradient, &sum, i, left));
    return hs_simd_sum(sum.whole);
}

HS_SIMD float distill_any(HsDtype dtype, Caps caps, Pair pair, void *gradient, int64_t count)
{
    pair.student_lse = log_sum_exp(caps.student, pair.cap, pair.student, count, pair.inverse);
    pair.teacher_lse = log_sum_exp(caps.teacher, pair.teacher_cap, pair.teacher, count, pair.inverse);
    return dtype == HS_F32    ? distill_typed(HS_F32, caps, &pair, gradient, count)
           : dtype == HS_BF16 ? distill_typed(HS_BF16, caps, &pair, gradient, count)
                              : distill_typed(HS_F16, caps, &pair, gradient, count);
}

static float distill_row(const HsDistillArgs *args, const HsTeaching *teaching, int64_t row)
{
    const int64_t count = args->logits.shape[1];
    const Pair pair = { .student = row_of(&args->logits, row),
                        .teacher = row_of(&args->teacher, row),
                        .cap = args->cap,
                        .teacher_cap = args->teacher_cap,
                        .inverse = 1.0f / teaching->temperature,
                        .pull = *args->gradient_scale * teaching->weight / teaching->temperature,
                        .held = teaching->target_weight };
    void *gradient = row_of(&args->dlogits, row);
    const HsDtype dtype = args->dlogits.dtype;
    const Caps caps = { args->cap > 0.0f, args->teacher_cap > 0.0f };
    const float divergence = caps.student != caps.teacher
                                 ? distill_any(dtype, caps, pair, gradient, count) /* rare, and chosen in the loop */
                             : caps.student ? distill_any(dtype, (Caps){ true, true }, pair, gradient, count)
                                            : distill_any(dtype, (Caps){ false, false }, pair, gradient, count);
    return teaching->weight * divergence;
}

HsStatus HS_ISA_NAME(hs_cpu_distill)(HsContext *context, const HsDistillArgs *args)
{
    const int64_t rows = args->logits.shape[0];
    const int32_t *targets = args->targets.data, *replayed = args->replayed.data;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++) {
        const bool again = replayed && replayed[row] != 0;
        const HsTeaching *teaching = again ? &args->again : &args->fresh;
        const bool taught = teaching->weight != 0.0f;
        if (again && !taught)
            continue;
        ((float *)args->losses.data)[row] = taught && targets[row] >= 0 ? distill_row(args, teaching, row) : 0.0f;
    }
    return HS_OK;
}
