/* SPDX-License-Identifier: MIT
 *
 * Planned memory equals what a run takes, category by category, in every precision and policy and with every kind of
 * strategy, on the cpu backend and through the CUDA code on the emulator; and the search finds what fits.
 */
#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/train/run.h"
#include "tests/support/scratch.h"
#include "tests/support/tier.h"

enum { MOST = 48 };

/* A run of two tasks, a few steps each, with evaluations and checkpoints. */
static const char *const common[] = {
    "batch_size=4",
    "gradient_accumulation_steps=2",
    "max_length=16",
    "max_steps=2",
    "checkpoint_freq=2",
    "model.layers=2",
    "model.heads=2",
    "model.width=32",
    "tokenizer.kind=char",
    "tasks.0.train=synthetic:addition",
    "tasks.0.synthetic_tokens=8000",
    "continual.strategy=none",
    "replay.buffer_size=24",
    "ewc.fisher_samples=8",
    "mer.beta=1.0",
    "mer.gamma=0.5",
    "evaluation.every=2",
    "evaluation.batches=1",
    "evaluation.items=1",
    "evaluation.show=1",
    "logging.progress=none",
    "logging.tensorboard=false",
    "threads=1",
};

static const char *const cases[][6] = {
    { "precision.mode=fp32" },
    { "precision.mode=bf16", "memory.recompute=block", "model.dropout=0.1" },
    { "precision.mode=fp16", "memory.recompute=attention", "precision.gradients=compute" },
    { "precision.mode=bf16", "precision.master_weights=false", "memory.recompute=mlp" },
    { "precision.mode=bf16", "memory.recompute=block", "memory.recompute_every=2", "continual.strategy=[ewc, mer]" },
    { "precision.mode=fp16", "memory.micro_batch=2", "continual.strategy=[ewc, er]", "ewc.mode=separate",
      "ewc.exclude=[embedding]" },
    { "precision.mode=fp32", "model.family=llama", "model.kv_heads=1", "model.qk_norm=true", "continual.strategy=si" },
    { "precision.mode=bf16", "continual.strategy=[ewc, er]", "ewc.curvature=kronecker", "ewc.block_size=24" },
    { "precision.mode=fp32", "continual.strategy=ewc", "ewc.curvature=kronecker", "model.tie_head=false",
      "ewc.fisher_samples=5", "memory.head_chunk=24" },
    { "precision.mode=bf16", "model.family=llama", "memory.recompute=block", "continual.strategy=a-gem" },
    { "precision.mode=fp16", "optimizer.kind=sgd", "continual.strategy=[l2, er]", "memory.head_chunk=8" },
    { "precision.mode=bf16", "continual.strategy=mer", "mer.groups=2", "model.tie_head=false", "evaluation.batches=3" },
    { "precision.mode=fp32", "continual.strategy=[ewc, der++]", "memory.micro_batch=2" },
    { "precision.mode=bf16", "continual.strategy=[lwf, er]", "model.tie_head=false" },
    { "precision.mode=fp16", "continual.strategy=generative", "replay.buffer_size=40" },
    { "precision.mode=bf16", "precision.logits=compute", "continual.strategy=[ewc, mer]", "memory.head_chunk=24" },
    { "precision.mode=fp16", "precision.logits=compute", "model.family=llama", "memory.recompute=block" },
    { "precision.mode=bf16", "precision.residual=compute", "continual.strategy=[ewc, mer]", "memory.recompute=mlp" },
    { "precision.mode=bf16", "optimizer.kind=adamwfp8", "continual.strategy=[ewc, er]" },
    { "precision.mode=bf16", "memory.offload=optimizer", "continual.strategy=a-gem" },
    { "precision.mode=fp32", "memory.offload=optimizer", "optimizer.kind=adamw8bit", "model.family=llama" },
};
enum { OFFLOADED = 2 };
enum { CASES = sizeof cases / sizeof *cases };

static HsStatus load(HsConfig *config, const char *device, const char *const *own, int own_count, const char *out_dir)
{
    /* Two tasks: a list can only be written in a file. */
    static const char text[] =
        "tasks:\n  - {name: a}\n  - {name: b, train: \"synthetic:facts\", synthetic_tokens: 8000}\n";
    char device_text[32], out_text[512];
    const char *all[MOST];
    int count = 0;
    snprintf(device_text, sizeof device_text, "device=%s", device);
    snprintf(out_text, sizeof out_text, "out_dir=\"%s\"", out_dir);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        all[count++] = common[i];
    all[count++] = device_text;
    all[count++] = out_text;
    for (int i = 0; i < own_count; i++)
        all[count++] = own[i];
    return hs_config_parse(config, "two.yaml", text, sizeof text - 1, count, all);
}

#define OK(expression) cr_assert_eq((expression), HS_OK, "%s", hs_error_message())

/* Before the run the Fisher's statistics are not there yet, and what writes a rehearsal is not either. */
static void check_account(const HsTraining *training, const char *what, bool ran)
{
    const HsDevice *device = &training->engine.device;
    const size_t *now = device->account.current;
    const bool all = ran || !hs_continual_writes_rehearsal(&training->continual_config);
    for (int i = 0; i < HS_MEMORY_COUNT; i++)
        if (!all)
            cr_expect_geq(training->planned.bytes[i], device->account.peak[i]);
        else if (ran || i != HS_MEMORY_STATISTICS)
            cr_expect_eq(training->planned.bytes[i], device->account.peak[i], "%s, %s: planned %zu bytes, took %zu",
                         what, hs_memory_row((HsMemoryCategory)i)->name, training->planned.bytes[i],
                         device->account.peak[i]);
    /* Nothing was allocated outside the accounts: the device counts by itself.  It leaves out what is the host's. */
    cr_expect_eq(device->current_bytes,
                 hs_memory_sum(now) - now[HS_MEMORY_REPLAY] - now[HS_MEMORY_OFFLOADED] - now[HS_MEMORY_ON_DISK],
                 "%s: the device holds %zu bytes", what, device->current_bytes);
}

static void check_cases(const char *device)
{
    /* The last ones are of devices with their own memory. */
    for (int c = 0; c < CASES - (strcmp(device, "cpu") == 0 ? OFFLOADED : 0); c++) {
        /* Every other one on a device: what it holds differs little from the host's. */
        if (strcmp(device, "cpu") != 0 && c < CASES - OFFLOADED && !is_in_tier((size_t)c, 2))
            continue;
        char name[64];
        const Scratch scratch = scratch_make();
        int own = 0;
        while (own < 6 && cases[c][own])
            own++;
        snprintf(name, sizeof name, "%s, case %d (%s)", device, c, cases[c][0]);
        HsConfig config;
        HsRun run;
        OK(load(&config, device, cases[c], own, scratch.folder));
        OK(hs_run_create(&config, &run, NULL));
        check_account(&run.training, name, false);
        /* What is yet to be allocated stays within what was planned. */
        run.training.engine.device.cap_bytes = run.training.planned.device_bytes;
        OK(hs_run_train(&run));
        check_account(&run.training, name, true);
        cr_expect_gt(run.training.planned.bytes[HS_MEMORY_ACTIVATIONS], run.training.planned.kept_bytes);
        hs_run_destroy(&run);
        hs_config_deinit(&config);
        scratch_remove(&scratch);
    }
}

Test(memory_plan, equals_what_is_taken_on_cpu)
{
    hs_log_set_level(HS_LOG_ERROR);
    check_cases("cpu");
}

Test(memory_plan, equals_what_is_taken_on_emu)
{
    hs_log_set_level(HS_LOG_ERROR);
    setenv("HALFSTEP_EMU_GUARD", "off", 1); /* tests/cli/test_emu.sh has it */
    check_cases("emu");
}

/* What the table of parameters says by itself: 16 bytes a parameter and the gradient's 2 or 4 in a 16-bit mode, 4 less
 * with moments in bf16. */
Test(memory_plan, bytes_a_parameter)
{
    static const struct {
        const char *mode, *gradients, *states;
        size_t weight, master, gradient, moments;
    } rows[] = { { "precision.mode=bf16", "precision.gradients=compute", "optimizer.moments=f32", 2, 4, 2, 8 },
                 { "precision.mode=bf16", "precision.gradients=compute", "optimizer.moments=bf16", 2, 4, 2, 4 },
                 { "precision.mode=fp16", "precision.gradients=fp32", "optimizer.moments=f32", 2, 4, 4, 8 },
                 { "precision.mode=fp32", "precision.gradients=fp32", "optimizer.moments=f32", 4, 0, 4, 8 } };
    hs_log_set_level(HS_LOG_ERROR);
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const Scratch scratch = scratch_make();
        const char *own[] = { rows[r].mode, rows[r].gradients, rows[r].states, "model.layers=1",
                              "model.tie_head=true" };
        HsConfig config;
        HsRun run;
        OK(load(&config, "emu", own, 5, scratch.folder));
        OK(hs_run_create(&config, &run, NULL));
        /* Gains of norms, f32 in every mode, have neither a narrow weight nor a master; arenas round each tensor up. */
        size_t matrix = 0, vector = 0, tensors = (size_t)run.training.model.param_count;
        for (int i = 0; i < run.training.model.param_count; i++) {
            const HsTensor *weight = &run.training.model.params[i].stored.values;
            *(weight->rank == 2 ? &matrix : &vector) += (size_t)hs_tensor_count(weight);
        }
        const size_t expected[] = { matrix * rows[r].weight + vector * 4, matrix * rows[r].master,
                                    matrix * rows[r].gradient + vector * 4, (matrix + vector) * rows[r].moments };
        const HsMemoryCategory categories[] = { HS_MEMORY_WEIGHTS, HS_MEMORY_MASTERS, HS_MEMORY_GRADIENTS,
                                                HS_MEMORY_MOMENTS };
        for (int i = 0; i < 4; i++) {
            const size_t planned = run.training.planned.bytes[categories[i]],
                         rounding = 2 * tensors * HS_ARENA_ALIGNMENT;
            cr_expect(planned >= expected[i] && planned <= expected[i] + rounding, "%s, %s: %zu, by the table %zu",
                      rows[r].mode, hs_memory_row(categories[i])->name, planned, expected[i]);
        }
        hs_run_destroy(&run);
        hs_config_deinit(&config);
        scratch_remove(&scratch);
    }
}

/* The fastest of every divisor of the batch with every policy that fits: large micro-batches first, of equals the
 * first. */
static bool search_all(const HsTraining *training, size_t limit, bool narrow, HsFit *fit)
{
    static const HsFit policies[] = {
        { 0, "none", 1, false, "none" },  { 0, "mlp", 1, false, "none" },   { 0, "attention", 1, false, "none" },
        { 0, "block", 2, false, "none" }, { 0, "block", 1, false, "none" },
    };
    const HsDeviceRates rates = hs_nominal_rates(&training->engine.device);
    const int64_t batch = training->config->training.batch_size;
    double best = INFINITY;
    for (int64_t rows = batch; rows >= 1; rows--) {
        for (size_t p = 0; batch % rows == 0 && p < sizeof policies / sizeof *policies; p++) {
            HsFit tried = policies[p];
            HsMemoryPlan plan;
            HsConfig changed;
            tried.micro_batch = rows;
            tried.narrow_gradients = narrow;
            hs_fit_apply(training->config, &tried, &changed);
            OK(hs_training_plan(training, &changed, &plan));
            const double seconds = hs_memory_plan_seconds(&plan, &rates);
            if (plan.device_bytes > limit || seconds >= best)
                continue;
            best = seconds;
            *fit = tried;
        }
    }
    return isfinite(best);
}

/* With less and less memory the search gives up first time, then the gradients' format; what it finds always fits, and
 * is what a run with those lines takes. */
Test(memory_plan, search)
{
    static const char *const own[] = { "precision.mode=bf16", "batch_size=32", "model.layers=4", "threads=2" };
    const Scratch scratch = scratch_make();
    hs_log_set_level(HS_LOG_ERROR);
    HsConfig config;
    HsRun run;
    OK(load(&config, "cpu", own, 4, scratch.folder));
    OK(hs_run_create(&config, &run, NULL));
    const size_t needed = run.training.planned.device_bytes;
    bool found = true;
    double last_seconds = 0;
    const HsDeviceRates rates = hs_nominal_rates(&run.training.engine.device);
    int ways = 0, narrow = 0;
    for (size_t limit = needed; found; limit = limit * 24 / 25) { /* finer than what narrow gradients save */
        HsFit fit;
        HsMemoryPlan plan, again;
        HsConfig changed;
        OK(hs_training_search(&run.training, limit, &fit, &plan, &found));
        HsFit thorough;
        const bool any =
            search_all(&run.training, limit, false, &thorough) || search_all(&run.training, limit, true, &thorough);
        cr_assert_eq(found, any, "limit %zu", limit);
        if (!found)
            break;
        cr_expect(fit.micro_batch == thorough.micro_batch && fit.recompute_every == thorough.recompute_every &&
                      fit.narrow_gradients == thorough.narrow_gradients &&
                      strcmp(fit.recompute, thorough.recompute) == 0,
                  "limit %zu: %lld x %s instead of %lld x %s", limit, (long long)fit.micro_batch, fit.recompute,
                  (long long)thorough.micro_batch, thorough.recompute);
        ways++;
        narrow += fit.narrow_gradients;
        cr_expect_leq(plan.device_bytes, limit);
        cr_expect_eq(plan.tokens, run.training.planned.tokens, "the effective batch changed");
        cr_expect_eq(plan.micro_batch * plan.micro_batches, 64);
        hs_fit_apply(&config, &fit, &changed);
        OK(hs_training_plan(&run.training, &changed, &again));
        cr_expect_eq(again.device_bytes, plan.device_bytes);
        if (limit == needed)
            cr_expect_eq(plan.recompute_flops, 0, "the fastest way that fits recomputes nothing");
        const double seconds = hs_memory_plan_seconds(&plan, &rates);
        if (narrow == 0) /* a smaller choice is never faster */
            cr_expect_geq(seconds, last_seconds);
        last_seconds = seconds;
    }
    cr_expect_geq(ways, 4);
    cr_expect_geq(narrow, 1, "narrow gradients come last, but they come");
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    scratch_remove(&scratch);
}

/* The lines of a fit, written into the configuration, make it that fit. */
Test(memory_plan, fit_lines)
{
    HsConfig config;
    char text[HS_FIT_TEXT];
    const char *const overrides[] = { "use_gradient_checkpointing=true", "batch_size=8", "precision.mode=bf16" };
    OK(hs_config_load(&config, NULL, 3, overrides));
    HsFit now = hs_fit_of(&config);
    cr_expect_str_eq(now.recompute, "block");
    cr_expect_str_eq(hs_fit_lines(&config, &now, text), "");
    const HsFit other = { 2, "mlp", 2, true, "optimizer" };
    cr_expect_str_eq(hs_fit_lines(&config, &other, text),
                     "    use_gradient_checkpointing: false\n    memory:\n      micro_batch: 2\n      recompute: mlp\n"
                     "      recompute_every: 2\n      offload: optimizer\n    precision:\n      gradients: compute\n");
    OK(hs_fit_write(&config, &other));
    now = hs_fit_of(&config);
    cr_expect(now.micro_batch == 2 && strcmp(now.recompute, "mlp") == 0 && now.recompute_every == 2 &&
              now.narrow_gradients && strcmp(now.offload, "optimizer") == 0);
    cr_expect_str_eq(hs_fit_lines(&config, &other, text), "");
    hs_config_deinit(&config);
}

/* A device that only counts: its pointers do not overlap, and they must not be accessed. */
Test(memory_plan, counting_device)
{
    HsDevice real, counting;
    void *a, *b;
    OK(hs_device_host_init(&real));
    hs_device_counting_init(&counting, &real);
    OK(hs_memory_alloc(&counting, HS_MEMORY_WEIGHTS, (size_t)1 << 50, &a));
    OK(hs_memory_alloc(&counting, HS_MEMORY_WEIGHTS, 100, &b));
    cr_expect((char *)b - (char *)a >= (ptrdiff_t)1 << 50);
    hs_memory_release(&counting, HS_MEMORY_WEIGHTS, (size_t)1 << 50, a);
    cr_expect_eq(counting.account.current[HS_MEMORY_WEIGHTS], 100);
    cr_expect_eq(counting.account.peak[HS_MEMORY_WEIGHTS], ((size_t)1 << 50) + 100);
    cr_expect_eq(real.account.peak[HS_MEMORY_WEIGHTS], 0);
    cr_expect_eq(real.current_bytes, 0);
}

/* A run that its plan fits to the last byte passes the device's cap, which the same limit sets. */
Test(memory_plan, a_limit_of_what_is_planned_is_enough)
{
    static const struct {
        const char *device;
        int index;
    } runs[] = { { "cpu", 4 }, { "emu", 15 } };
    hs_log_set_level(HS_LOG_ERROR);
    for (int i = 0; i < 2; i++) {
        const int c = runs[i].index;
        const Scratch scratch = scratch_make();
        int own = 0;
        HsConfig config;
        HsRun run;
        while (own < 6 && cases[c][own])
            own++;
        OK(load(&config, runs[i].device, cases[c], own, scratch.folder));
        config.training.target_gpu_util = 1;
        OK(hs_run_create(&config, &run, NULL));
        cr_expect_eq(run.training.engine.device.cap_bytes, 0);
        config.memory.limit = (int64_t)run.training.planned.device_bytes;
        hs_run_destroy(&run);
        OK(hs_run_create(&config, &run, NULL));
        cr_expect_eq(run.training.engine.device.cap_bytes, run.training.planned.device_bytes);
        OK(hs_run_train(&run));
        hs_run_destroy(&run);
        config.memory.limit--;
        cr_expect_eq(hs_run_create(&config, &run, NULL), HS_ENOMEM);
        hs_config_deinit(&config);
        scratch_remove(&scratch);
    }
}
