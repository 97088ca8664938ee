/* SPDX-License-Identifier: MIT
 *
 * The cpu backend's matrix products against oneDNN's and OpenBLAS's, on the products of training.
 *
 *     rivals [--seconds S] [--quick] [--json FILE] [THREADS ...]       default: 1 and the machine's processors
 *
 * A linear layer y[M,out] = x[M,in] w[out,in]^T: forward and dgrad dx = dy w with the weight packed ahead (oneDNN's
 * too, in the layout that it chooses; OpenBLAS has no such interface), and wgrad dw += dy^T x into f32.  Libraries are
 * opened at run time (libdnnl.so.3 or .2, libopenblas.so.0), and one that is missing leaves its columns empty.
 *
 * Before a product is timed, elements of everyone's result are compared with the exact sum (in double), within what its
 * length and its formats allow.  Contenders are timed in turn, S seconds (0.3) for all together and at least five
 * rounds each; with several threads they are apart by longer than anyone's idle threads spin.  Rates are 2 M in out /
 * median time, and shares of the peak that chains of the multiply-add instruction reach in the same run.  OpenBLAS
 * computes f32 only.
 */
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "bench/cpu_products.h"
#include "bench/onednn.h"
#include "bench/openblas.h"
#include "kernels/base/clock.h"
#include "kernels/base/tolerance.h"
#include "kernels/cpu/cpu.h"

typedef struct Layer {
    const char *model, *name;
    int64_t rows, in, out;
    bool f32_output; /* logits */
    bool quick;      /* one of the few of --quick */
} Layer;

/* The products of one step: 12 x 64 tokens, 16 x 256 (a quarter of the recipe's batch), 1 x 1024. */
static const Layer layers[] = {
    { "Shakespeare, small", "qkv", 768, 128, 384, false, false },
    { "Shakespeare, small", "attention out", 768, 128, 128, false, true },
    { "Shakespeare, small", "mlp up", 768, 128, 512, false, true },
    { "Shakespeare, small", "mlp down", 768, 512, 128, false, false },
    { "Shakespeare, small", "head", 768, 128, 65, true, true },
    { "Shakespeare, full", "qkv", 4096, 384, 1152, false, false },
    { "Shakespeare, full", "attention out", 4096, 384, 384, false, false },
    { "Shakespeare, full", "mlp up", 4096, 384, 1536, false, false },
    { "Shakespeare, full", "mlp down", 4096, 1536, 384, false, false },
    { "GPT-2 124M", "qkv", 1024, 768, 2304, false, false },
    { "GPT-2 124M", "attention out", 1024, 768, 768, false, false },
    { "GPT-2 124M", "mlp up", 1024, 768, 3072, false, false },
    { "GPT-2 124M", "mlp down", 1024, 3072, 768, false, false },
    { "GPT-2 124M", "head", 1024, 768, 50304, true, false },
    { "square", "512", 512, 512, 512, false, true },
    { "square", "1024", 1024, 1024, 1024, false, false },
};
enum { LAYERS = sizeof layers / sizeof *layers };

typedef enum Pass { FORWARD, DGRAD, WGRAD, PASSES } Pass;
static const char *const pass_names[] = { "forward", "dgrad", "wgrad" };

typedef enum Rival { OURS, ONEDNN, OPENBLAS, CONTENDERS } Rival;
static const char *const rival_names[] = { "halfstep", "onednn", "openblas" };

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 51, MOST_THREAD_COUNTS = 16 };

typedef struct Rivals {
    HsContext context;
    OneDnn onednn;
    OpenBlas openblas;
    double seconds;
    bool quick;
    FILE *json;
    double peak; /* best so far of the present format and number of threads */
    /* per pass and rival: sum of logarithms of own / rival, and their count */
    double log_ratios[PASSES][CONTENDERS];
    int ratio_count;
} Rivals;

/* One product, ready for every contender that has it. */
typedef struct Product {
    const Layer *layer;
    Pass pass;
    HsMatmulArgs args;
    OneDnnProduct onednn;
    bool enters[CONTENDERS];
    double median_s[CONTENDERS];
} Product;

static HsStatus run(Rivals *rivals, const Product *product, Rival rival)
{
    switch (rival) {
    case OURS:
        return rivals->context.backend->matmul(&rivals->context, &product->args);
    case ONEDNN:
        return onednn_product(&rivals->onednn, &product->onednn);
    default:
        openblas_product(&rivals->openblas, &product->args);
        return HS_OK;
    }
}

/* Element (row, column) of the exact op(a) op(b), and the sum of its terms' absolute values. */
static double exact(const HsMatmulArgs *args, int64_t row, int64_t column, double *magnitude)
{
    const int64_t terms = args->a.values.shape[args->transpose_a ? 0 : 1];
    double sum = 0.0;
    *magnitude = 0.0;
    for (int64_t i = 0; i < terms; i++) {
        const int64_t a = args->transpose_a ? i * args->a.values.shape[1] + row : row * args->a.values.shape[1] + i;
        const int64_t b =
            args->transpose_b ? column * args->b.values.shape[1] + i : i * args->b.values.shape[1] + column;
        const double term = hs_dtype_load(args->a.values.dtype, args->a.values.data, a) *
                            hs_dtype_load(args->b.values.dtype, args->b.values.data, b);
        sum += term;
        *magnitude += fabs(term);
    }
    return sum;
}

/* One product by `rival` into a cleared c: its first and last elements and a hundred between. */
static HsStatus verify(Rivals *rivals, const Product *product, Rival rival)
{
    enum { BETWEEN = 100 };
    const HsTensor *c = &product->args.c;
    const int64_t count = hs_tensor_count(c), terms = product->args.a.values.shape[product->args.transpose_a ? 0 : 1];
    memset(c->data, 0, hs_tensor_bytes(c));
    HS_TRY(run(rivals, product, rival));
    for (int64_t i = 0; i <= BETWEEN; i++) {
        const int64_t at = (int64_t)((double)(count - 1) * (double)i / BETWEEN);
        double magnitude;
        const double wanted = exact(&product->args, at / c->shape[1], at % c->shape[1], &magnitude);
        const double got = hs_dtype_load(c->dtype, c->data, at);
        const double allowed = hs_tolerance(terms, 1, HS_F32, c->dtype, magnitude, wanted);
        if (!(fabs(got - wanted) <= allowed))
            return hs_fail(HS_EINVAL, "%s computes %.9g for element %" PRId64 " of %s, %s, where %.9g +- %.2g is right",
                           rival_names[rival], got, at, product->layer->name, pass_names[product->pass], wanted,
                           allowed);
    }
    return HS_OK;
}

/* Idle threads of OpenMP and of OpenBLAS spin for milliseconds before they sleep: no turn begins among them. */
static void settle(const Rivals *rivals)
{
    const struct timespec pause = { .tv_nsec = 40 * 1000 * 1000 };
    if (rivals->context.threads > 1)
        nanosleep(&pause, NULL);
}

/* Seconds of a call, from `repeats` after those that wake threads and fill caches.  A thread that wakes may find itself
 * on the processor of the one that waits for it, until the system moves it: one call is not enough. */
static HsStatus sample(Rivals *rivals, const Product *product, Rival rival, int repeats, double *seconds)
{
    static const double waking_s = 0.02;
    settle(rivals);
    const double woken = hs_clock_s() + (rivals->context.threads > 1 && !rivals->quick ? waking_s : 0.0);
    do
        HS_TRY(run(rivals, product, rival));
    while (hs_clock_s() < woken);
    const double start = hs_clock_s();
    for (int i = 0; i < repeats; i++)
        HS_TRY(run(rivals, product, rival));
    *seconds = (hs_clock_s() - start) / repeats;
    return HS_OK;
}

static HsStatus contend(Rivals *rivals, Product *product)
{
    static const double sample_s = 0.004;
    double times[CONTENDERS][MOST_ROUNDS], total = 0.0;
    int repeats[CONTENDERS] = { 0 }, rounds = 0;
    const int least = rivals->quick ? 1 : LEAST_ROUNDS;
    for (int rival = 0; rival < CONTENDERS; rival++) {
        double once = 0.0;
        if (!product->enters[rival])
            continue;
        HS_TRY(verify(rivals, product, (Rival)rival));
        HS_TRY(sample(rivals, product, (Rival)rival, 1, &once));
        repeats[rival] = 1 + (int)(sample_s / (once + 1e-7));
    }
    while (rounds < least || (total < rivals->seconds && rounds < MOST_ROUNDS && !rivals->quick)) {
        for (int rival = 0; rival < CONTENDERS; rival++) {
            if (!product->enters[rival])
                continue;
            HS_TRY(sample(rivals, product, (Rival)rival, repeats[rival], &times[rival][rounds]));
            total += times[rival][rounds] * repeats[rival];
        }
        rounds++;
    }
    for (int rival = 0; rival < CONTENDERS; rival++) {
        if (!product->enters[rival])
            continue;
        qsort(times[rival], (size_t)rounds, sizeof **times, compare_doubles);
        product->median_s[rival] = times[rival][rounds / 2];
    }
    return HS_OK;
}

static void report(Rivals *rivals, const Product *product)
{
    const Layer *layer = product->layer;
    const double flops = 2e-9 * (double)layer->rows * (double)layer->in * (double)layer->out;
    const char *dtype = hs_dtype_name(product->args.a.values.dtype);
    printf("| %s | %s | %" PRId64 " x %" PRId64 " x %" PRId64 " | %s |", layer->model, layer->name, layer->rows,
           layer->in, layer->out, pass_names[product->pass]);
    for (int rival = 0; rival < CONTENDERS; rival++) {
        const double rate = flops / product->median_s[rival];
        if (!product->enters[rival]) {
            printf(" | | |");
            continue;
        }
        printf(" %.4g |", rate);
        if (rivals->peak > 0.0)
            printf(" %.0f%% |", 100.0 * rate / rivals->peak);
        else
            printf(" |");
        if (rival != OURS) {
            const double ratio = product->median_s[rival] / product->median_s[OURS];
            printf(" %.2f |", ratio);
            rivals->log_ratios[product->pass][rival] += log(ratio);
        }
        if (rivals->json)
            fprintf(rivals->json,
                    "{\"bench\":\"rival\",\"rival\":\"%s\",\"dtype\":\"%s\",\"threads\":%d,\"model\":\"%s\",\"layer\":"
                    "\"%s\",\"rows\":%" PRId64 ",\"in\":%" PRId64 ",\"out\":%" PRId64 ",\"pass\":\"%s\",\"gflops\":"
                    "%.5g,\"peak_gflops\":%.5g,\"kernel\":\"%s\"}\n",
                    rival_names[rival], dtype, rivals->context.threads, layer->model, layer->name, layer->rows,
                    layer->in, layer->out, pass_names[product->pass], rate, rivals->peak,
                    rival == ONEDNN ? product->onednn.kernel : "");
    }
    printf("\n");
    fflush(stdout);
}

/* args with the weight's packed copy, and scratch for it. */
static HsStatus bench_pass(Rivals *rivals, const Layer *layer, Pass pass, const HsMatmulArgs *args)
{
    Product product = { .layer = layer, .pass = pass, .args = *args };
    HsContext *context = &rivals->context;
    HsPacked packed = { .data = NULL };
    const bool weight = pass != WGRAD;
    HsStatus status = HS_OK;
    product.enters[OURS] = true;
    product.enters[OPENBLAS] = rivals->openblas.library && args->a.values.dtype == HS_F32 && args->c.dtype == HS_F32;
    product.enters[ONEDNN] = rivals->onednn.library != NULL;
    if (weight) {
        status = pack(context, args->b.values, args->transpose_b, &packed);
        product.args.b = hs_operand_packed(args->b.values, &packed);
    }
    context->workspace_bytes = context->backend->workspace.matmul(context, &product.args);
    context->workspace = allocate(context->workspace_bytes);
    if (status == HS_OK && product.enters[ONEDNN])
        status = onednn_prepare(&rivals->onednn, args, weight, &product.onednn);
    if (status == HS_OK)
        status = contend(rivals, &product);
    if (status == HS_OK)
        report(rivals, &product);
    if (product.enters[ONEDNN])
        onednn_free(&rivals->onednn, &product.onednn);
    free(context->workspace);
    free(packed.data);
    return status;
}

static HsStatus bench_layer(Rivals *rivals, const Layer *layer, HsDtype dtype)
{
    HsTensor x = random_matrix(dtype, layer->rows, layer->in), w = random_matrix(dtype, layer->out, layer->in);
    HsTensor y = random_matrix(layer->f32_output ? HS_F32 : dtype, layer->rows, layer->out);
    HsTensor dy = random_matrix(dtype, layer->rows, layer->out), dx = random_matrix(dtype, layer->rows, layer->in);
    HsTensor dw = random_matrix(HS_F32, layer->out, layer->in);
    const HsMatmulArgs args[PASSES] = {
        [FORWARD] = { .a.values = x, .b.values = w, .transpose_b = true, .alpha = 1.0f, .c = y },
        [DGRAD] = { .a.values = dy, .b.values = w, .alpha = 1.0f, .c = dx },
        [WGRAD] = { .a.values = dy, .b.values = x, .transpose_a = true, .accumulate = true, .alpha = 1.0f, .c = dw },
    };
    HsStatus status = HS_OK;
    rivals->peak = fmax(rivals->peak, 1e-9 * hs_cpu_peak_flops(&rivals->context, dtype, (HsProductPolicy){ 0 }));
    for (int pass = 0; status == HS_OK && pass < PASSES; pass++)
        status = bench_pass(rivals, layer, (Pass)pass, &args[pass]);
    rivals->ratio_count += status == HS_OK;
    free(x.data), free(w.data), free(y.data), free(dy.data), free(dx.data), free(dw.data);
    return status;
}

static void print_means(const Rivals *rivals, HsDtype dtype)
{
    for (int rival = ONEDNN; rival < CONTENDERS; rival++) {
        if (rival == ONEDNN ? !rivals->onednn.library : !rivals->openblas.library || dtype != HS_F32)
            continue;
        printf("%sGeometric mean of own / %s:", rival == ONEDNN ? "\n" : "",
               rival == ONEDNN ? rivals->onednn.described : rivals->openblas.described);
        for (int pass = 0; pass < PASSES; pass++)
            printf(" %s %.3f", pass_names[pass], exp(rivals->log_ratios[pass][rival] / rivals->ratio_count));
        printf("\n");
    }
}

static HsStatus bench_format(Rivals *rivals, HsDtype dtype)
{
    memset(rivals->log_ratios, 0, sizeof rivals->log_ratios);
    rivals->ratio_count = 0;
    rivals->peak = 0.0;
    printf("\n## %s, threads: %d\n\n", hs_dtype_name(dtype), rivals->context.threads);
    printf(
        "| model | layer | rows x in x out | pass | GFLOP/s | of peak | oneDNN | of peak | ratio | OpenBLAS | of peak "
        "| ratio |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int l = 0; l < LAYERS; l++)
        if (!rivals->quick || layers[l].quick)
            HS_TRY(bench_layer(rivals, &layers[l], dtype));
    printf("\nPeak of the multiply-add (%s): %.1f GFLOP/s.\n", hs_backend_cpu_isa(), rivals->peak);
    print_means(rivals, dtype);
    return HS_OK;
}

static HsStatus bench_all(Rivals *rivals, const int *thread_counts, int count)
{
    printf("# Products of the cpu backend and of its rivals\n\n");
    if (onednn_open(&rivals->onednn) == HS_OK)
        printf("- %s\n", rivals->onednn.described);
    else
        printf("- oneDNN is skipped: %s\n", hs_error_message());
    if (openblas_open(&rivals->openblas) == HS_OK)
        printf("- %s\n", rivals->openblas.described);
    else
        printf("- OpenBLAS is skipped: %s\n", hs_error_message());
    for (int t = 0; t < count; t++) {
        rivals->context.threads = thread_counts[t];
        if (rivals->onednn.library)
            rivals->onednn.set_threads(thread_counts[t]);
        if (rivals->openblas.library)
            openblas_threads(&rivals->openblas, thread_counts[t]);
        HS_TRY(bench_format(rivals, HS_BF16));
        HS_TRY(bench_format(rivals, HS_F32));
    }
    return HS_OK;
}

static HsStatus read_options(Rivals *rivals, int argc, char **argv, int *thread_counts, int *count)
{
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--quick") == 0)
            rivals->quick = true;
        else if (strcmp(argv[i], "--seconds") == 0 && has_value)
            rivals->seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--json") == 0 && has_value) {
            rivals->json = fopen(argv[++i], "a");
            if (!rivals->json)
                return hs_fail(HS_EIO, "%s: cannot be written", argv[i]);
        } else if (atoi(argv[i]) > 0 && *count < MOST_THREAD_COUNTS)
            thread_counts[(*count)++] = atoi(argv[i]);
        else
            return hs_fail(HS_EINVAL, "%s is not known; [--seconds S] [--quick] [--json FILE] [THREADS ...]", argv[i]);
    }
    const int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (*count == 0) {
        thread_counts[(*count)++] = 1;
        if (processors > 1)
            thread_counts[(*count)++] = processors;
    }
    return HS_OK;
}

int main(int argc, char **argv)
{
    Rivals rivals = { .seconds = 0.3 };
    int thread_counts[MOST_THREAD_COUNTS], count = 0;
    HsStatus status = read_options(&rivals, argc, argv, thread_counts, &count);
    if (status == HS_OK)
        status = hs_backend_cpu(&rivals.context.backend);
    if (status == HS_OK)
        status = bench_all(&rivals, thread_counts, count);
    if (status != HS_OK)
        fprintf(stderr, "rivals: %s\n", hs_error_message());
    onednn_close(&rivals.onednn);
    openblas_close(&rivals.openblas);
    if (rivals.json)
        fclose(rivals.json);
    return status != HS_OK;
}
