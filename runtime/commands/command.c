/* SPDX-License-Identifier: MIT
 *
 * The table of commands as data.
 */
#include "runtime/commands/command.h"

#define COMMAND_ROW(name, usage, doc) { #name, usage, doc, hs_command_##name, &hs_argp_##name },
const HsCommand hs_commands[] = { HS_COMMANDS(COMMAND_ROW) };
const int hs_command_count = sizeof hs_commands / sizeof *hs_commands;
