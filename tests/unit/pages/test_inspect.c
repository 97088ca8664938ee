/* SPDX-License-Identifier: MIT
 *
 * trainer inspect on a checkpoint with statistics that can be worked out by hand.
 */
#include <inttypes.h>
#include <math.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/pages/html.h"
#include "runtime/pages/html.h"
#include "runtime/pages/inspect.h"
#include "tests/support/page.h"
#include "tests/support/scratch.h"

static void save(const Scratch *scratch)
{
    /* Eight elements: zero, -2, 2^-15 (fp16 subnormal), 2^-30 (below fp16), 2^-130 (bf16 subnormal), 1e5 (over fp16's
     * max), and two that are not finite. */
    float mixed[8] = { 0, -2, 0x1p-15f, 0x1p-30f, 0x1p-130f, 1e5f, INFINITY, NAN };
    float ones[4] = { 1, 1.5f, -1, -1.5f };
    float moment[4] = { 0x1p-20f, 0x1p-20f, 0x1p-19f, 0 };
    const HsNamedTensor model[] = { { .name = "mixed", .tensor = hs_tensor_2d(mixed, HS_F32, 2, 4) },
                                    { .name = "ones", .tensor = hs_tensor_1d(ones, HS_F32, 4) } };
    const HsNamedTensor optimizer[] = { { .name = "ones.m", .tensor = hs_tensor_1d(moment, HS_F32, 4) },
                                        { .name = "ones.v", .tensor = hs_tensor_1d(moment, HS_F32, 4) } };
    HsJson *state = hs_json_object();
    hs_json_set_integer(state, "applied_steps", 10);
    hs_json_set_real(state, "best_validation", (double)NAN);
    const HsCheckpointContent content = {
        .step = 10, .model = model, .model_count = 2, .optimizer = optimizer, .optimizer_count = 2, .state = state
    };
    cr_assert_eq(hs_checkpoint_save(scratch->folder, &content, 1), HS_OK, "%s", hs_error_message());
    hs_json_destroy(state);
}

/* Names come from files: a terminal shows them and obeys none. */
Test(inspect, names_hold_nothing_that_a_terminal_obeys)
{
    Scratch scratch = scratch_make();
    float values[2] = { 1, 2 };
    const HsNamedTensor model[] = { { .name = "a\x1b[2Jb\xc2\x9b"
                                              "1mc\xc3\xa4",
                                      .tensor = hs_tensor_1d(values, HS_F32, 2) } };
    HsJson *state = hs_json_object();
    hs_json_set_string(state, "key\x07", "value\x7f\rx");
    const HsCheckpointContent content = {
        .step = 10, .model = model, .model_count = 1, .optimizer = model, .optimizer_count = 1, .state = state
    };
    cr_assert_eq(hs_checkpoint_save(scratch.folder, &content, 1), HS_OK, "%s", hs_error_message());
    hs_json_destroy(state);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    cr_assert_eq(hs_inspect_checkpoint(scratch.folder, out), HS_OK, "%s", hs_error_message());
    fclose(out);
    cr_expect_not_null(strstr(text, "a?[2Jb??1mc\xc3\xa4"), "%s", text);
    cr_expect_not_null(strstr(text, "key?"));
    cr_expect_not_null(strstr(text, "value??x"));
    for (const char *c = text; *c; c++)
        cr_expect((unsigned char)*c >= 0x20 || *c == '\n');
    free(text);
    scratch_remove(&scratch);
}

Test(inspect, prints_what_is_there)
{
    Scratch scratch = scratch_make();
    save(&scratch);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    cr_assert_eq(hs_inspect_checkpoint(scratch.folder, out), HS_OK, "%s", hs_error_message());
    fclose(out);

    uint64_t hash = 0;
    const char *folder = scratch_path(&scratch, "checkpoints/step-00000010");
    cr_assert_eq(hs_checkpoint_hash(folder, &hash), HS_OK);
    char head[512];
    snprintf(head, sizeof head,
             "checkpoint %s\nhash %016" PRIx64 "\n\n"
             "trainer state\n"
             "  applied_steps        10\n"
             "  best_validation      (none)\n"
             "\n",
             folder, hash);
    /* mean of `mixed`: (1e5 - 2) / 6 = 16666.3; rms sqrt((1e10 + 4) / 6) = 40824.8.  Moments: mean 2^-20, rms 2^-20
     * sqrt(1.5). */
    static const char body[] =
        "model: 2 tensors\n"
        "  name      dtype shape              elements         min         max        mean      "
        "   rms     zeros nonfinite"
        "   f16<norm   f16>max  bf16<norm  bf16>max\n"
        "  mixed     f32   [2,4]                     8  -2.000e+00   1.000e+05   1.667e+04   "
        "4.082e+04    12.50%         2"
        "     37.50%    12.50%     12.50%         0\n"
        "  ones      f32   [4]                       4  -1.500e+00   1.500e+00   0.000e+00   "
        "1.275e+00         0         0"
        "          0         0          0         0\n"
        "  all                                      12  -2.000e+00   1.000e+05   1.000e+04   "
        "3.162e+04     8.33%         2"
        "     25.00%     8.33%      8.33%         0\n"
        "\n"
        "optimizer: 2 tensors\n"
        "  name      dtype shape              elements         min         max        mean      "
        "   rms     zeros nonfinite"
        "   f16<norm   f16>max  bf16<norm  bf16>max\n"
        "  ones.m    f32   [4]                       4   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "  ones.v    f32   [4]                       4   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "  all                                       8   0.000e+00   1.907e-06   9.537e-07   "
        "1.168e-06    25.00%         0"
        "     75.00%         0          0         0\n"
        "\n"
        "exponents of model: 9 values that are finite and not zero\n"
        "  2^16   to 2^18    11.11%  ########                                  overflows fp16\n"
        "  ...\n"
        "  2^0    to 2^2     55.56%  ########################################\n"
        "  ...\n"
        "  2^-16  to 2^-14   11.11%  ########                                  subnormal in fp16\n"
        "  ...\n"
        "  2^-30  to 2^-28   11.11%  ########                                  below fp16\n"
        "  ...\n"
        "  2^-130 to 2^-128  11.11%  ########                                  below fp16\n"
        "\n"
        "exponents of m: 3 values that are finite and not zero\n"
        "  2^-20  to 2^-18  100.00%  ########################################  subnormal in fp16\n"
        "\n"
        "exponents of v: 3 values that are finite and not zero\n"
        "  2^-20  to 2^-18  100.00%  ########################################  subnormal in fp16\n";
    cr_assert_eq(strncmp(text, head, strlen(head)), 0, "%s", text);
    cr_expect_str_eq(text + strlen(head), body);
    free(text);
    scratch_remove(&scratch);
}

/* 448 has a code in every format's scale; next to it 1 is a code of E4M3 and nothing to E2M1 (1 / 448 of 6), 2^-11 is
 * below half of E4M3's smallest number. */
Test(inspect, casts_of_matrices)
{
    Scratch scratch = scratch_make();
    float matrix[8] = { 448, 1, 0x1p-11f }, vector[4] = { 1, 2, 3, 4 }, broken[2] = { 1, INFINITY };
    const HsNamedTensor model[] = { { .name = "matrix", .tensor = hs_tensor_2d(matrix, HS_F32, 2, 4) },
                                    { .name = "vector", .tensor = hs_tensor_1d(vector, HS_F32, 4) },
                                    { .name = "broken", .tensor = hs_tensor_2d(broken, HS_F32, 1, 2) } };
    HsJson *state = hs_json_object();
    const HsCheckpointContent content = { .step = 1, .model = model, .model_count = 3, .state = state };
    cr_assert_eq(hs_checkpoint_save(scratch.folder, &content, 1), HS_OK, "%s", hs_error_message());
    hs_json_destroy(state);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    const char *path = scratch_path(&scratch, "page.html");
    cr_assert_eq(hs_inspect_checkpoint_page(scratch.folder, out, path), HS_OK, "%s", hs_error_message());
    fclose(out);
    cr_expect(strstr(text, "matrices in codes below 16 bits: relative error of the cast (share that it makes zero)\n"
                           "  name           e4m3, tensor      e4m3, 128x128              mxfp8       nvfp4, 16x16\n"
                           "  matrix       0.00% (12.50%)     0.00% (12.50%)     0.00% (12.50%)     0.22% (25.00%)\n"
                           "\n"),
              "%s", text);
    char *page = scratch_read(path, &size);
    cr_expect(strstr(page, "<th scope=\"row\">matrix</th><td>0.00% (12.50%)</td><td>0.00% (12.50%)</td>"
                           "<td>0.00% (12.50%)</td><td>0.22% (25.00%)</td>"));
    free(page);
    free(text);
    scratch_remove(&scratch);
}

static void expect_once(const char *page, const char *part)
{
    cr_expect_eq(page_count(page, part), 1, "%d times: %s", page_count(page, part), part);
}

Test(inspect, the_page_has_the_same_figures)
{
    Scratch scratch = scratch_make();
    save(&scratch);
    char *plain = NULL, *text = NULL;
    size_t plain_size = 0, size = 0, page_size = 0;
    FILE *plain_out = open_memstream(&plain, &plain_size), *out = open_memstream(&text, &size);
    cr_assert(plain_out && out);
    cr_assert_eq(hs_inspect_checkpoint(scratch.folder, plain_out), HS_OK);
    cr_assert_eq(hs_inspect_checkpoint_page(scratch.folder, out, scratch_path(&scratch, "page.html")), HS_OK, "%s",
                 hs_error_message());
    fclose(plain_out);
    fclose(out);
    cr_expect_str_eq(text, plain);
    char *page = scratch_read(scratch_path(&scratch, "page.html"), &page_size);
    page_expect_sound(page);

    expect_once(page, "<th scope=\"row\">mixed</th><td>f32</td><td>[2,4]</td><td>8</td><td>-2.000e+00</td>"
                      "<td>1.000e+05</td><td>1.667e+04</td><td>4.082e+04</td><td>12.50%</td><td>2</td>"
                      "<td>37.50%</td><td>12.50%</td><td>12.50%</td><td>0</td>");
    /* Of 12: one zero; in fp16 two to zero (2^-30, 2^-130), one subnormal, 1e5 and two not finite; in bf16 2^-130. */
    expect_once(page, "<th scope=\"row\">model</th><td>12</td><td>8.33%</td><td>16.67%</td><td>8.33%</td>"
                      "<td>25.00%</td><td>0</td><td>8.33%</td><td>16.67%</td>");
    expect_once(page, "<th scope=\"row\">v</th><td>4</td><td>25.00%</td><td>0</td><td>75.00%</td><td>0</td>"
                      "<td>0</td><td>0</td><td>0</td>");
    expect_once(page, "<figcaption>Exponents of model</figcaption>");
    cr_expect_eq(page_count(page, "<figcaption>"), 3);
    cr_expect_eq(page_count(page, "<title>fp16 subnormal: "), 3);
    cr_expect_geq(page_count(page, ">bf16</text>"), 3); /* the model's axis reaches too far for fp16's label */
    free(page);
    free(text);
    free(plain);

    FILE *nowhere = fopen("/dev/null", "w");
    cr_assert_not_null(nowhere);
    cr_expect_eq(hs_inspect_checkpoint_page(scratch.folder, nowhere, scratch_path(&scratch, "none/page.html")), HS_EIO);
    fclose(nowhere);
    scratch_remove(&scratch);
}

/* ---- the chart ---- */

static char *chart_of(const HsExponentSeries *series, int count)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    cr_assert_not_null(stream);
    const HsExponentChart chart = { "a <chart>", series, count };
    hs_html_page(stream, "chart", &(HsPageBlock){ .kind = HS_PAGE_EXPONENTS, .chart = &chart });
    fclose(stream);
    page_expect_sound(text);
    return text;
}

Test(exponent_chart, shares_are_of_all_elements_and_shifts_move_them)
{
    HsHistogram histogram = { 0 };
    const double values[] = { 0x1p-30, 0x1.8p-30, 1, 1.5, 1.25, 0, 0, INFINITY };
    hs_histogram_add(&histogram, HS_F64, values, 8);
    const HsExponentSeries series[] = { { "as & is", &histogram, 0 }, { "scaled", &histogram, 16 } };
    char *page = chart_of(series, 2);
    expect_once(page, "2\u207b\u00b3\u2070 to 2\u207b\u00b2\u2079\nas &amp; is: 25.00%\nscaled: 0</title>");
    expect_once(page, "2\u207b\u00b9\u2074 to 2\u207b\u00b9\u00b3\nas &amp; is: 0\nscaled: 25.00%</title>");
    expect_once(page, "2\u2070 to 2\u00b9\nas &amp; is: 37.50%\nscaled: 0</title>");
    expect_once(page, "2\u00b9\u2076 to 2\u00b9\u2077\nas &amp; is: 0\nscaled: 37.50%</title>");
    cr_expect_eq(page_count(page, "(zero: 25.00%, not finite: 12.50%)"), 2);
    cr_expect_null(strstr(page, "beyond either end"));
    expect_once(page, "<title>fp16 subnormal: 2\u207b\u00b2\u2074 to 2\u207b\u00b9\u2074</title>");
    expect_once(page, "<title>fp16: 2\u207b\u00b9\u2074 to 2\u00b9\u2076</title>");
    expect_once(page, "<title>bf16: 2\u207b\u00b9\u00b2\u2076 to 2\u00b9\u00b2\u2078</title>");
    free(page);
}

/* Nothing, zeros alone, more series than colours, a far tail of one in 20000, both ends of the axis. */
Test(exponent_chart, odd_histograms_make_sound_pages)
{
    static HsHistogram empty, zeros, tail, ends;
    for (int i = 0; i < 20000; i++) {
        hs_histogram_add_value(&tail, i == 0 ? 0x1p-100 : 1);
        hs_histogram_add_value(&zeros, 0);
        hs_histogram_add_value(&ends, i % 2 ? 1e300 : 1e-300);
    }
    const HsHistogram *all[] = { &empty, &zeros, &tail, &ends };
    HsExponentSeries many[10];
    for (int i = 0; i < 4; i++) {
        char *page = chart_of(&(HsExponentSeries){ "one", all[i], 0 }, 1);
        cr_expect_eq(page_count(page, "beyond either end"), all[i] == &tail);
        free(page);
    }
    for (int i = 0; i < 10; i++)
        many[i] = (HsExponentSeries){ "one of many", all[i % 4], 4 * i - 20 };
    char *page = chart_of(many, 10);
    cr_expect_eq(page_count(page, "<li>"), 10);
    free(page);
    free(chart_of(NULL, 0));
}

Test(inspect, a_damaged_or_missing_checkpoint_is_an_error)
{
    Scratch scratch = scratch_make();
    cr_expect_eq(hs_inspect_checkpoint(scratch_path(&scratch, "none"), stdout), HS_EIO);
    save(&scratch);
    scratch_write(scratch_path(&scratch, "checkpoints/step-00000010/trainer.json"), "{}", 2);
    cr_expect_eq(hs_inspect_checkpoint(scratch_path(&scratch, "checkpoints/step-00000010"), stdout), HS_EFORMAT);
    scratch_remove(&scratch);
}
