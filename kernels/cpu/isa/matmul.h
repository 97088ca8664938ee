/* SPDX-License-Identifier: MIT
 *
 * Inside the matrix product: the tile that one micro-kernel computes, and the panels that feed it.
 *
 *                 B panel: HS_TILE_COLUMNS columns wide
 *                 +----------------+
 *                 |  b[p][column]  |  depth words deep
 *      a[row][p]  +----------------+
 *      +-------+  +----------------+
 *      |       |  |  C tile, held  |  HS_TILE_ROWS rows
 *      +-------+  |  in registers  |
 *                 +----------------+
 *
 * A panel holds 32-bit words in two formats: f32 numbers, or (avx512bf16, neonbf16) pairs of bf16 with successive k, the
 * lower k in the lower half, two per multiply-add.  bf16 elsewhere and f16 everywhere become f32 in the panel, exactly. `depth`
 * counts words: K or ceil(K / 2).  A packed operand is its panels one after the other, depth * width words each;
 * lanes past its edge and the odd half of a last pair hold zeros.  B's panels are HS_TILE_COLUMNS wide; A's are
 * HS_A_LANES wide (several tiles side by side, so that they are written in whole vectors, or one tile), or, where its
 * stored rows run along k, one row wide: single words of A are read from anywhere.
 *
 * Every element of C is a sum of chains of fused multiply-adds, HS_CHAIN_WORDS each, in increasing k, however the work
 * is cut: cuts along K lie between chains, and a chain is added to the stored f32 tile.  Of K terms of one sign about
 * K / HS_CHAIN_WORDS times less is rounded off than in one chain: pairwise summation's first level (Higham, Accuracy and
 * Stability of Numerical Algorithms, 2002, section 4.2).  Pairs of bf16 are one chain, which cuts resume.  So bits
 * depend on nothing but the operands and the format.  (With AMX and BFMMLA a link of the chain is HS_DEPTH_STEP words, and
 * cuts lie between links.)
 */
#ifndef HS_KERNELS_CPU_ISA_MATMUL_H
#define HS_KERNELS_CPU_ISA_MATMUL_H

#include "kernels/cpu/cpu.h"

/* Instruction sets that multiply pairs of bf16, and those with registers for four vectors of columns. */
#if defined(HS_ISA_avx512bf16) || defined(HS_ISA_neonbf16)
#define HS_BF16_PAIRS 1
#endif
#if defined(HS_ISA_avx512bf16) || defined(HS_ISA_avx512) || defined(HS_ISA_neon)
#define HS_WIDE_TILE 1
#endif

/* Rows times vectors of accumulators, plus one row of B and a broadcast, fill the registers: 6*4 + 4 + 1 of 32, or
 * 6*2 + 2 + 1 of 16.  At 24 (12) independent chains the latency of a multiply-add is hidden. */
#if defined(HS_ISA_avx512bf16) || defined(HS_ISA_avx512)
enum { HS_TILE_LANES = 16, HS_TILE_VECTORS = 4 };
#elif defined(HS_ISA_neon)
enum { HS_TILE_LANES = 4, HS_TILE_VECTORS = 4 };
#elif defined(HS_ISA_avx2)
enum { HS_TILE_LANES = 8, HS_TILE_VECTORS = 2 };
#else
enum { HS_TILE_LANES = 4, HS_TILE_VECTORS = 2 };
#endif
/* AMX has eight tiles of 16 rows of 64 bytes: two by two of sums, two of A and two of B.  Vector kernels walk so high a
 * tile HS_KERNEL_ROWS at a time. */
#ifdef HS_ISA_amx
enum { HS_TILE_ROWS = 32, HS_GROUP_TILES = 2, HS_DEPTH_STEP = 16 };
#elif defined(HS_ISA_neonbf16) /* two pairs of a row and of a column make an element of BFMMLA */
enum { HS_TILE_ROWS = 6, HS_GROUP_TILES = 8, HS_DEPTH_STEP = 2 };
#else
enum { HS_TILE_ROWS = 6, HS_GROUP_TILES = 8, HS_DEPTH_STEP = 1 };
#endif
enum {
    HS_KERNEL_ROWS = 6,
    HS_CHAIN_WORDS = 256,
    HS_TILE_COLUMNS = HS_TILE_LANES * HS_TILE_VECTORS,
    HS_TILE_ELEMENTS = HS_TILE_ROWS * HS_TILE_COLUMNS,
    HS_GROUP_ROWS = HS_GROUP_TILES * HS_TILE_ROWS
};
/* A panel of one tile is read along; of a group's, a word of depth is three cache lines, of which a tile reads 24 bytes.
 * Where a word has few columns of B, and so few multiply-adds, those lines come too slowly (Zen 3: 72 to 79% of the peak,
 * 82 to 89 by tiles). */
#ifdef HS_ISA_avx2
enum { HS_A_LANES = HS_TILE_ROWS };
#else
enum { HS_A_LANES = HS_GROUP_ROWS };
#endif

typedef enum HsPanelFormat { HS_PANEL_F32, HS_PANEL_BF16_PAIRS } HsPanelFormat;

static inline HsPanelFormat hs_panel_format(HsDtype dtype)
{
#ifdef HS_BF16_PAIRS
    return dtype == HS_BF16 ? HS_PANEL_BF16_PAIRS : HS_PANEL_F32;
#else
    (void)dtype;
    return HS_PANEL_F32;
#endif
}

/* Panels of A are one row wide whatever its layout: tiles are loaded by rows. */
static inline bool hs_panel_by_rows(HsPanelFormat format)
{
#if defined(HS_ISA_amx) || defined(HS_ISA_neonbf16)
    return format == HS_PANEL_BF16_PAIRS;
#else
    (void)format;
    return false;
#endif
}

/* Values of k in one word. */
static inline int64_t hs_panel_step(HsPanelFormat format)
{
    return format == HS_PANEL_BF16_PAIRS ? 2 : 1;
}

static inline int64_t hs_panel_depth(HsPanelFormat format, int64_t k)
{
    return hs_cpu_block_count(k, hs_panel_step(format));
}

/* One operand as the packing sees it: lanes are rows of op(a) or columns of op(b). */
typedef struct HsMatmulOperand {
    const void *data;
    HsDtype dtype;
    HsPanelFormat format;
    bool lanes_contiguous; /* stored [K, lanes]; else [lanes, K] */
    int64_t stride;        /* elements between rows as stored */
    int64_t k;
    bool streamed; /* its panels are 64-byte aligned and too large to be found in a cache later: write them past it */
} HsMatmulOperand;

/* Pack lanes [lane, lane + lanes) over words [begin, end) of the depth: panels of `width` lanes, word p of lane l at
 * out[l / width * panel_stride + (p - begin) * width + l % width], counting l from `lane`.  `width` is HS_TILE_COLUMNS,
 * or HS_A_LANES where lanes are contiguous, or 1 where they are not or hs_panel_by_rows.  `begin` is a multiple of
 * HS_DEPTH_STEP, and so is `end` except at the end of the depth.  With BFMMLA pairs in panels of HS_TILE_COLUMNS lie
 * otherwise (pack_bfmmla.c). */
void HS_ISA_NAME(hs_panel_pack)(const HsMatmulOperand *operand, int64_t lane, int64_t lanes, int64_t begin, int64_t end,
                                int64_t width, int64_t panel_stride, uint32_t *out);

/* Elements first .. first + count - 1 of a four-bit matrix, rounded to `dtype`; both multiples of HS_NF4_RUN. */
void HS_ISA_NAME(hs_nf4_decode)(const HsQuantized *quantized, int64_t first, int64_t count, HsDtype dtype, void *out);

/* The part of pack_weight's layout `packed` that lanes [lanes.begin, lanes.end), from a panel's first on, have in words
 * [words.begin, words.end) of the depth. */
void HS_ISA_NAME(hs_pack_weight_block)(const HsTensor *w, bool transposed, HsRowBlock lanes, HsRowBlock words,
                                       void *packed);

/* out[rows][HS_TILE_COLUMNS] = (resume ? out : 0) + a b over `depth` words. */
typedef struct HsMatmulTile {
    int rows; /* hs_product_kernel's alone read it */
    int64_t depth;
    const uint32_t *a; /* word p of row i at a[i * a_row + p * a_step] */
    int64_t a_row, a_step;
    const uint32_t *b; /* word p of column j at b[p * HS_TILE_COLUMNS + j], 64-byte aligned; as hs_panel_pack lays it */
    float *out;        /* 64-byte aligned */
    bool resume;
    /* What the caller needs of B next: asked for into the second-level cache, `ahead_step` bytes further with every
     * word of depth, so that memory's share of the work is spread over the products'.  NULL, 0: nothing. */
    const char *ahead;
    int64_t ahead_step;
    /* Likewise what will be packed next: one cache line of every stored row, a row further with every word. */
    const char *source;
    int64_t source_step;
} HsMatmulTile;

/* The micro-kernel for `rows` rows, at most HS_KERNEL_ROWS, and the first `vectors` vectors of columns. */
typedef void (*HsTileKernel)(const HsMatmulTile *tile);
HsTileKernel HS_ISA_NAME(hs_tile_kernel)(HsPanelFormat format, int rows, int vectors);
/* Of whole panels, for up to HS_TILE_ROWS rows; columns behind the vectors may be computed too.  It is called after
 * hs_product_begin for as many rows, on the same thread, with no other use of AMX in between. */
HsTileKernel HS_ISA_NAME(hs_product_kernel)(HsPanelFormat format, int rows, int vectors);
#ifdef HS_ISA_amx
void HS_ISA_NAME(hs_product_begin)(HsPanelFormat format, int rows);
HsTileKernel HS_ISA_NAME(hs_tile_kernel_amx)(int vectors); /* of pairs (matmul_amx.c) */
#else
static inline void HS_ISA_NAME(hs_product_begin)(HsPanelFormat format, int rows)
{
    (void)format, (void)rows;
}
#endif
#ifdef HS_ISA_neonbf16
HsTileKernel HS_ISA_NAME(hs_tile_kernel_bfmmla)(int rows, int vectors); /* of pairs (matmul_bfmmla.c) */
#endif

/* Turn the finished sums of a tile into rows [row, row + rows), columns [column, column + columns) of c: bias, function,
 * residual, accumulation, one rounding (HsMatmulArgs). */
void HS_ISA_NAME(hs_tile_finish)(const HsMatmulArgs *args, const float *sums, int64_t row, int rows, int64_t column,
                                 int columns);
/* The same behind SwiGLU and GEGLU.  Forward: the gates of a tile's rows are finished before its ups. */
void HS_ISA_NAME(hs_tile_finish_swiglu)(const HsMatmulArgs *args, const float *sums, int64_t row, int rows,
                                        int64_t column, int columns);

#endif
