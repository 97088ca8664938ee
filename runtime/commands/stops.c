/* SPDX-License-Identifier: MIT
 *
 * See stops.h.
 */
#include "runtime/commands/stops.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/data/source/chat.h"
#include "runtime/io/files.h"
#include "runtime/io/storage.h"

enum { GENERATION_CONFIG_MAX_BYTES = 1 << 20 };

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

static HsStatus read_generation_config(const char *tokenizer_path, HsTokens *stops)
{
    char *path = NULL, *text = NULL, *folder = NULL;
    size_t length = 0;
    HsJson *root = NULL;
    bool there = false;
    if (tokenizer_path[0] == '\0')
        return HS_OK;
    HsStatus status = hs_storage_folder(tokenizer_path, &folder);
    if (status == HS_OK)
        status = hs_storage_join(folder, "generation_config.json", &path);
    if (status == HS_OK)
        status = hs_path_exists(path, &there);
    if (status == HS_OK && there)
        status = hs_read_file(path, GENERATION_CONFIG_MAX_BYTES, &text, &length);
    if (status == HS_OK && there)
        status = hs_json_parse(path, text, length, &root);
    if (status == HS_OK && there)
        status = read_eos(path, root, stops);
    hs_json_destroy(root);
    free(text);
    free(path);
    free(folder);
    return status;
}

HsStatus hs_stops_read(const HsLoadedModel *loaded, HsTokens *stops)
{
    const HsChatTemplate *made_by = hs_chat_template_get(loaded->config.tokenizer.chat_template);
    int32_t end = -1;
    HS_TRY(read_generation_config(loaded->config.tokenizer.path, stops));
    if (made_by && hs_chat_end_token(made_by, loaded->tokenizer, &end) == HS_OK)
        return add(stops, end);
    return HS_OK;
}
