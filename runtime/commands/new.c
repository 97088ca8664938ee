/* SPDX-License-Identifier: MIT
 *
 * trainer new --text FOLDER --hours H: a configuration for this text, this time and this machine.
 */
#include <argp.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/proposal.h"

typedef struct Arguments {
    HsProposalRequest request;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "text", 't', "PATH", 0,
      "a file or folder of text, or a pattern; several times: one text after another (tasks), in this order", 0 },
    { "hours", 'H', "H", 0, "how long the run may take, from 0.005 to 8760", 0 },
    { "checkpoint", 'd', "DIR", 0,
      "train weights that exist: a Hugging Face folder; all of them or an adapter, by what the memory has room for",
      0 },
    { "output", 'o', "FILE", 0, "the configuration, a file that is not there yet (the first text's name, .yaml)", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    HsProposalRequest *request = &arguments->request;
    switch (key) {
    case 't':
        if (request->text_count == HS_PROPOSAL_TEXTS)
            argp_error(state, "more than %d texts", HS_PROPOSAL_TEXTS);
        request->texts[request->text_count++] = argument;
        return 0;
    case 'H':
        request->hours = hs_argument_real(state, "--hours", argument, HS_PROPOSAL_LEAST_HOURS, HS_PROPOSAL_MOST_HOURS);
        return 0;
    case 'd':
        request->checkpoint = argument;
        return 0;
    case 'o':
        request->output = argument;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (request->text_count == 0)
            argp_error(state, "--text PATH is missing");
        if (request->hours == 0)
            argp_error(state, "--hours H is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_new = {
    options,
    parse,
    "[section.key=value ...]",
    "Look at a text and at this machine, for about a minute, and write a configuration "
    "that fills the time: each value with its reason. The second line that is printed runs "
    "it. Keys that are given count for the measurement and for that line.",
    NULL,
    NULL,
    NULL
};

HsStatus hs_command_new(int argc, char **argv)
{
    static Arguments arguments; /* large */
    arguments = (Arguments){ 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_new, argc, argv, &arguments));
    arguments.request.override_count = arguments.overrides.count;
    arguments.request.overrides = arguments.overrides.items;
    return hs_propose(&arguments.request, stdout);
}
