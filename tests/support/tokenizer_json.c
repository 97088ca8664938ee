/* SPDX-License-Identifier: MIT
 *
 * See tokenizer_json.h.
 */
#include "tests/support/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>

char *tokenizer_json(const char *vocab, const char *merges, const char *model, const char *pre, const char *root)
{
    char *text = NULL;
    size_t length = 0;
    FILE *stream = open_memstream(&text, &length);
    if (!stream)
        abort();
    fprintf(stream, "{\"pre_tokenizer\":%s%s,\"model\":{\"type\":\"BPE\"%s,\"merges\":[%s],\"vocab\":{", pre, root,
            model, merges);
    int others = 256;
    for (int byte = 0; byte < 256; byte++) {
        int itself = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
        fprintf(stream, "%s\"\\u%04x\":%d", byte > 0 ? "," : "", itself ? byte : others, byte);
        others += !itself;
    }
    fprintf(stream, "%s}}}", vocab);
    if (fclose(stream) != 0)
        abort();
    return text;
}
