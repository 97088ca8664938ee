/* SPDX-License-Identifier: MIT
 *
 * The emulator's part (make emu), for tests that look at its devices themselves.
 */
#ifndef HS_TESTS_SUPPORT_EMULATOR_H
#define HS_TESTS_SUPPORT_EMULATOR_H

#include <criterion/criterion.h>

#include "kernels/parts/part.h"

static inline const HsBackendPart *emulator(void)
{
    const HsBackendPart *part = NULL;
    cr_assert_eq(hs_part_open("emu", &part), HS_OK, "%s", hs_error_message());
    return part;
}

#endif
