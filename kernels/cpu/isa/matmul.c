/* SPDX-License-Identifier: MIT
 *
 * The matrix product: c = epilogue(alpha op(a) op(b) + addend + bias) + residual [+ c]   (HsMatmulArgs)
 * tf32 is a permission to round, which is not taken.
 *
 * The walk, outermost first:
 * - blocks of c, only when b comes unpacked and threads are few: one for each, which packs what its block needs for
 *   itself.  To pack an operand twice costs less than to share it: where two cores have no cache in common, a line that
 *   the other has read since takes 25 ns to write again, ten times as long as another (two cores of Zen 4).
 * - chunks of columns, only when b comes unpacked: as many columns as keep the packed chunk within CHUNK_WORDS.  The
 *   threads of a block pack it together, then multiply.
 * - tasks, some tiles of rows by a few panels of c (HsMatmulCuts), shared out among the threads.  Rows run fastest, so
 *   that the threads read the same panels of B at about the same time.
 * - blocks of depth: what a core's second-level cache holds of A, B and c together.
 * - panels, tiles: one panel of B against every tile of rows.
 *
 * a is read in place when its rows are already words (k contiguous, no conversion, no half pair).  Else it is packed:
 * all of it at first when that is small, or each task's block by the thread that needs it, into its second-level cache:
 * a packed copy in memory costs more to write and to read again than the products that share it.
 * A task keeps its sums in f32 until the last block of depth, so c is rounded once.
 *
 * Of a symmetric c the tiles that lie whole below the diagonal are left out, and copied from above it at the end.
 *
 * Scratch (context->workspace), parts absent where not needed:
 *     | thread 0: packed block of A, f32 tiles | thread 1: ... | ... | block 0: packed A, packed chunk of B | 1: ... |
 */
#include "kernels/cpu/isa/codes.h"
#include "kernels/cpu/isa/matmul.h"

#include <assert.h>
#include <omp.h>

#define panel_pack       HS_ISA_NAME(hs_panel_pack)
#define tile_begin       HS_ISA_NAME(hs_product_begin)
#define tile_kernel      HS_ISA_NAME(hs_product_kernel)
#define tile_finish      HS_ISA_NAME(hs_tile_finish)
#define nf4_decode       HS_ISA_NAME(hs_nf4_decode)
#define matmul_workspace HS_ISA_NAME(hs_cpu_matmul_workspace)

enum {
    /* A task that packs its own block of A takes this many panels of B, or fewer where threads would wait. */
    MOST_PANELS_PACKING = 768 / HS_TILE_COLUMNS,
    FEWEST_PANELS_PACKING = 256 / HS_TILE_COLUMNS,
    /* Small products are cut finer until there are this many tasks, but not below fewest_tiles: threads wait for the
     * last one. */
    WANTED_TASKS = 32,
    BLOCK_DEPTH = 512,
    PACK_DEPTH = 128,         /* words of depth that one piece of packing work covers */
    CHUNK_WORDS = 2 << 20,    /* 8 MiB */
    MOST_APART = 4,           /* threads that pack for themselves; what they all pack grows with their number */
    PACKED_LANES = 72,        /* lanes whose packing takes as long as one tile's products with one panel */
    SHARED_A_WORDS = 1 << 17, /* 512 KiB: it stays in a core's cache */
    /* Panels of A lie a cache line further apart than their size: sizes are often multiples of a page, and words
     * written to many of them in turn would fight for one set of the first-level cache. */
    PANEL_GAP = 16,
    /* Below this many multiply-adds starting threads costs more than it saves. */
    SERIAL_PRODUCTS = 1 << 18
};

/* How large tasks are.  Vector kernels leave memory time; tiles of AMX multiply ten times as fast, so that a task reads a
 * row of A for as many columns as the second-level cache has room for, and what is packed serves more products. */
typedef struct HsMatmulCuts {
    int64_t tiles, fewest_tiles; /* of rows */
    int64_t panels;              /* of B, where task_bytes leaves no room for more */
    int64_t tiles_packing;       /* of rows, where a task packs them */
    int64_t chunk_panels;        /* of B that are packed at a time at least, however deep */
    int64_t task_bytes;          /* what a task's A, B and sums fill; 0: whatever comes */
} HsMatmulCuts;

static HsMatmulCuts cuts_of(HsPanelFormat format)
{
    enum { PANELS = 256 / HS_TILE_COLUMNS };
    /* One group of rows where they are packed: what is packed next fits the second-level cache with what is worked on. */
    HsMatmulCuts cuts = {
        .tiles = 16, .fewest_tiles = 4, .panels = PANELS, .tiles_packing = HS_GROUP_TILES, .chunk_panels = PANELS
    };
    (void)format;
#ifdef HS_ISA_avx2 /* a group of rows is packed again for each chunk: 80 to 83% of the peak for 72 to 78, 16,384 deep */
    cuts.chunk_panels = MOST_PANELS_PACKING;
#endif
#ifdef HS_ISA_amx
    cuts.tiles = 8; /* about as many rows whatever a tile has */
    cuts.fewest_tiles = 1;
    if (format == HS_PANEL_BF16_PAIRS) {
        cuts.tiles_packing = 8;
        cuts.chunk_panels = MOST_PANELS_PACKING;
        cuts.task_bytes = 1280 << 10;
    }
#endif
    return cuts;
}

/* Everything that follows from the shapes and the number of threads. */
typedef struct HsMatmulChoice {
    int64_t m, n, depth;
    HsPanelFormat format;
    bool pack_a, share_a, pack_b;                   /* share_a: pack_a, all at first */
    bool paired;                                    /* a gate: its panels and those of ups take turns */
    bool split;                                     /* more than one block of depth: sums are kept between them */
    int row_blocks, column_blocks;                  /* of c, for a thread each; 1, 1: all threads share the one */
    int64_t tiles, panels;                          /* of a block of c */
    int64_t block_tiles, block_panels, block_depth; /* of a task */
    int64_t chunk_panels;                           /* panels of B between two barriers */
    int64_t a_width, a_panel_words;                 /* of op(a)'s panels; in place, its rows */
    int64_t b_panel_words;
    size_t slot_a_bytes, slot_bytes, shared_a_bytes, chunk_b_bytes;
} HsMatmulChoice;

/* A product under way, or a block of c. */
typedef struct HsMatmulRun {
    const HsMatmulArgs *args;
    HsMatmulChoice plan;
    HsMatmulOperand a, b;
    HsRowBlock tiles, panels;
    int threads;
    unsigned char *slots;
    uint32_t *shared_a, *chunk_b;
    HsTurns turns; /* tasks of a chunk: blocks of rows by blocks of panels */
} HsMatmulRun;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t blocks_of(const HsMatmulChoice *plan)
{
    return (int64_t)plan->row_blocks * plan->column_blocks;
}

/* What a block of c costs, in products of a tile with a panel: these, and the packing of its operands. */
static double work_of(const HsMatmulChoice *plan, int64_t tiles, int64_t panels)
{
    const int64_t lanes = (plan->pack_a ? tiles * HS_TILE_ROWS : 0) + panels * HS_TILE_COLUMNS;
    return (double)(tiles * panels) + (double)lanes / PACKED_LANES;
}

/* Blocks of c that threads pack for themselves, if that is at most a tenth more work for each than packing together. */
static void divide(HsMatmulChoice *plan, bool apart, int threads)
{
    const int64_t tiles = hs_cpu_block_count(plan->m, HS_TILE_ROWS);
    const int64_t panels = hs_cpu_block_count(plan->n, HS_TILE_COLUMNS);
    double least_work = 1.1 * work_of(plan, tiles, panels) / threads;
    plan->row_blocks = plan->column_blocks = 1;
    for (int rows = 1; rows <= threads && apart && threads <= MOST_APART; rows++) {
        const int columns = threads / rows;
        const double work = work_of(plan, hs_cpu_block_count(tiles, rows), hs_cpu_block_count(panels, columns));
        if (rows * columns != threads || work > least_work)
            continue;
        least_work = work;
        plan->row_blocks = rows;
        plan->column_blocks = columns;
    }
    plan->tiles = hs_cpu_block_count(tiles, plan->row_blocks);
    plan->panels = hs_cpu_block_count(panels, plan->column_blocks);
}

/* Work of a task of `tiles` tiles that packs its A: packing a group of rows takes as long as two thirds of one tile's
 * products with one panel. */
static int64_t packing_task_work(const HsMatmulChoice *plan, int64_t tiles)
{
    return tiles > 0 ? 3 * tiles * plan->block_panels + 2 : 0;
}

/* Work of the thread that has most to do when the product is cut in tasks of `tiles` tiles.  Threads that have one task
 * less than others take what remains of the rows in the meantime. */
static int64_t longest_share(const HsMatmulChoice *plan, int64_t tiles, int64_t column_blocks, int threads)
{
    const int64_t whole = plan->tiles / tiles * column_blocks, rest = plan->tiles % tiles;
    const int64_t rounds = hs_cpu_block_count(whole, threads), meantime = rounds * threads - whole;
    const int64_t after = column_blocks > meantime ? column_blocks - meantime : 0;
    return rounds * packing_task_work(plan, tiles) + hs_cpu_block_count(after, threads) * packing_task_work(plan, rest);
}

/* Tasks that pack their own block of A are few, since small ones spread that work over too few products: cut them so
 * that they are shared out evenly. */
static void cut_packing_tasks(HsMatmulChoice *plan, const HsMatmulCuts *cuts, int threads)
{
    const int64_t all = plan->tiles;
    int64_t panels = MOST_PANELS_PACKING, column_blocks;
    for (;; panels /= 2) {
        column_blocks = hs_cpu_block_count(plan->chunk_panels, panels);
        if (hs_cpu_block_count(all, cuts->fewest_tiles) * column_blocks >= threads ||
            panels / 2 < FEWEST_PANELS_PACKING)
            break;
    }
    plan->block_panels = least(panels, plan->chunk_panels);
    plan->block_tiles = least(cuts->tiles_packing, all);
    for (int64_t tiles = plan->block_tiles - 1; tiles >= cuts->fewest_tiles; tiles--)
        if (longest_share(plan, tiles, column_blocks, threads) <
            longest_share(plan, plan->block_tiles, column_blocks, threads))
            plan->block_tiles = tiles;
}

/* Panels that fill task_bytes, in equal blocks of an even number, so that a gate has its ups; else cuts->panels. */
static int64_t panels_of_task(const HsMatmulChoice *plan, const HsMatmulCuts *cuts, int64_t tiles)
{
    const int64_t depth = least(plan->depth, plan->block_depth), word_bytes = sizeof(uint32_t);
    const int64_t sums_bytes = plan->split ? tiles * HS_TILE_ELEMENTS * (int64_t)sizeof(float) : 0;
    const int64_t fitting = (cuts->task_bytes - tiles * HS_TILE_ROWS * depth * word_bytes) /
                            (depth * HS_TILE_COLUMNS * word_bytes + sums_bytes);
    if (fitting <= cuts->panels)
        return cuts->panels;
    const int64_t panels = hs_cpu_block_count(plan->chunk_panels, hs_cpu_block_count(plan->chunk_panels, fitting));
    return panels + panels % 2;
}

static void cut_tasks(HsMatmulChoice *plan, const HsMatmulCuts *cuts)
{
    /* Sums that wait for the next block of depth want B's panels read seldom, else A's rows. */
    int64_t tiles = cuts->task_bytes > 0 && !plan->split ? cuts->tiles / 2 : cuts->tiles, row_blocks;
    int64_t panels = panels_of_task(plan, cuts, tiles);
    for (;;) {
        row_blocks = hs_cpu_block_count(plan->tiles, tiles);
        if (row_blocks * hs_cpu_block_count(plan->chunk_panels, panels) >= WANTED_TASKS || blocks_of(plan) > 1)
            break;
        if (panels > cuts->panels)
            panels = cuts->panels;
        else if (tiles > cuts->fewest_tiles)
            tiles /= 2;
        else if (panels > (plan->paired ? 2 : 1))
            panels /= 2;
        else
            break;
    }
    plan->block_tiles = hs_cpu_block_count(plan->tiles, row_blocks); /* equal blocks: no short last one */
    plan->block_panels = panels;
}

static HsMatmulChoice make_plan(const HsMatmulArgs *args, int threads)
{
    const int64_t k = args->a.values.shape[args->transpose_a ? 0 : 1];
    const HsPanelFormat format = hs_panel_format(args->a.values.dtype);
    HsMatmulChoice plan = { .m = args->c.shape[0],
                            .n = args->b.values.shape[args->transpose_b ? 0 : 1],
                            .format = format };
    const HsMatmulCuts cuts = cuts_of(format);
    plan.depth = hs_panel_depth(format, k);
    plan.split = plan.depth > BLOCK_DEPTH;
    const int64_t between = format == HS_PANEL_F32 ? HS_CHAIN_WORDS : HS_DEPTH_STEP; /* where cuts may lie */
    plan.block_depth = hs_cpu_block_count(plan.depth, hs_cpu_block_count(plan.depth, BLOCK_DEPTH)); /* equal blocks */
    plan.block_depth = hs_cpu_block_count(plan.block_depth, between) * between;

    const bool whole_words = format == HS_PANEL_BF16_PAIRS ? k % 2 == 0 : args->a.values.dtype == HS_F32;
    plan.pack_a = args->transpose_a || !whole_words;
    plan.pack_b = args->b.layout != HS_LAYOUT_PACKED;
    plan.paired = hs_epilogue_gates(args->epilogue);
    divide(&plan, plan.pack_b && !plan.paired && !args->symmetric, threads);
    const int share = blocks_of(&plan) > 1 ? 1 : threads; /* of a block */
    plan.a_width = args->transpose_a && !hs_panel_by_rows(format) ? HS_A_LANES : 1;
    plan.a_panel_words = plan.pack_a ? plan.depth * plan.a_width + PANEL_GAP : plan.depth;
    const int64_t a_words =
        hs_cpu_block_count(least(plan.m, plan.tiles * HS_TILE_ROWS), plan.a_width) * plan.a_panel_words;
    plan.share_a = plan.pack_a && a_words <= SHARED_A_WORDS;
    if (plan.share_a)
        plan.shared_a_bytes = hs_cpu_align((size_t)a_words * sizeof(uint32_t));
    else if (plan.pack_a)
        plan.a_panel_words = plan.block_depth * plan.a_width + PANEL_GAP;

    plan.b_panel_words = plan.depth * HS_TILE_COLUMNS;
    plan.chunk_panels = plan.panels;
    if (plan.pack_b) {
        const int64_t words = CHUNK_WORDS / blocks_of(&plan);
        const int64_t fitting = words / plan.b_panel_words / MOST_PANELS_PACKING * MOST_PANELS_PACKING;
        plan.chunk_panels = least(plan.chunk_panels, fitting < cuts.chunk_panels ? cuts.chunk_panels : fitting);
        plan.chunk_b_bytes = hs_cpu_align((size_t)(plan.chunk_panels * plan.b_panel_words) * sizeof(uint32_t));
    }

    if (plan.pack_a && !plan.share_a) {
        cut_packing_tasks(&plan, &cuts, share);
        plan.slot_a_bytes = hs_cpu_align(
            (size_t)(hs_cpu_block_count(plan.block_tiles * HS_TILE_ROWS, plan.a_width) * plan.a_panel_words) *
            sizeof(uint32_t));
    } else {
        cut_tasks(&plan, &cuts);
    }
    const int64_t kept_tiles = plan.split ? plan.block_tiles * plan.block_panels : 1;
    plan.slot_bytes = plan.slot_a_bytes + hs_cpu_align((size_t)(kept_tiles * HS_TILE_ELEMENTS) * sizeof(float));
    return plan;
}

/* Operands that come in codes are decoded in front of what their product needs: | a | b | the product's |.  Code times
 * block scale is a bf16 number, so that this product is the one of the codes, rounded nowhere but in its sums. */
static size_t decoded_bytes(const HsCodes *codes)
{
    return codes ? hs_cpu_align((size_t)(codes->rows * codes->depth) * sizeof(uint16_t)) : 0;
}

/* The product of what the codes stand for; its operands still lack their data and the scales. */
static HsMatmulArgs without_codes(const HsMatmulArgs *args)
{
    HsMatmulArgs product = *args;
    if (args->a.layout == HS_LAYOUT_CODES)
        product.a.layout = product.b.layout = HS_LAYOUT_ROWS;
    return product;
}

static size_t product_workspace(const HsContext *context, const HsMatmulArgs *args)
{
    const HsMatmulChoice plan = make_plan(args, hs_cpu_thread_slots(context));
    const size_t product = (size_t)hs_cpu_thread_slots(context) * plan.slot_bytes +
                           (size_t)blocks_of(&plan) * (plan.shared_a_bytes + plan.chunk_b_bytes);
    if (!hs_tensor_present(&args->row_sums))
        return product;
    const HsBiasBackwardArgs sums = { .dy = args->a.values, .dbias = args->row_sums }; /* once the product is done */
    const size_t after = HS_ISA_NAME(hs_cpu_bias_backward_workspace)(context, &sums);
    return after > product ? after : product;
}

size_t matmul_workspace(const HsContext *context, const HsMatmulArgs *args)
{
    const HsMatmulArgs product = without_codes(args);
    const size_t bytes = decoded_bytes(hs_codes_of(&args->a)) + decoded_bytes(hs_codes_of(&args->b)) +
                         product_workspace(context, &product);
    const size_t after = HS_ISA_NAME(hs_cpu_cast_workspace)(context, &args->cast);
    return after > bytes ? after : bytes;
}

/* Packing is cut in pieces of PACK_DEPTH words. */
static int64_t depth_pieces(const HsMatmulChoice *plan)
{
    return hs_cpu_block_count(plan->depth, PACK_DEPTH);
}

/* Whole panels, but no more than the block's: behind them lies what is another thread's. */
static void pack_a_piece(const HsMatmulRun *run, int64_t piece)
{
    const HsMatmulChoice *plan = &run->plan;
    const int64_t first = run->tiles.begin * HS_TILE_ROWS, row = piece / depth_pieces(plan) * HS_GROUP_ROWS;
    const int64_t rows = run->tiles.end * HS_TILE_ROWS - first;
    const int64_t end = least(hs_cpu_block_count(rows, plan->a_width) * plan->a_width, plan->m - first);
    const HsRowBlock words = hs_cpu_block(plan->depth, PACK_DEPTH, piece % depth_pieces(plan));
    panel_pack(&run->a, first + row, least(HS_GROUP_ROWS, end - row), words.begin, words.end, plan->a_width,
               plan->a_panel_words,
               run->shared_a + row / plan->a_width * plan->a_panel_words + words.begin * plan->a_width);
}

/* The elements of a four-bit operand that become words [words.begin, words.end) of some lanes. */
static HsMatmulOperand decode_piece(const HsMatmulRun *run, HsRowBlock lanes, HsRowBlock words, void *buffer)
{
    HsMatmulOperand piece = run->b;
    const int64_t step = hs_panel_step(piece.format), first = words.begin * step;
    piece.k = least(words.end * step, run->b.k) - first;
    piece.data = buffer;
    const int64_t width = lanes.end - lanes.begin;
    const bool across = piece.lanes_contiguous;
    const int64_t rows = across ? piece.k : width, row = across ? first : lanes.begin;
    const int64_t column = across ? lanes.begin : first, element_bytes = piece.dtype == HS_F32 ? 4 : 2;
    piece.stride = across ? width : piece.k;
    for (int64_t i = 0; i < rows; i++)
        nf4_decode(hs_nf4_of(&run->args->b), (row + i) * run->b.stride + column, piece.stride, piece.dtype,
                   (unsigned char *)buffer + i * piece.stride * element_bytes);
    return piece;
}

/* Pieces count from the chunk's first panel; panels run fastest, so that stored rows are read along. */
static void pack_b_piece(const HsMatmulRun *run, int64_t first_panel, int64_t panels, int64_t piece)
{
    const HsMatmulChoice *plan = &run->plan;
    const int64_t panel = piece % panels;
    const HsRowBlock columns = hs_cpu_block(plan->n, HS_TILE_COLUMNS, first_panel + panel);
    const HsRowBlock words = hs_cpu_block(plan->depth, PACK_DEPTH, piece / panels);
    const int64_t lanes = columns.end - columns.begin;
    uint32_t *const out = run->chunk_b + panel * plan->b_panel_words + words.begin * HS_TILE_COLUMNS;
    if (run->args->b.layout == HS_LAYOUT_NF4) {
        _Alignas(64) uint32_t decoded[PACK_DEPTH * HS_TILE_COLUMNS]; /* a word holds one element, or a pair */
        const HsMatmulOperand b = decode_piece(run, columns, words, decoded);
        panel_pack(&b, 0, lanes, 0, words.end - words.begin, HS_TILE_COLUMNS, plan->b_panel_words, out);
        return;
    }
    panel_pack(&run->b, columns.begin, lanes, words.begin, words.end, HS_TILE_COLUMNS, plan->b_panel_words, out);
}

/* Whether a task can finish a gate: a panel of ups lies whole behind a panel of gates, in the same chunk. */
static bool can_pair(const HsMatmulChoice *plan)
{
    return plan->n % (2 * HS_TILE_COLUMNS) == 0 && plan->chunk_panels * HS_TILE_COLUMNS == plan->n;
}

/* The panel that comes at place `place` of a product's. */
static int64_t panel_at(const HsMatmulChoice *plan, int64_t place)
{
    return plan->paired ? place / 2 + place % 2 * (plan->n / HS_TILE_COLUMNS / 2) : place;
}

/* Tiles of rows [tiles.begin, tiles.end) times panels, by their places [panels.begin, panels.end) in the chunk `b`. */
typedef struct HsMatmulTask {
    HsRowBlock tiles, panels, next_tiles; /* next_tiles: of the task that this thread probably takes next, or none */
    int64_t first_panel;                  /* of the chunk */
    const uint32_t *b;
    unsigned char *slot; /* the thread's */
} HsMatmulTask;

/* The panel at a place, from word `begin` of the depth on. */
static const uint32_t *panel_of_b(const HsMatmulChoice *plan, const HsMatmulTask *task, int64_t place, int64_t begin)
{
    return task->b + panel_at(plan, place) * plan->b_panel_words + begin * HS_TILE_COLUMNS;
}

/* Where the words of A of row tile `index` begin, at word `begin` of the depth. */
static void aim_at_a(const HsMatmulRun *run, const HsMatmulTask *task, int64_t index, int64_t begin,
                     const uint32_t *slot_a, HsMatmulTile *tile)
{
    const HsMatmulChoice *plan = &run->plan;
    const bool in_slot = plan->pack_a && !plan->share_a;
    const uint32_t *panels = in_slot ? slot_a : plan->share_a ? run->shared_a : run->a.data;
    const int64_t first = in_slot ? task->tiles.begin : plan->share_a ? run->tiles.begin : 0;
    const int64_t row = (index - first) * HS_TILE_ROWS;
    tile->a = panels + row / plan->a_width * plan->a_panel_words + row % plan->a_width +
              (in_slot ? 0 : begin * plan->a_width);
    tile->a_row = plan->a_width == 1 ? plan->a_panel_words : 1;
    tile->a_step = plan->a_width;
}

/* The rows of a tensor that a tile's last step will read or write: asked for while the sums are computed, since a
 * tile's rows are too short and too far apart for the hardware to see them coming, and stores leave the core in order,
 * so that one line that is not there holds up all that follow.  Inlined by force: GCC takes a function of prefetches
 * alone for one without effect, and drops its calls. */
static inline __attribute__((always_inline)) void prefetch_rows(const HsTensor *tensor, int64_t row, int height,
                                                                int64_t column, int width, bool to_write)
{
    const int64_t element_bytes = tensor->dtype == HS_F32 ? 4 : 2;
    for (int i = 0; i < height; i++) {
        const char *begin = (const char *)tensor->data + ((row + i) * tensor->shape[1] + column) * element_bytes;
        for (int64_t offset = 0; offset < width * element_bytes; offset += 64) {
            if (to_write)
                __builtin_prefetch(begin + offset, 1);
            else
                __builtin_prefetch(begin + offset);
        }
    }
}

/* Of a gate's two tensors the wider one has two places for a column of the other. */
static inline __attribute__((always_inline)) void prefetch_swiglu(const HsMatmulArgs *args, int64_t row, int height,
                                                                  int64_t column, int width)
{
    const bool forward = hs_epilogue_gates(args->epilogue);
    const int64_t half = (forward ? args->c.shape[1] : args->c.shape[1] / 2), other = column - half;
    prefetch_rows(&args->pre, row, height, column, width, forward);
    if (!forward) {
        prefetch_rows(&args->pre, row, height, column + half, width, false);
        prefetch_rows(&args->c, row, height, column, width, true);
        prefetch_rows(&args->c, row, height, column + half, width, true);
    } else if (other >= 0) {
        prefetch_rows(&args->c, row, height, other, width, true);
    }
}

static inline __attribute__((always_inline)) void prefetch_tile(const HsMatmulArgs *args, int64_t row, int height,
                                                                int64_t column, int width)
{
    if (hs_tensor_present(&args->addend))
        prefetch_rows(&args->addend, row, height, column, width, false);
    if (hs_epilogue_reshapes(args->epilogue)) {
        prefetch_swiglu(args, row, height, column, width);
        return;
    }
    prefetch_rows(&args->c, row, height, column, width, true);
    if (hs_tensor_present(&args->residual))
        prefetch_rows(&args->residual, row, height, column, width, false);
    if (hs_tensor_present(&args->pre))
        prefetch_rows(&args->pre, row, height, column, width, hs_epilogue_activates(args->epilogue));
}

/* The rows of B that follow those from `begin` of `panel`: the next panel of this block of depth, the first of the next
 * block, or, for the next task, which most often starts with the same panel, the task's first.  The tiles of the
 * current panel fetch equal shares of them. */
static const uint32_t *next_b(const HsMatmulChoice *plan, const HsMatmulTask *task, int64_t place, int64_t begin)
{
    if (place + 1 < task->panels.end)
        return panel_of_b(plan, task, place + 1, begin);
    const int64_t next = begin + plan->block_depth;
    return panel_of_b(plan, task, task->panels.begin, next < plan->depth ? next : 0);
}

/* What a thread packs of op(a) next, stored [K, lanes], fetched by the kernel's calls while they multiply: memory's
 * latency would be longer than the packing itself.  A call fetches one of `lines` cache lines of as many rows as it has
 * words of depth; a block of words needs `calls`. */
typedef struct HsPanelSource {
    const char *rows;
    int64_t row_bytes, lines, calls;
} HsPanelSource;

static HsPanelSource next_source(const HsMatmulRun *run, const HsMatmulTask *task, int64_t begin)
{
    const HsMatmulChoice *plan = &run->plan;
    const int64_t element_bytes = run->a.dtype == HS_F32 ? 4 : 2, step = hs_panel_step(plan->format);
    HsRowBlock tiles = task->tiles;
    begin += plan->block_depth;
    if (begin >= plan->depth) {
        begin = 0;
        tiles = task->next_tiles;
    }
    HsPanelSource source = { .row_bytes = run->a.stride * element_bytes };
    if (!plan->pack_a || plan->share_a || !run->a.lanes_contiguous || tiles.begin >= tiles.end)
        return source;
    const int64_t first = tiles.begin * HS_TILE_ROWS * element_bytes;
    const int64_t end = least(tiles.end * HS_TILE_ROWS, plan->m) * element_bytes;
    source.rows = (const char *)run->a.data + begin * step * source.row_bytes + first;
    source.lines = hs_cpu_block_count(end - first, 64) + ((uintptr_t)source.rows % 64 != 0);
    source.calls = source.lines * step;
    return source;
}

/* `call` counts from the first that fetches. */
static void aim_at_source(const HsPanelSource *source, int64_t call, HsMatmulTile *tile)
{
    const bool fetches = call >= 0 && call < source->calls;
    tile->source = NULL;
    if (fetches)
        tile->source =
            source->rows + call % source->lines * 64 + call / source->lines * tile->depth * source->row_bytes;
    tile->source_step = fetches ? source->row_bytes : 0;
}

/* The columns of a symmetric c that are left out in the tile of rows from `row` on: whole panels. */
static int64_t columns_left_out(int64_t row)
{
    return row / HS_TILE_COLUMNS * HS_TILE_COLUMNS;
}

/* c[i, j] = c[j, i] for the columns j that these rows of a tile left out.  Few columns at a time: each reads another line
 * of memory. */
#define COPY_MIRRORED(name, Element)                                           \
    static void name(const HsTensor *c, HsRowBlock rows)                       \
    {                                                                          \
        enum { SIDE = HS_TILE_COLUMNS < 16 ? HS_TILE_COLUMNS : 16 };           \
        const int64_t width = c->shape[1], end = columns_left_out(rows.begin); \
        Element *const to = c->data;                                           \
        for (int64_t column = 0; column < end; column += SIDE)                 \
            for (int64_t i = rows.begin; i < rows.end; i++)                    \
                for (int64_t j = column; j < column + SIDE; j++)               \
                    to[i * width + j] = to[j * width + i];                     \
    }
COPY_MIRRORED(copy_mirrored16, uint16_t)
COPY_MIRRORED(copy_mirrored32, uint32_t)
#undef COPY_MIRRORED

static void run_task(const HsMatmulRun *run, const HsMatmulTask *task)
{
    const HsMatmulChoice *plan = &run->plan;
    uint32_t *slot_a = (uint32_t *)task->slot;
    const int64_t first_row = task->tiles.begin * HS_TILE_ROWS;
    /* Whole panels, though the last rows may be another task's: a panel that is cut takes longer. */
    const int64_t packed_rows =
        hs_cpu_block_count((task->tiles.end - task->tiles.begin) * HS_TILE_ROWS, plan->a_width) * plan->a_width;

    for (int64_t begin = 0; begin < plan->depth; begin += plan->block_depth) {
        const int64_t end = least(begin + plan->block_depth, plan->depth);
        if (plan->pack_a && !plan->share_a)
            panel_pack(&run->a, first_row, least(packed_rows, plan->m - first_row), begin, end, plan->a_width,
                       plan->a_panel_words, slot_a);

        HsMatmulTile tile = { .depth = end - begin, .resume = begin > 0 };
        tile.out = (float *)(task->slot + plan->slot_a_bytes);
        const HsPanelSource source = next_source(run, task, begin);
        const int64_t tiles = task->tiles.end - task->tiles.begin;
        /* The last calls fetch it, so that it is still there; where calls are fewer, what they reach. */
        const int64_t early = tiles * (task->panels.end - task->panels.begin) - source.calls;
        int64_t call = early > 0 ? -early : 0;
        int begun = 0;
        for (int64_t place = task->panels.begin; place < task->panels.end; place++) {
            const HsRowBlock columns =
                hs_cpu_block(plan->n, HS_TILE_COLUMNS, task->first_panel + panel_at(plan, place));
            const int width = (int)(columns.end - columns.begin);
            const int vectors = (width + HS_TILE_LANES - 1) / HS_TILE_LANES;
            tile.b = panel_of_b(plan, task, place, begin);
            tile.ahead = (const char *)next_b(plan, task, place, begin);
            tile.ahead_step = hs_cpu_block_count(HS_TILE_COLUMNS * (int64_t)sizeof(uint32_t), tiles);
            for (int64_t index = task->tiles.begin; index < task->tiles.end; index++) {
                const HsRowBlock rows = hs_cpu_block(plan->m, HS_TILE_ROWS, index);
                const int height = (int)(rows.end - rows.begin);
                tile.rows = height;
                if (run->args->symmetric && columns.end <= columns_left_out(rows.begin)) {
                    call++;
                    tile.out += plan->split ? HS_TILE_ELEMENTS : 0;
                    continue;
                }
                aim_at_a(run, task, index, begin, slot_a, &tile);
                if (height != begun)
                    tile_begin(plan->format, height);
                begun = height;
                if (end == plan->depth)
                    prefetch_tile(run->args, rows.begin, height, columns.begin, width);
                aim_at_source(&source, call++, &tile);
                tile_kernel(plan->format, height, vectors)(&tile);
                if (end == plan->depth)
                    tile_finish(run->args, tile.out, rows.begin, height, columns.begin, width);
                tile.ahead += tile.depth * tile.ahead_step;
                if (plan->split)
                    tile.out += HS_TILE_ELEMENTS;
            }
        }
    }
}

/* Panels of the chunk from panel `first` on. */
static int64_t panels_from(const HsMatmulRun *run, int64_t first)
{
    return least(run->plan.chunk_panels, run->panels.end - first);
}

/* The tasks of that chunk. */
static void begin_turns(HsMatmulRun *run, int64_t first)
{
    const HsMatmulChoice *plan = &run->plan;
    hs_turns_begin(&run->turns, hs_cpu_block_count(run->tiles.end - run->tiles.begin, plan->block_tiles),
                   hs_cpu_block_count(panels_from(run, first), plan->block_panels), run->threads);
}

static void run_tasks(HsMatmulRun *run, int64_t first, const uint32_t *b, int thread)
{
    const HsMatmulChoice *plan = &run->plan;
    const int64_t begin = run->tiles.begin, tiles = run->tiles.end - begin;
    HsTurn turn = hs_turn_first(&run->turns, thread);
    while (hs_turn_take(&run->turns, &turn)) {
        HsMatmulTask task = { .panels = hs_cpu_block(panels_from(run, first), plan->block_panels, turn.column),
                              .first_panel = first,
                              .b = b,
                              .slot = run->slots + (size_t)thread * plan->slot_bytes };
        task.tiles = hs_cpu_block(tiles, plan->block_tiles, turn.row);
        if (turn.row + 1 < run->turns.rows)
            task.next_tiles = hs_cpu_block(tiles, plan->block_tiles, turn.row + 1);
        HsRowBlock *const blocks[] = { &task.tiles, &task.next_tiles };
        for (int i = 0; i < 2; i++) {
            blocks[i]->begin += begin;
            blocks[i]->end += begin;
        }
        run_task(run, &task);
    }
}

static void copy_left_out(const HsMatmulRun *run)
{
    const HsTensor *c = &run->args->c;
#pragma omp for schedule(dynamic)
    for (int64_t index = run->tiles.end - 1; index >= 0; index--) { /* the longest first */
        const HsRowBlock rows = hs_cpu_block(run->plan.m, HS_TILE_ROWS, index);
        if (hs_dtype_bytes(c->dtype) == 2)
            copy_mirrored16(c, rows);
        else
            copy_mirrored32(c, rows);
    }
}

/* Thread `thread` of the `threads` that share a block of c. */
static void multiply(HsMatmulRun *run, int thread, int threads)
{
    const HsMatmulChoice *plan = &run->plan;
    const bool together = threads > 1;
    if (plan->share_a) {
        const int64_t rows = least(run->tiles.end * HS_TILE_ROWS, plan->m) - run->tiles.begin * HS_TILE_ROWS;
        const int64_t pieces = hs_cpu_block_count(rows, HS_GROUP_ROWS) * depth_pieces(plan);
        for (int64_t piece = pieces * thread / threads; piece < pieces * (thread + 1) / threads; piece++)
            pack_a_piece(run, piece);
        if (!plan->pack_b && together) { /* else the end of packing b is the one place to wait for both */
#pragma omp barrier
        }
    }
    for (int64_t first = run->panels.begin; first < run->panels.end; first += plan->chunk_panels) {
        const int64_t panels = panels_from(run, first), pieces = panels * depth_pieces(plan);
        if (first > run->panels.begin && thread == 0) /* all have left the chunk before, and wait below for this */
            begin_turns(run, first);
        if (plan->pack_b) {
            for (int64_t piece = pieces * thread / threads; piece < pieces * (thread + 1) / threads; piece++)
                pack_b_piece(run, first, panels, piece);
            if (together) {
#pragma omp barrier
            }
        }
        /* packed already: one chunk, all of it */
        run_tasks(run, first, plan->pack_b ? run->chunk_b : run->args->b.packed.data, thread);
        if (together && (first + panels < run->panels.end || run->args->symmetric)) {
#pragma omp barrier
        }
    }
    if (run->args->symmetric)
        copy_left_out(run);
}

/* The block of c of one thread. */
static void multiply_block(const HsMatmulRun *whole, int index)
{
    HsMatmulRun run = *whole;
    const HsMatmulChoice *plan = &run.plan;
    const size_t bytes = plan->shared_a_bytes + plan->chunk_b_bytes;
    run.threads = 1;
    run.tiles = hs_cpu_block(whole->tiles.end, plan->tiles, index / plan->column_blocks);
    run.panels = hs_cpu_block(whole->panels.end, plan->panels, index % plan->column_blocks);
    if (run.tiles.begin >= run.tiles.end || run.panels.begin >= run.panels.end)
        return;
    run.slots += (size_t)index * plan->slot_bytes;
    run.shared_a = (uint32_t *)((unsigned char *)run.shared_a + (size_t)index * bytes);
    run.chunk_b = (uint32_t *)((unsigned char *)run.chunk_b + (size_t)index * bytes);
    begin_turns(&run, run.panels.begin);
    multiply(&run, 0, 1);
}

/* On all threads. */
static void multiply_all(HsContext *context, HsMatmulRun *run)
{
    const HsMatmulChoice *plan = &run->plan;
    const int64_t blocks = blocks_of(plan);
    const int64_t tasks = hs_cpu_block_count(run->tiles.end, plan->block_tiles) *
                          hs_cpu_block_count(plan->chunk_panels, plan->block_panels);
    const bool serial = plan->m * plan->n * run->a.k < SERIAL_PRODUCTS;
    const int threads = serial ? 1 : hs_cpu_threads(context, blocks > 1 ? blocks : tasks);
    if (blocks > 1) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t index = 0; index < blocks; index++)
            multiply_block(run, (int)index);
        return;
    }
    run->threads = threads;
    begin_turns(run, 0);
#pragma omp parallel num_threads(threads)
    multiply(run, omp_get_thread_num(), omp_get_num_threads());
}

static HsStatus multiply_operands(HsContext *context, const HsMatmulArgs *args)
{
    if (args->a.values.dtype == HS_F64)
        return hs_fail(HS_EUNSUPPORTED, "matmul: the cpu backend has no f64 products; use the ref backend");
    assert(context->workspace_bytes >= product_workspace(context, args));
    HsMatmulRun run = { .args = args,
                        .plan = make_plan(args, hs_cpu_thread_slots(context)),
                        .slots = context->workspace };
    const HsMatmulChoice *plan = &run.plan;
    HsMatmulArgs apart; /* panels that mix gates and ups: a separate pass over pre */
    if (plan->paired && !can_pair(plan)) {
        apart = *args;
        apart.epilogue = HS_EPILOGUE_NONE;
        apart.c = args->pre;
        apart.pre.rank = 0;
        run.args = &apart;
        run.plan.paired = false;
    }
    const HsTensor *a = &args->a.values, *b = &args->b.values;
    const int64_t k = a->shape[args->transpose_a ? 0 : 1];
    run.a = (HsMatmulOperand){ a->data, a->dtype, plan->format, args->transpose_a, a->shape[1], k, false };
    run.b = (HsMatmulOperand){ b->data, b->dtype, plan->format, !args->transpose_b, b->shape[1], k, false };
    unsigned char *shared = run.slots + (size_t)hs_cpu_thread_slots(context) * plan->slot_bytes;
    run.shared_a = (uint32_t *)shared;
    run.chunk_b = (uint32_t *)(shared + plan->shared_a_bytes);

    run.tiles.end = hs_cpu_block_count(plan->m, HS_TILE_ROWS);
    run.panels.end = hs_cpu_block_count(plan->n, HS_TILE_COLUMNS);
    multiply_all(context, &run);
    if (hs_tensor_present(&args->row_sums)) {
        const HsBiasBackwardArgs sums = { .dy = args->a.values, .dbias = args->row_sums };
        return HS_ISA_NAME(hs_cpu_bias_backward)(context, &sums);
    }
    if (run.args == args)
        return HS_OK;
    HsUnaryArgs swiglu = { .gate = hs_epilogue_activation(args->epilogue), .x = args->pre, .y = args->c };
    swiglu.y.amax = NULL; /* found behind all products */
    return HS_ISA_NAME(hs_cpu_swiglu_forward)(context, &swiglu);
}

static HsStatus multiply_codes(HsContext *context, const HsMatmulArgs *args)
{
    HsContext inner = *context;
    HsMatmulArgs product = without_codes(args);
    const size_t a_bytes = decoded_bytes(hs_codes_of(&args->a)), b_bytes = decoded_bytes(hs_codes_of(&args->b));
    product.a.values.data = context->workspace;
    product.b.values.data = (unsigned char *)context->workspace + a_bytes;
    inner.workspace = (unsigned char *)product.b.values.data + b_bytes;
    inner.workspace_bytes -= a_bytes + b_bytes;
    HS_ISA_NAME(hs_codes_decode)(context, hs_codes_of(&args->a), product.a.values.data);
    HS_ISA_NAME(hs_codes_decode)(context, hs_codes_of(&args->b), product.b.values.data);
    product.alpha *= HS_SCALING_FACTOR(args->a.codes.scaling) * HS_SCALING_FACTOR(args->b.codes.scaling);
    return multiply_operands(&inner, &product);
}

HsStatus HS_ISA_NAME(hs_cpu_matmul)(HsContext *context, const HsMatmulArgs *args)
{
    HS_TRY(args->a.layout == HS_LAYOUT_CODES ? multiply_codes(context, args) : multiply_operands(context, args));
    HS_ISA_NAME(hs_cpu_find_amax)(context, &args->c);
    return HS_ISA_NAME(hs_cpu_cast)(context, &args->c, &args->cast);
}
