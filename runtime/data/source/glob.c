/* SPDX-License-Identifier: MIT
 *
 * Patterns of paths, as a shell expands them (bash with globstar):
 *
 *     * ? [a-z]     within a name, not a dot in front of it
 *     **            as a whole name: folders of any depth, none included; at the end every file below
 *     {a,b}         each of them; {1..9}, {08..12}: each number, as wide as the bounds are written
 *
 * Links to folders are followed, as where a folder is read, but for those to a folder on the way to them.  Braces are expanded first, so that each of their words must
 * match something.
 */
#include "runtime/data/source/glob.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_WORDS = 100000, GLOB_DEPTH = 32 };

typedef struct Words {
    HsPathTaker take;
    void *user;
    int count;
} Words;

/* ---- names ---- */

typedef struct Walk {
    const char *pattern; /* for messages */
    HsPathTaker take;
    void *user;
    bool found;
    struct stat above[GLOB_DEPTH + 1]; /* the folders on the way, by depth */
} Walk;

static bool has_wildcard(const char *name)
{
    return strpbrk(name, "*?[") != NULL;
}

static HsStatus walk(Walk *walking, const char *folder, char *const *names, int depth);

/* A folder that is not there matches nothing; one that cannot be read is an error. */
static int stops_at(const char *folder, int code)
{
    (void)folder;
    return code != ENOENT && code != ENOTDIR;
}

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static HsStatus take_path(Walk *walking, const char *path)
{
    walking->found = true;
    return walking->take(walking->user, path);
}

static HsStatus join(const Walk *walking, const char *folder, const char *name, char **path)
{
    const size_t length = strlen(folder);
    if (asprintf(path, "%s%s%s", folder, length == 0 || folder[length - 1] == '/' ? "" : "/", name) >= 0)
        return HS_OK;
    *path = NULL;
    return hs_fail(HS_ENOMEM, "%s: no memory for a path", walking->pattern);
}

/* A name without wildcards: what it says, dots too. */
static HsStatus step_into(Walk *walking, const char *folder, char *const *names, int depth)
{
    char *path = NULL;
    HsStatus status = join(walking, folder, names[0], &path);
    if (status == HS_OK && names[1] && is_folder(path))
        status = walk(walking, path, names + 1, depth + 1);
    else if (status == HS_OK && !names[1] && access(path, F_OK) == 0)
        status = take_path(walking, path);
    free(path);
    return status;
}

/* Whether a folder is one of those on the way to it, of which the last is above[depth]. */
static bool is_above(const Walk *walking, const char *path, int depth)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return false;
    for (int i = 0; i <= depth; i++)
        if (walking->above[i].st_dev == about.st_dev && walking->above[i].st_ino == about.st_ino)
            return true;
    return false;
}

/* One entry of a folder against names[0]. */
static HsStatus meet(Walk *walking, const char *path, const char *name, char *const *names, int depth)
{
    const bool any_depth = strcmp(names[0], "**") == 0;
    if (name[0] == '.' && (any_depth || names[0][0] != '.'))
        return HS_OK;
    if (any_depth && is_folder(path))
        return is_above(walking, path, depth) ? HS_OK : walk(walking, path, names, depth + 1);
    if (any_depth)
        return names[1] ? HS_OK : take_path(walking, path);
    if (fnmatch(names[0], name, FNM_PERIOD) != 0)
        return HS_OK;
    if (!names[1])
        return take_path(walking, path);
    return is_folder(path) ? walk(walking, path, names + 1, depth + 1) : HS_OK;
}

/* What matches `names` below a folder ("": the working directory, or "/..." ends in a slash). */
static HsStatus walk(Walk *walking, const char *folder, char *const *names, int depth)
{
    HsStatus status = HS_OK;
    if (depth > GLOB_DEPTH)
        return hs_fail(HS_EIO, "%s: %s: folders are nested deeper than %d", walking->pattern, folder, GLOB_DEPTH);
    if (stat(folder[0] ? folder : ".", &walking->above[depth]) != 0)
        walking->above[depth] = (struct stat){ 0 };
    if (!has_wildcard(names[0]))
        return step_into(walking, folder, names, depth);
    if (strcmp(names[0], "**") == 0 && names[1]) /* no folder at all */
        HS_TRY(walk(walking, folder, names + 1, depth + 1));
    DIR *stream = opendir(folder[0] ? folder : ".");
    if (!stream)
        return hs_fail(HS_EIO, "%s: %s cannot be opened: %s", walking->pattern, folder, strerror(errno));
    const struct dirent *entry;
    while (status == HS_OK && (errno = 0, entry = readdir(stream)) != NULL) {
        char *path = NULL;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        status = join(walking, folder, entry->d_name, &path);
        if (status == HS_OK)
            status = meet(walking, path, entry->d_name, names, depth);
        free(path);
    }
    if (status == HS_OK && errno != 0)
        status = hs_fail(HS_EIO, "%s: %s cannot be listed: %s", walking->pattern, folder, strerror(errno));
    closedir(stream);
    return status;
}

/* A pattern with ** among its names, which the C library does not know: the part in front of it as the library has it,
 * the rest by walking. */
static HsStatus expand_deep(Walk *walking, char *text, const char *deep)
{
    char *names[256];
    int count = 0;
    glob_t found = { 0 };
    const size_t front = (size_t)(deep - text);
    char *rest = NULL, *folder = strndup(text, front > 1 ? front - 1 : front);
    char *const copy = strdup(deep);
    HsStatus status = folder && copy ? HS_OK : hs_fail(HS_ENOMEM, "%s: no memory for a pattern", text);
    for (char *name = copy ? strtok_r(copy, "/", &rest) : NULL; name; name = strtok_r(NULL, "/", &rest)) {
        if (count + 1 == (int)(sizeof names / sizeof *names))
            status = hs_fail(HS_EIO, "%s: more parts between slashes than a path may have: shorten it", text);
        else if (count == 0 || strcmp(name, "**") != 0 || strcmp(names[count - 1], "**") != 0)
            names[count++] = name;
    }
    names[count] = NULL;
    if (status == HS_OK && !has_wildcard(folder)) {
        if (folder[0] == '\0' || is_folder(folder))
            status = walk(walking, folder, names, 0);
    } else if (status == HS_OK) {
        const int code = glob(folder, GLOB_NOSORT, stops_at, &found);
        if (code != 0 && code != GLOB_NOMATCH)
            status = hs_fail(HS_EIO, "%s: a folder on the way cannot be read", text);
        for (size_t i = 0; status == HS_OK && i < found.gl_pathc; i++)
            if (is_folder(found.gl_pathv[i]))
                status = walk(walking, found.gl_pathv[i], names, 0);
        globfree(&found);
    }
    free(copy);
    free(folder);
    return status;
}

/* Where a name that is ** begins; NULL: none is. */
static const char *find_deep(const char *text)
{
    for (const char *at = text; (at = strstr(at, "**")) != NULL; at += 2)
        if ((at == text || at[-1] == '/') && (at[2] == '/' || at[2] == '\0'))
            return at;
    return NULL;
}

static HsStatus expand_names(Words *words, char *text)
{
    Walk walking = { .pattern = text, .take = words->take, .user = words->user };
    const char *const deep = find_deep(text);
    HsStatus status = HS_OK;
    if (words->count++ == MOST_WORDS)
        return hs_fail(HS_EIO, "%s: its braces make more than %d patterns: use wildcards, or several entries", text,
                       MOST_WORDS);
    if (deep)
        status = expand_deep(&walking, text, deep);
    else if (!has_wildcard(text))
        return words->take(words->user, text); /* names what is missing */
    else {
        glob_t found = { 0 };
        const int code = glob(text, GLOB_NOSORT, stops_at, &found);
        if (code != 0 && code != GLOB_NOMATCH)
            status = hs_fail(HS_EIO, "%s: a folder on the way cannot be read", text);
        for (size_t i = 0; status == HS_OK && i < found.gl_pathc; i++)
            status = take_path(&walking, found.gl_pathv[i]);
        globfree(&found);
    }
    if (status == HS_OK && !walking.found)
        status = hs_fail(HS_EIO, "%s: no file matches (paths are relative to the working directory)", text);
    return status;
}

/* ---- braces ---- */

/* A group of braces that is to be expanded: [open, close] in the text, with a comma or two dots at its own depth. */
typedef struct Group {
    size_t open, close;
    bool range;
    long first, last;
    int width;
} Group;

/* {first..last} of whole numbers. */
static bool read_range(const char *text, Group *group)
{
    int used = 0, first_width = 0, dots = 0;
    const char *const inner = text + group->open + 1;
    if (sscanf(inner, "%ld%n..%n%ld%n", &group->first, &first_width, &dots, &group->last, &used) != 2 ||
        inner + used != text + group->close || first_width == 0)
        return false;
    const int last_width = used - dots;
    const bool padded = (inner[0] == '0' && first_width > 1) || (inner[dots] == '0' && last_width > 1);
    group->width = !padded ? 0 : first_width > last_width ? first_width : last_width;
    return group->range = true;
}

static bool find_group(const char *text, Group *group)
{
    for (size_t open = 0; text[open]; open++) {
        int depth = 0;
        bool comma = false;
        if (text[open] != '{')
            continue;
        for (size_t at = open; text[at]; at++) {
            depth += (text[at] == '{') - (text[at] == '}');
            comma = comma || (depth == 1 && text[at] == ',');
            if (depth > 0)
                continue;
            *group = (Group){ .open = open, .close = at };
            if (comma || read_range(text, group))
                return true;
            break;
        }
    }
    return false;
}

static HsStatus expand_braces(Words *words, char *text);

/* The text with `middle` in place of the group. */
static HsStatus expand_with(Words *words, const char *text, const Group *group, const char *middle, int length)
{
    char *joined = NULL;
    if (asprintf(&joined, "%.*s%.*s%s", (int)group->open, text, length, middle, text + group->close + 1) < 0)
        return hs_fail(HS_ENOMEM, "%s: no memory for a pattern", text);
    HsStatus status = expand_braces(words, joined);
    free(joined);
    return status;
}

static HsStatus expand_braces(Words *words, char *text)
{
    Group group;
    if (!find_group(text, &group))
        return expand_names(words, text);
    for (long number = group.first, step = group.first <= group.last ? 1 : -1; group.range; number += step) {
        char shown[32];
        const int length = snprintf(shown, sizeof shown, "%0*ld", group.width < 20 ? group.width : 20, number);
        HS_TRY(expand_with(words, text, &group, shown, length));
        if (number == group.last)
            return HS_OK;
    }
    int depth = 0;
    for (size_t at = group.open + 1, begin = at; at <= group.close; at++) {
        if (depth == 0 && (text[at] == ',' || at == group.close)) {
            HS_TRY(expand_with(words, text, &group, text + begin, (int)(at - begin)));
            begin = at + 1;
        }
        depth += (text[at] == '{') - (text[at] == '}');
    }
    return HS_OK;
}

size_t hs_glob_front(const char *text)
{
    size_t front = strcspn(text, "*?[{");
    while (front > 0 && text[front - 1] != '/')
        front--;
    return front;
}

bool hs_glob_is_pattern(const char *text)
{
    Group group;
    return has_wildcard(text) || find_group(text, &group);
}

HsStatus hs_glob_expand(const char *pattern, HsPathTaker take, void *user)
{
    Words words = { take, user, 0 };
    char *copy = strdup(pattern);
    if (!copy)
        return hs_fail(HS_ENOMEM, "%s: no memory for a pattern", pattern);
    HsStatus status = expand_braces(&words, copy);
    free(copy);
    return status;
}
