/* SPDX-License-Identifier: MIT
 *
 * What forward and backward attention share: tiles with one lane per query.
 *
 * Scores are kept transposed, S^T [key][query], so that successive queries share a vector and every step of the softmax
 * (maximum, exponential, sum, rescaling, mask) is vertical: no sum across lanes exists anywhere.  All products are then
 * of one form, a broadcast element of A times a row of B:
 *     S^T  = K Q^T     dP^T = V dO^T     O^T += V^T P^T     dQ^T += K^T dS^T     dV += P^T dO     dK += dS^T Q
 * which is the matrix product's micro-kernel (matmul.h; on AMX attention_amx.c), fed from small tiles in scratch.
 * Their words are f32 numbers or, for bf16 operands on avx512bf16 and neonbf16, pairs of bf16 with successive depth; P
 * and dS are then rounded to bf16 when they become operands, as FlashAttention-2 does.  Scores, statistics and sums are
 * f32 in both formats.
 *
 * On the diagonal, key r of the tile is hidden from queries 0..r-1: whole vectors of hidden queries are skipped.  With
 * several documents in a sequence, or a window, a query tile's walk begins at the first key tile that its first query
 * sees, and from later queries keys are hidden one by one.
 */
#ifndef HS_KERNELS_CPU_ISA_ATTENTION_TILE_H
#define HS_KERNELS_CPU_ISA_ATTENTION_TILE_H

#include <string.h>

#include "kernels/checks/checks.h"
#include "kernels/cpu/isa/matmul.h"
#include "kernels/cpu/simd.h"

/* Queries and keys of a tile are equally many, so that the diagonal passes through corners only. */
enum { HS_ATTENTION_TILE = 64, HS_ATTENTION_GROUPS = HS_ATTENTION_TILE / HS_LANES };

#define HS_LOG2_E 0x1.715476p+0f
#define HS_LN_2   0x1.62e430p-1f

/* A matrix cut in panels of HS_TILE_COLUMNS columns, as the micro-kernel reads and writes it:
 * element (row, column) at data[column / HS_TILE_COLUMNS * stride + row * HS_TILE_COLUMNS + column % HS_TILE_COLUMNS].
 */
typedef struct HsPanels {
    float *data;
    int64_t stride;
} HsPanels;

/* Floats of `rows` x `columns` in panels. */
static inline int64_t hs_panels_floats(int64_t rows, int64_t columns)
{
    return hs_cpu_block_count(columns, HS_TILE_COLUMNS) * HS_TILE_COLUMNS * rows;
}

static inline HsPanels hs_panels(float *data, int64_t rows)
{
    return (HsPanels){ data, rows * HS_TILE_COLUMNS };
}

/* The same matrix from row `row` on. */
static inline HsPanels hs_panels_from(HsPanels panels, int64_t row)
{
    return (HsPanels){ panels.data + row * HS_TILE_COLUMNS, panels.stride };
}

/* out[i][j] = (resume ? out[i][j] : 0) + sum over p < depth of a[i * a_row + p * a_step] b[p][j],
 * i < rows, begin <= j < end; begin is a multiple of HS_LANES, end is rounded up to whole vectors.  a and b hold words
 * of `format`, out f32; the depth counts words. */
typedef struct HsTileProduct {
    HsPanelFormat format;
    const float *a;
    int64_t a_row, a_step;
    HsPanels b, out;
    int64_t rows, depth, begin, end;
    bool resume;
} HsTileProduct;

void HS_ISA_NAME(hs_attention_multiply)(const HsTileProduct *product);
#ifdef HS_ISA_amx
void HS_ISA_NAME(hs_attention_multiply_amx)(const HsTileProduct *product); /* of pairs, a_step 1 (attention_amx.c) */
#endif

/* One group: columns [group * HS_LANES, (group + 1) * HS_LANES) of one row.  A register's part of it lies in one panel. */
static inline float *hs_group_part(HsPanels panels, int64_t row, int group, int part)
{
    const int column = group * HS_LANES + part * HS_PART_LANES;
    return panels.data + column / HS_TILE_COLUMNS * panels.stride + row * HS_TILE_COLUMNS + column % HS_TILE_COLUMNS;
}

static inline HsF32Part hs_group_load_part(HsPanels panels, int64_t row, int group, int part)
{
    return hs_part_load_f32(hs_group_part(panels, row, group, part));
}

static inline void hs_group_store_part(HsPanels panels, int64_t row, int group, int part, HsF32Part value)
{
    hs_part_store_f32(hs_group_part(panels, row, group, part), value);
}

static inline HsF32x16 hs_group_load(HsPanels panels, int64_t row, int group)
{
    HsF32Parts value;
    for (int i = 0; i < HS_PARTS; i++)
        value.part[i] = hs_group_load_part(panels, row, group, i);
    return value.whole;
}

static inline void hs_group_store(HsPanels panels, int64_t row, int group, HsF32x16 value)
{
    const HsF32Parts x = { .whole = value };
    for (int i = 0; i < HS_PARTS; i++)
        hs_group_store_part(panels, row, group, i, x.part[i]);
}

/* Lanes of a part that stand before lane `hidden` of the group replaced by `with`. */
static inline HsF32Part hs_part_hide(HsF32Part value, int part, int hidden, float with)
{
    return hs_part_select(hs_part_numbers(part) < hidden, hs_part_splat(with), value);
}

/* The first group of queries that sees key `key` of a tile. */
static inline int hs_first_group(bool diagonal, int64_t key)
{
    return diagonal ? (int)key / HS_LANES : 0;
}

/* `count` rows of one head in a tensor: successive tokens. */
typedef struct HsHeadRows {
    void *data; /* the first row's first element */
    HsDtype dtype;
    int64_t stride_bytes, count, width;
} HsHeadRows;

static inline void *hs_head_row(const HsHeadRows *rows, int64_t row)
{
    return (unsigned char *)rows->data + row * rows->stride_bytes;
}

/* Have a row's lines fetched, to be read or written soon; none behind the last row.  Inlined by force: GCC takes a
 * function of prefetches alone for one without effect, and drops its calls. */
static inline __attribute__((always_inline)) void hs_attention_ask(const HsHeadRows *rows, int64_t row, bool to_write)
{
    if (row >= rows->count)
        return;
    const unsigned char *begin = hs_head_row(rows, row),
                        *end = begin + rows->width * (int64_t)hs_dtype_bytes(rows->dtype);
    for (; begin < end; begin += 64) {
        if (to_write)
            __builtin_prefetch(begin, 1);
        else
            __builtin_prefetch(begin);
    }
}

/* `count` rows from token `row` of the head that begins at `column` of a [N, columns] tensor. */
static inline HsHeadRows hs_head_rows(const HsTensor *tensor, int64_t row, int64_t count, int64_t column, int64_t width)
{
    const int64_t bytes = (int64_t)hs_dtype_bytes(tensor->dtype), columns = tensor->shape[1];
    void *data = (unsigned char *)tensor->data + (row * columns + column) * bytes;
    return (HsHeadRows){ data, tensor->dtype, columns * bytes, count, width };
}

/* f64 is for gradient checks, which only the reference does. */
static inline HsStatus hs_attention_refuse_f64(const char *op, const HsTensor *const tensors[], int count)
{
    for (int i = 0; i < count; i++)
        if (tensors[i]->dtype == HS_F64)
            return hs_fail(HS_EUNSUPPORTED, "%s: the cpu backend does not compute in f64; use the ref backend", op);
    return HS_OK;
}

/* Where a query, key or value head begins in a row of the packed projection. */
static inline int64_t hs_key_column(const HsHeads *heads, int64_t kv_head)
{
    return (heads->heads + kv_head) * heads->head_dim;
}

static inline int64_t hs_value_column(const HsHeads *heads, int64_t kv_head)
{
    return (heads->heads + heads->kv_heads + kv_head) * heads->head_dim;
}

/* Whether words of rows, across, lie turned (below). */
static inline bool hs_across_turned(HsPanelFormat format)
{
#ifdef HS_ISA_amx
    return format == HS_PANEL_BF16_PAIRS; /* AMX loads rows of A */
#else
    (void)format;
    return false;
#endif
}

static inline int64_t hs_across_floats(int64_t rows, int64_t width)
{
#ifdef HS_ISA_amx
    if (rows < HS_ATTENTION_TILE / 2) /* a whole tile's pairs */
        rows = HS_ATTENTION_TILE / 2;
#endif
    return hs_cpu_block_count(rows * width, HS_LANES) * HS_LANES;
}

/* Words of rows for the products.  Lanes: [word of width][row], panels of rows.  Rows: [word of rows][column], panels
 * of columns.  Both fill the last group of lanes with zeros.  Plain: [row][word of width] and, across, [word of
 * rows][column], for the broadcast operand; where that is turned, tiles of HS_ATTENTION_TILE rows, each [column][word of
 * rows], in as many floats as hs_across_floats says. */
void HS_ISA_NAME(hs_attention_load_lanes)(const HsHeadRows *rows, HsPanelFormat format, HsPanels out);
void HS_ISA_NAME(hs_attention_load_rows)(const HsHeadRows *rows, HsPanelFormat format, HsPanels out);
void HS_ISA_NAME(hs_attention_load_plain)(const HsHeadRows *rows, HsPanelFormat format, float *out);
void HS_ISA_NAME(hs_attention_load_across)(const HsHeadRows *rows, HsPanelFormat format, float *out);

/* f32 sums back to rows: from lanes, lane q of group g times factors[g][q]; from row-major panels, times a factor. */
void HS_ISA_NAME(hs_attention_store_columns)(HsPanels in, const HsF32x16 factors[HS_ATTENTION_GROUPS],
                                             const HsHeadRows *rows);
void HS_ISA_NAME(hs_attention_store_rows)(HsPanels in, float factor, const HsHeadRows *rows);

/* 2^x to about 1 ulp: x = n + f with 0 <= f <= 1, 2^f = 1 + f Q(f) with Q a Chebyshev interpolant (relative error
 * 6e-9).  exp2(0) is exactly 1, -infinity gives 0, NaN stays NaN.  Half the operations of hs_simd_exp, since the
 * caller multiplies scores by a factor anyway, which takes log2 e in. */
HS_SIMD HsF32Part hs_attention_exp2_part(HsF32Part x)
{
    x = hs_part_max(hs_part_splat(-200.0f), x);
#if defined(__AVX512F__) /* n and x - n on the adders, in parallel with the multipliers */
    const HsF32Part n = (HsF32Part)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    x = hs_part_min(hs_part_splat(129.0f), x);
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer held in the low bits */
    const HsF32Part shifted = x - 0.5f + magic, n = shifted - magic;
#endif
    const HsF32Part f = x - n;
    HsF32Part p = f * 0x1.b49554p-13f + 0x1.4cb7bp-10f;
    p = p * f + 0x1.3c487cp-7f;
    p = p * f + 0x1.c69f98p-5f;
    p = p * f + 0x1.ebfc3ep-3f;
    p = p * f + 0x1.62e43p-1f;
    p = p * f + 1.0f;
#if defined(__AVX512F__)
    return (HsF32Part)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    const HsI32Part exponent = (HsI32Part)shifted - 0x4B400000, first = exponent >> 1; /* 2^n in two factors */
    return p * (HsF32Part)((first + 127) << 23) * (HsF32Part)((exponent - first + 127) << 23);
#endif
}

HS_SIMD HsF32x16 hs_attention_exp2(HsF32x16 x)
{
    HsF32Parts v = { .whole = x };
    for (int i = 0; i < HS_PARTS; i++)
        v.part[i] = hs_attention_exp2_part(v.part[i]);
    return v.whole;
}

#ifdef HS_BF16_PAIRS
/* Words of two rows that are a pair of bf16 with successive depth, the first in the lower halves.  AVX-512 reads
 * subnormal numbers as zero here, as its products would. */
HS_SIMD HsF32Part hs_attention_pair(HsF32Part first, HsF32Part second)
{
#ifdef HS_ISA_avx512bf16
    const __m512i interleave = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                                6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
    return (HsF32Part)_mm512_permutexvar_epi16(interleave, both);
#else
    const uint16x4_t lower = (uint16x4_t)vcvt_bf16_f32((float32x4_t)first);
    return (HsF32Part)vorrq_u32(vmovl_u16(lower), vshll_n_u16((uint16x4_t)vcvt_bf16_f32((float32x4_t)second), 16));
#endif
}

/* bf16 at `out`, for words of pairs of lanes; subnormal numbers as above. */
HS_SIMD void hs_attention_store_halves(void *out, HsF32Part value)
{
#ifdef HS_ISA_avx512bf16
    _mm256_storeu_si256(out, (__m256i)_mm512_cvtneps_pbh((__m512)value));
#else
    vst1_u16(out, (uint16x4_t)vcvt_bf16_f32((float32x4_t)value));
#endif
}
#endif

/* Where a task stands: queries [query, query + queries) of sequence `sequence`, head `head`; the current key tile. */
typedef struct HsAttentionPlace {
    int64_t sequence, head, query, queries;
    int64_t key, keys;
    bool diagonal;
    const HsScoreRule *rule;
    int64_t row;       /* of the first query in the tensors */
    int64_t first_key; /* the first key tile that some query sees */
} HsAttentionPlace;

/* The first key that a query of the tile sees. */
static inline int64_t hs_attention_first_seen(const HsAttentionPlace *place, int64_t query)
{
    return hs_first_seen(place->rule, place->row + query, place->query + query);
}

static inline void hs_attention_find_keys(HsAttentionPlace *place, const HsScoreRule *rule, int64_t row)
{
    place->rule = rule;
    place->row = row;
    place->first_key = hs_attention_first_seen(place, 0) / HS_ATTENTION_TILE * HS_ATTENTION_TILE;
}

/* The first keys that a group's queries see, counted in the current tile; all 0 behind the last query. */
static inline HsI32Parts hs_attention_first_keys(const HsAttentionPlace *place, int group)
{
    int32_t first[HS_LANES] = { 0 };
    for (int lane = 0; lane < HS_LANES && group * HS_LANES + lane < place->queries; lane++)
        first[lane] = (int32_t)(hs_attention_first_seen(place, group * HS_LANES + lane) - place->key);
    HsI32Parts keys;
    memcpy(&keys, first, sizeof keys);
    return keys;
}

/* Whether some query of the group does not see the tile's first key: it is another document's, or too far behind. */
static inline bool hs_attention_cut(const HsAttentionPlace *place, int group)
{
    const int64_t end = (int64_t)(group + 1) * HS_LANES, last = end < place->queries ? end - 1 : place->queries - 1;
    return hs_attention_first_seen(place, last) > place->key;
}

/* Scores of queries and keys, which the rule's scale is not in yet, become capped ones: (cap / scale) tanh(scale / cap s). */
void HS_ISA_NAME(hs_attention_cap)(const HsAttentionPlace *place, HsPanels scores);

/* out [key][query] = rows [keys][width] times columns [width][queries]: S^T from K and Q^T, dP^T from V and dO^T.  On
 * the diagonal only the groups of queries that see a key. */
void HS_ISA_NAME(hs_attention_scores)(const HsAttentionPlace *place, HsPanelFormat format, const float *rows,
                                      HsPanels columns, int64_t width, HsPanels out);
/* out [width][query] += rows^T weights: O^T from V and P^T, dQ^T from K and dS^T, both operands in words of keys.  The
 * first key tile overwrites. */
void HS_ISA_NAME(hs_attention_sums)(const HsAttentionPlace *place, HsPanelFormat format, const float *rows,
                                    HsPanels weights, int64_t width, HsPanels out);

/* One tile of dropout: element (query, key) of the mask is first + query * query_stride + key. */
typedef struct HsDropoutTile {
    const HsRng *rng;
    float probability;
    int64_t first, query_stride;
    int64_t queries, keys;
    bool diagonal; /* key r is hidden from queries before r; their groups are left out */
} HsDropoutTile;

static inline HsDropoutTile hs_attention_dropout_tile(const HsHeads *heads, const HsRng *rng, float probability,
                                                      const HsAttentionPlace *place)
{
    const int64_t length = heads->sequence_length;
    const int64_t row = rng->row_offset + place->sequence * length + place->query;
    return (HsDropoutTile){ .rng = rng,
                            .probability = probability,
                            .first = (row * heads->heads + place->head) * length + place->key,
                            .query_stride = heads->heads * length,
                            .queries = place->queries,
                            .keys = place->keys,
                            .diagonal = place->diagonal };
}

/* factors [key][query] = 1 / (1 - p) where kept, else 0 */
void HS_ISA_NAME(hs_attention_dropout)(const HsDropoutTile *tile, HsPanels factors);

#endif
