/* SPDX-License-Identifier: MIT
 *
 * Strategies as a run uses them: the table, combinations, replay plans, memory, hooks in their order, and state that is
 * saved by one run and continued, bit for bit, by another.
 */
#include "tests/support/protected_spans.h"

#include <stdio.h>

static ProtectedSpans fixture, other;

/* One of every number that a strategy reads; names are set by the tests. */
static HsContinualConfig config_of(const char *first, const char *second)
{
    HsContinualConfig config = {
        .strategies = { first, second },
        .strategy_count = second ? 2 : 1,
        .seed = 7,
        .replay_fraction = 0.25,
        .l2.lambda = 3,
        .ewc = { .lambda = 20, .gamma = 0.5, .normalize = HS_NORMALIZE_MAX },
        .si = { .strength = 2, .damping = 0.01 },
        .mer = { .beta = 0.5, .gamma = 0.25, .epsilon = 0.5, .groups = 2, .group_steps = 3, .interval = 4 },
        .reference_rows = 6,
    };
    return config;
}

Test(continual, the_table)
{
    static const char *const names[] = { "none", "joint", "er", "l2", "ewc", "si", "mer", "a-gem" };
    cr_assert_eq(hs_strategy_count, (int)(sizeof names / sizeof names[0]));
    for (int i = 0; i < hs_strategy_count; i++) {
        cr_expect_str_eq(hs_strategy_table[i].name, names[i]);
        cr_expect_eq(hs_strategy_find(names[i]), &hs_strategy_table[i]);
        cr_expect_not_null(strpbrk(hs_strategy_table[i].doc, "12"), "%s: of which year is its source?", names[i]);
    }
    cr_expect_null(hs_strategy_find("gem"));
}

static void expect_refused(const char *first, const char *second, const char *message)
{
    const HsContinualConfig config = config_of(first, second);
    cr_expect_eq(hs_continual_check(&config), HS_ECONFIG);
    cr_expect_str_eq(hs_error_message(), message);
}

Test(continual, combinations)
{
    static const char *const allowed[][2] = { { "none", NULL },  { "joint", NULL }, { "ewc", NULL },  { "ewc", "er" },
                                              { "a-gem", "l2" }, { "mer", "ewc" },  { "si", "a-gem" } };
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        const HsContinualConfig config = config_of(allowed[i][0], allowed[i][1]);
        cr_expect_eq(hs_continual_check(&config), HS_OK, "%s", hs_error_message());
    }
    expect_refused("ewk", NULL,
                   "continual.strategy: there is no \"ewk\": choose one of none, joint, er, l2, ewc, si, mer, a-gem");
    expect_refused("ewc", "ewc", "continual.strategy: ewc is listed twice: remove one");
    expect_refused("joint", "ewc", "continual.strategy: joint stands alone: remove joint, or ewc");
    expect_refused("er", "none", "continual.strategy: none stands alone: remove none, or er");
    expect_refused("l2", "ewc", "continual.strategy: l2 penalizes already: remove ewc");
    expect_refused("mer", "er", "continual.strategy: mer replays already: remove er");
    expect_refused("er", "a-gem", "continual.strategy: a-gem replays already: remove er");
    expect_refused("mer", "a-gem", "continual.strategy: mer replays already: remove a-gem");

    HsContinual *continual = NULL;
    const HsContinualConfig wrong = config_of("l2", "si");
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    cr_expect_eq(hs_continual_create(&wrong, &fixture.context, fixture.spans, SPANS, &continual), HS_ECONFIG);
    cr_expect_null(continual);
    spans_deinit(&fixture);
}

Test(continual, membership)
{
    HsContinualConfig config = config_of("ewc", "mer");
    cr_expect(hs_continual_has(&config, "ewc") && hs_continual_has(&config, "mer"));
    cr_expect_not(hs_continual_has(&config, "er"));
    cr_expect(hs_continual_replays(&config));
    config = config_of("ewc", NULL);
    cr_expect_not(hs_continual_replays(&config));
    config.strategy_count = 0;
    cr_expect(hs_continual_has(&config, "none"));
    cr_expect_not(hs_continual_has(&config, "ewc"));
}

static void expect_plan(const char *strategy, HsMerMode mode, HsReplayPlan expected)
{
    HsContinualConfig config = config_of(strategy, NULL);
    config.mer.mode = mode;
    const HsReplayPlan plan = hs_continual_replay_plan(&config, 8);
    cr_expect_eq(plan.fraction, expected.fraction, "%s %d", strategy, mode);
    cr_expect_eq(plan.rows, 8);
    cr_expect_eq(plan.group_steps, expected.group_steps, "%s %d", strategy, mode);
    cr_expect_eq(plan.groups, expected.groups, "%s %d", strategy, mode);
    cr_expect_eq(plan.replay_first, expected.replay_first, "%s %d", strategy, mode);
    cr_expect_eq(plan.current_rate_scale, expected.current_rate_scale, "%s %d", strategy, mode);
    cr_expect_eq(plan.reference_rows, expected.reference_rows, "%s %d", strategy, mode);
}

Test(continual, replay_plans)
{
    const HsMerMode any = HS_MER_ALGORITHM1;
    const HsReplayPlan nothing = { .group_steps = 1, .groups = 1, .current_rate_scale = 1 };
    expect_plan("none", any, nothing);
    expect_plan("ewc", any, nothing);
    HsReplayPlan plan = nothing;
    plan.reference_rows = 6;
    expect_plan("a-gem", any, plan);
    plan = nothing;
    plan.fraction = 0.25;
    expect_plan("er", any, plan);
    expect_plan("mer", HS_MER_REPTILE, plan);
    plan.group_steps = 3;
    plan.replay_first = true;
    expect_plan("mer", HS_MER_ALGORITHM6, plan);
    plan.current_rate_scale = 2;
    expect_plan("mer", HS_MER_ALGORITHM7, plan);
    plan = (HsReplayPlan){ .fraction = 0.25, .group_steps = 3, .groups = 2, .current_rate_scale = 1 };
    expect_plan("mer", HS_MER_ALGORITHM1, plan);
}

/* What create takes is what was announced, and destroy gives it back; COUNT f32 are one 64-byte line. */
static void check_memory(const char *first, const char *second, bool separate, size_t lines)
{
    HsContinualConfig config = config_of(first, second);
    config.ewc.separate = separate;
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    const size_t before = fixture.device.current_bytes;
    HsContinual *continual = spans_protect(&fixture, &config);
    const size_t taken = fixture.device.current_bytes - before, sums = (4 * SPANS + 1) * sizeof(double);
    cr_expect_eq(taken, hs_continual_device_bytes(&config, fixture.spans, SPANS));
    cr_expect_eq(taken, lines == 0 ? 0 : lines * 64 + sums, "%s: %zu", first, taken);
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}

Test(continual, memory_is_as_announced)
{
    check_memory("none", NULL, false, 0);
    check_memory("er", NULL, false, 0);
    check_memory("l2", NULL, false, 2); /* c is excluded from penalties, not from snapshots */
    check_memory("ewc", NULL, false, 4);
    check_memory("ewc", NULL, true, 6);
    check_memory("si", "er", false, 6);
    check_memory("mer", "ewc", false, 10);
    check_memory("a-gem", NULL, false, 3);
}

Test(continual, a_penalty_with_everything_excluded_is_an_error)
{
    const HsContinualConfig config = config_of("ewc", NULL);
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    for (int s = 0; s < SPANS; s++)
        fixture.spans[s].excluded = true;
    HsContinual *continual = NULL;
    cr_expect_eq(hs_continual_create(&config, &fixture.context, fixture.spans, SPANS, &continual), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "ewc.exclude"), "%s", hs_error_message());
    cr_expect_null(continual);
    spans_deinit(&fixture);
}

Test(continual, only_a_gem_wants_a_reference_and_not_in_the_first_task)
{
    static const struct {
        const char *strategy;
        bool wants;
    } cases[] = { { "a-gem", true }, { "er", false }, { "mer", false }, { "none", false } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const HsContinualConfig config = config_of(cases[i].strategy, NULL);
        spans_init(&fixture, &plain_sgd, 0.05, 1);
        HsContinual *continual = spans_protect(&fixture, &config);
        cr_expect_not(hs_continual_wants_reference(continual, 0));
        cr_expect_eq(hs_continual_wants_reference(continual, 1), cases[i].wants, "%s", cases[i].strategy);
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
}

/* A MER group that the task's end leaves open is closed before the anchor is set, in whatever order they are listed. */
Test(continual, the_anchor_is_where_the_last_group_ended)
{
    for (int order = 0; order < 2; order++) {
        HsContinualConfig config = config_of(order ? "mer" : "l2", order ? "l2" : "mer");
        config.mer.groups = 1;
        spans_init(&fixture, &plain_sgd, 0.05, 1);
        HsContinual *continual = spans_protect(&fixture, &config);
        SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 0));
        const HsReplayStep open = { .learning_rate_scale = 1 };
        spans_train(&fixture, 0, 1);
        SPANS_OK(hs_continual_after_step(continual, &fixture.context, &open));
        other = fixture;
        SPANS_OK(hs_continual_after_task(continual, &fixture.context, 0, NULL));
        cr_expect_neq(memcmp(fixture.weight[0], other.weight[0], sizeof other.weight[0]), 0, "the group was closed");
        for (int s = 0; s < EXCLUDED; s++)
            for (int i = 0; i < COUNT; i++)
                cr_expect_eq(spans_load(&fixture.spans[s].protection.anchor, i), spans_parameter(&fixture, s, i));
        cr_expect_eq(spans_penalty(continual, &fixture), 0.0);
        hs_continual_destroy(continual);
        spans_deinit(&fixture);
    }
}

/* A checkpoint: named entries in the order of the walk. */
enum { ENTRIES = 64 };
typedef struct Saved {
    struct {
        char name[64];
        double value;
        int64_t integer;
        float tensor[COUNT];
    } entries[ENTRIES];
    int count, next;
    bool loading;
} Saved;

static int entry_of(Saved *saved, const char *name, const char *span)
{
    char full[64] = "";
    snprintf(full, sizeof full, "%s/%s", name, span);
    const int entry = saved->next++;
    cr_assert_lt(entry, ENTRIES);
    if (saved->loading) {
        cr_assert_lt(entry, saved->count);
        cr_assert_str_eq(saved->entries[entry].name, full);
    } else {
        for (int i = 0; i < entry; i++)
            cr_assert_str_neq(saved->entries[i].name, full, "every name is unique");
        memcpy(saved->entries[entry].name, full, sizeof full);
        saved->count = saved->next;
    }
    return entry;
}

static HsStatus visit_integer(void *user, const char *name, int64_t *value, int64_t most)
{
    cr_expect(*value >= 0 && *value <= most, "%s", name);
    Saved *saved = user;
    const int entry = entry_of(saved, name, "");
    int64_t *kept = &saved->entries[entry].integer;
    *(saved->loading ? value : kept) = *(saved->loading ? kept : value);
    return HS_OK;
}

static HsStatus visit_real(void *user, const char *name, double *value)
{
    Saved *saved = user;
    const int entry = entry_of(saved, name, "");
    double *kept = &saved->entries[entry].value;
    *(saved->loading ? value : kept) = *(saved->loading ? kept : value);
    return HS_OK;
}

static HsStatus visit_tensor(void *user, const char *family, const char *span, HsTensor *tensor)
{
    Saved *saved = user;
    const int entry = entry_of(saved, family, span);
    cr_assert_eq(tensor->dtype, HS_F32);
    cr_assert_eq(hs_tensor_count(tensor), COUNT);
    float *kept = saved->entries[entry].tensor;
    memcpy(saved->loading ? tensor->data : kept, saved->loading ? kept : tensor->data, hs_tensor_bytes(tensor));
    return HS_OK;
}

static void walk(HsContinual *continual, Saved *saved, bool loading)
{
    saved->next = 0;
    saved->loading = loading;
    const HsStateVisitor visitor = {
        .user = saved, .integer = visit_integer, .real = visit_real, .tensor = visit_tensor
    };
    SPANS_OK(hs_continual_visit(continual, &visitor));
    cr_assert_eq(saved->next, saved->count);
}

/* Two steps of a group of three, which so stays open. */
static void steps_of_task(HsContinual *continual, ProtectedSpans *run, int task, int first, int last)
{
    for (int n = first; n < last; n++) {
        const HsReplayStep step = { .learning_rate_scale = 1, .closes_group = n % 3 == 2, .closes_window = n % 6 == 5 };
        spans_set_gradients(run, task);
        SPANS_OK(hs_continual_before_update(continual, &run->context));
        spans_step(run);
        SPANS_OK(hs_continual_after_step(continual, &run->context, &step));
    }
}

/* The parameters, moments and counters of one run into another; its own pointers stay. */
static void copy_run(ProtectedSpans *to, const ProtectedSpans *from)
{
    memcpy(to->weight, from->weight, sizeof to->weight);
    memcpy(to->master, from->master, sizeof to->master);
    memcpy(to->weight16, from->weight16, sizeof to->weight16);
    memcpy(to->state, from->state, sizeof to->state);
    to->optimizer.applied_steps = from->optimizer.applied_steps;
    to->optimizer.schedule_steps = from->optimizer.schedule_steps;
    to->optimizer.moment_steps = from->optimizer.moment_steps;
}

static void expect_same_state(HsContinual *a, HsContinual *b)
{
    static Saved of_a, of_b;
    memset(&of_a, 0, sizeof of_a);
    memset(&of_b, 0, sizeof of_b);
    walk(a, &of_a, false);
    walk(b, &of_b, false);
    cr_expect_eq(memcmp(&of_a, &of_b, sizeof of_a), 0);
    const HsImportance *one = hs_continual_importance(a), *two = hs_continual_importance(b);
    cr_assert_eq(one->count, two->count);
    cr_expect(one->maximum == two->maximum && one->mean == two->mean && one->strength == two->strength);
    for (int i = 0; i < one->count; i++) {
        cr_expect_str_eq(one->tensors[i].name, two->tensors[i].name);
        cr_expect(one->tensors[i].maximum == two->tensors[i].maximum && one->tensors[i].mean == two->tensors[i].mean &&
                  one->tensors[i].share == two->tensors[i].share);
    }
}

/* A run saved in the middle of task `stop` and continued elsewhere, against the run that was never saved. */
static void check_resume(const HsContinualConfig *config, int stop)
{
    static Saved saved;
    memset(&saved, 0, sizeof saved);
    spans_init(&fixture, &plain_adamw, 0.01, 1);
    spans_init(&other, &plain_adamw, 0.01, 1);
    HsContinual *run = spans_protect(&fixture, config), *resumed = spans_protect(&other, config);
    for (int task = 0; task <= stop; task++) {
        SPANS_OK(hs_continual_begin_task(run, &fixture.context, task));
        steps_of_task(run, &fixture, task, 0, 5);
        if (task < stop)
            SPANS_OK(spans_end_task(run, &fixture, fisher_of(&fixture, task)));
    }
    walk(run, &saved, false);
    copy_run(&other, &fixture);
    walk(resumed, &saved, true);
    expect_same_state(run, resumed);
    cr_expect_eq(spans_penalty(run, &fixture), spans_penalty(resumed, &other));

    for (int task = stop; task <= stop + 1; task++) {
        if (task > stop) {
            SPANS_OK(hs_continual_begin_task(run, &fixture.context, task));
            SPANS_OK(hs_continual_begin_task(resumed, &other.context, task));
        }
        steps_of_task(run, &fixture, task, task == stop ? 5 : 0, 8);
        steps_of_task(resumed, &other, task, task == stop ? 5 : 0, 8);
        cr_expect(spans_equal(&fixture, &other), "%s, stopped in task %d: task %d", config->strategies[0], stop, task);
        SPANS_OK(spans_end_task(run, &fixture, fisher_of(&fixture, task)));
        SPANS_OK(spans_end_task(resumed, &other, fisher_of(&other, task)));
        expect_same_state(run, resumed);
    }
    hs_continual_destroy(resumed);
    hs_continual_destroy(run);
    spans_deinit(&other);
    spans_deinit(&fixture);
}

Test(continual, a_saved_run_continues_bit_for_bit)
{
    static const char *const pairs[][2] = { { "none", NULL }, { "er", NULL },  { "l2", NULL },   { "ewc", NULL },
                                            { "si", NULL },   { "mer", NULL }, { "mer", "ewc" }, { "si", "a-gem" } };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int stop = 0; stop < 3; stop++) {
            HsContinualConfig config = config_of(pairs[i][0], pairs[i][1]);
            check_resume(&config, stop);
            config.ewc.separate = true; /* the merged constant is state, too */
            config.ewc.proximal = true;
            if (hs_continual_has(&config, "ewc"))
                check_resume(&config, stop);
        }
}

static HsStatus refuse(void *user, const char *name, double *value)
{
    (void)user, (void)value;
    return hs_fail(HS_EFORMAT, "no %s", name);
}

Test(continual, a_visitor_s_failure_is_passed_on)
{
    static Saved saved;
    const HsContinualConfig config = config_of("ewc", NULL);
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    HsContinual *continual = spans_protect(&fixture, &config);
    const HsStateVisitor visitor = { .user = &saved, .integer = visit_integer, .real = refuse, .tensor = visit_tensor };
    cr_expect_eq(hs_continual_visit(continual, &visitor), HS_EFORMAT);
    hs_continual_destroy(continual);
    spans_deinit(&fixture);
}
