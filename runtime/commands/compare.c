/* SPDX-License-Identifier: MIT
 *
 * trainer compare --config FILE --strategies none,ewc,er,mer,joint --seeds 3: strategies side by side;
 * trainer compare --config FILE --grid learning_rate=1e-3,3e-4: a search for the best values;
 * trainer compare --config FILE --front: strategies at several strengths, and which of them no other one makes needless.
 */
#include <argp.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/compare.h"
#include "runtime/study/halving.h"
#include "runtime/train/run.h"

enum { GRIDS_MOST = 16, SEEDS = 3, ETA_MOST = 100, DIVISOR_MOST = 1000000 };
enum { OPTION_ETA = 1000, OPTION_RUNGS, OPTION_FULL, OPTION_FRONT };

typedef struct Arguments {
    HsCompareOptions options;
    const char *grids[GRIDS_MOST];
    bool full;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the YAML file; its tasks are the stream", 0 },
    { "strategies", 's', "LIST", 0,
      "comma separated, each NAME[+NAME][:section.key=value]...; default: none,ewc,er,mer,joint, with --grid the "
      "configuration's own, with --front a table of strategies and strengths",
      0 },
    { "grid", 'g', "KEY=LIST", 0,
      "search: every combination of the comma separated values; may be given several times, for several keys; "
      "learning_rate=auto: values around the one that the rules of train.size give",
      0 },
    { "eta", OPTION_ETA, "N", 0, "--grid: one in N combinations continues with runs N times as long; default: 3", 0 },
    { "rungs", OPTION_RUNGS, "N", 0,
      "--grid: lengths of runs, the last one full; default: what leaves one combination, at most 3, and no runs of "
      "less "
      "than 40 steps a task",
      0 },
    { "full", OPTION_FULL, NULL, 0, "--grid: every combination at full length", 0 },
    { "front", OPTION_FRONT, NULL, 0,
      "learned against forgotten over strategies and strengths: which points no other one makes needless, and which "
      "one "
      "makes each of the others so; runs and hours are said first. --strategies and --grid name the points, every "
      "combination one at full length; without them a table of about 40 (with adapters: of strategy, rank, targets and "
      "learning rate)",
      0 },
    { "seeds", 'n', "N", 0,
      "runs of each, with the configuration's seed, seed + 1, ...; default: 3, with --grid and --front 1", 0 },
    { "jobs", 'j', "N", 0,
      "runs at a time; default: one a core as far as memory allows, each with its share of the cores; on a GPU 1", 0 },
    { "out", 'o', "DIR", 0, "where runs and page go; default: the configuration's out_dir with -compare behind it", 0 },
    { 0 },
};

/* Every run would have the grid's value, or the strategy's, whatever the command line says besides. */
static void refuse_fixed_axes(struct argp_state *state, const Arguments *arguments)
{
    for (int i = 0; i < arguments->overrides.count; i++) {
        const char *const word = arguments->overrides.items[i];
        const size_t key = strcspn(word, "=") + 1;
        for (int grid = 0; grid < arguments->options.grid_count; grid++)
            if (strncmp(arguments->grids[grid], word, key) == 0)
                argp_error(state, "--grid lists values of %.*s, and %s sets one: leave one out", (int)key - 1, word,
                           word);
        const bool table = arguments->options.front && arguments->options.grid_count == 0;
        if ((arguments->options.strategies || table) && strncmp(word, "continual.strategy=", key) == 0)
            argp_error(state, "%s lists strategies, and %s sets one: leave one out",
                       arguments->options.strategies ? "--strategies" : "--front's table", word);
    }
}

static void finish(struct argp_state *state, Arguments *arguments)
{
    HsCompareOptions *own = &arguments->options;
    if (!own->config_path)
        argp_error(state, "--config FILE is missing");
    refuse_fixed_axes(state, arguments);
    const bool search = own->grid_count > 0 && !own->front;
    if (own->front && (own->eta > 0 || own->rungs > 0 || arguments->full))
        argp_error(state, "--front trains every point at full length: leave out --eta, --rungs and --full");
    if (!search && (own->eta > 0 || own->rungs > 0 || arguments->full))
        argp_error(state, "--eta, --rungs and --full are for --grid: add that, or leave them out");
    if (arguments->full && (own->eta > 0 || own->rungs > 0))
        argp_error(state, "--full leaves no rungs: leave out --eta and --rungs");
    own->eta = own->eta > 0 ? own->eta : HS_HALVING_ETA;
    own->rungs = arguments->full ? 1 : own->rungs;
    if (hs_halving_divisor(own->eta, own->rungs, 0) > DIVISOR_MOST)
        argp_error(state, "--eta %lld and --rungs %d make the first runs 1/%lld of the full length: lower one of them",
                   (long long)own->eta, own->rungs, (long long)hs_halving_divisor(own->eta, own->rungs, 0));
    own->seeds = own->seeds > 0 ? own->seeds : search || own->front ? 1 : SEEDS;
    if (!search && !own->front && !own->strategies)
        own->strategies = "none,ewc,er,mer,joint";
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    HsCompareOptions *own = &arguments->options;
    switch (key) {
    case 'c':
        own->config_path = argument;
        return 0;
    case 's':
        own->strategies = argument;
        return 0;
    case 'g':
        if (own->grid_count == GRIDS_MOST)
            argp_error(state, "--grid more than %d times", GRIDS_MOST);
        arguments->grids[own->grid_count++] = argument;
        return 0;
    case OPTION_ETA:
        own->eta = hs_argument_integer(state, "--eta", argument, 2, ETA_MOST);
        return 0;
    case OPTION_RUNGS:
        own->rungs = (int)hs_argument_integer(state, "--rungs", argument, 1, HS_HALVING_RUNGS);
        return 0;
    case OPTION_FULL:
        arguments->full = true;
        return 0;
    case OPTION_FRONT:
        own->front = true;
        return 0;
    case 'n':
        own->seeds = hs_argument_integer(state, "--seeds", argument, 1, 1000);
        return 0;
    case 'j':
        own->jobs = (int)hs_argument_integer(state, "--jobs", argument, 1, 1024);
        return 0;
    case 'o':
        own->out_dir = argument;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        finish(state, arguments);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_compare = {
    options,
    parse,
    "[section.key=value ...]",
    "Train the tasks of FILE with several strategies and seeds; write the table and the page. With --grid, search for "
    "the best values of keys: every combination, short runs first and the promising ones longer (successive halving), "
    "judged by the validation loss, of several tasks by the mean over all at the end (retained loss). With --front, "
    "draw "
    "learned against forgotten over strategies and strengths. Run it again to continue where it stopped.",
    NULL,
    NULL,
    NULL
};

HsStatus hs_command_compare(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_compare, argc, argv, &arguments));
    arguments.options.grids = arguments.grids;
    arguments.options.override_count = arguments.overrides.count;
    arguments.options.overrides = arguments.overrides.items;
    hs_run_install_signals(true);
    return hs_compare(&arguments.options);
}
