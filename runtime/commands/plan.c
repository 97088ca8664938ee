/* SPDX-License-Identifier: MIT
 *
 * trainer plan --config FILE: memory and time of a run, before anything is allocated, and what a given time would train.
 */
#include <argp.h>
#include <stdlib.h>

#include "kernels/base/log.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/study/planner.h"

enum {
    OPTION_LAYERS = 1000,
    OPTION_FIT,
    OPTION_TABLE,
    OPTION_LADDER,
    OPTION_CARD,
    OPTION_JSON,
    OPTION_SCALING,
    OPTION_STEP,
    OPTION_LAUNCHES,
    OPTION_NO_TRAINING
};

typedef struct Arguments {
    const char *config_path;
    HsPlannerOptions options;
    bool untrained; /* without the hour, the night and the week */
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
    { "card", OPTION_CARD, "NAME", 0,
      "plan for this GPU, which need not be here: its memory, and times by its datasheet; --help ends with the list",
      0 },
    { "table", OPTION_TABLE, NULL, 0,
      "the largest models of this family for 8 to 80 GB, how they train, and what of this one fits there", 0 },
    { "ladder", OPTION_LADDER, NULL, 0,
      "what each memory technique saves: fp32, fp16, bf16, recomputation, attention without T x T scores, an 8-bit "
      "optimizer, LoRA, QLoRA, each on top of those before it",
      0 },
    { "scaling", OPTION_SCALING, NULL, 0,
      "with --card: how fast 1 to 64 of them would be, by a model of products, memory and links (see "
      "runtime/study/planner_processes.c)",
      0 },
    { "step", OPTION_STEP, NULL, 0,
      "with --card: the kernel launches of a step, its bytes and predicted time by part and operation (see "
      "runtime/study/planner_step.c)",
      0 },
    { "launches", OPTION_LAUNCHES, NULL, 0, "with --card: the same, every launch in its order", 0 },
    { "no-training", OPTION_NO_TRAINING, NULL, 0,
      "leave out what an hour, a night and a week would train, for whose rate two models are trained for about a "
      "second",
      0 },
    { "json", OPTION_JSON, NULL, 0, "with --ladder: one JSON object, with the keys that make each rung", 0 },
    { 0 },
};

/* The plan itself, and no table in its place. */
static bool is_plan(const HsPlannerOptions *asked)
{
    return !asked->ladder && !asked->table && !asked->scaling && !asked->step;
}

/* Options that would leave each other without effect. */
static void check_options(struct argp_state *state, HsPlannerOptions *asked)
{
    if (asked->ladder && (asked->table || asked->layers || asked->fit))
        argp_error(state, "--ladder and --%s are two tables: ask for one at a time",
                   asked->table    ? "table"
                   : asked->layers ? "layers"
                                   : "fit");
    if (asked->scaling && (!asked->card || asked->ladder || asked->table || asked->layers || asked->fit))
        argp_error(state, asked->card ? "--scaling is a separate table: ask for one at a time"
                                      : "--scaling needs a card: add --card NAME");
    if (asked->step && (!asked->card || asked->scaling || asked->ladder || asked->table || asked->layers || asked->fit))
        argp_error(state, asked->card ? "--step and --launches are separate tables: ask for one at a time"
                                      : "--step and --launches need a card: add --card NAME");
    if (asked->json && !asked->ladder)
        argp_error(state, "--json is the ladder's: add --ladder");
    if (asked->card && asked->device_bytes > 0)
        argp_error(state, "--card %s has %d GB of memory: leave --device-memory out", asked->card->name,
                   asked->card->gigabytes);
    if (asked->card)
        asked->device_bytes = (size_t)asked->card->gigabytes << 30;
}

/* The list of cards at the end of --help. */
static char *filter_help(int key, const char *text, void *input)
{
    char *list = key == ARGP_KEY_HELP_POST_DOC ? hs_card_list() : NULL, *line = NULL;
    (void)input;
    if (!list)
        return (char *)(uintptr_t)text;
    const int length = asprintf(&line, "The cards: %s.", list);
    free(list);
    return length < 0 ? (char *)(uintptr_t)text : line;
}

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
    case OPTION_LADDER:
        arguments->options.ladder = true;
        return 0;
    case OPTION_SCALING:
        arguments->options.scaling = true;
        return 0;
    case OPTION_STEP:
        arguments->options.step = true;
        return 0;
    case OPTION_LAUNCHES:
        arguments->options.step = arguments->options.launches = true;
        return 0;
    case OPTION_NO_TRAINING:
        arguments->untrained = true;
        return 0;
    case OPTION_JSON:
        arguments->options.json = true;
        return 0;
    case OPTION_CARD:
        if (hs_card_find(argument, &arguments->options.card) != HS_OK)
            argp_error(state, "%s", hs_error_message());
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!arguments->config_path)
            argp_error(state, "--config FILE is missing");
        check_options(state, &arguments->options);
        if (arguments->untrained && !is_plan(&arguments->options))
            argp_error(state, "--no-training is for the plan itself, and no table trains anything: leave it out");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_plan = { options,
                                   parse,
                                   "[section.key=value ...]",
                                   "Where the memory of FILE's run goes, what a step costs, and what would fit, on "
                                   "paper; then, by a short training, what an hour, a night and a week would train.",
                                   NULL,
                                   filter_help,
                                   NULL };

HsStatus hs_command_plan(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_plan, argc, argv, &arguments));
    HsConfig config;
    HS_TRY(hs_config_load(&config, arguments.config_path, arguments.overrides.count, arguments.overrides.items));
    arguments.options.config_path = arguments.config_path;
    arguments.options.override_count = arguments.overrides.count;
    arguments.options.overrides = arguments.overrides.items;
    HsPlannedModel about;
    HsStatus status = hs_planner_run(&config, &arguments.options, stdout, &about);
    if (status == HS_OK && about.trains_here && !arguments.untrained && is_plan(&arguments.options))
        status = hs_planner_print_hours(&config, &about, stdout);
    hs_config_deinit(&config);
    return status;
}
