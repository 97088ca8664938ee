/* SPDX-License-Identifier: MIT
 *
 * See stops.h.
 */
#include "runtime/commands/stops.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/base/log.h"
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
        return hs_fail(HS_EFORMAT, "%s: eos_token_id must be the number of a token, or a list of such", path);
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
        hs_warn("%s; config.json says where a text ends", hs_error_message());
        status = HS_OK;
        *there = false;
    }
    if (status == HS_OK && *there)
        status = read_eos(path, root, stops);
    hs_json_destroy(root);
    free(path);
    return status;
}

HsStatus hs_stops_read(const HsLoadedModel *loaded, bool conversation, HsTokens *stops, bool *alone)
{
    const char *const tokenizer = loaded->config.tokenizer.path;
    const HsChatTemplate *made_by = hs_chat_template_get(loaded->config.tokenizer.chat_template);
    HsPretrainedKind kind;
    char *folder = NULL;
    bool there = false;
    int32_t end = -1;
    HS_TRY(hs_pretrained_kind(loaded->folder, &kind));
    *alone = kind == HS_PRETRAINED_HUGGINGFACE;
    if (tokenizer[0] != '\0')
        HS_TRY(hs_storage_folder(tokenizer, &folder));
    HsStatus status = folder ? read_config(folder, "generation_config.json", *alone, stops, &there) : HS_OK;
    free(folder);
    if (status == HS_OK && *alone && !there)
        status = read_config(loaded->folder, "config.json", false, stops, &there);
    if (status == HS_OK && made_by && (conversation || !*alone) &&
        hs_chat_end_token(made_by, loaded->tokenizer, &end) == HS_OK)
        status = add(stops, end);
    return status;
}
