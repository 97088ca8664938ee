/* SPDX-License-Identifier: MIT
 *
 * What folders and patterns find, and is left out all the same: tasks.N.exclude.
 *
 * A pattern without a slash is one of names, of files and of folders at any depth, as .gitignore has it.  One with a
 * slash is a path or a pattern of paths, as in tasks.N.train; it is expanded once, and found again by real paths, however
 * the text's own pattern spells them.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/array.h"
#include "runtime/data/source/glob.h"
#include "runtime/data/source/source.h"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The real path; of a link to nothing, its own in the real path of its folder.  NULL: there is none; on the heap. */
static char *real_path(const char *path)
{
    char *const real = realpath(path, NULL);
    const char *const slash = strrchr(path, '/');
    struct stat about;
    if (real || lstat(path, &about) != 0)
        return real;
    char *const copy = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    char *const folder = copy ? realpath(copy, NULL) : NULL;
    char *joined = NULL;
    if (folder && asprintf(&joined, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, slash ? slash + 1 : path) < 0)
        joined = NULL;
    free(copy);
    free(folder);
    return joined;
}

/* What is not there leaves nothing out: a run that continues may have lost it. */
static HsStatus add_path(void *user, const char *path)
{
    HsExclusion *const exclusion = user;
    char *const real = real_path(path);
    if (!real)
        return HS_OK;
    const HsStatus status = hs_array_grow(&exclusion->paths, sizeof *exclusion->paths,
                                          (size_t)exclusion->path_count + 1, &exclusion->path_capacity);
    if (status == HS_OK)
        exclusion->paths[exclusion->path_count++] = real;
    else
        free(real);
    return status;
}

HsStatus hs_source_list_exclude(HsSourceList *list, const HsStringList *patterns)
{
    HsExclusion *const exclusion = &list->exclusion;
    exclusion->patterns = patterns;
    for (int i = 0; i < patterns->count; i++) {
        const char *const pattern = patterns->items[i];
        if (!strchr(pattern, '/'))
            continue;
        struct stat about;
        HS_TRY(add_path(exclusion, pattern));
        /* A file that has a bracket or a star in its very name is taken as it is, as in tasks.N.train. */
        if (hs_glob_is_pattern(pattern) && lstat(pattern, &about) != 0) {
            const HsStatus status = hs_glob_expand(pattern, add_path, exclusion);
            if (status != HS_OK && status != HS_EIO)
                return status;
        }
    }
    if (exclusion->path_count > 0)
        qsort(exclusion->paths, (size_t)exclusion->path_count, sizeof *exclusion->paths, compare_paths);
    return HS_OK;
}

/* A name of the path behind its first `named` bytes. */
static bool has_name(const HsStringList *patterns, const char *path, size_t named)
{
    char name[256];
    for (const char *at = path + (named < strlen(path) ? named : 0); *at; at += strcspn(at, "/")) {
        at += strspn(at, "/");
        const size_t length = strcspn(at, "/");
        if (length == 0 || length >= sizeof name)
            continue;
        memcpy(name, at, length);
        name[length] = '\0';
        for (int i = 0; i < patterns->count; i++)
            if (!strchr(patterns->items[i], '/') && fnmatch(patterns->items[i], name, 0) == 0)
                return true;
    }
    return false;
}

/* The path itself or a folder on its way. */
static bool has_path(const HsExclusion *exclusion, const char *path)
{
    char *const real = exclusion->path_count > 0 ? real_path(path) : NULL;
    bool found = false;
    for (char *end = real ? real + strlen(real) : NULL; end && end > real && !found; end = strrchr(real, '/')) {
        *end = '\0';
        if (real[0] != '\0')
            found = bsearch(&real, exclusion->paths, (size_t)exclusion->path_count, sizeof *exclusion->paths,
                            compare_paths) != NULL;
    }
    free(real);
    return found;
}

bool hs_source_list_excludes(HsSourceList *list, const char *path, size_t named)
{
    const HsExclusion *const exclusion = &list->exclusion;
    if (!exclusion->patterns || exclusion->patterns->count == 0)
        return false;
    const bool excluded = has_name(exclusion->patterns, path, named) || has_path(exclusion, path);
    list->exclusion.left_out += excluded;
    return excluded;
}

void hs_exclusion_deinit(HsExclusion *exclusion)
{
    for (int i = 0; i < exclusion->path_count; i++)
        free(exclusion->paths[i]);
    free(exclusion->paths);
    *exclusion = (HsExclusion){ 0 };
}
