/* SPDX-License-Identifier: MIT
 *
 * Figures of a bench from measurements with known figures; and what its table, page and JSON make of them, of
 * hostile names too.
 */
#include <math.h>

#include "runtime/io/files.h"
#include "runtime/io/json.h"
#include "runtime/study/bench.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

enum { STEPS = 20 };

typedef struct Sample {
    HsBenchModes modes;
    HsBenchRun runs[3];
    HsBenchResults results;
    double losses[3][STEPS], seconds[3][STEPS];
} Sample;

/* Step i takes i milliseconds (the first two are not timed) and has the loss 2; the second run's is 2 (1 + i/1000), the
 * third's as the second's but it stopped after half and lost step 3. */
static void sample_make(Sample *sample)
{
    memset(sample, 0, sizeof *sample);
    cr_assert_eq(hs_bench_modes_parse("bf16,fp32,+recompute:model.layers=3", &sample->modes), HS_OK, "%s",
                 hs_error_message());
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < STEPS; i++) {
            sample->losses[r][i] = r == 1 ? 2 : 2 * (1 + i / 1000.0);
            sample->seconds[r][i] = i < 2 ? NAN : 1e-3 * i;
        }
        sample->runs[r] = (HsBenchRun){ .mode = &sample->modes.modes[r],
                                        .steps = r == 2 ? STEPS / 2 : STEPS,
                                        .wanted = STEPS,
                                        .losses = sample->losses[r],
                                        .seconds = sample->seconds[r],
                                        .tokens_per_step = 1000,
                                        .flops_per_token = 10,
                                        .finished = r < 2,
                                        .validation_loss = 1.5 + r };
        snprintf(sample->runs[r].precision, sizeof sample->runs[r].precision, "%s", r == 0 ? "bf16" : "fp32");
        sample->runs[r].peak[HS_MEMORY_WEIGHTS] = sample->runs[r].planned[HS_MEMORY_WEIGHTS] = (size_t)(r + 1) << 20;
    }
    sample->losses[2][3] = NAN;
    sample->results = (HsBenchResults){
        .config_path = "a<b>&\"c\".yaml", .device = "<cpu>", .steps = STEPS, .runs = sample->runs, .count = 3
    };
    sample->results.reference = hs_bench_find_reference(&sample->results);
}

static void near(double value, double truth)
{
    cr_expect(fabs(value - truth) <= 1e-12 * fabs(truth), "%.17g, not %.17g", value, truth);
}

Test(bench_figures, percentiles)
{
    double values[] = { 5, 1, 4, 2, 3 };
    cr_expect_eq(hs_bench_percentile(values, 5, 0), 1);
    cr_expect_eq(hs_bench_percentile(values, 5, 0.5), 3);
    cr_expect_eq(hs_bench_percentile(values, 5, 1), 5);
    near(hs_bench_percentile(values, 5, 0.1), 1.4); /* 0.4 of the way from the first to the second */
    near(hs_bench_percentile(values, 4, 0.5), 2.5);
    cr_expect_eq(hs_bench_percentile(values, 1, 0.9), 1);
    cr_expect(isnan(hs_bench_percentile(values, 0, 0.5)));
}

Test(bench_figures, speeds_are_percentiles_of_the_timed_steps)
{
    Sample sample;
    sample_make(&sample);
    HsBenchFigures figures = hs_bench_figures(&sample.results, 0);
    cr_expect_eq(figures.timed_steps, STEPS - 2);
    /* 18 steps of 2 to 19 ms: the median lies between those of 10 and 11 ms. */
    near(figures.tokens_per_second, (1e6 / 10 + 1e6 / 11) / 2);
    /* place 1.7 from the slowest: between 18 ms and 17 ms */
    near(figures.tokens_per_second_p10, 1e6 / 18 + 0.7 * (1e6 / 17 - 1e6 / 18));
    near(figures.tokens_per_second_p90, 1e6 / 4 + 0.3 * (1e6 / 3 - 1e6 / 4));
    cr_expect(isnan(figures.peak_share), "the peak is not known");
    /* Of one precision the highest peak counts, of another's none. */
    sample.runs[1].peak_flops = 5e6;
    sample.runs[2].peak_flops = 1e7;
    near(hs_bench_figures(&sample.results, 1).peak_share, figures.tokens_per_second * 10 / 1e7);
    cr_expect(isnan(hs_bench_figures(&sample.results, 0).peak_share));
}

Test(bench_figures, losses_and_distances)
{
    Sample sample;
    sample_make(&sample);
    cr_assert_eq(sample.results.reference, 1, "the first with fp32's products");
    HsBenchFigures other = hs_bench_figures(&sample.results, 0), own = hs_bench_figures(&sample.results, 1);
    /* The last tenth of 20 are steps 18 and 19, counted from 0. */
    near(other.training_loss, 2 * (1 + 18.5 / 1000));
    cr_expect(fabs(other.distance_final - 18.5 / 1000) < 1e-15);
    cr_expect(fabs(other.distance_most - 0.019) < 1e-15);
    cr_expect_eq(other.distance_step, 20);
    cr_expect_eq(own.distance_most, 0);
    cr_expect_eq(own.distance_final, 0);
    /* Half a run: its own last tenth (one step of ten), and a step with an unknown loss. */
    HsBenchFigures half = hs_bench_figures(&sample.results, 2);
    near(half.training_loss, 2 * (1 + 9 / 1000.0));
    cr_expect(fabs(half.distance_final - 0.009) < 1e-15);
    cr_expect_eq(half.distance_step, 10);
    cr_expect(isnan(hs_bench_distance(&sample.runs[2], &sample.runs[1], 3)));
    cr_expect(isnan(hs_bench_distance(&sample.runs[2], &sample.runs[1], 10)));
}

Test(bench_figures, the_largest_distance_may_be_in_the_middle)
{
    Sample sample;
    sample_make(&sample);
    sample.losses[0][6] = 1;
    HsBenchFigures figures = hs_bench_figures(&sample.results, 0);
    cr_expect_eq(figures.distance_most, 0.5);
    cr_expect_eq(figures.distance_step, 7);
}

Test(bench_figures, nothing_is_known_of_a_run_that_never_was)
{
    Sample sample;
    sample_make(&sample);
    sample.runs[0].steps = 0;
    HsBenchFigures figures = hs_bench_figures(&sample.results, 0);
    cr_expect(isnan(figures.tokens_per_second) && isnan(figures.training_loss));
    cr_expect(isnan(figures.distance_most) && isnan(figures.distance_final));
    cr_expect_eq(figures.distance_step, 0);
    /* Without fp32 the first is what the others are compared with. */
    snprintf(sample.runs[1].precision, sizeof sample.runs[1].precision, "fp16");
    snprintf(sample.runs[2].precision, sizeof sample.runs[2].precision, "fp16");
    cr_expect_eq(hs_bench_find_reference(&sample.results), 0);
}

Test(bench_figures, underflow_is_what_a_format_lost)
{
    HsHistogram histogram = { 0 };
    const double values[] = { 0, 0x1p-20, 0x1p-14, 1, 1, 1, 1, 1, 1, INFINITY };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        hs_histogram_add_value(&histogram, values[i]);
    HsBenchLoss loss = hs_bench_loss(&histogram, HS_F16);
    near(loss.zero, 0.1);
    near(loss.subnormal, 0.1);
    near(loss.overflow, 0.1);
    cr_expect_eq(hs_bench_loss(&histogram, HS_BF16).subnormal, 0);
}

/* --- outputs --- */

Test(bench_figures, table)
{
    Sample sample;
    char *text = NULL;
    size_t size = 0;
    sample_make(&sample);
    snprintf(sample.runs[2].failure, sizeof sample.runs[2].failure, "gradients are not finite");
    FILE *stream = open_memstream(&text, &size);
    hs_bench_print(&sample.results, stream);
    fclose(stream);
    cr_expect(strstr(text, "\nbf16 "), "%s", text);
    cr_expect(strstr(text, "\n+recompute:model.layers=3 "), "%s", text);
    cr_expect(strstr(text, "95.5k"), "%s", text);
    cr_expect(strstr(text, "fp32+recompute:model.layers=3 ended after 10 steps: gradients are not finite"), "%s", text);
    cr_expect(strstr(text, "one after another"), "%s", text);
    free(text);
}

Test(bench_figures, page_is_sound_whatever_it_holds)
{
    Sample sample;
    Scratch scratch = scratch_make();
    char *text;
    size_t length;
    sample_make(&sample);
    const char *path = scratch_path(&scratch, "bench.html");
    for (int known = 3; known >= 0; known--) { /* with runs that know less and less */
        if (known < 3) {
            sample.runs[known].steps = 0;
            sample.runs[known].finished = false;
            memset(sample.runs[known].peak, 0, sizeof sample.runs[known].peak);
        }
        cr_assert_eq(hs_bench_write_html(path, &sample.results), HS_OK, "%s", hs_error_message());
        cr_assert_eq(hs_read_file(path, 0, &text, &length), HS_OK);
        const char *fault = page_fault(text);
        cr_expect_null(fault, "%d known: %.80s", known, fault);
        cr_expect_null(strstr(text, "a<b>"));
        cr_expect_null(strstr(text, "nan"), "%.80s", strstr(text, "nan"));
        free(text);
    }
    scratch_remove(&scratch);
}

static HsStatus count_folder(void *user, const char *folder)
{
    int *count = user;
    *count += strcmp(folder, "bf16") == 0 || strcmp(folder, "fp32") == 0 ||
              strcmp(folder, "fp32+recompute_model.layers=3") == 0;
    return HS_OK;
}

Test(bench_figures, json)
{
    Sample sample;
    Scratch scratch = scratch_make();
    char *text;
    size_t length;
    HsJson *root;
    int folders = 0;
    sample_make(&sample);
    const char *path = scratch_path(&scratch, "bench.json");
    cr_assert_eq(hs_bench_write_json(path, &sample.results, true), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_read_file(path, 0, &text, &length), HS_OK);
    cr_assert_eq(hs_json_parse("bench.json", text, length, &root), HS_OK, "%s", hs_error_message());
    const HsJson *modes = hs_json_get(root, "modes"), *first = hs_json_first(modes);
    cr_expect_eq(hs_json_count(modes), 3);
    cr_expect_str_eq(hs_json_string(hs_json_get(root, "reference")), "fp32");
    cr_expect_eq(hs_json_count(hs_json_get(first, "losses")), STEPS);
    cr_expect_eq(hs_json_number(hs_json_get(hs_json_get(first, "figures"), "distance_step")), 20);
    cr_expect_eq(hs_bench_read_folders(path, count_folder, &folders), HS_OK);
    cr_expect_eq(folders, 3);
    /* Before anything was trained the folders are known already. */
    cr_assert_eq(hs_bench_write_json(path, &sample.results, false), HS_OK);
    cr_expect_eq(hs_bench_read_folders(path, count_folder, &folders), HS_OK);
    cr_expect_eq(folders, 6);
    hs_json_destroy(root);
    free(text);
    scratch_remove(&scratch);
}

/* What another program wrote must never make us remove something. */
Test(bench_figures, foreign_folders_are_not_ours)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "not JSON",
        "{\"format\": \"something else\", \"modes\": [{\"folder\": \"bf16\"}]}",
        "{\"format\": \"halfstep bench 1\", \"modes\": [{\"folder\": \"../bf16\"}]}",
        "{\"format\": \"halfstep bench 1\", \"modes\": [{\"folder\": \"..\"}]}",
        "{\"format\": \"halfstep bench 1\", \"modes\": [{\"folder\": \"\"}]}",
        "{\"format\": \"halfstep bench 1\", \"modes\": [{}]}",
    };
    Scratch scratch = scratch_make();
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int folders = 0;
        const char *path = scratch_path(&scratch, "bench.json");
        cr_assert_eq(hs_storage_write_file(path, texts[i], strlen(texts[i])), HS_OK);
        cr_expect_eq(hs_bench_read_folders(path, count_folder, &folders), HS_EFORMAT, "%s", texts[i]);
        cr_expect_eq(folders, 0, "%s", texts[i]);
    }
    scratch_remove(&scratch);
}
