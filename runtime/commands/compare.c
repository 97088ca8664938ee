/* SPDX-License-Identifier: MIT
 *
 * trainer compare --config FILE --strategies none,ewc,er,mer,joint --seeds 3: strategies side by side.
 */
#include <argp.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/compare.h"
#include "runtime/train/trainer.h"

typedef struct Arguments {
    HsCompareOptions options;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the YAML file; its tasks are the stream", 0 },
    { "strategies", 's', "LIST", 0,
      "comma separated, each NAME[+NAME][:section.key=value]...; default: none,ewc,er,mer,joint", 0 },
    { "seeds", 'n', "N", 0, "runs of each, with the configuration's seed, seed + 1, ...; default: 3", 0 },
    { "out", 'o', "DIR", 0, "where runs and page go; default: the configuration's out_dir with -compare behind it", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'c':
        arguments->options.config_path = argument;
        return 0;
    case 's':
        arguments->options.variants = argument;
        return 0;
    case 'n':
        arguments->options.seeds = hs_argument_integer(state, "--seeds", argument, 1, 1000);
        return 0;
    case 'o':
        arguments->options.out_dir = argument;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!arguments->options.config_path)
            argp_error(state, "--config FILE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_compare = { options,
                                      parse,
                                      "[section.key=value ...]",
                                      "Train the tasks of FILE with several strategies and seeds; write the table and "
                                      "the page. Run it again to go on where it stopped.",
                                      NULL,
                                      NULL,
                                      NULL };

HsStatus hs_command_compare(int argc, char **argv)
{
    Arguments arguments = { .options = { .variants = "none,ewc,er,mer,joint", .seeds = 3 } };
    HS_TRY(hs_arguments_parse(&hs_argp_compare, argc, argv, &arguments));
    arguments.options.override_count = arguments.overrides.count;
    arguments.options.overrides = arguments.overrides.items;
    hs_trainer_install_signals(true);
    return hs_compare(&arguments.options);
}
