/* SPDX-License-Identifier: MIT
 *
 * What several commands' argument parsers share.
 */
#include "runtime/commands/arguments.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/commands/command_line.h"
#include "runtime/io/byte_size.h"
#include "runtime/launch/launch.h"

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
    HS_TRY(hs_command_line_check(argp, argc, argv));
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
    /* The later one counts, so that a script can end with its caller's words.  Processes that this one starts say nothing. */
    const size_t key = strcspn(word, "=") + 1;
    for (int i = overrides->count - 1; i >= 0 && !hs_launch_is_child(); i--)
        if (strncmp(overrides->items[i], word, key) == 0) {
            if (strcmp(overrides->items[i], word) != 0)
                hs_warn("%.*s is set twice: %s counts, and %s does not", (int)key - 1, word, word + key,
                        overrides->items[i] + key);
            break;
        }
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
