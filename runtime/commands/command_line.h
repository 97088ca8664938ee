/* SPDX-License-Identifier: MIT
 *
 * What is wrong with a command line as a whole.
 */
#ifndef HS_RUNTIME_COMMANDS_COMMAND_LINE_H
#define HS_RUNTIME_COMMANDS_COMMAND_LINE_H

#include <argp.h>

#include "kernels/base/status.h"

/* Looks at every word behind argv[0], and replaces those that name paths beginning with ~.  errors: HS_ECONFIG naming the
 * option that is unknown, given twice, or has no folder to write into; HS_ENOMEM */
HsStatus hs_command_line_check(const struct argp *argp, int argc, char **argv);

#endif
