/* SPDX-License-Identifier: MIT
 *
 * AdamW with moments in 8 bits: the maps of bitsandbytes to the bit, the nearest code of every number, steps against a
 * plain transcription (the same codes) and against bitsandbytes' own.
 *
 * tests/ops/bitsandbytes/make.py wrote the fixture.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/base/tolerance.h"
#include "tests/support/host_backends.h"
#include "tests/support/moments_8bit.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { BLOCK = 256, STEPS = 6 };

/* As make.py has written it. */
typedef struct Step {
    float gradient[COUNT], p[COUNT];
    uint8_t m[COUNT], v[COUNT];
    float m_absmax[BLOCKS], v_absmax[BLOCKS];
} Step;

static struct Fixture {
    float map[2][BLOCK], p[COUNT]; /* signed, unsigned */
    Step steps[STEPS];
} fixture;

static void load_fixture(void)
{
    FILE *file = fopen("tests/ops/bitsandbytes/adamw8bit.bin", "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fread(&fixture, 1, sizeof fixture, file), sizeof fixture);
    cr_assert_eq(fgetc(file), EOF);
    fclose(file);
}

TestSuite(update_8bit, .init = load_fixture);

Test(update_8bit, maps_are_those_of_bitsandbytes)
{
    for (int code = 0; code < BLOCK; code++)
        for (int u = 0; u < 2; u++) {
            const float value = hs_dynamic_value(u == 0, code);
            cr_expect(value == fixture.map[u][code], "map %d, code %d: %.9g, expected %.9g", u, code, (double)value,
                      (double)fixture.map[u][code]);
        }
}

/* The nearest of the fixture's values by all distances; at a midpoint, as the two's mean is in f32, the even code; no
 * negative number has the code of a number that is none. */
static int nearest_code(bool is_signed, double x)
{
    const float *map = fixture.map[is_signed ? 0 : 1];
    int code = 0;
    while (code < BLOCK - 1) {
        const double midpoint = (double)(0.5f * (map[code] + map[code + 1]));
        if (x < midpoint || (x == midpoint && code % 2 == 0))
            break;
        code++;
    }
    return is_signed && x < 0 && map[code] >= 0 ? code - 1 : code;
}

/* With both decay rates 0 the moments are the gradient and its square; each block's largest is 1, so that nothing is
 * rounded before it is encoded. */
static void expect_codes(HsContext *context, const char *name, const double *numbers, int count)
{
    static State state;
    memset(&state, 0, sizeof state);
    for (int i = 0; i < COUNT; i++)
        state.gradient[i] = i % BLOCK == 0 ? 1.0f : (float)numbers[i % count];
    HsAdamW8bitArgs args = step_with(&state, &one);
    args.beta1 = args.beta2 = 0.0f;
    float gradient[COUNT];
    const bool is_exact = context->backend == hs_backend_ref(); /* which rounds nothing before */
    memcpy(gradient, state.gradient, sizeof gradient);
    RUN(hs_op_adamw8bit(context, &args));
    for (int i = 0; i < COUNT; i++) {
        const float g = gradient[i];
        const int m = nearest_code(true, (double)g),
                  v = nearest_code(false, is_exact ? (double)g * (double)g : (double)(g * g));
        if (state.m[i] != m)
            cr_expect(false, "%s: m %.9g has code %d, expected %d", name, (double)g, state.m[i], m);
        if (state.v[i] != v)
            cr_expect(false, "%s: v %.9g has code %d, expected %d", name, (double)(g * g), state.v[i], v);
    }
    for (int b = 0; b < BLOCKS; b++)
        cr_expect(state.m_absmax[b] == 1.0f && state.v_absmax[b] == 1.0f);
}

/* Values, midpoints and their neighbours of both signs and both maps; then any numbers. */
Test(update_8bit, every_number_has_the_nearest_code)
{
    HsContext context;
    const char *name;
    static double numbers[6 * BLOCK];
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        for (int u = 0; u < 2; u++)
            for (int code = 0; code + 1 < BLOCK; code += 40) {
                int count = 0;
                for (int c = code; c < code + 40 && c + 1 < BLOCK; c++) {
                    const float *map = fixture.map[u], at[] = { map[c], 0.5f * (map[c] + map[c + 1]) };
                    for (int k = 0; k < 2; k++) {
                        const float x = u ? sqrtf(at[k]) : at[k];
                        numbers[count++] = (double)x;
                        numbers[count++] = (double)fminf(nextafterf(x, 2.0f), 1.0f);
                        numbers[count++] = (double)fmaxf(nextafterf(x, -2.0f), -1.0f);
                    }
                }
                expect_codes(&context, name, numbers, count);
            }
        for (uint32_t site = 0; site < 20; site++) {
            const HsRng rng = { .seed = 3, .site = site };
            for (int i = 0; i < 251; i++) {
                const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
                const double size = exp(-18.0 * (double)hs_rng_uniform(draw.word[0]));
                numbers[i] = draw.word[1] % 2 ? size : -size;
            }
            expect_codes(&context, name, numbers, 251);
        }
    }
}

/* Steps on the reference against the formulas in double: the same codes, k steps on. */
Test(update_8bit, reference_is_the_transcription)
{
    HsContext context = { .backend = hs_backend_ref(), .threads = 1 };
    static State state;
    memset(&state, 0, sizeof state);
    memcpy(state.p, fixture.p, sizeof state.p);
    static float p[COUNT], m_absmax[BLOCKS], v_absmax[BLOCKS];
    static int m_code[COUNT], v_code[COUNT];
    memcpy(p, fixture.p, sizeof p);
    for (int s = 0; s < STEPS; s++) {
        static double m[COUNT], v[COUNT];
        const HsStepScalars scalars = { .learning_rate = 0.01f,
                                        .gradient_multiplier = 0.5f,
                                        .bias_correction1 = (float)(1 - pow(0.9, s + 1)),
                                        .bias_correction2 = (float)(1 - pow(0.95, s + 1)),
                                        .unscale = 2 };
        memcpy(state.gradient, fixture.steps[s].gradient, sizeof state.gradient);
        const HsAdamW8bitArgs args = step_with(&state, &scalars);
        RUN(hs_op_adamw8bit(&context, &args));
        const double rate = (double)0.01f, b1 = (double)0.9f, b2 = (double)0.95f, decay = (double)0.1f;
        double m_most[BLOCKS] = { 0 }, v_most[BLOCKS] = { 0 };
        for (int i = 0; i < COUNT; i++) {
            const int b = i / BLOCK;
            const double g = 0.5 * (double)fixture.steps[s].gradient[i];
            m[i] = b1 * ((double)fixture.map[0][m_code[i]] * (double)m_absmax[b]) + (1 - b1) * g;
            v[i] = b2 * ((double)fixture.map[1][v_code[i]] * (double)v_absmax[b]) + (1 - b2) * g * g;
            const double step = m[i] / (double)scalars.bias_correction1 /
                                (sqrt(v[i] / (double)scalars.bias_correction2) + (double)1e-8f);
            p[i] = (float)((double)p[i] - rate * decay * (double)p[i] - rate * step);
            m_most[b] = fmax(m_most[b], fabs(m[i]));
            v_most[b] = fmax(v_most[b], v[i]);
        }
        for (int i = 0; i < COUNT; i++) {
            m_absmax[i / BLOCK] = (float)m_most[i / BLOCK];
            v_absmax[i / BLOCK] = (float)v_most[i / BLOCK];
            m_code[i] = nearest_code(true, m[i] / (double)m_absmax[i / BLOCK]);
            v_code[i] = nearest_code(false, v[i] / (double)v_absmax[i / BLOCK]);
            cr_assert(state.m[i] == m_code[i] && state.v[i] == v_code[i], "step %d, element %d: codes %d %d", s, i,
                      state.m[i], state.v[i]);
            cr_assert_float_eq((double)state.p[i], (double)p[i], 1e-6 * fabs((double)p[i]) + 1e-9);
        }
        cr_assert_eq(memcmp(state.m_absmax, m_absmax, sizeof m_absmax), 0);
        cr_assert_eq(memcmp(state.v_absmax, v_absmax, sizeof v_absmax), 0);
    }
}

/* Each step from the state that bitsandbytes had before it.  Its roundings are others than ours: it forms 1 - beta in
 * double, where f32 is off by four roundings, and may have four more.  And on CPUs it has not the rule of its GPU
 * kernels that a small negative m is not encoded as 0: 127 there is 126 here. */
Test(update_8bit, steps_are_those_of_bitsandbytes)
{
    HsContext context;
    const char *name;
    static State state;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        int signs = 0, near_midpoints = 0;
        memset(&state, 0, sizeof state);
        memcpy(state.p, fixture.p, sizeof state.p);
        for (int s = 0; s < STEPS; s++) {
            const Step *expected = &fixture.steps[s];
            const HsStepScalars scalars = { .learning_rate = 0.01f,
                                            .gradient_multiplier = 1,
                                            .bias_correction1 = (float)(1 - pow(0.9, s + 1)),
                                            .bias_correction2 = (float)(1 - pow(0.95, s + 1)),
                                            .unscale = 1 };
            memcpy(state.gradient, expected->gradient, sizeof state.gradient);
            const HsAdamW8bitArgs args = step_with(&state, &scalars);
            float before[COUNT], m_before[BLOCKS];
            memcpy(before, state.p, sizeof before);
            memcpy(m_before, state.m_absmax, sizeof m_before);
            RUN(hs_op_adamw8bit(&context, &args));
            for (int i = 0; i < COUNT; i++) {
                const int b = i / BLOCK;
                /* 16 roundings on p and on a step of at most lr / (1 - b1) sizes of m / sqrt(v) */
                const double moved = fabs((double)expected->p[i] - (double)before[i]);
                cr_assert_float_eq(
                    (double)state.p[i], (double)expected->p[i],
                    hs_tolerance(16, 0, HS_F32, HS_F32, fabs((double)before[i]) + 10 * moved, (double)expected->p[i]),
                    "%s: step %d, p[%d] is %.9g, expected %.9g", name, s, i, (double)state.p[i],
                    (double)expected->p[i]);
                const bool sign = expected->m[i] == 127 && state.m[i] == 126;
                signs += sign;
                near_midpoints += (state.m[i] != expected->m[i] && !sign) + (state.v[i] != expected->v[i]);
                cr_assert(sign || abs(state.m[i] - expected->m[i]) <= 1, "%s: step %d, m[%d]", name, s, i);
                cr_assert(abs(state.v[i] - expected->v[i]) <= 1, "%s: step %d, v[%d]", name, s, i);
                /* what decay leaves of the old and what comes may cancel */
                cr_assert_float_eq(state.m_absmax[b], expected->m_absmax[b],
                                   0x1p-20f * (expected->m_absmax[b] + 2.0f * m_before[b]));
                cr_assert_float_eq(state.v_absmax[b], expected->v_absmax[b], 0x1p-20f * expected->v_absmax[b]);
            }
            memcpy(state.p, expected->p, sizeof state.p);
            memcpy(state.m, expected->m, sizeof state.m);
            memcpy(state.v, expected->v, sizeof state.v);
            memcpy(state.m_absmax, expected->m_absmax, sizeof state.m_absmax);
            memcpy(state.v_absmax, expected->v_absmax, sizeof state.v_absmax);
        }
        /* of 12,000 codes */
        cr_expect_leq(near_midpoints, 3, "%s: %d codes differ", name, near_midpoints);
        cr_expect_gt(signs, 0, "%s: no small negative m came up", name);
    }
}

/* A skipped step clears the gradient and touches nothing else; a block of zeros, or of numbers too small for a
 * reciprocal, is no reason for NaN. */
Test(update_8bit, skipped_and_empty_steps)
{
    HsContext context;
    const char *name;
    static State state, before;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        memset(&state, 0, sizeof state);
        memset(state.m, 77, sizeof state.m);
        memcpy(state.p, fixture.p, sizeof state.p);
        state.m_absmax[1] = 1.0f;
        before = state;
        state.gradient[3] = NAN;
        HsStepScalars scalars = one;
        scalars.skip = 1;
        HsAdamW8bitArgs args = step_with(&state, &scalars);
        RUN(hs_op_adamw8bit(&context, &args));
        cr_expect(memcmp(&state, &before, sizeof state) == 0, "%s: a skipped step changed something", name);

        memset(&state, 0, sizeof state);
        state.gradient[300] = 1e-30f;
        args = step_with(&state, &one);
        RUN(hs_op_adamw8bit(&context, &args));
        for (int i = 0; i < COUNT; i++)
            cr_assert(isfinite(state.p[i]), "%s: p[%d]", name, i);
        cr_expect(state.m[0] == 127 && state.v[0] == 0 && state.m_absmax[0] == 0.0f, "%s: %d %d", name, state.m[0],
                  state.v[0]);
    }
}

Test(update_8bit, is_checked)
{
    static State state;
    HsContext context = { .backend = hs_backend_ref(), .threads = 1 };
    HsAdamW8bitArgs args = step_with(&state, &one);
    args.m.dtype = HS_F32;
    cr_expect_eq(hs_op_adamw8bit(&context, &args), HS_ESHAPE);
    args = step_with(&state, &one);
    args.v_absmax.shape[0] = 3;
    cr_expect_eq(hs_op_adamw8bit(&context, &args), HS_ESHAPE);
    cr_expect_not_null(strstr(hs_error_message(), "adamw8bit: v_absmax is [3], expected 4 elements"), "%s",
                       hs_error_message());
    args = step_with(&state, &one);
    args.update.rng.row_offset = 64; /* within a block */
    cr_expect_eq(hs_op_adamw8bit(&context, &args), HS_EINVAL);
}
