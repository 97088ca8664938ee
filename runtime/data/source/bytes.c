/* SPDX-License-Identifier: MIT
 *
 * A source's bytes: which kind its name says, what its first bytes say against that, and unpacking.
 *
 *     name -> (.gz .zst off) -> kind -> bytes of the file -> unpacked -> no format that is not text
 *
 * First bytes are looked at only for formats that are not text: text would not be read as text by accident.  Token
 * files are left out: without a header they may begin with any bytes, so of them the name alone decides.
 */
#include <string.h>
#include <strings.h>

#include "runtime/data/source/input.h"

/* Formats that are not text: refused with what to do, by name or by the bytes at `offset`. */
typedef struct Refused {
    const char *what, *mend;
    const char *extensions; /* with dots, each with a blank behind it; "": by its bytes only */
    size_t offset, size;
    const char *magic;
    bool as_text; /* the magic is letters: only with a zero byte somewhere is it that format */
} Refused;

#define TO_JSONL          "convert it to JSONL, one {\"text\": \"...\"} a line"
#define TO_GZIP           "unpack it, or compress it with gzip or zstd"
#define TO_FILES          "unpack it and name the files in it"
#define TO_TEXT           "it holds no text"
#define TO_UTF8(encoding) "convert it to UTF-8 (iconv -f " encoding " -t UTF-8)"

static const Refused refused[] = {
    { "Parquet", "name it .parquet, or set the task's format: parquet", "", 0, 4, "PAR1", true },
    { "Arrow", TO_JSONL, ".arrow .feather ", 0, 8, "ARROW1\0\0", false },
    { "NumPy", "write its text, or its tokens as a .bin file", ".npy .npz ", 0, 6, "\x93NUMPY", false },
    { "a zip archive", TO_FILES, ".zip ", 0, 4, "PK\3\4", false },
    { "an empty zip archive", TO_FILES, "", 0, 4, "PK\5\6", false },
    { "a 7z archive", TO_FILES, ".7z ", 0, 6, "7z\xBC\xAF\x27\x1C", false },
    { "a tar archive", TO_FILES, ".tar .tgz .tbz .tbz2 .txz .tzst ", 257, 5, "ustar", true },
    { "bzip2 data", TO_GZIP, ".bz2 ", 4, 6, "1AY&SY", false },
    { "xz data", TO_GZIP, ".xz ", 0, 6, "\3757zXZ\0", false }, /* octal: a digit follows */
    { "LZMA data", TO_GZIP, ".lzma ", 0, 3, "\x5D\0\0", false },
    { "brotli data", TO_GZIP, ".br ", 0, 0, NULL, false },
    { "data of compress", TO_GZIP, ".z ", 0, 2, "\x1F\x9D", false },
    { "lz4 data", TO_GZIP, ".lz4 ", 0, 4, "\4\x22\x4D\x18", false },
    { "PDF", "extract its text (pdftotext)", ".pdf ", 0, 5, "%PDF-", false },
    { "a rar archive", TO_FILES, ".rar ", 0, 6, "Rar!\x1A\7", false },
    { "RTF", "save it as plain text", ".rtf ", 0, 6, "{\\rtf1", false },
    { "a document of an office program", "save it as plain text or CSV",
      ".doc .docx .odt .pptx .odp .xls .xlsx .ods .epub ", 0, 8, "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", false },
    { "ORC", TO_JSONL, ".orc ", 0, 3, "ORC", true },
    { "Avro", TO_JSONL, ".avro ", 0, 4, "Obj\1", false },
    { "HDF5", TO_JSONL, ".h5 .hdf5 ", 0, 8, "\x89HDF\r\n\x1A\n", false },
    { "SQLite", TO_JSONL, ".sqlite .sqlite3 .db ", 0, 16, "SQLite format 3", false },
    { "a Python pickle", TO_JSONL, ".pkl .pickle .pt .pth ", 0, 2, "\x80\4", true },
    { "an image", TO_TEXT, ".png ", 0, 4, "\x89PNG", false },
    { "an image", TO_TEXT, ".jpg .jpeg ", 0, 3, "\xFF\xD8\xFF", false },
    { "an image", TO_TEXT, ".gif ", 0, 4, "GIF8", true },
    { "tensors", "that is a model: init_from takes its folder", ".safetensors .gguf ", 0, 4, "GGUF", true },
    { "a DVC pointer", "`dvc pull` fetches the file that it stands for: name that one", ".dvc ", 0, 0, NULL, false },
    { "UTF-32 text", TO_UTF8("UTF-32"), "", 0, 4, "\xFF\xFE\0\0", false }, /* before UTF-16, which begins it */
    { "UTF-32 text", TO_UTF8("UTF-32"), "", 0, 4, "\0\0\xFE\xFF", false },
    { "UTF-16 text", TO_UTF8("UTF-16"), "", 0, 2, "\xFF\xFE", false },
    { "UTF-16 text", TO_UTF8("UTF-16"), "", 0, 2, "\xFE\xFF", false },
};
enum { REFUSED = sizeof refused / sizeof refused[0] };

static const HsPacking packings[] = {
    { "gzip", ".gz", 0, 2, "\x1F\x8B", &hs_unpacker_gzip },
    { "gzip", ".gzip", 0, 2, "\x1F\x8B", &hs_unpacker_gzip },
    { "zstd", ".zst", 0, 4, "\x28\xB5\x2F\xFD", &hs_unpacker_zstd },
    { "zstd", ".zstd", 0, 4, "\x28\xB5\x2F\xFD", &hs_unpacker_zstd },
    { "zstd", ".zst", 1, 3, "\x2A\x4D\x18", &hs_unpacker_zstd }, /* a frame to be skipped, which pzstd writes first */
};
enum { PACKINGS = sizeof packings / sizeof packings[0] };

static bool ends_with(const char *name, size_t length, const char *extension, size_t extension_length)
{
    return length > extension_length && strncasecmp(name + length - extension_length, extension, extension_length) == 0;
}

/* By name; NULL: not packed. */
const HsPacking *hs_packing_of_name(const char *name)
{
    for (int i = 0; i < PACKINGS; i++)
        if (ends_with(name, strlen(name), packings[i].extension, strlen(packings[i].extension)))
            return &packings[i];
    return NULL;
}

const HsPacking *hs_packing_of_bytes(const char *bytes, size_t size)
{
    for (int i = 0; i < PACKINGS; i++)
        if (size >= packings[i].offset + packings[i].size &&
            memcmp(bytes + packings[i].offset, packings[i].magic, packings[i].size) == 0)
            return &packings[i];
    return NULL;
}

static bool name_is(const Refused *row, const char *name, size_t length)
{
    for (const char *at = row->extensions, *blank; (blank = strchr(at, ' ')) != NULL; at = blank + 1)
        if (ends_with(name, length, at, (size_t)(blank - at)))
            return true;
    return false;
}

static bool bytes_are(const Refused *row, const char *bytes, size_t size)
{
    return row->magic && size >= row->offset + row->size && memcmp(bytes + row->offset, row->magic, row->size) == 0 &&
           (!row->as_text || memchr(bytes, 0, size));
}

HsStatus hs_source_kind_choose(const char *path, const char *format, const HsSourceKind **kind)
{
    const HsPacking *packing = hs_packing_of_name(path);
    size_t length = strlen(path) - (packing ? strlen(packing->extension) : 0);
    bool by_name = strcmp(format, "auto") == 0;
    for (int i = 0; by_name && i < REFUSED; i++)
        if (name_is(&refused[i], path, length))
            return hs_fail(HS_EFORMAT,
                           "%s: is %s by its name, which is not read; %s, or leave it out (tasks.N.exclude)", path,
                           refused[i].what, refused[i].mend);
    for (*kind = hs_source_kinds; (*kind)->extension; (*kind)++)
        if (by_name ? ends_with(path, length, (*kind)->extension, strlen((*kind)->extension))
                    : strcmp((*kind)->format, format) == 0)
            break;
    return HS_OK;
}

/* Which encoding of two or four bytes a character text without a byte order mark has: of Latin letters all but one
 * byte are zero, always at the same places.  NULL: none, as far as its first bytes show. */
static const char *wide_encoding(const char *bytes, size_t size)
{
    enum { LOOKED_AT = 256, LEAST = 8 };
    static const struct {
        const char *name;
        size_t width, letter; /* which byte of each character may be other than zero */
    } encodings[] = { { "UTF-32LE", 4, 0 }, { "UTF-32BE", 4, 3 }, { "UTF-16LE", 2, 0 }, { "UTF-16BE", 2, 1 } };
    const size_t length = size < LOOKED_AT ? size / 4 * 4 : LOOKED_AT;
    for (size_t i = 0; length >= LEAST && i < sizeof encodings / sizeof *encodings; i++) {
        size_t right = 0;
        for (size_t at = 0; at < length; at++)
            right += (bytes[at] != '\0') == (at % encodings[i].width == encodings[i].letter);
        if (10 * right >= 9 * length) /* a few characters are beyond Latin letters */
            return encodings[i].name;
    }
    return NULL;
}

HsStatus hs_source_refuse_bytes(const char *name, const char *bytes, size_t size)
{
    const HsPacking *packing = hs_packing_of_bytes(bytes, size);
    if (packing)
        return hs_fail(HS_EFORMAT, "%s: is compressed twice: %s data inside; unpack it once", name, packing->what);
    for (int i = 0; i < REFUSED; i++)
        if (bytes_are(&refused[i], bytes, size))
            return hs_fail(HS_EFORMAT,
                           "%s: is %s by its first bytes, which is not read; %s, or leave it out (tasks.N.exclude)",
                           name, refused[i].what, refused[i].mend);
    const char *const wide = wide_encoding(bytes, size);
    if (wide)
        return hs_fail(HS_EFORMAT,
                       "%s: is %s text without a byte order mark, by its first bytes, which is not read; convert it to "
                       "UTF-8 (iconv -f %s -t UTF-8), or leave it out (tasks.N.exclude)",
                       name, wide, wide);
    return HS_OK;
}
