/* SPDX-License-Identifier: MIT
 *
 * The matrix product: c = epilogue(op(a) op(b) + bias) + residual [+ c]   (HsMatmulArgs)
 *
 * The walk, outermost first:
 *   chunks of columns    only when b comes unpacked: as many columns as keep the packed chunk within CHUNK_WORDS; all
 *                        threads pack it together, then multiply
 *   tasks                BLOCK_ROWS x BLOCK_PANELS panels of c, shared out among the threads; rows run fastest, so that
 *                        the threads read the same panels of B at about the same time
 *   blocks of depth      BLOCK_DEPTH words: what a core's second-level cache holds of A, B and c together
 *   panels, tiles        one panel of B against every tile of rows
 *
 * a is read in place when its rows are already words (k contiguous, no conversion, no half pair); else each thread
 * packs its block.  A task keeps its sums in f32 until the last block of depth, so c is rounded once.
 *
 * Scratch (context->workspace):
 *     | thread 0: packed A block, f32 tiles | thread 1: ... | ... | packed chunk of B, shared |
 */
#include "kernels/cpu/isa/matmul.h"

#include <assert.h>
#include <omp.h>

enum {
    BLOCK_ROWS = 16 * HS_TILE_ROWS,
    BLOCK_PANELS = 4,
    BLOCK_DEPTH = 512,
    CHUNK_WORDS = 2 << 20, /* 8 MiB */
    /* Panels packed for one thread lie a cache line further apart than their size: their sizes are multiples of the
     * page, and words written to all of them in turn would fight for one set of the first-level cache. */
    PANEL_GAP = 16,
    /* Below this many multiply-adds starting threads costs more than it saves. */
    SERIAL_PRODUCTS = 1 << 15
};

typedef struct HsMatmulPlan {
    int64_t m, n, k;
    HsPanelFormat format;
    int64_t depth;
    bool pack_a, pack_b, split;
    int64_t panel_words;  /* one panel of B, full depth */
    int64_t chunk_panels; /* panels of B handled between two barriers */
    int64_t block_depth;  /* words of depth handled at once */
    int64_t a_panel_words;
    size_t a_bytes, slot_bytes, b_bytes;
} HsMatmulPlan;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool is_packed(const HsMatmulArgs *args)
{
    return args->b_packed && args->b_packed->data;
}

static HsMatmulPlan make_plan(const HsMatmulArgs *args)
{
    HsMatmulPlan plan = { .m = args->c.shape[0], .n = args->c.shape[1] };
    plan.k = args->a.shape[args->transpose_a ? 0 : 1];
    plan.format = hs_panel_format(args->a.dtype);
    plan.depth = hs_panel_depth(plan.format, plan.k);
    bool whole_words = plan.format == HS_PANEL_BF16_PAIRS ? plan.k % 2 == 0 : args->a.dtype == HS_F32;
    plan.pack_a = args->transpose_a || !whole_words;
    plan.pack_b = !is_packed(args);
    plan.split = plan.depth > BLOCK_DEPTH;
    plan.block_depth = least(plan.depth, BLOCK_DEPTH);
    plan.panel_words = plan.depth * HS_TILE_COLUMNS;
    plan.chunk_panels = hs_cpu_block_count(plan.n, HS_TILE_COLUMNS);
    if (plan.pack_b) {
        int64_t fitting = CHUNK_WORDS / plan.panel_words / BLOCK_PANELS * BLOCK_PANELS;
        plan.chunk_panels = least(plan.chunk_panels, fitting < BLOCK_PANELS ? BLOCK_PANELS : fitting);
        plan.b_bytes = hs_cpu_align((size_t)(plan.chunk_panels * plan.panel_words) * sizeof(uint32_t));
    }
    plan.a_panel_words = plan.block_depth * HS_TILE_ROWS + PANEL_GAP;
    int64_t row_tiles = hs_cpu_block_count(least(plan.m, BLOCK_ROWS), HS_TILE_ROWS);
    int64_t kept_tiles = plan.split ? row_tiles * least(plan.chunk_panels, BLOCK_PANELS) : 1;
    if (plan.pack_a)
        plan.a_bytes = hs_cpu_align((size_t)(row_tiles * plan.a_panel_words) * sizeof(uint32_t));
    plan.slot_bytes = plan.a_bytes + hs_cpu_align((size_t)(kept_tiles * HS_TILE_ELEMENTS) * sizeof(float));
    return plan;
}

size_t HS_ISA_NAME(hs_cpu_matmul_workspace)(const HsContext *context, const HsMatmulArgs *args)
{
    HsMatmulPlan plan = make_plan(args);
    return (size_t)hs_cpu_thread_slots(context) * plan.slot_bytes + plan.b_bytes;
}

static HsOperand operand_a(const HsMatmulArgs *args, HsPanelFormat format)
{
    const HsTensor *a = &args->a;
    return (
        HsOperand){ a->data, a->dtype, format, args->transpose_a, a->shape[1], a->shape[args->transpose_a ? 0 : 1] };
}

static HsOperand operand_b(const HsMatmulArgs *args, HsPanelFormat format)
{
    const HsTensor *b = &args->b;
    return (
        HsOperand){ b->data, b->dtype, format, !args->transpose_b, b->shape[1], b->shape[args->transpose_b ? 1 : 0] };
}

/* Rows of one block of c times panels [first_panel, last_panel) of B; `panels` points at the first of them. */
typedef struct HsMatmulTask {
    HsRowBlock rows, panels;
    const uint32_t *b;
} HsMatmulTask;

/* The row of A's words that a tile starts at, packed or in place. */
static void aim_at_a(const HsMatmulPlan *plan, const HsMatmulArgs *args, const HsMatmulTask *task, int64_t begin,
                     int64_t tile_index, const uint32_t *packed, HsTile *tile)
{
    if (plan->pack_a) {
        tile->a = packed + tile_index * plan->a_panel_words;
        tile->a_row = 1;
        tile->a_step = HS_TILE_ROWS;
    } else {
        /* whole words: a row of op(a) is `depth` of them */
        tile->a_row = plan->depth;
        tile->a_step = 1;
        tile->a = (const uint32_t *)args->a.data + (task->rows.begin + tile_index * HS_TILE_ROWS) * plan->depth + begin;
    }
}

static void run_task(const HsMatmulPlan *plan, const HsMatmulArgs *args, const HsMatmulTask *task, unsigned char *slot)
{
    uint32_t *packed_a = (uint32_t *)slot;
    float *tiles = (float *)(slot + plan->a_bytes);
    const HsOperand a = operand_a(args, plan->format);
    const int64_t rows = task->rows.end - task->rows.begin, row_tiles = hs_cpu_block_count(rows, HS_TILE_ROWS);

    for (int64_t begin = 0; begin < plan->depth; begin += plan->block_depth) {
        const int64_t end = least(begin + plan->block_depth, plan->depth);
        if (plan->pack_a)
            HS_ISA_NAME(hs_panel_pack)
        (&a, task->rows.begin, rows, begin, end, HS_TILE_ROWS, plan->a_panel_words, packed_a);

        HsTile tile = { .depth = end - begin, .out = tiles, .resume = begin > 0 };
        for (int64_t panel = task->panels.begin; panel < task->panels.end; panel++) {
            const int64_t column = panel * HS_TILE_COLUMNS;
            const int columns = (int)least(plan->n - column, HS_TILE_COLUMNS);
            const int vectors = (columns + HS_TILE_LANES - 1) / HS_TILE_LANES;
            tile.b = task->b + (panel - task->panels.begin) * plan->panel_words + begin * HS_TILE_COLUMNS;
            for (int64_t t = 0; t < row_tiles; t++) {
                const int64_t row = t * HS_TILE_ROWS;
                const int height = (int)least(rows - row, HS_TILE_ROWS);
                aim_at_a(plan, args, task, begin, t, packed_a, &tile);
                HS_ISA_NAME(hs_tile_kernel)(plan->format, height, vectors)(&tile);
                if (end == plan->depth)
                    HS_ISA_NAME(hs_tile_finish)
                (args, tile.out, task->rows.begin + row, height, column, columns);
                if (plan->split)
                    tile.out += HS_TILE_ELEMENTS;
            }
        }
    }
}

HsStatus HS_ISA_NAME(hs_cpu_matmul)(HsContext *context, const HsMatmulArgs *args)
{
    if (args->a.dtype == HS_F64)
        return hs_fail(HS_EUNSUPPORTED, "matmul: the cpu backend has no f64 products; use the ref backend");
    const HsMatmulPlan plan = make_plan(args);
    assert(context->workspace_bytes >= HS_ISA_NAME(hs_cpu_matmul_workspace)(context, args));
    unsigned char *slots = context->workspace;
    uint32_t *chunk = (uint32_t *)(slots + (size_t)hs_cpu_thread_slots(context) * plan.slot_bytes);
    const HsOperand b = operand_b(args, plan.format);

    const int64_t all_panels = hs_cpu_block_count(plan.n, HS_TILE_COLUMNS);
    const int64_t row_blocks = hs_cpu_block_count(plan.m, BLOCK_ROWS);
    const int64_t depth_blocks = hs_cpu_block_count(plan.depth, BLOCK_DEPTH);
    const int64_t most_tasks = row_blocks * hs_cpu_block_count(plan.chunk_panels, BLOCK_PANELS);
    const bool serial = plan.m * plan.n * plan.k < SERIAL_PRODUCTS;
    const int threads =
        serial ? 1 : hs_cpu_threads(context, plan.pack_b ? plan.chunk_panels * depth_blocks : most_tasks);

#pragma omp parallel num_threads(threads)
    for (int64_t first = 0; first < all_panels; first += plan.chunk_panels) {
        const int64_t panels = least(plan.chunk_panels, all_panels - first);
        const uint32_t *packed_b = chunk;
        if (plan.pack_b) {
#pragma omp for schedule(static)
            for (int64_t piece = 0; piece < panels * depth_blocks; piece++) {
                const int64_t panel = piece / depth_blocks, begin = piece % depth_blocks * BLOCK_DEPTH;
                const int64_t column = (first + panel) * HS_TILE_COLUMNS;
                HS_ISA_NAME(hs_panel_pack)
                (&b, column, least(plan.n - column, HS_TILE_COLUMNS), begin, least(begin + BLOCK_DEPTH, plan.depth),
                 HS_TILE_COLUMNS, plan.panel_words, chunk + panel * plan.panel_words + begin * HS_TILE_COLUMNS);
            }
        } else {
            packed_b = (const uint32_t *)args->b_packed->data + first * plan.panel_words;
        }

        const int64_t column_blocks = hs_cpu_block_count(panels, BLOCK_PANELS);
#pragma omp for schedule(dynamic)
        for (int64_t index = 0; index < row_blocks * column_blocks; index++) {
            const HsRowBlock local = hs_cpu_block(panels, BLOCK_PANELS, index / row_blocks);
            const HsMatmulTask task = { hs_cpu_block(plan.m, BLOCK_ROWS, index % row_blocks),
                                        { first + local.begin, first + local.end },
                                        packed_b + local.begin * plan.panel_words };
            run_task(&plan, args, &task, slots + (size_t)omp_get_thread_num() * plan.slot_bytes);
        }
    }
    return HS_OK;
}
