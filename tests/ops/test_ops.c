/* SPDX-License-Identifier: MIT
 *
 * Every case of every operation: the reference in its declared dtypes against itself in f64, and the cpu backend of
 * every instruction set that this machine has.  The cases and their tolerances are runtime/selftest's.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "kernels/cpu/cpu.h"
#include "runtime/selftest/selftest.h"

/* An odd number of threads, more than some cases have rows: uneven shares of work, and idle workers. */
enum { THREADS = 3 };

static int failures_of(const HsBackend *backend, int threads)
{
    HsDevice device;
    int failures = 0;
    cr_assert_eq(hs_device_host_init(&device), HS_OK, "%s", hs_error_message());
    HsContext context = { .backend = backend, .device = &device, .threads = threads };
    cr_assert_eq(hs_selftest_run(&context, NULL, false, stderr, &failures), HS_OK, "%s", hs_error_message());
    return failures;
}

Test(ops, reference)
{
    cr_assert_eq(failures_of(hs_backend_ref(), 1), 0);
}

static void check_isa(const char *isa)
{
    const HsBackend *backend = NULL;
    const HsStatus status = hs_backend_cpu_for_isa(isa, &backend);
    if (status == HS_EUNSUPPORTED || status == HS_EINVAL) {
        cr_skip("%s", hs_error_message());
        return;
    }
    cr_assert_eq(status, HS_OK, "%s", hs_error_message());
    cr_assert_eq(failures_of(backend, THREADS), 0);
}

Test(ops, cpu_portable)
{
    check_isa("portable");
}

Test(ops, cpu_avx2)
{
    check_isa("avx2");
}

Test(ops, cpu_avx512)
{
    check_isa("avx512");
}

Test(ops, cpu_avx512bf16)
{
    check_isa("avx512bf16");
}

Test(ops, cpu_amx)
{
    check_isa("amx");
}

Test(ops, unknown_operation_is_named)
{
    HsDevice device;
    int failures = 0;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    cr_assert_eq(hs_selftest_run(&context, "matmull", false, stderr, &failures), HS_EINVAL);
    cr_assert_str_eq(hs_error_message(), "selftest: no operation is called 'matmull'; kernels/ops/ops.h lists them");
}
