/* SPDX-License-Identifier: MIT
 *
 * Speed of the cpu backend's matrix products against the processor's own peak, measured in the same run.
 *
 *     matmul [THREADS ...]          default: 1 and the machine's processors
 *
 * For a linear layer y[M,N] = x[M,K] w[N,K]^T: forward and dgrad with the weight packed ahead, as training does, and
 * wgrad (dw += dy^T x), which packs both operands in the call.  The peak is chains of the multiply-add instruction that
 * the kernels use, with no memory at all.  HALFSTEP_CPU_ISA chooses the instruction set.
 */
#include <unistd.h>

#include "bench/cpu_products.h"
#include "kernels/base/clock.h"
#include "kernels/cpu/cpu.h"

static const int64_t shapes[][3] = {
    { 768, 128, 128 },    { 768, 512, 128 },   { 768, 128, 512 },   { 512, 512, 512 },    { 16384, 1536, 384 },
    { 16384, 384, 1536 }, { 1024, 768, 3072 }, { 1024, 2304, 768 }, { 1024, 50304, 768 },
};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes, MOST_RUNS = 200 };

/* Time one product: at least five runs and a fifth of a second; prints best and median. */
static HsStatus measure(HsContext *context, const char *pass, const HsMatmulArgs *args, double flops, double peak)
{
    size_t bytes = context->backend->workspace.matmul(context, args);
    context->workspace = allocate(bytes);
    context->workspace_bytes = bytes;
    double times[MOST_RUNS], total = 0;
    int runs = 0;
    HsStatus status = context->backend->matmul(context, args);
    while (status == HS_OK && runs < MOST_RUNS && (runs < 5 || total < 0.2)) {
        double start = hs_clock_s();
        status = context->backend->matmul(context, args);
        times[runs] = hs_clock_s() - start;
        total += times[runs++];
    }
    free(context->workspace);
    if (status != HS_OK)
        return status;
    qsort(times, (size_t)runs, sizeof *times, compare_doubles);
    double best = flops / times[0] / 1e9, median = flops / times[runs / 2] / 1e9;
    printf("  %-8s %9.3f ms  best %7.1f GFLOP/s  median %7.1f", pass, times[runs / 2] * 1e3, best, median);
    if (peak > 0)
        printf("  %5.1f%% (best) of peak", 100 * best / peak);
    printf("\n");
    return HS_OK;
}

static HsStatus bench_shape(HsContext *context, HsDtype dtype, const int64_t shape[3], double peak)
{
    const int64_t m = shape[0], n = shape[1], k = shape[2];
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    HsTensor x = random_matrix(dtype, m, k), w = random_matrix(dtype, n, k), y = random_matrix(dtype, m, n);
    HsTensor dw = random_matrix(HS_F32, n, k);
    HsPacked forward_w, dgrad_w;
    HsStatus status = pack(context, w, true, &forward_w);
    if (status == HS_OK)
        status = pack(context, w, false, &dgrad_w);
    const HsMatmulArgs forward = {
        .a.values = x, .b = hs_operand_packed(w, &forward_w), .transpose_b = true, .alpha = 1.0f, .c = y
    };
    const HsMatmulArgs dgrad = { .a.values = y, .b = hs_operand_packed(w, &dgrad_w), .alpha = 1.0f, .c = x };
    const HsMatmulArgs wgrad = {
        .a.values = y, .b.values = x, .transpose_a = true, .accumulate = true, .alpha = 1.0f, .c = dw
    };
    printf("%" PRId64 " x %" PRId64 " x %" PRId64 ", %s, threads %d\n", m, n, k, hs_dtype_name(dtype),
           context->threads);
    /* wgrad first: the others overwrite its operands */
    if (status == HS_OK)
        status = measure(context, "wgrad", &wgrad, flops, peak);
    if (status == HS_OK)
        status = measure(context, "forward", &forward, flops, peak);
    if (status == HS_OK)
        status = measure(context, "dgrad", &dgrad, flops, peak);
    free(forward_w.data), free(dgrad_w.data);
    free(x.data), free(w.data), free(y.data), free(dw.data);
    return status;
}

int main(int argc, char **argv)
{
    int processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int thread_counts[16] = { 1, processors }, count = processors > 1 ? 2 : 1;
    if (argc > 1)
        for (count = 0; count < argc - 1 && count < 16; count++)
            thread_counts[count] = atoi(argv[count + 1]);

    HsContext context = { 0 };
    HsStatus status = hs_backend_cpu(&context.backend);
    static const HsDtype dtypes[] = { HS_BF16, HS_F32, HS_F16 };
    for (int t = 0; status == HS_OK && t < count; t++) {
        context.threads = thread_counts[t];
        for (int d = 0; status == HS_OK && d < 3; d++) {
            double peak = 1e-9 * hs_cpu_peak_flops(&context, dtypes[d], (HsProductPolicy){ 0 });
            printf("\n%s, %s, threads %d: peak %.1f GFLOP/s\n", hs_backend_cpu_isa(), hs_dtype_name(dtypes[d]),
                   context.threads, peak);
            for (int s = 0; status == HS_OK && s < SHAPE_COUNT; s++)
                status = bench_shape(&context, dtypes[d], shapes[s], peak);
        }
    }
    if (status != HS_OK)
        fprintf(stderr, "bench matmul: %s\n", hs_error_message());
    return status != HS_OK;
}
