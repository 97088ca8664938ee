/* SPDX-License-Identifier: MIT
 *
 * Which columns of a Parquet file are read: those that a JSON object's reader would look at (document.c,
 * chat_document.c), with all that is in them.  Other columns may be of any type.
 */
#include "kernels/base/array.h"
#include "runtime/data/source/parquet_file.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/tokenizer/bytes.h"

/* Of conversations; those that are refused where they are there are among them. */
static const char *const chat_fields[] = {
    "messages", "conversations", "instruction", "input",  "output", "history", "system",
    "tools",    "chosen",        "rejected",    "images", "videos", "audios",  "chat_template_kwargs",
    "functions"
};

bool hs_parquet_is_text(const HsParquetField *field)
{
    return field->type == HS_PARQUET_BYTE_ARRAY && field->meaning != HS_PARQUET_REFUSED && field->max_repetition == 0 &&
           field->parent == 0;
}

/* Of the root's fields; -1: not there. */
static int find_field(const HsParquet *file, const char *name)
{
    for (int at = 1; at < file->field_count; at = file->fields[at].end)
        if (name && strcmp(file->fields[at].name, name) == 0)
            return at;
    return -1;
}

static HsStatus check_type(const HsParquet *file, int at)
{
    const HsParquetField *const field = &file->fields[at];
    const char *type = field->meaning == HS_PARQUET_REFUSED ? field->refused
                       : field->type == HS_PARQUET_INT96    ? "INT96"
                       : field->type == HS_PARQUET_FIXED    ? "FIXED_LEN_BYTE_ARRAY"
                                                            : NULL;
    char path[256];
    return type ? hs_fail(HS_EFORMAT,
                          "%s: column `%s` has the type %s, which is not read: write it as a string or a number, or "
                          "leave it out",
                          file->name, hs_parquet_path(file, at, path, sizeof path), type)
                : HS_OK;
}

/* The columns in a field of the root. */
static HsStatus add_columns(HsParquet *file, int root)
{
    const int end = file->fields[root].end;
    for (int at = root; at < end; at++) {
        HsParquetField *const field = &file->fields[at];
        field->column = file->column_count; /* the first in it, as those come behind */
        HS_TRY(check_type(file, at));
        if (field->type != HS_PARQUET_GROUP)
            file->columns[file->column_count++] = at;
        else if (field->end == at + 1)
            return hs_fail(HS_EFORMAT, "%s: column `%s` is a group without columns: " HS_PARQUET_REWRITE, file->name,
                           field->name);
    }
    for (int at = root; at < end; at++)
        for (int inner = at; inner < file->fields[at].end; inner++)
            file->fields[at].columns += file->fields[inner].type != HS_PARQUET_GROUP;
    return HS_OK;
}

/* None of the fields: with the columns that there are. */
static HsStatus refuse_columns(const HsParquet *file, const HsSourceOptions *options)
{
    HsBytes names = { 0 };
    HsStatus status = HS_OK;
    enum { MOST_BYTES = 400 };
    for (int at = 1; status == HS_OK && at < file->field_count; at = file->fields[at].end) {
        const bool full = names.count > MOST_BYTES;
        const char *const name = full ? "..." : file->fields[at].name;
        if (names.count > 0)
            status = hs_bytes_append(&names, ", ", 2);
        if (status == HS_OK)
            status = hs_bytes_append(&names, name, strlen(name) < MOST_BYTES ? strlen(name) : MOST_BYTES);
        if (full)
            break;
    }
    if (status == HS_OK)
        status = hs_bytes_append(&names, "", 1);
    if (status == HS_OK)
        status =
            hs_fail(HS_EFORMAT,
                    "%s: has neither `%s` nor both `%s` and `%s`, but the columns %s; name the fields with the "
                    "task's text_field, or prompt_field and completion_field",
                    file->name, options->text_field, options->prompt_field, options->completion_field, names.items);
    hs_bytes_deinit(&names);
    return status;
}

static HsStatus check_doubled(const HsParquet *file, const char *name, int at)
{
    for (int other = at < 0 ? file->field_count : file->fields[at].end; other < file->field_count;
         other = file->fields[other].end)
        if (strcmp(file->fields[other].name, name) == 0)
            return hs_fail(HS_EFORMAT, "%s: has the column `%s` twice; rename one", file->name, name);
    return HS_OK;
}

static bool has(const HsParquet *file, const char *name)
{
    return find_field(file, name) >= 0;
}

/* That of a text, where it is read. */
static int text_column(const HsParquet *file, const char *name)
{
    const int at = find_field(file, name);
    return at < 0 ? -1 : file->fields[at].column;
}

HsStatus hs_parquet_choose_columns(HsParquet *file, const HsSourceOptions *options)
{
    enum { TEXTS = 3, CHATS = sizeof chat_fields / sizeof *chat_fields };
    const char *const texts[TEXTS] = { options->text_field, options->prompt_field, options->completion_field };
    file->has_form = has(file, "messages") || has(file, "conversations") ||
                     (has(file, "instruction") && has(file, "output")) ||
                     (has(file, "chosen") && has(file, "rejected"));
    if (!file->has_form && !has(file, texts[0]) && !(has(file, texts[1]) && has(file, texts[2])))
        return refuse_columns(file, options);
    file->columns = calloc((size_t)file->field_count, sizeof *file->columns);
    if (!file->columns)
        return hs_fail(HS_ENOMEM, "%s: no memory for %d columns", file->name, file->field_count);
    /* In the order of the file, which is that of the chunks. */
    for (int at = 1; at < file->field_count; at = file->fields[at].end) {
        const char *const name = file->fields[at].name;
        bool is_read = false;
        for (int i = 0; i < TEXTS; i++)
            is_read |= texts[i] && strcmp(texts[i], name) == 0;
        for (int i = 0; file->has_form && i < CHATS; i++)
            is_read |= strcmp(chat_fields[i], name) == 0;
        if (!is_read)
            continue;
        HS_TRY(check_doubled(file, name, at));
        HS_TRY(add_columns(file, at));
    }
    file->text = text_column(file, texts[0]);
    file->prompt = text_column(file, texts[1]);
    file->completion = text_column(file, texts[2]);
    return HS_OK;
}
