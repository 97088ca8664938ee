/* SPDX-License-Identifier: MIT
 *
 * trainer inspect --checkpoint DIR [--html FILE], and trainer reference.
 */
#include <argp.h>
#include <stdio.h>
#include <string.h>

#include "kernels/tuning.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/config.h"
#include "runtime/inspect.h"

typedef struct Arguments {
    const char *checkpoint, *html;
} Arguments;

enum { OPTION_HTML = 256 }; /* no short form */

static const struct argp_option options[] = {
    { "checkpoint", 'd', "DIR", 0, "a checkpoint's folder, or a run's (its latest checkpoint)", 0 },
    { "html", OPTION_HTML, "FILE", 0, "write the same as a page with charts of the exponents", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (key == 'd' || key == OPTION_HTML) {
        *(key == 'd' ? &arguments->checkpoint : &arguments->html) = argument;
        return 0;
    }
    if (key == ARGP_KEY_END && !arguments->checkpoint)
        argp_error(state, "--checkpoint DIR is missing");
    return key == ARGP_KEY_END ? 0 : ARGP_ERR_UNKNOWN;
}

HsStatus hs_command_inspect(int argc, char **argv)
{
    static const struct argp argp = { options, parse, NULL, "What a checkpoint holds.", NULL, NULL, NULL };
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    return hs_inspect_checkpoint_page(arguments.checkpoint, stdout, arguments.html);
}

HsStatus hs_command_reference(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--predicted") == 0)
        return hs_predicted_write(stdout);
    if (argc > 1)
        return hs_fail(HS_ECONFIG, "reference takes --predicted or nothing (got %s)", argv[1]);
    return hs_config_write_reference(stdout);
}
