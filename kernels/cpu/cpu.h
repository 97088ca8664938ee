/* SPDX-License-Identifier: MIT
 *
 * What the files of the cpu backend share.
 *
 * kernels/cpu/isa/ is compiled once for each instruction set (the Makefile's ISAS) with HS_ISA set to its name; every
 * external function there is named through HS_ISA_NAME, so that all copies can be linked together:
 *
 *     HsStatus HS_ISA_NAME(hs_cpu_convert)(HsContext *context, const HsConvertArgs *args)   ->  hs_cpu_convert_avx2
 *
 * isa/table.c gathers one copy's functions in a backend table, and cpu.c chooses between the tables once, at start.
 *
 * Invariant: results never depend on the number of threads.  Sums are cut in blocks by shape alone, none is shared
 * between blocks that different threads take, and partial sums are added in the blocks' order.  (Products may be cut by
 * the number of threads too: each element is summed in one order.)
 */
#ifndef HS_KERNELS_CPU_CPU_H
#define HS_KERNELS_CPU_CPU_H

#include "kernels/ops/backend.h"

/* The table of one instruction set, for tests and the bench, which visit all of them whatever the environment says.
 * HS_EINVAL: no such name in this build (the message lists them); HS_EUNSUPPORTED: this machine lacks it. */
HsStatus hs_backend_cpu_for_isa(const char *isa, const HsBackend **backend);

/* Names of the instruction sets of this build, the most capable first; NULL past the last. */
const char *hs_backend_cpu_isa_name(int index);

/* Floating-point operations a second of the chosen instruction set's multiply-add for products of `dtype`, on all of
 * the context's threads, measured now; 0 when there is no probe for it. */
double hs_cpu_peak_flops(const HsContext *context, HsDtype dtype, HsProductPolicy policy);

/* Bytes a second that all of the context's threads together read and write in memory that no cache holds, measured now
 * on 256 MiB; 0 when there is no memory for it. */
double hs_cpu_peak_bytes(const HsContext *context, size_t most_bytes);
/* HALFSTEP_CPU_PEAK, which peak_flops gives in place of a measurement; 0: it is not set. */
HsStatus hs_cpu_read_peak(double *flops);

/* HsBackend's. */
void hs_cpu_share_out(int threads, int count, void (*piece)(void *data, int index, int thread), void *data);

/* How many threads to start for `tasks` independent pieces of work: never more than there is work for. */
static inline int hs_cpu_threads(const HsContext *context, int64_t tasks)
{
    int64_t threads = context->threads < 1 ? 1 : context->threads;
    return (int)(tasks < 1 ? 1 : tasks < threads ? tasks : threads);
}

/* Threads that scratch must be laid out for, whatever an operation's shapes. */
static inline int hs_cpu_thread_slots(const HsContext *context)
{
    return context->threads < 1 ? 1 : context->threads;
}

/* Blocks of `block_rows` rows, the last one shorter: the cut of the work that every thread count shares. */
typedef struct HsRowBlock {
    int64_t begin, end;
} HsRowBlock;

static inline int64_t hs_cpu_block_count(int64_t rows, int64_t block_rows)
{
    return (rows + block_rows - 1) / block_rows;
}

static inline HsRowBlock hs_cpu_block(int64_t rows, int64_t block_rows, int64_t index)
{
    int64_t begin = index * block_rows, end = begin + block_rows;
    return (HsRowBlock){ begin, end < rows ? end : rows };
}

/* Independent pieces of work, `rows` by `columns` of them, which the threads of a team take in turns: each those of its
 * share of the rows, first row by row and then column by column, and then what others have left.  A thread so finds in
 * its own cache what it left there in the operation before, and none waits for a slow one.  */
enum { HS_TURN_SHARES = 64 };
typedef struct HsTurns {
    int64_t rows, columns;
    int shares;
    struct {
        _Alignas(64) int64_t taken;
    } share[HS_TURN_SHARES];
} HsTurns;

/* What a thread takes: from whose share, how many of those it has seen empty, and the piece. */
typedef struct HsTurn {
    int share, seen;
    int64_t row, column;
} HsTurn;

/* Before the team starts, or by one of its threads between two barriers. */
static inline void hs_turns_begin(HsTurns *turns, int64_t rows, int64_t columns, int threads)
{
    turns->rows = rows;
    turns->columns = columns;
    turns->shares = threads < HS_TURN_SHARES ? threads : HS_TURN_SHARES;
    for (int i = 0; i < turns->shares; i++)
        turns->share[i].taken = 0;
}

static inline HsTurn hs_turn_first(const HsTurns *turns, int thread)
{
    return (HsTurn){ .share = thread % turns->shares };
}

/* False: nothing is left. */
static inline bool hs_turn_take(HsTurns *turns, HsTurn *turn)
{
    /* fewer rows than shares: pieces are shared out as one row of them */
    const bool flat = turns->rows < turns->shares;
    const int64_t rows = flat ? turns->rows * turns->columns : turns->rows;
    for (; turn->seen < turns->shares; turn->seen++, turn->share = (turn->share + 1) % turns->shares) {
        const int64_t begin = rows * turn->share / turns->shares;
        const int64_t own = rows * (turn->share + 1) / turns->shares - begin;
        const int64_t taken = __atomic_fetch_add(&turns->share[turn->share].taken, 1, __ATOMIC_RELAXED);
        if (taken >= (flat ? own : own * turns->columns))
            continue;
        turn->row = flat ? (begin + taken) % turns->rows : begin + taken % own;
        turn->column = flat ? (begin + taken) / turns->rows : taken / own;
        return true;
    }
    return false;
}

/* Sums over rows (weight and bias gradients) keep one partial sum per block, so their blocks are few: at most
 * HS_CPU_PARTIALS, and at least HS_CPU_PARTIAL_ROWS rows each.  Depends on `rows` only. */
enum { HS_CPU_PARTIALS = 32, HS_CPU_PARTIAL_ROWS = 16 };

static inline int64_t hs_cpu_partial_rows(int64_t rows)
{
    int64_t block_rows = hs_cpu_block_count(rows, HS_CPU_PARTIALS);
    return block_rows < HS_CPU_PARTIAL_ROWS ? HS_CPU_PARTIAL_ROWS : block_rows;
}

/* Bytes rounded up to whole cache lines, so that slices of scratch never share one. */
static inline size_t hs_cpu_align(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Rows of a position within their documents, chained in increasing order: first[p] and next[row], -1: no more.
 * first: [length]; next: [rows]. */
static inline void hs_cpu_chain_positions(const int32_t *starts, int64_t rows, int64_t length, int32_t *first,
                                          int32_t *next)
{
    for (int64_t position = 0; position < length; position++)
        first[position] = -1;
    for (int64_t row = rows - 1; row >= 0; row--) {
        const int64_t position = row % length - starts[row];
        next[row] = first[position];
        first[position] = (int32_t)row;
    }
}

#ifdef HS_ISA

#define HS_ISA_PASTE_(name, isa) name##_##isa
#define HS_ISA_PASTE(name, isa)  HS_ISA_PASTE_(name, isa)
#define HS_ISA_NAME(name)        HS_ISA_PASTE(name, HS_ISA)

/* Every operation for the instruction set being compiled: HsStatus hs_cpu_matmul_avx2(HsContext *, ...), ... */
#define HS_CPU_PROTOTYPE(name, Args, formula) \
    HsStatus HS_ISA_NAME(hs_cpu_##name)(HsContext * context, const Args *args);
HS_OPS(HS_CPU_PROTOTYPE)

/* The operations that need scratch; each defines HS_ISA_NAME(hs_cpu_<name>_workspace). */
#define HS_CPU_WORKSPACE_OPS(X)                    \
    X(matmul, HsMatmulArgs)                        \
    X(quantize, HsQuantizeArgs)                    \
    X(bias_backward, HsBiasBackwardArgs)           \
    X(embedding_backward, HsEmbeddingBackwardArgs) \
    X(norm_forward, HsNormArgs)                    \
    X(norm_backward, HsNormBackwardArgs)           \
    X(rope, HsRopeArgs)                            \
    X(head_norm_backward, HsHeadNormBackwardArgs)  \
    X(gate_backward, HsGateBackwardArgs)           \
    X(attention_forward, HsAttentionArgs)          \
    X(attention_backward, HsAttentionBackwardArgs)

#define HS_CPU_WORKSPACE_PROTOTYPE(name, Args) \
    size_t HS_ISA_NAME(hs_cpu_##name##_workspace)(const HsContext *context, const Args *args);
HS_CPU_WORKSPACE_OPS(HS_CPU_WORKSPACE_PROTOTYPE)

/* Elements `range` of dropout_forward, with the same bits however all are cut (isa/elementwise.c). */
void HS_ISA_NAME(hs_cpu_dropout_elements)(const HsDropoutArgs *args, HsRowBlock range);

/* amax, where there is one, of a tensor as it is stored (isa/quantize.c): a separate pass, which spares the cast that
 * follows one. */
void HS_ISA_NAME(hs_cpu_find_amax)(const HsContext *context, const HsTensor *tensor);

/* hs_cast_apart of what was stored, where there are codes for it, and the workspace that it takes: likewise a separate pass. */
HsStatus HS_ISA_NAME(hs_cpu_cast)(HsContext *context, const HsTensor *result, const HsCodes *codes);
size_t HS_ISA_NAME(hs_cpu_cast_workspace)(const HsContext *context, const HsCodes *codes);

/* Bytes of a weight packed by pack_weight (isa/pack.c). */
size_t HS_ISA_NAME(hs_cpu_packed_bytes)(const HsContext *context, HsDtype dtype, int64_t k, int64_t n);

#endif /* HS_ISA */

#endif
