/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a table of measured choices: refused with a message, or loaded; what loads is found, and comes back from
 * what is printed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/tuning/tuning.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    HsTuningTable table, again;
    char *text = malloc(size + 1), *printed = NULL;
    size_t length = 0;
    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (hs_tuning_parse("table", text, size, &table) == HS_OK) {
        for (int i = 0; i < table.count; i++)
            if (hs_tuning_find(&table, &table.rows[i].key) != &table.rows[i])
                abort();
        FILE *stream = open_memstream(&printed, &length);
        if (!stream || hs_tuning_print(&table, stream) != HS_OK || fclose(stream) != 0 ||
            hs_tuning_parse("printed", printed, length, &again) != HS_OK || again.count != table.count)
            abort();
        hs_tuning_deinit(&again);
        hs_tuning_deinit(&table);
    } else if (hs_error_message()[0] == '\0') {
        abort();
    }
    free(printed);
    free(text);
    return 0;
}
