/* SPDX-License-Identifier: MIT
 *
 * trainer cache [clear]: what text is kept as tokens, and removing it.
 */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/commands/arguments.h"
#include "runtime/commands/command.h"
#include "runtime/config/table.h"
#include "runtime/data/dataset.h"
#include "runtime/data/source/token_cache.h"

enum { UNUSED = 256 };

static const struct argp_option options[] = {
    { "config", 'c', "FILE", 0, "the cache of this configuration's runs (that of the defaults)", 0 },
    { "folder", 'f', "DIR", 0, "the cache in this folder", 0 },
    { "unused", UNUSED, "DAYS", 0, "only what was not used for so long", 0 },
    { 0 },
};

typedef struct Request {
    const char *config_path, *folder;
    bool clears;
    int64_t unused_days; /* -1: however lately it was used */
    HsOverrides overrides;
} Request;

static error_t parse(int key, char *argument, struct argp_state *state)
{
    Request *request = state->input;
    switch (key) {
    case 'c':
        request->config_path = argument;
        return 0;
    case 'f':
        request->folder = argument;
        return 0;
    case UNUSED:
        request->unused_days = hs_argument_integer(state, "--unused", argument, 0, 36500);
        return 0;
    case ARGP_KEY_ARG:
        if (strcmp(argument, "clear") == 0)
            request->clears = true;
        else if (strchr(argument, '=') && request->overrides.count < HS_MAX_OVERRIDES)
            request->overrides.items[request->overrides.count++] = argument;
        else if (strcmp(argument, "list") != 0)
            argp_error(state, "unexpected argument: %s (clear, list, or section.key=value)", argument);
        return 0;
    case ARGP_KEY_END:
        if (request->folder && (request->config_path || request->overrides.count > 0))
            argp_error(state, "--folder names the cache itself: leave the configuration out");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp hs_argp_cache = {
    options, parse, "[clear]", "List text that is kept as tokens for later runs (data.cache), or remove it.",
    NULL,    NULL,  NULL
};

static HsStatus find_folder(const Request *request, char **folder)
{
    HsConfig config;
    if (request->folder) {
        *folder = strdup(request->folder);
        return *folder ? HS_OK : hs_fail(HS_ENOMEM, "no memory for a path");
    }
    HS_TRY(hs_config_load(&config, request->config_path, request->overrides.count, request->overrides.items));
    HsStatus status = hs_task_data_cache_folder(&config, folder);
    hs_config_deinit(&config);
    if (status == HS_OK && !*folder)
        status = hs_fail(HS_ECONFIG, "data.cache: off: this configuration keeps no tokens");
    return status;
}

static bool is_asked_for(const Request *request, const HsCachedPart *part)
{
    return request->unused_days < 0 || (int64_t)time(NULL) - part->used_s >= request->unused_days * 86400;
}

static void print_part(const HsCachedPart *part)
{
    char used[32] = "";
    const time_t when = (time_t)part->used_s;
    struct tm date;
    if (localtime_r(&when, &date))
        strftime(used, sizeof used, "%Y-%m-%d %H:%M", &date);
    printf("%9.1f  %12" PRId64 "  %9.1f  %s  %s\n", (double)part->bytes / 0x1p20, part->about.tokens,
           (double)part->about.text_bytes / 0x1p20, used, part->about.title);
}

static HsStatus list(const Request *request, const char *folder, const HsCachedParts *parts)
{
    double bytes = 0;
    int count = 0;
    for (int i = 0; i < parts->count; i++) {
        if (!is_asked_for(request, &parts->items[i]))
            continue;
        if (count++ == 0)
            printf("      MiB        tokens   text MiB  last used         text\n");
        print_part(&parts->items[i]);
        bytes += (double)parts->items[i].bytes;
    }
    printf("%s: %d parts, %.1f MiB\n", folder, count, bytes / 0x1p20);
    return HS_OK;
}

static HsStatus clear(const Request *request, const char *folder, const HsCachedParts *parts)
{
    double bytes = 0;
    int count = 0, kept = 0;
    for (int i = 0; i < parts->count; i++) {
        if (!is_asked_for(request, &parts->items[i]))
            continue;
        const bool removed = hs_cached_part_remove(&parts->items[i]);
        count += removed;
        kept += !removed;
        bytes += removed ? (double)parts->items[i].bytes : 0;
    }
    printf("%s: removed %d parts, %.1f MiB\n", folder, count, bytes / 0x1p20);
    if (kept > 0)
        printf("%d parts are in use, or cannot be removed\n", kept);
    return HS_OK;
}

HsStatus hs_command_cache(int argc, char **argv)
{
    static Request request;
    HsCachedParts parts = { 0 };
    char *folder = NULL;
    request = (Request){ .unused_days = -1 };
    HS_TRY(hs_arguments_parse(&hs_argp_cache, argc, argv, &request));
    HsStatus status = find_folder(&request, &folder);
    if (status == HS_OK)
        status = hs_token_cache_list(folder, &parts);
    if (status == HS_OK)
        status = request.clears ? clear(&request, folder, &parts) : list(&request, folder, &parts);
    hs_cached_parts_deinit(&parts);
    free(folder);
    return status;
}
