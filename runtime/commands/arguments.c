/* SPDX-License-Identifier: MIT
 *
 * What several commands' argument parsers share.
 */
#include "runtime/commands/arguments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

HsStatus hs_arguments_parse(const struct argp *argp, int argc, char **argv, void *input)
{
    const error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    if (error == 0)
        return HS_OK;
    if (error == ENOMEM)
        return hs_fail(HS_ENOMEM, "no memory to read the command line");
    return hs_fail(HS_ECONFIG, "the command line cannot be read: %s", strerror(error));
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

double hs_argument_real(struct argp_state *state, const char *option, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= low && value <= high))
        argp_error(state, "%s must be a number from %g to %g (got %s)", option, low, high, text);
    return value;
}
