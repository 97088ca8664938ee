/* SPDX-License-Identifier: MIT
 *
 * Which files of a folder are text.  The folder is named as it is, and what is no text is excluded: as a kind (by the
 * names' ends) where most of it is none, else file by file, so that one file that another program left among thousands
 * costs no more than itself.
 */
#include "runtime/study/proposal.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/base/array.h"
#include "runtime/data/source/input.h"
#include "runtime/data/source/source.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

enum {
    KIND_BYTES = 32,
    MOST_NAMED = 4096,       /* files that are excluded each by its path */
    MOST_READ = 100000,      /* files of which the first bytes are read; the others are taken for text */
    FIRST_BYTES = 64 << 10,  /* of these */
    MOST_PARSED = 16 << 20,  /* bytes of a file that is looked through for documents, */
    MOST_UNPACKED = 1 << 20, /* and of one that is packed */
    FOLDER_DEPTH = 32
};
/* Files in other encodings are left out where they are less than this of all bytes; else the tokenizer is one of bytes. */
static const double FEW = 0.1;

typedef enum Content { TEXT, OTHER_ENCODING, NO_DOCUMENTS, NO_TEXT } Content;

/* Files whose names end alike. */
typedef struct Kind {
    char end[KIND_BYTES];        /* "": no end, or none that a pattern of names can have */
    int files, refused, without; /* no text; records without documents */
} Kind;

typedef struct Folder {
    char *path;
    int parent, files, refused; /* at first its own files, then those below, too; parent of the first: -1 */
    bool excluded;
} Folder;

/* A file that is left out, and no kind of files with it. */
typedef struct Named {
    char *path;
    int folder;
} Named;

/* What is found out on the way: one call's. */
static struct {
    Kind *kinds;
    int count, files, refused, without, other;
    size_t capacity;
    Folder *folders;
    int folder_count;
    size_t folder_capacity;
    Named *named;
    int named_count;
    size_t named_capacity;
    double bytes, other_bytes;
    bool naming;              /* the second time: paths are taken */
    bool names_other;         /* and of files in other encodings */
    bool drops_without;       /* records without documents are no text: there is other text */
    const HsTaskConfig *task; /* how records are read */
    char *start;              /* FIRST_BYTES */
} walk;

void hs_proposal_end_of(const char *name, char *end, size_t room)
{
    const char *dot = strrchr(name, '.');
    end[0] = '\0';
    if (!dot || dot == name)
        return;
    if (hs_is(dot, ".gz") || hs_is(dot, ".zst"))
        for (const char *at = dot; at > name + 1 && dot - at < 8; at--)
            if (at[-1] == '.') {
                dot = at - 1;
                break;
            }
    if (strlen(dot) < room && strlen(dot) > 1)
        snprintf(end, room, "%s", dot);
}

/* Whether a file of records has a document: a program's settings in JSON have none.  One with a mistake behind its first
 * documents has: training names the mistake. */
static bool has_documents(const char *path, const HsSourceKind *kind)
{
    HsSourceOptions options = hs_source_options(walk.task);
    options.contents_only = true;
    HsSource source = { .name = (char *)(uintptr_t)path, .kind = kind }; /* read only */
    HsCorpus corpus = { 0 };
    const HsStatus status = hs_source_read(&source, &options, &corpus);
    const bool found = status == HS_OK || corpus.piece_count > 0;
    hs_corpus_deinit(&corpus);
    return found;
}

/* By its name and first bytes; Parquet is left to reading. */
static Content content_of(const char *path, const char *end, double bytes)
{
    const HsSourceKind *kind;
    if (hs_source_kind_choose(path, walk.task->format, &kind) != HS_OK || kind->makes_tokens)
        return NO_TEXT;
    if (walk.files > MOST_READ || hs_is(end, ".parquet"))
        return TEXT;
    if (hs_packing_of_name(path))
        return bytes > MOST_UNPACKED || has_documents(path, kind) ? TEXT : NO_DOCUMENTS;
    const size_t size = hs_read_start(path, walk.start, FIRST_BYTES);
    const size_t mark = hs_utf8_mark_bytes(walk.start, size);
    if (memchr(walk.start + mark, 0, size - mark) || hs_source_refuse_bytes(path, walk.start, size) != HS_OK)
        return NO_TEXT;
    const size_t invalid = size - hs_utf8_valid_prefix(walk.start, size);
    const bool valid = invalid == 0 || (size == FIRST_BYTES && invalid < 4); /* the last character may be cut */
    if (valid && kind->extension && bytes <= MOST_PARSED && !has_documents(path, kind))
        return NO_DOCUMENTS;
    return valid ? TEXT : OTHER_ENCODING;
}

static HsStatus find_kind(const char *end, Kind **kind)
{
    for (int i = 0; i < walk.count; i++)
        if (hs_is(walk.kinds[i].end, end)) {
            *kind = &walk.kinds[i];
            return HS_OK;
        }
    HS_TRY(hs_array_grow(&walk.kinds, sizeof *walk.kinds, (size_t)walk.count + 1, &walk.capacity));
    *kind = &walk.kinds[walk.count++];
    **kind = (Kind){ .files = 0 };
    snprintf((*kind)->end, sizeof(*kind)->end, "%s", end);
    return HS_OK;
}

static int refused_of(const Kind *kind)
{
    return kind->refused + (walk.drops_without ? kind->without : 0);
}

/* Where most files of a kind are no text, none is, but one without an end, for which there is no pattern. */
static bool is_refused(const Kind *kind)
{
    return kind->end[0] != '\0' && 2 * refused_of(kind) > kind->files;
}

/* A path as a pattern: what a configuration cannot hold stands for itself as any character. */
static char *pattern_of(const char *path)
{
    char *const kept = strdup(path);
    const bool valid = hs_utf8_valid_prefix(path, strlen(path)) == strlen(path);
    for (char *at = kept; at && *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F || (!valid && (unsigned char)*at >= 0x80))
            *at = '?';
    return kept;
}

static HsStatus add_folder(const char *path, int parent)
{
    HS_TRY(hs_array_grow(&walk.folders, sizeof *walk.folders, (size_t)walk.folder_count + 1, &walk.folder_capacity));
    walk.folders[walk.folder_count++] = (Folder){ .path = pattern_of(path), .parent = parent };
    return walk.folders[walk.folder_count - 1].path ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", path);
}

static HsStatus name_file(const char *path, int folder)
{
    HS_TRY(hs_array_grow(&walk.named, sizeof *walk.named, (size_t)walk.named_count + 1, &walk.named_capacity));
    walk.named[walk.named_count++] = (Named){ pattern_of(path), folder };
    return walk.named[walk.named_count - 1].path ? HS_OK : hs_fail(HS_ENOMEM, "no memory for the path %s", path);
}

static void count_file(Kind *kind, Content content, double bytes)
{
    walk.bytes += bytes;
    kind->files++;
    kind->refused += content == NO_TEXT;
    walk.refused += content == NO_TEXT;
    kind->without += content == NO_DOCUMENTS;
    walk.without += content == NO_DOCUMENTS;
    walk.other += content == OTHER_ENCODING;
    walk.other_bytes += content == OTHER_ENCODING ? bytes : 0;
}

/* What is no file, a link to nothing (NULL), or may not be read would end the run, too. */
static Content look_at(const char *path, const char *end, const struct stat *about)
{
    const bool readable = about && S_ISREG(about->st_mode) && access(path, R_OK) == 0;
    return readable ? content_of(path, end, (double)about->st_size) : NO_TEXT;
}

/* The second time: which files are named, and how many of a folder's are left out. */
static HsStatus name_if_refused(const char *path, const char *end, const struct stat *about, int folder,
                                const Kind *kind)
{
    walk.folders[folder].files++;
    walk.folders[folder].refused += is_refused(kind);
    if (is_refused(kind) || (refused_of(kind) == 0 && !walk.names_other))
        return HS_OK;
    const Content content = look_at(path, end, about);
    if (content == TEXT || (content == OTHER_ENCODING && !walk.names_other) ||
        (content == NO_DOCUMENTS && !walk.drops_without))
        return HS_OK;
    walk.folders[folder].refused++;
    return name_file(path, folder);
}

static HsStatus take_file(const char *path, const struct stat *about, int folder)
{
    char end[KIND_BYTES];
    hs_proposal_end_of(strrchr(path, '/') + 1, end, sizeof end);
    if (strpbrk(end, "*?[\\") || hs_utf8_valid_prefix(end, strlen(end)) != strlen(end))
        end[0] = '\0';
    Kind *kind;
    HS_TRY(find_kind(end, &kind));
    walk.files++;
    if (walk.naming)
        return name_if_refused(path, end, about, folder, kind);
    count_file(kind, look_at(path, end, about), about ? (double)about->st_size : 0);
    return HS_OK;
}

/* As folders of a task are read (runtime/data/source/list.c): links are followed, but those to a folder above. */
static HsStatus look_into(const char *path, int parent, const HsFoldersAbove *above)
{
    const int here = walk.folder_count;
    if (walk.naming)
        HS_TRY(add_folder(path, parent));
    DIR *const folder = opendir(path);
    if (!folder && !above->next)
        return hs_fail(HS_ECONFIG, "--text %s: cannot be listed: name a folder that you may read", path);
    if (!folder || above->depth > FOLDER_DEPTH) {
        if (folder)
            closedir(folder);
        return take_file(path, NULL, parent);
    }
    HsStatus status = HS_OK;
    for (const struct dirent *entry; status == HS_OK && (entry = readdir(folder)) != NULL;) {
        char *inner = NULL;
        struct stat about;
        if (hs_source_is_passed_over(entry->d_name))
            continue;
        if (asprintf(&inner, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/", entry->d_name) < 0)
            status = hs_fail(HS_ENOMEM, "no memory for a path in %s", path);
        else if (stat(inner, &about) != 0)
            status = take_file(inner, NULL, here);
        else if (!S_ISDIR(about.st_mode))
            status = take_file(inner, &about, here);
        else if (!hs_folder_is_above(above, &about))
            status = look_into(inner, here, &(HsFoldersAbove){ above, about.st_dev, about.st_ino, above->depth + 1 });
        free(inner);
    }
    closedir(folder);
    return status;
}

static HsStatus walk_folder(const char *folder)
{
    struct stat about = { 0 };
    walk.files = 0;
    (void)stat(folder, &about);
    return look_into(folder, -1, &(HsFoldersAbove){ NULL, about.st_dev, about.st_ino, 0 });
}

static void note_left_out(HsProposalText *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note_left_out(HsProposalText *text, const char *format, ...)
{
    char more[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(more, sizeof more, format, arguments);
    va_end(arguments);
    const size_t used = strlen(text->left_out), room = sizeof text->left_out - used;
    static const char others[] = ", and others";
    if (used >= sizeof others && hs_is(text->left_out + used - (sizeof others - 1), others))
        return;
    const bool fits = strlen(more) + sizeof others + 2 < room;
    snprintf(text->left_out + used, room, "%s%s", !fits || used == 0 ? "" : ", ", fits ? more : others);
}

/* The highest folder above a file in which nothing is text; -1: there is none. */
static int folder_of(const Named *named)
{
    int highest = -1;
    for (int at = named->folder; at > 0; at = walk.folders[at].parent)
        if (walk.folders[at].refused == walk.folders[at].files && walk.folders[at].files > 1)
            highest = at;
    return highest;
}

/* Each file by its path, or the folder in which it is one of several and none is text. */
static HsStatus exclude_named(const char *folder, HsProposalText *text)
{
    int paths = 0;
    for (int i = walk.folder_count - 1; i > 0; i--) {
        walk.folders[walk.folders[i].parent].files += walk.folders[i].files;
        walk.folders[walk.folders[i].parent].refused += walk.folders[i].refused;
    }
    for (int i = 0; i < walk.named_count; i++) {
        const int above = folder_of(&walk.named[i]);
        if (above >= 0 && walk.folders[above].excluded)
            continue;
        if (above >= 0)
            walk.folders[above].excluded = true;
        if (++paths > MOST_NAMED)
            return hs_fail(HS_ECONFIG,
                           "--text %s: more than %d of its files are no text, and have names or ends as text has (%s): "
                           "name folders of text in it, each by --text",
                           folder, MOST_NAMED, text->left_out);
        HS_TRY(hs_string_list_add(&text->exclude, "%s", above >= 0 ? walk.folders[above].path : walk.named[i].path));
    }
    return HS_OK;
}

/* What is no text, kind by kind, and what is in another encoding. */
static HsStatus exclude(const char *folder, HsProposalText *text)
{
    for (int i = 0; i < walk.count; i++) {
        const Kind *const kind = &walk.kinds[i];
        if (is_refused(kind)) {
            HS_TRY(hs_string_list_add(&text->exclude, "*%s", kind->end));
            note_left_out(text, "%d %s", kind->files, kind->end);
        } else if (refused_of(kind) > 0) {
            note_left_out(text, "%d of %d %s", refused_of(kind), kind->files,
                          kind->end[0] ? kind->end : "without an end of their names");
        }
    }
    walk.names_other = walk.other > 0 && walk.other < MOST_NAMED && walk.other_bytes <= FEW * walk.bytes;
    if (walk.names_other)
        note_left_out(text, "%d not in UTF-8", walk.other);
    walk.naming = true;
    HS_TRY(walk_folder(folder));
    return exclude_named(folder, text);
}

/* Most files first, and not as a file system lists them. */
static int by_refused(const void *a, const void *b)
{
    const Kind *const one = a, *const other = b;
    return refused_of(one) != refused_of(other) ? refused_of(other) - refused_of(one) : strcmp(one->end, other->end);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static HsStatus choose(const char *folder, HsProposalText *text)
{
    int tokens = 0;
    for (int i = 0; i < walk.count; i++)
        tokens += hs_is(walk.kinds[i].end, ".bin") ? walk.kinds[i].files : 0;
    if (walk.files == 0)
        return hs_fail(HS_ECONFIG, "--text %s: no files are in this folder: put text into it, or name another", folder);
    if (walk.refused == walk.files && tokens == walk.files)
        return hs_fail(HS_ECONFIG,
                       "--text %s: token files (.bin) hold no text to choose a tokenizer by: name their text, or begin "
                       "with configs/gpt2-124m.yaml",
                       folder);
    HS_TRY(hs_string_list_add(&text->train, "%s", folder));
    if (walk.refused == 0 && walk.without == 0 && walk.other == 0)
        return HS_OK;
    walk.drops_without = walk.refused + walk.without < walk.files; /* else reading says what is missing in them */
    const bool none = walk.refused == walk.files;
    qsort(walk.kinds, (size_t)walk.count, sizeof *walk.kinds, by_refused);
    HS_TRY(exclude(folder, text));
    if (none)
        return hs_fail(HS_ECONFIG,
                       "--text %s: none of its files is text (%s): convert them (pdftotext, say), or name "
                       "another folder",
                       folder, text->left_out);
    if (text->exclude.count > 0)
        qsort(text->exclude.items, (size_t)text->exclude.count, sizeof *text->exclude.items, by_text);
    return HS_OK;
}

HsStatus hs_proposal_choose_files(const char *folder, const HsTaskConfig *task, HsProposalText *text)
{
    memset(&walk, 0, sizeof walk);
    walk.task = task;
    walk.start = malloc(FIRST_BYTES);
    HsStatus status = walk.start ? walk_folder(folder) : hs_fail(HS_ENOMEM, "no memory to look at a text");
    if (status == HS_OK)
        status = choose(folder, text);
    for (int i = 0; i < walk.folder_count; i++)
        free(walk.folders[i].path);
    for (int i = 0; i < walk.named_count; i++)
        free(walk.named[i].path);
    free(walk.folders);
    free(walk.named);
    free(walk.kinds);
    free(walk.start);
    return status;
}
