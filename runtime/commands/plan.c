/* SPDX-License-Identifier: MIT
 *
 * trainer plan --config FILE: memory and time of a run, before anything is allocated.
 */
#include <argp.h>

#include "kernels/base/log.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/planner.h"

enum { OPTION_LAYERS = 1000, OPTION_FIT, OPTION_TABLE };

typedef struct Arguments {
    const char *config_path;
    HsPlannerOptions options;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the YAML file", 0 },
    { "layers", OPTION_LAYERS, NULL, 0, "a row for each block", 0 },
    { "device-memory", 'm', "SIZE", 0,
      "plan for a device of this size, such as 12GiB; with device auto or cuda for a GPU that is not here", 0 },
    { "fit", OPTION_FIT, NULL, 0,
      "search for the fastest micro-batch, recomputation and gradient format that fit; done by itself when the plan "
      "does not fit",
      0 },
    { "table", OPTION_TABLE, NULL, 0, "the largest models of this family for 8 to 80 GB, and how they train", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'c':
        arguments->config_path = argument;
        return 0;
    case 'm':
        arguments->options.device_bytes = (size_t)hs_argument_bytes(state, "--device-memory", argument);
        return 0;
    case OPTION_LAYERS:
        arguments->options.layers = true;
        return 0;
    case OPTION_FIT:
        arguments->options.fit = true;
        return 0;
    case OPTION_TABLE:
        arguments->options.table = true;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!arguments->config_path)
            argp_error(state, "--config FILE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_plan = { options,
                                   parse,
                                   "[section.key=value ...]",
                                   "Where the memory of FILE's run goes, what a step costs, and what would fit. "
                                   "Nothing is allocated.",
                                   NULL,
                                   NULL,
                                   NULL };

HsStatus hs_command_plan(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_plan, argc, argv, &arguments));
    HsConfig config;
    HS_TRY(hs_config_load(&config, arguments.config_path, arguments.overrides.count, arguments.overrides.items));
    HsStatus status = hs_planner_run(&config, &arguments.options, stdout);
    hs_config_deinit(&config);
    return status;
}
