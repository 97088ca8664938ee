/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a configuration: refused with a message, or loaded; what loads prints, and what is printed loads to the
 * same values.  A first byte of '!' makes the first line an override.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort unless the configuration survives being printed. */
static void check_prints_back(const HsConfig *config)
{
    char *text = NULL, differing[256];
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream || hs_config_print(config, stream, length % 2 == 0) != HS_OK || fclose(stream) != 0)
        abort();
    HsConfig again;
    if (hs_config_parse(&again, "printed", text, length, 0, NULL) != HS_OK)
        abort();
    if (hs_config_differences(config, &again, HS_RESUME_ANY, NULL, differing, sizeof differing) != 0)
        abort();
    hs_config_deinit(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    char override[256] = "";
    if (size > 0 && text[0] == '!') {
        const char *end = memchr(text, '\n', size);
        size_t length = end ? (size_t)(end - text) : size;
        snprintf(override, sizeof override, "%.*s", (int)(length < 255 ? length : 255) - 1, text + 1);
        text += length;
        size -= length;
    }
    const char *const overrides[] = { override };
    HsConfig config;
    if (hs_config_parse(&config, "fuzz", text, size, override[0] != '\0', overrides) != HS_OK) {
        if (hs_error_message()[0] == '\0')
            abort();
        return 0;
    }
    check_prints_back(&config);
    hs_config_deinit(&config);
    return 0;
}
