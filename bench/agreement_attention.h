/* SPDX-License-Identifier: MIT
 *
 * Attention of a size at which persistent kernels take many tickets: Hopper's kernels and those for all GPUs, each
 * number against the reference in double and within its derived bound (runtime/selftest/attention_bounds.c).
 *
 * The reference works on one sequence and one key head at a time, which makes them independent: OpenMP spreads them
 * over the processors.  Backward reads the forward results of the kernels for all GPUs, as training reads its own.
 */
#ifndef HS_BENCH_AGREEMENT_ATTENTION_H
#define HS_BENCH_AGREEMENT_ATTENTION_H

#include <math.h>
#include <omp.h>

#include "bench/bench.h"
#include "runtime/selftest/attention_bounds.h"

static const HsHeads attention_sizes[] = { { 8, 1024, 12, 12, 64 }, { 4, 1000, 8, 2, 128 } };
/* For an emulator: several tickets for each of four blocks, more steps than a ring has stages. */
static const HsHeads tiny_attention_sizes[] = { { 2, 400, 3, 3, 64 }, { 1, 520, 4, 2, 128 } };

enum { AGREEMENT_OUT, AGREEMENT_LSE, AGREEMENT_DQKV, AGREEMENT_RESULTS };
static const char *const attention_results[AGREEMENT_RESULTS] = { "out", "lse", "dqkv" };

/* One size's operands, and results of the kernels that `context` stands for, on the host. */
typedef struct AttentionRun {
    HsHeads heads;
    float scale;
    HsTensor qkv, dout, result[AGREEMENT_RESULTS];
    void *qkv_words, *dout_words;
    void *words[2][AGREEMENT_RESULTS]; /* by kernels for all GPUs; by Hopper's */
} AttentionRun;

/* How far the results of one kind of kernels are off. */
typedef struct AttentionError {
    double worst[AGREEMENT_RESULTS]; /* share of the tolerance */
    int64_t wrong[AGREEMENT_RESULTS];
} AttentionError;

static inline HsStatus attention_operand(Bench *bench, HsTensor *tensor, uint64_t seed, void **words)
{
    const HsRng rng = { .seed = seed };
    *words = malloc(hs_tensor_bytes(tensor));
    if (!*words)
        return hs_fail(HS_ENOMEM, "%zu bytes", hs_tensor_bytes(tensor));
#pragma omp parallel for
    for (int64_t i = 0; i < hs_tensor_count(tensor); i++) {
        const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
        double normal[2];
        hs_rng_normal(draw.word[0], draw.word[1], normal);
        hs_dtype_store(tensor->dtype, *words, i, normal[0]);
    }
    return bench_upload(bench, tensor, *words);
}

static inline HsAttentionArgs attention_args(const AttentionRun *run)
{
    return (HsAttentionArgs){ .heads = run->heads,
                              .rule.scale = run->scale,
                              .qkv = run->qkv,
                              .out = run->result[AGREEMENT_OUT],
                              .lse = run->result[AGREEMENT_LSE] };
}

static inline HsAttentionBackwardArgs attention_backward_args(const AttentionRun *run)
{
    return (HsAttentionBackwardArgs){ .heads = run->heads,
                                      .rule.scale = run->scale,
                                      .dout = run->dout,
                                      .qkv = run->qkv,
                                      .out = run->result[AGREEMENT_OUT],
                                      .lse = run->result[AGREEMENT_LSE],
                                      .dqkv = run->result[AGREEMENT_DQKV] };
}

static inline HsStatus call_attention(HsContext *context, const void *arguments)
{
    const HsAttentionArgs args = attention_args(arguments);
    return hs_op_attention_forward(context, &args);
}

static inline HsStatus call_attention_backward(HsContext *context, const void *arguments)
{
    const HsAttentionBackwardArgs args = attention_backward_args(arguments);
    return hs_op_attention_backward(context, &args);
}

/* One operation, its results NaN before, brought to the host. */
static inline HsStatus attention_call(HsContext *given, AttentionRun *run, bool backward, void **words)
{
    const int first = backward ? AGREEMENT_DQKV : AGREEMENT_OUT, end = backward ? AGREEMENT_RESULTS : AGREEMENT_DQKV;
    HsContext context = *given;
    HsDevice *device = context.device;
    BenchContender contender = { .context = &context,
                                 .call = backward ? call_attention_backward : call_attention,
                                 .arguments = run };
    HsStatus status = bench_workspace(&contender);
    for (int i = first; status == HS_OK && i < end; i++) {
        memset(words[i], 0xff, hs_tensor_bytes(&run->result[i]));
        status = device->copy(device, context.stream, run->result[i].data, words[i], hs_tensor_bytes(&run->result[i]));
    }
    if (status == HS_OK)
        status = contender.call(&context, run);
    for (int i = first; status == HS_OK && i < end; i++)
        status = device->copy(device, context.stream, words[i], run->result[i].data, hs_tensor_bytes(&run->result[i]));
    if (status == HS_OK)
        status = device->stream_sync(device, context.stream);
    if (context.workspace)
        device->release(device, context.workspace);
    return status;
}

/* Forward and backward by both kinds; without Hopper's, `hopper` is NULL. */
static inline HsStatus attention_calls(HsContext *common, HsContext *hopper, AttentionRun *run)
{
    if (hopper)
        HS_TRY(attention_call(hopper, run, false, run->words[1]));
    HS_TRY(attention_call(common, run, false, run->words[0])); /* what backward reads */
    if (hopper)
        HS_TRY(attention_call(hopper, run, true, run->words[1]));
    return attention_call(common, run, true, run->words[0]);
}

/* --- the reference, for one sequence and one key head --- */

/* Columns [from, from + count) of a sequence's rows, as doubles; `across`: of the whole tensor. */
static inline void slice_columns(const void *words, HsDtype dtype, int64_t first_row, int64_t rows, int64_t across,
                                 int64_t from, int64_t count, double *target, int64_t target_across)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < count; i++)
            target[row * target_across + i] = hs_dtype_load(dtype, words, (first_row + row) * across + from + i);
}

/* A part's tensors in double: operands, exact results, their errors. */
typedef struct AttentionPart {
    HsHeads heads;
    double *qkv, *dout, *out, *lse; /* operands; out and lse as backward reads them */
    double *exact[AGREEMENT_RESULTS], *error[AGREEMENT_RESULTS];
    int64_t columns[AGREEMENT_RESULTS], sequence, group;
    double *block;
} AttentionPart;

static inline HsStatus part_open(const AttentionRun *run, int64_t sequence, int64_t group, AttentionPart *part)
{
    const HsHeads *all = &run->heads;
    const int64_t shared = all->heads / all->kv_heads, rows = all->sequence_length, d = all->head_dim;
    *part = (AttentionPart){ .heads = { 1, rows, shared, 1, d }, .sequence = sequence, .group = group };
    const int64_t qkv_columns = hs_heads_columns(&part->heads), out_columns = shared * d;
    part->columns[AGREEMENT_OUT] = out_columns;
    part->columns[AGREEMENT_LSE] = shared;
    part->columns[AGREEMENT_DQKV] = qkv_columns;
    const int64_t total = qkv_columns + out_columns + out_columns + shared + 2 * (out_columns + shared + qkv_columns);
    part->block = calloc((size_t)(rows * total), sizeof(double)); /* bounds are added up */
    if (!part->block)
        return hs_fail(HS_ENOMEM, "%" PRId64 " numbers", rows * total);
    double *next = part->block;
    part->qkv = next, next += rows * qkv_columns;
    part->dout = next, next += rows * out_columns;
    part->out = next, next += rows * out_columns;
    part->lse = next, next += rows * shared;
    for (int i = 0; i < AGREEMENT_RESULTS; i++) {
        part->exact[i] = next, next += rows * part->columns[i];
        part->error[i] = next, next += rows * part->columns[i];
    }
    return HS_OK;
}

/* Where the part's columns lie in the whole of a result: `pieces` of them, each `width` wide. */
static inline int64_t piece_start(const AttentionRun *run, const AttentionPart *part, int result, int piece)
{
    const int64_t d = run->heads.head_dim, shared = part->heads.heads;
    if (result == AGREEMENT_LSE)
        return part->group * shared;
    if (result == AGREEMENT_OUT || piece == 0)
        return part->group * shared * d;
    return (run->heads.heads + (piece - 1) * run->heads.kv_heads + part->group) * d;
}

static inline int64_t piece_width(const AttentionPart *part, int result, int piece)
{
    const int64_t d = part->heads.head_dim;
    return result == AGREEMENT_LSE ? part->heads.heads : piece == 0 ? part->heads.heads * d : d;
}

static inline int64_t result_across(const AttentionRun *run, int result)
{
    return run->result[result].shape[1];
}

static inline void part_read(const AttentionRun *run, int result, const void *words, HsDtype dtype,
                             const AttentionPart *part, double *target)
{
    const int64_t rows = run->heads.sequence_length, first = part->sequence * rows;
    int64_t at = 0;
    for (int piece = 0; piece < (result == AGREEMENT_DQKV ? 3 : 1); piece++) {
        const int64_t width = piece_width(part, result, piece);
        slice_columns(words, dtype, first, rows, result_across(run, result), piece_start(run, part, result, piece),
                      width, target + at, part->columns[result]);
        at += width;
    }
}

static inline HsTensor part_tensor(const AttentionPart *part, int result, double *data)
{
    return hs_tensor_2d(data, HS_F64, part->heads.sequence_length, part->columns[result]);
}

/* Exact results of the part, and how far kernels may be off. */
static inline HsStatus part_solve(const AttentionRun *run, AttentionPart *part)
{
    const HsDtype dtype = run->qkv.dtype;
    part_read(run, AGREEMENT_DQKV, run->qkv_words, dtype, part, part->qkv); /* qkv has dqkv's columns */
    part_read(run, AGREEMENT_OUT, run->dout_words, dtype, part, part->dout);
    part_read(run, AGREEMENT_OUT, run->words[0][AGREEMENT_OUT], dtype, part, part->out);
    part_read(run, AGREEMENT_LSE, run->words[0][AGREEMENT_LSE], HS_F32, part, part->lse);
    HsDevice host;
    HS_TRY(hs_device_host_init(&host));
    HsContext reference = { .backend = hs_backend_ref(), .device = &host, .threads = 1 };
    const HsTensor qkv = part_tensor(part, AGREEMENT_DQKV, part->qkv);
    const HsAttentionArgs forward = { .heads = part->heads,
                                      .rule.scale = run->scale,
                                      .qkv = qkv,
                                      .out = part_tensor(part, AGREEMENT_OUT, part->exact[AGREEMENT_OUT]),
                                      .lse = part_tensor(part, AGREEMENT_LSE, part->exact[AGREEMENT_LSE]) };
    HS_TRY(hs_op_attention_forward(&reference, &forward));
    const HsAttentionBackwardArgs backward = { .heads = part->heads,
                                               .rule.scale = run->scale,
                                               .dout = part_tensor(part, AGREEMENT_OUT, part->dout),
                                               .qkv = qkv,
                                               .out = part_tensor(part, AGREEMENT_OUT, part->out),
                                               .lse = part_tensor(part, AGREEMENT_LSE, part->lse),
                                               .dqkv = part_tensor(part, AGREEMENT_DQKV, part->exact[AGREEMENT_DQKV]) };
    HS_TRY(hs_op_attention_backward(&reference, &backward));
    HsAttentionView view = { .heads = part->heads, .scale = (double)run->scale, .qkv = part->qkv, .weights = dtype };
    hs_bound_attention_forward(&view, part->error[AGREEMENT_OUT], part->error[AGREEMENT_LSE]);
    view.lse = part->lse;
    view.out = part->out;
    view.dout = part->dout;
    hs_bound_attention_backward(&view, part->error[AGREEMENT_DQKV]);
    return HS_OK;
}

/* found: room for a result of the part. */
static inline void part_compare(const AttentionRun *run, const AttentionPart *part, int kind, double *found,
                                AttentionError *error)
{
    for (int result = 0; result < AGREEMENT_RESULTS; result++) {
        const HsDtype dtype = run->result[result].dtype;
        part_read(run, result, run->words[kind][result], dtype, part, found);
        for (int64_t i = 0; i < part->heads.sequence_length * part->columns[result]; i++) {
            const double exact = part->exact[result][i], off = part->error[result][i];
            const double tolerance = off + hs_tolerance(0, 0, HS_F32, dtype, 0.0, fabs(exact) + off);
            const double ratio = fabs(found[i] - exact) / tolerance;
            error->worst[result] = ratio <= error->worst[result] ? error->worst[result] : ratio;
            error->wrong[result] += !(ratio <= 1.0);
        }
    }
}

static inline HsStatus attention_compare(const AttentionRun *run, int kinds, AttentionError *errors)
{
    const int64_t parts = run->heads.batch * run->heads.kv_heads;
    HsStatus worst = HS_OK;
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < parts; i++) {
        AttentionPart part;
        AttentionError own[2] = { 0 };
        HsStatus status = part_open(run, i / run->heads.kv_heads, i % run->heads.kv_heads, &part);
        if (status == HS_OK)
            status = part_solve(run, &part);
        for (int kind = 0; status == HS_OK && kind < kinds; kind++)
            part_compare(run, &part, kind, part.qkv, &own[kind]);
        free(part.block);
#pragma omp critical
        {
            worst = status == HS_OK ? worst : status;
            for (int kind = 0; kind < kinds; kind++)
                for (int r = 0; r < AGREEMENT_RESULTS; r++) {
                    errors[kind].wrong[r] += own[kind].wrong[r];
                    if (!(own[kind].worst[r] <= errors[kind].worst[r]))
                        errors[kind].worst[r] = own[kind].worst[r];
                }
        }
    }
    return worst == HS_OK ? HS_OK : hs_fail(worst, "attention's reference ran out of memory");
}

/* --- sizes --- */

static inline void attention_close(Bench *bench, AttentionRun *run)
{
    bench_release(bench, &run->qkv);
    bench_release(bench, &run->dout);
    free(run->qkv_words);
    free(run->dout_words);
    for (int r = 0; r < AGREEMENT_RESULTS; r++) {
        bench_release(bench, &run->result[r]);
        free(run->words[0][r]);
        free(run->words[1][r]);
    }
}

static inline HsStatus attention_open(Bench *bench, const HsHeads *heads, HsDtype dtype, AttentionRun *run)
{
    const int64_t rows = heads->batch * heads->sequence_length, columns = hs_heads_columns(heads);
    const int64_t width = heads->heads * heads->head_dim;
    *run = (AttentionRun){ .heads = *heads, .scale = 1.0f / sqrtf((float)heads->head_dim) };
    run->qkv = hs_tensor_2d(NULL, dtype, rows, columns);
    run->dout = run->result[AGREEMENT_OUT] = hs_tensor_2d(NULL, dtype, rows, width);
    run->result[AGREEMENT_LSE] = hs_tensor_2d(NULL, HS_F32, rows, heads->heads);
    run->result[AGREEMENT_DQKV] = run->qkv;
    HS_TRY(attention_operand(bench, &run->qkv, 1, &run->qkv_words));
    HS_TRY(attention_operand(bench, &run->dout, 2, &run->dout_words));
    for (int r = 0; r < AGREEMENT_RESULTS; r++) {
        const size_t bytes = hs_tensor_bytes(&run->result[r]);
        for (int kind = 0; kind < 2; kind++)
            if ((run->words[kind][r] = malloc(bytes)) == NULL)
                return hs_fail(HS_ENOMEM, "%zu bytes", bytes);
        HS_TRY(bench->device.alloc(&bench->device, bytes, &run->result[r].data));
    }
    return HS_OK;
}

/* How many numbers of all results differ in their bits between the kinds: both are right, in other orders of sums. */
static inline int64_t attention_differing(const AttentionRun *run)
{
    int64_t differing = 0;
    for (int r = 0; r < AGREEMENT_RESULTS; r++) {
        const size_t size = hs_dtype_bytes(run->result[r].dtype);
        const unsigned char *a = run->words[0][r], *b = run->words[1][r];
        for (size_t at = 0; at < hs_tensor_bytes(&run->result[r]); at += size)
            differing += memcmp(a + at, b + at, size) != 0;
    }
    return differing;
}

static inline void attention_print(const Bench *bench, const AttentionRun *run, int kind, const AttentionError *error,
                                   int *failed)
{
    static const char *const kinds[] = { "mma.sync", "wgmma" };
    const HsHeads *h = &run->heads;
    printf("| %" PRId64 " x %" PRId64 ", %" PRId64 " heads (%" PRId64 ") of %" PRId64 " | %s | %s |", h->batch,
           h->sequence_length, h->heads, h->kv_heads, h->head_dim, hs_dtype_name(run->qkv.dtype), kinds[kind]);
    for (int r = 0; r < AGREEMENT_RESULTS; r++) {
        printf(" %" PRId64 " (%.3f) |", error->wrong[r], error->worst[r]);
        bench_json(bench,
                   "{\"bench\":\"agreement\",\"case\":\"attention\",\"batch\":%" PRId64 ",\"length\":%" PRId64
                   ",\"heads\":%" PRId64 ",\"kv_heads\":%" PRId64 ",\"head_dim\":%" PRId64
                   ",\"dtype\":\"%s\",\"kernel\":\"%s\",\"result\":\"%s\",\"wrong\":%" PRId64 ",\"of_tolerance\":%.4g}",
                   h->batch, h->sequence_length, h->heads, h->kv_heads, h->head_dim, hs_dtype_name(run->qkv.dtype),
                   kinds[kind], attention_results[r], error->wrong[r],
                   isfinite(error->worst[r]) ? error->worst[r] : 1e30);
        *failed += error->wrong[r] > 0;
    }
    if (kind == 1)
        printf(" %" PRId64 " |", attention_differing(run));
    printf(kind == 1 ? "\n" : " |\n");
    fflush(stdout);
}

static inline HsStatus agreement_attention_size(Bench *bench, HsContext *common, const HsHeads *heads, HsDtype dtype,
                                                int *failed)
{
    const bool both = common != &bench->context;
    AttentionError errors[2] = { 0 };
    AttentionRun run;
    HsStatus status = attention_open(bench, heads, dtype, &run);
    if (status == HS_OK)
        status = attention_calls(common, both ? &bench->context : NULL, &run);
    if (status == HS_OK)
        status = attention_compare(&run, both ? 2 : 1, errors);
    for (int kind = 0; status == HS_OK && kind < (both ? 2 : 1); kind++)
        attention_print(bench, &run, kind, &errors[kind], failed);
    attention_close(bench, &run);
    return status;
}

/* errors: HS_ENUMERIC where a kernel is wrong */
static inline HsStatus agreement_attention(Bench *bench)
{
    const HsHeads *sizes = bench->tiny ? tiny_attention_sizes : attention_sizes;
    const int count = (int)((bench->tiny ? sizeof tiny_attention_sizes : sizeof attention_sizes) / sizeof *sizes);
    static const HsDtype dtypes[] = { HS_BF16, HS_F16 };
    int failed = 0;
    HsDevice device;
    HsContext context;
    /* On a GPU without Hopper's kernels, all are for all GPUs. */
    const HsCudaOptions without = { .hopper = HS_HOPPER_NONE };
    HsStatus status = bench_device(&device, &context, bench->device_name, without);
    HsContext *const common = status == HS_OK ? &context : &bench->context;
    if (status != HS_OK && status != HS_ECONFIG)
        return status;
    status = HS_OK;
    printf("### Attention\n\nNumbers out of tolerance, and in brackets the worst error as a share of it.\n\n"
           "| batch x length, heads (of keys) | format | kernels | out | lse | dqkv | bits unlike mma.sync's "
           "|\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; status == HS_OK && i < count; i++)
        for (int d = 0; status == HS_OK && d < 2; d++)
            status = agreement_attention_size(bench, common, &sizes[i], dtypes[d], &failed);
    printf("\n");
    if (common == &context)
        bench_device_close(&device, &context);
    if (status != HS_OK)
        return status;
    return failed == 0 ? HS_OK : hs_fail(HS_ENUMERIC, "attention: %d results are wrong", failed);
}

#endif
