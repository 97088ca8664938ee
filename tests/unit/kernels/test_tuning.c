/* SPDX-License-Identifier: MIT
 *
 * Tables of measured choices: there and back, what is refused and how, and what a device makes of them.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tuning/tuning.h"
#include "tests/support/emulator.h"

#define HEADER \
    "halfstep-tuning\t1\nkernels\t3\ndevice\temulated\nmultiprocessors\t4\ncompute_capability\t9.0\n# columns\n"

static HsStatus parse(const char *text, HsTuningTable *table)
{
    return hs_tuning_parse("t.txt", text, strlen(text), table);
}

Test(tuning, a_table_comes_back_as_it_was_written)
{
    HsTuningRow rows[] = {
        { .key = { 64, 96, 32, false, true, HS_PRODUCT_16BIT }, .kernel = "wgmma-256x256", .slices = 2, 12.5, 0 },
        { .key = { 64, 96, 32, true, false, HS_PRODUCT_16BIT }, .kernel = "mma-64x64", .slices = 1, 3, 0 },
        { .key = { 8, 96, 32, false, false, HS_PRODUCT_TF32 }, .kernel = "mma-128x128", .slices = 1, 1e6, 0 },
        { .key = { 8, 96, 32, false, false, HS_PRODUCT_F32 }, .kernel = "ffma-64x64", .slices = 32, 0, 0 },
    };
    HsTuningTable table = { .device = { "A GPU of some name", 132, 90 }, .rows = rows, .count = 4 }, again;
    char folder[] = "/tmp/halfstep-tuning-XXXXXX", path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/table", folder);
    cr_assert_eq(hs_tuning_write(path, &table), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_tuning_write(path, &table), HS_OK, "written over: %s", hs_error_message());
    cr_assert_eq(hs_tuning_read(path, &again), HS_OK, "%s", hs_error_message());
    cr_expect_eq(again.count, 4);
    cr_expect_str_eq(again.device.name, "A GPU of some name");
    cr_expect(again.device.multiprocessors == 132 && again.device.compute_capability == 90 && again.hash != 0);
    for (int i = 0; i < 4; i++) {
        const HsTuningRow *row = hs_tuning_find(&again, &rows[i].key);
        cr_assert_not_null(row, "row %d", i);
        cr_expect_str_eq(row->kernel, rows[i].kernel);
        cr_expect(row->slices == rows[i].slices && row->microseconds == rows[i].microseconds, "row %d", i);
    }
    HsProductKey absent = rows[0].key;
    absent.format = HS_PRODUCT_F32;
    cr_expect_null(hs_tuning_find(&again, &absent));
    hs_tuning_deinit(&again);
    remove(path);
    cr_expect_eq(remove(folder), 0, "something else was left behind");
}

Test(tuning, what_is_wrong_is_named_with_file_line_and_mend)
{
    const struct {
        const char *text, *says;
    } cases[] = {
        { "", "t.txt: ends inside the header (0 of 5 lines)" },
        { "seed: 7\n", "t.txt:1: `halfstep-tuning` and its value must stand here" },
        { "halfstep-tuning\t2\n", "t.txt:1: a table of version 2; this build reads version 1" },
        { "halfstep-tuning\t1\nkernels\t999\n", "t.txt:2: measured with revision 999 of the kernels" },
        { "halfstep-tuning\t1\nkernels\tx\n", "t.txt:2: kernels must be a whole number" },
        { "halfstep-tuning\t1\nkernels\t3\ndevice\t\n", "t.txt:3: `device` and its value" },
        { "halfstep-tuning\t1\nkernels\t3\ndevice\tG\nmultiprocessors\t0\n", "t.txt:4: multiprocessors must be" },
        { "halfstep-tuning\t1\nkernels\t3\ndevice\tG\nmultiprocessors\t4\ncompute_capability\t9\n",
          "t.txt:5: compute_capability must be a number such as 9.0 (got 9)" },
        { "halfstep-tuning\t1\nkernels\t3\ndevice\tG\nmultiprocessors\t4\ncompute_capability\t-.1\n", "t.txt:5:" },
        { HEADER "1 2 3 nn 16bit mma-64x64 1\n", "t.txt:7: a row has 8 fields" },
        { HEADER "1 2 3 nn 16bit mma-64x64 1 1 1\n", "t.txt:7: a row has 8 fields" },
        { HEADER "0 2 3 nn 16bit mma-64x64 1 1\n", "t.txt:7: M must be a whole number from 1" },
        { HEADER "1 99999999999999999999 3 nn 16bit mma-64x64 1 1\n", "t.txt:7: N must be" },
        { HEADER "1 2 3.5 nn 16bit mma-64x64 1 1\n", "t.txt:7: K must be" },
        { HEADER "1 2 3 nx 16bit mma-64x64 1 1\n", "t.txt:7: layout must be nn, nt, tn or tt (got nx)" },
        { HEADER "1 2 3 nn fp4 mma-64x64 1 1\n", "t.txt:7: format must be f32, tf32, 16bit, fp8, fp8-promoted or" },
        { HEADER "1 2 3 nn 16bit mma-64x64-with-a-very-long-name 1 1\n", "t.txt:7: no kernel has a name as long" },
        { HEADER "1 2 3 nn 16bit mma-64x64 33 1\n", "t.txt:7: slices must be a whole number from 1 to 32 (got 33)" },
        { HEADER "1 2 3 nn 16bit mma-64x64 1 nan\n", "t.txt:7: microseconds must be" },
        { HEADER "1 2 3 nn 16bit mma-64x64 1 -1\n", "t.txt:7: microseconds must be" },
        { HEADER "1 2 3 nn 16bit mma-64x64 1 1\n4 5 6 nn f32 ffma-64x64 1 1\n\n1 2 3 nn 16bit mma-128x64 1 2\n",
          "t.txt:10: the product of line 7 again" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        HsTuningTable table;
        cr_expect_eq(parse(cases[i].text, &table), HS_EFORMAT, "case %zu", i);
        cr_expect_not_null(strstr(hs_error_message(), cases[i].says), "%s", hs_error_message());
        cr_expect(table.count == 0 && table.rows == NULL);
    }
}

Test(tuning, long_lines_zeros_and_giants_are_refused)
{
    HsTuningTable table;
    char *text = malloc(4 << 20);
    cr_assert_not_null(text);
    memset(text, 'x', 300);
    text[300] = '\0';
    cr_expect_eq(parse(text, &table), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "a line of 300 bytes"), "%s", hs_error_message());
    cr_expect_eq(hs_tuning_parse("t.txt", "half\0step\n", 10, &table), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "a byte of zero"), "%s", hs_error_message());

    size_t used = (size_t)sprintf(text, "%s", HEADER);
    for (int i = 0; i <= HS_TUNING_MOST_ROWS; i++)
        used += (size_t)sprintf(text + used, "%d 1 1 nn f32 ffma-64x64 1 1\n", i + 1);
    cr_expect_eq(hs_tuning_parse("t.txt", text, used, &table), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "more than 4096 rows"), "%s", hs_error_message());

    char path[] = "/tmp/halfstep-giant-XXXXXX";
    const int file = mkstemp(path);
    cr_assert_geq(file, 0);
    FILE *stream = fdopen(file, "w");
    cr_assert_eq(fwrite(text, 1, HS_TUNING_MOST_BYTES + 1, stream), HS_TUNING_MOST_BYTES + 1);
    fclose(stream);
    cr_expect_eq(hs_tuning_read(path, &table), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "larger than 1048576 bytes"), "%s", hs_error_message());
    remove(path);
    cr_expect_eq(hs_tuning_read(path, &table), HS_EIO);
    free(text);
}

/* A product of 64 x 96 x 128 on the emulator, and what its table may say of it. */
typedef struct Fixture {
    HsDevice device;
    HsContext context;
    HsMatmulArgs args;
} Fixture;

static void open_fixture(Fixture *fixture)
{
    const HsCudaOptions options = { 0 };
    memset(fixture, 0, sizeof *fixture);
    cr_assert_eq(emulator()->device_init(&fixture->device, &options), HS_OK, "%s", hs_error_message());
    fixture->context =
        (HsContext){ .backend = emulator()->backend, .device = &fixture->device, .threads = 1, .dry_run = true };
    fixture->args = (HsMatmulArgs){ .a.values = hs_tensor_2d(NULL, HS_BF16, 64, 128),
                                    .b.values = hs_tensor_2d(NULL, HS_BF16, 96, 128),
                                    .transpose_b = true,
                                    .alpha = 1.0f,
                                    .c = hs_tensor_2d(NULL, HS_BF16, 64, 96) };
}

static HsStatus use(Fixture *fixture, const char *rows)
{
    HsTuningTable table;
    char text[1024];
    snprintf(text, sizeof text, "%s%s", HEADER, rows);
    cr_assert_eq(parse(text, &table), HS_OK, "%s", hs_error_message());
    const HsStatus status = emulator()->tuner->use(&fixture->device, &table, "t.txt");
    hs_tuning_deinit(&table);
    return status;
}

static size_t workspace(Fixture *fixture)
{
    fixture->context.workspace_needed = 0;
    cr_assert_eq(hs_op_matmul(&fixture->context, &fixture->args), HS_OK, "%s", hs_error_message());
    return fixture->context.workspace_needed;
}

Test(tuning, a_row_decides_for_its_product_alone)
{
    Fixture fixture;
    open_fixture(&fixture);
    const size_t by_model = workspace(&fixture), two_slices = 2 * 64 * 96 * sizeof(float);
    cr_assert_neq(by_model, two_slices);
    cr_assert_eq(use(&fixture, "64 96 128 nt 16bit mma-64x64 2 1\n"), HS_OK, "%s", hs_error_message());
    cr_expect_eq(workspace(&fixture), two_slices);
    fixture.args.a.values.dtype = fixture.args.b.values.dtype = fixture.args.c.dtype =
        HS_F16; /* as fast, and so the same row */
    cr_expect_eq(workspace(&fixture), two_slices);
    cr_assert_eq(use(&fixture, "64 96 128 nn 16bit mma-64x64 2 1\n64 96 128 nt f32 ffma-64x64 2 1\n"), HS_OK, "%s",
                 hs_error_message());
    cr_expect_eq(workspace(&fixture), by_model, "another layout, another format");
    cr_assert_eq(emulator()->tuner->use(&fixture.device, NULL, ""), HS_OK);
    cr_expect_eq(workspace(&fixture), by_model);
    fixture.device.deinit(&fixture.device);
}

Test(tuning, tables_that_do_not_fit_the_device_are_refused)
{
    Fixture fixture;
    open_fixture(&fixture);
    cr_expect_eq(use(&fixture, "64 96 128 nt 16bit mma-32x32 1 1\n"), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(),
                              "t.txt:7: no kernel mma-32x32 for this product on this GPU: use one of "
                              "mma-128x256, mma-128x128, mma-128x64, mma-64x64, wgmma-256x256"),
                       "%s", hs_error_message());
    cr_expect_eq(use(&fixture, "64 96 128 nt 16bit mma-64x64 3 1\n"), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "t.txt:7: K 128 cannot be cut into 3 slices"), "%s",
                       hs_error_message());
    /* Rows of 2 * 13 bytes: for the kernel of every layout only. */
    cr_expect_eq(use(&fixture, "64 96 13 nt 16bit wgmma-256x256 1 1\n"), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(), "use one of mma-any-128x64,"), "%s", hs_error_message());

    HsTuningTable elsewhere = { .device = { "another GPU", 4, 90 } };
    cr_expect_eq(emulator()->tuner->use(&fixture.device, &elsewhere, "t.txt"), HS_ECONFIG);
    cr_expect_not_null(strstr(hs_error_message(),
                              "measured on another GPU (4 multiprocessors, compute capability 9.0), "
                              "and this is emulated"),
                       "%s", hs_error_message());
    fixture.device.deinit(&fixture.device);
}

Test(tuning, choices_begin_with_the_models_and_name_each_kernel)
{
    Fixture fixture;
    open_fixture(&fixture);
    enum { MOST = 24 };
    HsProductChoice choices[MOST];
    const int count = emulator()->tuner->choices(&fixture.context, &fixture.args, choices, MOST);
    const char *const kernels[] = { "mma-128x256",   "mma-128x128",   "mma-128x64",   "mma-64x64",
                                    "wgmma-256x256", "wgmma-256x128", "wgmma-128x256" };
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        bool named = false;
        for (int i = 0; i < count; i++)
            named = named || strcmp(choices[i].kernel, kernels[k]) == 0;
        cr_expect(named, "%s", kernels[k]);
    }
    for (int i = 0; i < count; i++) {
        cr_expect_gt(choices[i].predicted_us, 0.0);
        cr_expect(i < 2 || choices[i].predicted_us >= choices[i - 1].predicted_us);
        for (int j = 0; j < i; j++)
            cr_expect(choices[i].slices != choices[j].slices || strcmp(choices[i].kernel, choices[j].kernel) != 0);
    }
    fixture.device.deinit(&fixture.device);
}
