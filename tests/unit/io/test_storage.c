/* SPDX-License-Identifier: MIT
 *
 * Folders that are removed, and those that cannot be.
 */
#include <criterion/criterion.h>

#include "tests/support/scratch.h"

Test(storage, a_folder_goes_with_all_that_is_in_it)
{
    const Scratch scratch = scratch_make();
    const char *file = scratch_path(&scratch, "file"), *link = scratch_path(&scratch, "link");
    scratch_write(file, "x", 1);
    cr_assert_eq(symlink("/etc", link), 0);
    scratch_remove(&scratch);
    cr_expect(access(scratch.folder, F_OK) != 0 && access("/etc", F_OK) == 0);
    cr_expect_eq(hs_storage_remove(scratch.folder), HS_OK, "what is absent already is no error");
}

/* The kernel lets no user remove what is in /proc. */
Test(storage, what_stays_is_an_error)
{
    cr_expect_eq(hs_storage_remove("/proc/self/fdinfo"), HS_EIO);
    cr_expect_not_null(strstr(hs_error_message(), "cannot remove /proc/self/fdinfo: "), "%s", hs_error_message());
}
