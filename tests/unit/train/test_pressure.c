/* SPDX-License-Identifier: MIT
 *
 * The device's memory fills up in mid-run: the micro-batch halves, and the run stays the one that it was, within what
 * roundings explain.  The same run is made twice, once with a sampler that reports 99% in use from some step on.
 *
 * The bound is that of two correct computations of one step (tests/cli/test_emu.sh derives it): n roundings of relative
 * size u on the longest path, forward and back, of random signs, make a relative difference of
 *     rho = 4 sqrt(2) sqrt(2 n) u      with a probability of 1 - 2 exp(-8)   (Higham & Mary 2019, theorem 2.4)
 * in a gradient, and a loss, being a mean over 32 tokens at least, differs by rho / sqrt(32) of the first loss.
 *     fp32: u = 2^-24; per block 7 width + head size + length, in the head width + vocabulary
 *     bf16: u = 2^-9;  8 values a block and 2 in the head
 */
#include <criterion/criterion.h>
#include <math.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"
#include "tests/support/event_file.h"
#include "tests/support/scratch.h"

enum { LAYERS = 2, WIDTH = 32, HEAD = 16, LENGTH = 16, VOCABULARY = 128, LEAST_TOKENS = 32, MOST_LINES = 64 };

static const char base[] = "seed: 7\n"
                           "batch_size: 4\n"
                           "gradient_accumulation_steps: 2\n"
                           "max_length: 16\n"
                           "learning_rate: 1e-3\n"
                           "model: {family: gpt2, layers: 2, heads: 2, width: 32, dropout: 0.1}\n"
                           "tokenizer: {kind: char}\n"
                           "schedule: {warmup_steps: 2}\n"
                           "logging: {progress: none, device_seconds: 1e-9}\n";
static const char one_task[] = "max_steps: 8\n"
                               "checkpoint_freq: 4\n"
                               "tasks: [{name: addition, train: \"synthetic:addition\", synthetic_tokens: 8000}]\n"
                               "evaluation: {every: 4, batches: 1, items: 2}\n";
static const char two_tasks[] = "max_steps: 6\n"
                                "checkpoint_freq: 0\n"
                                "tasks:\n"
                                "  - {name: addition, train: \"synthetic:addition\", synthetic_tokens: 8000}\n"
                                "  - {name: facts, train: \"synthetic:facts\", synthetic_tokens: 8000}\n"
                                "continual: {strategy: [ewc, mer]}\n"
                                "replay: {buffer_size: 24}\n"
                                "ewc: {fisher_samples: 8}\n"
                                "mer: {beta: 1.0, gamma: 0.5}\n"
                                "evaluation: {every: 0, batches: 1, items: 2}\n";

static double relative_bound(const char *mode)
{
    const bool fine = strcmp(mode, "fp32") == 0;
    const double roundings = fine ? LAYERS * (7 * WIDTH + HEAD + LENGTH) + WIDTH + VOCABULARY : 8 * LAYERS + 2;
    return 4 * sqrt(2 * 2 * roundings) * (fine ? 0x1p-24 : 0x1p-9);
}

/* --- one run --- */

typedef struct Setup {
    const char *tasks, *device, *mode;
    const char *more[3];        /* further settings */
    int64_t from_step, to_step; /* pressed at these; none: to_step 0 */
    bool allocations_fail;      /* from the first crossing on */
} Setup;

typedef struct Line {
    char event[16];
    int64_t step, before, after;
    double loss, val_loss, grad_norm, maximum, mean;
} Line;

typedef struct Run {
    HsStatus status;
    Line lines[MOST_LINES];
    int line_count;
    int64_t tokens_seen, micro_batch;
    int ahead; /* steps under way at the crossing */
    bool said;
    size_t activations_before, activations_after;
} Run;

typedef struct Pressing {
    const Setup *setup;
    HsTraining *training;
    Run *run;
} Pressing;

static HsStatus refuse(HsDevice *device, size_t bytes, void **pointer)
{
    (void)device;
    *pointer = NULL;
    return hs_fail(HS_ENOMEM, "%zu bytes: taken by others", bytes);
}

/* Each step's sample; the crossing is over with the step that to_step names. */
static HsStatus read_pressed(void *user, HsDeviceSample *sample)
{
    Pressing *pressing = user;
    HsTraining *training = pressing->training;
    const int64_t step = training->state.counters.applied_steps;
    const bool pressed = step >= pressing->setup->from_step && step <= pressing->setup->to_step;
    sample->total_bytes = 1000;
    sample->used_bytes = pressed ? 990 : 500;
    if (!pressed)
        return HS_OK;
    pressing->run->ahead = training->queue.count;
    pressing->run->activations_before = training->engine.device.account.current[HS_MEMORY_ACTIVATIONS];
    if (pressing->setup->allocations_fail)
        training->engine.device.alloc = refuse;
    return HS_OK;
}

static int64_t integer_of(const HsJson *json, const char *key)
{
    const double value = hs_json_number(hs_json_get(json, key));
    return isnan(value) ? -1 : (int64_t)value;
}

static void read_record(const Scratch *scratch, Run *run)
{
    size_t size;
    char *text = scratch_read(scratch_path(scratch, "run/metrics.jsonl"), &size);
    for (char *at = text, *end; *at; at = end + 1) {
        HsJson *json;
        end = strchr(at, '\n');
        cr_assert_eq(hs_json_parse("metrics", at, (size_t)(end - at), &json), HS_OK, "%s", hs_error_message());
        cr_assert_lt(run->line_count, MOST_LINES);
        Line *line = &run->lines[run->line_count++];
        snprintf(line->event, sizeof line->event, "%s", hs_json_string(hs_json_get(json, "event")));
        line->step = integer_of(json, "step");
        line->before = integer_of(json, "micro_batch_before");
        line->after = integer_of(json, "micro_batch");
        line->loss = hs_json_number(hs_json_get(json, "loss"));
        line->val_loss = hs_json_number(hs_json_get(json, "val_loss"));
        line->grad_norm = hs_json_number(hs_json_get(json, "grad_norm"));
        line->maximum = hs_json_number(hs_json_get(json, "maximum"));
        line->mean = hs_json_number(hs_json_get(json, "mean"));
        hs_json_destroy(json);
    }
    free(text);
}

/* Whatever was planned for the micro-batch in use is what is held, and the peak is the first plan's. */
static void check_memory(const HsTraining *training)
{
    HsConfig config = *training->config;
    HsMemoryPlan plan;
    HsTraining as_if = *training;
    as_if.state.micro_batch = 0;
    config.memory.micro_batch = hs_training_micro_batch(training);
    cr_assert_eq(hs_training_plan(&as_if, &config, &plan), HS_OK, "%s", hs_error_message());
    const HsMemoryAccount *account = &training->engine.device.account;
    cr_expect_eq(account->current[HS_MEMORY_ACTIVATIONS], plan.bytes[HS_MEMORY_ACTIVATIONS]);
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        cr_expect_leq(account->peak[i], training->planned.bytes[i], "%s", hs_memory_row((HsMemoryCategory)i)->name);
}

/* Trains, or continues, in scratch/run. */
static Run train(const Scratch *scratch, const Setup *setup)
{
    Run run = { 0 };
    Pressing pressing = { setup, NULL, &run };
    HsConfig config;
    HsRun trained;
    char text[4096], out_dir[600], device[64], mode[64];
    const char *path = scratch_path(scratch, "config.yaml");
    const int length = snprintf(text, sizeof text, "%s%s", base, setup->tasks);
    scratch_write(path, text, (size_t)length);
    snprintf(out_dir, sizeof out_dir, "out_dir=%s/run", scratch->folder);
    snprintf(device, sizeof device, "device=%s", setup->device);
    snprintf(mode, sizeof mode, "precision.mode=%s", setup->mode);
    const char *overrides[6] = { out_dir, device, mode };
    int count = 3;
    for (int i = 0; i < 3 && setup->more[i]; i++)
        overrides[count++] = setup->more[i];
    cr_assert_eq(hs_config_load(&config, path, count, overrides), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_run_create(&config, &trained, NULL), HS_OK, "%s", hs_error_message());
    pressing.training = &trained.training;
    hs_monitor_set_sampler(trained.monitor, (HsDeviceSampler){ read_pressed, &pressing });
    run.status = hs_run_train(&trained);
    run.tokens_seen = trained.training.state.tokens_seen;
    run.micro_batch = hs_training_micro_batch(&trained.training);
    run.said = trained.pressure.warned;
    run.activations_after = trained.training.engine.device.account.current[HS_MEMORY_ACTIVATIONS];
    if (run.status == HS_OK)
        check_memory(&trained.training);
    hs_run_destroy(&trained);
    hs_config_deinit(&config);
    read_record(scratch, &run);
    return run;
}

static Run train_afresh(const Setup *setup)
{
    Scratch scratch = scratch_make();
    Run run = train(&scratch, setup);
    cr_assert_eq(run.status, HS_OK, "%s", hs_error_message());
    scratch_remove(&scratch);
    return run;
}

/* --- two runs against each other --- */

static void near(double calm, double pressed, double bound, const char *what, const Line *line)
{
    cr_expect(isnan(calm) == isnan(pressed));
    if (!isnan(calm))
        cr_expect_leq(fabs(calm - pressed), bound, "%s of %s at step %lld: %.9g and %.9g, bound %g", what, line->event,
                      (long long)line->step, calm, pressed, bound);
}

/* The same events at the same steps, but for one halving behind the line of step `crossing`: before it the same bits,
 * behind it losses within the bound.  The first gradient behind it is of the same weights. */
static void compare(const Setup *setup, const Run *calm, const Run *pressed, int64_t crossing)
{
    const double rho = relative_bound(setup->mode), first = calm->lines[0].loss > 0 ? calm->lines[0].loss : 5.0;
    const Line *event = NULL;
    bool differed = false;
    cr_assert_eq(pressed->line_count, calm->line_count + 1);
    for (int i = 0, j = 0; j < pressed->line_count; j++) {
        const Line *b = &pressed->lines[j], *a = &calm->lines[i];
        if (strcmp(b->event, "pressure") == 0) {
            cr_expect_null(event);
            event = b;
            continue;
        }
        i++;
        cr_assert_str_eq(a->event, b->event);
        cr_assert_eq(a->step, b->step);
        const double steps = event ? (double)(b->step - event->step + 1) : 0;
        near(a->loss, b->loss, event ? rho / sqrt(LEAST_TOKENS) * first : 0, "loss", b);
        near(a->val_loss, b->val_loss, event ? rho / sqrt(LEAST_TOKENS) * first : 0, "val_loss", b);
        if (!event || b->step == event->step + 1)
            near(a->grad_norm, b->grad_norm, event ? rho * a->grad_norm : 0, "grad_norm", b);
        /* Squares of gradients, of weights that each step since has moved by a relative rho of its length. */
        near(a->maximum, b->maximum, event ? 2 * steps * rho * a->maximum : 0, "maximum", b);
        near(a->mean, b->mean, event ? 2 * steps * rho * a->mean : 0, "mean", b);
        differed |= a->grad_norm != b->grad_norm && !isnan(a->grad_norm);
    }
    cr_assert(event, "no event of memory pressure");
    cr_expect_eq(event->step, crossing);
    cr_expect_eq(event->before, 4);
    cr_expect_eq(event->after, 2);
    cr_expect(differed, "sums in another order round as before: nothing was halved");
    cr_expect_eq(pressed->micro_batch, 2);
    cr_expect_eq(calm->micro_batch, 4);
    cr_expect_eq(pressed->tokens_seen, calm->tokens_seen);
    cr_expect_lt(pressed->activations_after, pressed->activations_before);
}

static void check(Setup setup)
{
    hs_log_set_level(HS_LOG_ERROR);
    Setup calm = setup;
    calm.to_step = 0;
    calm.from_step = 1;
    Run undisturbed = train_afresh(&calm), pressed = train_afresh(&setup);
    compare(&setup, &undisturbed, &pressed, setup.from_step);
}

Test(pressure, halves_the_micro_batch_on_the_host)
{
    check((Setup){ one_task, "cpu", "fp32", { "logging.every=1" }, 3, 3, false });
}

Test(pressure, halves_the_micro_batch_on_the_host_in_bf16)
{
    check((Setup){ one_task, "cpu", "bf16", { "logging.every=1" }, 3, 3, false });
}

Test(pressure, halves_the_micro_batch_on_a_device)
{
    check((Setup){ one_task, "emu", "fp32", { "logging.every=1" }, 3, 3, false });
}

Test(pressure, halves_the_micro_batch_on_a_device_in_bf16)
{
    check((Setup){ one_task, "emu", "bf16", { "logging.every=1" }, 3, 3, false });
}

Test(pressure, tasks_with_replay_and_fisher_on_the_host)
{
    check((Setup){ two_tasks, "cpu", "fp32", { "logging.every=1" }, 3, 3, false });
}

Test(pressure, tasks_with_replay_and_fisher_on_a_device)
{
    check((Setup){ two_tasks, "emu", "fp32", { "logging.every=1" }, 3, 3, false });
}

/* --- the rest --- */

/* A recorded step belongs to the old micro-batch: after the crossing one is recorded anew, and the bits are those of
 * steps that were never recorded. */
Test(pressure, recorded_steps_are_recorded_anew)
{
    hs_log_set_level(HS_LOG_ERROR);
    Setup setup = { one_task, "emu", "bf16", { "logging.every=1", "kernels.cuda_graph=false" }, 3, 3, false };
    Run plain = train_afresh(&setup);
    setup.more[1] = "kernels.cuda_graph=true";
    Run recorded = train_afresh(&setup);
    cr_assert_eq(plain.line_count, recorded.line_count);
    cr_expect_eq(recorded.micro_batch, 2);
    for (int i = 0; i < plain.line_count; i++) {
        cr_expect_str_eq(plain.lines[i].event, recorded.lines[i].event);
        near(plain.lines[i].loss, recorded.lines[i].loss, 0, "loss", &plain.lines[i]);
        near(plain.lines[i].val_loss, recorded.lines[i].val_loss, 0, "val_loss", &plain.lines[i]);
        near(plain.lines[i].grad_norm, recorded.lines[i].grad_norm, 0, "grad_norm", &plain.lines[i]);
    }
}

/* Steps are under way when the sample says so: they are finished as they began, and no batch is lost or seen twice. */
Test(pressure, steps_under_way_are_finished_first)
{
    const int64_t crossing = 3;
    hs_log_set_level(HS_LOG_ERROR);
    Setup setup = { one_task, "emu", "fp32", { "logging.every=8", "evaluation.every=0", "checkpoint_freq=0" },
                    1,        0,     false };
    Run calm = train_afresh(&setup);
    setup.from_step = setup.to_step = crossing;
    Run pressed = train_afresh(&setup);
    cr_expect_gt(pressed.ahead, 0);
    compare(&setup, &calm, &pressed, crossing + pressed.ahead);
}

/* A machine that stays full: down to single sequences, then one warning and no event more. */
Test(pressure, ends_at_single_sequences)
{
    hs_log_set_level(HS_LOG_ERROR);
    const Setup full = { one_task, "cpu", "fp32", { "logging.every=8" }, 1, 8, false };
    const Setup odd = { one_task, "cpu", "fp32", { "batch_size=6", "memory.micro_batch=3" }, 1, 8, false };
    const Setup off = { one_task, "cpu", "fp32", { "memory.pressure=0" }, 1, 8, false };
    const Setup below = { one_task, "cpu", "fp32", { "memory.pressure=0.995" }, 1, 8, false };
    const struct {
        const Setup *setup;
        int events;
        int64_t micro_batch;
        bool said;
    } cases[] = { { &full, 2, 1, true }, { &odd, 0, 3, true }, { &off, 0, 4, false }, { &below, 0, 4, false } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Run run = train_afresh(cases[i].setup);
        int events = 0;
        for (int line = 0; line < run.line_count; line++)
            events += strcmp(run.lines[line].event, "pressure") == 0;
        cr_expect_eq(events, cases[i].events, "case %zu: %d events", i, events);
        cr_expect_eq(run.micro_batch, cases[i].micro_batch);
        cr_expect_eq(run.said, cases[i].said);
    }
}

/* --- interrupted runs --- */

/* What a run leaves that training computed, one text. */
static char *results(const Scratch *scratch, const char *step)
{
    static const char *const files[] = { "model.safetensors", "optimizer.safetensors", "trainer.json" };
    size_t total = 0, size;
    char *all = malloc(4 << 20), path[128];
    cr_assert_not_null(all);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "run/checkpoints/%s/%s", step, files[i]);
        char *bytes = scratch_read(scratch_path(scratch, path), &size);
        for (size_t at = 0; at < size; at++) /* a text without zeros, and with every byte in it */
            total += (size_t)snprintf(all + total, (4 << 20) - total, "%c", bytes[at] ? bytes[at] : '#');
        free(bytes);
    }
    return all;
}

static void check_resumed(const char *device, const char *mode)
{
    hs_log_set_level(HS_LOG_ERROR);
    Scratch scratch = scratch_make();
    Setup setup = { one_task, device, mode, { "logging.every=1" }, 3, 3, false };
    Run whole = train(&scratch, &setup);
    cr_assert_eq(whole.status, HS_OK, "%s", hs_error_message());
    char *expected = results(&scratch, "step-00000008");
    /* As a run that died in step 5 leaves it: the crossing is behind it, and the machine is calm by now. */
    cr_assert_eq(hs_storage_remove(scratch_path(&scratch, "run/checkpoints/step-00000008")), HS_OK);
    scratch_write(scratch_path(&scratch, "run/checkpoints/latest"), "step-00000004", 13);
    setup.to_step = 0;
    Run resumed = train(&scratch, &setup);
    cr_assert_eq(resumed.status, HS_OK, "%s", hs_error_message());
    cr_expect_eq(resumed.micro_batch, 2);
    char *got = results(&scratch, "step-00000008");
    cr_expect(strcmp(expected, got) == 0, "the resumed run ends elsewhere");
    cr_assert_eq(whole.line_count, resumed.line_count);
    for (int i = 0; i < whole.line_count; i++) {
        cr_expect_str_eq(whole.lines[i].event, resumed.lines[i].event);
        near(whole.lines[i].loss, resumed.lines[i].loss, 0, "loss", &whole.lines[i]);
        near(whole.lines[i].val_loss, resumed.lines[i].val_loss, 0, "val_loss", &whole.lines[i]);
    }
    free(expected);
    free(got);
    scratch_remove(&scratch);
}

Test(pressure, a_resumed_run_continues_with_the_smaller_micro_batch)
{
    check_resumed("cpu", "bf16");
    check_resumed("emu", "fp32");
}

/* Others take the memory before the smaller plan has it: the state is saved, and the same command continues. */
Test(pressure, without_memory_for_half_the_state_is_saved)
{
    hs_log_set_level(HS_LOG_ERROR + 1);
    Scratch scratch = scratch_make();
    Setup setup = { one_task, "cpu", "fp32", { "logging.every=1" }, 3, 3, true };
    Run failed = train(&scratch, &setup);
    cr_expect_eq(failed.status, HS_ENOMEM);
    cr_expect(strstr(hs_error_message(), "under memory pressure, after step 3 was saved:") &&
                  strstr(hs_error_message(), "taken by others"),
              "%s", hs_error_message());
    cr_expect(scratch_exists(scratch_path(&scratch, "run/checkpoints/step-00000003/model.safetensors")));
    setup.allocations_fail = false;
    setup.to_step = 0;
    Run resumed = train(&scratch, &setup);
    cr_assert_eq(resumed.status, HS_OK, "%s", hs_error_message());
    cr_expect_eq(resumed.micro_batch, 2);
    setup.to_step = 3;
    Run whole = train_afresh(&setup);
    const Line *last[2] = { &resumed.lines[resumed.line_count - 1], &whole.lines[whole.line_count - 1] };
    cr_expect_str_eq(last[0]->event, "end");
    cr_expect_eq(last[0]->val_loss, last[1]->val_loss);
    cr_expect_eq(resumed.tokens_seen, whole.tokens_seen);
    scratch_remove(&scratch);
}

/* The record's other readers. */
Test(pressure, is_on_the_page_and_among_the_scalars)
{
    hs_log_set_level(HS_LOG_ERROR);
    Scratch scratch = scratch_make();
    const Setup setup = { one_task, "cpu", "fp32", { "logging.every=1" }, 3, 3, false };
    size_t size;
    cr_assert_eq(train(&scratch, &setup).status, HS_OK);
    char *page = scratch_read(scratch_path(&scratch, "run/report.html"), &size);
    cr_expect(strstr(page, ">micro-batch 2<"));
    cr_expect(strstr(page, "where memory pressure halved the micro-batch"));
    free(page);
    char *samples = scratch_read(scratch_path(&scratch, "run/device.jsonl"), &size);
    cr_expect(strstr(samples, "\"step\":3,\"device_used_bytes\":990,\"device_total_bytes\":1000}"), "%s", samples);
    free(samples);
    Event events[256];
    const int count = read_events(scratch_path(&scratch, "run/" EVENTS), events, 256);
    int found = 0;
    for (int i = 0; i < count; i++)
        found += strcmp(events[i].tag, "memory/micro_batch") == 0 && events[i].step == 3 && events[i].value == 2;
    cr_expect_eq(found, 1);
    scratch_remove(&scratch);
}
