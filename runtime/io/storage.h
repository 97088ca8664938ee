/* SPDX-License-Identifier: MIT
 *
 * The file operations under checkpoints and metrics: every one names the file in its error, and what must survive a
 * crash is fsynced before it returns.
 */
#ifndef HS_RUNTIME_IO_STORAGE_H
#define HS_RUNTIME_IO_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/base/status.h"

/* "folder/name" on the heap; the caller frees.  errors: HS_ENOMEM */
HsStatus hs_storage_join(const char *folder, const char *name, char **path);

/* The folder that a path's file lies in, "." where it names none; the caller frees.  errors: HS_ENOMEM */
HsStatus hs_storage_folder(const char *path, char **folder);

/* All bytes to an open file, however many calls it takes.  errors: HS_EIO naming `path` */
HsStatus hs_storage_write_all(int descriptor, const char *path, const void *bytes, size_t size);

/* `size` bytes of an open file from `offset` on, however many calls it takes.  errors: HS_EIO naming `path`, also where
 * it ends before. */
HsStatus hs_storage_read_at(int descriptor, const char *path, void *bytes, size_t size, int64_t offset);

/* A new file (an old one is emptied) with these bytes, fsynced. */
HsStatus hs_storage_write_file(const char *path, const void *bytes, size_t size);

/* fsync of a file or folder by path. */
HsStatus hs_storage_sync(const char *path);

/* XXH3-64 of bytes in memory. */
uint64_t hs_storage_hash(const void *bytes, size_t size);

/* XXH3-64 of the file's bytes, and how many there are. */
HsStatus hs_storage_checksum(const char *path, uint64_t *checksum, int64_t *size);

/* Names in a folder, sorted bytewise, without "." and "..". */
typedef struct HsFolderListing {
    char **names;
    int count;
} HsFolderListing;
HsStatus hs_storage_list(const char *folder, HsFolderListing *listing);
void hs_storage_list_free(HsFolderListing *listing);

/* Whether the folder has an entry of that name.  errors: as hs_path_exists */
HsStatus hs_storage_has(const char *folder, const char *name, bool *exists);

/* Removes a file, or a folder with all that is in it.  Links are removed, never followed. */
HsStatus hs_storage_remove(const char *path);

/* The file holds `text` whole or stays as it was: written under a temporary name, then renamed.  text NULL: there
 * was no memory for it.  errors: HS_ENOMEM, HS_EIO naming the file */
HsStatus hs_storage_replace_text(const char *path, const char *text);
/* The same of what `print` writes: all of it in memory before the file is touched. */
typedef HsStatus (*HsPrinter)(FILE *stream, const void *user);
HsStatus hs_storage_replace_printed(const char *path, HsPrinter print, const void *user);

#endif
