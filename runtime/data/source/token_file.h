/* SPDX-License-Identifier: MIT
 *
 * Token files on disk (llm.c's layout), and writing them; tokens.c draws the layout and reads it.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_TOKEN_FILE_H
#define HS_RUNTIME_DATA_SOURCE_TOKEN_FILE_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"

enum { HS_TOKEN_HEADER_BYTES = 1024 };

typedef struct HsTokenLayout {
    uint32_t magic, version;
    size_t token_bytes;
} HsTokenLayout;

enum { HS_TOKEN_LAYOUTS = 2 };
extern const HsTokenLayout hs_token_layouts[HS_TOKEN_LAYOUTS]; /* the narrower first */

/* From the first HS_TOKEN_HEADER_BYTES of a file of `size` bytes (all, where it has fewer): bytes a token.
 * errors: HS_EFORMAT with the byte, also where size and header differ */
HsStatus hs_token_file_read_header(const char *name, const char *bytes, size_t size, size_t *token_bytes);
/* errors: HS_EFORMAT where the bytes are no whole number of u16 tokens */
HsStatus hs_token_file_check_raw16(const char *name, size_t size);

/* Where tokens lie, and what they must be below. */
typedef struct HsTokenRange {
    const char *name;
    int64_t byte; /* of the first, for messages */
    size_t token_bytes;
    int64_t vocabulary;
} HsTokenRange;
/* `count` tokens of the range, from its bytes.  errors: HS_EFORMAT with the byte */
HsStatus hs_token_file_decode(const HsTokenRange *range, const char *bytes, int64_t count, int32_t *tokens);

/* That what is at the path, if anything, is a file of one of the layouts, which a new one may replace.
 * errors: HS_ECONFIG */
HsStatus hs_token_file_check_replaced(const char *path);

/* A file in the making lies next to `path` under another name, and takes its place when it is whole. */
typedef struct HsTokenWriter {
    const HsTokenLayout *layout;
    const char *path; /* borrowed */
    char *partial;
    FILE *file; /* NULL: not open */
    int64_t count;
} HsTokenWriter;

/* Of u16 tokens where the vocabulary fits, else u32.  errors: HS_EIO, HS_ENOMEM */
HsStatus hs_token_writer_open(HsTokenWriter *writer, const char *path, int64_t vocabulary);
/* errors: HS_EIO; HS_EUNSUPPORTED for more tokens than the header can count, 2^31 - 1 */
HsStatus hs_token_writer_add(HsTokenWriter *writer, const int32_t *tokens, int64_t count);
/* The header, and the file under its name.  errors: HS_EIO, which leaves nothing behind */
HsStatus hs_token_writer_finish(HsTokenWriter *writer);
/* Removes what was written so far, if it was not finished. */
void hs_token_writer_abandon(HsTokenWriter *writer);

#endif
