/* SPDX-License-Identifier: MIT
 *
 * Which files of a folder are text.  The folder is named as it is, and what is no text is excluded: as a kind (by the
 * names' ends) where all of it, or much of it, is none, else file by file, so that one file that another program left
 * among thousands costs no more than itself.
 */
#include "runtime/study/proposal.h"

#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/data/source/input.h"
#include "runtime/data/source/source.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

enum {
    MOST_KINDS = 128,
    KIND_BYTES = 32,
    MOST_NAMED = 64,        /* files that are excluded each by its path */
    MOST_READ = 100000,     /* files of which the first bytes are read; the others are taken for text */
    FIRST_BYTES = 64 << 10, /* of these */
    FOLDER_DEPTH = 32
};
/* Files in other encodings are left out where they are less than this of all bytes; else the tokenizer is one of bytes. */
static const double FEW = 0.1;

typedef enum Content { TEXT, OTHER_ENCODING, NO_TEXT } Content;

/* Files whose names end alike. */
typedef struct Kind {
    char end[KIND_BYTES]; /* "": no end, or none that a pattern of names can have */
    int files, refused;
} Kind;

/* nftw has no argument for its caller. */
static struct {
    Kind kinds[MOST_KINDS];
    int count, files, refused, other;
    double bytes, other_bytes;
    HsStringList refused_paths, other_paths; /* the first MOST_NAMED */
    char *start;                             /* FIRST_BYTES */
    HsStatus status;
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

bool hs_proposal_is_packed(const char *end)
{
    const size_t length = strlen(end);
    return (length >= 3 && hs_is(end + length - 3, ".gz")) || (length >= 4 && hs_is(end + length - 4, ".zst"));
}

/* By its name and first bytes; what is packed, and Parquet, is left to reading. */
static Content content_of(const char *path, const char *end)
{
    const HsSourceKind *kind;
    if (hs_source_kind_choose(path, "auto", &kind) != HS_OK || kind->makes_tokens)
        return NO_TEXT;
    if (hs_proposal_is_packed(end) || hs_is(end, ".parquet") || walk.files > MOST_READ)
        return TEXT;
    const size_t size = hs_read_start(path, walk.start, FIRST_BYTES);
    const size_t mark = hs_utf8_mark_bytes(walk.start, size);
    if (memchr(walk.start + mark, 0, size - mark) || hs_source_refuse_bytes(path, walk.start, size) != HS_OK)
        return NO_TEXT;
    const bool valid = size - hs_utf8_valid_prefix(walk.start, size) < 4; /* the last character may be cut */
    return valid ? TEXT : OTHER_ENCODING;
}

/* NULL: there are too many. */
static Kind *kind_of(const char *end)
{
    for (int i = 0; i < walk.count; i++)
        if (hs_is(walk.kinds[i].end, end))
            return &walk.kinds[i];
    if (walk.count == MOST_KINDS)
        return NULL;
    Kind *const kind = &walk.kinds[walk.count++];
    *kind = (Kind){ .files = 0 };
    snprintf(kind->end, sizeof kind->end, "%s", end);
    return kind;
}

/* A path as a pattern: what a configuration cannot hold stands for itself as any character. */
static HsStatus add_path(HsStringList *list, const char *path)
{
    if (list->count == MOST_NAMED)
        return HS_OK;
    HS_TRY(hs_string_list_add(list, "%s", path));
    char *const kept = list->items[list->count - 1];
    const bool valid = hs_utf8_valid_prefix(kept, strlen(kept)) == strlen(kept);
    for (char *at = kept; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7F || (!valid && (unsigned char)*at >= 0x80))
            *at = '?';
    return HS_OK;
}

static int visit(const char *path, const struct stat *about, int type, struct FTW *place)
{
    char end[KIND_BYTES];
    const char *const name = path + place->base;
    if (place->level > FOLDER_DEPTH || (place->level > 0 && name[0] == '.'))
        return FTW_SKIP_SUBTREE;
    if (type != FTW_F || name[strlen(name) - 1] == '~')
        return FTW_CONTINUE;
    hs_proposal_end_of(name, end, sizeof end);
    if (strpbrk(end, "*?[\\") || hs_utf8_valid_prefix(end, strlen(end)) != strlen(end))
        end[0] = '\0';
    Kind *const kind = kind_of(end);
    walk.files++;
    walk.bytes += (double)about->st_size;
    const Content content = content_of(path, end);
    if (kind) {
        kind->files++;
        kind->refused += content == NO_TEXT;
    }
    if (content == NO_TEXT) {
        walk.refused++;
        walk.status = add_path(&walk.refused_paths, path);
    } else if (content == OTHER_ENCODING) {
        walk.other++;
        walk.other_bytes += (double)about->st_size;
        walk.status = add_path(&walk.other_paths, path);
    }
    return walk.status == HS_OK ? FTW_CONTINUE : FTW_STOP;
}

static bool ends_so(const char *path, const char *end)
{
    char own[KIND_BYTES];
    const char *const slash = strrchr(path, '/');
    hs_proposal_end_of(slash ? slash + 1 : path, own, sizeof own);
    return hs_is(own, end);
}

static void note_left_out(HsProposalText *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note_left_out(HsProposalText *text, const char *format, ...)
{
    const size_t used = strlen(text->left_out), room = sizeof text->left_out - used;
    va_list arguments;
    if (room < 4)
        return;
    snprintf(text->left_out + used, room, "%s", used > 0 ? ", " : "");
    va_start(arguments, format);
    vsnprintf(text->left_out + strlen(text->left_out), sizeof text->left_out - strlen(text->left_out), format,
              arguments);
    va_end(arguments);
}

/* What is no text, kind by kind: all of it, or each file by its path. */
static HsStatus exclude_refused(HsProposalText *text)
{
    const bool each = walk.refused <= MOST_NAMED;
    for (int i = 0; i < walk.count; i++) {
        const Kind *const kind = &walk.kinds[i];
        const char *const shown = kind->end[0] ? kind->end : "without an end of their names";
        if (kind->refused == 0)
            continue;
        if (kind->end[0] && (kind->refused == kind->files || !each)) {
            HS_TRY(hs_string_list_add(&text->exclude, "*%s", kind->end));
            note_left_out(text, "%d %s", kind->files, shown);
            continue;
        }
        note_left_out(text, "%d of %d %s", kind->refused, kind->files, shown);
        for (int k = 0; k < walk.refused_paths.count; k++)
            if (ends_so(walk.refused_paths.items[k], kind->end))
                HS_TRY(hs_string_list_add(&text->exclude, "%s", walk.refused_paths.items[k]));
    }
    return HS_OK;
}

static HsStatus exclude_other(HsProposalText *text)
{
    if (walk.other == 0 || walk.other > MOST_NAMED || walk.other_bytes > FEW * walk.bytes)
        return HS_OK;
    note_left_out(text, "%d not in UTF-8", walk.other);
    for (int i = 0; i < walk.other_paths.count; i++)
        HS_TRY(hs_string_list_add(&text->exclude, "%s", walk.other_paths.items[i]));
    return HS_OK;
}

static int by_end(const void *a, const void *b)
{
    return strcmp(((const Kind *)a)->end, ((const Kind *)b)->end);
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
    HS_TRY(hs_string_list_add(&text->train, "%s", folder));
    qsort(walk.kinds, (size_t)walk.count, sizeof *walk.kinds, by_end); /* not as a file system lists them */
    HS_TRY(exclude_refused(text));
    if (walk.refused == walk.files && tokens == walk.files)
        return hs_fail(HS_ECONFIG,
                       "--text %s: token files (.bin) hold no text to choose a tokenizer by: name their text, or begin "
                       "with configs/gpt2-124m.yaml",
                       folder);
    if (walk.refused == walk.files)
        return hs_fail(HS_ECONFIG,
                       "--text %s: none of its files is text (%s): convert them (pdftotext, say), or name "
                       "another folder",
                       folder, text->left_out);
    HS_TRY(exclude_other(text));
    if (text->exclude.count > 0)
        qsort(text->exclude.items, (size_t)text->exclude.count, sizeof *text->exclude.items, by_text);
    return HS_OK;
}

HsStatus hs_proposal_choose_files(const char *folder, HsProposalText *text)
{
    memset(&walk, 0, sizeof walk);
    walk.start = malloc(FIRST_BYTES);
    HsStatus status = walk.start ? HS_OK : hs_fail(HS_ENOMEM, "no memory to look at a text");
    if (status == HS_OK && nftw(folder, visit, 64, FTW_ACTIONRETVAL) != 0)
        status = walk.status != HS_OK
                     ? walk.status
                     : hs_fail(HS_ECONFIG, "--text %s: cannot be listed: name a folder that you may read", folder);
    if (status == HS_OK)
        status = choose(folder, text);
    hs_string_list_deinit(&walk.refused_paths);
    hs_string_list_deinit(&walk.other_paths);
    free(walk.start);
    return status;
}
