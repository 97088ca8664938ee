/* SPDX-License-Identifier: MIT
 *
 * What the static analyzer is given (make analyze, which includes this before every file): these functions give back
 * the code that they are given, which is never HS_OK.  It looks into no function of another file.
 */
#ifndef HS_TESTS_SUPPORT_ANALYZE_H
#define HS_TESTS_SUPPORT_ANALYZE_H

#include "kernels/base/status.h"

#define hs_fail(code, ...)         ((hs_fail)(code, __VA_ARGS__), (HsStatus)(code))
#define hs_error_prefix(code, ...) ((hs_error_prefix)(code, __VA_ARGS__), (HsStatus)(code))

#endif
