/* SPDX-License-Identifier: MIT
 *
 * Reading a table of measured choices.  Whatever the bytes are: a table, or one message with file, line and remedy.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/base/hash.h"
#include "kernels/tuning/tuning.h"

enum { COLUMNS = 8, LONGEST_LINE = 256, HEADER_LINES = 5 };

static const int64_t most_side = (int64_t)1 << 30;

/* A line being read. */
typedef struct Line {
    const char *file;
    int number;
    char text[LONGEST_LINE];
    char *fields[COLUMNS];
    int count;
} Line;

#define LINE_FAIL(line, format, ...) \
    hs_fail(HS_EFORMAT, "%.200s:%d: " format, (line)->file, (line)->number, __VA_ARGS__)

/* The next line without its end; false: there is none. */
static bool next_line(const char **text, const char *end, const char **line, size_t *length)
{
    if (*text >= end)
        return false;
    const char *stop = memchr(*text, '\n', (size_t)(end - *text));
    *line = *text;
    *length = (size_t)((stop ? stop : end) - *text);
    *text = stop ? stop + 1 : end;
    return true;
}

/* Cut at tabs and blanks; one field too many counts as such. */
static void cut(Line *line)
{
    line->count = 0;
    for (char *at = strtok(line->text, " \t\r"); at; at = strtok(NULL, " \t\r")) {
        if (line->count == COLUMNS) {
            line->count++;
            return;
        }
        line->fields[line->count++] = at;
    }
}

static HsStatus take_line(Line *line, const char *text, size_t length)
{
    if (length >= sizeof line->text)
        return LINE_FAIL(
            line, "a line of %zu bytes, which no table has: make the table again with trainer selftest --tune", length);
    if (memchr(text, '\0', length))
        return LINE_FAIL(line, "a byte of zero: this is not a table of products (byte %zu)",
                         (size_t)((const char *)memchr(text, '\0', length) - text));
    memcpy(line->text, text, length);
    line->text[length] = '\0';
    return HS_OK;
}

static bool parse_integer(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    *value = number;
    return errno == 0 && end != text && *end == '\0' && number >= least && number <= most;
}

static HsStatus take_integer(const Line *line, const char *what, const char *text, int64_t least, int64_t most,
                             int64_t *value)
{
    if (parse_integer(text, least, most, value))
        return HS_OK;
    return LINE_FAIL(line, "%s must be a whole number from %lld to %lld (got %.40s)", what, (long long)least,
                     (long long)most, text);
}

/* --- the header --- */

static const char *value_of(Line *line, const char *name)
{
    const size_t length = strlen(name);
    if (strncmp(line->text, name, length) != 0 || (line->text[length] != '\t' && line->text[length] != ' '))
        return NULL;
    char *value = line->text + length + strspn(line->text + length, " \t");
    size_t used = strlen(value);
    while (used > 0 && strchr(" \t\r", value[used - 1]))
        value[--used] = '\0';
    return used > 0 ? value : NULL;
}

static HsStatus take_capability(const Line *line, const char *value, int *capability)
{
    if (strlen(value) >= 3 && strlen(value) <= 4 && value[strlen(value) - 2] == '.') {
        char digits[4] = "";
        memcpy(digits, value, strlen(value) - 2);
        digits[strlen(value) - 2] = value[strlen(value) - 1];
        int64_t number;
        if (strspn(digits, "0123456789") == strlen(digits) && parse_integer(digits, 10, 999, &number)) {
            *capability = (int)number;
            return HS_OK;
        }
    }
    return LINE_FAIL(line, "compute_capability must be a number such as 9.0 (got %.40s)", value);
}

static HsStatus take_header(Line *line, int index, HsTuningTable *table)
{
    static const char *const names[HEADER_LINES] = { "halfstep-tuning", "kernels", "device", "multiprocessors",
                                                     "compute_capability" };
    const char *value = value_of(line, names[index]);
    int64_t number = 0;
    if (!value)
        return LINE_FAIL(line,
                         "`%s` and its value must stand here, line %d of the header: is this a table written by "
                         "trainer selftest --tune?",
                         names[index], index + 1);
    switch (index) {
    case 0:
        if (strcmp(value, "1") != 0)
            return LINE_FAIL(line, "a table of version %.40s; this build reads version 1", value);
        return HS_OK;
    case 1:
        HS_TRY(take_integer(line, names[index], value, 1, 1000000, &number));
        if (number != HS_TUNING_KERNELS)
            return LINE_FAIL(
                line,
                "measured with revision %lld of the kernels, this build has %d: measure again with trainer "
                "selftest --tune",
                (long long)number, (int)HS_TUNING_KERNELS);
        return HS_OK;
    case 2:
        if (strlen(value) >= sizeof table->device.name)
            return LINE_FAIL(line, "a device's name has at most %d characters", (int)HS_TUNING_NAME - 1);
        memcpy(table->device.name, value, strlen(value) + 1);
        return HS_OK;
    case 3:
        HS_TRY(take_integer(line, names[index], value, 1, 100000, &number));
        table->device.multiprocessors = (int)number;
        return HS_OK;
    default:
        return take_capability(line, value, &table->device.compute_capability);
    }
}

/* --- rows --- */

static HsStatus take_layout(const Line *line, const char *text, HsProductKey *key)
{
    if (strlen(text) != 2 || strspn(text, "nt") != 2)
        return LINE_FAIL(line, "layout must be nn, nt, tn or tt (got %.40s)", text);
    key->transpose_a = text[0] == 't';
    key->transpose_b = text[1] == 't';
    return HS_OK;
}

static HsStatus take_format(const Line *line, const char *text, HsProductKey *key)
{
    for (int i = 0; i < HS_PRODUCT_FORMATS; i++)
        if (strcmp(text, hs_product_format_name((HsProductFormat)i)) == 0) {
            key->format = (HsProductFormat)i;
            return HS_OK;
        }
    return LINE_FAIL(line, "format must be f32, tf32, 16bit, fp8, fp8-promoted or fp8-blocks (got %.40s)", text);
}

static HsStatus take_row(Line *line, HsTuningRow *row)
{
    static const char *const sides[] = { "M", "N", "K" };
    *row = (HsTuningRow){ .line = line->number };
    cut(line);
    if (line->count != COLUMNS)
        return LINE_FAIL(line, "a row has %d fields (M N K layout format kernel slices microseconds), this one %s%d",
                         (int)COLUMNS, line->count > COLUMNS ? "more than " : "",
                         line->count > COLUMNS ? (int)COLUMNS : line->count);
    int64_t *const values[] = { &row->key.m, &row->key.n, &row->key.k };
    for (int i = 0; i < 3; i++)
        HS_TRY(take_integer(line, sides[i], line->fields[i], 1, most_side, values[i]));
    HS_TRY(take_layout(line, line->fields[3], &row->key));
    HS_TRY(take_format(line, line->fields[4], &row->key));
    if (strlen(line->fields[5]) >= sizeof row->kernel)
        return LINE_FAIL(line, "no kernel has a name as long as %.40s", line->fields[5]);
    memcpy(row->kernel, line->fields[5], strlen(line->fields[5]) + 1);
    int64_t slices;
    HS_TRY(take_integer(line, "slices", line->fields[6], 1, HS_TUNING_MOST_SLICES, &slices));
    row->slices = (int)slices;
    char *end;
    row->microseconds = strtod(line->fields[7], &end);
    if (end == line->fields[7] || *end != '\0' || !(row->microseconds >= 0.0 && row->microseconds < 1e12))
        return LINE_FAIL(line, "microseconds must be a number from 0 to 1e12 (got %.40s)", line->fields[7]);
    return HS_OK;
}

static HsStatus append(const Line *line, HsTuningTable *table, int *room, const HsTuningRow *row)
{
    if (table->count == HS_TUNING_MOST_ROWS)
        return LINE_FAIL(line, "more than %d rows, which is the most", (int)HS_TUNING_MOST_ROWS);
    if (table->count == *room) {
        const int wanted = *room > 0 ? 2 * *room : 64;
        HsTuningRow *larger = realloc(table->rows, (size_t)wanted * sizeof *larger);
        if (!larger)
            return hs_fail(HS_ENOMEM, "%.200s: no memory for %d rows", line->file, wanted);
        table->rows = larger;
        *room = wanted;
    }
    table->rows[table->count++] = *row;
    return HS_OK;
}

/* After sorting, equal products are neighbours. */
static HsStatus check_twins(const char *name, const HsTuningTable *table)
{
    for (int i = 1; i < table->count; i++) {
        const HsTuningRow *row = &table->rows[i];
        if (hs_product_compare(&row[-1].key, &row->key) == 0)
            return hs_fail(HS_EFORMAT, "%.200s:%d: the product of line %d again: keep one of the two", name, row->line,
                           row[-1].line);
    }
    return HS_OK;
}

/* Folded to 48 bits so that a checkpoint's numbers hold it exactly. */
static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = hs_hash_bytes(HS_HASH_START, text, length);
    hash = (hash >> 48 ^ hash) & ((UINT64_C(1) << 48) - 1);
    return hash > 0 ? hash : 1;
}

static HsStatus parse(Line *line, const char *text, size_t length, HsTuningTable *table)
{
    const char *const end = text + length;
    const char *start;
    size_t line_length;
    int header = 0, room = 0;
    while (next_line(&text, end, &start, &line_length)) {
        line->number++;
        HS_TRY(take_line(line, start, line_length));
        const char first = line->text[strspn(line->text, " \t\r")];
        if (first == '#' || first == '\0')
            continue;
        if (header < HEADER_LINES) {
            HS_TRY(take_header(line, header++, table));
            continue;
        }
        HsTuningRow row;
        HS_TRY(take_row(line, &row));
        HS_TRY(append(line, table, &room, &row));
    }
    if (header < HEADER_LINES)
        return hs_fail(HS_EFORMAT,
                       "%.200s: ends inside the header (%d of %d lines): is this a table written by trainer selftest "
                       "--tune?",
                       line->file, header, (int)HEADER_LINES);
    hs_tuning_sort(table);
    return check_twins(line->file, table);
}

HsStatus hs_tuning_parse(const char *name, const char *text, size_t length, HsTuningTable *table)
{
    Line line = { .file = name };
    memset(table, 0, sizeof *table);
    const HsStatus status = parse(&line, text, length, table);
    if (status != HS_OK)
        hs_tuning_deinit(table);
    else
        table->hash = hash_of(text, length);
    return status;
}

HsStatus hs_tuning_read(const char *path, HsTuningTable *table)
{
    memset(table, 0, sizeof *table);
    /* Without waiting for a FIFO's writer: there may never be one. */
    const int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "rb") : NULL;
    if (!file) {
        const int error = errno;
        if (descriptor >= 0)
            close(descriptor);
        return hs_fail(HS_EIO, "%.200s: cannot be opened: %s", path, strerror(error));
    }
    char *text = malloc(HS_TUNING_MOST_BYTES + 1);
    if (!text) {
        fclose(file);
        return hs_fail(HS_ENOMEM, "%.200s: no memory to read it", path);
    }
    const size_t length = fread(text, 1, HS_TUNING_MOST_BYTES + 1, file);
    const int error = ferror(file) ? errno : 0;
    fclose(file);
    HsStatus status;
    if (error != 0)
        status = hs_fail(HS_EIO, "%.200s: cannot be read: %s", path, strerror(error));
    else if (length > HS_TUNING_MOST_BYTES)
        status = hs_fail(HS_EFORMAT, "%.200s: larger than %d bytes, the most that a table may have", path,
                         (int)HS_TUNING_MOST_BYTES);
    else
        status = hs_tuning_parse(path, text, length, table);
    free(text);
    return status;
}
