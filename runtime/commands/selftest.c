/* SPDX-License-Identifier: MIT
 *
 * trainer selftest --device cpu|cuda|emu|ref: every kernel against the reference.
 * trainer selftest --tune FILE: which of a GPU's kernels suits each product, measured.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/engine/engine.h"
#include "runtime/io/files.h"
#include "runtime/selftest/selftest.h"
#include "runtime/selftest/tune.h"
#include "runtime/study/planner.h"

enum {
    OPTION_NO_SPEED = 1000,
    OPTION_CUBLASLT,
    OPTION_TUNE,
    OPTION_FORCE_TILE,
    OPTION_SLICES,
    OPTION_LIST,
    OPTION_MATCH,
    OPTION_HASHES,
    OPTION_PAIRS
};

typedef struct Arguments {
    const char *device, *op, *match, *tune, *config_path; /* device NULL: not said */
    HsForcedKernels forced[HS_MOST_FORCED];               /* of products */
    int forced_count;
    int64_t threads, slices;
    bool with_speed, cublaslt, list, pairs, hashes;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "device", 'd', "auto|cpu|cuda|emu|ref", 0, "one of these, or cuda:N (cpu)", 0 },
    { "op", 'o', "NAME", 0, "this operation only", 0 },
    { "match", OPTION_MATCH, "TEXT", 0, "only cases with TEXT in their description, as failures print it", 0 },
    { "pairs", OPTION_PAIRS, NULL, 0,
      "a pairwise covering of the cases: few of them, in which any two dtypes, sizes or options that occur together in "
      "some case still do",
      0 },
    { "hashes", OPTION_HASHES, NULL, 0,
      "print a hash of what each operation wrote: two builds or machines with the same have the same bits", 0 },
    { "list", OPTION_LIST, NULL, 0, "print the operations' names and test nothing", 0 },
    { "threads", 't', "N", 0, "worker threads; 0: one a core (0)", 0 },
    { "cublaslt", OPTION_CUBLASLT, NULL, 0, "matrix products by cuBLASLt (cuda)", 0 },
    { "force-tile", OPTION_FORCE_TILE, "NAME[,NAME ...][:SLICES]", 0,
      "of --op matmul: each product by the first of these kernels that can serve it (wgmma-256x256, mma-128x128, ...; "
      "a wrong name lists them); said several times: by each in turn, for the reference's time once; cuda, emu",
      0 },
    { "slices", OPTION_SLICES, "N", 0,
      "of --op matmul: k in N slices where it is long enough and --force-tile says no number; cuda, emu", 0 },
    { "no-speed", OPTION_NO_SPEED, NULL, 0, "check errors only; so it is on emu", 0 },
    { "tune", OPTION_TUNE, "FILE", 0,
      "measure which kernel suits each matrix product of training on this GPU, and write the table FILE for "
      "kernels.tuning; --device cuda (the default here) or emu",
      1 },
    { "config", 'c', "FILE", 0, "of --tune: the products of this configuration instead of GPT-2 124M's and Llama 1B's",
      1 },
    { 0 },
};

/* NAME[,NAME ...][:SLICES] */
static void parse_forced(struct argp_state *state, Arguments *arguments, char *text)
{
    if (arguments->forced_count == HS_MOST_FORCED)
        argp_error(state, "--force-tile can be said %d times at most", HS_MOST_FORCED);
    HsForcedKernels *const forced = &arguments->forced[arguments->forced_count++];
    char *const colon = strchr(text, ':');
    if (colon) {
        *colon = '\0';
        forced->slices = (int)hs_argument_integer(state, "--force-tile", colon + 1, 1, HS_TUNING_MOST_SLICES);
    }
    forced->kernels = text;
}

/* --slices serves what --force-tile leaves open, or alone. */
static void take_slices(Arguments *arguments)
{
    if (arguments->slices && arguments->forced_count == 0)
        arguments->forced_count = 1;
    for (int i = 0; i < arguments->forced_count; i++)
        if (arguments->forced[i].slices == 0)
            arguments->forced[i].slices = (int)arguments->slices;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'd':
        arguments->device = argument;
        return 0;
    case 'o':
        arguments->op = argument;
        return 0;
    case OPTION_MATCH:
        arguments->match = argument;
        return 0;
    case OPTION_HASHES:
        arguments->hashes = true;
        return 0;
    case OPTION_PAIRS:
        arguments->pairs = true;
        return 0;
    case 't':
        arguments->threads = hs_argument_integer(state, "--threads", argument, 0, 1024);
        return 0;
    case OPTION_CUBLASLT:
        arguments->cublaslt = true;
        return 0;
    case OPTION_FORCE_TILE:
        parse_forced(state, arguments, argument);
        return 0;
    case OPTION_SLICES:
        arguments->slices = hs_argument_integer(state, "--slices", argument, 1, HS_TUNING_MOST_SLICES);
        return 0;
    case OPTION_LIST:
        arguments->list = true;
        return 0;
    case OPTION_NO_SPEED:
        arguments->with_speed = false;
        return 0;
    case OPTION_TUNE:
        arguments->tune = argument;
        return 0;
    case 'c':
        arguments->config_path = argument;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (arguments->config_path && !arguments->tune)
            argp_error(state, "--config is for --tune FILE: add that, or leave --config out");
        take_slices(arguments);
        if (arguments->forced_count > 0 && (!arguments->op || strcmp(arguments->op, "matmul") != 0))
            argp_error(state, "--force-tile and --slices are for --op matmul: add that");
        if (arguments->overrides.count > 0 && !arguments->config_path)
            argp_error(state, "%s changes a configuration: --config FILE is missing", arguments->overrides.items[0]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The configuration's products on its device, or on the one of the command line. */
static HsStatus tune_model(const Arguments *arguments, HsTuneList *list)
{
    char device[128];
    HsOverrides overrides = arguments->overrides;
    const char *const own[] = { "kernels.tuning=\"\"", "kernels.matmul=native", device };
    snprintf(device, sizeof device, "device=%.100s", arguments->device ? arguments->device : "");
    for (int i = 0; i < (arguments->device ? 3 : 2) && overrides.count < HS_MAX_OVERRIDES; i++)
        overrides.items[overrides.count++] = own[i];
    HsConfig config;
    HS_TRY(hs_config_load(&config, arguments->config_path, overrides.count, overrides.items));
    const HsPlannerOptions here = { 0 };
    HsRun run;
    HsStatus status = hs_planner_open(&config, &here, &run.training);
    if (status == HS_OK)
        status = hs_tune_add_model(list, &run.training);
    if (status == HS_OK)
        printf("device: %s\n", run.training.engine.why);
    if (status == HS_OK)
        status = hs_tune_run(&run.training.engine, list, arguments->tune, stdout);
    hs_run_destroy(&run);
    hs_config_deinit(&config);
    return status;
}

static HsStatus tune_defaults(const Arguments *arguments, HsTuneList *list)
{
    HsEngine engine;
    const HsEngineOptions chosen = { .device = arguments->device ? arguments->device : "cuda" };
    HS_TRY(hs_engine_init(&engine, &chosen));
    printf("device: %s\n", engine.why);
    hs_tune_add_defaults(list);
    HsStatus status = HS_OK;
    if (engine.emulated)
        status = hs_fail(HS_ECONFIG, "emulated products of this size take days: name a tiny model with --config FILE");
    if (status == HS_OK)
        status = hs_tune_run(&engine, list, arguments->tune, stdout);
    hs_engine_deinit(&engine);
    return status;
}

static HsStatus tune(const Arguments *arguments)
{
    HS_TRY(hs_check_output(arguments->tune)); /* measuring takes minutes */
    if (arguments->config_path && hs_same_file(arguments->tune, arguments->config_path))
        return hs_fail(HS_ECONFIG, "--tune %s is the configuration: write to another file", arguments->tune);
    HsTuneList *list = calloc(1, sizeof *list);
    if (!list)
        return hs_fail(HS_ENOMEM, "no memory for a list of products");
    const HsStatus status = arguments->config_path ? tune_model(arguments, list) : tune_defaults(arguments, list);
    free(list);
    return status;
}

static HsStatus check_forced(const Arguments *arguments, const HsEngine *engine)
{
    if (arguments->forced_count > 0 && (!engine->tuner || arguments->cublaslt))
        return hs_fail(HS_ECONFIG,
                       "--force-tile and --slices choose among a GPU's kernels, and this is %s: say --device "
                       "cuda or emu%s",
                       engine->why, arguments->cublaslt ? ", without --cublaslt" : "");
    return HS_OK;
}

static HsStatus test(const Arguments *arguments)
{
    HsEngine engine;
    const HsEngineOptions chosen = { .device = arguments->device ? arguments->device : "cpu",
                                     .threads = arguments->threads,
                                     .cublaslt = arguments->cublaslt };
    HS_TRY(hs_engine_init(&engine, &chosen));
    printf("device: %s\n", engine.why);
    int failures = 0;
    const HsSelftestOptions wanted = { .op = arguments->op,
                                       .pairs = arguments->pairs,
                                       .hashes = arguments->hashes,
                                       .match = arguments->match,
                                       .forced = arguments->forced,
                                       .forced_count = arguments->forced_count,
                                       .tuner = engine.tuner,
                                       .with_speed = arguments->with_speed && !engine.emulated };
    HsStatus status = check_forced(arguments, &engine);
    if (status == HS_OK)
        status = hs_selftest_run(&engine.context, &wanted, stdout, &failures);
    hs_engine_deinit(&engine);
    if (status == HS_OK && failures > 0)
        status = hs_fail(HS_ENUMERIC, "%d case%s outside tolerance", failures, failures == 1 ? "" : "s");
    return status;
}

static HsStatus print_names(void)
{
    for (int op = 0; op < hs_selftest_count(); op++)
        printf("%s\n", hs_selftest_name(op));
    return HS_OK;
}

const struct argp hs_argp_selftest = { options,
                                       parse,
                                       "[section.key=value ...]",
                                       "Every kernel against the reference; or, with --tune, the choice among a GPU's "
                                       "kernels by measurement.",
                                       NULL,
                                       NULL,
                                       NULL };

HsStatus hs_command_selftest(int argc, char **argv)
{
    Arguments arguments = { .with_speed = true };
    HS_TRY(hs_arguments_parse(&hs_argp_selftest, argc, argv, &arguments));
    if (arguments.list)
        return print_names();
    return arguments.tune ? tune(&arguments) : test(&arguments);
}
