/* SPDX-License-Identifier: MIT
 *
 * The transpose of the lookup: each table row gathers the dy rows that read it.  No atomics on floats: sums are made in
 * one order, whatever the GPU.
 *
 * Rows are ordered by token (token_order.cuh), and the order is cut into tiles of 64, so that the work is even however
 * unevenly tokens occur: half of a text in characters may be one of five.  A warp walks a tile and adds up runs of
 * equal tokens.  A run that lies inside the tile is added to its table row at once; of a run that crosses the tile's
 * ends the sum goes to the workspace, to the tile's `head` (the run came from before) or `tail` (it begins here and
 * continues):
 *
 *     tokens   | 2 2 2 5 5 7 7 7 | 7 7 7 7 7 7 7 7 | 7 7 9 9 9 ...
 *     stored         table: 2, 5    head: 7           head: 7, table: 9
 *                    tail: 7
 *
 * Then the block of the tile that holds a run's tail adds the run's tail and heads to the table.  The factor comes to a
 * sum that is whole, in the multiply-add that rounds the table's row.  What bounds it: dy is read once (in pieces of
 * 512 bytes), table rows that occur are read and written once; the workspace's sums are 1/32 of dy's size.
 */
#include "kernels/cuda/layers/token_order.cuh"
#include "kernels/cuda/toolbox/quad.cuh"

namespace HS_CUDA_NAMESPACE
{

namespace
{

enum {
    TILE_ROWS = 64,
    BATCH_ROWS = 8,                   /* rows with loads in flight together */
    STRIP_COLUMNS = WARP_SIZE * QUAD, /* columns of a warp */
    TILE_WARPS = 4,                   /* neighbouring strips of a tile */
    TILE_BLOCKS = 6,                  /* that a multiprocessor holds at least; for 7, 10.0 and 12.0 would spill */
    RUN_WARPS = 8,                    /* share the sums of a long run */
    RUN_STRETCH = 4                   /* of which each has some in flight */
};
enum { HEAD, TAIL, SIDES };

/* The rows in order, and what the kernels need to find their way. */
struct OrderedRows {
    const int32_t *tokens, *order;
    int64_t rows, columns, tiles;
    float factor;    /* of sums on their way into the table */
    float *partials; /* [tiles][SIDES][columns] */
};

HS_DEVICE int32_t token_at(const OrderedRows &ordered, int64_t place)
{
    return ordered.tokens[ordered.order[place]];
}

HS_DEVICE float *partial(const OrderedRows &ordered, int64_t tile, int side)
{
    return ordered.partials + (tile * SIDES + side) * ordered.columns;
}

/* row[column ..] += factor sum, rounded once. */
template <bool whole, typename T>
HS_DEVICE void add_quad(T *row, int64_t column, int left, float factor, const float (&sum)[QUAD])
{
    Pack<T, QUAD> quad = load_quad<whole>(row, column, left);
#pragma unroll
    for (int j = 0; j < QUAD; j++)
        round_to(quad.value[j], fmaf(factor, sum[j], to_float(quad.value[j])));
    store_quad<whole>(row, column, left, quad);
}

/* One warp's tile and strip; every lane walks along, lanes beyond the last column with left = 0. */
template <bool whole, typename Dy, typename Table>
HS_DEVICE void add_tile(const OrderedRows &ordered, const Dy *dy, Table *table, int64_t tile, int64_t column, int left)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    const int64_t begin = tile * TILE_ROWS;
    const int count = ordered.rows - begin < TILE_ROWS ? (int)(ordered.rows - begin) : TILE_ROWS;
    /* two of the tile's rows a lane, and the neighbours that show whether its first and last run continue */
    const int32_t row_low = lane < count ? ordered.order[begin + lane] : 0;
    const int32_t row_high = lane + WARP_SIZE < count ? ordered.order[begin + WARP_SIZE + lane] : 0;
    const int32_t token_low = ordered.tokens[row_low], token_high = ordered.tokens[row_high];
    int32_t token_before = begin > 0 ? token_at(ordered, begin - 1) : -1;
    const int32_t token_after = begin + count < ordered.rows ? token_at(ordered, begin + count) : -1;

    float sum[QUAD] = {};
    int32_t current = __shfl_sync(FULL_WARP, token_low, 0);
    for (int base = 0; base < count; base += BATCH_ROWS) {
        int32_t token[BATCH_ROWS];
        Pack<Dy, QUAD> quad[BATCH_ROWS];
#pragma unroll
        for (int k = 0; k < BATCH_ROWS; k++) {
            const int place = base + k; /* of the tile; a batch does not cross from low to high */
            const int64_t row = __shfl_sync(FULL_WARP, base < WARP_SIZE ? row_low : row_high, place % WARP_SIZE);
            token[k] = __shfl_sync(FULL_WARP, base < WARP_SIZE ? token_low : token_high, place % WARP_SIZE);
            quad[k] = Pack<Dy, QUAD>{};
            if (place < count && left > 0)
                quad[k] = load_quad<whole>(dy + row * ordered.columns, column, left);
        }
#pragma unroll
        for (int k = 0; k < BATCH_ROWS; k++) {
            if (base + k >= count)
                break;
            if (token[k] != current) { /* a run ends inside the tile */
                if (left > 0 && current == token_before)
                    store_quad<whole>(partial(ordered, tile, HEAD), column, left,
                                      Pack<float, QUAD>{ { sum[0], sum[1], sum[2], sum[3] } });
                else if (left > 0)
                    add_quad<whole>(table + current * ordered.columns, column, left, ordered.factor, sum);
                token_before = -1; /* what follows begins here */
                current = token[k];
#pragma unroll
                for (int j = 0; j < QUAD; j++)
                    sum[j] = 0.0f;
            }
#pragma unroll
            for (int j = 0; j < QUAD; j++)
                sum[j] += to_float(quad[k].value[j]);
        }
    }
    if (left <= 0)
        return;
    const bool came = current == token_before, goes_on = current == token_after;
    if (came || goes_on)
        store_quad<whole>(partial(ordered, tile, came ? HEAD : TAIL), column, left,
                          Pack<float, QUAD>{ { sum[0], sum[1], sum[2], sum[3] } });
    else
        add_quad<whole>(table + current * ordered.columns, column, left, ordered.factor, sum);
}

/* aligned: rows of dy, table and partials begin at whole quads, and columns are a multiple of four. */
template <typename Dy, typename Table>
__global__ void __launch_bounds__(TILE_WARPS *WARP_SIZE, TILE_BLOCKS)
    embedding_bwd_tile_kernel(const OrderedRows ordered, const Dy *dy, Table *table, unsigned strip_groups,
                              bool aligned)
{
    begin_after_kernel_before();
    const int64_t tile = blockIdx.x / strip_groups;
    const int64_t column =
        (int64_t)(blockIdx.x % strip_groups) * TILE_WARPS * STRIP_COLUMNS + (int64_t)threadIdx.x * QUAD;
    const int64_t left = ordered.columns - column;
    if (aligned)
        add_tile<true>(ordered, dy, table, tile, column, left > 0 ? (int)QUAD : 0);
    else
        add_tile<false>(ordered, dy, table, tile, column, left <= 0 ? 0 : left < QUAD ? (int)left : (int)QUAD);
}

/* How many tiles after `tile` the run of `token` reaches into; whole warps call. */
HS_DEVICE int64_t tiles_reached(const OrderedRows &ordered, int64_t tile, int32_t token)
{
    const int lane = (int)threadIdx.x % WARP_SIZE;
    for (int64_t reached = 0;; reached += WARP_SIZE) {
        const int64_t other = tile + 1 + reached + lane;
        const bool same = other < ordered.tiles && token_at(ordered, other * TILE_ROWS) == token;
        const unsigned others = ~__ballot_sync(FULL_WARP, same);
        if (others != 0)
            return reached + __ffs((int)others) - 1;
    }
}

/* Adds the tail and heads of the run that begins in this block's tile and leaves it, if there is one.  Sum i of the run
 * goes to warp i % RUN_WARPS, and the warps' sums are added in order. */
template <bool whole, typename Table>
HS_DEVICE void add_run(const OrderedRows &ordered, Table *table, int64_t tile, int64_t column, int left, float *scratch)
{
    const int64_t end = (tile + 1) * TILE_ROWS;
    const int32_t token = token_at(ordered, end - 1);
    const bool began_before = tile > 0 && token_at(ordered, tile * TILE_ROWS - 1) == token;
    if (began_before || token_at(ordered, end) != token)
        return; /* the whole block alike */
    const int lane = (int)threadIdx.x % WARP_SIZE, warp = (int)threadIdx.x / WARP_SIZE;
    const int64_t sums = 1 + tiles_reached(ordered, tile, token);
    float sum[QUAD] = {};
#pragma unroll RUN_STRETCH
    for (int64_t i = warp; i < sums; i += RUN_WARPS) {
        const Pack<float, QUAD> quad = load_quad<whole>(partial(ordered, tile + i, i == 0 ? TAIL : HEAD), column, left);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            sum[j] += quad.value[j];
    }
    Pack<float, QUAD> *shared = reinterpret_cast<Pack<float, QUAD> *>(scratch);
    shared[warp * WARP_SIZE + lane] = Pack<float, QUAD>{ { sum[0], sum[1], sum[2], sum[3] } };
    __syncthreads();
    if (warp > 0 || left <= 0)
        return;
    for (int w = 1; w < RUN_WARPS; w++) {
        const Pack<float, QUAD> quad = shared[w * WARP_SIZE + lane];
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            sum[j] += quad.value[j];
    }
    add_quad<whole>(table + token * ordered.columns, column, left, ordered.factor, sum);
}

template <typename Table>
__global__ void __launch_bounds__(RUN_WARPS *WARP_SIZE)
    embedding_bwd_run_kernel(const OrderedRows ordered, Table *table, unsigned strips, bool aligned)
{
    HS_SHARED(float, scratch, RUN_WARPS *STRIP_COLUMNS);
    begin_after_kernel_before();
    const int64_t tile = blockIdx.x / strips;
    const int64_t column = (int64_t)(blockIdx.x % strips) * STRIP_COLUMNS + (int64_t)(threadIdx.x % WARP_SIZE) * QUAD;
    const int64_t left = ordered.columns - column;
    /* One path for the whole block, which meets at barriers: lanes beyond the last column read
     * the first and drop it. */
    if (aligned)
        add_run<true>(ordered, table, tile, left > 0 ? column : 0, left > 0 ? (int)QUAD : 0, scratch);
    else
        add_run<false>(ordered, table, tile, column, left < 0 ? 0 : left < QUAD ? (int)left : (int)QUAD, scratch);
}

/* dposition_table[t] += sum over the batch's sequences of dy[sequence * T + t], in their order; a thread a quad. */
template <bool whole, typename Dy, typename Table>
HS_DEVICE void add_position(const Dy *dy, Table *table, int64_t position, int64_t sequence_length, int64_t rows,
                            int64_t columns, int64_t column, int left)
{
    float sum[QUAD] = {};
#pragma unroll 4
    for (int64_t n = position; n < rows; n += sequence_length) {
        const Pack<Dy, QUAD> quad = load_quad<whole>(dy + n * columns, column, left);
#pragma unroll
        for (int j = 0; j < QUAD; j++)
            sum[j] += to_float(quad.value[j]);
    }
    add_quad<whole>(table + position * columns, column, left, 1.0f, sum);
}

template <typename Dy, typename Table>
__global__ void __launch_bounds__(QUAD_THREADS)
    embedding_bwd_position_kernel(const Dy *dy, Table *table, int64_t sequence_length, int64_t rows, int64_t columns,
                                  bool aligned)
{
    begin_after_kernel_before();
    const int64_t position = row_index(), column = row_column(), left = columns - column;
    if (position >= sequence_length || left <= 0)
        return;
    if (aligned)
        add_position<true>(dy, table, position, sequence_length, rows, columns, column, QUAD);
    else
        add_position<false>(dy, table, position, sequence_length, rows, columns, column,
                            left < QUAD ? (int)left : (int)QUAD);
}

__global__ void __launch_bounds__(QUAD_THREADS)
    document_positions_kernel(const int32_t *starts, int32_t *positions, int64_t sequence_length, int64_t rows)
{
    begin_after_kernel_before();
    const int64_t n = (int64_t)blockIdx.x * QUAD_THREADS + threadIdx.x;
    if (n < rows)
        positions[n] = (int32_t)(n % sequence_length) - starts[n];
}

template <typename Dy>
HsStatus add_to_positions(const HsContext *context, const HsEmbeddingBackwardArgs *args, const Dy *dy, bool aligned)
{
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    const RowBlocks blocks = row_blocks(args->sequence_length, columns);
    return dispatch_act(args->dposition_table.dtype, [&](auto element) {
        using Table = decltype(element);
        return hs_launch_after(context, HS_KERNEL((embedding_bwd_position_kernel<Dy, Table>)), blocks.grid,
                               blocks.block, 0, dy, data_of<Table>(args->dposition_table), args->sequence_length, rows,
                               columns, aligned && quad_aligned(args->dposition_table));
    });
}

template <typename Dy, typename Table>
HsStatus add_to_tokens(const HsContext *context, const OrderedRows &ordered, const Dy *dy, Table *table, bool aligned)
{
    const unsigned strips = blocks_for(ordered.columns, STRIP_COLUMNS), strip_groups = blocks_for(strips, TILE_WARPS);
    HS_TRY(hs_launch_after(context, HS_KERNEL((embedding_bwd_tile_kernel<Dy, Table>)),
                           (unsigned)ordered.tiles * strip_groups, TILE_WARPS * WARP_SIZE, 0, ordered, dy, table,
                           strip_groups, aligned));
    if (ordered.tiles == 1)
        return HS_OK;
    /* no run leaves the last tile */
    return hs_launch_after(context, HS_KERNEL(embedding_bwd_run_kernel<Table>), (unsigned)(ordered.tiles - 1) * strips,
                           RUN_WARPS * WARP_SIZE, 0, ordered, table, strips, aligned);
}

/* The rows of a position are anywhere: they are ordered as tokens are. */
bool orders_positions(const HsEmbeddingBackwardArgs *args)
{
    return hs_tensor_present(&args->dposition_table) && hs_tensor_present(&args->starts);
}

/* The workspace: partial sums, which are to be aligned, then what the ordering needs, then positions. */
int64_t partial_elements(const HsEmbeddingBackwardArgs *args)
{
    const int64_t elements = (int64_t)blocks_for(args->dy.shape[0], TILE_ROWS) * SIDES * args->dy.shape[1];
    return (elements + QUAD - 1) / QUAD * QUAD;
}

} // namespace

size_t workspace::embedding_backward(const HsContext *, const HsEmbeddingBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0];
    if (!hs_tensor_present(&args->dtoken_table) && !orders_positions(args))
        return 0;
    return (size_t)(partial_elements(args) + token_order_elements(rows) + (orders_positions(args) ? rows : 0)) *
           sizeof(float);
}

/* table[names[n]] += factor dy[n] */
static HsStatus add_to_table(HsContext *context, const HsEmbeddingBackwardArgs *args, const int32_t *names,
                             float factor, const HsTensor &table)
{
    static_assert(sizeof(float) == sizeof(int32_t), "the workspace's two parts have elements of one size");
    const int64_t rows = args->dy.shape[0], columns = args->dy.shape[1];
    const bool aligned = columns % QUAD == 0 && quad_aligned(args->dy) && quad_aligned(table);
    float *partials = static_cast<float *>(context->workspace);
    OrderedRows ordered = { names, nullptr, rows, columns, (int64_t)blocks_for(rows, TILE_ROWS), factor, partials };
    if (rows > INT32_MAX)
        return hs_fail(HS_EUNSUPPORTED, "embedding_backward: %lld rows are more than an int32 counts", (long long)rows);
    HS_TRY(order_tokens(context, ordered.tokens, rows, table.shape[0],
                        reinterpret_cast<int32_t *>(partials + partial_elements(args)), &ordered.order));
    return dispatch_act(args->dy.dtype, [&](auto element) {
        using Dy = decltype(element);
        return dispatch_act(table.dtype, [&](auto table_element) {
            using Table = decltype(table_element);
            return add_to_tokens(context, ordered, data_of<Dy>(args->dy), data_of<Table>(table), aligned);
        });
    });
}

static HsStatus add_to_document_positions(HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    const int64_t rows = args->dy.shape[0];
    int32_t *positions =
        static_cast<int32_t *>(context->workspace) + partial_elements(args) + token_order_elements(rows);
    HS_TRY(hs_launch_after(context, HS_KERNEL(document_positions_kernel), blocks_for(rows, QUAD_THREADS), QUAD_THREADS,
                           0, (const int32_t *)data_of<int32_t>(args->starts), positions, args->sequence_length, rows));
    return add_to_table(context, args, positions, 1.0f, args->dposition_table);
}

HsStatus op::embedding_backward(HsContext *context, const HsEmbeddingBackwardArgs *args)
{
    if (hs_tensor_present(&args->dtoken_table))
        HS_TRY(add_to_table(context, args, data_of<int32_t>(args->tokens), args->factor, args->dtoken_table));
    if (orders_positions(args))
        return add_to_document_positions(context, args);
    if (!hs_tensor_present(&args->dposition_table))
        return HS_OK;
    const bool aligned = args->dy.shape[1] % QUAD == 0 && quad_aligned(args->dy);
    return dispatch_act(args->dy.dtype, [&](auto element) {
        return add_to_positions(context, args, data_of<decltype(element)>(args->dy), aligned);
    });
}

} // namespace HS_CUDA_NAMESPACE
