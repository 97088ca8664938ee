/* SPDX-License-Identifier: MIT
 *
 * The vector layer of the cpu backend (kernels/cpu/simd.h).  Conversions and random words are compared bit for bit with
 * the software definitions of kernels/base, through the `convert` and `dropout` operations of every instruction set
 * that this machine runs; functions are measured in units in the last place against libm in double.
 * This file itself compiles the header's portable form, for what no operation shows by itself (exp, sums, tails).
 */
#pragma GCC diagnostic ignored "-Wpsabi" /* 64-byte vectors in inlined functions: there is no call to have an ABI */

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/logit_cap.h"

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t random_word(uint32_t site, uint64_t index)
{
    const HsRng rng = { .seed = 11, .site = site };
    return hs_rng_draw(&rng, index).word[0];
}

/* Backend `index` of this build; false past the last.  NULL: this machine lacks it. */
static bool next_backend(int index, const HsBackend **backend)
{
    const char *name = hs_backend_cpu_isa_name(index);
    *backend = NULL;
    if (!name)
        return false;
    const HsStatus status = hs_backend_cpu_for_isa(name, backend);
    cr_assert(status == HS_OK || status == HS_EUNSUPPORTED, "%s", hs_error_message());
    if (status != HS_OK)
        *backend = NULL;
    return true;
}

static void convert(const HsBackend *backend, HsDtype from, void *x, HsDtype to, void *y, int64_t count)
{
    HsContext context = { .backend = backend, .threads = 1 };
    const HsConvertArgs args = { .x = hs_tensor_1d(x, from, count), .y = hs_tensor_1d(y, to, count) };
    cr_assert_eq(backend->convert(&context, &args), HS_OK);
}

/* Values on both sides of everything that can go wrong when rounding to 16 bits: every exponent, both signs, mantissas
 * at and next to the halfway points of both formats; then random bits, NaN and infinity among them. */
static int64_t hard_values(float **values)
{
    static const uint32_t mantissas[] = { 0,        1,        0xFFF,    0x1000,   0x1001,   0x2FFF,   0x3000,
                                          0x3001,   0x7FFF,   0x8000,   0x8001,   0x17FFF,  0x18000,  0x18001,
                                          0x3FFFFF, 0x400000, 0x400001, 0x7FDFFF, 0x7FE000, 0x7FEFFF, 0x7FF000,
                                          0x7FF001, 0x7F7FFF, 0x7F8000, 0x7FFFFF };
    enum { MANTISSAS = sizeof mantissas / sizeof *mantissas, RANDOM = 1 << 20 };
    const int64_t count = 2 * 256 * MANTISSAS + RANDOM;
    *values = malloc((size_t)count * sizeof **values);
    cr_assert_not_null(*values);
    int64_t n = 0;
    for (uint32_t top = 0; top < 512; top++) {
        for (int m = 0; m < MANTISSAS; m++)
            (*values)[n++] = float_of(top << 23 | mantissas[m]);
    }
    for (uint64_t i = 0; n < count; i++)
        (*values)[n++] = float_of(random_word(1, i));
    return count;
}

Test(simd, rounding_to_16_bits_is_the_software_rounding)
{
    float *values;
    const int64_t count = hard_values(&values);
    uint16_t *rounded = malloc((size_t)count * sizeof *rounded);
    cr_assert_not_null(rounded);
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++) {
        if (!backend)
            continue;
        convert(backend, HS_F32, values, HS_BF16, rounded, count);
        for (int64_t i = 0; i < count; i++)
            cr_assert(rounded[i] == hs_bf16_encode(values[i]), "%s: bf16 of %08x is %04x, not %04x",
                      hs_backend_cpu_isa_name(isa), bits_of(values[i]), rounded[i], hs_bf16_encode(values[i]));
        convert(backend, HS_F32, values, HS_F16, rounded, count);
        for (int64_t i = 0; i < count; i++)
            cr_assert(rounded[i] == hs_f16_encode(values[i]), "%s: f16 of %08x is %04x, not %04x",
                      hs_backend_cpu_isa_name(isa), bits_of(values[i]), rounded[i], hs_f16_encode(values[i]));
    }
    free(rounded);
    free(values);
}

/* All 65536 patterns.  A signalling NaN may come out quiet (the processors' conversion does that), nothing else. */
Test(simd, widening_is_exact)
{
    enum { PATTERNS = 1 << 16 };
    static uint16_t halves[PATTERNS];
    static float wide[PATTERNS];
    for (uint32_t i = 0; i < PATTERNS; i++)
        halves[i] = (uint16_t)i;
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++) {
        if (!backend)
            continue;
        convert(backend, HS_BF16, halves, HS_F32, wide, PATTERNS);
        for (uint32_t i = 0; i < PATTERNS; i++)
            cr_assert(bits_of(wide[i]) == bits_of(hs_bf16_decode(halves[i])), "bf16 %04x", i);
        convert(backend, HS_F16, halves, HS_F32, wide, PATTERNS);
        for (uint32_t i = 0; i < PATTERNS; i++) {
            const float expected = hs_f16_decode(halves[i]);
            const uint32_t quiet = isnan(expected) ? 0x400000 : 0;
            cr_assert((bits_of(wide[i]) | quiet) == (bits_of(expected) | quiet), "%s: f16 %04x",
                      hs_backend_cpu_isa_name(isa), i);
        }
    }
}

/* Which elements survive shows the random words: dropout of ones, compared with the scalar generator's rule. */
Test(simd, random_words_are_the_scalar_generator_s)
{
    enum { COUNT = 3 * 41 };
    float ones[COUNT], kept[COUNT];
    for (int i = 0; i < COUNT; i++)
        ones[i] = 1.0f;
    /* The last offset carries from the low into the high word of the draw's index. */
    const int64_t offsets[] = { 0, 1, 5, ((int64_t)1 << 34) / 41 - 1 };
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++) {
        if (!backend)
            continue;
        HsContext context = { .backend = backend, .threads = 1 };
        for (int o = 0; o < 4; o++) {
            const HsRng rng = { .seed = 0x123456789ABCDEFull, .step = 9, .site = 3, .row_offset = offsets[o] };
            const HsDropoutArgs args = { .probability = 0.5f,
                                         .rng = rng,
                                         .x = hs_tensor_2d(ones, HS_F32, 3, 41),
                                         .y = hs_tensor_2d(kept, HS_F32, 3, 41) };
            cr_assert_eq(backend->dropout_forward(&context, &args), HS_OK);
            for (int i = 0; i < COUNT; i++) {
                const uint64_t element = (uint64_t)(offsets[o] * 41 + i);
                const uint32_t word = hs_rng_draw(&rng, element / 4).word[element % 4];
                const float expected = hs_rng_uniform(word) >= 0.5f ? 2.0f : 0.0f;
                cr_assert(kept[i] == expected, "%s: element %d at row offset %lld", hs_backend_cpu_isa_name(isa), i,
                          (long long)offsets[o]);
            }
        }
    }
}

/* |result - exact| in units of the last place of `exact` as f32, subnormal spacing below the smallest normal. */
static double ulps(float result, double exact)
{
    const double spacing = fmax(ldexp(1.0, ilogb(exact) - 23), 0x1p-149);
    return fabs((double)result - exact) / spacing;
}

static float exp_of(float x)
{
    return hs_simd_exp(hs_simd_splat(x))[0];
}

Test(simd, exp_is_below_two_units)
{
    double worst = 0;
    for (uint64_t i = 0; i < 1 << 20; i++) {
        const float x = -104.0f + 192.7f * hs_rng_uniform(random_word(2, i));
        worst = fmax(worst, ulps(exp_of(x), exp((double)x)));
    }
    cr_assert_lt(worst, 2.0, "exp is off by %g ulp", worst);
}

Test(simd, exp_special_values)
{
    cr_expect(exp_of(0.0f) == 1.0f);
    cr_expect(exp_of(-0.0f) == 1.0f);
    cr_expect(exp_of(-INFINITY) == 0.0f);
    cr_expect(exp_of(-104.0f) == 0.0f, "below half of the smallest subnormal");
    cr_expect(exp_of(-103.0f) == 0x1p-149f, "underflow is gradual");
    cr_expect(exp_of(INFINITY) == INFINITY);
    cr_expect(exp_of(88.8f) == INFINITY);
    cr_expect(isfinite(exp_of(88.7f)));
    cr_expect(isnan(exp_of(NAN)));
    cr_expect(isnan(exp_of(-NAN)));
}

/* In units of 2^-24 of the exact value, of which logit_cap.h states the bounds. */
Test(simd, capped_logits_keep_their_relative_accuracy)
{
    const float caps[] = { 1.0f, 30.0f, 5000.0f };
    for (int c = 0; c < 3; c++) {
        const float cap = caps[c];
        for (uint32_t i = 0; i < 1u << 20; i++) {
            /* of any sign, from 2^-20 to 30 times the cap, and everywhere alike up to 8 times */
            const float u = (float)(i % 2 ? exp2(-20.0 + 25.0 * i * 0x1p-20) : 8.0 * i * 0x1p-20);
            const float x = i % 3 ? u * cap : -u * cap;
            const HsCappedLogits capped = hs_simd_cap(true, hs_simd_splat(x), cap);
            const double exact = (double)x / (double)cap, logit = (double)cap * tanh(exact);
            const double slope = 1.0 / (cosh(exact) * cosh(exact));
            cr_assert(fabs((double)capped.logit[0] - logit) <= 12 * 0x1p-24 * fabs(logit), "%g of %g: %.9g, %.9g",
                      (double)x, (double)cap, (double)capped.logit[0], logit);
            cr_assert(fabs((double)capped.slope[0] - slope) <= (16 + 4 * fabs(exact)) * 0x1p-24 * slope,
                      "%g of %g: %.9g, %.9g", (double)x, (double)cap, (double)capped.slope[0], slope);
        }
    }
}

Test(simd, capped_special_values)
{
    const HsCappedLogits large = hs_simd_cap(true, hs_simd_splat(INFINITY), 30.0f);
    const HsCappedLogits small = hs_simd_cap(true, hs_simd_splat(-INFINITY), 30.0f);
    const HsCappedLogits zero = hs_simd_cap(true, hs_simd_splat(-0.0f), 30.0f);
    cr_expect(large.logit[3] == 30.0f && large.slope[3] == 0.0f);
    cr_expect(small.logit[3] == -30.0f && small.slope[3] == 0.0f);
    cr_expect(zero.logit[3] == 0.0f && zero.slope[3] == 1.0f);
    cr_expect(isnan(hs_simd_cap(true, hs_simd_splat(NAN), 30.0f).logit[3]));
}

/* With up = 1, swiglu is x sigmoid(x): two further roundings and a division on top of exp, with its two units, which
 * become at most two more, as does the rounding of 1 + e. */
Test(simd, sigmoid_holds_in_both_tails_on_every_isa)
{
    enum { COUNT = 4096 };
    static float x[2 * COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) {
        x[i] = -80.0f + 160.0f * (float)i / (COUNT - 1);
        x[COUNT + i] = 1.0f;
    }
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++) {
        if (!backend)
            continue;
        HsContext context = { .backend = backend, .threads = 1 };
        const HsUnaryArgs args = { HS_ACTIVATION_SILU, hs_tensor_2d(x, HS_F32, 1, 2 * COUNT),
                                   hs_tensor_2d(y, HS_F32, 1, COUNT) };
        cr_assert_eq(backend->swiglu_forward(&context, &args), HS_OK);
        for (int i = 0; i < COUNT; i++) {
            const double exact = (double)x[i] / (1.0 + exp(-(double)x[i]));
            cr_assert(ulps(y[i], exact) < 6.0, "%s: silu(%g) is off by %g ulp", hs_backend_cpu_isa_name(isa),
                      (double)x[i], ulps(y[i], exact));
        }
    }
}

/* An epilogue of a product with 1: f(value), or value * f'(pre). */
static void run_function(const HsBackend *backend, HsEpilogue epilogue, const float *value, const float *pre,
                         float *result, int count)
{
    HsDevice device;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = backend, .device = &device, .threads = 1, .dry_run = true };
    float one = 1.0f;
    HsMatmulArgs args = { .a.values = hs_tensor_2d((void *)(uintptr_t)value, HS_F32, count, 1),
                          .b.values = hs_tensor_2d(&one, HS_F32, 1, 1),
                          .epilogue = epilogue,
                          .alpha = 1.0f,
                          .c = hs_tensor_2d(result, HS_F32, count, 1) };
    if (pre)
        args.pre = hs_tensor_2d((void *)(uintptr_t)pre, HS_F32, count, 1);
    cr_assert_eq(hs_op_matmul(&context, &args), HS_OK, "%s", hs_error_message());
    context.dry_run = false;
    context.workspace_bytes = context.workspace_needed;
    context.workspace = aligned_alloc(64, (context.workspace_needed + 63) / 64 * 64);
    cr_assert_eq(hs_op_matmul(&context, &args), HS_OK, "%s", hs_error_message());
    free(context.workspace);
    hs_device_deinit(&device);
}

static void check_function(const HsBackend *backend, HsEpilogue epilogue, const float *x, int count,
                           const float *forward, const float *derivative)
{
    float y[16], dx[16], ones[16];
    for (int i = 0; i < 16; i++)
        ones[i] = 1.0f;
    run_function(backend, epilogue, x, NULL, y, count);
    run_function(backend, hs_epilogue_gradient(epilogue), ones, x, dx, count);
    for (int i = 0; i < count; i++) {
        cr_assert(y[i] == forward[i], "%s: f(%g) = %g", backend->name, (double)x[i], (double)y[i]);
        cr_assert(dx[i] == derivative[i], "%s: f'(%g) = %g", backend->name, (double)x[i], (double)dx[i]);
    }
    float nan = NAN, result = 0;
    run_function(backend, epilogue, &nan, NULL, &result, 1);
    cr_assert(isnan(result));
    run_function(backend, hs_epilogue_gradient(epilogue), ones, &nan, &result, 1);
    cr_assert(isnan(result));
}

/* Where x^3 or x^2 overflow, gelu is still x or 0 and its derivative 1 or 0; NaN stays NaN. */
Test(simd, gelu_of_huge_values)
{
    static const float x[] = { 0.0f, 31.0f, -31.0f, 1e15f, -1e15f, 1e30f, -1e30f };
    static const float y[] = { 0.0f, 31.0f, 0.0f, 1e15f, 0.0f, 1e30f, 0.0f };
    static const float slope[] = { 0.5f, 1.0f, 0.0f, 1.0f, 0.0f, 1.0f, 0.0f };
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++)
        if (backend)
            check_function(backend, HS_EPILOGUE_GELU, x, 7, y, slope);
}

/* Exact wherever the square is a number of f32; what is not above 0 gives 0. */
Test(simd, relu2)
{
    static const float x[] = { 0.0f, -0.0f, 0x1p-30f, -0x1p-30f, 3.0f, -3.0f, 4095.0f, 0x1p63f, -0x1p63f, 0x1p100f };
    static const float y[] = { 0.0f, 0.0f, 0x1p-60f, 0.0f, 9.0f, 0.0f, 16769025.0f, 0x1p126f, 0.0f, INFINITY };
    static const float slope[] = { 0.0f, 0.0f, 0x1p-29f, 0.0f, 6.0f, 0.0f, 8190.0f, 0x1p64f, 0.0f, 0x1p101f };
    const HsBackend *backend;
    for (int isa = 0; next_backend(isa, &backend); isa++)
        if (backend)
            check_function(backend, HS_EPILOGUE_RELU2, x, 10, y, slope);
}

/* Parts read and write exactly `count` elements; lanes past them are zero. */
Test(simd, tails_touch_nothing_else)
{
    static const HsDtype dtypes[] = { HS_F32, HS_BF16, HS_F16 };
    for (int d = 0; d < 3; d++) {
        const size_t bytes = hs_dtype_bytes(dtypes[d]);
        for (int64_t count = 1; count <= HS_LANES; count++) {
            unsigned char source[4 * HS_LANES + 8], target[4 * HS_LANES + 8];
            memset(source, 0x3C, sizeof source); /* no lane is zero by chance */
            memset(target, 0xEE, sizeof target);
            const HsF32x16 part = hs_simd_load_part(dtypes[d], source, 0, count);
            for (int lane = (int)count; lane < HS_LANES; lane++)
                cr_assert(part[lane] == 0.0f);
            hs_simd_store_part(dtypes[d], target, 1, part, count);
            const size_t begin = bytes, end = (size_t)(count + 1) * bytes;
            for (size_t i = 0; i < sizeof target; i++)
                cr_assert(target[i] == (i >= begin && i < end ? 0x3C : 0xEE), "%s, %lld lanes, byte %zu",
                          hs_dtype_name(dtypes[d]), (long long)count, i);
        }
    }
}

/* The order of the sum is part of the interface: halves are added, then quarters, down to one lane. */
Test(simd, sum_is_one_fixed_tree)
{
    HsF32x16 v;
    for (int i = 0; i < HS_LANES; i++)
        v[i] = 2.0f * hs_rng_uniform(random_word(3, (uint64_t)i)) - 1.0f;
    float tree[HS_LANES];
    memcpy(tree, &v, sizeof tree);
    for (int width = HS_LANES / 2; width > 0; width /= 2) {
        for (int i = 0; i < width; i++)
            tree[i] += tree[i + width];
    }
    cr_assert(hs_simd_sum(v) == tree[0]);
    v[5] = 7.0f;
    cr_assert(hs_simd_largest(v) == 7.0f);
}
