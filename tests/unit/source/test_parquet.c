/* SPDX-License-Identifier: MIT
 *
 * Parquet: the files in parquet/, as other programs write them, give the documents of the JSON Lines next to them; what
 * is not read is refused by name; and no change of a byte, nor any cut, does more than give an error.
 * In the messages '@' stands for the folder.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/parquet.h"
#include "runtime/io/files.h"

#define FOLDER "tests/unit/source/parquet"

static HsSourceOptions options_for(const char *name)
{
    return (HsSourceOptions){ .text_field = "text",
                              .prompt_field = "prompt",
                              .completion_field = "completion",
                              .chat_template = strncmp(name, "calls", 5) == 0 ? "qwen2.5" : "chatml" };
}

static void read_file(const char *name, char **bytes, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, FOLDER "/%s", name);
    cr_assert_eq(hs_read_file(path, 0, bytes, size), HS_OK, "%s", hs_error_message());
}

static int is_file(const struct dirent *entry)
{
    const char *const end = strstr(entry->d_name, ".parquet");
    return end && end[8] == '\0' && strncmp(entry->d_name, "refused", 7) != 0;
}

/* The files that are read; the caller frees. */
static int list_files(struct dirent ***entries)
{
    const int count = scandir(FOLDER, entries, is_file, alphasort);
    cr_assert_geq(count, 50);
    return count;
}

static void free_files(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static void expect_same(const char *name, const HsCorpus *corpus, const HsCorpus *expected)
{
    cr_assert_eq(corpus->piece_count, expected->piece_count, "%s: %ld pieces, not %ld", name, (long)corpus->piece_count,
                 (long)expected->piece_count);
    for (int64_t i = 0; i < corpus->piece_count; i++) {
        const HsPiece *const piece = &corpus->pieces[i], *const other = &expected->pieces[i];
        cr_expect(piece->length == other->length && piece->line == other->line && piece->counted == other->counted &&
                      piece->ends_document == other->ends_document && piece->chat == other->chat,
                  "%s: piece %ld", name, (long)i);
    }
    cr_assert_eq(corpus->text_length, expected->text_length, "%s", name);
    cr_expect(corpus->text_length == 0 || memcmp(corpus->text, expected->text, corpus->text_length) == 0,
              "%s: got `%.*s`, expected `%.*s`", name, (int)corpus->text_length, corpus->text,
              (int)expected->text_length, expected->text);
}

static void parse_lines(const char *name, const HsSourceOptions *options, HsCorpus *corpus)
{
    char lines[512], *bytes;
    size_t size;
    snprintf(lines, sizeof lines, "%.*s.jsonl", (int)strcspn(name, "-"), name);
    read_file(lines, &bytes, &size);
    cr_assert_eq(hs_jsonl_parse(&(const HsSourceText)HS_SOURCE_WHOLE(lines, bytes, size), options, corpus), HS_OK, "%s",
                 hs_error_message());
    free(bytes);
}

Test(parquet, files_are_what_their_lines_are)
{
    struct dirent **entries;
    const int count = list_files(&entries);
    for (int i = 0; i < count; i++) {
        const char *const name = entries[i]->d_name;
        const HsSourceOptions options = options_for(name);
        HsCorpus corpus = { 0 }, expected = { 0 };
        char *bytes;
        size_t size;
        read_file(name, &bytes, &size);
        cr_assert_eq(hs_parquet_parse(&(const HsSourceText)HS_SOURCE_WHOLE(name, bytes, size), &options, &corpus),
                     HS_OK, "%s", hs_error_message());
        parse_lines(name, &options, &expected);
        expect_same(name, &corpus, &expected);
        hs_corpus_deinit(&corpus);
        hs_corpus_deinit(&expected);
        free(bytes);
    }
    free_files(entries, count);
}

/* ---- group by group ---- */

static HsStatus read_bytes(const void *user, int64_t at, size_t size, char *bytes)
{
    memcpy(bytes, (const char *)user + at, size);
    return HS_OK;
}

typedef struct Reader {
    const HsParquet *file;
    int64_t group;
    HsStatus status;
    HsCorpus corpus;
} Reader;

static void *read_group(void *argument)
{
    Reader *const reader = argument;
    const HsSourceOptions options = options_for("texts");
    reader->status = hs_parquet_parse_group(reader->file, reader->group, &options, &reader->corpus);
    return NULL;
}

Test(parquet, threads_read_groups_of_one_file)
{
    enum { GROUPS = 3 };
    static const int64_t rows[GROUPS] = { 5, 5, 2 }, bytes[GROUPS] = { 1, 1, 1 };
    const HsSourceOptions options = options_for("texts");
    HsParquetInput input = { .read = read_bytes };
    HsParquet *file;
    HsCorpus joined = { 0 }, expected = { 0 };
    Reader readers[GROUPS] = { 0 };
    pthread_t threads[GROUPS];
    char *content;
    size_t size;
    read_file("texts-groups.parquet", &content, &size);
    input.user = content;
    input.size = (int64_t)size;
    cr_assert_eq(hs_parquet_open("x", &input, &options, &file), HS_OK, "%s", hs_error_message());
    cr_assert_eq(hs_parquet_groups(file), GROUPS);
    for (int i = 0; i < GROUPS; i++) {
        cr_expect_eq(hs_parquet_group_rows(file, i), rows[i]);
        cr_expect_geq(hs_parquet_group_bytes(file, i), bytes[i]);
        readers[i] = (Reader){ .file = file, .group = i };
        cr_assert_eq(pthread_create(&threads[i], NULL, read_group, &readers[i]), 0);
    }
    for (int i = 0; i < GROUPS; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert_eq(readers[i].status, HS_OK);
        for (int64_t k = 0; k < readers[i].corpus.piece_count; k++) {
            const HsPiece *const piece = &readers[i].corpus.pieces[k];
            cr_assert_eq(hs_corpus_add_text(&joined, readers[i].corpus.text + piece->start, piece->length,
                                            piece->counted, piece->ends_document, piece->line, piece->nats),
                         HS_OK);
        }
        hs_corpus_deinit(&readers[i].corpus);
    }
    parse_lines("texts-groups.parquet", &options, &expected);
    expect_same("texts-groups", &joined, &expected);
    hs_corpus_deinit(&joined);
    hs_corpus_deinit(&expected);
    hs_parquet_close(file);
    free(content);
}

/* ---- refused ---- */

static void expect_refused(const char *name, const char *bytes, size_t size, const char *expected)
{
    const HsSourceOptions options = options_for(name);
    HsCorpus corpus = { 0 };
    cr_expect_eq(hs_parquet_parse(&(const HsSourceText)HS_SOURCE_WHOLE(name, bytes, size), &options, &corpus),
                 HS_EFORMAT, "%s must be refused", name);
    cr_expect_str_eq(hs_error_message(), expected);
    hs_corpus_deinit(&corpus);
}

#define GROUP "@: row group 1: column `text`: "

Test(parquet, what_is_not_read_is_refused_by_name)
{
    static const struct {
        const char *file, *message;
    } cases[] = {
        { "lz4",
          GROUP "it is compressed by LZ4_RAW, which is not read: write the file anew with snappy, zstd or gzip" },
        { "brotli",
          GROUP "it is compressed by BROTLI, which is not read: write the file anew with snappy, zstd or gzip" },
        { "fields",
          "@: has neither `text` nor both `prompt` and `completion`, but the columns id, body, title; name the "
          "fields with the task's text_field, or prompt_field and completion_field" },
        { "null", "@:2: `text` is null, so the row is no document: leave it out" },
        { "pair", "@:1: `completion` is null, so the row is no document: leave it out" },
        { "both", "@:1: has `text` and also `prompt` and `completion`; leave one out, or name other fields with the "
                  "task's text_field, prompt_field and completion_field" },
        { "zero",
          "@:2: `text` has a zero byte, which text for training must not have: remove it, or leave the row out" },
        { "latin", "@:2: `text`: byte 3 (0xE9) is not UTF-8: repair the text, or leave the row out" },
        { "number", "@:1: `text` must be a string" },
        { "fixed", "@: column `text` has the type FIXED_LEN_BYTE_ARRAY, which is not read: write it as a string or a "
                   "number, or leave it out" },
        { "twice", "@: has the column `text` twice; rename one" },
        { "decimal", "@: column `messages.list.element.about` has the type DECIMAL, which is not read: write it as a "
                     "string or a number, or leave it out" },
        { "map", "@: column `messages.list.element.about` has the type MAP, which is not read: write it as a string or "
                 "a number, or leave it out" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[64], *bytes;
        size_t size;
        snprintf(name, sizeof name, "refused-%s.parquet", cases[i].file);
        read_file(name, &bytes, &size);
        expect_refused("@", bytes, size, cases[i].message);
        free(bytes);
    }
}

Test(parquet, files_that_are_no_parquet)
{
    char *bytes;
    size_t size;
    read_file("texts-required.parquet", &bytes, &size);
    expect_refused("@", bytes, 0,
                   "@: is not Parquet, as its name or the task's format says; rename it or copy it again");
    expect_refused("@", "some text in a file", 19,
                   "@: is not Parquet, as its name or the task's format says; rename it or copy it again");
    expect_refused("@", bytes, size - 1,
                   "@: begins as a Parquet file and does not end as one: it is cut off; copy it again");
    bytes[size - 5] = 1; /* the footer's length */
    char message[256];
    const long footer = (long)(unsigned char)bytes[size - 8] + 256L * (unsigned char)bytes[size - 7] + (1L << 24);
    snprintf(message, sizeof message,
             "@: its footer of %ld bytes would begin in front of it: the file is damaged: copy it again", footer);
    expect_refused("@", bytes, size, message);
    memcpy(bytes + size - 4, "PARE", 4);
    expect_refused("@", bytes, size, "@: is encrypted, which is not read: decrypt it");
    free(bytes);
}

/* ---- damaged ---- */

/* A copy of just that size: a sanitizer finds what reads behind it. */
static void parse_damaged(const char *name, const char *bytes, size_t size, size_t at, char change)
{
    const HsSourceOptions options = options_for(name);
    HsCorpus corpus = { 0 };
    char *const copy = malloc(size > 0 ? size : 1);
    cr_assert_not_null(copy);
    memcpy(copy, bytes, size);
    if (at < size)
        copy[at] = (char)(copy[at] ^ change);
    const HsStatus status = hs_parquet_parse(&(const HsSourceText)HS_SOURCE_WHOLE(name, copy, size), &options, &corpus);
    cr_expect(status == HS_OK || status == HS_EFORMAT, "%s: byte %zu: %s", name, at, hs_error_message());
    hs_corpus_deinit(&corpus);
    free(copy);
}

Test(parquet, damaged_files_are_errors)
{
    struct dirent **entries;
    const int count = list_files(&entries);
    for (int i = 0; i < count; i++) {
        const char *const name = entries[i]->d_name;
        char *bytes;
        size_t size;
        read_file(name, &bytes, &size);
        for (size_t at = 0; at < size; at += 7)
            parse_damaged(name, bytes, at, at, 0);
        for (size_t at = (size_t)i % 5; at < size; at += 5)
            parse_damaged(name, bytes, size, at, (char)(1 << (at / 5) % 8));
        free(bytes);
    }
    free_files(entries, count);
}

Test(parquet, a_checksum_is_looked_at)
{
    const HsSourceOptions options = options_for("texts");
    HsCorpus corpus = { 0 };
    char *bytes;
    size_t size, found = 0;
    read_file("texts-checksums.parquet", &bytes, &size);
    for (size_t at = 4; at < size / 2; at++) {
        bytes[at] = (char)(bytes[at] ^ 1);
        if (hs_parquet_parse(&(const HsSourceText)HS_SOURCE_WHOLE("x", bytes, size), &options, &corpus) == HS_EFORMAT &&
            strstr(hs_error_message(), "a page's checksum is not that of its bytes"))
            found++;
        bytes[at] = (char)(bytes[at] ^ 1);
    }
    cr_expect_gt(found, 100u);
    hs_corpus_deinit(&corpus);
    free(bytes);
}
