/* SPDX-License-Identifier: MIT
 *
 * trainer report --run DIR: the page of a run, written again from its metrics (also while it is still training), or
 * served to a browser, which follows the run.
 */
#include <argp.h>
#include <stdio.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/commands/serve.h"
#include "runtime/pages/report.h"

enum { SERVE = 256, PORT };

static const struct argp_option options[] = {
    { "run", 'r', "DIR", 0, "a run's out_dir", 0 },
    { "serve", SERVE, NULL, 0, "show the page at http://127.0.0.1, to this machine alone, and follow the run", 0 },
    { "port", PORT, "PORT", 0, "with --serve: 0 to 65535; 0: any free one (8765)", 0 },
    { 0 },
};

typedef struct Request {
    const char *run;
    bool serves, has_port;
    int64_t port;
} Request;

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Request *request = state->input;
    switch (key) {
    case 'r':
        request->run = argument;
        return 0;
    case SERVE:
        request->serves = true;
        return 0;
    case PORT:
        request->has_port = true;
        request->port = hs_argument_integer(state, "--port", argument, 0, 65535);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument: %s", argument);
        return 0;
    case ARGP_KEY_END:
        if (!request->run)
            argp_error(state, "--run DIR is missing");
        if (request->has_port && !request->serves)
            argp_error(state, "--port says where --serve shows the page: add --serve, or leave it out");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_report = { options, parse, NULL, "Write a run's report.html from its metrics, or show it.",
                                     NULL,    NULL,  NULL };

HsStatus hs_command_report(int argc, char **argv)
{
    Request request = { .port = 8765 };
    HS_TRY(hs_arguments_parse(&hs_argp_report, argc, argv, &request));
    if (request.serves)
        return hs_report_serve(request.run, (uint16_t)request.port);
    HS_TRY(hs_report_write(request.run));
    printf("%s/report.html\n", request.run);
    return HS_OK;
}
