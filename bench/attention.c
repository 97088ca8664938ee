/* SPDX-License-Identifier: MIT
 *
 * Attention forward and backward, by head dimension and length.
 *
 *     attention [--device cuda|emu] [--seconds S] [--tiny] [--json FILE] [RIVAL]
 *
 * Causal, no dropout, bf16.  First a step of GPT-2 124M, 32 x 1,024 with 12 heads of 64, as kernels/cuda/PREDICTED.md has
 * it; then 16,384 tokens and a width of 2,048 throughout: the batch shrinks as the sequences grow, the heads become fewer
 * as they grow wider.  Operations counted: forward 2 N T H D (half of a full square), backward 2.5 times that.  Two sizes
 * have aims for an H200, which are printed next to them.  RIVAL is a file of lines "BATCH LENGTH HEADS HEAD_DIM FORWARD
 * BACKWARD" in TFLOP/s, as bench/peers/attention_torch.py writes it on the same machine; the table then has its columns.
 */
#include <math.h>

#include "bench/bench.h"

typedef struct Sizes {
    int64_t tokens, width;
    const int64_t *head_dims, *lengths;
    int head_dim_count, length_count;
} Sizes;

static const int64_t head_dims[] = { 32, 64, 96, 128, 256 }, lengths[] = { 512, 1024, 2048, 4096, 8192, 16384 };
static const int64_t tiny_head_dims[] = { 32, 64 }, tiny_lengths[] = { 48, 64 };
static const Sizes full = { 16384, 2048, head_dims, lengths, 5, 6 };
static const Sizes tiny = { 192, 128, tiny_head_dims, tiny_lengths, 2, 2 };

/* What comes first.  Aims in TFLOP/s on an H200: a twentieth more than the better of this project and PyTorch 2.11 has
 * measured there (bench/results/nvidia-h200). */
typedef struct Aim {
    int64_t head_dim, length;
    double forward, backward; /* 0: none */
    int64_t batch, heads;     /* 0: by Sizes */
} Aim;
static const Aim aims[] = { { 64, 1024, 0.0, 0.0, 32, 12 },
                            { 64, 1024, 350.0, 290.0, 0, 0 },
                            { 128, 8192, 640.0, 515.0, 0, 0 } };
enum { AIMS = sizeof aims / sizeof *aims };

typedef struct Rates {
    double forward, backward; /* TFLOP/s; NaN: unknown */
} Rates;

static HsStatus call_forward(HsContext *context, const void *arguments)
{
    return hs_op_attention_forward(context, arguments);
}

static HsStatus call_backward(HsContext *context, const void *arguments)
{
    return hs_op_attention_backward(context, arguments);
}

/* The rival's figures for one row. */
static Rates look_up(const char *path, const HsHeads *heads)
{
    Rates found = { NAN, NAN };
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file == NULL)
        return found;
    long long b, t, h, d;
    double forward, backward;
    while (fscanf(file, "%lld %lld %lld %lld %lf %lf", &b, &t, &h, &d, &forward, &backward) == 6)
        if (b == heads->batch && t == heads->sequence_length && h == heads->heads && d == heads->head_dim)
            found = (Rates){ forward, backward };
    fclose(file);
    return found;
}

static HsStatus measure(Bench *bench, const HsHeads *heads, Rates *rates)
{
    const int64_t rows = heads->batch * heads->sequence_length, width = heads->heads * heads->head_dim;
    HsTensor qkv = hs_tensor_2d(NULL, HS_BF16, rows, 3 * width), dqkv = qkv;
    HsTensor out = hs_tensor_2d(NULL, HS_BF16, rows, width), dout = out;
    HsTensor lse = hs_tensor_2d(NULL, HS_F32, rows, heads->heads);
    HsTensor *const all[] = { &qkv, &dqkv, &out, &dout, &lse };
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < 5; i++)
        status = bench_normal(bench, all[i], 1.0);
    const float scale = 1.0f / sqrtf((float)heads->head_dim);
    const HsAttentionArgs forward = { .heads = *heads, .rule.scale = scale, .qkv = qkv, .out = out, .lse = lse };
    const HsAttentionBackwardArgs backward = {
        .heads = *heads, .rule.scale = scale, .dout = dout, .qkv = qkv, .out = out, .lse = lse, .dqkv = dqkv
    };
    HsContext second = bench->context;
    BenchContender contenders[] = { { .context = &bench->context, .call = call_forward, .arguments = &forward },
                                    { .context = &second, .call = call_backward, .arguments = &backward } };
    if (status == HS_OK)
        status = bench_contend(bench, contenders, 2);
    const double flops = 2.0 * (double)rows * (double)heads->sequence_length * (double)width;
    *rates = (Rates){ flops / contenders[0].median_ms * 1e-9, 2.5 * flops / contenders[1].median_ms * 1e-9 };
    for (int i = 0; i < 5; i++)
        bench_release(bench, all[i]);
    return status;
}

/* A row of the table; `aim`: of the sizes that come first. */
static void report(const Bench *bench, const HsHeads *heads, Rates own, Rates rival, const Aim *aim)
{
    printf("| %" PRId64 " | %" PRId64 " x %" PRId64 " | %.4g | %.4g |", heads->head_dim, heads->batch,
           heads->sequence_length, own.forward, own.backward);
    if (aim && aim->forward == 0.0)
        printf(" | |");
    else if (aim)
        printf(" %.4g | %.4g |", aim->forward, aim->backward);
    char other[128] = "";
    if (isnan(rival.forward)) {
        printf(" | | | |\n");
    } else {
        printf(" %.4g | %.4g | %.2f | %.2f |\n", rival.forward, rival.backward, own.forward / rival.forward,
               own.backward / rival.backward);
        snprintf(other, sizeof other, ",\"torch_forward_tflops\":%.4g,\"torch_backward_tflops\":%.4g", rival.forward,
                 rival.backward);
    }
    fflush(stdout);
    bench_json(bench,
               "{\"bench\":\"attention\",\"head_dim\":%" PRId64 ",\"length\":%" PRId64 ",\"batch\":%" PRId64
               ",\"heads\":%" PRId64 ",\"forward_tflops\":%.4g,\"backward_tflops\":%.4g%s}",
               heads->head_dim, heads->sequence_length, heads->batch, heads->heads, own.forward, own.backward, other);
}

static void report_head(const char *aims_columns)
{
    const bool with_aims = aims_columns[0] != '\0';
    printf("| head dim | batch x length | forward TFLOP/s | backward TFLOP/s |%s PyTorch forward | PyTorch backward | "
           "forward "
           "ratio | backward ratio |\n|---|---|---|---|%s---|---|---|---|\n",
           aims_columns, with_aims ? "---|---|" : "");
}

static HsStatus bench_size(Bench *bench, const Sizes *sizes, int64_t head_dim, int64_t length, const char *rival,
                           const Aim *aim)
{
    HsHeads heads = { .batch = sizes->tokens / length,
                      .sequence_length = length,
                      .heads = sizes->width / head_dim,
                      .kv_heads = sizes->width / head_dim,
                      .head_dim = head_dim };
    if (aim && aim->batch > 0) {
        heads.batch = aim->batch;
        heads.heads = heads.kv_heads = aim->heads;
    }
    Rates own;
    HS_TRY(measure(bench, &heads, &own));
    report(bench, &heads, own, look_up(rival, &heads), aim);
    return HS_OK;
}

static const Aim *aim_of(const Sizes *sizes, int64_t head_dim, int64_t length)
{
    for (int i = 0; sizes == &full && i < AIMS; i++)
        if (aims[i].head_dim == head_dim && aims[i].length == length)
            return &aims[i];
    return NULL;
}

static HsStatus bench_sizes(Bench *bench, const Sizes *sizes, const char *rival)
{
    if (sizes == &full) {
        report_head(" forward aim | backward aim |");
        for (int i = 0; i < AIMS; i++)
            HS_TRY(bench_size(bench, sizes, aims[i].head_dim, aims[i].length, rival, &aims[i]));
        printf("\n");
    }
    report_head("");
    for (int d = 0; d < sizes->head_dim_count; d++)
        for (int l = 0; l < sizes->length_count; l++)
            if (aim_of(sizes, sizes->head_dims[d], sizes->lengths[l]) == NULL)
                HS_TRY(bench_size(bench, sizes, sizes->head_dims[d], sizes->lengths[l], rival, NULL));
    return HS_OK;
}

int main(int argc, char **argv)
{
    Bench bench;
    const char *rival;
    HsStatus status = bench_open(&bench, argc, argv, &rival);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s", bench_note(&bench));
    status = bench_sizes(&bench, bench.tiny ? &tiny : &full, rival);
    const int result = status == HS_OK ? 0 : bench_fail(&bench);
    bench_close(&bench);
    return result;
}
