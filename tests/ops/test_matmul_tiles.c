/* SPDX-License-Identifier: MIT
 *
 * Every tile shape of the CUDA backend's products, on the emulator.  The shapes of the selftest's cases are small, so
 * that left to itself the backend would multiply nearly all of them with its smallest tiles, and never cut k.
 */
#include <criterion/criterion.h>

#include "kernels/tuning/tuning.h"
#include "runtime/selftest/selftest.h"
#include "tests/support/emulator.h"

static void run_products(const char *kernels, int slices)
{
    HsDevice device;
    const HsCudaOptions options = { 0 };
    cr_assert_eq(emulator()->device_init(&device, &options), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = emulator()->backend, .device = &device, .threads = 1 };
    int failures = 0;
    cr_assert_eq(emulator()->tuner->force(&device, kernels, slices), HS_OK, "%s", hs_error_message());
    cr_expect_eq(hs_selftest_run(&context, "matmul", false, stdout, &failures), HS_OK, "%s", hs_error_message());
    cr_expect_eq(failures, 0, "%s, %d slices: %d cases fail", kernels, slices, failures);
    device.deinit(&device);
}

/* One kernel of each family at a time. */
Test(matmul_tiles, largest)
{
    run_products("mma-128x256,ffma-128x128", 1);
}

Test(matmul_tiles, second)
{
    run_products("mma-128x128,ffma-64x64", 1);
}

Test(matmul_tiles, third)
{
    run_products("mma-128x64,mma-64x64", 1);
}

Test(matmul_tiles, smallest_in_slices)
{
    run_products("mma-64x64,ffma-128x128", 3);
}

Test(matmul_tiles, hopper_wide)
{
    run_products("wgmma-256x256,mma-128x128", 1);
}

Test(matmul_tiles, hopper_narrow_in_slices)
{
    run_products("wgmma-256x128,mma-64x64", 3);
}

Test(matmul_tiles, hopper_in_turns)
{
    run_products("wgmma-128x256,mma-128x64", 1);
}

Test(matmul_tiles, hopper_joint_wide)
{
    run_products("wgmma-256x256-joint,mma-128x128", 1);
}

Test(matmul_tiles, hopper_joint_narrow)
{
    run_products("wgmma-256x128-joint,mma-128x128", 1);
}

Test(matmul_tiles, hopper_joint_in_turns)
{
    run_products("wgmma-128x256-joint,mma-128x128", 1);
}
