/* SPDX-License-Identifier: MIT
 *
 * Every tile shape of the CUDA backend's products, on the emulator.  The shapes of the selftest's cases are small, so
 * that left to itself the backend would multiply nearly all of them with its smallest tiles, and never cut k.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tuning/tuning.h"
#include "runtime/selftest/selftest.h"
#include "tests/support/emulator.h"
#include "tests/support/tier.h"

/* kernels: forced, each on what it can serve.  wanted: the cases that they are for; the others would be multiplied as in every
 * other test. */
static void run_products(const char *kernels, int slices, bool (*wanted)(const HsCase *config), int least)
{
    HsDevice device;
    const HsCudaOptions options = { 0 };
    cr_assert_eq(emulator()->device_init(&device, &options), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = emulator()->backend, .device = &device, .threads = 1 };
    HsOpReport report;
    int op = 0;
    cr_assert_eq(hs_selftest_find("matmul", &op), HS_OK);
    cr_assert_eq(emulator()->tuner->force(&device, kernels, slices), HS_OK, "%s", hs_error_message());
    const HsCaseChoice choice = { .pairs = !is_nightly(), .wanted = wanted };
    cr_expect_eq(hs_selftest_check_all(&context, 1, op, choice, &report), HS_OK, "%s", hs_error_message());
    /* A covering has about a seventh of the cases. */
    cr_expect_geq(report.cases, is_nightly() ? least : least / 10, "%s: only %d cases", kernels, report.cases);
    cr_expect_eq(report.failures, 0, "%s, %d slices: %d of %d cases fail: %s", kernels, slices, report.failures,
                 report.cases, report.complaints[0].text);
    device.deinit(&device);
}

/* One kernel of each family at a time. */
Test(matmul_tiles, largest)
{
    run_products("mma-128x256,ffma-128x128", 1, NULL, 1200);
}

Test(matmul_tiles, second)
{
    run_products("mma-128x128,ffma-64x64", 1, NULL, 1200);
}

static bool by_tensor_cores(const HsCase *config)
{
    return config->dtype != HS_F32 || config->policy.a == HS_TF32;
}

static bool in_16_bits(const HsCase *config)
{
    return config->dtype != HS_F32 && config->quantized == 0 && config->policy.granularity == HS_SCALE_NONE;
}

Test(matmul_tiles, third)
{
    run_products("mma-128x64,mma-64x64", 1, by_tensor_cores, 800);
}

Test(matmul_tiles, smallest_in_slices)
{
    run_products("mma-64x64,ffma-128x128", 3, NULL, 1200);
}

Test(matmul_tiles, hopper_wide)
{
    run_products("wgmma-256x256,mma-128x128", 1, in_16_bits, 500);
}

Test(matmul_tiles, hopper_narrow_in_slices)
{
    run_products("wgmma-256x128,mma-64x64", 3, in_16_bits, 500);
}

Test(matmul_tiles, hopper_in_turns)
{
    run_products("wgmma-128x256,mma-128x64", 1, in_16_bits, 500);
}

/* c is the plain sum, in f32. */
static bool is_plain_sum(const HsCase *config)
{
    const unsigned more = HS_CASE_BIAS | HS_CASE_RESIDUAL | HS_CASE_ADDEND;
    return config->dtype != HS_F32 && config->out == HS_F32 && config->quantized == 0 &&
           config->epilogue == HS_EPILOGUE_NONE && (config->options & more) == 0;
}

Test(matmul_tiles, hopper_joint_wide)
{
    run_products("wgmma-256x256-joint,mma-128x128", 1, is_plain_sum, 50);
}

Test(matmul_tiles, hopper_joint_narrow)
{
    run_products("wgmma-256x128-joint,mma-128x128", 1, is_plain_sum, 50);
}

Test(matmul_tiles, hopper_joint_in_turns)
{
    run_products("wgmma-128x256-joint,mma-128x128", 1, is_plain_sum, 50);
}

static bool in_codes(const HsCase *config)
{
    return config->policy.granularity != HS_SCALE_NONE;
}

/* Codes that tensor cores multiply as they are; promoted products have the first tile alone. */
Test(matmul_tiles, hopper_fp8_in_slices)
{
    run_products("wgmma-fp8-256x128", 3, in_codes, 150);
}

Test(matmul_tiles, hopper_fp8_wide)
{
    run_products("wgmma-fp8-256x256,wgmma-fp8-256x128-joint", 1, in_codes, 150);
}

/* c [256, 64] = a^T b by joint tiles. */
enum { JOINT_M = 256, JOINT_N = 64, JOINT_K = 640 };

typedef struct JointProduct {
    HsDevice device;
    HsTensor a, b, c;
    float found[JOINT_M * JOINT_N];
} JointProduct;

static JointProduct joint;

/* random: values below 1, else all are 1 */
static void open_joint(bool random)
{
    const HsCudaOptions options = { 0 };
    HsDevice *device = &joint.device;
    cr_assert_eq(emulator()->device_init(device, &options), HS_OK, "%s", hs_error_message());
    cr_assert_eq(emulator()->tuner->force(device, "wgmma-256x256-joint", 0), HS_OK, "%s", hs_error_message());
    joint.a = hs_tensor_2d(NULL, HS_BF16, JOINT_K, JOINT_M);
    joint.b = hs_tensor_2d(NULL, HS_BF16, JOINT_K, JOINT_N);
    joint.c = hs_tensor_2d(NULL, HS_F32, JOINT_M, JOINT_N);
    HsTensor *const tensors[] = { &joint.a, &joint.b, &joint.c };
    static uint16_t values[JOINT_K * JOINT_M];
    const HsRng rng = { .seed = 5 };
    for (int i = 0; i < JOINT_K * JOINT_M; i++)
        hs_dtype_store(HS_BF16, values, i, random ? hs_rng_draw(&rng, (uint64_t)i).word[0] * 0x1p-32 - 0.5 : 1.0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(device->alloc(device, hs_tensor_bytes(tensors[i]), &tensors[i]->data), HS_OK);
        cr_assert_eq(device->copy(device, NULL, tensors[i]->data, values, hs_tensor_bytes(tensors[i])), HS_OK);
    }
    cr_assert_eq(device->stream_sync(device, NULL), HS_OK);
}

static void close_joint(void)
{
    joint.device.release(&joint.device, joint.a.data);
    joint.device.release(&joint.device, joint.b.data);
    joint.device.release(&joint.device, joint.c.data);
    joint.device.deinit(&joint.device);
}

static HsStatus multiply_joint(HsStream *stream)
{
    HsContext context = { .backend = emulator()->backend, .device = &joint.device, .threads = 1, .stream = stream };
    const HsMatmulArgs args = {
        .a.values = joint.a, .b.values = joint.b, .c = joint.c, .transpose_a = true, .alpha = 1.0f
    };
    return hs_op_matmul(&context, &args);
}

static void read_joint(HsStream *stream)
{
    cr_assert_eq(joint.device.copy(&joint.device, stream, joint.found, joint.c.data, sizeof joint.found), HS_OK);
    cr_assert_eq(joint.device.stream_sync(&joint.device, stream), HS_OK, "%s", hs_error_message());
}

/* The turns are one stream's at a time, and no recording can wait for another stream's. */
Test(matmul_tiles, joint_tiles_in_two_streams)
{
    open_joint(false);
    HsDevice *device = &joint.device;
    HsStream *other = NULL;
    cr_assert_eq(device->stream_create(device, &other), HS_OK);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(multiply_joint(i % 2 == 0 ? NULL : other), HS_OK, "%s", hs_error_message());
    read_joint(other);
    for (int i = 0; i < JOINT_M * JOINT_N; i++)
        cr_assert_eq(joint.found[i], (float)JOINT_K, "element %d: %g", i, (double)joint.found[i]);

    cr_assert_eq(multiply_joint(NULL), HS_OK, "%s", hs_error_message());
    cr_assert_eq(device->graph_begin(device, other), HS_OK);
    cr_assert_eq(multiply_joint(other), HS_EDEVICE);
    cr_expect(strstr(hs_error_message(), "recorded in a stream other than") != NULL, "%s", hs_error_message());
    device->stream_destroy(device, other);
    close_joint();
}

/* Five clusters on two host threads, which overtake each other. */
Test(matmul_tiles, joint_tiles_give_the_same_bits)
{
    static float first[JOINT_M * JOINT_N];
    setenv("HALFSTEP_MULTIPROCESSORS", "10", 1);
    setenv("HALFSTEP_EMU_THREADS", "2", 1);
    setenv("HALFSTEP_EMU_SCHEDULE", "random", 1);
    open_joint(true);
    for (int run = 0; run < 12; run++) {
        cr_assert_eq(multiply_joint(NULL), HS_OK, "%s", hs_error_message());
        read_joint(NULL);
        if (run == 0)
            memcpy(first, joint.found, sizeof first);
        cr_assert_eq(memcmp(first, joint.found, sizeof first), 0, "run %d has other bits", run);
    }
    close_joint();
}
