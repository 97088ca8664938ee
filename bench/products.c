/* SPDX-License-Identifier: MIT
 *
 * The CUDA backend's own matrix products against cuBLASLt's, on the products of training.
 *
 *     products [--device cuda|emu] [--seconds S] [--tiny] [--json FILE]
 *
 * A linear layer y[M,out] = x[M,in] w[out,in]^T: forward, dgrad dx = dy w, and wgrad dw += dy^T x into f32.  Both
 * contenders read and write the same tensors, in turn; where there is no cuBLASLt its columns stay empty.  Rates are
 * 2 M in out / median time.
 */
#include <math.h>

#include "bench/bench.h"

typedef struct Layer {
    const char *model, *name;
    int64_t rows, in, out;
    bool f32_output; /* logits */
    bool every_dtype;
} Layer;

/* 16 sequences of 1024 tokens; the head in the chunks that its logits are made in. */
static const Layer layers[] = {
    { "GPT-2 124M", "qkv", 16384, 768, 2304, false, true },
    { "GPT-2 124M", "attention out", 16384, 768, 768, false, true },
    { "GPT-2 124M", "mlp up", 16384, 768, 3072, false, true },
    { "GPT-2 124M", "mlp down", 16384, 3072, 768, false, true },
    { "GPT-2 124M", "head", 8192, 768, 50304, true, true },
    { "GPT-2 350M", "qkv", 16384, 1024, 3072, false, false },
    { "GPT-2 350M", "mlp up", 16384, 1024, 4096, false, false },
    { "GPT-2 350M", "mlp down", 16384, 4096, 1024, false, false },
    { "Llama 1.1B", "qkv", 8192, 2048, 2560, false, false },
    { "Llama 1.1B", "gate and up", 8192, 2048, 11264, false, false },
    { "Llama 1.1B", "down", 8192, 5632, 2048, false, false },
    { "square", "4096", 4096, 4096, 4096, false, true },
    { "square", "8192", 8192, 8192, 8192, false, false },
};

static const Layer tiny_layers[] = {
    { "tiny", "layer", 96, 64, 160, false, true },
    { "tiny", "head", 64, 64, 264, true, true },
};

typedef enum Pass { FORWARD, DGRAD, WGRAD, PASSES } Pass;
static const char *const pass_names[] = { "forward", "dgrad", "wgrad" };

static const struct {
    const char *name;
    HsDtype dtype;
    bool tf32;
} modes[] = {
    { "bf16", HS_BF16, false }, { "f16", HS_F16, false }, { "tf32", HS_F32, true }, { "f32", HS_F32, false }
};
enum { MODES = sizeof modes / sizeof *modes };

/* The rival's own device: the choice of products is a device's option. */
typedef struct Rival {
    HsDevice device;
    HsContext context;
    bool usable;
} Rival;

/* Sum of logarithms of the ratios, for their geometric mean. */
typedef struct Ratios {
    double log_sum;
    int count;
} Ratios;

static HsStatus call_matmul(HsContext *context, const void *arguments)
{
    return hs_op_matmul(context, arguments);
}

static HsMatmulArgs product_of(Pass pass, HsTensor x, HsTensor w, HsTensor y, HsTensor dy, HsTensor dw)
{
    switch (pass) {
    case FORWARD:
        return (HsMatmulArgs){ .a = x, .b = w, .transpose_b = true, .c = y };
    case DGRAD:
        return (HsMatmulArgs){ .a = dy, .b = w, .c = x };
    default:
        return (HsMatmulArgs){ .a = dy, .b = x, .transpose_a = true, .accumulate = true, .c = dw };
    }
}

static HsStatus bench_pass(Bench *bench, Rival *rival, const Layer *layer, int mode, Pass pass,
                           const HsMatmulArgs *args, Ratios *ratios)
{
    BenchContender contenders[] = { { .context = &bench->context, .call = call_matmul, .arguments = args },
                                    { .context = &rival->context, .call = call_matmul, .arguments = args } };
    HS_TRY(bench_contend(bench, contenders, rival->usable ? 2 : 1));
    const double flops = 2.0 * (double)layer->rows * (double)layer->in * (double)layer->out;
    const double own = flops / contenders[0].median_ms * 1e-9;
    printf("| %s | %s | %" PRId64 " x %" PRId64 " x %" PRId64 " | %s | %s | %.4g |", layer->model, layer->name,
           layer->rows, layer->in, layer->out, pass_names[pass], modes[mode].name, own);
    char other[96] = "";
    if (rival->usable) {
        const double theirs = flops / contenders[1].median_ms * 1e-9;
        printf(" %.4g | %.2f |\n", theirs, own / theirs);
        snprintf(other, sizeof other, ",\"cublaslt_tflops\":%.4g,\"ratio\":%.4g", theirs, own / theirs);
        ratios->log_sum += log(own / theirs);
        ratios->count++;
    } else {
        printf(" | |\n");
    }
    fflush(stdout);
    bench_json(bench,
               "{\"bench\":\"product\",\"model\":\"%s\",\"layer\":\"%s\",\"rows\":%" PRId64 ",\"in\":%" PRId64
               ",\"out\":%" PRId64 ",\"pass\":\"%s\",\"mode\":\"%s\",\"ms\":%.6g,\"tflops\":%.4g%s}",
               layer->model, layer->name, layer->rows, layer->in, layer->out, pass_names[pass], modes[mode].name,
               contenders[0].median_ms, own, other);
    return HS_OK;
}

static HsStatus bench_layer(Bench *bench, Rival *rival, const Layer *layer, int mode, Ratios *ratios)
{
    const HsDtype dtype = modes[mode].dtype, wide = layer->f32_output ? HS_F32 : dtype;
    HsTensor x = hs_tensor_2d(NULL, dtype, layer->rows, layer->in);
    HsTensor w = hs_tensor_2d(NULL, dtype, layer->out, layer->in);
    HsTensor y = hs_tensor_2d(NULL, wide, layer->rows, layer->out);
    HsTensor dy = hs_tensor_2d(NULL, dtype, layer->rows, layer->out);
    HsTensor dw = hs_tensor_2d(NULL, HS_F32, layer->out, layer->in);
    HsTensor *const all[] = { &x, &w, &y, &dy, &dw };
    HsStatus status = HS_OK;
    for (int i = 0; status == HS_OK && i < 5; i++)
        status = bench_normal(bench, all[i], 0.5);
    /* wgrad before dgrad, which overwrites x with larger numbers */
    static const Pass order[] = { FORWARD, WGRAD, DGRAD };
    for (int p = 0; status == HS_OK && p < PASSES; p++) {
        HsMatmulArgs args = product_of(order[p], x, w, y, dy, dw);
        args.tf32 = modes[mode].tf32;
        status = bench_pass(bench, rival, layer, mode, order[p], &args, &ratios[order[p]]);
    }
    for (int i = 0; i < 5; i++)
        bench_release(bench, all[i]);
    return status;
}

static HsStatus bench_layers(Bench *bench, Rival *rival)
{
    const Layer *list = bench->tiny ? tiny_layers : layers;
    const int count = (int)(bench->tiny ? sizeof tiny_layers : sizeof layers) / (int)sizeof *layers;
    printf("| model | layer | rows x in x out | pass | mode | TFLOP/s | cuBLASLt | ratio "
           "|\n|---|---|---|---|---|---|---|---|\n");
    Ratios ratios[MODES][PASSES] = { { { 0.0, 0 } } };
    for (int mode = 0; mode < MODES; mode++)
        for (int l = 0; l < count; l++)
            if (mode == 0 || list[l].every_dtype)
                HS_TRY(bench_layer(bench, rival, &list[l], mode, ratios[mode]));
    for (int mode = 0; rival->usable && mode < MODES; mode++) {
        printf("\nGeometric mean of own / cuBLASLt, %s:", modes[mode].name);
        for (int pass = 0; pass < PASSES; pass++)
            if (ratios[mode][pass].count > 0)
                printf(" %s %.3f", pass_names[pass], exp(ratios[mode][pass].log_sum / ratios[mode][pass].count));
        printf("\n");
    }
    return HS_OK;
}

/* The library is opened when it is first needed: one small product tells. */
static HsStatus open_rival(Bench *bench, Rival *rival)
{
    HS_TRY(bench_device(&rival->device, &rival->context, bench->device_name, true));
    HsTensor x = hs_tensor_2d(NULL, HS_BF16, 64, 64), y = x;
    HS_TRY(bench_normal(bench, &x, 0.5));
    HsStatus status = bench_normal(bench, &y, 0.5);
    const HsMatmulArgs args = { .a = x, .b = x, .transpose_b = true, .c = y };
    BenchContender contender = { .context = &rival->context, .call = call_matmul, .arguments = &args };
    if (status == HS_OK)
        status = bench_contend(bench, &contender, 1);
    bench_release(bench, &x);
    bench_release(bench, &y);
    return status;
}

int main(int argc, char **argv)
{
    Bench bench;
    Rival rival = { .usable = false };
    const char *more;
    HsStatus status = bench_open(&bench, argc, argv, &more);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s", bench_note(&bench));
    rival.usable = open_rival(&bench, &rival) == HS_OK;
    if (!rival.usable)
        printf("No rival: %s\n\n", hs_error_message());
    status = bench_layers(&bench, &rival);
    const int result = status == HS_OK ? 0 : bench_fail(&bench);
    hs_device_deinit(&rival.device);
    bench_close(&bench);
    return result;
}
