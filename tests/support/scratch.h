/* SPDX-License-Identifier: MIT
 *
 * A fresh folder per test, under TMPDIR or /tmp, removed at the end; and short file helpers that fail the test.
 */
#ifndef HS_TESTS_SUPPORT_SCRATCH_H
#define HS_TESTS_SUPPORT_SCRATCH_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/io/storage.h"

typedef struct Scratch {
    char folder[256];
} Scratch;

static inline Scratch scratch_make(void)
{
    Scratch scratch;
    const char *parent = getenv("TMPDIR");
    snprintf(scratch.folder, sizeof scratch.folder, "%s/hs-test-XXXXXX", parent ? parent : "/tmp");
    cr_assert_not_null(mkdtemp(scratch.folder));
    return scratch;
}

static inline void scratch_remove(const Scratch *scratch)
{
    cr_assert_eq(hs_storage_remove(scratch->folder), HS_OK, "%s", hs_error_message());
}

/* folder/name in a buffer of a small ring: good for the few paths of one statement. */
static inline const char *scratch_path(const Scratch *scratch, const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch->folder, name);
    return path;
}

static inline void scratch_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

/* The whole file with a NUL behind it; the caller frees. */
static inline char *scratch_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    size_t capacity = 1 << 20;
    char *bytes = malloc(capacity + 1);
    cr_assert_not_null(bytes);
    *size = fread(bytes, 1, capacity, file);
    cr_assert_lt(*size, capacity, "larger than a test's file should be");
    bytes[*size] = '\0';
    fclose(file);
    return bytes;
}

static inline bool scratch_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

#endif
