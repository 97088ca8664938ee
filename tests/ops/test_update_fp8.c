/* SPDX-License-Identifier: MIT
 *
 * AdamW with moments in fp8: every code against the formats' definition, steps against the formulas in double, a v that
 * is never forgotten, and the same bits on the CPU and on the emulated GPU.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/rng.h"
#include "kernels/ops/moment_map.h"
#include "tests/support/emulator.h"
#include "tests/support/host_backends.h"
#include "tests/support/moments_8bit.h"

#define RUN(call) cr_assert_eq((call), HS_OK, "%s", hs_error_message())

enum { STEPS = 8 };

/* --- the formats, from their definition (Micikevicius et al. 2022, table 1) --- */

typedef struct Format {
    int mantissa, bias, top; /* top: the largest code that is a number */
} Format;
static const Format e4m3 = { 3, 7, 0x7E }, e5m2 = { 2, 15, 0x7B };

static double number(const Format *format, int code)
{
    const int exponent = code >> format->mantissa, rest = code & ((1 << format->mantissa) - 1);
    if (exponent == 0)
        return ldexp(rest, 1 - format->bias - format->mantissa);
    return ldexp((1 << format->mantissa) + rest, exponent - format->bias - format->mantissa);
}

/* Up from the number below where what is missing to the one above is no more than `random`, both in 2^-16 of their
 * distance; beyond the largest number its code. */
static int rounded(const Format *format, double magnitude, int random)
{
    int code = format->top;
    while (code > 0 && number(format, code) > magnitude)
        code--;
    if (code == format->top)
        return code;
    const double below = number(format, code), part = (magnitude - below) / (number(format, code + 1) - below);
    return floor(part * 65536.0) + random >= 65536.0 ? code + 1 : code;
}

static int m_code(double x, uint32_t word)
{
    return rounded(&e4m3, fabs(x), (int)(word >> 16)) | (signbit(x) ? 0x80 : 0);
}

static int v_code(double x, uint32_t word)
{
    const int code = rounded(&e5m2, x, (int)(word & 0xFFFF));
    return code == 0 && x > 0.0 ? 1 : code;
}

static double m_number(int code)
{
    return (code & 0x80 ? -1.0 : 1.0) * number(&e4m3, code & 0x7F);
}

static void expect_code(float x, uint32_t word)
{
    const int m = hs_moment_encode_fp8(true, x, 1.0f, word), minus = hs_moment_encode_fp8(true, -x, 1.0f, word);
    const int v = hs_moment_encode_fp8(false, x, 1.0f, word);
    const double exact = (double)x;
    if (m != m_code(exact, word) || minus != m_code(-exact, word) || v != v_code(exact, word))
        cr_assert(false, "%.9g has codes %d, %d, %d by %x, expected %d, %d, %d", exact, m, minus, v, word,
                  m_code(exact, word), m_code(-exact, word), v_code(exact, word));
}

/* By the smallest, the middle and the largest random number of each. */
static void expect_codes(float x)
{
    const uint32_t words[] = { 0, 0x00010001, 0x7FFF8000, 0x80007FFF, 0xFFFFFFFF };
    for (int i = 0; i < 5; i++)
        expect_code(x, words[i]);
}

Test(update_fp8, codes_are_those_of_the_formats)
{
    const Format *const formats[] = { &e4m3, &e5m2 };
    for (int f = 0; f < 2; f++)
        for (int code = 0; code <= formats[f]->top; code++) {
            const double at = number(formats[f], code);
            cr_expect((double)hs_moment_number(HS_MOMENTS_FP8, f == 0, code) == at);
            if (f == 0)
                cr_expect((double)hs_moment_number(HS_MOMENTS_FP8, true, code | 0x80) == -at);
            const double next = code < formats[f]->top ? number(formats[f], code + 1) : 1.25 * at;
            const float points[] = { (float)at, (float)(0.5 * (at + next)) };
            for (int p = 0; p < 2; p++) {
                expect_codes(points[p]);
                expect_codes(nextafterf(points[p], INFINITY));
                expect_codes(fmaxf(nextafterf(points[p], -INFINITY), 0.0f));
            }
        }
    const HsRng rng = { .seed = 1 };
    for (uint32_t i = 0; i < 20000; i++) { /* every exponent */
        const HsPhilox draw = hs_rng_draw(&rng, i);
        const uint32_t bits = draw.word[0] & 0x7FFFFFFFu;
        if (bits < 0x7F800000u)
            expect_code(hs_code_float(bits), draw.word[1]);
    }
    cr_expect(isnan(hs_moment_number(HS_MOMENTS_FP8, true, hs_moment_encode_fp8(true, NAN, 1.0f, 0))));
    cr_expect(isnan(hs_moment_number(HS_MOMENTS_FP8, false, hs_moment_encode_fp8(false, NAN, 1.0f, 0))));
}

/* --- steps --- */

/* Of a part that begins at the fourth block of codes. */
static const HsRng stream = { .seed = 3, .step = 5, .site = 2, .row_offset = 3 * HS_DYNAMIC_BLOCK };

static HsAdamW8bitArgs step_of(State *state)
{
    HsAdamW8bitArgs args = step_with(state, &state->scalars);
    args.map = HS_MOMENTS_FP8;
    args.update.rng = stream;
    return args;
}

/* Of sizes that differ by six decades, as those of a block do. */
static float gradient_of(int step, int i)
{
    const HsRng rng = { .seed = 7, .step = (uint32_t)step };
    const HsRng sizes = { .seed = 8 };
    double normal[2];
    const HsPhilox draw = hs_rng_draw(&rng, (uint64_t)i);
    hs_rng_normal(draw.word[0], draw.word[1], normal);
    return (float)(normal[0] * pow(10.0, -6.0 * (double)hs_rng_uniform(hs_rng_draw(&sizes, (uint64_t)i).word[0])));
}

static void begin_step(State *state, int step)
{
    for (int i = 0; i < COUNT; i++)
        state->gradient[i] = gradient_of(step, i);
    state->scalars = one;
    state->scalars.gradient_multiplier = 0.5f;
    state->scalars.bias_correction1 = (float)(1 - pow(0.9, step + 1));
    state->scalars.bias_correction2 = (float)(1 - pow(0.95, step + 1));
}

static void begin(State *state)
{
    memset(state, 0, sizeof *state);
    for (int i = 0; i < COUNT; i++)
        state->p[i] = 1.0f - 0.002f * (float)i;
}

/* What the formulas make of the state before a step. */
static void transcribe(const State *before, State *after)
{
    const HsStepScalars *scalars = &before->scalars;
    const double rate = (double)0.01f, b1 = (double)0.9f, b2 = (double)0.95f, decay = (double)0.1f;
    double m[COUNT], v[COUNT], m_most[BLOCKS] = { 0 }, v_most[BLOCKS] = { 0 };
    *after = *before;
    for (int i = 0; i < COUNT; i++) {
        const int b = i / HS_DYNAMIC_BLOCK;
        const double g = 0.5 * (double)before->gradient[i], p = (double)before->p[i];
        m[i] = b1 * (m_number(before->m[i]) * (double)before->m_absmax[b] / 448.0) + (1 - b1) * g;
        v[i] = b2 * (number(&e5m2, before->v[i]) * (double)before->v_absmax[b] / 57344.0) + (1 - b2) * g * g;
        const double step =
            m[i] / (double)scalars->bias_correction1 / (sqrt(v[i] / (double)scalars->bias_correction2) + (double)1e-8f);
        after->p[i] = (float)(p - rate * decay * p - rate * step);
        after->gradient[i] = 0.0f;
        m_most[b] = fmax(m_most[b], fabs(m[i]));
        v_most[b] = fmax(v_most[b], v[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        const int b = i / HS_DYNAMIC_BLOCK;
        const uint32_t word = hs_rng_draw(&stream, (uint64_t)(stream.row_offset + i) / 4).word[i % 4];
        after->m_absmax[b] = (float)m_most[b];
        after->v_absmax[b] = (float)v_most[b];
        after->m[i] = (uint8_t)m_code(m[i] / (double)after->m_absmax[b] * 448.0, word);
        after->v[i] = (uint8_t)v_code(v[i] / (double)after->v_absmax[b] * 57344.0, word);
    }
}

/* Each step from the codes that the transcription had before it.  f32 may fall on the other side of a bound. */
Test(update_fp8, steps_are_those_of_the_formulas)
{
    HsContext context;
    const char *name;
    static State state, expected;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        int differing = 0;
        begin(&state);
        for (int s = 0; s < STEPS; s++) {
            begin_step(&state, s);
            transcribe(&state, &expected);
            const HsAdamW8bitArgs args = step_of(&state);
            RUN(hs_op_adamw8bit(&context, &args));
            for (int i = 0; i < COUNT; i++) {
                const int b = i / HS_DYNAMIC_BLOCK;
                differing += (state.m[i] != expected.m[i]) + (state.v[i] != expected.v[i]);
                cr_assert(abs(state.m[i] - expected.m[i]) <= 1 && abs(state.v[i] - expected.v[i]) <= 1,
                          "%s: step %d, element %d: codes %d %d, expected %d %d", name, s, i, state.m[i], state.v[i],
                          expected.m[i], expected.v[i]);
                cr_assert_float_eq((double)state.p[i], (double)expected.p[i], 4e-6, "%s: step %d, p[%d]", name, s, i);
                cr_assert_float_eq(state.m_absmax[b], expected.m_absmax[b], 0x1p-20f * expected.m_absmax[b]);
                cr_assert_float_eq(state.v_absmax[b], expected.v_absmax[b], 0x1p-20f * expected.v_absmax[b]);
            }
            state = expected;
        }
        /* of 16,000 codes */
        cr_expect_leq(differing, index == 1 ? 0 : 4, "%s: %d codes differ", name, differing);
    }
}

/* Next to a block's largest square, 10^24 times as large as its own, a v that is not 0 keeps a code, and the next step
 * divides by a root that it has.  Where v is 0, so is its code. */
Test(update_fp8, a_small_v_is_not_forgotten)
{
    HsContext context;
    const char *name;
    static State state;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        begin(&state);
        state.scalars = one;
        state.gradient[0] = 1e6f;
        state.gradient[1] = 1e-6f;
        state.gradient[300] = 1e-19f; /* alone in its block, its square below what a factor can be had for */
        const HsAdamW8bitArgs args = step_of(&state);
        RUN(hs_op_adamw8bit(&context, &args));
        cr_expect(state.v[0] == 0x7B && state.v[1] == 1 && state.v[2] == 0, "%s: %d %d %d", name, state.v[0],
                  state.v[1], state.v[2]);
        cr_expect(state.v[300] == 1 && state.v[301] == 0 && state.v[2 * HS_DYNAMIC_BLOCK] == 0, "%s: %d %d", name,
                  state.v[300], state.v[301]);
        state.gradient[1] = 1e-3f; /* m's code was 0: it is too small for its block */
        const float before = state.p[1];
        RUN(hs_op_adamw8bit(&context, &args));
        cr_expect_lt(fabsf(state.p[1] - before), 0.002f, "%s: p went from %g to %g", name, (double)before,
                     (double)state.p[1]);
        for (int i = 0; i < COUNT; i++)
            cr_assert(isfinite(state.p[i]), "%s: p[%d]", name, i);
    }
}

/* Where gradients become a hundredth next to others that stay, v becomes 1e-4: to the nearest it would keep its share
 * of the block's largest.  300 steps leave 0.95^300 = 2e-7 of what it was. */
Test(update_fp8, v_follows_gradients_that_fall)
{
    enum { FALLING = HS_DYNAMIC_BLOCK, EVERY = 300 };
    HsContext context;
    const char *name;
    static State state;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        double sum = 0.0;
        begin(&state);
        state.scalars = one;
        for (int s = 0; s < 2 * EVERY; s++) {
            for (int i = 0; i < FALLING; i++)
                state.gradient[i] = i % 2 && s >= EVERY ? 0.01f : 1.0f;
            HsAdamW8bitArgs args = step_of(&state);
            args.update.rng.step = (uint32_t)s;
            RUN(hs_op_adamw8bit(&context, &args));
        }
        for (int i = 1; i < FALLING; i += 2)
            sum += number(&e5m2, state.v[i]) * (double)state.v_absmax[0] / 57344.0;
        cr_expect_float_eq(sum / (FALLING / 2), 1e-4, 1e-5, "%s: %g", name, sum / (FALLING / 2));
    }
}

/* A skipped step clears the gradient and touches nothing else. */
Test(update_fp8, skipped_steps)
{
    HsContext context;
    const char *name;
    static State state, before;
    for (int index = 0; next_host_backend(&index, &context, &name);) {
        begin(&state);
        memset(state.m, 77, sizeof state.m);
        state.m_absmax[1] = 1.0f;
        state.scalars = one;
        state.scalars.skip = 1;
        before = state;
        state.gradient[3] = NAN;
        const HsAdamW8bitArgs args = step_of(&state);
        RUN(hs_op_adamw8bit(&context, &args));
        cr_expect(memcmp(&state, &before, sizeof state) == 0, "%s: a skipped step changed something", name);
    }
}

/* Steps on a device; the state in *result. */
static void train(HsContext *context, State *result)
{
    HsDevice *device = context->device;
    void *memory;
    static State state;
    begin(&state);
    RUN(device->alloc(device, sizeof state, &memory));
    for (int s = 0; s < STEPS; s++) {
        begin_step(&state, s);
        RUN(device->copy(device, NULL, memory, &state, sizeof state));
        const HsAdamW8bitArgs args = step_of(memory);
        RUN(hs_op_adamw8bit(context, &args));
        RUN(device->copy(device, NULL, &state, memory, sizeof state));
        RUN(device->stream_sync(device, NULL));
    }
    *result = state;
    device->release(device, memory);
}

Test(update_fp8, cpu_and_emulator_have_the_same_bits)
{
    static State expected, state;
    HsDevice host, emulated;
    const HsCudaOptions options = { 0 };
    RUN(hs_device_host_init(&host));
    RUN(emulator()->device_init(&emulated, &options));
    HsContext context = { .backend = emulator()->backend, .device = &emulated, .threads = 1 };
    train(&context, &expected);
    const char *name;
    int compared = 0;
    for (int index = 1; next_host_backend(&index, &context, &name);) {
        if (strcmp(name, "portable") == 0) /* without fused multiply-adds */
            continue;
        context.device = &host;
        train(&context, &state);
        cr_expect(memcmp(&state, &expected, sizeof state) == 0, "%s: bits differ", name);
        compared++;
    }
    cr_log_info("%d instruction sets compared", compared);
    hs_device_deinit(&emulated);
    hs_device_deinit(&host);
}

Test(update_fp8, is_checked)
{
    static State state;
    HsContext context = { .backend = hs_backend_ref(), .threads = 1 };
    HsAdamW8bitArgs args = step_of(&state);
    args.map = HS_MOMENT_MAPS;
    cr_expect_eq(hs_op_adamw8bit(&context, &args), HS_EINVAL);
    cr_expect_not_null(strstr(hs_error_message(), "adamw8bit: there is no map 2 of moments"), "%s", hs_error_message());
}
