/* SPDX-License-Identifier: MIT
 *
 * trainer --config FILE [section.key=value ...]: the main job.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/log.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/engine/generate.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/launch/launch.h"
#include "runtime/train/run.h"

enum { OPTION_PRINT_CONFIG = 1000, OPTION_PROCESSES, OPTION_RESTART };

typedef struct Arguments {
    const char *config_path;
    bool print_config;
    int64_t processes, restarts; /* -1: not said */
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the YAML file", 0 },
    { "print-config", OPTION_PRINT_CONFIG, NULL, 0, "print the resolved configuration with its documentation and stop",
      0 },
    { "processes", OPTION_PROCESSES, "N", 0, "start N processes on this host, which train one model together", 0 },
    { "restart", OPTION_RESTART, "K", 0,
      "start all processes again after a failure, up to K times; they continue from the latest checkpoint", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'c':
        arguments->config_path = argument;
        return 0;
    case OPTION_PRINT_CONFIG:
        arguments->print_config = true;
        return 0;
    case OPTION_PROCESSES:
        arguments->processes = hs_argument_integer(state, "processes", argument, 1, 1024);
        return 0;
    case OPTION_RESTART:
        arguments->restarts = hs_argument_integer(state, "restart", argument, 0, 1000000);
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!arguments->config_path && !arguments->print_config)
            argp_error(state, "--config FILE is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A run writes out_dir/config.yaml, from which it can be started again.  A configuration of the user's that lies there,
 * with its comments, would be replaced by it. */
static HsStatus check_config_file(const char *given, const HsConfig *config)
{
    char path[4096], metrics[4096], *text = NULL, *own = NULL;
    size_t length = 0;
    snprintf(path, sizeof path, "%s/config.yaml", config->training.out_dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", config->training.out_dir);
    if (!hs_same_file(given, path) || access(metrics, F_OK) == 0)
        return HS_OK; /* a run's */
    HsStatus status = hs_read_file(path, 0, &text, &length);
    if (status == HS_OK)
        status = hs_config_text(config, &own);
    if (status == HS_OK && strcmp(text, own) != 0)
        status = hs_fail(HS_ECONFIG,
                         "%s: the run writes its whole configuration to this very file, in place of yours: rename it, "
                         "or choose another out_dir",
                         given);
    free(text);
    free(own);
    return status;
}

static HsStatus write_run_config(const HsConfig *config)
{
    char path[4096], *text;
    HS_TRY(hs_make_directories(config->training.out_dir));
    snprintf(path, sizeof path, "%s/config.yaml", config->training.out_dir);
    HsStatus status = hs_config_text(config, &text);
    if (status == HS_OK) /* people start the run again by it: as it was, until the new one is there */
        status = hs_storage_replace_text(path, text);
    free(text);
    return status;
}

static HsStatus print_sample(HsTraining *training)
{
    const HsConfig *config = training->config;
    if (config->evaluation.sample_tokens == 0)
        return HS_OK;
    const HsGeneration generation = {
        .prompt = config->evaluation.sample_prompt,
        .prompt_length = strlen(config->evaluation.sample_prompt),
        .tokens = config->evaluation.sample_tokens,
        .sampling = { .temperature = 0.8, .top_p = 1, .seed = (uint64_t)config->training.seed },
    };
    int64_t tokens;
    HS_TRY(hs_generate_count_prompt(training->data.tokenizer, &generation, &tokens));
    hs_generate_warn_length(&training->model, config, tokens);
    printf("--- a sample of %lld tokens ---\n", (long long)config->evaluation.sample_tokens);
    return hs_generate_text(&training->model, &training->engine.context, training->data.tokenizer, &generation, stdout,
                            NULL);
}

static HsStatus train_as(HsConfig *config, HsComm *comm)
{
    HsRun run;
    HS_TRY(hs_run_create(config, &run, comm));
    HsStatus status = comm->rank == 0 ? write_run_config(config) : HS_OK;
    if (status == HS_OK)
        status = hs_run_train(&run);
    if (status == HS_OK && comm->rank == 0)
        status = print_sample(&run.training);
    hs_run_destroy(&run);
    return status;
}

static HsStatus train(HsConfig *config)
{
    HsComm *comm;
    hs_run_install_signals(false);
    HS_TRY(hs_launch_join(config, &comm));
    HsStatus status = train_as(config, comm);
    hs_launch_leave(status);
    return status;
}

/* The command line's word, or the configuration's; those that were started do not start others. */
static HsStatus plan_launch(const Arguments *arguments, const HsConfig *config, HsLaunch *launch, bool *starts_others)
{
    int launched;
    launch->processes = arguments->processes >= 0 ? (int)arguments->processes : (int)config->distributed.processes;
    launch->restarts = arguments->restarts >= 0 ? (int)arguments->restarts : 0;
    *starts_others = !hs_launch_is_child() && (launch->processes > 1 || launch->restarts > 0);
    if (!*starts_others)
        return HS_OK;
    HS_TRY(hs_launch_count(config, &launched));
    return launched == 1
               ? HS_OK
               : hs_fail(HS_ECONFIG,
                         "this is one of %d processes that a launcher started, and is to start %d itself: leave "
                         "out --processes, --restart and distributed.processes, or say distributed.launch=none",
                         launched, launch->processes);
}

const struct argp hs_argp_train = {
    options, parse, "[section.key=value ...]", "Train the model that FILE describes.", NULL, NULL, NULL
};

HsStatus hs_command_train(int argc, char **argv)
{
    Arguments arguments = { .processes = -1, .restarts = -1 };
    HsLaunch launch = { .count = argc - 1, .arguments = argv + 1 };
    HS_TRY(hs_arguments_parse(&hs_argp_train, argc, argv, &arguments));
    HsConfig config;
    HS_TRY(hs_config_load(&config, arguments.config_path, arguments.overrides.count, arguments.overrides.items));
    bool starts_others = false;
    HsStatus status = plan_launch(&arguments, &config, &launch, &starts_others);
    if (status == HS_OK && !arguments.print_config && !hs_launch_is_child())
        status = check_config_file(arguments.config_path, &config);
    if (arguments.print_config)
        status = hs_config_print(&config, stdout, true);
    else if (status == HS_OK && starts_others)
        status = hs_launch_processes(&config, &launch);
    else if (status == HS_OK)
        status = train(&config);
    hs_config_deinit(&config);
    return status;
}
