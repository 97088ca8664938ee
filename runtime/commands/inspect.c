/* SPDX-License-Identifier: MIT
 *
 * trainer inspect --checkpoint DIR [--html FILE], and trainer reference.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tuning.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/config.h"
#include "runtime/inspect.h"

typedef struct Arguments {
    HsCheckpointArgument checkpoint;
    const char *html;
} Arguments;

enum { OPTION_HTML = 256 }; /* no short form */

static const struct argp_option options[] = {
    HS_CHECKPOINT_OPTIONS,
    { "html", OPTION_HTML, "FILE", 0, "write the same as a page with charts of the exponents", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (hs_argument_checkpoint(state, key, argument, &arguments->checkpoint))
        return 0;
    if (key != OPTION_HTML)
        return ARGP_ERR_UNKNOWN;
    arguments->html = argument;
    return 0;
}

HsStatus hs_command_inspect(int argc, char **argv)
{
    static const struct argp argp = { options, parse, NULL, "What a checkpoint holds.", NULL, NULL, NULL };
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    char *path;
    HS_TRY(hs_argument_checkpoint_path(&arguments.checkpoint, &path));
    HsStatus status = hs_inspect_checkpoint_page(path, stdout, arguments.html);
    free(path);
    return status;
}

HsStatus hs_command_reference(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--predicted") == 0)
        return hs_predicted_write(stdout);
    if (argc > 1)
        return hs_fail(HS_ECONFIG, "reference takes --predicted or nothing (got %s)", argv[1]);
    return hs_config_write_reference(stdout);
}
