/* SPDX-License-Identifier: MIT
 *
 * What several commands' argument parsers share.
 */
#include "runtime/commands/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/config/table.h"
#include "runtime/io/byte_size.h"

static bool has_option(const struct argp *argp, const char *name, size_t length)
{
    for (const struct argp_option *option = argp->options; option && (option->name || option->key); option++)
        if (option->name && strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return true;
    return false;
}

/* getopt takes a beginning of a name for the name; argp has two options of its own. */
static bool begins_option(const struct argp *argp, const char *name, size_t length)
{
    for (const struct argp_option *option = argp->options; option && (option->name || option->key); option++)
        if (option->name && strncmp(option->name, name, length) == 0)
            return true;
    return strncmp("help", name, length) == 0 || strncmp("usage", name, length) == 0;
}

/* Does this word take the next one as its value?  Then that is no option, whatever it looks like. */
static bool takes_next(const struct argp *argp, const char *word)
{
    for (const struct argp_option *option = argp->options; option && (option->name || option->key); option++) {
        const bool named = option->name && strncmp(word, "--", 2) == 0 && strcmp(word + 2, option->name) == 0;
        const bool letter = option->key < 128 && word[0] == '-' && word[1] == option->key && word[2] == '\0';
        if (option->arg && (named || letter))
            return true;
    }
    return false;
}

/* The option nearest to an unknown one. */
static bool suggest_option(const struct argp *argp, const char *name, char near[HS_DOTTED_BYTES])
{
    char list[1024] = "help|usage";
    for (const struct argp_option *option = argp->options; option && (option->name || option->key); option++) {
        const size_t used = strlen(list);
        if (option->name)
            snprintf(list + used, sizeof list - used, "|%s", option->name);
    }
    return hs_config_choice_suggest(list, name, near);
}

/* --learning_rate=1e-4: a key of the configuration, written as an option; --sampels: a slip. */
static HsStatus check_dashes(const struct argp *argp, int argc, char **argv)
{
    char near[HS_DOTTED_BYTES], name[HS_DOTTED_BYTES];
    for (int i = 1; i < argc; i++) {
        const size_t length = strncmp(argv[i], "--", 2) == 0 ? strcspn(argv[i] + 2, "=") : 0;
        if (length == 0 || length >= sizeof name || has_option(argp, argv[i] + 2, length) ||
            (i > 1 && takes_next(argp, argv[i - 1])))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, argv[i] + 2);
        if (hs_config_key_suggest(name, near) && strcmp(name, near) == 0)
            return hs_fail(HS_ECONFIG, "%s: a key of the configuration has no dashes: %s%s", argv[i], argv[i] + 2,
                           argv[i][2 + length] == '=' ? "" : "=VALUE");
        if (!begins_option(argp, name, length) && suggest_option(argp, name, near))
            return hs_fail(HS_ECONFIG, "--%s is not an option of this command; did you mean --%s?", name, near);
    }
    return HS_OK;
}

/* argp knows --help and -?; people write -h. */
static void spell_out_help(const struct argp *argp, int argc, char **argv)
{
    static char help[] = "--help";
    for (const struct argp_option *option = argp->options; option && (option->name || option->key); option++)
        if (option->key == 'h')
            return;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = help;
}

HsStatus hs_arguments_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    HS_TRY(check_dashes(argp, argc, argv));
    spell_out_help(argp, argc, argv);
    const error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    if (error == 0)
        return HS_OK;
    if (error == ENOMEM)
        return hs_fail(HS_ENOMEM, "no memory to read the command line");
    return hs_fail(HS_ECONFIG, "the command line cannot be read: %s", strerror(error));
}

bool hs_argument_checkpoint(struct argp_state *state, int key, char *text, HsCheckpointArgument *checkpoint)
{
    if (key == ARGP_KEY_END && !checkpoint->folder)
        argp_error(state, "--checkpoint DIR is missing");
    if (key == 'd')
        checkpoint->folder = text;
    else if (key == HS_OPTION_BEST)
        checkpoint->best = true;
    return key == 'd' || key == HS_OPTION_BEST || key == ARGP_KEY_END;
}

HsStatus hs_argument_checkpoint_path(const HsCheckpointArgument *checkpoint, char **path)
{
    if (checkpoint->best)
        return hs_checkpoint_best(checkpoint->folder, path);
    *path = strdup(checkpoint->folder);
    return *path ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", checkpoint->folder);
}

HsStatus hs_argument_load_model(const HsCheckpointArgument *checkpoint, const HsOverrides *overrides,
                                HsLoadedModel *loaded)
{
    char *path;
    HS_TRY(hs_argument_checkpoint_path(checkpoint, &path));
    HsStatus status = hs_loaded_model_init(loaded, path, overrides->count, overrides->items);
    free(path);
    return status;
}

HsStatus hs_argument_print_json(HsJson *root)
{
    char *text = hs_json_write(root, false);
    hs_json_destroy(root);
    if (!text)
        return hs_fail(HS_ENOMEM, "no memory to write JSON");
    puts(text);
    free(text);
    return HS_OK;
}

void hs_argument_override(struct argp_state *state, HsOverrides *overrides, const char *word)
{
    if (!strchr(word, '='))
        argp_error(state, "%s is not of the form section.key=value", word);
    if (overrides->count == HS_MAX_OVERRIDES)
        argp_error(state, "more than %d overrides", HS_MAX_OVERRIDES);
    overrides->items[overrides->count++] = word;
}

int64_t hs_argument_integer(struct argp_state *state, const char *option, const char *text, int64_t low, int64_t high)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < low || value > high)
        argp_error(state, "%s must be a whole number from %lld to %lld (got %s)", option, (long long)low,
                   (long long)high, text);
    return value;
}

int64_t hs_argument_bytes(struct argp_state *state, const char *option, const char *text)
{
    int64_t bytes = 0;
    if (!hs_byte_size_read(text, &bytes))
        argp_error(state, "%s must be " HS_BYTE_SIZE_FORM " (got %s)", option, text);
    if (bytes < HS_MEMORY_LEAST_BYTES || bytes > HS_MEMORY_MOST_BYTES)
        argp_error(state, "%s must be from 1MiB to 1024TiB; a number without a unit is in bytes (got %s)", option,
                   text);
    return bytes;
}

double hs_argument_real(struct argp_state *state, const char *option, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        argp_error(state, "%s must be a number from %g to %g (got %s)", option, low, high, text);
    return value;
}
