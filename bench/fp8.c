/* SPDX-License-Identifier: MIT
 *
 * Products of FP8 codes against cuBLASLt's, against the same codes decoded to bf16, and against a product in bf16.
 *
 *     fp8 [--device cuda|emu] [--seconds S] [--tiny] [--json FILE]
 *
 * E4M3 by E4M3 as forward has it, E5M2 by E4M3 as the gradients of inputs (bf16) and of weights (added to f32) have it, one
 * scale a tensor, both operands along k: squares, and the layers of GPT-2 124M at 32 sequences of 1024 tokens.  cuBLASLt
 * sums fast, without promotion, where our sums are straight (kernels/cuda/product/matmul_fp8.cuh).  Casts are not timed:
 * `trainer bench --modes bf16,fp8` has whole steps.
 *
 * Each contender is right before it is timed: codes are whole numbers from -2 to 2, with sums so small that the 14 bits
 * of tensor cores hold them, too, so that every bit of some rows of c is known.  What is timed are random codes below 2
 * of both signs, since such whole numbers let a GPU run faster than training does.
 */
#include "bench/bench.h"
#include "kernels/tuning/tuning.h"

typedef enum Pass { FORWARD, DGRAD, WGRAD, PASSES } Pass;
static const char *const pass_names[] = { "forward", "dgrad", "wgrad" };

typedef struct Layer {
    const char *name;
    int64_t rows, in, out;
} Layer;

static const Layer layers[] = {
    { "square", 1024, 1024, 1024 },
    { "square", 2048, 2048, 2048 },
    { "square", 4096, 4096, 4096 },
    { "square", 8192, 8192, 8192 },
    { "GPT-2 124M, qkv", 32768, 768, 2304 },
    { "GPT-2 124M, attention out", 32768, 768, 768 },
    { "GPT-2 124M, mlp up", 32768, 768, 3072 },
    { "GPT-2 124M, mlp down", 32768, 3072, 768 },
};
static const Layer tiny_layers[] = { { "tiny", 272, 64, 160 } };

enum { CHECKED_ROWS = 8 };

/* Of the library, of ours decoded, and in bf16: devices' options and forced kernels are a contender's own. */
typedef struct Rivals {
    HsDevice device;
    HsContext context, decoded, plain;
    bool usable; /* cuBLASLt's */
} Rivals;

/* One product and its memory. */
typedef struct Product {
    const Layer *layer;
    Pass pass;
    HsCodes a, b;
    unsigned char *host[2]; /* codes of a and b */
    HsTensor plain_a, plain_b, c;
    HsMatmulArgs args, plain;
} Product;

/* Factors of a and b: their product, and alpha, are powers of two. */
static const float inverses[2] = { 0.25f, 0.5f };

static HsStatus call_matmul(HsContext *context, const void *arguments)
{
    return hs_op_matmul(context, arguments);
}

/* Calls during which the device's tuner prescribes a kernel. */
typedef struct Decoded {
    const HsMatmulArgs *args;
    const HsTuner *tuner;
    const char *kernel;
} Decoded;

static HsStatus call_decoded(HsContext *context, const void *arguments)
{
    const Decoded *const decoded = arguments;
    HS_TRY(decoded->tuner->force(context->device, decoded->kernel, 0));
    const HsStatus status = hs_op_matmul(context, decoded->args);
    HS_TRY(decoded->tuner->force(context->device, NULL, 0));
    return status;
}

/* The kernel of decoded codes with the largest tiles that this GPU has; NULL: none, as it has no products of codes. */
static const char *decoded_kernel(Bench *bench)
{
    static const char *const names[] = { "bf16-wgmma-256x256", "bf16-mma-128x256" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bench->tuner->force(&bench->device, names[i], 0) == HS_OK) {
            (void)bench->tuner->force(&bench->device, NULL, 0);
            return names[i];
        }
    return NULL;
}

/* --- operands --- */

static uint32_t mixed(uint64_t index, uint64_t operand)
{
    uint64_t bits = (index + (operand << 40)) * UINT64_C(0x9e3779b97f4a7c15);
    bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(bits >> 32);
}

static int whole_number(uint64_t index, uint64_t operand)
{
    return (int)(mixed(index, operand) % 5) - 2;
}

static HsStatus write_codes(Bench *bench, Product *product, int operand, bool whole)
{
    HsCodes *const codes = operand == 0 ? &product->a : &product->b;
    unsigned char *const host = product->host[operand];
    const int64_t count = codes->rows * codes->depth;
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++)
        host[i] = whole ? bench_code_of(whole_number((uint64_t)i, (uint64_t)operand), codes->format)
                        : (unsigned char)(mixed((uint64_t)i, (uint64_t)operand) & 0xB7u);
    HS_TRY(bench->device.copy(&bench->device, bench->context.stream, codes->data, host, (size_t)count));
    return bench->device.stream_sync(&bench->device, bench->context.stream);
}

static HsStatus open_codes(Bench *bench, Product *product, int operand)
{
    HsDevice *const device = &bench->device;
    HsCodes *const codes = operand == 0 ? &product->a : &product->b;
    const HsScaling scaling = { .scale = 1.0f / inverses[operand], .inverse = inverses[operand] };
    void *memory = NULL;
    product->host[operand] = malloc((size_t)(codes->rows * codes->depth));
    if (product->host[operand] == NULL)
        return hs_fail(HS_ENOMEM, "%" PRId64 " codes in the host's memory", codes->rows * codes->depth);
    HS_TRY(device->alloc(device, hs_codes_bytes(codes), &memory));
    hs_codes_place(codes, memory);
    HS_TRY(device->alloc(device, sizeof scaling, &memory));
    codes->scaling = memory;
    HS_TRY(device->copy(device, bench->context.stream, memory, &scaling, sizeof scaling));
    return write_codes(bench, product, operand, true);
}

static HsStatus open_product(Bench *bench, Product *product, const Layer *layer, Pass pass)
{
    const int64_t m = pass == WGRAD ? layer->out : layer->rows, n = pass == FORWARD ? layer->out : layer->in;
    const int64_t k = pass == FORWARD ? layer->in : pass == DGRAD ? layer->out : layer->rows;
    const HsDtype format = pass == FORWARD ? HS_E4M3 : HS_E5M2;
    *product = (Product){ .layer = layer, .pass = pass };
    product->a = (HsCodes){ format, HS_SCALE_TENSOR, m, k, NULL, NULL, NULL };
    product->b = (HsCodes){ HS_E4M3, HS_SCALE_TENSOR, n, k, NULL, NULL, NULL };
    product->plain_a = hs_tensor_2d(NULL, HS_BF16, m, k);
    product->plain_b = hs_tensor_2d(NULL, HS_BF16, n, k);
    product->c = hs_tensor_2d(NULL, pass == WGRAD ? HS_F32 : HS_BF16, m, n);
    for (int operand = 0; operand < 2; operand++)
        HS_TRY(open_codes(bench, product, operand));
    product->args = (HsMatmulArgs){ .a = hs_operand_codes(product->a),
                                    .b = hs_operand_codes(product->b),
                                    .transpose_b = true,
                                    .policy = { format, HS_E4M3, HS_SCALE_TENSOR },
                                    .alpha = 1.0f };
    HS_TRY(bench_normal(bench, &product->plain_a, 0.5));
    HS_TRY(bench_normal(bench, &product->plain_b, 0.5));
    HS_TRY(bench->device.alloc(&bench->device, hs_tensor_bytes(&product->c), &product->c.data));
    product->args.c = product->c;
    product->plain = (HsMatmulArgs){ .a.values = product->plain_a,
                                     .b.values = product->plain_b,
                                     .transpose_b = true,
                                     .alpha = 1.0f,
                                     .accumulate = pass == WGRAD,
                                     .c = product->c };
    return HS_OK;
}

static void close_product(Bench *bench, Product *product)
{
    HsDevice *const device = &bench->device;
    HsCodes *const codes[] = { &product->a, &product->b };
    for (int operand = 0; operand < 2; operand++) {
        if (codes[operand]->data)
            device->release(device, codes[operand]->data);
        if (codes[operand]->scaling)
            device->release(device, codes[operand]->scaling);
        free(product->host[operand]);
    }
    bench_release(bench, &product->plain_a);
    bench_release(bench, &product->plain_b);
    bench_release(bench, &product->c);
}

/* --- right first --- */

/* c's bytes all ones, which are NaN in both formats: what is not written shows. */
static HsStatus spoil(Bench *bench, const HsTensor *c)
{
    const size_t bytes = hs_tensor_bytes(c);
    void *const host = malloc(bytes);
    if (host == NULL)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", bytes);
    memset(host, 0xFF, bytes);
    HsStatus status = bench->device.copy(&bench->device, bench->context.stream, c->data, host, bytes);
    if (status == HS_OK)
        status = bench->device.stream_sync(&bench->device, bench->context.stream);
    free(host);
    return status;
}

static HsStatus run_once(BenchContender *contender)
{
    HsContext *const context = contender->context;
    HsDevice *const device = context->device;
    HsStatus status = bench_workspace(contender);
    if (status == HS_OK)
        status = contender->call(context, contender->arguments);
    const HsStatus synced = device->stream_sync(device, context->stream);
    if (context->workspace)
        device->release(device, context->workspace);
    context->workspace = NULL;
    return status == HS_OK ? synced : status;
}

/* Of a code that bench_code_of has made. */
static int number_of(unsigned char code)
{
    const int size = code & 0x40 ? 2 : (code & 0x3F) != 0;
    return code & 0x80 ? -size : size;
}

/* How many numbers of a row are wrong. */
static int64_t wrong_in_row(const Product *product, int64_t row, const void *found)
{
    const int64_t n = product->b.rows, k = product->a.depth;
    const unsigned char *const a = product->host[0] + row * k;
    int64_t wrong = 0;
#pragma omp parallel for reduction(+ : wrong)
    for (int64_t column = 0; column < n; column++) {
        const unsigned char *const b = product->host[1] + column * k;
        int sum = 0;
        for (int64_t i = 0; i < k; i++)
            sum += number_of(a[i]) * number_of(b[i]);
        unsigned char expected[4];
        hs_dtype_store(product->c.dtype, expected, 0, (double)sum * (double)(inverses[0] * inverses[1]));
        wrong += hs_dtype_load(product->c.dtype, expected, 0) != hs_dtype_load(product->c.dtype, found, column);
    }
    return wrong;
}

static HsStatus check(Bench *bench, const Product *product, BenchContender *contender, const char *name)
{
    const int64_t m = product->a.rows, n = product->b.rows;
    const size_t row_bytes = (size_t)n * hs_dtype_bytes(product->c.dtype);
    HS_TRY(spoil(bench, &product->c));
    HS_TRY(run_once(contender));
    char *const found = malloc(row_bytes);
    if (found == NULL)
        return hs_fail(HS_ENOMEM, "%zu bytes of host memory", row_bytes);
    HsStatus status = HS_OK;
    for (int64_t i = 0; status == HS_OK && i < CHECKED_ROWS; i++) {
        const int64_t row = i * (m - 1) / (CHECKED_ROWS - 1);
        status = bench->device.copy(&bench->device, bench->context.stream, found,
                                    (const char *)product->c.data + (size_t)row * row_bytes, row_bytes);
        if (status == HS_OK)
            status = bench->device.stream_sync(&bench->device, bench->context.stream);
        const int64_t wrong = status == HS_OK ? wrong_in_row(product, row, found) : 0;
        if (wrong > 0)
            status = hs_fail(HS_EDEVICE, "%s: %s %s: %" PRId64 " of %" PRId64 " numbers of row %" PRId64 " are wrong",
                             name, product->layer->name, pass_names[product->pass], wrong, n, row);
    }
    free(found);
    return status;
}

/* --- then fast --- */

static void print_product(Bench *bench, const Product *product, const HsProductChoice *choice,
                          const BenchContender *own, const BenchContender *decoded, const BenchContender *plain,
                          const BenchContender *rival)
{
    const int64_t m = product->a.rows, n = product->b.rows, k = product->a.depth;
    const double flops = 2.0 * (double)m * (double)n * (double)k * 1e-9;
    const char *const formats = product->pass == FORWARD ? "E4M3 x E4M3" : "E5M2 x E4M3";
    char more[128] = "";
    printf("| %s | %s | %" PRId64 " x %" PRId64 " x %" PRId64 " | %s | %s | %.4g | %.4g | %.4g |", product->layer->name,
           pass_names[product->pass], m, n, k, formats, choice->kernel, choice->predicted_us, 1e3 * own->median_ms,
           flops / own->median_ms);
    if (rival) {
        printf(" %.4g | %.2f |", flops / rival->median_ms, rival->median_ms / own->median_ms);
        snprintf(more, sizeof more, ",\"cublaslt_tflops\":%.4g,\"ratio\":%.4g", flops / rival->median_ms,
                 rival->median_ms / own->median_ms);
    } else {
        printf(" | |");
    }
    if (decoded)
        printf(" %.4g |", flops / decoded->median_ms);
    else
        printf(" |");
    printf(" %.4g | %.2f |\n", flops / plain->median_ms, plain->median_ms / own->median_ms);
    fflush(stdout);
    bench_json(bench,
               "{\"bench\":\"fp8\",\"layer\":\"%s\",\"pass\":\"%s\",\"m\":%" PRId64 ",\"n\":%" PRId64 ",\"k\":%" PRId64
               ",\"kernel\":\"%s\",\"predicted_us\":%.4g,\"us\":%.4g,\"tflops\":%.4g,\"bf16_tflops\":%.4g%s}",
               product->layer->name, pass_names[product->pass], m, n, k, choice->kernel, choice->predicted_us,
               1e3 * own->median_ms, flops / own->median_ms, flops / plain->median_ms, more);
}

static HsStatus bench_product(Bench *bench, Rivals *rivals, Product *product)
{
    enum { OWN, PLAIN, MOST = 4 };
    const Decoded decoded = { &product->args, bench->tuner, decoded_kernel(bench) };
    BenchContender contenders[MOST] = {
        [OWN] = { .context = &bench->context, .call = call_matmul, .arguments = &product->args },
        [PLAIN] = { .context = &rivals->plain, .call = call_matmul, .arguments = &product->plain }
    };
    int count = 2, rival = -1, forced = -1;
    if (decoded.kernel) {
        forced = count;
        contenders[count++] =
            (BenchContender){ .context = &rivals->decoded, .call = call_decoded, .arguments = &decoded };
    }
    if (rivals->usable) {
        rival = count;
        contenders[count++] =
            (BenchContender){ .context = &rivals->context, .call = call_matmul, .arguments = &product->args };
    }
    HsProductChoice choice;
    bench->tuner->choices(&bench->context, &product->args, &choice, 1);
    HS_TRY(check(bench, product, &contenders[OWN], "own"));
    if (forced >= 0)
        HS_TRY(check(bench, product, &contenders[forced], "decoded"));
    if (rival >= 0)
        HS_TRY(check(bench, product, &contenders[rival], "cuBLASLt"));
    for (int operand = 0; operand < 2; operand++)
        HS_TRY(write_codes(bench, product, operand, false));
    product->args.accumulate = product->pass == WGRAD;
    HS_TRY(bench_contend(bench, contenders, count));
    print_product(bench, product, &choice, &contenders[OWN], forced >= 0 ? &contenders[forced] : NULL,
                  &contenders[PLAIN], rival >= 0 ? &contenders[rival] : NULL);
    return HS_OK;
}

static HsStatus bench_layers(Bench *bench, Rivals *rivals)
{
    const Layer *const list = bench->tiny ? tiny_layers : layers;
    const int count = (int)(bench->tiny ? sizeof tiny_layers : sizeof layers) / (int)sizeof *layers;
    printf("Every contender was right first: %d rows of c, every bit.\n\n"
           "| product | pass | M x N x K | codes | kernel | predicted us | us | TFLOP/s | cuBLASLt | own / cuBLASLt | "
           "decoded "
           "| bf16 | time of bf16 / of FP8 |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
           (int)CHECKED_ROWS);
    for (int layer = 0; layer < count; layer++)
        for (int pass = 0; pass < PASSES; pass++) {
            Product product;
            HsStatus status = open_product(bench, &product, &list[layer], (Pass)pass);
            if (status == HS_OK)
                status = bench_product(bench, rivals, &product);
            close_product(bench, &product);
            HS_TRY(status);
        }
    return HS_OK;
}

/* The library is opened with the device, and one small product shows whether it multiplies FP8 on this GPU. */
static HsStatus open_library(Bench *bench, Rivals *rivals)
{
    static const Layer small = { "small", 64, 64, 64 };
    HS_TRY(bench_device(&rivals->device, &rivals->context, bench->device_name, (HsCudaOptions){ .cublaslt = true }));
    Product product;
    HsStatus status = open_product(bench, &product, &small, FORWARD);
    BenchContender contender = { .context = &rivals->context, .call = call_matmul, .arguments = &product.args };
    if (status == HS_OK)
        status = run_once(&contender);
    close_product(bench, &product);
    return status;
}

int main(int argc, char **argv)
{
    Bench bench;
    Rivals rivals = { .usable = false };
    const char *more;
    HsStatus status = bench_open(&bench, argc, argv, &more);
    if (status != HS_OK)
        return bench_fail(&bench);
    printf("%s", bench_note(&bench));
    rivals.decoded = rivals.plain = bench.context;
    rivals.usable = open_library(&bench, &rivals) == HS_OK;
    if (!rivals.usable)
        printf("No rival: %s\n\n", hs_error_message());
    status = bench_layers(&bench, &rivals);
    const int result = status == HS_OK ? 0 : bench_fail(&bench);
    bench_device_close(&rivals.device, &rivals.context);
    bench_close(&bench);
    return result;
}
