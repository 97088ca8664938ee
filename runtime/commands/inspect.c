/* SPDX-License-Identifier: MIT
 *
 * trainer inspect --checkpoint DIR [--html FILE]: what a checkpoint holds.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/pages/inspect.h"

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

const struct argp hs_argp_inspect = { options, parse, NULL, "What a checkpoint holds.", NULL, NULL, NULL };

HsStatus hs_command_inspect(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_inspect, argc, argv, &arguments));
    char *path;
    HS_TRY(hs_argument_checkpoint_path(&arguments.checkpoint, &path));
    HsStatus status = hs_inspect_checkpoint_page(path, stdout, arguments.html);
    free(path);
    return status;
}
