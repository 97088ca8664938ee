/* SPDX-License-Identifier: MIT
 *
 * Strategies as a run uses them: the table, combinations, replay plans, memory, hooks in their order, and state that is
 * saved by one run and continued, bit for bit, by another.
 */
#include "optim/kinds.h"
#include "tests/support/protected_spans.h"
#include "tests/support/strategy_settings.h"

#include <stdio.h>

static ProtectedSpans fixture, other;

static HsContinualConfig config_of(const char *first, const char *second)
{
    HsContinualConfig config = strategies_of(first, second);
    config.seed = 7;
    set_number(&config, "replay", "fraction", 0.25);
    set_number(&config, "l2", "lambda", 3);
    set_number(&config, "ewc", "lambda", 20);
    set_number(&config, "ewc", "gamma", 0.5);
    set_word(&config, "ewc", "normalize", "max");
    set_number(&config, "si", "strength", 2);
    set_number(&config, "si", "damping", 0.01);
    set_number(&config, "mer", "beta", 0.5);
    set_number(&config, "mer", "gamma", 0.25);
    set_number(&config, "mer", "epsilon", 0.5);
    set_number(&config, "mer", "groups", 2);
    set_number(&config, "mer", "group_steps", 3);
    set_number(&config, "mer", "interval", 4);
    set_number(&config, "agem", "reference_batches", 2);
    config.batch_rows = 3;
    return config;
}

#define WORD(identifier, word) word,
/* The words that the configuration takes are those of the rows. */
Test(continual, the_table)
{
    static const char *const names[] = { HS_STRATEGIES(WORD) };
    cr_assert_eq(hs_strategy_count, (int)(sizeof names / sizeof names[0]));
    for (int i = 0; i < hs_strategy_count; i++) {
        cr_expect_str_eq(hs_strategy_table[i]->name, names[i]);
        cr_expect_eq(hs_strategy_find(names[i]), hs_strategy_table[i]);
        cr_expect_not_null(strpbrk(hs_strategy_table[i]->doc, "12"), "%s: of which year is its source?", names[i]);
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
    static const char *const allowed[][2] = { { "none", NULL },   { "joint", NULL },     { "ewc", NULL },
                                              { "ewc", "er" },    { "a-gem", "l2" },     { "mer", "ewc" },
                                              { "o-lora", "er" }, { "lwf", "inc-lora" }, { "si", "a-gem" },
                                              { "lwf", "ewc" },   { "lwf", "der++" },    { "merge", "ewc" },
                                              { "er", "merge" } };
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        const HsContinualConfig config = config_of(allowed[i][0], allowed[i][1]);
        cr_expect_eq(hs_continual_check(&config), HS_OK, "%s", hs_error_message());
    }
    expect_refused("ewk", NULL,
                   "continual.strategy: there is no \"ewk\": choose one of none, joint, er, l2, ewc, si, mer, a-gem, "
                   "der++, lwf, generative, inc-lora, o-lora, merge");
    expect_refused("ewc", "ewc", "continual.strategy: ewc is listed twice: remove one");
    expect_refused("joint", "ewc", "continual.strategy: joint stands alone: remove joint, or ewc");
    expect_refused("er", "none", "continual.strategy: none stands alone: remove none, or er");
    expect_refused("l2", "ewc", "continual.strategy: l2 penalizes already: remove ewc");
    expect_refused("mer", "er", "continual.strategy: mer replays already: remove er");
    expect_refused("er", "a-gem", "continual.strategy: a-gem replays already: remove er");
    expect_refused("lwf", "joint", "continual.strategy: joint stands alone: remove joint, or lwf");
    expect_refused("generative", "er", "continual.strategy: generative replays already: remove er");
    expect_refused("der++", "er", "continual.strategy: der++ replays already: remove er");
    expect_refused("mer", "a-gem", "continual.strategy: mer replays already: remove a-gem");

    expect_refused(
        "ewc", "o-lora",
        "continual.strategy: o-lora gives each task a new adapter, and ewc acts on adapters too: remove one");
    expect_refused(
        "inc-lora", "o-lora",
        "continual.strategy: inc-lora gives each task a new adapter, and o-lora acts on adapters too: remove one");
    expect_refused(
        "inc-lora", "si",
        "continual.strategy: inc-lora gives each task a new adapter, and si acts on adapters too: remove one");
    expect_refused(
        "merge", "o-lora",
        "continual.strategy: o-lora gives each task a new adapter, and merge acts on adapters too: remove one");

    HsContinual *continual = NULL;
    const HsContinualConfig wrong = config_of("l2", "si");
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    cr_expect_eq(hs_continual_create(&wrong, &fixture.context, fixture.spans, SPANS, &continual), HS_ECONFIG);
    cr_expect_null(continual);
    spans_deinit(&fixture);
}

static const char *name_of(const HsStrategy *strategy)
{
    return strategy ? strategy->name : "";
}

/* What the training loop asks instead of a name. */
Test(continual, what_strategies_ask_for)
{
    static const struct {
        const char *first, *second, *fisher, *host, *outside, *penalizes, *state;
        bool replays, mixes;
    } cases[] = {
        { "none", NULL, "", "", "", "", "", false, false },
        { "joint", NULL, "", "", "", "", "", false, true },
        { "er", NULL, "", "", "", "", "", true, false },
        { "l2", "er", "", "", "", "l2", "l2", true, false },
        { "ewc", "mer", "ewc", "", "mer", "ewc", "ewc", true, false },
        { "a-gem", "si", "", "a-gem", "", "si", "a-gem", true, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const HsContinualConfig config = config_of(cases[i].first, cases[i].second);
        cr_expect_str_eq(name_of(hs_continual_needs_fisher(&config)), cases[i].fisher, "%zu", i);
        cr_expect_str_eq(name_of(hs_continual_host_work(&config)), cases[i].host, "%zu", i);
        cr_expect_str_eq(name_of(hs_continual_outside_step(&config)), cases[i].outside, "%zu", i);
        cr_expect_str_eq(name_of(hs_continual_penalizes(&config)), cases[i].penalizes, "%zu", i);
        cr_expect_str_eq(name_of(hs_continual_keeps_state(&config)), cases[i].state, "%zu", i);
        cr_expect_eq(hs_continual_replays(&config), cases[i].replays, "%zu", i);
        cr_expect_eq(hs_continual_mixes_tasks(&config), cases[i].mixes, "%zu", i);
    }
}

/* A row's functions come in groups: half a group would be a strategy that is lost in a checkpoint, or never freed. */
Test(continual, rows_are_whole)
{
    for (int i = 0; i < hs_strategy_count; i++) {
        const HsStrategy *row = hs_strategy_table[i];
        cr_expect_eq(row->state_bytes > 0, row->create != NULL, "%s", row->name);
        cr_expect_eq(row->state_bytes > 0, row->destroy != NULL, "%s", row->name);
        cr_expect_eq(row->state_bytes > 0, row->visit != NULL, "%s", row->name);
        cr_expect_eq(row->state_bytes > 0, row->dry_run != NULL, "%s", row->name);
        cr_expect_eq(row->role == HS_ROLE_PENALIZES, row->penalty != NULL, "%s", row->name);
        cr_expect_eq(row->role == HS_ROLE_PENALIZES, row->strength_key != NULL, "%s", row->name);
        cr_expect(!row->state_bytes || row->section, "%s reads settings", row->name);
    }
}

static void expect_plan(const char *strategy, const char *mode, HsReplayPlan expected)
{
    HsContinualConfig config = config_of(strategy, NULL);
    set_word(&config, "mer", "mode", mode);
    const HsReplayPlan plan = hs_continual_replay_plan(&config, 8);
    cr_expect_eq(plan.fraction, expected.fraction, "%s %s", strategy, mode);
    cr_expect_eq(plan.rows, 8);
    cr_expect_eq(plan.group_steps, expected.group_steps, "%s %s", strategy, mode);
    cr_expect_eq(plan.groups, expected.groups, "%s %s", strategy, mode);
    cr_expect_eq(plan.replay_first, expected.replay_first, "%s %s", strategy, mode);
    cr_expect_eq(plan.current_rate_scale, expected.current_rate_scale, "%s %s", strategy, mode);
    cr_expect_eq(plan.reference_rows, expected.reference_rows, "%s %s", strategy, mode);
}

Test(continual, replay_plans)
{
    const char *const any = "algorithm1";
    const HsReplayPlan nothing = { .group_steps = 1, .groups = 1, .current_rate_scale = 1 };
    expect_plan("none", any, nothing);
    expect_plan("ewc", any, nothing);
    HsReplayPlan plan = nothing;
    plan.reference_rows = 6;
    expect_plan("a-gem", any, plan);
    plan = nothing;
    plan.fraction = 0.25;
    expect_plan("er", any, plan);
    expect_plan("mer", "reptile", plan);
    plan.group_steps = 3;
    plan.replay_first = true;
    expect_plan("mer", "algorithm6", plan);
    plan.current_rate_scale = 2;
    expect_plan("mer", "algorithm7", plan);
    plan = (HsReplayPlan){ .fraction = 0.25, .group_steps = 3, .groups = 2, .current_rate_scale = 1 };
    expect_plan("mer", "algorithm1", plan);
}

/* What create takes is what was announced, and destroy gives it back; COUNT f32 are one 64-byte line. */
static void check_memory(const char *first, const char *second, bool separate, size_t lines)
{
    HsContinualConfig config = config_of(first, second);
    set_word(&config, "ewc", "mode", separate ? "separate" : "online");
    spans_init(&fixture, &plain_sgd, 0.05, 1);
    const size_t before = fixture.device.current_bytes;
    HsContinual *continual = spans_protect(&fixture, &config);
    const size_t taken = fixture.device.current_bytes - before, sums = 4 * SPANS * sizeof(double);
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
        set_number(&config, "mer", "groups", 1);
        spans_init(&fixture, &plain_sgd, 0.05, 1);
        HsContinual *continual = spans_protect(&fixture, &config);
        SPANS_OK(hs_continual_begin_task(continual, &fixture.context, 0));
        const HsReplayStep open = { .learning_rate_scale = 1 };
        spans_train(&fixture, 0, 1);
        SPANS_OK(hs_continual_after_step(continual, &fixture.context, &open, false));
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
        SPANS_OK(hs_continual_after_step(continual, &run->context, &step, false));
    }
}

/* The parameters, moments and counters of one run into another; its own pointers stay. */
static void copy_run(ProtectedSpans *to, const ProtectedSpans *from)
{
    memcpy(to->weight, from->weight, sizeof to->weight);
    memcpy(to->master, from->master, sizeof to->master);
    memcpy(to->weight16, from->weight16, sizeof to->weight16);
    memcpy(to->state, from->state, sizeof to->state);
    to->optimizer.counters.applied_steps = from->optimizer.counters.applied_steps;
    to->optimizer.counters.schedule_steps = from->optimizer.counters.schedule_steps;
    to->optimizer.counters.moment_steps = from->optimizer.counters.moment_steps;
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
            set_word(&config, "ewc", "mode", "separate"); /* the merged constant is state, too */
            set_word(&config, "ewc", "step", "proximal");
            if (hs_continual_needs_fisher(&config))
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
