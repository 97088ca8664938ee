/* SPDX-License-Identifier: MIT
 *
 * kernels.deterministic: false, on the emulator: attention's backward adds its parts of dQ as they come.
 */
#include <criterion/criterion.h>

#include "runtime/selftest/selftest.h"
#include "tests/support/emulator.h"
#include "tests/support/tier.h"

Test(unordered, attention_backward_is_right_in_any_order)
{
    HsDevice device;
    const HsCudaOptions options = { .unordered = true };
    cr_assert_eq(emulator()->device_init(&device, &options), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = emulator()->backend, .device = &device, .threads = 1 };
    HsOpReport report;
    int op = 0;
    cr_assert_eq(hs_selftest_find("attention_backward", &op), HS_OK);
    const HsCaseChoice choice = { .pairs = !is_nightly() };
    cr_expect_eq(hs_selftest_check_all(&context, 1, op, choice, &report), HS_OK, "%s", hs_error_message());
    cr_expect_eq(report.failures, 0, "%d of %d cases fail: %s", report.failures, report.cases,
                 report.complaints[0].text);
    device.deinit(&device);
}
