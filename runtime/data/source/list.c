/* SPDX-License-Identifier: MIT
 *
 * From names in a configuration to a flat, sorted list of sources.
 *
 * Order is part of the promise that a run repeats: it comes from byte order of the paths, never from the order in
 * which a file system happens to list a folder.
 */
#include "runtime/data/source/source.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/base/array.h"
#include "kernels/base/log.h"
#include "runtime/data/source/glob.h"
#include "runtime/data/synthetic/synthetic.h"
#include "runtime/io/files.h"

enum { HS_FOLDER_DEPTH = 32 };

static HsStatus append(HsSourceList *list, const char *name, const HsSourceKind *kind)
{
    HS_TRY(hs_array_grow(&list->items, sizeof *list->items, (size_t)list->count + 1, &list->capacity));
    char *copy = strdup(name);
    if (!copy)
        return hs_fail(HS_ENOMEM, "%s: no memory for a list of files", name);
    list->items[list->count++] = (HsSource){ .name = copy, .kind = kind };
    return HS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const HsSource *)a)->name, ((const HsSource *)b)->name);
}

/* An editor's copy of what a file was: as text for training it would be there twice. */
static bool is_backup(const char *name)
{
    const size_t length = strlen(name);
    return name[length - 1] == '~' || (length > 2 && name[0] == '#' && name[length - 1] == '#');
}

bool hs_source_is_passed_over(const char *name)
{
    return name[0] == '.' || is_backup(name);
}

bool hs_folder_is_above(const HsFoldersAbove *above, const struct stat *about)
{
    for (; above; above = above->next)
        if (above->device == about->st_dev && above->number == about->st_ino)
            return true;
    return false;
}

static HsStatus add_path(HsSourceList *list, const char *path, const char *format, const HsFoldersAbove *above);

/* Appends a folder's files in whatever order the system lists them; the caller sorts. */
static HsStatus add_folder(HsSourceList *list, const char *path, const char *format, const HsFoldersAbove *here)
{
    HsStatus status = HS_OK;
    if (here->depth > HS_FOLDER_DEPTH)
        return hs_fail(HS_EIO, "%s: folders are nested deeper than %d", path, HS_FOLDER_DEPTH);
    DIR *folder = opendir(path);
    if (!folder)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    const struct dirent *entry;
    while (status == HS_OK && (errno = 0, entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue; /* ".", "..", and what editors and desktops hide */
        if (is_backup(entry->d_name)) {
            list->backups++;
            continue;
        }
        char *inner = NULL;
        bool has_slash = path[strlen(path) - 1] == '/';
        if (asprintf(&inner, "%s%s%s", path, has_slash ? "" : "/", entry->d_name) < 0) {
            status = hs_fail(HS_ENOMEM, "%s: no memory for a path", path);
            break;
        }
        status = add_path(list, inner, format, here);
        free(inner);
    }
    if (status == HS_OK && errno != 0)
        status = hs_fail(HS_EIO, "%s: cannot be listed: %s", path, strerror(errno));
    closedir(folder);
    return status;
}

static bool is_apart(HsSourceList *list, const char *path)
{
    char *const real = list->apart ? realpath(path, NULL) : NULL;
    const size_t length = real ? strlen(list->apart) : 0;
    const bool below = real && strncmp(real, list->apart, length) == 0 && (real[length] == '/' || !real[length]);
    free(real);
    list->apart_files += below;
    return below;
}

/* above: the folder that it was found in; NULL: it was named itself. */
static HsStatus add_path(HsSourceList *list, const char *path, const char *format, const HsFoldersAbove *above)
{
    struct stat about;
    if (above && (is_apart(list, path) || hs_source_list_excludes(list, path, list->named)))
        return HS_OK;
    if (stat(path, &about) != 0) {
        const int code = errno;
        const bool link = lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
        return hs_fail(HS_EIO, "%s: cannot be read: %s%s", path, link ? "what this symbolic link points to: " : "",
                       strerror(code));
    }
    if (S_ISDIR(about.st_mode) && hs_folder_is_above(above, &about)) {
        list->loops++;
        return HS_OK;
    }
    if (S_ISDIR(about.st_mode))
        return add_folder(list, path, format,
                          &(HsFoldersAbove){ above, about.st_dev, about.st_ino, above ? above->depth + 1 : 0 });
    if (!S_ISREG(about.st_mode))
        return hs_fail(HS_EIO, "%s: is neither a file nor a folder", path);
    const HsSourceKind *kind;
    HS_TRY(hs_source_kind_choose(path, format, &kind));
    return append(list, path, kind);
}

typedef struct Taker {
    HsSourceList *list;
    const char *format;
} Taker;

static HsStatus take_match(void *user, const char *path)
{
    const Taker *taker = user;
    return add_path(taker->list, path, taker->format, &(HsFoldersAbove){ .depth = 1 });
}

/* A file that several of a list's names stand for, by links. */
typedef struct LinkedFile {
    dev_t device;
    ino_t number;
    int item;
    bool typed; /* the name says what it is */
} LinkedFile;

/* The names of one file next to each other, first the one that says what it is, then in their order. */
static int compare_files(const void *a, const void *b)
{
    const LinkedFile *const left = a, *const right = b;
    if (left->device != right->device)
        return left->device < right->device ? -1 : 1;
    if (left->number != right->number)
        return left->number < right->number ? -1 : 1;
    if (left->typed != right->typed)
        return left->typed ? -1 : 1;
    return (left->item > right->item) - (left->item < right->item);
}

static bool is_typed(const char *name)
{
    const char *const slash = strrchr(name, '/');
    return strchr(slash ? slash : name, '.') != NULL;
}

/* Of the names of one file, in items[first ...], keeps one: a download's cache has each file as a blob, and links to it;
 * and a pattern finds one name twice, by way of ** and of a folder, say. */
static HsStatus drop_links(HsSourceList *list, int first)
{
    const int count = list->count - first;
    LinkedFile *const files = malloc((size_t)count * sizeof *files);
    if (!files)
        return hs_fail(HS_ENOMEM, "no memory for a list of %d files", count);
    for (int i = 0; i < count; i++) {
        const char *const name = list->items[first + i].name;
        struct stat about = { 0 };
        const bool found = stat(name, &about) == 0; /* what is gone by now is said where it is read */
        files[i] = (LinkedFile){ found ? about.st_dev : 0, found ? about.st_ino : (ino_t)i, first + i, is_typed(name) };
    }
    qsort(files, (size_t)count, sizeof *files, compare_files);
    for (int i = 1, one = 0; i < count; i++) {
        if (files[i].device == 0 || files[i].device != files[one].device || files[i].number != files[one].number) {
            one = i;
            continue;
        }
        list->linked += strcmp(list->items[files[i].item].name, list->items[files[one].item].name) != 0;
        free(list->items[files[i].item].name);
        list->items[files[i].item].name = NULL;
    }
    free(files);
    int kept = first;
    for (int i = first; i < list->count; i++)
        if (list->items[i].name)
            list->items[kept++] = list->items[i];
    list->count = kept;
    return HS_OK;
}

static HsStatus add_synthetic(HsSourceList *list, const char *name)
{
    const char *wanted = name + strlen(HS_SYNTHETIC_PREFIX);
    if (hs_synthetic_find(wanted))
        return append(list, name, NULL);
    char known[256] = "";
    size_t used = 0;
    for (int i = 0; i < hs_synthetic_count && used < sizeof known; i++)
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", hs_synthetic_table[i].name);
    return hs_fail(HS_ECONFIG, "%s: there is no synthetic source `%s`; there are %s", name, wanted, known);
}

HsStatus hs_source_list_add_input(HsSourceList *list, const char *format)
{
    const HsSourceKind *kind;
    HS_TRY(hs_source_kind_choose(HS_SOURCE_INPUT, format, &kind));
    return append(list, HS_SOURCE_INPUT, kind);
}

HsStatus hs_source_list_add(HsSourceList *list, const char *name, const char *format)
{
    if (name[0] == '\0')
        return hs_fail(HS_ECONFIG, "an empty path; name a file, a folder, a glob or synthetic:NAME");
    if (strncmp(name, HS_SYNTHETIC_PREFIX, strlen(HS_SYNTHETIC_PREFIX)) == 0)
        return add_synthetic(list, name);
    const int before = list->count;
    Taker taker = { list, format };
    struct stat about;
    /* A file that has a bracket or a star in its very name is taken as it is. */
    const bool absent = stat(name, &about) != 0, pattern = absent && hs_glob_is_pattern(name);
    list->named = pattern ? hs_glob_front(name) : strlen(name);
    HS_TRY(pattern ? hs_glob_expand(name, take_match, &taker) : add_path(list, name, format, NULL));
    if (list->count == before)
        return hs_fail(HS_EIO,
                       "%s: the folder holds no files (names that begin with a dot, editors' backups, which end in ~, "
                       "and what the task excludes are left out)",
                       name);
    qsort(list->items + before, (size_t)(list->count - before), sizeof *list->items, compare_names);
    if (list->count > before + 1)
        HS_TRY(drop_links(list, before));
    for (int i = before; i < list->count; i++)
        list->items[i].found = pattern || S_ISDIR(about.st_mode);
    return HS_OK;
}

HsStatus hs_source_list_check_output(const HsSourceList *list, const char *output)
{
    for (int i = 0; i < list->count; i++) {
        const char *const name = list->items[i].name;
        if (!list->items[i].kind)
            continue;
        if (output ? hs_same_file(name, output) : hs_writes_into(stdout, name))
            return hs_fail(HS_ECONFIG, "%s is one of the sources (%s), and would be replaced: write to another file",
                           output ? output : "the standard output", name);
    }
    return HS_OK;
}

HsStatus hs_source_list_keep_apart(HsSourceList *list, const char *folder)
{
    free(list->apart);
    list->apart = realpath(folder, NULL);
    return list->apart || errno != ENOMEM ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", folder);
}

void hs_source_list_warn(const HsSourceList *list)
{
    if (list->apart_files > 0)
        hs_warn("the run's own folder, %s, lies among the texts, and is left out of them", list->apart);
    if (list->loops > 0)
        hs_warn("%d symbolic link%s to a folder above %s not followed", list->loops, list->loops == 1 ? "" : "s",
                list->loops == 1 ? "is" : "are");
    if (list->linked > 0)
        hs_warn("%d name%s of files that are there under another name, too, by links, %s left out", list->linked,
                list->linked == 1 ? "" : "s", list->linked == 1 ? "is" : "are");
    if (list->exclusion.left_out > 0)
        hs_info("data: %d file%s or folders are left out, as `exclude` says", list->exclusion.left_out,
                list->exclusion.left_out == 1 ? "" : "s");
    if (list->backups > 0)
        hs_warn("%d editors' backups in folders (names that end in ~) are left out", list->backups);
}

void hs_source_list_deinit(HsSourceList *list)
{
    for (int i = 0; i < list->count; i++)
        free(list->items[i].name);
    free(list->items);
    free(list->apart);
    hs_exclusion_deinit(&list->exclusion);
    *list = (HsSourceList){ 0 };
}

bool hs_source_list_has_tokens(const HsSourceList *list)
{
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind && list->items[i].kind->makes_tokens)
            return true;
    return false;
}

bool hs_source_stays_in_file(const HsSource *source)
{
    const size_t length = strlen(source->name);
    struct stat about;
    if (!source->kind || !source->kind->makes_tokens || !source->kind->extension)
        return false;
    const size_t tail = strlen(source->kind->extension);
    return length > tail && strcmp(source->name + length - tail, source->kind->extension) == 0 &&
           stat(source->name, &about) == 0 && S_ISREG(about.st_mode);
}
