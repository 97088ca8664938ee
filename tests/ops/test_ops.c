/* SPDX-License-Identifier: MIT
 *
 * Every case of every operation: the reference in its declared dtypes against itself in f64, and the cpu backend of
 * every instruction set that this machine has.  The cases and their tolerances are runtime/selftest's.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/cpu.h"
#include "runtime/selftest/selftest.h"
#include "tests/support/tier.h"

/* An odd number of threads, more than some cases have rows: uneven shares of work, and idle workers. */
enum { THREADS = 3 };

enum { MOST_ISAS = 8 };

/* The reference, then the instruction sets that there are.  Returns how many; names: theirs. */
static int make_contexts(HsDevice *device, HsContext contexts[1 + MOST_ISAS], const char *names[1 + MOST_ISAS])
{
    int count = 0;
    names[count] = "ref";
    contexts[count++] = (HsContext){ .backend = hs_backend_ref(), .device = device, .threads = 1 };
    const char *isa;
    for (int i = 0; (isa = hs_backend_cpu_isa_name(i)); i++) {
        const HsBackend *backend = NULL;
        const HsStatus status = hs_backend_cpu_for_isa(isa, &backend);
        if (status == HS_EUNSUPPORTED) {
            fprintf(stderr, "not tested: %s\n", hs_error_message());
            continue;
        }
        cr_assert_eq(status, HS_OK, "%s", hs_error_message());
        cr_assert_lt(count, 1 + MOST_ISAS);
        names[count] = isa;
        contexts[count++] = (HsContext){ .backend = backend, .device = device, .threads = THREADS };
    }
    return count;
}

static void expect_no_failures(const HsOpReport *report, const char *name)
{
    char described[HS_COMPLAINT_BYTES];
    cr_expect_gt(report->cases, 0);
    for (int i = 0; i < report->failures && i < HS_COMPLAINTS_KEPT; i++)
        cr_expect_fail("%s on %s: %s: %s", report->name, name,
                       hs_case_describe(report->complaints[i].config, described, sizeof described),
                       report->complaints[i].text);
    cr_expect_eq(report->failures, 0, "%s on %s: %d of %d cases", report->name, name, report->failures, report->cases);
}

Test(ops, every_case_on_every_backend)
{
    HsDevice device;
    HsContext contexts[1 + MOST_ISAS];
    HsOpReport reports[1 + MOST_ISAS];
    const char *names[1 + MOST_ISAS];
    cr_assert_eq(hs_device_host_init(&device), HS_OK, "%s", hs_error_message());
    const int count = make_contexts(&device, contexts, names);
    for (int op = 0; op < hs_selftest_count(); op++) {
        cr_assert_eq(hs_selftest_check_all(contexts, count, op, (HsCaseChoice){ .pairs = !is_nightly() }, reports),
                     HS_OK, "%s", hs_error_message());
        for (int i = 0; i < count; i++)
            expect_no_failures(&reports[i], names[i]);
    }
}

Test(ops, unknown_operation_is_named)
{
    HsDevice device;
    int failures = 0;
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    cr_assert_eq(hs_selftest_run(&context, &(HsSelftestOptions){ .op = "matmull" }, stderr, &failures), HS_EINVAL);
    cr_assert_str_eq(hs_error_message(), "selftest: no operation is called 'matmull'; kernels/ops/ops.h lists them");
}

Test(ops, cases_by_their_description)
{
    HsDevice device;
    HsContext context = { .backend = hs_backend_ref(), .device = &device, .threads = 1 };
    int failures = 0;
    char *said = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&said, &bytes);
    cr_assert_eq(hs_device_host_init(&device), HS_OK);
    cr_assert_eq(hs_selftest_run(&context, &(HsSelftestOptions){ .match = "e2m1 x" }, out, &failures), HS_OK, "%s",
                 hs_error_message());
    fclose(out);
    cr_expect(strstr(said, "quantize") && strstr(said, "matmul") && !strstr(said, "adamw"), "%s", said);
    free(said);
    cr_expect_eq(hs_selftest_run(&context, &(HsSelftestOptions){ .match = "no such" }, stderr, &failures), HS_EINVAL);
    cr_expect(strstr(hs_error_message(), "no case has `no such` in its description"), "%s", hs_error_message());
}
