/* SPDX-License-Identifier: MIT
 *
 * Attention backward on Hopper: shared memory, workspace and parameters of attention_backward_hopper.cu, which explains
 * them.
 */
#ifndef HS_KERNELS_CUDA_ATTENTION_ATTENTION_BACKWARD_HOPPER_CUH
#define HS_KERNELS_CUDA_ATTENTION_ATTENTION_BACKWARD_HOPPER_CUH

#include "kernels/cuda/attention/attention_hopper.cuh"

namespace HS_CUDA_NAMESPACE
{

enum {
    GRADIENT_KEYS = 128, /* of a block, half of them a consumer's */
    GRADIENT_CONSUMERS = 2,
    GRADIENT_THREADS = 128 * (1 + GRADIENT_CONSUMERS),
    GRADIENT_STAGES = 2,
    GRADIENT_BUFFERS = 2, /* of keys, and of dS^T */
    GRADIENT_PRODUCER_REGISTERS = 24,
    GRADIENT_CONSUMER_REGISTERS = 240,
    /* A consumer's part of dQ is 64 x 64 floats. */
    GRADIENT_PART_BYTES = 64 * 64 * 4,
    GRADIENT_PARTS_BYTES = GRADIENT_CONSUMERS * GRADIENT_PART_BYTES,
    /* ... and on their way to memory, all parts are lines of 64 floats. */
    GRADIENT_PART_LINE = 64,
    GRADIENT_PART_LINES = GRADIENT_PARTS_BYTES / (GRADIENT_PART_LINE * 4)
};

/* Queries of a step: each consumer has 64 x 64 of dQ, halves of the queries (width 64) or of the columns. */
__host__ __device__ constexpr int gradient_step(int width)
{
    return width == 64 ? 128 : 64;
}

/* Shared memory, from its start. */
template <int width_> struct GradientShape {
    static constexpr int width = width_, step = gradient_step(width_);
    typedef HeadTile<width_, GRADIENT_KEYS> KeyTile;
    typedef HeadTile<width_, step> QueryTile;
    static constexpr int score_box = GRADIENT_KEYS * HEAD_LINE; /* dS^T of 64 queries, a line for each key */
    static constexpr int score_bytes = step / 64 * score_box;
    static constexpr int statistics_bytes = step * (int)sizeof(QueryStatistics);
    static constexpr int stage_bytes = 2 * QueryTile::bytes;
    /* At width 128 there is room for one buffer of values and two of keys. */
    static constexpr int value_buffers = width_ == 64 ? 2 : 1;
    static constexpr int values = GRADIENT_BUFFERS * KeyTile::bytes, stages = values + value_buffers * KeyTile::bytes;
    static constexpr int scores = stages + GRADIENT_STAGES * stage_bytes;
    static constexpr int parts = scores + GRADIENT_BUFFERS * score_bytes;
    static constexpr int statistics = parts + GRADIENT_PARTS_BYTES;
    /* mbarriers, where there are two: one for each buffer or stage */
    static constexpr int keys_full = statistics + GRADIENT_STAGES * statistics_bytes, keys_empty = keys_full + 16;
    static constexpr int values_full = keys_empty + 16, values_empty = values_full + 16;
    static constexpr int scores_full = values_empty + 16, scores_empty = scores_full + 16;
    static constexpr int full = scores_empty + 16, empty = full + 8 * GRADIENT_STAGES;
    static constexpr int parts_full = empty + 8 * GRADIENT_STAGES, parts_empty = parts_full + 8;
    static constexpr int works = parts_empty + 8; /* a GradientWork for each buffer of keys */
    static constexpr int dropout = works + 32;
    static constexpr int shared_bytes = dropout + (int)sizeof(Dropout);
    static_assert(shared_bytes <= 227 * 1024, "what a block may have");
    /* 64 keys of dV and dK leave by the place of a consumer's part of dQ: both at once or one after the other. */
    typedef HeadTile<width_, 64> Result;
    static constexpr int results_at_once = GRADIENT_PART_BYTES / Result::bytes;
    static_assert(results_at_once == 1 || results_at_once == 2, "room for results");
};

struct GradientParameters {
    TensorMap keys, queries, douts; /* tiles of KeyTile and QueryTile */
    TensorMap statistics;           /* rows of lse and delta, a row for each head */
    TensorMap dquery, dqkv;         /* parts of dQ; 64 tokens of a head of dqkv */
    Attention attention;
    int key_blocks, query_tiles, early_heads, late_heads; /* heads of keys, of all sequences */
    unsigned *turns; /* [batch heads][query_tiles]: blocks of keys that have added their part of dQ; unordered: 1 from
                      * the first on */
    bool unordered;
    unsigned *ticket;
};

/* Heads with longest tickets first, at the end.  `blocks` at work hold blocks / late tickets of a head at once, and
 * each begins as many steps late as there are before it: with 4 blocks / key_blocks such heads that is little against a
 * ticket's steps, of which there are up to key_blocks.  An eighth of `blocks` is enough for long sequences; more heads
 * would not stay in L2.  At most half of the heads: the kernel needs the others' tickets first, which do not wait. */
static inline int late_heads(int heads, int key_blocks, int blocks)
{
    const int few_waits = (4 * blocks + key_blocks - 1) / key_blocks, few_rereads = blocks / 8;
    const int wanted = few_waits > few_rereads ? few_waits : few_rereads;
    return wanted < heads / 2 ? wanted : heads / 2;
}

/* Backward's workspace with these kernels: statistics, then f32 sums of dQ, then turns and the ticket. */
struct GradientWorkspace {
    int64_t query_tiles, sums_bytes, counters; /* counters: turns and one ticket */
    size_t statistics_bytes, bytes;
};

static inline GradientWorkspace gradient_workspace(int64_t batch, int64_t heads, int64_t length, int head_dim)
{
    GradientWorkspace workspace;
    const int step = gradient_step(head_dim <= 64 ? 64 : 128);
    workspace.query_tiles = (length + step - 1) / step;
    workspace.sums_bytes = batch * heads * workspace.query_tiles * GRADIENT_PARTS_BYTES;
    workspace.counters = batch * heads * workspace.query_tiles + 1;
    workspace.statistics_bytes = (size_t)(batch * heads * statistics_length((int)length)) * sizeof(QueryStatistics);
    workspace.bytes = workspace.statistics_bytes + (size_t)workspace.sums_bytes + (size_t)workspace.counters * 4;
    return workspace;
}

/* statistics: the start of the workspace, filled; its counters are zeros. */
HsStatus attention_backward_hopper(HsContext *context, const Attention &attention, const BackwardTensors &tensors);

/* dq = scale dQ, rounded. */
HsStatus attention_backward_finish_queries(HsContext *context, const Attention &attention, const HsTensor &dqkv,
                                           const float *sums, int64_t query_tiles);

} // namespace HS_CUDA_NAMESPACE

#endif
