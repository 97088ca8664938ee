/* SPDX-License-Identifier: MIT
 *
 * The layout of a part's file.  Private to token_part*.c.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_TOKEN_PART_FILE_H
#define HS_RUNTIME_DATA_SOURCE_TOKEN_PART_FILE_H

#include "runtime/data/source/token_part.h"

enum { PART_HEADER_BYTES = 1024 };
#define PART_MAGIC "HSTOKENS"

/* In the machine's own byte order: a cache is not carried to others. */
typedef struct PartHeader {
    char magic[8];
    HsPartAbout about;
    int64_t mask_at, documents_at, bytes;
    int64_t changed_s, changed_ns; /* of the file, when it was finished */
    uint64_t checksum;             /* XXH3-64 of all bytes behind the header */
    uint64_t own;                  /* the same of the header in front of this */
} PartHeader;
_Static_assert(sizeof(PartHeader) <= PART_HEADER_BYTES, "a part's header");

typedef struct PartDocument {
    int64_t end, bytes, prompt;
    uint64_t hash, prompt_hash;
    double nats;
    int32_t source;
    uint32_t flags;
    int64_t unused;
} PartDocument;
_Static_assert(sizeof(PartDocument) == 64, "a part's document");

/* An open file's; takes the name. */
static inline HsTokenPart open_part(const PartHeader *header, char *name, int descriptor)
{
    return (HsTokenPart){ .about = header->about,
                          .path = name,
                          .descriptor = descriptor,
                          .tokens_at = PART_HEADER_BYTES,
                          .mask_at = header->mask_at,
                          .documents_at = header->documents_at,
                          .bytes = header->bytes };
}

enum { PART_ENDS = 1, PART_CHAT = 2, PART_TOKENS = 4, PART_TEXT_FILE = 8, PART_MASKED = 16 };

#endif
