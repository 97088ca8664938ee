/* SPDX-License-Identifier: MIT
 *
 * Writing parts; see token_part.h.  Tokens go to the file as they come; mask and documents, of which it is not known how
 * many there will be, to two files without a name, and behind the tokens at the end.  So memory does not grow with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "runtime/data/source/token_part_file.h"
#include "runtime/io/storage.h"

enum { CHUNK_TOKENS = 16384, COPY_BYTES = 1 << 20 };

struct HsPartWriter {
    HsPartAbout about;
    char *path, *partial; /* NULL: in memory */
    int first_source;
    FILE *file, *mask, *documents;
    bool finished;
    XXH3_state_t *hash; /* of all behind the header */
    unsigned bits;      /* of the mask that make no byte yet, the lowest first */
    int bit_count;
    unsigned char bytes[CHUNK_TOKENS * sizeof(uint32_t)];
};

static HsStatus fail_write(const HsPartWriter *writer)
{
    return hs_fail(HS_EIO, "%s: cannot be written: %s", writer->path ? writer->path : "memory", strerror(errno));
}

static FILE *open_unnamed(void)
{
    const int descriptor = memfd_create("halfstep", MFD_CLOEXEC);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w+b") : NULL;
    if (descriptor >= 0 && !file)
        close(descriptor);
    return file;
}

/* Next to the part, and without a name: what is left of it goes with the process. */
static FILE *open_aside(const HsPartWriter *writer, const char *what)
{
    char *name = NULL;
    if (!writer->path)
        return open_unnamed();
    if (asprintf(&name, "%s.%s", writer->partial, what) < 0)
        return NULL;
    FILE *file = fopen(name, "w+b");
    if (file)
        unlink(name);
    free(name);
    return file;
}

static HsStatus open_files(HsPartWriter *writer)
{
    const char header[PART_HEADER_BYTES] = { 0 };
    if (writer->path && asprintf(&writer->partial, "%s.tmp-%ld", writer->path, (long)getpid()) < 0) {
        writer->partial = NULL;
        return hs_fail(HS_ENOMEM, "no memory for the path %s", writer->path);
    }
    writer->file = writer->path ? fopen(writer->partial, "w+b") : open_unnamed();
    writer->mask = writer->file ? open_aside(writer, "mask") : NULL;
    writer->documents = writer->mask ? open_aside(writer, "documents") : NULL;
    if (!writer->documents || fwrite(header, 1, sizeof header, writer->file) != sizeof header)
        return fail_write(writer);
    return HS_OK;
}

HsStatus hs_part_writer_create(const char *path, const HsPartAbout *about, int64_t vocabulary, int first_source,
                               HsPartWriter **result)
{
    HsPartWriter *writer = *result = calloc(1, sizeof *writer);
    if (writer)
        writer->hash = XXH3_createState();
    if (writer && path)
        writer->path = strdup(path);
    if (!writer || !writer->hash || (path && !writer->path)) {
        hs_part_writer_destroy(writer);
        *result = NULL;
        return hs_fail(HS_ENOMEM, "no memory to keep tokens");
    }
    XXH3_64bits_reset(writer->hash);
    writer->about = *about;
    writer->about.width = vocabulary <= UINT16_MAX + 1 ? 2 : 4;
    writer->first_source = first_source;
    const HsStatus status = open_files(writer);
    if (status != HS_OK) {
        hs_part_writer_destroy(writer);
        *result = NULL;
    }
    return status;
}

static HsStatus put_tokens(HsPartWriter *writer, const int32_t *tokens, int64_t count)
{
    const size_t width = (size_t)writer->about.width;
    for (int64_t first = 0; first < count; first += CHUNK_TOKENS) {
        const size_t some = count - first < CHUNK_TOKENS ? (size_t)(count - first) : CHUNK_TOKENS;
        for (size_t i = 0; i < some; i++)
            for (size_t b = 0; b < width; b++)
                writer->bytes[i * width + b] = (unsigned char)((uint32_t)tokens[(size_t)first + i] >> (8 * b));
        XXH3_64bits_update(writer->hash, writer->bytes, some * width);
        if (fwrite(writer->bytes, width, some, writer->file) != some)
            return fail_write(writer);
    }
    return HS_OK;
}

/* `count` tokens that count as `mask` says; NULL: all do. */
static HsStatus put_mask(HsPartWriter *writer, const uint8_t *mask, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        writer->bits |= (unsigned)(!mask || mask[i]) << writer->bit_count;
        if (++writer->bit_count < 8)
            continue;
        if (putc_unlocked((int)writer->bits, writer->mask) == EOF)
            return fail_write(writer);
        writer->bits = 0;
        writer->bit_count = 0;
    }
    return HS_OK;
}

static HsStatus put_document(HsPartWriter *writer, const HsEncodedDocument *document, bool of_file)
{
    HsPartAbout *about = &writer->about;
    const PartDocument kept = { .end = about->tokens + document->end,
                                .bytes = document->bytes,
                                .prompt = document->prompt,
                                .hash = document->hash,
                                .prompt_hash = document->prompt_hash,
                                .nats = document->nats,
                                .source = document->source - writer->first_source,
                                .flags = (document->ends ? PART_ENDS : 0u) | (document->is_chat ? PART_CHAT : 0u) |
                                         (document->is_tokens ? PART_TOKENS : 0u) |
                                         (document->is_text_file ? PART_TEXT_FILE : 0u) |
                                         (document->masked ? PART_MASKED : 0u) };
    about->documents++;
    about->pairs += document->prompt_hash != 0;
    about->chats += document->is_chat;
    about->known += !isnan(document->nats);
    about->joined += document->ends && of_file;
    return fwrite(&kept, sizeof kept, 1, writer->documents) == 1 ? HS_OK : fail_write(writer);
}

HsStatus hs_part_writer_add(HsPartWriter *writer, const HsEncodedUnit *unit)
{
    HsPartAbout *about = &writer->about;
    HS_TRY(put_tokens(writer, unit->tokens, unit->count));
    if (unit->mask && !about->masked) {
        about->masked = 1;
        HS_TRY(put_mask(writer, NULL, about->tokens));
    }
    if (about->masked)
        HS_TRY(put_mask(writer, unit->mask, unit->count));
    for (int64_t i = 0; i < unit->document_count; i++)
        HS_TRY(put_document(writer, &unit->documents[i], unit->from->kind != NULL));
    about->tokens += unit->count;
    about->text_bytes += unit->bytes;
    about->unrendered_contents += unit->unrendered_contents;
    about->quoted_arguments += unit->quoted_arguments;
    return HS_OK;
}

/* Behind what the part's file has; *at: where. */
static HsStatus append(HsPartWriter *writer, FILE *from, int64_t *at)
{
    size_t got;
    char *chunk = malloc(COPY_BYTES);
    HsStatus status = chunk ? HS_OK : hs_fail(HS_ENOMEM, "no memory to keep tokens");
    /* Eight bytes divide what follows the header, so that documents lie straight. */
    for (long place = ftell(writer->file); status == HS_OK && place % 8 != 0; place++) {
        const char zero = 0;
        XXH3_64bits_update(writer->hash, &zero, 1);
        if (putc(0, writer->file) == EOF)
            status = fail_write(writer);
    }
    *at = ftell(writer->file);
    if (status == HS_OK && (fflush(from) != 0 || fseek(from, 0, SEEK_SET) != 0))
        status = fail_write(writer);
    while (status == HS_OK && (got = fread(chunk, 1, COPY_BYTES, from)) > 0) {
        XXH3_64bits_update(writer->hash, chunk, got);
        if (fwrite(chunk, 1, got, writer->file) != got)
            status = fail_write(writer);
    }
    if (status == HS_OK && ferror(from))
        status = fail_write(writer);
    free(chunk);
    return status;
}

/* The header says when the file was changed last, which is when it was written: so the time is set after that. */
static HsStatus write_header(HsPartWriter *writer, PartHeader *header)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    memcpy(header->magic, PART_MAGIC, sizeof header->magic);
    header->about = writer->about;
    header->changed_s = now.tv_sec;
    header->changed_ns = (int64_t)(writer->about.key.low % 1000000000);
    header->checksum = XXH3_64bits_digest(writer->hash);
    header->own = hs_storage_hash(header, offsetof(PartHeader, own));
    if (fseek(writer->file, 0, SEEK_SET) != 0 || fwrite(header, sizeof *header, 1, writer->file) != 1 ||
        fflush(writer->file) != 0)
        return fail_write(writer);
    if (!writer->path)
        return HS_OK;
    const struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
                                       { .tv_sec = header->changed_s, .tv_nsec = header->changed_ns } };
    const int descriptor = fileno(writer->file);
    return fsync(descriptor) == 0 && futimens(descriptor, times) == 0 ? HS_OK : fail_write(writer);
}

HsStatus hs_part_writer_finish(HsPartWriter *writer, const HsPartAbout *ending, HsTokenPart *part)
{
    PartHeader header = { 0 };
    writer->about.found_count = ending->found_count;
    memcpy(writer->about.found, ending->found, sizeof ending->found);
    writer->about.next = ending->next;
    writer->about.last = ending->last;
    if (writer->bit_count > 0 && putc((int)writer->bits, writer->mask) == EOF)
        return fail_write(writer);
    HS_TRY(append(writer, writer->mask, &header.mask_at));
    HS_TRY(append(writer, writer->documents, &header.documents_at));
    header.mask_at = writer->about.masked ? header.mask_at : 0;
    header.bytes = ftell(writer->file);
    HS_TRY(write_header(writer, &header));
    char *name = strdup(writer->path ? writer->path : "the tokens in memory");
    const int descriptor = name ? fcntl(fileno(writer->file), F_DUPFD_CLOEXEC, 0) : -1;
    if (descriptor < 0 || (writer->path && rename(writer->partial, writer->path) != 0)) {
        const int code = errno;
        if (descriptor >= 0)
            close(descriptor);
        free(name);
        errno = code;
        return fail_write(writer);
    }
    writer->finished = true;
    (void)flock(descriptor, LOCK_SH | LOCK_NB);
    *part = open_part(&header, name, descriptor);
    return HS_OK;
}

void hs_part_writer_destroy(HsPartWriter *writer)
{
    if (!writer)
        return;
    FILE *const files[] = { writer->file, writer->mask, writer->documents };
    for (int i = 0; i < 3; i++)
        if (files[i])
            fclose(files[i]);
    if (writer->partial && !writer->finished)
        unlink(writer->partial);
    XXH3_freeState(writer->hash);
    free(writer->path);
    free(writer->partial);
    free(writer);
}
