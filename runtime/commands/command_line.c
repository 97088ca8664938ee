/* SPDX-License-Identifier: MIT
 *
 * A command line before argp reads it: what is wrong with it as a whole is found here, before any work begins.
 *
 *     --learning_rate=1e-4      a key of the configuration, written as an option
 *     --sampels, --max-tokens   the option that was meant, if one is near or another program calls it so
 *     --seed 1 --seed 2         argp would take the last and say nothing
 *     --output missing/x        its folder is not there
 *     --file ~/x, --file=~/x    the home folder, where no shell has put it in
 *
 * Words are split as getopt splits them: "--name=value", "--name value", "-xvalue", "-x value", letters without a value
 * together, and a beginning of a name for the name.
 */
#include "runtime/commands/command_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/aliases.h"
#include "runtime/config/table.h"
#include "runtime/io/files.h"

enum { OPTIONS_MOST = 64, VALUES_MOST = 256 };

/* Options that collect what they are given, by name and kind of value. */
static const struct {
    const char *name, *value;
} repeatable[] = { { "special", "TEXT" },
                   { "grid", "KEY=LIST" },
                   { "text", "PATH" },
                   { "exclude", "PATTERN" },
                   { "force-tile", "NAME[,NAME ...][:SLICES]" } };

typedef struct Line {
    const struct argp *argp;
    int argc;
    char **argv;
    int times[OPTIONS_MOST];         /* how often each row of argp->options came */
    const char *values[VALUES_MOST]; /* of repeatable options */
    int value_count;
} Line;

static bool is_row(const struct argp_option *option)
{
    return option->name || option->key;
}

static bool is(const char *text, const char *word)
{
    return strcmp(text, word) == 0;
}

/* By its whole name, or the only one that begins so; NULL: none. */
static const struct argp_option *find_option(const struct argp *argp, const char *name, size_t length)
{
    const struct argp_option *found = NULL;
    for (const struct argp_option *option = argp->options; option && is_row(option); option++) {
        if (!option->name || strncmp(option->name, name, length) != 0)
            continue;
        if (option->name[length] == '\0')
            return option;
        if (found)
            return NULL; /* argp says which it could be */
        found = option;
    }
    return found;
}

static const struct argp_option *find_letter(const struct argp *argp, char letter)
{
    for (const struct argp_option *option = argp->options; option && is_row(option); option++)
        if (option->key == letter && letter > ' ')
            return option;
    return NULL;
}

/* getopt takes a beginning of a name for the name; argp itself has two options. */
static bool begins_option(const struct argp *argp, const char *name, size_t length)
{
    for (const struct argp_option *option = argp->options; option && is_row(option); option++)
        if (option->name && strncmp(option->name, name, length) == 0)
            return true;
    return strncmp("help", name, length) == 0 || strncmp("usage", name, length) == 0;
}

/* What other programs call it, else the option nearest to an unknown one. */
static bool suggest_option(const struct argp *argp, const char *name, char near[HS_DOTTED_BYTES])
{
    char list[1024] = "help|usage";
    for (const struct argp_option *option = argp->options; option && is_row(option); option++) {
        const size_t used = strlen(list);
        if (option->name)
            snprintf(list + used, sizeof list - used, "|%s", option->name);
    }
    const char *const alias = hs_config_alias_choice("options", list, name);
    if (alias)
        snprintf(near, HS_DOTTED_BYTES, "%s", alias);
    return alias || hs_config_choice_suggest(list, name, near);
}

/* --learning_rate=1e-4: a key of the configuration, written as an option; --sampels: a slip. */
static HsStatus refuse_unknown(const struct argp *argp, const char *word, size_t length)
{
    char near[HS_DOTTED_BYTES], name[HS_DOTTED_BYTES], key[HS_DOTTED_BYTES];
    if (length == 0 || length >= sizeof name)
        return HS_OK;
    snprintf(name, sizeof name, "%.*s", (int)length, word + 2);
    const bool is_option = begins_option(argp, name, length) || suggest_option(argp, name, near);
    const bool is_section = hs_config_section_exists(name);
    if (!is_section && hs_config_key_suggest(name, key) && is(name, key))
        return hs_fail(HS_ECONFIG, "%s: a key of the configuration is written without dashes: %s%s", word, word + 2,
                       word[2 + length] == '=' ? "" : "=VALUE");
    if (is_option && !begins_option(argp, name, length))
        return hs_fail(HS_ECONFIG, "--%s is not an option of this command; did you mean --%s?", name, near);
    if (!is_option && hs_config_alias_key(name))
        return hs_fail(HS_ECONFIG, "--%s is not an option of this command; did you mean the key %s, without dashes?",
                       name, hs_config_alias_key(name));
    return HS_OK;
}

/* A file is written at the end of the work: its folder has to be there at the beginning. */
static HsStatus check_output(const struct argp_option *option, const char *path)
{
    const bool writes = is(option->name, "output") || is(option->name, "html") || is(option->name, "tune");
    if (!writes || !is(option->arg, "FILE"))
        return HS_OK;
    if (path[0] == '\0')
        return hs_fail(HS_ECONFIG, "--%s needs the name of a file", option->name);
    if (hs_check_output(path) == HS_OK)
        return HS_OK;
    char why[1024];
    snprintf(why, sizeof why, "%s", hs_error_message());
    return hs_fail(HS_ECONFIG, "--%s %s", option->name, why);
}

static bool names_path(const struct argp_option *option)
{
    static const char *const kinds[] = { "FILE", "DIR", "PATH" };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is(option->arg, kinds[i]))
            return true;
    return option->name && is(option->name, "base");
}

/* The word with the path behind its first `before` bytes expanded, in its place; it stays until the process ends. */
static HsStatus expand(char **word, size_t before)
{
    char *expanded, *whole;
    if ((*word)[before] != '~')
        return HS_OK;
    HS_TRY(hs_path_expand(*word + before, &expanded));
    const int written = asprintf(&whole, "%.*s%s", (int)before, *word, expanded);
    free(expanded);
    if (written < 0)
        return hs_fail(HS_ENOMEM, "no memory for the path %s", *word);
    *word = whole;
    return HS_OK;
}

/* value: the word that has it, from byte `before` on; NULL: none. */
static HsStatus take_option(Line *line, const struct argp_option *option, char **value, size_t before)
{
    const long row = option - line->argp->options;
    const char *const name = option->name ? option->name : "?";
    bool repeats = false;
    for (size_t i = 0; i < sizeof repeatable / sizeof *repeatable; i++)
        repeats |= is(name, repeatable[i].name) && option->arg && is(option->arg, repeatable[i].value);
    if (row < OPTIONS_MOST && ++line->times[row] > 1 && !repeats)
        return hs_fail(HS_ECONFIG, "--%s is given twice: leave one out", name);
    if (!value || !option->arg)
        return HS_OK;
    for (int i = 0; repeats && i < line->value_count; i++)
        if (is(line->values[i], *value + before))
            return hs_fail(HS_ECONFIG, "--%s %s is given twice: leave one out", name, *value + before);
    if (repeats && line->value_count < VALUES_MOST)
        line->values[line->value_count++] = *value + before;
    if (names_path(option))
        HS_TRY(expand(value, before));
    return check_output(option, *value + before);
}

/* "-abc", "-xVALUE".  *next: the word behind, which may be the value. */
static HsStatus take_letters(Line *line, int *next)
{
    char **const word = &line->argv[*next - 1];
    for (size_t i = 1; (*word)[i]; i++) {
        const struct argp_option *option = find_letter(line->argp, (*word)[i]);
        if (!option)
            return HS_OK;
        if (!option->arg) {
            HS_TRY(take_option(line, option, NULL, 0));
            continue;
        }
        if ((*word)[i + 1])
            return take_option(line, option, word, i + 1);
        return *next < line->argc ? take_option(line, option, &line->argv[(*next)++], 0) : HS_OK;
    }
    return HS_OK;
}

static HsStatus take_long(Line *line, int *next)
{
    char **const word = &line->argv[*next - 1];
    const size_t length = strcspn(*word + 2, "=");
    const struct argp_option *option = find_option(line->argp, *word + 2, length);
    if (!option)
        return refuse_unknown(line->argp, *word, length);
    if (!option->arg || (*word)[2 + length] == '=')
        return take_option(line, option, option->arg ? word : NULL, 3 + length);
    return *next < line->argc ? take_option(line, option, &line->argv[(*next)++], 0) : HS_OK;
}

HsStatus hs_command_line_check(const struct argp *argp, int argc, char **argv)
{
    Line line = { .argp = argp, .argc = argc, .argv = argv };
    const bool has_sources = argp->args_doc && strstr(argp->args_doc, "SOURCE");
    bool ended = false; /* "--": only words behind it */
    for (int next = 1; next < argc;) {
        char **const word = &argv[next++];
        if (!ended && is(*word, "--"))
            ended = true;
        else if (!ended && strncmp(*word, "--", 2) == 0)
            HS_TRY(take_long(&line, &next));
        else if (!ended && (*word)[0] == '-' && (*word)[1])
            HS_TRY(take_letters(&line, &next));
        else if (has_sources)
            HS_TRY(expand(word, 0));
    }
    return HS_OK;
}
