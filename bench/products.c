/* SPDX-License-Identifier: MIT
 *
 * The CUDA backend's own matrix products against cuBLASLt's, on the products of training, and its kernels of 16-bit
 * products against each other.
 *
 *     products [--device cuda|emu] [--seconds S] [--tiny] [--json FILE] [rates]
 *
 * A linear layer y[M,out] = x[M,in] w[out,in]^T: forward, dgrad dx = dy w, and wgrad dw += dy^T x into f32.  Both
 * contenders, and in bf16 every kernel of large tiles, forced (product_kernels.h), read and write the same tensors, in
 * turn; where there is no cuBLASLt its columns stay empty.  Rates are 2 M in out / median time.  Times only: whether
 * the products are right is what bench/agreement says.  rates: one line, of the largest square and of a copy.
 */
#include "bench/product_kernels.h"

typedef struct Layer {
    const char *model, *name;
    int64_t rows, in, out;
    bool f32_output; /* logits */
    bool every_dtype;
} Layer;

/* 32 sequences of 1024 tokens, and 8 of 2048 of Llama 3.2 1B; heads also in the chunks that their logits are made in.
 */
static const Layer layers[] = {
    { "GPT-2 124M", "qkv", 32768, 768, 2304, false, true },
    { "GPT-2 124M", "attention out", 32768, 768, 768, false, true },
    { "GPT-2 124M", "mlp up", 32768, 768, 3072, false, true },
    { "GPT-2 124M", "mlp down", 32768, 3072, 768, false, true },
    { "GPT-2 124M", "head", 32768, 768, 50304, true, false },
    { "GPT-2 124M", "chunk of the head", 8192, 768, 50304, true, true },
    { "Llama 1B", "qkv", 16384, 2048, 3072, false, false },
    { "Llama 1B", "attention out", 16384, 2048, 2048, false, false },
    { "Llama 1B", "gate and up", 16384, 2048, 16384, false, false },
    { "Llama 1B", "down", 16384, 8192, 2048, false, false },
    { "Llama 1B", "chunk of the head", 4096, 2048, 128256, true, false },
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
    HsProductPolicy policy;
} modes[] = {
    { "bf16", HS_BF16, HS_POLICY_AS_IS },
    { "f16", HS_F16, HS_POLICY_AS_IS },
    { "tf32", HS_F32, HS_POLICY_TF32 },
    { "f32", HS_F32, HS_POLICY_AS_IS },
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

/* What is kept of all products. */
typedef struct Record {
    Ratios ratios[MODES][PASSES];
    Ladder ladder;
    /* bf16 products at the aim (share of the rival's rate), all of them, and the names of the others */
    int reached, aimed;
    char missed[2048];
} Record;

static const double layer_aim = 0.95, square_aim = 1.0;

static HsStatus call_matmul(HsContext *context, const void *arguments)
{
    return hs_op_matmul(context, arguments);
}

static HsMatmulArgs product_of(Pass pass, HsTensor x, HsTensor w, HsTensor y, HsTensor dy, HsTensor dw)
{
    switch (pass) {
    case FORWARD:
        return (HsMatmulArgs){ .a.values = x, .b.values = w, .transpose_b = true, .alpha = 1.0f, .c = y };
    case DGRAD:
        return (HsMatmulArgs){ .a.values = dy, .b.values = w, .alpha = 1.0f, .c = x };
    default:
        return (HsMatmulArgs){
            .a.values = dy, .b.values = x, .transpose_a = true, .accumulate = true, .alpha = 1.0f, .c = dw
        };
    }
}

static int ladder_column(const Layer *layer, Pass pass)
{
    if (strcmp(layer->model, "square") != 0)
        return LADDER_LAYERS + (int)pass;
    return layer->rows == 4096 ? LADDER_4096 : LADDER_8192;
}

static void note_aim(Record *record, const Layer *layer, Pass pass, double ratio)
{
    const bool square = strcmp(layer->model, "square") == 0;
    if (square && layer->rows != 8192)
        return;
    record->aimed++;
    if (ratio >= (square ? square_aim : layer_aim)) {
        record->reached++;
        return;
    }
    const size_t used = strlen(record->missed);
    snprintf(record->missed + used, sizeof record->missed - used, "%s%s %s %s %.2f", used > 0 ? ", " : "", layer->model,
             layer->name, pass_names[pass], ratio);
}

/* The product as chosen, by the rival where there is one, then by each step of the ladder in bf16. */
static HsStatus bench_pass(Bench *bench, Rival *rival, const Layer *layer, int mode, Pass pass,
                           const HsMatmulArgs *args, Record *record)
{
    Ladder *ladder = &record->ladder;
    HsContext contexts[BENCH_MOST_CONTENDERS];
    ForcedProduct forced[BENCH_MOST_CONTENDERS];
    BenchContender contenders[BENCH_MOST_CONTENDERS] = {
        { .context = &bench->context, .call = call_matmul, .arguments = args },
        { .context = &rival->context, .call = call_matmul, .arguments = args }
    };
    const int first = rival->usable ? 2 : 1, steps = mode == 0 ? ladder->step_count : 0;
    for (int i = 0; i < steps; i++) {
        contexts[i] = bench->context;
        forced[i] = (ForcedProduct){ args, product_kernels[ladder->steps[i]].name, 0, bench->tuner };
        contenders[first + i] =
            (BenchContender){ .context = &contexts[i], .call = call_forced, .arguments = &forced[i] };
    }
    HS_TRY(bench_contend(bench, contenders, first + steps));
    const double flops = 2.0 * (double)layer->rows * (double)layer->in * (double)layer->out;
    const double own = flops / contenders[0].median_ms * 1e-9;
    printf("| %s | %s | %" PRId64 " x %" PRId64 " x %" PRId64 " | %s | %s | %.4g |", layer->model, layer->name,
           layer->rows, layer->in, layer->out, pass_names[pass], modes[mode].name, own);
    char other[96] = "", each[512] = "";
    const int column = ladder_column(layer, pass);
    if (rival->usable) {
        const double theirs = flops / contenders[1].median_ms * 1e-9;
        Ratios *ratios = &record->ratios[mode][pass];
        printf(" %.4g | %.2f |", theirs, own / theirs);
        snprintf(other, sizeof other, ",\"cublaslt_tflops\":%.4g,\"ratio\":%.4g", theirs, own / theirs);
        ratios->log_sum += log(own / theirs);
        ratios->count++;
        if (mode == 0) {
            note_aim(record, layer, pass, own / theirs);
            ladder_add(ladder, LADDER_RIVAL, column, theirs);
        }
    } else {
        printf(" | |");
    }
    double rates[BENCH_MOST_CONTENDERS];
    for (int i = 0; i < steps; i++)
        rates[i] = flops / contenders[first + i].median_ms * 1e-9;
    if (steps > 0)
        ladder_note(ladder, column, own, rates, each, sizeof each);
    for (int i = steps; i < ladder->step_count; i++)
        printf(" |");
    printf("\n");
    fflush(stdout);
    bench_json(bench,
               "{\"bench\":\"product\",\"model\":\"%s\",\"layer\":\"%s\",\"rows\":%" PRId64 ",\"in\":%" PRId64
               ",\"out\":%" PRId64 ",\"pass\":\"%s\",\"mode\":\"%s\",\"ms\":%.6g,\"tflops\":%.4g%s%s}",
               layer->model, layer->name, layer->rows, layer->in, layer->out, pass_names[pass], modes[mode].name,
               contenders[0].median_ms, own, other, each);
    return HS_OK;
}

static HsStatus bench_layer(Bench *bench, Rival *rival, const Layer *layer, int mode, Record *record)
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
    const bool fits = status != HS_ENOMEM;
    /* wgrad before dgrad, which overwrites x with larger numbers */
    static const Pass order[] = { FORWARD, WGRAD, DGRAD };
    for (int p = 0; status == HS_OK && p < PASSES; p++) {
        HsMatmulArgs args = product_of(order[p], x, w, y, dy, dw);
        args.policy = modes[mode].policy;
        status = bench_pass(bench, rival, layer, mode, order[p], &args, record);
    }
    for (int i = 0; i < 5; i++)
        bench_release(bench, all[i]);
    if (fits)
        return status;
    printf("| %s | %s | does not fit in this GPU's memory |\n", layer->model, layer->name);
    return HS_OK;
}

static void report(const Bench *bench, const Rival *rival, const Record *record)
{
    for (int mode = 0; rival->usable && mode < MODES; mode++) {
        printf("\nGeometric mean of own / cuBLASLt, %s:", modes[mode].name);
        for (int pass = 0; pass < PASSES; pass++) {
            const Ratios *ratios = &record->ratios[mode][pass];
            if (ratios->count > 0)
                printf(" %s %.3f", pass_names[pass], exp(ratios->log_sum / ratios->count));
        }
        printf("\n");
    }
    if (record->aimed > 0)
        printf("\nAt %.2f of cuBLASLt or more (8192^3: %.2f), bf16: %d of %d%s%s.\n", layer_aim, square_aim,
               record->reached, record->aimed, record->missed[0] ? "; not " : "", record->missed);
    ladder_print(bench, &record->ladder);
}

static HsStatus bench_layers(Bench *bench, Rival *rival)
{
    const Layer *list = bench->tiny ? tiny_layers : layers;
    const int count = (int)(bench->tiny ? sizeof tiny_layers : sizeof layers) / (int)sizeof *layers;
    static Record record;
    ladder_init(&record.ladder, bench);
    printf("| model | layer | rows x in x out | pass | mode | TFLOP/s | cuBLASLt | ratio |");
    for (int i = 0; i < record.ladder.step_count; i++)
        printf(" %s |", product_kernels[record.ladder.steps[i]].name);
    printf("\n|---|---|---|---|---|---|---|---|");
    for (int i = 0; i < record.ladder.step_count; i++)
        printf("---|");
    printf("\n");
    for (int mode = 0; mode < MODES; mode++)
        for (int l = 0; l < count; l++)
            if (mode == 0 || list[l].every_dtype)
                HS_TRY(bench_layer(bench, rival, &list[l], mode, &record));
    report(bench, rival, &record);
    return HS_OK;
}

/* The library is opened when it is first needed: one small product shows whether that works. */
static HsStatus open_rival(Bench *bench, Rival *rival)
{
    HS_TRY(bench_device(&rival->device, &rival->context, bench->device_name, (HsCudaOptions){ .cublaslt = true }));
    HsTensor x = hs_tensor_2d(NULL, HS_BF16, 64, 64), y = x;
    HS_TRY(bench_normal(bench, &x, 0.5));
    HsStatus status = bench_normal(bench, &y, 0.5);
    const HsMatmulArgs args = { .a.values = x, .b.values = x, .transpose_b = true, .alpha = 1.0f, .c = y };
    BenchContender contender = { .context = &rival->context, .call = call_matmul, .arguments = &args };
    if (status == HS_OK)
        status = bench_contend(bench, &contender, 1);
    bench_release(bench, &x);
    bench_release(bench, &y);
    return status;
}

/* What a machine can do at most, in a second: whether this is the GPU that one thinks it is, and runs as it should. */
static HsStatus print_rates(Bench *bench, Rival *rival)
{
    const int64_t side = bench->tiny ? 128 : 8192;
    HsTensor x = hs_tensor_2d(NULL, HS_BF16, side, side), w = x, y = x;
    HsTensor *const all[] = { &x, &w, &y };
    BenchCopy copy;
    HsStatus status = bench_open_copy(bench, &copy, bench->tiny ? 1u << 12 : 1u << 30);
    for (int i = 0; status == HS_OK && i < 3; i++)
        status = bench_normal(bench, all[i], 0.5);
    const HsMatmulArgs args = { .a.values = x, .b.values = w, .transpose_b = true, .alpha = 1.0f, .c = y };
    HsContext second = bench->context;
    BenchContender contenders[] = { { .context = &bench->context, .call = call_matmul, .arguments = &args },
                                    { .context = &second, .call = bench_call_copy, .arguments = &copy },
                                    { .context = &rival->context, .call = call_matmul, .arguments = &args } };
    if (status == HS_OK)
        status = bench_contend(bench, contenders, rival->usable ? 3 : 2);
    const double flops = 2.0 * (double)side * (double)side * (double)side;
    if (status == HS_OK) {
        printf("rates: %" PRId64 "^3 in bf16 %.4g TFLOP/s", side, flops / contenders[0].median_ms * 1e-9);
        if (rival->usable)
            printf(" (cuBLASLt %.4g)", flops / contenders[2].median_ms * 1e-9);
        printf(", a copy %.4g TB/s\n", 2.0 * (double)copy.bytes / contenders[1].median_ms * 1e-9);
    }
    for (int i = 0; i < 3; i++)
        bench_release(bench, all[i]);
    return status;
}

int main(int argc, char **argv)
{
    Bench bench;
    Rival rival = { .usable = false };
    const char *more;
    HsStatus status = bench_open(&bench, argc, argv, &more);
    if (status == HS_OK && more && strcmp(more, "rates") != 0)
        status = hs_fail(HS_EINVAL, "%s is not known; rates, or nothing for all products", more);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s", bench_note(&bench));
    rival.usable = open_rival(&bench, &rival) == HS_OK;
    if (!rival.usable)
        printf("No rival: %s\n\n", hs_error_message());
    status = more ? print_rates(&bench, &rival) : bench_layers(&bench, &rival);
    const int result = status == HS_OK ? 0 : bench_fail(&bench);
    bench_device_close(&rival.device, &rival.context);
    bench_close(&bench);
    return result;
}
