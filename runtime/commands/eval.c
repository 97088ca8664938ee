/* SPDX-License-Identifier: MIT
 *
 * trainer eval --checkpoint DIR: validation loss of a checkpoint on every task, over all windows unless --batches is
 * set.
 */
#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/loaded_model.h"

typedef struct Arguments {
    const char *checkpoint;
    int64_t batches;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "checkpoint", 'd', "DIR", 0, "a checkpoint's folder, or a run's (its latest checkpoint)", 0 },
    { "batches", 'b', "N", 0, "validation batches; 0, the default: all", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'd':
        arguments->checkpoint = argument;
        return 0;
    case 'b':
        arguments->batches = hs_argument_integer(state, "--batches", argument, 0, INT64_MAX / 1048576);
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    case ARGP_KEY_END:
        if (!arguments->checkpoint)
            argp_error(state, "--checkpoint DIR is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* One task after another: loss, perplexity, and the excess over the floor where it is known. */
static HsStatus print_losses(HsLoadedModel *loaded, HsPlan *plan, const HsTaskData *data, int64_t windows,
                             int32_t *buffer)
{
    const HsConfig *config = &loaded->config;
    size_t tokens = (size_t)(config->training.batch_size * config->training.max_length);
    double mean = 0;
    for (int i = 0; i < data->count; i++) {
        const HsDataset *dataset = &data->tasks[i];
        double loss = 0, floor = dataset->validation.entropy_floor;
        HS_TRY(hs_evaluate(plan, &loaded->engine.context, dataset, windows, buffer, buffer + tokens, &loss));
        mean += loss / data->count;
        if (data->count > 1)
            printf("task             %s\n", config->tasks[i].name);
        printf("validation loss  %.6f nats a token\nperplexity       %.4f\n", loss, exp(loss));
        if (!isnan(floor))
            printf("entropy floor    %.6f nats a token (excess %.6f)\n", floor, loss - floor);
    }
    if (data->count > 1)
        printf("mean loss        %.6f nats a token over %d tasks\n", mean, data->count);
    return HS_OK;
}

static HsStatus evaluate_plan(HsLoadedModel *loaded, HsPlan *plan, const HsTaskData *data, int64_t batches)
{
    const HsConfig *config = &loaded->config;
    size_t tokens = (size_t)(config->training.batch_size * config->training.max_length);
    int32_t *buffer = calloc(2 * tokens, sizeof *buffer);
    if (!buffer)
        return hs_fail(HS_ENOMEM, "no memory for a batch of %zu tokens", tokens);
    HsStatus status = hs_plan_commit(plan, &loaded->engine.context);
    if (status == HS_OK) {
        printf("checkpoint       %s\n", loaded->folder);
        status = print_losses(loaded, plan, data, batches * config->training.batch_size, buffer);
    }
    free(buffer);
    return status;
}

static HsStatus evaluate_data(HsLoadedModel *loaded, const HsTaskData *data, int64_t batches)
{
    HsPlan plan;
    HS_TRY(hs_plan_create(&loaded->model, &loaded->engine.context, loaded->config.training.batch_size,
                          loaded->config.training.max_length, false, HS_RECOMPUTE_NONE, 1, &plan));
    HsStatus status = evaluate_plan(loaded, &plan, data, batches);
    hs_plan_destroy(&plan);
    return status;
}

static HsStatus evaluate(HsLoadedModel *loaded, const Arguments *arguments)
{
    HS_TRY(hs_loaded_model_init(loaded, arguments->checkpoint, arguments->overrides.count, arguments->overrides.items));
    HsTaskData data;
    HsTokenizer *tokenizer = loaded->tokenizer;
    loaded->tokenizer = NULL; /* the data own it from here */
    HS_TRY(hs_task_data_create(&loaded->config, tokenizer, &data));
    HsStatus status = evaluate_data(loaded, &data, arguments->batches);
    hs_task_data_deinit(&data);
    return status;
}

HsStatus hs_command_eval(int argc, char **argv)
{
    static const struct argp argp = {
        options, parse, "[section.key=value ...]", "Validation loss of a checkpoint.", NULL, NULL, NULL
    };
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    HsLoadedModel loaded;
    HsStatus status = evaluate(&loaded, &arguments);
    hs_loaded_model_deinit(&loaded);
    return status;
}
