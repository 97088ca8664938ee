/* SPDX-License-Identifier: MIT
 *
 * Where training text comes from, before there are tokens.  Internal to runtime/data, its tests and its fuzzers.
 *
 *   names (files, folders, globs, synthetic:NAME) -> HsSourceList, sorted and flat
 *   each source -> units of whole records (units.h) -> pieces of an HsCorpus:  text pieces lie in `text`, pieces of
 *   token files in `tokens`
 *
 * Invariant: pieces are in order, and a document is a run of pieces of which only the last has ends_document.
 */
#ifndef HS_RUNTIME_DATA_SOURCE_SOURCE_H
#define HS_RUNTIME_DATA_SOURCE_SOURCE_H

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "runtime/config/config.h"
#include "runtime/data/tokenizer/tokenizer.h"

struct HsCorpus;
struct HsSource;
struct HsSourceOptions;

/* What a parser is given: a source, or whole records of it. */
typedef struct HsSourceText {
    const char *name; /* stands for the file in messages */
    const char *bytes;
    size_t size;
    size_t offset;      /* of the first byte in the source */
    int64_t line;       /* of the first byte, from 1 */
    int64_t record;     /* of the first record, from 1 (JSON lists) */
    bool first, last;   /* begins, ends the source */
    char line_end;      /* JSON Lines: what ends a line; 0: not known yet */
    const char *header; /* CSV: the first row, where the text does not have it */
    size_t header_size;
} HsSourceText;
#define HS_SOURCE_WHOLE(NAME, BYTES, SIZE)                                                                    \
    {                                                                                                         \
        .name = (NAME), .bytes = (BYTES), .size = (SIZE), .line = 1, .record = 1, .first = true, .last = true \
    }

/* Where reading may begin again: in front of a unit (units.h). */
typedef struct HsUnitPlace {
    int source;  /* number in the list */
    bool inside; /* of it; else it is read from its beginning, and the rest is nothing */
    char line_end;
    size_t offset;
    int64_t line, record;
} HsUnitPlace;

/* Records that a text begins with. */
typedef struct HsSourceCut {
    size_t size; /* bytes; 0: more text has to be there before one is known to be whole */
    int64_t lines, records;
} HsSourceCut;

/* One row for each way to read a source: source.c holds the table. */
typedef struct HsSourceKind {
    const char *format;    /* what tasks.N.format calls it; "": chosen by name only */
    const char *extension; /* with the dot; NULL: everything else is text */
    bool makes_tokens;     /* the source holds token numbers, not text */
    HsStatus (*parse)(const HsSourceText *text, const struct HsSourceOptions *options, struct HsCorpus *corpus);
    /* Where the text, of which more follows, may be cut; notes in it what the parser of the rest needs.  NULL: the
     * source has one record, and is a text (units.h) or is read whole. */
    void (*cut)(HsSourceText *text, HsSourceCut *cut);
} HsSourceKind;
extern const HsSourceKind hs_source_kinds[]; /* the last is text */

typedef struct HsSource {
    char *name;               /* path, or synthetic:NAME */
    const HsSourceKind *kind; /* NULL: synthetic */
    bool found;               /* in a folder or by a pattern; false: named */
} HsSource;

/* What of folders and patterns is left out (exclude.c). */
typedef struct HsExclusion {
    const HsStringList *patterns; /* the caller's */
    char **paths;                 /* real ones, sorted, that patterns with a slash stand for */
    int path_count;
    size_t path_capacity;
    int left_out; /* files and folders, so far */
} HsExclusion;

typedef struct HsSourceList {
    HsSource *items;
    int count;
    size_t capacity;
    int backups; /* editors' copies that were left out */
    int loops;   /* links to a folder above them, likewise */
    int linked;  /* further names of one file, likewise */
    HsExclusion exclusion;
    size_t named; /* how many bytes of a path that is being looked at were named, not found */
    char *apart;  /* a folder of which the files are left out, as a real path; NULL: none is */
    int apart_files;
} HsSourceList;

/* What folders and patterns find below `folder` from now on is left out: a run's own out_dir, which may lie among its
 * texts.  errors: HS_ENOMEM */
HsStatus hs_source_list_keep_apart(HsSourceList *list, const char *folder);

/* What folders and patterns find from now on is left out where `patterns` say so, which have to outlive the list: names
 * (*.log, node_modules) of files or folders at any depth, or, with a slash, paths and patterns of paths.
 * errors: HS_ENOMEM */
HsStatus hs_source_list_exclude(HsSourceList *list, const HsStringList *patterns);
/* Whether the path, of which the first `named` bytes were named, is left out; counts it. */
bool hs_source_list_excludes(HsSourceList *list, const char *path, size_t named);
void hs_exclusion_deinit(HsExclusion *exclusion);

/* A folder on the way to a path, and those above it. */
typedef struct HsFoldersAbove {
    const struct HsFoldersAbove *next;
    dev_t device;
    ino_t number;
    int depth;
} HsFoldersAbove;
/* Whether what was found is one of these, by a symbolic link: it is not followed then. */
bool hs_folder_is_above(const HsFoldersAbove *above, const struct stat *about);
/* Of the names in a folder those that are never read: dot files and editors' backups. */
bool hs_source_is_passed_over(const char *name);

/* Appends what `name` stands for.  Folders are read recursively without dot files and editors' backups; patterns are
 * those of glob.h; what folders and patterns give is sorted by byte order of the path, and has each file once, whatever
 * links lead to it.  format: the task's; auto chooses for each file by its name.
 * errors: HS_EIO, HS_ECONFIG and HS_EFORMAT naming the path */
HsStatus hs_source_list_add(HsSourceList *list, const char *name, const char *format);
/* That a command which reads the sources and writes `output` replaces none of them; output NULL: it writes to the
 * standard output.  errors: HS_ECONFIG */
HsStatus hs_source_list_check_output(const HsSourceList *list, const char *output);
/* Says what was left out. */
void hs_source_list_warn(const HsSourceList *list);
void hs_source_list_deinit(HsSourceList *list);
/* Appends the standard input, read as `format` says (auto: text).  Only for commands that read their sources once. */
HsStatus hs_source_list_add_input(HsSourceList *list, const char *format);
#define HS_SOURCE_INPUT "-"
/* What messages call it. */
const char *hs_source_title(const HsSource *source);
bool hs_source_list_has_tokens(const HsSourceList *list);
/* A file of tokens that is not compressed: they are read from it as they are needed (token_shards.h). */
bool hs_source_stays_in_file(const HsSource *source);
/* The row for a path: by the format where it is not auto, else by the extension in front of .gz or .zst.
 * errors: HS_EFORMAT for a name that says a format that is no text */
HsStatus hs_source_kind_choose(const char *path, const char *format, const HsSourceKind **kind);

typedef struct HsPiece {
    size_t start, length;
    double nats;  /* information content when a generator knows it, else NAN; of whole documents only */
    int source;   /* which source, for messages */
    int64_t line; /* JSONL, JSON, CSV; 0: none */
    bool is_tokens;
    bool counted;       /* its tokens are targets */
    bool ends_document; /* an end-of-text token follows, where the tokenizer has one; not behind a conversation */
    bool chat;          /* of a conversation, which is tokenized as one text (chat.h) */
} HsPiece;

typedef struct HsCorpus {
    char *text;
    size_t text_length, text_capacity;
    HsTokens tokens;
    HsPiece *pieces;
    int64_t piece_count;
    size_t piece_capacity;
    int source; /* given to the pieces that are added */
    /* Of messages, what templates do with them that may not be meant: */
    int64_t unrendered_contents; /* contents that are left out: hs_chat_left_out */
    int64_t quoted_arguments;    /* arguments that are a string, and are put as one */
} HsCorpus;

typedef struct HsSourceOptions {
    const char *text_field, *prompt_field, *completion_field; /* JSONL, JSON, CSV */
    const char *chat_template;                                /* tokenizer.chat_template */
    const char *tokenizer_path;                               /* where to look for what it is about */
    const HsTokenizer *tokenizer; /* a source may write its tokens; NULL: made from the text later */
    bool contents_only;           /* of conversations each message as it is: to learn a tokenizer from */
    bool needs_utf8;              /* the tokenizer is one of characters */
    bool raw16;                   /* token files without a header */
    int64_t vocabulary;           /* token files: tokens must be below it */
    uint64_t seed;                /* synthetic sources */
    int64_t synthetic_bytes;
} HsSourceOptions;

/* What the task says; the rest is zero. */
static inline HsSourceOptions hs_source_options(const HsTaskConfig *task)
{
    return (HsSourceOptions){ .text_field = task->text_field,
                              .prompt_field = task->prompt_field,
                              .completion_field = task->completion_field,
                              .synthetic_bytes = task->synthetic_tokens };
}

/* Reads one source whole and appends its pieces. */
HsStatus hs_source_read(const HsSource *source, const HsSourceOptions *options, HsCorpus *corpus);
HsStatus hs_corpus_add_text(HsCorpus *corpus, const char *text, size_t length, bool counted, bool ends_document,
                            int64_t line, double nats);
/* A piece of the tokens that were appended to corpus->tokens from `first` on. */
HsStatus hs_corpus_add_tokens(HsCorpus *corpus, int64_t first);
/* Empties it, and keeps its memory. */
void hs_corpus_clear(HsCorpus *corpus);
void hs_corpus_deinit(HsCorpus *corpus);

/* Parsers of bytes in memory.  errors: HS_EFORMAT with line or byte offset */
HsStatus hs_text_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);
HsStatus hs_jsonl_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);
void hs_jsonl_cut(HsSourceText *text, HsSourceCut *cut);
HsStatus hs_json_list_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);
void hs_json_list_cut(HsSourceText *text, HsSourceCut *cut);
HsStatus hs_csv_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);
void hs_csv_cut(HsSourceText *text, HsSourceCut *cut);
HsStatus hs_tsv_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);
void hs_tsv_cut(HsSourceText *text, HsSourceCut *cut);
HsStatus hs_token_file_parse(const HsSourceText *text, const HsSourceOptions *options, HsCorpus *corpus);

/* Moves *end from where an element of JSON begins to past it: a string, what stands between brackets that belong
 * together, or a word.  false: it does not end within the bytes. */
bool hs_json_element_end(const char *bytes, size_t size, size_t *end);

/* What is wrong with a line of JSON Lines that is not blank and could not be read, where it does not hold one object;
 * else `status` with its message.  last: no more text follows, so that an object that does not end was cut off. */
HsStatus hs_jsonl_explain(HsStatus status, const char *place, const char *text, size_t length, bool last);

/* No zero byte, and UTF-8 where the tokenizer needs it.  errors: HS_EFORMAT with the byte's offset */
HsStatus hs_text_check(const HsSourceText *text, const HsSourceOptions *options);

/* A document of named fields: text, or prompt and completion. */
typedef struct HsField {
    const char *bytes; /* NULL: not there */
    size_t length;
} HsField;
typedef struct HsDocument {
    HsField text, prompt, completion;
} HsDocument;

/* Do these fields make a document?  errors: HS_EFORMAT "PLACE: has neither ..." */
HsStatus hs_document_check_fields(const char *place, bool text, bool prompt, bool completion,
                                  const HsSourceOptions *options);
/* Appends its pieces; a document without any text is none. */
HsStatus hs_document_add(const HsDocument *document, int64_t line, HsCorpus *corpus);
/* One JSON value: an object, or (strings) a string that is the text itself.  kind: what messages call it. */
HsStatus hs_document_parse_json(const char *place, const char *text, size_t length, int64_t line, const char *kind,
                                bool strings, const HsSourceOptions *options, HsCorpus *corpus);

#endif
