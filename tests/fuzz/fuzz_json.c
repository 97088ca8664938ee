/* SPDX-License-Identifier: MIT
 *
 * JSON: what parses must survive being written and parsed again, to the same text.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/io/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    HsJson *root = NULL;
    if (hs_json_parse("fuzz", (const char *)bytes, size, &root) != HS_OK)
        return 0;
    char *text = hs_json_write(root, size % 2 == 0);
    assert(text);
    HsJson *again = NULL;
    HsStatus status = hs_json_parse("written", text, strlen(text), &again);
    assert(status == HS_OK);
    char *text_again = hs_json_write(again, size % 2 == 0);
    assert(text_again && strcmp(text, text_again) == 0);
    (void)status;
    int64_t integer = 0;
    (void)hs_json_need_integer("fuzz", root, "step", &integer);
    free(text_again);
    free(text);
    hs_json_destroy(again);
    hs_json_destroy(root);
    return 0;
}
