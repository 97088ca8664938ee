/* SPDX-License-Identifier: MIT
 *
 * Messages about keys that do not go together: they point at the one that the user wrote.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "runtime/config/table.h"

/* The origin of "mer.beta" or "tasks.1.name"; -1 for a key that does not exist. */
static int find_origin(const HsConfig *config, const char *wanted)
{
    for (int i = 0; i < hs_config_key_count; i++) {
        const HsConfigKey *key = &hs_config_key_table[i];
        for (int task = 0; task < hs_config_key_places(config, key); task++) {
            char dotted[HS_DOTTED_BYTES];
            const HsConfigKey placed = hs_config_key_of_item(key, task);
            if (strcmp(hs_config_key_dotted(&placed, dotted), wanted) == 0)
                return hs_config_origin_index(key, task);
        }
    }
    return -1;
}

HsStatus hs_config_relation_fail(const HsConfig *config, const char *first, const char *second, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    const char *const wanted[2] = { first, second };
    for (int w = 0; w < 2 && wanted[w]; w++) {
        int i = find_origin(config, wanted[w]);
        if (i < 0)
            continue;
        HsKeySource source = config->origin->key[i].source;
        if (source == HS_SOURCE_FILE)
            return hs_yaml_fail(config->origin->name, config->origin->key[i].line, config->origin->key[i].column, "%s",
                                message);
        if (source == HS_SOURCE_COMMAND_LINE)
            return hs_yaml_fail(NULL, 0, 0, "%s", message);
    }
    return hs_fail(HS_ECONFIG, "%s", message);
}
