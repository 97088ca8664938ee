/* SPDX-License-Identifier: MIT
 *
 * trainer tokenizer train  --vocabulary N [--special TEXT ...] --output FILE SOURCE...      (what tasks.N.train takes)
 * trainer tokenizer encode (--tokenizer FILE | --config FILE) [--output FILE.bin] SOURCE...
 * trainer tokenizer decode (--tokenizer FILE | --config FILE) IDS...
 * trainer tokenizer count  (--tokenizer FILE | --config FILE) [--json] SOURCE...
 *
 * Sources are read as training reads them: the keys of the configuration's first task say how, or the defaults, and
 * options say otherwise.  "-" is the standard input.
 */
#include <argp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/commands/tokenizer_text.h"
#include "runtime/config/chat_template.h"
#include "runtime/config/table.h"
#include "runtime/data/dataset.h"
#include "runtime/data/source/token_file.h"
#include "runtime/data/tokenizer_train.h"
#include "runtime/io/files.h"

enum { MAX_FILES = 4096, MAX_EXCLUDED = 64 };
enum {
    TEXT_FIELD = 0x100,
    PROMPT_FIELD,
    COMPLETION_FIELD,
    END_OF_TEXT,
    SKIP_END,
    TEXT,
    JSON,
    SPECIAL,
    EXCLUDE,
    CHAT_TEMPLATE
}; /* without a letter */

/* What the first word may be. */
enum { TRAIN = 1, ENCODE = 2, DECODE = 4, COUNT = 8, READ = TRAIN | ENCODE | COUNT, USE = ENCODE | DECODE | COUNT };

typedef struct Arguments {
    int64_t vocabulary;
    const char *output, *tokenizer, *config_path, *end_of_text, *text;
    const char *format; /* NULL, as the next: the configuration's */
    const char *text_field, *prompt_field, *completion_field;
    const char *chat_template;
    const char *special[HS_MAX_SPECIAL];
    int special_count;
    char *exclude[MAX_EXCLUDED];
    int exclude_count;
    bool skip_end, json;
    uint64_t given; /* bit i: options[i] */
    char *words[MAX_FILES];
    int word_count;
} Arguments;

static const struct argp_option options[] = {
    { "vocabulary", 'v', "N", 0, "train: how many tokens to learn, the 256 bytes and end-of-text included (4096)", 0 },
    { "output", 'o', "FILE", 0,
      "train: where to write the tokenizer (tokenizer.json); encode: a token file named .bin, which training reads, "
      "instead of numbers on the standard output",
      0 },
    { "tokenizer", 't', "FILE", 0, "encode, decode, count: the tokenizer.json to use", 0 },
    { "config", 'c', "FILE", 0,
      "encode, decode, count: use this configuration's tokenizer, and read sources as it does", 0 },
    { "end-of-text", END_OF_TEXT, "TEXT", 0, "encode, decode, count: as tokenizer.end_of_text", 0 },
    { "format", 'f', "FORMAT", 0, "train, encode, count: how files are read, as tasks.N.format has it (auto)", 0 },
    { "text-field", TEXT_FIELD, "NAME", 0, "train, encode, count: as tasks.N.text_field (text)", 0 },
    { "prompt-field", PROMPT_FIELD, "NAME", 0, "train, encode, count: as tasks.N.prompt_field (prompt)", 0 },
    { "completion-field", COMPLETION_FIELD, "NAME", 0, "train, encode, count: as tasks.N.completion_field (completion)",
      0 },
    { "special", SPECIAL, "TEXT", 0, "train: one more special token, such as <|im_start|>; may be repeated", 0 },
    { "exclude", EXCLUDE, "PATTERN", 0, "train, encode, count: as tasks.N.exclude; may be repeated", 0 },
    { "chat-template", CHAT_TEMPLATE, "NAME", 0, "encode, count: as tokenizer.chat_template (auto)", 0 },
    { "text", TEXT, "TEXT", 0, "encode: this text instead of files, a token a line with its bytes", 0 },
    { "skip-end-of-text", SKIP_END, NULL, 0, "decode: a token file's documents without end-of-text between them", 0 },
    { "json", JSON, NULL, 0, "count: one JSON object on the standard output", 0 },
    { 0 },
};

/* Which actions take an option, in the order of `options`. */
static const unsigned taken_by[] = { TRAIN, TRAIN | ENCODE, USE,    USE,    USE,  READ, READ, READ, READ, TRAIN,
                                     READ,  ENCODE | COUNT, ENCODE, DECODE, COUNT };
enum { OPTION_COUNT = sizeof taken_by / sizeof *taken_by };
_Static_assert(sizeof options / sizeof *options == OPTION_COUNT + 1, "each option says which action takes it");

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Arguments *arguments = state->input;
    for (int i = 0; i < OPTION_COUNT; i++)
        arguments->given |= (uint64_t)(options[i].key == key) << i;
    const struct {
        int key;
        const char **value;
    } texts[] = {
        { 'o', &arguments->output },
        { 't', &arguments->tokenizer },
        { 'c', &arguments->config_path },
        { 'f', &arguments->format },
        { TEXT_FIELD, &arguments->text_field },
        { PROMPT_FIELD, &arguments->prompt_field },
        { TEXT, &arguments->text },
        { COMPLETION_FIELD, &arguments->completion_field },
        { END_OF_TEXT, &arguments->end_of_text },
        { CHAT_TEMPLATE, &arguments->chat_template },
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].key == key) {
            *texts[i].value = argument;
            return 0;
        }
    switch (key) {
    case 'v':
        arguments->vocabulary = hs_argument_integer(state, "--vocabulary", argument, 257, 16777216);
        return 0;
    case SPECIAL:
        if (arguments->special_count == HS_MAX_SPECIAL)
            argp_error(state, "more than %d special tokens", HS_MAX_SPECIAL);
        arguments->special[arguments->special_count++] = argument;
        return 0;
    case EXCLUDE:
        if (arguments->exclude_count == MAX_EXCLUDED)
            argp_error(state, "more than %d patterns to exclude", MAX_EXCLUDED);
        arguments->exclude[arguments->exclude_count++] = argument;
        return 0;
    case SKIP_END:
        arguments->skip_end = true;
        return 0;
    case JSON:
        arguments->json = true;
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

/* The configuration with what the words and options change; sources are left in words[0 .. *count). */
static HsStatus load_config(const Arguments *arguments, char **words, int *count, HsConfig *config)
{
    static HsOverrides overrides;
    char format[128], chat_template[128];
    overrides.count = 0;
    *count = 0;
    if (arguments->format) {
        snprintf(format, sizeof format, "tasks.0.format=%.100s", arguments->format);
        overrides.items[overrides.count++] = format;
    }
    if (arguments->chat_template) {
        snprintf(chat_template, sizeof chat_template, "tokenizer.chat_template=%.90s", arguments->chat_template);
        overrides.items[overrides.count++] = chat_template;
    }
    for (int i = 1; i < arguments->word_count; i++) {
        char *word = arguments->words[i];
        if (!arguments->config_path || !strchr(word, '=') || access(word, F_OK) == 0)
            words[(*count)++] = word;
        else if (overrides.count == HS_MAX_OVERRIDES)
            return hs_fail(HS_ECONFIG, "more than %d overrides", HS_MAX_OVERRIDES);
        else
            overrides.items[overrides.count++] = word;
    }
    return hs_config_load(config, arguments->config_path, overrides.count, overrides.items);
}

/* The first task with its fields replaced by the options'; borrows from both. */
static HsTaskConfig task_of(const Arguments *arguments, const HsConfig *config)
{
    HsTaskConfig task = config->tasks[0];
    const struct {
        const char *given;
        char **field;
    } fields[] = { { arguments->text_field, &task.text_field },
                   { arguments->prompt_field, &task.prompt_field },
                   { arguments->completion_field, &task.completion_field } };
    for (int i = 0; i < 3; i++)
        if (fields[i].given)
            *fields[i].field = (char *)(uintptr_t)fields[i].given; /* read only from here on */
    if (arguments->exclude_count > 0)
        task.exclude = (HsStringList){ arguments->exclude_count, (char **)(uintptr_t)arguments->exclude };
    return task;
}

/* A task of training, with the configuration's own defaults and checks. */
static HsStatus train(const Arguments *arguments, const HsConfig *config, char **words, int count)
{
    const char *output = arguments->output ? arguments->output : "tokenizer.json";
    if (count == 0)
        return hs_fail(HS_ECONFIG, "tokenizer train needs at least one file, folder or glob of text");
    HsTaskConfig task = task_of(arguments, config);
    task.train = (HsStringList){ .count = count, .items = words };
    HS_TRY(hs_tokenizer_train(&task, arguments->vocabulary, arguments->special, arguments->special_count, output));
    printf("wrote %s\n", output);
    return HS_OK;
}

/* As training would have it: kind char is made from the tasks' text, which is read for that. */
static HsStatus open_tokenizer(const Arguments *arguments, const HsConfig *config, HsTokenizer **tokenizer)
{
    *tokenizer = NULL;
    if (arguments->tokenizer)
        return hs_tokenizer_load(arguments->tokenizer, tokenizer);
    const char *kind = config->tokenizer.kind, *path = config->tokenizer.path;
    if (strcmp(kind, "char") != 0)
        return hs_tokenizer_create(kind, path[0] ? path : NULL, NULL, 0, tokenizer);
    HsTaskData data;
    HS_TRY(hs_task_data_create(config, NULL, &data));
    *tokenizer = data.tokenizer;
    data.tokenizer = NULL;
    hs_task_data_deinit(&data);
    return HS_OK;
}

/* The name by which training knows a file of tokens. */
static HsStatus check_output(const char *path)
{
    const HsSourceKind *kind;
    HS_TRY(hs_source_kind_choose(path, "auto", &kind));
    HS_TRY(hs_check_output(path));
    HS_TRY(hs_token_file_check_replaced(path));
    const size_t length = strlen(path);
    if (!kind->makes_tokens || length < 4 || strcasecmp(path + length - 4, ".bin") != 0)
        return hs_fail(HS_ECONFIG, "--output %s: a token file's name must end in .bin, by which training knows it",
                       path);
    return HS_OK;
}

/* Also where the output of an earlier call lies among the sources: its text would count twice. */
static HsStatus refuse_tokens(const HsSourceList *sources, const char *output)
{
    if (output)
        HS_TRY(hs_source_list_check_output(sources, output));
    for (int i = 0; i < sources->count; i++)
        if (sources->items[i].kind && sources->items[i].kind->makes_tokens)
            return hs_fail(HS_ECONFIG, "%s: token files (.bin) hold no text to encode: leave it out",
                           sources->items[i].name);
    return HS_OK;
}

static HsStatus use_sources(const Arguments *arguments, unsigned action, const HsTokenizer *tokenizer,
                            const HsSourceOptions *reading, const HsTaskConfig *task, char **words, int count)
{
    HsSourceList sources = { 0 };
    HsStatus status = hs_source_list_exclude(&sources, &task->exclude);
    for (int i = 0; status == HS_OK && i < count; i++)
        status = strcmp(words[i], HS_SOURCE_INPUT) == 0 ? hs_source_list_add_input(&sources, task->format)
                                                        : hs_source_list_add(&sources, words[i], task->format);
    if (status == HS_OK && action == ENCODE)
        status = refuse_tokens(&sources, arguments->output);
    if (status == HS_OK)
        status = hs_source_list_check_output(&sources, arguments->output);
    hs_source_list_warn(&sources);
    if (status == HS_OK && action == COUNT)
        status = hs_tokenizer_print_count(tokenizer, &sources, reading, arguments->json, stdout);
    else if (status == HS_OK && arguments->output)
        status = hs_tokenizer_write_ids(tokenizer, &sources, reading, arguments->output);
    else if (status == HS_OK)
        status = hs_tokenizer_print_ids(tokenizer, &sources, reading, stdout);
    hs_source_list_deinit(&sources);
    return status;
}

static HsStatus use(const Arguments *arguments, unsigned action, const HsConfig *config, char **words, int count)
{
    if (!arguments->tokenizer == !arguments->config_path)
        return hs_fail(HS_ECONFIG, "say which tokenizer, by one of --tokenizer FILE and --config FILE");
    if ((count == 0) == !arguments->text)
        return hs_fail(HS_ECONFIG, arguments->text ? "--text takes the place of files: leave one of them out"
                                                   : "name at least one file, or - for the standard input");
    if (arguments->text && arguments->output)
        return hs_fail(HS_ECONFIG, "--text shows a text's tokens, and --output writes those of files: leave one out");
    if (arguments->output)
        HS_TRY(check_output(arguments->output));
    for (int i = 0; action == DECODE && i < count; i++)
        if (hs_writes_into(stdout, words[i]))
            return hs_fail(HS_ECONFIG, "the standard output is %s, which is to be read: write to another file",
                           words[i]);
    HsTokenizer *tokenizer;
    HS_TRY(open_tokenizer(arguments, config, &tokenizer));
    const HsTaskConfig task = task_of(arguments, config);
    HsSourceOptions reading = hs_source_options(&task);
    reading.chat_template = config->tokenizer.chat_template;
    reading.tokenizer_path = arguments->tokenizer ? arguments->tokenizer : config->tokenizer.path;
    if (strcmp(reading.chat_template, HS_CHAT_TEMPLATE_AUTO) == 0)
        reading.chat_template = hs_chat_template_beside(reading.tokenizer_path);
    reading.tokenizer = tokenizer;
    reading.needs_utf8 = strcmp(hs_tokenizer_kind(tokenizer), "byte") != 0;
    reading.raw16 = hs_is(config->data.token_file, "raw16");
    reading.vocabulary = hs_tokenizer_vocabulary(tokenizer);
    const char *end = arguments->end_of_text ? arguments->end_of_text : config->tokenizer.end_of_text;
    HsStatus status = hs_tokenizer_set_end_of_text(tokenizer, end);
    if (status == HS_OK && arguments->text)
        status = hs_tokenizer_print_split(tokenizer, arguments->text, stdout);
    else if (status == HS_OK && action != DECODE)
        status = use_sources(arguments, action, tokenizer, &reading, &task, words, count);
    for (int i = 0; status == HS_OK && action == DECODE && i < count; i++)
        status = hs_tokenizer_decode_file(tokenizer, words[i], &reading, arguments->skip_end, stdout);
    hs_tokenizer_destroy(tokenizer);
    return status;
}

static const struct {
    const char *name;
    unsigned action;
} actions[] = { { "train", TRAIN }, { "encode", ENCODE }, { "decode", DECODE }, { "count", COUNT } };
enum { ACTIONS = sizeof actions / sizeof *actions };

static HsStatus find_action(const char *word, unsigned *action)
{
    char near[HS_DOTTED_BYTES];
    for (int i = 0; word && i < ACTIONS; i++)
        if (strcmp(word, actions[i].name) == 0) {
            *action = actions[i].action;
            return HS_OK;
        }
    if (word && hs_config_choice_suggest("train|encode|decode|count", word, near))
        return hs_fail(HS_ECONFIG, "tokenizer %s: did you mean %s?", word, near);
    return hs_fail(HS_ECONFIG,
                   "say `trainer tokenizer train`, `encode`, `decode` or `count` (--help lists the options)");
}

/* No option is silently ignored. */
static HsStatus check_options(const Arguments *arguments, unsigned action)
{
    for (int i = 0; i < OPTION_COUNT; i++)
        if (arguments->given >> i & 1 && !(taken_by[i] & action))
            return hs_fail(HS_ECONFIG, "tokenizer %s takes no --%s", arguments->words[0], options[i].name);
    return HS_OK;
}

const struct argp hs_argp_tokenizer = {
    options,
    parse,
    "train SOURCE...\nencode SOURCE...\ndecode IDS...\ncount SOURCE...",
    "Learn a byte-level BPE tokenizer; turn text into tokens and back; count them.\vA SOURCE is what tasks.N.train "
    "takes: a file, a folder, a glob, or synthetic:NAME; encode and count take - (the standard input) too, and "
    "with "
    "--config also section.key=value.\n\n"
    "encode prints a line of numbers for each document, without end-of-text: a text file is one document, a JSONL "
    "file has one a line.  decode writes the bytes of numbers, so that a text comes back as it was; of token files "
    "(.bin) it leaves out the end-of-text behind the last document.",
    NULL,
    NULL,
    NULL
};

HsStatus hs_command_tokenizer(int argc, char **argv)
{
    static Arguments arguments; /* too large for the stack; a command runs once */
    static char *words[MAX_FILES];
    unsigned action = 0;
    int count;
    arguments = (Arguments){ .vocabulary = 4096 };
    HS_TRY(hs_arguments_parse(&hs_argp_tokenizer, argc, argv, &arguments));
    HS_TRY(find_action(arguments.word_count > 0 ? arguments.words[0] : NULL, &action));
    HS_TRY(check_options(&arguments, action));
    HsConfig config;
    HS_TRY(load_config(&arguments, words, &count, &config));
    HsStatus status =
        action == TRAIN ? train(&arguments, &config, words, count) : use(&arguments, action, &config, words, count);
    hs_config_deinit(&config);
    return status;
}
