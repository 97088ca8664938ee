/* SPDX-License-Identifier: MIT
 *
 * Rotary position embedding (Su et al. 2021, eq. 34), halves layout: pairs (i, i + D/2) of every q and k head turn by
 * position * theta^(-2i/D).  Angles are computed in double, since position * frequency loses its fraction in f32 for
 * long sequences, and once for each position: all heads and all sequences of the batch share them.
 */
#include "kernels/cpu/isa/attention_tile.h"

#include <math.h>

enum { MOST_PAIRS = HS_MAX_HEAD_DIM / 2 };

/* Cosines and sines of one position. */
typedef struct Angles {
    float cosine[MOST_PAIRS], sine[MOST_PAIRS];
} Angles;

static void rotate_head(const HsRopeArgs *args, int64_t at, const Angles *angles)
{
    const int64_t half = args->heads.head_dim / 2;
    for (int64_t i = 0; i < half; i += HS_LANES) {
        const int64_t count = half - i;
        const HsF32x16 cosine = hs_simd_load_part(HS_F32, angles->cosine, i, count);
        const HsF32x16 sine = hs_simd_load_part(HS_F32, angles->sine, i, count);
        /* Both halves are read before either is written: y may be x. */
        const HsF32x16 a = hs_simd_load_part(args->x.dtype, args->x.data, at + i, count);
        const HsF32x16 b = hs_simd_load_part(args->x.dtype, args->x.data, at + half + i, count);
        hs_simd_store_part(args->y.dtype, args->y.data, at + i, a * cosine - b * sine, count);
        hs_simd_store_part(args->y.dtype, args->y.data, at + half + i, a * sine + b * cosine, count);
    }
}

static void rotate_row(const HsRopeArgs *args, int64_t row, const Angles *angles)
{
    const HsHeads *heads = &args->heads;
    const int64_t at = row * hs_heads_columns(heads), values = at + hs_value_column(heads, 0);
    for (int64_t head = 0; head < heads->heads + heads->kv_heads; head++)
        rotate_head(args, at + head * heads->head_dim, angles);
    if (args->y.data != args->x.data) {
        const size_t bytes = hs_dtype_bytes(args->x.dtype);
        memcpy((unsigned char *)args->y.data + (size_t)values * bytes,
               (const unsigned char *)args->x.data + (size_t)values * bytes,
               (size_t)(heads->kv_heads * heads->head_dim) * bytes);
    }
}

HsStatus HS_ISA_NAME(hs_cpu_rope)(HsContext *context, const HsRopeArgs *args)
{
    const HsTensor *const tensors[] = { &args->x, &args->y };
    HS_TRY(hs_attention_refuse_f64("rope", tensors, 2));
    const HsHeads *heads = &args->heads;
    const int64_t half = heads->head_dim / 2, length = heads->sequence_length;
    double frequency[MOST_PAIRS];
    for (int64_t i = 0; i < half; i++)
        frequency[i] = pow(args->theta, -2.0 * (double)i / (double)heads->head_dim) * (args->inverse ? -1.0 : 1.0);

#pragma omp parallel for num_threads(hs_cpu_threads(context, length)) schedule(static)
    for (int64_t t = 0; t < length; t++) {
        Angles angles;
        for (int64_t i = 0; i < half; i++) {
            const double angle = (double)(args->position_start + t) * frequency[i];
            angles.cosine[i] = (float)cos(angle);
            angles.sine[i] = (float)sin(angle);
        }
        for (int64_t sequence = 0; sequence < heads->batch; sequence++)
            rotate_row(args, sequence * length + t, &angles);
    }
    return HS_OK;
}
