/* SPDX-License-Identifier: MIT
 *
 * trainer bench --config FILE --modes fp32,bf16,+recompute: configurations side by side.
 */
#include <argp.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/bench.h"
#include "runtime/train/run.h"

typedef struct Arguments {
    HsBenchOptions options;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the YAML file; its first task is trained", 0 },
    { "modes", 'm', "LIST", 0, "comma separated, see below", 0 },
    { "steps", 'n', "N", 0,
      "optimizer steps of each mode; default: 100, or as many as the configuration's task has if fewer", 0 },
    { "tokens", 't', "N", 0, "training tokens of each mode, instead of steps", 0 },
    { "out", 'o', "DIR", 0, "where results go; default: the configuration's out_dir with -bench behind it", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    HsBenchOptions *bench = &arguments->options;
    switch (key) {
    case 'c':
        bench->config_path = argument;
        return 0;
    case 'm':
        bench->modes = argument;
        return 0;
    case 'n':
        bench->steps = hs_argument_integer(state, "--steps", argument, 1, 10000000);
        return 0;
    case 't':
        bench->tokens = hs_argument_integer(state, "--tokens", argument, 1, INT64_MAX);
        return 0;
    case 'o':
        bench->out_dir = argument;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!bench->config_path || !bench->modes)
            argp_error(state, "%s is missing", bench->config_path ? "--modes LIST" : "--config FILE");
        if (bench->steps > 0 && bench->tokens > 0)
            argp_error(state, "--steps and --tokens both say how long: give one");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The words come from their table.  NULL: nothing is shown, which is all that can be done without memory. */
static char *list_words(int key, const char *text, void *input)
{
    (void)input;
    return key == ARGP_KEY_HELP_POST_DOC ? hs_bench_modes_help() : (char *)(uintptr_t)text;
}

const struct argp hs_argp_bench = { options,
                                    parse,
                                    "[section.key=value ...]",
                                    "Train the same model from the same seed in each mode, taking turns; write the "
                                    "table, bench.json and bench.html.",
                                    NULL,
                                    list_words,
                                    NULL };

HsStatus hs_command_bench(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_bench, argc, argv, &arguments));
    arguments.options.override_count = arguments.overrides.count;
    arguments.options.overrides = arguments.overrides.items;
    hs_run_install_signals(true);
    return hs_bench(&arguments.options);
}
