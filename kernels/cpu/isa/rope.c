/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34), halves layout: pairs (i, i + R/2) of every q and k head turn by
 * position * w_i (kernels/ops/rope_rule.h).  Angles are computed in double, since position * frequency loses its
 * fraction in f32 for long sequences, and once for each position: all heads, sequences and documents of the batch share
 * them.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

enum { MOST_PAIRS = HS_MAX_HEAD_DIM / 2 };

/* Cosines and sines of one position, with the amplitude in them. */
typedef struct Angles {
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
} Angles;

/* Pairs [i, i + left) of the head at `at`; both halves are read before either is written: y may be x. */
HS_SIMD void rotate_vector(HsDtype dtype, const void *x, void *y, int64_t at, int64_t half, const Angles *angles,
                           int64_t i, int64_t left)
{
    const HsF32x16 cosine = hs_simd_load_part(HS_F32, angles->cosine, i, left);
    const HsF32x16 sine = hs_simd_load_part(HS_F32, angles->sine, i, left);
    const HsF32x16 a = hs_simd_load_part(dtype, x, at + i, left);
    const HsF32x16 b = hs_simd_load_part(dtype, x, at + half + i, left);
    hs_simd_store_part(dtype, y, at + i, a * cosine - b * sine, left);
    hs_simd_store_part(dtype, y, at + half + i, a * sine + b * cosine, left);
}

/* Elements [at, at + count), which are not rotated. */
static void copy_elements(const HsRopeArgs *args, int64_t at, int64_t count)
{
    const size_t bytes = hs_dtype_bytes(args->x.dtype);
    if (args->y.data != args->x.data)
        memcpy((unsigned char *)args->y.data + (size_t)at * bytes,
               (const unsigned char *)args->x.data + (size_t)at * bytes, (size_t)count * bytes);
}

HS_SIMD void rotate_heads(HsDtype dtype, const HsRopeArgs *args, int64_t at, const Angles *angles)
{
    const int64_t width = args->heads.head_dim, end = at + hs_value_column(&args->heads, 0);
    const int64_t rotated = hs_rope_rotated(&args->rule, width), half = rotated / 2;
    const void *x = args->x.data;
    void *y = args->y.data;
    for (; at < end; at += width) {
        HS_FOR_VECTORS(i, left, 0, half, rotate_vector(dtype, x, y, at, half, angles, i, left));
        if (rotated < width)
            copy_elements(args, at + rotated, width - rotated);
    }
}

static void rotate_row(const HsRopeArgs *args, int64_t row, const Angles *angles)
{
    const HsHeads *heads = &args->heads;
    const int64_t at = row * hs_heads_columns(heads), values = at + hs_value_column(heads, 0);
    if (args->x.dtype == HS_F32)
        rotate_heads(HS_F32, args, at, angles);
    else if (args->x.dtype == HS_BF16)
        rotate_heads(HS_BF16, args, at, angles);
    else
        rotate_heads(HS_F16, args, at, angles);
    copy_elements(args, values, heads->kv_heads * heads->head_dim);
}

size_t HS_ISA_NAME(hs_cpu_rope_workspace)(const HsContext *context, const HsRopeArgs *args)
{
    (void)context;
    if (!hs_tensor_present(&args->starts))
        return 0;
    return hs_cpu_align((size_t)(hs_heads_rows(&args->heads) + args->heads.sequence_length) * sizeof(int32_t));
}

HsStatus HS_ISA_NAME(hs_cpu_rope)(HsContext *context, const HsRopeArgs *args)
{
    const HsTensor *const tensors[] = { &args->x, &args->y };
    HS_TRY(hs_attention_refuse_f64("rope", tensors, 2));
    const HsHeads *heads = &args->heads;
    const int64_t half = hs_rope_rotated(&args->rule, heads->head_dim) / 2, length = heads->sequence_length;
    const double amplitude = hs_rope_amplitude(&args->rule);
    int32_t *first = context->workspace, *next = first ? first + length : NULL; /* of rows, by position */
    const bool documents = hs_tensor_present(&args->starts);
    double frequency[MOST_PAIRS];
    for (int64_t i = 0; i < half; i++)
        frequency[i] = hs_rope_frequency(&args->rule, heads->head_dim, i) * (args->inverse ? -1.0 : 1.0);
    if (documents)
        hs_cpu_chain_positions(args->starts.data, hs_heads_rows(heads), length, first, next);

#pragma omp parallel for num_threads(hs_cpu_threads(context, length)) schedule(static)
    for (int64_t t = 0; t < length; t++) {
        Angles angles;
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)(args->position_start + t) * frequency[i];
            angles.cosine[i] = (float)(amplitude * cos(angle));
            angles.sine[i] = (float)(amplitude * sin(angle));
        }
        for (int64_t sequence = 0; !documents && sequence < heads->batch; sequence++)
            rotate_row(args, sequence * length + t, &angles);
        for (int64_t row = documents ? first[t] : -1; row >= 0; row = next[row])
            rotate_row(args, row, &angles);
    }
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->y);
    return HS_OK;
}
