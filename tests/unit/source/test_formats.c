/* SPDX-License-Identifier: MIT
 *
 * What a file is read as: JSON lists, CSV, compressed files, and what is refused because it is no text.
 * In the messages '@' stands for the scratch folder.
 */
#include <criterion/criterion.h>
#include <zlib.h>
#include <zstd.h>

#include "runtime/data/source/source.h"
#include "runtime/data/source/unpack.h"
#include "tests/support/data_fixture.h"

enum { PACKED_BYTES = 4096 };

typedef struct Bytes {
    char bytes[PACKED_BYTES];
    size_t size;
} Bytes;

static Bytes gzipped(const char *text, size_t length)
{
    Bytes packed;
    z_stream stream;
    memset(&stream, 0, sizeof stream);
    cr_assert_eq(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (unsigned char *)text;
    stream.avail_in = (unsigned)length;
    stream.next_out = (unsigned char *)packed.bytes;
    stream.avail_out = PACKED_BYTES;
    cr_assert_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.size = stream.total_out;
    deflateEnd(&stream);
    return packed;
}

static Bytes zstandard(const char *text, size_t length)
{
    Bytes packed;
    packed.size = ZSTD_compress(packed.bytes, PACKED_BYTES, text, length, 3);
    cr_assert(!ZSTD_isError(packed.size));
    return packed;
}

static Bytes joined(Bytes a, Bytes b)
{
    cr_assert_leq(a.size + b.size, (size_t)PACKED_BYTES);
    memcpy(a.bytes + a.size, b.bytes, b.size);
    a.size += b.size;
    return a;
}

/* The train stream of the fixture's task: bytes, end of text written as '|'. */
static void expect_train(DataFixture *fixture, const char *validation, const char *expected)
{
    HsDataset dataset;
    char text[4096];
    data_fixture_validation(fixture, validation);
    cr_assert_eq(data_fixture_create(fixture, &dataset), HS_OK, "%s", hs_error_message());
    for (int64_t i = 0; i < dataset.train.count; i++)
        text[i] = (char)(dataset.train.tokens[i] == 256 ? '|' : dataset.train.tokens[i]);
    text[dataset.train.count] = '\0';
    cr_expect_str_eq(text, expected);
    hs_dataset_deinit(&dataset);
}

/* One file of this name, as the format says, becomes this. */
static void expect_file(const char *name, char *format, const void *bytes, size_t size, const char *expected)
{
    DataFixture fixture;
    data_fixture_init(&fixture);
    fixture.task.format = format;
    data_fixture_write(&fixture, name, bytes, size);
    data_fixture_train(&fixture, name);
    expect_train(&fixture, name, expected);
    data_fixture_deinit(&fixture);
}

static void expect_text_file(const char *name, char *format, const char *text, const char *expected)
{
    expect_file(name, format, text, strlen(text), expected);
}

/* The message with the folder as '@'; `expected` may be its beginning. */
static void expect_refused(const char *name, char *format, const void *bytes, size_t size, const char *expected)
{
    DataFixture fixture;
    HsDataset dataset;
    char message[1024];
    size_t used = 0;
    data_fixture_init(&fixture);
    fixture.task.format = format;
    data_fixture_write(&fixture, name, bytes, size);
    data_fixture_train(&fixture, name);
    cr_expect_eq(data_fixture_create(&fixture, &dataset), HS_EFORMAT, "%s must be refused: %s", name, expected);
    for (const char *at = hs_error_message(); *at && used + 1 < sizeof message;) {
        bool here = strncmp(at, fixture.folder, strlen(fixture.folder)) == 0;
        message[used++] = here ? '@' : *at;
        at += here ? strlen(fixture.folder) : 1;
    }
    message[used] = '\0';
    cr_expect(strncmp(message, expected, strlen(expected)) == 0, "got      `%s`\nexpected `%s`", message, expected);
    data_fixture_deinit(&fixture);
}

/* ---- formats by name ---- */

Test(formats, ndjson_is_json_lines)
{
    static const char *const names[] = { "x.ndjson", "x.jsonlines", "x.LDJSON" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_text_file(names[i], "auto", "{\"text\":\"abc\"}\n{\"text\":\"def\"}\n", "abc|def|");
}

Test(formats, json_lists)
{
    expect_text_file("x.json", "auto", "[{\"text\":\"abc\"}, {\"id\": [1, {\"a\": \"]}\"}], \"text\":\"d\\\"]e\"}]",
                     "abc|d\"]e|");
    expect_text_file("x.JSON", "auto",
                     "\xEF\xBB\xBF \n[\n \"abc\" ,\n\"\", {\"prompt\":\"q\",\"completion\":\"a\"} ]\n", "abc|qa|");
    expect_text_file("x.json", "text", "[\"abc\"]", "[\"abc\"]|");
    expect_text_file("x.json", "jsonl", "{\"text\":\"abcdef\"}\n", "abcdef|");
    expect_text_file("x.txt", "json", "[\"abcdef\"]\n", "abcdef|");
}

Test(formats, csv)
{
    expect_text_file("x.csv", "auto", "text\nabc\ndef\n", "abc|def|");
    expect_text_file("x.csv", "auto",
                     "\xEF\xBB\xBFid,text,more\r\n1,\"a, \"\"b\"\"\nc\",\r\n\r\n2,d e,\"\"\r\n3,,x\r\n4,\"f\",g",
                     "a, \"b\"\nc|d e|f|");
    expect_text_file("x.csv", "auto", "completion,prompt\nyes,one?\n\"no\r\nnever\",\"two, three?\"\n",
                     "one?yes|two, three?no\r\nnever|");
    expect_text_file("x.txt", "csv", "\"text\"\n\"abcdef\"\n", "abcdef|");
}

/* What Python's csv.reader makes of the same bytes, opened with newline="". */
Test(formats, csv_is_what_python_reads)
{
    expect_text_file("x.csv", "auto", "text,id\nsay \"a\" b,1\na\"\"b, \"2\"\n", "say \"a\" b|a\"\"b|");
    expect_text_file("x.csv", "auto", "text,id\rabc,1\rdef,2\r", "abc|def|");
    expect_text_file("x.csv", "auto", "text,id\r\n\"a\rb\r\nc\",1\ndef,2", "a\rb\r\nc|def|");
    expect_text_file("x.csv", "auto", "text\nab\rcd\n", "ab|cd|");
}

Test(formats, tsv_is_csv_with_tabs)
{
    expect_text_file("x.tsv", "auto", "id\ttext\n1\thello, there\n2\tbye\n", "hello, there|bye|");
    expect_text_file("x.TAB", "auto", "\xEF\xBB\xBFtext\tid\r\n\"a\tb\"\"c\nd\"\t1\r\nsay \"e\"\t2\r\n",
                     "a\tb\"c\nd|say \"e\"|");
    expect_text_file("x.txt", "tsv", "prompt\tcompletion\nab\tcd\n", "abcd|");
    expect_refused("x.tsv", "auto", "id,text\n1,a\n", 12, "@/x.tsv:1: the header is one field, which holds commas");
    expect_refused("x.tsv", "auto", "id\ttext\n1\ta\tb\n", 14,
                   "@/x.tsv:2: 3 fields, but the header has 2; put fields that hold tabs or line ends into quotes");
    const Bytes packed = gzipped("id\ttext\n1\tabcdef\n", 17);
    expect_file("x.tsv.gz", "auto", packed.bytes, packed.size, "abcdef|");
}

/* A byte order mark is none of the text, whatever the format, packed or not. */
Test(formats, byte_order_marks)
{
#define MARK "\xEF\xBB\xBF"
    static const struct {
        const char *name, *text, *expected;
    } cases[] = {
        { "x.txt", MARK "hello", "hello|" },
        { "x.md", MARK "a" MARK "bcd", "a" MARK "bcd|" }, /* elsewhere it is a character */
        { "x.jsonl", MARK "{\"text\":\"hello\"}\n", "hello|" },
        { "x.jsonl", MARK "\r\n{\"text\":\"hello\"}\r\n", "hello|" },
        { "x.json", MARK "[\"hello\"]", "hello|" },
        { "x.csv", MARK "\"text\"\nhello\n", "hello|" },
        { "x.tsv", MARK "text\nhello\n", "hello|" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char packed_name[32];
        const Bytes packed = gzipped(cases[i].text, strlen(cases[i].text));
        expect_text_file(cases[i].name, "auto", cases[i].text, cases[i].expected);
        snprintf(packed_name, sizeof packed_name, "%s.gz", cases[i].name);
        expect_file(packed_name, "auto", packed.bytes, packed.size, cases[i].expected);
    }
#undef MARK
}

/* As Python's universal newlines have it: a CR alone ends lines where no LF does. */
Test(formats, json_lines_that_end_in_cr)
{
    expect_text_file("x.jsonl", "auto", "{\"text\":\"abc\"}\r{\"text\":\"def\"}\r", "abc|def|");
    expect_text_file("x.jsonl", "auto", "{\"text\":\r\"abc\"}\r\n{\"text\":\"def\"}", "abc|def|");
}

Test(formats, the_loss_is_on_completions_in_all_of_them)
{
    static const struct {
        const char *name, *text;
    } files[] = {
        { "x.csv", "prompt,completion\nab,cd\n" },
        { "x.json", "[{\"prompt\":\"ab\",\"completion\":\"cd\"}]" },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        DataFixture fixture;
        HsDataset dataset;
        data_fixture_init(&fixture);
        data_fixture_write_text(&fixture, files[i].name, files[i].text);
        data_fixture_train(&fixture, files[i].name);
        data_fixture_validation(&fixture, files[i].name);
        cr_assert_eq(data_fixture_create(&fixture, &dataset), HS_OK, "%s", hs_error_message());
        cr_assert_not_null(dataset.train.loss_mask);
        cr_expect_eq(memcmp(dataset.train.loss_mask, "\0\0\1\1\1", 5), 0);
        hs_dataset_deinit(&dataset);
        data_fixture_deinit(&fixture);
    }
}

Test(formats, a_folder_is_read_file_by_file)
{
    DataFixture fixture;
    Bytes packed = gzipped("{\"text\":\"four\"}\n", 16);
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "d/1.txt", "one");
    data_fixture_write_text(&fixture, "d/2.json", "[\"two\"]");
    data_fixture_write_text(&fixture, "d/3.csv", "text\nthree\n");
    data_fixture_write(&fixture, "d/4.jsonl.gz", packed.bytes, packed.size);
    packed = zstandard("five", 4);
    data_fixture_write(&fixture, "d/5.md.zst", packed.bytes, packed.size);
    data_fixture_train(&fixture, "d");
    expect_train(&fixture, "d", "one|two|three|four|five|");
    data_fixture_deinit(&fixture);
}

/* ---- compressed files ---- */

Test(formats, compressed_files_are_what_their_inner_name_says)
{
    static const char text[] = "text\n\"a\nb\"\ncdef\n";
    Bytes gzip = gzipped(text, sizeof text - 1), zstd = zstandard(text, sizeof text - 1);
    expect_file("x.csv.gz", "auto", gzip.bytes, gzip.size, "a\nb|cdef|");
    expect_file("x.csv.zst", "auto", zstd.bytes, zstd.size, "a\nb|cdef|");
    expect_file("x.csv.gzip", "auto", gzip.bytes, gzip.size, "a\nb|cdef|");
    expect_file("x.csv.zstd", "auto", zstd.bytes, zstd.size, "a\nb|cdef|");
    /* Without the name the first bytes say it. */
    expect_file("x.csv", "auto", zstd.bytes, zstd.size, "a\nb|cdef|");
    expect_file("x", "auto", gzip.bytes, gzip.size, "text\n\"a\nb\"\ncdef\n|");
    expect_file("x", "csv", gzip.bytes, gzip.size, "a\nb|cdef|");
}

Test(formats, streams_one_behind_the_other_are_one_text)
{
    Bytes gzip = joined(gzipped("one ", 4), gzipped("two", 3)),
          zstd = joined(zstandard("one ", 4), zstandard("two", 3));
    Bytes skipped = { .bytes = "\x50\x2A\x4D\x18\2\0\0\0ab", .size = 10 };
    expect_file("x.txt.gz", "auto", gzip.bytes, gzip.size, "one two|");
    expect_file("x.txt.zst", "auto", zstd.bytes, zstd.size, "one two|");
    zstd = joined(skipped, zstd);
    expect_file("x.txt.zst", "auto", zstd.bytes, zstd.size, "one two|");
}

Test(formats, compressed_token_files)
{
    static const char tokens[] = "a\0b\0c\0d\0e\0f"; /* the last zero is the terminator */
    static const char looks_packed[] = "\x1f\0\x8b\0\x28\0\xb5\0\x2f";
    Bytes gzip = gzipped(tokens, 12);
    DataFixture fixture;
    data_fixture_init(&fixture);
    fixture.config.data.token_file = "raw16";
    data_fixture_write(&fixture, "x.bin.gz", gzip.bytes, gzip.size);
    data_fixture_write(&fixture, "y.bin", looks_packed, 10);
    data_fixture_train(&fixture, "x.bin.gz");
    data_fixture_train(&fixture, "y.bin");
    expect_train(&fixture, "y.bin", "abcdef\x1f\x8b\x28\xb5\x2f");
    data_fixture_deinit(&fixture);
}

/* By steps of that size, of input and of output -> out[*made]. */
static HsStatus unpack(const HsUnpackerKind *kind, const char *bytes, size_t size, size_t in_step, size_t out_step,
                       char *out, size_t *made)
{
    HsUnpacker unpacker;
    size_t at = 0;
    HsStatus status = hs_unpacker_open(&unpacker, kind, "x");
    *made = 0;
    for (bool more = true; status == HS_OK && more;) {
        const size_t left = size - at, in = left < in_step ? left : in_step;
        HsUnpackStep step = {
            .in = bytes + at, .in_size = in, .in_ended = in == left, .out = out + *made, .out_size = out_step
        };
        status = hs_unpacker_run(&unpacker, &step);
        at += step.taken;
        *made += step.made;
        more = step.made > 0 || at < size;
    }
    hs_unpacker_close(&unpacker);
    return status;
}

Test(formats, damaged_streams_are_refused_at_every_length)
{
    static const char text[] = "a text that is long enough to be cut off at many places, and holds 0123456789 too";
    Bytes packed[] = { gzipped(text, sizeof text - 1), zstandard(text, sizeof text - 1) };
    const HsUnpackerKind *const kinds[] = { &hs_unpacker_gzip, &hs_unpacker_zstd };
    char out[1000];
    size_t made;
    for (int i = 0; i < 2; i++) {
        for (size_t size = 1; size < packed[i].size; size++) {
            char *copy = malloc(size + 1); /* reading past the end is found */
            memcpy(copy, packed[i].bytes, size);
            cr_expect_eq(unpack(kinds[i], copy, size, size, 100, out, &made), HS_EFORMAT, "%d: %zu bytes", i, size);
            free(copy);
        }
        for (size_t step = 1; step < 100; step++) {
            const HsStatus status = unpack(kinds[i], packed[i].bytes, packed[i].size, step, 1 + step % 7, out, &made);
            cr_expect_eq(status, HS_OK, "%d: steps of %zu: %s", i, step, hs_error_message());
            cr_expect(made == sizeof text - 1 && memcmp(out, text, made) == 0, "%d: steps of %zu", i, step);
        }
    }
    Bytes cut = packed[0], changed = packed[0], more = packed[0], twice = gzipped(packed[0].bytes, packed[0].size);
    cut.size -= 5;
    changed.bytes[changed.size - 6] ^= 1; /* the checksum */
    more.bytes[more.size++] = 'x';
    expect_refused("x.txt.gz", "auto", cut.bytes, cut.size,
                   "@/x.txt.gz: the gzip data ends before its end: the file is cut off; copy it again");
    expect_refused("x.txt.gz", "auto", changed.bytes, changed.size,
                   "@/x.txt.gz: byte 88: not gzip data (incorrect data check): it is damaged; copy it again");
    expect_refused("x.txt.gz", "auto", more.bytes, more.size, "@/x.txt.gz: the gzip data ends before its end");
    expect_refused("x.txt.gz", "auto", text, sizeof text - 1, "@/x.txt.gz: is not gzip data, as its name says;");
    expect_refused("x.txt.zst", "auto", "", 0, "@/x.txt.zst: is not zstd data, as its name says;");
    expect_refused("x.gz.gz", "auto", twice.bytes, twice.size, "@/x.gz.gz: is compressed twice: gzip data inside;");
    expect_refused("x.txt.zst", "auto", packed[1].bytes, packed[1].size - 1,
                   "@/x.txt.zst: the zstd data ends before its end: the file is cut off; copy it again");
}

/* ---- refused ---- */

Test(formats, what_is_no_text_is_refused_by_name)
{
    static const struct {
        const char *name, *message;
    } cases[] = {
        { "x.parquet",
          "@/x.parquet: is not Parquet, as its name or the task's format says; rename it or copy it again" },
        { "x.Arrow", "task t: train: @/x.Arrow: is Arrow by its name, which is not read; convert it to JSONL, one "
                     "{\"text\": \"...\"} a line, or leave it out" },
        { "x.zip", "task t: train: @/x.zip: is a zip archive by its name, which is not read; unpack it and name" },
        { "x.txt.bz2", "task t: train: @/x.txt.bz2: is bzip2 data by its name, which is not read; unpack it, or" },
        { "x.txt.xz", "task t: train: @/x.txt.xz: is xz data by its name" },
        { "x.tar.gz", "task t: train: @/x.tar.gz: is a tar archive by its name" },
        { "x.tgz", "task t: train: @/x.tgz: is a tar archive by its name" },
        { "x.npy", "task t: train: @/x.npy: is NumPy by its name" },
        { "x.jsonl.br", "task t: train: @/x.jsonl.br: is brotli data by its name" },
        { "x.jsonl.lzma", "task t: train: @/x.jsonl.lzma: is LZMA data by its name" },
        { "x.docx",
          "task t: train: @/x.docx: is a document of an office program by its name, which is not read; save" },
        { "x.xlsx", "task t: train: @/x.xlsx: is a document of an office program by its name" },
        { "x.txz", "task t: train: @/x.txz: is a tar archive by its name" },
        { "x.safetensors", "task t: train: @/x.safetensors: is tensors by its name" },
        { "x.txt.dvc", "task t: train: @/x.txt.dvc: is a DVC pointer by its name, which is not read; `dvc pull`" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused(cases[i].name, "auto", "some text", 9, cases[i].message);
}

Test(formats, what_is_no_text_is_refused_by_its_bytes)
{
    static char tar[512];
    memcpy(tar + 257, "ustar", 6);
    static const struct {
        const char *bytes;
        size_t size;
        const char *message;
    } cases[] = {
        { "PAR1\x15\0\x15\0PAR1", 12,
          "@/x.txt: is Parquet by its first bytes, which is not read; name it .parquet, or set the task's format: "
          "parquet, or leave it out (tasks.N.exclude)" },
        { "PK\3\4\x14\0", 6, "@/x.txt: is a zip archive by its first bytes" },
        { "BZh91AY&SY\x1f", 11, "@/x.txt: is bzip2 data by its first bytes" },
        { "\xFD"
          "7zXZ\0\0\4",
          8, "@/x.txt: is xz data by its first bytes" },
        { "%PDF-1.7\n", 9, "@/x.txt: is PDF by its first bytes" },
        { "\xFF\xFE"
          "a\0b\0",
          6, "@/x.txt: is UTF-16 text by its first bytes, which is not read; convert it to UTF-8" },
        { "\xFE\xFF\0a", 4, "@/x.txt: is UTF-16 text by its first bytes" },
        { "\xFF\xFE\0\0a\0\0\0", 8,
          "@/x.txt: is UTF-32 text by its first bytes, which is not read; convert it to UTF-8 (iconv -f UTF-32 -t" },
        { "\0\0\xFE\xFF\0\0\0a", 8, "@/x.txt: is UTF-32 text by its first bytes" },
        { "h\0e\0l\0l\0o\0", 10,
          "@/x.txt: is UTF-16LE text without a byte order mark, by its first bytes, which is not read; convert it to "
          "UTF-8 (iconv -f UTF-16LE -t UTF-8), or leave it out (tasks.N.exclude)" },
        { "\0h\0e\0l\0l\0o", 10, "@/x.txt: is UTF-16BE text without a byte order mark" },
        { "h\0\0\0i\0\0\0!\0\0", 12, "@/x.txt: is UTF-32LE text without a byte order mark" },
        { "\0\0\0h\0\0\0i\0\0\0!", 12, "@/x.txt: is UTF-32BE text without a byte order mark" },
        { "SQLite format 3\0\1\2", 18, "@/x.txt: is SQLite by its first bytes" },
        { "{\\rtf1\\ansi hello}", 18, "@/x.txt: is RTF by its first bytes" },
        { tar, sizeof tar, "@/x.txt: is a tar archive by its first bytes" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        Bytes packed = gzipped(cases[i].bytes, cases[i].size);
        char inner[256];
        expect_refused("x.txt", "auto", cases[i].bytes, cases[i].size, cases[i].message);
        expect_refused("x.txt", "text", cases[i].bytes, cases[i].size, cases[i].message);
        snprintf(inner, sizeof inner, "@/x.txt.gz%s", strchr(cases[i].message, ':'));
        expect_refused("x.txt.gz", "auto", packed.bytes, packed.size, inner);
    }
    /* Letters alone are text. */
    expect_text_file("x.txt", "auto", "PAR1 is a word", "PAR1 is a word|");
}

/* What a checkout without the file has in its place, whatever the file would be. */
Test(formats, notes_that_stand_for_files_are_refused)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 57176\n";
    static const char annex[] = "/annex/objects/SHA256E-s5--abc.txt\n";
    static const char *const names[] = { "x.txt", "x.jsonl", "x.csv", "x.tsv", "x.json", "x.bin", "x.txt.gz", "x" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char expected[128];
        snprintf(expected, sizeof expected,
                 "@/%s: is a Git LFS pointer, which stands for a file that was not fetched: ", names[i]);
        expect_refused(names[i], "auto", lfs, sizeof lfs - 1, expected);
    }
    expect_refused("x.txt", "auto", annex, sizeof annex - 1, "@/x.txt: is a git-annex pointer");
    /* What is about them is text. */
    expect_text_file("x.txt", "auto", "version https://git-lfs.github.com/spec/v1 is a line",
                     "version https://git-lfs.github.com/spec/v1 is a line|");
}

Test(formats, text_must_be_utf8_where_the_tokenizer_reads_characters)
{
    static char *const kinds[] = { "char", "bpe" };
    static const char *const names[] = { "x.txt", "x.csv" };
    for (int i = 0; i < 2; i++) {
        const HsSourceOptions options = { .text_field = "text", .needs_utf8 = true };
        HsCorpus corpus = { 0 };
        const HsSourceKind *kind;
        cr_assert_eq(hs_source_kind_choose(names[i], "auto", &kind), HS_OK);
        cr_expect_eq(
            kind->parse(&(const HsSourceText)HS_SOURCE_WHOLE(names[i], "text\nab\xE4\n", 9), &options, &corpus),
            HS_EFORMAT);
        cr_expect_str_eq(strchr(hs_error_message(), ':'),
                         ": byte 7 (0xE4) is not UTF-8; convert the file (iconv -f ENCODING -t UTF-8) or leave it out "
                         "(tasks.N.exclude); "
                         "tokenizer.kind: byte takes anything");
        hs_corpus_deinit(&corpus);
    }
    DataFixture fixture;
    HsDataset dataset;
    data_fixture_init(&fixture);
    data_fixture_write_text(&fixture, "x.txt", "caf\xE9 caf\xE9 caf\xE9");
    data_fixture_train(&fixture, "x.txt");
    fixture.config.tokenizer.kind = kinds[0];
    cr_expect_eq(data_fixture_create(&fixture, &dataset), HS_EFORMAT);
    cr_expect_not_null(strstr(hs_error_message(), "x.txt: byte 3 (0xE9) is not UTF-8"), "%s", hs_error_message());
    data_fixture_deinit(&fixture);
}

#define FIELDS "has neither `text` nor both `prompt` and `completion`; name the fields with the task's text_field, or"

Test(formats, wrong_json_lists)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "{\"text\":\"a\"}\n{\"text\":\"b\"}\n",
          "@/x.json:1: a .json file must be a list of documents, [{\"text\": \"...\"}, ...]; if it has one object a "
          "line, set the task's format: jsonl, else convert it or leave it out" },
        { "\n\nsome text", "@/x.json:3: a .json file must be a list" },
        { "[\"a\",\n\n7]", "@/x.json:3: element 2: an element must be a string or an object such as {\"text\": " },
        { "[\"a\",\n{\"body\":\"b\"}]", "@/x.json:2: element 2: " FIELDS },
        { "[{\"text\":\"a\",\n\"text2\":}]", "@/x.json:1: element 1: byte 21: not JSON" },
        { "[\"a\\u0000b\"]", "@/x.json:1: element 1: has the escape \\u0000" },
        { "[\"a\xFF\"]", "@/x.json:1: element 1: byte 2: not JSON: malformed UTF-8" },
        { "[\"a\"\n\"b\"]", "@/x.json:2: byte 5: not JSON: a comma or the list's end is expected here" },
        { "[\"a\",\n]", "@/x.json:2: byte 6: not JSON: an element is expected here" },
        { "[,\"a\"]", "@/x.json:1: byte 1: not JSON: an element is expected here" },
        { "[\"a\"] []", "@/x.json:1: byte 6: not JSON: nothing behind the list is expected here" },
        { "[\"a\",\n{\"text\": \"b\"", "@/x.json:2: the file ends within the list: it is cut off; copy it again" },
        { "[\"a\",\n\"b", "@/x.json:2: the file ends within the list" },
        { "[\"a\"", "@/x.json:1: the file ends within the list" },
        { "[", "@/x.json:1: the file ends within the list" },
        { "[\"a\\", "@/x.json:1: the file ends within the list" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused("x.json", "auto", cases[i].text, strlen(cases[i].text), cases[i].message);
    expect_refused("x.json", "auto", "[\"a\", \0]", 8, "@/x.json:1: element 2: byte 0: a zero byte");
}

Test(formats, wrong_csv)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "body\nabc\n", "@/x.csv:1: the header: " FIELDS },
        { "\r\n\r\ntext;id\nabc;1\n", "@/x.csv:3: the header is one field, which holds semicolons: fields are "
                                      "separated by commas in .csv, by tabs" },
        { "a\ttext\n1\tb\n", "@/x.csv:1: the header is one field, which holds tabs: fields are separated by commas" },
        { "text,prompt,completion\na,b,c\n", "@/x.csv:1: the header: has `text` and also `prompt` and `completion`;" },
        { "text,id,text\na,b,c\n", "@/x.csv:1: the header has the column `text` twice; rename one" },
        { "text,id\n\"a\nb\",1\nc, d,2\n",
          "@/x.csv:4: 3 fields, but the header has 2; put fields that hold commas or line ends into quotes" },
        { "text,id\na\n", "@/x.csv:2: 1 fields, but the header has 2" },
        { "text\n\"say\"a\n",
          "@/x.csv:2: a quoted field continues behind its closing quote; double the quotes inside" },
        { "text\nok\n\"a\nb\nc", "@/x.csv:3: the quoted field that begins here does not end; close it, and double" },
        { "text,id\ra,1\rb\r", "@/x.csv:3: 1 fields, but the header has 2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_refused("x.csv", "auto", cases[i].text, strlen(cases[i].text), cases[i].message);
    expect_refused("x.csv", "auto", "text\na\0b\n", 9, "@/x.csv: byte 6: a zero byte, so this is not text");
}

Test(formats, an_empty_file_is_no_document)
{
    static const char *const names[] = { "d/1.json", "d/2.csv", "d/3.ndjson", "d/4.txt" };
    DataFixture fixture;
    data_fixture_init(&fixture);
    for (size_t i = 0; i < 4; i++)
        data_fixture_write_text(&fixture, names[i], "");
    data_fixture_write_text(&fixture, "d/5.json", " [ ] ");
    data_fixture_write_text(&fixture, "d/6.csv", "text\n\n");
    data_fixture_write_text(&fixture, "d/7.txt", "abcdef");
    data_fixture_train(&fixture, "d");
    expect_train(&fixture, "d", "abcdef|");
    data_fixture_deinit(&fixture);
}
