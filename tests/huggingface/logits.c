/* SPDX-License-Identifier: MIT
 *
 * logits FOLDER TOKENS [KEY=VALUE...]: the logits after each token of the file TOKENS (i32, little-endian), as f32 on
 * standard output, by the path that generation takes.  FOLDER as `trainer generate --checkpoint` takes it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/commands/loaded_model.h"
#include "runtime/engine/decode.h"
#include "runtime/io/files.h"

static HsStatus write_logits(HsLoadedModel *loaded, const int32_t *tokens, int64_t count)
{
    HsDecoder *decoder = NULL;
    HsStatus status = hs_decoder_create(&loaded->model, &loaded->engine.context, 1, count, &decoder);
    for (int64_t i = 0; i < count && status == HS_OK; i++) {
        const float *logits = NULL;
        status = hs_decoder_feed(decoder, &loaded->engine.context, tokens + i, 1, &logits);
        if (status == HS_OK)
            fwrite(logits, sizeof *logits, (size_t)loaded->model.vocabulary, stdout);
    }
    hs_decoder_destroy(decoder);
    return status;
}

int main(int argc, char **argv)
{
    HsLoadedModel loaded;
    char *bytes = NULL;
    size_t size = 0;
    if (argc < 3)
        return 2;
    HsStatus status = hs_read_file(argv[2], 1 << 24, &bytes, &size);
    if (status == HS_OK) {
        status = hs_loaded_model_init(&loaded, argv[1], argc - 3, (const char *const *)(argv + 3));
        if (status == HS_OK)
            status = write_logits(&loaded, (const int32_t *)(const void *)bytes, (int64_t)(size / sizeof(int32_t)));
        hs_loaded_model_deinit(&loaded);
    }
    free(bytes);
    if (status != HS_OK)
        fprintf(stderr, "error: %s\n", hs_error_message());
    return status == HS_OK ? 0 : 1;
}
