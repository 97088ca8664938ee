/* SPDX-License-Identifier: MIT
 *
 * A-GEM's projection against its closed form (Chaudhry et al. 2019, eq. 11) in double, over spans of f32 and bf16
 * gradients, one of them excluded from penalties (which says nothing here).
 *
 * alpha is rounded to f32 (u |alpha r|), each element once to its gradient's dtype.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kernels/base/tolerance.h"
#include "tests/support/strategy_settings.h"

enum { SPANS = 3, COUNT = 40 };

typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsContinual *continual;
    HsSpan spans[SPANS];
    float weight[SPANS][COUNT], gradient[SPANS][COUNT];
    uint16_t gradient16[COUNT];
    double g[SPANS][COUNT], r[SPANS][COUNT]; /* what was stored, exactly */
} Fixture;

static Fixture f;

static void set_up(void)
{
    memset(&f, 0, sizeof f);
    cr_assert_eq(hs_device_host_init(&f.device), HS_OK);
    f.context = (HsContext){ .backend = hs_backend_ref(), .device = &f.device, .threads = 1 };
    for (int s = 0; s < SPANS; s++)
        f.spans[s] = (HsSpan){ .name = "span",
                               .weight = hs_tensor_1d(f.weight[s], HS_F32, COUNT),
                               .gradient = hs_tensor_1d(f.gradient[s], HS_F32, COUNT),
                               .excluded = s == 2 };
    f.spans[1].gradient = hs_tensor_1d(f.gradient16, HS_BF16, COUNT);
    const HsContinualConfig config = strategies_of("a-gem", NULL);
    cr_assert_eq(hs_continual_create(&config, &f.context, f.spans, SPANS, &f.continual), HS_OK, "%s",
                 hs_error_message());
    cr_expect_eq(hs_strategy_find("a-gem")->tensors_per_parameter(&config), 1);
}

static void tear_down(void)
{
    hs_continual_destroy(f.continual);
    cr_expect_eq(f.device.current_bytes, 0);
}

static double load(int span, int i)
{
    return hs_dtype_load(f.spans[span].gradient.dtype, f.spans[span].gradient.data, i);
}

/* Fills the gradients; `kept` remembers what was stored. */
static void fill(double kept[SPANS][COUNT], double (*value)(int span, int i), double scale)
{
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            hs_dtype_store(f.spans[s].gradient.dtype, f.spans[s].gradient.data, i, scale * value(s, i));
            kept[s][i] = load(s, i);
        }
}

static double reference_value(int span, int i)
{
    return sin((double)(span * 50 + i * 3 + 1));
}

/* Against the reference in the main, but not parallel to it. */
static double opposed_value(int span, int i)
{
    return -0.7 * reference_value(span, i) + 0.5 * cos((double)(span * 13 + i * 7));
}

static double agreeing_value(int span, int i)
{
    return -opposed_value(span, i);
}

static void take_reference(double (*value)(int, int), double scale)
{
    fill(f.r, value, scale);
    cr_assert_eq(hs_continual_take_reference(f.continual, &f.context), HS_OK, "%s", hs_error_message());
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            cr_assert_eq(load(s, i), 0.0, "the spans' gradients are cleared");
}

static void products(double *dot, double *square)
{
    *dot = *square = 0;
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            *dot += f.g[s][i] * f.r[s][i];
            *square += f.r[s][i] * f.r[s][i];
        }
}

static void expect_untouched(void)
{
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double stored = load(s, i);
            cr_assert_eq(memcmp(&stored, &f.g[s][i], sizeof stored), 0, "span %d, element %d", s, i);
        }
}

static void before_update(void)
{
    cr_assert_eq(hs_continual_before_update(f.continual, &f.context), HS_OK, "%s", hs_error_message());
}

Test(agem, a_gradient_that_would_forget_is_projected)
{
    set_up();
    const size_t held = f.device.current_bytes, peak = f.device.peak_bytes;
    for (int scale_bits = 0; scale_bits <= 16; scale_bits += 8) { /* under any loss scale */
        const double scale = ldexp(1, scale_bits);
        take_reference(reference_value, scale);
        fill(f.g, opposed_value, scale);
        double dot, square;
        products(&dot, &square);
        cr_assert_lt(dot, 0);
        before_update();
        double left = 0, left_bound = 0;
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++) {
                const double moved = -dot / square * f.r[s][i], expected = f.g[s][i] + moved;
                const double bound =
                    hs_tolerance(1, 0, HS_F32, f.spans[s].gradient.dtype, fabs(moved) + fabs(f.g[s][i]), expected);
                cr_expect(fabs(load(s, i) - expected) <= bound, "span %d [%d]: %.9g, expected %.9g +- %g", s, i,
                          load(s, i), expected, bound);
                left += load(s, i) * f.r[s][i];
                left_bound += bound * fabs(f.r[s][i]);
            }
        cr_expect_leq(fabs(left), left_bound, "nothing is left along the reference");
        cr_expect_lt(left_bound, -dot / 50, "a bound that the unprojected gradient does not meet");
    }
    cr_expect_eq(state_integer(f.continual, "agem.projections"), 3);
    cr_expect(f.device.current_bytes == held && f.device.peak_bytes == peak, "a step allocates nothing");
    tear_down();
}

static double zero(int span, int i)
{
    (void)span, (void)i;
    return 0;
}

Test(agem, a_gradient_that_agrees_is_left_alone)
{
    set_up();
    double (*const references[])(int, int) = { reference_value, reference_value, zero };
    double (*const gradients[])(int, int) = { agreeing_value, zero, opposed_value };
    for (int k = 0; k < 3; k++) {
        take_reference(references[k], 1);
        fill(f.g, gradients[k], 1);
        before_update();
        expect_untouched();
    }
    cr_expect_eq(state_integer(f.continual, "agem.projections"), 0);
    tear_down();
}

Test(agem, a_step_without_a_reference_is_left_alone)
{
    set_up();
    fill(f.g, opposed_value, 1);
    before_update(); /* the first task */
    expect_untouched();
    take_reference(reference_value, 1);
    fill(f.g, opposed_value, 1);
    before_update();
    fill(f.g, opposed_value, 1);
    before_update(); /* a reference serves one step */
    expect_untouched();
    cr_expect_eq(state_integer(f.continual, "agem.projections"), 1);
    tear_down();
}

Test(agem, a_gradient_that_is_not_finite_is_left_for_the_optimizer)
{
    set_up();
    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int k = 0; k < 3; k++) {
        take_reference(reference_value, 1);
        fill(f.g, opposed_value, 1);
        f.gradient[2][7] = bad[k];
        before_update();
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++)
                cr_assert(s == 2 && i == 7 ? !isfinite(load(s, i)) : load(s, i) == f.g[s][i]);
    }
    cr_expect_eq(state_integer(f.continual, "agem.projections"), 0);
    tear_down();
}

/* Let through, such a step would be one without protection, and the loss scale would stay as it is. */
Test(agem, a_reference_that_is_not_finite_makes_the_step_one_to_skip)
{
    set_up();
    const float bad[] = { INFINITY, -INFINITY, NAN };
    for (int k = 0; k < 3; k++) {
        fill(f.r, reference_value, 1);
        f.gradient16[5] = hs_bf16_encode(bad[k]);
        cr_assert_eq(hs_continual_take_reference(f.continual, &f.context), HS_OK);
        fill(f.g, agreeing_value, 1);
        before_update();
        cr_expect_not(isfinite(load(1, 5)));
    }
    cr_expect_eq(state_integer(f.continual, "agem.projections"), 0);
    tear_down();
}

static double tiny(int span, int i)
{
    return reference_value(span, i) * 0x1p-140; /* subnormal */
}

Test(agem, a_vanishing_reference_does_no_harm)
{
    set_up();
    take_reference(tiny, 1);
    fill(f.g, opposed_value, 1e3);
    before_update();
    expect_untouched();
    tear_down();
}
