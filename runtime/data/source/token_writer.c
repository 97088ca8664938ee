/* SPDX-License-Identifier: MIT
 *
 * Writes a token file: header with a count of 0, tokens as they come, then the header again with their number.
 */
#include "runtime/data/source/token_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_TOKENS = 8192 };

static void put_little_endian(uint32_t value, size_t count, unsigned char *bytes)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)(value >> (8 * i));
}

static HsStatus write_header(HsTokenWriter *writer)
{
    unsigned char header[HS_TOKEN_HEADER_BYTES] = { 0 };
    put_little_endian(writer->layout->magic, 4, header);
    put_little_endian(writer->layout->version, 4, header + 4);
    put_little_endian((uint32_t)writer->count, 4, header + 8);
    if (fseek(writer->file, 0, SEEK_SET) != 0 || fwrite(header, 1, sizeof header, writer->file) != sizeof header)
        return hs_fail(HS_EIO, "%s: cannot be written: %s", writer->path, strerror(errno));
    return HS_OK;
}

HsStatus hs_token_writer_open(HsTokenWriter *writer, const char *path, int64_t vocabulary)
{
    *writer = (HsTokenWriter){ .path = path, .layout = hs_token_layouts };
    while (vocabulary > (int64_t)1 << (8 * writer->layout->token_bytes))
        writer->layout++; /* ids are int32, so the widest holds them all */
    if (asprintf(&writer->partial, "%s.tmp-%ld", path, (long)getpid()) < 0) {
        writer->partial = NULL;
        return hs_fail(HS_ENOMEM, "no memory for the path %s", path);
    }
    writer->file = fopen(writer->partial, "wb");
    if (!writer->file)
        return hs_fail(HS_EIO, "%s: cannot be written: %s", path, strerror(errno));
    return write_header(writer);
}

HsStatus hs_token_writer_add(HsTokenWriter *writer, const int32_t *tokens, int64_t count)
{
    unsigned char bytes[CHUNK_TOKENS * sizeof(int32_t)];
    const size_t width = writer->layout->token_bytes;
    if (count > INT32_MAX - writer->count)
        return hs_fail(HS_EUNSUPPORTED,
                       "%s: more than %" PRId32 " tokens, which the header of a token file cannot count: give the "
                       "sources in parts, a file each",
                       writer->path, INT32_MAX);
    for (int64_t first = 0; first < count; first += CHUNK_TOKENS) {
        const int64_t here = count - first < CHUNK_TOKENS ? count - first : CHUNK_TOKENS;
        for (int64_t i = 0; i < here; i++)
            put_little_endian((uint32_t)tokens[first + i], width, bytes + (size_t)i * width);
        if (fwrite(bytes, width, (size_t)here, writer->file) != (size_t)here)
            return hs_fail(HS_EIO, "%s: cannot be written: %s", writer->path, strerror(errno));
    }
    writer->count += count;
    return HS_OK;
}

HsStatus hs_token_writer_finish(HsTokenWriter *writer)
{
    HsStatus status = write_header(writer);
    const bool kept = fflush(writer->file) == 0 && fsync(fileno(writer->file)) == 0;
    const bool closed = fclose(writer->file) == 0 && kept;
    writer->file = NULL;
    if (status == HS_OK && (!closed || rename(writer->partial, writer->path) != 0))
        status = hs_fail(HS_EIO, "%s: cannot be written: %s", writer->path, strerror(errno));
    if (status != HS_OK)
        unlink(writer->partial);
    free(writer->partial);
    writer->partial = NULL;
    return status;
}

void hs_token_writer_abandon(HsTokenWriter *writer)
{
    if (writer->file)
        fclose(writer->file);
    if (writer->file)
        unlink(writer->partial);
    free(writer->partial);
    *writer = (HsTokenWriter){ 0 };
}
