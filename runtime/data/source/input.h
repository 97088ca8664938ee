/* SPDX-License-Identifier: MIT
 *
 * A source's bytes as they come, unpacked where its file is compressed.  Internal to runtime/data, its tests and fuzzers.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_INPUT_H
#define HS_RUNTIME_DATA_SOURCE_INPUT_H

#include "runtime/data/source/source.h"
#include "runtime/data/source/unpack.h"

typedef struct HsInput HsInput;

/* Looks at the first bytes: what they say against the source's name is refused.  The source outlives it.
 * errors: HS_EIO, HS_EFORMAT for what is no text, damaged, or not what its name says */
HsStatus hs_input_open(const HsSource *source, HsInput **input);
/* The next bytes, as many as there is room for; fewer only at the end.  errors: HS_EIO, HS_EFORMAT for what is damaged */
HsStatus hs_input_read(HsInput *input, char *bytes, size_t room, size_t *got);
/* Passes over the next bytes.  errors: as hs_input_read; fewer may be there */
HsStatus hs_input_skip(HsInput *input, size_t bytes);
void hs_input_close(HsInput *input);
/* All that follows, for the caller to free.  errors: HS_EFORMAT for more than `limit` bytes (0: no limit) */
HsStatus hs_input_read_all(HsInput *input, size_t limit, char **bytes, size_t *size);

/* How files are compressed: by the end of a name, by the first bytes; NULL: they are not (bytes.c). */
typedef struct HsPacking {
    const char *what, *extension;
    size_t offset, size;
    const char *magic;
    const HsUnpackerKind *kind;
} HsPacking;
const HsPacking *hs_packing_of_name(const char *name);
const HsPacking *hs_packing_of_bytes(const char *bytes, size_t size);
/* That the first bytes of what is to be text are of no other format.  errors: HS_EFORMAT with the mend */
HsStatus hs_source_refuse_bytes(const char *name, const char *bytes, size_t size);

#endif
