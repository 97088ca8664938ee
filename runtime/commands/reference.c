/* SPDX-License-Identifier: MIT
 *
 * trainer reference: what is generated from this program's tables.
 */
#include <argp.h>

#include "kernels/parts/part.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/config/config.h"

enum { OPTION_PREDICTED = 0x100, OPTION_MAN, OPTION_COMPLETION };

typedef struct Arguments {
    int what; /* an option's key; 0: the configuration's keys */
    const char *shell;
} Arguments;

static const struct argp_option options[] = {
    { "predicted", OPTION_PREDICTED, NULL, 0,
      "the GPU kernels' predicted times; the emulator has their model: make emu", 0 },
    { "man", OPTION_MAN, NULL, 0, "the manual page", 0 },
    { "completion", OPTION_COMPLETION, "bash|zsh|fish", 0, "what makes this shell complete the trainer's command lines",
      0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case OPTION_PREDICTED:
    case OPTION_MAN:
    case OPTION_COMPLETION:
        if (arguments->what != 0 && arguments->what != key)
            argp_error(state, "--predicted, --man and --completion each print one thing: give one");
        arguments->what = key;
        arguments->shell = argument;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument: %s", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static HsStatus write_predictions(void)
{
    const HsBackendPart *part;
    HS_TRY(hs_part_open("emu", &part));
    return part->write_predictions(stdout);
}

const struct argp hs_argp_reference = {
    options, parse, NULL, "The configuration's keys as Markdown (configs/REFERENCE.md), or what an option names.",
    NULL,    NULL,  NULL
};

HsStatus hs_command_reference(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_reference, argc, argv, &arguments));
    switch (arguments.what) {
    case OPTION_PREDICTED:
        return write_predictions();
    case OPTION_MAN:
        return hs_manual_write(stdout);
    case OPTION_COMPLETION:
        return hs_completion_write(arguments.shell, stdout);
    default:
        return hs_config_write_reference(stdout);
    }
}
