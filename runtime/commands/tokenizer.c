/* SPDX-License-Identifier: MIT
 *
 * trainer tokenizer train --vocabulary N --output FILE SOURCE...      (what tasks.N.train takes)
 * trainer tokenizer encode --tokenizer FILE TEXT
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/config.h"
#include "runtime/data/tokenizer.h"

enum { MAX_FILES = 4096 };
enum { TEXT_FIELD = 0x100, PROMPT_FIELD, COMPLETION_FIELD }; /* options without a letter */

typedef struct Arguments {
    int64_t vocabulary;
    const char *output, *tokenizer;
    const char *format;
    char *text_field, *prompt_field, *completion_field; /* NULL: the configuration's defaults */
    char *words[MAX_FILES];
    int word_count;
} Arguments;

static const struct argp_option options[] = {
    { "vocabulary", 'v', "N", 0, "train: how many tokens to learn, the 256 bytes and end-of-text included (4096)", 0 },
    { "output", 'o', "FILE", 0, "train: where to write it (tokenizer.json)", 0 },
    { "format", 'f', "FORMAT", 0, "train: how files are read, as tasks.N.format has it (auto)", 0 },
    { "text-field", TEXT_FIELD, "NAME", 0, "train: as tasks.N.text_field (text)", 0 },
    { "prompt-field", PROMPT_FIELD, "NAME", 0, "train: as tasks.N.prompt_field (prompt)", 0 },
    { "completion-field", COMPLETION_FIELD, "NAME", 0, "train: as tasks.N.completion_field (completion)", 0 },
    { "tokenizer", 't', "FILE", 0, "encode: the tokenizer.json to use", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'v':
        arguments->vocabulary = hs_argument_integer(state, "--vocabulary", argument, 257, 16777216);
        return 0;
    case 'o':
        arguments->output = argument;
        return 0;
    case 't':
        arguments->tokenizer = argument;
        return 0;
    case 'f':
        arguments->format = argument;
        return 0;
    case TEXT_FIELD:
        arguments->text_field = argument;
        return 0;
    case PROMPT_FIELD:
        arguments->prompt_field = argument;
        return 0;
    case COMPLETION_FIELD:
        arguments->completion_field = argument;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->word_count == MAX_FILES)
            argp_error(state, "more than %d files", MAX_FILES);
        arguments->words[arguments->word_count++] = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* A task of training, with the configuration's own defaults and checks. */
static HsStatus train(const Arguments *arguments)
{
    HsConfig config;
    char format[128];
    if (arguments->word_count < 2)
        return hs_fail(HS_ECONFIG, "tokenizer train needs at least one file, folder or glob of text");
    snprintf(format, sizeof format, "tasks.0.format=%.100s", arguments->format);
    const char *const overrides[] = { format };
    HS_TRY(hs_config_load(&config, NULL, 1, overrides));
    HsTaskConfig task = config.tasks[0];
    task.train = (HsStringList){ .count = arguments->word_count - 1, .items = (char **)arguments->words + 1 };
    task.text_field = arguments->text_field ? arguments->text_field : task.text_field;
    task.prompt_field = arguments->prompt_field ? arguments->prompt_field : task.prompt_field;
    task.completion_field = arguments->completion_field ? arguments->completion_field : task.completion_field;
    HsStatus status = hs_bpe_train(&task, arguments->vocabulary, arguments->output);
    hs_config_deinit(&config);
    if (status == HS_OK)
        printf("wrote %s\n", arguments->output);
    return status;
}

static HsStatus encode(const Arguments *arguments)
{
    if (!arguments->tokenizer || arguments->word_count != 2)
        return hs_fail(HS_ECONFIG, "tokenizer encode needs --tokenizer FILE and one TEXT");
    HsTokenizer *tokenizer;
    HS_TRY(hs_tokenizer_load(arguments->tokenizer, &tokenizer));
    HsTokens tokens = { 0 };
    HsStatus status = hs_tokenizer_encode(tokenizer, arguments->words[1], strlen(arguments->words[1]), &tokens);
    for (int64_t i = 0; status == HS_OK && i < tokens.count; i++) {
        size_t length;
        const char *bytes = hs_tokenizer_bytes(tokenizer, tokens.items[i], &length);
        printf("%d\t", tokens.items[i]);
        fwrite(bytes, 1, length, stdout);
        putchar('\n');
    }
    hs_tokens_deinit(&tokens);
    hs_tokenizer_destroy(tokenizer);
    return status;
}

static const struct {
    const char *name;
    HsStatus (*run)(const Arguments *arguments);
} actions[] = { { "train", train }, { "encode", encode } };

HsStatus hs_command_tokenizer(int argc, char **argv)
{
    static const struct argp argp = {
        options,
        parse,
        "train SOURCE...\nencode TEXT",
        "Learn a byte-level BPE tokenizer, or show how one splits a text.\vA SOURCE is what "
        "tasks.N.train takes: a file, a folder, a glob, or synthetic:NAME.",
        NULL,
        NULL,
        NULL
    };
    static Arguments arguments; /* too large for the stack; a command runs once */
    arguments = (Arguments){ .vocabulary = 4096, .output = "tokenizer.json", .format = "auto" };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    for (size_t i = 0; arguments.word_count > 0 && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(arguments.words[0], actions[i].name) == 0)
            return actions[i].run(&arguments);
    return hs_fail(HS_ECONFIG,
                   "say `trainer tokenizer train` or `trainer tokenizer encode` (--help lists the options)");
}
