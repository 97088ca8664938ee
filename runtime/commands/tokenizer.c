/* SPDX-License-Identifier: MIT
 *
 * trainer tokenizer train --vocabulary N --output FILE TEXT_FILE...
 * trainer tokenizer encode --tokenizer FILE TEXT
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/data/tokenizer.h"

enum { MAX_FILES = 4096 };

typedef struct Arguments {
    int64_t vocabulary;
    const char *output, *tokenizer;
    const char *words[MAX_FILES];
    int word_count;
} Arguments;

static const struct argp_option options[] = {
    { "vocabulary", 'v', "N", 0, "train: how many tokens to learn, the 256 bytes and end-of-text included (4096)", 0 },
    { "output", 'o', "FILE", 0, "train: where to write it (tokenizer.json)", 0 },
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
    case ARGP_KEY_ARG:
        if (arguments->word_count == MAX_FILES)
            argp_error(state, "more than %d files", MAX_FILES);
        arguments->words[arguments->word_count++] = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static HsStatus train(const Arguments *arguments)
{
    if (arguments->word_count < 2)
        return hs_fail(HS_ECONFIG, "tokenizer train needs at least one text file");
    HS_TRY(hs_bpe_train(arguments->words + 1, arguments->word_count - 1, arguments->vocabulary, arguments->output));
    printf("wrote %s\n", arguments->output);
    return HS_OK;
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
    static const struct argp argp = { options,
                                      parse,
                                      "train TEXT_FILE...\nencode TEXT",
                                      "Learn a byte-level BPE tokenizer, or show how one splits a text.",
                                      NULL,
                                      NULL,
                                      NULL };
    static Arguments arguments; /* too large for the stack; a command runs once */
    arguments = (Arguments){ .vocabulary = 4096, .output = "tokenizer.json" };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    for (size_t i = 0; arguments.word_count > 0 && i < sizeof actions / sizeof *actions; i++)
        if (strcmp(arguments.words[0], actions[i].name) == 0)
            return actions[i].run(&arguments);
    return hs_fail(HS_ECONFIG,
                   "say `trainer tokenizer train` or `trainer tokenizer encode` (--help lists the options)");
}
