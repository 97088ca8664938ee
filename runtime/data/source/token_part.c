/* SPDX-License-Identifier: MIT
 *
 * Reading parts; see token_part.h.
 */
#include "runtime/data/source/token_part.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "kernels/base/log.h"
#include "runtime/data/source/token_part_file.h"
#include "runtime/io/storage.h"

enum { CHUNK_BYTES = 1 << 20, DOCUMENTS_AT_ONCE = 256 };

/* The header, if the file has one that is whole and fits its size. */
static bool read_header(int descriptor, const char *path, PartHeader *header)
{
    struct stat about;
    if (fstat(descriptor, &about) != 0 || about.st_size < PART_HEADER_BYTES ||
        hs_storage_read_at(descriptor, path, header, sizeof *header, 0) != HS_OK)
        return false;
    return memcmp(header->magic, PART_MAGIC, sizeof header->magic) == 0 &&
           header->own == hs_storage_hash(header, offsetof(PartHeader, own)) && header->bytes == about.st_size;
}

static bool is_unchanged(int descriptor, const PartHeader *header)
{
    struct stat about;
    return fstat(descriptor, &about) == 0 && about.st_mtim.tv_sec == header->changed_s &&
           about.st_mtim.tv_nsec == header->changed_ns;
}

static HsStatus check_sum(int descriptor, const char *path, const PartHeader *header, bool *right)
{
    XXH3_state_t *hash = XXH3_createState();
    char *chunk = malloc(CHUNK_BYTES);
    HsStatus status = hash && chunk ? HS_OK : hs_fail(HS_ENOMEM, "no memory to check %s", path);
    if (status == HS_OK)
        XXH3_64bits_reset(hash);
    for (int64_t at = PART_HEADER_BYTES; status == HS_OK && at < header->bytes; at += CHUNK_BYTES) {
        const int64_t left = header->bytes - at;
        const size_t size = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        status = hs_storage_read_at(descriptor, path, chunk, size, at);
        if (status == HS_OK)
            XXH3_64bits_update(hash, chunk, size);
    }
    *right = status == HS_OK && XXH3_64bits_digest(hash) == header->checksum;
    XXH3_freeState(hash);
    free(chunk);
    return status;
}

/* That it was used now, for the cache's limit; the time of its last change stays what the header says. */
static void note_use(int descriptor, const PartHeader *header)
{
    const struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
                                       { .tv_sec = header->changed_s, .tv_nsec = header->changed_ns } };
    (void)futimens(descriptor, times);
}

static HsStatus check(int descriptor, const char *path, bool verify, const PartHeader *header, bool *there)
{
    *there = true;
    if (verify || !is_unchanged(descriptor, header))
        HS_TRY(check_sum(descriptor, path, header, there));
    if (!*there)
        hs_warn("%s: damaged, and not used: its checksum is another; the text is tokenized anew", path);
    else
        note_use(descriptor, header);
    return HS_OK;
}

static bool same_place(const HsEncodingPlace *a, const HsEncodingPlace *b)
{
    return a->unit.source == b->unit.source && a->unit.inside == b->unit.inside && a->unit.offset == b->unit.offset &&
           a->unit.record == b->unit.record && a->text_bytes == b->text_bytes && a->text_hash == b->text_hash;
}

static bool is_wanted(const HsPartAbout *about, const HsPartAbout *wanted)
{
    return about->key.low == wanted->key.low && about->key.high == wanted->key.high && about->index == wanted->index &&
           same_place(&about->from, &wanted->from);
}

HsStatus hs_token_part_open(const char *path, const HsPartAbout *wanted, bool verify, HsTokenPart *part, bool *there)
{
    PartHeader header;
    *part = (HsTokenPart){ .descriptor = -1 };
    *there = false;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return errno == ENOENT || errno == ENOTDIR ? HS_OK
                                                   : hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    (void)flock(descriptor,
                LOCK_SH | LOCK_NB); /* where files cannot be locked, nothing keeps others from removing it */
    HsStatus status = HS_OK;
    if (!read_header(descriptor, path, &header))
        hs_warn("%s: damaged, and not used: the text is tokenized anew", path);
    else if (is_wanted(&header.about, wanted))
        status = check(descriptor, path, verify, &header, there);
    char *const name = *there ? strdup(path) : NULL;
    if (*there && !name)
        status = hs_fail(HS_ENOMEM, "no memory for the path %s", path);
    if (!name) {
        *there = false;
        close(descriptor);
        return status;
    }
    *part = open_part(&header, name, descriptor);
    return HS_OK;
}

bool hs_token_part_look(const char *path, HsPartAbout *about)
{
    PartHeader header;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_part = descriptor >= 0 && read_header(descriptor, path, &header);
    if (descriptor >= 0)
        close(descriptor);
    if (is_part)
        *about = header.about;
    return is_part;
}

void hs_token_part_close(HsTokenPart *part)
{
    if (part->descriptor >= 0)
        close(part->descriptor);
    free(part->path);
    *part = (HsTokenPart){ .descriptor = -1 };
}

static HsEncodedDocument document_of(const PartDocument *kept)
{
    return (HsEncodedDocument){ .end = kept->end,
                                .prompt = kept->prompt,
                                .bytes = kept->bytes,
                                .hash = kept->hash,
                                .prompt_hash = kept->prompt_hash,
                                .source = kept->source,
                                .nats = kept->nats,
                                .ends = kept->flags & PART_ENDS,
                                .is_chat = kept->flags & PART_CHAT,
                                .is_tokens = kept->flags & PART_TOKENS,
                                .is_text_file = kept->flags & PART_TEXT_FILE,
                                .masked = kept->flags & PART_MASKED };
}

HsStatus hs_token_part_documents(const HsTokenPart *part, int64_t first, int64_t count, HsEncodedDocument *documents)
{
    PartDocument kept[DOCUMENTS_AT_ONCE];
    for (int64_t done = 0; done < count;) {
        const int64_t some = count - done < DOCUMENTS_AT_ONCE ? count - done : DOCUMENTS_AT_ONCE;
        HS_TRY(hs_storage_read_at(part->descriptor, part->path, kept, (size_t)some * sizeof *kept,
                                  part->documents_at + (first + done) * (int64_t)sizeof *kept));
        for (int64_t i = 0; i < some; i++)
            documents[done + i] = document_of(&kept[i]);
        done += some;
    }
    return HS_OK;
}
