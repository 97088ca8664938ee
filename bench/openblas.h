/* SPDX-License-Identifier: MIT
 *
 * The only file that knows OpenBLAS: f32 products by its C interface, with its few declarations written out here.
 *
 * The library chooses its kernels when it is loaded, and old versions take a Zen 4 for a Haswell, without AVX-512:
 * where the processor has what SKYLAKEX needs, that is requested (OPENBLAS_CORETYPE in the environment wins).
 */
#ifndef HS_BENCH_OPENBLAS_H
#define HS_BENCH_OPENBLAS_H

#include <stdio.h>
#include <stdlib.h>

#include "bench/library.h"
#include "kernels/ops/ops.h"

/* name in the library, result, parameters; int is 32 bits in libopenblas.so.0 */
#define OPENBLAS_FUNCTIONS(X)                                                                                       \
    X(cblas_sgemm, void,                                                                                            \
      (int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float *a, int stride_a, \
       const float *b, int stride_b, float beta, float *c, int stride_c))                                           \
    X(openblas_set_num_threads, void, (int threads))                                                                \
    X(openblas_get_config, char *, (void))                                                                          \
    X(openblas_get_corename, char *, (void))

enum { OPENBLAS_ROW_MAJOR = 101, OPENBLAS_PLAIN = 111, OPENBLAS_TRANSPOSED = 112 };

typedef struct OpenBlas {
    void *library; /* NULL: not there */
    char described[96];
#define OPENBLAS_MEMBER(name, Result, parameters) Result(*name) parameters;
    OPENBLAS_FUNCTIONS(OPENBLAS_MEMBER)
#undef OPENBLAS_MEMBER
} OpenBlas;

static inline HsStatus openblas_find(OpenBlas *blas)
{
#define OPENBLAS_FIND(name, Result, parameters) \
    HS_TRY(library_find(blas->library, #name, &blas->name, sizeof blas->name));
    OPENBLAS_FUNCTIONS(OPENBLAS_FIND)
#undef OPENBLAS_FIND
    const char *config = blas->openblas_get_config(), *space = strchr(config, ' ');
    const size_t name = space ? (size_t)(space - config) : 0; /* "OpenBLAS 0.3.21 NO_LAPACKE ...": two words of it */
    const size_t words = space ? name + 1 + strcspn(space + 1, " ") : strlen(config);
    snprintf(blas->described, sizeof blas->described, "%.*s (%s)", (int)words, config, blas->openblas_get_corename());
    return HS_OK;
}

static inline void openblas_close(OpenBlas *blas)
{
    if (blas->library)
        dlclose(blas->library);
    *blas = (OpenBlas){ .library = NULL };
}

static inline HsStatus openblas_open(OpenBlas *blas)
{
    static const char *const names[] = { "libopenblas.so.0", NULL };
    *blas = (OpenBlas){ .library = NULL };
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        setenv("OPENBLAS_CORETYPE", "SKYLAKEX", 0);
#endif
    HS_TRY(library_open(names, &blas->library));
    const HsStatus status = openblas_find(blas);
    if (status != HS_OK)
        openblas_close(blas);
    return status;
}

static inline void openblas_threads(const OpenBlas *blas, int threads)
{
    blas->openblas_set_num_threads(threads);
}

/* c = op(a) op(b) [+ c], all f32. */
static inline void openblas_product(const OpenBlas *blas, const HsMatmulArgs *args)
{
    const int m = (int)args->c.shape[0], n = (int)args->c.shape[1];
    const int k = (int)args->a.values.shape[args->transpose_a ? 0 : 1];
    blas->cblas_sgemm(OPENBLAS_ROW_MAJOR, args->transpose_a ? OPENBLAS_TRANSPOSED : OPENBLAS_PLAIN,
                      args->transpose_b ? OPENBLAS_TRANSPOSED : OPENBLAS_PLAIN, m, n, k, 1.0f, args->a.values.data,
                      (int)args->a.values.shape[1], args->b.values.data, (int)args->b.values.shape[1],
                      args->accumulate ? 1.0f : 0.0f, args->c.data, n);
}

#endif
