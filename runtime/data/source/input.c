/* SPDX-License-Identifier: MIT
 *
 * See input.h.
 */
#include "runtime/data/source/input.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/array.h"
#include "runtime/data/source/parquet.h"
#include "runtime/io/files.h"

/* Looked at before anything is handed out, unpacked. */
enum { FIRST_BYTES = 1 << 16, PACKED_BYTES = 1 << 16 };

struct HsInput {
    const char *title;
    FILE *file;
    bool is_file, ended; /* ended: no more raw bytes */
    HsUnpacker unpacker;
    char packed[PACKED_BYTES];
    size_t packed_at, packed_size;
    char first[FIRST_BYTES]; /* bytes that were read ahead */
    size_t first_at, first_size;
};

static HsStatus read_raw(HsInput *input, char *bytes, size_t room, size_t *got)
{
    *got = 0;
    while (!input->ended && *got < room) {
        const size_t part = fread(bytes + *got, 1, room - *got, input->file);
        *got += part;
        if (part == 0 && ferror(input->file))
            return hs_fail(HS_EIO, "%s: cannot be read: %s", input->title, strerror(errno));
        input->ended = part == 0;
    }
    return HS_OK;
}

static HsStatus read_packed(HsInput *input, char *bytes, size_t room, size_t *got)
{
    *got = 0;
    for (bool more = true; more && *got < room;) {
        if (input->packed_at == input->packed_size) {
            input->packed_at = 0;
            HS_TRY(read_raw(input, input->packed, sizeof input->packed, &input->packed_size));
        }
        HsUnpackStep step = { .in = input->packed + input->packed_at,
                              .in_size = input->packed_size - input->packed_at,
                              .in_ended = input->ended,
                              .out = bytes + *got,
                              .out_size = room - *got };
        HS_TRY(hs_unpacker_run(&input->unpacker, &step));
        input->packed_at += step.taken;
        *got += step.made;
        more = step.made > 0 || !input->ended || input->packed_at < input->packed_size;
    }
    return HS_OK;
}

HsStatus hs_input_read(HsInput *input, char *bytes, size_t room, size_t *got)
{
    const size_t ahead = input->first_size - input->first_at, taken = ahead < room ? ahead : room;
    size_t more = 0;
    memcpy(bytes, input->first + input->first_at, taken);
    input->first_at += taken;
    if (taken < room)
        HS_TRY(input->unpacker.kind ? read_packed(input, bytes + taken, room - taken, &more)
                                    : read_raw(input, bytes + taken, room - taken, &more));
    *got = taken + more;
    return HS_OK;
}

HsStatus hs_input_skip(HsInput *input, size_t bytes)
{
    char passed[1 << 14];
    size_t got = 1;
    const size_t ahead = input->first_size - input->first_at;
    if (!input->unpacker.kind && bytes > ahead && fseek(input->file, (long)(bytes - ahead), SEEK_CUR) == 0) {
        input->first_at = input->first_size;
        input->ended = false;
        return HS_OK;
    }
    while (bytes > 0 && got > 0) {
        HS_TRY(hs_input_read(input, passed, bytes < sizeof passed ? bytes : sizeof passed, &got));
        bytes -= got;
    }
    return HS_OK;
}

/* What the first bytes are: packed ones are unpacked from then on. */
static HsStatus look(HsInput *input, const HsSource *source)
{
    const char *const name = input->title;
    HS_TRY(read_raw(input, input->first, sizeof input->first, &input->first_size));
    if (input->ended)
        HS_TRY(hs_check_fetched(name, input->first, input->first_size));
    const HsPacking *named = hs_packing_of_name(name), *packing = hs_packing_of_bytes(input->first, input->first_size);
    if (named && !packing)
        return hs_fail(HS_EFORMAT, "%s: is not %s data, as its name says; rename it or copy it again", name,
                       named->what);
    if (packing && (named || !source->kind->makes_tokens)) {
        HS_TRY(hs_unpacker_open(&input->unpacker, packing->kind, name));
        memcpy(input->packed, input->first, input->first_size);
        input->packed_size = input->first_size;
        HS_TRY(read_packed(input, input->first, sizeof input->first, &input->first_size));
    }
    /* Parquet is not text, and says itself what it is. */
    const bool is_text = !source->kind->makes_tokens && source->kind->parse != hs_parquet_parse;
    return !is_text ? HS_OK : hs_source_refuse_bytes(name, input->first, input->first_size);
}

HsStatus hs_input_open(const HsSource *source, HsInput **result)
{
    _Static_assert(PACKED_BYTES == FIRST_BYTES, "what was read ahead may turn out to be packed");
    HsInput *input = *result = calloc(1, sizeof *input);
    if (!input)
        return hs_fail(HS_ENOMEM, "no memory to read %s", source->name);
    input->title = hs_source_title(source);
    input->is_file = strcmp(source->name, HS_SOURCE_INPUT) != 0;
    input->file = stdin;
    HsStatus status = input->is_file ? hs_open_file(source->name, &input->file) : HS_OK;
    if (status == HS_OK)
        status = look(input, source);
    if (status != HS_OK) {
        hs_input_close(input);
        *result = NULL;
    }
    return status;
}

void hs_input_close(HsInput *input)
{
    if (!input)
        return;
    hs_unpacker_close(&input->unpacker);
    if (input->is_file && input->file)
        fclose(input->file);
    free(input);
}

HsStatus hs_input_read_all(HsInput *input, size_t limit, char **bytes, size_t *size)
{
    size_t capacity = 0, got = 1;
    char *all = NULL;
    *bytes = NULL;
    *size = 0;
    while (got > 0) {
        HsStatus status = hs_array_grow(&all, 1, *size + FIRST_BYTES, &capacity);
        status = status == HS_OK ? hs_input_read(input, all + *size, capacity - *size, &got)
                                 : hs_error_prefix(status, "%s", input->title);
        *size += status == HS_OK ? got : 0;
        if (status == HS_OK && limit > 0 && *size > limit)
            status =
                hs_fail(HS_EFORMAT, "%s: larger than the %zu bytes that such a file may have", input->title, limit);
        if (status != HS_OK) {
            free(all);
            return status;
        }
    }
    *bytes = all;
    return HS_OK;
}
