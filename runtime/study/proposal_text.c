/* SPDX-License-Identifier: MIT
 *
 * What a text holds: its files, and what characters they are made of.
 */
#include "runtime/study/proposal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/source/glob.h"
#include "runtime/data/source/input.h"
#include "runtime/data/source/source.h"
#include "runtime/io/files.h"
#include "runtime/io/utf8.h"

enum {
    KIND_BYTES = 32,
    LOOKED_AT = 64,         /* files of which characters are counted */
    FIRST_BYTES = 64 << 10, /* of these */
    CODE_POINTS = 0x110000
};
/* Files are read for measuring up to these bytes. */
static const double SAMPLE_BYTES = 16 << 20;

/* Characters of a file's first bytes. */
static void count_characters(const char *path, char *bytes, unsigned char *seen, HsProposalText *text)
{
    const size_t size = hs_read_start(path, bytes, FIRST_BYTES);
    const size_t valid = hs_utf8_valid_prefix(bytes, size);
    text->utf8 &= size - valid < (size == FIRST_BYTES ? 4 : 1); /* the last character of a long file may be cut */
    for (size_t at = 0, length; at < valid; at += length) {
        uint32_t character = 0;
        length = hs_utf8_decode(bytes + at, valid - at, &character);
        if (length == 0)
            break;
        if (character < CODE_POINTS && !(seen[character / 8] >> character % 8 & 1)) {
            seen[character / 8] |= (unsigned char)(1 << character % 8);
            text->distinct++;
        }
        text->characters++;
    }
    text->sample_text += (double)valid;
}

/* Bytes of all files; of files spread over the list the characters, and a sample to measure with. */
static HsStatus survey(const HsSourceList *sources, HsProposalText *text)
{
    char *const bytes = malloc(FIRST_BYTES);
    unsigned char *const seen = calloc(CODE_POINTS / 8, 1);
    HsStatus status = bytes && seen ? HS_OK : hs_fail(HS_ENOMEM, "no memory to look at a text");
    const int step = sources->count / LOOKED_AT + 1;
    text->files = sources->count;
    text->utf8 = true;
    for (int i = 0; i < sources->count && status == HS_OK; i++) {
        const HsSource *const source = &sources->items[i];
        struct stat about = { .st_size = 1000000 }; /* as much as tasks.N.synthetic_tokens makes */
        char end[KIND_BYTES];
        if (!source->kind || stat(source->name, &about) != 0) {
            text->bytes += (double)about.st_size;
            continue;
        }
        hs_proposal_end_of(source->name, end, sizeof end);
        text->bytes += (double)about.st_size;
        if (i % step == 0 && !hs_packing_of_name(end) && !hs_is(end, ".parquet"))
            count_characters(source->name, bytes, seen, text);
    }
    free(bytes);
    free(seen);
    return status;
}

/* The first SAMPLE_BYTES of a long text to its last whole line, in a temporary file whose name ends alike. */
static HsStatus cut_sample(const char *path, const char *end, HsProposalText *text)
{
    const size_t room = (size_t)SAMPLE_BYTES;
    char *const bytes = malloc(room), *name = NULL;
    const char *const folder = getenv("TMPDIR");
    if (!bytes || asprintf(&name, "%s/halfstep-XXXXXX%s", folder ? folder : "/tmp", end) < 0) {
        free(bytes);
        return hs_fail(HS_ENOMEM, "no memory for a part of %s", path);
    }
    size_t size = hs_read_start(path, bytes, room);
    while (size > 0 && bytes[size - 1] != '\n')
        size--;
    size = size > 0 ? size : room; /* one line */
    const int file = mkstemps(name, (int)strlen(end));
    HsStatus status = file >= 0 && write(file, bytes, size) == (ssize_t)size
                          ? hs_string_list_add(&text->sample, "%s", name)
                          : hs_fail(HS_EIO, "%s: cannot be written: %s", name, strerror(errno));
    text->sample_bytes += (double)size;
    text->cut = status == HS_OK;
    if (file >= 0)
        close(file);
    if (status != HS_OK)
        unlink(name);
    free(bytes);
    free(name);
    return status;
}

/* Files spread over the list, where all are too many. */
static HsStatus take_sample(const HsSourceList *sources, HsProposalText *text)
{
    text->sample_bytes = text->bytes;
    if (text->bytes <= SAMPLE_BYTES)
        return HS_OK;
    if (sources->count == 1) {
        const HsSourceKind *const kind = sources->items[0].kind;
        char end[KIND_BYTES];
        hs_proposal_end_of(sources->items[0].name, end, sizeof end);
        if (!kind || hs_packing_of_name(end) ||
            (kind->extension && !hs_is(kind->format, "jsonl"))) /* no part of it is a file */
            return HS_OK;
        text->sample_bytes = 0;
        return cut_sample(sources->items[0].name, end, text);
    }
    const int step = (int)(text->bytes / SAMPLE_BYTES) + 1;
    text->sample_bytes = 0;
    for (int i = 0; i < sources->count && text->sample_bytes < SAMPLE_BYTES; i += step) {
        struct stat about;
        if (stat(sources->items[i].name, &about) != 0)
            continue;
        text->sample_bytes += (double)about.st_size;
        HS_TRY(hs_string_list_add(&text->sample, "%s", sources->items[i].name));
    }
    return HS_OK;
}

/* The last part of the path, in letters that every place takes. */
static void name_task(const char *source, char name[64])
{
    const char *const colon = strchr(source, ':');
    size_t length = strlen(source), used = 0;
    while (length > 1 && source[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && source[start - 1] != '/')
        start--;
    if (colon && (size_t)(colon - source) >= start)
        start = (size_t)(colon - source) + 1;
    for (size_t i = start; i < length && used < 40; i++) {
        const char c = source[i];
        if (c == '.' && used > 0 && !strchr(source + i + 1, '/') && hs_read_start(source, (char[1]){ 0 }, 1) > 0)
            break; /* a file's end */
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                           c == '_' || c == '.';
        if (plain && !(used == 0 && (c == '-' || c == '.')))
            name[used++] = c;
    }
    name[used] = '\0';
    if (used == 0)
        snprintf(name, 64, "text");
}

/* A configuration has to hold it. */
static HsStatus check_name(const char *source)
{
    bool plain = hs_utf8_valid_prefix(source, strlen(source)) == strlen(source);
    for (const char *at = source; *at; at++)
        plain &= (unsigned char)*at >= ' ';
    return plain ? HS_OK
                 : hs_fail(HS_ECONFIG,
                           "--text %s: its name is not UTF-8, or has control characters, which a "
                           "configuration cannot hold: rename it",
                           source);
}

/* How the text's task reads its files, by what the command line says of it. */
static HsStatus load_reading(const HsProposalRequest *request, int index, HsConfig *config)
{
    HsStringList overrides = { 0 };
    char own[32];
    const int length = snprintf(own, sizeof own, "tasks.%d.", index);
    HsStatus status = HS_OK;
    for (int i = 0; i < request->override_count && status == HS_OK; i++)
        if (strncmp(request->overrides[i], own, (size_t)length) == 0)
            status = hs_string_list_add(&overrides, "tasks.0.%s", request->overrides[i] + length);
    if (status == HS_OK)
        status = hs_config_load(config, NULL, overrides.count, (const char *const *)overrides.items);
    hs_string_list_deinit(&overrides);
    return status;
}

static HsStatus look_at_folder(const HsProposalRequest *request, int index, HsProposalText *text)
{
    HsConfig config;
    HS_TRY(load_reading(request, index, &config));
    const HsStatus status = hs_proposal_choose_files(request->texts[index], &config.tasks[0], text);
    hs_config_deinit(&config);
    return status;
}

HsStatus hs_proposal_look(const HsProposalRequest *request, int index, HsProposalText *text)
{
    const char *const source = request->texts[index];
    struct stat about;
    *text = (HsProposalText){ 0 };
    HS_TRY(check_name(source));
    const bool found = stat(source, &about) == 0;
    if (!found && !hs_glob_is_pattern(source) && strncmp(source, "synthetic:", 10) != 0)
        return hs_fail(HS_ECONFIG, "--text %s: nothing is there: name a file or a folder of text", source);
    name_task(source, text->name);
    if (found && S_ISDIR(about.st_mode))
        HS_TRY(look_at_folder(request, index, text));
    else
        HS_TRY(hs_string_list_add(&text->train, "%s", source));
    HsSourceList sources = { 0 };
    HsStatus status = hs_source_list_exclude(&sources, &text->exclude);
    if (status == HS_OK)
        status = hs_source_list_add(&sources, text->train.items[0], "auto");
    if (status == HS_OK && hs_source_list_has_tokens(&sources))
        status =
            hs_fail(HS_ECONFIG,
                    "--text %s: token files (.bin) hold no text to choose a tokenizer by: name their text, or begin "
                    "with configs/gpt2-124m.yaml",
                    source);
    if (status == HS_OK)
        status = survey(&sources, text);
    if (status == HS_OK)
        status = take_sample(&sources, text);
    hs_source_list_deinit(&sources);
    if (status == HS_OK && text->bytes <= 0)
        status = hs_fail(HS_ECONFIG, "--text %s: its files are empty: name others", source);
    if (status == HS_ECONFIG || status == HS_OK)
        return status;
    const HsStatus given = hs_error_prefix(status, "--text");
    return given == HS_ENOMEM ? given : HS_ECONFIG;
}

void hs_proposal_text_deinit(HsProposalText *text)
{
    hs_string_list_deinit(&text->train);
    hs_string_list_deinit(&text->exclude);
    if (text->cut)
        unlink(text->sample.items[0]);
    hs_string_list_deinit(&text->sample);
}
