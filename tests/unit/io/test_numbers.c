/* SPDX-License-Identifier: MIT
 *
 * The run's numbers in trainer.json: written and read back bit for bit; then one member at a time is what no run
 * writes, and it has to be refused by its name.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/train/run.h"
#include "tests/support/strategy_settings.h"

static HsConfig config;

/* In the second of three tasks of 10 steps, windows of 6, after 3 of its steps and one skipped, 13 in all. */
static HsRun made(void)
{
    HsRun run;
    HsTraining *training = &run.training;
    memset(&run, 0, sizeof run);
    memset(&config, 0, sizeof config);
    config.training.max_length = 16;
    config.training.batch_size = 4;
    training->config = &config;
    training->lengths.phase_count = 3;
    training->rows_per_step = 4;
    training->continual_config = strategies_of("mer", NULL);
    set_number(&training->continual_config, "mer", "group_steps", 3);
    set_number(&training->continual_config, "mer", "groups", 2);
    training->optimizer.scaling = (HsScalerConfig){ .growth_interval = 100, .hysteresis = 2 };
    training->state = (HsTrainingState){ .counters.applied_steps = 13,
                                         .counters.skipped_steps = 1,
                                         .task = 1,
                                         .task_begun = 1,
                                         .task_steps = 3,
                                         .matrix_rows = 2,
                                         .position = { 0, 4, 0 },
                                         .counters.schedule_steps = 3,
                                         .counters.moment_steps = 13,
                                         .counters.largest_rate = 1.0 / 7,
                                         .counters.rate_squares = 13.0 / 49,
                                         .tokens_seen = 13 * 64,
                                         .evaluated_at = 10,
                                         .best_validation = NAN,
                                         .best_step = 10,
                                         .window_loss = 1.0 / 3,
                                         .window_steps = 1,
                                         .jsonl_bytes = 1000,
                                         .counters.loss_scale = 65536,
                                         .counters.scaler_tracker = 3,
                                         .counters.scaler_hysteresis = 2,
                                         .micro_batch = 4,
                                         .tuning_hash = ((int64_t)1 << 48) - 1 };
    return run;
}

/* The state as a checkpoint has it, through text, with member `name` as `value` says (NULL: left out). */
static HsStatus read_with(HsRun *run, const char *name, const char *value)
{
    HsJson *json = hs_run_numbers_json(&run->training.state), *read = NULL;
    char *text = hs_json_write(json, false), changed[4096], member[64];
    hs_json_destroy(json);
    snprintf(changed, sizeof changed, "%s", text);
    if (name) {
        snprintf(member, sizeof member, "\"%s\":", name);
        char *at = strstr(text, member);
        cr_assert_not_null(at, "%s", name);
        const size_t before = (size_t)(at - text);
        const char *end = at + strcspn(at, ",}");
        if (value)
            snprintf(changed, sizeof changed, "%.*s%s%s%s", (int)before, text, member, value, end);
        else
            snprintf(changed, sizeof changed, "%.*s\"other\":0%s", (int)before, text, end);
    }
    free(text);
    HsStatus status = hs_json_parse("trainer.json", changed, strlen(changed), &read);
    if (status == HS_OK)
        status = hs_run_read_numbers("trainer.json", read, &run->training.state);
    if (status == HS_OK)
        status = hs_run_check_numbers(run, "trainer.json");
    hs_json_destroy(read);
    return status;
}

Test(numbers, are_read_back)
{
    HsRun written = made(), read = made();
    cr_assert_eq(read_with(&read, NULL, NULL), HS_OK, "%s", hs_error_message());
    cr_assert(isnan(read.training.state.best_validation));
    written.training.state.best_validation = read.training.state.best_validation = 0;
    cr_assert_eq(memcmp(&written.training.state, &read.training.state, sizeof written.training.state), 0);
}

static void refused(const char *name, const char *value)
{
    HsRun run = made();
    cr_expect_eq(read_with(&run, name, value), HS_EFORMAT, "%s: %s", name, value ? value : "(left out)");
    cr_expect(strstr(hs_error_message(), name) || strstr(hs_error_message(), "position"), "%s: %s", name,
              hs_error_message());
}

static const char *const integers[] = { "applied_steps",
                                        "skipped_steps",
                                        "task",
                                        "task_begun",
                                        "task_steps",
                                        "matrix_rows",
                                        "position.window",
                                        "position.window_step",
                                        "position.window_first",
                                        "schedule_steps",
                                        "moment_steps",
                                        "tokens_seen",
                                        "window_replay_steps",
                                        "evaluated_at",
                                        "best_step",
                                        "window_steps",
                                        "jsonl_bytes",
                                        "tensorboard_bytes",
                                        "scaler_tracker",
                                        "scaler_hysteresis",
                                        "micro_batch",
                                        "tuning_hash",
                                        "window_distillation_steps",
                                        "consolidated_at" };
static const char *const reals[] = { "window_replay_loss", "best_validation", "window_loss", "loss_scale" };

Test(numbers, out_of_range)
{
    static const char *const wrong[] = { "-2",
                                         "\"9223372036854775807\"",
                                         "\"-9223372036854775808\"",
                                         "9007199254740992",
                                         "1.5",
                                         "1e300",
                                         "\"x\"",
                                         "null",
                                         "[]",
                                         "{}",
                                         "true" };
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            refused(integers[i], wrong[k]);
    for (size_t i = 0; i < sizeof integers / sizeof *integers - 4; i++) /* the last four came later */
        refused(integers[i], NULL);
}

Test(numbers, reals)
{
    static const char *const wrong[] = { "\"x\"", "[]", "true", "1e999" };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            refused(reals[i], wrong[k]);
        refused(reals[i], NULL);
    }
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        refused("largest_rate", wrong[k]);
        refused("rate_squares", wrong[k]);
    }
    refused("largest_rate", "-1");
    refused("rate_squares", "-1e-300");
    refused("loss_scale", "0");
    refused("loss_scale", "-1");
    refused("loss_scale", "null");
    refused("loss_scale", "1e300");
    refused("loss_scale", "0.1"); /* f32 has no such number */
}

/* In its own range each, and not together. */
Test(numbers, that_contradict_each_other)
{
    static const struct {
        const char *name, *value;
    } wrong[] = {
        { "task", "4" },
        { "task", "3" }, /* all done, and one is begun */
        { "matrix_rows", "3" },
        { "task_steps", "14" },
        { "task_steps", "5" }, /* the position says 4 */
        { "task_steps", "2" },
        { "schedule_steps", "15" },
        { "moment_steps", "14" },
        { "evaluated_at", "14" },
        { "best_step", "14" },
        { "window_steps", "14" },
        { "window_replay_steps", "14" },
        { "tokens_seen", "1000000" },
        { "scaler_tracker", "101" },
        { "scaler_hysteresis", "3" },
        { "position.window", "1" },
        { "position.window_step", "6" },
        { "position.window_step", "2" },
        { "position.window_first", "4" },
        { "skipped_steps", "0" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused(wrong[i].name, wrong[i].value);
}
