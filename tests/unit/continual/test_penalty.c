/* SPDX-License-Identifier: MIT
 *
 * The penalties l2, ewc and si through whole tasks, against their definitions written again here in double.
 *
 * Single steps start from what is stored (importance, anchor, parameter, moments), so that the exact step differs from
 * the tested one by the rounding of the result alone: the reference backend computes in double.  Stored importance is a
 * sum of positive terms, each rounded to f32 a known number of times: its bound is relative to itself.
 */
#include "tests/support/protected_spans.h"
#include "tests/support/strategy_settings.h"

#include "kernels/base/tolerance.h"

enum { TASKS = 3, STEPS = 5 };

static ProtectedSpans fixture, other;

typedef enum Normalize { NONE, MAX, MEAN, L2 } Normalize;

static HsContinualConfig ewc_config(double lambda, Normalize normalize)
{
    static const char *const words[] = { [NONE] = "none", [MAX] = "max", [MEAN] = "mean", [L2] = "l2" };
    HsContinualConfig config = strategies_of("ewc", NULL);
    set_number(&config, "ewc", "lambda", lambda);
    set_word(&config, "ewc", "normalize", words[normalize]);
    return config;
}

static HsContinualConfig l2_config(double lambda)
{
    HsContinualConfig config = strategies_of("l2", NULL);
    set_number(&config, "l2", "lambda", lambda);
    return config;
}

static HsContinualConfig si_config(double strength, double damping)
{
    HsContinualConfig config = strategies_of("si", NULL);
    set_number(&config, "si", "strength", strength);
    set_number(&config, "si", "damping", damping);
    return config;
}

/* Stored importance after `tasks` tasks: each sample one f32 rounding, a task's end three (scale, product, sum). */
static double importance_bound(int tasks, double value)
{
    return hs_tolerance((FISHER_SAMPLES + 3) * tasks, 0, HS_F32, HS_F32, value, value);
}

/* One rounding to f32 of a result computed in double from terms of this magnitude. */
static double step_bound(double magnitude, double value)
{
    return hs_tolerance(16, 0, HS_F64, HS_F32, magnitude, value);
}

/* The penalty's share of one parameter, as the spans carry it. */
typedef struct Pull {
    double strength, anchor;
} Pull;

static Pull pull_of(int s, int i)
{
    const HsProtection *protection = &fixture.spans[s].protection;
    if (!hs_tensor_present(&protection->anchor))
        return (Pull){ 0, 0 };
    const double importance = hs_tensor_present(&protection->importance) ? spans_load(&protection->importance, i) : 1.0;
    return (Pull){ (double)protection->strength * importance, spans_load(&protection->anchor, i) };
}

/* SGD on a quadratic loss:  gradient: p' = p - lr (g + k (p - a));  proximal: q = p - lr g, p' = (q + lr k a)/(1 + lr
 * k). */
static void check_sgd_step(double rate, bool is_proximal)
{
    double expected[SPANS][COUNT], magnitude[SPANS][COUNT];
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double p = spans_parameter(&fixture, s, i), g = spans_gradient(&fixture, s, i);
            const double lr = (double)(float)rate * (s == 1 ? 0.5 : 1.0);
            const Pull pull = pull_of(s, i);
            const double k = lr * pull.strength, q = p - lr * g;
            expected[s][i] = is_proximal ? (q + k * pull.anchor) / (1 + k) : p - lr * g - k * (p - pull.anchor);
            magnitude[s][i] = (1 + k) * (fabs(p) + lr * fabs(g) + fabs(pull.anchor));
        }
    spans_step(&fixture);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double p = spans_parameter(&fixture, s, i), bound = step_bound(magnitude[s][i], expected[s][i]);
            cr_expect(fabs(p - expected[s][i]) <= bound, "%s[%d]: %.9g, expected %.9g +- %g", fixture.spans[s].name, i,
                      p, expected[s][i], bound);
        }
}

static void check_sgd_steps(const HsContinualConfig *config, double rate, bool is_proximal)
{
    spans_init(&fixture, &plain_sgd, rate, 64);
    HsContinual *continual = spans_protect(&fixture, config);
    spans_train(&fixture, 0, STEPS);
    SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
    for (int n = 0; n < STEPS; n++) {
        spans_set_gradients(&fixture, 1);
        check_sgd_step(rate, is_proximal);
    }
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++)
            cr_expect_lt(fabs(spans_parameter(&fixture, s, i)), 2.0, "no step may have diverged");
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(penalty, ewc_gradient_step_is_its_closed_form)
{
    const HsContinualConfig config = ewc_config(10, MAX);
    check_sgd_steps(&config, 0.05, false);
}

Test(penalty, ewc_proximal_step_is_its_closed_form_and_stable_for_any_strength)
{
    HsContinualConfig config = ewc_config(10, MAX);
    set_word(&config, "ewc", "step", "proximal");
    check_sgd_steps(&config, 0.05, true);
    set_number(&config, "ewc", "lambda", 1e9); /* an explicit step would multiply every distance by about -5e7 */
    check_sgd_steps(&config, 0.05, true);
}

Test(penalty, l2_step_is_its_closed_form)
{
    const HsContinualConfig config = l2_config(4);
    check_sgd_steps(&config, 0.05, false);
}

/* AdamW once more, p and the moments taken from what is stored; the penalty joins g, or follows the update. */
static void check_adamw_step(double rate, int t, bool is_proximal)
{
    double expected[SPANS][COUNT], magnitude[SPANS][COUNT];
    const double b1 = (double)(float)0.9, b2 = (double)(float)0.95, epsilon = (double)(float)1e-8;
    const double bc1 = (double)(float)(1 - pow(0.9, t)), bc2 = (double)(float)(1 - pow(0.95, t));
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double lr = (double)(float)rate * (s == 1 ? 0.5 : 1.0), decay = s == 0 ? (double)(float)0.1 : 0.0;
            const double start = spans_parameter(&fixture, s, i);
            const Pull pull = pull_of(s, i);
            double g = spans_gradient(&fixture, s, i);
            if (!is_proximal)
                g += pull.strength * (start - pull.anchor);
            const double m = b1 * (double)fixture.state[s][0][i] + (1 - b1) * g;
            const double v = b2 * (double)fixture.state[s][1][i] + (1 - b2) * g * g;
            double p = start - lr * decay * start - lr * (m / bc1) / (sqrt(v / bc2) + epsilon);
            magnitude[s][i] = fabs(start) + lr * fabs(m / bc1) / (sqrt(v / bc2) + epsilon) + fabs(pull.anchor);
            if (is_proximal)
                p = (p + lr * pull.strength * pull.anchor) / (1 + lr * pull.strength);
            expected[s][i] = p;
        }
    spans_step(&fixture);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT; i++) {
            const double p = spans_parameter(&fixture, s, i), bound = step_bound(magnitude[s][i], expected[s][i]);
            cr_expect(fabs(p - expected[s][i]) <= bound, "%s[%d]: %.9g, expected %.9g +- %g", fixture.spans[s].name, i,
                      p, expected[s][i], bound);
        }
}

Test(penalty, ewc_through_adamw)
{
    for (int is_proximal = 0; is_proximal <= 1; is_proximal++) {
        HsContinualConfig config = ewc_config(50, MEAN);
        set_word(&config, "ewc", "step", is_proximal ? "proximal" : "gradient");
        spans_init(&fixture, &plain_adamw, 0.01, 64);
        HsContinual *continual = spans_protect(&fixture, &config);
        spans_train(&fixture, 0, STEPS);
        SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
        for (int n = 0; n < STEPS; n++) {
            spans_set_gradients(&fixture, 1);
            check_adamw_step(0.01, STEPS + n + 1, is_proximal);
        }
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
}

/* Two runs, one protected: the same to the bit until there is an anchor, and at the anchor. */
static void check_free_at_anchor(const HsContinualConfig *config, const HsOptimizerConfig *optimizer)
{
    spans_init(&fixture, optimizer, 0.01, 1);
    spans_init(&other, optimizer, 0.01, 1);
    HsContinual *continual = spans_protect(&fixture, config);
    SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 0));
    cr_expect_eq(hs_continual_importance(continual)->count, 0);
    spans_train(&fixture, 0, STEPS);
    spans_train(&other, 0, STEPS);
    cr_expect(spans_equal(&fixture, &other), "before the first anchor");
    cr_expect_eq(spans_penalty(continual, &fixture), 0.0);

    SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
    cr_expect(spans_equal(&fixture, &other), "a task's end moves nothing");
    cr_expect_eq(spans_penalty(continual, &fixture), 0.0);
    SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 1));
    /* A proximal step acts on where the update went: only an update that stays at the anchor leaves it nothing. */
    if (!hs_continual_word_is(config, "ewc", "step", "proximal")) {
        spans_train(&fixture, 1, 1);
        spans_train(&other, 1, 1);
    } else {
        spans_step(&fixture);
        spans_step(&other);
    }
    cr_expect(spans_equal(&fixture, &other), "at the anchor");
    spans_train(&fixture, 1, 2);
    spans_train(&other, 1, 2);
    cr_expect_not(spans_equal(&fixture, &other), "away from the anchor");
    cr_expect_gt(spans_penalty(continual, &fixture), 0.0);
    hs_continual_destroy(continual);
    cr_expect_not(hs_tensor_present(&fixture.spans[0].protection.anchor), "destroy takes the protection away");
    spans_deinit(&other);
    spans_deinit(&fixture);
}

Test(penalty, nothing_changes_without_an_anchor_and_at_the_anchor)
{
    HsContinualConfig config = ewc_config(100, MAX);
    check_free_at_anchor(&config, &plain_sgd);
    check_free_at_anchor(&config, &plain_adamw);
    set_word(&config, "ewc", "mode", "separate");
    check_free_at_anchor(&config, &plain_adamw);
    set_word(&config, "ewc", "step", "proximal");
    check_free_at_anchor(&config, &plain_sgd);
    config = l2_config(100);
    check_free_at_anchor(&config, &plain_adamw);
    config = si_config(100, 0.01);
    check_free_at_anchor(&config, &plain_adamw);
}

/* What one task's Fisher is multiplied by: global over a and b for max and mean, a tensor's own for l2. */
static double normalization(const ScriptedFisher *fisher, Normalize normalize, int span)
{
    double maximum = 0, sum = 0, squares = 0;
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < COUNT && s != EXCLUDED; i++) {
            const double value = fisher_exact(fisher, s, i);
            maximum = fmax(maximum, value);
            sum += value;
            squares += s == span ? value * value : 0;
        }
    const double factors[] = {
        [NONE] = 1, [MAX] = 1 / maximum, [MEAN] = (SPANS - 1) * COUNT / sum, [L2] = squares > 0 ? 1 / sqrt(squares) : 0
    };
    return factors[normalize];
}

/* The importance that the spans carry, against F[s][i], and its statistics against the definitions. */
static void check_importance(const HsContinual *continual, double exact[SPANS][COUNT], int tasks, double strength)
{
    const HsImportance *importance = hs_continual_importance(continual);
    cr_assert_eq(importance->count, SPANS - 1, "c is excluded");
    cr_expect_eq(importance->strength, strength);
    double sums[SPANS] = { 0 }, maxima[SPANS] = { 0 };
    for (int s = 0; s < SPANS; s++) {
        const HsProtection *protection = &fixture.spans[s].protection;
        cr_assert_eq(hs_tensor_present(&protection->importance), s != EXCLUDED);
        cr_assert_eq(hs_tensor_present(&protection->anchor), s != EXCLUDED);
        for (int i = 0; i < COUNT && s != EXCLUDED; i++) {
            const double stored = spans_load(&protection->importance, i);
            cr_expect(fabs(stored - exact[s][i]) <= importance_bound(tasks, exact[s][i]), "%s[%d]: %.9g, expected %.9g",
                      fixture.spans[s].name, i, stored, exact[s][i]);
            sums[s] += stored;
            maxima[s] = fmax(maxima[s], stored);
        }
    }
    const double total = sums[0] + sums[1], digits = 1e-14; /* sums of 32 doubles */
    for (int s = 0; s < SPANS - 1; s++) {
        const HsImportanceTensor *tensor = &importance->tensors[s];
        cr_expect_str_eq(tensor->name, fixture.spans[s].name);
        cr_expect_eq(tensor->maximum, maxima[s]);
        cr_expect_float_eq(tensor->mean, sums[s] / COUNT, digits * total);
        cr_expect_float_eq(tensor->share, sums[s] / total, digits);
    }
    cr_expect_eq(importance->maximum, fmax(maxima[0], maxima[1]));
    cr_expect_float_eq(importance->mean, total / (2 * COUNT), digits * total);
}

Test(penalty, fisher_and_each_normalization)
{
    for (Normalize normalize = NONE; normalize <= L2; normalize++) {
        for (int without = -1; without <= 1; without += 2) { /* 1: b had no gradient, and gets no importance */
            const HsContinualConfig config = ewc_config(3, normalize);
            spans_init(&fixture, &plain_sgd, 0.05, 1);
            HsContinual *continual = spans_protect(&fixture, &config);
            ScriptedFisher fisher = fisher_of(&fixture, 0);
            fisher.without = without;
            SPANS_OK(spans_end_task(continual, &fixture, fisher));
            double exact[SPANS][COUNT];
            for (int s = 0; s < SPANS; s++)
                for (int i = 0; i < COUNT; i++)
                    exact[s][i] = fisher_exact(&fisher, s, i) * normalization(&fisher, normalize, s);
            /* a factor made of sums over all elements carries their roundings too: as a further task does */
            check_importance(continual, exact, 2, 3);
            hs_continual_destroy(continual);
            spans_deinit(&fixture);
        }
    }
}

Test(penalty, online_ewc_forgets_the_older_importance)
{
    HsContinualConfig config = ewc_config(3, MAX);
    set_number(&config, "ewc", "gamma", 0.75);
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    double exact[SPANS][COUNT] = { { 0 } };
    for (int task = 0; task < TASKS; task++) {
        spans_train(&fixture, task, STEPS);
        const ScriptedFisher fisher = fisher_of(&fixture, task);
        SPANS_OK(spans_end_task(continual, &fixture, fisher));
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++)
                exact[s][i] = 0.75 * exact[s][i] + fisher_exact(&fisher, s, i) * normalization(&fisher, MAX, s);
        check_importance(continual, exact, 2 * (task + 1), 3);
        for (int s = 0; s < EXCLUDED; s++)
            for (int i = 0; i < COUNT; i++)
                cr_expect_eq(spans_load(&fixture.spans[s].protection.anchor, i), spans_parameter(&fixture, s, i));
    }
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

/* The merged quadratic against the sum of every task's own,  sum_t lambda/2 F_t (p - a_t)^2, value and gradient.
 * Stored anchors and importances carry a number of f32 roundings that grows with the tasks; each shifts a term by no
 * more than that many units of  F (|p| + |a|)^2, the anchor entering squared. */
Test(penalty, separate_ewc_is_the_sum_of_all_tasks_penalties)
{
    enum { ROUNDINGS = 2 * (FISHER_SAMPLES + 6) * TASKS };
    HsContinualConfig config = ewc_config(3, MEAN);
    set_word(&config, "ewc", "mode", "separate");
    spans_init(&fixture, &plain_sgd, 0.2, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    static double fishers[TASKS][SPANS][COUNT], anchors[TASKS][SPANS][COUNT];
    for (int task = 0; task < TASKS; task++) {
        spans_train(&fixture, task, STEPS);
        const ScriptedFisher fisher = fisher_of(&fixture, task);
        SPANS_OK(spans_end_task(continual, &fixture, fisher));
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++) {
                fishers[task][s][i] = fisher_exact(&fisher, s, i) * normalization(&fisher, MEAN, s);
                anchors[task][s][i] = spans_parameter(&fixture, s, i);
            }
    }
    for (int place = 0; place < 2;
         place++) { /* at the last task's end, where only earlier tasks pull; then elsewhere */
        double value = 0, without_offset = 0, magnitude = 0;
        for (int s = 0; s < EXCLUDED; s++)
            for (int i = 0; i < COUNT; i++) {
                const double p = spans_parameter(&fixture, s, i);
                double gradient = 0, size = 0, total = 0;
                for (int task = 0; task < TASKS; task++) {
                    const double f = fishers[task][s][i], a = anchors[task][s][i];
                    value += 3.0 / 2 * f * (p - a) * (p - a);
                    magnitude += 3.0 / 2 * f * (fabs(p) + fabs(a)) * (fabs(p) + fabs(a));
                    gradient += 3 * f * (p - a);
                    total += f;
                    size = fmax(size, fabs(p) + fabs(a));
                }
                const Pull pull = pull_of(s, i);
                const double bound = hs_tolerance(ROUNDINGS, 0, HS_F32, HS_F64, 3 * total * size, gradient);
                cr_expect(fabs(pull.strength * (p - pull.anchor) - gradient) <= bound, "%s[%d]", fixture.spans[s].name,
                          i);
                without_offset += pull.strength / 2 * (p - pull.anchor) * (p - pull.anchor);
            }
        const double bound = hs_tolerance(ROUNDINGS, 0, HS_F32, HS_F64, magnitude, value);
        const double computed = spans_penalty(continual, &fixture);
        cr_expect(fabs(computed - value) <= bound, "%.12g, expected %.12g +- %g", computed, value, bound);
        cr_expect_gt(value - without_offset, 10 * bound, "the case must need the constant");
        spans_train(&fixture, TASKS, STEPS);
    }
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

/* The task that is not to be retained, of those that ask for it. */
enum { FORGOTTEN = 1 };

static bool retains(const void *user, int task)
{
    (void)user;
    return task != FORGOTTEN;
}

static HsContinualConfig forgetting(HsContinualConfig config)
{
    config.tasks = TASKS;
    config.retains = retains;
    return config;
}

/* What a span's penalty is made of. */
typedef struct Held {
    double importance[SPANS][COUNT], anchor[SPANS][COUNT];
} Held;

static Held held_by(const ProtectedSpans *spans)
{
    Held held = { 0 };
    for (int s = 0; s < EXCLUDED; s++)
        for (int i = 0; i < COUNT; i++) {
            const HsProtection *protection = &spans->spans[s].protection;
            held.importance[s][i] =
                hs_tensor_present(&protection->importance) ? spans_load(&protection->importance, i) : 1;
            held.anchor[s][i] = spans_load(&protection->anchor, i);
        }
    return held;
}

/* One task of si: path [SPANS][COUNT] by eq. 3, of gradients without loss scale and clipping, and moves of what is
 * stored; size: the sum of the terms' magnitudes; start: where it began.  Returns how many steps were clipped. */
typedef struct SiTask {
    double path[SPANS][COUNT], size[SPANS][COUNT], start[SPANS][COUNT];
} SiTask;

static int train_si(SiTask *task, int index)
{
    double g[SPANS][COUNT], before[SPANS][COUNT];
    int clipped = 0;
    *task = (SiTask){ 0 };
    for (int n = 0; n < STEPS; n++) {
        spans_set_gradients(&fixture, index);
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++) {
                g[s][i] = spans_gradient(&fixture, s, i);
                before[s][i] = spans_parameter(&fixture, s, i);
                task->start[s][i] = n == 0 ? before[s][i] : task->start[s][i];
            }
        clipped += spans_step(&fixture).clip_coefficient < 1;
        for (int s = 0; s < SPANS; s++)
            for (int i = 0; i < COUNT; i++) {
                const double gain = -g[s][i] * (spans_parameter(&fixture, s, i) - before[s][i]);
                task->path[s][i] += gain;
                task->size[s][i] += fabs(gain);
            }
    }
    return clipped;
}

/* Importance by eq. 5. */
static void expect_si(const SiTask *task, int index, double damping, double exact[SPANS][COUNT],
                      double magnitude[SPANS][COUNT])
{
    for (int s = 0; s < EXCLUDED; s++)
        for (int i = 0; i < COUNT; i++) {
            const double distance = spans_parameter(&fixture, s, i) - task->start[s][i];
            const double divisor = distance * distance + (double)(float)damping;
            exact[s][i] = fmax(0, exact[s][i] + task->path[s][i] / divisor);
            magnitude[s][i] += task->size[s][i] / divisor;
            const double stored = spans_load(&fixture.spans[s].protection.importance, i);
            const double bound =
                hs_tolerance((STEPS + 1) * (index + 1), 0, HS_F32, HS_F32, magnitude[s][i], exact[s][i]);
            cr_expect(fabs(stored - exact[s][i]) <= bound, "task %d, %s[%d]: %.9g, expected %.9g +- %g", index,
                      fixture.spans[s].name, i, stored, exact[s][i], bound);
            cr_expect_eq(spans_load(&fixture.spans[s].protection.anchor, i), spans_parameter(&fixture, s, i));
        }
}

static void check_si(HsContinualConfig config, double strength, double damping)
{
    HsOptimizerConfig optimizer = plain_adamw;
    optimizer.clip_norm = 0.5;
    spans_init(&fixture, &optimizer, 0.01, 64);
    HsContinual *continual = spans_protect(&fixture, &config);
    double exact[SPANS][COUNT] = { { 0 } }, magnitude[SPANS][COUNT] = { { 0 } };
    static SiTask trained;
    int clipped = 0;
    for (int task = 0; task < TASKS; task++) {
        SPANS_OK(hs_continual_begin_task(continual, &fixture.context, task));
        clipped += train_si(&trained, task);
        if (hs_continual_retains(&config, task)) {
            SPANS_OK(hs_continual_after_task(continual, &fixture.context, task, NULL));
            expect_si(&trained, task, damping, exact, magnitude);
        } else {
            const Held before = held_by(&fixture);
            SPANS_OK(hs_continual_discard_task(continual, &fixture.context, task));
            const Held after = held_by(&fixture);
            cr_expect_eq(memcmp(&before, &after, sizeof before), 0, "what holds earlier tasks moved");
        }
        for (int s = 0; s < EXCLUDED; s++)
            for (int i = 0; i < COUNT; i++)
                cr_expect_eq(spans_load(&fixture.spans[s].protection.path, i), 0.0);
        cr_expect_not(hs_tensor_present(&fixture.spans[EXCLUDED].protection.path));
    }
    cr_expect_gt(clipped, 0, "the case must clip");

    /* Equation 4 has no 1/2:  c sum Omega (p - anchor)^2. */
    double value = 0;
    for (int s = 0; s < EXCLUDED; s++)
        for (int i = 0; i < COUNT; i++) {
            const double moved = (i % 2 ? 0.25 : -0.125) + spans_parameter(&fixture, s, i);
            spans_set_parameter(&fixture, s, i, moved);
            const double distance =
                spans_parameter(&fixture, s, i) - spans_load(&fixture.spans[s].protection.anchor, i);
            value += strength * spans_load(&fixture.spans[s].protection.importance, i) * distance * distance;
        }
    cr_expect_float_eq(spans_penalty(continual, &fixture), value,
                       hs_tolerance(8 * COUNT, 0, HS_F64, HS_F64, value, value));
    cr_expect_eq(hs_continual_importance(continual)->strength, 2 * strength);
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(penalty, si_against_its_equations)
{
    const double damping = 0.01, strength = 0.5;
    check_si(si_config(strength, damping), strength, damping);
}

/* The path of a task that is not to be retained is dropped, the anchor stays, and the next task's displacement is from
 * where it began. */
Test(penalty, si_drops_the_path_of_a_task_that_is_not_to_be_retained)
{
    const double damping = 0.01, strength = 0.5;
    check_si(forgetting(si_config(strength, damping)), strength, damping);
}

/* After `task`, as its retain says: the penalty at the parameters now. */
static double end_task(HsContinual *continual, const HsContinualConfig *config, ProtectedSpans *spans, int task)
{
    if (hs_continual_retains(config, task))
        SPANS_OK(spans_end_task(continual, spans, fisher_of(spans, task)));
    else
        SPANS_OK(hs_continual_discard_task(continual, &spans->context, task));
    return spans_penalty(continual, spans);
}

/* A run of tasks 0, 1 and 2 that is not to retain 1, and one that never had it: importance is the same to the bit, and
 * the anchor is where the latest task that counts has ended.  The scripted Fisher is a function of the task alone. */
static void expect_no_trace(HsContinualConfig config)
{
    config = forgetting(config);
    spans_init(&fixture, &plain_sgd, 0.05, 64);
    spans_init(&other, &plain_sgd, 0.05, 64);
    HsContinual *continual = spans_protect(&fixture, &config), *without = spans_protect(&other, &config);
    spans_train(&fixture, 0, STEPS);
    spans_train(&other, 0, STEPS);
    cr_expect_eq(end_task(continual, &config, &fixture, 0), end_task(without, &config, &other, 0));
    spans_train(&fixture, FORGOTTEN, STEPS);
    const double pulled = spans_penalty(continual, &fixture);
    cr_expect_gt(pulled, 0, "the task must move the parameters");
    cr_expect_eq(end_task(continual, &config, &fixture, FORGOTTEN), pulled, "the penalty is still of the earlier task");
    Held held = held_by(&fixture), alone = held_by(&other);
    cr_expect_eq(memcmp(&held, &alone, sizeof held), 0, "after the task that is not to be retained");
    for (int s = 0; s < SPANS; s++) /* the next task begins in the same place */
        for (int i = 0; i < COUNT; i++)
            spans_set_parameter(&fixture, s, i, spans_parameter(&other, s, i));
    spans_train(&fixture, 2, STEPS);
    spans_train(&other, 2, STEPS);
    cr_expect_eq(end_task(continual, &config, &fixture, 2), end_task(without, &config, &other, 2));
    held = held_by(&fixture);
    alone = held_by(&other);
    cr_expect_eq(memcmp(&held, &alone, sizeof held), 0, "after the task behind it");
    hs_continual_destroy(continual);
    hs_continual_destroy(without);
    spans_deinit(&fixture);
    spans_deinit(&other);
}

Test(penalty, a_task_that_is_not_to_be_retained_leaves_no_trace)
{
    HsContinualConfig separate = ewc_config(10, MEAN);
    set_word(&separate, "ewc", "mode", "separate");
    expect_no_trace(ewc_config(10, MAX));
    expect_no_trace(separate);
    expect_no_trace(l2_config(4));
}

/* With no earlier task there is no anchor yet, and the next one is learned as if it were the first. */
Test(penalty, nothing_is_anchored_by_a_task_that_is_not_to_be_retained)
{
    const HsContinualConfig config = forgetting(ewc_config(10, MAX));
    spans_init(&fixture, &plain_sgd, 0.05, 64);
    HsContinual *continual = spans_protect(&fixture, &config);
    spans_train(&fixture, FORGOTTEN, STEPS);
    cr_expect_eq(end_task(continual, &config, &fixture, FORGOTTEN), 0);
    cr_expect_not(hs_continual_anchored(continual));
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

static void expect_no_fisher(Normalize normalize, double size, double count, const char *why)
{
    const HsContinualConfig config = ewc_config(3, normalize);
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    ScriptedFisher fisher = fisher_of(&fixture, 4);
    fisher.size = size;
    fisher.count = count;
    cr_expect_eq(spans_end_task(continual, &fixture, fisher), HS_ENUMERIC);
    cr_expect_not_null(strstr(hs_error_message(), "ewc"), "%s", hs_error_message());
    cr_expect_not_null(strstr(hs_error_message(), "task 4"), "%s", hs_error_message());
    cr_expect_not_null(strstr(hs_error_message(), why), "%s", hs_error_message());
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(penalty, a_fisher_that_protects_nothing_is_an_error)
{
    for (Normalize normalize = NONE; normalize <= L2; normalize++) {
        expect_no_fisher(normalize, 0, 5, "0 in every parameter");
        expect_no_fisher(normalize, 1e-25, 5, "underflow"); /* squares below the smallest f32 */
        expect_no_fisher(normalize, 1e-20, 5, "underflow"); /* subnormal squares: 1 / F leaves f32 */
        expect_no_fisher(normalize, 1, 0, "no token");
        expect_no_fisher(normalize, 1e25, 5, "not finite");
    }
}

Test(penalty, si_without_a_step_is_an_error)
{
    const HsContinualConfig config = si_config(1, 0.01);
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 0));
    cr_expect_eq(hs_continual_after_task(continual, &fixture.context, 0, NULL), HS_ENUMERIC);
    cr_expect_not_null(strstr(hs_error_message(), "si: after task 0"), "%s", hs_error_message());
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(penalty, a_step_and_its_penalty_allocate_nothing)
{
    const HsContinualConfig config = ewc_config(3, MAX);
    spans_init(&fixture, &plain_adamw, 0.01, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    const size_t held = fixture.device.current_bytes, peak = fixture.device.peak_bytes;
    SPANS_OK(spans_end_task(continual, &fixture, fisher_of(&fixture, 0)));
    spans_train(&fixture, 1, 1);
    spans_penalty(continual, &fixture);
    cr_expect_eq(fixture.device.current_bytes, held);
    cr_expect_eq(fixture.device.peak_bytes, peak);
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}
