/* SPDX-License-Identifier: MIT
 *
 * trainer eval --checkpoint DIR: validation loss of a checkpoint, over all windows unless evaluation.batches is set.
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

static HsStatus evaluate_plan(HsLoadedModel *loaded, HsPlan *plan, const HsDataset *dataset, int64_t batches)
{
    const HsConfig *config = &loaded->config;
    HsStatus status = HS_OK;
    size_t tokens = (size_t)(config->training.batch_size * config->training.max_length);
    int32_t *buffer = calloc(2 * tokens, sizeof *buffer);
    if (!buffer)
        return hs_fail(HS_ENOMEM, "no memory for a batch of %zu tokens", tokens);
    double loss = 0;
    HS_TRY_GOTO(status, hs_plan_commit(plan, &loaded->engine.context), done);
    HS_TRY_GOTO(status,
                hs_evaluate(plan, &loaded->engine.context, dataset, batches * config->training.batch_size, buffer,
                            buffer + tokens, &loss),
                done);
    printf("checkpoint       %s\nvalidation loss  %.6f nats a token\nperplexity       %.4f\n", loaded->folder, loss,
           exp(loss));
    if (!isnan(dataset->validation.entropy_floor))
        printf("entropy floor    %.6f nats a token (excess %.6f)\n", dataset->validation.entropy_floor,
               loss - dataset->validation.entropy_floor);
done:
    free(buffer);
    return status;
}

static HsStatus evaluate_dataset(HsLoadedModel *loaded, const HsDataset *dataset, int64_t batches)
{
    HsPlan plan;
    HS_TRY(hs_plan_create(&loaded->model, &loaded->engine.context, loaded->config.training.batch_size,
                          loaded->config.training.max_length, false, HS_RECOMPUTE_NONE, 1, &plan));
    HsStatus status = evaluate_plan(loaded, &plan, dataset, batches);
    hs_plan_destroy(&plan);
    return status;
}

static HsStatus evaluate(HsLoadedModel *loaded, const Arguments *arguments)
{
    HS_TRY(hs_loaded_model_init(loaded, arguments->checkpoint, arguments->overrides.count, arguments->overrides.items));
    HsDataset dataset;
    HsTokenizer *tokenizer = loaded->tokenizer;
    loaded->tokenizer = NULL; /* the dataset owns it from here */
    HS_TRY(hs_dataset_create(&loaded->config, &loaded->config.tasks[0], tokenizer, &dataset));
    HsStatus status = evaluate_dataset(loaded, &dataset, arguments->batches);
    hs_dataset_deinit(&dataset);
    return status;
}

HsStatus hs_command_eval(int argc, char **argv)
{
    static const struct argp argp = {
        options, parse, "[section.key=value ...]", "Validation loss of a checkpoint.", NULL, NULL, NULL
    };
    Arguments arguments = { 0 };
    argp_parse(&argp, argc, argv, 0, NULL, &arguments);
    HsLoadedModel loaded;
    HsStatus status = evaluate(&loaded, &arguments);
    hs_loaded_model_deinit(&loaded);
    return status;
}
