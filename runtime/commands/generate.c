/* SPDX-License-Identifier: MIT
 *
 * trainer generate --checkpoint DIR [section.key=value ...]: sample text, on the device of the checkpoint's
 * configuration or another (device=cpu).
 */
#include <argp.h>
#include <stdlib.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/loaded_model.h"

typedef struct Arguments {
    const char *checkpoint, *prompt;
    int64_t tokens;
    HsSampling sampling;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    { "checkpoint", 'd', "DIR", 0, "a checkpoint's folder, or a run's (its latest checkpoint)", 0 },
    { "prompt", 'p', "TEXT", 0, "how the text begins", 0 },
    { "tokens", 'n', "N", 0, "how many tokens to add (200)", 0 },
    { "temperature", 't', "X", 0, "0: always the likeliest token (0.8)", 0 },
    { "top-k", 'k', "K", 0, "draw from the K likeliest only; 0: all (0)", 0 },
    { "top-p", 'q', "P", 0, "draw from the likeliest tokens that make up P (1.0)", 0 },
    { "seed", 's', "N", 0, "same seed, same text (1337)", 0 },
    { 0 },
};

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    switch (key) {
    case 'd':
        arguments->checkpoint = argument;
        return 0;
    case 'p':
        arguments->prompt = argument;
        return 0;
    case 'n':
        arguments->tokens = hs_argument_integer(state, "--tokens", argument, 1, 1000000);
        return 0;
    case 't':
        arguments->sampling.temperature = hs_argument_real(state, "--temperature", argument, 0, 100);
        return 0;
    case 'k':
        arguments->sampling.top_k = hs_argument_integer(state, "--top-k", argument, 0, 1000000000);
        return 0;
    case 'q':
        arguments->sampling.top_p = hs_argument_real(state, "--top-p", argument, 1e-6, 1);
        return 0;
    case 's':
        arguments->sampling.seed = (uint64_t)hs_argument_integer(state, "--seed", argument, 0, INT64_MAX);
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

HsStatus hs_command_generate(int argc, char **argv)
{
    static const struct argp argp = { options, parse, "[section.key=value ...]", "Sample text from a checkpoint.", NULL,
                                      NULL,    NULL };
    Arguments arguments = { .prompt = "",
                            .tokens = 200,
                            .sampling = { .temperature = 0.8, .top_k = 0, .top_p = 1, .seed = 1337 } };
    HS_TRY(hs_arguments_parse(&argp, argc, argv, &arguments));
    HsLoadedModel loaded;
    HsStatus status =
        hs_loaded_model_init(&loaded, arguments.checkpoint, arguments.overrides.count, arguments.overrides.items);
    if (status == HS_OK)
        status = hs_generate_text(&loaded.model, &loaded.engine.context, loaded.tokenizer, arguments.prompt,
                                  arguments.tokens, &arguments.sampling, stdout);
    hs_loaded_model_deinit(&loaded);
    return status;
}
