/* SPDX-License-Identifier: MIT
 *
 * Strengths that are found rather than set, in units of a task's own curvature, against that unit computed here in
 * double from the scripted gradients.
 */
#include "tests/support/protected_spans.h"
#include "tests/support/strategy_settings.h"

#include "kernels/base/tolerance.h"

enum { TASKS = 3, STEPS = 5 };

static ProtectedSpans fixture, other;

static HsContinualConfig automatic(const char *penalty, const char *replay)
{
    HsContinualConfig config = strategies_of(penalty, replay);
    set_number(&config, "ewc", "lambda", NAN);
    set_number(&config, "l2", "lambda", NAN);
    set_number(&config, "si", "strength", NAN);
    set_word(&config, "ewc", "normalize", "auto");
    return config;
}

/* The mean over the spans that are protected. */
static double mean_fisher(const ScriptedFisher *fisher)
{
    double sum = 0;
    for (int s = 0; s < EXCLUDED; s++)
        for (int i = 0; i < COUNT; i++)
            sum += fisher_exact(fisher, s, i);
    return sum / (EXCLUDED * COUNT);
}

/* Strength after each of the tasks, and the sum of their Fishers' means. */
static void strengths_of(const HsContinualConfig *config, double strength[TASKS], double mean[TASKS])
{
    double sum = 0;
    spans_init(&fixture, &plain_adamw, 0.01, 64);
    HsContinual *continual = spans_protect(&fixture, config);
    for (int task = 0; task < TASKS; task++) {
        SPANS_OK(hs_continual_begin_task(continual, &fixture.context, task));
        spans_train(&fixture, task, STEPS);
        const ScriptedFisher fisher = fisher_of(&fixture, task);
        SPANS_OK(spans_end_task(continual, &fixture, fisher));
        strength[task] = (double)fixture.spans[0].protection.strength;
        cr_expect_eq(fixture.spans[1].protection.strength, fixture.spans[0].protection.strength);
        mean[task] = sum += mean_fisher(&fisher);
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++)
                cr_expect_eq(spans_gradient(&fixture, s, i), 0.0, "a step must find gradients of zero");
    }
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(strength, ewc_is_in_the_fishers_own_units)
{
    double strength[TASKS], mean[TASKS], with_replay[TASKS];
    const HsContinualConfig alone = automatic("ewc", NULL), replayed = automatic("ewc", "er");
    strengths_of(&alone, strength, mean);
    strengths_of(&replayed, with_replay, mean);
    for (int task = 0; task < TASKS; task++) {
        cr_expect_eq(strength[task], strength[0], "the Fisher grows with the tasks, not what it is multiplied by");
        cr_expect_gt(strength[task], 1.0, "at least Laplace's");
        cr_expect_gt(with_replay[task], 0.0);
        cr_expect_lt(with_replay[task], strength[task]);
    }
    /* and the importance is the Fisher itself */
    spans_init(&fixture, &plain_adamw, 0.01, 64);
    HsContinual *continual = spans_protect(&fixture, &alone);
    const ScriptedFisher fisher = fisher_of(&fixture, 0);
    SPANS_OK(spans_end_task(continual, &fixture, fisher));
    for (int i = 0; i < COUNT; i++) {
        const double exact = fisher_exact(&fisher, 0, i);
        cr_expect_float_eq(spans_load(&fixture.spans[0].protection.importance, i), exact,
                           hs_tolerance(FISHER_SAMPLES + 3, 0, HS_F32, HS_F32, exact, exact));
    }
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

/* How a strength grows with the foreignness of the tasks so far: their geometric mean, a typical one counted in.
 * The fixture has no matrices, so that ewc is a diagonal too. */
static double grown(const double *ratios, int count)
{
    const double typical = 3, most = 80;
    double product = typical;
    for (int i = 0; i < count; i++)
        product *= fmin(fmax(ratios[i], 1), 1100);
    return pow(fmin(pow(product, 1.0 / (count + 1)), most) / typical, 1.2);
}

/* All tasks so far decide; before the first anchor and with replay none is requested. */
Test(strength, follows_the_mean_foreignness)
{
    static const char *const names[] = { "ewc", "l2", "si" };
    const double ratios[] = { 32, 8, 5000, 5000, 5000, 0.5 }; /* the mean of five is beyond the bound */
    enum { RATIOS = sizeof ratios / sizeof *ratios };
    for (int n = 0; n < 3; n++) {
        const HsContinualConfig config = automatic(names[n], NULL);
        spans_init(&fixture, &plain_adamw, 0.01, 64);
        HsContinual *continual = spans_protect(&fixture, &config);
        cr_expect_not(hs_continual_wants_foreignness(continual, 0));
        SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 0));
        spans_train(&fixture, 0, STEPS);
        SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
        cr_expect(hs_continual_wants_foreignness(continual, 1));
        const double unit = (double)fixture.spans[0].protection.strength; /* of a typical task */
        for (int i = 0; i < RATIOS; i++) {
            SPANS_OK(hs_continual_meet_task(continual, ratios[i]));
            const double now = (double)fixture.spans[0].protection.strength;
            /* each task's factor is rounded to f32, and so is their product */
            cr_expect_float_eq(now, unit * grown(ratios, i + 1), hs_tolerance(2 * i + 4, 0, HS_F32, HS_F32, now, now),
                               "%s, %d", names[n], i);
            cr_expect_eq(fixture.spans[1].protection.strength, fixture.spans[0].protection.strength);
        }
        SPANS_OK(hs_continual_meet_task(continual, (double)NAN)); /* says nothing */
        cr_expect_float_eq((double)fixture.spans[0].protection.strength, unit * grown(ratios, RATIOS),
                           hs_tolerance(2 * RATIOS + 4, 0, HS_F32, HS_F32, unit * grown(ratios, RATIOS), 0));
        SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 1)));
        if (n != 1) /* l2's unit grows with the tasks */
            cr_expect_float_eq((double)fixture.spans[0].protection.strength, unit * grown(ratios, RATIOS),
                               hs_tolerance(2 * RATIOS + 4, 0, HS_F32, HS_F32, unit * grown(ratios, RATIOS), 0), "%s",
                               names[n]);
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
    HsContinualConfig deaf[] = { automatic("ewc", "er"), automatic("ewc", NULL), automatic("ewc", NULL) };
    deaf[1].unmarked = true;
    set_number(&deaf[2], "ewc", "lambda", 3);
    for (int d = 0; d < 3; d++) {
        spans_init(&fixture, &plain_adamw, 0.01, 64);
        HsContinual *continual = spans_protect(&fixture, &deaf[d]);
        cr_expect_not(hs_continual_wants_foreignness(continual, 1), "%d", d);
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
}

/* Text that is anything but like the one before, and losses that are no numbers. */
Test(strength, is_bounded_whatever_it_is_given)
{
    const HsContinualConfig config = automatic("ewc", NULL);
    const double told[] = { (double)INFINITY, (double)NAN, 0, -1 };
    for (int i = 0; i < 4; i++) {
        spans_init(&fixture, &plain_adamw, 0.01, 64);
        HsContinual *continual = spans_protect(&fixture, &config);
        SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
        const float before = fixture.spans[0].protection.strength;
        SPANS_OK(hs_continual_meet_task(continual, told[i]));
        const float now = fixture.spans[0].protection.strength;
        cr_expect(isfinite(now) && now > 0 && now < 1000 * before, "%g: %g", told[i], (double)now);
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
}

/* An average parameter is held as ewc would hold it, up to one constant for all tasks. */
Test(strength, l2_follows_the_mean_of_the_fisher)
{
    double strength[TASKS], mean[TASKS], with_replay[TASKS];
    const HsContinualConfig alone = automatic("l2", NULL), replayed = automatic("l2", "er");
    strengths_of(&alone, strength, mean);
    strengths_of(&replayed, with_replay, mean);
    for (int task = 1; task < TASKS; task++) {
        const double exact = mean[task] / mean[0];
        cr_expect_float_eq(strength[task] / strength[0], exact, hs_tolerance(4, 0, HS_F32, HS_F32, exact, exact));
        cr_expect_float_eq(with_replay[task] / with_replay[0], exact, hs_tolerance(4, 0, HS_F32, HS_F32, exact, exact));
    }
    cr_expect_lt(with_replay[0], strength[0]);
}

Test(strength, l2_says_that_no_gradient_came)
{
    const HsContinualConfig config = automatic("l2", NULL);
    spans_init(&fixture, &plain_sgd, 0.01, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    ScriptedFisher fisher = fisher_of(&fixture, 0);
    fisher.size = 0;
    cr_expect_eq(spans_end_task(continual, &fixture, fisher), HS_ENUMERIC);
    cr_expect_not_null(strstr(hs_error_message(), "set l2.lambda to a number"), "%s", hs_error_message());
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

/* Steps that nothing bounds are taken proximally, others as gradients, to the bit. */
Test(strength, automatic_step_suits_the_rule)
{
    const struct {
        const HsOptimizerConfig *optimizer;
        const char *same;
    } cases[] = { { &plain_sgd, "proximal" }, { &plain_adamw, "gradient" } };
    for (int c = 0; c < 2; c++) {
        HsContinualConfig chosen = automatic("ewc", NULL), written = chosen;
        chosen.optimizer = written.optimizer = cases[c].optimizer->kind;
        set_word(&chosen, "ewc", "step", "auto");
        set_word(&written, "ewc", "step", cases[c].same);
        spans_init(&fixture, cases[c].optimizer, 0.01, 1);
        spans_init(&other, cases[c].optimizer, 0.01, 1);
        HsContinual *first = spans_protect(&fixture, &chosen), *second = spans_protect(&other, &written);
        for (int task = 0; task < 2; task++) {
            spans_train(&fixture, task, STEPS);
            spans_train(&other, task, STEPS);
            SPANS_OK(spans_end_task(first, &fixture, fisher_of(&fixture, task)));
            SPANS_OK(spans_end_task(second, &other, fisher_of(&other, task)));
        }
        spans_train(&fixture, 2, STEPS);
        spans_train(&other, 2, STEPS);
        cr_expect(spans_equal(&fixture, &other), "%s", cases[c].same);
        hs_continual_destroy(first);
        hs_continual_destroy(second);
        spans_deinit(&other);
        spans_deinit(&fixture);
    }
}

/* Numbers by name, written by one walk and read by another; the tensors are the test's to copy. */
typedef struct Kept {
    const char *name[16];
    double real[16];
    int count, next;
    bool load;
} Kept;

static HsStatus keep_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    Kept *kept = user;
    double real = (double)*value;
    (void)most;
    if (kept->load) {
        cr_assert_str_eq(kept->name[kept->next], name);
        *value = (int64_t)kept->real[kept->next++];
        return HS_OK;
    }
    kept->name[kept->count] = name;
    kept->real[kept->count++] = real;
    return HS_OK;
}

static HsStatus keep_real(void *user, const char *name, double *value)
{
    Kept *kept = user;
    if (kept->load) {
        cr_assert_str_eq(kept->name[kept->next], name);
        *value = kept->real[kept->next++];
        return HS_OK;
    }
    kept->name[kept->count] = name;
    kept->real[kept->count++] = *value;
    return HS_OK;
}

static HsStatus leave_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    (void)user, (void)family, (void)span;
    if (((Kept *)user)->load) /* a restored importance is some importance */
        for (int64_t i = 0; i < hs_tensor_count(tensor); i++)
            hs_dtype_store(tensor->dtype, tensor->data, i, 0.5);
    return HS_OK;
}

Test(strength, is_restored_and_continues)
{
    static const char *const names[] = { "ewc", "l2", "si" };
    for (int n = 0; n < 3; n++) {
        const HsContinualConfig config = automatic(names[n], NULL);
        Kept kept = { 0 };
        const HsStateVisitor visitor = { &kept, keep_integer, keep_real, leave_tensor, keep_integer };
        spans_init(&fixture, &plain_adamw, 0.01, 1);
        spans_init(&other, &plain_adamw, 0.01, 1);
        HsContinual *first = spans_protect(&fixture, &config), *second = spans_protect(&other, &config);
        SPANS_OK(hs_continual_begin_task(first, &fixture.context, 0));
        spans_train(&fixture, 0, STEPS);
        SPANS_OK(spans_end_task(first, &fixture, fisher_of(&fixture, 0)));
        SPANS_OK(hs_continual_visit(first, &visitor));
        kept.load = true;
        SPANS_OK(hs_continual_visit(second, &visitor));
        cr_expect_eq(kept.next, kept.count);
        cr_expect_gt(other.spans[0].protection.strength, 0.0f);
        cr_expect_eq(other.spans[0].protection.strength, fixture.spans[0].protection.strength, "%s", names[n]);
        /* a further task's end adds to what the first one left */
        SPANS_OK(spans_end_task(first, &fixture, fisher_of(&fixture, 1)));
        SPANS_OK(spans_end_task(second, &other, fisher_of(&other, 1)));
        cr_expect_eq(other.spans[0].protection.strength, fixture.spans[0].protection.strength, "%s", names[n]);
        hs_continual_destroy(first);
        hs_continual_destroy(second);
        spans_deinit(&other);
        spans_deinit(&fixture);
    }
}
