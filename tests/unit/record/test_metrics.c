/* SPDX-License-Identifier: MIT
 *
 * The record of a run: exact JSON lines, TensorBoard records read back by a reader of the tests' own, resuming, and the
 * texts for people.
 */
#include <math.h>

#include "runtime/record/metrics.h"
#include "runtime/record/progress.h"
#include "runtime/record/tensorboard.h"
#include "tests/support/event_file.h"
#include "tests/support/scratch.h"

static HsMetrics *create(const Scratch *scratch, bool tensorboard, const HsMetricsPosition *resume_at)
{
    const HsMetricsOptions options = {
        .out_dir = scratch->folder,
        .tensorboard = tensorboard,
        .progress = "none",
        .total_steps = 2000,
        .resume_at = resume_at,
    };
    HsMetrics *metrics = NULL;
    cr_assert_eq(hs_metrics_create(&options, &metrics), HS_OK, "%s", hs_error_message());
    return metrics;
}

static HsMetricsRecord step_record(int64_t step)
{
    return (HsMetricsRecord){
        .event = "step",
        .step = step,
        .loss = 2.1453,
        .val_loss = (double)NAN,
        .learning_rate = 9.8e-4,
        .grad_norm = 0.83,
        .loss_scale = 65536,
        .skipped_steps = 1,
        .tokens_per_second = 24103.25,
        .time_s = 12.5,
        .entropy_floor = (double)NAN,
        .task = -1,
        .penalty = (double)NAN,
        .replay_loss = (double)NAN,
        .bits_per_byte = (double)NAN,
        .accuracy_seen = (double)NAN,
        .accuracy_unseen = (double)NAN,
        .distillation = (double)NAN,
    };
}

static void expect_record(HsMetrics *metrics, const HsMetricsRecord *record)
{
    cr_assert_eq(hs_metrics_record(metrics, record), HS_OK, "%s", hs_error_message());
}

Test(metrics, json_lines_are_exact)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, NULL);
    HsMetricsRecord record = step_record(200);
    expect_record(metrics, &record);
    record =
        (HsMetricsRecord){ "eval", 200, NAN, 1.9, NAN, NAN, NAN, -1, NAN, 3, 1.25, -1, NAN, NAN, NAN, NAN, NAN, NAN };
    expect_record(metrics, &record);
    record = (HsMetricsRecord){ "step", 201, NAN, NAN, 0,   INFINITY, 1,   0,   1e6,
                                100000, NAN, -1,  NAN, NAN, NAN,      NAN, NAN, NAN };
    expect_record(metrics, &record);
    HsMetricsPosition position;
    cr_assert_eq(hs_metrics_sync(metrics, &position), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);

    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    cr_expect_str_eq(text,
                     "{\"event\":\"step\",\"step\":200,\"loss\":2.1453,\"learning_rate\":0.00098,\"grad_norm\":0.83,"
                     "\"loss_scale\":65536,\"skipped_steps\":1,\"tokens_per_second\":2.41032e+04,"
                     "\"time_s\":1.25000e+01}\n"
                     "{\"event\":\"eval\",\"step\":200,\"val_loss\":1.9,\"time_s\":3.00000e+00,"
                     "\"entropy_floor\":1.25}\n"
                     "{\"event\":\"step\",\"step\":201,\"learning_rate\":0,\"grad_norm\":null,\"loss_scale\":1,"
                     "\"skipped_steps\":0,\"tokens_per_second\":1.00000e+06,\"time_s\":1.00000e+05}\n");
    cr_expect_eq(position.jsonl_bytes, (int64_t)size);
    cr_expect_eq(position.tensorboard_bytes, 0);
    cr_expect(!scratch_exists(scratch_path(&scratch, EVENTS)));
    free(text);
    scratch_remove(&scratch);
}

Test(metrics, a_task_its_penalty_and_its_replay_are_recorded)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, NULL);
    HsMetricsRecord record = step_record(7);
    record.tokens_per_second = record.time_s = (double)NAN;
    record.task = 0;
    record.penalty = 0;
    record.replay_loss = 1.5;
    expect_record(metrics, &record);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    cr_expect_str_eq(text, "{\"event\":\"step\",\"step\":7,\"task\":0,\"loss\":2.1453,\"replay_loss\":1.5,"
                           "\"penalty\":0,\"learning_rate\":0.00098,\"grad_norm\":0.83,\"loss_scale\":65536,"
                           "\"skipped_steps\":1}\n");
    free(text);
    scratch_remove(&scratch);
}

/* Equal runs at different speeds must leave files of equal length: the length is part of a checkpoint. */
Test(metrics, casts_are_recorded_by_role)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, NULL);
    const HsScalingFigures roles[] = {
        { .role = "x",
          .amax = 4.5,
          .lowest = 64,
          .highest = 96.5,
          .saturated = 0.25,
          .zeroed = 0.5,
          .layer = "block.0.up",
          .layer_lost = 1 },
        { .role = "dy", .amax = (double)NAN, .lowest = (double)NAN, .highest = (double)NAN },
    };
    cr_assert_eq(hs_metrics_scales(metrics, 7, roles, 2), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_metrics_scales(metrics, 8, roles, 0), HS_OK, "of no role nothing is written");
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);
    cr_expect_str_eq(text, "{\"event\":\"scales\",\"step\":7,\"roles\":[{\"role\":\"x\",\"amax\":4.5,"
                           "\"scale_lowest\":64,\"scale_highest\":96.5,\"saturated\":0.25,\"zeroed\":0.5,"
                           "\"layer\":\"block.0.up\",\"layer_lost\":1},{\"role\":\"dy\",\"amax\":null,"
                           "\"scale_lowest\":null,\"scale_highest\":null,\"saturated\":0,\"zeroed\":0}]}\n");
    free(text);
    scratch_remove(&scratch);
}

Test(metrics, the_clock_does_not_change_the_length)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, NULL);
    HsMetricsPosition position = { 0 };
    int64_t before = 0, length = 0;
    static const double speeds[] = { 0, 0.001, 1.0 / 3, 999999.7, 123456789.123 };
    for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++) {
        HsMetricsRecord record = step_record(1);
        record.tokens_per_second = speeds[i];
        record.time_s = speeds[i] / 7;
        expect_record(metrics, &record);
        cr_assert_eq(hs_metrics_sync(metrics, &position), HS_OK);
        length = i == 0 ? position.jsonl_bytes : length;
        cr_expect_eq(position.jsonl_bytes - before, length, "%g", speeds[i]);
        before = position.jsonl_bytes;
    }
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    scratch_remove(&scratch);
}

/* ---- event files ---- */

Test(tensorboard, crc32c_of_the_standard_vector)
{
    cr_expect_eq(hs_crc32c("123456789", 9), 0xe3069283u);
    cr_expect_eq(hs_crc32c("", 0), 0u);
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 167 + 13);
    for (size_t size = 0; size <= sizeof bytes; size++)
        cr_expect_eq(hs_crc32c(bytes, size), slow_crc32c(bytes, size));
}

Test(tensorboard, scalars_read_back)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, true, NULL);
    HsMetricsRecord record = step_record(300); /* a step of two varint bytes */
    expect_record(metrics, &record);
    HsMetricsPosition position;
    cr_assert_eq(hs_metrics_sync(metrics, &position), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);

    static const struct {
        const char *tag;
        float value;
    } expected[] = {
        { "loss/train", 2.1453f }, { "learning_rate", 9.8e-4f }, { "grad_norm", 0.83f },
        { "loss_scale", 65536 },   { "skipped_steps", 1 },       { "tokens_per_second", 24103.25f },
    };
    Event events[16];
    cr_assert_eq(read_events(scratch_path(&scratch, EVENTS), events, 16), 7);
    cr_expect_str_eq(events[0].version, "brain.Event:2");
    cr_expect_gt(events[0].wall_time_s, 1.7e9);
    for (int i = 0; i < 6; i++) {
        cr_expect_eq(events[i + 1].step, 300);
        cr_expect_str_eq(events[i + 1].tag, expected[i].tag);
        cr_expect_eq(events[i + 1].value, expected[i].value);
        cr_expect_geq(events[i + 1].wall_time_s, events[0].wall_time_s);
    }
    size_t size = 0;
    free(scratch_read(scratch_path(&scratch, EVENTS), &size));
    cr_expect_eq(position.tensorboard_bytes, (int64_t)size);
    scratch_remove(&scratch);
}

Test(tensorboard, negative_and_large_steps)
{
    static const int64_t steps[] = { 0, 1, 127, 128, INT64_MAX, -1 };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        unsigned char record[HS_TENSORBOARD_RECORD_BYTES];
        size_t size = hs_tensorboard_scalar(record, 1.5, steps[i], "t", -0.25f);
        Event event = { 0 };
        take_message(record + 12, record + size - 4, 0, &event);
        cr_expect_eq(event.step, steps[i]);
        cr_expect_eq(event.value, -0.25f);
        cr_expect_eq(event.wall_time_s, 1.5);
    }
}

/* ---- resuming ---- */

Test(metrics, resuming_cuts_back_and_continues)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, true, NULL);
    HsMetricsPosition position, end;
    for (int64_t step = 1; step <= 5; step++) {
        HsMetricsRecord record = step_record(step);
        expect_record(metrics, &record);
        if (step == 3)
            cr_assert_eq(hs_metrics_sync(metrics, &position), HS_OK);
    }
    cr_assert_eq(hs_metrics_sync(metrics, &end), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0, size_again = 0;
    char *undisturbed = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size);

    metrics = create(&scratch, true, &position);
    for (int64_t step = 4; step <= 5; step++) {
        HsMetricsRecord record = step_record(step);
        expect_record(metrics, &record);
    }
    HsMetricsPosition again;
    cr_assert_eq(hs_metrics_sync(metrics, &again), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    cr_expect_eq(again.jsonl_bytes, end.jsonl_bytes);
    cr_expect_eq(again.tensorboard_bytes, end.tensorboard_bytes);
    char *resumed = scratch_read(scratch_path(&scratch, "metrics.jsonl"), &size_again);
    cr_expect_str_eq(resumed, undisturbed);
    Event events[64];
    cr_expect_eq(read_events(scratch_path(&scratch, EVENTS), events, 64), 1 + 5 * 6);
    cr_expect_eq(events[30].step, 5);
    free(undisturbed);
    free(resumed);

    /* TensorBoard off for a while: its position is kept for the next resume. */
    metrics = create(&scratch, false, &end);
    cr_assert_eq(hs_metrics_sync(metrics, &again), HS_OK);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    cr_expect_eq(again.tensorboard_bytes, end.tensorboard_bytes);

    /* A fresh start empties both. */
    metrics = create(&scratch, true, NULL);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    cr_expect_eq(read_events(scratch_path(&scratch, EVENTS), events, 64), 1);
    scratch_remove(&scratch);
}

Test(metrics, a_file_shorter_than_recorded_is_refused)
{
    Scratch scratch = scratch_make();
    HsMetrics *metrics = create(&scratch, false, NULL);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    const HsMetricsPosition position = { 100, 0 };
    const HsMetricsOptions options = { scratch.folder, false, "none", 10, &position };
    char message[512];
    snprintf(
        message, sizeof message,
        "%s/metrics.jsonl has 0 bytes, but had 100 when the checkpoint was saved: put the file back, or start in a "
        "fresh out_dir",
        scratch.folder);
    cr_expect_eq(hs_metrics_create(&options, &metrics), HS_EFORMAT);
    cr_expect_str_eq(hs_error_message(), message);
    cr_expect_null(metrics);
    scratch_remove(&scratch);
}

/* ---- for people ---- */

Test(metrics, plain_lines)
{
    Scratch scratch = scratch_make();
    const HsMetricsOptions options = { scratch.folder, false, "lines", 2000, NULL };
    cr_assert_not_null(freopen(scratch_path(&scratch, "out"), "w", stdout));
    HsMetrics *metrics = NULL;
    cr_assert_eq(hs_metrics_create(&options, &metrics), HS_OK);
    hs_metrics_progress(metrics, 199, 2.1, 24103, 0, 1, 0, 12);
    HsMetricsRecord record = step_record(200);
    record.loss_scale = 1;
    record.skipped_steps = 0;
    expect_record(metrics, &record);
    record.loss_scale = 1024;
    record.skipped_steps = 3; /* shown as soon as there are any */
    expect_record(metrics, &record);
    record.task = 1; /* of several: counted from 1 for people */
    record.penalty = 0.0123456;
    record.replay_loss = 1.83;
    record.distillation = 0.25;
    expect_record(metrics, &record);
    record =
        (HsMetricsRecord){ "eval", 200, NAN, 1.9, NAN, NAN, NAN, 0, NAN, 3, 1.25, -1, NAN, NAN, NAN, NAN, NAN, NAN };
    expect_record(metrics, &record);
    record.task = 0;
    expect_record(metrics, &record);
    record = (HsMetricsRecord){ "checkpoint", 200, NAN, NAN, NAN, NAN, NAN, 0,  NAN, 3,
                                NAN,          -1,  NAN, NAN, NAN, NAN, NAN, NAN };
    expect_record(metrics, &record);
    cr_assert_eq(hs_metrics_destroy(metrics), HS_OK);
    size_t size = 0;
    char *text = scratch_read(scratch_path(&scratch, "out"), &size);
    cr_expect_str_eq(
        text, "step 200/2000  loss 2.1453  lr 9.8e-04  |g| 0.83  24.1k tok/s  ETA 12s\n"
              "step 200/2000  loss 2.1453  lr 9.8e-04  |g| 0.83  scale 1024  skipped 3  24.1k tok/s  ETA 12s\n"
              "step 200/2000  task 2  loss 2.1453  replay 1.8300  distillation 0.2500  penalty 0.01235  lr 9.8e-04  "
              "|g| 0.83  scale 1024  skipped 3  24.1k tok/s  ETA 12s\n"
              "step 200/2000  val_loss 1.9000  floor 1.2500\n"
              "step 200/2000  task 1  val_loss 1.9000  floor 1.2500\n"
              "step 200/2000  checkpoint\n");
    free(text);
    scratch_remove(&scratch);
}

Test(progress, times_and_counts)
{
    static const struct {
        double value;
        const char *time, *count;
    } cases[] = {
        { 0, "0s", "0" },
        { 59.4, "59s", "59" },
        { 59.6, "1m 00s", "60" },
        { 185, "3m 05s", "185" },
        { 999.6, "16m 40s", "1.0k" },
        { 7620, "2h 07m", "7.6k" },
        { 356400, "4d 03h", "356.4k" },
        { 999960, "11d 13h", "1.0M" },
        { -3, "0s", "-3" },
    };
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hs_progress_format_time(cases[i].value, text, sizeof text);
        cr_expect_str_eq(text, cases[i].time);
        hs_progress_format_count(cases[i].value, text, sizeof text);
        cr_expect_str_eq(text, cases[i].count);
    }
}

Test(progress, the_bar_fits_the_terminal)
{
    const HsProgressView view = { 50, 2.5, 24100, 0.61, 65536, 312 << 20, 12 };
    char text[512];
    hs_progress_format_bar(&view, 200, 200, text, sizeof text);
    cr_expect_str_eq(text, "50/200 [==>       ]  25%  loss 2.5000  ETA 12s  24.1k tok/s  61% peak  "
                           "scale 65536  312 MiB");
    hs_progress_format_bar(&view, 200, 50, text, sizeof text);
    cr_expect_str_eq(text, "50/200 [==>       ]  25%  loss 2.5000  ETA 12s");
    for (int columns = 0; columns < 120; columns++) {
        hs_progress_format_bar(&view, 200, columns, text, sizeof text);
        cr_expect_leq((int)strlen(text), columns > 1 ? columns - 1 : 0);
    }
    const HsProgressView unknown = { 0, (double)NAN, 0, 0, 1, 0, 0 };
    hs_progress_format_bar(&unknown, 200, 80, text, sizeof text);
    cr_expect_str_eq(text, "0/200 [>         ]   0%");
    HsProgress progress;
    cr_expect_eq(hs_progress_init(&progress, "colourful", 10), HS_ECONFIG);
}
