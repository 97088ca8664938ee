/* SPDX-License-Identifier: MIT
 *
 * Small file-system helpers.
 */
#ifndef HS_RUNTIME_IO_FILES_H
#define HS_RUNTIME_IO_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "kernels/base/status.h"

/* mkdir -p.  errors: HS_EIO naming the folder. */
HsStatus hs_make_directories(const char *path);

/* Whether something is at the path, a link followed.  errors: HS_EIO where that cannot be known: what cannot be looked
 * at is not taken for absent. */
HsStatus hs_path_exists(const char *path, bool *exists);

/* Whether two paths lead to one file, by whatever links; false where either cannot be looked at. */
bool hs_same_file(const char *one, const char *other);

/* That a file can be written at the path later: its folder is there and may be written to, and no folder has its name.
 * To be called before the work that makes it.  errors: HS_EIO naming what is wrong, and the mend */
HsStatus hs_check_output(const char *path);

/* The same of a new folder: it is not there, or is empty, and can be made.  errors: HS_EIO; HS_ECONFIG where something
 * lies in it */
HsStatus hs_check_new_folder(const char *path);

/* The first bytes of a file, to see what an output would replace: how many of `size` there are, 0 where it is not there
 * or no file. */
size_t hs_read_start(const char *path, char *bytes, size_t size);

/* Whether what is written to the stream goes into the file ("-": the standard input), as a shell's > and >> have it. */
bool hs_writes_into(FILE *stream, const char *path);

/* The bytes are the file, not a note that stands for one which was not fetched (Git LFS, git-annex, Xet).  hs_read_file
 * and hs_read_input ask this themselves.  errors: HS_EFORMAT with the command that fetches it */
HsStatus hs_check_fetched(const char *path, const char *bytes, size_t size);

/* A leading ~ as shells read it, for what no shell has seen: "~" and "~/x" begin with the home folder (HOME, else the
 * system's entry of this user); all else is copied.  The caller frees.  errors: HS_ECONFIG for "~name", which is another
 * user's folder to a shell, and where no home folder is known; HS_ENOMEM */
HsStatus hs_path_expand(const char *path, char **expanded);

/* Open for reading, which never waits: a FIFO without a writer is empty.  errors: HS_EIO, for a folder too. */
HsStatus hs_open_file(const char *path, FILE **file);

/* The whole file, NUL-terminated behind its `*length` bytes; caller frees.  errors: HS_EIO, HS_ENOMEM, and HS_EFORMAT
 * when it is larger than `limit` bytes (0: no limit for a regular file, 64 MiB for devices and pipes, which need not
 * end). */
HsStatus hs_read_file(const char *path, size_t limit, char **text, size_t *length);

/* The same of "-", which is the standard input. */
HsStatus hs_read_input(const char *path, size_t limit, char **text, size_t *length);

/* The word as a shell reads it back: in single quotes where it would be more than a word. */
void hs_write_shell_word(const char *word, FILE *out);

/* The same as a text; the caller frees.  errors: HS_ENOMEM */
HsStatus hs_shell_word(const char *word, char **text);

/* Close what open_memstream opened (`stream` NULL: it could not be) and keep its whole text.  Where memory ran out, the
 * C library may close it without an error and leave a text that is cut off, or none: *text is NULL then.  errors:
 * HS_ENOMEM. */
HsStatus hs_close_text(FILE *stream, char **text);

#endif
