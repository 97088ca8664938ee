/* SPDX-License-Identifier: MIT
 *
 * trainer eval --checkpoint DIR [--best] [--json]: validation loss of a checkpoint on every task, over all windows
 * unless --batches is set; with --file on that file instead; with --choices how many questions it answers right.  The
 * figures are collected first and written in the end, so that --json is one object or nothing.
 *
 *     {"checkpoint": "runs/x/checkpoints/step-00000200", "step": 200,
 *      "tasks": [{"name": "t", "val_loss": 1.5, "perplexity": 4.48, "entropy_floor": 1.2, "excess": 0.3}],
 *      "mean_val_loss": 1.5}                                    in nats a token; null: not known
 *     {"checkpoint": "...", "step": 200, "questions": 1000, "accuracy": 0.28, "accuracy_by_token": 0.3,
 *      "accuracy_by_byte": 0.31, "chance": 0.25}                with --choices
 */
#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/choices.h"
#include "runtime/commands/command.h"
#include "runtime/commands/loaded_model.h"
#include "runtime/config/pretrained.h"
#include "runtime/train/evaluate.h"

enum { OPTION_JSON = 0x100, OPTION_FILE, OPTION_CHOICES };

typedef struct Arguments {
    HsCheckpointArgument checkpoint;
    int64_t batches;
    bool json;
    const char *file, *choices;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    HS_CHECKPOINT_OPTIONS,
    { "batches", 'b', "N", 0, "validation batches; 0, the default: all", 0 },
    { "file", OPTION_FILE, "FILE", 0, "instead of the tasks this file, all of it, or folder or glob", 0 },
    { "choices", OPTION_CHOICES, "FILE", 0,
      "instead of losses the share of right answers: JSON Lines with context, endings and label, as HellaSwag has them",
      0 },
    { "json", OPTION_JSON, NULL, 0, "one JSON object on the standard output", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (hs_argument_checkpoint(state, key, argument, &arguments->checkpoint)) {
        if (key == ARGP_KEY_END && arguments->file && arguments->choices)
            argp_error(state, "--file and --choices both say what to evaluate; leave one out");
        return 0;
    }
    switch (key) {
    case OPTION_FILE:
        arguments->file = argument;
        return 0;
    case OPTION_CHOICES:
        arguments->choices = argument;
        return 0;
    case 'b':
        arguments->batches = hs_argument_integer(state, "--batches", argument, 0, INT64_MAX / 1048576);
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Loss, perplexity, bits a byte; the excess over the floor and accuracies where they are known. */
static void print_figures(const HsLoadedModel *loaded, const HsTaskData *data, const HsEvaluation *found, double mean)
{
    printf("checkpoint       %s\n", loaded->folder);
    for (int i = 0; i < data->count; i++) {
        const double floor = data->tasks[i].validation.entropy_floor;
        if (data->count > 1)
            printf("task             %s\n", loaded->config.tasks[i].name);
        printf("validation loss  %.6f nats a token\nperplexity       %.4f\n", found[i].loss, exp(found[i].loss));
        if (!isnan(found[i].bytes_per_token))
            printf("bits per byte    %.6f\n", hs_bits_per_byte(found[i].loss, found[i].bytes_per_token));
        if (!isnan(floor))
            printf("entropy floor    %.6f nats a token (excess %.6f)\n", floor, found[i].loss - floor);
        for (int set = 0; set < HS_ITEM_SET_COUNT; set++)
            if (found[i].items[set] > 0)
                printf("exact match      %.4f of %lld prompts %s in training\n", found[i].accuracy[set],
                       (long long)found[i].items[set], hs_item_set_names[set]);
    }
    if (data->count > 1)
        printf("mean loss        %.6f nats a token over %d tasks\n", mean, data->count);
}

static HsStatus print_json(const HsLoadedModel *loaded, const HsTaskData *data, const HsEvaluation *found, double mean)
{
    HsJson *root = hs_json_object(), *tasks = hs_json_array();
    hs_json_set(root, "checkpoint", hs_json_new_text(loaded->folder, strlen(loaded->folder)));
    hs_json_set_integer(root, "step", loaded->step);
    for (int i = 0; i < data->count; i++) {
        const double floor = data->tasks[i].validation.entropy_floor;
        HsJson *task = hs_json_object();
        hs_json_set_string(task, "name", loaded->config.tasks[i].name);
        hs_json_set_real(task, "val_loss", found[i].loss);
        hs_json_set_real(task, "perplexity", exp(found[i].loss));
        hs_json_set_real(task, "entropy_floor", floor);
        hs_json_set_real(task, "excess", found[i].loss - floor);
        hs_json_set_real(task, "bits_per_byte", hs_bits_per_byte(found[i].loss, found[i].bytes_per_token));
        hs_json_set_real(task, "accuracy_seen", found[i].accuracy[HS_ITEMS_SEEN]);
        hs_json_set_real(task, "accuracy_unseen", found[i].accuracy[HS_ITEMS_UNSEEN]);
        hs_json_append(tasks, task);
    }
    hs_json_set(root, "tasks", tasks);
    hs_json_set_real(root, "mean_val_loss", mean);
    return hs_argument_print_json(root);
}

static HsStatus measure(HsLoadedModel *loaded, HsProgram *program, const HsTaskData *data, int64_t windows,
                        HsEvaluation *found)
{
    const HsConfig *config = &loaded->config;
    const size_t tokens = (size_t)(config->training.batch_size * config->training.max_length);
    int32_t *buffer = calloc(2 * tokens, sizeof *buffer);
    if (!buffer)
        return hs_fail(HS_ENOMEM, "no memory for a batch of %zu tokens", tokens);
    HsStatus status = hs_program_commit(program, &loaded->engine.context);
    const HsEvaluator evaluator = { .program = program,
                                    .context = &loaded->engine.context,
                                    .comm = loaded->engine.comm,
                                    .tokens = buffer,
                                    .targets = buffer + tokens };
    for (int i = 0; status == HS_OK && i < data->count; i++)
        status = hs_evaluate(&evaluator, &data->tasks[i], windows, &found[i]);
    free(buffer);
    return status;
}

static HsStatus evaluate_data(HsLoadedModel *loaded, const HsTaskData *data, const Arguments *arguments)
{
    const HsConfig *config = &loaded->config;
    double mean = 0;
    HsEvaluation *found = calloc((size_t)data->count, sizeof *found);
    if (!found)
        return hs_fail(HS_ENOMEM, "no memory for the figures of %d tasks", data->count);
    HsProgram program;
    HsStatus status = hs_program_create(&loaded->model, &loaded->engine.context, config->training.batch_size,
                                        config->training.max_length, false, HS_RECOMPUTE_NONE, 1, &program);
    if (status == HS_OK) {
        status = measure(loaded, &program, data, arguments->batches * config->training.batch_size, found);
        hs_program_destroy(&program);
    }
    for (int i = 0; i < data->count; i++)
        mean += found[i].loss / data->count;
    if (status == HS_OK && arguments->json)
        status = print_json(loaded, data, found, mean);
    else if (status == HS_OK)
        print_figures(loaded, data, found, mean);
    free(found);
    return status;
}

static HsStatus print_choices(const HsLoadedModel *loaded, const HsChoiceScores *scores, bool json)
{
    const struct {
        const char *key, *what;
        double value;
    } rows[] = { { "accuracy_by_token", "likelihood a token", scores->right_by_token },
                 { "accuracy_by_byte", "likelihood a byte", scores->right_by_byte },
                 { "accuracy", "likelihood", scores->right },
                 { "chance", "guessing", scores->chance } };
    if (json) {
        HsJson *root = hs_json_object();
        hs_json_set(root, "checkpoint", hs_json_new_text(loaded->folder, strlen(loaded->folder)));
        hs_json_set_integer(root, "step", loaded->step);
        hs_json_set_integer(root, "questions", scores->questions);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            hs_json_set_real(root, rows[i].key, rows[i].value);
        return hs_argument_print_json(root);
    }
    printf("checkpoint       %s\nquestions        %lld\n", loaded->folder, (long long)scores->questions);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("%s %.4f by %s\n", i == 0 ? "right answers   " : "                ", rows[i].value, rows[i].what);
    return HS_OK;
}

static HsStatus score_choices(HsLoadedModel *loaded, const Arguments *arguments)
{
    const HsConfig *config = &loaded->config;
    HsChoiceScores scores;
    HsProgram program;
    const size_t tokens = (size_t)(config->training.batch_size * config->training.max_length);
    int32_t *buffer = calloc(2 * tokens, sizeof *buffer);
    if (!buffer)
        return hs_fail(HS_ENOMEM, "no memory for a batch of %zu tokens", tokens);
    HsStatus status = hs_program_create(&loaded->model, &loaded->engine.context, config->training.batch_size,
                                        config->training.max_length, false, HS_RECOMPUTE_NONE, 1, &program);
    if (status == HS_OK) {
        const HsEvaluator evaluator = { .program = &program,
                                        .context = &loaded->engine.context,
                                        .comm = loaded->engine.comm,
                                        .tokens = buffer,
                                        .targets = buffer + tokens };
        status = hs_program_commit(&program, &loaded->engine.context);
        if (status == HS_OK)
            status = hs_score_choices(&evaluator, loaded->tokenizer, arguments->choices, &scores);
        hs_program_destroy(&program);
    }
    free(buffer);
    return status == HS_OK ? print_choices(loaded, &scores, arguments->json) : status;
}

/* A run's checkpoint knows its tasks; a Hugging Face folder knows of no text. */
static HsStatus check_text(const Arguments *arguments)
{
    HsPretrainedKind kind;
    if (arguments->file || arguments->choices)
        return HS_OK;
    for (int i = 0; i < arguments->overrides.count; i++)
        if (strncmp(arguments->overrides.items[i], "tasks.0.train=", 14) == 0 ||
            strncmp(arguments->overrides.items[i], "tasks.0.validation=", 19) == 0)
            return HS_OK;
    HS_TRY(hs_pretrained_kind(arguments->checkpoint.folder, &kind));
    if (arguments->checkpoint.best || kind != HS_PRETRAINED_HUGGINGFACE)
        return HS_OK;
    return hs_fail(
        HS_ECONFIG,
        "%s is a Hugging Face folder, which names no text to evaluate on: say --file FILE, --choices FILE or "
        "tasks.0.validation=FILE",
        arguments->checkpoint.folder);
}

static HsStatus evaluate(HsLoadedModel *loaded, const Arguments *arguments)
{
    HS_TRY(check_text(arguments));
    HS_TRY(hs_argument_load_model(&arguments->checkpoint, &arguments->overrides, loaded));
    if (arguments->choices)
        return score_choices(loaded, arguments);
    if (arguments->file)
        HS_TRY(hs_config_only_task(&loaded->config, arguments->file, arguments->file));
    HsTaskData data;
    HsTokenizer *tokenizer = loaded->tokenizer;
    loaded->tokenizer = NULL; /* the data own it from here */
    HS_TRY(hs_task_data_create(&loaded->config, tokenizer, &data));
    HsStatus status = evaluate_data(loaded, &data, arguments);
    hs_task_data_deinit(&data);
    return status;
}

const struct argp hs_argp_eval = { options, parse, "[section.key=value ...]", "Validation loss of a checkpoint.", NULL,
                                   NULL,    NULL };

HsStatus hs_command_eval(int argc, char **argv)
{
    Arguments arguments = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_eval, argc, argv, &arguments));
    HsLoadedModel loaded = { 0 };
    HsStatus status = evaluate(&loaded, &arguments);
    hs_loaded_model_deinit(&loaded);
    return status;
}
