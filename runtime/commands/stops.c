/* SPDX-License-Identifier: MIT
 *
 * See stops.h.
 */
#include "runtime/commands/stops.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
#include "runtime/config/carried.h"
#include "runtime/config/pretrained.h"
#include "runtime/data/source/chat.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

enum { CONFIG_MAX_BYTES = 1 << 24 };

static HsStatus add(HsTokens *stops, int32_t token)
{
    HS_TRY(hs_tokens_reserve(stops, 1));
    stops->items[stops->count++] = token;
    return HS_OK;
}

static HsStatus add_number(const char *path, const HsJson *node, HsTokens *stops)
{
    const double value = hs_json_number(node);
    if (!(value >= 0 && value < INT32_MAX) || value != (double)(int32_t)value)
        return hs_fail(HS_EFORMAT, "%s: eos_token_id must be the number of a token, or a list of such numbers", path);
    return add(stops, (int32_t)value);
}

static HsStatus read_eos(const char *path, const HsJson *root, HsTokens *stops)
{
    const HsJson *node = hs_json_get(root, "eos_token_id");
    if (!node || hs_json_is_null(node))
        return HS_OK;
    if (!hs_json_is_array(node))
        return add_number(path, node, stops);
    for (const HsJson *item = hs_json_first(node); item; item = hs_json_next(item))
        HS_TRY(add_number(path, item, stops));
    return HS_OK;
}

/* folder/name, where it is there.  may_be_broken: one that is not JSON counts as absent, as with transformers. */
static HsStatus read_config(const char *folder, const char *name, bool may_be_broken, HsTokens *stops, bool *there)
{
    char *path = NULL;
    HsJson *root = NULL;
    HS_TRY(hs_storage_join(folder, name, &path));
    HsStatus status = hs_path_exists(path, there);
    if (status == HS_OK && *there)
        status = hs_json_read_python(path, CONFIG_MAX_BYTES, &root);
    if (status == HS_EFORMAT && may_be_broken) {
        hs_warn("%s; config.json's eos_token_id is used instead", hs_error_message());
        status = HS_OK;
        *there = false;
    }
    if (status == HS_OK && *there)
        status = read_eos(path, root, stops);
    hs_json_destroy(root);
    free(path);
    return status;
}

/* Of a Hugging Face folder: generation_config.json, and where that is not there config.json. */
static HsStatus read_folder(const char *folder, HsTokens *stops)
{
    bool there = false;
    HS_TRY(read_config(folder, "generation_config.json", true, stops, &there));
    return there ? HS_OK : read_config(folder, "config.json", false, stops, &there);
}

/* Of a checkpoint: what it carries of the folder that its run began with; those of earlier versions carry nothing, and the
 * folder is asked while it is there. */
static HsStatus read_checkpoint(const HsLoadedModel *loaded, HsTokens *stops)
{
    const char *const tokenizer = loaded->config.tokenizer.path;
    HsCarried carried = { 0 };
    HsJson *generation = NULL;
    char *folder = NULL;
    bool there = false;
    HsStatus status = hs_carried_load(loaded->folder, &carried);
    if (status == HS_OK)
        status = hs_carried_object(&carried, "generation_config.json", &generation);
    if (status == HS_OK && generation)
        status = read_eos("generation_config.json in " HS_CARRIED_FILE, generation, stops);
    if (status == HS_OK && !carried.root && tokenizer[0] != '\0')
        status = hs_storage_folder(tokenizer, &folder);
    if (status == HS_OK && folder)
        status = read_config(folder, "generation_config.json", false, stops, &there);
    free(folder);
    hs_json_destroy(generation);
    hs_carried_deinit(&carried);
    return status;
}

HsStatus hs_stops_read(const HsLoadedModel *loaded, bool conversation, HsTokens *stops, bool *alone)
{
    const HsChatTemplate *made_by = hs_chat_template_get(loaded->config.tokenizer.chat_template);
    HsPretrainedKind kind;
    int32_t end = -1;
    HS_TRY(hs_pretrained_kind(loaded->folder, &kind));
    *alone = kind == HS_PRETRAINED_HUGGINGFACE;
    HS_TRY(*alone ? read_folder(loaded->folder, stops) : read_checkpoint(loaded, stops));
    if (made_by && (conversation || !*alone) && hs_chat_end_token(made_by, loaded->tokenizer, &end) == HS_OK)
        return add(stops, end);
    return HS_OK;
}
