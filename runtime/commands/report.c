/* SPDX-License-Identifier: MIT
 *
 * trainer report --run DIR: the page of a run, written again from its metrics (also while it is still training).
 */
#include <argp.h>
#include <stdio.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/pages/report.h"

static const struct argp_option options[] = {
    { "run", 'r', "DIR", 0, "a run's out_dir", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    const char **run = state->input;
    switch (key) {
    case 'r':
        *run = argument;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument: %s", argument);
        return 0;
    case ARGP_KEY_END:
        if (!*run)
            argp_error(state, "--run DIR is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_report = { options, parse, NULL, "Write a run's report.html from its metrics.",
                                     NULL,    NULL,  NULL };

HsStatus hs_command_report(int argc, char **argv)
{
    const char *run = NULL;
    HS_TRY(hs_arguments_parse(&hs_argp_report, argc, argv, &run));
    HS_TRY(hs_report_write(run));
    printf("%s/report.html\n", run);
    return HS_OK;
}
