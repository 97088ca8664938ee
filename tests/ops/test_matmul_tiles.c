/* SPDX-License-Identifier: MIT
 *
 * Every tile shape of the CUDA backend's products, on the emulator.  The shapes of the selftest's cases are small, so
 * that left to itself the backend would multiply nearly all of them with its smallest tiles, and never cut k.
 */
#include <criterion/criterion.h>

#include "kernels/cuda/matmul_choice.h"
#include "runtime/selftest/selftest.h"

static void run_products(int tile, int slices)
{
    HsDevice device;
    const HsCudaOptions options = { 0 };
    cr_assert_eq(hs_device_emu_init(&device, &options), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = hs_backend_emu(), .device = &device, .threads = 1 };
    int failures = 0;
    hs_emu_matmul_force(tile, slices);
    cr_expect_eq(hs_selftest_run(&context, "matmul", false, stdout, &failures), HS_OK, "%s", hs_error_message());
    cr_expect_eq(failures, 0, "tile %d, %d slices: %d cases fail", tile, slices, failures);
    hs_emu_matmul_force(-1, 0);
    device.deinit(&device);
}

/* Rows of the 16-bit table; tf32 and f32 have two rows each, which these numbers stand for as well. */
Test(matmul_tiles, largest)
{
    run_products(0, 1);
}

Test(matmul_tiles, second)
{
    run_products(1, 1);
}

Test(matmul_tiles, third)
{
    run_products(2, 1);
}

Test(matmul_tiles, smallest_in_slices)
{
    run_products(3, 3);
}

/* Hopper's rows follow. */
Test(matmul_tiles, hopper_wide)
{
    run_products(4, 1);
}

Test(matmul_tiles, hopper_narrow_in_slices)
{
    run_products(5, 3);
}
