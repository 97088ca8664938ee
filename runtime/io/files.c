/* SPDX-License-Identifier: MIT
 *
 * Small file-system helpers.
 */
#include "runtime/io/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/log.h"

HsStatus hs_make_directories(const char *path)
{
    char partial[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial)
        return hs_fail(HS_EIO, "a folder's path must have 1 to %zu characters (got %zu)", sizeof partial - 1, length);
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        char kept = partial[i];
        partial[i] = '\0';
        if (mkdir(partial, 0777) != 0 && errno != EEXIST)
            return hs_fail(HS_EIO, "%s: the folder cannot be made: %s", partial, strerror(errno));
        partial[i] = kept;
    }
    struct stat info;
    if (stat(path, &info) != 0)
        return hs_fail(HS_EIO, "%s: cannot be looked at: %s", path, strerror(errno));
    return S_ISDIR(info.st_mode) ? HS_OK : hs_fail(HS_EIO, "%s exists and is not a folder", path);
}

HsStatus hs_path_exists(const char *path, bool *exists)
{
    *exists = access(path, F_OK) == 0;
    if (*exists || errno == ENOENT || errno == ENOTDIR)
        return HS_OK;
    return hs_fail(HS_EIO, "%s: cannot be looked at: %s", path, strerror(errno));
}

bool hs_same_file(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

HsStatus hs_check_output(const char *path)
{
    struct stat about;
    const char *const slash = strrchr(path, '/');
    char folder[4096] = ".";
    if (slash && slash - path >= (ptrdiff_t)sizeof folder)
        return hs_fail(HS_EIO, "%.60s...: the path is too long", path);
    if (slash) /* of "/x" the folder is "/" */
        snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (path[0] == '\0' || (slash && slash[1] == '\0'))
        return hs_fail(HS_EIO, "`%s` names no file to write to", path);
    const bool there = stat(folder, &about) == 0;
    if (!there && errno == ENOENT)
        return hs_fail(HS_EIO, "%s: the folder %s is not there: make it first", path, folder);
    if (there && !S_ISDIR(about.st_mode))
        return hs_fail(HS_EIO, "%s: cannot be written: %s is not a folder", path, folder);
    if (access(folder, W_OK | X_OK) != 0)
        return hs_fail(HS_EIO, "%s: cannot be written in %s: %s", path, folder, strerror(errno));
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) /* a device would be replaced by a file */
        return hs_fail(HS_EIO, "%s: is %s: name a file", path, S_ISDIR(about.st_mode) ? "a folder" : "no regular file");
    return HS_OK;
}

size_t hs_read_start(const char *path, char *bytes, size_t size)
{
    FILE *file = NULL;
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISREG(about.st_mode) || hs_open_file(path, &file) != HS_OK)
        return 0;
    const size_t count = fread(bytes, 1, size, file);
    fclose(file);
    return count;
}

static HsStatus check_empty(const char *path)
{
    DIR *stream = opendir(path);
    int entries = 0;
    if (!stream)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    while (entries <= 2 && readdir(stream))
        entries++;
    closedir(stream);
    if (entries > 2) /* "." and ".." */
        return hs_fail(HS_ECONFIG, "%s is not empty: name a folder that is not there yet, or empty it", path);
    return access(path, W_OK | X_OK) == 0 ? HS_OK : hs_fail(HS_EIO, "%s: cannot be written: %s", path, strerror(errno));
}

HsStatus hs_check_new_folder(const char *path)
{
    char above[4096];
    struct stat about;
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof above)
        return hs_fail(HS_EIO, "a folder's path must have 1 to %zu characters (got %zu)", sizeof above - 1, length);
    if (stat(path, &about) == 0)
        return S_ISDIR(about.st_mode) ? check_empty(path) : hs_fail(HS_EIO, "%s exists and is not a folder", path);
    memcpy(above, path, length + 1);
    while (strchr(above, '/')) { /* up to what is there */
        char *const slash = strrchr(above, '/');
        slash[slash == above] = '\0';
        if (stat(above, &about) == 0 || slash == above)
            break;
    }
    if (stat(above, &about) != 0)
        snprintf(above, sizeof above, ".");
    else if (!S_ISDIR(about.st_mode))
        return hs_fail(HS_EIO, "%s: cannot be made: %s is not a folder", path, above);
    return access(above, W_OK | X_OK) == 0
               ? HS_OK
               : hs_fail(HS_EIO, "%s: cannot be made in %s: %s", path, above, strerror(errno));
}

bool hs_writes_into(FILE *stream, const char *path)
{
    struct stat out, in;
    const int code = strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &in) : stat(path, &in);
    return code == 0 && fstat(fileno(stream), &out) == 0 && S_ISREG(out.st_mode) && out.st_dev == in.st_dev &&
           out.st_ino == in.st_ino;
}

HsStatus hs_check_fetched(const char *path, const char *bytes, size_t size)
{
    /* Each is a short text; a document about them is longer, or has not both parts. */
    static const struct {
        const char *begin, *inside, *what, *mend;
    } notes[] = {
        { "version https://git-lfs.github.com/spec/", "oid ", "a Git LFS pointer", "git lfs pull" },
        { "version https://hawser.github.com/spec/", "oid ", "a Git LFS pointer", "git lfs pull" },
        { "/annex/objects/", "--", "a git-annex pointer", "git annex get" },
        { "# xet version ", "hash", "a Xet pointer", "git xet checkout" },
    };
    enum { LONGEST = 1024 };
    for (size_t i = 0; size < LONGEST && i < sizeof notes / sizeof *notes; i++) {
        const size_t begin = strlen(notes[i].begin), inside = strlen(notes[i].inside);
        if (size > begin && memcmp(bytes, notes[i].begin, begin) == 0 &&
            memmem(bytes + begin, size - begin, notes[i].inside, inside))
            return hs_fail(HS_EFORMAT,
                           "%s: is %s, which stands for a file that was not fetched: `%s` in its folder fetches it",
                           path, notes[i].what, notes[i].mend);
    }
    return HS_OK;
}

HsStatus hs_path_expand(const char *path, char **expanded)
{
    const size_t name = path[0] == '~' ? strcspn(path, "/") : 0;
    const char *home = "";
    *expanded = NULL;
    if (name > 1)
        return hs_fail(HS_ECONFIG,
                       "%s: ~ before a name means another user's folder to a shell, which is not looked up here: write "
                       "the path out; a file that is really called so is written ./%s",
                       path, path);
    if (name == 1) {
        struct stat about;
        if (stat(path, &about) == 0) /* made by a program that took it for a name */
            hs_warn("%s: ~ is the home folder; what lies in the folder ~ here is called ./%s", path, path);
        home = getenv("HOME");
        const struct passwd *user = home && home[0] ? NULL : getpwuid(getuid());
        if (user)
            home = user->pw_dir;
        if (!home || !home[0])
            return hs_fail(HS_ECONFIG, "%s: ~ is the home folder, and none is known: set HOME, or write the path out",
                           path);
    }
    if (asprintf(expanded, "%s%s", home, path + name) >= 0)
        return HS_OK;
    *expanded = NULL;
    return hs_fail(HS_ENOMEM, "no memory for the path %s", path);
}

HsStatus hs_open_file(const char *path, FILE **file)
{
    struct stat info;
    HsStatus status = HS_OK;
    *file = NULL;
    /* Without waiting for a writer of a FIFO; the bytes of one that has a writer are waited for. */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0)
        return hs_fail(HS_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(descriptor, &info) != 0 || fcntl(descriptor, F_SETFL, O_RDONLY) != 0)
        status = hs_fail(HS_EIO, "%s: cannot be looked at: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = hs_fail(HS_EIO, "%s is a folder, not a file", path);
    else if (!(*file = fdopen(descriptor, "rb")))
        status = hs_fail(HS_ENOMEM, "%s: no memory to read it", path);
    if (status != HS_OK)
        close(descriptor);
    return status;
}

static HsStatus read_all(FILE *file, const char *path, size_t limit, char **text, size_t *length)
{
    size_t capacity = 65536, used = 0;
    char *buffer = malloc(capacity + 1);
    while (buffer) {
        used += fread(buffer + used, 1, capacity - used, file);
        if (limit > 0 && used > limit) {
            free(buffer);
            return hs_fail(HS_EFORMAT, "%s: larger than the %zu bytes that such a file may have", path, limit);
        }
        if (used < capacity)
            break;
        capacity *= 2;
        char *larger = realloc(buffer, capacity + 1);
        if (!larger)
            free(buffer);
        buffer = larger;
    }
    if (!buffer)
        return hs_fail(HS_ENOMEM, "%s: no memory for its %zu bytes", path, used);
    if (ferror(file)) {
        free(buffer);
        return hs_fail(HS_EIO, "%s: cannot be read: %s", path, strerror(errno));
    }
    const HsStatus fetched = hs_check_fetched(path, buffer, used);
    if (fetched != HS_OK) {
        free(buffer);
        return fetched;
    }
    buffer[used] = '\0';
    *text = buffer;
    *length = used;
    return HS_OK;
}

HsStatus hs_read_input(const char *path, size_t limit, char **text, size_t *length)
{
    if (strcmp(path, "-") == 0)
        return read_all(stdin, "the standard input", limit, text, length);
    return hs_read_file(path, limit, text, length);
}

HsStatus hs_read_file(const char *path, size_t limit, char **text, size_t *length)
{
    enum { MOST_OF_A_PIPE = 64 << 20 };
    struct stat info;
    FILE *file;
    HS_TRY(hs_open_file(path, &file));
    if (limit == 0 && (fstat(fileno(file), &info) != 0 || !S_ISREG(info.st_mode)))
        limit = MOST_OF_A_PIPE;
    HsStatus status = read_all(file, path, limit, text, length);
    fclose(file);
    return status;
}

void hs_write_shell_word(const char *word, FILE *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-=+:,@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){ *word, '\0' }, out);
    fputc('\'', out);
}

HsStatus hs_shell_word(const char *word, char **text)
{
    size_t size = 0;
    *text = NULL;
    FILE *const stream = open_memstream(text, &size);
    if (stream)
        hs_write_shell_word(word, stream);
    return hs_close_text(stream, text);
}

HsStatus hs_close_text(FILE *stream, char **text)
{
    const bool whole = stream && !ferror(stream);
    if (stream && (fclose(stream) != 0 || !whole)) {
        free(*text);
        *text = NULL;
    }
    return stream && *text ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a text");
}
