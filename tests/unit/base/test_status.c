/* SPDX-License-Identifier: MIT
 *
 * Messages: recorded, prefixed, cut rather than overrun, one for each thread.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "kernels/base/status.h"

Test(status, message_is_empty_before_any_failure)
{
    cr_expect_str_empty(hs_error_message());
}

Test(status, fail_records_and_returns_the_code)
{
    cr_expect_eq(hs_fail(HS_EIO, "%s: cannot open (%d)", "a.txt", 2), HS_EIO);
    cr_expect_str_eq(hs_error_message(), "a.txt: cannot open (2)");
    cr_expect_eq(hs_error_prefix(HS_EIO, "loading %s", "weights"), HS_EIO);
    cr_expect_str_eq(hs_error_message(), "loading weights: a.txt: cannot open (2)");
}

Test(status, a_message_may_quote_the_one_before)
{
    hs_fail(HS_EIO, "inner");
    hs_fail(HS_EFORMAT, "outer (%s)", hs_error_message());
    cr_expect_str_eq(hs_error_message(), "outer (inner)");
}

Test(status, long_messages_are_cut)
{
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    hs_fail(HS_EINVAL, "%s", text);
    size_t length = strlen(hs_error_message());
    cr_expect(length > 500 && length < sizeof text);
    hs_error_prefix(HS_EINVAL, "where");
    cr_expect_eq(strncmp(hs_error_message(), "where: xxx", 10), 0);
    cr_expect_eq(strlen(hs_error_message()), length);
    hs_error_prefix(HS_EINVAL, "%s", text);
    cr_expect_eq(strlen(hs_error_message()), length);
}

static HsStatus first_of(HsStatus a, HsStatus b)
{
    HS_TRY(a);
    HS_TRY(b);
    return HS_OK;
}

static HsStatus with_cleanup(HsStatus a, int *cleaned)
{
    HsStatus status;
    HS_TRY_GOTO(status, a, cleanup);
    HS_TRY_GOTO(status, HS_EIO, cleanup);
cleanup:
    *cleaned += 1;
    return status;
}

Test(status, try_macros_return_the_first_failure)
{
    cr_expect_eq(first_of(HS_OK, HS_OK), HS_OK);
    cr_expect_eq(first_of(HS_ESHAPE, HS_EIO), HS_ESHAPE);
    cr_expect_eq(first_of(HS_OK, HS_EIO), HS_EIO);
    int cleaned = 0;
    cr_expect_eq(with_cleanup(HS_ENOMEM, &cleaned), HS_ENOMEM);
    cr_expect_eq(with_cleanup(HS_OK, &cleaned), HS_EIO);
    cr_expect_eq(cleaned, 2);
}

Test(status, names)
{
    cr_expect_str_eq(hs_status_name(HS_OK), "HS_OK");
    cr_expect_str_eq(hs_status_name(HS_EINTERRUPTED), "HS_EINTERRUPTED");
    cr_expect_str_eq(hs_status_name((HsStatus)99), "unknown status");
}

static void *fail_elsewhere(void *unused)
{
    hs_fail(HS_EIO, "other thread");
    return unused;
}

Test(status, each_thread_has_its_own_message)
{
    hs_fail(HS_EIO, "this thread");
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    cr_expect_str_eq(hs_error_message(), "this thread");
}
