/* SPDX-License-Identifier: MIT
 *
 * trainer generate --checkpoint DIR [--prompt TEXT | --prompt-file FILE] [--samples N] [--json]: sample text, on the
 * device of the checkpoint's configuration or another (device=cpu).
 *
 * Several samples are several continuations of the same prompt.  The first has the seed that was given, the others have
 * seeds drawn from it; each stands before its sample, so that --seed brings any of them back alone.
 *
 *     {"checkpoint": "...", "step": 200, "prompt": "a",
 *      "samples": [{"seed": 1337, "text": "...", "tokens": [12, 7]}]}       text and tokens without the prompt
 *
 * With --chat the prompt is what a user says, and samples are answers to it; without one, each line of the standard
 * input is, and the conversation continues.
 */
#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/rng.h"
#include "runtime/commands/arguments.h"
#include "runtime/commands/chat.h"
#include "runtime/commands/command.h"
#include "runtime/commands/loaded_model.h"
#include "runtime/commands/stops.h"
#include "runtime/data/source/input.h"
#include "runtime/engine/generate.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

enum { OPTION_PROMPT_FILE = 0x100, OPTION_SAMPLES, OPTION_JSON, OPTION_CHAT, OPTION_SYSTEM };
enum { PROMPT_MAX_BYTES = 1 << 24 };

typedef struct Arguments {
    HsCheckpointArgument checkpoint;
    const char *prompt, *prompt_file; /* one of them, or none */
    const char *system;               /* NULL: not given */
    int64_t samples;
    bool json, chat;
    int32_t ended_by; /* the token that ended the last text; -1: none */
    HsGeneration generation;
    HsOverrides overrides;
} Arguments;

static const struct argp_option options[] = {
    HS_CHECKPOINT_OPTIONS,
    { "prompt", 'p', "TEXT", 0, "how the text begins", 0 },
    { "prompt-file", OPTION_PROMPT_FILE, "FILE", 0, "the same from a file, every byte of it; -: the standard input",
      0 },
    { "chat", OPTION_CHAT, NULL, 0,
      "a conversation, by the template tokenizer.chat_template names: an answer to the prompt, or to each line of the "
      "standard input in turn",
      0 },
    { "system", OPTION_SYSTEM, "TEXT", 0, "with --chat: the system message", 0 },
    { "tokens", 'n', "N", 0, "how many tokens to add (200)", 0 },
    { "samples", OPTION_SAMPLES, "N", 0, "how many continuations, each with its own seed (1)", 0 },
    { "temperature", 't', "X", 0, "0: always the likeliest token (0.8)", 0 },
    { "top-k", 'k', "K", 0, "draw from the K likeliest only; 0: all (0)", 0 },
    { "top-p", 'q', "P", 0, "draw from the likeliest tokens that make up P (1.0)", 0 },
    { "seed", 's', "N", 0, "same seed, same text (1337)", 0 },
    { "json", OPTION_JSON, NULL, 0, "one JSON object on the standard output, with every sample's seed and tokens", 0 },
    { 0 },
};

static error_t parse_sampling(int key, char *argument, struct argp_state *state, HsGeneration *generation)
{
    switch (key) {
    case 'n':
        generation->tokens = hs_argument_integer(state, "--tokens", argument, 1, 1000000);
        return 0;
    case 't':
        generation->sampling.temperature = hs_argument_real(state, "--temperature", argument, 0, 100);
        return 0;
    case 'k':
        generation->sampling.top_k = hs_argument_integer(state, "--top-k", argument, 0, 1000000000);
        return 0;
    case 'q':
        generation->sampling.top_p = hs_argument_real(state, "--top-p", argument, 1e-6, 1);
        return 0;
    case 's':
        generation->sampling.seed = (uint64_t)hs_argument_integer(state, "--seed", argument, 0, INT64_MAX);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    if (key == ARGP_KEY_END && arguments->prompt && arguments->prompt_file)
        argp_error(state, "--prompt and --prompt-file both say how the text begins; leave one out");
    const bool prompted = arguments->prompt || arguments->prompt_file;
    if (key == ARGP_KEY_END && arguments->system && !arguments->chat)
        argp_error(state, "--system is the message before a conversation: give --chat too");
    if (key == ARGP_KEY_END && arguments->chat && !prompted && (arguments->json || arguments->samples > 1))
        argp_error(state, "--json and --samples are for one answer: give --chat a prompt");
    if (hs_argument_checkpoint(state, key, argument, &arguments->checkpoint))
        return 0;
    switch (key) {
    case 'p':
        arguments->prompt = argument;
        return 0;
    case OPTION_PROMPT_FILE:
        arguments->prompt_file = argument;
        return 0;
    case OPTION_SAMPLES:
        arguments->samples = hs_argument_integer(state, "--samples", argument, 1, 1000000);
        return 0;
    case OPTION_CHAT:
        arguments->chat = true;
        return 0;
    case OPTION_SYSTEM:
        arguments->system = argument;
        return 0;
    case OPTION_JSON:
        arguments->json = true;
        return 0;
    case ARGP_KEY_ARG:
        hs_argument_override(state, &arguments->overrides, argument);
        return 0;
    default:
        return parse_sampling(key, argument, state, &arguments->generation);
    }
}

/* Of sample `index`, below 2^53: every reader of JSON keeps its digits. */
static uint64_t sample_seed(uint64_t seed, int64_t index)
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), 0, 0x53414d50 };
    const HsPhilox bits = hs_philox(seed, counter);
    return index == 0 ? seed : ((uint64_t)bits.word[1] << 32 | bits.word[0]) >> 11;
}

/* A continuation of the prompt, or (chat not NULL) an answer to it. */
static HsStatus generate_one(HsLoadedModel *loaded, const HsGeneration *generation, HsChat *chat, FILE *out,
                             HsTokens *added)
{
    if (chat) {
        hs_chat_restart(chat);
        return hs_chat_answer(chat, generation->prompt, generation->prompt_length, generation->sampling.seed, out,
                              added);
    }
    return hs_generate_text(&loaded->model, &loaded->engine.context, loaded->tokenizer, generation, out, added);
}

static HsStatus print_samples(HsLoadedModel *loaded, const Arguments *arguments, HsChat *chat)
{
    HsGeneration generation = arguments->generation;
    for (int64_t i = 0; i < arguments->samples; i++) {
        generation.sampling.seed = sample_seed(arguments->generation.sampling.seed, i);
        if (arguments->samples > 1)
            printf("%s--- sample %lld of %lld, seed %lld ---\n", i > 0 ? "\n" : "", (long long)i + 1,
                   (long long)arguments->samples, (long long)generation.sampling.seed);
        HS_TRY(generate_one(loaded, &generation, chat, stdout, NULL));
    }
    return HS_OK;
}

/* Seed, text and tokens of one sample, and the token that ended it, which is not one of them. */
static HsStatus sample_json(const HsTokenizer *tokenizer, uint64_t seed, const HsTokens *added, int32_t ended_by,
                            HsJson *samples)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream)
        return hs_fail(HS_ENOMEM, "no memory for the text of %lld tokens", (long long)added->count);
    HsJson *sample = hs_json_object(), *tokens = hs_json_array();
    for (int64_t i = 0; i < added->count; i++) {
        size_t size;
        const char *bytes = hs_tokenizer_bytes(tokenizer, added->items[i], &size);
        fwrite(bytes, 1, size, stream);
        hs_json_append(tokens, hs_json_new_integer(added->items[i]));
    }
    const bool failed = fclose(stream) != 0;
    hs_json_set(sample, "seed", hs_json_new_integer((int64_t)seed));
    hs_json_set(sample, "text", failed ? NULL : hs_json_new_text(text, length));
    hs_json_set(sample, "tokens", tokens);
    hs_json_set(sample, "ended_by", ended_by >= 0 ? hs_json_new_integer(ended_by) : hs_json_new_real((double)NAN));
    hs_json_append(samples, sample);
    free(text);
    return HS_OK;
}

static HsStatus print_json(HsLoadedModel *loaded, const Arguments *arguments, HsChat *chat)
{
    HsGeneration generation = arguments->generation;
    HsStatus status = HS_OK;
    HsTokens added = { 0 };
    HsJson *root = hs_json_object(), *samples = hs_json_array();
    hs_json_set(root, "checkpoint", hs_json_new_text(loaded->folder, strlen(loaded->folder)));
    hs_json_set_integer(root, "step", loaded->step);
    hs_json_set(root, "prompt", hs_json_new_text(generation.prompt, generation.prompt_length));
    for (int64_t i = 0; status == HS_OK && i < arguments->samples; i++) {
        generation.sampling.seed = sample_seed(arguments->generation.sampling.seed, i);
        added.count = 0;
        status = generate_one(loaded, &generation, chat, NULL, &added);
        if (status == HS_OK)
            status = sample_json(loaded->tokenizer, generation.sampling.seed, &added, arguments->ended_by, samples);
    }
    hs_tokens_deinit(&added);
    hs_json_set(root, "samples", samples);
    if (status == HS_OK)
        return hs_argument_print_json(root);
    hs_json_destroy(root);
    return status;
}

/* The prompt's bytes; *owned is to be freed. */
static HsStatus read_prompt(Arguments *arguments, char **owned)
{
    HsGeneration *generation = &arguments->generation;
    *owned = NULL;
    if (arguments->prompt_file) {
        const HsSourceKind *kind;
        HS_TRY(hs_source_kind_choose(arguments->prompt_file, "text", &kind));
        const HsSource source = { .name = (char *)(uintptr_t)arguments->prompt_file, .kind = kind };
        HsInput *input;
        HS_TRY(hs_input_open(&source, &input));
        const HsStatus status = hs_input_read_all(input, PROMPT_MAX_BYTES, owned, &generation->prompt_length);
        hs_input_close(input);
        HS_TRY(status);
        const size_t mark = hs_utf8_mark_bytes(*owned, generation->prompt_length);
        generation->prompt = *owned + mark;
        generation->prompt_length -= mark;
        return HS_OK;
    }
    generation->prompt = arguments->prompt ? arguments->prompt : "";
    generation->prompt_length = strlen(generation->prompt);
    return HS_OK;
}

static HsStatus check_length(const HsLoadedModel *loaded, const HsGeneration *generation)
{
    int64_t tokens;
    HS_TRY(hs_generate_count_prompt(loaded->tokenizer, generation, &tokens));
    hs_generate_warn_length(&loaded->model, &loaded->config, tokens);
    return HS_OK;
}

static HsStatus generate(HsLoadedModel *loaded, Arguments *arguments)
{
    HsTokens stops = { 0 };
    HsChat *chat = NULL;
    HS_TRY(hs_argument_load_model(&arguments->checkpoint, &arguments->overrides, loaded));
    HsStatus status = hs_stops_read(loaded, arguments->chat, &stops, &arguments->generation.stops_alone);
    arguments->generation.stops = stops.items;
    arguments->generation.stop_count = stops.count;
    arguments->generation.ended_by = &arguments->ended_by;
    if (status == HS_OK && arguments->chat)
        status = hs_chat_create(loaded, &arguments->generation, arguments->system, &chat);
    const bool talks = chat && !arguments->prompt && !arguments->prompt_file;
    if (status == HS_OK && talks)
        status = hs_chat_talk(chat, stdin, stdout, isatty(STDIN_FILENO) == 1, sample_seed);
    else if (status == HS_OK && !chat)
        status = check_length(loaded, &arguments->generation);
    if (status == HS_OK && !talks)
        status = arguments->json ? print_json(loaded, arguments, chat) : print_samples(loaded, arguments, chat);
    hs_chat_destroy(chat);
    hs_tokens_deinit(&stops);
    return status;
}

const struct argp hs_argp_generate = {
    options, parse, "[section.key=value ...]", "Sample text from a checkpoint.", NULL, NULL, NULL
};

HsStatus hs_command_generate(int argc, char **argv)
{
    Arguments arguments = {
        .samples = 1,
        .generation = { .tokens = 200, .sampling = { .temperature = 0.8, .top_k = 0, .top_p = 1, .seed = 1337 } },
    };
    char *prompt;
    HsLoadedModel loaded = { 0 };
    HS_TRY(hs_arguments_parse(&hs_argp_generate, argc, argv, &arguments));
    HsStatus status = read_prompt(&arguments, &prompt);
    if (status == HS_OK)
        status = generate(&loaded, &arguments);
    hs_loaded_model_deinit(&loaded);
    free(prompt);
    return status;
}
