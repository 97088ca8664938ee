/* SPDX-License-Identifier: MIT
 *
 * Weights in four bits: codes, scales and decoded values of bitsandbytes to the bit, alone and stacked in one matrix; a
 * product that reads them has the bits of the product with the decoded matrix.
 *
 * tests/ops/bitsandbytes/make_nf4.py wrote the fixture.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/ops/backend.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { MATRICES = 3, MOST_NESTED = 2 };

static const int64_t shapes[MATRICES][2] = { { 48, 64 }, { 24, 832 }, { 30, 128 } };

typedef struct Matrix {
    int64_t count;
    uint16_t *values, *decoded;
    uint8_t *codes, *absmax;
    float nested[MOST_NESTED], offset;
} Matrix;

static Matrix matrices[MATRICES];

static void *take(FILE *file, int64_t count, size_t size)
{
    void *data = malloc((size_t)count * size);
    cr_assert_not_null(data);
    cr_assert_eq(fread(data, size, (size_t)count, file), (size_t)count);
    return data;
}

static void load_fixture(void)
{
    FILE *file = fopen("tests/ops/bitsandbytes/nf4.bin", "rb");
    cr_assert_not_null(file);
    for (int i = 0; i < MATRICES; i++) {
        Matrix *m = &matrices[i];
        m->count = shapes[i][0] * shapes[i][1];
        const size_t nested = (size_t)(hs_nf4_blocks(m->count) + HS_NF4_NESTED - 1) / HS_NF4_NESTED;
        m->values = take(file, m->count, 2);
        m->codes = take(file, m->count / 2, 1);
        m->absmax = take(file, hs_nf4_blocks(m->count), 1);
        cr_assert_eq(fread(m->nested, sizeof(float), nested, file), nested);
        cr_assert_eq(fread(&m->offset, sizeof(float), 1, file), 1);
        m->decoded = take(file, m->count, 2);
    }
    cr_assert_eq(fgetc(file), EOF);
    fclose(file);
}

TestSuite(nf4, .init = load_fixture);

static HsQuantized make(const int64_t *counts, int parts)
{
    HsQuantized quantized = hs_nf4_shape(counts, parts);
    cr_assert_gt(quantized.count, 0);
    void *memory = aligned_alloc(64, hs_nf4_bytes(&quantized));
    cr_assert_not_null(memory);
    memset(memory, 0xa5, hs_nf4_bytes(&quantized));
    hs_nf4_place(&quantized, memory);
    return quantized;
}

static void quantize(const HsQuantized *to, int64_t first, const Matrix *m)
{
    float *values = malloc((size_t)m->count * sizeof *values);
    cr_assert_not_null(values);
    for (int64_t i = 0; i < m->count; i++)
        values[i] = (float)hs_dtype_load(HS_BF16, m->values, i);
    RUN(hs_nf4_quantize(to, first, m->count, values));
    free(values);
}

/* The mean of absmaxes is a sum in another order than the library's: one unit in the last place. */
static void check_close(float got, float expected)
{
    const float unit = nextafterf(fabsf(expected), INFINITY) - fabsf(expected);
    cr_expect(fabsf(got - expected) <= unit, "%.9g, expected %.9g", (double)got, (double)expected);
}

static void check_codes(const HsQuantized *q, int64_t first, const Matrix *m)
{
    const int64_t block = hs_nf4_blocks(first);
    cr_expect_eq(memcmp(q->codes + first / 2, m->codes, (size_t)m->count / 2), 0);
    cr_expect_eq(memcmp(q->absmax + block, m->absmax, (size_t)hs_nf4_blocks(m->count)), 0);
    for (int64_t b = 0; b < hs_nf4_blocks(m->count); b++) {
        const float *scale = q->scales + 2 * ((block + b) >> q->group_shift);
        check_close(scale[0], m->nested[b / HS_NF4_NESTED]);
        check_close(scale[1], m->offset);
    }
}

Test(nf4, codes_are_those_of_bitsandbytes)
{
    for (int i = 0; i < MATRICES; i++) {
        const HsQuantized q = make(&matrices[i].count, 1);
        cr_expect_eq(q.group_shift, HS_NF4_NESTED_SHIFT);
        quantize(&q, 0, &matrices[i]);
        check_codes(&q, 0, &matrices[i]);
        free(q.codes);
    }
}

Test(nf4, stacked_tensors_keep_separate_scales)
{
    const int64_t counts[MATRICES] = { matrices[0].count, matrices[1].count, matrices[2].count };
    const HsQuantized q = make(counts, MATRICES);
    cr_expect_lt(q.group_shift, HS_NF4_NESTED_SHIFT); /* 48, 312 and 60 blocks */
    int64_t first = 0;
    for (int i = 0; i < MATRICES; first += counts[i++])
        quantize(&q, first, &matrices[i]);
    first = 0;
    for (int i = 0; i < MATRICES; first += counts[i++])
        check_codes(&q, first, &matrices[i]);
    free(q.codes);
}

/* The library's own codes and scales. */
static HsQuantized theirs(const Matrix *m)
{
    const HsQuantized q = make(&m->count, 1);
    memcpy(q.codes, m->codes, (size_t)m->count / 2);
    memcpy(q.absmax, m->absmax, (size_t)hs_nf4_blocks(m->count));
    for (int64_t g = 0; g < hs_nf4_groups(&q); g++) {
        q.scales[2 * g] = m->nested[g];
        q.scales[2 * g + 1] = m->offset;
    }
    return q;
}

Test(nf4, values_are_those_of_bitsandbytes)
{
    for (int i = 0; i < MATRICES; i++) {
        const HsQuantized q = theirs(&matrices[i]);
        for (int64_t e = 0; e < q.count; e++) {
            uint16_t rounded;
            hs_dtype_store(HS_BF16, &rounded, 0, (double)hs_nf4_value(&q, e));
            cr_assert_eq(rounded, matrices[i].decoded[e], "matrix %d, element %ld", i, (long)e);
        }
        free(q.codes);
    }
}

/* I W in f32: each sum has one term that is not zero, so c is the decoded matrix exactly. */
static void check_product(const HsBackend *backend, const char *name, const HsQuantized *q, const int64_t shape[2],
                          const uint16_t *decoded, bool transposed)
{
    const int64_t rows = shape[0], columns = shape[1], k = transposed ? columns : rows, n = transposed ? rows : columns;
    uint16_t *identity = calloc((size_t)(k * k), sizeof *identity);
    float *c = malloc((size_t)(k * n) * sizeof *c);
    cr_assert(identity && c);
    for (int64_t i = 0; i < k; i++)
        hs_dtype_store(HS_BF16, identity, i * k + i, 1.0);
    const HsMatmulArgs args = { .a.values = hs_tensor_2d(identity, HS_BF16, k, k),
                                .b = hs_operand_nf4(hs_tensor_2d(NULL, HS_BF16, rows, columns), *q),
                                .transpose_b = transposed,
                                .alpha = 1,
                                .c = hs_tensor_2d(c, HS_F32, k, n) };
    HsContext context = { .backend = backend, .threads = 2 };
    context.workspace_bytes = backend->workspace.matmul ? backend->workspace.matmul(&context, &args) : 0;
    context.workspace = aligned_alloc(64, hs_cpu_align(context.workspace_bytes + 64));
    RUN(backend->matmul(&context, &args));
    for (int64_t row = 0; row < k; row++)
        for (int64_t column = 0; column < n; column++) {
            const int64_t element = transposed ? column * columns + row : row * columns + column;
            cr_assert(c[row * n + column] == (float)hs_dtype_load(HS_BF16, decoded, element),
                      "%s: transposed %d, [%ld,%ld]", name, transposed, (long)row, (long)column);
        }
    free(context.workspace), free(identity), free(c);
}

Test(nf4, products_decode_the_same_values)
{
    for (int i = 0; i < MATRICES; i++) {
        const HsQuantized q = theirs(&matrices[i]);
        const char *isa;
        for (int transposed = 0; transposed < 2; transposed++) {
            check_product(hs_backend_ref(), "ref", &q, shapes[i], matrices[i].decoded, transposed);
            for (int j = 0; (isa = hs_backend_cpu_isa_name(j)); j++) {
                const HsBackend *backend;
                if (hs_backend_cpu_for_isa(isa, &backend) == HS_OK)
                    check_product(backend, isa, &q, shapes[i], matrices[i].decoded, transposed);
            }
        }
        free(q.codes);
    }
}

Test(nf4, extreme_blocks)
{
    enum { COUNT = 4 * HS_NF4_BLOCK };
    const int64_t count = COUNT;
    float values[COUNT] = { 0 }; /* nothing, large, tiny, one number alone */
    for (int i = 0; i < HS_NF4_BLOCK; i++) {
        values[HS_NF4_BLOCK + i] = (i % 2 ? -1.0f : 1.0f) * 3e38f;
        values[2 * HS_NF4_BLOCK + i] = 1e-44f;
    }
    values[3 * HS_NF4_BLOCK + 5] = -2.5f;
    const HsQuantized q = make(&count, 1);
    RUN(hs_nf4_quantize(&q, 0, count, values));
    for (int i = 0; i < COUNT; i++)
        cr_expect(isfinite(hs_nf4_value(&q, i)));
    cr_expect_eq(q.codes[0], 0x77); /* twice the level 0 */
    cr_expect_eq(q.codes[HS_NF4_BLOCK / 2], 0xf0);
    cr_expect_eq(q.codes[(3 * HS_NF4_BLOCK + 4) / 2], 0x70);
    free(q.codes);
    const int64_t odd[] = { 64, 100 };
    cr_expect_eq(hs_nf4_shape(odd, 2).count, 0);
}
