/* SPDX-License-Identifier: MIT
 *
 * See carried.h.
 */
#include "runtime/config/carried.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/pretrained.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"
#include "runtime/io/utf8.h"

#define FORMAT_NAME "halfstep-carried-1"
enum { FILE_MOST_BYTES = 64 << 20, CARRIED_MOST_BYTES = 1 << 30 };

static const char *const of_tokenizer[] = { "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
                                            "chat_template.json", NULL };
static const char *const of_model[] = { "config.json", "generation_config.json", NULL };

typedef struct Gathering {
    HsJson *files;
    int count;
} Gathering;

/* folder/name, where it is there. */
static HsStatus take_file(const char *folder, const char *name, Gathering *gathering)
{
    char *path = NULL, *text = NULL;
    size_t length = 0;
    bool there = false;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_read_file(path, FILE_MOST_BYTES, &text, &length);
    if (status == HS_OK && there && hs_utf8_valid_prefix(text, length) == length && strlen(text) == length) {
        hs_json_set_string(gathering->files, name, text);
        gathering->count++;
    } else if (status == HS_OK && there)
        hs_warn("%s is not UTF-8, and exports will leave it out", path);
    free(text);
    free(path);
    return status;
}

static HsStatus take_files(const char *folder, const char *const *names, Gathering *gathering)
{
    for (; *names; names++)
        HS_TRY(take_file(folder, *names, gathering));
    return HS_OK;
}

static HsStatus take_templates(const char *folder, Gathering *gathering)
{
    char *path = NULL, name[512];
    bool there = false;
    HsFolderListing listing = { 0 };
    HS_TRY(hs_storage_join(folder, HS_CARRIED_TEMPLATES, &path));
    HsStatus status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_storage_list(path, &listing);
    for (int i = 0; i < listing.count && status == HS_OK; i++) {
        const size_t length = strlen(listing.names[i]);
        if (length < 6 || strcmp(listing.names[i] + length - 6, ".jinja") != 0)
            continue;
        snprintf(name, sizeof name, HS_CARRIED_TEMPLATES "/%s", listing.names[i]);
        status = take_file(folder, name, gathering);
    }
    hs_storage_list_free(&listing);
    free(path);
    return status;
}

static HsStatus gather(const HsConfig *config, Gathering *gathering)
{
    HsPretrainedKind kind = HS_PRETRAINED_NONE;
    char *folder = NULL;
    if (config->tokenizer.path[0] != '\0') {
        HS_TRY(hs_storage_folder(config->tokenizer.path, &folder));
        HsStatus status = take_files(folder, of_tokenizer, gathering);
        if (status == HS_OK)
            status = take_templates(folder, gathering);
        free(folder);
        HS_TRY(status);
    }
    if (config->training.init_from[0] != '\0')
        HS_TRY(hs_pretrained_kind(config->training.init_from, &kind));
    return kind == HS_PRETRAINED_HUGGINGFACE ? take_files(config->training.init_from, of_model, gathering) : HS_OK;
}

HsStatus hs_carried_gather(const HsConfig *config, HsCarried *carried)
{
    Gathering gathering = { .files = hs_json_object() };
    *carried = (HsCarried){ 0 };
    HsStatus status = gather(config, &gathering);
    if (status != HS_OK || gathering.count == 0) {
        hs_json_destroy(gathering.files);
        return status;
    }
    carried->root = hs_json_object();
    hs_json_set_string(carried->root, "format", FORMAT_NAME);
    hs_json_set(carried->root, "files", gathering.files);
    return hs_json_count(hs_carried_files(carried)) == gathering.count
               ? HS_OK
               : hs_fail(HS_ENOMEM, "no memory to keep %d files of a folder", gathering.count);
}

HsStatus hs_carried_load(const char *checkpoint, HsCarried *carried)
{
    char *path = NULL, *text = NULL;
    const char *format = NULL;
    size_t length = 0;
    bool there = false;
    *carried = (HsCarried){ 0 };
    HS_TRY(hs_storage_join(checkpoint, HS_CARRIED_FILE, &path));
    HsStatus status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_read_file(path, CARRIED_MOST_BYTES, &text, &length);
    if (status == HS_OK && there)
        status = hs_json_parse(path, text, length, &carried->root);
    if (status == HS_OK && there)
        status = hs_json_need_string(path, carried->root, "format", &format);
    if (status == HS_OK && there && (strcmp(format, FORMAT_NAME) != 0 || !hs_carried_files(carried)))
        status =
            hs_fail(HS_EFORMAT, "%s: must be in the format %s: the checkpoint is damaged, or another version wrote it",
                    path, FORMAT_NAME);
    free(text);
    free(path);
    return status;
}

HsStatus hs_carried_write(const HsCarried *carried, const char *checkpoint)
{
    char *path = NULL;
    if (!carried->root)
        return HS_OK;
    HS_TRY(hs_storage_join(checkpoint, HS_CARRIED_FILE, &path));
    char *text = hs_json_write(carried->root, true);
    HsStatus status =
        text ? hs_storage_write_file(path, text, strlen(text)) : hs_fail(HS_ENOMEM, "%s: no memory for it", path);
    free(text);
    free(path);
    return status;
}

void hs_carried_deinit(HsCarried *carried)
{
    hs_json_destroy(carried->root);
    *carried = (HsCarried){ 0 };
}

const HsJson *hs_carried_files(const HsCarried *carried)
{
    const HsJson *files = carried->root ? hs_json_get(carried->root, "files") : NULL;
    return hs_json_is_object(files) ? files : NULL;
}

const char *hs_carried_text(const HsCarried *carried, const char *name)
{
    return hs_json_string(hs_json_get(hs_carried_files(carried), name));
}

HsStatus hs_carried_object(const HsCarried *carried, const char *name, HsJson **object)
{
    const char *const text = hs_carried_text(carried, name);
    *object = NULL;
    if (!text)
        return HS_OK;
    HS_TRY(hs_json_parse_python(name, text, strlen(text), object));
    return hs_json_is_object(*object) ? HS_OK : hs_fail(HS_EFORMAT, "%s: not a JSON object", name);
}
