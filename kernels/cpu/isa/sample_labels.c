/* SPDX-License-Identifier: MIT
 *
 * Labels drawn from softmax(logits), one row a task.  With e_v = exp(l_v - max), the label is the smallest v with a
 * running sum above uniform * sum e.  The first pass finds the maximum; the second the sums of blocks of 512
 * exponentials; the third walks the blocks' sums, which stand on the stack, and only inside the block that holds the
 * label, single exponentials.  Sums of blocks are in f32, sums over blocks in double: a vocabulary of 50,000 loses no
 * small probabilities.
 * Rows with a cap have their own copy of the passes.
 */
#include <math.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/logit_cap.h"

enum { BLOCK = 512 };

/* How a row is read; constants where it is begun, but for the cap. */
typedef struct Reading {
    HsDtype in;
    bool capped;
    float cap;
} Reading;

/* Exponentials of one block, `count` of them, the other lanes zero; their sum. */
HS_SIMD HsF32x16 exponentials_vector(Reading reading, const void *logits, int64_t begin, float maximum,
                                     float *exponentials, int64_t i, int64_t left)
{
    const HsF32x16 x = hs_simd_load_part(reading.in, logits, begin + i, left);
    const HsF32x16 logit = hs_simd_cap(reading.capped, x, reading.cap).logit;
    const HsF32x16 e = hs_simd_keep_first(hs_simd_exp(logit - maximum), left);
    hs_simd_store_f32(exponentials + i, e);
    return e;
}

HS_SIMD float block_exponentials(Reading reading, const void *logits, int64_t begin, int64_t count, float maximum,
                                 float exponentials[BLOCK])
{
    HsF32Parts sum = { 0 };
    HS_FOR_VECTORS(
        i, left, 0, count,
        hs_simd_accumulate(&sum, exponentials_vector(reading, logits, begin, maximum, exponentials, i, left)));
    return hs_simd_sum(sum.whole);
}

HS_SIMD float largest(HsDtype in, const void *logits, int64_t first, int64_t count)
{
    const int64_t whole = count / HS_LANES * HS_LANES;
    HsF32Parts most = { .whole = hs_simd_splat(-INFINITY) };
    for (int64_t i = 0; i < whole; i += HS_LANES)
        hs_simd_raise(&most, hs_simd_load(in, logits, first + i));
    float maximum = hs_simd_largest(most.whole);
    const HsF32x16 rest = hs_simd_load_part(in, logits, first + whole, count - whole);
    for (int64_t i = 0; i < count - whole; i++)
        maximum = rest[i] > maximum ? rest[i] : maximum;
    return maximum;
}

/* The smallest label with a running sum above `limit`.  Rounding may leave every sum of a block at or below what the
 * block's total promised: then the block's last label of any probability is the one. */
static int64_t label_in_block(const float exponentials[BLOCK], int64_t count, double sum, double limit)
{
    int64_t last = 0;
    for (int64_t v = 0; v < count; v++) {
        sum += (double)exponentials[v];
        if (sum > limit)
            return v;
        if (exponentials[v] > 0.0f)
            last = v;
    }
    return last;
}

HS_SIMD int32_t sample_row(Reading reading, const void *logits, int64_t first, int64_t vocabulary, float uniform)
{
    const float maximum = hs_simd_cap_one(reading.capped, largest(reading.in, logits, first, vocabulary), reading.cap);
    float exponentials[BLOCK];
    double total = 0.0, sum = 0.0;
    for (int64_t begin = 0; begin < vocabulary; begin += BLOCK) {
        const int64_t left = vocabulary - begin;
        const int64_t count = left < BLOCK ? left : BLOCK;
        total += (double)block_exponentials(reading, logits, first + begin, count, maximum, exponentials);
    }
    const double limit = (double)uniform * total;
    /* The same sums in the same order: the last block's reaches `total`, which exceeds the limit. */
    for (int64_t begin = 0; begin < vocabulary; begin += BLOCK) {
        const int64_t left = vocabulary - begin, count = left < BLOCK ? left : BLOCK;
        const double before = sum;
        sum += (double)block_exponentials(reading, logits, first + begin, count, maximum, exponentials);
        if (sum > limit)
            return (int32_t)(begin + label_in_block(exponentials, count, before, limit));
    }
    return (int32_t)(vocabulary - 1); /* only with NaN: its gradient will tell */
}

HS_SIMD int32_t sample_typed_row(bool capped, float cap, const HsTensor *logits, int64_t row, float uniform)
{
    const int64_t vocabulary = logits->shape[1], first = row * vocabulary;
    if (logits->dtype == HS_BF16)
        return sample_row((Reading){ HS_BF16, capped, cap }, logits->data, first, vocabulary, uniform);
    if (logits->dtype == HS_F16)
        return sample_row((Reading){ HS_F16, capped, cap }, logits->data, first, vocabulary, uniform);
    return sample_row((Reading){ HS_F32, capped, cap }, logits->data, first, vocabulary, uniform);
}

static int32_t sample_any_row(const HsSampleLabelsArgs *args, int64_t row, float uniform)
{
    return args->cap > 0.0f ? sample_typed_row(true, args->cap, &args->logits, row, uniform)
                            : sample_typed_row(false, 0.0f, &args->logits, row, uniform);
}

HsStatus HS_ISA_NAME(hs_cpu_sample_labels)(HsContext *context, const HsSampleLabelsArgs *args)
{
    const int64_t rows = args->logits.shape[0];
    int32_t *targets = args->targets.data;
    const int32_t *numbers = hs_tensor_present(&args->rows) ? args->rows.data : NULL;
#pragma omp parallel for schedule(static) num_threads(hs_cpu_threads(context, rows))
    for (int64_t row = 0; row < rows; row++) {
        if (targets[row] < 0)
            continue;
        const int64_t number = numbers ? numbers[row] : row;
        const HsPhilox draw = hs_rng_draw(&args->rng, (uint64_t)(args->rng.row_offset + number));
        targets[row] = sample_any_row(args, row, hs_rng_uniform(draw.word[0]));
    }
    return HS_OK;
}
